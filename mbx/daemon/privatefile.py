"""A file that holds a secret: private from its first instant, made once, never replaced.

Anything wrong with such a file stops whoever needs it, with the file and the remedy named, and
leaves the file as it is: a machine must not silently become another one.
"""

import os
import stat
from contextlib import suppress
from typing import Final, NamedTuple

from mbx.core.errors import MbxError
from mbx.paths import link_words, quoted

_MAX_BYTES: Final = 4_096


class PrivateFile(NamedTuple):
    """The file at `path`; `what` names it in refusals ("the host key")."""

    path: str
    what: str

    def read(self) -> bytes | None:
        """All of it; None: there is none.

        Raises MbxError store-damaged for what is no regular file of this user's, can be read by
        others, or is larger than 4 KiB.
        """
        try:
            descriptor = os.open(
                self.path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
            )
        except FileNotFoundError:
            return None
        except OSError as error:
            fault = link_words(self.path) or f"cannot be read ({error.strerror})"
            raise self.wrong(fault) from error
        try:
            self._check(os.fstat(descriptor))
            raw = os.read(descriptor, _MAX_BYTES + 1)
        finally:
            os.close(descriptor)
        if len(raw) > _MAX_BYTES:
            raise self.wrong("is too large for a key")
        return raw

    def create(self, content: bytes) -> None:
        """Write aside, sync, link into place (never over another file), sync the folder.

        Raises MbxError daemon-unreachable where it cannot be made.
        """
        try:
            self._create(content)
        except OSError as error:
            raise MbxError(
                "daemon-unreachable",
                f"{self.what} {self.path} cannot be made: {error.strerror}",
                "see to the disk and to the rights on the home folder, then start again",
                path=self.path,
            ) from error

    def drop_aside(self) -> str:
        """Remove what a start that was killed left: half a file, or the file's second name."""
        aside = f"{self.path}.new"
        with suppress(FileNotFoundError):
            os.unlink(aside)
        return aside

    def wrong(self, fault: str, remedy: str | None = None) -> MbxError:
        """The refusal of a file that is not as it should be."""
        return MbxError(
            "store-damaged",
            f"{self.what} {self.path} {fault}; it was left as it is",
            remedy or f"put the right {os.path.basename(self.path)} back from a backup, mode 600",
            path=self.path,
        )

    def _check(self, found: os.stat_result) -> None:
        if not stat.S_ISREG(found.st_mode):
            raise self.wrong("is not a regular file")
        if found.st_uid != os.geteuid():
            raise self.wrong(f"belongs to user {found.st_uid}")
        if found.st_mode & 0o077:
            mode = stat.S_IMODE(found.st_mode)
            fault = f"can be read by others (mode {mode:04o})"
            raise self.wrong(fault, f"chmod 600 {quoted(self.path)}")

    def _create(self, content: bytes) -> None:
        aside = self.drop_aside()
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(aside, flags, 0o600)
        try:
            os.write(descriptor, content)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        os.link(aside, self.path)
        os.unlink(aside)
        folder = os.open(os.path.dirname(self.path), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
