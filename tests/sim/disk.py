"""The disk below a simulated daemon: what is committed stays, all else is gone at a crash.

The store is a real SQLite database in memory. A crash rolls the open transaction back before any
code of ours runs again, and the next daemon gets a copy of the committed pages. Faults are raised
where SQLite would raise them: a full disk ends the whole transaction, a failed statement ends
itself, an I/O error at COMMIT leaves open whether it was carried out.
"""

import sqlite3
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from mbx.store.database import PRAGMAS

GROUP_POINTS: Final = (
    "before BEGIN",
    "after BEGIN",
    "inside a unit",
    "after a unit",
    "before COMMIT",
    "after COMMIT",
)
OFFICE_POINTS: Final = (
    "before the effects",
    "between effects",
    "before an answer",
    "between answers",
    "after the answers",
)
IDLE_POINTS: Final = ("while idle", "during the start", "the machine's power")
POINTS: Final = (*GROUP_POINTS, *OFFICE_POINTS, *IDLE_POINTS)
"""Where a daemon can die, by name."""

FAULTS: Final = (
    "disk full",
    "disk full at COMMIT",
    "statement fails",
    "I/O error, nothing written",
    "I/O error, all written",
)
"""What a group can meet besides a crash."""

_WRITES: Final = ("INSERT", "UPDATE", "DELETE")


class Crash(BaseException):
    """The daemon is gone: no code of ours may catch this."""

    def __init__(self, point: str) -> None:
        super().__init__(point)
        self.point = point


@dataclass
class Plan:
    """What goes wrong in one group, at the `count`-th chance to."""

    point: str
    count: int = 1
    done: bool = False

    def strikes(self, point: str) -> bool:
        """Is it now?"""
        if self.done or point != self.point:
            return False
        self.count -= 1
        self.done = self.count <= 0
        return self.done


class SimConnection(sqlite3.Connection):
    """A connection that tells of its commits and fails as planned."""

    plan: Plan | None = None
    pending: list[tuple[int, int | None]]
    """(commit sequence, attempt) of the units that the open transaction has carried out."""
    note: Callable[[int, int | None], None]
    """Called with each of them once it is committed."""

    def execute(self, sql: str, parameters: Any = (), /) -> sqlite3.Cursor:
        if sql[0] in "BSRC" and sql.startswith(("BEGIN", "SAVEPOINT", "RELEASE", "COMMIT")):
            return self._boundary(sql)
        if self.plan is not None and sql.startswith(_WRITES):
            self._strike("inside a unit")
            self._fail_statement()
        return super().execute(sql, parameters)

    def _boundary(self, sql: str) -> sqlite3.Cursor:
        if sql == "COMMIT":
            return self._commit()
        if sql.startswith("BEGIN"):
            self._strike("before BEGIN")
            self.pending = []
        cursor = super().execute(sql)
        if sql.startswith("BEGIN"):
            self._strike("after BEGIN")
        elif sql.startswith("RELEASE"):
            self._strike("after a unit")
        if not self.in_transaction:  # a savepoint outside a transaction commits by itself
            self._note_commit()
        return cursor

    def _commit(self) -> sqlite3.Cursor:
        self._strike("before COMMIT")
        if self._planned("disk full at COMMIT"):
            raise _failure(sqlite3.SQLITE_FULL, "database or disk is full")
        if self._planned("I/O error, nothing written"):
            raise _failure(sqlite3.SQLITE_IOERR, "disk I/O error")
        cursor = super().execute("COMMIT")
        self._note_commit()
        if self._planned("I/O error, all written"):
            raise _failure(sqlite3.SQLITE_IOERR, "disk I/O error")
        self._strike("after COMMIT")
        return cursor

    def _note_commit(self) -> None:
        noted, self.pending = self.pending, []
        for seq, attempt in noted:
            self.note(seq, attempt)

    def _planned(self, point: str) -> bool:
        return self.plan is not None and self.plan.strikes(point)

    def _strike(self, point: str) -> None:
        if self._planned(point):
            self.lose_power()
            raise Crash(point)

    def _fail_statement(self) -> None:
        if self._planned("disk full"):
            self.lose_power()
            raise _failure(sqlite3.SQLITE_FULL, "database or disk is full")
        if self._planned("statement fails"):
            raise _failure(sqlite3.SQLITE_TOOBIG, "string or blob too big")

    def lose_power(self) -> None:
        """Whatever is not committed is gone."""
        self.pending = []
        if self.in_transaction:
            super().execute("ROLLBACK")


def _failure(code: int, words: str) -> sqlite3.OperationalError:
    error = sqlite3.OperationalError(words)
    error.sqlite_errorcode = code
    return error


def open_image(pages: bytes, note: Callable[[int, int | None], None]) -> SimConnection:
    """A connection to a store of these pages, with the settings of the real one."""
    connection = sqlite3.connect(
        ":memory:", isolation_level=None, cached_statements=256, factory=SimConnection
    )
    connection.pending, connection.note = [], note
    connection.deserialize(pages)
    for statement, _, _ in PRAGMAS:
        if (
            "journal_mode" not in statement
        ):  # pages in a log beside the file would not be in `pages`
            connection.execute(statement)
    return connection
