"""Wakes the session that holds a mailbox when mail waits there that wakes.

For each mailbox one at a time: is there mail that was announced to nobody, is the brake open, is
there a way to exactly the session that holds the lease now? Then the wake is written down, tried,
and settled. What it learns of the ways is kept in memory, so that a send can say whether its
recipient would be woken (`reach`) without looking at anything.
"""

from __future__ import annotations  # nested functions would evaluate theirs each time

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from typing import Any, Final, Protocol

from mbx.core.brake import SPENDING, Verdict, Waiting
from mbx.core.evidence import HARNESSES
from mbx.core.limits import WAKE_COMMAND_MS, WAKE_NOTICE_MS, WAKE_TURN_MS, WAKES_AT_ONCE_MAX
from mbx.daemon import announcing
from mbx.daemon.announcing import Draft, Intent
from mbx.daemon.context import Answer
from mbx.daemon.dispatch import Work
from mbx.daemon.holders import Target
from mbx.daemon.host import Host
from mbx.daemon.journal import whence
from mbx.daemon.reach import NOT_LIVE, Reach, Standing, of_session
from mbx.daemon.wakes import Seen, Told, Way
from mbx.daemon.wakes.brakes import Brakes
from mbx.daemon.watching import Watchers
from mbx.daemon.workers.snapshots import Announced
from mbx.daemon.world import World, moment
from mbx.store.database import Committed, Outcome, Tx
from mbx.store.leases import LeaseRow

LOOK_S: Final = 2.0
"""So often the sessions that have a way are looked at: what a sender is told is no older."""

WATCH: Final = "watch"
"""The way of a session that waits for mail on a connection."""

NOTICE: Final = "notice"
"""The way to a person, where nothing reaches the session."""

_PUSHED: Final = "its connection that waits for mail was told"
_GONE: Final = "its connection that waits for mail has ended"
_SLOW: Final = "it took too long"
_INSIDE: Final = "mbx failed at it"

Submit = Callable[[Work, Callable[[Outcome[Answer]], None]], None]
"""Carries out a unit of work, lets its effects out and tells the outcome."""


class Sessions(Protocol):
    """What is known of holders (`holders.Holders` is one)."""

    def target(self, identity_no: int, /) -> Target | None:
        """The living session that was granted an identity last."""

    def targets(self) -> list[Target]:
        """As `target`, of every identity."""


class Announcements(Protocol):
    """What was told to sessions by other ways (`snapshots.Snapshots` keeps it for hooks)."""

    async def untold(self, target: Target, nos: Collection[int], /) -> set[int]:
        """Which of these messages were not announced; it may wait a moment until it knows."""

    def announce(self, target: Target, nos: Collection[int], /) -> Announced | None:
        """These messages are announced now; None: they were before, or it does not know."""

    def take_back(self, announced: Announced, /) -> None:
        """It was not, for certain."""

    def keep(self, announced: Announced, /) -> None:
        """It was."""


class Wakes:
    """All wakes of one daemon. `ways`: agent CLI -> how its sessions are woken."""

    def __init__(
        self,
        *,
        host: Host,
        world: World,
        submit: Submit,
        sessions: Sessions,
        watchers: Watchers,
        ways: Mapping[str, Way],
        brakes: Brakes,
        announcements: Announcements,
        log: Callable[..., None],
        desktop: Way | None = None,
    ) -> None:
        self._host = host
        self._world = world
        self._submit = submit
        self._sessions = sessions
        self._watchers = watchers
        self._ways = ways
        self._brakes = brakes
        self._announcements = announcements
        self._log = log
        self._desktop = desktop
        self._unreached: dict[int, tuple[int, int]] = {}
        """Of a mailbox that nothing reaches: the epoch, and since when (monotonic) mail waits."""
        self._seen: dict[int, tuple[Target, Seen]] = {}
        self._lasting: dict[int, Standing] = {}
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._again: set[int] = set()
        self._timers: dict[int, asyncio.TimerHandle] = {}
        self._places = asyncio.Semaphore(WAKES_AT_ONCE_MAX)
        self._is_serving = False
        self._hurry = asyncio.Event()
        self._unsettled: list[Work] = []

    # -- what happened --------------------------------------------------------------------------

    def look(self, identities: Iterable[int]) -> None:
        """Mail arrived for these identities, or they have another holder, or one that waits."""
        for identity_no in dict.fromkeys(identities):
            if self._is_serving and self._may_have_a_way(identity_no):
                if identity_no not in self._seen:
                    self._hurry.set()
                self._begin(identity_no)

    def look_soon(self) -> None:
        """What is seen of sessions has changed: look at all of them at once, not in a moment."""
        self._hurry.set()

    def _may_have_a_way(self, identity_no: int) -> bool:
        target = self._sessions.target(identity_no)
        if target is None or target.cli not in HARNESSES:
            return False
        has_way = self._way_of(target) is not None or self._desktop is not None
        return has_way or bool(self._watchers.of(identity_no))

    def _begin(self, identity_no: int) -> None:
        timer = self._timers.pop(identity_no, None)
        if timer is not None:
            timer.cancel()
        if identity_no in self._tasks:
            self._again.add(identity_no)
            return
        task = asyncio.get_running_loop().create_task(self._consider(identity_no))
        self._tasks[identity_no] = task
        task.add_done_callback(lambda done: self._ended(identity_no, done))

    def _ended(self, identity_no: int, done: asyncio.Task[None]) -> None:
        del self._tasks[identity_no]
        if done.cancelled():
            return
        error = done.exception()
        if error is not None:
            self._log("a wake failed inside", whence=whence(error))
        if identity_no in self._again:
            self._again.discard(identity_no)
            self._begin(identity_no)

    def _later(self, identity_no: int, at_ms: int) -> None:
        """Look again when the brake opens; whatever happens before that looks by itself."""
        delay_s = max(0, at_ms - self._world.monotonic_ms()) / 1000
        timer = self._timers.pop(identity_no, None)
        if timer is not None:
            timer.cancel()
        loop = asyncio.get_running_loop()
        self._timers[identity_no] = loop.call_later(delay_s, self.look, (identity_no,))

    async def rest(self) -> None:
        """Wait until no mailbox is looked at and no session woken; the brake may be closed."""
        while self._tasks:
            await asyncio.wait(list(self._tasks.values()))

    # -- serving --------------------------------------------------------------------------------

    async def serve(self) -> None:
        """Until cancelled: mail may wait since before the start, and sessions change by themselves.

        A file system that does not answer holds up the looks alone.
        """
        self._is_serving = True
        try:
            await self.look_at_sessions()
            self.look(target.identity_no for target in self._sessions.targets())
            while True:
                with suppress(TimeoutError):
                    async with asyncio.timeout(LOOK_S):
                        await self._hurry.wait()
                self._hurry.clear()
                await self.settle_again()
                await self.look_at_sessions()
        finally:
            self._is_serving = False
            for timer in self._timers.values():
                timer.cancel()
            for task in list(self._tasks.values()):
                task.cancel()

    async def look_at_sessions(self) -> None:
        """See which sessions can be woken now; one that is idle again may have mail waiting."""
        asked = [one for one in self._sessions.targets() if self._way_of(one) is not None]
        await self._look_at_those(asked)
        self._note_what_lasts()

    async def _look_at_those(self, asked: list[Target]) -> None:
        if not asked:
            self._seen.clear()
            return
        found = await asyncio.to_thread(lambda: [(one, self._look_at(one)) for one in asked])
        known, self._seen = self._seen, {one.identity_no: (one, seen) for one, seen in found}
        for one, seen in found:
            before = known.get(one.identity_no)
            is_open_again = before is not None and before[0] == one and not before[1].is_open
            if is_open_again and seen.is_open:
                self._brakes.is_idle_again(one.identity_no)
                self.look((one.identity_no,))

    def _note_what_lasts(self) -> None:
        """Of each session, for those who are told of changes only."""
        now_ms, known, self._lasting = self._world.monotonic_ms(), self._lasting, {}
        for target in self._sessions.targets():
            now, no = self._reach_of(target, None).now, target.identity_no
            before = known.get(no)
            if before is None or before.epoch != target.epoch:
                before = Standing.begun(target.epoch, now, now_ms)
            self._lasting[no] = before.seen(now, now_ms)

    def _look_at(self, target: Target) -> Seen:
        """In a thread."""
        way = self._way_of(target)
        return _looked(way, target) if way is not None else Seen("none")

    def _way_of(self, target: Target) -> Way | None:
        """Of a process with many conversations, only one that names them reaches the right one."""
        way = self._ways.get(target.cli)
        return way if way and (way.names_conversations or not target.conversation) else None

    # -- one mailbox ----------------------------------------------------------------------------

    async def _consider(self, identity_no: int) -> None:
        target = self._sessions.target(identity_no)
        if target is None:
            return
        pause = self._brakes.pause(identity_no, target.epoch)
        waits = bool(self._watchers.of(identity_no))
        if pause is not None and not waits:
            self._later(identity_no, pause.until_ms)
            return
        verdict = self._brakes.of_mailbox(identity_no)
        if verdict.opens_ms is not None:
            self._later(identity_no, verdict.opens_ms)
            return
        waiting = await self._untold(target)
        is_held = self._brakes.is_held(identity_no, target.epoch, waiting)
        if not waiting or (is_held and not waits):  # who waits asks for it: nothing is repeated
            self._unreached.pop(identity_no, None)
            return
        if self._is_braked(identity_no, waiting):
            return
        if waits:
            await self._push(target, waiting)
        else:
            async with self._places:
                await self._wake(target, waiting)

    def _is_braked(self, identity_no: int, waiting: list[Waiting]) -> bool:
        """Whether the brake is closed for what waits; then it is looked at again when it opens."""
        verdict = self._brakes.of_mail(identity_no, waiting)
        if verdict.opens_ms is not None:
            self._later(identity_no, verdict.opens_ms)
        return not verdict.is_open

    async def _untold(self, target: Target) -> list[Waiting]:
        """What waits for a session and nobody announced; what its hooks did is *notified*."""
        waiting = await self._read(lambda tx: announcing.waiting(tx, target))
        if not waiting:
            return []
        untold = await self._announcements.untold(target, [one.no for one in waiting])
        told = [one.no for one in waiting if one.no not in untold]
        if told:
            now = moment(self._world)
            await self._done(
                Work(
                    lambda tx: Answer({}, announcing.tell(tx, self._host, now, target, told)),
                    writes=True,
                )
            )
        return [one for one in waiting if one.no in untold]

    async def _push(self, target: Target, waiting: list[Waiting]) -> None:
        """Tell the connections of the session that wait for mail."""
        watchers = self._watchers.of(target.identity_no)
        draft = self._draft(target, WATCH, waiting)
        draft = draft._replace(callers=tuple(watcher.caller for _, watcher in watchers))
        intent = await self._intend(draft)
        if intent is None:
            return
        refused = dict(intent.refused)
        told = 0
        for place, (key, watcher) in enumerate(watchers):
            if place in refused:
                self._watchers.lost(key, watcher, refused[place])
            elif self._watchers.tell(key, watcher, intent.counts):
                told += 1
        announced = self._announcements.announce(target, intent.nos) if told else None
        if announced is not None:
            self._announcements.keep(announced)
        outcome = Told("admitted", _PUSHED) if told else Told("failed", _GONE)
        await self._settle(draft, intent, outcome)

    async def _wake(self, target: Target, waiting: list[Waiting]) -> None:
        """Wake the session by its client's way, if it is seen to be idle."""
        way = self._way_of(target)
        seen = Seen("none")
        if way is not None:
            seen = await asyncio.to_thread(self._look_at, target)
            self._seen[target.identity_no] = (target, seen)
        if way is None or not seen.is_open:
            if seen.status == "busy" or not await self._notify(target, waiting):
                self._leave_alone(target, seen)
            return
        self._unreached.pop(target.identity_no, None)
        if self._is_braked(target.identity_no, waiting):
            return  # meanwhile others were woken by the same thread
        draft = self._draft(target, target.cli, waiting)
        intent = await self._intend(draft)
        if intent is not None:
            announced = self._announcements.announce(target, intent.nos)
            told = await self._try(way, target, intent.text)
            if announced is not None and told.outcome == "admitted":
                self._announcements.keep(announced)
            elif announced is not None:
                self._announcements.take_back(announced)
            await self._settle(draft, intent, told)

    async def _notify(self, target: Target, waiting: list[Waiting]) -> bool:
        """Tell the person at the desktop of mail that waits long and reaches nobody. Whether so."""
        desktop = self._desktop
        if desktop is None or not (await asyncio.to_thread(_looked, desktop, target)).is_open:
            return False
        now_ms = self._world.monotonic_ms()
        epoch, since_ms = self._unreached.get(target.identity_no, (0, 0))
        if epoch != target.epoch:
            since_ms = now_ms
            self._unreached[target.identity_no] = (target.epoch, since_ms)
        due_ms = since_ms + WAKE_NOTICE_MS
        if now_ms < due_ms:
            self._later(target.identity_no, due_ms)
            return False
        draft = self._draft(target, NOTICE, waiting)
        intent = await self._intend(draft)
        if intent is None:
            return False
        self._unreached.pop(target.identity_no, None)
        await self._settle(draft, intent, await self._try(desktop, target, intent.text))
        return True

    async def _try(self, way: Way, target: Target, text: str) -> Told:
        """Whatever goes wrong inside a way, the outcome is known to be unknown."""
        try:
            async with asyncio.timeout((WAKE_COMMAND_MS + WAKE_TURN_MS) / 1000):
                return await way.wake(target, text, lambda: self._is_current(target))
        except TimeoutError:
            return Told("unknown", _SLOW)
        except Exception as error:  # noqa: BLE001  a client's oddity must not leave a wake open
            self._log("a way failed inside", whence=whence(error))
            return Told("unknown", _INSIDE)

    def _leave_alone(self, target: Target, seen: Seen) -> None:
        """It was not tried: look again later, or when it is seen idle."""
        if seen.status == "blocked":
            self._pause(target, 0, Told("blocked", seen.why))
        elif seen.status == "busy":
            self._pause(target, 0, Told("busy", seen.why))

    def _draft(self, target: Target, way: str, waiting: list[Waiting]) -> Draft:
        return Draft(target, way, tuple(waiting), tuple(self._brakes.causes(waiting)))

    def _is_current(self, target: Target) -> bool:
        return self._sessions.target(target.identity_no) == target

    async def _intend(self, draft: Draft) -> Intent | None:
        """The wake, written down and counted; None: it is for nothing any more."""
        now_ms, identity_no = self._world.now_ms(), draft.target.identity_no
        self._brakes.spend(identity_no, draft.causes)
        intent = None
        try:
            intent = await self._write(lambda tx: announcing.intend(tx, now_ms, draft))
        finally:
            if intent is None:
                self._brakes.refund(identity_no, draft.causes)
        return intent

    async def _settle(self, draft: Draft, intent: Intent, told: Told) -> None:
        target, now = draft.target, moment(self._world)
        if told.outcome not in SPENDING:
            self._brakes.refund(target.identity_no, draft.causes)
        self._pause(target, intent.upto_no, told)
        self._log(
            "a session was woken", way=draft.way, pid=target.process.pid, outcome=told.outcome
        )

        def unit(tx: Tx) -> Answer:
            effects = announcing.settle(tx, self._host, now, target, intent, *told)
            return Answer({"settled": True}, effects)

        work = Work(unit, writes=True)
        if not await self._done(work):
            self._unsettled.append(work)
        self._again.add(target.identity_no)  # what came meanwhile waits for the brake

    async def settle_again(self) -> None:
        """What a full disk refused is written down when there is room; nothing new is tried yet."""
        left, self._unsettled = self._unsettled, []
        for work in left:
            if not await self._done(work):
                self._unsettled.append(work)

    def _pause(self, target: Target, upto_no: int, told: Told) -> None:
        self._brakes.settle(target.identity_no, target.epoch, upto_no, *told)
        pause = self._brakes.pause(target.identity_no, target.epoch)
        if pause is not None:
            self._later(target.identity_no, pause.until_ms)

    # -- the store ------------------------------------------------------------------------------

    async def _read(self, unit: Callable[[Tx], list[Waiting]]) -> list[Waiting]:
        """Empty where it is refused."""
        work = Work(lambda tx: Answer({"found": unit(tx)}), writes=False, brief=True)
        found: list[Waiting] = (await self._done(work)).get("found", [])
        return found

    async def _write(self, unit: Callable[[Tx], Intent | None]) -> Intent | None:
        """None where it is refused: nothing is tried that is not written down."""
        found = await self._done(Work(lambda tx: Answer({"found": unit(tx)}), writes=True))
        intent: Intent | None = found.get("found")
        return intent

    async def _done(self, work: Work) -> dict[str, Any]:
        answered: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()

        def done(outcome: Outcome[Answer]) -> None:
            found: dict[str, Any] = {}
            if isinstance(outcome, Committed):
                found = outcome.value.result
            else:
                self._log("a wake was refused by the store", whence=whence(outcome.error))
            if not answered.done():
                answered.set_result(found)

        self._submit(work, done)
        return await answered

    # -- what a sender is told ------------------------------------------------------------------

    def reach(self, row: LeaseRow, thread: str | None) -> Reach:
        """Whether new mail of a thread (None: of a new one) would wake the holder of a lease now.

        From memory alone: it is asked inside transactions.
        """
        target = self._sessions.target(row.identity_no)
        if target is None or target.epoch != row.lease.epoch:
            return NOT_LIVE
        known = self._lasting.get(row.identity_no)
        lasting = known.told if known is not None and known.epoch == target.epoch else None
        return self._reach_of(target, thread)._replace(lasting=lasting)

    def _reach_of(self, target: Target, thread: str | None) -> Reach:
        identity_no = target.identity_no
        waits = bool(self._watchers.of(identity_no))
        known = self._seen.get(identity_no)
        seen = known[1] if known is not None and known[0] == target else None
        return of_session(
            target.cli,
            WATCH if waits else target.cli if self._way_of(target) else None,
            seen,
            self._brakes.pause(identity_no, target.epoch),
            self._closed(identity_no, thread),
            self._world.monotonic_ms(),
        )

    def _closed(self, identity_no: int, thread: str | None) -> Verdict:
        mailbox = self._brakes.of_mailbox(identity_no)
        return self._brakes.of_thread(thread) if mailbox.is_open else mailbox


def _looked(way: Way, target: Target) -> Seen:
    """In a thread. Whatever goes wrong inside a way, there is none then."""
    try:
        return way.look(target)
    except Exception as error:  # noqa: BLE001  a client's oddity must not end the daemon
        return Seen("none", f"{_INSIDE} ({type(error).__name__})")
