"""Policies and revocations as records: their shape, exactly, and their limits at -1, 0, +1."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mbx.core import limits
from mbx.core.errors import MbxError
from mbx.core.keys import SigningKey, key_id
from mbx.core.policy import (
    CLASSES,
    CLASSES_OF,
    HOP_LIMITS,
    LEVELS,
    MANNERS,
    Policy,
    Revocation,
    Sender,
    Source,
    Subject,
    policy_payload,
    read_policy,
    read_revocation,
    revoke_payload,
)
from mbx.core.record import RecordError, sign, verify

NOW = 1_700_000_000_000
DAY = 24 * 60 * 60 * 1000
HOST, OTHER_HOST = "h" * 26, "j" * 26
OWNER = SigningKey.from_seed(b"\x02" * 32)
OWNER_ID = key_id("owner", OWNER.public)
ENVELOPE: dict[str, Any] = {
    "iat": NOW,
    "nonce": "0" * 32,
    "aud": HOST,
    "owner": OWNER_ID,
    "version": 1,
    "previous": None,
    "chain": HOST,
}
ANA = Source("identity", HOST, "desk", "a" * 26, "ana")
PLAIN = Policy(
    version=1,
    id="r" * 26,
    iat_ms=NOW,
    exp_ms=NOW + DAY,
    to=(Subject("b" * 26, "bo"),),
    level="collaborate",
    classes=("read", "edit"),
    sources=(Source("local"),),
    projects=("/srv/app",),
    reason="the release",
    chain=HOST,
)


def told(policy: Policy = PLAIN, **envelope: Any) -> dict[str, Any]:
    return policy_payload(policy, {**ENVELOPE, **envelope})


def read(payload: dict[str, Any]) -> Policy:
    return read_policy(payload, "r" * 26)


def is_refused(payload: dict[str, Any]) -> bool:
    try:
        read(payload)
    except (RecordError, MbxError):
        return True
    return False


# -- levels and classes ---------------------------------------------------------------------------


def test_levels_grow_and_passing_on_is_limited_at_the_weaker_ones() -> None:
    assert [len(CLASSES_OF[level]) for level in LEVELS] == [0, 2, 2, 4]
    assert [HOP_LIMITS[level] for level in LEVELS] == [6, 20, None, None]
    assert set(MANNERS) == set(LEVELS)


def test_only_yolo_delegates_what_goes_outward() -> None:
    for level in LEVELS:
        beyond = {"outward", "permissions"} & set(CLASSES_OF[level])
        assert bool(beyond) == (level == "yolo")


@pytest.mark.parametrize("level", LEVELS)
def test_a_level_takes_each_part_of_its_classes_in_order_and_no_other(level: str) -> None:
    mine = CLASSES_OF[level]
    taken = 0
    for mask in range(2 ** len(CLASSES)):
        some = tuple(one for place, one in enumerate(CLASSES) if mask >> place & 1)
        fits = set(some) <= set(mine)
        taken += fits
        assert is_refused(told(PLAIN._replace(level=level, classes=some))) != fits
        if len(some) > 1:
            assert is_refused(told(PLAIN._replace(level=level, classes=some[::-1])))
    assert taken == 2 ** len(mine)


# -- terms ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("level", "most_ms"),
    [("ask", 30 * DAY), ("collaborate", 30 * DAY), ("autonomous", 30 * DAY), ("yolo", 7 * DAY)],
)
def test_a_term_is_longer_than_nothing_and_no_longer_than_its_level_allows(
    level: str, most_ms: int
) -> None:
    for term_ms, fits in (
        (-1, False),
        (0, False),
        (1, True),
        (most_ms - 1, True),
        (most_ms, True),
        (most_ms + 1, False),
    ):
        policy = PLAIN._replace(level=level, classes=(), exp_ms=NOW + term_ms)
        assert is_refused(told(policy)) != fits


def test_the_usual_terms_are_a_week_and_a_working_day() -> None:
    assert limits.POLICY_TTL_MS == 7 * DAY
    assert limits.POLICY_YOLO_TTL_MS == 8 * 60 * 60 * 1000


# -- counts ---------------------------------------------------------------------------------------


def subjects(count: int) -> tuple[Subject, ...]:
    return tuple(Subject(f"{number:026d}", "bo") for number in range(count))


def sources(count: int) -> tuple[Source, ...]:
    return tuple(ANA._replace(identity=f"{number:026d}") for number in range(count))


def projects(count: int) -> tuple[str, ...]:
    return tuple(f"/srv/{number}" for number in range(count))


@pytest.mark.parametrize(("count", "fits"), [(0, False), (1, True), (19, True), (20, True)])
def test_it_concerns_one_to_twenty_identities(*, count: int, fits: bool) -> None:
    assert is_refused(told(PLAIN._replace(to=subjects(count)))) != fits
    assert is_refused(told(PLAIN._replace(to=subjects(21))))


@pytest.mark.parametrize(("count", "fits"), [(0, False), (1, True), (63, True), (64, True)])
def test_it_covers_one_to_sixty_four_sources(*, count: int, fits: bool) -> None:
    assert is_refused(told(PLAIN._replace(sources=sources(count)))) != fits
    assert is_refused(told(PLAIN._replace(sources=sources(65))))


@pytest.mark.parametrize("count", [0, 1, 19, 20])
def test_it_names_up_to_twenty_projects(count: int) -> None:
    assert len(read(told(PLAIN._replace(projects=projects(count)))).projects) == count
    assert is_refused(told(PLAIN._replace(projects=projects(21))))


def test_the_largest_policy_is_a_record() -> None:
    longest = tuple(f"/{number:02d}".ljust(limits.PROJECT_MAX_CHARS, "x") for number in range(20))
    whole = PLAIN._replace(
        to=subjects(20), sources=sources(64), projects=longest, reason="x" * limits.NOTE_MAX_CHARS
    )
    record = sign("policy", told(whole), OWNER, OWNER_ID)
    payload = verify(record, kind="policy", signers={OWNER_ID: OWNER.public}, audience=HOST)
    assert read(payload) == whole


@pytest.mark.parametrize(
    "path",
    ["", "srv", "./srv", "/srv/../etc", "/srv/./x", "/srv//x", "//srv", "/a\nb", "/" + "x" * 4_096],
)
def test_a_project_is_an_absolute_path_without_detours(path: str) -> None:
    assert is_refused(told(PLAIN._replace(projects=(path,))))


def test_a_project_may_have_dots_in_its_name() -> None:
    for path in ("/", "/srv/...", "/srv/.hidden", "/srv/a..b"):
        assert read(told(PLAIN._replace(projects=(path,)))).projects == (path,)


# -- anything else --------------------------------------------------------------------------------

Change = Callable[[dict[str, Any]], object]

WRONG: dict[str, Change] = {
    "a field of a later version": lambda one: one.update(also="this"),
    "a field missing": lambda one: one.pop("reason"),
    "a level of a later version": lambda one: one.update(level="partner"),
    "a level that is a list": lambda one: one.update(level=["yolo"]),
    "a class of a later version": lambda one: one.update(classes=["read", "spend"]),
    "a class twice": lambda one: one.update(classes=["read", "read"]),
    "classes that are a text": lambda one: one.update(classes="read"),
    "a class that is a number": lambda one: one.update(classes=[1]),
    "version 0": lambda one: one.update(version=0, previous=None),
    "a version that is true": lambda one: one.update(version=True),
    "a version that is a text": lambda one: one.update(version="1"),
    "a first record with a predecessor": lambda one: one.update(previous="0" * 64),
    "a second record without one": lambda one: one.update(version=2),
    "a predecessor that is no digest": lambda one: one.update(version=2, previous="0" * 63),
    "a predecessor in capitals": lambda one: one.update(version=2, previous="A" * 64),
    "a predecessor that is a number": lambda one: one.update(version=2, previous=0),
    "a chain that is no key": lambda one: one.update(chain="desk"),
    "an owner that is no key": lambda one: one.update(owner="me"),
    "an end that is a text": lambda one: one.update(exp=str(NOW + DAY)),
    "a time that is true": lambda one: one.update(iat=True),
    "recipients that are one": lambda one: one.update(to={"identity": "b" * 26, "name": "bo"}),
    "a recipient that is a name": lambda one: one.update(to=["bo"]),
    "a recipient with more": lambda one: one["to"][0].update(host=HOST),
    "a recipient whose id is a name": lambda one: one["to"][0].update(identity="bo"),
    "a recipient whose name is none": lambda one: one["to"][0].update(name=None),
    "a recipient whose name is no name": lambda one: one["to"][0].update(name="Not A Name"),
    "a source that is a text": lambda one: one.update({"from": ["local"]}),
    "a source of a later version": lambda one: one.update({"from": [{"kind": "team"}]}),
    "a source whose kind is a list": lambda one: one.update({"from": [{"kind": ["local"]}]}),
    "a local source with more": lambda one: one["from"][0].update(host=HOST),
    "a source without a host": lambda one: one["from"][0].update(kind="host", label="desk"),
    "projects that are none": lambda one: one.update(projects=None),
    "a project twice": lambda one: one.update(projects=["/a", "/a"]),
    "a reason that is none": lambda one: one.update(reason=None),
    "a reason too long": lambda one: one.update(reason="x" * 501),
}


@pytest.mark.parametrize("what", WRONG)
def test_anything_else_is_no_policy(what: str) -> None:
    payload = told()
    WRONG[what](payload)
    assert is_refused(payload)


SOURCES: dict[str, dict[str, Any]] = {
    "a host that is a label": {"host": "desk"},
    "a label that is none": {"label": None},
    "a label that is no label": {"label": "two words"},
    "an id that is a name": {"identity": "ana"},
    "a name that is no name": {"name": "A"},
    "a role that is no role": {"via": "role:Not A Role"},
    "a role that is a number": {"via": 1},
}


@pytest.mark.parametrize("what", SOURCES)
def test_anything_else_is_no_source(what: str) -> None:
    payload = told(PLAIN._replace(sources=(ANA,)))
    payload["from"][0].update(SOURCES[what])
    assert is_refused(payload)


# -- round trips ----------------------------------------------------------------------------------

ids = st.text("0123456789abcdefghjkmnpqrstvwxyz", min_size=26, max_size=26)
senders = st.builds(
    Source,
    st.just("identity"),
    ids,
    st.just("desk"),
    ids,
    st.sampled_from(["ana", "bo"]),
    st.none() | st.just("role:dev"),
) | st.sampled_from([Source("local"), Source("host", HOST, "desk")])
subject = st.builds(Subject, ids, st.just("bo"), st.just(""), st.just("")) | st.builds(
    Subject, ids, st.just("bo"), st.just(OTHER_HOST), st.just("lab")
)
policies = st.builds(
    lambda level, mask, **more: PLAIN._replace(
        level=level,
        classes=tuple(one for at, one in enumerate(CLASSES_OF[level]) if mask >> at & 1),
        **more,
    ),
    st.sampled_from(LEVELS),
    st.integers(0, 15),
    exp_ms=st.integers(NOW + 1, NOW + 7 * DAY),
    to=st.lists(subject, min_size=1, max_size=3).map(tuple),
    sources=st.lists(senders, min_size=1, max_size=3).map(tuple),
    projects=st.lists(st.sampled_from(["/a", "/b", "/c d"]), unique=True).map(tuple),
    reason=st.sampled_from(["", "a reason", "two\nlines"]),
)


@given(policies)
def test_what_was_signed_is_what_is_read(policy: Policy) -> None:
    record = sign("policy", told(policy), OWNER, OWNER_ID)
    payload = verify(record, kind="policy", signers={OWNER_ID: OWNER.public}, audience=HOST)
    assert read(payload) == policy


# -- whom it covers -------------------------------------------------------------------------------


def test_a_source_covers_its_identity_of_its_host_and_nobody_else() -> None:
    ana, ben = "a" * 26, "c" * 26
    table = {
        Source("local"): [True, True, False, False],
        Source("host", HOST, "desk"): [True, True, False, False],
        Source("host", OTHER_HOST, "lab"): [False, False, True, True],
        Source("identity", HOST, "desk", ana, "ana"): [True, False, False, False],
        Source("identity", OTHER_HOST, "lab", ana, "ana"): [False, False, True, False],
    }
    senders = [Sender(who, host) for host in (HOST, OTHER_HOST) for who in (ana, ben)]
    for source, expected in table.items():
        policy = PLAIN._replace(sources=(source,))
        assert [policy.covers(sender, HOST) for sender in senders] == expected
    assert PLAIN.concerns("b" * 26, HOST)
    assert not PLAIN.concerns("bo", HOST)
    assert not PLAIN.concerns("b" * 26, OTHER_HOST), "an id of another host's is another identity"
    there = PLAIN._replace(to=(Subject("b" * 26, "bo", OTHER_HOST, "lab"),))
    assert there.concerns("b" * 26, OTHER_HOST)
    assert not there.concerns("b" * 26, HOST)


def test_told_on_another_host_what_is_local_is_of_the_host_where_it_was_signed() -> None:
    there = Subject("c" * 26, "cat", OTHER_HOST, "lab")
    policy = PLAIN._replace(to=(*PLAIN.to, there)).told_from("desk")
    assert policy.sources == (Source("host", HOST, "desk"),)
    assert policy.to == (Subject("b" * 26, "bo", HOST, "desk"), there)
    assert [one.words for one in policy.to] == ["bo@desk", "cat@lab"]


@pytest.mark.parametrize(
    "to",
    [
        {"identity": "b" * 26, "name": "bo", "host": OTHER_HOST},
        {"identity": "b" * 26, "name": "bo", "label": "lab"},
        {"identity": "b" * 26, "name": "bo", "host": "lab", "label": "lab"},
        {"identity": "b" * 26, "name": "bo", "host": OTHER_HOST, "label": "no label"},
        {"identity": "b" * 26, "name": "bo", "host": "", "label": ""},
    ],
)
def test_whom_a_policy_concerns_is_told_by_ids_of_identity_and_host(to: dict[str, Any]) -> None:
    assert is_refused(told() | {"to": [to]})


def test_sources_have_words() -> None:
    assert Source("local").words == "everybody on this host"
    assert Source("host", HOST, "desk").words == "everybody on desk"
    assert ANA.words == "ana@desk"
    assert ANA._replace(via="role:dev").words == "ana@desk (role:dev)"


# -- revocations ----------------------------------------------------------------------------------


def revoked(records: list[str] | None) -> dict[str, Any]:
    return revoke_payload(records, "", ENVELOPE)


def test_a_revocation_is_of_records_or_of_all() -> None:
    some = read_revocation(revoked(["a" * 26, "b" * 26]), "z" * 26)
    assert some == Revocation(1, "z" * 26, NOW, ("a" * 26, "b" * 26), "", HOST)
    assert read_revocation(revoked(None), "z" * 26).records is None


@pytest.mark.parametrize(
    "changes",
    [
        {"all": True},
        {"records": None},
        {"all": 1, "records": None},
        {"records": []},
        {"records": ["short"]},
        {"records": [1]},
        {"records": "a" * 26},
        {"records": ["a" * 26] * 65},
        {"also": 1},
        {"reason": "x" * 501},
        {"version": 2},
    ],
)
def test_anything_else_is_no_revocation(changes: dict[str, Any]) -> None:
    with pytest.raises((RecordError, MbxError)):
        read_revocation({**revoked(["a" * 26]), **changes}, "z" * 26)


@pytest.mark.parametrize(("later_ms", "voids"), [(-1, False), (0, True), (1, True)])
def test_revoking_all_voids_what_was_signed_up_to_then(*, later_ms: int, voids: bool) -> None:
    every = Revocation(9, "z" * 26, NOW + later_ms, None, "")
    assert every.voids(PLAIN) == voids
    assert every.voids(PLAIN._replace(version=99)) == voids


def test_revoking_one_voids_that_one_for_ever() -> None:
    one = Revocation(9, "z" * 26, NOW - DAY, (PLAIN.id,), "")
    assert one.voids(PLAIN)
    assert not one.voids(PLAIN._replace(id="s" * 26))
