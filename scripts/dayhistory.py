"""What the players of a day did and were told: what the checker holds against the store.

A message is known by its *tag*, a word that stands in no other message: the last word of its body,
in square brackets, or the whole body of a message of a burst. All methods may be called from any
thread.
"""

import re
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from mbx.core.delivery import STAGE_LABELS

Outcome = Literal["begun", "accepted", "refused", "unknown"]
Session = tuple[str, str]
"""Agent CLI and session id."""

_TAG: Final = re.compile(r"\[([0-9a-z]+)\]\Z")


def tag_of(body: str) -> str:
    """The tag of a message with this body."""
    found = _TAG.search(body)
    return found.group(1) if found else body


@dataclass
class Sending:
    """One message that somebody meant to send: how, and what came of it.

    `words` repeat the command with the same idempotency key; a reply has none, and is looked for.
    """

    tag: str
    sender: str
    words: tuple[str, ...] | None
    outcome: Outcome = "begun"
    id: str | None = None
    recipients: tuple[str, ...] = ()


@dataclass(frozen=True)
class Grant:
    """A lease as its holder was told it: identity, epoch, session."""

    identity: str
    epoch: int
    session: Session


@dataclass(frozen=True)
class Told:
    """A history up to some moment: what must be true of every later store."""

    accepted: tuple[Sending, ...]
    reads: frozenset[tuple[str, str]]
    """(message id, identity)."""
    acks: dict[tuple[str, str], str]
    """(message id, identity) -> what was said to be done."""
    grants: tuple[Grant, ...]
    seen: dict[tuple[str, str], int]
    """(message id, recipient's identity) -> the highest stage that the sender saw."""


def now_ms() -> int:
    """UTC, as the audit log has it."""
    return time.time_ns() // 1_000_000


@dataclass
class History:
    """Grows all day. `faults` are what a player itself saw go wrong."""

    sendings: dict[str, Sending] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    touched: set[tuple[str, str, str]] = field(default_factory=set)
    """(read or ack, message id, identity): whatever was tried, whatever came of it."""
    deaths: list[tuple[Session, int]] = field(default_factory=list)
    """(session, ms UTC just before it was killed)."""

    def __post_init__(self) -> None:
        self._lock = threading.RLock()
        self._reads: set[tuple[str, str]] = set()
        self._acks: dict[tuple[str, str], str] = {}
        self._grants: list[Grant] = []
        self._seen: dict[tuple[str, str], int] = {}
        self._names: dict[str, str] = {}

    # -- mail -------------------------------------------------------------------------------------

    def begin(self, tag: str, sender: str, words: tuple[str, ...] | None) -> Sending:
        """A message is about to be sent."""
        with self._lock:
            return self.sendings.setdefault(tag, Sending(tag, sender, words))

    def accepted(self, sending: Sending, answer: dict[str, Any]) -> None:
        """The daemon answered: `send` and `reply` tell the id and the recipients."""
        with self._lock:
            if sending.outcome == "unknown":
                self.counts["settled as stored"] += 1
            if sending.id not in (None, answer["id"]):
                self.faults.append(f"{sending.tag} was {sending.id} and is {answer['id']}")
            sending.id = answer["id"]
            sending.recipients = tuple(one["identity"] for one in answer["recipients"])
            sending.outcome = "accepted"
            self.counts["accepted"] += 1

    def not_accepted(self, sending: Sending, *, known: bool) -> None:
        """It was refused, or (`known` false) nobody knows."""
        with self._lock:
            if sending.outcome == "unknown" and known:
                self.counts["settled as not stored"] += 1
            if sending.outcome != "unknown" and not known:
                self.counts["unknown outcomes"] += 1
            sending.outcome = "refused" if known else "unknown"

    def unknown_of(self, sender: str) -> list[Sending]:
        """What an identity sent and does not know the outcome of."""
        with self._lock:
            return [
                one
                for one in self.sendings.values()
                if one.sender == sender and one.outcome == "unknown"
            ]

    def tries(self, verb: Literal["read", "ack"], message: str, identity: str) -> None:
        """A read or ack is about to be asked for."""
        with self._lock:
            self.touched.add((verb, message, identity))

    def read(self, message: str, identity: str) -> None:
        """A message was read."""
        with self._lock:
            self._reads.add((message, identity))
            self.counts["read"] += 1

    def acked(self, message: str, identity: str, did: str) -> None:
        """A message was acknowledged."""
        with self._lock:
            self._acks[message, identity] = did
            self.counts["acknowledged"] += 1

    def saw_stages(self, message: str, recipients: list[dict[str, Any]]) -> None:
        """A sender looked at what became of its message; a stage may only grow."""
        with self._lock:
            self.counts["looked at by their senders"] += 1
            for one in recipients:
                identity = self._names.get(one["address"].partition("@")[0])
                if identity is None:
                    continue
                stage = STAGE_LABELS.index(one["stage"])
                before = self._seen.get((message, identity), 0)
                if stage < before:
                    self.faults.append(f"{message} fell from {STAGE_LABELS[before]}: {one}")
                self._seen[message, identity] = max(before, stage)

    # -- leases -----------------------------------------------------------------------------------

    def named(self, name: str, identity: str) -> None:
        """An identity has this name now; no name is given twice in a day."""
        with self._lock:
            self._names[name] = identity

    def granted(self, identity: str, epoch: int, session: Session) -> None:
        """A session was told that it holds an identity; epochs of an identity may only grow."""
        with self._lock:
            earlier = [one.epoch for one in self._grants if one.identity == identity]
            if earlier and epoch <= max(earlier):
                self.faults.append(f"{identity} was at epoch {max(earlier)}, then {epoch}")
            self._grants.append(Grant(identity, epoch, session))

    def epoch_of(self, identity: str) -> int | None:
        """The newest epoch that was told for an identity."""
        with self._lock:
            told = [one.epoch for one in self._grants if one.identity == identity]
        return max(told) if told else None

    def died(self, session: Session) -> None:
        """A session is about to be killed."""
        with self._lock:
            self.deaths.append((session, now_ms()))

    # -- all of it --------------------------------------------------------------------------------

    def fault(self, what: str) -> None:
        """Something is not as it must be."""
        with self._lock:
            self.faults.append(what)

    def count(self, what: str) -> None:
        """Something happened that the last figures tell of."""
        with self._lock:
            self.counts[what] += 1

    def told(self) -> Told:
        """What has been answered until now."""
        with self._lock:
            return Told(
                tuple(one for one in self.sendings.values() if one.outcome == "accepted"),
                frozenset(self._reads),
                dict(self._acks),
                tuple(self._grants),
                dict(self._seen),
            )
