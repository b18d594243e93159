"""The signed message: its fields, its kinds, and the payload that is signed."""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from mbx.core.canonical import JsonValue

KINDS: Final = ("message", "request", "reply", "status", "decision", "alert", "task")
"""Kinds of message; the first is the default."""

WAKING_KINDS: Final = frozenset({"request", "task", "decision", "alert"})
"""Kinds that wake an idle recipient (the others only with needs_reply or a mention)."""

ORIGINS: Final = ("external",)
"""Where a sender may say that content came from; absent means its own."""

SOFT_BODY_BYTES: Final = 2_048
"""A longer body is accepted with a warning: every byte is the reader's context."""


class Party(NamedTuple):
    """A mailbox as records name it: immutable identity id, the name of the moment, host label."""

    identity: str
    name: str
    host: str

    @property
    def address(self) -> str:
        """``name@host``."""
        return f"{self.name}@{self.host}"

    def as_object(self) -> dict[str, JsonValue]:
        """The JSON object that is signed."""
        return {"identity": self.identity, "name": self.name, "host": self.host}


class Draft(NamedTuple):
    """What the sender chose, checked: everything of a message but who sends it and when."""

    subject: str
    body: str
    kind: str
    needs_reply: bool
    refs: tuple[str, ...] = ()
    topic: str | None = None
    origin: str | None = None
    quiet: bool = False
    """The sender asked to wake nobody; not part of what is signed."""


class Envelope(NamedTuple):
    """Who sends, under which lease, to whom, in which thread, when (`sent_at_ms`, UTC)."""

    sender: Party
    lease_epoch: int
    lease_id: str
    to: Sequence[Party]
    thread: str | None
    """Record id of the thread's first message; None when this one starts it."""
    reply_to: str | None
    hop: int
    sent_at_ms: int
    project: str | None
    audience: Sequence[str]
    """Sorted key ids of all recipients' hosts."""
    nonce: str
    external_since: int | None = None
    """When what it passes on first came from outside (ms UTC); None: it is the sender's own."""


def payload(draft: Draft, envelope: Envelope) -> Mapping[str, JsonValue]:
    """The payload of the message record (DESIGN 4.3): every field is always there."""
    return {
        "v": 1,
        "type": "message",
        "iat": envelope.sent_at_ms,
        "nonce": envelope.nonce,
        "aud": list(envelope.audience),
        "from": envelope.sender.as_object(),
        "lease": {"epoch": envelope.lease_epoch, "id": envelope.lease_id},
        "to": [party.as_object() for party in envelope.to],
        "thread": envelope.thread,
        "reply_to": envelope.reply_to,
        "kind": draft.kind,
        "subject": draft.subject,
        "body": draft.body,
        "needs_reply": draft.needs_reply,
        "refs": list(draft.refs),
        "attachments": [],
        "topic": draft.topic,
        "expected_output": None,
        "origin": draft.origin,
        "hop": envelope.hop,
        "external_since": envelope.external_since,
        "project": envelope.project,
        "sent_at": envelope.sent_at_ms,
    }
