"""Chains of several hosts of one owner: which record governs, what damage in one of them does."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mbx.core.authority import Book, Clock, build
from mbx.core.chains import (
    NO_RECORD,
    ROTATE_FIELDS,
    Chain,
    Damage,
    Link,
    Terms,
    ends_told,
    record_digest,
    stamps,
    verified,
    with_ends,
)
from mbx.core.keys import SigningKey, key_id
from mbx.core.limits import CLOCK_BACK_MAX_MS
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
from mbx.core.record import RecordError, sign
from tests.core.test_authority import KEY, OWNERS, owner

NOW = 1_700_000_000_000
HOUR = 3_600_000
DESK, LAP = "d" * 26, "h" * 26
ANA, BEN = "a" * 26, "b" * 26
SUCCESSOR = SigningKey.from_seed(b"\x03" * 32)


class Signed:
    """The records of one host's chain, for both hosts."""

    def __init__(self, host: str) -> None:
        self.host = host
        self.links: list[Link] = []

    def policy(self, at_ms: int, level: str = "collaborate", **more: Any) -> str:
        """A policy for ben on lap about ana's mail, signed at that time after NOW."""
        policy = Policy(
            version=0,
            id="",
            iat_ms=NOW + at_ms,
            exp_ms=NOW + at_ms + HOUR,
            to=(Subject(BEN, "ben", LAP, "lap"),),
            level=level,
            classes=CLASSES_OF[level],
            sources=(Source("identity", DESK, "desk", ANA, "ana"),),
            projects=(),
            reason="",
        )
        return self.add("policy", policy_payload(policy, self.envelope(at_ms, **more)))

    def revoke(self, at_ms: int, *records: str, **more: Any) -> str:
        payload = revoke_payload(list(records) or None, "", self.envelope(at_ms, **more))
        return self.add("revoke", payload)

    def envelope(self, at_ms: int, **more: Any) -> dict[str, Any]:
        last = self.links[-1] if self.links else None
        usual: dict[str, Any] = {
            "iat": NOW + at_ms,
            "nonce": "0" * 32,
            "aud": sorted([DESK, LAP]),
            "owner": key_id("owner", KEY.public),
            "version": last.version + 1 if last else 1,
            "previous": record_digest(last.record) if last else None,
            "chain": self.host,
        }
        return usual | more

    def add(self, kind: str, payload: dict[str, Any]) -> str:
        record = sign(kind, payload, KEY, key_id("owner", KEY.public))
        self.links.append(Link(payload["version"], record, payload["iat"]))
        return record.id

    def followed(self, by: str, **terms: Any) -> Chain:
        label = "desk" if self.host == DESK else "lap"
        return verified(self.links, OWNERS, self.host, by, Terms(label=label, **terms))


class Two:
    """What was signed on both hosts, as lap has it unless told."""

    def __init__(self) -> None:
        self.desk, self.lap = Signed(DESK), Signed(LAP)

    def book(self, **terms: Any) -> Book:
        return build(self.lap.links, OWNERS, LAP, followed=[self.desk.followed(LAP, **terms)])

    def there(self) -> Book:
        """As desk has it."""
        return build(self.desk.links, OWNERS, DESK, followed=[self.lap.followed(DESK)])

    def grant(self, **terms: Any) -> tuple[str, str]:
        """(level, why nothing or less is granted) of mail from ana to ben, at NOW."""
        found = self.book(**terms).grant(BEN, Sender(ANA, DESK), Clock(NOW))
        return found.level, found.reason


@pytest.fixture
def two() -> Two:
    return Two()


def test_the_newest_governs_in_whatever_chain_it_stands(two: Two) -> None:
    two.desk.policy(-30, "yolo")
    two.lap.policy(-20, "collaborate")
    assert two.grant()[0] == "collaborate"
    two.desk.policy(-10, "autonomous")
    assert two.grant()[0] == "autonomous"


def test_at_one_time_all_hosts_choose_the_same(two: Two) -> None:
    two.desk.policy(-10, "yolo")
    two.lap.policy(-10, "collaborate")
    here, there = two.book(), two.there()
    assert [one.id for one in here.policies()] == [one.id for one in there.policies()]


def test_along_a_chain_its_places_tell_also_where_its_clock_went_back(two: Two) -> None:
    two.desk.policy(-10, "yolo")
    two.desk.policy(-40, "collaborate")
    two.lap.policy(-20, "ask")
    assert two.grant()[0] == "collaborate"
    assert stamps(two.desk.followed(LAP).entries) == [NOW - 10, NOW - 10]


def test_a_revocation_in_any_chain_voids_in_all(two: Two) -> None:
    wide = two.desk.policy(-30, "yolo")
    revoked = two.lap.revoke(-20, wide)
    assert two.grant() == ("ask", f"revoked by record {revoked}")
    two.desk.policy(-15, "yolo")
    every = two.lap.revoke(-10)
    assert two.grant() == ("ask", f"revoked by record {every}")


def test_damage_weakens_what_is_older_in_every_chain_and_nothing_newer(two: Two) -> None:
    two.lap.policy(-50, "yolo")
    two.desk.policy(-40, "ask")
    two.desk.revoke(-30, "0" * 26)
    two.desk.revoke(-20, "0" * 26)
    del two.desk.links[1]
    two.lap.policy(-21, "yolo")
    assert two.grant() == ("ask", "record 2 of the owner's chain on desk is missing")
    two.lap.policy(-19, "collaborate")
    assert two.grant() == ("collaborate", "")


def test_what_is_missing_at_the_end_weakens_what_was_signed_before_it_was_known(two: Two) -> None:
    two.desk.policy(-40, "ask")
    two.lap.policy(-30, "yolo")
    assert two.grant(floor=1)[0] == "yolo"
    assert "record 3" in two.grant(floor=3, floor_ms=NOW - 20)[1]
    assert "record 3" in two.grant(floor=3)[1]
    two.lap.policy(-10, "collaborate")
    assert two.grant(floor=3, floor_ms=NOW - 20)[0] == "collaborate"
    assert "record 3" in two.grant(floor=3)[1], "nobody knows since when it is missing"


def test_what_is_older_than_the_beginning_is_no_damage(two: Two) -> None:
    for at_ms in (-50, -40, -30):
        two.desk.policy(at_ms)
    del two.desk.links[:2]
    assert two.grant(first=3)[0] == "collaborate"
    assert two.book(first=3).damaged == ()
    assert len(two.book(first=2).damaged) == 1
    empty = verified([], OWNERS, DESK, LAP, Terms(label="desk", first=3))
    assert (empty.entries, empty.version, empty.head) == ((), 0, None)


def test_two_signed_records_at_one_place_are_damage_and_each_takes_back(two: Two) -> None:
    mine = two.lap.policy(-50, "yolo")
    two.desk.policy(-40, "collaborate")
    two.desk.policy(-30, "yolo", version=1, previous=None)
    level, reason = two.grant()
    assert (level, "in two versions" in reason) == ("ask", True)
    two.desk.revoke(-20, mine, version=1, previous=None)
    assert "revoked by" in two.grant()[1] or "in two versions" in two.grant()[1]
    assert [one.records for one in two.book().revocations] == [(mine,)]
    assert len(two.book().policies()) == 1
    two.lap.policy(-10, "collaborate")
    assert two.grant()[0] == "collaborate"


@pytest.mark.parametrize(("early_ms", "counts"), [(0, True), (1, False)])
def test_a_policy_dated_ahead_of_its_coming_never_counts(
    two: Two, early_ms: int, counts: bool
) -> None:
    two.desk.policy(0, "collaborate")
    link = two.desk.links[0]
    came_ms = NOW - CLOCK_BACK_MAX_MS - early_ms
    two.desk.links[0] = link._replace(applied_ms=came_ms)
    assert (two.grant()[0] == "collaborate") == counts
    assert len(two.book().damaged) == (not counts)


def test_what_came_of_a_host_that_was_removed_counts_no_more(two: Two) -> None:
    wide = two.lap.policy(-40, "yolo")
    two.desk.revoke(-30, wide)
    two.desk.policy(-20, "collaborate")
    assert two.grant(ended=1)[0] == "collaborate"
    level, reason = two.grant(ended=2)
    assert (level, "pairing with it has ended" in reason) == ("ask", True)
    del two.desk.links[1]
    assert "revoked by record" in two.grant(ended=2)[1], "what it took back stays so"


def test_a_chain_of_another_host_or_for_another_is_nothing(two: Two) -> None:
    for wrong in ({"chain": LAP}, {"aud": DESK}, {"aud": [DESK, "z" * 26]}, {"owner": "0" * 26}):
        two.desk.links.clear()
        two.desk.policy(-10, "yolo", **wrong)
        assert two.grant()[0] == "ask"
        assert len(two.book().damaged) == 1


records = st.lists(
    st.tuples(
        st.booleans(),
        st.integers(-40, -1),
        st.sampled_from([*LEVELS, "revoke all", "revoke the last"]),
    ),
    max_size=8,
)
"""On which host, when (a time may be that of several), and what was signed."""


@given(records, st.data())
def test_hosts_that_have_the_same_records_agree_and_less_never_grants_more(
    told: list[tuple[bool, int, str]], data: st.DataObject
) -> None:
    two, last = Two(), "0" * 26
    for on_desk, at_ms, what in sorted(told, key=lambda one: one[1]):
        chain = two.desk if on_desk else two.lap
        if what == "revoke all":
            chain.revoke(at_ms)
        elif what == "revoke the last":
            chain.revoke(at_ms, last)
        else:
            last = chain.policy(at_ms, what)
    here, there = two.book(), two.there()
    clock = Clock(NOW)
    assert [(one.id, here.standing(one, clock)) for one in here.policies()] == [
        (one.id, there.standing(one, clock)) for one in there.policies()
    ]
    before = here.grant(BEN, Sender(ANA, DESK), clock)
    # What is signed in the same millisecond as "all is void" is not taken where it was signed.
    if two.desk.links and len({at_ms for _, at_ms, _ in told}) == len(told):
        first, floor = two.desk.links[0].version, two.desk.links[-1].version
        del two.desk.links[data.draw(st.integers(0, len(two.desk.links) - 1))]
        found = two.book(first=first, floor=floor).grant(BEN, Sender(ANA, DESK), clock)
        assert found.classes in ((), before.classes)
        assert not found.classes or found.record == before.record


# -- where keys end -------------------------------------------------------------------------------


def _rotation(**more: Any) -> dict[str, Any]:
    return {
        "v": 1,
        "type": "rotate",
        "iat": NOW,
        "nonce": "0" * 32,
        "aud": sorted([DESK, LAP]),
        "owner": key_id("owner", SUCCESSOR.public),
        "public_key": SUCCESSOR.public.hex(),
        "previous": key_id("owner", KEY.public),
        "until_version": 2,
        "head": "d" * 64,
        "chain": DESK,
        "chains": [{"chain": LAP, "version": 1, "head": "e" * 64}],
        **more,
    }


def test_a_change_of_the_key_says_where_it_ends_in_each_chain() -> None:
    payload = _rotation()
    assert ends_told(payload, LAP) == {DESK: (2, "d" * 64), LAP: (1, "e" * 64)}
    signers = {key_id("owner", key.public): key for key in (KEY, SUCCESSOR)}
    pieces = [sign("rotate", payload, key, name) for name, key in signers.items()]
    record = pieces[0]
    object.__setattr__(record, "signatures", {**record.signatures, **pieces[1].signatures})
    keys = [owner(SUCCESSOR), owner(KEY, 9)]
    for chain, end in ((DESK, (2, "d" * 64)), (LAP, (1, "e" * 64)), ("z" * 26, (0, None))):
        for host in (DESK, LAP):
            found = with_ends(keys, [record], host, chain)[1]
            assert (found.until_version, found.until_digest, found.until_ms) == (*end, NOW)
    assert with_ends(keys, [], LAP, DESK)[1].until_version == 0
    assert with_ends(keys, [], LAP)[1].until_version == 9


def test_one_for_a_single_host_is_about_its_own_chain() -> None:
    payload = {name: value for name, value in _rotation(aud=LAP).items() if name in ROTATE_FIELDS}
    assert ends_told(payload, LAP) == {LAP: (2, "d" * 64)}


@pytest.mark.parametrize(
    "changed",
    [
        {"chains": None},
        {"chains": [1]},
        {"chains": [{"chain": LAP, "version": 1}]},
        {"chains": [{"chain": LAP, "version": True, "head": None}]},
        {"chains": [{"chain": LAP, "version": 1, "head": 5}]},
        {"chains": [{"chain": DESK, "version": 1, "head": None}]},
        {"chain": 7},
        {"more": 1},
    ],
)
def test_an_end_that_says_anything_else_is_none(changed: dict[str, Any]) -> None:
    with pytest.raises(RecordError):
        ends_told(_rotation(**changed), LAP)


def test_where_a_key_ended_and_nothing_came_what_is_older_is_void(two: Two) -> None:
    two.desk.policy(-40, "collaborate")
    keys = [owner(SUCCESSOR), owner(KEY)._replace(until_version=2, until_digest=NO_RECORD)]
    chain = verified(two.desk.links, keys, DESK, LAP, Terms(label="desk"))
    assert [isinstance(one, Damage) for one in chain.entries] == [True, False]
