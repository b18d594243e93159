"""Single fields: each reader returns what it is asked for, typed, or refuses without quoting."""

from collections.abc import Callable
from typing import Any

import pytest

from mbx.core import fields
from mbx.core.canonical import JsonValue
from mbx.core.names import check_name
from mbx.core.record import RecordError

SECRET = "zebra-47"
READERS: dict[str, tuple[Callable[[Any], object], list[JsonValue], list[Any]]] = {
    "exactly": (
        lambda value: fields.exactly(value, frozenset({"a"}), "it"),
        [{"a": SECRET}],
        [{}, {"a": 1, SECRET: 2}, {SECRET: 1}, [SECRET], SECRET, None],
    ),
    "listed": (
        lambda value: fields.listed(value, 2, "it", least=1),
        [["a"], ["a", "b"]],
        [[], ["a", "b", SECRET], {"a": 1}, SECRET, None],
    ),
    "whole": (
        lambda value: fields.whole(value, "it", 3, 5),
        [3, 5],
        [2, 6, True, 4.0, "4", SECRET, None],
    ),
    "flag": (lambda value: fields.flag(value, "it"), [True, False], [0, 1, "true", SECRET, None]),
    "text": (lambda value: fields.text(value, "it"), ["", SECRET], [0, None, [SECRET], {}]),
    "word": (
        lambda value: fields.word(value, frozenset({"a", "b"}), "it"),
        ["a", "b"],
        ["c", "", SECRET, None, ["a"]],
    ),
    "passing": (
        lambda value: fields.passing(value, check_name, "it"),
        ["ana"],
        ["owner", "ANA", f"{SECRET} ", 5, None],
    ),
    "line": (
        lambda value: fields.line(value, 8, "it"),
        [SECRET, "x"],
        ["", f"{SECRET}x", "x\ny", "x\0", 5, None],
    ),
    "note": (
        lambda value: fields.note(value, 9, "it"),
        [SECRET, "", "x\ny"],
        [f"{SECRET}xx", "x\0", 5, None],
    ),
    "identifier": (
        lambda value: fields.identifier(value, "it"),
        ["a" * 26],
        ["a" * 25, "A" * 26, SECRET, 5, None],
    ),
}


@pytest.mark.parametrize("reader", READERS)
def test_a_reader_returns_what_fits_and_refuses_all_else_unquoted(reader: str) -> None:
    read, fitting, others = READERS[reader]
    assert [read(value) for value in fitting] == fitting
    for value in others:
        with pytest.raises(RecordError) as refused:
            read(value)
        assert refused.value.step == 6
        assert SECRET not in str(refused.value)


def test_bytes_have_one_spelling_of_their_length() -> None:
    assert fields.octets("00ff", 2, "it") == b"\0\xff"
    for value in ("00FF", "00f", "00ff00", "00 ff", "0x00", "00fg", "", "٠٠٠٠", None, 5):
        with pytest.raises(RecordError, match=r"not 4 lower-case hex digits|not a text"):
            fields.octets(value, 2, "it")
