"""What is believed about paired hosts: the payloads of their records, built and strictly read.

========== ========== =============== ==========================================================
kind       signed by  audience        says
========== ========== =============== ==========================================================
peer       our owner  our own host    this key, with this certificate, is paired with us, under
                                      this label of ours, reached at these addresses
unpair     our owner  our own host    it is no longer
tls-cert   a host     nobody's alone  this TLS certificate is its own
directory  a host     its peer        this is new or has changed of its identities and addresses
forwards   a host     its peer        mail for these retired identities of it goes to these
nack       a host     sender's host   this message of yours is refused for ever, and why
========== ========== =============== ==========================================================

A host is its key: labels and addresses are for people and for dialling. The records `peer` and
`unpair` about one key are one sequence of versions, so that none that is older ever counts again,
not even after a new pairing.
"""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from mbx.core import fields
from mbx.core.canonical import JsonValue
from mbx.core.endpoints import is_spelled
from mbx.core.keys import PUBLIC_BYTES, is_strong_public_key, key_id
from mbx.core.limits import (
    CLI_NAME_MAX_CHARS,
    DESCRIPTION_MAX_CHARS,
    DIRECTORY_ENTRIES_MAX,
    NOTE_MAX_CHARS,
    PEER_ADDRESSES_MAX,
)
from mbx.core.names import OWNER, check_host_label, check_name, check_role
from mbx.core.record import RecordError

DIGEST_BYTES: Final = 32
"""Of SHA-256."""

STATES: Final = frozenset({"live", "idle", "unknown", "offline"})
"""Whether somebody holds an identity, as its own host sees it."""

REACHES: Final = frozenset({"live-wake", "live-next-prompt"})
"""When a living holder sees mail that wakes: it is woken, or at its next prompt."""

NACK_CODES: Final = frozenset(
    {
        "unknown-recipient",
        "retired",
        "malformed",
        "too-large",
        "wrong-signature",
        "wrong-issuer",
        "wrong-audience",
        "unsupported",
        "conflict",
        "too-many",
    }
)
"""Why a record is refused for ever. `wrong-issuer`: its signer is not the host at the other end;
`unsupported`: a kind or version that is not known here; `conflict`: an id that means something else
here; `too-many`: its host has more identities than one may have here."""

_OWNERS: Final = frozenset("v type iat nonce aud owner version".split())
_HOSTS: Final = frozenset("v type iat nonce aud".split())
_PEER: Final = _OWNERS | {"peer", "label", "addresses"}
_PIN: Final = frozenset("host key certificate label owner transcript".split())
_UNPAIR: Final = _OWNERS | {"peer", "label", "reason"}
_CERTIFICATE: Final = frozenset("v type iat nonce host key certificate".split())
_DIRECTORY: Final = _HOSTS | {"identities", "addresses"}
_ENTRY: Final = frozenset("identity name role description state cli retired reach".split())
_ENTRY_BEFORE: Final = _ENTRY - {"reach"}
"""Of hosts that do not know of it yet."""
_FORWARDS: Final = _HOSTS | {"forwards"}
_ONWARD: Final = frozenset({"identity", "to"})
_NACK: Final = _HOSTS | {"message", "recipient", "code", "words"}


class Pin(NamedTuple):
    """What a pairing has proved and its people have compared; a change needs a new pairing.

    `host`: key id of the host key `public` (32 bytes). `certificate`: SHA-256 of the DER of its TLS
    certificate. `label`: what it calls itself. `owner`: key id of its owner where that is our own
    owner too (the same key, or one adopted the other's), else None. `transcript`: digest of the
    pairing.
    """

    host: str
    public: bytes
    certificate: bytes
    label: str
    owner: str | None
    transcript: bytes


class Peer(NamedTuple):
    """One verified `peer` record: `label` is what we call it, `addresses` where we dial it.

    A newer `version` about the same key changes those two.
    """

    version: int
    pin: Pin
    label: str
    addresses: tuple[str, ...]


class Unpairing(NamedTuple):
    """One verified `unpair` record: the host with key id `peer` is none of ours any more.

    `label` is what we called it: what the owner read.
    """

    version: int
    peer: str
    label: str
    reason: str


class Certification(NamedTuple):
    """One verified `tls-cert` record: the certificate of `key` (a key id) belongs to `host`."""

    host: str
    key: str
    certificate: bytes


class Entry(NamedTuple):
    """An identity as its host lists it; `cli`: the harness of whoever holds it.

    `reach`: how that session is reached, None where nobody lives there or its host cannot say.
    """

    identity: str
    name: str
    role: str
    description: str
    state: str
    cli: str | None
    retired: bool
    reach: str | None = None

    def told(self, *, with_reach: bool) -> dict[str, JsonValue]:
        """As it stands in a record; without `reach` for hosts that do not know of it."""
        whole: dict[str, JsonValue] = self._asdict()
        if not with_reach:
            del whole["reach"]
        return whole


class Onward(NamedTuple):
    """Who has the mail of a retired identity now, by ids of one host; None: nobody."""

    identity: str
    to: str | None


class Nack(NamedTuple):
    """`message` (record id) is refused for ever, for one recipient (identity id) or for all."""

    message: str
    recipient: str | None
    code: str
    words: str


# -- peer -----------------------------------------------------------------------------------------


def peer_payload(peer: Peer, envelope: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
    """The payload to sign; `envelope`: iat, nonce, aud (our host's key id), owner (its key id)."""
    pin = peer.pin
    return {
        "v": 1,
        "type": "peer",
        **envelope,
        "version": peer.version,
        "peer": {
            "host": pin.host,
            "key": pin.public.hex(),
            "certificate": pin.certificate.hex(),
            "label": pin.label,
            "owner": pin.owner,
            "transcript": pin.transcript.hex(),
        },
        "label": peer.label,
        "addresses": list(peer.addresses),
    }


def read_peer(payload: Mapping[str, JsonValue]) -> Peer:
    """The peer of a payload whose signature is verified.

    Raises RecordError (step 6) for anything that is not exactly a peer of this version: a key that
    its id is not derived from, our own host, a label that is none, an address in another spelling.
    """
    content = fields.exactly(dict(payload), _PEER, "peer")
    fields.identifier(content["owner"], "owner")
    pin = _pin(content["peer"])
    if pin.host == fields.identifier(content["aud"], "aud"):
        raise RecordError(6, "a host is no peer of itself")
    return Peer(
        fields.whole(content["version"], "version", 1),
        pin,
        host_label(content["label"]),
        addresses(content["addresses"], zoned=True),
    )


def _pin(value: JsonValue) -> Pin:
    content = fields.exactly(value, _PIN, "peer")
    public = fields.octets(content["key"], PUBLIC_BYTES, "key")
    if not is_strong_public_key(public):
        raise RecordError(6, "key: not a key that anybody should trust")
    host = fields.identifier(content["host"], "host")
    if host != key_id("host", public):
        raise RecordError(6, "host: not the id of its key")
    owner = content["owner"]
    return Pin(
        host,
        public,
        fields.octets(content["certificate"], DIGEST_BYTES, "certificate"),
        host_label(content["label"]),
        None if owner is None else fields.identifier(owner, "owner"),
        fields.octets(content["transcript"], DIGEST_BYTES, "transcript"),
    )


def host_label(value: JsonValue) -> str:
    """A host's label. Raises RecordError (step 6)."""
    return fields.passing(value, check_host_label, "label")


def addresses(value: JsonValue, *, zoned: bool = False) -> tuple[str, ...]:
    """Up to eight endpoints in their one spelling, none twice. Raises RecordError (step 6)."""
    found = tuple(
        fields.text(one, "address") for one in fields.listed(value, PEER_ADDRESSES_MAX, "addresses")
    )
    if not all(is_spelled(one, zoned=zoned) for one in found) or len(set(found)) != len(found):
        raise RecordError(6, "addresses: not endpoints in their one spelling, each once")
    return found


# -- unpair ---------------------------------------------------------------------------------------


def unpair_payload(unpairing: Unpairing, envelope: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
    """The payload to sign; `envelope` as for `peer_payload`."""
    return {"v": 1, "type": "unpair", **envelope, **unpairing._asdict()}


def read_unpair(payload: Mapping[str, JsonValue]) -> Unpairing:
    """As `read_peer`, for the end of a pairing."""
    content = fields.exactly(dict(payload), _UNPAIR, "unpair")
    fields.identifier(content["owner"], "owner")
    fields.identifier(content["aud"], "aud")
    return Unpairing(
        fields.whole(content["version"], "version", 1),
        fields.identifier(content["peer"], "peer"),
        host_label(content["label"]),
        fields.note(content["reason"], NOTE_MAX_CHARS, "reason"),
    )


# -- tls-cert -------------------------------------------------------------------------------------


def certificate_payload(
    certification: Certification, envelope: Mapping[str, JsonValue]
) -> dict[str, JsonValue]:
    """The payload to sign; `envelope`: iat, nonce."""
    return {
        "v": 1,
        "type": "tls-cert",
        **envelope,
        "host": certification.host,
        "key": certification.key,
        "certificate": certification.certificate.hex(),
    }


def read_certificate(payload: Mapping[str, JsonValue]) -> Certification:
    """As `read_peer`, for a host's word about its own certificate."""
    content = fields.exactly(dict(payload), _CERTIFICATE, "tls-cert")
    return Certification(
        fields.identifier(content["host"], "host"),
        fields.identifier(content["key"], "key"),
        fields.octets(content["certificate"], DIGEST_BYTES, "certificate"),
    )


# -- directory ------------------------------------------------------------------------------------


def directory_payload(
    entries: Sequence[Entry],
    envelope: Mapping[str, JsonValue],
    addresses: Sequence[str] | None = None,
    *,
    with_reach: bool = True,
) -> dict[str, JsonValue]:
    """The payload to sign; `envelope`: iat, nonce, aud (the peer's key id).

    A stream loses nothing and keeps its order, so that only what has changed is told. `addresses`:
    where the host can be dialled now, None where that has not changed. `with_reach`: the peer
    knows of that field.
    """
    return {
        "v": 1,
        "type": "directory",
        **envelope,
        "identities": [entry.told(with_reach=with_reach) for entry in entries],
        "addresses": None if addresses is None else list(addresses),
    }


def read_directory(payload: Mapping[str, JsonValue]) -> tuple[Entry, ...]:
    """As `read_peer`, for what a host tells of its identities; none where it tells of addresses."""
    content = fields.exactly(dict(payload), _DIRECTORY, "directory")
    fields.identifier(content["aud"], "aud")
    least = 1 if read_addresses(payload) is None else 0
    listed = fields.listed(content["identities"], DIRECTORY_ENTRIES_MAX, "identities", least=least)
    entries = tuple(_entry(one) for one in listed)
    if len({entry.identity for entry in entries}) != len(entries):
        raise RecordError(6, "identities: one is listed twice")
    names = [entry.name for entry in entries]
    if len(set(names)) != len(names):
        raise RecordError(6, "identities: two have one name")
    return entries


def read_addresses(payload: Mapping[str, JsonValue]) -> tuple[str, ...] | None:
    """Where a host says in a `directory` that it can be dialled now; None: as before.

    No right hangs on them: whoever answers there must show the pinned certificate. Raises
    RecordError (step 6).
    """
    told = payload.get("addresses")
    return None if told is None else addresses(told)


def _entry(value: JsonValue) -> Entry:
    is_before = isinstance(value, dict) and "reach" not in value
    content = fields.exactly(value, _ENTRY_BEFORE if is_before else _ENTRY, "identity")
    cli, reach = content["cli"], content.get("reach")
    return Entry(
        fields.identifier(content["identity"], "identity"),
        _name(content["name"]),
        fields.passing(content["role"], check_role, "role"),
        fields.line(
            content["description"], DESCRIPTION_MAX_CHARS, "description", may_be_empty=True
        ),
        fields.word(content["state"], STATES, "state"),
        None if cli is None else fields.line(cli, CLI_NAME_MAX_CHARS, "cli"),
        fields.flag(content["retired"], "retired"),
        None if reach is None else fields.word(reach, REACHES, "reach"),
    )


def _name(value: JsonValue) -> str:
    """An identity's name; the human's mailbox has a reserved one."""
    return OWNER if value == OWNER else fields.passing(value, check_name, "name")


# -- forwards -------------------------------------------------------------------------------------


def forwards_payload(
    forwards: Sequence[Onward], envelope: Mapping[str, JsonValue]
) -> dict[str, JsonValue]:
    """The payload to sign; `envelope`: iat, nonce, aud (the peer's key id).

    A kind of its own: a `directory` with a field more is none to an older version. Who is told it
    knows it; what it does not name is as before.
    """
    listed: list[JsonValue] = [{"identity": one.identity, "to": one.to} for one in forwards]
    return {"v": 1, "type": "forwards", **envelope, "forwards": listed}


def read_forwards(payload: Mapping[str, JsonValue]) -> tuple[Onward, ...]:
    """As `read_peer`, for where a host lets mail of its retired identities go."""
    content = fields.exactly(dict(payload), _FORWARDS, "forwards")
    fields.identifier(content["aud"], "aud")
    listed = fields.listed(content["forwards"], DIRECTORY_ENTRIES_MAX, "forwards", least=1)
    found = tuple(_onward(one) for one in listed)
    if len({one.identity for one in found}) != len(found):
        raise RecordError(6, "forwards: one identity is listed twice")
    return found


def _onward(value: JsonValue) -> Onward:
    content = fields.exactly(value, _ONWARD, "forward")
    identity, to = fields.identifier(content["identity"], "identity"), content["to"]
    if to is None:
        return Onward(identity, None)
    if fields.identifier(to, "to") == identity:
        raise RecordError(6, "to: an identity has no mail of itself")
    return Onward(identity, fields.identifier(to, "to"))


# -- nack -----------------------------------------------------------------------------------------


def nack_payload(nack: Nack, envelope: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
    """The payload to sign; `envelope`: iat, nonce, aud (key id of the sender's host)."""
    return {"v": 1, "type": "nack", **envelope, **nack._asdict()}


def read_nack(payload: Mapping[str, JsonValue]) -> Nack:
    """As `read_peer`, for a refusal that is final."""
    content = fields.exactly(dict(payload), _NACK, "nack")
    fields.identifier(content["aud"], "aud")
    recipient = content["recipient"]
    return Nack(
        fields.identifier(content["message"], "message"),
        None if recipient is None else fields.identifier(recipient, "recipient"),
        fields.word(content["code"], NACK_CODES, "code"),
        fields.note(content["words"], NOTE_MAX_CHARS, "words"),
    )
