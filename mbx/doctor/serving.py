"""Checks of the daemon from outside: who holds the locks, what lies at the socket, who answers."""

import os
from typing import Any, Final, Literal, NamedTuple

from mbx.client import is_stopped, step_for
from mbx.doctor.files import Entry
from mbx.doctor.verdict import Check, Remedy
from mbx.paths import printable, quoted

Outcome = Literal["absent", "forbidden", "foreign", "silent", "no-daemon", "answered"]

SLOW_MS: Final = 1_000
"""A round trip takes less than a millisecond; this long, something is wrong with the machine."""


class Process(NamedTuple):
    """A process by number: its name, its state (one letter of proc(5)), whether it is a daemon."""

    pid: int
    name: str = "?"
    state: str = "?"
    is_daemon: bool = False


class Locks(NamedTuple):
    """Who holds the daemon's lock and who the store; `is_known` is False where none can say."""

    daemon: Process | None = None
    store: Process | None = None
    is_known: bool = True


class Probe(NamedTuple):
    """What became of hello and two questions: `status` and `health` results, or their refusals.

    `pid` and `user_id` are those of whoever listens; `took_ms` is from connecting to the status.
    """

    outcome: Outcome
    why: str = ""
    pid: int | None = None
    user_id: int | None = None
    took_ms: int = 0
    hello: dict[str, Any] | None = None
    refusal: dict[str, Any] | None = None
    status: dict[str, Any] | None = None
    health: dict[str, Any] | None = None
    health_refusal: dict[str, Any] | None = None


def socket(seen: Entry, probe: Probe, locks: Locks) -> Check:
    """What lies where the daemon listens."""
    path = quoted(seen.path)
    if seen.kind == "missing":
        return Check("socket", "info", "not there")
    if seen.kind == "hidden":
        detail = f"{seen.path} cannot be looked at: {seen.why}"
        return Check("socket", "fail", detail, f"ls -ld {path}")
    if seen.kind != "socket":
        what = "something else" if seen.kind == "other" else f"a {seen.kind}"
        detail = f"{seen.path} is no socket but {what}: no daemon can listen there"
        return Check("socket", "fail", detail, f"mv {path} {path}.aside")
    if probe.outcome != "absent" and seen.mode & 0o077:
        detail = f"{seen.path} can be used by others (mode {seen.mode:04o})"
        fix = f"chmod 600 {path}"
        return Check("socket", "warn", detail, fix, Remedy("close-file", seen.path))
    if probe.outcome == "absent" and locks.daemon is None:
        remedy = Remedy("remove-socket", seen.path) if locks.is_known else None
        detail = "left by a daemon that was killed; the next start replaces it"
        return Check("socket", "warn", detail, "mbx daemon start", remedy)
    return Check("socket", "ok", seen.path)


def store_lock(locks: Locks) -> Check:
    """Whether somebody else has the store open."""
    other = locks.store
    if other is None or other.is_daemon or (locks.daemon and locks.daemon.pid == other.pid):
        return Check("lock", "ok", "nobody else has the store open")
    return Check(
        "lock",
        "fail",
        f"process {other.pid} ({other.name}) keeps the store locked, and is no daemon",
        f"kill {other.pid}",
    )


def daemon(probe: Probe, locks: Locks, *, home: str, has_store: bool, user_id: int) -> Check:
    """The end-to-end probe: hello and status, there and back. A slow answer is no absence."""
    match probe.outcome:
        case "answered":
            return _of_another_home(probe, home) or _answered(probe)
        case "silent":
            return _silent(probe, locks)
        case "forbidden":
            return Check(
                "daemon",
                "fail",
                f"the system forbids this process the socket ({probe.why})",
                "run it outside the sandbox",
            )
        case "foreign":
            return Check(
                "daemon",
                "fail",
                f"user {probe.user_id} listens at the socket, not user {user_id}",
                "set MBX_RUN to a folder of your own",
            )
        case "no-daemon":
            detail = f"what answers at the socket is no mbx daemon ({probe.why})"
            return Check("daemon", "fail", detail, step_for(probe.pid, "?"))
        case "absent":
            return _absent(locks, has_store=has_store)


def _of_another_home(probe: Probe, home: str) -> Check | None:
    served = (probe.status or probe.hello or {}).get("home")
    if served is None or served == printable(home):
        return None
    detail = f"the daemon at the socket serves {served}, not {home}"
    fix = "unset MBX_RUN, or set it to the run folder of MBX_HOME"
    return Check("daemon", "fail", detail, fix)


def _answered(probe: Probe) -> Check:
    own = (probe.status or probe.hello or {}).get("pid")
    if probe.pid is None:  # it is outside of our pid namespace, or the system does not say
        probe = probe._replace(pid=own)
    elif isinstance(own, int) and own != probe.pid:
        detail = (
            f"process {probe.pid} answers from a pid namespace of its own, in which a sandbox or a"
            " container started it: it sees no session outside of that"
        )
        return Check("daemon", "warn", detail, "mbx daemon restart")
    if probe.took_ms > SLOW_MS:
        detail = f"process {probe.pid} answers, after {probe.took_ms} ms"
        return Check("daemon", "warn", detail, "mbx daemon restart")
    return Check("daemon", "ok", f"process {probe.pid} answers, {probe.took_ms} ms")


def _silent(probe: Probe, locks: Locks) -> Check:
    process = locks.daemon
    pid = process.pid if process else probe.pid
    state = process.state if process else "?"
    what = "is stopped" if is_stopped(state) else "took the connection"
    who = "the daemon" if pid is None else f"the daemon (process {pid})"
    detail = f"{who} {what} and does not answer"
    return Check("daemon", "fail", detail, step_for(pid, state))


def _absent(locks: Locks, *, has_store: bool) -> Check:
    holder = locks.daemon
    if holder is not None:
        state = "is stopped" if is_stopped(holder.state) else "does not listen"
        what = "daemon" if holder.is_daemon else holder.name
        detail = f"process {holder.pid} ({what}) holds the daemon's lock and {state}"
        return Check("daemon", "fail", detail, step_for(holder.pid, holder.state))
    if not has_store:
        return Check("daemon", "info", "none runs; the first command starts it")
    detail = "none runs: what only it can see was not checked"
    return Check("daemon", "warn", detail, "mbx daemon start")


def versions(probe: Probe, installed: str, protocol: int) -> Check | None:
    """The installed version against the running one; None when none was observed."""
    if probe.outcome != "answered":
        return None
    running = (probe.status or probe.hello or {}).get("version")
    if probe.refusal is not None and probe.refusal.get("code") == "version-mismatch":
        spoken = probe.refusal.get("protocol")
        return Check(
            "versions",
            "fail",
            f"the daemon is mbx {running} (protocol {spoken}), this is {installed} ({protocol})",
            "mbx daemon restart",
        )
    if running != installed:
        detail = f"the daemon is mbx {running}, installed is {installed}"
        return Check("versions", "warn", detail, "mbx daemon restart")
    return Check("versions", "ok", f"mbx {installed}, command and daemon")


def holder_of_lock(
    locks: str, kind: Literal["FLOCK", "POSIX"], device: int, inode: int
) -> list[tuple[int, bool]]:
    """(pid, whether the device fits) of who holds such a lock on a file, from `/proc/locks`.

    The device is only a hint: some file systems show another one there than `stat` does.
    """
    found = []
    for line in locks.splitlines():
        fields = line.split()
        if len(fields) < 8 or fields[1] != kind or fields[2] != "ADVISORY":
            continue
        place = fields[5].split(":")
        if len(place) == 3 and place[2] == str(inode) and fields[4].isdigit():
            major, minor = int(place[0], 16), int(place[1], 16)
            found.append((int(fields[4]), (major, minor) == (os.major(device), os.minor(device))))
    return found
