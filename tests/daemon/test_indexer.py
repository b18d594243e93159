"""The index catches up in batches, others are served in between, and searches wait for it."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from mbx.core.errors import MbxError
from mbx.daemon.workers import indexer
from mbx.daemon.workers.committer import Committer
from mbx.daemon.workers.indexer import Indexer
from mbx.store import messages, search
from mbx.store.database import Committed, Database, Tx
from mbx.store.identities import IdentityRow
from mbx.store.migrate import migrations, open_store
from tests.store.test_rows import Store, new_message, sealed
from tests.store.test_search import index, make_old_store
from tests.support.daemon import Daemon, fresh_home

MANY = 2_000
"""More messages than three large batches hold."""


class House:
    """A store, its two queues, and the indexer, which does not run yet."""

    def __init__(self, store: Store, ana: IdentityRow, database: Database) -> None:
        self.store = store
        self.ana = ana
        self.committer = Committer(database)
        self.indexer = Indexer(self.committer)
        self.tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Serve, from now on."""
        for worker in (self.committer, self.indexer):
            self.tasks.append(asyncio.create_task(worker.serve()))

    async def send(self, number: int) -> None:
        """One message more, as a unit of work, with its effect."""

        def unit(tx: Tx) -> None:
            add(tx, self.ana, number)

        outcome = await self.committer.written(unit)
        assert isinstance(outcome, Committed)
        self.indexer.wake()

    async def asked(self) -> Any:
        """What the index has when a search that is asked for now may run, or its refusal."""
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.indexer.when_caught_up(lambda: answer.set_result(None), answer.set_result)
        refusal = await asyncio.wait_for(answer, 10)
        return (await self.progress()) if refusal is None else refusal

    async def progress(self) -> tuple[int, int]:
        outcome = await self.committer.written(search.progress)
        assert isinstance(outcome, Committed)
        return tuple(outcome.value)


@pytest.fixture
async def house() -> AsyncIterator[House]:
    store = Store()
    ana = store.identity("ana")

    def fill(tx: Tx) -> None:
        for number in range(MANY):
            add(tx, ana, number)

    store.do(fill)
    database = await Database.open(lambda: store.connection)
    made = House(store, ana, database)
    yield made
    for task in made.tasks:
        task.cancel()
    await database.close()


def add(tx: Tx, ana: IdentityRow, number: int) -> None:
    """A message of ana's to herself."""
    record = sealed(f"word {number}", number.to_bytes(32))
    messages.add(tx, new_message(ana, "word", record=record), [(ana.no, False)])


async def test_a_search_waits_until_the_index_has_what_was_there_when_it_was_asked_for(
    house: House,
) -> None:
    house.start()
    assert await house.asked() == (MANY, MANY)
    await house.send(MANY)
    assert await house.asked() == (MANY + 1, MANY + 1)
    assert await house.asked() == (MANY + 1, MANY + 1), "nothing is pending: at once"


async def test_a_search_that_comes_while_the_index_catches_up_waits_too(house: House) -> None:
    house.start()
    async with asyncio.timeout(10):
        while not (await house.progress())[0]:
            pass
    assert (await house.progress())[0] < MANY, "it is not done yet"
    assert await house.asked() == (MANY, MANY)


async def test_once_it_is_quiet_the_batches_follow_on_each_other_until_somebody_writes(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[float] = []
    wait = asyncio.sleep

    async def noted(delay_s: float) -> None:
        if delay_s:
            waits.append(delay_s)
        await wait(delay_s)

    monkeypatch.setattr(asyncio, "sleep", noted)
    task = asyncio.create_task(house.committer.serve())
    house.tasks.append(task)
    await house.send(MANY)
    batches = 0
    while await house.indexer._step():
        batches += 1
    assert batches >= 3
    assert len(waits) == 1, "one moment of quiet is enough for all of them"
    await house.send(MANY + 1)
    await house.indexer._step()
    assert len(waits) == 2, "somebody wrote: it looks again whether others do"


async def test_others_get_their_turn_between_the_batches(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(indexer, "_QUIET_S", 0)  # else they are done before the first of them
    order: list[str] = []

    async def search_words() -> None:
        await house.asked()
        order.append("search")

    async def others() -> None:
        for number in range(3):
            await house.send(MANY + number)
        order.append("three commits")

    house.start()
    await asyncio.wait_for(asyncio.gather(search_words(), others()), 10)
    assert order == ["three commits", "search"]


async def test_a_search_is_refused_with_what_is_left_when_the_index_takes_too_long(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(indexer, "WAIT_S", 0)
    house.start()
    async with asyncio.timeout(10):
        while not (await house.progress())[0]:
            pass
    refusal = await house.asked()
    assert isinstance(refusal, MbxError)
    left = refusal.facts["pending"]
    assert refusal.code == "rate-limited"
    assert left in range(1, MANY)
    assert f"{left} messages behind" in refusal.message
    monkeypatch.setattr(indexer, "WAIT_S", 10)
    assert await house.asked() == (MANY, MANY), "and it went on meanwhile"


async def test_a_search_is_told_what_keeps_the_index_from_catching_up(house: House) -> None:
    connection = house.store.connection
    pages = connection.execute("PRAGMA page_count").fetchone()[0]
    connection.execute(f"PRAGMA max_page_count = {pages}")
    house.start()
    refusal = await house.asked()
    assert isinstance(refusal, MbxError)
    assert refusal.code == "disk-full"
    house.store.connection.execute("PRAGMA max_page_count = 1000000")
    assert await house.asked() == (MANY, MANY)


# -- a real daemon --------------------------------------------------------------------------------


@pytest.fixture
def home() -> Iterator[Path]:
    with fresh_home() as folder:
        yield folder


def test_mail_of_an_upgraded_store_is_found_as_before(home: Path) -> None:
    make_old_store(str(home / "store.db"), 1_200)
    with Daemon(home) as daemon, daemon.agent() as first, daemon.agent() as second:
        with first.connect() as line:
            line.call("identity.claim", name="ben")
            page = line.call("mail.search", query="old word", limit=200)
            assert len(page["messages"]) == 200
            assert line.call("mail.search", query="1199")["messages"][0]["snippet"] != ""
            assert len(line.call("mail.search", query="0")["messages"]) == 1
        with second.registered("cai") as line:
            assert line.call("mail.search", query="old word")["messages"] == []
        daemon.stop()
    assert (home / f"store.db.before-{len(migrations())}").exists()
    after = Store(open_store(str(home / "store.db")))
    assert index(after).pending == 0
    after.connection.close()
