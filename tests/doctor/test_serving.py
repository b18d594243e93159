"""What is said of sockets, locks, silence and versions."""

import os

import pytest

from mbx.doctor import serving
from mbx.doctor.files import Entry
from mbx.doctor.serving import Locks, Probe, Process
from mbx.doctor.verdict import Check

ME = 1_000
SOCKET = Entry("/r/mbx.sock", "socket", 0o600, ME)
GONE = Entry("/r/mbx.sock", "missing")
DAEMON = Process(7, "python3", "S", True)
NOBODY = Locks()
WELL = Probe("answered", pid=7, took_ms=2, hello={"version": "1"}, status={"version": "1"})


def daemon(probe: Probe, locks: Locks = NOBODY, *, has_store: bool = True) -> Check:
    return serving.daemon(probe, locks, home="/h", has_store=has_store, user_id=ME)


@pytest.mark.parametrize(
    ("probe", "locks", "level", "fix"),
    [
        (WELL, Locks(DAEMON), "ok", None),
        (WELL._replace(took_ms=serving.SLOW_MS + 1), Locks(DAEMON), "warn", "mbx daemon restart"),
        (WELL._replace(status={"home": "/h"}), Locks(DAEMON), "ok", None),
        (
            WELL._replace(status={"home": "/other"}),
            NOBODY,
            "fail",
            "unset MBX_RUN, or set it to the run folder of MBX_HOME",
        ),
        (WELL._replace(status={"version": "1", "pid": 7}), Locks(DAEMON), "ok", None),
        (
            WELL._replace(status={"version": "1", "pid": 1}),
            Locks(DAEMON),
            "warn",
            "mbx daemon restart",
        ),
        (WELL._replace(pid=None, status={"version": "1", "pid": 9}), NOBODY, "ok", None),
        (Probe("absent"), NOBODY, "warn", "mbx daemon start"),
        (Probe("silent", pid=7), Locks(DAEMON), "fail", "kill -9 7"),
        (Probe("silent", pid=7), Locks(is_known=False), "fail", "kill -9 7"),
        (Probe("silent"), NOBODY, "fail", "mbx daemon status"),
        (Probe("silent"), Locks(DAEMON._replace(state="T")), "fail", "kill -CONT 7"),
        (Probe("absent"), Locks(DAEMON), "fail", "kill -9 7"),
        (Probe("absent"), Locks(DAEMON._replace(state="T")), "fail", "kill -CONT 7"),
        (Probe("absent"), Locks(Process(9, "flock", "S")), "fail", "kill -9 9"),
        (Probe("forbidden", "Permission denied"), NOBODY, "fail", "run it outside the sandbox"),
        (Probe("foreign", user_id=5), NOBODY, "fail", "set MBX_RUN to a folder of your own"),
        (Probe("no-daemon", "it hung up", pid=8), NOBODY, "fail", "kill -9 8"),
    ],
)
def test_each_way_not_to_answer_has_its_own_words(
    probe: Probe, locks: Locks, level: str, fix: str | None
) -> None:
    check = daemon(probe, locks)
    assert (check.level, check.fix) == (level, fix)


def test_silence_is_never_told_as_absence() -> None:
    assert "none runs" in daemon(Probe("absent")).detail
    assert "none runs" not in daemon(Probe("silent")).detail
    assert daemon(Probe("absent"), has_store=False).level == "info"


@pytest.mark.parametrize(
    ("seen", "probe", "locks", "level"),
    [
        (SOCKET, WELL, Locks(DAEMON), "ok"),
        (SOCKET._replace(mode=0o666), WELL, Locks(DAEMON), "warn"),
        (SOCKET, Probe("absent"), NOBODY, "warn"),
        (SOCKET, Probe("absent"), Locks(DAEMON), "ok"),
        (GONE, Probe("absent"), NOBODY, "info"),
        (GONE, Probe("absent"), Locks(DAEMON), "info"),
        (SOCKET._replace(kind="file"), Probe("absent"), NOBODY, "fail"),
        (SOCKET._replace(kind="folder"), Probe("absent"), NOBODY, "fail"),
        (Entry("/r/mbx.sock", "hidden", why="?"), Probe("forbidden"), NOBODY, "fail"),
    ],
)
def test_what_lies_at_the_socket_is_named(
    seen: Entry, probe: Probe, locks: Locks, level: str
) -> None:
    assert serving.socket(seen, probe, locks).level == level


def test_a_socket_is_removed_only_where_it_is_known_that_nobody_has_the_lock() -> None:
    stale = serving.socket(SOCKET, Probe("absent"), NOBODY)
    assert stale.remedy == ("remove-socket", "/r/mbx.sock")
    assert serving.socket(SOCKET, Probe("absent"), Locks(is_known=False)).remedy is None


def test_somebody_else_who_locks_the_store_is_named() -> None:
    other = Process(9, "sqlite3", "S")
    assert serving.store_lock(Locks(store=other)).fix == "kill 9"
    assert serving.store_lock(Locks(DAEMON, DAEMON)).level == "ok"
    assert serving.store_lock(Locks(Process(9), other)).level == "ok"  # a daemon run otherwise
    assert serving.store_lock(NOBODY).level == "ok"


def test_installed_and_running_version_are_two_facts() -> None:
    assert serving.versions(Probe("absent"), "1", 1) is None
    same, other = serving.versions(WELL, "1", 1), serving.versions(WELL, "2", 1)
    assert same is not None
    assert other is not None
    assert (same.level, other.level, other.fix) == ("ok", "warn", "mbx daemon restart")
    refusal = {"code": "version-mismatch", "protocol": 9}
    mismatch = serving.versions(WELL._replace(hello=None, refusal=refusal), "1", 1)
    assert mismatch is not None
    assert mismatch.level == "fail"
    assert "protocol 9" in mismatch.detail


LOCKS = """
1: POSIX  ADVISORY  WRITE 15 fe:00:2203886 1073741824 1073742335
2: FLOCK  ADVISORY  WRITE 16 fe:00:22 0 EOF
2: -> FLOCK  ADVISORY  WRITE 17 fe:00:22 0 EOF
3: FLOCK  ADVISORY  WRITE 18 08:01:22 0 EOF
4: FLOCK  MANDATORY WRITE 19 fe:00:22 0 EOF
5: FLOCK  ADVISORY  WRITE -1 fe:00:22 0 EOF
""".strip()


def test_holders_of_a_lock_are_found_by_inode_and_the_device_is_a_hint() -> None:
    device = os.makedev(0xFE, 0)
    assert serving.holder_of_lock(LOCKS, "FLOCK", device, 22) == [(16, True), (18, False)]
    assert serving.holder_of_lock(LOCKS, "POSIX", device, 2_203_886) == [(15, True)]
    assert serving.holder_of_lock(LOCKS, "POSIX", device, 22) == []
