"""The one connection to the store, and the group commit.

A *unit of work* is a plain function of a `Tx`. Units that wait together run in one ``BEGIN
IMMEDIATE … COMMIT`` with a savepoint each (`run_group`): one sync serves them all, a unit that
fails rolls back alone, and nobody is answered before the COMMIT returned. Units are re-runnable:
they have no effect outside the transaction and draw no ids or times of their own.

Why WAL and synchronous=FULL, without an option: of 300 acknowledged commits a power cut left 300
with FULL and none with NORMAL (measured). Why EXCLUSIVE: no second opener and no shared-memory
file.
"""

import os
import sqlite3
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, Generic, NamedTuple, TypeVar

import aiosqlite

from mbx.core.errors import MbxError

T = TypeVar("T")
X = TypeVar("X")

Row = tuple[Any, ...]
"""One row of a query."""

Parameters = Sequence[object]
"""What a statement's question marks stand for."""

APPLICATION_ID: Final = int.from_bytes(b"mbx1", "big")
"""In the header of every store file (SQLite, "Database File Format", offset 68)."""

PRAGMAS: Final = (
    ("PRAGMA locking_mode = EXCLUSIVE", "PRAGMA locking_mode", "exclusive"),
    ("PRAGMA journal_mode = WAL", "PRAGMA journal_mode", "wal"),
    ("PRAGMA synchronous = FULL", "PRAGMA synchronous", 2),
    ("PRAGMA foreign_keys = ON", "PRAGMA foreign_keys", 1),
    ("PRAGMA trusted_schema = OFF", "PRAGMA trusted_schema", 0),
    ("PRAGMA cell_size_check = ON", "PRAGMA cell_size_check", 1),
    ("PRAGMA temp_store = MEMORY", "PRAGMA temp_store", 2),
    ("PRAGMA cache_size = -8192", "PRAGMA cache_size", -8192),
    ("PRAGMA journal_size_limit = 33554432", "PRAGMA journal_size_limit", 33554432),
)
"""(statement, how to read the setting back, what must be read). Verified at every start."""

_FULL: Final = frozenset({sqlite3.SQLITE_FULL})
_DAMAGED: Final = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})
_FATAL: Final = {
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_CANTOPEN,
    sqlite3.SQLITE_NOMEM,
    sqlite3.SQLITE_READONLY,
    sqlite3.SQLITE_PROTOCOL,
}


class StoreFailure(Exception):
    """The store can no longer be trusted to write: the daemon must stop and be started again.

    A failed sync is never tried again: the kernel may have dropped the pages.
    """


class Tx:
    """The open transaction as a unit of work sees it."""

    __slots__ = ("_connection", "_execute", "commit_seq")

    def __init__(self, connection: sqlite3.Connection, commit_seq: int) -> None:
        self._execute = connection.execute
        self._connection = connection
        self.commit_seq = commit_seq
        """The commit sequence this unit gets if it changes anything."""

    def run(self, sql: str, parameters: Parameters = ()) -> int:
        """Execute one statement; the number of rows changed."""
        return self._execute(sql, parameters).rowcount

    def insert(self, sql: str, parameters: Parameters = ()) -> int:
        """Execute one INSERT; the new row's integer key."""
        return self._execute(sql, parameters).lastrowid or 0

    def one(self, sql: str, parameters: Parameters = ()) -> Row | None:
        """The first row of a query, or None."""
        row: Row | None = self._execute(sql, parameters).fetchone()
        return row

    def all(self, sql: str, parameters: Parameters = ()) -> list[Row]:
        """All rows of a query; the statement bounds how many."""
        return self._execute(sql, parameters).fetchall()

    @contextmanager
    def whole(self) -> Iterator[None]:
        """All that is done within, or nothing of it where that raises.

        One at a time. Where the transaction itself has ended, the error is all that is left.
        """
        self._execute("SAVEPOINT piece")
        try:
            yield
        except BaseException:
            if self._connection.in_transaction:
                self._execute("ROLLBACK TO piece")
                self._execute("RELEASE piece")
            raise
        self._execute("RELEASE piece")

    def each(self, sql: str, parameters: Parameters = ()) -> Iterable[Row]:
        """The rows of a query one by one, for passes over whole tables."""
        return self._execute(sql, parameters)


Unit = Callable[[Tx], T]
"""A unit of work: re-runnable, with no effect outside its transaction."""


class Committed(NamedTuple, Generic[T]):
    """A unit's result, synced to disk as of `commit_seq` (0 changes: the sequence it read)."""

    value: T
    commit_seq: int


class Refused(NamedTuple):
    """A unit that left no trace, and why."""

    error: Exception


Outcome = Committed[T] | Refused
"""What became of a unit; final when the caller sees it."""


def refusal_of(error: Exception) -> Exception:
    """What a unit's exception means to its caller: an `MbxError`, a `StoreFailure`, or itself."""
    if not isinstance(error, sqlite3.Error):
        return error
    primary = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if primary in _FULL:
        return MbxError(
            "disk-full",
            "the disk is full, nothing was stored",
            "free some space and repeat; reading goes on meanwhile",
        )
    if primary in _DAMAGED:
        # To end here would end every daemon after it too, at the same row, and tell nobody why.
        return MbxError(
            "store-damaged",
            f"what this request needs is damaged in the store ({error}); it was left as it is",
            "mbx daemon stop, keep store.db and store.db-wal aside, then restore a backup",
        )
    if primary in _FATAL or (isinstance(error, sqlite3.DatabaseError) and primary == 0):
        return StoreFailure(f"{type(error).__name__}: {error}")
    return error


def run_group(
    connection: sqlite3.Connection,
    units: Sequence[Unit[Any]],
    hurry: Callable[[], bool] = lambda: False,
) -> list[Outcome[Any]]:
    """Run `units` in one durable transaction; every outcome is final when this returns.

    When `hurry` says so, what has run by then is committed and the units after it are left out:
    there are fewer outcomes than units.

    SQLITE_FULL, IOERR, NOMEM and INTERRUPT end the *whole* transaction, units already released
    included, and a SAVEPOINT after that would commit by itself. So `in_transaction` is looked at
    after each unit that raised and before each SAVEPOINT; if the transaction is gone, or COMMIT
    fails, no result is released: the culprit is refused, the others run again in transactions of
    their own.

    Raises StoreFailure when the store itself failed.
    """
    outcomes, culprit = _run_together(connection, units, hurry)
    if outcomes is None:
        outcomes = [
            culprit[1]
            if culprit and culprit[0] == index
            else _unless_failed(_run_alone(connection, unit))
            for index, unit in enumerate(units)
        ]
    return outcomes


def run_reads(connection: sqlite3.Connection, units: Sequence[Unit[Any]]) -> list[Outcome[Any]]:
    """Run read-only `units` over one snapshot; a unit that tries to write is refused."""
    # Not by PRAGMA query_only: each change of it makes SQLite prepare every statement anew.
    try:
        connection.execute("BEGIN")
        tx = Tx(connection, _commit_seq(connection))
        return [_read(connection, tx, unit) for unit in units]
    except sqlite3.Error as error:
        return [Refused(refusal_of(error)) for _ in units]
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")


def _read(connection: sqlite3.Connection, tx: Tx, unit: Unit[Any]) -> Outcome[Any]:
    before = connection.total_changes
    try:
        value = unit(tx)
    except Exception as error:  # noqa: BLE001  every failure is one unit's own answer
        return Refused(refusal_of(error))
    if connection.total_changes == before:
        return Committed(value, tx.commit_seq)
    connection.execute("ROLLBACK")
    connection.execute("BEGIN")
    return Refused(MbxError("internal", "a unit of work that only reads tried to write"))


def _commit_seq(connection: sqlite3.Connection) -> int:
    row = connection.execute("SELECT value FROM counters WHERE name = 'commit_seq'").fetchone()
    return int(row[0])


def _run_together(
    connection: sqlite3.Connection, units: Sequence[Unit[Any]], hurry: Callable[[], bool]
) -> tuple[list[Outcome[Any]] | None, tuple[int, Refused] | None]:
    """All outcomes; or None and the unit, if one is to blame, that ended the transaction."""
    outcomes: list[Outcome[Any]] = []
    try:
        connection.execute("BEGIN IMMEDIATE")
        first_seq = last_seq = _commit_seq(connection)
        for index, unit in enumerate(units):
            outcome = _unless_failed(_run_in_savepoint(connection, unit, last_seq))
            if outcome is None or not connection.in_transaction:
                lost = outcome if isinstance(outcome, Refused) else Refused(_left_transaction())
                return None, (index, lost)
            if isinstance(outcome, Committed):
                last_seq = outcome.commit_seq
            outcomes.append(outcome)
            if hurry():
                break
        if last_seq != first_seq:
            _save_commit_seq(connection, last_seq)
        connection.execute("COMMIT")
    except sqlite3.Error as error:
        if isinstance(refusal_of(error), StoreFailure):
            raise refusal_of(error) from error
        return None, None
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
    return outcomes, None


def _run_in_savepoint(
    connection: sqlite3.Connection, unit: Unit[Any], last_seq: int
) -> Outcome[Any] | None:
    before = connection.total_changes
    connection.execute("SAVEPOINT unit")
    try:
        value = unit(Tx(connection, last_seq + 1))
    except Exception as error:  # noqa: BLE001  every failure is one unit's own answer
        if connection.in_transaction:
            connection.execute("ROLLBACK TO unit")
            connection.execute("RELEASE unit")
        return Refused(refusal_of(error))
    if not connection.in_transaction:
        return None
    connection.execute("RELEASE unit")
    return Committed(value, last_seq + (connection.total_changes != before))


def _unless_failed(outcome: X) -> X:
    """The outcome, unless it is the store that failed: then nobody is answered any more."""
    if isinstance(outcome, Refused) and isinstance(outcome.error, StoreFailure):
        raise outcome.error
    return outcome


def _run_alone(connection: sqlite3.Connection, unit: Unit[Any]) -> Outcome[Any]:
    before = connection.total_changes
    try:
        connection.execute("BEGIN IMMEDIATE")
        last_seq = _commit_seq(connection)
        value = unit(Tx(connection, last_seq + 1))
        if not connection.in_transaction:
            return Refused(_left_transaction())
        changed = connection.total_changes != before
        if changed:
            _save_commit_seq(connection, last_seq + 1)
        connection.execute("COMMIT")
        return Committed(value, last_seq + changed)
    except Exception as error:  # noqa: BLE001  every failure is one unit's own answer
        return Refused(refusal_of(error))
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")


def _save_commit_seq(connection: sqlite3.Connection, seq: int) -> None:
    connection.execute("UPDATE counters SET value = ? WHERE name = 'commit_seq'", (seq,))


def _left_transaction() -> Exception:
    return MbxError("internal", "a unit of work hid the error that ended its transaction")


def connect(path: str) -> sqlite3.Connection:
    """Open (or create, 0600) the store file with every pragma set and read back.

    Raises MbxError store-damaged (not an SQLite file, damaged), disk-full, and StoreFailure (a
    setting that did not take: the file system cannot carry the store).
    """
    if path != ":memory:":
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600))
    connection = sqlite3.connect(
        path, isolation_level=None, check_same_thread=False, cached_statements=256
    )
    try:
        for statement, question, wanted in PRAGMAS:
            # To the end: a statement left at its first row fails unheard where it is to be written.
            connection.execute(statement).fetchall()
            found = connection.execute(question).fetchone()[0]
            if found != wanted and not (path == ":memory:" and found == "memory"):
                raise StoreFailure(f"{statement}: the store answered {found!r}, not {wanted!r}")
    except sqlite3.DatabaseError as error:
        connection.close()
        raise _cannot_open(path, error) from error
    except StoreFailure:
        connection.close()
        raise
    return connection


def _cannot_open(path: str, error: sqlite3.DatabaseError) -> Exception:
    primary = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if primary in _DAMAGED:
        return MbxError(
            "store-damaged",
            f"{path} is damaged or not an mbx store ({error}); it was left as it is",
            f"keep {path} and its -wal file aside, then restore a backup",
            path=path,
        )
    return refusal_of(error) if primary in _FULL else StoreFailure(f"{path}: {error}")


class Place:
    """Where an open store lies: whether the files at its path still are those that were opened.

    SQLite goes on with files that were removed, or moved away, and syncs to them what nobody will
    ever find again. Their descriptors are open, so no other file has their numbers.
    """

    def __init__(self, path: str) -> None:
        self._files: dict[str, tuple[int, int] | None] = {path: _file_at(path), path + "-wal": None}

    def check(self) -> None:
        """Raises StoreFailure when a file was removed or replaced. The log counts once it is seen.

        A folder that cannot be looked into tells nothing.
        """
        for path, opened in self._files.items():
            try:
                there = _file_at(path)
            except (FileNotFoundError, NotADirectoryError):
                there = None
            except OSError:
                continue
            if opened is None:
                self._files[path] = there
            elif there != opened:
                what = "replaced" if there else "removed"
                raise StoreFailure(f"{path} was {what} while the daemon had it open")


def _file_at(path: str) -> tuple[int, int]:
    found = os.stat(path, follow_symlinks=False)
    return found.st_dev, found.st_ino


class Database:
    """The asynchronous shell: one connection, one thread, one hop for each group of units.

    `place`: where the store lies, None for one in memory.
    """

    def __init__(self, connection: aiosqlite.Connection, place: Place | None = None) -> None:
        self._connection = connection
        self._place = place

    @classmethod
    async def open(
        cls, prepare: Callable[[], sqlite3.Connection], place: Place | None = None
    ) -> "Database":
        """Give the connection that `prepare` makes a thread of its own.

        `prepare` should not fail: open the store first, where its errors can be told.
        """
        return cls(await aiosqlite.Connection(prepare, iter_chunk_size=64), place)

    def check_place(self) -> None:
        """Raises StoreFailure when the store is no longer where it was opened."""
        if self._place is not None:
            self._place.check()

    async def write(
        self, units: Sequence[Unit[Any]], hurry: Callable[[], bool] = lambda: False
    ) -> list[Outcome[Any]]:
        """`run_group` in the connection's thread; `hurry` is asked there.

        Raises StoreFailure too when what was synced is not in the store that the next daemon opens.
        """
        return await self._hop(self._run_group, units, hurry)

    def _run_group(
        self, connection: sqlite3.Connection, units: Sequence[Unit[Any]], hurry: Callable[[], bool]
    ) -> list[Outcome[Any]]:
        outcomes = run_group(connection, units, hurry)
        self.check_place()
        return outcomes

    async def read(self, units: Sequence[Unit[Any]]) -> list[Outcome[Any]]:
        """`run_reads` in the connection's thread."""
        return await self._hop(run_reads, units)

    def read_here(self, unit: Unit[Any]) -> Outcome[Any]:
        """`run_reads` of one unit in the caller's thread.

        Only while no hop is under way: the connection is one thread's at a time, whoever it is.
        """
        return run_reads(self._connection._conn, [unit])[0]

    async def close(self) -> None:
        """Checkpoint the log into the file and close."""
        await self._connection.close()

    async def _hop(
        self,
        act: Callable[..., list[Outcome[Any]]],
        units: Sequence[Unit[Any]],
        *more: object,
    ) -> list[Outcome[Any]]:
        # aiosqlite has no public way to run a function in its thread; statement by statement costs
        # 90-200 µs each. tests/store/test_database.py fails when a release changes these two names.
        execute: Callable[..., Awaitable[list[Outcome[Any]]]] = self._connection._execute
        return await execute(act, self._connection._conn, units, *more)
