"""The checker of the kill sweep is shown good and bad histories before it may judge a daemon."""

from collections import Counter
from dataclasses import replace

import pytest

from tests.support.ledger import (
    LASTING,
    PRIVATE_FILE,
    Act,
    Entry,
    Fact,
    Grant,
    Left,
    Outcome,
    Request,
    file_faults,
    key_faults,
    lease_faults,
    read_credential,
    torn_faults,
    violations,
)

CREDENTIAL = "run/sessions/x.json"
GRANT = Grant("anna", "i1", ("shell", "1"), 3)
HOME = {path: Entry(mode) for path, mode in LASTING.items()}
TOLD = Entry(PRIVATE_FILE, {"identity": "i1", "epoch": 3, "token": "t"})


def sent(key: str, outcome: Outcome, *to: str, line: str = "a") -> Request:
    facts = frozenset({("answer", key), ("message", key), *(("copy", key, name) for name in to)})
    return Request(f"send {key}", line, facts, outcome)


def store(*facts: Fact, acts: tuple[Act, ...] = (), complaints: tuple[str, ...] = ()) -> Left:
    return Left(Counter(facts), acts, complaints)


def whole(*requests: Request) -> tuple[Fact, ...]:
    return tuple(fact for request in requests for fact in request.facts)


ONE = sent("k1", "answered", "bert")
TWO = sent("k2", "unknown", "bert", "cleo")
THREE = sent("k3", "unknown", "bert")
OTHER = sent("k4", "unknown", "bert", line="b")
REFUSED = sent("k5", "refused", "bert")


@pytest.mark.parametrize(
    "left",
    [
        store(*whole(ONE)),
        store(*whole(ONE, TWO)),
        store(*whole(ONE, TWO, THREE)),
        store(*whole(ONE, OTHER)),
        store(
            *whole(ONE),
            acts=(Act("claim", "a", 1), Act("release", "a", 1), Act("claim", "a", 2)),
        ),
        store(*whole(ONE), acts=(Act("claim", "a", 4), Act("lapse", "a", 4), Act("claim", "a", 9))),
    ],
)
def test_a_good_crash_is_found_good(left: Left) -> None:
    assert violations([ONE, TWO, THREE, OTHER, REFUSED], left) == []


BAD = {
    "an answered send is gone": ("I1", store()),
    "one of its copies is gone": ("I1", store(("answer", "k1"), ("message", "k1"))),
    "a message is there twice": ("I2", store(*whole(ONE), ("message", "k1"))),
    "a copy is there twice": ("I2", store(*whole(ONE, TWO), ("copy", "k2", "bert"))),
    "a message that nobody sent": ("I3", store(*whole(ONE), ("message", "k9"))),
    "mail in a mailbox it was not for": ("I3", store(*whole(ONE), ("copy", "k1", "cleo"))),
    "an unanswered send reached one of two": (
        "I4",
        store(*whole(ONE), ("answer", "k2"), ("message", "k2"), ("copy", "k2", "bert")),
    ),
    "a message without its answer": (
        "I4",
        store(*whole(ONE, TWO), ("message", "k3"), ("copy", "k3", "bert")),
    ),
    "a refused send is there": ("I4", store(*whole(ONE, REFUSED))),
    "a later one without the one before": ("I18", store(*whole(ONE, THREE))),
    "granted while held": (
        "I6",
        store(*whole(ONE), acts=(Act("claim", "a", 1), Act("claim", "a", 2))),
    ),
    "an older lease's end frees nobody": (
        "I6",
        store(
            *whole(ONE),
            acts=(Act("claim", "a", 2), Act("release", "a", 1), Act("claim", "a", 3)),
        ),
    ),
    "an epoch again": (
        "I7",
        store(
            *whole(ONE),
            acts=(Act("claim", "a", 2), Act("release", "a", 2), Act("claim", "a", 2)),
        ),
    ),
    "a damaged page": ("I17", store(*whole(ONE), complaints=("row 3 missing from index",))),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_crash_is_found_by_the_invariant_it_breaks(name: str) -> None:
    invariant, left = BAD[name]
    found = violations([ONE, TWO, THREE, OTHER, REFUSED], left)
    assert [text.partition(":")[0] for text in found] == [invariant] * len(found) != []


def test_leases_after_a_restart_are_those_of_before_or_newer() -> None:
    before = {"i1": GRANT}
    assert lease_faults(before, [GRANT]) == []
    assert lease_faults(before, [replace(GRANT, session=("shell", "2"), epoch=4)]) == []
    other = replace(GRANT, name="bert", identity="i2")
    assert "I6: session" in lease_faults(before, [GRANT, other])[0]
    twice = replace(GRANT, session=("shell", "2"), epoch=4)
    assert "I6: identity" in lease_faults(before, [GRANT, twice])[0]
    assert "two holders" in lease_faults(before, [replace(GRANT, session=("shell", "2"))])[0]
    assert "I7" in lease_faults(before, [replace(GRANT, epoch=2)])[0]


@pytest.mark.parametrize(
    ("found", "told"),
    [
        ({CREDENTIAL: replace(TOLD, mode=0o100644)}, "mode 100644"),
        ({CREDENTIAL: Entry(PRIVATE_FILE)}, "not of its grant"),
        ({CREDENTIAL: replace(TOLD, content={"identity": "i1", "epoch": 2})}, "not of its grant"),
        ({}, "is missing"),
        ({CREDENTIAL: TOLD, "run/sessions/y.json": TOLD}, "left over"),
        ({CREDENTIAL: TOLD, "host.key.new": Entry(PRIVATE_FILE)}, "left over"),
        ({CREDENTIAL: TOLD, "store.db.before-2": Entry(PRIVATE_FILE)}, "left over"),
        ({CREDENTIAL: TOLD, "run": Entry(0o40755)}, "mode 40755"),
    ],
)
def test_files_that_are_too_many_too_open_or_of_another_grant_are_found(
    found: dict[str, Entry], told: str
) -> None:
    assert file_faults({**HOME, CREDENTIAL: TOLD}, [(CREDENTIAL, GRANT)]) == []
    [fault] = file_faults({**HOME, **found}, [(CREDENTIAL, GRANT)])
    assert fault.startswith("I17: ")
    assert told in fault


def test_a_backup_may_lie_there_after_an_upgrade_and_nothing_of_its_making() -> None:
    backup = {**HOME, "store.db.before-2": Entry(PRIVATE_FILE)}
    assert file_faults(backup, [], is_upgraded=True) == []
    backup["store.db.before-2-journal"] = Entry(PRIVATE_FILE)
    assert len(file_faults(backup, [], is_upgraded=True)) == 1


def test_a_host_may_become_somebody_and_never_somebody_else() -> None:
    assert key_faults(None, None) == key_faults(None, b"a") == key_faults(b"a", b"a") == []
    assert "another" in key_faults(b"a", b"b")[0]
    assert "gone" in key_faults(b"a", None)[0]


def test_a_torn_credential_says_nothing_and_is_found() -> None:
    assert read_credential(b'{"epoch": 3}') == {"epoch": 3}
    torn = Entry(PRIVATE_FILE, read_credential(b'{"epo'))
    assert torn_faults({**HOME, CREDENTIAL: torn}) == [f"I17: {CREDENTIAL} is torn"]
    assert torn_faults({**HOME, CREDENTIAL: TOLD}) == []
    assert read_credential(b'{"epo') is read_credential(b"") is read_credential(b"[]") is None
