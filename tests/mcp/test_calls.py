"""Which calls of the local protocol carry a tool call out."""

from typing import Any

import pytest

from mbx.core.errors import MbxError
from mbx.core.limits import IDEMPOTENCY_KEY_MAX_CHARS
from mbx.daemon.methods import METHODS
from mbx.mcp.calls import READ_DEFAULT_BYTES, Step, Surroundings, key_of, steps_of
from mbx.mcp.tools import BY_NAME

HERE = Surroundings("/home/ana/work")

CALLS: list[tuple[str, dict[str, Any], list[tuple[str, dict[str, Any]]]]] = [
    ("mbx_whoami", {}, [("session.whoami", {})]),
    (
        "mbx_whoami",
        {"name": "zoe", "role": "tester", "card": "c"},
        [
            ("identity.rename", {"name": "zoe"}),
            ("identity.set", {"role": "tester", "card": "c"}),
            ("session.whoami", {}),
        ],
    ),
    ("mbx_whoami", {"bind": "t"}, [("session.whoami", {"bind": "t"})]),
    ("mbx_identity", {"action": "list", "all": True}, [("identity.list", {"all": True})]),
    (
        "mbx_identity",
        {"action": "register", "name": "zoe", "role": "tester"},
        [("identity.register", {"name": "zoe", "role": "tester", "project": "/home/ana/work"})],
    ),
    ("mbx_identity", {"action": "claim", "name": "zoe"}, [("identity.claim", {"name": "zoe"})]),
    ("mbx_identity", {"action": "release"}, [("identity.release", {})]),
    ("mbx_read", {"ids": ["a"], "max_bytes": 9}, [("mail.read", {"ids": ["a"], "max_bytes": 9})]),
    ("mbx_search", {"query": "q"}, [("mail.search", {"query": "q"})]),
]


@pytest.mark.parametrize(("tool", "arguments", "wanted"), CALLS)
def test_a_tool_is_these_calls(
    tool: str, arguments: dict[str, Any], wanted: list[tuple[str, dict[str, Any]]]
) -> None:
    assert [(step.method, dict(step.params)) for step in steps_of(tool, arguments, HERE)] == wanted


@pytest.mark.parametrize(
    "arguments",
    [
        {"action": "list", "name": "zoe"},
        {"action": "release", "role": "tester"},
        {"action": "register", "name": "zoe"},
        {"action": "register", "role": "tester"},
        {"action": "claim"},
        {"action": "claim", "name": "zoe", "role": "tester"},
    ],
)
def test_arguments_of_another_action_are_refused(arguments: dict[str, Any]) -> None:
    with pytest.raises(MbxError) as refusal:
        steps_of("mbx_identity", arguments, HERE)
    assert refusal.value.code == "usage"
    assert "claim {name}" in str(refusal.value.next_step)


def test_what_is_changed_is_keyed_and_every_method_exists() -> None:
    for tool in BY_NAME:
        arguments = {"ids": ["a"], "action": "release", "name": "zoe", "role": "tester"}
        arguments["event"] = "SessionStart"
        for step in steps_of(tool, {k: arguments[k] for k in _taken(tool) & set(arguments)}, HERE):
            assert step.keyed == METHODS[step.method].keyed, step.method


def _taken(tool: str) -> set[str]:
    names = set(BY_NAME[tool]["inputSchema"]["properties"])
    return {"action"} if tool == "mbx_identity" else names


@pytest.mark.parametrize(
    ("event", "told"),
    [
        ("SessionStart", "start"),
        ("UserPromptSubmit", "called"),
        ("Stop", "called"),
        ("x", "called"),
    ],
)
def test_a_hook_tells_whether_its_session_begins(event: str, told: str) -> None:
    [step] = steps_of("mbx_hook", {"event": event, "session": "s-1"}, HERE)
    assert step == Step("session.hook", {"event": told, "session": "s-1"})


@pytest.mark.parametrize("count", [1, 2, 20, 200])
def test_what_many_messages_take_together_is_bounded(count: int) -> None:
    [step] = steps_of("mbx_read", {"ids": ["a"] * count}, HERE)
    share = step.params["max_bytes"]
    assert share >= 512
    assert share * count <= max(READ_DEFAULT_BYTES, 512 * count)


def test_keys_of_one_call_differ_and_fit() -> None:
    call = f"mcp.{'f' * 32}.{10**15}"
    keys = [key_of(call, place) for place in range(3)]
    assert len(set(keys)) == 3
    assert max(map(len, keys)) <= IDEMPOTENCY_KEY_MAX_CHARS
    assert key_of(call, 0, "mine") == "mine"
