"""What setup wrote, and what was there before: a file and copies below mbx's home."""

import fcntl
import hashlib
import json
import os
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from mbx.paths import make_folder
from mbx.setup.files import replace
from mbx.setup.steps import Path, Refused

_VERSION: Final = 1


class Record(NamedTuple):
    """One file that setup wrote.

    `after` is the digest of what it wrote; `before` names the copy of what was there (None: there
    was no file); `is_exact` says whether that copy may be put back, `made` are the containers and
    `folders` the folders that setup made for its entries.
    """

    after: str
    before: str | None
    is_exact: bool
    made: tuple[Path, ...] = ()
    folders: tuple[str, ...] = ()


class Ledger:
    """The records of one installation. `home` is mbx's home folder."""

    def __init__(self, home: str) -> None:
        self._home = home
        self._folder = os.path.join(home, "setup")
        self._path = os.path.join(self._folder, "ledger.json")
        self._records: dict[str, Record] = {}
        self._lock: int | None = None
        self._load()

    def record(self, path: str) -> Record | None:
        """The record of a file, by its path with links resolved."""
        return self._records.get(path)

    def lock(self) -> None:
        """Be the only setup of this home until `unlock`. Raises Refused, MbxError."""
        make_folder(self._home)
        make_folder(self._folder)
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        self._lock = os.open(os.path.join(self._folder, "lock"), flags, 0o600)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self.unlock()
            raise Refused("another mbx setup is running") from None
        self._load()

    def unlock(self) -> None:
        """Let others set up."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def keep(self, content: bytes, name: str) -> str:
        """Keep a copy of what was there; how it is called."""
        copy = f"{digest(content)[:16]}-{name}"
        make_folder(os.path.join(self._folder, "before"))
        path = self.copy_path(copy)
        if not os.path.lexists(path):
            replace(path, content, 0o600)
        return copy

    def copy_path(self, copy: str) -> str:
        """Where a copy lies."""
        return os.path.join(self._folder, "before", os.path.basename(copy))

    def kept(self, copy: str) -> bytes | None:
        """A copy; None when it is not there any more, or is not what was kept."""
        try:
            with open(self.copy_path(copy), "rb") as file:
                content = file.read()
        except OSError:
            return None
        return content if copy.startswith(digest(content)[:16]) else None

    def write(self, path: str, record: Record | None) -> None:
        """Remember (None: forget) a file; on the disk when this returns."""
        if record is None:
            self._records.pop(path, None)
        else:
            self._records[path] = record
        told = {name: one._asdict() for name, one in sorted(self._records.items())}
        document = json.dumps({"v": _VERSION, "files": told}, indent=1) + "\n"
        replace(self._path, document.encode("ascii"), 0o600)

    def _load(self) -> None:
        """What cannot be read is no record: entries are then known by their meaning alone."""
        try:
            with open(self._path, "rb") as file:
                told = json.load(file)
            files = told["files"] if told["v"] == _VERSION else {}
            self._records = {path: _record(one) for path, one in files.items()}
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
            self._records = {}


def digest(content: bytes) -> str:
    """The SHA-256 of a content, in hex."""
    return hashlib.sha256(content).hexdigest()


def _record(told: Mapping[str, Any]) -> Record:
    before = told["before"]
    return Record(
        str(told["after"]),
        None if before is None else str(before),
        bool(told["is_exact"]),
        tuple(tuple(path) for path in told["made"]),
        tuple(map(str, told["folders"])),
    )
