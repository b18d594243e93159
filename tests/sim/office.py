"""One life of a simulated daemon: the real dispatcher, gate, holders and units, without a loop.

What `mbx.daemon.app` does between a commit and the answers is done here in the same order: for each
unit of a group its effects, then its answer. A daemon can die between any two of these.
"""

import hashlib
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, cast

from mbx.core.errors import MbxError
from mbx.core.evidence import Lineage, SessionKey
from mbx.daemon import booting
from mbx.daemon.booting import Boot
from mbx.daemon.context import Answer, Facts
from mbx.daemon.credentials import Credentials
from mbx.daemon.dispatch import Dispatcher, Work
from mbx.daemon.effects import (
    Arrived,
    Authorised,
    Effect,
    Ended,
    Glimpsed,
    Granted,
    Revive,
    Seen,
    Stop,
)
from mbx.daemon.encounters import Encounters
from mbx.daemon.gate import NO_GRANT, Caller
from mbx.daemon.holders import Holders
from mbx.daemon.journal import Journal
from mbx.daemon.secondplace import SecondPlace
from mbx.daemon.workers.committer import Committer
from mbx.daemon.workers.timers import Timers
from mbx.daemon.world import moment
from mbx.paths import Paths
from mbx.store import database, search
from mbx.store.database import Committed, Outcome, Tx, Unit
from tests.sim.disk import Crash, Plan, SimConnection
from tests.sim.world import ProcessTable, SimWatch, SimWorld

Done = Callable[[Outcome[Any]], None]
Address = tuple[Any, str]


class Files:
    """The credential files; they outlive a daemon. As `mbx.daemon.credentials.Credentials`."""

    def __init__(self) -> None:
        self.kept: dict[tuple[str, str], tuple[str, int, str]] = {}
        """(cli, session id) -> (identity id, epoch, token)."""

    def write(self, cli: str, session_id: str, identity: str, epoch: int, token: str) -> None:
        self.kept[cli, session_id] = (identity, epoch, token)

    def remove(self, cli: str, session_id: str, epoch: int) -> None:
        if self.kept.get((cli, session_id), ("", -1, ""))[1] == epoch:
            del self.kept[cli, session_id]

    def exists(self, cli: str, session_id: str) -> bool:
        return (cli, session_id) in self.kept

    def keep_only(self, sessions: set[tuple[str, str]]) -> None:
        self.kept = {key: kept for key, kept in self.kept.items() if key in sessions}


@dataclass
class Waiting:
    """A unit in a queue. `attempt` is None for work of the daemon's own."""

    work: Work
    attempt: int | None
    done: Done


class Office:
    """A daemon from its start to its end. `plan` says where the next group goes wrong."""

    def __init__(
        self,
        connection: SimConnection,
        paths: Paths,
        world: SimWorld,
        table: ProcessTable,
        files: Files,
        journal: Journal,
        placed: Callable[[Granted], None] = lambda effect: None,
    ) -> None:
        self.connection = connection
        self.files = files
        self._placed = placed
        self.writes: list[Waiting] = []
        self.reads: list[Waiting] = []
        self.grants: dict[Address, tuple[str, int]] = {}
        """(process, conversation) -> (identity id, epoch), as the effects told."""
        self.world = world
        self.watch = SimWatch(table)
        self.holders = Holders(world, self.watch, self._bury, table.look)
        boot = self._boot(paths, table)
        facts = Facts(1, "0", 1, "/home", "/run/mbx.sock", world.monotonic_ms())
        self.second_place = SecondPlace(paths.floor_path(), boot.host, boot.floor, world, journal)
        self.encounters = Encounters()
        self.dispatcher = Dispatcher(
            boot.host,
            world,
            facts,
            self.holders.observe,
            self.holders.last_seen_ms,
            authority=self.second_place.authority,
            look=table.look,
            see=table.see,
            sessions_called=self.encounters.called,
        )
        self._timers = Timers(
            self.dispatcher,
            cast(Committer, None),  # the rounds are queued here, not awaited
            self.holders,
            cast(Any, self.watch),
            cast(Credentials, files),
        )
        files.keep_only({(row.cli, row.session_id) for row, _ in boot.sessions})
        for row, name in boot.sessions:
            self.holders.restore(row, name)
            key = (row.process, row.conversation)
            self.grants[key] = (self._identity(row.identity_no), row.epoch or 0)
        for effect in boot.effects:
            self.perform(effect)
        self.second_place.follow(database.run_reads(connection, [self.second_place.look])[0])

    def _boot(self, paths: Paths, table: ProcessTable) -> Boot:
        def unit(tx: Tx) -> Boot:
            return booting.boot(tx, paths, self.world, table.boot_id, table.look, table.see)

        outcome = database.run_group(self.connection, [self._journaled(unit, None)])[0]
        if not isinstance(outcome, Committed):
            raise outcome.error
        boot: Boot = outcome.value
        return boot

    def _identity(self, no: int | None) -> str:
        row = self.connection.execute("SELECT identity FROM identities WHERE no = ?", (no,))
        return str(row.fetchone()[0])

    # -- arrivals -------------------------------------------------------------------------------

    def caller(self, lineage: Lineage, claimed: SessionKey | None, token: str | None) -> Caller:
        """What the face knows of the other end when a request arrives."""
        self.encounters.met(lineage)
        token_hash = hashlib.sha256(token.encode()).digest() if token else None
        if lineage.process is None:
            return Caller(lineage, claimed, token_hash)
        grant = self.holders.grant_of(lineage.process, lineage.conversation)
        identity_no, epoch = grant or NO_GRANT
        return Caller(lineage, claimed, token_hash, epoch, identity_no)

    def accept(self, caller: Caller, method: str, params: dict[str, Any]) -> Work:
        """The unit for a request that arrives now."""
        if method == "identity.claim":
            self.holders.look_at(params.get("name"))
        return self.dispatcher.work(caller, method, params)

    def submit(self, waiting: Waiting) -> None:
        """Into the queue it belongs to."""
        (self.writes if waiting.work.writes else self.reads).append(waiting)

    def housekeeping(self, attempt: int | None = None) -> None:
        """Queue a round of the timers."""
        self.holders.look_around()
        now, seen = moment(self.world), self.holders.take_last_seen()

        def unit(tx: Tx) -> Answer:
            return Answer({"missing": self._timers._round(tx, now, seen)})

        def done(outcome: Outcome[Any]) -> None:
            if isinstance(outcome, Committed):
                for row in outcome.value.result["missing"]:
                    self.files.write(*row)
            self._follow_audit()

        self.submit(Waiting(Work(unit, writes=True), attempt, done))

    def _follow_audit(self) -> None:
        place = self.second_place

        def done(outcome: Outcome[Any]) -> None:
            if isinstance(outcome, Committed):
                place.follow(Committed(outcome.value.result["seen"], outcome.commit_seq))

        look = Work(lambda tx: Answer({"seen": place.look(tx)}), writes=False)
        self.submit(Waiting(look, None, done))

    def index(self) -> None:
        """Queue a batch for the full-text index."""

        def unit(tx: Tx) -> Answer:
            return Answer({"left": search.index_some(tx, 3).pending})

        self.submit(Waiting(Work(unit, writes=True), None, _ignore))

    # -- turns ----------------------------------------------------------------------------------

    def write_group(self, count: int, plan: Plan | None) -> int:
        """Commit the next `count` waiting writes, let their effects and answers out."""
        batch, self.writes = self.writes[:count], self.writes[count:]
        self.connection.plan = plan
        try:
            outcomes = database.run_group(
                self.connection,
                [self._journaled(waiting.work.unit, waiting.attempt) for waiting in batch],
            )
            self.release(batch, outcomes, plan)
        finally:
            self.connection.plan = None
        return len(batch)

    def read_group(self, count: int) -> int:
        """Answer the next `count` waiting reads over one snapshot."""
        batch, self.reads = self.reads[:count], self.reads[count:]
        outcomes = database.run_reads(self.connection, [waiting.work.unit for waiting in batch])
        self.release(batch, outcomes, None)
        return len(batch)

    def release(
        self, batch: Sequence[Waiting], outcomes: Sequence[Outcome[Any]], plan: Plan | None
    ) -> None:
        """For each unit in order: the effects, then the answer."""
        strike(plan, "before the effects")
        for waiting, outcome in zip(batch, outcomes, strict=True):
            if isinstance(outcome, Committed):
                for effect in outcome.value.effects:
                    self.perform(effect)
                    strike(plan, "between effects")
            strike(plan, "before an answer")
            waiting.done(outcome)
            strike(plan, "between answers")
        if plan is not None and plan.point == "after the answers":
            raise Crash(plan.point)

    def perform(self, effect: Effect) -> None:
        """As `mbx.daemon.app.Daemon`."""
        match effect:
            case Seen():
                self.holders.heard(effect.identity_no, effect.epoch)
            case Granted():
                self.holders.granted(effect)
                self._placed(effect)
                self.grants[effect.process, effect.conversation] = (effect.identity, effect.epoch)
                self.files.write(
                    effect.cli, effect.session_id, effect.identity, effect.epoch, effect.token
                )
            case Ended():
                self.holders.ended(effect)
                held = self.grants.get((effect.process, effect.conversation))
                if held is not None and held[1] == effect.epoch:
                    del self.grants[effect.process, effect.conversation]
                self.files.remove(effect.cli, effect.session_id, effect.epoch)
            case Revive():
                work = self.dispatcher.revival(effect)
                self.submit(Waiting(work, None, _ignore))
            case Authorised():
                self.second_place.authorised(effect)
            case Glimpsed():
                self.dispatcher.glimpsed(effect)
            case Arrived() | Stop():
                pass

    def keep_glimpses(self) -> None:
        """As at a stop in order: what is only remembered goes into the store."""
        self.submit(Waiting(self.dispatcher.keeping(), None, _ignore))

    def _bury(self, session_no: int, why: str) -> None:
        self.submit(Waiting(self.dispatcher.burial(session_no, why), None, _ignore))

    def _journaled(self, unit: Unit[Any], attempt: int | None) -> Unit[Any]:
        """The unit, noting at the connection whose change it was."""
        connection = self.connection

        def noting(tx: Tx) -> Any:
            before = connection.total_changes
            value = unit(tx)
            if connection.total_changes != before:
                connection.pending.append((tx.commit_seq, attempt))
            return value

        return noting


def strike(plan: Plan | None, point: str) -> None:
    """Die here, if that is the plan."""
    if plan is not None and plan.strikes(point):
        raise Crash(point)


def _ignore(outcome: Outcome[Any]) -> None:
    """Nobody waits for the answer."""


def group_size(chance: random.Random, waiting: int) -> int:
    """How many of the waiting units the committer finds at once: up to 8."""
    return min(waiting, chance.randint(1, 8))


def code_of(error: Exception) -> str:
    """The code that a refused caller sees."""
    return error.code if isinstance(error, MbxError) else "internal"
