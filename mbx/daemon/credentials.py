"""Token files: `run/sessions/SHA256(cli NUL session).json`, 0600, by temporary file and rename.

Only the daemon writes them, after the commit. They prove a holder only where the kernel cannot.
"""

import json
import os

from mbx.paths import Paths, make_folder


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
        path = self._paths.session_file(cli, session_id)
        try:
            with open(path, "rb") as file:
                if json.loads(file.read(4_096)).get("epoch") == epoch:
                    os.unlink(path)
        except (OSError, ValueError, AttributeError):
            return

    def exists(self, cli: str, session_id: str) -> bool:
        """True when there is a credential of this session."""
        return os.path.exists(self._paths.session_file(cli, session_id))

    def keep_only(self, sessions: set[tuple[str, str]]) -> None:
        """Remove the files of all other sessions (left by a daemon that was killed)."""
        kept = {self._paths.session_file(cli, session_id) for cli, session_id in sessions}
        folder = self._paths.sessions_dir()
        for name in os.listdir(folder):
            path = os.path.join(folder, name)
            if path not in kept and name.endswith((".json", ".new")):
                os.unlink(path)
