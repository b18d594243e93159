"""What the owner's records add up to, told again: naively, from the history alone.

Nothing of mbx's own reading is used: the records are those that calls brought and that commits took
up, as JSON; the rules are those of the concept, over a plain list. Slow, and meant to be.
"""

import json
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from mbx.core.record import Record
from tests.sim.history import Call, Commit, Damaged, Event
from tests.sim.image import Message

MINUTE_MS: Final = 60_000
HOUR_MS: Final = 60 * MINUTE_MS
BACK_MAX_MS: Final = 5 * MINUTE_MS
"""So far the clock may go back before nothing is proved any more."""
KEPT_MS: Final = 5 * MINUTE_MS
"""So much later it must be for an idle daemon to remember it."""

HOPS: Final[Mapping[str, int | None]] = {
    "ask": 6,
    "collaborate": 20,
    "autonomous": None,
    "yolo": None,
}
_MANNERS: Final[Mapping[str, str]] = {
    "collaborate": "check in at milestones",
    "autonomous": "no check-ins; what is outward goes to the owner as a decision",
    "yolo": "everything, permission prompts too",
}
_ALL_CLASSES: Final = 4
_ASK: Final = "read, answer, share information, ack; nothing more is delegated"
_DAMAGED: Final = "damaged"
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

TIMERS: Final = "timers"
"""The method of a round of the daemon's own, in the history: it remembers the clock."""


@dataclass(frozen=True)
class Act:
    """One record that a commit took up: `before` is what held until then."""

    seq: int
    call: Call
    record: Record
    before: "State"

    @property
    def kind(self) -> str:
        return self.record.kind

    @property
    def id(self) -> str:
        return self.record.id

    @property
    def content(self) -> dict[str, Any]:
        content: dict[str, Any] = json.loads(self.record.payload)
        return content


@dataclass(frozen=True)
class State:
    """The owner's keys (id -> public key, the one of now last), the chain, the latest clock."""

    keys: Mapping[str, bytes] = field(default_factory=dict)
    chain: tuple[Record, ...] = ()
    high_ms: int = 0

    @property
    def key(self) -> str | None:
        """The id of the key of now."""
        return [*self.keys][-1] if self.keys else None

    def is_behind(self, now_ms: int) -> bool:
        """Is the clock so far behind what it was that no term is proved?"""
        return now_ms < self.high_ms - BACK_MAX_MS


@dataclass(frozen=True)
class Ledger:
    """What the owner's records came to, commit by commit."""

    acts: Sequence[Act]
    seqs: Sequence[int]
    states: Sequence[State]
    damage: Mapping[int, frozenset[str]]
    """By attempt: the records that were damaged when it was taken up."""

    def at(self, seq: int) -> State:
        """What held in the state that this commit left."""
        return self.states[bisect_right(self.seqs, seq)]


def ledger(events: Sequence[Event]) -> Ledger:
    """Play the owner's records in the order of their commits."""
    calls: dict[int, Call] = {}
    damage: dict[int, frozenset[str]] = {}
    damaged: frozenset[str] = frozenset()
    acts: list[Act] = []
    seqs: list[int] = []
    states = [State()]
    for event in events:
        if isinstance(event, Call):
            calls[event.attempt], damage[event.attempt] = event, damaged
        elif isinstance(event, Damaged):
            damaged |= {event.record_id}
        elif isinstance(event, Commit) and event.attempt in calls:
            call, before = calls[event.attempt], states[-1]
            after = before
            if call.method == TIMERS and before.key and before.high_ms < call.at_ms - KEPT_MS:
                after = replace(before, high_ms=call.at_ms)
            elif call.method in {"owner.enroll", "owner.apply"}:
                act = Act(event.seq, call, Record(**call.params["record"]), before)
                acts.append(act)
                after = _after(act)
            if after is not before:
                seqs.append(event.seq)
                states.append(after)
    return Ledger(acts, seqs, states, damage)


def _after(act: Act) -> State:
    before, content = act.before, act.content
    high_ms = max(before.high_ms, act.call.at_ms)
    if act.kind == "rotate":
        keys = {**before.keys, content["owner"]: bytes.fromhex(content["public_key"])}
        return State(keys, before.chain, high_ms)
    if act.kind == "directive" and content["act"] == "clock":
        return replace(before, high_ms=act.call.at_ms)
    if act.kind in {"policy", "revoke"}:
        return State(before.keys, (*before.chain, act.record), high_ms)
    return replace(before, high_ms=high_ms)


# --- what a record grants -------------------------------------------------------------------------


@dataclass(frozen=True)
class Granted:
    """What mail of a sender may make a recipient do; `why` it is nothing, or less."""

    level: str = "ask"
    classes: tuple[str, ...] = ()
    record: str | None = None
    exp_ms: int = 0
    projects: tuple[str, ...] = ()
    why: str = ""


@dataclass(frozen=True)
class Question:
    """Whose mail, read by whom, on which host, when, with which records damaged."""

    sender: str
    recipient: str
    host: str
    now_ms: int
    damaged: frozenset[str] = frozenset()


def granted(state: State, asked: Question) -> Granted:
    """The newest record about the two governs; what is wrong with it never uncovers an older."""
    if asked.sender == asked.recipient:
        return Granted(why="mail from oneself delegates nothing")
    is_damaged = False
    for one in reversed(state.chain):
        content = json.loads(one.payload)
        if one.id in asked.damaged:
            is_damaged = True
        elif one.kind == "policy" and _is_about(content, asked):
            return _judged(state, one, asked, is_damaged)
    return Granted(why=_DAMAGED if is_damaged else "")


def in_effect(state: State, now_ms: int, damaged: frozenset[str]) -> int:
    """How many policies grant something to somebody: each is the newest about some two."""
    policies = [one for one in state.chain if one.kind == "policy" and one.id not in damaged]
    contents = [json.loads(one.payload) for one in policies]
    recipients = {to["identity"] for content in contents for to in content["to"]}
    senders = {
        source["identity"]
        for content in contents
        for source in content["from"]
        if "identity" in source
    }
    governing = set()
    for recipient in recipients:
        for sender in senders | recipients | {"somebody else"}:
            asked = Question(sender, recipient, contents[0]["aud"], now_ms, damaged)
            about = [
                one.id
                for one, content in zip(policies, contents, strict=True)
                if sender != recipient and _is_about(content, asked)
            ]
            governing |= set(about[-1:])
    asked = Question("", "", "", now_ms, damaged)
    count, is_damaged = 0, False
    for one in reversed(state.chain):
        is_damaged = is_damaged or one.id in damaged
        count += one.id in governing and not _judged(state, one, asked, is_damaged).why
    return count


def _is_about(content: Any, asked: Question) -> bool:
    named = any(to["identity"] == asked.recipient for to in content["to"])
    meant = any(
        source["kind"] == "local"
        or (source["host"] == asked.host and source.get("identity", asked.sender) == asked.sender)
        for source in content["from"]
    )
    return named and meant


def _judged(state: State, one: Record, asked: Question, is_damaged: bool) -> Granted:
    content, why = json.loads(one.payload), ""
    if asked.now_ms >= content["exp"]:
        why = "the policy has expired"
    elif content["iat"] > asked.now_ms + BACK_MAX_MS:
        why = "the policy was signed at a time that has not come"
    if state.is_behind(asked.now_ms):
        why = "the clock is behind what it was: no term can be proved"
    if is_damaged:
        why = _DAMAGED
    for revocation in state.chain:  # the newest that voids it is told
        if revocation.kind == "revoke" and revocation.id not in asked.damaged:
            told = json.loads(revocation.payload)
            if one.id in (told["records"] or ()) or (told["all"] and content["iat"] <= told["iat"]):
                why = f"revoked by record {revocation.id}"
    if why:
        return Granted(record=one.id, exp_ms=content["exp"], why=why)
    classes, projects = tuple(content["classes"]), tuple(content["projects"])
    return Granted(content["level"], classes, one.id, content["exp"], projects)


# --- what the lines must say ----------------------------------------------------------------------


@dataclass(frozen=True)
class Words:
    """What the receiver says of a message; a line of None: only that it begins with `ask`."""

    trust: str
    policy: str
    trust_line: str
    policy_line: str | None


def words(state: State, asked: Question, message: Message) -> Words:
    """The words on one message, as of `state`."""
    if message.owner_key is not None and message.owner_key in state.keys:
        line = f"authority: OWNER (signed by the owner's key {message.owner_key})"
        return Words("authority: OWNER", "owner", line, "")
    grant = lowered(granted(state, asked), message.content)
    word = f"{grant.level}: {', '.join(grant.classes)}" if grant.classes else "ask"
    line = "trust: local (sent by an identity of this host, under its lease)"
    return Words("local", word, line, _policy_line(grant))


def lowered(grant: Granted, content: Any) -> Granted:
    """The grant, or less: for what came from outside, or was passed on too often."""
    if grant.level == "ask":
        return grant
    limit, hop = HOPS[grant.level], content["hop"]
    if limit is not None and hop > limit:
        why = f"passed on {hop} times, {limit} at most"
        return replace(grant, level="ask", classes=(), why=why)
    if content["origin"] is not None or content["external_since"] is not None:
        kept = tuple(set(grant.classes) & {"read"})
        return replace(grant, classes=kept, why="content from outside: no more than read")
    return grant


def _policy_line(grant: Granted) -> str | None:
    if grant.why == _DAMAGED:
        return None
    record = f"record {grant.record}"
    if not grant.classes:
        told = [_ASK, grant.why, record if grant.record else ""]
        return f"policy: ask ({'; '.join(one for one in told if one)})"
    is_less = grant.level == "yolo" and len(grant.classes) < _ALL_CLASSES
    manner = "" if is_less else _MANNERS.get(grant.level, "")
    told = [", ".join(grant.classes), manner, grant.why, record]
    told.append(f"until {_time(grant.exp_ms)}")
    if grant.projects:
        told.append(f"projects {', '.join(grant.projects)}")
    return f"policy: {grant.level} ({'; '.join(one for one in told if one)})"


def _time(at_ms: int) -> str:
    return (_EPOCH + timedelta(milliseconds=at_ms)).isoformat("T", "milliseconds")[:-6] + "Z"
