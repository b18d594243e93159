"""The files of snapshots: one a session, a name for its process, and the daemon's sign of life.

`SHA256(cli NUL session id)` is the file; where a process has one conversation, `PID-STARTTICKS` is
a link to it, by which a shell finds it without reading anything else. `….told` beside it says what
was announced (`mbx.telling`). Written by temporary file and rename, never synced: a file that is
missing or old only keeps a hook silent.
"""

import os
import stat
from contextlib import suppress
from typing import Final

from mbx import telling
from mbx.core.limits import SNAPSHOT_MAX_BYTES
from mbx.core.snapshot import DOWN, FRESH, SAID, SLOW, Snapshot, parse, told_name
from mbx.paths import Paths, make_folder, session_name

KEPT: Final = frozenset((FRESH, DOWN, SLOW, SAID))
"""The sign of life, the misses that hooks count, and the pipe of those who announced something."""

_HEARD_BYTES: Final = 64 * 1024
"""What a pipe holds at most: it is read away at once."""


class SnapshotFiles:
    """The folder, which is made where it is missing. Raises MbxError, OSError."""

    def __init__(self, paths: Paths) -> None:
        self.folder = paths.snapshots_dir()
        make_folder(self.folder)

    def write(self, snapshot: Snapshot, *, is_alone: bool) -> None:
        """Put a snapshot in place; `is_alone`: its process has no other. Raises OSError."""
        name = session_name(snapshot.cli, snapshot.called)
        self._replace(name, snapshot.as_text().encode())
        if is_alone and self._target(snapshot.own) != name:
            aside = self._path(f"{snapshot.own}.new")
            with suppress(FileNotFoundError):
                os.unlink(aside)
            os.symlink(name, aside)
            os.rename(aside, self._path(snapshot.own))

    def write_of_process(self, snapshot: Snapshot) -> None:
        """What a shell reads of a process with many conversations. Raises OSError."""
        self._replace(snapshot.own, snapshot.as_text().encode())

    def read(self, cli: str, called: str) -> Snapshot | None:
        """A snapshot that an earlier life of the daemon left."""
        return parse(self._text(session_name(cli, called)))

    def told(self, own: str) -> int:
        """The mark of what was announced to a session last; 0 for nothing, or none to be read."""
        try:
            return telling.told(self.told_path(own))
        except OSError:
            return 0

    def told_path(self, own: str) -> str:
        """Where is kept what a session was told."""
        return self._path(told_name(own))

    def remove(self, cli: str, called: str) -> None:
        """A conversation has ended, or is called otherwise now."""
        self._unlink(session_name(cli, called))

    def remove_own(self, own: str) -> None:
        """A session has ended: its name, and what it was told."""
        self._unlink(own)
        self.forget_told(own)

    def forget_told(self, own: str) -> None:
        """What a session was told counts no more: it is told again."""
        self._unlink(told_name(own))

    def beat(self, uptime_ms: int | None) -> None:
        """Give a sign of life. Raises OSError."""
        self._replace(FRESH, b"%d\n" % ((uptime_ms or 0) // 1000))

    def still(self) -> None:
        """Nothing here is to be believed any more, and nobody listens."""
        self._unlink(FRESH)
        self._unlink(SAID)

    def listen(self) -> int:
        """A descriptor that is readable when somebody names a session that was told something.

        We write there too, so that it never ends. Raises OSError.
        """
        path = self._path(SAID)
        with suppress(FileNotFoundError):
            if not stat.S_ISFIFO(os.lstat(path).st_mode):
                os.unlink(path)
        with suppress(FileExistsError):
            os.mkfifo(path, 0o600)
        return os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)

    @staticmethod
    def heard(descriptor: int) -> set[str]:
        """The sessions (own ids) that were named there since."""
        try:
            return set(os.read(descriptor, _HEARD_BYTES).decode("ascii", "replace").split("\n"))
        except BlockingIOError:
            return set()

    def keep_only(self, names: set[str]) -> None:
        """Remove every file but these and those of `KEPT` (left by a daemon that was killed)."""
        for name in os.listdir(self.folder):
            if name not in names and name not in KEPT:
                self._unlink(name)

    def _target(self, own: str) -> str:
        try:
            return os.readlink(self._path(own))
        except OSError:
            return ""

    def _replace(self, name: str, content: bytes) -> None:
        aside = self._path(f"{name}.new")
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(aside, flags, 0o600)
        try:
            os.write(descriptor, content)
        finally:
            os.close(descriptor)
        os.rename(aside, self._path(name))

    def _text(self, name: str) -> str:
        """A file's text; "" for one that cannot be read, or is another sort of file."""
        try:
            flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW
            with open(os.open(self._path(name), flags), "rb") as file:
                return file.read(SNAPSHOT_MAX_BYTES).decode("utf-8", "replace")
        except OSError:
            return ""

    def _unlink(self, name: str) -> None:
        with suppress(OSError):  # a folder of that name harms nobody
            os.unlink(self._path(name))

    def _path(self, name: str) -> str:
        return os.path.join(self.folder, name)
