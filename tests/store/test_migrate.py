"""Migrations, and files that are not ours to open."""

import os
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from mbx.core.errors import MbxError
from mbx.store.database import APPLICATION_ID, StoreFailure
from mbx.store.migrate import Migration, migrations, open_store

FIRST = Migration(
    1,
    "CREATE TABLE a (x INTEGER) STRICT;\n"
    f"PRAGMA application_id = {APPLICATION_ID};\nPRAGMA user_version = 1;\n",
)
SECOND = Migration(
    2,
    "CREATE TABLE b (x INTEGER) STRICT;\n"
    "CREATE TRIGGER t AFTER INSERT ON a BEGIN INSERT INTO b VALUES (1); SELECT 1; END;\n"
    "PRAGMA user_version = 2;\n",
)


def tables(connection: sqlite3.Connection) -> set[str]:
    return {row[0] for row in connection.execute("SELECT name FROM sqlite_schema")}


def test_the_migrations_are_numbered_without_a_gap() -> None:
    assert [step.number for step in migrations()] == list(range(1, len(migrations()) + 1))


def test_a_new_store_has_our_application_id_and_newest_version(tmp_path: Path) -> None:
    connection = open_store(str(tmp_path / "store.db"))
    assert connection.execute("PRAGMA application_id").fetchone()[0] == APPLICATION_ID
    assert connection.execute("PRAGMA user_version").fetchone()[0] == len(migrations())
    connection.close()


def test_every_table_is_strict(tmp_path: Path) -> None:
    connection = open_store(str(tmp_path / "store.db"))
    ours = "SELECT name, strict FROM pragma_table_list WHERE type = 'table' AND schema = 'main'"
    loose = {row[0] for row in connection.execute(ours) if not row[1]}
    assert {name for name in loose if not name.startswith(("search", "sqlite"))} == set()
    connection.close()


def test_a_store_is_upgraded_step_by_step_after_a_checked_backup(tmp_path: Path) -> None:
    path = str(tmp_path / "store.db")
    old = open_store(path, [FIRST])
    old.execute("INSERT INTO a VALUES (42)")
    old.close()
    new = open_store(path, [FIRST, SECOND])
    assert {"a", "b", "t"} <= tables(new)
    new.close()
    backup = sqlite3.connect(f"{path}.before-2")
    assert backup.execute("SELECT x FROM a").fetchall() == [(42,)]
    assert "b" not in tables(backup)
    backup.close()
    assert os.stat(f"{path}.before-2").st_mode & 0o077 == 0


def test_mail_from_outside_that_an_older_mbx_stored_keeps_the_time_of_its_first_exposure(
    tmp_path: Path,
) -> None:
    path = str(tmp_path / "store.db")
    old = open_store(path, migrations()[:3])
    told = [
        (1, '{"external_since":7,"origin":null}', 7),
        (1, '{"external_since":7,"origin":"external"}', None),
        (1, '{"external_since":"x","origin":null}', None),
        (0, '{"external_since":null,"origin":null}', None),
    ]
    for external, payload, _ in told:
        old.execute(
            "INSERT INTO messages (id8, id, thread, accepted_ms, kind, needs_reply, plain,"
            " body_bytes, subject, digest, signature, payload, external) VALUES (1, ?1, ?1, 1,"
            " 'message', 0, 1, 0, 's', zeroblob(32), zeroblob(64), ?2, ?3)",
            ("i" * 26, payload, external),
        )
    old.close()
    new = open_store(path)
    roots = [row[0] for row in new.execute("SELECT root_ms FROM messages ORDER BY no")]
    new.close()
    assert roots == [root_ms for _, _, root_ms in told]


def test_a_migration_that_breaks_in_the_middle_leaves_the_old_version_whole(tmp_path: Path) -> None:
    path = str(tmp_path / "store.db")
    open_store(path, [FIRST]).close()
    broken = Migration(2, "CREATE TABLE b (x INTEGER) STRICT;\nINSERT INTO nowhere VALUES (1);\n")
    with pytest.raises(sqlite3.OperationalError, match="nowhere"):
        open_store(path, [FIRST, broken])
    connection = sqlite3.connect(path)
    assert "b" not in tables(connection)
    assert connection.execute("PRAGMA user_version").fetchone()[0] == 1
    connection.close()


def test_a_new_store_is_made_whole_or_not_at_all(tmp_path: Path) -> None:
    path = str(tmp_path / "store.db")
    broken = Migration(2, "INSERT INTO nowhere VALUES (1);\n")
    with pytest.raises(sqlite3.OperationalError, match="nowhere"):
        open_store(path, [FIRST, broken])
    open_store(path, [FIRST, SECOND]).close()
    left = {file.name for file in tmp_path.iterdir()}
    assert left == {"store.db"}, "there was nothing to back up"


@pytest.mark.parametrize(
    "script", ["CREATE TABLE b (x INTEGER) STRICT;\n", "PRAGMA user_version = 2;\nSELECT"]
)
def test_a_migration_that_is_not_whole_is_refused(tmp_path: Path, script: str) -> None:
    with pytest.raises(StoreFailure):
        open_store(str(tmp_path / "store.db"), [FIRST, Migration(2, script)])


def test_migrations_with_a_gap_are_a_damaged_installation(tmp_path: Path) -> None:
    (tmp_path / "0001_a.sql").write_text("")
    (tmp_path / "0003_c.sql").write_text("")
    with pytest.raises(StoreFailure, match="installation is damaged"):
        migrations(str(tmp_path))


def test_a_migration_that_orphans_rows_is_found(tmp_path: Path) -> None:
    orphaning = Migration(
        1,
        "CREATE TABLE p (no INTEGER PRIMARY KEY) STRICT;\n"
        "CREATE TABLE c (p INTEGER REFERENCES p (no) DEFERRABLE INITIALLY DEFERRED) STRICT;\n"
        "PRAGMA defer_foreign_keys = ON;\nPRAGMA user_version = 1;\n",
    )
    path = str(tmp_path / "store.db")
    connection = open_store(path, [orphaning])
    connection.execute("PRAGMA foreign_keys = OFF")
    connection.execute("INSERT INTO c VALUES (9)")
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    connection.close()
    with pytest.raises(MbxError, match="rows that are missing") as caught:
        open_store(path, [orphaning, SECOND_ALONE])
    assert caught.value.code == "store-damaged"


SECOND_ALONE = Migration(2, "CREATE TABLE d (x INTEGER) STRICT;\nPRAGMA user_version = 2;\n")


@pytest.mark.parametrize(
    ("content", "code"),
    [
        (b"hello, this is a letter", "store-damaged"),
        (b"x" * 4_096, "store-damaged"),
        (b"SQLite format 3\0", "store-damaged"),
    ],
)
def test_a_file_that_is_no_store_is_refused_byte_for_byte(
    tmp_path: Path, content: bytes, code: str
) -> None:
    path = tmp_path / "store.db"
    path.write_bytes(content)
    with pytest.raises(MbxError) as caught:
        open_store(str(path))
    assert caught.value.code == code
    assert path.read_bytes() == content
    assert os.listdir(tmp_path) == ["store.db"]


def make_database(path: Path, application_id: int, version: int) -> bytes:
    other = sqlite3.connect(path)
    other.execute("CREATE TABLE letters (x)")
    other.execute(f"PRAGMA application_id = {application_id}")
    other.execute(f"PRAGMA user_version = {version}")
    other.commit()
    other.close()
    return path.read_bytes()


def test_another_programs_database_is_refused_untouched(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    before = make_database(path, 1234, 1)
    with pytest.raises(MbxError) as caught:
        open_store(str(path))
    assert caught.value.code == "store-damaged"
    assert path.read_bytes() == before


def test_a_newer_store_is_refused_untouched(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    before = make_database(path, APPLICATION_ID, len(migrations()) + 1)
    with pytest.raises(MbxError) as caught:
        open_store(str(path))
    assert caught.value.code == "version-mismatch"
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["store.db"]


def test_a_newer_version_that_only_the_log_tells_of_is_refused_too(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    connection = open_store(str(path))
    connection.execute(f"PRAGMA user_version = {len(migrations()) + 1}")
    saved = (path.read_bytes(), (tmp_path / "store.db-wal").read_bytes())
    connection.close()
    path.write_bytes(saved[0])
    (tmp_path / "store.db-wal").write_bytes(saved[1])
    with pytest.raises(MbxError) as caught:
        open_store(str(path))
    assert caught.value.code == "version-mismatch"


def test_an_empty_file_of_a_start_that_was_killed_becomes_a_store(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    path.write_bytes(b"")
    connection = open_store(str(path))
    assert connection.execute("PRAGMA user_version").fetchone() == (len(migrations()),)
    connection.close()


@pytest.mark.parametrize("make", [os.mkdir, os.mkfifo])
def test_a_store_that_is_no_file_is_named_and_not_waited_for(
    make: Callable[[Path], None], tmp_path: Path
) -> None:
    path = tmp_path / "store.db"
    make(path)
    with pytest.raises(MbxError, match=r"store\.db is not a regular file") as caught:
        open_store(str(path))
    assert caught.value.code == "store-damaged"


def test_a_followed_chain_keeps_its_place_when_its_digest_goes(tmp_path: Path) -> None:
    path, chain = str(tmp_path / "store.db"), "c" * 26
    connection = open_store(path, migrations()[:9])
    connection.execute(
        "INSERT INTO followed_chains (chain, first_version, version, digest, ended_version)"
        " VALUES (?, 2, 7, ?, 3)",
        (chain, b"d" * 32),
    )
    connection.commit()
    connection.close()
    connection = open_store(path)
    assert connection.execute("SELECT * FROM followed_chains").fetchall() == [(chain, 2, 7, 3)]
    connection.close()


def test_a_store_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(StoreFailure, match=r"store\.db"):
        open_store(str(tmp_path / "file" / "store.db"))


def test_a_store_of_today_is_opened_as_it_is(tmp_path: Path) -> None:
    path = str(tmp_path / "store.db")
    open_store(path).close()
    open_store(path).close()
    assert sorted(os.listdir(tmp_path)) == ["store.db"]


def test_a_database_without_marks_that_has_tables_of_others_is_refused_untouched(
    tmp_path: Path,
) -> None:
    path = tmp_path / "store.db"
    before = make_database(path, 0, 0)
    with pytest.raises(MbxError) as caught:
        open_store(str(path))
    assert caught.value.code == "store-damaged"
    assert path.read_bytes() == before
