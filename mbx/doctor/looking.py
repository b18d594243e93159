"""The part that looks: `lstat`, a few bytes, `/proc`, and one connection. It changes nothing."""

import errno
import hashlib
import os
import stat
from collections.abc import Mapping
from typing import Any, Final

from mbx.client import Clock
from mbx.doctor.files import Entry, Kind
from mbx.doctor.places import Command, Mount, Space, mount_of
from mbx.doctor.serving import Locks, Probe, Process, holder_of_lock
from mbx.paths import Paths, is_of_others, link_words
from mbx.wire import (
    Connection,
    ConnectionLost,
    NoAnswer,
    WireError,
    encode,
    introduction,
    request,
)

PROBE_S: Final = 2.5
"""How long the daemon may take for hello and status."""

HEALTH_S: Final = 4.0
"""How long it may take for the rest, while others wait for it too."""

START_S: Final = 1.5
"""A daemon that has its lock and does not listen yet may be starting: it is asked again so long."""

_AGAIN_S: Final = 0.1
_PROC_MAX_BYTES: Final = 1 << 20
_PROGRAM_MAX_BYTES: Final = 1 << 20
_FORBIDDEN: Final = frozenset({errno.EPERM, errno.EACCES, errno.EROFS})
_ABSENT: Final = frozenset({errno.ENOENT, errno.ECONNREFUSED, errno.ENOTDIR, errno.ENOTSOCK})
_KINDS: Final[tuple[tuple[int, Kind], ...]] = (
    (stat.S_IFDIR, "folder"),
    (stat.S_IFREG, "file"),
    (stat.S_IFSOCK, "socket"),
    (stat.S_IFLNK, "link"),
)


# -- files ----------------------------------------------------------------------------------------


def look(path: str) -> Entry:
    """What lies at a path, without following it."""
    try:
        found = os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return Entry(path, "missing")
    except OSError as error:
        return Entry(path, "hidden", why=error.strerror or "?")
    kinds = dict(_KINDS)
    kind = kinds.get(stat.S_IFMT(found.st_mode), "other")
    return Entry(
        path,
        kind,
        stat.S_IMODE(found.st_mode),
        found.st_uid,
        found.st_size,
        found.st_mtime_ns // 1_000_000,
        (link_words(path) or "") if kind == "link" else "",
    )


def look_into(path: str) -> Entry:
    """As `look`, and whether what lies in the folder is ours."""
    seen = look(path)
    is_folder = seen.kind == "folder"
    return seen._replace(is_of_others=is_folder and is_of_others(path))


def first_bytes(path: str, count: int) -> bytes | None:
    """The beginning of a regular file; None when it cannot be read."""
    return _piece(path, count, from_end=False)


def last_bytes(path: str, count: int) -> bytes | None:
    """The end of a regular file; None when it cannot be read."""
    return _piece(path, count, from_end=True)


def names_in(folder: str) -> list[str]:
    """The paths in a folder; none when it cannot be read."""
    try:
        return [os.path.join(folder, name) for name in sorted(os.listdir(folder))]
    except OSError:
        return []


def newest_schema() -> int:
    """The schema that the installed daemon makes: how many migrations are installed."""
    folder = os.path.join(os.path.dirname(os.path.dirname(__file__)), "store", "migrations")
    return sum(path.endswith(".sql") for path in names_in(folder))


def _piece(path: str, count: int, *, from_end: bool) -> bytes | None:
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
    try:
        descriptor = os.open(path, flags)
    except OSError:
        return None
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            return None
        return os.pread(descriptor, count, max(0, found.st_size - count) if from_end else 0)
    except OSError:
        return None
    finally:
        os.close(descriptor)


# -- what we stand on -----------------------------------------------------------------------------


def space_at(path: str) -> Space:
    """What is left on the disk of the nearest folder that exists. Raises OSError."""
    found = os.statvfs(nearest(path))
    return Space(found.f_bavail * found.f_frsize, found.f_favail if found.f_files else None)


def mount_at(path: str) -> Mount | None:
    """The file system of the nearest folder that exists."""
    text = _proc("self/mountinfo")
    return mount_of(text, nearest(path)) if text else None


def nearest(path: str) -> str:
    """The path, or the nearest folder above it that exists."""
    while not os.path.lexists(path) and path != os.path.dirname(path):
        path = os.path.dirname(path)
    return path


def commands_on(path_variable: str) -> list[Command]:
    """Every executable called mbx in the folders of a PATH, in its order."""
    found: dict[str, Command] = {}
    for folder in path_variable.split(os.pathsep):
        path = os.path.join(folder or ".", "mbx")
        if os.path.isfile(path) and os.access(path, os.X_OK):
            found.setdefault(path, Command(path, os.path.realpath(path)))
    return list(found.values())


def running_command(argument: str) -> str | None:
    """This command with links resolved, from its argument zero; None when it is no such file."""
    is_command = os.path.basename(argument) == "mbx" and os.path.isfile(argument)
    return os.path.realpath(argument) if is_command else None


def program(command: str | None) -> tuple[str | None, str | None, str | None]:
    """(the command's path, its SHA-256, the SHA-256 of the package with its names), in hex."""
    content = None if command is None else first_bytes(command, _PROGRAM_MAX_BYTES)
    digest = None if content is None else hashlib.sha256(content).hexdigest()
    return command, digest, _package_digest(os.path.dirname(os.path.dirname(__file__)))


def _package_digest(folder: str) -> str | None:
    digest = hashlib.sha256()
    try:
        for place, folders, names in os.walk(folder):
            folders.sort()
            for name in sorted(names):
                if not name.endswith((".py", ".sql")):
                    continue
                path = os.path.join(place, name)
                content = first_bytes(path, _PROGRAM_MAX_BYTES) or b""
                digest.update(f"{os.path.relpath(path, folder)} {len(content)}\n".encode())
                digest.update(content)
    except (OSError, UnicodeEncodeError):
        return None
    return digest.hexdigest()


def openness() -> tuple[str | None, str | None]:
    """(`dev.tty.legacy_tiocsti`, `kernel.yama.ptrace_scope`) of the kernel; None where it has none.

    Without the first a process may type into its own terminal; without the second, trace others.
    """
    found = (_proc("sys/dev/tty/legacy_tiocsti"), _proc("sys/kernel/yama/ptrace_scope"))
    typing, tracing = (None if text is None else text.strip()[:4] for text in found)
    return typing, tracing


# -- who holds what -------------------------------------------------------------------------------


def locks_of(paths: Paths) -> Locks:
    """Who has locked the daemon's lock file and the store, by the kernel's own list.

    Nothing is locked to find out: a daemon that starts in that moment would take it for another.
    """
    text = _proc("locks")
    if text is None:
        return Locks(is_known=False)
    return Locks(
        daemon=_holder(text, "FLOCK", paths.lock_path()),
        store=_holder(text, "POSIX", paths.store_path()),
    )


def daemons_groups(paths: Paths) -> str | None:
    """The control groups of the daemon that runs, as Linux tells them; None without one."""
    holder = locks_of(paths).daemon
    return None if holder is None or not holder.is_daemon else _proc(f"{holder.pid}/cgroup")


def _holder(text: str, kind: Any, path: str) -> Process | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    for pid, device_fits in holder_of_lock(text, kind, found.st_dev, found.st_ino):
        if device_fits or _has_open(pid, path):
            return process(pid)
    return None


def _has_open(pid: int, path: str) -> bool:
    folder = f"/proc/{pid}/fd"
    try:
        return any(os.readlink(os.path.join(folder, name)) == path for name in os.listdir(folder))
    except OSError:
        return False


def process(pid: int) -> Process:
    """What `/proc` says of a process; question marks for one that is gone or hidden."""
    line, argv = _proc(f"{pid}/stat") or "", (_proc(f"{pid}/cmdline") or "").split("\0")
    name, _, rest = line.partition("(")[2].rpartition(")")
    return Process(pid, name or "?", rest.strip()[:1] or "?", "mbx.daemon" in argv)


def _proc(name: str) -> str | None:
    try:
        with open(f"/proc/{name}", "rb") as file:
            return file.read(_PROC_MAX_BYTES).decode("utf-8", "surrogateescape")
    except OSError:
        return None


# -- the probe ------------------------------------------------------------------------------------


def probe(paths: Paths, user_id: int, clock: Clock) -> Probe:
    """One connection with hello, status and health, each wait bounded; nothing is written."""
    started = clock.monotonic()
    path = paths.socket_path()
    connection: Connection | None = None
    try:
        connection = Connection.open(path, clock.monotonic, started + PROBE_S)
        pid, listener_id = connection.peer() or (None, None)
        if listener_id is not None and listener_id != user_id:
            return Probe("foreign", pid=pid, user_id=listener_id)
        return _converse(connection, pid, started, clock)
    except OSError as error:
        return _unopened(error)
    except NoAnswer:
        return Probe("silent")
    finally:
        if connection is not None:
            connection.close()


def probe_patiently(paths: Paths, user_id: int, clock: Clock) -> tuple[Probe, Locks]:
    """As `probe`, again for a moment while a daemon that has the lock may still be starting."""
    until = clock.monotonic() + START_S
    while True:
        seen, locks = probe(paths, user_id, clock), locks_of(paths)
        is_starting = seen.outcome == "absent" and locks.daemon is not None
        if not is_starting or clock.monotonic() >= until:
            return seen, locks
        clock.sleep(_AGAIN_S)


def _unopened(error: OSError) -> Probe:
    if error.errno in _FORBIDDEN:
        return Probe("forbidden", error.strerror or "?")
    if error.errno in _ABSENT:
        return Probe("absent", error.strerror or "?")
    return Probe("silent", error.strerror or "?")  # its queue is full: it is there, and late


def _converse(connection: Connection, pid: int | None, started: float, clock: Clock) -> Probe:
    # No word of the caller's conversation: a session that arrives may be given an identity.
    try:
        lines = _lines(0, ("hello", introduction({})), ("daemon.status", {}))
        connection.send(lines, started + PROBE_S)
        hello = connection.receive(started + PROBE_S)
        status = connection.receive(started + PROBE_S)
    except NoAnswer:
        return Probe("silent", pid=pid)
    except (WireError, ConnectionLost) as error:
        why = "it hung up" if isinstance(error, ConnectionLost) else "it speaks another protocol"
        return Probe("no-daemon", why, pid=pid)
    took_ms = round((clock.monotonic() - started) * 1000)
    seen = Probe(
        "answered",
        pid=pid,
        took_ms=took_ms,
        hello=_result(hello),
        refusal=_refusal(hello),
        status=_result(status),
    )
    if seen.hello is None and seen.status is None:
        return Probe("no-daemon", "it answers neither hello nor status", pid=pid)
    if seen.hello is None:
        return seen
    return _with_health(connection, seen, clock)


def _with_health(connection: Connection, seen: Probe, clock: Clock) -> Probe:
    deadline = clock.monotonic() + HEALTH_S
    try:
        connection.send(_lines(2, ("daemon.health", {"thorough": True})), deadline)
        answer = connection.receive(deadline)
    except (NoAnswer, ConnectionLost, WireError):
        return seen
    return seen._replace(health=_result(answer), health_refusal=_refusal(answer))


def _lines(first: int, *asked: tuple[str, Mapping[str, object]]) -> bytes:
    return b"".join(
        encode(request(number, method, dict(params)))
        for number, (method, params) in enumerate(asked, first)
    )


def _result(answer: dict[str, Any]) -> dict[str, Any] | None:
    result = answer.get("result")
    return result if isinstance(result, dict) else None


def _refusal(answer: dict[str, Any]) -> dict[str, Any] | None:
    error = answer.get("error")
    data = error.get("data") if isinstance(error, dict) else None
    return data if isinstance(data, dict) else None
