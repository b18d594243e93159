"""What `mbx doctor --fix` does: only what is safe, only to what is ours, looked at once more.

Modes of our own folders and files, a socket that nobody listens at, files that a killed process
was about to put in place, missing credentials and their folder. It deletes no mail and touches no
holder.
"""

import fcntl
import os
import stat
from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple

from mbx.client import Clock
from mbx.core.errors import MbxError
from mbx.doctor.files import LEFTOVER_S
from mbx.doctor.verdict import Check, Remedy, RemedyKind
from mbx.paths import Paths, make_folder

MEND_S: Final = 3.0
"""The daemon keeps house within a second of being asked."""

_AGAIN_S: Final = 0.05


class Done(NamedTuple):
    """One remedy, and whether it was done; `why` not, in the system's words."""

    remedy: Remedy
    was_done: bool
    why: str = ""

    def as_object(self) -> dict[str, object]:
        """For `--json`."""
        return {"act": self.remedy.kind, "path": self.remedy.path, "done": self.was_done}


class Hands(NamedTuple):
    """What the remedies work with.

    `now_ms` is the wall clock; `mend` asks the running daemon to keep house, raising MbxError.
    """

    paths: Paths
    user_id: int
    now_ms: int
    clock: Clock
    mend: Callable[[], None]


class NotOursError(Exception):
    """It is not, or no longer, what the remedy is for; the argument says why."""


def apply(checks: Iterable[Check], hands: Hands) -> list[Done]:
    """Do what the checks ask for, each remedy once."""
    wanted = dict.fromkeys(check.remedy for check in checks if check.remedy is not None)
    return [_done(remedy, hands) for remedy in wanted]


def _done(remedy: Remedy, hands: Hands) -> Done:
    try:
        _ACTS[remedy.kind](remedy.path, hands)
    except OSError as error:
        return Done(remedy, False, error.strerror or "?")
    except (NotOursError, MbxError) as error:
        return Done(remedy, False, str(error))
    return Done(remedy, True)


def _close_folder(path: str, hands: Hands) -> None:
    _close(path, hands, os.O_DIRECTORY, 0o700)


def _close_file(path: str, hands: Hands) -> None:
    _close(path, hands, os.O_NONBLOCK, 0o600)


def _close(path: str, hands: Hands, flags: int, mode: int) -> None:
    """Set the mode of what was opened, so that nobody can put another file in its place."""
    found = os.lstat(path)
    _check_own(found, hands)
    if stat.S_ISSOCK(found.st_mode) or not os.access(path, os.R_OK):  # it cannot be opened
        os.chmod(path, mode)
        return
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | flags)
    try:
        _check_own(os.fstat(descriptor), hands)
        os.fchmod(descriptor, mode)
    finally:
        os.close(descriptor)


def _make_folder(path: str, hands: Hands) -> None:
    make_folder(path)


def _remove_socket(path: str, hands: Hands) -> None:
    """Under the daemon's lock: a daemon that starts meanwhile would lose its new socket."""
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    lock = os.open(hands.paths.lock_path(), flags, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        found = os.lstat(path)
        _check_own(found, hands)
        if not stat.S_ISSOCK(found.st_mode):
            raise NotOursError("it is no socket any more")
        os.unlink(path)
    finally:
        os.close(lock)


def _remove_leftover(path: str, hands: Hands) -> None:
    found = os.lstat(path)
    _check_own(found, hands)
    is_old = hands.now_ms - found.st_mtime_ns // 1_000_000 > LEFTOVER_S * 1000
    if not (stat.S_ISREG(found.st_mode) and is_old and path.endswith(".new")):
        raise NotOursError("it is in use again")
    os.unlink(path)


def _credentials(path: str, hands: Hands) -> None:
    """Only the daemon can: it keeps nothing but a hash of the token, and makes another."""
    hands.mend()
    deadline = hands.clock.monotonic() + MEND_S
    while not os.path.exists(path):
        if hands.clock.monotonic() >= deadline:
            raise NotOursError("the daemon has not written it yet")
        hands.clock.sleep(_AGAIN_S)


def _check_own(found: os.stat_result, hands: Hands) -> None:
    if found.st_uid != hands.user_id:
        raise NotOursError(f"it belongs to user {found.st_uid}")


_ACTS: Final[Mapping[RemedyKind, Callable[[str, Hands], None]]] = {
    "close-folder": _close_folder,
    "close-file": _close_file,
    "make-folder": _make_folder,
    "remove-socket": _remove_socket,
    "remove-leftover": _remove_leftover,
    "credentials": _credentials,
}
