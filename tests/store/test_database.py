"""Units of work, savepoints, the group commit and its failures."""

import asyncio
import contextlib
import os
import sqlite3
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from mbx.core.errors import MbxError
from mbx.store.database import (
    PRAGMAS,
    Committed,
    Database,
    Place,
    Refused,
    StoreFailure,
    Tx,
    connect,
    refusal_of,
    run_group,
    run_reads,
)
from mbx.store.migrate import open_store

PAGE_BYTES = 4_096


@pytest.fixture
def connection(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    made = open_store(str(tmp_path / "store.db"))
    made.execute("CREATE TABLE notes (no INTEGER PRIMARY KEY, text TEXT NOT NULL UNIQUE) STRICT")
    yield made
    made.close()


def note(text: str) -> Callable[[Tx], int]:
    return lambda tx: tx.insert("INSERT INTO notes (text) VALUES (?)", (text,))


def failing(error: Exception) -> Callable[[Tx], None]:
    def unit(tx: Tx) -> None:
        tx.run("INSERT INTO notes (text) VALUES ('of a unit that fails')")
        raise error

    return unit


def notes(connection: sqlite3.Connection) -> list[str]:
    return [row[0] for row in connection.execute("SELECT text FROM notes ORDER BY no")]


def commit_seq(connection: sqlite3.Connection) -> int:
    row = connection.execute("SELECT value FROM counters WHERE name = 'commit_seq'").fetchone()
    return int(row[0])


# -- groups ---------------------------------------------------------------------------------------


def test_a_group_commits_all_its_units_in_order_with_growing_sequences(
    connection: sqlite3.Connection,
) -> None:
    outcomes = run_group(connection, [note("a"), note("b"), note("c")])
    assert outcomes == [Committed(1, 1), Committed(2, 2), Committed(3, 3)]
    assert notes(connection) == ["a", "b", "c"]
    assert commit_seq(connection) == 3
    assert not connection.in_transaction


def test_a_unit_that_fails_leaves_no_trace_and_hurts_nobody(connection: sqlite3.Connection) -> None:
    error = MbxError("conflict", "no")
    outcomes = run_group(connection, [note("a"), failing(error), note("c")])
    assert outcomes == [Committed(1, 1), Refused(error), Committed(2, 2)]
    assert notes(connection) == ["a", "c"]


def test_a_piece_of_a_unit_that_fails_leaves_no_trace_in_it(connection: sqlite3.Connection) -> None:
    def unit(tx: Tx) -> int:
        note("before")(tx)
        with contextlib.suppress(ValueError), tx.whole():
            note("in a piece that fails")(tx)
            raise ValueError
        with tx.whole():
            note("in a piece that does not")(tx)
        return note("after")(tx)

    assert run_group(connection, [unit, note("of another")]) == [Committed(3, 1), Committed(4, 2)]
    assert notes(connection) == ["before", "in a piece that does not", "after", "of another"]
    assert run_group(connection, [failing_within_a_piece])[0] == Refused(NO)
    assert len(notes(connection)) == 4


NO = MbxError("conflict", "no")


def failing_within_a_piece(tx: Tx) -> None:
    """All of the unit goes where nobody takes care of its piece."""
    note("outside")(tx)
    with tx.whole():
        note("within")(tx)
        raise NO


def test_a_disk_that_is_full_within_a_piece_refuses_the_unit_and_keeps_the_others(
    connection: sqlite3.Connection,
) -> None:
    limit_pages(connection, 2)

    def unit(tx: Tx) -> None:
        with tx.whole():
            grow(64)(tx)

    first, full, last = run_group(connection, [note("a"), unit, note("c")])
    assert isinstance(first, Committed)
    assert isinstance(last, Committed)
    assert isinstance(full, Refused)
    assert isinstance(full.error, MbxError)
    assert full.error.code == "disk-full"
    assert notes(connection) == ["a", "c"]


def test_a_broken_constraint_is_one_units_own_failure(connection: sqlite3.Connection) -> None:
    first, second, third = run_group(connection, [note("a"), note("a"), note("b")])
    assert isinstance(first, Committed)
    assert isinstance(second, Refused)
    assert isinstance(second.error, sqlite3.IntegrityError)
    assert isinstance(third, Committed)


def test_a_unit_that_changes_nothing_takes_no_sequence(connection: sqlite3.Connection) -> None:
    looking: Callable[[Tx], Any] = lambda tx: tx.one("SELECT count(*) FROM notes")  # noqa: E731
    assert run_group(connection, [note("a"), looking, note("b")]) == [
        Committed(1, 1),
        Committed((1,), 1),
        Committed(2, 2),
    ]


def test_a_unit_knows_the_sequence_it_will_get(connection: sqlite3.Connection) -> None:
    def unit(tx: Tx) -> int:
        tx.run("INSERT INTO notes (text) VALUES ('x')")
        return tx.commit_seq

    run_group(connection, [note("a")])
    refused, committed = run_group(connection, [failing(ValueError("no")), unit])
    assert isinstance(refused, Refused)
    assert committed == Committed(2, 2)


def grow(count: int) -> Callable[[Tx], None]:
    """A unit that needs `count` pages of four KiB."""

    def unit(tx: Tx) -> None:
        for number in range(count):
            tx.run("INSERT INTO notes (text) VALUES (?)", (f"{number}" + "x" * 4_000,))

    return unit


def limit_pages(connection: sqlite3.Connection, spare: int) -> None:
    pages = connection.execute("PRAGMA page_count").fetchone()[0]
    connection.execute(f"PRAGMA max_page_count = {pages + spare}")


def test_in_a_group_of_four_the_third_that_fills_the_disk_is_refused_and_the_others_are_kept(
    connection: sqlite3.Connection,
) -> None:
    limit_pages(connection, 8)
    runs: list[str] = []

    def counted(name: str) -> Callable[[Tx], None]:
        def unit(tx: Tx) -> None:
            runs.append(name)
            tx.run("INSERT INTO notes (text) VALUES (?)", (name,))

        return unit

    outcomes = run_group(connection, [counted("1"), counted("2"), grow(50), counted("4")])
    assert [type(outcome).__name__ for outcome in outcomes] == [
        "Committed",
        "Committed",
        "Refused",
        "Committed",
    ]
    full = outcomes[2]
    assert isinstance(full, Refused)
    assert isinstance(full.error, MbxError)
    assert full.error.code == "disk-full"
    assert notes(connection) == ["1", "2", "4"]
    assert runs == ["1", "2", "1", "2", "4"], "the others ran again, each in its own transaction"
    assert commit_seq(connection) == 3


def test_the_store_writes_again_when_there_is_room_again(connection: sqlite3.Connection) -> None:
    limit_pages(connection, 4)
    refused = run_group(connection, [grow(50)])[0]
    assert isinstance(refused, Refused)
    assert run_reads(connection, [lambda tx: tx.one("SELECT count(*) FROM notes")])[0] == (
        Committed((0,), 0)
    )
    limit_pages(connection, 1_000)
    assert isinstance(run_group(connection, [grow(50)])[0], Committed)


def test_a_unit_that_hides_the_end_of_its_transaction_is_found_out(
    connection: sqlite3.Connection,
) -> None:
    limit_pages(connection, 8)

    def hiding(tx: Tx) -> str:
        try:
            grow(50)(tx)
        except sqlite3.OperationalError:
            pass
        return "all is well"

    outcomes = run_group(connection, [note("a"), hiding, note("c")])
    assert isinstance(outcomes[1], Refused)
    assert isinstance(outcomes[1].error, MbxError)
    assert outcomes[1].error.code == "internal"
    assert notes(connection) == ["a", "c"]
    alone = run_group(connection, [hiding])[0]
    assert isinstance(alone, Refused)


def test_when_commit_fails_nobody_is_answered_from_it_and_all_run_again_alone(
    connection: sqlite3.Connection,
) -> None:
    connection.execute("CREATE TABLE parents (no INTEGER PRIMARY KEY) STRICT")
    connection.execute(
        "CREATE TABLE children (parent INTEGER REFERENCES parents (no)"
        " DEFERRABLE INITIALLY DEFERRED) STRICT"
    )
    orphan: Callable[[Tx], Any] = lambda tx: tx.run("INSERT INTO children VALUES (7)")  # noqa: E731
    outcomes = run_group(connection, [note("a"), orphan, note("c")])
    assert isinstance(outcomes[0], Committed)
    assert isinstance(outcomes[1], Refused)
    assert isinstance(outcomes[1].error, sqlite3.IntegrityError)
    assert isinstance(outcomes[2], Committed)
    assert notes(connection) == ["a", "c"]


class Failing(sqlite3.Connection):
    """A connection whose COMMIT meets an I/O error, as a failing disk makes it."""

    def execute(self, sql: str, *rest: Any) -> sqlite3.Cursor:
        if sql == "COMMIT":
            error = sqlite3.OperationalError("disk I/O error")
            error.sqlite_errorcode = sqlite3.SQLITE_IOERR
            raise error
        return super().execute(sql, *rest)


def test_a_failed_sync_is_never_tried_again(tmp_path: Path) -> None:
    path = str(tmp_path / "store.db")
    open_store(path).close()
    connection = sqlite3.connect(path, isolation_level=None, factory=Failing)
    runs: list[int] = []
    unit: Callable[[Tx], Any] = lambda tx: runs.append(  # noqa: E731
        tx.run("UPDATE counters SET value = value + 1 WHERE name = 'indexed_message'")
    )
    with pytest.raises(StoreFailure, match="disk I/O error"):
        run_group(connection, [unit])
    assert runs == [1]
    connection.close()


def test_a_damaged_page_costs_the_units_that_meet_it_and_is_named(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    connection = open_store(str(path))
    connection.execute("CREATE TABLE notes (no INTEGER PRIMARY KEY, text TEXT) STRICT")
    run_group(connection, [note("x" * 100_000), note("short")])
    connection.close()
    with path.open("r+b") as file:  # in the midst of the long text's chain of pages
        file.seek(-PAGE_BYTES * 10, os.SEEK_END)
        file.write(b"\xff" * PAGE_BYTES)
    connection = open_store(str(path))
    whole: Callable[[Tx], Any] = lambda tx: tx.all("SELECT text FROM notes")  # noqa: E731
    for outcomes in (
        run_group(connection, [note("a"), whole, note("b")]),
        run_reads(connection, [note("a"), whole, lambda tx: tx.commit_seq]),
    ):
        damaged = outcomes[1]
        assert isinstance(damaged, Refused)
        assert isinstance(damaged.error, MbxError)
        assert damaged.error.code == "store-damaged"
        assert isinstance(outcomes[2], Committed)
    assert connection.execute("SELECT text FROM notes WHERE no > 1").fetchall() == [
        ("short",),
        ("a",),
        ("b",),
    ]
    connection.close()


@pytest.mark.parametrize("run", [run_group, run_reads])
@pytest.mark.parametrize("code", [sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB])
def test_a_store_that_begins_nothing_because_it_is_damaged_says_so_to_everybody(
    run: Callable[..., Any], code: int, tmp_path: Path
) -> None:
    class Damaged(sqlite3.Connection):
        def execute(self, sql: str, *rest: Any) -> sqlite3.Cursor:
            if sql.startswith("BEGIN"):
                error = sqlite3.DatabaseError("database disk image is malformed")
                error.sqlite_errorcode = code
                raise error
            return super().execute(sql, *rest)

    connection = sqlite3.connect(":memory:", isolation_level=None, factory=Damaged)
    for outcome in run(connection, [note("a"), note("b")]):
        assert isinstance(outcome, Refused)
        assert isinstance(outcome.error, MbxError)
        assert outcome.error.code == "store-damaged"
    connection.close()


def test_what_is_no_error_of_the_store_stays_what_it_is() -> None:
    error = KeyError("x")
    assert refusal_of(error) is error


# -- reads ----------------------------------------------------------------------------------------


def test_reads_see_one_snapshot_and_cannot_write(connection: sqlite3.Connection) -> None:
    run_group(connection, [note("a")])
    seen, refused = run_reads(
        connection, [lambda tx: tx.all("SELECT text FROM notes"), note("by a reader")]
    )
    assert seen == Committed([("a",)], 1)
    assert isinstance(refused, Refused)
    assert notes(connection) == ["a"]
    assert isinstance(run_group(connection, [note("b")])[0], Committed)


def test_a_reader_that_writes_leaves_no_trace_for_the_readers_after_it(
    connection: sqlite3.Connection,
) -> None:
    count: Callable[[Tx], Any] = lambda tx: tx.one("SELECT count(*) FROM notes")  # noqa: E731
    outcomes = run_reads(connection, [count, note("x"), count])
    assert [type(outcome) for outcome in outcomes] == [Committed, Refused, Committed]
    assert outcomes[2] == Committed((0,), 0)


def test_a_group_in_a_hurry_commits_what_it_has_and_leaves_the_rest_out(
    connection: sqlite3.Connection,
) -> None:
    asked: list[int] = []

    def hurry() -> bool:
        asked.append(1)
        return len(asked) == 2

    outcomes = run_group(connection, [note("a"), note("b"), note("c")], hurry)
    assert outcomes == [Committed(1, 1), Committed(2, 2)]
    assert notes(connection) == ["a", "b"]


# -- opening --------------------------------------------------------------------------------------


def test_every_setting_is_read_back_at_the_start(tmp_path: Path) -> None:
    connection = connect(str(tmp_path / "store.db"))
    for _, question, wanted in PRAGMAS:
        assert connection.execute(question).fetchone()[0] == wanted
    connection.close()


def test_a_setting_that_does_not_take_stops_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = (("PRAGMA foreign_keys = ON", "PRAGMA foreign_keys", 2),)
    monkeypatch.setattr("mbx.store.database.PRAGMAS", asked)
    with pytest.raises(StoreFailure, match="answered 1, not 2"):
        connect(str(tmp_path / "store.db"))


def test_store_and_log_are_private_whatever_the_umask(tmp_path: Path) -> None:
    old_mask = os.umask(0)
    try:
        connection = open_store(str(tmp_path / "store.db"))
    finally:
        os.umask(old_mask)
    for name in ("store.db", "store.db-wal"):
        assert stat.S_IMODE((tmp_path / name).stat().st_mode) == 0o600
    connection.close()


def test_nobody_else_can_open_the_store_even_to_read(tmp_path: Path) -> None:
    path = str(tmp_path / "store.db")
    connection = open_store(path)
    other = sqlite3.connect(path, timeout=0)
    with pytest.raises(sqlite3.OperationalError, match="locked"):
        other.execute("SELECT * FROM counters")
    other.close()
    connection.close()


def test_a_file_that_is_no_store_is_named_and_left(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    path.write_bytes(b"SQLite format 3\0" + b"\xff" * 5_000)
    with pytest.raises(MbxError) as caught:
        connect(str(path))
    assert caught.value.code == "store-damaged"
    assert str(path) in caught.value.message


# -- the asynchronous shell -----------------------------------------------------------------------


async def test_aiosqlite_still_has_the_one_way_into_its_thread(tmp_path: Path) -> None:
    database = await Database.open(lambda: open_store(str(tmp_path / "store.db")))
    try:
        set_counter: Callable[[Tx], Any] = lambda tx: tx.run(  # noqa: E731
            "UPDATE counters SET value = 5 WHERE name = 'indexed_message'"
        )
        assert await database.write([set_counter]) == [Committed(1, 1)]
        question = "SELECT value FROM counters WHERE name = 'indexed_message'"
        assert await database.read([lambda tx: tx.one(question)]) == [Committed((5,), 1)]
    finally:
        await database.close()


async def test_units_of_many_tasks_never_share_a_half_done_transaction(tmp_path: Path) -> None:
    database = await Database.open(lambda: open_store(str(tmp_path / "store.db")))
    bump: Callable[[Tx], Any] = lambda tx: tx.run(  # noqa: E731
        "UPDATE counters SET value = value + 1 WHERE name = 'indexed_message'"
    )
    try:
        tasks = [asyncio.create_task(database.write([bump])) for _ in range(20)]
        await asyncio.sleep(0)
        for task in tasks[::3]:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        question = "SELECT value FROM counters WHERE name = 'indexed_message'"
        outcome = (await database.read([lambda tx: tx.one(question)]))[0]
        assert outcome == Committed((20,), 20), "a cancelled caller cancels no unit"
    finally:
        await database.close()


def test_a_reader_in_a_group_that_runs_again_alone_takes_no_sequence(
    connection: sqlite3.Connection,
) -> None:
    limit_pages(connection, 8)
    looking: Callable[[Tx], Any] = lambda tx: tx.one("SELECT 7")  # noqa: E731
    outcomes = run_group(connection, [note("a"), grow(50), looking])
    assert outcomes[0] == Committed(1, 1)
    assert outcomes[2] == Committed((7,), 1)


def test_two_units_that_each_end_the_transaction_are_both_found_out(
    connection: sqlite3.Connection,
) -> None:
    limit_pages(connection, 8)

    def hiding(tx: Tx) -> None:
        with contextlib.suppress(sqlite3.OperationalError):
            grow(50)(tx)

    outcomes = run_group(connection, [note("a"), hiding, hiding, note("d")])
    assert [type(outcome) for outcome in outcomes] == [Committed, Refused, Refused, Committed]
    assert notes(connection) == ["a", "d"]


def test_a_store_that_cannot_be_opened_is_a_failure_of_the_place(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    path.write_bytes(b"")
    path.with_name("store.db-wal").mkdir()
    with pytest.raises(StoreFailure, match=r"store\.db"):
        connect(str(path))


# -- the files at their place ---------------------------------------------------------------------


def lose(path: Path, fate: str) -> None:
    content = path.read_bytes()
    path.rename(path.with_name("elsewhere"))
    if fate == "replaced":
        path.write_bytes(content)


@pytest.mark.parametrize("suffix", ["", "-wal"])
@pytest.mark.parametrize("fate", ["removed", "replaced"])
async def test_what_is_synced_to_a_file_that_lost_its_place_is_not_committed(
    fate: str, suffix: str, tmp_path: Path
) -> None:
    path = tmp_path / "store.db"
    made = open_store(str(path))
    made.execute("CREATE TABLE notes (no INTEGER PRIMARY KEY, text TEXT NOT NULL UNIQUE) STRICT")
    database = await Database.open(lambda: made, Place(str(path)))
    assert isinstance((await database.write([note("in its place")]))[0], Committed)
    database.check_place()
    lose(tmp_path / f"store.db{suffix}", fate)
    with pytest.raises(StoreFailure, match=f"store.db{suffix} was {fate}"):
        await database.write([note("in no place")])
    with pytest.raises(StoreFailure):
        database.check_place()
    await database.close()


def test_a_place_that_cannot_be_looked_at_is_not_lost(tmp_path: Path) -> None:
    folder = tmp_path / "home"
    folder.mkdir()
    store = folder / "store.db"
    store.touch()
    place = Place(str(store))
    folder.rename(tmp_path / "aside")
    folder.symlink_to(folder)  # a loop: stat says neither that it is there nor that it is not
    place.check()
    folder.unlink()
    with pytest.raises(StoreFailure):
        place.check()
    (tmp_path / "aside").rename(folder)
    place.check()
