"""The signed message: its fields, its kinds, and the payload that is signed."""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple, TypeGuard

from mbx.core.canonical import JsonValue
from mbx.core.ids import is_id
from mbx.core.limits import (
    HOPS_MAX,
    INTEGER_MAX,
    PROJECT_MAX_CHARS,
    RECIPIENTS_MAX,
    REF_MAX_CHARS,
    REFS_MAX,
    SUBJECT_MAX_CHARS,
    TOPIC_MAX_CHARS,
)
from mbx.core.names import OWNER, check_host_label, check_name
from mbx.core.record import RecordError
from mbx.core.text import check_body, check_line

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
    """The sender asked to wake nobody; signed for recipients on other hosts (`Envelope.quiet`)."""


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
    quiet: Sequence[str] = ()
    """Ids of recipients on other hosts whose copy wakes nobody, whatever its kind."""


OWNER_MAIL: Final = "owner-mail"
"""Kind of record of a message that the owner's own key signed."""

_PARTY_FIELDS: Final = frozenset({"identity", "name", "host"})


def owner_payload(draft: Draft, envelope: Envelope, owner: str) -> dict[str, JsonValue]:
    """The payload of the owner's own mail: a message without lease, signed by the key `owner`."""
    return {
        **payload(draft, envelope),
        "type": OWNER_MAIL,
        "owner": owner,
        "lease": None,
    }


class Letter(NamedTuple):
    """What verified mail of the owner's says: to which mailboxes, in which conversation."""

    draft: Draft
    body_bytes: int
    to: tuple[Party, ...]
    thread: str | None
    reply_to: str | None
    is_external: bool
    root_ms: int | None
    """When it first came from outside (ms UTC), None: as of its reading."""


def read_letter(content: Mapping[str, JsonValue]) -> Letter:
    """The letter of a payload whose signature is verified.

    Raises RecordError (step 6) for anything that is not exactly the owner's mail of this version,
    MbxError for a text that breaks a rule.
    """
    if content.keys() != _LETTER_FIELDS or content["lease"] is not None:
        raise RecordError(6, "fields missing or unknown")
    draft, body_bytes = _draft(content)
    thread, reply_to, since = content["thread"], content["reply_to"], content["external_since"]
    return Letter(
        draft,
        body_bytes,
        _parties(content["to"]),
        None if thread is None else str(thread),
        None if reply_to is None else str(reply_to),
        since is not None,
        since if type(since) is int and draft.origin is None else None,
    )


class Relayed(NamedTuple):
    """What a verified message of a paired host says; fields as those of `Envelope`."""

    sender: Party
    draft: Draft
    body_bytes: int
    to: tuple[Party, ...]
    thread: str | None
    reply_to: str | None
    hop: int
    external_since: int | None
    quiet: frozenset[str]


def read_relayed(content: Mapping[str, JsonValue]) -> Relayed:
    """The message of a payload whose signature is verified.

    Raises RecordError (step 6) for anything that is not exactly a message of this version, MbxError
    for a text that breaks a rule.
    """
    if content.keys() != _MESSAGE_FIELDS:
        raise RecordError(6, "fields missing or unknown")
    lease = content["lease"]
    if not isinstance(lease, dict) or lease.keys() != {"epoch", "id"} or not is_id(lease["id"]):
        raise RecordError(6, "lease is wrong")
    if type(lease["epoch"]) is not int or lease["epoch"] < 1:
        raise RecordError(6, "lease is wrong")
    return _relayed(content)


def read_relayed_letter(content: Mapping[str, JsonValue]) -> Relayed:
    """As `read_relayed`, for the owner's own mail, which no lease stands behind."""
    if content.keys() != _LETTER_FIELDS or content["lease"] is not None:
        raise RecordError(6, "fields missing or unknown")
    relayed = _relayed(content)
    if relayed.sender.name != OWNER or relayed.hop:
        raise RecordError(6, "the owner's mail is the owner's own")
    return relayed


def _relayed(content: Mapping[str, JsonValue]) -> Relayed:
    hop, since = content["hop"], content["external_since"]
    if not _is_whole(hop, HOPS_MAX) or not (since is None or _is_whole(since)):
        raise RecordError(6, "hop or external_since is wrong")
    if not _is_whole(content["sent_at"]):
        raise RecordError(6, "sent_at is wrong")
    _check_project(content["project"])
    if content["attachments"] != [] or content["expected_output"] is not None:
        raise RecordError(6, "attachments are not known to this version")
    draft, body_bytes = _draft(content)
    thread, reply_to = content["thread"], content["reply_to"]
    if not all(one is None or is_id(one) for one in (thread, reply_to)):
        raise RecordError(6, "thread or reply_to is wrong")
    return Relayed(
        _party(content["from"]),
        draft,
        body_bytes,
        _named(_parties(content["to"])),
        None if thread is None else str(thread),
        None if reply_to is None else str(reply_to),
        hop,
        since,
        _quiet(content["quiet"]),
    )


def _is_whole(value: JsonValue, most: int = INTEGER_MAX) -> TypeGuard[int]:
    return type(value) is int and 0 <= value <= most


def _check_project(project: JsonValue) -> None:
    if project is None:
        return
    if not isinstance(project, str):
        raise RecordError(6, "project is wrong")
    check_line("project", project, PROJECT_MAX_CHARS)


def _named(parties: tuple[Party, ...]) -> tuple[Party, ...]:
    """What is shown beside the reader's own name is a name, whosever it is."""
    for party in parties:
        if party.name != OWNER:
            check_name(party.name)
        check_host_label(party.host)
    return parties


def _quiet(value: JsonValue) -> frozenset[str]:
    if not isinstance(value, list) or len(value) > RECIPIENTS_MAX:
        raise RecordError(6, "quiet is wrong")
    found = frozenset(one for one in value if is_id(one))
    if len(found) != len(value):
        raise RecordError(6, "quiet is wrong")
    return found


def _draft(content: Mapping[str, JsonValue]) -> tuple[Draft, int]:
    """What the sender chose, and the body's bytes."""
    subject, body, kind = content["subject"], content["body"], content["kind"]
    topic, refs, origin = content["topic"], content["refs"], content["origin"]
    thread, reply_to, needs_reply = content["thread"], content["reply_to"], content["needs_reply"]
    if not (isinstance(subject, str) and isinstance(body, str) and kind in KINDS):
        raise RecordError(6, "a text or the kind is wrong")
    if not isinstance(refs, list) or len(refs) > REFS_MAX or not isinstance(needs_reply, bool):
        raise RecordError(6, "refs or needs_reply is wrong")
    if origin not in (None, *ORIGINS) or not _all_optional_texts(topic, thread, reply_to, *refs):
        raise RecordError(6, "an optional text is wrong")
    check_line("subject", subject, SUBJECT_MAX_CHARS)
    for field, text, most in (
        ("topic", topic, TOPIC_MAX_CHARS),
        *(("ref", ref, REF_MAX_CHARS) for ref in refs),
    ):
        if text is not None:
            check_line(field, str(text), most)
    draft = Draft(
        subject,
        body,
        str(kind),
        needs_reply,
        tuple(str(ref) for ref in refs),
        None if topic is None else str(topic),
        None if origin is None else str(origin),
    )
    return draft, check_body(body)


def _all_optional_texts(*values: JsonValue) -> bool:
    return all(value is None or isinstance(value, str) for value in values)


def _parties(to: JsonValue) -> tuple[Party, ...]:
    if not isinstance(to, list) or not 1 <= len(to) <= RECIPIENTS_MAX:
        raise RecordError(6, "to is wrong")
    found = tuple(_party(party) for party in to)
    if len({(party.identity, party.host) for party in found}) != len(found):
        raise RecordError(6, "to names somebody twice")
    return found


def _party(party: JsonValue) -> Party:
    """One mailbox as a record names it; its name is only looked at where somebody is called so."""
    if not isinstance(party, dict) or party.keys() != _PARTY_FIELDS:
        raise RecordError(6, "a mailbox is wrong")
    identity, name, host = party["identity"], party["name"], party["host"]
    if not is_id(identity) or not isinstance(name, str) or not isinstance(host, str):
        raise RecordError(6, "a mailbox is wrong")
    return Party(identity, name, host)


_MESSAGE_FIELDS: Final = frozenset(
    "v type iat nonce aud from lease to thread reply_to kind subject body needs_reply refs"
    " attachments topic expected_output quiet origin hop external_since project sent_at".split()
)
_LETTER_FIELDS: Final = _MESSAGE_FIELDS | {"owner"}


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
        "quiet": list(envelope.quiet),
        "origin": draft.origin,
        "hop": envelope.hop,
        "external_since": envelope.external_since,
        "project": envelope.project,
        "sent_at": envelope.sent_at_ms,
    }
