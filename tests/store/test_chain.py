"""What is wrong with the audit log is named by its rows, whatever was done to them."""

import sqlite3
from collections.abc import Callable, Iterator

import pytest

from mbx.core.acts import ACTS, OWNERS
from mbx.core.canonical import encode
from mbx.store import acceptances, audit, chain
from mbx.store.audit import Wanted, row_hash
from mbx.store.database import Tx, run_group
from mbx.store.migrate import open_store

ROWS = 12
WHOLE = 10_000

Damage = tuple[str, ...] | Callable[[sqlite3.Connection], None]
Told = list[tuple[str, int, int]]


def log(rows: int = ROWS) -> sqlite3.Connection:
    connection = open_store(":memory:")

    def unit(tx: Tx) -> None:
        for n in range(1, rows + 1):
            audit.append(tx, at_ms=1_000 + n, act="claim", identity=f"i{n % 3}", n=n)

    run_group(connection, [unit])
    return connection


@pytest.fixture
def connection() -> Iterator[sqlite3.Connection]:
    made = log()
    yield made
    made.close()


def faults(connection: sqlite3.Connection, piece: int = WHOLE) -> list[chain.Fault]:
    tx, found, at = Tx(connection, 0), [], 0
    while True:
        rows, some = chain.examine_after(tx, at, piece)
        found += some
        if not rows:
            return found
        at = rows[-1].no


def told(connection: sqlite3.Connection, piece: int = WHOLE) -> Told:
    return [(fault.kind, fault.row, fault.last) for fault in faults(connection, piece)]


def apply(connection: sqlite3.Connection, damage: Damage) -> None:
    if callable(damage):
        damage(connection)
    else:
        for statement in damage:
            connection.execute(statement)


def swapped(one: int, other: int) -> Damage:
    return (
        f"UPDATE audit SET no = -1 WHERE no = {one}",
        f"UPDATE audit SET no = {one} WHERE no = {other}",
        f"UPDATE audit SET no = {other} WHERE no = -1",
    )


def swapped_contents(connection: sqlite3.Connection) -> None:
    columns = "at_ms, act, identity, detail"
    rows = [
        connection.execute(f"SELECT {columns} FROM audit WHERE no = ?", (no,)).fetchone()
        for no in (6, 5)
    ]
    for no, row in zip((5, 6), rows, strict=True):
        connection.execute(
            "UPDATE audit SET at_ms = ?, act = ?, identity = ?, detail = ? WHERE no = ?", (*row, no)
        )


def rewritten(first: int, last: int) -> Callable[[sqlite3.Connection], None]:
    """Rows made anew, with hashes that fit: what only another witness can tell."""

    def damage(connection: sqlite3.Connection) -> None:
        tx = Tx(connection, 0)
        previous = audit.hash_at(tx, first - 1) or audit.GENESIS
        for row in audit.after(tx, first - 1, last - first + 1):
            previous = row_hash(previous, row.no, row.at_ms, "lapse", row.identity, row.detail)
            place = ("lapse", previous, row.no)
            connection.execute("UPDATE audit SET act = ?, hash = ? WHERE no = ?", place)

    return damage


PUT_IN = (
    "UPDATE audit SET no = -no WHERE no >= 5",
    "UPDATE audit SET no = 1 - no WHERE no < 0",
    "INSERT INTO audit VALUES (5, 1, 'claim', NULL, '{}', zeroblob(32))",
)
CLOSED_GAP = ("DELETE FROM audit WHERE no = 5", "UPDATE audit SET no = no - 1 WHERE no > 5")

DAMAGES: dict[str, tuple[Damage, Told]] = {
    "nothing": ((), []),
    "a time": (("UPDATE audit SET at_ms = at_ms + 1 WHERE no = 5",), [("changed", 5, 5)]),
    "an act": (("UPDATE audit SET act = 'clain' WHERE no = 5",), [("changed", 5, 5)]),
    "whose": (("UPDATE audit SET identity = 'i9' WHERE no = 5",), [("changed", 5, 5)]),
    "nobody's": (("UPDATE audit SET identity = NULL WHERE no = 5",), [("changed", 5, 5)]),
    "what": (("UPDATE audit SET detail = '{\"n\":6}' WHERE no = 5",), [("changed", 5, 5)]),
    "no UTF-8": (
        ("UPDATE audit SET act = CAST(x'ff61' AS TEXT) WHERE no = 5",),
        [("changed", 5, 5)],
    ),
    "a hash": (("UPDATE audit SET hash = zeroblob(32) WHERE no = 5",), [("changed", 5, 5)]),
    "the first hash": (("UPDATE audit SET hash = zeroblob(32) WHERE no = 1",), [("changed", 1, 1)]),
    "the first": (("UPDATE audit SET act = 'x' WHERE no = 1",), [("changed", 1, 1)]),
    "the last": (("UPDATE audit SET act = 'x' WHERE no = 12",), [("changed", 12, 12)]),
    "two": (("UPDATE audit SET act = 'x' WHERE no IN (5, 6)",), [("changed", 5, 6)]),
    "two apart": (
        ("UPDATE audit SET act = 'x' WHERE no IN (3, 9)",),
        [("changed", 3, 3), ("changed", 9, 9)],
    ),
    "all": (("UPDATE audit SET act = 'x'",), [("changed", 1, 12)]),
    "one gone": (("DELETE FROM audit WHERE no = 5",), [("missing", 5, 5)]),
    "some gone": (("DELETE FROM audit WHERE no IN (5, 6, 7)",), [("missing", 5, 7)]),
    "the first gone": (("DELETE FROM audit WHERE no < 4",), [("missing", 1, 3)]),
    "another number": (
        ("UPDATE audit SET no = 90 WHERE no = 12",),
        [("missing", 12, 89)],
    ),
    "neighbours": (swapped(5, 6), [("moved", 5, 5), ("moved", 6, 6)]),
    "apart": (swapped(3, 9), [("moved", 3, 3), ("moved", 9, 9)]),
    "the ends": (swapped(1, 12), [("moved", 1, 1), ("moved", 12, 12)]),
    "contents": (swapped_contents, [("moved", 5, 5), ("moved", 6, 6)]),
    "put in": (PUT_IN, [("changed", 5, 6), ("moved", 6, 13)]),
    "closed gap": (CLOSED_GAP, [("changed", 5, 5), ("missing", 5, 6), ("moved", 6, 11)]),
    "made anew": (rewritten(5, 6), [("changed", 7, 7)]),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_damage_is_named_by_its_rows(connection: sqlite3.Connection, name: str) -> None:
    damage, wanted = DAMAGES[name]
    apply(connection, damage)
    found = told(connection)
    if name == "put in":  # what was put in may be taken for the row in whose place it stands
        assert found[-1] == ("moved", 6, 13)
        assert found[0][1] == 5
    else:
        assert found == wanted
    for fault in faults(connection):
        assert {str(fault.row), str(fault.last)} & set(fault.words.replace(":", "").split())


@pytest.mark.parametrize("piece", [1, 2, 3, 5, 12])
@pytest.mark.parametrize("name", DAMAGES)
def test_a_log_in_pieces_hides_nothing(
    connection: sqlite3.Connection, name: str, piece: int
) -> None:
    damage, wanted = DAMAGES[name]
    apply(connection, damage)
    found = told(connection, piece)
    assert bool(found) == bool(wanted)
    if wanted:
        assert min(row for _, row, _ in found) == min(row for _, row, _ in wanted)


def test_rows_up_to_the_newest_that_were_made_anew_are_no_fault_of_the_chain(
    connection: sqlite3.Connection,
) -> None:
    rewritten(5, ROWS)(connection)
    assert told(connection) == []


def test_a_removed_end_is_no_fault_of_the_chain(connection: sqlite3.Connection) -> None:
    connection.execute("DELETE FROM audit WHERE no > 9")
    assert told(connection) == []


def test_many_rows_that_moved_are_one_fault() -> None:
    connection = log(200)
    apply(connection, CLOSED_GAP)
    words = [fault.words for fault in faults(connection)]
    assert words[-1] == "rows 6 to 199 were rows 7 to 200"
    assert words[:2] == [
        "row 5 was changed (or row 4 was, and its hash made anew)",
        "a row before row 6 is missing",
    ]
    connection.close()


def test_a_copy_that_was_put_in_is_told_from_those_behind_it() -> None:
    connection = log(60)
    copy = "INSERT INTO audit SELECT 5, at_ms, act, identity, detail, hash FROM audit WHERE no = 4"
    apply(connection, (*PUT_IN[:2], copy))
    assert [fault.words for fault in faults(connection)] == [
        "row 4 was put in",
        "rows 5 to 61 were rows 4 to 60",
    ]
    connection.close()


def test_only_the_newest_rows_are_looked_at_with_the_two_before_them(
    connection: sqlite3.Connection,
) -> None:
    tx = Tx(connection, 0)
    assert chain.examine_last(tx, 3) == (3, [])
    connection.execute("UPDATE audit SET act = 'x' WHERE no = 10")
    assert [fault.row for fault in chain.examine_last(tx, 3)[1]] == [10]
    assert chain.examine_last(tx, 2) == (2, [])
    assert chain.examine_last(tx, 99)[0] == ROWS
    connection.execute("DELETE FROM audit")
    assert chain.examine_last(tx, 3) == (0, [])


def test_the_hash_is_over_the_canonical_text() -> None:
    import hashlib

    for detail in ('{"a":"é\\u0001\\"\x7f\u2028😀"}', "x\ny\t/", ""):
        for identity in (None, "i1"):
            row = {"no": 3, "at": 5, "act": "set", "identity": identity, "detail": detail}
            wanted = hashlib.sha256(b"p" * 32 + encode(row).encode()).digest()
            assert row_hash(b"p" * 32, 3, 5, "set", identity, detail) == wanted


def test_pages_are_newest_first_and_filters_come_before_the_limit(
    connection: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    tx = Tx(connection, 0)
    page = audit.page(tx, Wanted(), None, 5)
    assert [row.no for row in page.rows] == [12, 11, 10, 9, 8]
    assert audit.page(tx, Wanted(), page.next_before, 9).rows[0].no == 7
    mine = audit.page(tx, Wanted(identity="i1"), None, 9)
    assert ([row.no for row in mine.rows], mine.next_before) == ([10, 7, 4, 1], None)
    assert [row.no for row in audit.page(tx, Wanted(since_ms=1_010), None, 9).rows] == [12, 11, 10]
    assert audit.page(tx, Wanted(act="host"), None, 9) == ([], None)
    monkeypatch.setattr(audit, "SCAN_ROWS", 4)
    empty = audit.page(tx, Wanted(act="host"), None, 9)
    assert (empty.rows, empty.next_before) == ([], 9)


def test_a_second_place_keeps_the_row_that_the_log_lost(connection: sqlite3.Connection) -> None:
    tx = Tx(connection, 0)
    head = audit.head(tx)
    assert audit.reached(tx, 0, b"") == head
    fifth = (5, audit.hash_at(tx, 5) or b"")
    assert audit.reached(tx, *fifth) == head
    connection.execute("UPDATE audit SET hash = zeroblob(32) WHERE no = 5")
    assert audit.reached(tx, *fifth) == fifth
    connection.execute("DELETE FROM audit WHERE no >= 5")
    assert audit.reached(tx, *fifth) == fifth


def test_the_acts_of_the_owner_are_among_the_acts() -> None:
    assert OWNERS < ACTS
    assert all(act == act.lower() for act in ACTS)


def test_a_store_without_owner_has_no_acceptance(connection: sqlite3.Connection) -> None:
    tx = Tx(connection, 0)
    assert acceptances.behind(tx, 0, 9) == []
    assert acceptances.newest(tx) is None
    assert not acceptances.is_kept(tx, "x")
