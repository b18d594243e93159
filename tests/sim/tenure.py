"""Who held what from when to when, in the order of commits, as the audit log tells it."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from tests.sim.image import Audit

FREE, HELD, LAPSED = 0, 1, 2


@dataclass
class Tenure:
    """One grant: after the commit `start_seq` and before the commit `end_seq` (None: not ended).

    It ends with the holder's release or with the next grant: a lease that lapsed and that nobody
    took is still its holder's.
    """

    identity: str
    epoch: int
    session: str
    start_seq: int
    end_seq: int | None = None
    is_taken: bool = False
    """By the owner's takeover, not by a claim."""

    def covers_change(self, seq: int) -> bool:
        """Was a change with this commit sequence made while it lasted?"""
        return self.start_seq < seq and (self.end_seq is None or seq < self.end_seq)

    def covers_look(self, seq: int) -> bool:
        """Did it last in the state that the commit `seq` left?"""
        return self.start_seq <= seq and (self.end_seq is None or seq < self.end_seq)


@dataclass
class Lapse:
    """A holder was declared gone, and why."""

    session: str
    why: str
    seq: int


@dataclass
class Taking:
    """A takeover as the audit log tells it: by which record, and which tenure it ended, how."""

    row: Audit
    ended: Tenure | None
    was_held: bool

    @property
    def seq(self) -> int:
        """Its commit."""
        seq: int = self.row.content["seq"]
        return seq


@dataclass
class Timeline:
    """All grants, and what the log itself shows to be wrong with them."""

    tenures: list[Tenure] = field(default_factory=list)
    lapses: list[Lapse] = field(default_factory=list)
    takings: list[Taking] = field(default_factory=list)
    overlaps: list[str] = field(default_factory=list)
    epochs: list[str] = field(default_factory=list)
    states: dict[str, int] = field(default_factory=dict)
    current: dict[str, Tenure] = field(default_factory=dict)

    def held_by(self, session: str) -> list[Tenure]:
        """What a session holds now (lapsed leases do not count)."""
        return [
            tenure
            for identity, tenure in self.current.items()
            if tenure.session == session and self.states[identity] == HELD
        ]


def timeline(audit: Sequence[Audit]) -> Timeline:
    """The grants of all identities."""
    line = Timeline()
    for row in audit:
        if row.act == "claim":
            _claim(line, row)
        elif row.act == "takeover":
            _take(line, row)
        elif row.act in {"release", "lapse", "revive"}:
            _change(line, row)
    return line


def _claim(line: Timeline, row: Audit) -> None:
    identity, told = row.identity or "", row.content
    if line.states.get(identity, FREE) == HELD:
        line.overlaps.append(f"audit {row.no}: {told['name']} was granted while it was held")
    _grant(line, row, f"{told['cli']}/{told['session']}")


def _take(line: Timeline, row: Audit) -> None:
    identity, to = row.identity or "", row.content["to"]
    was_held = line.states.get(identity, FREE) == HELD
    line.takings.append(Taking(row, line.current.get(identity), was_held))
    _grant(line, row, f"{to['cli']}/{to['session']}").is_taken = True


def _grant(line: Timeline, row: Audit, session: str) -> Tenure:
    identity, told = row.identity or "", row.content
    last = line.current.get(identity)
    for other in line.held_by(session):
        if other.identity != identity:
            line.overlaps.append(f"audit {row.no}: {session} holds {other.identity} already")
    if last is not None and last.end_seq is None:
        last.end_seq = told["seq"]
    if told["epoch"] <= (last.epoch if last else 0):
        line.epochs.append(f"audit {row.no}: epoch {told['epoch']} of {identity} is not new")
    tenure = Tenure(identity, told["epoch"], session, told["seq"])
    line.tenures.append(tenure)
    line.current[identity], line.states[identity] = tenure, HELD
    return tenure


def _change(line: Timeline, row: Audit) -> None:
    identity, told = row.identity or "", row.content
    state, tenure = line.states.get(identity, FREE), line.current.get(identity)
    allowed = {"release": (HELD, LAPSED), "lapse": (HELD,), "revive": (LAPSED,)}[row.act]
    if tenure is None or state not in allowed or tenure.epoch != told["epoch"]:
        line.overlaps.append(f"audit {row.no}: {row.act} of epoch {told['epoch']} in state {state}")
        return
    if row.act == "release":
        tenure.end_seq = told["seq"]
        line.states[identity] = FREE
    elif row.act == "lapse":
        line.lapses.append(Lapse(tenure.session, told["why"], told["seq"]))
        line.states[identity] = LAPSED
    else:
        line.states[identity] = HELD
