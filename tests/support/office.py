"""The daemon's middle (gate, dispatch, methods, store) in one process, without sockets or a loop.

The store is real, the rules are real; what stands in for the outside are a clock that is turned by
hand, a chance that repeats, and a table of what is known of processes.
"""

import functools
import hashlib
import sqlite3
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from mbx.core.errors import MbxError
from mbx.core.evidence import HARNESSES, RUN, Evidence, Lineage, Process, SessionKey
from mbx.core.keys import SigningKey, key_id
from mbx.core.kinship import Above, Ancestor
from mbx.core.lease import Observation
from mbx.core.terminal import Terminal
from mbx.daemon import booting
from mbx.daemon.authority import Authority
from mbx.daemon.context import Answer, Facts
from mbx.daemon.dispatch import Dispatcher, Work
from mbx.daemon.effects import Effect, Glimpsed, Granted
from mbx.daemon.encounters import Encounters
from mbx.daemon.gate import Caller
from mbx.daemon.host import Host
from mbx.daemon.linkstate import LinkState
from mbx.daemon.proven import Proven
from mbx.daemon.world import moment
from mbx.store.database import Committed, Unit, connect, run_group, run_reads
from mbx.store.leases import LeaseRow
from mbx.store.migrate import open_store

T = TypeVar("T")

BOOT = "00000000-0000-4000-8000-000000000000"
KEY = SigningKey.from_seed(bytes(range(32)))


@dataclass
class HandWorld:
    """A clock that stands until it is moved, and chance that repeats."""

    wall_ms: int = 1_700_000_000_000
    steady_ms: int = 1_000_000
    drawn: int = 0

    def now_ms(self) -> int:
        return self.wall_ms

    def monotonic_ms(self) -> int:
        return self.steady_ms

    def random_bytes(self, count: int) -> bytes:
        self.drawn += 1
        return hashlib.shake_128(str(self.drawn).encode()).digest(count)

    def pass_ms(self, ms: int) -> None:
        self.wall_ms += ms
        self.steady_ms += ms


def _no_link(peer_no: int) -> LinkState | None:
    return None


def _no_pairing(pairing: str) -> Proven | None:
    return None


@dataclass
class OfficeDesk:
    """One store with its dispatcher; `evidence` tells what is seen of the process with a pid."""

    world: HandWorld = field(default_factory=HandWorld)
    evidence: dict[int, Evidence] = field(default_factory=dict)
    silent_ms: dict[int, int] = field(default_factory=dict)
    effects: list[Effect] = field(default_factory=list)
    label: str = "desk"
    key: SigningKey = KEY
    above: dict[int, Above] = field(default_factory=dict)
    """What stands above the process with a pid; nothing where none is told."""
    find_link: Callable[[int], LinkState | None] = _no_link
    """Gives the link to a peer with a key."""
    find_pairing: Callable[[str], Proven | None] = _no_pairing
    """Gives the pairing of an id that waits for its people."""

    def __post_init__(self) -> None:
        self.connection: sqlite3.Connection = empty_store()
        self.host = Host(self.label, key_id("host", self.key.public), self.key)
        facts = Facts(4711, "0", 1, "/home", "/home/run/mbx.sock", 0)
        self.encounters = Encounters()
        self.dispatcher = Dispatcher(
            self.host,
            self.world,
            facts,
            self._observe,
            lambda identity_no: None,
            authority=Authority(self.host.key_id),
            look=lambda process: self.evidence.get(process.pid, "unknown"),
            see=lambda process: self.above.get(process.pid, Above()),
            sessions_called=self.encounters.called,
            link=self._link,
            proven=self._proven,
        )

    def close(self) -> None:
        self.connection.close()

    def put_back(self, pages: bytes) -> None:
        """Go on with the store as it once was, on a connection that has known no other."""
        self.connection.close()
        self.connection = store_of(pages)

    def add_owner(self) -> None:
        """Give the human a mailbox, as a daemon does at its start."""
        made = run_group(
            self.connection, [lambda tx: booting.owner_mailbox(tx, moment(self.world))]
        )
        assert isinstance(made[0], Committed)

    def do(self, unit: Unit[T]) -> T:
        """Commit one unit; raises what it was refused with."""
        outcome = run_group(self.connection, [unit])[0]
        if not isinstance(outcome, Committed):
            raise outcome.error
        value: T = outcome.value
        return value

    def work(self, caller: Caller, method: str, params: object = None) -> Work:
        return self.dispatcher.work(caller, method, params)

    def carry_out(self, work: Work) -> Answer:
        """Commit one unit of work and take its effects; raises what it was refused with."""
        run = run_group if work.writes else run_reads
        outcome = run(self.connection, [work.unit])[0]
        if not isinstance(outcome, Committed):
            raise outcome.error
        answer: Answer = outcome.value
        self.effects.extend(answer.effects)
        for effect in answer.effects:
            if isinstance(effect, Granted):
                self.evidence.setdefault(effect.process.pid, "live")
            elif isinstance(effect, Glimpsed):
                self.dispatcher.glimpsed(effect)
        return answer

    def call(self, caller: Caller, method: str, **params: object) -> dict[str, Any]:
        """The result of one call."""
        return self.carry_out(self.work(caller, method, params)).result

    def refusal(self, caller: Caller, method: str, **params: object) -> MbxError:
        """The refusal of one call, which must be refused."""
        try:
            result = self.call(caller, method, **params)
        except MbxError as error:
            return error
        raise AssertionError(f"{method} was not refused: {result}")

    def rows(self, sql: str, *parameters: object) -> list[tuple[Any, ...]]:
        """What a query of the test finds in the store."""
        return self.connection.execute(sql, parameters).fetchall()

    def holder(self, name: str, pid: int) -> Caller:
        """A session that has registered `name`."""
        caller = shell(pid)
        self.call(caller, "identity.register", name=name, role="dev")
        return caller

    def below(self, pid: int, *callers: Caller) -> None:
        """Let the process with this pid run below the processes of `callers`, nearest first."""
        found = []
        for caller in callers:
            lineage = caller.lineage
            process = lineage.process or lineage.undecided
            assert process is not None
            is_agent = lineage.cli in HARNESSES or lineage.cli == RUN
            found.append(Ancestor(process, is_agent))
        self.above[pid] = Above(tuple(found))

    def _link(self, peer_no: int) -> LinkState | None:
        return self.find_link(peer_no)

    def _proven(self, pairing: str) -> Proven | None:
        return self.find_pairing(pairing)

    def _observe(self, row: LeaseRow) -> Observation | None:
        held = self.rows("SELECT pid FROM sessions WHERE no = ?", row.lease.session_no)
        if not held:
            return None
        pid = held[0][0]
        evidence = self.evidence.get(pid, "unknown")
        return Observation(row.lease.epoch, evidence, self.silent_ms.get(pid, 0))


@functools.cache
def _empty_pages() -> bytes:
    made = open_store(":memory:")
    try:
        return made.serialize()
    finally:
        made.close()


def empty_store() -> sqlite3.Connection:
    """A new store in memory, a copy: migrations take longer than most that is done to it."""
    return store_of(_empty_pages())


def store_of(pages: bytes) -> sqlite3.Connection:
    """A store in memory with this content."""
    connection = connect(":memory:")
    connection.deserialize(pages)
    return connection


def shell(pid: int, *, boot_id: str = BOOT, granted_epoch: int | None = None) -> Caller:
    """A caller in the shell with this pid."""
    process = Process(pid, pid * 10, boot_id)
    lineage = Lineage("session", "shell", f"{pid}-{pid * 10}", process, "shell", reason="a shell")
    return Caller(lineage, granted_epoch=granted_epoch)


def run(pid: int) -> Caller:
    """A caller below the `mbx run` with this pid."""
    process = Process(pid, pid * 10, BOOT)
    return Caller(Lineage("session", RUN, f"{pid}-{pid * 10}", process, "run", reason="a run"))


def conversation(pid: int, session_id: str, cli: str = "opencode") -> Caller:
    """A caller in one conversation of a process that hosts many."""
    process = Process(pid, pid * 10, BOOT)
    lineage = Lineage("session", cli, session_id, process, "harness", shared=True)
    return Caller(lineage, SessionKey(cli, session_id))


def at_terminal(caller: Caller, reason: str = "") -> Caller:
    """The caller at the owner's terminal; with a `reason`, at one that is not."""
    return caller._replace(terminal=Terminal(not reason, reason))


def nobody() -> Caller:
    """A caller without a session."""
    return Caller(Lineage("none", reason="there is no shell or agent CLI above the caller"))


def unseen(token: str | None = None) -> Caller:
    """A caller of whom the kernel tells nothing, with or without a token."""
    token_hash = hashlib.sha256(token.encode()).digest() if token else None
    return Caller(Lineage("unknown", reason="the kernel gives no pid"), None, token_hash)


def harness(pid: int, session_id: str, cli: str = "claude") -> Caller:
    """A caller in an agent CLI that has one conversation a process, told by its own id."""
    process = Process(pid, pid * 10, BOOT)
    lineage = Lineage("session", cli, session_id, process, "harness")
    return Caller(lineage, SessionKey(cli, session_id))
