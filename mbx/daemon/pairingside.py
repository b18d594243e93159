"""Our side of one pairing, from the command that began it to its end, and who waits for news."""

from __future__ import annotations  # asyncio's names are evaluated by nobody

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, Literal, Protocol

from mbx.core import keys, pairing
from mbx.core.endpoints import Endpoint
from mbx.core.limits import WRONG_PROOFS_MAX
from mbx.core.pairing import Match, Own
from mbx.core.pairing_run import PAIRED, Invitation, Inviter, Joiner
from mbx.core.record import Record
from mbx.daemon.context import Answer, Result
from mbx.daemon.proven import Proven
from mbx.daemon.times import rfc3339
from mbx.store.database import Committed, Outcome

LOOK_S: Final = 20.0
"""How long a caller waits for news before it is told that there are none."""
WAITING_MAX: Final = 8
"""Callers that may wait for news of one side; one more sends the oldest home."""

State = Literal["waiting", "comparing", "agreed", "over"]
"""`waiting` for the other host; `comparing`, for our people; `agreed`, for the other's people."""

Settle = Callable[[Outcome[Answer]], None]
"""Takes the answer of a call."""
Machine = Inviter | Joiner
"""What decides in a run."""

ENDS: Final[dict[str, tuple[str, str]]] = {
    PAIRED: ("both hosts have recorded the pairing", "mbx peers list"),
    "replaced": (
        "another pairing was begun on this host: the code of this one is void",
        "go on with the other one",
    ),
    "stopped": (
        "the daemon was stopped: a pairing does not outlive it, and its code is void",
        "run mbx pair again for a new code",
    ),
    "left-here": (
        "the command that began the pairing has ended: its code is void",
        "mbx pair begins another one",
    ),
    "declined-here": ("the pairing was declined here", "mbx pair begins another one"),
    "busy-here": ("this host has as many links as it can have", "mbx peers list"),
    "expired-here": ("nobody came with the code in time; it is void", "run mbx pair again"),
    "burnt-here": (
        f"{WRONG_PROOFS_MAX} wrong codes were tried: this one is void, nobody was paired",
        "find out who tried them, then run mbx pair again",
    ),
    "unanswered": (
        "this host has recorded the pairing, but the other one has not said that it has",
        "mbx peers list tells whether a link stands; if none ever does, remove it and pair again",
    ),
    "undecided": ("nobody agreed in time; nothing was recorded here", "run mbx pair again"),
}
"""Code of an end that is ours to tell -> (what happened, what to do); ``-here`` is not told."""


class Channel(Protocol):
    """What is needed of `mbx.daemon.faces.channels.Channel`."""

    certificate: bytes | None

    async def receive(self) -> str:
        """The next text. Raises ChannelEnded."""

    def send(self, text: str) -> None:
        """Write a text. Raises ChannelEnded."""

    def proved(self) -> bool:
        """The other side is no stranger any more."""

    async def close(self) -> None:
        """Say goodbye behind what was written."""


def _nobody(_: Side) -> None:
    """Nobody wants to know."""


@dataclass(eq=False)
class Side:
    """One side: `id` names it to the command that began it.

    `expires_ms`: wall clock, for people; `until_ms` (monotonic): when it ends by itself.
    `opened`: where this host listens for the sake of this pairing alone.
    `received`: what the other side's person sent along, None before they agreed; `is_cut`: the
    connection is gone, and our person may still agree. `end`: (code, what happened, what to do).
    """

    id: str
    role: str
    own: Own
    now_ms: Callable[[], int]
    expires_ms: int
    until_ms: int
    listening: tuple[str, ...] = ()
    opened: tuple[Endpoint, ...] = ()
    ended: Callable[[Side], None] = _nobody
    """Called once, at its end."""
    invitation: Invitation | None = None
    dialled: str | None = None
    machine: Machine | None = None
    channel: Channel | None = None
    match: Match | None = None
    received: tuple[Record, ...] | None = None
    enclosed: tuple[Record, ...] = ()
    wrong: int = 0
    has_agreed: bool = False
    is_cut: bool = False
    end: tuple[str, str, str] | None = None
    _version: int = 1
    _waiting: list[tuple[Settle, asyncio.TimerHandle]] = field(default_factory=list)
    _timer: asyncio.TimerHandle | None = None

    @property
    def state(self) -> State:
        """What it waits for."""
        if self.end is not None:
            return "over"
        if self.match is None:
            return "waiting"
        return "agreed" if self.has_agreed else "comparing"

    def proven(self) -> Proven | None:
        """As drafts and acts see it, for as long as our person may agree."""
        if self.match is None or self.end is not None:
            return None
        return Proven(
            self.match,
            self.own.certificate,
            self.own.addresses,
            self.listening,
            self.dialled,
            self.received,
            self.enclosed,
        )

    def is_of(self, pairing_id: str) -> bool:
        """Whether it waits for its people, and is the pairing of that id."""
        found = self.proven()
        return found is not None and found.id == pairing_id

    # -- news and ends ----------------------------------------------------------------------------

    def over(self, code: str, words: str = "", next_step: str = "") -> None:
        """It has ended; only the first end counts. `code`: of `ENDS`, or with words of its own."""
        if self.end is not None:
            return
        told = ENDS.get(code, ("", ""))
        self.end = (code.removesuffix("-here"), words or told[0], next_step or told[1])
        if self._timer is not None:
            self._timer.cancel()
        self.ended(self)
        self.changed()

    def look(self, seen: int, settle: Settle) -> None:
        """Answer at once where there is something new since version `seen`; else when there is."""
        if self._version != seen or self.end is not None:
            settle(Committed(Answer(self.told()), 0))
            return
        while len(self._waiting) >= WAITING_MAX:
            self._answer(*self._waiting.pop(0))

        def nothing_new() -> None:
            self._waiting.remove(waiter)
            self._answer(*waiter)

        waiter = (settle, asyncio.get_running_loop().call_later(LOOK_S, nothing_new))
        self._waiting.append(waiter)

    def changed(self) -> None:
        """Tell whoever waits."""
        self._version += 1
        waiting, self._waiting = self._waiting, []
        for settle, timer in waiting:
            self._answer(settle, timer)

    def end_at(self, until_ms: int, timed_out: Callable[[Side], None]) -> None:
        """Call `timed_out` then (monotonic ms), and not at an earlier setting of it."""
        self.until_ms = until_ms
        if self._timer is not None:
            self._timer.cancel()
        delay_s = max(0, until_ms - self.now_ms()) / 1000
        self._timer = asyncio.get_running_loop().call_later(delay_s, timed_out, self)

    def _answer(self, settle: Settle, timer: asyncio.TimerHandle) -> None:
        timer.cancel()
        settle(Committed(Answer(self.told()), 0))

    def told(self) -> Result:
        """What the command on the terminal needs to know."""
        code, words, next_step = self.end or ("", "", "")
        return {
            "run": self.id,
            "seen": self._version,
            "role": self.role,
            "state": self.state,
            "addresses": list(self.own.addresses),
            "listening": list(self.listening),
            "expires_at": rfc3339(self.expires_ms),
            "left_s": max(0, self.until_ms - self.now_ms()) // 1000,
            "wrong_codes": self.wrong,
            "wrong_codes_left": WRONG_PROOFS_MAX - self.wrong,
            "compare": _compared(self.match) if self.match is not None else None,
            "agreed": {"here": self.has_agreed, "there": self.received is not None},
            "records": [_record(one) for one in self.received or ()],
            "end": {"code": code, "words": words, "next": next_step} if code else None,
        }


def _compared(match: Match) -> Result:
    other = match.peer
    return {
        "pairing": keys.crockford(match.transcript),
        "short": match.short,
        "label": other.label,
        "key_id": other.host,
        "addresses": list(other.addresses),
        "owner": None if other.owner is None else keys.key_id("owner", other.owner),
        "adopts": match.adopts,
        "skew_ms": match.skew_ms,
        "skew": pairing.skew_words(match.skew_ms),
    }


def _record(record: Record) -> dict[str, Any]:
    signatures = dict(record.signatures)
    return {"kind": record.kind, "payload": record.payload, "signatures": signatures}
