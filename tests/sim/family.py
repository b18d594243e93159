"""Sessions below sessions: who is started below whom, and what a checker may ask of those.

It asks for less than mbx gives: only of agent CLIs and runs, as long as they lived.
"""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from mbx.core.evidence import Process
from mbx.daemon.effects import Granted
from tests.sim.history import Commit, Died, Event, Placed

if TYPE_CHECKING:
    from tests.sim.scene import Scene

_MAY_START: Final[Mapping[str, frozenset[str]]] = {
    "run": frozenset({"claude", "codex", "run"}),
    "claude": frozenset({"claude", "codex"}),
}
"""Kind of session -> below which it may begin; the first agent CLI below a run would be the run."""


def name_of(process: Process) -> str:
    """A process in the history."""
    return f"{process.boot_id} {process.pid}-{process.start_ticks}"


def parent_of(scene: "Scene", kind: str) -> Process | None:
    """Below which process of a session a new one begins; often none."""
    able = [one for one in scene.sessions if one.kind in _MAY_START.get(kind, ())]
    if not able or scene.kinship.random() < 0.3:
        return None
    scene.totals.count("sessions below sessions")
    return scene.kinship.choice(able).process


def placed(scene: "Scene", effect: Granted) -> None:
    """A session was granted something: what is above it now is what mbx can know."""
    above = scene.table.see(effect.process).ancestors
    agents = tuple(name_of(one.process) for one in above if one.is_agent)
    label = f"{effect.cli}/{effect.session_id}"
    scene.events.append(Placed(label, name_of(effect.process), agents))


@dataclass(frozen=True)
class _Place:
    """Where a session was, from this place of the history on."""

    at: int
    process: str
    above: frozenset[str]

    @property
    def anchors(self) -> frozenset[str]:
        return self.above | {self.process}


@dataclass(frozen=True)
class Family:
    """Who was below whom, as a history tells it."""

    places: Mapping[str, list[_Place]] = field(default_factory=dict)
    ends: Mapping[str, int] = field(default_factory=dict)
    commits: Mapping[int, int] = field(default_factory=dict)

    @property
    def sessions(self) -> Sequence[str]:
        """Those that were ever granted something."""
        return [*self.places]

    def may_have_told(self, reader: str, read_seq: int, writer: str, written_seq: int) -> bool:
        """Whether what one session read at a commit may stand in what another writes at one.

        Something that both were below, or one was, lived when they came there and when it was read.
        """
        read_at = self.commits.get(read_seq, len(self.commits))
        theirs = self._place(reader, read_at)
        own = self._place(writer, self.commits[written_seq])
        if theirs is None or own is None or reader == writer:
            return False
        common = theirs.anchors & own.anchors
        if theirs.process == own.process:  # another conversation of it
            common -= {own.process}
        last = max(theirs.at, own.at, read_at)
        return any(self.ends.get(one, last + 1) > last for one in common)

    def _place(self, session: str, at: int) -> _Place | None:
        known = self.places.get(session, [])
        index = bisect_right([place.at for place in known], at)
        return known[index - 1] if index else None


def family(events: Sequence[Event]) -> Family:
    """Read a history."""
    places: dict[str, list[_Place]] = defaultdict(list)
    ends: dict[str, int] = {}
    commits: dict[int, int] = {}
    for at, event in enumerate(events):
        if isinstance(event, Placed):
            places[event.session].append(_Place(at, event.process, frozenset(event.above)))
        elif isinstance(event, Died) and event.process:
            ends.setdefault(event.process, at)
        elif isinstance(event, Commit):
            commits[event.seq] = at
    return Family(places, ends, commits)
