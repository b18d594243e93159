"""Where mbx keeps its files: one rule for the command line, the connector and the daemon.

`MBX_HOME` (state) and `MBX_RUN` (socket, sessions) decide; nothing else is read but `HOME` and,
where that is unset, the password database. Of the standard library it loads `os`, `stat`, `sys`.
"""

from __future__ import annotations

import os
import stat
import sys

from mbx.core.errors import MbxError
from mbx.core.limits import SOCKET_PATH_MAX_BYTES

TYPE_CHECKING = False
if TYPE_CHECKING:  # `typing` itself is too heavy for a hook
    from collections.abc import Mapping

SHORT_RUN_PARENT = "/tmp"  # noqa: S108  (the folder in it is checked by `check_folder`)
"""Where the run folder goes when the socket's path would be too long for the kernel."""


SOCKET = "mbx.sock"
"""The daemon's socket, in the run folder."""

START_LOCK = "start.lock"
"""What whoever starts the daemon holds locked, in the run folder."""

_MARKS = frozenset(
    (
        "daemon.lock",
        "daemon.log",
        "host.key",
        "owner.key",
        "tls.key",
        "store.db",
        SOCKET,
        START_LOCK,
    )
)
_FOLDERS = frozenset(("run", "sessions", "snapshots", "floor", "bin", "setup"))
"""Other programs have such too."""


class Paths:
    """The places of one installation, absolute and with links resolved; a frozen value.

    Two spellings of one folder (through a link, with `..`) give equal values, so that every face
    reaches the one daemon of that folder.
    """

    __slots__ = ("_home", "_run")

    def __init__(self, home: str, run: str) -> None:
        object.__setattr__(self, "_home", home)
        object.__setattr__(self, "_run", run)

    @classmethod
    def from_environ(cls, environ: Mapping[str, str]) -> Paths:
        """The paths that an environment asks for.

        Raises MbxError `usage` when no home folder can be found, or for a relative path: it would
        be another installation in each folder.
        """
        asked = environ.get("MBX_HOME")
        home = _resolved("MBX_HOME" if asked else "HOME", asked or _default_home(environ))
        run = _resolved("MBX_RUN", environ.get("MBX_RUN") or os.path.join(home, "run"))
        if len(os.fsencode(os.path.join(run, SOCKET))) > SOCKET_PATH_MAX_BYTES:
            run = _short_run(run)
        return cls(home, run)

    def home(self) -> str:
        """The state folder: store, keys, configuration, logs."""
        return self._text("_home")

    def run_dir(self) -> str:
        """The folder of the socket, the session files and the start lock."""
        return self._text("_run")

    def socket_path(self) -> str:
        """The daemon's unix socket; at most `SOCKET_PATH_MAX_BYTES` bytes."""
        return os.path.join(self.run_dir(), SOCKET)

    def store_path(self) -> str:
        """The SQLite file, which only the daemon opens."""
        return os.path.join(self.home(), "store.db")

    def host_key_path(self) -> str:
        """The host's private key."""
        return os.path.join(self.home(), "host.key")

    def tls_key_path(self) -> str:
        """The host's TLS key and certificate; made when it is first needed."""
        return os.path.join(self.home(), "tls.key")

    def owner_key_path(self) -> str:
        """The owner's private key under its passphrase; the daemon never opens it."""
        return os.path.join(self.home(), "owner.key")

    def floor_path(self) -> str:
        """How far the owner's chain ever went; in a folder of its own, apart from the store."""
        return os.path.join(self.home(), "floor", "floor.json")

    def lock_path(self) -> str:
        """The file whose `flock` makes one daemon per store."""
        return os.path.join(self.home(), "daemon.lock")

    def log_path(self) -> str:
        """The daemon's log."""
        return os.path.join(self.home(), "daemon.log")

    def start_lock_path(self) -> str:
        """The file whose `flock` makes one starter at a time."""
        return os.path.join(self.run_dir(), START_LOCK)

    def sessions_dir(self) -> str:
        """The folder of the credentials of sessions."""
        return os.path.join(self.run_dir(), "sessions")

    def session_file(self, cli: str, session_id: str) -> str:
        """The credential file of one conversation, named by a digest: no id leaves the folder."""
        return os.path.join(self.sessions_dir(), f"{session_name(cli, session_id)}.json")

    def snapshots_dir(self) -> str:
        """The folder of what hooks and status lines read: a file for each session, and signs."""
        return os.path.join(self.run_dir(), "snapshots")

    def _text(self, slot: str) -> str:
        value: str = object.__getattribute__(self, slot)
        return value

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"Paths is frozen: {name}")

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Paths):
            return NotImplemented
        return (self.home(), self.run_dir()) == (other.home(), other.run_dir())

    def __hash__(self) -> int:
        return hash((self.home(), self.run_dir()))

    def __repr__(self) -> str:
        return f"Paths(home={self.home()!r}, run={self.run_dir()!r})"


def session_name(cli: str, session_id: str) -> str:
    """What the files of a conversation are called."""
    import hashlib

    return hashlib.sha256(f"{cli}\0{session_id}".encode("utf-8", "surrogatepass")).hexdigest()


def make_folder(path: str) -> None:
    """Make `path` (0700) with its missing parents, then check it as `check_folder` does.

    Nothing is made below a folder of somebody else (`sudo mbx` in another user's home would leave
    files there that the user cannot use). Raises MbxError `daemon-unreachable`, or OSError as the
    system says it.
    """
    if not os.path.lexists(path):
        _check_parent(path)
        old_mask = os.umask(0o077)
        try:
            os.makedirs(path, mode=0o700, exist_ok=True)
        finally:
            os.umask(old_mask)
    check_folder(path)


def check_folder(path: str) -> None:
    """Refuse, by name, a folder that others could have made or can change.

    Raises MbxError `daemon-unreachable` unless `path` is a real folder (no link) of this user
    without a group or world bit; OSError when it cannot be looked at.
    """
    entry = os.lstat(path)
    if stat.S_ISLNK(entry.st_mode):
        raise _unsafe(path, "is a link")
    if not stat.S_ISDIR(entry.st_mode):
        raise _unsafe(path, "is not a folder")
    if entry.st_uid != os.geteuid():
        raise _unsafe(path, f"belongs to user {entry.st_uid}, not to user {os.geteuid()}")
    if entry.st_mode & 0o077:
        mode = stat.S_IMODE(entry.st_mode)
        repair = None if is_of_others(path) else f"chmod 700 {quoted(path)}"
        raise _unsafe(path, f"is open to others (mode {mode:04o})", repair)


def is_of_others(path: str) -> bool:
    """Whether a folder holds things and none of them is mbx's: to close it would shut out others.

    A wrong MBX_HOME, or a link, may lead to /tmp. What cannot be looked into is not known as ours.
    """
    try:
        names = set(os.listdir(path))
    except OSError:
        return True
    strange = {name for name in names - _FOLDERS if not name.endswith((".json", ".new"))}
    return bool(strange) and not names & _MARKS


def printable(path: str) -> str:
    """A path as an answer can hold it: bytes that are no UTF-8 come out as escapes."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")


def quoted(text: str) -> str:
    """`text` as one word of a POSIX shell, for next steps (`shlex` would load `re`)."""
    if text and all(c.isascii() and (c.isalnum() or c in "/._-+=:@%,") for c in text):
        return text
    return "'" + text.replace("'", "'\"'\"'") + "'"


def _check_parent(path: str) -> None:
    parent = os.path.dirname(path)
    while not os.path.lexists(parent):
        parent = os.path.dirname(parent)
    owner = os.stat(parent).st_uid
    if owner not in (os.geteuid(), 0):
        raise _unsafe(parent, f"belongs to user {owner}; user {os.geteuid()} makes no files in it")


def link_words(path: str) -> str | None:
    """``is a link to X``, and whether X is there; None for what is no link.

    Files of ours are opened without following one: a link that leads nowhere is no missing file,
    behind which a new store or key could be begun.
    """
    try:
        target = os.readlink(path)
    except OSError:
        return None
    lost = "" if os.path.exists(path) else ", which is not there"
    return f"is a link to {printable(target)}{lost}"


def link_step(path: str) -> str:
    """What helps against a link in the place of a file of ours."""
    return (
        f"put the file itself in its place (or what it is on, back); if nothing is lost, rm"
        f" {quoted(path)}"
    )


def _unsafe(path: str, why: str, repair: str | None = None) -> MbxError:
    step = (
        repair or f"make {quoted(path)} a folder of your own (mode 700), or set MBX_HOME or MBX_RUN"
    )
    return MbxError("daemon-unreachable", f"{path} {why}", step, path=path)


def _default_home(environ: Mapping[str, str]) -> str:
    user_home = home_of_user(environ)
    if sys.platform == "darwin":
        return os.path.join(user_home, "Library", "Application Support", "mbx")
    return os.path.join(user_home, ".local", "share", "mbx")


def home_of_user(environ: Mapping[str, str]) -> str:
    """The home folder of the user: of HOME, else of the password database. Raises MbxError."""
    if environ.get("HOME"):
        return environ["HOME"]
    import pwd

    try:
        folder = pwd.getpwuid(os.getuid()).pw_dir
    except KeyError:
        folder = ""
    if not folder:
        raise MbxError(
            "usage",
            f"HOME is unset and the password database has no home for user {os.getuid()}",
            "set MBX_HOME to a folder of your own",
        )
    return folder


def _resolved(variable: str, path: str) -> str:
    """`path` absolute and without links, so that one folder has one spelling."""
    if not os.path.isabs(path):
        raise MbxError(
            "usage",
            f"{variable} is relative: {printable(path)} would be another folder in each place",
            f"set {variable} to an absolute path",
        )
    return os.path.realpath(path)


def _short_run(run: str) -> str:
    """`/tmp/mbx-UID-HASH`, from a digest of the run folder that was asked for (CONTRACT 1)."""
    import hashlib

    digest = hashlib.sha256(os.fsencode(run)).hexdigest()[:16]
    short = os.path.join(os.path.realpath(SHORT_RUN_PARENT), f"mbx-{os.getuid()}-{digest}")
    try:
        check_folder(short)
    except FileNotFoundError:
        pass  # not made yet: `make_folder` makes and checks it
    return short
