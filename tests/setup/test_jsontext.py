"""The JSON splicer: what it adds can be taken out to the byte, and it refuses the rest by place."""

import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mbx.setup.jsontext import DEPTH_MAX, Json
from mbx.setup.steps import Append, Path, Put, Refused, Remove, Step, carried_out

ENTRY = {"command": "/opt/mbx", "args": ["mcp"], "env": {"MBX_HOME": "/x"}}
PUT = Put(("mcpServers", "mbx"), ENTRY)

plain = st.none() | st.booleans() | st.integers() | st.text(max_size=8)
keys = st.text(max_size=6).filter(lambda key: key not in ("mbx", "mcpServers", "hooks"))
values = st.recursive(
    plain,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=3),
    max_leaves=8,
)
blanks = st.text(alphabet=" \t\n", max_size=3)
comments = st.sampled_from(["", "// a note\n", "/* one */", '/* two\nlines, {[" */', "//\n"])
gaps = st.builds(lambda before, note, after: before + note + after, blanks, comments, blanks)


@st.composite
def written(draw: st.DrawFn, value: Any) -> str:
    """A value as somebody might have written it: blanks, comments, trailing commas anywhere."""
    if isinstance(value, dict | list):
        is_object = isinstance(value, dict)
        items: list[tuple[Any, Any]] = (
            list(value.items()) if isinstance(value, dict) else [(None, one) for one in value]
        )
        parts = []
        for key, one in items:
            head = "" if key is None else json.dumps(key) + draw(gaps) + ":" + draw(gaps)
            parts.append(draw(gaps) + head + draw(written(one)) + draw(gaps))
        text = ",".join(parts)
        has_comma: bool = draw(st.booleans())
        if parts and has_comma:
            text += "," + draw(gaps)
        return ("{" if is_object else "[") + (text or draw(gaps)) + ("}" if is_object else "]")
    return json.dumps(value, ensure_ascii=draw(st.booleans()))


@st.composite
def documents(draw: st.DrawFn) -> tuple[Any, str]:
    """An object that may hold a container for ours, and a text that says it."""
    value = draw(st.dictionaries(keys, values, max_size=3))
    holder = draw(st.none() | st.dictionaries(keys, values, max_size=3))
    if holder is not None:
        value["mcpServers"] = holder
    text = draw(gaps) + draw(written(value)) + draw(gaps)
    is_of_windows = draw(st.booleans())
    if is_of_windows:
        text = text.replace("\n", "\r\n")
    return value, draw(st.sampled_from(["", "\ufeff"])) + text


def bare(text: str) -> Any:
    """Read by the standard library, after another way of leaving comments and commas out."""
    note = r"//[^\n]*|/\*(?:(?!\*/).)*\*/"
    token = re.compile(rf'"(?:[^"\\]|\\.)*"|{note}|,(?=(?:\s|{note})*[}}\]])', re.DOTALL)
    kept = token.sub(lambda found: found[0] if found[0][0] == '"' else "", text)
    return json.loads(kept.removeprefix("\ufeff"))


@given(documents())
def test_what_is_read_is_what_the_standard_library_reads(document: tuple[Any, str]) -> None:
    value, text = document
    assert Json().read(text) == bare(text) == value


@given(documents())
def test_adding_a_member_and_taking_it_out_gives_the_same_bytes(document: tuple[Any, str]) -> None:
    value, text = document
    added = carried_out(Json(), text, [PUT])
    assert bare(added) == value | {"mcpServers": value.get("mcpServers", {}) | {"mbx": ENTRY}}
    path: Path = ("mcpServers", "mbx") if "mcpServers" in value else ("mcpServers",)
    assert carried_out(Json(), added, [Remove(path)]) == text


@given(documents(), st.lists(values, max_size=3), st.data())
def test_adding_an_element_and_taking_it_out_gives_the_same_bytes(
    document: tuple[Any, str], listed: list[Any], data: st.DataObject
) -> None:
    _, text = document
    text = data.draw(written({"hooks": listed}))
    added = carried_out(Json(), text, [Append(("hooks",), ENTRY)])
    assert bare(added) == {"hooks": [*listed, ENTRY]}
    assert carried_out(Json(), added, [Remove(("hooks", len(listed)))]) == text


@given(documents(), st.data())
def test_any_member_can_be_taken_out_and_the_rest_stays(
    document: tuple[Any, str], data: st.DataObject
) -> None:
    value, text = document
    key = data.draw(st.sampled_from([*value, "new"]))
    if key == "new":
        text, value = carried_out(Json(), text, [Put(("new",), 1)]), value | {"new": 1}
    left = carried_out(Json(), text, [Remove((key,))])
    assert bare(left) == {name: one for name, one in value.items() if name != key}
    for note in re.findall(r"// a note|/\* one \*/", text):
        assert left.count(note) <= text.count(note)


@given(documents(), values)
def test_a_value_is_replaced_and_everything_around_it_stays(
    document: tuple[Any, str], value: Any
) -> None:
    text = carried_out(Json(), document[1], [Put(("spot",), "HERE")])
    new = carried_out(Json(), text, [Put(("spot",), value)])
    before, after = text.split('"HERE"')
    assert new.startswith(before)
    assert new.endswith(after)
    assert bare(new)["spot"] == value


@pytest.mark.parametrize(
    ("text", "step", "expected"),
    [
        ("", Put(("a",), 1), '{\n  "a": 1\n}\n'),
        ("{}", Put(("a",), 1), '{\n  "a": 1\n}'),
        ('{"b":2}', Put(("a",), {"c": [1]}), '{"b":2,"a":{"c": [1]}}'),
        ('{\n\t"b": 2\n}\n', Put(("a",), {"c": 1}), '{\n\t"b": 2,\n\t"a": {\n\t\t"c": 1\n\t}\n}\n'),
        ('{\r\n  "b": 2\r\n}', Put(("a",), 1), '{\r\n  "b": 2,\r\n  "a": 1\r\n}'),
        ('{\n  "b": 2, // two\n}', Put(("a",), 1), '{\n  "b": 2, // two\n  "a": 1,\n}'),
        ('{\n  "b": 2 // two\n}', Put(("a",), 1), '{\n  "b": 2, // two\n  "a": 1\n}'),
        ('{"h": [\n  1\n]}', Append(("h",), 2), '{"h": [\n  1,\n  2\n]}'),
    ],
)
def test_what_is_added_looks_like_its_neighbours(text: str, step: Step, expected: str) -> None:
    assert carried_out(Json(), text, [step]) == expected


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "it ends in the middle (line 1, column 2)"),
        ('{\n "a": tru\n}', "unexpected 't' (line 2, column 7)"),
        ('{"a" 1}', "unexpected '1' (line 1, column 6)"),
        ('{"a": 1 "b": 2}', "unexpected '\"' (line 1, column 9)"),
        ("{,}", "unexpected ',' (line 1, column 2)"),
        ("{} {}", "unexpected '{' (line 1, column 4)"),
        ('{"a": "b\n"}', "invalid control character at (line 1, column 9)"),
        ("/* never", "a comment has no end (line 1, column 1)"),
        ("[]", "the document is not an object"),
        ('{"mcpServers": []}', "mcpServers is not an object"),
        ('{"mcpServers": null}', "mcpServers is not an object"),
        ('{"mcpServers": {}, "mcpServers": {"a": 1}}', "stands twice in one object"),
        ("NaN", "unexpected 'N' (line 1, column 1)"),
        ("{'a': 1}", 'unexpected "\'" (line 1, column 2)'),
    ],
)
def test_what_cannot_be_read_for_sure_is_refused_with_its_place(text: str, words: str) -> None:
    with pytest.raises(Refused) as refused:
        carried_out(Json(), text, [PUT])
    assert words in str(refused.value)


@pytest.mark.parametrize("depth", [DEPTH_MAX - 1, DEPTH_MAX, DEPTH_MAX + 1])
def test_more_levels_than_the_limit_are_refused(depth: int) -> None:
    text = '{"a":' * depth + "1" + "}" * depth
    if depth <= DEPTH_MAX:
        carried_out(Json(), text, [PUT])
        return
    with pytest.raises(Refused, match="levels"):
        carried_out(Json(), text, [PUT])


def test_a_number_of_ten_thousand_digits_stays_as_it_is() -> None:
    text = '{"n": ' + "9" * 10_000 + "}"
    assert "9" * 10_000 in carried_out(Json(), text, [PUT])


def test_a_text_of_megabytes_is_scanned_once_for_all_that_is_asked_of_it() -> None:
    language, text = Json(), json.dumps({"history": [{"display": "x" * 100}] * 2_000})
    read = language.read(text)
    assert language.read(text) is read
    added = carried_out(language, text, [PUT])
    assert language.read(added)["history"] == read["history"]
