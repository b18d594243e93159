"""Connections that offer to wake their own session: a plugin inside its client, a hook that waits.

The daemon asks by a push and is answered how that ended, so that the outcome is the word of who
did it. Of one session the newest offer counts, and the one before it is told that it is over.
"""

from __future__ import annotations  # nested functions would evaluate theirs each time

import asyncio
from collections.abc import Callable
from typing import Final, NamedTuple

from mbx.core.brake import Outcome
from mbx.core.evidence import Process
from mbx.daemon.holders import Target
from mbx.daemon.wakes import Told
from mbx.daemon.watching import Push

_ANSWERED: Final[dict[Outcome, str]] = {
    "admitted": "it was handed to the session and taken",
    "busy": "it is in a turn",
    "blocked": "its client lets nobody wake it",
    "failed": "its client did not take it",
    "unknown": "whether its client took it is not known",
}
"""The reason that is kept for each answer: never words of the one that answers."""

_GONE: Final = "the connection that was to wake it had ended"
_SILENT: Final = "the connection that was to wake it ended before it answered"

_Session = tuple[Process, str]


class Offer(NamedTuple):
    """One connection that can wake a session.

    `mode`: how its client treats prompts for permission, if told. `waits`: its process is there for
    this alone.
    """

    key: object
    process: Process
    conversation: str
    push: Push
    state: str = "unsaid"
    mode: str = ""
    waits: bool = False


class Offers:
    """All offers. `heed` is told whenever there is one more, one less, or one of another state."""

    def __init__(self, heed: Callable[[], None] = lambda: None) -> None:
        self._heed = heed
        self._offers: dict[_Session, Offer] = {}
        self._kept: set[object] = set()
        self._asked: dict[int, tuple[object, asyncio.Future[Told]]] = {}
        self._last_no = 0

    def add(self, offer: Offer) -> None:
        """From now on, or in another state."""
        session = (offer.process, offer.conversation)
        before = self._offers.get(session)
        self._offers[session] = offer
        if before is not None and before.key is not offer.key:
            self._end(before)
        if before != offer:
            self._heed()

    def remove(self, key: object) -> None:
        """The connection is gone: whether it did what it was asked last, nobody will say."""
        self._kept.discard(key)
        for session, offer in list(self._offers.items()):
            if offer.key is key:
                del self._offers[session]
                self._heed()
        for asked_key, answer in list(self._asked.values()):
            if asked_key is key and not answer.done():
                answer.set_result(Told("unknown", _SILENT))

    def of(self, target: Target) -> Offer | None:
        """The offer to wake exactly this session; may be asked for in any thread."""
        return self._offers.get((target.process, target.conversation))

    def keep(self, target: Target) -> None:
        """Its session is woken by it, and by nothing else: whoever waits is to go on."""
        offer = self.of(target)
        if offer is not None and offer.waits and offer.key not in self._kept:
            self._kept.add(offer.key)
            offer.push("wake.awaited", {})

    def dismiss(self, process: Process, conversation: str) -> None:
        """Nobody will ask it: whoever waits need not any more."""
        offer = self._offers.get((process, conversation))
        if offer is not None and offer.waits:
            del self._offers[process, conversation]
            self._end(offer)

    async def ask(self, target: Target, text: str) -> Told:
        """Have the session woken with `text`, and wait for the answer; the caller bounds that."""
        offer = self.of(target)
        if offer is None:
            return Told("failed", _GONE)
        self._last_no = no = self._last_no + 1
        answer: asyncio.Future[Told] = asyncio.get_running_loop().create_future()
        self._asked[no] = (offer.key, answer)
        try:
            offer.push("wake.asked", {"wake": no, "text": text})
            return await answer
        finally:
            del self._asked[no]

    def answered(self, key: object, no: int, outcome: Outcome) -> None:
        """A connection tells how a wake ended; one that was not asked for it tells nothing."""
        asked_key, answer = self._asked.get(no, (None, None))
        if asked_key is key and answer is not None and not answer.done():
            answer.set_result(Told(outcome, _ANSWERED[outcome]))

    def _end(self, offer: Offer) -> None:
        self._kept.discard(offer.key)
        offer.push("wake.over", {})
