"""Files of the owner: private from the first instant, synced, never over another; read bounded."""

import errno
import os
import stat

from mbx.core.errors import MbxError
from mbx.paths import printable


def write_new(path: str, content: bytes) -> None:
    """Write a new file (mode 600) and sync it and its folder; an unfinished one is removed.

    Raises MbxError: `conflict` when there is something at `path`, else `usage` or `disk-full`.
    """
    try:
        write_synced(path, content)
        sync_folder(path)
    except FileExistsError:
        raise MbxError(
            "conflict",
            f"{printable(path)} is there already and is never overwritten",
            "name a file that does not exist yet",
        ) from None
    except (OSError, ValueError) as error:
        raise unwritten(path, error) from None


def write_synced(path: str, content: bytes) -> None:
    """Make a file (mode 600), write it whole and sync it. Raises OSError; then it is not there."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(path, flags, 0o600)
    try:
        view = memoryview(content)
        while view:
            view = view[os.write(descriptor, view) :]
        os.fsync(descriptor)
    except BaseException:
        os.unlink(path)
        raise
    finally:
        os.close(descriptor)


def sync_folder(path: str) -> None:
    """Sync the folder in which a path lies: a name is not on the disk before. Raises OSError."""
    folder = os.open(folder_of(path), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def read_bounded(path: str, max_bytes: int, what: str) -> bytes:
    """A regular file's content; `what` names it in refusals. Raises MbxError not-found or usage."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise _unfit(path, what, "is not a regular file")
            with os.fdopen(descriptor, "rb", closefd=False) as file:
                raw = file.read(max_bytes + 1)
        finally:
            os.close(descriptor)
    except FileNotFoundError:
        raise MbxError(
            "not-found", f"there is no file {printable(path)}", f"give the path of {what}"
        ) from None
    except (OSError, ValueError) as error:
        raise _unfit(path, what, f"cannot be read ({_why(error)})") from None
    if len(raw) > max_bytes:
        raise _unfit(path, what, f"has more than {max_bytes:,} bytes")
    return raw


def folder_of(path: str) -> str:
    """The folder in which a path lies."""
    return os.path.dirname(path) or "."


def unwritten(path: str, error: OSError | ValueError) -> MbxError:
    """The refusal for a file that could not be written."""
    is_full = isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)
    return MbxError(
        "disk-full" if is_full else "usage",
        f"cannot write {printable(path)}: {_why(error)}",
        "free some space" if is_full else "give a place in a folder of your own",
    )


def _unfit(path: str, what: str, why: str) -> MbxError:
    return MbxError("usage", f"{printable(path)} {why}", f"give the path of {what}")


def _why(error: OSError | ValueError) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or str(error)
