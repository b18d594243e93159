"""Canonical JSON: the published vectors, our own verdict on each of them, and every bound."""

import base64
import json
import random
import string
import struct
import sys
from collections.abc import Callable
from enum import IntEnum
from pathlib import Path
from typing import Any

import pytest
import rfc8785
from hypothesis import given, settings
from hypothesis import strategies as st

from mbx.core import limits
from mbx.core.canonical import CanonicalError, JsonValue, encode, encode_parsed, parse, parse_line

VECTORS = Path(__file__).parents[1] / "vectors"
CAP = 4 * 1024 * 1024
INTEGER_MAX = 2**53 - 1

Reader = Callable[[bytes, int], JsonValue]
READERS = {"parse": parse, "parse_line": parse_line}
both_readers = pytest.mark.parametrize("read", [parse, parse_line])


def reason(act: Callable[..., object], *arguments: object) -> str | None:
    """Why `act` refuses, or None."""
    try:
        act(*arguments)
    except CanonicalError as error:
        return error.reason
    return None


def nested(depth: int, opening: str = "[", closing: str = "]") -> bytes:
    return (opening * depth + closing * depth).encode()


# --- JSONTestSuite -------------------------------------------------------------------------------


def suite() -> Any:
    return json.loads((VECTORS / "jsontestsuite/parsing.json").read_bytes())


def content(case: dict[str, Any]) -> bytes:
    if "b64" in case:
        return base64.b64decode(case["b64"])
    repeated = base64.b64decode(case["repeat_b64"]) * int(case["count"])
    return repeated + base64.b64decode(case.get("tail_b64", ""))


def accepted(reader: str, section: str) -> list[str]:
    cases = suite()[section]
    return sorted(c["name"] for c in cases if reason(READERS[reader], content(c), CAP) is None)


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize(("section", "cases"), [("parsing", 318), ("transform", 22)])
def test_our_verdict_on_each_case_of_the_json_test_suite_is_fixed(
    reader: str, section: str, cases: int
) -> None:
    ours = json.loads((VECTORS / "jsontestsuite/accepted.json").read_bytes())
    assert len(suite()[section]) == cases
    assert accepted(reader, section) == ours[reader][section]


@pytest.mark.parametrize("reader", READERS)
def test_every_case_that_must_be_rejected_is_rejected(reader: str) -> None:
    must_reject = {case["name"] for case in suite()["parsing"] if case["expect"] == "reject"}
    assert len(must_reject) == 188
    assert must_reject.isdisjoint(accepted(reader, "parsing"))


def refused_but_legal(read: Reader) -> dict[str, str]:
    legal = [case for case in suite()["parsing"] if case["expect"] == "accept"]
    assert len(legal) == 95
    reasons = {case["name"]: reason(read, content(case), CAP) for case in legal}
    return {name: why for name, why in reasons.items() if why is not None}


def test_of_legal_json_a_line_may_not_have_only_duplicate_keys() -> None:
    assert refused_but_legal(parse_line) == {
        "y_object_duplicated_key.json": "duplicate key",
        "y_object_duplicated_key_and_value.json": "duplicate key",
    }


def test_of_legal_json_the_signed_form_refuses_only_what_it_has_no_place_for() -> None:
    refused = refused_but_legal(parse)
    assert len(refused) == 21
    assert set(refused.values()) == {
        "-0",
        "duplicate key",
        "key is not [a-z][a-z0-9_]{0,31}",
        "number with a fraction or exponent",
    }


def test_the_standard_reader_needs_us() -> None:
    """The published figures of the plain library: if they move, look at our reader again."""
    verdicts: dict[str, list[str]] = {"accept": [], "reject": [], "either": []}
    recursion_errors = 0
    for case in suite()["parsing"]:
        try:
            json.loads(content(case).decode("utf-8"))
        except ValueError:
            continue
        except RecursionError:
            recursion_errors += 1
        else:
            verdicts[case["expect"]].append(case["name"])
    assert {expect: len(names) for expect, names in verdicts.items()} == {
        "accept": 95,
        "reject": 3,
        "either": 21,
    }
    assert recursion_errors == 2


# --- RFC 8785 ------------------------------------------------------------------------------------


SAMPLES = ["arrays", "french", "structures", "unicode", "values", "weird"]


def sample(name: str) -> bytes:
    return (VECTORS / f"jcs/input/{name}.json").read_bytes()


def inside(value: Any) -> list[Any]:
    """Every key and every plain value in `value`."""
    if isinstance(value, dict):
        return [*value, *[leaf for item in value.values() for leaf in inside(item)]]
    if isinstance(value, list):
        return [leaf for item in value for leaf in inside(item)]
    return [value]


@pytest.mark.parametrize("name", SAMPLES)
def test_the_other_encoder_gives_the_published_form_of_each_sample(name: str) -> None:
    published = (VECTORS / f"jcs/output/{name}.json").read_bytes()
    assert rfc8785.dumps(json.loads(sample(name))) == published
    assert bytes.fromhex((VECTORS / f"jcs/outhex/{name}.txt").read_text()) == published


@pytest.mark.parametrize("name", SAMPLES)
def test_the_strings_and_literals_of_each_sample_are_encoded_as_published(name: str) -> None:
    values = [leaf for leaf in inside(json.loads(sample(name))) if not isinstance(leaf, float)]
    assert values
    assert encode(values).encode() == rfc8785.dumps(values)


@pytest.mark.parametrize("name", SAMPLES)
def test_no_sample_has_the_signed_form_and_every_sample_is_a_legal_line(name: str) -> None:
    """They are about keys that are no identifiers, and about fractions."""
    expected = (
        "number with a fraction or exponent"
        if name in {"structures", "values"}
        else "key is not [a-z][a-z0-9_]{0,31}"
    )
    assert reason(parse, sample(name), CAP) == expected
    assert parse_line(sample(name), CAP) == json.loads(sample(name))
    assert reason(encode, json.loads(sample(name))) is not None


def test_of_10000_published_numbers_exactly_the_integers_are_read_and_printed() -> None:
    lines = (VECTORS / "jcs/es6-numbers-10k.txt").read_text().splitlines()
    integers = 0
    for line in lines:
        bits, text = line.split(",")
        number = struct.unpack(">d", bytes.fromhex(bits.zfill(16)))[0]
        assert reason(encode, number) == "number with a fraction or exponent"
        assert rfc8785.dumps(number).decode() == text
        if number.is_integer() and abs(number) <= INTEGER_MAX:
            integers += 1
            assert parse(text.encode(), CAP) == number
            assert encode(int(text)) == text
        else:
            assert reason(parse, text.encode(), CAP) is not None
    assert (len(lines), integers) == (10_000, 14)


keys = st.builds(
    str.__add__,
    st.sampled_from(string.ascii_lowercase),
    st.text(string.ascii_lowercase + string.digits + "_", max_size=31),
)
integers = st.integers(-INTEGER_MAX, INTEGER_MAX)
texts = st.text(st.characters(exclude_categories=["Cs"]))
profile_values = st.recursive(
    st.none() | st.booleans() | integers | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(keys, inner, max_size=4),
    max_leaves=6,  # many small values find more than few large ones
)


def assert_one_form(value: Any) -> None:
    """Our text is that of the other encoder and is read back as the same value."""
    text = encode(value)
    assert text.encode() == rfc8785.dumps(value)
    for read in READERS.values():
        again = read(text.encode(), CAP)
        assert again == value
        assert encode(again) == text  # equal values of other types (True and 1) print otherwise
    other_spelling = json.dumps(value, indent=1).encode()
    assert encode(parse(other_spelling, CAP)) == text


@settings(max_examples=300, deadline=None)
@given(profile_values)
def test_every_value_of_the_form_is_encoded_as_rfc8785_says_and_read_back(value: Any) -> None:
    assert_one_form(value)


def random_value(chance: random.Random, depth: int) -> Any:
    """A value of the form; its texts mix what encoders escape, sort and count differently."""
    kind = chance.randrange(8 if depth else 5)
    if kind < 2:
        characters = 'aZ\0\x08\t\n\x0c\r\x1f"\\/\x7f\x80é\u0301\u2028\ud7ff\ue000\uffff😀\U0010ffff'
        return "".join(chance.choices(characters, k=chance.randrange(8)))
    if kind == 2:
        return chance.choice([1, -1]) * (INTEGER_MAX >> chance.randrange(54))
    if kind < 5:
        return chance.choice([None, True, False])
    members = [random_value(chance, depth - 1) for _ in range(chance.randrange(6))]
    if kind == 5:
        return members
    grammar = "abcz_09"
    return {f"k{''.join(chance.choices(grammar, k=chance.randrange(32)))}": m for m in members}


def test_2000_random_documents_have_one_form() -> None:
    chance = random.Random(8785)
    for _ in range(2000):
        assert_one_form([random_value(chance, 7)])


@settings(max_examples=1000, deadline=None)
@given(st.binary(max_size=64) | st.text('{}[]",:\\ud8-0123456789.eEaNIty \n', max_size=32))
def test_any_bytes_are_read_or_refused_and_never_break_the_reader(raw: bytes | str) -> None:
    raw = raw.encode() if isinstance(raw, str) else raw
    if reason(parse, raw, CAP) is None:
        assert parse(raw, CAP) == parse_line(raw, CAP) == json.loads(raw)
        assert parse(encode(parse(raw, CAP)).encode(), CAP) == parse(raw, CAP)
        assert encode_parsed(parse(raw, CAP)) == encode(parse(raw, CAP))


# --- bounds: one below, at, one above ------------------------------------------------------------


@both_readers
def test_the_byte_cap_is_exact_and_comes_before_decoding(read: Reader) -> None:
    assert read('"é"'.encode(), 5) == "é"
    assert read('"é"'.encode(), 4 + 1) == "é"
    assert reason(read, '"é"'.encode(), 3) == "more than 3 bytes"
    assert reason(read, b"\xff" * 4, 3) == "more than 3 bytes"
    assert reason(read, b"\xff" * 3, 3) == "not UTF-8"


@both_readers
@pytest.mark.parametrize(("opening", "closing"), [("[", "]"), ('{"a":[', "]}")])
def test_eight_levels_are_read_and_nine_refused(read: Reader, opening: str, closing: str) -> None:
    levels = len(opening.replace('"a":', ""))
    for depth in (7, 8, 9, 10):
        text = nested(depth // levels, opening, closing)
        if depth % levels:
            text = b"[" + text + b"]"
        expected = None if depth <= limits.JSON_DEPTH_MAX else "deeper than 8"
        assert reason(read, text, CAP) == expected


@both_readers
@pytest.mark.parametrize("depth", [900, 100_000])
@pytest.mark.parametrize(("opening", "closing"), [("[", "]"), ('{"a":', "}")])
def test_depth_beyond_the_stack_is_an_ordinary_refusal(
    read: Reader, depth: int, opening: str, closing: str
) -> None:
    assert reason(read, nested(depth, opening, closing), CAP) in {"deeper than 8", "not JSON"}


@both_readers
@pytest.mark.parametrize("count", [63, 64, 65, 70_000])
def test_sixty_four_keys_are_read_and_one_more_refused(read: Reader, count: int) -> None:
    value = {f"k{number}": number for number in range(count)}
    expected = None if count <= limits.JSON_KEYS_MAX else "more than 64 keys"
    assert reason(read, json.dumps([value]).encode(), CAP) == expected
    assert reason(encode, [value]) == expected


@both_readers
@pytest.mark.parametrize("count", [1023, 1024, 1025])
def test_1024_elements_are_read_and_one_more_refused(read: Reader, count: int) -> None:
    value = {"a": [0] * count}
    expected = None if count <= limits.JSON_ELEMENTS_MAX else "more than 1024 elements"
    assert reason(read, json.dumps(value).encode(), CAP) == expected
    assert reason(encode, value) == expected


@pytest.mark.parametrize("sign", [1, -1])
def test_the_signed_form_has_the_integers_up_to_2_53_minus_1(sign: int) -> None:
    for magnitude in (0, 1, INTEGER_MAX - 1, INTEGER_MAX):
        number = sign * magnitude
        assert encode(number) == str(number)
        assert parse(str(number).encode(), CAP) == number
    for magnitude in (INTEGER_MAX + 1, 9_999_999_999_999_999):
        number = sign * magnitude
        assert reason(encode, number) == "integer beyond 2^53-1"
        assert reason(parse, str(number).encode(), CAP) == "integer beyond 2^53-1"
        assert parse_line(str(number).encode(), CAP) == number


@both_readers
@pytest.mark.parametrize("sign", ["", "-"])
def test_sixteen_digits_are_converted_and_seventeen_refused(read: Reader, sign: str) -> None:
    for digits in ("9" * 15, "9007199254740991"):
        assert read(f"{sign}{digits}".encode(), CAP) == int(sign + digits)
    for count in (17, 4_301, 1_000_000):  # past 4,300 Python itself would refuse
        assert reason(read, f"{sign}{'1' * count}".encode(), CAP) == "more than 16 digits"
    assert reason(read, f"{sign}{'0' * 17}".encode(), CAP) is not None


def test_keys_of_the_signed_form_have_one_to_32_characters_of_the_grammar() -> None:
    for key in ("a", "z9_", "a" * 31, "a" * 32, "a_", "a__0"):
        assert encode({key: 1}) == f'{{"{key}":1}}'
        assert parse(f'{{"{key}":1}}'.encode(), CAP) == {key: 1}
    for key in ("", "a" * 33, "_a", "1", "A", "aB", "a-b", "a.b", "a b", "é", "aé", "a\n", "a\0"):
        expected = "key is not [a-z][a-z0-9_]{0,31}"
        assert reason(encode, {key: 1}) == expected
        assert reason(parse, json.dumps({key: 1}).encode(), CAP) == expected
        assert parse_line(json.dumps({key: 1}).encode(), CAP) == {key: 1}


# --- single refusals -----------------------------------------------------------------------------


@both_readers
@pytest.mark.parametrize(
    "text",
    [
        '{"a":1,"a":1}',
        '{"a":1,"b":2,"a":3}',
        '{"a":1,"\\u0061":2}',
        '[{"a":{"b":1,"b":2}}]',
        '{"a":{},"b":{"a":[],"a":[]}}',
    ],
)
def test_a_key_that_comes_twice_is_refused_however_it_is_spelled(read: Reader, text: str) -> None:
    assert reason(read, text.encode(), CAP) == "duplicate key"


@both_readers
@pytest.mark.parametrize("text", ["NaN", "Infinity", "-Infinity", '{"a":[1,NaN]}'])
def test_numbers_that_json_does_not_have_are_refused(read: Reader, text: str) -> None:
    assert reason(read, text.encode(), CAP) == "NaN and Infinity are not JSON"


@pytest.mark.parametrize("text", ["1.0", "-0.0", "1e3", "1E3", "1e-9", "1e400", "-1e400", "0.1"])
def test_numbers_with_fraction_or_exponent_have_no_signed_form(text: str) -> None:
    assert reason(parse, f'{{"a":[{text}]}}'.encode(), CAP) == "number with a fraction or exponent"


@pytest.mark.parametrize(("text", "value"), [("1.5", 1.5), ("-2e3", -2000.0), ("1e-999", 0.0)])
def test_a_line_may_carry_finite_fractions(text: str, value: float) -> None:
    assert parse_line(text.encode(), CAP) == value


@pytest.mark.parametrize("text", ["1e400", "-1e400", "1" + "0" * 400 + ".0"])
def test_a_line_may_not_carry_a_number_that_becomes_infinite(text: str) -> None:
    assert reason(parse_line, text.encode(), CAP) == "number overflows to infinity"


def test_minus_zero_has_no_signed_form_and_is_zero_in_a_line() -> None:
    assert reason(parse, b'{"a":-0}', CAP) == "-0"
    assert parse_line(b"-0", CAP) == 0


@both_readers
@pytest.mark.parametrize(
    "text",
    [
        '"\\ud800"',
        '"\\uD800"',
        '"\\udfff"',
        '"\\uDFFF"',
        '"a\\ud83d"',
        '"\\ud83dx"',
        '"\\ude00\\ud83d"',
        '"\\ud83d\\ud83d\\ude00"',
        '"\\\\\\ud800"',
        '{"a":["\\ud800"]}',
    ],
)
def test_a_lone_surrogate_in_a_text_is_refused(read: Reader, text: str) -> None:
    assert reason(read, text.encode(), CAP) == "lone surrogate"


def test_a_lone_surrogate_in_a_key_is_refused() -> None:
    assert reason(parse_line, b'{"a":{"\\udc00":1}}', CAP) == "lone surrogate"
    assert reason(parse, b'{"a":{"\\udc00":1}}', CAP) == "key is not [a-z][a-z0-9_]{0,31}"
    assert reason(encode, {"\ud800": 1}) == "key is not [a-z][a-z0-9_]{0,31}"


@both_readers
def test_a_whole_pair_of_surrogates_is_one_character(read: Reader) -> None:
    assert read(b'"\\ud83d\\ude00 \\uD83D\\uDE00 \\\\ud800"', CAP) == "😀 😀 \\ud800"


def test_a_text_with_a_lone_surrogate_is_not_encoded() -> None:
    for code_point in (0xD800, 0xDBFF, 0xDC00, 0xDFFF):
        assert reason(encode, {"a": [f"x{chr(code_point)}"]}) == "lone surrogate"
        assert reason(encode, chr(code_point)) == "lone surrogate"


@both_readers
@pytest.mark.parametrize(
    ("raw", "why"),
    [
        (b"\xef\xbb\xbf{}", "starts with a byte order mark"),
        (b"\xff\xfe{\0}\0", "not UTF-8"),
        (b'"\xed\xa0\x80"', "not UTF-8"),
        (b'"\xc0\xaf"', "not UTF-8"),
        (b'"\xf4\x90\x80\x80"', "not UTF-8"),
        (b"", "not JSON"),
        (b" ", "not JSON"),
        (b"{} {}", "not JSON"),
        (b"{}\0", "not JSON"),
        (b'"a\nb"', "not JSON"),
        (b"{'a':1}", "not JSON"),
        (b'{"a":1,}', "not JSON"),
        (b"[1,]", "not JSON"),
        (b"01", "not JSON"),
        (b"+1", "not JSON"),
        ("١".encode(), "not JSON"),
        ("[\u00a01]".encode(), "not JSON"),
        ("\u2028{}".encode(), "not JSON"),
    ],
)
def test_what_is_not_plain_utf8_json_is_refused(read: Reader, raw: bytes, why: str) -> None:
    assert reason(read, raw, CAP) == why


@both_readers
@pytest.mark.parametrize(
    "text", ["é", "e\u0301", "\u212b", "ﬁ", "\u200b", "\x7f", "\u2028", "\U0010ffff", "\0"]
)
def test_texts_are_never_normalised(read: Reader, text: str) -> None:
    assert read(encode(text).encode(), CAP) == text
    assert read(json.dumps(text).encode(), CAP) == text


class Level(IntEnum):
    """Equal to an integer, printed as one today: still not exactly one."""

    LOW = 1


class Shout(str):
    """A text that is not only a text."""

    __slots__ = ()


@pytest.mark.parametrize(
    "value",
    [(1, 2), {1}, b"a", 1.0, float("nan"), float("inf"), Level.LOW, Shout("a"), object(), 1j],
)
def test_only_the_plain_json_types_are_encoded(value: object) -> None:
    for wrapped in (value, [value], {"a": value}):
        assert reason(encode, wrapped) is not None


@pytest.mark.parametrize("key", [1, True, None, 1.5, Level.LOW, Shout("a")])
def test_keys_that_the_standard_encoder_would_turn_into_texts_are_refused(key: object) -> None:
    assert reason(encode, {key: 1}) == "key is not [a-z][a-z0-9_]{0,31}"


def test_a_value_that_contains_itself_is_refused() -> None:
    circle: list[object] = []
    circle.append(circle)
    assert reason(encode, circle) == "deeper than 8"


def test_a_refused_key_is_refused_again() -> None:
    for _ in range(3):
        assert reason(encode, {"Not": 1}) is not None
        assert reason(parse, b'{"Not":1}', CAP) is not None


def test_truth_is_not_one_and_types_survive() -> None:
    assert (
        encode([True, False, None, 1, 0, "1", "", [], {}]) == '[true,false,null,1,0,"1","",[],{}]'
    )
    assert parse(b"[true,1]", CAP) == [True, 1]
    assert type(parse(b"true", CAP)) is bool
    assert type(parse(b"1", CAP)) is int


def test_a_reason_never_quotes_what_was_refused() -> None:
    for raw in (b'{"secret":secret}', b'{"secret":1,"secret":1}', b'{"Secret":"secret"}'):
        why = reason(parse, raw, CAP)
        assert why is not None
        assert "secret" not in why.lower()


def test_a_refusal_keeps_no_chain_to_the_refused_text() -> None:
    with pytest.raises(CanonicalError) as caught:
        parse(b"{secret", CAP)
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__
    assert str(caught.value) == caught.value.reason == "not JSON"


@both_readers
def test_a_stack_that_is_nearly_used_up_gives_a_refusal_and_not_a_crash(read: Reader) -> None:
    """Whatever the caller's depth, the reader answers or refuses; a second try is unharmed."""

    def from_depth(frames: int) -> str | None:
        return reason(read, nested(5), CAP) if frames == 0 else from_depth(frames - 1)

    seen = set()
    for spare in range(60, 20, -1):
        try:
            seen.add(from_depth(sys.getrecursionlimit() - spare - frames_now()))
        except RecursionError:  # the stack ended in the test's own frames
            break
    assert seen <= {None, "deeper than 8"}
    assert reason(read, nested(5), CAP) is None


def frames_now() -> int:
    frame, count = sys._getframe(), 0
    while frame.f_back is not None:
        frame, count = frame.f_back, count + 1
    return count
