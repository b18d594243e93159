"""What the owner's records add up to, whatever lies in the store: never more than was signed."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mbx.core.authority import (
    NOTHING,
    ONESELF,
    Book,
    Clock,
    Content,
    Grant,
    Overlay,
    build,
    lowered,
    manner,
)
from mbx.core.canonical import parse
from mbx.core.chains import FIRST, NO_RECORD, Damage, Link, OwnerKey, record_digest
from mbx.core.keys import SigningKey, key_id
from mbx.core.policy import (
    CLASSES_OF,
    LEVELS,
    Policy,
    Sender,
    Source,
    Subject,
    policy_payload,
    revoke_payload,
)
from mbx.core.record import sign

NOW = 1_700_000_000_000
MINUTES = 5 * 60 * 1000
DAY = 24 * 60 * 60 * 1000
HOST, OTHER_HOST = "h" * 26, "j" * 26
ANA, BO = "a" * 26, "b" * 26
KEY = SigningKey.from_seed(b"\x02" * 32)
STRANGER = SigningKey.from_seed(b"\x04" * 32)


def owner(key: SigningKey, until_version: int | None = None) -> OwnerKey:
    return OwnerKey(key_id("owner", key.public), key.public, until_version)


OWNERS = [owner(KEY)]
FIELDS = frozenset(Policy._fields) - {"version", "chain"}


class Chain:
    """Records as an owner signs them, each with the digest of the one before."""

    def __init__(self) -> None:
        self.links: list[Link] = []
        self.key = KEY
        self.now_ms = NOW

    def policy(self, level: str = "autonomous", **more: Any) -> str:
        policy = Policy(
            version=0,
            id="",
            iat_ms=self.now_ms,
            exp_ms=self.now_ms + DAY,
            to=(Subject(BO, "bo"),),
            level=level,
            classes=CLASSES_OF[level],
            sources=(Source("local"),),
            projects=(),
            reason="",
        )._replace(**{field: more.pop(field) for field in list(more) if field in FIELDS})
        return self.add("policy", policy_payload(policy, self.envelope(**more)))

    def revoke(self, *records: str, **more: Any) -> str:
        payload = revoke_payload(list(records) or None, "", self.envelope(**more))
        return self.add("revoke", payload)

    def envelope(self, **more: Any) -> dict[str, Any]:
        last = self.links[-1] if self.links else None
        usual: dict[str, Any] = {
            "iat": self.now_ms,
            "nonce": "0" * 32,
            "aud": HOST,
            "owner": key_id("owner", self.key.public),
            "version": last.version + 1 if last else 1,
            "previous": record_digest(last.record) if last else None,
            "chain": HOST,
        }
        return usual | more

    def add(self, kind: str, payload: dict[str, Any]) -> str:
        record = sign(kind, payload, self.key, key_id("owner", self.key.public))
        self.links.append(Link(payload["version"], record))
        return record.id

    def book(self, owners: Sequence[OwnerKey] = OWNERS, floor: int = 0) -> Book:
        return build(self.links, owners, HOST, floor)

    def damage(self, place: int, **changed: Any) -> None:
        """Change a field of a stored record; the signature stays."""
        link = self.links[place]
        self.links[place] = Link(link.version, dataclasses.replace(link.record, **changed))


def grant(book: Book, sender: str = ANA, clock: Clock | None = None) -> Grant:
    return book.grant(BO, Sender(sender, HOST), clock or Clock(NOW))


def is_ask(book: Book, *words: str, clock: Clock | None = None) -> bool:
    """Nothing is granted, and the reason has these words."""
    found = grant(book, clock=clock)
    assert (found.level, found.classes) == ("ask", ())
    return all(word in found.reason for word in words)


# -- the newest record governs --------------------------------------------------------------------


def test_an_empty_chain_grants_nothing_and_begins_at_one() -> None:
    book = build([], [], HOST)
    assert grant(book) == NOTHING
    assert (book.version, book.next, book.damaged) == (0, FIRST, ())


def test_the_newest_match_governs_also_when_it_is_narrower() -> None:
    chain = Chain()
    chain.policy("yolo", exp_ms=NOW + 1_000)
    narrow = chain.policy("collaborate", classes=("read",))
    found = grant(chain.book())
    assert (found.record, found.classes, found.version) == (narrow, ("read",), 2)
    assert found.exp_ms == NOW + DAY


@pytest.mark.parametrize("level", LEVELS)
def test_a_policy_grants_its_level(level: str) -> None:
    chain = Chain()
    chain.policy(level, exp_ms=NOW + 1_000)
    assert grant(chain.book()).classes == CLASSES_OF[level]
    assert bool(manner(grant(chain.book()))) == (level != "ask")


def test_a_policy_of_which_newer_ones_leave_nothing_stands_as_superseded() -> None:
    chain = Chain()
    chain.policy("yolo", exp_ms=NOW + DAY)
    chain.policy("collaborate", sources=(Source("identity", HOST, "vm", ANA, "ana"),))
    chain.policy(to=(Subject(ANA, "ana"), Subject(BO, "bo")))
    newest = chain.policy("ask")

    def standing(recipient: str | None = None) -> list[str]:
        book = chain.book()
        return [book.standing(one, Clock(NOW), recipient) for one in book.policies()]

    assert standing() == ["", "", *[f"superseded by record {newest}"] * 2]
    assert standing(BO)[1] == f"superseded by record {newest}"
    assert standing(ANA)[1] == ""
    chain.revoke(newest)
    assert standing(BO)[1] == f"superseded by record {newest}", "no older one comes back"


def test_a_policy_about_mail_from_oneself_grants_nothing_and_says_so() -> None:
    chain = Chain()
    chain.policy(sources=(Source("identity", HOST, "vm", BO, "bo"),))
    book = chain.book()
    assert book.standing(book.policies()[0], Clock(NOW)) == ONESELF


def test_a_policy_that_still_governs_somebody_is_not_superseded() -> None:
    chain = Chain()
    chain.policy("yolo", exp_ms=NOW + DAY)
    for sources in (
        (Source("identity", HOST, "vm", ANA, "ana"),),
        (Source("host", OTHER_HOST, "lab"),),
    ):
        chain.policy("ask", sources=sources)
        book = chain.book()
        assert book.standing(book.policies()[-1], Clock(NOW)) == ""


def test_a_policy_that_newer_ones_narrow_says_for_whose_mail() -> None:
    chain = Chain()
    ana = Source("identity", HOST, "vm", ANA, "ana")
    wide = chain.policy("yolo", exp_ms=NOW + DAY, to=(Subject(ANA, "ana"), Subject(BO, "bo")))
    narrow = chain.policy("ask", sources=(ana,))
    newest = chain.policy("collaborate", sources=(ana, Source("host", OTHER_HOST, "lab")))
    book = chain.book()
    by_id = {one.id: one for one in book.policies()}
    assert book.parts(by_id[newest]) == []
    assert book.parts(by_id[narrow]) == [(Subject(BO, "bo"), Overlay(ana, newest))]
    assert book.standing(by_id[narrow], Clock(NOW)) == f"superseded by record {newest}"
    assert book.parts(by_id[wide]) == [(Subject(BO, "bo"), Overlay(ana, newest))]
    assert book.parts(by_id[wide], ANA) == []
    assert book.standing(by_id[wide], Clock(NOW)) == ""


@given(st.data())
def test_a_superseded_policy_governs_nobody_and_any_other_somebody(data: st.DataObject) -> None:
    people = [ANA, BO, "k" * 26]
    source = st.sampled_from(
        [Source("local"), Source("host", HOST, "vm"), Source("host", OTHER_HOST, "lab")]
        + [Source("identity", HOST, "vm", one, "some-name") for one in people]
    )
    chain = Chain()
    for _ in range(data.draw(st.integers(1, 6))):
        to = data.draw(st.lists(st.sampled_from(people), min_size=1, unique=True))
        chain.policy(
            to=tuple(Subject(one, "some-name") for one in to),
            sources=tuple(data.draw(st.lists(source, min_size=1, max_size=3, unique=True))),
        )
    book = chain.book()
    # A stranger stands for everybody of a host whom no policy names.
    senders = [Sender(one, host) for one in [*people, "q" * 26] for host in (HOST, OTHER_HOST)]
    governing = {
        book.grant(to, sender, Clock(NOW)).record
        for to in people
        for sender in senders
        if sender.identity != to
    }
    for policy in book.policies():
        superseded = book.standing(policy, Clock(NOW)) != ""
        assert superseded == (policy.id not in governing)
        named = {overlay.record for _, overlay in book.parts(policy)}
        assert superseded or named <= {one.id for one in book.policies()} - {policy.id}


@pytest.mark.parametrize("classes", [("read",), ("read", "edit"), CLASSES_OF["yolo"][:-1]])
def test_words_of_everything_stand_only_where_everything_is_granted(
    classes: tuple[str, ...],
) -> None:
    chain = Chain()
    chain.policy("yolo", classes=classes, exp_ms=NOW + DAY)
    assert manner(grant(chain.book())) == ""
    chain.policy("yolo", exp_ms=NOW + DAY)
    found = grant(chain.book())
    assert "everything" in manner(found)
    assert manner(lowered(found, Content(is_external=True))) == ""


def test_a_policy_about_others_neither_grants_nor_hides_one() -> None:
    chain = Chain()
    chain.policy("autonomous")
    chain.policy("yolo", to=(Subject(ANA, "ana"),), exp_ms=NOW + 1)
    chain.policy("yolo", sources=(Source("host", OTHER_HOST, "lab"),), exp_ms=NOW + 1)
    assert grant(chain.book()).level == "autonomous"
    assert chain.book().grant(BO, Sender(ANA, "k" * 26), Clock(NOW)) == NOTHING


def test_the_newest_that_no_longer_holds_is_ask_and_no_older_wider_one_comes_back() -> None:
    for end in ("revoked", "expired", "damaged"):
        chain = Chain()
        chain.policy("yolo", exp_ms=NOW + 2 * DAY)
        newest = chain.policy("collaborate", exp_ms=NOW + 1_000)
        clock = Clock(NOW + 1_000) if end == "expired" else Clock(NOW)
        if end == "revoked":
            chain.revoke(newest)
        if end == "damaged":
            chain.damage(1, payload=chain.links[1].record.payload.replace("read", "reap"))
        assert is_ask(chain.book(), end if end != "damaged" else "verified", clock=clock)


# -- time -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("now_ms", "holds"), [(-1, True), (0, False), (1, False)])
def test_a_policy_ends_at_its_end(*, now_ms: int, holds: bool) -> None:
    chain = Chain()
    chain.policy()
    clock = Clock(NOW + DAY + now_ms)
    assert bool(grant(chain.book(), clock=clock).classes) == holds
    assert (chain.book().standing(chain.book().policies()[0], clock) == "") == holds


@pytest.mark.parametrize(("back_ms", "behind"), [(-1, False), (0, False), (1, True)])
def test_a_clock_that_went_back_by_more_than_five_minutes_proves_no_term(
    *, back_ms: int, behind: bool
) -> None:
    clock = Clock(NOW, NOW + MINUTES + back_ms)
    assert clock.is_behind == behind
    chain = Chain()
    chain.policy()
    assert bool(grant(chain.book(), clock=clock).classes) != behind
    assert not behind or is_ask(chain.book(), "clock", clock=clock)


@pytest.mark.parametrize(("early_ms", "holds"), [(-1, True), (0, True), (1, False)])
def test_a_policy_of_a_time_that_has_not_come_waits_for_it(*, early_ms: int, holds: bool) -> None:
    chain = Chain()
    chain.policy(iat=NOW + MINUTES + early_ms, exp_ms=NOW + DAY)
    assert bool(grant(chain.book()).classes) == holds


# -- damage ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("place", [0, 1, 2])
def test_one_changed_character_anywhere_weakens_all_that_is_older(place: int) -> None:
    chain = Chain()
    for level in ("collaborate", "autonomous", "collaborate"):
        chain.policy(level)
    text = chain.links[place].record.payload
    for at in range(0, len(text), 7):
        changed = text[:at] + chr(ord(text[at]) ^ 1) + text[at + 1 :]
        chain.damage(place, payload=changed)
        book = chain.book()
        assert len(book.damaged) == 1
        assert bool(grant(book).classes) == (place != 2)
        older = [one for one in book.policies() if one.version < place + 1]
        assert all(f"record {place + 1} " in book.standing(one, Clock(NOW)) for one in older)


@pytest.mark.parametrize(
    "changed",
    [
        {"signatures": {}},
        {"signatures": {key_id("owner", KEY.public): ""}},
        {"signatures": {key_id("owner", KEY.public): "A" * 88}},
        {"signatures": {key_id("owner", STRANGER.public): "A" * 88}},
        {"kind": "revoke"},
        {"kind": "takeover"},
        {"kind": "k\udc80"},
        {"payload": ""},
        {"payload": "\udc80"},
        {"payload": "[]"},
    ],
)
def test_a_record_that_is_not_the_owners_is_damage(changed: dict[str, Any]) -> None:
    chain = Chain()
    chain.policy()
    chain.damage(0, **changed)
    assert is_ask(chain.book(), "record 1", "verified")
    assert chain.book().next.version == 2


def test_a_second_signature_vouches_for_nothing() -> None:
    chain = Chain()
    chain.policy()
    record = chain.links[0].record
    payload = parse(record.payload.encode(), 9_999)
    assert isinstance(payload, dict)
    more = sign("policy", payload, STRANGER, key_id("owner", STRANGER.public))
    chain.damage(0, signatures={**record.signatures, **more.signatures})
    assert is_ask(chain.book(), "verified")


def test_a_valid_record_in_another_place_is_damage() -> None:
    chain = Chain()
    chain.policy("collaborate")
    chain.policy("autonomous")
    first, second = chain.links
    swapped = build([Link(1, second.record), Link(2, first.record)], OWNERS, HOST)
    assert [one.version for one in swapped.damaged] == [2, 1]
    assert is_ask(swapped, "another place")


def test_the_order_of_rows_means_nothing() -> None:
    chain = Chain()
    chain.policy("collaborate")
    chain.policy("autonomous")
    chain.revoke()
    turned = build(chain.links[::-1], OWNERS, HOST)
    assert (turned.entries, turned.version) == (chain.book().entries, 3)


@pytest.mark.parametrize("gone", [0, 1])
def test_a_missing_record_weakens_all_that_is_older(gone: int) -> None:
    chain = Chain()
    chain.policy("collaborate", to=(Subject(BO, "bo"),))
    chain.policy("yolo", to=(Subject(ANA, "ana"),), exp_ms=NOW + 1)
    chain.policy("yolo", to=(Subject(ANA, "ana"),), exp_ms=NOW + 1)
    del chain.links[gone]
    assert is_ask(chain.book(), "missing")
    assert chain.book().damaged == (Damage(gone + 1, "is missing", HOST, NOW),)


def test_a_chain_that_ends_below_the_floor_was_rolled_back() -> None:
    chain = Chain()
    chain.policy()
    assert grant(chain.book(floor=1)).level == "autonomous"
    assert is_ask(chain.book(floor=2), "record 2", "missing")
    assert is_ask(chain.book(floor=9), "record 9", "all down to 2")
    assert chain.book(floor=9).next.version == 10
    assert is_ask(build([], OWNERS, HOST, 3), "record 3", "all down to 1")
    assert build([], OWNERS, HOST, 3).next == (4, NO_RECORD)


def test_over_a_gap_the_chain_goes_on_and_what_is_older_stays_void() -> None:
    chain = Chain()
    chain.policy("yolo", exp_ms=NOW + 1)
    ahead = chain.book(floor=4).next
    assert ahead == (5, record_digest(chain.links[0].record))
    chain.policy("collaborate", version=ahead.version, to=(Subject(ANA, "ana"),))
    assert is_ask(chain.book(floor=5), "record 4", "missing")
    chain.policy("collaborate")
    assert grant(chain.book(floor=6)).level == "collaborate"


def test_a_predecessor_replaced_by_another_that_the_owner_signed_is_found() -> None:
    chain, other = Chain(), Chain()
    for one in (chain, other):
        one.policy("collaborate", reason="this" if one is chain else "that")
    chain.policy("collaborate", to=(Subject(ANA, "ana"),))
    assert grant(chain.book()).level == "collaborate"
    chain.links[0] = other.links[0]
    assert is_ask(chain.book(), "record 1", "successor")


# -- fast-forward ---------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [3, 9, 2**53 - 1, 2**63 - 1, 0, -5])
@pytest.mark.parametrize("floor", [0, 1, 2])
def test_a_version_that_no_signature_bears_out_moves_nothing(version: int, floor: int) -> None:
    chain = Chain()
    chain.policy("yolo", exp_ms=NOW + 1)
    chain.policy("collaborate")
    chain.links[1] = Link(version, chain.links[1].record)
    book = chain.book(floor=floor)
    assert is_ask(book, "record 2")
    assert book.version == 2
    assert book.next.version == (4 if version == 3 else 3)
    assert book.next.version not in {link.version for link in chain.links}
    chain.policy("collaborate", version=book.next.version, previous=book.next.previous)
    after = chain.book(floor=book.next.version)
    assert grant(after).level == "collaborate"
    assert after.next.version == book.next.version + 1


def test_a_version_far_ahead_costs_nothing() -> None:
    chain = Chain()
    chain.policy()
    book = chain.book(floor=2**53 - 1)
    assert len(book.entries) == 2
    assert is_ask(book, "missing")


# -- the owner's keys -----------------------------------------------------------------------------


def test_a_record_names_the_owner_who_signed_it_for_this_chain() -> None:
    for wrong in ({"owner": "0" * 26}, {"chain": OTHER_HOST}, {"aud": OTHER_HOST}):
        chain = Chain()
        chain.policy("yolo", exp_ms=NOW + 1, **wrong)
        assert is_ask(chain.book(), "record 1", "verified")


def test_a_record_of_another_kind_has_no_place_in_the_chain() -> None:
    chain = Chain()
    chain.add("directive", {"v": 1, "type": "directive", **chain.envelope()})
    assert is_ask(chain.book(), "no policy and no revocation")


def test_a_text_that_breaks_a_rule_of_its_own_is_damage() -> None:
    chain = Chain()
    chain.policy(reason="x" * 501)
    assert is_ask(chain.book(), "record 1", "cannot be read")


# -- revoking -------------------------------------------------------------------------------------


def test_revoking_all_voids_everything_signed_before_it_wherever_it_stands() -> None:
    chain = Chain()
    chain.policy("collaborate")
    chain.now_ms += 10
    kill = chain.revoke()
    chain.now_ms -= 5
    chain.policy("yolo", exp_ms=NOW + DAY)
    assert is_ask(chain.book(), "revoked", kill)
    chain.now_ms += 6
    chain.policy("collaborate")
    assert grant(chain.book(), clock=Clock(NOW + 11)).level == "collaborate"


def test_a_damaged_revocation_does_not_give_back_what_it_took() -> None:
    chain = Chain()
    chain.policy("yolo", exp_ms=NOW + 1)
    chain.revoke()
    chain.damage(1, payload=chain.links[1].record.payload + " ")
    assert is_ask(chain.book(), "record 2", "verified")


# -- what the message brings ----------------------------------------------------------------------

YOLO = Grant("yolo", CLASSES_OF["yolo"], "r" * 26, 1, NOW)


@pytest.mark.parametrize(("level", "limit"), [("collaborate", 20)])
def test_the_depth_has_a_limit(level: str, limit: int) -> None:
    one = YOLO._replace(level=level, classes=CLASSES_OF[level])
    for hop, holds in ((limit - 1, True), (limit, True), (limit + 1, False)):
        assert bool(lowered(one, Content(hop=hop)).classes) == holds
    assert NOTHING.hop_limit == 6
    assert lowered(YOLO, Content(hop=10_000)) == YOLO


@given(
    st.sampled_from(LEVELS),
    st.booleans(),
    st.integers(0, 40),
    st.booleans(),
)
def test_content_only_lowers(
    level: str,
    is_external: bool,
    hop: int,
    is_verified: bool,
) -> None:
    before = YOLO._replace(level=level, classes=CLASSES_OF[level])
    after = lowered(before, Content(is_external, hop, is_verified))
    assert set(after.classes) <= set(before.classes)
    assert not is_external or set(after.classes) <= {"read"}
    assert is_verified or after.classes == ()
    assert (after.record, after.exp_ms) == (before.record, before.exp_ms)


# -- any store ------------------------------------------------------------------------------------


def a_chain() -> Chain:
    chain = Chain()
    chain.policy("collaborate")
    second = chain.policy("yolo", exp_ms=NOW + DAY)
    chain.revoke(second)
    chain.policy("autonomous", sources=(Source("identity", HOST, "desk", ANA, "ana"),))
    chain.revoke()
    chain.now_ms += 1
    chain.policy("collaborate", classes=("read",))
    return chain


WHOLE = a_chain().links


def granted(book: Book, sender: str) -> set[str]:
    return set(grant(book, sender, Clock(NOW + 2)).classes)


@given(st.data())
def test_no_loss_no_repeat_and_no_exchange_of_rows_grants_more_than_some_moment_did(
    data: st.DataObject,
) -> None:
    rows = data.draw(
        st.lists(
            st.builds(
                Link,
                st.integers(1, 8),
                st.sampled_from([link.record for link in WHOLE]),
            ),
            unique_by=lambda link: link.version,
            max_size=8,
        )
    )
    book = build(rows, OWNERS, HOST, len(WHOLE))
    now = build(WHOLE, OWNERS, HOST, len(WHOLE))
    for sender in (ANA, "c" * 26):
        assert granted(book, sender) <= granted(now, sender)
    assert len(WHOLE) <= book.version <= len(WHOLE) + len(rows)
    assert len(book.entries) <= 2 * len(rows) + 1
