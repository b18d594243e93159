"""Frames: one way of writing, strict reading, every limit at -1, 0 and +1, and hostile texts."""

import json
import random
import sys
from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mbx.core import limits
from mbx.core.canonical import encode as canonical
from mbx.core.frames import (
    PROTOCOL,
    PUT_OVERHEAD_BYTES,
    Bye,
    Frame,
    FrameError,
    Hello,
    No,
    Ok,
    OtherVersion,
    Put,
    Withdrawal,
    encode,
    fits,
    parse,
    put_text,
    record_text,
    size_bytes,
)
from mbx.core.record import Record
from mbx.core.streams import EMPTY_HEAD, Incoming, Outgoing, StreamState
from tests.support.frames import HOSTS, SIGNATURE, STORES, mutated, record, samples, texts


def refusal(text: str | bytes, max_bytes: int = limits.FRAME_MAX_BYTES) -> str | None:
    """Why the text is no frame, or None when it is one."""
    try:
        parse(text, max_bytes)
    except FrameError as error:
        return error.reason
    return None


def changed(name: str, /, **fields: Any) -> str:
    """A good frame with other values in some of its fields."""
    return json.dumps(json.loads(texts()[name]) | fields)


def without(name: str, *fields: str) -> str:
    return json.dumps({k: v for k, v in json.loads(texts()[name]).items() if k not in fields})


# --- the form ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", samples())
def test_a_frame_of_each_sort_is_read_as_it_was_written(name: str) -> None:
    assert parse(texts()[name]) == samples()[name]


def test_the_frames_are_written_as_documented() -> None:
    assert texts()["put"] == (
        '{"type":"put","seq":8,"records":['
        '{"kind":"message","payload":"{\\"body\\":\\"Grüße \\\\u0001\\"}",'
        f'"signatures":{{"{HOSTS[0]}":"{SIGNATURE}"}}}},'
        f'{{"kind":"receipt","payload":"{{}}","signatures":{{"{HOSTS[0]}":"{SIGNATURE}"}}}}]}}'
    )
    assert texts()["withdrawn"] == f'{{"type":"put","seq":9,"id":"{"09" * 32}"}}'
    assert texts()["ok"] == '{"type":"ok","upto":7}'
    assert texts()["no"] == '{"type":"no","seq":8,"code":"disk-full","retry_ms":5000}'
    assert texts()["bye"] == '{"type":"bye","code":"stopping"}'
    assert texts()["mismatch"] == '{"type":"bye","code":"version-mismatch","protocol":1}'
    assert json.loads(texts()["hello"]) == {
        "type": "hello",
        "protocol": PROTOCOL,
        "host": HOSTS[0],
        "store": STORES[0],
        "streams": {
            "out": {"id": "3" * 26, "seq": 7, "head": "07" * 32, "acked": 5},
            "in": {"id": "4" * 26, "seq": 2, "head": "02" * 32},
        },
    }


def test_the_order_of_fields_and_blanks_do_not_count() -> None:
    value = json.loads(texts()["no"])
    text = json.dumps(dict(reversed(value.items())), indent=1)
    assert parse(text) == samples()["no"]


def test_a_host_without_a_stream_of_the_other_says_null() -> None:
    streams = StreamState(Outgoing("3" * 26, 0, EMPTY_HEAD, 0), Incoming(None, 0, EMPTY_HEAD))
    hello = Hello(HOSTS[0], STORES[0], streams)
    assert '"in":{"id":null,' in encode(hello)
    assert parse(encode(hello)) == hello


def drawn(chance: random.Random) -> Frame:
    """Any frame: texts of all planes, numbers of all sizes."""

    def number(least: int = 0) -> int:
        return min(max(chance.getrandbits(chance.randint(1, 53)), least), limits.INTEGER_MAX)

    def text(most: int) -> str:
        letters = [chr(chance.choice([7, 34, 65, 92, 0x7F, 0xE9, 0x2028, 0x1F600])) for _ in "abc"]
        return "".join(chance.choices(letters, k=chance.randint(0, most)))

    word = "".join(chance.choices("abcxyz-", k=chance.randint(0, 31)))
    match chance.randrange(6):
        case 0:
            places = [record(text(50), f"k{word}"[:32]) for _ in range(chance.randint(1, 64))]
            return Put(min(number(1), 2**50), tuple(places))
        case 1:
            return Put(number(1), (Withdrawal(chance.randbytes(32)),))
        case 2:
            return Ok(number())
        case 3:
            return No(number(1), f"c{word}", number())
        case 4:
            return Bye(f"c{word}")
        case _:
            return Bye("version-mismatch", number())


def test_any_frame_is_read_as_it_was_written() -> None:
    chance = random.Random(1)
    for _ in range(1_000):
        frame = drawn(chance)
        text = encode(frame)
        assert parse(text) == frame
        assert size_bytes(text) == len(text.encode())


# --- what is refused -----------------------------------------------------------------------------

REFUSED: list[tuple[str, str | bytes, str]] = [
    ("a binary message", texts()["ok"].encode(), "not a text"),
    ("nothing", "", "not JSON"),
    ("no JSON", "ok 7", "not JSON"),
    ("a list", "[]", "not an object"),
    ("no type", '{"upto":7}', "not a type of frame"),
    ("another type", '{"type":"ping"}', "not a type of frame"),
    ("a type that is no text", '{"type":["ok"],"upto":7}', "not a type of frame"),
    ("a lone surrogate", '{"type":"ok\ud800"}', "not UTF-8"),
    ("an escaped lone surrogate", '{"type":"bye","code":"\\ud800"}', "lone surrogate"),
    ("a field twice", '{"type":"ok","upto":7,"upto":7}', "duplicate key"),
    ("a fraction", '{"type":"ok","upto":7.0}', "upto is malformed"),
    ("infinity", '{"type":"ok","upto":Infinity}', "NaN and Infinity are not JSON"),
    ("a truth", '{"type":"ok","upto":true}', "upto is malformed"),
    ("a number as text", '{"type":"ok","upto":"7"}', "upto is malformed"),
    ("a negative number", '{"type":"ok","upto":-1}', "upto is malformed"),
    ("a field too many", changed("ok", seq=1), "ok has fields missing or unknown"),
    ("a field too few", without("no", "retry_ms"), "no has fields missing or unknown"),
    ("place 0", changed("put", seq=0), "seq is malformed"),
    ("place 0, withdrawn", changed("withdrawn", seq=0), "seq is malformed"),
    ("place 0, refused", changed("no", seq=0), "seq is malformed"),
    ("a code in capitals", changed("no", code="Disk"), "code is malformed"),
    ("a code with a line feed", changed("bye", code="stopping\n"), "code is malformed"),
    ("a bye without code", '{"type":"bye"}', "code is malformed"),
    ("a bye with a protocol", changed("bye", protocol=1), "bye has fields missing or unknown"),
    (
        "a mismatch without protocol",
        without("mismatch", "protocol"),
        "bye has fields missing or unknown",
    ),
    ("both records and an id", changed("put", id="09" * 32), "put has fields missing or unknown"),
    ("a short digest", changed("withdrawn", id="09" * 31), "id is malformed"),
    ("a digest in capitals", changed("withdrawn", id="0A" * 32), "id is malformed"),
    ("no records", changed("put", records=[]), "not 1 to 64 records"),
    ("records that are none", changed("put", records={}), "not 1 to 64 records"),
    ("a record that is none", changed("put", records=[7]), "record is malformed"),
    (
        "a record without kind",
        changed("put", records=[{"payload": "", "signatures": {HOSTS[0]: SIGNATURE}}]),
        "record has fields missing or unknown",
    ),
    ("a hello without streams", without("hello", "streams"), "hello has fields missing or unknown"),
    ("a hello with more", changed("hello", name="x"), "hello has fields missing or unknown"),
    ("a hello without protocol", without("hello", "protocol"), "protocol is malformed"),
    ("a host that is no key id", changed("hello", host="desktop"), "host is malformed"),
    ("a store that is no id", changed("hello", store=None), "store is malformed"),
    ("streams that are none", changed("hello", streams=[]), "streams is malformed"),
]


@pytest.mark.parametrize(
    ("text", "reason"), [row[1:] for row in REFUSED], ids=[row[0] for row in REFUSED]
)
def test_what_is_not_exactly_a_frame_is_refused_with_the_reason(
    text: str | bytes, reason: str
) -> None:
    assert refusal(text) == reason


@pytest.mark.parametrize(
    ("field", "value", "reason"),
    [
        ("kind", "Message", "kind is malformed"),
        ("kind", "m" * 33, "kind is malformed"),
        ("payload", None, "payload is malformed"),
        ("signatures", {}, "not 1 to 8 signatures"),
        ("signatures", [], "not 1 to 8 signatures"),
        ("signatures", {"me": SIGNATURE}, "key id is malformed"),
        ("signatures", {HOSTS[0]: "AA=="}, "signature is malformed"),
        ("signatures", {HOSTS[0]: 7}, "signature is malformed"),
        ("signatures", {HOSTS[0]: "é" * 88}, "signature is malformed"),
    ],
)
def test_a_record_of_another_shape_is_refused(field: str, value: object, reason: str) -> None:
    shape = json.loads(record_text(record("{}"))) | {field: value}
    assert refusal(changed("put", records=[shape])) == reason


@pytest.mark.parametrize(
    ("stream", "fields", "reason"),
    [
        ("out", {"acked": 8}, "more acknowledged than sent"),
        ("out", {"seq": 0, "acked": 0}, "a head that does not fit its place"),
        ("out", {"head": "00" * 32}, "a head that does not fit its place"),
        ("out", {"id": None}, "id is malformed"),
        ("out", {"more": 1}, "out has fields missing or unknown"),
        ("in", {"seq": 0}, "a head that does not fit its place"),
        ("in", {"id": None}, "places of a stream without id"),
        ("in", {"id": 7}, "id is malformed"),
        ("in", {"acked": 1}, "in has fields missing or unknown"),
        ("in", {"head": "02" * 31}, "head is malformed"),
    ],
)
def test_streams_of_which_no_honest_host_speaks_are_refused(
    stream: str, fields: dict[str, object], reason: str
) -> None:
    hello = json.loads(texts()["hello"])
    hello["streams"][stream] |= fields
    assert refusal(json.dumps(hello)) == reason


def test_a_record_of_a_kind_that_is_not_known_here_is_a_matter_of_who_commits_it() -> None:
    """It must not hold up those behind it: a newer peer may have kinds that we lack."""
    newer = Put(1, (Record("poll", "no canonical text", {HOSTS[0]: SIGNATURE}),))
    assert parse(encode(newer)) == newer


@pytest.mark.parametrize("protocol", [0, 2, limits.INTEGER_MAX])
def test_of_a_hello_of_another_version_only_the_version_is_read(protocol: int) -> None:
    assert parse(json.dumps({"type": "hello", "protocol": protocol})) == OtherVersion(protocol)
    assert parse(changed("hello", protocol=protocol, colour="red")) == OtherVersion(protocol)
    assert parse(encode(OtherVersion(protocol))) == OtherVersion(protocol)


@pytest.mark.parametrize("protocol", ["2", -1, 2**53, None, True, 1.0])
def test_a_version_is_a_whole_number(protocol: object) -> None:
    assert refusal(changed("hello", protocol=protocol)) is not None


def test_a_reason_never_quotes_what_was_refused() -> None:
    secret = "a-secret-of-the-peer"
    for name in samples():
        for field in json.loads(texts()[name]):
            assert secret not in (refusal(changed(name, **{field: secret})) or "")
            assert secret not in (refusal(changed(name, **{secret: 1})) or "")


# --- the limits, at -1, 0 and +1 -----------------------------------------------------------------


@pytest.mark.parametrize("limit", [limits.HELLO_MAX_BYTES, limits.FRAME_MAX_BYTES])
@pytest.mark.parametrize("letter", ["a", "é"], ids=["ASCII", "two bytes each"])
def test_the_size_of_a_frame_is_looked_at_in_bytes_before_it_is_read(
    limit: int, letter: str
) -> None:
    rest = limit - size_bytes('{"type":"x","":""}')
    text = f'{{"type":"x","":"{letter * (rest // len(letter.encode()))}"}}'
    text += " " * (limit - size_bytes(text))
    assert refusal(text, limit) == "not a type of frame"
    assert refusal(text[:-1] or text, limit) != f"more than {limit} bytes"
    assert refusal(text + " ", limit) == f"more than {limit} bytes"
    assert refusal("\ud800" * (limit + 1), limit) == f"more than {limit} bytes"


@pytest.mark.parametrize(
    ("count", "reason"), [(1, None), (63, None), (64, None), (65, "not 1 to 64 records")]
)
def test_a_put_has_at_most_64_records(count: int, reason: str | None) -> None:
    assert limits.PUT_RECORDS_MAX == 64
    assert refusal(put_text(1, [record_text(record("{}"))] * count)) == reason


@pytest.mark.parametrize(("count", "reason"), [(7, None), (8, None), (9, "not 1 to 8 signatures")])
def test_a_record_has_at_most_8_signatures(count: int, reason: str | None) -> None:
    assert limits.RECORD_SIGNATURES_MAX == 8
    keys = {f"{no:026}": SIGNATURE for no in range(count)}
    assert refusal(encode(Put(1, (Record("message", "{}", keys),)))) == reason


@pytest.mark.parametrize(
    ("frame", "field"), [("ok", "upto"), ("no", "seq"), ("no", "retry_ms"), ("withdrawn", "seq")]
)
def test_numbers_reach_up_to_2_53_minus_1(frame: str, field: str) -> None:
    assert refusal(changed(frame, **{field: 2**53 - 2})) is None
    assert refusal(changed(frame, **{field: 2**53 - 1})) is None
    assert refusal(changed(frame, **{field: 2**53})) == f"{field} is malformed"


@pytest.mark.parametrize(
    ("last", "reason"),
    [(2**53 - 2, None), (2**53 - 1, None), (2**53, "seq is malformed")],
)
def test_the_last_place_of_a_put_counts_too(last: int, reason: str | None) -> None:
    assert refusal(put_text(last - 1, [record_text(record("{}"))] * 2)) == reason


def test_the_overhead_of_a_put_is_its_greatest() -> None:
    assert size_bytes(put_text(limits.INTEGER_MAX, [])) == PUT_OVERHEAD_BYTES


@pytest.mark.parametrize("letter", ["\x01", "\\", '"', "\x7f", "é", "\U0001f600", "\u2028", "a"])
def test_the_largest_body_of_any_content_fits_into_a_frame(letter: str) -> None:
    """Of control characters it takes the most: each has six characters, and then seven."""
    body = letter * (limits.BODY_MAX_BYTES // len(letter.encode()))
    one = record(canonical({"body": body, "subject": "s" * limits.SUBJECT_MAX_CHARS}))
    assert fits(one)
    assert parse(encode(Put(limits.INTEGER_MAX, (one,)))) == Put(limits.INTEGER_MAX, (one,))


def test_a_body_of_control_characters_grows_sevenfold() -> None:
    escaped = json.dumps(canonical("\x01" * limits.BODY_MAX_BYTES))
    assert len(escaped) - len(json.dumps(canonical(""))) == 7 * limits.BODY_MAX_BYTES == 1_835_008


@pytest.mark.parametrize(("more", "fit"), [(-1, True), (0, True), (1, False)])
def test_whether_a_record_fits_is_exact_for_the_greatest_place(more: int, fit: bool) -> None:
    bare = size_bytes(put_text(limits.INTEGER_MAX, [record_text(record(""))]))
    one = record("a" * (limits.FRAME_MAX_BYTES - bare + more))
    assert fits(one) is fit
    assert (refusal(encode(Put(limits.INTEGER_MAX, (one,)))) is None) is fit


# --- hostile texts -------------------------------------------------------------------------------


def test_mutated_frames_are_read_or_refused_and_never_break_the_reader() -> None:
    met: Counter[str] = Counter()
    good = list(texts().items())
    for seed in range(3_000):
        chance = random.Random(seed)
        name, text = chance.choice(good)
        for _ in range(chance.choice([1, 1, 1, 2, 5])):
            text = mutated(chance, text) or "{}"
            if not text.startswith("{") or refusal(text) is not None:
                break
        reason = refusal(text)
        met[f"{name} {'read' if reason is None else 'refused'}"] += 1
        met[f"reason {reason}"] += reason is not None
    told = {what: count for what, count in met.items() if not what.startswith("reason")}
    reasons = len(met) - len(told)
    sys.stdout.write(f"mutated frames: {dict(sorted(told.items()))}, {reasons} reasons\n")
    assert reasons >= 25
    assert [name for name, _ in good if met[f"{name} refused"] < 250] == []


@settings(max_examples=200)
@given(st.text() | st.binary())
def test_any_text_is_refused_and_never_breaks_the_reader(text: str | bytes) -> None:
    assert refusal(text) is not None
