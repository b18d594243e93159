"""The event on standard input: any bytes, in any pieces, and within bounds."""

import json
import os
import threading
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mbx.core.limits import HOOK_INPUT_MAX_BYTES, SESSION_ID_MAX_CHARS
from mbx.hooks import event


def read(raw: bytes, *, ends: bool = True) -> Any:
    """What is read from a pipe that holds these bytes; it is left open unless it `ends`."""
    reading, writing = os.pipe()

    def fill() -> None:
        view = memoryview(raw)
        try:
            while view:
                view = view[os.write(writing, view) :]
        except BrokenPipeError:
            pass
        if ends:
            os.close(writing)

    thread = threading.Thread(target=fill)
    thread.start()
    try:
        return event.read(reading)
    finally:
        os.close(reading)
        thread.join(10)
        if not ends:
            os.close(writing)


def test_an_object_ends_the_reading_and_not_the_end_of_the_input() -> None:
    assert read(b'{"session_id": "a"}', ends=False) == {"session_id": "a"}
    assert read(b'{"session_id": "a"}\n', ends=False) == {"session_id": "a"}


def test_a_large_prompt_is_read_whole() -> None:
    told = {"prompt": "}" * 300_000, "session_id": "a"}
    assert read(json.dumps(told).encode()) == told


@pytest.mark.parametrize(
    "raw", [b"", b"null", b"[1]", b"{", b"[" * 200_000, b'{"a": 1e999999}', b"\xff", b'{"a" 1}']
)
def test_what_is_no_object_is_no_event(raw: bytes) -> None:
    told = read(raw)
    assert told == {} or set(told) == {"a"}


@pytest.mark.parametrize("extra", [-1, 0, 1])
def test_more_than_the_limit_is_left_unread(extra: int) -> None:
    raw = b'{"a": "' + b"x" * (HOOK_INPUT_MAX_BYTES + extra - 9) + b'"}'
    assert len(raw) == HOOK_INPUT_MAX_BYTES + extra
    assert bool(read(raw)) == (extra <= 0)


@given(st.binary(max_size=200))
def test_no_bytes_at_all_are_a_trouble(raw: bytes) -> None:
    assert isinstance(read(raw), dict)


@pytest.mark.parametrize(
    ("value", "found"),
    [
        ("0b9a-1", "0b9a-1"),
        ("x" * (SESSION_ID_MAX_CHARS - 1), "x" * (SESSION_ID_MAX_CHARS - 1)),
        ("x" * SESSION_ID_MAX_CHARS, "x" * SESSION_ID_MAX_CHARS),
        ("x" * (SESSION_ID_MAX_CHARS + 1), None),
        ("", None),
        ("a\nb", None),
        ("a\0b", None),
        (7, None),
        (None, None),
        (["a"], None),
    ],
)
def test_a_conversation_is_a_printable_text_of_a_length_that_it_can_have(
    value: object, found: str | None
) -> None:
    assert event.session_of({"session_id": value}, "session_id") == found


def test_a_subagent_is_known_by_its_id() -> None:
    assert event.is_of_subagent({"agent_id": "a"})
    assert not event.is_of_subagent({"agent_id": ""})
    assert not event.is_of_subagent({"agent_id": 7})
    assert not event.is_of_subagent({})


@pytest.mark.parametrize("cut", [0, 1, 8, 20, 21])
def test_what_somebody_has_begun_to_read_is_read_on(cut: int) -> None:
    raw = b'{"a": {"b": {}}, "c": 1}'
    reading, writing = os.pipe()
    os.set_blocking(reading, False)
    os.write(writing, raw[cut:])
    try:
        assert event.read(reading, raw[:cut]) == {"a": {"b": {}}, "c": 1}
        assert os.get_blocking(reading)
    finally:
        os.close(reading)
        os.close(writing)


def test_what_was_read_whole_is_not_waited_for_nor_is_a_descriptor_that_is_closed() -> None:
    reading, writing = os.pipe()
    assert event.read(reading, b'{"a": 1}') == {"a": 1}
    os.close(writing)
    assert event.read(reading, b'{"a":') == {}
    os.close(reading)
    assert event.read(reading, b"") == {}
