"""What is said of paired hosts, for every answer a daemon may give."""

from typing import Any

import pytest

from mbx.core.limits import CLOCK_SKEW_TOLD_MS
from mbx.doctor import peering
from mbx.doctor.files import Entry
from mbx.doctor.verdict import Check

NOW, HOUR_AGO, AGES_AGO = (f"2026-01-31T{hour:02d}:00:00.000Z" for hour in (12, 11, 1))
PEER: dict[str, Any] = {
    "label": "lap",
    "state": "up",
    "reason": None,
    "last_seen": NOW,
    "queued": 0,
    "queued_bytes": 0,
    "oldest_at": None,
    "signed_waiting": 0,
    "signed_at": None,
    "ended_at": None,
    "clock_ahead_ms": -5,
    "next": None,
}
DOWN = PEER | {"state": "down", "last_seen": AGES_AGO, "reason": "no address of it answers"}
WELL: dict[str, Any] = {
    "now": NOW,
    "peers": [PEER],
    "queue_max": 1_000,
    "queue_max_bytes": 1_000_000,
    "listen": ["10.0.0.1:24629"],
    "listening": ["10.0.0.1:24629"],
    "network_fault": None,
}
PEM = b"-----BEGIN PRIVATE KEY-----\n-----BEGIN CERTIFICATE-----\n"


def faults(**changes: Any) -> list[Check]:
    return [one for one in peering.everything(WELL | changes) if one.level != "ok"]


def test_a_healthy_answer_has_no_fault() -> None:
    assert faults() == []
    assert faults(peers=[], listen=[], listening=[]) == []
    assert peering.everything({"leases": []}) == []


@pytest.mark.parametrize(
    ("changes", "name", "level", "word"),
    [
        ({"listening": []}, "listener", "fail", "does not listen at 10.0.0.1:24629"),
        ({"network_fault": "port 24629 is taken"}, "listener", "fail", "port 24629 is taken"),
        (
            {"listening": [], "listener_fault": "cannot listen on 10.0.0.1:24629: no such address"},
            "listener",
            "fail",
            "this host cannot listen on 10.0.0.1:24629: no such address; it listens nowhere",
        ),
        (
            {
                "listen": ["10.0.0.1:24629", "10.0.0.2:24629"],
                "listener_fault": "cannot listen on 10.0.0.2:24629: no such address",
            },
            "listener",
            "warn",
            "no such address; it listens at 10.0.0.1:24629",
        ),
        ({"peers": [DOWN]}, "peers", "info", "no link to lap: no address of it answers; last seen"),
        ({"peers": [DOWN | {"last_seen": None}]}, "peers", "info", "never seen"),
        (
            {"peers": [DOWN | {"queued": 2, "oldest_at": HOUR_AGO}]},
            "peers",
            "warn",
            "2 messages wait, the oldest for 1 h",
        ),
        (
            {"peers": [DOWN | {"queued": 1, "oldest_at": "2026-01-31T11:00:01.000Z"}]},
            "peers",
            "info",
            "1 message waits, the oldest for 59 min",
        ),
        (
            {"peers": [PEER | {"signed_waiting": 2, "signed_at": HOUR_AGO}]},
            "signed records",
            "warn",
            "lap does not have 2 records that you signed, since 1 h",
        ),
        (
            {"peers": [PEER | {"signed_waiting": 1, "signed_at": "2026-01-31T11:59:01.000Z"}]},
            "signed records",
            "info",
            "lap does not have 1 record that you signed, since 59 s",
        ),
        (
            {"peers": [DOWN | {"reason": "it was installed anew", "next": "pair again"}]},
            "peers",
            "warn",
            "installed anew",
        ),
        (
            {
                "peers": [
                    PEER | {"link": {"refused_since": HOUR_AGO}, "reason": "full", "queued": 3}
                ]
            },
            "peers",
            "warn",
            "lap: full, since 1 h; 3 messages wait",
        ),
        (
            {"peers": [PEER | {"state": "stopped", "reason": "a fork", "next": "look"}]},
            "peers",
            "fail",
            "the link to lap is stopped: a fork",
        ),
        (
            {"peers": [PEER | {"parted": {"at": HOUR_AGO, "reason": "a fork"}, "next": "look"}]},
            "peers",
            "warn",
            "the link to lap was stopped 1 h ago: a fork",
        ),
        (
            {"peers": [PEER | {"state": "removed-us", "next": "mbx peers remove lap"}]},
            "peers",
            "warn",
            "lap has removed this host",
        ),
        (
            {"peers": [PEER | {"clock_ahead_ms": CLOCK_SKEW_TOLD_MS + 1}]},
            "clocks",
            "warn",
            "1 min ahead",
        ),
        (
            {"peers": [PEER | {"clock_ahead_ms": -CLOCK_SKEW_TOLD_MS - 1}]},
            "clocks",
            "info",
            "came 1 min later",
        ),
        ({"peers": [PEER | {"queued": 800}]}, "outbox", "warn", "80 % full: 800 messages wait"),
        ({"peers": [PEER | {"queued": 1_000}]}, "outbox", "fail", "100 % full"),
        ({"peers": [PEER | {"queued_bytes": 999_999}]}, "outbox", "warn", "99 % full"),
    ],
)
def test_each_fault_is_named_with_its_level(
    changes: dict[str, Any], name: str, level: str, word: str
) -> None:
    (check,) = faults(**changes)
    assert (check.name, check.level) == (name, level)
    assert word in check.detail
    assert level == "info" or check.fix


@pytest.mark.parametrize(
    "changes",
    [
        {"clock_ahead_ms": CLOCK_SKEW_TOLD_MS},
        {"clock_ahead_ms": -CLOCK_SKEW_TOLD_MS},
        {"clock_ahead_ms": None},
        {"queued": 799},
        {"queued_bytes": 799_999},
    ],
)
def test_what_is_just_within_bounds_is_no_fault(changes: dict[str, Any]) -> None:
    assert faults(peers=[PEER | changes]) == []


def test_what_is_broken_comes_first_and_many_are_counted() -> None:
    many = [DOWN | {"label": f"h{n}"} for n in range(12)]
    found = faults(peers=[*many, PEER | {"state": "stopped", "next": "look"}])
    assert "is stopped" in found[0].detail
    assert (len(found), found[-1].detail) == (11, "and 3 more of this kind")


# -- the key --------------------------------------------------------------------------------------

FILE = Entry("/h/tls.key", "file", 0o600, 1000, len(PEM), 0)


@pytest.mark.parametrize(
    ("seen", "content", "has_peers", "level", "word"),
    [
        (FILE, PEM, True, "ok", "whole"),
        (FILE._replace(kind="missing"), None, False, "info", "first pairing"),
        (FILE._replace(kind="missing"), None, True, "fail", "is missing"),
        (FILE._replace(kind="folder"), None, True, "fail", "no regular file"),
        (FILE._replace(user_id=1), PEM, True, "fail", "belongs to user 1"),
        (FILE, None, True, "fail", "cannot be read"),
        (FILE, PEM[:30], True, "fail", "is damaged"),
        (FILE, b"", False, "fail", "is damaged"),
    ],
)
def test_the_tls_key_is_whole_or_named(
    seen: Entry, content: bytes | None, *, has_peers: bool, level: str, word: str
) -> None:
    check = peering.tls_key(seen, content, 1000, has_peers=has_peers)
    assert (check.name, check.level) == ("tls key", level)
    assert word in check.detail
    assert "PRIVATE" not in check.detail
    assert level in ("ok", "info") or check.fix
