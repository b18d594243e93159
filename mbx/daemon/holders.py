"""What the daemon knows of holders between commits: who, alive or not, last heard of when.

All of it can be lost: it is read back from the store and from the kernel at the next start.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol

from mbx.core.evidence import Evidence, KnownSession, Process, SessionKey
from mbx.core.lease import Observation, lag_ms
from mbx.daemon.effects import Ended, Granted, Relabelled, Renamed, Waiting
from mbx.daemon.processes import evidence
from mbx.daemon.world import World
from mbx.store.leases import LeaseRow
from mbx.store.sessions import SessionRow

ATTENTION_MS: Final = 1_000
"""The timers tell so often that the daemon is awake, once they run."""


class Target(NamedTuple):
    """Exactly one session: what it holds, at which epoch, and the process that it is in.

    `called`: what its agent CLI calls it, as far as its label tells.
    """

    identity_no: int
    epoch: int
    session_no: int
    cli: str
    called: str
    process: Process
    conversation: str


class Watch(Protocol):
    """Tells once of each watched process that it has ended (`processes.DeathWatch` is one)."""

    def watch(self, process: Process, on_death: Callable[[], None], /) -> None:
        """Call `on_death` when the process has ended, also if it already has."""

    def unwatch(self, process: Process, /) -> None:
        """Forget the process."""

    def sees(self, process: Process, /) -> bool:
        """Whether the process lives for certain, because its end would have been told."""


@dataclass(slots=True)
class _Held:
    """One session that was granted `identity_no` at `epoch`; `heard_ms` is monotonic."""

    session_no: int
    key: SessionKey
    process: Process
    conversation: str
    identity_no: int
    name: str
    epoch: int
    evidence: Evidence
    heard_ms: int

    @property
    def called(self) -> SessionKey:
        """What its agent CLI calls it; `key` may be its own id."""
        return SessionKey(self.key.cli, self.conversation or self.key.id)


class Holders:
    """The sessions with a grant, watched for their end.

    `on_death` is called, from the loop, with the store's key of each session whose process has
    ended. `look` tells whether a process lives.
    """

    def __init__(
        self,
        world: World,
        watch: Watch,
        on_death: Callable[[int, str], None],
        look: Callable[[Process], Evidence] = evidence,
    ) -> None:
        self._world = world
        self._watch = watch
        self._on_death = on_death
        self._look = look
        self._sessions: dict[tuple[Process, str], _Held] = {}
        self._by_identity: dict[int, _Held] = {}
        self._waiting: dict[tuple[Process, str], int] = {}
        self._last_seen_ms: dict[int, int] = {}
        self._attended_ms: int | None = None

    def known(self) -> Iterable[KnownSession]:
        """Every session whose process the walk must stop at."""
        return [KnownSession(held.called, held.process) for held in self._sessions.values()]

    def grant_of(self, process: Process, conversation: str) -> tuple[int, int] | None:
        """(identity_no, epoch) that a session was granted last, if it has not released it."""
        held = self._sessions.get((process, conversation))
        return (held.identity_no, held.epoch) if held else None

    def target(self, identity_no: int) -> Target | None:
        """The living session that was granted an identity last; None where none is seen to live."""
        held = self._by_identity.get(identity_no)
        if held is None or held.evidence != "live":
            return None
        return Target(
            identity_no,
            held.epoch,
            held.session_no,
            held.key.cli,
            held.called.id,
            held.process,
            held.conversation,
        )

    def targets(self) -> list[Target]:
        """As `target`, of every identity."""
        found = (self.target(identity_no) for identity_no in self._by_identity)
        return [one for one in found if one is not None]

    def restore(self, row: SessionRow, name: str) -> None:
        """Take up a session from the store at start."""
        if row.identity_no is None or row.epoch is None:
            return
        key = SessionKey(row.cli, row.session_id)
        self._hold(
            _Held(
                row.no,
                key,
                row.process,
                row.conversation,
                row.identity_no,
                name,
                row.epoch,
                "unknown",
                self._world.monotonic_ms(),
            )
        )

    def granted(self, effect: Granted) -> None:
        """A session was given an identity."""
        self._last_seen_ms[effect.identity_no] = self._world.now_ms()
        self._hold(
            _Held(
                effect.session_no,
                SessionKey(effect.cli, effect.session_id),
                effect.process,
                effect.conversation,
                effect.identity_no,
                effect.name,
                effect.epoch,
                "unknown",
                self._world.monotonic_ms(),
            )
        )

    def waits(self, effect: Waiting) -> None:
        """A session waits for an identity: its place is gone with its process."""
        self._waiting[effect.process, effect.conversation] = effect.session_no
        self._watch.watch(effect.process, lambda: self._died(effect.process))

    def ended(self, effect: Ended) -> None:
        """A session gave its identity back, or its process has ended."""
        held = self._sessions.get((effect.process, effect.conversation))
        if held is None or held.epoch != effect.epoch:
            return
        del self._sessions[effect.process, effect.conversation]
        if self._by_identity.get(effect.identity_no) is held:
            del self._by_identity[effect.identity_no]
        self._unwatch_unneeded(effect.process)

    def renamed(self, effect: Renamed) -> None:
        """An identity has another name."""
        held = self._by_identity.get(effect.identity_no)
        if held is not None:
            held.name = effect.name

    def relabelled(self, effect: Relabelled) -> None:
        """A session in a process of one conversation goes by another label."""
        held = self._sessions.get((effect.process, ""))
        if held is not None:
            held.key = SessionKey(effect.cli, effect.session_id)

    def heard(self, identity_no: int, epoch: int) -> None:
        """A holder made an accepted call."""
        held = self._by_identity.get(identity_no)
        if held is not None and held.epoch == epoch:
            held.heard_ms = self._world.monotonic_ms()
        self._last_seen_ms[identity_no] = self._world.now_ms()

    def take_last_seen(self) -> dict[int, int]:
        """identity_no -> ms UTC of everybody heard of since the last time (for the store)."""
        taken, self._last_seen_ms = self._last_seen_ms, {}
        return taken

    def last_seen_ms(self, identity_no: int) -> int | None:
        """When a holder was last heard of and the store does not know it yet (ms UTC)."""
        return self._last_seen_ms.get(identity_no)

    def observe(self, row: LeaseRow) -> Observation | None:
        """What is known of the holder of a lease, for the epoch that it was learnt for."""
        held = self._by_identity.get(row.identity_no)
        if held is None:
            return None
        now_ms = self._world.monotonic_ms()
        silent_ms = max(0, now_ms - held.heard_ms - self._lag_ms(now_ms))
        return Observation(held.epoch, held.evidence, silent_ms, is_shared=bool(held.conversation))

    def look_at(self, name: object) -> None:
        """Look at the holder of `name` now: before a claim, outside its transaction."""
        for held in self._by_identity.values():
            if held.name == name:
                self._look_at(held)

    def look_around(self) -> None:
        """Look at every holder: from time to time, so that only real silence adds up."""
        for held in self._by_identity.values():
            self._look_at(held)

    def attend(self) -> None:
        """The daemon is awake, as it is once each `ATTENTION_MS`.

        If it stood still since it last was, all deadlines move by that.
        """
        now_ms = self._world.monotonic_ms()
        stood_ms = self._lag_ms(now_ms)
        for held in self._sessions.values():
            held.heard_ms = min(held.heard_ms + stood_ms, now_ms)
        self._attended_ms = now_ms

    def _lag_ms(self, now_ms: int) -> int:
        """How long the daemon stood still and nobody was forgiven for it yet.

        A claim that waited all the time may be read before anything else, the timers included.
        """
        if self._attended_ms is None:
            return 0
        return lag_ms(now_ms - self._attended_ms, ATTENTION_MS)

    def _unwatch_unneeded(self, process: Process) -> None:
        if not any(process == other for other, _ in (*self._sessions, *self._waiting)):
            self._watch.unwatch(process)

    def _hold(self, held: _Held) -> None:
        self._waiting.pop((held.process, held.conversation), None)
        self._sessions[held.process, held.conversation] = held
        newest = self._by_identity.get(held.identity_no)
        if newest is None or newest.epoch <= held.epoch:
            self._by_identity[held.identity_no] = held
        self._watch.watch(held.process, lambda: self._died(held.process))
        self._look_at(held)

    def _look_at(self, held: _Held) -> None:
        """The daemon's watch is the heartbeat of a local process, so its silence is not counted.

        Unless the process hosts many conversations: then only its calls are signs of life of one.
        What cannot be read for a moment is not unknown while a descriptor watches it.
        """
        held.evidence = self._look(held.process)
        if held.evidence == "unknown" and self._watch.sees(held.process):
            held.evidence = "live"
        if held.evidence == "live" and not held.conversation:
            held.heard_ms = self._world.monotonic_ms()

    def _died(self, process: Process) -> None:
        for held in list(self._sessions.values()):
            if held.process == process:
                held.evidence = "dead"
                self._on_death(held.session_no, "its process has ended")
        for key in [key for key in self._waiting if key[0] == process]:
            self._on_death(self._waiting.pop(key), "its process has ended")
