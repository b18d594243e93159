"""Token files: `run/sessions/SHA256(cli NUL session).json`, 0600, by temporary file and rename.

Only the daemon writes them, after the commit. They prove a holder only where the kernel cannot.
"""

import json
import os
from contextlib import suppress
from typing import Final

from mbx.paths import Paths, make_folder

_MAX_BYTES: Final = 4_096


class Credentials:
    """The folder of token files."""

    def __init__(self, paths: Paths) -> None:
        self._paths = paths
        make_folder(paths.sessions_dir())

    def write(self, cli: str, session_id: str, identity: str, epoch: int, token: str) -> None:
        """Put the credential of a session in place, its folder too where somebody removed it.

        Not synced: a missing file is made again. Raises OSError.
        """
        os.makedirs(self._paths.sessions_dir(), mode=0o700, exist_ok=True)
        path = self._paths.session_file(cli, session_id)
        aside = f"{path}.new"
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(aside, flags, 0o600)
        try:
            content = {"identity": identity, "epoch": epoch, "token": token}
            os.write(descriptor, json.dumps(content).encode() + b"\n")
        finally:
            os.close(descriptor)
        os.rename(aside, path)

    def remove(self, cli: str, session_id: str, epoch: int) -> None:
        """Remove a session's credential, if it is still the one of `epoch`."""
        told = self.told(cli, session_id)
        if told is not None and told[1] == epoch:
            with suppress(OSError):
                os.unlink(self._paths.session_file(cli, session_id))

    def rename(self, cli: str, before: str, session_id: str) -> None:
        """A session goes by another label; a file that is missing is made again by the timers."""
        with suppress(OSError):
            os.rename(
                self._paths.session_file(cli, before), self._paths.session_file(cli, session_id)
            )

    def told(self, cli: str, session_id: str) -> tuple[object, object] | None:
        """(identity, epoch) as the credential of this session says; None: none that can be read.

        A daemon that was killed between a commit and its effects leaves that of the grant before.
        """
        try:
            flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK  # a pipe would be waited for
            with open(os.open(self._paths.session_file(cli, session_id), flags), "rb") as file:
                content = json.loads(file.read(_MAX_BYTES))
            return content["identity"], content["epoch"]
        except (OSError, ValueError, TypeError, KeyError, RecursionError):
            return None

    def keep_only(self, sessions: set[tuple[str, str]]) -> None:
        """Remove the files of all other sessions (left by a daemon that was killed)."""
        kept = {self._paths.session_file(cli, session_id) for cli, session_id in sessions}
        folder = self._paths.sessions_dir()
        for name in os.listdir(folder):
            path = os.path.join(folder, name)
            if path not in kept and name.endswith((".json", ".new")):
                with suppress(OSError):  # a folder of that name harms nobody
                    os.unlink(path)
