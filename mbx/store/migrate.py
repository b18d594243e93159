"""Numbered migrations, all run from zero on a new file; newer and foreign files stay untouched.

Each migration is one ``migrations/NNNN_name.sql`` that ends by setting ``user_version`` to NNNN.
All that are due run in one transaction: a kill leaves the version whole that was there before.
"""

import os
import sqlite3
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from mbx.core.errors import MbxError
from mbx.store.database import APPLICATION_ID, StoreFailure, connect, refusal_of

FOLDER: Final = os.path.join(os.path.dirname(os.path.abspath(__file__)), "migrations")
"""Where the numbered scripts lie."""
_HEADER_BYTES: Final = 100
_MAGIC: Final = b"SQLite format 3\x00"


@dataclass(frozen=True, slots=True)
class Migration:
    """One step of the schema: its number and its SQL text."""

    number: int
    script: str


def migrations(folder: str = FOLDER) -> tuple[Migration, ...]:
    """Every migration in order. Raises StoreFailure when their numbers have a gap."""
    names = sorted(name for name in os.listdir(folder) if name.endswith(".sql"))
    found = []
    for name in names:
        with open(os.path.join(folder, name), encoding="utf-8") as file:
            found.append(Migration(int(name[:4]), file.read()))
    if [step.number for step in found] != list(range(1, len(found) + 1)):
        raise StoreFailure(f"the installation is damaged: migrations {names}")
    return tuple(found)


def open_store(path: str, steps: Sequence[Migration] | None = None) -> sqlite3.Connection:
    """Open the store at `path`, bringing it to the newest schema.

    Raises MbxError version-mismatch (made by a newer mbx), store-damaged (foreign or damaged file),
    disk-full, and StoreFailure.
    """
    steps = migrations() if steps is None else steps
    if path != ":memory:":
        _refuse_unsuitable(path, len(steps))
    connection = connect(path)
    try:
        version = _version(connection)
        if version > len(steps):
            raise _newer(path, version, len(steps))
        if 0 < version < len(steps):
            _back_up(connection, f"{path}.before-{len(steps)}")
        if version < len(steps):
            _apply(connection, steps[version:])
            _check_foreign_keys(connection, path)
    except BaseException as error:
        connection.close()
        if isinstance(error, sqlite3.Error):
            raise refusal_of(error) from error
        raise
    return connection


def _version(connection: sqlite3.Connection) -> int:
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


def _header(path: str) -> bytes | None:
    """The first bytes of the file; None for what is no file (a pipe would be waited for)."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return None
        return os.pread(descriptor, _HEADER_BYTES, 0)
    finally:
        os.close(descriptor)


def _refuse_unsuitable(path: str, newest: int) -> None:
    """Judge the file by its header, the first 100 bytes, before anything can write to it."""
    try:
        header = _header(path)
    except FileNotFoundError:
        return
    except OSError as error:
        raise StoreFailure(f"{path}: {error.strerror}") from error
    if header is None:
        raise _foreign(path, "is not a regular file")
    if not header:
        return
    if len(header) < _HEADER_BYTES or not header.startswith(_MAGIC):
        raise _foreign(path)
    version = int.from_bytes(header[60:64], "big")
    application_id = int.from_bytes(header[68:72], "big")
    if version == 0 and application_id == 0:
        if _has_tables_of_others(path, header):
            raise _foreign(path)
        return
    if application_id != APPLICATION_ID:
        raise _foreign(path)
    if version > newest:
        raise _newer(path, version, newest)


def _has_tables_of_others(path: str, header: bytes) -> bool:
    """Whether an unmarked file is more than our own first page, left by a start that was killed.

    While a log lies beside it the marks may be in there, and SQLite must have its say first.
    """
    page_bytes = int.from_bytes(header[16:18], "big")
    log_bytes = os.path.getsize(f"{path}-wal") if os.path.exists(f"{path}-wal") else 0
    return log_bytes == 0 and os.path.getsize(path) > (65_536 if page_bytes == 1 else page_bytes)


def _foreign(path: str, what: str = "is damaged or not an mbx store") -> MbxError:
    return MbxError(
        "store-damaged",
        f"{path} {what}; it was left as it is",
        f"keep {path} aside, then restore a backup",
        path=path,
    )


def _newer(path: str, version: int, newest: int) -> MbxError:
    return MbxError(
        "version-mismatch",
        f"{path} has schema {version}, made by a newer mbx; this one knows up to {newest}",
        "install the newer mbx again",
        path=path,
    )


def _back_up(connection: sqlite3.Connection, target_path: str) -> None:
    descriptor = os.open(target_path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    os.close(descriptor)
    target = sqlite3.connect(target_path)
    try:
        connection.backup(target, pages=1_024)
        verdict = target.execute("PRAGMA quick_check").fetchone()[0]
        if verdict != "ok":
            raise StoreFailure(f"the backup before the upgrade is not sound: {verdict}")
    finally:
        target.close()


def _apply(connection: sqlite3.Connection, steps: Sequence[Migration]) -> None:
    # A table that others refer to can be made anew only while nobody checks; the references are
    # checked afterwards (sqlite.org/lang_altertable, section 7).
    connection.execute("PRAGMA foreign_keys = OFF")
    connection.execute("BEGIN IMMEDIATE")
    try:
        for step in steps:
            for statement in _statements(step.script):
                connection.execute(statement)
            if _version(connection) != step.number:
                raise StoreFailure(f"migration {step.number} did not set its version")
        connection.execute("COMMIT")
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        connection.execute("PRAGMA foreign_keys = ON")


def _statements(script: str) -> Iterator[str]:
    pending = ""
    for line in script.splitlines(keepends=True):
        pending += line
        if sqlite3.complete_statement(pending):
            yield pending
            pending = ""
    if pending.strip():
        raise StoreFailure("a migration ends inside a statement")


def _check_foreign_keys(connection: sqlite3.Connection, path: str) -> None:
    broken = connection.execute("PRAGMA foreign_key_check").fetchmany(3)
    if broken:
        raise MbxError(
            "store-damaged",
            f"{path}: rows refer to rows that are missing, first {broken!r}",
            f"keep {path} aside, then restore a backup",
            path=path,
        )
