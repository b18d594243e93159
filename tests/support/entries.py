"""What a path is and when it was last changed, so that tests can say that it was left alone."""

import os
import stat
from typing import NamedTuple


class Entry(NamedTuple):
    """Of one path, what no reading of it changes.

    A whole ``os.stat_result`` is no such thing: it has the time of the last access, which
    following a link or reading a file moves on (relatime, mount(8)).
    """

    mode: int
    inode: int
    size_bytes: int
    changed_ns: int

    @property
    def permissions(self) -> int:
        return stat.S_IMODE(self.mode)


def entry_of(path: str | os.PathLike[str]) -> Entry:
    """The entry itself, so a link and not what it leads to."""
    found = os.lstat(path)
    return Entry(found.st_mode, found.st_ino, found.st_size, found.st_mtime_ns)
