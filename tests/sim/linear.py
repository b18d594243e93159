"""Are the answers that clients got about one identity's lease those of one lease?

Two ways, which know nothing of each other. `by_search`: is there an order of the operations, each
somewhere between its call and its return, in which `mbx.core.lease.transition` gives every answer
that was given (after Wing and Gong, with memory of what was tried)? `by_sequence`: do the answers
agree with the audit log of the store, row for row, in the order of commits? Pure functions.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from mbx.core.errors import MbxError
from mbx.core.lease import Event, Lease, LeaseState, transition
from tests.sim.image import Audit
from tests.sim.tenure import Tenure, timeline

Kind = Literal["claim", "register", "release", "use", "lapse"]
Outcome = Literal["ok", "refused", "unknown"]

NEVER: Final = math.inf
"""When an operation returns whose caller died: it may still happen at any time, or never."""
_NOBODY: Final = Lease(LeaseState.FREE, 0, None, 0)


@dataclass(frozen=True)
class Step:
    """One operation on one identity, by one session, between two moments of one steady clock.

    `use` is a mailbox call that was carried out under `epoch`; `lapse` is the death of the session,
    which ends its lease at some moment after `called`, or is never noticed. A refused claim is one
    that was answered in-use; a refused release or use says that the session held nothing.
    """

    session: int
    kind: Kind
    outcome: Outcome
    called: float
    returned: float
    epoch: int = 0


# --- by search ------------------------------------------------------------------------------------


def outcomes(lease: Lease, step: Step) -> tuple[Lease, ...]:
    """The leases that the step may leave, given that it was answered as it was; none: it was not.

    An unknown outcome either happened or did not. One that may still happen has no moment at which
    it did not, so it stands for its effect alone: else each would be tried at every moment.
    """
    possible = _outcomes(lease, step)
    if step.returned < NEVER:
        return possible
    return tuple(after for after in possible if after != lease)


def _outcomes(lease: Lease, step: Step) -> tuple[Lease, ...]:
    own = lease.session_no == step.session and lease.state is not LeaseState.FREE
    match step.kind, step.outcome:
        case ("claim" | "register", "ok"):
            return _granted(lease, step, own)
        case ("claim" | "register", "unknown"):
            return (lease, *(() if own else _after(lease, "claim", step)))
        case ("claim", "refused"):
            return (lease,) if lease.state is LeaseState.HELD and not own else ()
        case ("register", "refused"):
            return (lease,) if lease.epoch and not own else ()
        case ("release", "ok"):
            return _after(lease, "release", step) if own and lease.epoch == step.epoch else ()
        case ("release", "unknown"):
            return (lease, *(_after(lease, "release", step) if own else ()))
        case ("use", "ok"):
            return (lease,) if own and lease.epoch == step.epoch else ()
        case ("release" | "use", "refused"):
            return () if own else (lease,)
        case ("lapse", _):
            return (lease, *(_after(lease, "lapse", step) if own else ()))
    return (lease,)


def _granted(lease: Lease, step: Step, own: bool) -> tuple[Lease, ...]:
    if own and lease.state is LeaseState.HELD:
        return (lease,) if lease.epoch == step.epoch else ()
    if step.kind == "register" and lease.epoch:
        return ()
    return tuple(after for after in _after(lease, "claim", step) if after.epoch == step.epoch)


def _after(lease: Lease, event: Event, step: Step) -> tuple[Lease, ...]:
    epoch = None if event == "claim" else lease.epoch
    try:
        return (transition(lease, event, now_ms=0, epoch=epoch, session_no=step.session),)
    except MbxError:
        return ()


class _Mark:
    """The call or the return of a step, in a list that it can be taken out of and put back."""

    __slots__ = ("after", "back", "before", "no")

    def __init__(self, no: int) -> None:
        self.no = no
        self.back: _Mark | None = None
        """Of a call: its return, if it has one. Of a return: None."""
        self.before: _Mark = self
        self.after: _Mark = self


def by_search(steps: Sequence[Step], start: Lease = _NOBODY) -> list[str]:
    """What is wrong with the history of one identity: nothing, or where every order ends."""
    order = sorted(steps, key=lambda step: step.called)
    head = _listed(order)
    tried: set[tuple[int, Lease]] = set()
    taken: list[tuple[_Mark, Lease, Iterator[Lease]]] = []
    lease, done, furthest = start, 0, 0.0
    left = sum(step.returned < NEVER for step in order)
    mark = head.after
    while left:  # what may still happen need not
        if mark.no >= 0:
            options = iter(outcomes(lease, order[mark.no]))
        else:  # this return comes before its step: go back and take another way
            furthest = max(furthest, order[~mark.no].returned)
            if not taken:
                return [f"no order explains {_told(order, furthest)}"]
            mark, lease, options = taken.pop()
            _put_back(mark)
            done &= ~(1 << mark.no)
            left += mark.back is not None
        after = _untried(options, done | 1 << mark.no, tried)
        if after is None:
            mark = mark.after
            continue
        taken.append((mark, lease, options))
        _take_out(mark)
        done |= 1 << mark.no
        left -= mark.back is not None
        lease, mark = after, head.after
    return []


def _untried(options: Iterator[Lease], done: int, tried: set[tuple[int, Lease]]) -> Lease | None:
    """The next lease that was not reached yet with these steps done."""
    for after in options:
        if (done, after) not in tried:
            tried.add((done, after))
            return after
    return None


def _listed(order: Sequence[Step]) -> _Mark:
    """Calls and returns in the order of time; at one moment the calls come first."""
    head = _Mark(0)
    marks: list[tuple[float, int, _Mark]] = []
    for no, step in enumerate(order):
        call = _Mark(no)
        marks.append((step.called, 0, call))
        if step.returned < NEVER:
            call.back = _Mark(~no)
            marks.append((step.returned, 1, call.back))
    last = head
    for _, _, mark in sorted(marks, key=lambda one: one[:2]):
        last.after, mark.before = mark, last
        last = mark
    last.after, head.before = head, last
    return head


def _take_out(call: _Mark) -> None:
    for mark in (call, call.back):
        if mark is not None:
            mark.before.after, mark.after.before = mark.after, mark.before


def _put_back(call: _Mark) -> None:
    for mark in (call.back, call):
        if mark is not None:
            mark.before.after = mark.after.before = mark


def _told(order: Sequence[Step], until: float) -> str:
    last = [step for step in order if step.returned <= until][-1:]
    return f"{last[0] if last else order[0]} and what was answered before it"


# --- by commit sequence ---------------------------------------------------------------------------


@dataclass(frozen=True)
class _Event:
    """A grant or a release as the log has it."""

    seq: int
    session: str
    epoch: int


def by_sequence(
    steps: Mapping[str, Sequence[Step]], audit: Sequence[Audit], names: Mapping[int, str]
) -> list[str]:
    """What is wrong with the answers, given the log: `steps` by identity id, `names` of sessions.

    Epochs grow, tenures do not overlap, each accepted claim has its own grant and each accepted
    release ends exactly its epoch, nothing is there that nobody asked for, and what had returned
    before another was called was committed before it.
    """
    line = timeline(audit)
    found = [*line.overlaps, *line.epochs]
    for identity, some in steps.items():
        tenures = [tenure for tenure in line.tenures if tenure.identity == identity]
        grants = {t.epoch: _Event(t.start_seq, t.session, t.epoch) for t in tenures}
        if len(grants) != len(tenures):
            found.append(f"{identity}: two grants have one epoch")
        releases = {
            row.content["epoch"]: _Event(
                row.content["seq"], f"{row.content['cli']}/{row.content['session']}", 0
            )
            for row in audit
            if row.act == "release" and row.identity == identity
        }
        found += [
            f"{identity}: {row.session} released epoch {epoch}, which was not its own"
            for epoch, row in releases.items()
            if epoch in grants and grants[epoch].session != row.session
        ]
        found += [f"{identity}: {what}" for what in _answers(some, grants, releases, names)]
        found += [f"{identity}: {what}" for what in _uses(some, tenures, names)]
        found += [f"{identity}: {what}" for what in _unasked(some, grants, releases, names)]
    return found


def _answers(
    steps: Iterable[Step],
    grants: Mapping[int, _Event],
    releases: Mapping[int, _Event],
    names: Mapping[int, str],
) -> list[str]:
    """Each accepted answer has its row, and rows are in the order of real time."""
    found, placed, ended = [], list[tuple[Step, int]](), set[int]()
    first: dict[int, Step] = {}
    for step in sorted((s for s in steps if s.outcome == "ok"), key=lambda step: step.returned):
        if step.kind in {"claim", "register"}:
            row = grants.get(step.epoch)
            if row is None or row.session != names[step.session]:
                found.append(f"{step} was granted {row}")
            elif first.setdefault(step.epoch, step) is step:
                placed.append((step, row.seq))  # later ones got their own lease back
        elif step.kind == "release":
            row = releases.get(step.epoch)
            if row is None or row.session != names[step.session] or step.epoch in ended:
                found.append(f"{step} was released as {row}")
            else:
                placed.append((step, row.seq))
            ended.add(step.epoch)
    return found + _out_of_order(placed)


def _out_of_order(placed: list[tuple[Step, int]]) -> list[str]:
    """Steps that had returned before another was called, and were committed after it."""
    by_seq = sorted(placed, key=lambda one: one[1], reverse=True)
    found, earliest = [], (math.inf, 0)
    for step, seq in by_seq:
        if earliest[0] < step.called:
            found.append(f"{step} was committed as {seq}, before {earliest[1]}, and called after")
        earliest = min(earliest, (step.returned, seq))
    return found


def _uses(steps: Iterable[Step], tenures: Iterable[Tenure], names: Mapping[int, str]) -> list[str]:
    """A mailbox call is under a grant of its own session."""
    held = {(tenure.epoch, tenure.session) for tenure in tenures}
    return [
        f"{step} was carried out under a lease that its session never had"
        for step in steps
        if (step.kind, step.outcome) == ("use", "ok")
        and (step.epoch, names[step.session]) not in held
    ]


def _unasked(
    steps: Iterable[Step],
    grants: Mapping[int, _Event],
    releases: Mapping[int, _Event],
    names: Mapping[int, str],
) -> list[str]:
    """No session was granted, and none gave back, more than it may have asked for."""
    asked: dict[tuple[str, str], int] = defaultdict(int)
    got: dict[int, set[str]] = defaultdict(set)
    for step in steps:
        kind = "release" if step.kind == "release" else "claim"
        if step.outcome == "unknown" and step.kind != "lapse":
            asked[kind, names[step.session]] += 1
        elif step.outcome == "ok" and step.kind != "use":
            got[step.epoch].add(kind)
    found = []
    for kind, rows in (("claim", grants), ("release", releases)):
        for epoch, row in rows.items():
            if kind not in got[epoch]:
                asked[kind, row.session] -= 1
                if asked[kind, row.session] < 0:
                    found.append(f"nobody asked for the {kind} of epoch {epoch} by {row.session}")
    return found
