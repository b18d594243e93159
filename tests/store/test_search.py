"""The full-text index in the store: how it is filled, and that it finds what a walk would find."""

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mbx.core.message import KINDS
from mbx.core.terms import match_of
from mbx.store import forwards, history, identities, messages, search
from mbx.store.database import Tx
from mbx.store.identities import IdentityRow
from mbx.store.messages import NEWEST
from mbx.store.migrate import migrations, open_store
from mbx.store.search import BLOCK_MESSAGES, Filters, Progress
from tests.store.test_rows import NOW, Store, new_message, sealed

SEED = 20_260_301
OLDER = [step for step in migrations() if "search_blocks" not in step.script][:3]
"""The migrations before the index knew whose mail the words are in."""


@pytest.fixture
def store() -> Iterator[Store]:
    made = Store()
    yield made
    made.connection.close()


def send(store: Store, sender: IdentityRow, text: str, *to: IdentityRow, **more: Any) -> int:
    message = new_message(sender, text, **more)
    return store.do(lambda tx: messages.add(tx, message, [(one.no, False) for one in to]))


def index(store: Store, count: int = 100) -> Progress:
    return store.do(lambda tx: search.index_some(tx, count))


def found(
    store: Store, who: IdentityRow, word: str, filters: Filters | None = None, **more: int
) -> list[int]:
    """Keys of the messages that a search of `who` finds, newest first."""
    words = match_of(word)
    assert words is not None
    asked = {"before_no": NEWEST, "rows": 1_000} | more
    page = store.do(lambda tx: history.found_page(tx, who.no, words, filters or Filters(), **asked))
    return [one.no for one in page]


def entries(store: Store, words: str) -> list[int]:
    """Rows of the index itself, whoever they are of."""
    query = "SELECT rowid FROM search WHERE search MATCH ? ORDER BY rowid"
    return [row[0] for row in store.connection.execute(query, (words,))]


# -- filling --------------------------------------------------------------------------------------


def test_the_index_follows_in_batches_and_knows_how_far_it_is(store: Store) -> None:
    alice = store.identity("alice")
    assert index(store) == Progress(0, 0)
    for text in ("plain words", "東京都の天気", "Größe zählt"):
        send(store, alice, text, alice)
    assert store.do(search.progress) == Progress(0, 3)
    assert index(store, 2) == Progress(2, 3)
    assert index(store, 2) == Progress(3, 3)
    assert entries(store, "words") == [1]
    assert entries(store, '"東京"') == [2]
    assert entries(store, '"京都"') == [2]
    assert entries(store, "grosse OR große OR grösse OR groÿe OR GRÖẞE OR größe") == [3]
    assert entries(store, "zahlt") == [3], "marks do not matter"


def test_what_is_indexed_is_not_indexed_again_and_nothing_is_written(store: Store) -> None:
    alice = store.identity("alice")
    send(store, alice, "word", alice)
    assert index(store).pending == 0
    before = store.connection.total_changes
    assert store.do(lambda tx: search.index_some(tx, 9)) == Progress(1, 1)
    assert store.connection.total_changes == before


def test_a_batch_of_the_index_is_bounded_in_bytes_too(store: Store) -> None:
    alice = store.identity("alice")
    half = "x" * (search.BATCH_MAX_BYTES // 2 - search.COPY_BYTES)
    for text in [half, half, "short", half, half, "last"]:
        send(store, alice, text, alice)
    assert [index(store).pending for _ in range(4)] == [4, 2, 0, 0]


def test_a_batch_of_the_index_is_bounded_in_copies_too(store: Store) -> None:
    several = [store.identity(f"agent-{letter}") for letter in "abcdefgh"]
    body_bytes = search.BATCH_MAX_BYTES // 2 - 8 * search.COPY_BYTES
    for _ in range(4):
        send(store, several[0], "word", *several, body_bytes=body_bytes)
    assert [index(store).pending for _ in range(2)] == [2, 0]


# -- finding --------------------------------------------------------------------------------------


def test_who_somebody_is_cannot_be_found_as_a_word_nor_words_as_who_it_is(store: Store) -> None:
    ana, ben, cai = (store.identity(name) for name in ("ana", "ben", "cai"))
    secret = send(store, ana, "common word", ben)
    spoken = send(store, cai, f"f{ana.no} t{ana.no} t{ben.no} krequest common", cai)
    index(store)
    for token in (f"f{ana.no}", f"t{ben.no}", "krequest"):
        assert found(store, ana, token) == []
        assert found(store, ben, token) == []
        assert found(store, cai, token) == [spoken]
    assert found(store, ben, "common") == [secret]
    assert found(store, cai, "common") == [spoken]
    assert found(store, cai, "common", Filters(kind="request")) == []
    assert found(store, cai, "common", Filters(sender_no=ana.no)) == []
    assert found(store, cai, "common", Filters(recipient_no=ben.no)) == []


def test_the_index_alone_gives_nobody_what_is_not_his(store: Store) -> None:
    """The column is wrong here, as no code of ours makes it: the deliveries decide."""
    ana, ben, cai = (store.identity(name) for name in ("ana", "ben", "cai"))
    no = send(store, ana, "word", ben)
    index(store)
    store.do(lambda tx: search.add_copies(tx, cai.no, [no]))
    assert entries(store, f"who : t{cai.no}") == [no]
    assert found(store, cai, "word") == []


@pytest.mark.parametrize("indexed_first", [True, False])
@pytest.mark.parametrize("merged", [True, False])
def test_mail_that_was_handed_on_is_found_by_both_and_by_nobody_else(
    store: Store, indexed_first: bool, merged: bool
) -> None:
    ana, ben, cai, dee = (store.identity(name) for name in ("ana", "ben", "cai", "dee"))
    handed = [send(store, ana, f"word {number}", ben) for number in range(5)]
    kept = send(store, ana, "word of dee", dee)
    both = send(store, ana, "word of both", ben, cai)
    if indexed_first:
        index(store)

    def hand_on(tx: Tx) -> int:
        mail = forwards.open_mail(tx, ben.no, 50)
        return forwards.hand_on(tx, ben.no, cai.no, mail, NOW, "superseded", "note")

    assert store.do(hand_on) == 5
    index(store)
    if merged:
        store.connection.execute("INSERT INTO search (search) VALUES ('optimize')")
    everything = [*handed, both][::-1]
    assert found(store, cai, "word") == everything
    assert found(store, ben, "word") == everything
    assert found(store, cai, "word", Filters(sender_no=ana.no, kind="message")) == everything
    assert found(store, cai, "word", Filters(recipient_no=ben.no)) == everything
    assert found(store, ana, "word", Filters(recipient_no=cai.no)) == everything
    assert found(store, dee, "word") == [kept]
    assert found(store, cai, "3") == [handed[3]]
    store.connection.execute("INSERT INTO search (search) VALUES ('integrity-check')")


def test_times_are_found_in_their_blocks_also_when_the_clock_was_set_back(store: Store) -> None:
    ana = store.identity("ana")
    hour_ms, count = 3_600_000, 3 * BLOCK_MESSAGES
    times = [NOW + number * 1_000 for number in range(count)]
    times[BLOCK_MESSAGES + 5] += 1_000 * hour_ms
    for number, at_ms in enumerate(times):
        send(store, ana, "word", ana, accepted_ms=at_ms, record=sealed("word", number.to_bytes(32)))
    while index(store, 700).pending:
        pass

    def bounds(since_ms: int | None = None, until_ms: int | None = None) -> tuple[int, int]:
        filters = Filters(since_ms=since_ms, until_ms=until_ms)
        return store.do(lambda tx: search.bounds(tx, filters))

    assert bounds() == (0, NEWEST)
    assert bounds(since_ms=times[-1] + hour_ms) == (BLOCK_MESSAGES, NEWEST)
    assert bounds(since_ms=times[-1] + 2_000 * hour_ms) == (NEWEST, NEWEST)
    assert bounds(since_ms=times[-1]) == (BLOCK_MESSAGES, NEWEST), "the one that was ahead"
    assert bounds(until_ms=NOW) == (0, 0)
    assert bounds(until_ms=NOW + 1) == (0, BLOCK_MESSAGES)
    for since_ms, until_ms in [(NOW + 5_000, NOW + 9_000), (times[2_000], times[2_100])]:
        wanted = [no for no, at in enumerate(times, 1) if since_ms <= at < until_ms][::-1]
        filters = Filters(since_ms=since_ms, until_ms=until_ms)
        assert found(store, ana, "word", filters) == wanted
    late = Filters(since_ms=times[-1] + 1)
    assert found(store, ana, "word", late) == [BLOCK_MESSAGES + 6]


def test_a_search_finds_what_a_walk_over_all_mail_finds(store: Store) -> None:
    """Random mail, copies given later, and all filters together, against plain Python."""
    chance = random.Random(SEED)
    people = [store.identity(f"agent-{letter}") for letter in "abcdef"]
    known: list[dict[str, Any]] = []
    hits = 0
    for number in range(300):
        sender, text = chance.choice(people), chance.choice(("apple", "pear plum", "apple plum"))
        to = chance.sample(people, chance.randint(1, 4))
        kind, at_ms = chance.choice(KINDS), NOW + chance.randint(-50, 50) + number
        record = sealed(text, number.to_bytes(32))
        more = {"kind": kind, "accepted_ms": at_ms, "record": record}
        no = send(store, sender, text, *to, **more)
        known.append(
            {"no": no, "from": sender.no, "to": {one.no for one in to}, "at": at_ms}
            | {"kind": kind, "words": text.split()}
        )
        if chance.random() < 0.1:
            index(store, chance.randint(1, 40))
        if chance.random() < 0.1:
            give_later(store, chance.choice(known), chance.choice(people))
    while index(store, 50).pending:
        pass
    for _ in range(600):
        own, word = chance.choice(people), chance.choice(("apple", "pear", "plum", "cherry"))
        filters = Filters(
            chance.choice([None, *KINDS]),
            chance.choice([None, None, *people[:3]]) and chance.choice(people).no,
            chance.choice([None, None, *people[:3]]) and chance.choice(people).no,
            chance.choice([None, NOW + chance.randint(-60, 360)]),
            chance.choice([None, NOW + chance.randint(-60, 360)]),
        )
        wanted = [one["no"] for one in known if is_wanted(one, own.no, word, filters)][::-1]
        assert found(store, own, word, filters) == wanted
        hits += len(wanted)
    assert hits >= 2_000


def give_later(store: Store, message: dict[str, Any], who: IdentityRow) -> None:
    """As a forward does, for one message: a copy, unless there is one."""
    if who.no in message["to"]:
        return
    message["to"].add(who.no)
    store.do(lambda tx: tx.run(forwards._GIVE, (who.no, message["no"], 2, NOW, 0)))
    store.do(lambda tx: search.add_copies(tx, who.no, [message["no"]]))


def is_wanted(one: dict[str, Any], own_no: int, word: str, filters: Filters) -> bool:
    since_ms, until_ms = filters.since_ms, filters.until_ms
    return (
        word in one["words"]
        and (one["from"] == own_no or own_no in one["to"])
        and filters.kind in (None, one["kind"])
        and filters.sender_no in (None, one["from"])
        and (filters.recipient_no is None or filters.recipient_no in one["to"])
        and (since_ms is None or one["at"] >= since_ms)
        and (until_ms is None or one["at"] < until_ms)
    )


# -- an older store -------------------------------------------------------------------------------


def test_an_older_store_keeps_its_mail_and_is_indexed_anew(tmp_path: Path) -> None:
    path = str(tmp_path / "store.db")
    make_old_store(path, 5)
    store = Store(open_store(path))
    assert store.do(search.progress) == Progress(0, 5)
    assert index(store, 3) == Progress(3, 5)
    assert index(store, 3) == Progress(5, 5)
    ana, ben = (store.do(lambda tx, n=no: identities.by_no(tx, n)) for no in (1, 2))  # type: ignore[misc]
    assert found(store, ben, "word") == [5, 4, 3, 2, 1]
    assert found(store, ana, "3") == [4]
    store.connection.close()


def make_old_store(path: str, count: int) -> None:
    """A store of schema 3 with mail from ana to ben, indexed as it was then."""
    connection = open_store(path, OLDER)
    connection.execute("BEGIN")
    for no, name in enumerate(("ana", "ben"), 1):
        connection.execute(
            "INSERT INTO identities (no, identity, name, skeleton, role, description, created_ms)"
            " VALUES (?1, substr(?2 || hex(zeroblob(13)), 1, 26), ?2, ?2, 'dev', '', 0)",
            (no, name),
        )
        connection.execute("INSERT INTO mailboxes (identity_no, unread) VALUES (?, 0)", (no,))
        connection.execute(
            "INSERT INTO leases (identity_no, epoch, state, since_ms) VALUES (?, 0, 0, 0)", (no,)
        )
    content = {"hop": 0, "origin": None, "external_since": None, "sent_at": 0}
    for no in range(1, count + 1):
        text = f"old word {no - 1}"
        connection.execute(
            "INSERT INTO messages (no, id8, id, thread, sender_no, accepted_ms, kind, needs_reply,"
            " plain, body_bytes, subject, digest, signature, payload) VALUES (?1, ?1, ?2, ?2, 1,"
            " ?1, 'message', 0, 1, 9, 'subject', zeroblob(32), zeroblob(64), ?3)",
            (no, f"{no:026}", json.dumps({"body": text, **content})),
        )
        connection.execute(
            "INSERT INTO deliveries (recipient_no, message_no, stage, stage_ms)"
            " VALUES (2, ?, 5, 0)",
            (no,),
        )
        connection.execute(
            "INSERT INTO search (rowid, subject, body) VALUES (?, 'subject', ?)", (no, text)
        )
    connection.execute("UPDATE counters SET value = ? WHERE name = 'indexed_message'", (count,))
    connection.execute("COMMIT")
    connection.close()
