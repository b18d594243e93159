"""What models really send is understood where that is beyond doubt, and else refused in words."""

from typing import Any

import pytest

from mbx.core.errors import MbxError
from mbx.mcp.arguments import as_object, read
from mbx.mcp.tools import BY_NAME

UNDERSTOOD: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    ("mbx_read", {"ids": ["a", "b"]}, {"ids": ["a", "b"]}),
    ("mbx_read", {"ids": "abcdef"}, {"ids": ["abcdef"]}),
    ("mbx_read", {"id": "abcdef"}, {"ids": ["abcdef"]}),
    ("mbx_read", {"ids": '["abcdef", "ghjkmn"]'}, {"ids": ["abcdef", "ghjkmn"]}),
    ("mbx_read", {"ids": "abcdef, ghjkmn"}, {"ids": ["abcdef", "ghjkmn"]}),
    ("mbx_read", {"ids": ["x"], "offset": "12", "max_bytes": 4.0}, {"offset": 12, "max_bytes": 4}),
    ("mbx_thread", {"ids": ["abcdef"]}, {"id": "abcdef"}),
    ("mbx_thread", {"id": ' ["abcdef"] '}, {"id": "abcdef"}),
    ("mbx_reply", {"id": " abcdef\n", "body": " b "}, {"id": "abcdef", "body": " b "}),
    (
        "mbx_send",
        {"to": "ana", "subject": "s", "body": '["b"]', "reply_to": ["abcdef"]},
        {"reply_to": "abcdef", "body": '["b"]'},
    ),
    ("mbx_inbox", {"limit": " 20 ", "cursor": None, "all": "true"}, {"limit": 20, "all": True}),
    ("mbx_inbox", {"kind": "Request"}, {"kind": "request"}),
    ("mbx_inbox", {"all": False}, {"all": False}),
    (
        "mbx_send",
        {"to": "ana,ben@lap", "subject": "s", "body": "b", "needs_reply": "False"},
        {"to": ["ana", "ben@lap"], "needs_reply": False},
    ),
    (
        "mbx_send",
        {"to": ["ana"], "subject": "s", "body": "", "refs": "a, b"},
        {"refs": ["a, b"], "body": ""},
    ),
    ("mbx_send", {"to": "[ana", "subject": "s", "body": "[1]"}, {"to": ["[ana"], "body": "[1]"}),
]

REFUSED: list[tuple[str, dict[str, Any], str]] = [
    ("mbx_read", {}, "needs the argument ids"),
    ("mbx_read", {"ids": None}, "needs the argument ids"),
    ("mbx_read", {"ids": ["a", 1]}, "ids must be a list of strings"),
    ("mbx_read", {"ids": {"0": "a"}}, "ids must be a list of strings"),
    ("mbx_read", {"ids": "[1, 2]"}, "ids must be a list of strings"),
    ("mbx_read", {"ids": ["a"], "id": "b"}, "no argument 'id'"),
    ("mbx_read", {"ids": ["a"], "offset": "-1"}, "offset must be a whole number"),
    ("mbx_read", {"ids": ["a"], "offset": True}, "offset must be a whole number"),
    ("mbx_read", {"ids": ["a"], "offset": 1.5}, "offset must be a whole number"),
    ("mbx_read", {"ids": ["a"], "offset": "1e3"}, "offset must be a whole number"),
    ("mbx_inbox", {"limit": "\u0663"}, "limit must be a whole number"),
    ("mbx_inbox", {"all": 1}, "all must be true or false"),
    ("mbx_inbox", {"all": "yes"}, "all must be true or false"),
    ("mbx_inbox", {"kind": "letter"}, "kind must be one of message, request"),
    ("mbx_inbox", {"unknown": 1}, "no argument 'unknown'"),
    ("mbx_thread", {"id": ["a", "b"]}, "id must be a string"),
    ("mbx_thread", {"id": 123456}, "id must be a string"),
    ("mbx_thread", {"id": '["a", "b"]'}, "id must be a string"),
    ("mbx_send", {"to": "ana", "subject": 5, "body": "b"}, "subject must be a string"),
    ("mbx_send", {"to": "ana", "subject": "s", "body": {"a": 1}}, "body must be a string"),
    ("mbx_send", {"to": "ana", "subject": "s"}, "needs the argument body"),
]


@pytest.mark.parametrize(("tool", "given", "wanted"), UNDERSTOOD)
def test_what_is_meant_beyond_doubt_is_understood(
    tool: str, given: dict[str, Any], wanted: dict[str, Any]
) -> None:
    found = read(tool, given)
    assert {name: found.get(name) for name in wanted} == wanted
    assert set(found) <= set(BY_NAME[tool]["inputSchema"]["properties"])


@pytest.mark.parametrize(("tool", "given", "words"), REFUSED)
def test_everything_else_is_refused_in_words_that_mend_it(
    tool: str, given: dict[str, Any], words: str
) -> None:
    with pytest.raises(MbxError) as refusal:
        read(tool, given)
    assert refusal.value.code == "usage"
    assert words in refusal.value.message
    assert refusal.value.next_step is not None
    assert f"{tool} takes: " in refusal.value.next_step


def test_a_name_that_is_very_long_is_told_in_part() -> None:
    with pytest.raises(MbxError) as refusal:
        read("mbx_inbox", {"x" * 100_000: 1})
    assert len(refusal.value.message) < 200


def test_a_list_that_is_nested_without_end_is_one_text() -> None:
    assert read("mbx_read", {"ids": "[" * 100_000})["ids"] == ["[" * 100_000]


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ({"limit": 1}, {"limit": 1}),
        ([], {}),
        ("", {}),
        (" ", {}),
        ('{"limit": 1}', {"limit": 1}),
        (None, None),
        ([1], [1]),
        ("[]", "[]"),
        ('{"limit": 1', '{"limit": 1'),
        ("[" * 100_000, "[" * 100_000),
        (7, 7),
    ],
)
def test_arguments_that_stand_in_a_text_are_those_of_the_call(given: object, meant: object) -> None:
    assert as_object(given) == meant
