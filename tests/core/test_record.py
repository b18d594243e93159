"""Records: what is signed, and each step at which one is not believed."""

import base64
import dataclasses
import hashlib
import itertools
import json
from collections.abc import Mapping
from functools import partial
from typing import Any

import pytest

from mbx.core import limits
from mbx.core.canonical import CanonicalError, encode
from mbx.core.keys import SigningKey, crockford, key_id
from mbx.core.record import (
    ANY_AUDIENCE,
    KINDS,
    Record,
    RecordError,
    inspect,
    seal,
    sign,
    signed_bytes,
    verify,
)
from mbx.daemon import codec

HOST = SigningKey.from_seed(b"\x01" * 32)
HOST_ID = key_id("host", HOST.public)
OWNER = SigningKey.from_seed(b"\x02" * 32)
OWNER_ID = key_id("owner", OWNER.public)
STRANGER = SigningKey.from_seed(b"\x03" * 32)
STRANGER_ID = key_id("host", STRANGER.public)
TRUSTED = {HOST_ID: HOST.public}
NONCE = "0123456789abcdef" * 2


def content(kind: str = "message", **fields: object) -> dict[str, object]:
    head: dict[str, object] = {"v": 1, "type": kind, "iat": 1_790_000_000_000, "nonce": NONCE}
    return head | fields


def base64_of(raw: bytes) -> str:
    return base64.b64encode(raw).decode()


def signed_text(text: str, kind: str = "message", key: SigningKey = HOST) -> Record:
    """A record of any text, rightly signed: what a faulty or hostile host may send."""
    signature = key.sign(signed_bytes(kind, text))
    return Record(kind, text, {HOST_ID: base64_of(signature)})


def refused_at(
    record: Record,
    *,
    kind: str = "message",
    signers: Mapping[str, bytes] = TRUSTED,
    audience: str | None = None,
    max_bytes: int = limits.RECORD_MAX_BYTES,
) -> int:
    """The step that refuses the record, 0 if none does; whoever reads its payload quickly."""
    plain = partial(verify, record, kind=kind, signers=signers, audience=audience)
    steps = set()
    for one in (plain, partial(plain, quick=codec.decode_signed)):
        try:
            one(max_bytes=max_bytes)
            steps.add(0)
        except RecordError as error:
            steps.add(error.step)
    [step] = steps
    return step


# --- what is signed ------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_a_record_of_each_kind_is_signed_and_believed(kind: str) -> None:
    record = sign(kind, content(kind, body="Grüße\n"), HOST, HOST_ID)
    payload = verify(record, kind=kind, signers=TRUSTED, audience=None)
    assert payload == content(kind, body="Grüße\n")
    assert record.payload == encode(payload)


def test_the_signed_bytes_the_digest_and_the_id_are_as_written() -> None:
    record = sign("receipt", content("receipt", did="é"), HOST, HOST_ID)
    expected = b"mbx-sig/1\0receipt\0" + record.payload.encode("utf-8")
    assert signed_bytes("receipt", record.payload) == expected
    assert record.digest == hashlib.sha256(expected).digest()
    assert record.id == crockford(record.digest)
    assert base64.b64decode(record.signatures[HOST_ID], validate=True) == HOST.sign(expected)


def test_a_fixed_record_has_a_fixed_id_and_signature() -> None:
    record = sign("message", content(aud=[HOST_ID], body="hello"), HOST, HOST_ID)
    assert record.payload == (
        f'{{"aud":["{HOST_ID}"],"body":"hello","iat":1790000000000,"nonce":"{NONCE}",'
        '"type":"message","v":1}'
    )
    assert record.id == "gnk14a7c9jz3es2eb65emtks08"
    assert record.signatures == {
        HOST_ID: "qePM/hGeMrLWXpNdqf0mGLJdNIq9SMkdqA7JaZYzDJUG"
        "w7NeuHZ11j0zfbcjU+shTp4+S1AJZVeq8Bi2DN2NDg=="
    }


def test_the_id_does_not_depend_on_who_signed() -> None:
    ours = sign("policy", content("policy"), HOST, HOST_ID)
    theirs = sign("policy", content("policy"), OWNER, OWNER_ID)
    assert ours.id == theirs.id
    assert ours != theirs
    assert hash(ours) == hash(theirs)


def test_a_record_cannot_be_changed_after_it_was_made() -> None:
    signatures = {HOST_ID: "x"}
    record = Record("message", "{}", signatures)
    signatures.clear()
    assert record.signatures == {HOST_ID: "x"}
    with pytest.raises(dataclasses.FrozenInstanceError):
        record.payload = "[]"  # type: ignore[misc]


def test_the_kinds_are_a_closed_list() -> None:
    assert len(KINDS) == len(set(KINDS)) == 20
    assert all("\0" not in kind for kind in KINDS)


@pytest.mark.parametrize(
    ("fields", "step"),
    [
        ({"v": 2}, 6),
        ({"v": True}, 6),
        ({"type": "receipt"}, 6),
        ({"nonce": "0" * 31}, 6),
        ({"body": "x" * limits.RECORD_MAX_BYTES}, 1),
    ],
)
def test_what_nobody_would_believe_is_not_signed(fields: dict[str, object], step: int) -> None:
    with pytest.raises(RecordError) as caught:
        sign("message", content() | fields, HOST, HOST_ID)
    assert caught.value.step == step


def test_only_known_kinds_and_the_signed_form_are_signed() -> None:
    with pytest.raises(RecordError, match="unknown kind"):
        sign("hello", content("hello"), HOST, HOST_ID)
    for value in (1.5, "\ud800", 2**53, (1,)):
        with pytest.raises(CanonicalError):
            sign("message", content(body=value), HOST, HOST_ID)


def test_a_sealed_payload_is_the_record_that_sign_makes() -> None:
    value = content(aud=[HOST_ID], body="Grüße\n")
    record = sign("message", value, HOST, HOST_ID)
    sealed = seal("message", encode(value).encode(), HOST)
    assert sealed.record(HOST_ID) == record
    assert (sealed.kind, sealed.payload) == ("message", record.payload)
    assert (sealed.digest, sealed.id) == (record.digest, record.id)
    assert base64_of(sealed.signature) == record.signatures[HOST_ID]
    assert (
        verify(sealed.record(HOST_ID), kind="message", signers=TRUSTED, audience=HOST_ID) == value
    )


def test_the_largest_payload_is_sealed_and_one_byte_more_is_not() -> None:
    for size_bytes in (limits.RECORD_MAX_BYTES - 1, limits.RECORD_MAX_BYTES):
        assert len(seal("message", b"x" * size_bytes, HOST).payload) == size_bytes
    with pytest.raises(RecordError) as caught:
        seal("message", b"x" * (limits.RECORD_MAX_BYTES + 1), HOST)
    assert caught.value.step == 1


# --- step 1: size --------------------------------------------------------------------------------


@pytest.mark.parametrize("body", ["x" * 40, "é" * 20, "😀" * 10])
def test_the_size_is_counted_in_bytes_of_the_payload(body: str) -> None:
    record = sign("message", content(body=body), HOST, HOST_ID)
    size_bytes = len(record.payload.encode())
    assert refused_at(record, max_bytes=size_bytes + 1) == 0
    assert refused_at(record, max_bytes=size_bytes) == 0
    assert refused_at(record, max_bytes=size_bytes - 1) == 1
    assert refused_at(record, max_bytes=len(record.payload) - 1) == 1


def test_size_is_judged_before_everything_else() -> None:
    assert refused_at(Record("nonsense", "x" * 100, {}), max_bytes=99) == 1


def test_a_payload_that_has_no_utf8_is_refused_at_once() -> None:
    assert refused_at(Record("message", '"\ud800"', {HOST_ID: "x"})) == 1


def test_the_largest_record_is_signed_and_one_byte_more_is_not() -> None:
    room = limits.RECORD_MAX_BYTES - len(encode(content(body="")))
    for size_bytes in (room - 1, room):
        record = sign("message", content(body="x" * size_bytes), HOST, HOST_ID)
        assert refused_at(record) == 0
    with pytest.raises(RecordError) as caught:
        sign("message", content(body="x" * (room + 1)), HOST, HOST_ID)
    assert caught.value.step == 1


# --- step 2: kind and signers --------------------------------------------------------------------


def test_a_kind_that_was_not_asked_for_is_refused() -> None:
    for kind, asked in itertools.permutations(KINDS, 2):
        assert refused_at(sign(kind, content(kind), HOST, HOST_ID), kind=asked) == 2


@pytest.mark.parametrize("kind", ["", "hello", "Message", "message\0", "\ud800"])
def test_a_kind_outside_the_list_is_refused_even_if_it_is_asked_for(kind: str) -> None:
    assert refused_at(Record(kind, encode(content(kind="x")), {HOST_ID: "x"}), kind=kind) == 2


def test_every_required_key_must_have_signed() -> None:
    by_host = sign("rotate", content("rotate"), HOST, HOST_ID)
    by_owner = sign("rotate", content("rotate"), OWNER, OWNER_ID)
    both = Record("rotate", by_host.payload, {**by_owner.signatures, **by_host.signatures})
    signers = {HOST_ID: HOST.public, OWNER_ID: OWNER.public}
    assert refused_at(both, kind="rotate", signers=signers) == 0
    assert refused_at(by_host, kind="rotate", signers=signers) == 2
    assert refused_at(by_owner, kind="rotate", signers=signers) == 2
    swapped = Record(
        "rotate",
        by_host.payload,
        {HOST_ID: by_owner.signatures[OWNER_ID], OWNER_ID: by_host.signatures[HOST_ID]},
    )
    assert refused_at(swapped, kind="rotate", signers=signers) == 3
    one_wrong = Record("rotate", by_host.payload, {**both.signatures, OWNER_ID: "AAAA"})
    assert refused_at(one_wrong, kind="rotate", signers=signers) == 3


def test_a_record_without_signatures_is_refused() -> None:
    assert refused_at(Record("message", encode(content()), {})) == 2


def test_a_record_is_not_believed_when_no_key_is_required() -> None:
    record = sign("message", content(), HOST, HOST_ID)
    assert refused_at(record, signers={}) == 2
    assert refused_at(Record("message", record.payload, {}), signers={}) == 2


def test_a_signature_of_an_unknown_key_is_refused_alone_and_as_an_addition() -> None:
    known = sign("message", content(), HOST, HOST_ID)
    unknown = sign("message", content(), STRANGER, STRANGER_ID)
    assert refused_at(unknown) == 2
    both = Record("message", known.payload, {**known.signatures, **unknown.signatures})
    assert refused_at(both) == 2


def test_the_reason_names_the_keys_that_did_not_sign() -> None:
    record = sign("rotate", content("rotate"), HOST, HOST_ID)
    with pytest.raises(RecordError, match=OWNER_ID):
        verify(
            record,
            kind="rotate",
            signers={HOST_ID: HOST.public, OWNER_ID: OWNER.public},
            audience=None,
        )


# --- step 3: signatures --------------------------------------------------------------------------


def test_no_signature_of_one_kind_passes_for_another() -> None:
    """All 342 pairs: the same payload text and signature under another kind."""
    pairs = 0
    for signed_as, shown_as in itertools.permutations(KINDS, 2):
        text = encode(content(shown_as))
        signature = base64_of(HOST.sign(signed_bytes(signed_as, text)))
        assert refused_at(Record(shown_as, text, {HOST_ID: signature}), kind=shown_as) == 3
        pairs += 1
    assert pairs == 380


@pytest.mark.parametrize(
    "signed", ["{text}", "message{text}", "mbx-sig/1{text}", "message\0{text}"]
)
def test_a_signature_without_the_prefix_is_no_signature(signed: str) -> None:
    text = encode(content())
    signature = HOST.sign(signed.replace("{text}", text).encode())
    assert refused_at(Record("message", text, {HOST_ID: base64_of(signature)})) == 3


def test_another_keys_signature_under_our_key_id_is_refused() -> None:
    text = encode(content())
    assert refused_at(signed_text(text)) == 0
    assert refused_at(signed_text(text, key=STRANGER)) == 3


def flipped(text: str) -> list[str]:
    """`text` with each bit of its bytes flipped; bytes that are no text stand as surrogates."""
    raw = text.encode()
    changed = [
        raw[:at] + bytes([raw[at] ^ 1 << bit]) + raw[at + 1 :]
        for at in range(len(raw))
        for bit in range(8)
    ]
    return [one.decode("utf-8", "surrogateescape") for one in changed]


def test_each_flipped_bit_of_a_record_is_refused() -> None:
    record = sign("message", content(aud=[HOST_ID], body="naïve"), HOST, HOST_ID)
    signature = record.signatures[HOST_ID]
    assert refused_at(record, audience=HOST_ID) == 0
    payloads = [Record("message", text, record.signatures) for text in flipped(record.payload)]
    kinds = [Record(kind, record.payload, record.signatures) for kind in flipped("message")]
    ids = [Record("message", record.payload, {one: signature}) for one in flipped(HOST_ID)]
    texts = [Record("message", record.payload, {HOST_ID: one}) for one in flipped(signature)]
    assert {refused_at(one, audience=HOST_ID) for one in payloads} == {1, 3}
    assert {refused_at(one, audience=HOST_ID) for one in kinds + ids} == {2}
    assert {refused_at(one, audience=HOST_ID) for one in texts} == {3}


def test_each_flipped_bit_of_a_signature_is_refused() -> None:
    record = sign("message", content(), HOST, HOST_ID)
    raw = base64.b64decode(record.signatures[HOST_ID])
    for bit in range(512):
        changed = (int.from_bytes(raw, "big") ^ 1 << bit).to_bytes(64, "big")
        assert refused_at(Record("message", record.payload, {HOST_ID: base64_of(changed)})) == 3


def test_a_signature_has_one_spelling() -> None:
    record = sign("message", content(), HOST, HOST_ID)
    text = record.signatures[HOST_ID]
    assert text.endswith("==")
    assert len(text) == 88
    last = text[85]
    alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
    same_bits = [
        text[:85] + other + "=="
        for other in alphabet
        if alphabet.index(other) // 16 == alphabet.index(last) // 16
    ]
    assert len(same_bits) == 16  # they all decode to the same 64 bytes
    assert len({base64.b64decode(one) for one in same_bits}) == 1
    others = [one for one in same_bits if one != text]
    for spelling in (
        *others,
        text.rstrip("="),
        text[:-1],
        text + "=",
        text + "\n",
        " " + text,
        text[:4] + "\n" + text[4:],
        text[:4] + "!" + text[4:],
        text[:4] + "=" + text[4:],
        text + text,
        text + "AAAA",
        base64.b16encode(base64.b64decode(text)).decode(),
        "",
        "=",
        "A",
        "é" * 88,
        "\ud800",
    ):
        assert refused_at(Record("message", record.payload, {HOST_ID: spelling})) == 3


def test_the_url_alphabet_is_not_the_standard_one() -> None:
    records = [sign("message", content(number=number), HOST, HOST_ID) for number in range(20)]
    record = next(one for one in records if {"+", "/"} <= set(one.signatures[HOST_ID]))
    text = record.signatures[HOST_ID]
    other = text.replace("+", "-").replace("/", "_")
    assert refused_at(record) == 0
    assert refused_at(Record("message", record.payload, {HOST_ID: other})) == 3


def test_a_weak_key_in_the_trust_verifies_nothing() -> None:
    """The identity point: without the strict check one signature would fit every message."""
    weak = (1).to_bytes(32, "little")
    record = Record("message", encode(content()), {HOST_ID: base64_of(weak + bytes(32))})
    assert refused_at(record, signers={HOST_ID: weak}) == 3


# --- steps 4 and 5: one reading, one encoding ----------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        '"message"',
        "null",
        "{",
        "\ufeff{}",
        '{"v":1,"v":1}',
        '{"v":1.0}',
        '{"v":1e0}',
        '{"v":-0}',
        '{"v":NaN}',
        '{"v":9007199254740992}',
        '{"v":12345678901234567}',
        '{"V":1}',
        '{"a":"\\ud800"}',
        '{"a":' + "[" * 8 + "]" * 8 + "}",
        "[" * 100_000,
    ],
)
def test_a_signed_payload_outside_the_form_is_refused(text: str) -> None:
    assert refused_at(signed_text(text)) == 4


def test_a_second_encoding_of_the_same_content_is_refused() -> None:
    value = content(body="é/😀\n", list=[1, 2])
    right = encode(value)
    others = [
        json.dumps(value),
        json.dumps(value, sort_keys=True),
        json.dumps(value, ensure_ascii=False, separators=(",", ":")),
        json.dumps(value, sort_keys=True, ensure_ascii=True, separators=(",", ":")),
        right + "\n",
        " " + right,
        right.replace("/", "\\/"),
        right.replace("é", "\\u00e9"),
        right.replace("\\n", "\\u000a"),
        right.replace(",", ", ", 1),
        right.replace('"v"', '"\\u0076"'),
    ]
    assert refused_at(signed_text(right)) == 0
    for text in others:
        assert text != right
        assert json.loads(text) == value
        assert refused_at(signed_text(text)) == 5


def test_texts_that_only_look_alike_are_different_records() -> None:
    composed = sign("message", content(body="\u00e9"), HOST, HOST_ID)
    decomposed = sign("message", content(body="e\u0301"), HOST, HOST_ID)
    assert composed.id != decomposed.id
    assert refused_at(composed) == refused_at(decomposed) == 0


# --- step 6: shape -------------------------------------------------------------------------------


def changed(**fields: object) -> dict[str, Any]:
    """The usual content with these fields; `...` leaves one out."""
    return {name: value for name, value in (content() | fields).items() if value is not ...}


@pytest.mark.parametrize(
    "fields",
    [
        {"v": ...},
        {"v": 0},
        {"v": 2},
        {"v": "1"},
        {"v": True},
        {"v": None},
        {"type": ...},
        {"type": "receipt"},
        {"type": None},
        {"type": ["message"]},
        {"iat": ...},
        {"iat": -1},
        {"iat": "1"},
        {"iat": None},
        {"iat": False},
        {"nonce": ...},
        {"nonce": NONCE[:-1]},
        {"nonce": NONCE + "0"},
        {"nonce": NONCE.upper()},
        {"nonce": NONCE[:-1] + "\n"},
        {"nonce": NONCE[:-1] + "g"},
        {"nonce": 1},
        {"exp": None},
        {"exp": -1},
        {"exp": True},
        {"exp": "1"},
        {"aud": None},
        {"aud": ""},
        {"aud": []},
        {"aud": {}},
        {"aud": 1},
        {"aud": [1]},
        {"aud": [""]},
        {"aud": ["b", "a"]},
        {"aud": ["a", "a"]},
        {"aud": ["a", ["b"]]},
        {"aud": ["a", None]},
    ],
)
def test_a_payload_lacks_no_field_and_has_it_in_its_shape(fields: dict[str, Any]) -> None:
    value = changed(**fields)
    assert refused_at(signed_text(encode(value)), audience=ANY_AUDIENCE) == 6
    with pytest.raises(RecordError) as caught:
        sign("message", value, HOST, HOST_ID)
    assert caught.value.step == 6


@pytest.mark.parametrize(
    "fields",
    [{"iat": 0}, {"iat": 2**53 - 1}, {"exp": 0}, {"exp": 1}, {"aud": "a"}, {"aud": ["a", "b"]}],
)
def test_times_from_zero_and_sorted_audiences_are_in_shape(fields: dict[str, Any]) -> None:
    record = sign("message", content() | fields, HOST, HOST_ID)
    assert refused_at(record, audience=ANY_AUDIENCE) == 0


# --- step 7: audience ----------------------------------------------------------------------------


@pytest.mark.parametrize("aud", [HOST_ID, sorted([HOST_ID, OWNER_ID]), [HOST_ID]])
def test_a_record_is_for_whom_it_names_and_nobody_else(aud: object) -> None:
    record = sign("message", content(aud=aud), HOST, HOST_ID)
    assert refused_at(record, audience=HOST_ID) == 0
    assert refused_at(record, audience=ANY_AUDIENCE) == 0
    for other in (STRANGER_ID, HOST_ID[:-1], HOST_ID + "0", "", HOST_ID.upper()):
        assert refused_at(record, audience=other) == 7


def test_a_record_with_an_audience_is_refused_where_none_is_expected() -> None:
    assert refused_at(sign("message", content(aud=[HOST_ID]), HOST, HOST_ID)) == 7
    assert refused_at(sign("message", content(aud=HOST_ID), HOST, HOST_ID)) == 7


def test_a_record_for_nobody_is_refused_where_an_audience_is_expected() -> None:
    record = sign("lease", content("lease"), HOST, HOST_ID)
    assert refused_at(record, kind="lease", audience=HOST_ID) == 7
    assert refused_at(record, kind="lease") == 0
    assert refused_at(record, kind="lease", audience=ANY_AUDIENCE) == 0


# --- the order -----------------------------------------------------------------------------------


def test_the_steps_come_in_their_order() -> None:
    """A record that is wrong at every step is cured from the first on: each cure shows the next."""
    wrong = '{"v":2.0,"aud":"someone"}'
    longer = wrong + " " * 200
    unsigned = Record("message", wrong, {HOST_ID: "x"})
    reordered = '{"v":2,"aud":"someone"}'
    canonical = '{"aud":"someone","v":2}'
    shaped = encode(content(aud="someone"))
    cures = [
        Record("lease", longer, {STRANGER_ID: "x"}),
        Record("lease", wrong, {STRANGER_ID: "x"}),
        unsigned,
        signed_text(wrong),
        signed_text(reordered),
        signed_text(canonical),
        signed_text(shaped),
        signed_text(encode(content(aud=HOST_ID))),
    ]
    steps = [refused_at(one, audience=HOST_ID, max_bytes=190) for one in cures]
    assert steps == [1, 2, 3, 4, 5, 6, 7, 0]


def test_a_reason_never_quotes_the_record() -> None:
    payloads = ['{"secret":secret}', encode(content(type="secret")), encode(content(aud="secret"))]
    for text in payloads:
        with pytest.raises(RecordError) as caught:
            verify(signed_text(text), kind="message", signers=TRUSTED, audience=HOST_ID)
        assert str(caught.value) == f"step {caught.value.step}: {caught.value.reason}"
        assert "secret" not in str(caught.value)
        assert caught.value.__cause__ is None


# -- before it is signed --------------------------------------------------------------------------


def test_what_inspect_lets_pass_is_believed_once_it_is_signed() -> None:
    text = encode(content(aud=HOST_ID))
    assert inspect("message", text, audience=HOST_ID) == content(aud=HOST_ID)
    assert verify(signed_text(text), kind="message", signers=TRUSTED, audience=HOST_ID)


@pytest.mark.parametrize(
    ("text", "kind", "step"),
    [
        ("x" * (limits.RECORD_MAX_BYTES + 1), "message", 1),
        ("\ud800", "message", 1),
        (encode(content("spell")), "spell", 2),
        ("[]", "message", 4),
        ('{"v":1,"v":1}', "message", 4),
        (json.dumps(content(aud=HOST_ID)), "message", 5),
        (encode(content("lease", aud=HOST_ID)), "message", 6),
        (encode(content(aud=OWNER_ID)), "message", 7),
        (encode(content()), "message", 7),
    ],
)
def test_inspect_names_the_step_of_verify_that_would_refuse(
    text: str, kind: str, step: int
) -> None:
    with pytest.raises(RecordError) as refusal:
        inspect(kind, text, audience=HOST_ID)
    assert refusal.value.step == step
