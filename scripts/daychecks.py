"""The checker of a day: what the players were told against what a stopped store holds.

Pure: a history and rows go in, sentences about what is wrong come out. The numbers are those of the
invariants in docs/proof.md.
"""

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from mbx.core.delivery import Stage
from mbx.store.audit import AuditRow
from scripts.dayhistory import History, Session, Told

CLOCK_SLACK_MS: Final = 1
"""A death is noted just before the kill, both times cut to milliseconds."""


@dataclass(frozen=True)
class Copy:
    """A delivery as the store has it."""

    stage: int
    did: str | None


@dataclass
class Stored:
    """What one store holds, as far as the history can say something about it.

    `messages`: tag -> (message id, sender's identity), one for each time the tag occurs; `copies`:
    (message id, recipient's identity) -> delivery; `facts`: (message id, recipient, stage) in the
    order of receipts; `faults`: what the store says against itself.
    """

    messages: dict[str, list[tuple[str, str]]] = field(default_factory=dict)
    copies: dict[tuple[str, str], Copy] = field(default_factory=dict)
    facts: list[tuple[str, str, int]] = field(default_factory=list)
    audit: list[AuditRow] = field(default_factory=list)
    records: int = 0
    faults: list[str] = field(default_factory=list)


def violations(told: Told, history: History, stored: Stored) -> list[str]:
    """All that is wrong. `told` was taken before the store was stopped, `history` is as of now."""
    found = [*stored.faults]
    found += _mail(told, history, stored)
    found += _work(told, history, stored)
    found += _stages(told, stored)
    found += _tenure(stored.audit)
    found += _grants(told, stored.audit)
    found += _no_theft(history, stored.audit)
    return found


def _mail(told: Told, history: History, stored: Stored) -> Iterator[str]:
    """I1 to I4: nothing lost, doubled, invented; unknown is all or nothing."""
    recipients: dict[str, set[str]] = {}
    for message, recipient in stored.copies:
        recipients.setdefault(message, set()).add(recipient)
    for one in told.accepted:
        found = stored.messages.get(one.tag, [])
        if [message for message, _ in found] != [one.id]:
            yield f"I1 {one.tag} was accepted as {one.id}; stored: {found}"
        elif recipients.get(one.id or "", set()) != set(one.recipients):
            yield f"I1 {one.tag} has copies for {recipients.get(one.id or '')}"
    for tag, copies in stored.messages.items():
        sending = history.sendings.get(tag)
        if len(copies) > 1:
            yield f"I2 {tag} is there {len(copies)} times"
        if sending is None:
            yield f"I3 {tag} was sent by nobody"
        elif {sender for _, sender in copies} != {sending.sender}:
            yield f"I3 {tag} was sent by {sending.sender}, stored: {copies}"
        elif sending.outcome == "refused":
            yield f"I4 {tag} was refused and is stored"


def _work(told: Told, history: History, stored: Stored) -> Iterator[str]:
    """What was read and acknowledged is so, with the same words, and nothing else is."""
    for message, identity in told.reads:
        copy = stored.copies.get((message, identity))
        if copy is None or copy.stage < Stage.READ:
            yield f"I1 {identity} read {message}; stored: {copy}"
    for (message, identity), did in told.acks.items():
        copy = stored.copies.get((message, identity))
        if copy is None or (copy.stage, copy.did) != (Stage.ACKED, did):
            yield f"I1 {identity} acknowledged {message} with {did!r}; stored: {copy}"
    for (message, identity), copy in stored.copies.items():
        tried = {verb for verb in ("read", "ack") if (verb, message, identity) in history.touched}
        if copy.stage >= Stage.READ and not tried:
            yield f"I3 nobody read {message} for {identity}; stored: {copy}"
        if copy.stage == Stage.ACKED and "ack" not in tried:
            yield f"I3 nobody acknowledged {message} for {identity}"


def _stages(told: Told, stored: Stored) -> Iterator[str]:
    """I12: receipts only move forward, say what the mailbox says, and are what the sender saw."""
    reached: dict[tuple[str, str], int] = {}
    for message, recipient, stage in stored.facts:
        if stage <= reached.get((message, recipient), 0):
            yield f"I12 a receipt of {message} for {recipient} says {stage} again or goes back"
        reached[message, recipient] = stage
    for key, copy in stored.copies.items():
        if copy.stage > Stage.NOTIFIED and reached.get(key) != copy.stage:
            yield f"I12 {key} is at {copy.stage}, its receipts say {reached.get(key)}"
    for key, seen in told.seen.items():
        if key not in stored.copies or stored.copies[key].stage < seen:
            yield f"I12 the sender saw {key} at {seen}; stored: {stored.copies.get(key)}"


def _tenure(rows: Sequence[AuditRow]) -> Iterator[str]:
    """I6 and I7 by the audit log: at most one holder, and each grant has the next epoch."""
    state: dict[str, tuple[str, int]] = {}
    for row in rows:
        if row.identity is None or row.act not in ("claim", "release", "lapse", "revive"):
            continue
        epoch = json.loads(row.detail)["epoch"]
        held, last = state.get(row.identity, ("free", 0))
        if row.act == "claim":
            if held == "held":
                yield f"I6 row {row.no}: {row.identity} was claimed while it was held"
            if epoch != last + 1:
                yield f"I7 row {row.no}: epoch {epoch} of {row.identity} follows {last}"
        elif epoch != last or (held == "held") is (row.act == "revive"):
            yield f"I6 row {row.no}: {row.act} of epoch {epoch}, but {held} at {last}"
        after = {"claim": "held", "revive": "held", "release": "free", "lapse": "lapsed"}
        state[row.identity] = (after[row.act], epoch)


def _grants(told: Told, rows: Sequence[AuditRow]) -> Iterator[str]:
    """Each lease that a session was told of stands in the audit log."""
    granted = set()
    for row in rows:
        if row.act == "claim":
            detail = json.loads(row.detail)
            granted.add((row.identity, detail["epoch"], detail["cli"], detail["session"]))
    for one in told.grants:
        if (one.identity, one.epoch, *one.session) not in granted:
            yield f"I1 the audit log does not know {one}"


def _no_theft(history: History, rows: Sequence[AuditRow]) -> Iterator[str]:
    """I10: a lease lapses only after its session was killed, once for each time."""
    lapsed: Counter[Session] = Counter()
    for row in rows:
        if row.act != "lapse":
            continue
        detail: dict[str, Any] = json.loads(row.detail)
        session = (detail["cli"], detail["session"])
        lapsed[session] += 1
        dead = sum(
            one == session and at_ms <= row.at_ms + CLOCK_SLACK_MS for one, at_ms in history.deaths
        )
        if lapsed[session] > dead:
            why = detail["why"]
            yield f"I10 row {row.no}: the lease of {session} lapsed ({why}) while it lived"
