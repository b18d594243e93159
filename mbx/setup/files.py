"""Reading and writing files of others: whole or not at all, and never behind somebody's back."""

import os
import stat
from collections.abc import Callable
from typing import Final, NamedTuple

from mbx.paths import link_words
from mbx.setup.steps import Refused

FILE_MAX_BYTES: Final = 32 * 1024 * 1024
"""Claude Code's state of years has some megabytes; what is longer is no settings file."""

USUAL_MODE: Final = 0o600
"""The mode of files that were not there: settings may hold keys later."""


class Content(NamedTuple):
    """A file as it was read: where it really is, its bytes (None: there is none), its mode."""

    target: str
    content: bytes | None
    mode: int


def read(path: str, user_id: int) -> Content:
    """A file with links followed. Raises Refused for what is not a plain file of this user."""
    target = os.path.realpath(path)
    if os.path.islink(target) or (not os.path.exists(target) and os.path.islink(path)):
        raise Refused(link_words(path) or "is a link that leads nowhere")
    try:
        with open(target, "rb", opener=_opener) as file:
            found = os.fstat(file.fileno())
            _check(found, user_id)
            return Content(target, file.read(FILE_MAX_BYTES + 1), stat.S_IMODE(found.st_mode))
    except (FileNotFoundError, NotADirectoryError) as error:
        _check_folder(target, user_id)
        if isinstance(error, NotADirectoryError):
            raise Refused("lies below a file") from None
        return Content(target, None, USUAL_MODE)
    except OSError as error:
        raise Refused(f"cannot be read: {error.strerror}") from None


def write(path: str, old: Content, new: bytes | None) -> None:
    """Put `new` in the place of what was read, or take the file away (None).

    Raises Refused when it is not any more what was read, or for what the system says.
    """
    try:
        _check_unchanged(old)
        if new is None:
            os.unlink(old.target)
            _sync(os.path.dirname(old.target))
        else:
            replace(old.target, new, old.mode, lambda: _check_unchanged(old))
    except OSError as error:
        raise Refused(f"cannot be written: {error.strerror}") from None


def make_folders(path: str) -> tuple[str, ...]:
    """Make a folder with those above it; which were made, the highest first."""
    missing: list[str] = []
    while not os.path.isdir(path):
        missing.append(path)
        path = os.path.dirname(path)
    for folder in reversed(missing):
        os.mkdir(folder, 0o755)
    return tuple(reversed(missing))


def remove_folders(folders: tuple[str, ...]) -> None:
    """Take away those folders that are empty, the lowest first."""
    for folder in reversed(folders):
        try:
            os.rmdir(folder)
        except OSError:
            return


def replace(path: str, content: bytes, mode: int, check: Callable[[], None] | None = None) -> None:
    """Write a file so that whatever happens the old or the new one is there. Raises OSError.

    `check` is called last, before the new one takes the place of the old one.
    """
    new = os.path.join(os.path.dirname(path), f".{os.path.basename(path)}.mbx-new")
    try:
        os.unlink(new)  # of a run that was killed
    except FileNotFoundError:
        pass
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(new, flags, 0o600)
    try:
        with open(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            _copy_attributes(path, file.fileno())
            os.fchmod(file.fileno(), mode)
            os.fsync(file.fileno())
        if check is not None:
            check()
        os.rename(new, path)
    except BaseException:
        os.unlink(new)
        raise
    _sync(os.path.dirname(path))


def _opener(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)


def _check(found: os.stat_result, user_id: int) -> None:
    if not stat.S_ISREG(found.st_mode):
        raise Refused("is no plain file")
    if found.st_uid != user_id:
        raise Refused(f"belongs to user {found.st_uid}, not to user {user_id}")
    if not found.st_mode & stat.S_IWUSR:
        raise Refused("is read-only: somebody wants it to stay as it is")
    if found.st_nlink > 1:
        raise Refused(f"has {found.st_nlink} names (hard links), which would be parted")
    if found.st_size > FILE_MAX_BYTES:
        raise Refused(f"has more than {FILE_MAX_BYTES:,} bytes")


def _check_folder(path: str, user_id: int) -> None:
    """Nothing is made in a folder of somebody else: `sudo` would leave files there."""
    while not os.path.lexists(path):
        path = os.path.dirname(path)
    owner = os.stat(path).st_uid
    if owner != user_id:
        raise Refused(f"{path} belongs to user {owner}, not to user {user_id}")


def _check_unchanged(old: Content) -> None:
    try:
        with open(old.target, "rb", opener=_opener) as file:
            content: bytes | None = file.read(FILE_MAX_BYTES + 1)
    except FileNotFoundError:
        content = None
    if content != old.content:
        raise Refused("was changed meanwhile; run mbx setup again")


def _copy_attributes(path: str, descriptor: int) -> None:
    """Extended attributes (access lists, labels), as far as the system lets one."""
    try:
        for name in os.listxattr(path):
            os.setxattr(descriptor, name, os.getxattr(path, name))
    except (OSError, AttributeError):
        pass


def _sync(folder: str) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
