"""Where a hook finds what is kept for its session: by its process, or by its conversation."""

from __future__ import annotations

import os
import stat

from mbx.core.limits import SNAPSHOT_MAX_BYTES
from mbx.core.snapshot import FRESH, SAID, SHARED, Snapshot, is_fresh, parse, told_name

TYPE_CHECKING = False
if TYPE_CHECKING:  # `typing` itself is too heavy for a hook
    from collections.abc import Mapping

SHELLS = frozenset(("sh", "bash", "dash", "ash", "zsh", "ksh", "mksh", "fish", "busybox"))
"""Programs, by the kernel's name, that may stand between a client and its hook."""

STEPS_MAX = 4
"""Shells between a hook and its client: the client's, the script's, and two that a user may add."""


class Place:
    """The folder of snapshots, and the name of the process that the hook belongs to."""

    __slots__ = ("folder", "is_shared", "own")

    def __init__(self, folder: str, own: str) -> None:
        self.folder = folder
        self.own = own
        self.is_shared = False

    @classmethod
    def of(cls, folder: str, own: str, environ: Mapping[str, str]) -> Place:
        """What the script found; without it, looked for here. Raises MbxError, OSError."""
        if folder:
            return cls(folder, own)
        from mbx.paths import Paths

        found = Paths.from_environ(environ).snapshots_dir()
        return cls(found, own or process_name(found))

    def snapshot(self, cli: str, called: str | None) -> Snapshot | None:
        """What is to be believed of this hook's session; None where that is not beyond doubt."""
        if not self._is_fresh():
            return None
        found = self._read(self.own) if self.own else None
        if found is not None and found.state != SHARED:
            return found
        self.is_shared = found is not None
        if called is None or (self.own and found is None and os.path.exists("/proc/self/stat")):
            return None
        from mbx.paths import session_name

        named = self._read(session_name(cli, called))
        if named is not None and self.own and not named.own.startswith(f"{self.own}-"):
            return None  # a conversation of another process
        return named

    def told_path(self, own: str) -> str:
        """Where is kept what a session was told."""
        return os.path.join(self.folder, told_name(own))

    def said_path(self) -> str:
        """Where the daemon hears that a session was told something."""
        return os.path.join(self.folder, SAID)

    def miss_path(self, kind: str) -> str:
        """Where hooks count what they missed: `SLOW` or `DOWN`."""
        return os.path.join(self.folder, kind)

    def socket_path(self) -> str:
        """The daemon's socket."""
        from mbx.paths import SOCKET

        return os.path.join(os.path.dirname(self.folder), SOCKET)

    def start_lock_path(self) -> str:
        """What a process that starts the daemon holds locked."""
        from mbx.paths import START_LOCK

        return os.path.join(os.path.dirname(self.folder), START_LOCK)

    def guarded(self, environ: Mapping[str, str]) -> tuple[str, ...]:
        """The folders that are mbx's own, as real paths."""
        home = environ.get("MBX_HOOK_HOME")
        if not home:
            from mbx.paths import Paths

            home = Paths.from_environ(environ).home()
        return (os.path.realpath(home), os.path.realpath(os.path.dirname(self.folder)))

    def _is_fresh(self) -> bool:
        try:
            with open("/proc/uptime", "rb") as file:
                now_ms = int(float(file.read(64).split()[0]) * 1000)
            beat_ms = int(self._text(FRESH)) * 1000
        except (OSError, ValueError, IndexError):
            return self._is_fresh_by_date()
        return is_fresh(beat_ms, now_ms + 999)

    def _is_fresh_by_date(self) -> bool:
        import time

        try:
            seen = os.stat(os.path.join(self.folder, FRESH))
        except OSError:
            return False
        return not os.path.exists("/proc/uptime") and is_fresh(
            int(seen.st_mtime * 1000), int(time.time() * 1000)
        )

    def _read(self, name: str) -> Snapshot | None:
        try:
            return parse(self._text(name))
        except OSError:
            return None

    def _text(self, name: str) -> str:
        """A file of ours; a pipe or a device in its place is not waited for. Raises OSError."""
        path = os.path.join(self.folder, name)
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                return ""
            return os.read(descriptor, SNAPSHOT_MAX_BYTES).decode("utf-8", "replace")
        finally:
            os.close(descriptor)


def process_name(folder: str) -> str:
    """``PID-STARTTICKS`` of the process that runs this hook, as the script finds it; "" for none.

    Only shells lie between: what is above any other program belongs to another session.
    """
    pid = os.getppid()
    for _ in range(STEPS_MAX):
        try:
            with open(f"/proc/{pid}/stat", "rb") as file:
                head, _, rest = file.read(4_096).rpartition(b") ")
        except OSError:
            return ""
        fields = rest.split()
        if len(fields) < 20:
            return ""
        own = f"{pid}-{int(fields[19])}"
        if os.path.exists(os.path.join(folder, own)):
            return own
        if head.partition(b"(")[2].decode("utf-8", "replace") not in SHELLS:
            return own
        pid = int(fields[1])
    return ""
