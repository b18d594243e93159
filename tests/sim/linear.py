"""Are the answers that callers got about one identity's lease those of one lease?

Is there an order of the operations, each somewhere between its call and its return, in which
`mbx.core.lease.transition` gives every answer that was given (after Wing and Gong, with memory of
what was tried)? Pure functions. `tests.sim.sequence` asks the same of the log, and knows nothing of
this.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple

from mbx.core.errors import MbxError
from mbx.core.lease import Event, Lease, LeaseState, transition

Kind = Literal[
    "claim", "register", "arrive", "wait", "release", "use", "read", "lapse", "takeover", "look"
]
Outcome = Literal["ok", "refused", "unknown", "lost", "again", "stale"]

NEVER: Final = math.inf
"""When an operation returns whose caller died: it may still happen at any time, or never."""


TRIES_MAX: Final = 10_000
"""Of the search for one order; then it is given up, and that is said. Good histories of 1,600 to
2,100 steps took 232 to 442; some bad ones take more than anybody waits for."""


class Seen(NamedTuple):
    """What an answer tells of the lease as it was; None: it does not tell. `holder`: a session."""

    epoch: int | None = None
    state: LeaseState | None = None
    holder: int | None = None

    def fits(self, lease: Lease) -> bool:
        """Is this the lease that it tells of?"""
        return (
            self.epoch in (None, lease.epoch)
            and self.state in (None, lease.state)
            and self.holder in (None, lease.session_no)
        )


UNSEEN: Final = Seen()
"""It tells nothing."""


@dataclass(frozen=True)
class Step:
    """One operation on one identity, by one session, between two moments of one steady clock.

    - `claim`, `register`, `arrive` (a conversation says hello and may get its own again): `epoch`
      is the one granted; refused is a claim that was answered in-use, a name that is taken.
    - `wait`: a conversation is told that it waits for the identity.
    - `use` is a mailbox call that was carried out under `epoch` (0: not told), `read` one that does
      not even say of which identity. `lost` is one, or a release, that was answered lease-lost:
      `epoch` is the one that its session had (-1: not told). Refused: the session had nothing.
    - `lapse` is the death of the session, which ends its lease at some moment after `called`, or is
      never noticed.
    - `takeover` brings the owner's `record`, which names the epoch `expects` and gives the identity
      to `session`. `again`: answered as a record that acted before. `stale`: refused as one for
      another epoch. Refused: for its destination, though the epoch was right.
    - `look` changes nothing.

    What any answer told of the lease before it is `seen`.
    """

    session: int
    kind: Kind
    outcome: Outcome
    called: float
    returned: float
    epoch: int = 0
    expects: int = 0
    record: str = ""
    seen: Seen = UNSEEN


class Known(NamedTuple):
    """What one identity has come to: its lease, and the records that took it over."""

    lease: Lease = Lease(LeaseState.FREE, 0, None, 0)
    applied: frozenset[str] = frozenset()


def outcomes(known: Known, step: Step) -> tuple[Known, ...]:
    """What the step may leave, given that it was answered as it was; nothing: it was not.

    An unknown outcome either happened or did not. That it did not has no moment, so here it stands
    for its effect alone: else each would be tried at every moment.
    """
    if not step.seen.fits(known.lease):
        return ()
    if step.kind == "takeover":
        possible = _taken(known, step)
    else:
        possible = tuple(known._replace(lease=lease) for lease in _leases(known.lease, step))
    if step.outcome != "unknown":
        return possible
    return tuple(after for after in possible if after != known)


def _taken(known: Known, step: Step) -> tuple[Known, ...]:
    lease, was_applied = known.lease, step.record in known.applied
    if step.outcome == "again":
        return (known,) if was_applied else ()
    if step.outcome == "unknown":
        return (known, *_displaced(known, step))
    if was_applied:
        return ()
    if step.outcome == "stale":
        return (known,) if lease.epoch != step.expects else ()
    if step.outcome == "refused":
        return (known,) if lease.epoch == step.expects else ()
    return tuple(after for after in _displaced(known, step) if after.lease.epoch == step.epoch)


def _displaced(known: Known, step: Step) -> tuple[Known, ...]:
    """The record acts: a compare-and-set on the epoch, for one who does not hold it."""
    lease = known.lease
    if step.record in known.applied or _is_held_by(lease, step.session):
        return ()
    applied = known.applied | {step.record}
    return tuple(Known(after, applied) for after in _after(lease, "takeover", step))


def _is_held_by(lease: Lease, session: int) -> bool:
    return lease.session_no == session and lease.state is LeaseState.HELD


def _leases(lease: Lease, step: Step) -> tuple[Lease, ...]:
    own = lease.session_no == step.session and lease.state is not LeaseState.FREE
    match step.kind, step.outcome:
        case ("claim" | "register" | "arrive", "ok"):
            return _granted(lease, step, own)
        case ("claim" | "register" | "arrive", "unknown"):
            has_it = own and lease.state is LeaseState.HELD
            return (lease, *(() if has_it else _after(lease, "claim", step)))
        case ("claim", "refused"):
            return (lease,) if lease.state is LeaseState.HELD and not own else ()
        case ("register", "refused"):
            return (lease,) if lease.epoch and not own else ()
        case ("release", "ok"):
            return _after(lease, "release", step) if own and lease.epoch == step.epoch else ()
        case ("release", "unknown"):
            return (lease, *(_after(lease, "release", step) if own else ()))
        case ("use", "ok"):
            return (lease,) if own and step.epoch in (0, lease.epoch) else ()
        case ("release" | "use" | "read", "refused") | ("wait", "ok"):
            return () if own else (lease,)
        case ("release" | "use" | "read", "lost"):
            return () if own or lease.epoch <= step.epoch else (lease,)
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
    epoch = {"claim": None, "takeover": step.expects}.get(event, lease.epoch)
    try:
        return (transition(lease, event, now_ms=0, epoch=epoch, session_no=step.session),)
    except MbxError:
        return ()


def latest_epoch(step: Step) -> float:
    """The highest epoch of the lease before which the step can be answered as it was.

    Epochs only grow: where the lease has come to a higher one, it comes too late.
    """
    told = [NEVER] if step.seen.epoch is None else [step.seen.epoch]
    if step.kind == "takeover" and step.outcome in {"ok", "refused"}:
        told.append(step.expects)
    elif step.kind != "takeover" and step.outcome == "ok" and step.epoch:
        told.append(step.epoch)
    return min(told)


class _Mark:
    """The call or the return of a step, in a list that it can be taken out of and put back."""

    __slots__ = ("after", "back", "before", "no")

    def __init__(self, no: int) -> None:
        self.no = no
        self.back: _Mark | None = None
        """Of a call: its return, if it has one. Of a return: None."""
        self.before: _Mark = self
        self.after: _Mark = self


class _Search:
    """A way through the steps, as far as it has come, and what was tried."""

    def __init__(self, steps: Sequence[Step]) -> None:
        self.order = sorted(steps, key=lambda step: step.called)
        self.head = _listed(self.order)
        self.late = [_Mark(no) for no, one in enumerate(self.order) if one.returned == NEVER]
        """What may still happen, and need not."""
        self.twins = _twins(self.order)
        self.left = len(self.order) - len(self.late)
        self.bound = sorted(_bound(self.order))
        """What must come before the lease has a higher epoch than some: (that epoch, step)."""
        self.first_bound = 0
        """Of these, the first that may not have come."""
        self.known, self.done = Known(), 0
        self.furthest = 0.0
        self.tried: set[tuple[int, Known]] = set()
        self.taken: list[tuple[_Mark, Known, int, bool]] = []
        """What was taken, what was known and the first that was bound before it, and whether it
        is idle."""

    def goes_through(self, tries_max: int) -> bool | None:
        """Whether there is an order of all the steps; None: it was given up."""
        self._take_idle()
        ways = [self._ways()]
        while self.left:
            if len(self.tried) > tries_max:
                return None
            way = next(ways[-1], None)
            if way is not None:
                self._take(*way)
                self._take_idle()
                ways.append(self._ways())
            elif len(ways) == 1:
                return False
            else:
                ways.pop()
                self._back()
        return True

    def _ways(self) -> Iterator[tuple[_Mark, Known]]:
        """What may come next and where that leads, unless it was reached before.

        First what surely came, then what may have.
        """
        unknown = []
        mark = self.head.after
        while mark.no >= 0:
            if self.order[mark.no].outcome == "unknown":
                unknown.append(mark)
            else:
                yield from self._untried(mark)
            mark = mark.after
        end = self.order[~mark.no].returned  # what has not come now must come before it
        self.furthest = max(self.furthest, end)
        for one in unknown:
            yield from self._untried(one)
        for late in self.late:
            if self.order[late.no].called <= end and self._is_next(late.no):
                yield from self._untried(late)
        for one in unknown:
            if one.back is mark:  # it had until here to happen, and did not
                yield from self._new(one, self.known)

    def _is_next(self, no: int) -> bool:
        """Whether it is not taken yet, and of several alike the first that is not."""
        twin = self.twins.get(no)
        return not self.done >> no & 1 and (twin is None or bool(self.done >> twin & 1))

    def _untried(self, mark: _Mark) -> Iterator[tuple[_Mark, Known]]:
        for after in outcomes(self.known, self.order[mark.no]):
            yield from self._new(mark, after)

    def _new(self, mark: _Mark, after: Known) -> Iterator[tuple[_Mark, Known]]:
        reached = (self.done | 1 << mark.no, after)
        if reached not in self.tried and not self._is_too_late(*reached):
            self.tried.add(reached)
            yield mark, after

    def _is_too_late(self, done: int, after: Known) -> bool:
        """Whether a step that has not come can no longer, since the lease has too high an epoch.

        Without this it is found only where that step returns: for one of a stopped process after
        much else, in each order that this could have had.
        """
        for at in range(self.first_bound, len(self.bound)):
            epoch, no = self.bound[at]
            if epoch >= after.lease.epoch:
                return False
            if not done >> no & 1:
                return True
        return False

    def _take_idle(self) -> None:
        """Take all that fits now and changes nothing: no later moment is better for it."""
        mark = self.head.after
        while self.left and mark.no >= 0:
            following, step = mark.after, self.order[mark.no]
            if outcomes(self.known, step) == (self.known,):
                self._take(mark, self.known, is_idle=True)
                following = following.after if following is mark.back else following
            mark = following

    def _take(self, mark: _Mark, after: Known, *, is_idle: bool = False) -> None:
        self.taken.append((mark, self.known, self.first_bound, is_idle))
        for one in (mark, mark.back):
            if one is not None:
                one.before.after, one.after.before = one.after, one.before
        self.known = after
        self.done |= 1 << mark.no
        self.left -= mark.back is not None
        while (
            self.first_bound < len(self.bound) and self.done >> self.bound[self.first_bound][1] & 1
        ):
            self.first_bound += 1

    def _back(self) -> None:
        """Undo all up to the last step that was not idle, and that one."""
        is_idle = True
        while is_idle:
            mark, self.known, self.first_bound, is_idle = self.taken.pop()
            for one in (mark.back, mark):
                if one is not None:
                    one.before.after = one.after.before = one
            self.done &= ~(1 << mark.no)
            self.left += mark.back is not None


def by_search(steps: Sequence[Step], tries_max: int = TRIES_MAX) -> list[str]:
    """What is wrong with the history of one identity: nothing, or where every order ends."""
    search = _Search(steps)
    is_good = search.goes_through(tries_max)
    if is_good:
        return []
    found = "no order explains" if is_good is False else f"{tries_max} tries do not explain"
    return [f"{found} {_told(search.order, search.furthest)}"]


def _bound(order: Sequence[Step]) -> Iterator[tuple[float, int]]:
    for no, step in enumerate(order):
        if step.returned < NEVER and (epoch := latest_epoch(step)) < NEVER:
            yield epoch, no


def _twins(order: Sequence[Step]) -> dict[int, int]:
    """Place of a step -> that of the last one before it that is the same in everything."""
    last: dict[Step, int] = {}
    found = {}
    for no, step in enumerate(order):
        if step in last:
            found[no] = last[step]
        last[step] = no
    return found


def _listed(order: Sequence[Step]) -> _Mark:
    """Calls and returns in the order of time; at one moment the calls come first."""
    head = _Mark(0)
    marks: list[tuple[float, int, _Mark]] = []
    for no, step in enumerate(order):
        if step.returned < NEVER:
            call = _Mark(no)
            call.back = _Mark(~no)
            marks += (step.called, 0, call), (step.returned, 1, call.back)
    last = head
    for _, _, mark in sorted(marks, key=lambda one: one[:2]):
        last.after, mark.before = mark, last
        last = mark
    last.after, head.before = head, last
    return head


def _told(order: Sequence[Step], until: float) -> str:
    last = [step for step in order if step.returned <= until][-1:]
    return f"{last[0] if last else order[0]} and what was answered before it"
