"""What the daemon remembers of holders between commits."""

import asyncio
import dataclasses
from collections.abc import AsyncIterator

import pytest

from mbx.core.evidence import Evidence, Process, SessionKey
from mbx.core.lease import LAG_MIN_MS, Lease, LeaseState
from mbx.core.limits import LEASE_TIMEOUT_MS
from mbx.daemon.effects import Ended, Granted
from mbx.daemon.holders import ATTENTION_MS, Holders
from mbx.daemon.processes import DeathWatch, evidence
from mbx.store.leases import LeaseRow
from mbx.store.sessions import SessionRow
from tests.support.children import process_of, sleeper
from tests.support.office import HandWorld


class Desk:
    """Holders over a real watch, a clock turned by hand, and who was reported dead.

    While `unreadable`, nothing can be learnt of a process by looking at it.
    """

    def __init__(self, watch: DeathWatch) -> None:
        self.world = HandWorld()
        self.reported: asyncio.Queue[int] = asyncio.Queue()
        self.unreadable = False
        self.watch = watch
        self.holders = Holders(
            self.world, watch, lambda no, why: self.reported.put_nowait(no), self._look
        )

    def _look(self, process: Process) -> Evidence:
        return "unknown" if self.unreadable else evidence(process)


@pytest.fixture
async def desk() -> AsyncIterator[Desk]:
    watch = DeathWatch(asyncio.get_running_loop())
    yield Desk(watch)
    watch.close()


def grant(process: Process, *, session_no: int = 1, epoch: int = 1, name: str = "alice") -> Granted:
    identity_no = 7
    return Granted(
        session_no, process, "", "shell", "s-1", identity_no, "i" * 26, name, epoch, "t" * 64
    )


def end(process: Process, *, session_no: int = 1, epoch: int = 1) -> Ended:
    return Ended(session_no, process, "", "shell", "s-1", 7, epoch)


def row(epoch: int = 1) -> LeaseRow:
    return LeaseRow(7, Lease(LeaseState.HELD, epoch, 1, 0), "r" * 26, 0)


async def test_a_granted_session_is_known_live_and_fenced_by_its_epoch(desk: Desk) -> None:
    with sleeper() as child:
        process = process_of(child.pid)
        desk.holders.granted(grant(process, epoch=3))
        assert [known.process for known in desk.holders.known()] == [process]
        assert desk.holders.grant_of(process, "") == (7, 3)
        assert desk.holders.grant_of(process, "other") is None
        seen = desk.holders.observe(row(3))
        assert seen is not None
        assert (seen.epoch, seen.evidence) == (3, "live")


async def test_a_holder_that_dies_is_reported_once_and_seen_dead(desk: Desk) -> None:
    with sleeper() as child:
        process = process_of(child.pid)
        desk.holders.granted(grant(process, session_no=5))
        child.kill()
        assert await asyncio.wait_for(desk.reported.get(), 10) == 5
    seen = desk.holders.observe(row())
    assert seen is not None
    assert seen.evidence == "dead"
    assert desk.reported.empty()


async def test_a_session_that_ended_is_forgotten(desk: Desk) -> None:
    with sleeper() as child:
        process = process_of(child.pid)
        desk.holders.granted(grant(process))
        desk.holders.ended(end(process))
        assert list(desk.holders.known()) == []
        assert desk.holders.observe(row()) is None


async def test_the_end_of_an_older_epoch_does_not_end_a_newer_one(desk: Desk) -> None:
    with sleeper() as child:
        process = process_of(child.pid)
        desk.holders.granted(grant(process, epoch=2))
        desk.holders.ended(end(process, epoch=1))
        assert desk.holders.grant_of(process, "") == (7, 2)


async def test_a_displaced_session_stays_known_but_is_not_the_holder(desk: Desk) -> None:
    with sleeper() as old, sleeper() as new:
        before, after = process_of(old.pid), process_of(new.pid)
        desk.holders.granted(grant(before, session_no=1, epoch=1))
        desk.holders.granted(grant(after, session_no=2, epoch=2))
        assert {known.process for known in desk.holders.known()} == {before, after}
        seen = desk.holders.observe(row(2))
        assert seen is not None
        assert seen.epoch == 2
        desk.holders.ended(end(before, session_no=1, epoch=1))
        assert desk.holders.observe(row(2)) is not None, "its end is not the new holder's"


async def test_restored_sessions_are_taken_up_from_the_store(desk: Desk) -> None:
    with sleeper() as child:
        process = process_of(child.pid)
        desk.holders.restore(SessionRow(1, "shell", "s-1", "", process, 7, 4), "alice")
        desk.holders.restore(SessionRow(2, "shell", "s-2", "idle", process, None, None), "")
        assert [known.key for known in desk.holders.known()] == [SessionKey("shell", "s-1")]
        assert desk.holders.grant_of(process, "") == (7, 4)


async def test_calls_are_heard_and_silence_is_measured_on_the_monotonic_clock(desk: Desk) -> None:
    with sleeper() as child:
        desk.holders.granted(grant(process_of(child.pid)))
        desk.world.pass_ms(5_000)
        seen = desk.holders.observe(row())
        assert seen is not None
        assert seen.silent_ms == 5_000
        desk.world.wall_ms -= 3_600_000
        desk.holders.heard(7, 1)
        desk.holders.heard(8, 1)
        seen = desk.holders.observe(row())
        assert seen is not None
        assert seen.silent_ms == 0


async def test_last_seen_times_are_handed_over_once(desk: Desk) -> None:
    desk.holders.heard(7, 1)
    assert desk.holders.last_seen_ms(7) == desk.world.wall_ms
    assert desk.holders.take_last_seen() == {7: desk.world.wall_ms}
    assert desk.holders.take_last_seen() == {}
    assert desk.holders.last_seen_ms(7) is None


async def test_a_look_before_a_claim_sees_a_death_that_was_not_reported_yet(desk: Desk) -> None:
    with sleeper() as child:
        desk.holders.granted(grant(process_of(child.pid)))
        child.kill()
        child.wait()
        desk.holders.look_at("bob")
        desk.holders.look_at(None)
        seen = desk.holders.observe(row())
        assert seen is not None
        assert seen.evidence == "live"
        desk.holders.look_at("alice")
        seen = desk.holders.observe(row())
        assert seen is not None
        assert seen.evidence == "dead"


async def test_a_watched_holder_that_cannot_be_read_for_a_moment_is_live_however_idle(
    desk: Desk,
) -> None:
    """A shell idle over lunch keeps its name, also while a claim finds no free descriptor."""
    with sleeper() as child:
        desk.holders.granted(grant(process_of(child.pid)))
        desk.world.pass_ms(LEASE_TIMEOUT_MS)
        desk.unreadable = True
        desk.holders.look_at("alice")
        seen = desk.holders.observe(row())
        assert seen is not None
        assert (seen.evidence, seen.silent_ms) == ("live", 0)


async def test_a_holder_seen_alive_from_time_to_time_is_not_silent(desk: Desk) -> None:
    """Also where no descriptor can be had: what counts is the time since it was last seen."""
    with sleeper() as child:
        process = process_of(child.pid)
        desk.holders.granted(grant(process))
        desk.watch.unwatch(process)
        desk.world.pass_ms(LEASE_TIMEOUT_MS)
        desk.holders.look_around()
        desk.unreadable = True
        desk.holders.look_at("alice")
        seen = desk.holders.observe(row())
        assert seen is not None
        assert (seen.evidence, seen.silent_ms) == ("unknown", 0)


async def test_only_a_holder_that_no_descriptor_watches_is_unknown_and_its_silence_counts(
    desk: Desk,
) -> None:
    with sleeper() as child:
        process = process_of(child.pid)
        desk.holders.granted(grant(process))
        desk.watch.unwatch(process)
        desk.unreadable = True
        desk.world.pass_ms(LEASE_TIMEOUT_MS)
        desk.holders.look_at("alice")
        seen = desk.holders.observe(row())
        assert seen is not None
        assert (seen.evidence, seen.silent_ms) == ("unknown", LEASE_TIMEOUT_MS)


async def test_a_conversation_of_a_shared_process_is_heard_by_its_calls_alone(desk: Desk) -> None:
    with sleeper() as child:
        shared = grant(process_of(child.pid))
        desk.holders.granted(dataclasses.replace(shared, conversation="talk-1"))
        desk.world.pass_ms(60_000)
        desk.holders.look_around()
        seen = desk.holders.observe(row())
        assert seen is not None
        assert (seen.evidence, seen.silent_ms, seen.is_shared) == ("live", 60_000, True)
        desk.holders.heard(7, 1)
        seen = desk.holders.observe(row())
        assert seen is not None
        assert seen.silent_ms == 0


async def test_time_in_which_the_daemon_stood_still_is_nobodys_silence(desk: Desk) -> None:
    with sleeper() as child:
        desk.holders.granted(
            dataclasses.replace(grant(process_of(child.pid)), conversation="talk-1")
        )
        desk.holders.attend()
        for _ in range(60):
            desk.world.pass_ms(ATTENTION_MS)
            desk.holders.attend()
        desk.world.pass_ms(3_600_000 + ATTENTION_MS)
        for _ in range(2):  # a claim may be read before the timers know; then they know
            seen = desk.holders.observe(row())
            assert seen is not None
            assert seen.silent_ms == 61_000
            desk.holders.attend()


async def test_who_was_heard_after_the_standstill_is_not_heard_of_in_the_future(desk: Desk) -> None:
    with sleeper() as child:
        desk.holders.granted(
            dataclasses.replace(grant(process_of(child.pid)), conversation="talk-1")
        )
        desk.holders.attend()
        desk.world.pass_ms(3_600_000)
        desk.holders.heard(7, 1)
        for _ in range(2):
            seen = desk.holders.observe(row())
            assert seen is not None
            assert seen.silent_ms == 0
            desk.holders.attend()
        desk.world.pass_ms(LAG_MIN_MS + ATTENTION_MS - 1)  # late, and not yet a standstill
        seen = desk.holders.observe(row())
        assert seen is not None
        assert seen.silent_ms == LAG_MIN_MS + ATTENTION_MS - 1
