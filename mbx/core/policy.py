"""Policies: what mail from whom may make which identity do: levels, classes, the records' shape.

A policy is one record of the owner's chain on one host: `version` grows by one, `previous` is the
digest of the record before it, so that none can be left out, put back or slipped in. Names are for
people; rights hang on identity ids and key ids, so a newcomer of the same name or role starts with
nothing. A host of the same owner follows the chain: what a record leaves out about its place (whose
identity it concerns, who is `local`) means the host on which it was drafted.
"""

import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final, Literal, NamedTuple

from mbx.core.canonical import JsonValue
from mbx.core.ids import is_id
from mbx.core.limits import (
    NOTE_MAX_CHARS,
    POLICY_IDENTITIES_MAX,
    POLICY_PROJECTS_MAX,
    POLICY_SOURCES_MAX,
    POLICY_TTL_MAX_MS,
    POLICY_YOLO_TTL_MAX_MS,
    PROJECT_MAX_CHARS,
)
from mbx.core.names import check_host_label, check_name, check_role
from mbx.core.record import RecordError
from mbx.core.text import check_line, check_text

LEVELS: Final = ("ask", "collaborate", "autonomous", "yolo")
"""From the weakest to the strongest; `ask` is what holds where nothing is delegated."""

ASK: Final = LEVELS[0]
"""The level that delegates nothing."""
YOLO: Final = LEVELS[3]
"""The level that delegates everything, for a shorter term."""

CLASSES: Final = ("read", "edit", "outward", "permissions")
"""What an agent may be made to do on a sender's request, beyond reading, answering and acking."""

CLASSES_OF: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        "ask": (),
        "collaborate": ("read", "edit"),
        "autonomous": ("read", "edit"),
        "yolo": CLASSES,
    }
)
"""Level -> all the classes it can delegate; a record may name fewer, never more."""

HOP_LIMITS: Final[Mapping[str, int | None]] = MappingProxyType(
    {"ask": 6, "collaborate": 20, "autonomous": None, "yolo": None}
)
"""Level -> how often what was read may be passed on to others (None: without limit)."""

MANNERS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "ask": "",
        "collaborate": "check in at milestones",
        "autonomous": "no check-ins; what is outward goes to the owner as a decision",
        "yolo": "everything, permission prompts too",
    }
)
"""Level -> how the agent is to work under it, for the policy line."""

SourceKind = Literal["local", "host", "identity"]

_DIGEST: Final = re.compile("[0-9a-f]{64}")
_COMMON: Final = frozenset("v type iat nonce aud owner version previous chain".split())
_POLICY: Final = _COMMON | frozenset("exp to level classes from projects reason".split())
_REVOKE: Final = _COMMON | {"records", "all", "reason"}
_SUBJECTS: Final = (frozenset({"identity", "name"}), frozenset("identity name host label".split()))
_SOURCE_FIELDS: Final[Mapping[str, frozenset[str]]] = MappingProxyType(
    {
        "local": frozenset({"kind"}),
        "host": frozenset({"kind", "host", "label"}),
        "identity": frozenset({"kind", "host", "label", "identity", "name", "via"}),
    }
)


class Source(NamedTuple):
    """From whom: everybody on this host, everybody on one host, or one identity of one host.

    `host` is a key id. `label`, `name` and `via` (the role that named it) are for people.
    """

    kind: SourceKind
    host: str = ""
    label: str = ""
    identity: str = ""
    name: str = ""
    via: str | None = None

    def as_object(self) -> dict[str, JsonValue]:
        """The JSON object that is signed."""
        every: dict[str, JsonValue] = dict(self._asdict())
        return {field: every[field] for field in sorted(_SOURCE_FIELDS[self.kind])}

    @property
    def words(self) -> str:
        """For people."""
        if self.kind == "local":
            return "everybody on this host"
        if self.kind == "host":
            return f"everybody on {self.label}"
        return f"{self.name}@{self.label}" + (f" ({self.via})" if self.via else "")


class Sender(NamedTuple):
    """Who wrote a message, as verified here: identity id, and the key id of its host."""

    identity: str
    host: str


class Subject(NamedTuple):
    """An identity whose agent a policy concerns; the name of that moment is for people.

    `host` is the key id of the host it lives on and `label` what that is called, both empty for the
    host on which the record was drafted.
    """

    identity: str
    name: str
    host: str = ""
    label: str = ""

    def as_object(self) -> dict[str, JsonValue]:
        """The JSON object that is signed."""
        here: dict[str, JsonValue] = {"identity": self.identity, "name": self.name}
        return here | {"host": self.host, "label": self.label} if self.host else here

    @property
    def words(self) -> str:
        """For people."""
        return f"{self.name}@{self.label}" if self.label else self.name


class Policy(NamedTuple):
    """One verified policy record. `iat`, `exp`: ms UTC; `chain`: key id of the host it is from."""

    version: int
    id: str
    iat_ms: int
    exp_ms: int
    to: tuple[Subject, ...]
    level: str
    classes: tuple[str, ...]
    sources: tuple[Source, ...]
    projects: tuple[str, ...]
    reason: str
    chain: str = ""

    def concerns(self, identity: str, host: str) -> bool:
        """Whether it is about this recipient, which lives on the host with this key id."""
        return any(
            subject.identity == identity and (subject.host or self.chain) == host
            for subject in self.to
        )

    def covers(self, sender: Sender, own_host: str) -> bool:
        """Whether mail of this sender is meant."""
        return any(_is_from(source, sender, own_host) for source in self.sources)

    def told_from(self, label: str) -> "Policy":
        """The same for who reads it on another host than its own, which calls that one `label`."""
        there = Source("host", self.chain, label)
        return self._replace(
            sources=tuple(there if one.kind == "local" else one for one in self.sources),
            to=tuple(
                one if one.host else one._replace(host=self.chain, label=label) for one in self.to
            ),
        )


class Revocation(NamedTuple):
    """One verified revocation: of some records, or (None) of all signed up to its own time."""

    version: int
    id: str
    iat_ms: int
    records: tuple[str, ...] | None
    reason: str
    chain: str = ""

    def voids(self, policy: Policy) -> bool:
        """Whether the policy is revoked by it, in whatever order the two arrived."""
        if self.records is None:
            return policy.iat_ms <= self.iat_ms
        return policy.id in self.records


def _is_from(source: Source, sender: Sender, own_host: str) -> bool:
    if source.kind == "local":
        return sender.host == own_host
    if source.host != sender.host:
        return False
    return source.kind == "host" or source.identity == sender.identity


# -- payloads -------------------------------------------------------------------------------------


def policy_payload(policy: Policy, envelope: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
    """The payload to sign; `envelope`: iat, nonce, aud, owner, version, previous, chain."""
    return {
        "v": 1,
        "type": "policy",
        **envelope,
        "exp": policy.exp_ms,
        "to": [one.as_object() for one in policy.to],
        "level": policy.level,
        "classes": list(policy.classes),
        "from": [source.as_object() for source in policy.sources],
        "projects": list(policy.projects),
        "reason": policy.reason,
    }


def revoke_payload(
    records: Sequence[str] | None, reason: str, envelope: Mapping[str, JsonValue]
) -> dict[str, JsonValue]:
    """As `policy_payload`, for a revocation of `records`, or (None) of all."""
    return {
        "v": 1,
        "type": "revoke",
        **envelope,
        "records": None if records is None else list(records),
        "all": records is None,
        "reason": reason,
    }


def read_policy(payload: Mapping[str, JsonValue], record_id: str) -> Policy:
    """The policy of a payload whose signature is verified.

    Raises RecordError (step 6; MbxError for a text) for anything that is not exactly a policy of
    this version: a field too many, an unknown level or class, a class beyond the level, a term too
    long.
    """
    _check_chain(payload, _POLICY)
    level, classes = payload["level"], _texts(payload["classes"], len(CLASSES))
    if not isinstance(level, str) or level not in LEVELS:
        raise RecordError(6, "unknown level")
    if list(classes) != [one for one in CLASSES_OF[level] if one in classes]:
        raise RecordError(6, "classes that are unknown, out of order, or beyond the level")
    iat_ms, exp_ms = _whole(payload["iat"]), _whole(payload.get("exp"))
    if not 0 < exp_ms - iat_ms <= ttl_max_ms(level):
        raise RecordError(6, "a term that the level cannot have")
    return Policy(
        version=_whole(payload["version"]),
        id=record_id,
        iat_ms=iat_ms,
        exp_ms=exp_ms,
        to=tuple(_subject(one) for one in _list(payload["to"], POLICY_IDENTITIES_MAX)),
        level=level,
        classes=classes,
        sources=tuple(_source(one) for one in _list(payload["from"], POLICY_SOURCES_MAX)),
        projects=tuple(_project(one) for one in _texts(payload["projects"], POLICY_PROJECTS_MAX)),
        reason=_note(payload["reason"]),
        chain=_id(payload["chain"]),
    )


def read_revocation(payload: Mapping[str, JsonValue], record_id: str) -> Revocation:
    """As `read_policy`, for a revocation."""
    _check_chain(payload, _REVOKE)
    every, named = payload["all"], payload["records"]
    if not isinstance(every, bool) or every != (named is None):
        raise RecordError(6, "either all, or records")
    records = None if named is None else tuple(map(_id, _list(named, POLICY_SOURCES_MAX)))
    return Revocation(
        _whole(payload["version"]),
        record_id,
        _whole(payload["iat"]),
        records,
        _note(payload["reason"]),
        _id(payload["chain"]),
    )


def ttl_max_ms(level: str) -> int:
    """The longest term of a policy of this level."""
    return POLICY_YOLO_TTL_MAX_MS if level == YOLO else POLICY_TTL_MAX_MS


def _check_chain(payload: Mapping[str, JsonValue], fields: frozenset[str]) -> None:
    if payload.keys() != fields:
        raise RecordError(6, "fields missing or unknown")
    if _whole(payload["version"]) < 1:
        raise RecordError(6, "version below 1")
    previous = payload["previous"]
    if previous is not None and not (isinstance(previous, str) and _DIGEST.fullmatch(previous)):
        raise RecordError(6, "previous is no digest")
    if (payload["version"] == 1) != (previous is None):
        raise RecordError(6, "the first record of a chain, and no other, has no predecessor")
    _id(payload["chain"])
    _id(payload["owner"])


def _subject(value: JsonValue) -> Subject:
    if not isinstance(value, dict) or value.keys() not in _SUBJECTS:
        raise RecordError(6, "to is not a list of identities")
    identity, name = _id(value["identity"]), _text(value["name"])
    check_name(name)
    if "host" not in value:
        return Subject(identity, name)
    label = _text(value["label"])
    check_host_label(label)
    return Subject(identity, name, _id(value["host"]), label)


def _source(value: JsonValue) -> Source:
    if not isinstance(value, dict):
        raise RecordError(6, "from is not a list of sources")
    kind = value.get("kind")
    if not isinstance(kind, str) or value.keys() != _SOURCE_FIELDS.get(kind):
        raise RecordError(6, "unknown source")
    if kind == "local":
        return Source("local")
    host, label = _id(value["host"]), _text(value["label"])
    check_host_label(label)
    if kind == "host":
        return Source("host", host, label)
    name, via = _text(value["name"]), value["via"]
    check_name(name)
    if via is not None:
        check_role(_text(via).removeprefix("role:"))
    role = None if via is None else _text(via)
    return Source("identity", host, label, _id(value["identity"]), name, role)


def _project(path: str) -> str:
    check_line("project", path, PROJECT_MAX_CHARS)
    if not path.startswith("/") or "//" in path or {".", ".."} & set(path.split("/")):
        raise RecordError(6, "a project is an absolute path without detours")
    return path


def _note(value: JsonValue) -> str:
    check_text("reason", _text(value), NOTE_MAX_CHARS)
    return _text(value)


def _texts(value: JsonValue, most: int) -> tuple[str, ...]:
    texts = tuple(map(_text, _list(value, most, least=0)))
    if len(set(texts)) != len(texts):
        raise RecordError(6, "a list names something twice")
    return texts


def _list(value: JsonValue, most: int, least: int = 1) -> list[JsonValue]:
    if not isinstance(value, list) or not least <= len(value) <= most:
        raise RecordError(6, f"not a list of {least} to {most}")
    return value


def _whole(value: object) -> int:
    if type(value) is not int:
        raise RecordError(6, "not a whole number")
    return value


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise RecordError(6, "not a text")
    return value


def _id(value: object) -> str:
    if not is_id(value):
        raise RecordError(6, "not an id of 26 characters")
    return value
