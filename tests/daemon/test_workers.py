"""The committer, the indexer and the timers over a real store."""

import asyncio
import itertools
import json
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from mbx.core.limits import (
    CLOCK_BACK_MAX_MS,
    CLOCK_KEPT_MS,
    GROUP_MAX_UNITS,
    LEASE_RENEW_MS,
    LEASE_TIMEOUT_MS,
)
from mbx.daemon.credentials import Credentials
from mbx.daemon.holders import Holders
from mbx.daemon.processes import DeathWatch
from mbx.daemon.workers.committer import Committer
from mbx.daemon.workers.indexer import Indexer
from mbx.daemon.workers.timers import Timers
from mbx.paths import Paths, make_folder
from mbx.store import search
from mbx.store.database import Committed, Database, Refused, StoreFailure, Tx, run_group
from mbx.store.migrate import open_store
from tests.support.office import OfficeDesk, nobody, shell, unseen
from tests.support.owner import an_owner


def bump(tx: Tx) -> int:
    return tx.run("UPDATE counters SET value = value + 1 WHERE name = 'indexed_message'")


@pytest.fixture
async def database(tmp_path: Path) -> AsyncIterator[Database]:
    made = await Database.open(lambda: open_store(str(tmp_path / "store.db")))
    yield made
    await made.close()


async def test_units_that_wait_together_share_groups_and_are_answered_in_order(
    database: Database,
) -> None:
    committer = Committer(database)
    outcomes: list[Any] = []
    for _ in range(3 * GROUP_MAX_UNITS):
        committer.write(bump, outcomes.append)
    was_idle = committer.idle
    serving = asyncio.create_task(committer.serve())
    await asyncio.wait_for(committer.drain(), 10)
    assert (was_idle, committer.idle) == (False, True)
    assert [outcome.commit_seq for outcome in outcomes] == list(range(1, 3 * GROUP_MAX_UNITS + 1))
    serving.cancel()


async def test_reads_are_served_beside_writes(database: Database) -> None:
    committer = Committer(database)
    serving = asyncio.create_task(committer.serve())
    answers: list[Any] = []
    committer.write(bump, answers.append)
    committer.read(lambda tx: tx.one("SELECT 1"), answers.append)
    await asyncio.wait_for(committer.drain(), 10)
    assert {type(answer) for answer in answers} == {Committed}
    serving.cancel()


async def test_a_brief_read_is_answered_at_once_when_nothing_else_is_under_way(
    database: Database,
) -> None:
    committer = Committer(database)
    answers: list[Any] = []
    committer.read(lambda tx: tx.one("SELECT 1"), answers.append, brief=True)
    assert answers == [Committed((1,), 0)]
    committer.write(bump, answers.append)
    committer.read(lambda tx: tx.one("SELECT 2"), answers.append, brief=True)
    assert len(answers) == 1, "a write waits: the reader stands in its queue"
    serving = asyncio.create_task(committer.serve())
    await asyncio.wait_for(committer.drain(), 10)
    assert len(answers) == 3
    serving.cancel()


async def test_a_brief_read_that_follows_from_a_commit_is_answered_at_once(
    database: Database,
) -> None:
    committer = Committer(database)
    answers: list[Any] = []

    def look(outcome: Any) -> None:
        committer.read(lambda tx: tx.one("SELECT 1"), answers.append, brief=True)
        answers.append(outcome)

    committer.write(bump, look)
    serving = asyncio.create_task(committer.serve())
    await asyncio.wait_for(committer.drain(), 10)
    assert answers == [Committed((1,), 1), Committed(1, 1)], "before anything else could wait"
    serving.cancel()


async def test_a_reader_waits_for_one_unit_of_a_group_and_all_units_are_answered_in_order(
    database: Database,
) -> None:
    committer = Committer(database)
    order: list[str] = []

    for number in range(GROUP_MAX_UNITS):
        committer.write(bump, lambda outcome, n=number: order.append(f"write {n}"))  # type: ignore[misc]
    committer.read(lambda tx: tx.one("SELECT 1"), lambda outcome: order.append("read"))
    serving = asyncio.create_task(committer.serve())
    await asyncio.wait_for(committer.drain(), 10)
    assert [entry for entry in order if entry != "read"] == [
        f"write {number}" for number in range(GROUP_MAX_UNITS)
    ]
    assert order.index("read") < GROUP_MAX_UNITS, "it did not wait for the whole group"
    serving.cancel()


class Noted(Database):
    """Keeps the sizes of the groups that it commits."""

    groups: list[int]

    async def write(self, units: Any, hurry: Any = lambda: False) -> Any:
        self.groups.append(len(units))
        return await super().write(units, hurry)


async def test_those_who_were_answered_together_are_waited_for_and_who_is_alone_is_not(
    tmp_path: Path,
) -> None:
    made = await Noted.open(lambda: open_store(str(tmp_path / "store.db")))
    assert isinstance(made, Noted)
    made.groups = []
    committer = Committer(made)

    async def two_in_two_turns() -> list[int]:
        before = len(made.groups)
        for _ in range(2):
            committer.write(bump, lambda outcome: None)
            await asyncio.sleep(0)
        await asyncio.wait_for(committer.drain(), 10)
        return made.groups[before:]

    serving = asyncio.create_task(committer.serve())
    await committer.written(bump)
    assert await two_in_two_turns() == [1, 1], "the first one was alone"
    for _ in range(2):
        committer.write(bump, lambda outcome: None)
    await asyncio.wait_for(committer.drain(), 10)
    assert made.groups[-1] == 2
    assert await two_in_two_turns() == [2], "the other one may come again too"
    serving.cancel()
    await made.close()


async def test_a_caller_that_waits_gets_its_outcome(database: Database) -> None:
    committer = Committer(database)
    serving = asyncio.create_task(committer.serve())
    assert await committer.written(bump) == Committed(1, 1)
    refused = await committer.written(lambda tx: 1 // 0)
    assert isinstance(refused, Refused)
    serving.cancel()


async def test_a_store_that_failed_ends_the_service_and_answers_nobody(database: Database) -> None:
    committer = Committer(database)
    answers: list[Any] = []

    def failing(tx: Tx) -> None:
        raise StoreFailure("the disk is gone")

    committer.write(failing, answers.append)
    committer.write(bump, answers.append)
    with pytest.raises(StoreFailure, match="the disk is gone"):
        await asyncio.wait_for(committer.serve(), 10)
    assert answers == []


async def test_the_indexer_catches_up_by_itself_when_woken(tmp_path: Path) -> None:
    desk = OfficeDesk()
    alice = desk.holder("alice", 100)
    for number in range(5):
        desk.call(alice, "mail.send", to=["alice"], subject="s", body=f"word{number}")
    made = await Database.open(lambda: desk.connection)
    committer = Committer(made)
    indexer = Indexer(committer)
    serving = [asyncio.create_task(committer.serve()), asyncio.create_task(indexer.serve())]
    async with asyncio.timeout(10):
        for _ in itertools.count():
            if not await _pending(committer):
                break
    found = desk.rows("SELECT count(*) FROM search WHERE search MATCH 'word3'")
    assert found == [(1,)]
    indexer.wake()
    for task in serving:
        task.cancel()
    await made.close()


async def _pending(committer: Committer) -> int:
    """How many messages the index does not have yet."""
    answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    committer.read(lambda tx: search.progress(tx).pending, answer.set_result)
    return int((await answer).value)


def put(session_file: str, content: bytes) -> None:
    """Make a credential file say this."""
    Path(session_file).write_bytes(content)


def token_of(session_file: str) -> str:
    """The token in a credential file."""
    return str(json.loads(Path(session_file).read_bytes())["token"])


class House:
    """Timers over a desk, with a credentials folder."""

    def __init__(self, tmp_path: Path, desk: OfficeDesk, database: Database) -> None:
        paths = Paths.from_environ({"MBX_HOME": str(tmp_path / "home")})
        make_folder(paths.run_dir())
        self.desk = desk
        self.paths = paths
        self.credentials = Credentials(paths)
        self.folder = Path(paths.sessions_dir())
        self.committer = Committer(database)
        self.watch = DeathWatch(asyncio.get_running_loop())
        self.holders = Holders(desk.world, self.watch, lambda no, why: None)
        self.timers = Timers(
            desk.dispatcher, self.committer, self.holders, self.watch, self.credentials
        )


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[House]:
    desk = OfficeDesk()
    desk.holder("alice", 100)
    database = await Database.open(lambda: desk.connection)
    made = House(tmp_path, desk, database)
    serving = asyncio.create_task(made.committer.serve())
    yield made
    serving.cancel()
    made.watch.close()
    await database.close()


def lease_record(house: House) -> tuple[str, int]:
    record_id, expires_ms = house.desk.rows("SELECT record_id, expires_ms FROM leases")[0]
    return record_id, expires_ms


async def test_housekeeping_saves_last_seen_times(house: House) -> None:
    house.holders.heard(1, 1)
    await house.timers.housekeeping()
    seen = house.desk.rows("SELECT last_seen_ms FROM identities")
    assert seen == [(house.desk.world.wall_ms,)]


async def test_a_lease_is_signed_again_when_half_its_time_is_over_and_not_before(
    house: House,
) -> None:
    first, expires_ms = lease_record(house)
    house.desk.world.pass_ms(LEASE_RENEW_MS)
    await house.timers.housekeeping()
    assert lease_record(house) == (first, expires_ms)
    house.desk.world.pass_ms(1)
    await house.timers.housekeeping()
    second, later_ms = lease_record(house)
    assert second != first
    assert later_ms > expires_ms
    assert house.desk.rows("SELECT epoch FROM leases") == [(1,)]


async def test_a_missing_credential_is_written_again_with_a_token_that_counts(house: House) -> None:
    assert house.credentials.told("shell", "100-1000") is None
    await house.timers.housekeeping()
    assert house.credentials.told("shell", "100-1000") is not None
    token = token_of(house.paths.session_file("shell", "100-1000"))
    assert house.desk.call(unseen(token), "session.whoami")["agent"] == "alice"
    before = house.desk.rows("SELECT count(*) FROM tokens")
    await house.timers.housekeeping()
    assert house.desk.rows("SELECT count(*) FROM tokens") == before


@pytest.mark.parametrize("content", [b"", b'{"epo', b'{"identity": "x", "epoch": 1}'])
async def test_a_credential_that_is_not_of_the_present_grant_is_written_again(
    house: House, content: bytes
) -> None:
    path = house.paths.session_file("shell", "100-1000")
    put(path, content)
    await house.timers.housekeeping()
    token = token_of(path)
    assert house.desk.call(unseen(token), "session.whoami")["agent"] == "alice"


async def test_a_credential_that_cannot_be_written_ends_nothing_and_is_tried_again(
    house: House,
) -> None:
    os.rmdir(house.folder)
    house.folder.write_bytes(b"in the way")
    await house.timers.housekeeping()
    house.folder.unlink()
    await house.timers.housekeeping()
    assert house.credentials.told("shell", "100-1000") is not None


async def test_a_send_in_the_second_half_renews_the_lease_it_names(house: House) -> None:
    first, _ = lease_record(house)
    house.desk.world.pass_ms(LEASE_RENEW_MS + 1)
    work = house.desk.work(shell(100), "mail.send", {"to": ["alice"], "subject": "s", "body": "b"})
    assert isinstance(run_group(house.desk.connection, [work.unit])[0], Committed)
    second, _ = lease_record(house)
    assert second != first
    payload = house.desk.rows("SELECT payload FROM messages")[0][0]
    assert second in payload
    assert first not in payload


async def test_what_a_callback_raises_is_told_and_the_service_goes_on(database: Database) -> None:
    defects: list[Exception] = []
    committer = Committer(database, defects.append)
    serving = asyncio.create_task(committer.serve())
    committer.write(bump, lambda outcome: 1 // 0)  # type: ignore[arg-type]
    assert isinstance(await committer.written(bump), Committed)
    assert [type(defect) for defect in defects] == [ZeroDivisionError]
    serving.cancel()


MONTH_MS = 30 * 86_400_000
MINUTE_MS = 60_000


@pytest.mark.parametrize("step_ms", [MONTH_MS, -MONTH_MS])
async def test_when_the_clock_was_set_leases_are_signed_for_half_an_hour_from_now(
    house: House, step_ms: int
) -> None:
    first, _ = lease_record(house)
    house.desk.world.wall_ms += step_ms
    await house.timers.housekeeping()
    second, expires_ms = lease_record(house)
    assert second != first
    assert expires_ms == house.desk.world.wall_ms + LEASE_TIMEOUT_MS
    await house.timers.housekeeping()
    assert lease_record(house) == (second, expires_ms)


@pytest.mark.parametrize(
    ("step_ms", "hurries"), [(0, False), (4_999, False), (5_000, True), (-5_000, True)]
)
async def test_a_clock_that_was_set_makes_the_timers_keep_house_at_once(
    house: House, step_ms: int, hurries: bool
) -> None:
    house.desk.world.pass_ms(3_600_000)
    house.desk.world.wall_ms += step_ms
    house.timers.watch_the_clock()
    assert house.timers._is_hurried is hurries
    house.timers._is_hurried = False
    house.timers.watch_the_clock()
    assert not house.timers._is_hurried, "told once"


async def test_a_clock_that_was_set_and_set_back_between_two_polls_is_seen_by_whoever_used_it(
    house: House,
) -> None:
    house.timers.watch_the_clock()
    house.desk.world.wall_ms += MINUTE_MS
    house.desk.dispatcher.context()
    house.desk.world.wall_ms -= MINUTE_MS
    house.timers.watch_the_clock()
    assert house.timers._is_hurried


async def test_a_clock_that_is_set_back_after_a_round_kept_house_under_it_is_seen(
    house: House,
) -> None:
    house.timers.watch_the_clock()
    house.desk.world.wall_ms += MINUTE_MS
    await house.timers.housekeeping()
    house.desk.world.wall_ms -= MINUTE_MS
    house.timers.watch_the_clock()
    assert house.timers._is_hurried


# -- the latest wall clock ------------------------------------------------------------------------


def committed(house: House) -> tuple[int, int]:
    """How many commits changed something, and the latest clock that is known."""
    query = "SELECT value FROM counters WHERE name = ?"
    (seq,), (high_ms,) = (house.desk.rows(query, one)[0] for one in ("commit_seq", "clock_high_ms"))
    return seq, high_ms


async def minutes(house: House, count: int) -> None:
    for _ in range(count):
        house.desk.world.pass_ms(MINUTE_MS)
        await house.timers.housekeeping()


async def test_without_an_owner_an_idle_daemon_commits_nothing(house: House) -> None:
    await house.timers.housekeeping()  # the credential, once
    before = committed(house)
    await minutes(house, 14)
    assert committed(house) == before


async def test_with_an_owner_the_clock_is_kept_when_it_is_five_minutes_later(house: House) -> None:
    await house.timers.housekeeping()
    house.desk.add_owner()
    an_owner(house.desk)
    seq, high_ms = committed(house)
    assert high_ms == house.desk.world.wall_ms
    await minutes(house, 5)
    assert committed(house) == (seq, high_ms)
    house.desk.world.pass_ms(1)
    await house.timers.housekeeping()
    assert committed(house) == (seq + 1, high_ms + CLOCK_KEPT_MS + 1)


async def test_an_expired_policy_does_not_come_back_with_a_clock_that_is_set_back_by_more_than_both(
    house: House,
) -> None:
    house.desk.add_owner()
    owner = an_owner(house.desk)
    told = {"to": ["alice"], "level": "yolo", "from": ["local"], "ttl_s": 3_600}
    owner.do("policy", **told)

    def standing() -> int:
        return len(house.desk.call(nobody(), "policy.list")["policies"])

    await minutes(house, 60 + 11)
    assert standing() == 0
    house.desk.world.wall_ms -= CLOCK_BACK_MAX_MS + CLOCK_KEPT_MS + 2 * MINUTE_MS
    assert standing() == 0, "it is a minute before its end, by this clock"
