"""`OfficeDesk` with a disk that a crash takes back to the last commit, and with a history.

What a daemon does around a commit (effects, burials, the first unit of its life) is done here in
the same order, so that the machine of `tests.sim.machine` can end it anywhere and start the next.
"""

from typing import Any

from mbx.core.evidence import Evidence, Process
from mbx.core.lease import Observation
from mbx.daemon import booting
from mbx.daemon.context import Answer, Facts
from mbx.daemon.dispatch import Dispatcher, Work
from mbx.daemon.effects import Ended, Glimpsed, Granted, Revive, Seen
from mbx.daemon.kinship import nobody
from mbx.store import database, inspection
from mbx.store.database import Committed, Tx
from mbx.store.leases import LeaseRow
from tests.sim import image
from tests.sim.disk import Plan, SimConnection, open_image
from tests.sim.ground import ground
from tests.sim.history import Commit, Event, Reopened
from tests.support.office import BOOT, OfficeDesk


class Desk(OfficeDesk):
    """One store through several lives of a daemon, and everything that happened to it."""

    connection: SimConnection

    def __post_init__(self) -> None:
        self.events: list[Event] = [Commit(1, None)]
        self.attempt: int | None = None
        """Whose unit is being carried out."""
        self.heard_ms: dict[int, int] = {}
        """Identity -> when its holder was last heard of, on the steady clock."""
        self.grants: dict[tuple[Process, str], tuple[int, int]] = {}
        """(process, conversation) -> (identity, epoch), as the effects told."""
        self._start(ground().pages)

    def _start(self, pages: bytes) -> None:
        self.connection = open_image(pages, lambda seq, who: self.events.append(Commit(seq, who)))
        self.attempt = None

        def unit(tx: Tx) -> booting.Boot:
            return booting.boot(tx, ground().paths, self.world, BOOT, self.look, nobody)

        boot = self._committed(unit)[0]
        self.host = boot.host
        facts = Facts(4711, "0", 1, "/home", "/run/mbx.sock", self.world.monotonic_ms())
        self.dispatcher = Dispatcher(
            boot.host, self.world, facts, self._observe, lambda identity_no: None
        )
        now_ms = self.world.monotonic_ms()
        self.heard_ms = {row.identity_no or 0: now_ms for row, _ in boot.sessions}
        self.grants = {
            (row.process, row.conversation): (row.identity_no or 0, row.epoch or 0)
            for row, _ in boot.sessions
        }
        for effect in boot.effects:
            self._perform(effect)

    def look(self, process: Process) -> Evidence:
        """Whether a process lives, as far as anybody can see."""
        return self.evidence.get(process.pid, "live")

    def reopen(self, point: str) -> None:
        """Whatever was not committed is gone; the next daemon starts on the rest."""
        self.connection.plan = None
        self.connection.lose_power()
        self.events.append(Reopened(point, image.take(self.connection)))
        pages = self.connection.serialize()
        self.connection.close()
        self._start(pages)

    def carry_out(self, work: Work) -> Answer:
        """Commit one unit of work and let its effects out; raises what it was refused with."""
        return self.outcome(work).value

    def outcome(self, work: Work, plan: Plan | None = None) -> Committed[Answer]:
        """As `carry_out`, with its commit sequence; `plan` ends the daemon in between."""
        if work.writes:
            self.connection.plan = plan
            try:
                value, seq = self._committed(work.unit)
            finally:
                self.connection.plan = None
        else:
            read = database.run_reads(self.connection, [work.unit])[0]
            if not isinstance(read, Committed):
                raise read.error
            value, seq = read
        for effect in value.effects:
            self._perform(effect)
        return Committed(value, seq)

    def image(self) -> image.Image:
        """The store as plain values."""
        return image.take(self.connection)

    def state_hash(self) -> str:
        """The digest of all that a refused call must leave alone."""
        return inspection.state_hash(Tx(self.connection, 0))

    def bury(self, process: Process, conversation: str) -> None:
        """The death of a session's process was seen."""
        row = self.rows(
            "SELECT no FROM sessions WHERE pid = ? AND conversation = ?", process.pid, conversation
        )
        if row:
            self.attempt = None
            self.carry_out(self.dispatcher.burial(row[0][0], "its process has ended"))

    def _committed(self, unit: database.Unit[Any]) -> tuple[Any, int]:
        connection, attempt = self.connection, self.attempt

        def noting(tx: Tx) -> Any:
            before = connection.total_changes
            value = unit(tx)
            if connection.total_changes != before:
                connection.pending.append((tx.commit_seq, attempt))
            return value

        outcome = database.run_group(connection, [noting])[0]
        if not isinstance(outcome, Committed):
            raise outcome.error
        return outcome.value, outcome.commit_seq

    def _perform(self, effect: object) -> None:
        now_ms = self.world.monotonic_ms()
        match effect:
            case Seen():
                self.heard_ms[effect.identity_no] = now_ms
            case Granted():
                self.effects.append(effect)
                self.heard_ms[effect.identity_no] = now_ms
                key = (effect.process, effect.conversation)
                self.grants[key] = (effect.identity_no, effect.epoch)
            case Ended():
                key = (effect.process, effect.conversation)
                if self.grants.get(key, (0, 0))[1] == effect.epoch:
                    del self.grants[key]
            case Glimpsed():
                self.dispatcher.glimpsed(effect)
            case Revive():
                self.attempt = None
                self.carry_out(self.dispatcher.revival(effect))

    def _observe(self, row: LeaseRow) -> Observation | None:
        held = self.rows(
            "SELECT pid, conversation FROM sessions WHERE no = ?", row.lease.session_no
        )
        if not held:
            return None
        pid, conversation = held[0]
        heard_ms = self.heard_ms.setdefault(row.identity_no, self.world.monotonic_ms())
        silent_ms = self.world.monotonic_ms() - heard_ms
        evidence = self.evidence.get(pid, "live")
        return Observation(row.lease.epoch, evidence, silent_ms, is_shared=bool(conversation))
