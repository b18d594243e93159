"""`wake.offer`, `wake.settle`: a connection wakes its own session when it is asked to.

The store has no part in it but to say who asks; what follows is the face's (`mbx.daemon.offers`).
"""

from typing import Final, NamedTuple

from mbx.core.brake import OUTCOMES
from mbx.core.errors import MbxError
from mbx.core.limits import WAKE_MODE_MAX_CHARS
from mbx.daemon.context import Answer, Context
from mbx.daemon.gate import Access, Session
from mbx.daemon.methods.table import Method
from mbx.daemon.params import Params
from mbx.store.database import Tx

STATES: Final = ("idle", "busy", "unsaid")
"""What an offer may say of its session; ``unsaid``: somebody else knows."""

_NUMBER_MAX: Final = 2**53 - 1


class OfferRequest(NamedTuple):
    """What the session does now, and how its client treats prompts, where that is known.

    `waits`: it is there for this alone, and ends where nobody needs it.
    """

    state: str
    mode: str
    waits: bool


class SettleRequest(NamedTuple):
    """How the wake of this number ended."""

    wake: int
    outcome: str


def _read_offer(params: Params) -> OfferRequest:
    state, mode = params.choice("state", STATES), params.optional_string("mode") or ""
    if len(mode) > WAKE_MODE_MAX_CHARS or not mode.isprintable():
        raise MbxError("usage", f"mode must be printable, at most {WAKE_MODE_MAX_CHARS} characters")
    return OfferRequest(state or "unsaid", mode, params.boolean("waits"))


def _offer(context: Context, tx: Tx, caller: Session, request: OfferRequest) -> Answer:
    return Answer(
        {
            "agent": caller.binding.name if caller.binding else None,
            "shared": caller.caller.lineage.shared,
            "state": request.state,
            "mode": request.mode,
            "waits": request.waits,
        }
    )


def _read_settle(params: Params) -> SettleRequest:
    wake = params.integer("wake", 0, 0, _NUMBER_MAX)
    return SettleRequest(wake, params.choice("outcome", OUTCOMES) or "unknown")


def _settle(context: Context, tx: Tx, caller: Session, request: SettleRequest) -> Answer:
    return Answer({"wake": request.wake, "outcome": request.outcome})


METHODS: Final = (
    Method(
        "wake.offer",
        Access.SESSION,
        False,
        "For clients' plugins and hooks: from now on this connection is asked, by `wake.asked`, to"
        " wake its session with a text, until `wake.over`. Said again when its state changes. One"
        " that `waits` is told by `wake.awaited` or `wake.over` whether it is needed.",
        _read_offer,
        _offer,
        brief=True,
    ),
    Method(
        "wake.settle",
        Access.SESSION,
        False,
        "How the wake ended that this connection was asked for.",
        _read_settle,
        _settle,
        brief=True,
    ),
)
"""What this module adds to the table of methods."""
