"""The worker that wakes, on a store and a clock of the test, with ways of the test."""

import asyncio
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import asynccontextmanager, suppress

from mbx.core.brake import Outcome
from mbx.core.errors import MbxError
from mbx.core.evidence import Process
from mbx.daemon import announcing
from mbx.daemon.context import Answer
from mbx.daemon.dispatch import Work
from mbx.daemon.gate import Caller
from mbx.daemon.holders import Target
from mbx.daemon.reach import Reach
from mbx.daemon.wakes import Seen, Told
from mbx.daemon.wakes.brakes import Brakes
from mbx.daemon.watching import Watchers
from mbx.daemon.workers.snapshots import Announced
from mbx.daemon.workers.wakes import Wakes
from mbx.store import leases, wakes
from mbx.store.database import Outcome as Settled
from mbx.store.database import Refused, Tx, run_group, run_reads
from tests.support.office import OfficeDesk, harness, shell

ANA, BEN, SAM = harness(100, "s-ana"), harness(200, "s-ben"), shell(300)


class Staged:
    """A way of which the test says what is seen, how a wake ends, and what happens meanwhile."""

    names_conversations = False

    def __init__(self) -> None:
        self.seen = Seen("idle")
        self.outcome: Outcome = "admitted"
        self.woken: list[tuple[int, str]] = []
        self.meanwhile: Callable[[], None] = lambda: None
        self.while_looking: Callable[[], None] = lambda: None

    def look(self, target: Target) -> Seen:
        self.while_looking()
        return self.seen

    async def wake(self, target: Target, text: str, is_current: Callable[[], bool]) -> Told:
        self.meanwhile()
        if not is_current():
            return Told("failed", "the lease changed")
        self.woken.append((target.process.pid, text))
        return Told(self.outcome, "as staged")


class Sessions:
    """Every holder in the store is a living session."""

    def __init__(self, desk: OfficeDesk) -> None:
        self._desk = desk

    def target(self, identity_no: int) -> Target | None:
        found = self._desk.rows(
            "SELECT l.epoch, s.no, s.cli, s.session_id, s.pid, s.start_ticks, s.boot_id"
            " FROM leases AS l JOIN sessions AS s ON s.no = l.session_no"
            " WHERE l.identity_no = ? AND l.state = 1",
            identity_no,
        )
        if not found:
            return None
        epoch, no, cli, called, pid, ticks, boot = found[0]
        return Target(identity_no, epoch, no, cli, called, Process(pid, ticks, boot), "")

    def targets(self) -> list[Target]:
        held = self._desk.rows("SELECT identity_no FROM leases WHERE state = 1")
        return [one for (no,) in held if (one := self.target(no)) is not None]


class Hooks:
    """What hooks announced: messages (keys), and whether a wake is kept as told."""

    def __init__(self) -> None:
        self.told: set[int] = set()
        self.kept: list[str] = []

    async def untold(self, target: Target, nos: Collection[int]) -> set[int]:
        return set(nos) - self.told

    def announce(self, target: Target, nos: Collection[int]) -> Announced | None:
        self.kept.append("told")
        return Announced("", 1, 0)

    def keep(self, announced: Announced) -> None:
        self.kept.append("kept")

    def take_back(self, announced: Announced) -> None:
        self.kept.append("taken back")


class Scene:
    """A desk with ana and ben (agents) and sam (at a shell), and the worker."""

    def __init__(self) -> None:
        self.desk = OfficeDesk()
        for caller, name in ((ANA, "ana"), (BEN, "ben"), (SAM, "sam")):
            self.desk.call(caller, "identity.register", name=name, role="dev")
        self.way = Staged()
        self.desktop = Staged()
        self.desktop.seen, self.desktop.outcome = Seen("none"), "unknown"
        self.hooks = Hooks()
        self.log: list[str] = []
        self.ways: list[object] = []
        self.is_full = False
        self.watchers = Watchers(self.desk.dispatcher.glance, self.submit)
        self.worker = self.start()

    def start(self) -> Wakes:
        """A worker as a new daemon has it, with what the store remembers."""

        def boot(tx: Tx) -> wakes.Past:
            wakes.settle_left(tx, announcing.LEFT)
            return wakes.past(tx, self.desk.world.now_ms())

        self.brakes = Brakes(self.desk.world)
        self.brakes.load(self.desk.do(boot))
        self.worker = Wakes(
            host=self.desk.host,
            world=self.desk.world,
            submit=self.submit,
            sessions=Sessions(self.desk),
            watchers=self.watchers,
            ways={"claude": self.way},
            brakes=self.brakes,
            announcements=self.hooks,
            log=self.write_log,
            desktop=self.desktop,
        )
        return self.worker

    def write_log(self, event: str, **facts: object) -> None:
        self.log.append(event)
        if "way" in facts:
            self.ways.append(facts["way"])

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        """The worker serves, and has seen who is there."""
        task = asyncio.create_task(self.worker.serve())
        await self.worker.look_at_sessions()
        await self.worker.rest()
        yield
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task

    def submit(self, work: Work, done: Callable[[Settled[Answer]], None]) -> None:
        if self.is_full and work.writes:
            done(Refused(MbxError("disk-full", "the disk is full")))
            return
        run = run_group if work.writes else run_reads
        done(run(self.desk.connection, [work.unit])[0])

    def no(self, name: str) -> int:
        [(no,)] = self.desk.rows("SELECT no FROM identities WHERE name = ?", name)
        return int(no)

    async def send(self, sender: Caller, name: str, **more: object) -> str:
        """Send what wakes, and let the worker do what it does at once; the id."""
        letter = {"to": [name], "subject": "s", "body": "b", "kind": "task", **more}
        sent = self.desk.call(sender, "mail.send", **letter)
        await self.look(name)
        return str(sent["id"])

    async def look(self, *names: str) -> None:
        self.worker.look([self.no(name) for name in names])
        await self.worker.rest()

    async def pass_ms(self, ms: int, *names: str) -> None:
        """Time passes, and what a timer would do then is done."""
        self.desk.world.pass_ms(ms)
        await self.look(*names)

    def outcomes(self, name: str) -> list[str | None]:
        """Of all wakes of a mailbox, oldest first."""
        rows = self.desk.do(lambda tx: wakes.newest(tx, self.no(name), 100))
        return [row.outcome for row in reversed(rows)]

    def reach(self, name: str, thread: str | None = None) -> Reach:
        row = self.desk.do(lambda tx: leases.find(tx, self.no(name)))
        return self.worker.reach(row, thread)
