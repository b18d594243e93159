r"""The lease of an identity: states, events, one table, and who may claim it.

    state \\ event   claim          renew(e)      release(e)    takeover(e)   lapse(e)
    FREE            HELD e+1       lease-lost    stays FREE    HELD e+1      stays FREE
    HELD            in-use         HELD e        FREE          HELD e+1      LAPSED
    LAPSED          HELD e+1       HELD e        FREE          HELD e+1      stays LAPSED

An event that names another epoch than the lease's is always ``lease-lost`` (for a takeover:
``conflict``). The epoch grows by one with each grant and fences every later use: no rule anywhere
reasons "my lease is valid for n more seconds, so I may".
"""

from dataclasses import dataclass
from enum import IntEnum
from typing import Final, Literal, NamedTuple

from mbx.core.errors import MbxError
from mbx.core.evidence import Evidence
from mbx.core.limits import LEASE_RENEW_MS, LEASE_TIMEOUT_MS, SHARED_TIMEOUT_MS


class LeaseState(IntEnum):
    """The three states of a lease; the integers are what the store holds."""

    FREE = 0
    HELD = 1
    LAPSED = 2


Event = Literal["claim", "renew", "release", "takeover", "lapse"]

_FREE, _HELD, _LAPSED = LeaseState.FREE, LeaseState.HELD, LeaseState.LAPSED

TRANSITIONS: Final[dict[tuple[LeaseState, Event], LeaseState | str]] = {
    (_FREE, "claim"): _HELD,
    (_FREE, "renew"): "lease-lost",
    (_FREE, "release"): _FREE,
    (_FREE, "takeover"): _HELD,
    (_FREE, "lapse"): _FREE,
    (_HELD, "claim"): "in-use",
    (_HELD, "renew"): _HELD,
    (_HELD, "release"): _FREE,
    (_HELD, "takeover"): _HELD,
    (_HELD, "lapse"): _LAPSED,
    (_LAPSED, "claim"): _HELD,
    (_LAPSED, "renew"): _HELD,
    (_LAPSED, "release"): _FREE,
    (_LAPSED, "takeover"): _HELD,
    (_LAPSED, "lapse"): _LAPSED,
}
"""(state, event) -> the next state, or the code of the refusal."""

GRANTS: Final = frozenset({"claim", "takeover"})
"""The events that give the lease to somebody and so start a new epoch."""


LAG_MIN_MS: Final = 5_000
"""Time that passed without the daemon, from which on it counts as paused or starved (R19)."""


class Lease(NamedTuple):
    """Who holds an identity: `session_no`, since `since_ms` (UTC), fenced by `epoch`."""

    state: LeaseState
    epoch: int
    session_no: int | None
    since_ms: int


@dataclass(frozen=True, slots=True)
class Observation:
    """What was seen of a holder's process: evidence, and the epoch it was read for."""

    epoch: int
    evidence: Evidence
    silent_ms: int = 0
    """Since the last accepted call or heartbeat, on the monotonic clock."""
    is_shared: bool = False
    """The process hosts many conversations: that it lives says nothing of this one."""


@dataclass(frozen=True, slots=True)
class Claimable:
    """Whether a claim would succeed now, and why or why not in one sentence."""

    ok: bool
    reason: str


def transition(
    lease: Lease,
    event: Event,
    *,
    now_ms: int,
    epoch: int | None = None,
    session_no: int | None = None,
) -> Lease:
    """The lease after `event`. `epoch` is the one the event names (all but claim must name it).

    Raises MbxError in-use, lease-lost, or conflict (a takeover for another epoch).
    """
    if event != "claim" and epoch != lease.epoch:
        raise MbxError(
            "conflict" if event == "takeover" else "lease-lost",
            f"the lease is at epoch {lease.epoch}, not {epoch}",
            epoch=lease.epoch,
        )
    target = TRANSITIONS[lease.state, event]
    if isinstance(target, str):
        raise MbxError(target, f"the lease is {lease.state.name.lower()}", epoch=lease.epoch)
    if event in GRANTS:
        return Lease(target, lease.epoch + 1, session_no, now_ms)
    if target == lease.state:
        return lease
    return lease._replace(state=target, since_ms=now_ms)


def claimable(lease: Lease, seen: Observation | None) -> Claimable:
    """May somebody else than the holder claim this identity now? The one answer for every face.

    Unknown is never a yes: only after `LEASE_TIMEOUT_MS` of silence does it count as lapsed.
    Evidence read for another epoch says nothing.
    """
    if lease.state is LeaseState.FREE:
        return Claimable(True, "free")
    if lease.state is LeaseState.LAPSED:
        return Claimable(True, "its holder is gone")
    if seen is None or seen.epoch != lease.epoch:
        return Claimable(False, "held; nothing is known about its holder yet")
    if seen.evidence == "dead":
        return Claimable(True, "its holder's process has ended")
    if seen.is_shared and seen.silent_ms >= SHARED_TIMEOUT_MS:
        return Claimable(True, "its conversation has been silent for ten minutes")
    if seen.evidence == "live":
        return Claimable(False, "held by a live session")
    if seen.silent_ms >= LEASE_TIMEOUT_MS:
        return Claimable(
            True, "nothing can be learnt of its holder, which has been silent too long"
        )
    return Claimable(False, "held; its holder cannot be seen and has not been silent long enough")


def is_renewal_due(expires_ms: int, now_ms: int) -> bool:
    """Whether the signed record of a held lease is to be signed again (both ms UTC).

    When half its time is over; and when it would last longer than any lease does, as after the
    clock was set back.
    """
    return not LEASE_RENEW_MS <= expires_ms - now_ms <= LEASE_TIMEOUT_MS


def lag_ms(passed_ms: int, planned_ms: int) -> int:
    """How long the daemon stood still when so much time passed from one look to the next.

    Nobody could be heard meanwhile, so it is nobody's silence.
    """
    late_ms = passed_ms - planned_ms
    return late_ms if late_ms >= LAG_MIN_MS else 0
