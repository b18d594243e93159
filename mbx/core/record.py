"""Records: the one envelope for whatever anybody may believe later.

A record is a kind, a payload (canonical JSON *text*, carried as it was signed and never encoded
again) and signatures by key id. Signed bytes: ``"mbx-sig/1" 00 kind 00 payload``; their SHA-256 is
the record's digest, whose first 130 bits are its id.

`verify` works down this list and names the step that refused::

    1 size       the payload is UTF-8 of at most so many bytes
    2 signers    the kind is the one asked for; exactly the required keys signed
    3 signature  each is Ed25519, by the strict rules, over the bytes as received
    4 parse      the payload is an object for the strict reader
    5 encoding   encoding it again gives the same text
    6 shape      v, type, iat, nonce, exp, aud are there and well formed
    7 audience   it is meant for whom the caller speaks for

What else a kind's payload must hold is said by that kind's own module. No clock is read: `exp` is
judged by whoever acts on the record.
"""

import binascii
import hashlib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final, NamedTuple

from mbx.core import keys, limits
from mbx.core.canonical import CanonicalError, JsonValue, encode, encode_parsed, parse

KINDS: Final = (
    "message",
    "receipt",
    "lease",
    "policy",
    "takeover",
    "peer",
    "directory",
    "forwards",
    "nack",
    "unpair",
    "lead",
    "tls-cert",
    "rotate",
    "restore",
    "backup",
    "owner-mail",
    "revoke",
    "directive",
    "acceptance",
    "floor",
)
"""Every kind of record. The prefix of the signed bytes keeps one from passing for another."""

VERSION: Final = 1
"""`v` of every payload; new meaning is a new version, never an ignored field."""

ANY_AUDIENCE: Final = "*"
"""For `verify` by who acts on nothing (audit, export): whomever the record is meant for."""

_PREFIX: Final = b"mbx-sig/1\0"
_NONCE: Final = re.compile("[0-9a-f]{32}")


class RecordError(ValueError):
    """A record that is not to be believed: the `step` (1-7) of the list above and the `reason`."""

    def __init__(self, step: int, reason: str) -> None:
        super().__init__(f"step {step}: {reason}")
        self.step = step
        self.reason = reason


@dataclass(frozen=True)
class Record:
    """A signed (or received, not yet verified) statement.

    `payload` is canonical JSON text, `signatures` maps key ids to base64 (standard, padded).
    """

    kind: str
    payload: str
    signatures: Mapping[str, str] = field(hash=False)

    def __post_init__(self) -> None:
        """Keep a copy of the signatures, so that nobody changes them from outside."""
        object.__setattr__(self, "signatures", dict(self.signatures))

    @cached_property
    def digest(self) -> bytes:
        """SHA-256 of the signed bytes (32 bytes). Raises ValueError if the text has no UTF-8."""
        return hashlib.sha256(signed_bytes(self.kind, self.payload)).digest()

    @cached_property
    def id(self) -> str:
        """The 26 characters that name the record; the signatures do not change them."""
        return keys.crockford(self.digest)


def signed_bytes(kind: str, payload: str) -> bytes:
    """What is signed for a payload of this kind. Raises ValueError if the text has no UTF-8."""
    return _PREFIX + kind.encode() + b"\0" + payload.encode()


def sign(
    kind: str, payload: Mapping[str, object], signer: keys.SigningKey, signer_id: str
) -> Record:
    """The record of `payload`, signed once.

    Raises RecordError (steps 1, 2, 6) or CanonicalError for what `verify` would refuse of every
    signer.
    """
    if kind not in KINDS:
        raise RecordError(2, "unknown kind")
    content = dict(payload)
    text = encode(content)
    _check_size(text, limits.RECORD_MAX_BYTES)
    _check_shape(kind, content)
    signature = signer.sign(signed_bytes(kind, text))
    return Record(kind, text, {signer_id: binascii.b2a_base64(signature, newline=False).decode()})


class Sealed(NamedTuple):
    """A record that this process has just signed, with what the store keeps of it.

    `signature` is the raw 64 bytes of the one signer.
    """

    kind: str
    payload: str
    digest: bytes
    id: str
    signature: bytes

    @classmethod
    def of(cls, record: Record) -> "Sealed":
        """A verified record that has one signature, with what the store keeps of it."""
        (signature,) = record.signatures.values()
        raw = binascii.a2b_base64(signature)
        return cls(record.kind, record.payload, record.digest, record.id, raw)

    def record(self, signer_id: str) -> Record:
        """The record as it travels."""
        text = binascii.b2a_base64(self.signature, newline=False).decode()
        return Record(self.kind, self.payload, {signer_id: text})


def seal(kind: str, payload: bytes, signer: keys.SigningKey) -> Sealed:
    """Sign a payload that the caller built, and encoded canonically, itself.

    The short way for the send path: what `sign` looks up again is what the builder knows. Raises
    RecordError (step 1) for a payload over the limit.
    """
    if len(payload) > limits.RECORD_MAX_BYTES:
        raise RecordError(1, f"more than {limits.RECORD_MAX_BYTES:,} bytes")
    signed = _PREFIX + kind.encode() + b"\0" + payload
    digest = hashlib.sha256(signed).digest()
    return Sealed(kind, payload.decode(), digest, keys.crockford(digest), signer.sign(signed))


def _not_quickly(_payload: bytes) -> JsonValue:
    return None


def verify(
    record: Record,
    *,
    kind: str,
    signers: Mapping[str, bytes],
    audience: str | None,
    max_bytes: int = limits.RECORD_MAX_BYTES,
    quick: Callable[[bytes], JsonValue] = _not_quickly,
) -> dict[str, JsonValue]:
    """The payload of `record`, once the seven steps of this module's list let it pass.

    `signers` are the keys (id -> 32 bytes) that must all have signed, from the caller's own trust,
    never from what came with the record. `audience` is the caller's own key id, or None for a
    record that names no audience (one that does is refused), or `ANY_AUDIENCE`. `quick` may tell
    the object that passes steps 4 and 5, where it sees that at once. Raises RecordError.
    """
    received = _check_size(record.payload, max_bytes)  # 1
    _check_signers(record, kind, signers)  # 2
    signed = signed_bytes(kind, record.payload)
    for key_id, public in signers.items():  # 3
        if not keys.verify(public, _signature(record.signatures[key_id]), signed):
            raise RecordError(3, f"wrong signature for key {key_id}")
    content = quick(received)
    if not isinstance(content, dict):
        return _judged(kind, record.payload, received, audience)
    return _fit(kind, content, audience)


def inspect(kind: str, payload: str, *, audience: str | None) -> dict[str, JsonValue]:
    """What a text says that is to be signed as `kind`: the steps of `verify` but 2 and 3.

    `audience` as there. Raises RecordError for what no signature would make a record.
    """
    received = _check_size(payload, limits.RECORD_MAX_BYTES)  # 1
    if kind not in KINDS:
        raise RecordError(2, "unknown kind")
    return _judged(kind, payload, received, audience)


def _judged(kind: str, payload: str, received: bytes, audience: str | None) -> dict[str, JsonValue]:
    """Steps 4 to 7; `received` are the bytes of `payload`."""
    content = _parsed(received)  # 4
    if encode_parsed(content) != payload:  # 5
        raise RecordError(5, "payload is not the canonical encoding of its content")
    return _fit(kind, content, audience)


def _fit(kind: str, content: dict[str, JsonValue], audience: str | None) -> dict[str, JsonValue]:
    """Steps 6 and 7."""
    _check_shape(kind, content)  # 6
    _check_audience(content.get("aud"), audience)  # 7
    return content


def _check_size(payload: str, max_bytes: int) -> bytes:
    """Step 1. Returns the payload's bytes."""
    # A character is a byte at least, so a text that is far too long is not even encoded.
    if len(payload) <= max_bytes:
        try:
            payload_bytes = payload.encode()
        except UnicodeEncodeError:
            raise RecordError(1, "payload has no UTF-8") from None
        if len(payload_bytes) <= max_bytes:
            return payload_bytes
    raise RecordError(1, f"payload of more than {max_bytes} bytes")


def _check_signers(record: Record, kind: str, signers: Mapping[str, bytes]) -> None:
    """Step 2. More signatures than required are refused too: nobody vouches for them."""
    if kind not in KINDS or record.kind != kind:
        raise RecordError(2, f"not a record of kind {kind}")
    if not signers:
        raise RecordError(2, "no key is required to sign")
    missing = sorted(signers.keys() - record.signatures.keys())
    if missing:
        raise RecordError(2, f"no signature by key {', '.join(missing)}")
    if len(record.signatures) != len(signers):
        raise RecordError(2, "signature by a key that is not asked")


def _signature(text: str) -> bytes:
    """The bytes of standard base64 in its one spelling, or none, which no key has signed."""
    try:
        raw = binascii.a2b_base64(text)
    except ValueError:
        return b""
    # The decoder skips foreign characters and trailing bits; the one true text has neither.
    return raw if binascii.b2a_base64(raw, newline=False) == text.encode() else b""


def _parsed(received: bytes) -> dict[str, JsonValue]:
    """Step 4; the size is that of step 1."""
    try:
        value = parse(received, len(received))
    except CanonicalError as error:
        raise RecordError(4, error.reason) from None
    if not isinstance(value, dict):
        raise RecordError(4, "payload is not an object")
    return value


def _check_shape(kind: str, payload: Mapping[str, object]) -> None:
    """Step 6: the fields that every payload has."""
    if type(payload.get("v")) is not int or payload["v"] != VERSION:
        raise RecordError(6, f"v is not {VERSION}")
    if payload.get("type") != kind:
        raise RecordError(6, "type is not the kind that was signed")
    _check_time("iat", payload.get("iat"))
    if "exp" in payload:
        _check_time("exp", payload["exp"])
    nonce = payload.get("nonce")
    if not isinstance(nonce, str) or _NONCE.fullmatch(nonce) is None:
        raise RecordError(6, "nonce is not 32 lower-case hex digits")
    if "aud" in payload and not _is_audience(payload["aud"]):
        raise RecordError(6, "aud is neither a key id nor a sorted list of them")


def _check_time(name: str, value: object) -> None:
    if type(value) is not int or value < 0:
        raise RecordError(6, f"{name} is not a time in ms")


def _is_audience(aud: object) -> bool:
    """A key id, or a list of one or more, sorted and without repeats."""
    if isinstance(aud, str):
        return bool(aud)
    if not isinstance(aud, list) or not aud or not all(isinstance(one, str) for one in aud):
        return False
    return "" not in aud and aud == sorted(set(aud))


def _check_audience(aud: object, audience: str | None) -> None:
    """Step 7, of an `aud` whose shape is checked (None: the payload has no audience)."""
    if audience == ANY_AUDIENCE:
        return
    if aud != audience and not (isinstance(aud, list) and audience in aud):
        raise RecordError(7, "meant for another audience")
