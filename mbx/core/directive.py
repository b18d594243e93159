"""The owner's housekeeping: signed directives that end identities and say where their mail goes.

A directive names each identity with the epoch of its lease, so that it acts on what the owner saw:
whoever claims one of them in between makes the whole directive fail. A forward also names the one
before it, so that of two the order is that in which they were signed, not brought.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

from mbx.core.canonical import JsonValue
from mbx.core.ids import is_id
from mbx.core.limits import DIRECTIVE_IDENTITIES_MAX
from mbx.core.record import RecordError

RETIRE: Final = "retire"
"""End identities; their mail stays."""

PRUNE: Final = "prune"
"""As `RETIRE`, for identities that nobody has used since a moment and that have no open mail."""

FORWARD: Final = "forward"
"""End one identity, if it is not ended yet, and let another have its mail from now on."""

_ENVELOPE: Final = frozenset("v type iat nonce aud owner act".split())
_SEEN_FIELDS: Final = frozenset({"identity", "name", "epoch"})
_FIELDS: Final = {
    RETIRE: _ENVELOPE | {"identities"},
    PRUNE: _ENVELOPE | {"identities", "unseen_since_ms"},
    FORWARD: _ENVELOPE | _SEEN_FIELDS | {"to", "previous"},
}


class Seen(NamedTuple):
    """An identity as the owner saw it: its id, its name then, the epoch of its lease."""

    identity: str
    name: str
    epoch: int

    def as_object(self) -> dict[str, JsonValue]:
        """The JSON object that is signed."""
        return {"identity": self.identity, "name": self.name, "epoch": self.epoch}


class Retirement(NamedTuple):
    """These identities end, all of them or none.

    `unseen_since_ms` (ms UTC): only if nobody has used any of them since, and none has open mail;
    None: whatever mail they have.
    """

    identities: tuple[Seen, ...]
    unseen_since_ms: int | None = None


class Forwarding(NamedTuple):
    """Mail of `source` goes to the identity `to` (its id; `to_name` is of the moment).

    `previous`: the id of the record that says where it goes until then, None where none does.
    """

    source: Seen
    to: str
    to_name: str
    previous: str | None = None


Directive = Retirement | Forwarding
"""What a directive about identities says."""

ACTS: Final = frozenset(_FIELDS)
"""The acts that `read` knows."""


def payload(directive: Directive, envelope: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
    """The payload to sign; `envelope` has iat, nonce, aud, owner."""
    content: dict[str, JsonValue] = {"v": 1, "type": "directive", **envelope}
    if isinstance(directive, Forwarding):
        to: JsonValue = {"identity": directive.to, "name": directive.to_name}
        forward: dict[str, JsonValue] = {"to": to, "previous": directive.previous}
        return {**content, "act": FORWARD, **directive.source.as_object(), **forward}
    content |= {"act": RETIRE, "identities": [one.as_object() for one in directive.identities]}
    if directive.unseen_since_ms is not None:
        content |= {"act": PRUNE, "unseen_since_ms": directive.unseen_since_ms}
    return content


def read(payload: Mapping[str, JsonValue]) -> Directive:
    """The directive of a payload whose signature is verified.

    Raises RecordError (step 6) for anything that is not exactly a directive about identities.
    """
    act = payload.get("act")
    if not isinstance(act, str) or act not in _FIELDS:
        raise RecordError(6, "unknown act")
    if payload.keys() != _FIELDS[act]:
        raise RecordError(6, "fields missing or unknown")
    if act == FORWARD:
        return _read_forwarding(payload)
    found = payload["identities"]
    if not isinstance(found, list) or not 1 <= len(found) <= DIRECTIVE_IDENTITIES_MAX:
        raise RecordError(6, "identities is no list, empty, or too long")
    identities = tuple(_read_seen(one) for one in found)
    if len({one.identity for one in identities}) != len(identities):
        raise RecordError(6, "an identity is named twice")
    unseen_since_ms = _whole(payload["unseen_since_ms"]) if act == PRUNE else None
    return Retirement(identities, unseen_since_ms)


def _read_forwarding(payload: Mapping[str, JsonValue]) -> Forwarding:
    source = _read_seen({name: payload[name] for name in _SEEN_FIELDS})
    to = payload["to"]
    if not isinstance(to, dict) or to.keys() != {"identity", "name"}:
        raise RecordError(6, "to is no identity")
    target = _read_seen({**to, "epoch": 0})
    if target.identity == source.identity:
        raise RecordError(6, "an identity is forwarded to itself")
    previous = payload["previous"]
    if previous is not None and not is_id(previous):
        raise RecordError(6, "previous is no record id")
    return Forwarding(source, target.identity, target.name, previous)


def _read_seen(value: JsonValue) -> Seen:
    if not isinstance(value, dict) or value.keys() != _SEEN_FIELDS:
        raise RecordError(6, "an identity is not named by id, name and epoch")
    identity, name = value["identity"], value["name"]
    if not is_id(identity):
        raise RecordError(6, "identity is not an id")
    if not isinstance(name, str):
        raise RecordError(6, "name is no text")
    return Seen(identity, name, _whole(value["epoch"]))


def _whole(value: JsonValue) -> int:
    if type(value) is not int or value < 0:
        raise RecordError(6, "epoch or a time is not a whole number")
    return value
