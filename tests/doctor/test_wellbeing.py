"""What is said of the store, leases and waiting mail, for every answer a daemon may give."""

from typing import Any

import pytest

from mbx.doctor import wellbeing
from mbx.doctor.verdict import Check
from mbx.store.health import COUNTED_MAX

HOLDER = {"cli": "codex", "session": "s-1"}
LEASE = {
    "name": "ana",
    **HOLDER,
    "age_s": 7_200,
    "evidence": "live",
    "claimable": False,
    "reason": "held by a live session",
}
WELL: dict[str, Any] = {
    "python_version": "3.13.9",
    "sqlite_version": "3.51.3",
    "store_bytes": 4_096,
    "free_bytes": 0,
    "index_pending": 0,
    "quick_check": {"verdict": "ok", "faults": []},
    "audit": {"checked": 9, "first_break": None},
    "leases": [LEASE],
    "leases_total": 1,
    "pending": [],
    "stranded": [],
}
STRANDED = {
    "name": "ben",
    "unacked": 2,
    "oldest_s": wellbeing.STRANDED_S,
    "last_holder": HOLDER,
    "since": "2026-01-31T12:00:00.000Z",
}
AWAKE: dict[str, Any] = {"unknown": [], "closed": []}
LOST = {"name": "ben", "count": 1, "last_age_s": 60}
CLOSED = {"name": "ben", "detail": "it is in a dialog"}


def in_place(cli: str, session_id: str) -> str | None:
    return None


def faults(**changes: Any) -> list[Check]:
    checks = wellbeing.everything(WELL | changes, in_place)
    return [check for check in checks if check.level != "ok"]


def test_a_healthy_answer_has_no_fault() -> None:
    assert faults() == []
    assert faults(quick_check=None) == []


@pytest.mark.parametrize(
    ("changes", "name", "level", "word"),
    [
        ({"quick_check": {"verdict": "damaged", "faults": ["x"]}}, "store pages", "fail", "x"),
        ({"quick_check": {"verdict": "skipped", "faults": []}}, "store pages", "info", "not"),
        ({"audit": {"checked": 9, "first_break": 4}}, "audit", "fail", "row 4"),
        (
            {"audit": {"checked": 9, "first_break": 4, "rows": 9, "faults": ["row 4 is missing"]}},
            "audit",
            "fail",
            "the audit log: row 4 is missing",
        ),
        ({"index_pending": wellbeing.INDEX_BEHIND + 1}, "index", "warn", "4097"),
        ({"sqlite_version": "3.45.1"}, "sqlite", "info", "one connection only, so harmless"),
        ({"free_bytes": wellbeing.FREE_LARGE_BYTES + 1}, "size", "info", "free"),
        ({"leases": [LEASE | {"claimable": True, "reason": "gone"}]}, "leases", "warn", "gone"),
        ({"leases": [LEASE | {"evidence": "unknown"}]}, "leases", "info", "cannot be seen"),
        ({"pending": [{**HOLDER, "name": "ana", "age_s": 5}]}, "pending", "info", "waits for ana"),
        ({"pending": [{**HOLDER, "name": "ana", "age_s": 600}]}, "pending", "warn", "10 min"),
        ({"stranded": [STRANDED]}, "stranded mail", "warn", "codex s-1 until 2026-01-31 12:00"),
        ({"stranded": [STRANDED | {"oldest_s": 3_599}]}, "stranded mail", "info", "59 min"),
        ({"stranded": [STRANDED | {"last_holder": None}]}, "stranded mail", "warn", "ever held"),
        ({"stranded": [STRANDED | {"unacked": 1}]}, "stranded mail", "warn", "1 unacked message "),
        ({"stranded": [STRANDED | {"unacked": 1000}]}, "stranded mail", "warn", "or more"),
        ({"wakes": {**AWAKE, "unknown": [LOST]}}, "wakes", "warn", "whether a wake reached"),
        ({"wakes": {**AWAKE, "unknown": [LOST | {"count": 2}]}}, "wakes", "warn", "2 wakes"),
        ({"wakes": {**AWAKE, "closed": [CLOSED]}}, "wakes", "info", "ben: it is in a dialog"),
    ],
)
def test_each_fault_is_named_with_its_level(
    changes: dict[str, Any], name: str, level: str, word: str
) -> None:
    (check,) = faults(**changes)
    assert (check.name, check.level) == (name, level)
    assert word in check.detail
    assert level == "info" or check.fix


def test_a_missing_credential_is_named_with_its_remedy() -> None:
    (check,) = (
        one for one in wellbeing.everything(WELL, lambda *_: "/r/x.json") if one.level != "ok"
    )
    assert (check.name, check.remedy) == ("credentials", ("credentials", "/r/x.json"))


def test_mail_of_a_retired_identity_is_for_the_owner_to_forward() -> None:
    (found,) = faults(stranded=[STRANDED | {"state": "retired"}])
    assert "which is retired" in found.detail
    assert found.fix == f"mbx identity forward {STRANDED['name']} NEW  (for the owner)"


def test_the_oldest_stranded_mail_comes_first_and_many_are_counted() -> None:
    many = [STRANDED | {"name": f"n{n}", "oldest_s": n * 60} for n in range(100, 113)]
    found = faults(stranded=many)
    assert "n112" in found[0].detail
    assert (len(found), found[-1].detail) == (11, "and 3 more of this kind")


def test_the_count_ends_where_the_daemon_stops_counting() -> None:
    assert wellbeing.COUNTED_MAX == COUNTED_MAX


@pytest.mark.parametrize(
    ("version", "has_race"),
    [
        ("3.6.23", False),
        ("3.7.0", True),
        ("3.40.1", True),
        ("3.44.5", True),
        ("3.44.6", False),
        ("3.45.0", True),
        ("3.50.6", True),
        ("3.50.7", False),
        ("3.51.2", True),
        ("3.51.3", False),
        ("3.52.0", False),
    ],
)
def test_the_race_of_the_write_ahead_log_is_told_by_version(version: str, has_race: bool) -> None:
    assert wellbeing.has_wal_reset_race(version) is has_race


@pytest.mark.parametrize(
    ("refusal", "name", "level"),
    [
        ({"code": "store-damaged"}, "store pages", "fail"),
        ({"code": "usage"}, "health", "warn"),
        (None, "health", "warn"),
        ({"code": "internal"}, "health", "fail"),
    ],
)
def test_a_daemon_that_does_not_say_how_it_is_is_named(
    refusal: dict[str, str] | None, name: str, level: str
) -> None:
    check = wellbeing.refused(refusal)
    assert (check.name, check.level) == (name, level)
