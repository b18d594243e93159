"""The fast reader says exactly what the strict one says."""

import base64
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mbx.core import canonical
from mbx.core.canonical import CanonicalError, parse_line
from mbx.core.limits import REQUEST_LINE_MAX_BYTES
from mbx.daemon import codec
from tests.support.vectors import json_cases

MAX = 100_000

VALUES: Any = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner),
    max_leaves=20,
)
PAYLOADS: Any = st.dictionaries(
    st.from_regex(r"[a-z][a-z0-9_]{0,8}", fullmatch=True),
    st.recursive(
        st.none()
        | st.booleans()
        | st.integers(-(2**53) + 1, 2**53 - 1)
        | st.text(st.characters(exclude_categories=["Cs"])),
        lambda inner: st.lists(inner, max_size=3),
        max_leaves=6,
    ),
    max_size=8,
)


def verdict(read: Any, line: bytes) -> object:
    try:
        return ("taken", repr(read(line, MAX)))
    except CanonicalError:
        return "refused"


def agree(line: bytes) -> bool:
    """Whether the quick reader of signed payloads gives what the strict one does of a canonical
    text, and nothing of any other.
    """
    try:
        value = canonical.parse(line, MAX)
        strict = value if canonical.encode(value).encode() == line else None
    except CanonicalError:
        strict = None
    return repr(codec.decode_signed(line)) == repr(strict)


@pytest.mark.parametrize(("name", "line"), json_cases())
def test_both_readers_agree_on_every_case_of_the_json_suite(name: str, line: bytes) -> None:
    assert verdict(codec.decode, line) == verdict(parse_line, line), name
    assert agree(line)


@given(VALUES)
def test_both_readers_agree_on_whatever_json_can_write(value: object) -> None:
    line = json.dumps(value).encode()
    assert verdict(codec.decode, line) == verdict(parse_line, line)
    assert agree(line)


@given(st.binary(max_size=40))
def test_both_readers_agree_on_noise(line: bytes) -> None:
    assert verdict(codec.decode, line) == verdict(parse_line, line)
    assert agree(line)


@given(VALUES, st.data())
def test_both_readers_agree_on_damaged_json(value: object, data: st.DataObject) -> None:
    line = bytearray(json.dumps(value, ensure_ascii=False).encode("utf-8", "surrogatepass"))
    place = data.draw(st.integers(0, len(line)))
    line[place:place] = data.draw(
        st.sampled_from([b'"', b",", b":1", b'"a":1,', b"-0", b"0" * 17, b"\xff", b"1e999", b"[{"])
    )
    assert verdict(codec.decode, bytes(line)) == verdict(parse_line, bytes(line))
    assert agree(bytes(line))


@pytest.mark.parametrize(
    "line",
    [
        b'{"a":1,"a":2}',
        b'{"a":{"b":1,"b":2}}',
        b'[{"a":":","a":"\\""}]',
        b'{"a":1,"\\u0061":2}',
        b'{"a":-0}',
        b'{"a":12345678901234567}',
        b'{"a":1.5}',
        b'{"a":1e400}',
        b'{"a":NaN}',
        b'{"a":"\\ud800"}',
        b'{"a":"\\ud83d\\ude00"}',
        b"[" * 8 + b"]" * 8,
        b"[" * 9 + b"]" * 9,
        b"[" + b",".join([b"1"] * 1_024) + b"]",
        b"[" + b",".join([b"1"] * 1_025) + b"]",
        b"{" + b",".join(b'"k%d":1' % n for n in range(64)) + b"}",
        b"{" + b",".join(b'"k%d":1' % n for n in range(65)) + b"}",
        b'\xef\xbb\xbf{"a":1}',
        b'{"b":1,"a":2}',
        b'{"a": 1}',
        b'{"A":1}',
        b'{"a":9007199254740991}',
        b'{"a":9007199254740992}',
        b'{"a":18446744073709551615}',
        b'{"a":1.0}',
        b'{"a":"\\u0041"}',
        b'{"a":"\\/"}',
        b'{"a":"\\b\\f\\n\\r\\t\\u0000\\u001f\x7f\xe2\x80\xa8"}',
        b'{"a":"\x01"}',
        b"",
    ],
)
def test_both_readers_agree_at_each_rule(line: bytes) -> None:
    assert verdict(codec.decode, line) == verdict(parse_line, line)
    assert agree(line)


@pytest.mark.parametrize(("size", "taken"), [(9, True), (10, True), (11, False)])
def test_the_length_is_judged_before_anything_else(size: int, taken: bool) -> None:
    line = b'"' + b"x" * (size - 2) + b'"'
    if taken:
        assert codec.decode(line, 10) == "x" * (size - 2)
    else:
        with pytest.raises(CanonicalError, match="limit"):
            codec.decode(line, 10)


@given(PAYLOADS)
def test_signed_payloads_are_encoded_as_the_core_encodes_them(payload: dict[str, object]) -> None:
    assert codec.canonical(payload).decode() == canonical.encode(payload)
    assert codec.decode_signed(codec.canonical(payload)) == payload
    assert agree(codec.canonical(payload))


@pytest.mark.parametrize("value", ["\ud800", 2**53, object()])
def test_what_has_no_canonical_form_is_not_encoded(value: object) -> None:
    with pytest.raises(TypeError):
        codec.canonical({"a": value})


def test_answers_are_one_line() -> None:
    assert codec.encode({"a": "x\ny\u2028", "b": base64.b64encode(b"z").decode()}).count(b"\n") == 0


def test_a_line_of_very_many_values_is_refused_before_it_is_read() -> None:
    many = b"[[" + b"],[".join([b"1,1,1,1,1,1,1,1"] * 1_024) + b"]]"
    assert codec.decode(many, MAX) is not None
    with pytest.raises(CanonicalError, match="more than 8,192 values"):
        codec.decode(b"[" + b",".join([b"1"] * 8_194) + b"]", MAX)


@pytest.mark.parametrize("piece", [rb"\"", b'"a', b"\\", b'"" ', b'"",'])
def test_a_line_of_two_megabytes_that_is_no_json_costs_one_pass(piece: bytes) -> None:
    # Looking for the end of an endless string from each of its quotes would take a day.
    line = b'"' + piece * ((REQUEST_LINE_MAX_BYTES - 1) // len(piece))
    with pytest.raises(CanonicalError):
        codec.decode(line, REQUEST_LINE_MAX_BYTES)
