"""The transactions of a wake: written down before it is tried, and settled after it.

In each the lease is looked at again: what is meant for one holder tells nothing to the next.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from mbx.core.brake import Outcome, Waiting
from mbx.core.delivery import Stage
from mbx.core.errors import MbxError
from mbx.core.lease import LeaseState
from mbx.core.limits import WAKE_ANNOUNCED_MAX
from mbx.core.receipt import Fact
from mbx.core.waking import notice
from mbx.daemon import gate, receipting
from mbx.daemon.effects import Effect, Handled
from mbx.daemon.gate import Caller
from mbx.daemon.holders import Target
from mbx.daemon.host import Host
from mbx.daemon.world import Moment
from mbx.store import identities, leases, messages, wakes
from mbx.store.database import Tx
from mbx.store.wakes import NewWake

LEFT = "the daemon that tried it ended before it was known"
"""Why a wake that an earlier daemon left is unknown."""


@dataclass(frozen=True, slots=True)
class Intent:
    """A wake that is written down: its key, the words, what it announces, the counts to tell."""

    no: int
    text: str
    waiting: tuple[Waiting, ...]
    counts: dict[str, object]
    refused: tuple[tuple[int, MbxError], ...] = ()
    """Which of the callers that wait hold the lease no more, by their place."""

    @property
    def nos(self) -> frozenset[int]:
        """The messages that it announces."""
        return frozenset(one.no for one in self.waiting)

    @property
    def upto_no(self) -> int:
        """The newest message that it announces."""
        return max(one.no for one in self.waiting)


class Draft(NamedTuple):
    """A wake as the worker means it."""

    target: Target
    way: str
    waiting: tuple[Waiting, ...]
    causes: tuple[Waiting, ...]
    callers: tuple[Caller, ...] = ()
    """Connections that wait for mail: each must hold the lease by itself."""


def is_current(tx: Tx, target: Target) -> bool:
    """Whether the session holds the lease at that epoch."""
    lease = leases.find(tx, target.identity_no).lease
    held = (lease.state, lease.epoch, lease.session_no)
    return held == (LeaseState.HELD, target.epoch, target.session_no)


def waiting(tx: Tx, target: Target) -> list[Waiting]:
    """What waits for the session and was announced to nobody; nothing if it holds no lease."""
    if not is_current(tx, target):
        return []
    return wakes.waiting(tx, target.identity_no, WAKE_ANNOUNCED_MAX)


def intend(tx: Tx, now_ms: int, draft: Draft) -> Intent | None:
    """Write a wake down; None: nothing waits any more of what it was meant for.

    It announces what came meanwhile, too: its words count all that is unread.
    """
    target = draft.target
    left = waiting(tx, target)
    refused = tuple(
        (place, error)
        for place, caller in enumerate(draft.callers)
        if (error := _refusal(tx, caller)) is not None
    )
    if not {one.no for one in left} & {one.no for one in draft.waiting}:
        return None
    if draft.callers and len(refused) == len(draft.callers):
        return None
    identity = identities.by_no(tx, target.identity_no)
    unread = identities.unread(tx, target.identity_no)
    upto_no = max(one.no for one in left)
    new = NewWake(
        target.identity_no, target.session_no, target.epoch, draft.way, now_ms, upto_no, len(left)
    )
    no = wakes.intend(tx, new, draft.causes)
    counts: dict[str, object] = {
        "agent": identity.name,
        "unread": unread,
        "waking": messages.waking(tx, target.identity_no),
    }
    return Intent(no, notice(unread, identity.name), tuple(left), counts, refused)


def _refusal(tx: Tx, caller: Caller) -> MbxError | None:
    try:
        gate.admit_holder(tx, caller)
    except MbxError as error:
        return error
    return None


def settle(
    tx: Tx,
    host: Host,
    moment: Moment,
    target: Target,
    intent: Intent,
    outcome: Outcome,
    reason: str,
) -> Sequence[Effect]:
    """Write down how it ended; what was announced to the holder of now is *notified*."""
    wakes.settle(tx, intent.no, outcome, reason)
    if outcome != "admitted":
        return ()
    return tell(tx, host, moment, target, intent.nos)


def tell(
    tx: Tx, host: Host, moment: Moment, target: Target, nos: Collection[int]
) -> Sequence[Effect]:
    """These messages were announced to a session: they are *notified*, if it holds the lease."""
    if not is_current(tx, target):
        return ()
    now_ms, epoch = moment.now_ms, target.epoch
    told = wakes.announced(tx, target.identity_no, nos, now_ms=now_ms, epoch=epoch)
    identity = identities.by_no(tx, target.identity_no).identity
    facts = [
        (peer_no, Fact(message_id, identity, Stage.NOTIFIED, now_ms))
        for message_id, peer_no in told
    ]
    stated = receipting.state_all(tx, host, moment, facts, epoch)
    return (*stated, Handled(target.identity_no)) if told else stated
