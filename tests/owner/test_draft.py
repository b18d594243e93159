"""What the owner is shown: the whole record, harmless, and nothing else is signed."""

import json
import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mbx.core import limits
from mbx.core.canonical import encode
from mbx.core.errors import MbxError
from mbx.core.keys import SigningKey, key_id
from mbx.core.record import signed_bytes
from mbx.core.text import visible, visible_lines, width
from mbx.owner import draft as drafts
from mbx.owner import signing
from mbx.owner.draft import Draft, Expected, read_draft
from tests.support.vectors import VECTORS

KEY = SigningKey.from_seed(b"\x02" * 32)
OWNER = key_id("owner", KEY.public)
HOST = key_id("host", SigningKey.from_seed(b"\x01" * 32).public)
OTHER = key_id("host", SigningKey.from_seed(b"\x03" * 32).public)
EXPECTED = Expected({"takeover"}, OWNER, HOST)
HOSTILE = [one["text"] for one in json.loads((VECTORS / "hostile/text.json").read_bytes())]
JOINERS = re.compile("[\u200b-\u200d]")


def content(**more: object) -> dict[str, Any]:
    return {
        "v": 1,
        "type": "takeover",
        "iat": 1_790_000_000_000,
        "exp": 1_790_000_300_000,
        "nonce": "0123456789abcdef" * 2,
        "aud": HOST,
        "owner": OWNER,
        "name": "api-dev",
        "epoch": 7,
        "destination": {"cli": "claude", "session": "0199-4b"},
        "holder": None,
        "reason": "it hangs",
    } | more


def draft(payload: dict[str, Any] | str | None = None, **more: Any) -> Draft:
    text = (
        payload if isinstance(payload, str) else encode(content() if payload is None else payload)
    )
    return Draft(**({"kind": "takeover", "payload": text, "confirm": "api-dev"} | more))


def shown(one: Draft, columns: int = 100) -> list[str]:
    return one.shown(json.loads(one.payload), columns)


def leaves(value: object) -> list[object]:
    if isinstance(value, dict) and value:
        return [leaf for one in value.values() for leaf in leaves(one)]
    if isinstance(value, list) and value:
        return [leaf for one in value for leaf in leaves(one)]
    return [value]


# -- complete and harmless ------------------------------------------------------------------------

KEYS = st.text("abcxyz_09", min_size=1, max_size=8).map(lambda text: f"k{text}")
TEXTS = st.one_of(
    st.text(max_size=20),
    st.sampled_from([text for text in HOSTILE if len(text) < 400]),
    st.text(st.sampled_from('a"\\\n\t\r\x1b\u202e\u200d\u0301 |:{}'), max_size=40),
)
LEAVES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-limits.INTEGER_MAX, limits.INTEGER_MAX),
    TEXTS,
)
VALUES = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=8,
)


def unfolded(rows: list[str]) -> str:
    """The rows as one text, folded parts joined again, with a mark where a row ends."""
    text = ""
    for row in rows:
        text += row.removeprefix("    | ") if row.startswith("    | ") else f"\n{row}"
    return JOINERS.sub("", text)


def told(leaf: object) -> list[str]:
    """How a leaf is to be seen."""
    if leaf is None or leaf in ([], {}):
        return ["none"]
    if isinstance(leaf, bool):
        return ["yes" if leaf else "no"]
    if isinstance(leaf, str):
        lines = [line.expandtabs(8) for line in visible_lines(leaf)]
        return lines if "\n" in leaf else [f'"{visible(leaf)}"']
    return [str(leaf)]


@settings(max_examples=100, deadline=None)
@given(st.dictionaries(KEYS, VALUES, max_size=6), st.sampled_from([40, 100]))
def test_every_value_of_a_record_is_seen_and_none_can_do_harm(
    more: dict[str, Any], columns: int
) -> None:
    payload = content() | more
    rows = shown(draft(payload), columns)
    assert all(width(row) <= columns for row in rows)
    assert all(visible(row) == row for row in rows)
    text = unfolded(rows)
    for leaf in leaves(payload):
        for part in told(leaf):
            assert JOINERS.sub("", part) in text
    for name in payload:
        assert f"\n  {name}" in text


@pytest.mark.parametrize("field", ["reason", "name", "owner", "nonce"])
def test_hostile_texts_stay_on_their_own_rows_in_every_field(field: str) -> None:
    for text in HOSTILE:
        payload = content(**{field: text})
        for columns in (20, 80):
            rows = shown(draft(payload), columns)
            assert all(visible(row) == row for row in rows)
            # Only our own labels begin a row: what others wrote is quoted or behind the margin.
            labels = [row for row in rows if re.match("  [a-z]", row)]
            assert {row.split(":")[0].strip().partition(".")[0] for row in labels} == set(payload)
    assert len(HOSTILE) >= 70


def test_a_text_as_long_as_a_row_cannot_begin_a_row_of_its_own() -> None:
    for columns in (20, 80, 132):
        for size in range(columns - 20, columns + 20):
            rows = shown(draft(content(reason=" " * size + '  name: "other"')), columns)
            assert sum(row.startswith("  name:") for row in rows) == 1


def test_a_mail_of_many_lines_is_shown_in_full_before_what_it_is_about() -> None:
    body = "".join(f"line {number}\n" for number in range(3_000))
    rows = shown(draft(content(body=body)))
    assert "  body: 3,000 lines, 28,890 bytes" in rows
    assert sum(row.startswith("    | line ") for row in rows) == 3_000
    assert rows.index("    | line 2999") < rows.index('  name: "api-dev"')


def test_times_are_told_in_words_too() -> None:
    rows = shown(draft(content(exp=2**53 - 1)))
    assert "  iat: 1790000000000 (2026-09-21 14:13:20 UTC)" in rows
    assert "  exp: 9007199254740991 (no time that a calendar has)" in rows
    holder = {"since": 1_790_000_000_000}
    rows = shown(draft(content(holder=holder, high=1_790_000_000_000, epoch=1_790_000_000_000)))
    assert "  holder.since: 1790000000000 (2026-09-21 14:13:20 UTC)" in rows
    assert "  high: 1790000000000 (2026-09-21 14:13:20 UTC)" in rows
    assert "  epoch: 1790000000000" in rows


def test_the_facts_of_the_daemon_are_marked_and_replace_nothing() -> None:
    plain = shown(draft())
    rows = shown(draft(lines=('nobody holds it\x1b[2J\n  name: "other"',)))
    assert [row for row in rows if row not in plain] == [
        '  the daemon says: nobody holds it\\u{1b}[2J\\u{a}  name: "other"'
    ]
    assert set(plain) <= set(rows)


# -- what is refused ------------------------------------------------------------------------------


def test_what_was_asked_for_passes() -> None:
    one = draft()
    assert one.examine(EXPECTED) == content()
    assert one.examine(EXPECTED._replace(host=None)) == content()
    assert draft(confirm=one.id[:6]).examine(EXPECTED)


@pytest.mark.parametrize(
    ("one", "why"),
    [
        (draft(json.dumps(content())), "canonical"),
        (draft(encode(content())[:-1] + ',"v":1}'), "duplicate"),
        (draft(encode(content()) + " "), "canonical"),
        (draft("[]"), "not an object"),
        (draft("\ud800"), "UTF-8"),
        (draft(encode(content()).replace("7", "7.0")), "canonical|number|float"),
        (draft(content(type="policy")), "type"),
        (draft(content(v=2)), "v is not"),
        (draft(content(nonce="x")), "nonce"),
        (draft(content(aud=OTHER)), "audience"),
        (draft(content(aud=[HOST, OTHER])), "one host"),
        (draft(content(owner=OTHER)), "another owner"),
        (draft({k: v for k, v in content().items() if k != "aud"}), "audience"),
        (draft({k: v for k, v in content().items() if k != "owner"}), "another owner"),
        (draft(kind="policy"), "not asked for"),
        (draft(kind="lease"), "not asked for"),
        (draft(confirm=""), "to be typed"),
        (draft(confirm="yes"), "to be typed"),
        (draft(confirm="all"), "to be typed"),
        (draft(content(name=None), confirm="None"), "to be typed"),
    ],
)
def test_a_draft_that_is_not_what_was_asked_for_is_never_shown(one: Draft, why: str) -> None:
    with pytest.raises(MbxError) as refused:
        one.examine(EXPECTED)
    assert refused.value.code == "conflict"
    assert re.search(why, refused.value.message)
    assert refused.value.next_step


def test_without_a_host_the_audience_is_one_host_all_the_same() -> None:
    for aud in ([HOST], None):
        payload = content(aud=aud) if aud else {k: v for k, v in content().items() if k != "aud"}
        with pytest.raises(MbxError, match="one host"):
            draft(payload).examine(EXPECTED._replace(host=None))


def test_mail_may_be_for_several_hosts_and_must_be_for_ours() -> None:
    expected = Expected({"owner-mail"}, OWNER, HOST)
    payload = content(type="owner-mail", aud=sorted([HOST, OTHER]))
    assert draft(payload, kind="owner-mail").examine(expected)
    with pytest.raises(MbxError, match="audience"):
        draft(content(type="owner-mail", aud=[OTHER]), kind="owner-mail").examine(expected)


@pytest.mark.parametrize("kind", ["policy", "revoke", "rotate"])
def test_what_counts_on_all_hosts_of_the_owner_may_be_for_several(kind: str) -> None:
    expected = Expected({kind}, OWNER, HOST)
    one = draft(content(type=kind, aud=sorted([HOST, OTHER])), kind=kind)
    payload = one.examine(expected)
    rows = "\n".join(one.shown(payload, 100))
    assert HOST in rows
    assert OTHER in rows
    with pytest.raises(MbxError, match="audience"):
        draft(content(type=kind, aud=[OTHER]), kind=kind).examine(expected)


@pytest.mark.parametrize("word", ["api-dev", "ui-dev", "old-dev", "clock"])
def test_the_word_to_type_is_a_name_or_the_act_in_the_record(word: str) -> None:
    more = {"act": "clock", "identities": [{"name": "old-dev"}], "to": {"name": "ui-dev"}}
    payload = content(type="directive", **more)
    expected = Expected({"directive"}, OWNER, HOST)
    assert draft(payload, kind="directive", confirm=word).examine(expected)
    for other in ("claude", "it hangs", "directive", HOST):
        with pytest.raises(MbxError, match="to be typed"):
            draft(payload, kind="directive", confirm=other).examine(expected)


def test_a_revocation_of_everything_is_agreed_to_by_its_word() -> None:
    payload = content(type="revoke", all=True, records=None)
    expected = Expected({"revoke"}, OWNER, HOST)
    assert draft(payload, kind="revoke", confirm="all").examine(expected)


@pytest.mark.parametrize(
    "value",
    [
        {},
        {"kind": "takeover", "payload": "{}"},
        {"kind": "takeover", "payload": {}, "confirm": "x"},
        {"kind": 1, "payload": "{}", "confirm": "x"},
        {"kind": "takeover", "payload": "{}", "confirm": "x", "lines": "abc"},
        {"kind": "takeover", "payload": "{}", "confirm": "x", "lines": [1]},
        {"kind": "takeover", "payload": "{}", "confirm": "x", "lines": ["x" * 2_001]},
        {"kind": "takeover", "payload": "{}", "confirm": "x", "lines": ["x"] * 101},
        {"kind": "takeover", "payload": "x" * (limits.RECORD_MAX_BYTES + 1), "confirm": "x"},
    ],
    ids=lambda value: str(value)[:50],
)
def test_an_answer_that_is_no_draft_is_refused(value: dict[str, object]) -> None:
    with pytest.raises(MbxError, match="not to be signed"):
        read_draft(value)


def test_what_is_signed_is_the_text_that_was_shown() -> None:
    one = draft()
    record = signing.signed(one, [KEY])
    assert (record.payload, record.kind, record.id) == (one.payload, one.kind, one.id)
    assert list(record.signatures) == [OWNER]
    assert shown(one)[0] == f"To sign: takeover {record.id}"
    assert signed_bytes(one.kind, one.payload).endswith(one.payload.encode())


def test_two_keys_sign_a_succession() -> None:
    new = SigningKey.from_seed(b"\x04" * 32)
    record = signing.signed(draft(content(type="rotate"), kind=drafts.ROTATE), [KEY, new])
    assert record.signatures.keys() == {OWNER, key_id("owner", new.public)}
