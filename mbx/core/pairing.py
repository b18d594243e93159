"""Pairing: what two hosts say to each other, what it all comes to, and how each proves the code.

One run, over a TLS link of which nothing is believed yet::

    joiner                                   inviter
    join   protocols, commitment        ->
                                        <-   invite  protocols, invitation, nonce, keys, label ...
    prove  nonce, keys, label ...,      ->
           proof
                                        <-   accept  proof, signature
    finish signature                    ->
    (two people compare the short string)
    confirmed records                   <->  confirmed records

The *transcript* is the digest of everything above the proofs, and of the certificate that the
inviter showed in TLS. Proofs are made with a key that is derived from the code and the transcript,
signatures with the host keys, both with a label for each role, so that nothing said in one role, or
in another run, is worth anything elsewhere.

The joiner commits to all that it will say before the inviter says anything: whoever sits in between
and knows the code must settle on both runs before it learns what their short strings will be, and
so cannot search for two that are equal.

Every message is one object in canonical JSON, exactly as below, at most 4 KiB before the proofs.
Wall clocks are told, never relied on.
"""

import base64
import binascii
import hashlib
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final, NamedTuple

from mbx.core import fields, hkdf, keys, peer
from mbx.core.canonical import CanonicalError, JsonValue, encode, parse
from mbx.core.limits import (
    CERTIFICATE_MAX_BYTES,
    CLOCK_SKEW_TOLD_MS,
    HELLO_MAX_BYTES,
    PAIRING_FRAME_MAX_BYTES,
    WRONG_PROOFS_MAX,
)
from mbx.core.record import RecordError

PROTOCOLS: Final = (1,)
"""The versions of this exchange that are spoken here."""

INVITER: Final = "inviter"
JOINER: Final = "joiner"

NONCE_BYTES: Final = 32
"""Of chance that each side adds to its run."""
_TAG_BYTES: Final = 32
_PROTOCOLS_MAX: Final = 16
_PROTOCOL_MAX: Final = 1_000
_RECORDS_MAX: Final = 4

_UNITS: Final = (
    (86_400_000, "days"),
    (3_600_000, "hours"),
    (60_000, "minutes"),
    (1_000, "seconds"),
)

REFUSALS: Final[Mapping[str, tuple[str, str]]] = MappingProxyType(
    {
        "wrong-code": (
            "the code is not the one that the other host shows, or somebody is in between",
            "run mbx join again and type the code again",
        ),
        "burnt": (
            f"the invitation was burnt by {WRONG_PROOFS_MAX} wrong codes",
            "run mbx pair on the other host for a new code",
        ),
        "expired": (
            "the time of the code is over",
            "run mbx pair on the other host for a new code",
        ),
        "used": (
            "the code was used already",
            "run mbx pair on the other host for a new code",
        ),
        "busy": (
            "another host is being paired with this code right now",
            "run mbx peers list on the other host; if nobody should be, decline there",
        ),
        "not-inviting": (
            "the other host has no open invitation",
            "run mbx pair there, then mbx join here",
        ),
        "version-mismatch": (
            "the two hosts speak no common version of pairing",
            "bring mbx up to date on the older one",
        ),
        "unproven": (
            "the host at that address does not know the code: it did not invite you",
            "check the address, then run mbx pair on the other host for a new code",
        ),
        "itself": ("that is this host itself", "give the address of the other host"),
        "malformed": (
            "the other side said what is no part of a pairing",
            "check that an mbx listens at that address, and which version",
        ),
        "timeout": ("the other side took too long to answer", "run mbx join again"),
        "lost": ("the connection ended before the pairing did", "run mbx join again"),
        "declined": ("the pairing was declined", "run mbx pair again if that was a mistake"),
    }
)
"""Code -> (what happened, what to do); the codes that a `no` may carry, and `lost`."""


class Refused(Exception):
    """A message or a run that ends a pairing; `code` is a key of `REFUSALS`.

    `theirs`: with version-mismatch, the versions that the other side speaks.
    """

    def __init__(self, code: str, theirs: Sequence[int] = ()) -> None:
        super().__init__(code)
        self.code = code
        self.theirs = tuple(theirs)


class Own(NamedTuple):
    """What a host brings to a pairing.

    `certificate`: the DER of its TLS certificate. `owner`: its owner's public key; None: it has
    none, and will adopt the inviter's.
    """

    signer: keys.SigningKey
    certificate: bytes
    label: str
    addresses: tuple[str, ...]
    owner: bytes | None


class Counterpart(NamedTuple):
    """What the other host said of itself; true once the run has been proved."""

    host: str
    public: bytes
    certificate: bytes
    label: str
    addresses: tuple[str, ...]
    owner: bytes | None


class Match(NamedTuple):
    """What a proved run has come to; nothing is paired before people on both sides agree.

    `short` is what they compare. `pin` is what to record. `adopts`: the joiner takes the inviter's
    owner for its own. `skew_ms`: how far the other's clock is ahead of ours.
    """

    role: str
    protocol: int
    invitation: str
    transcript: bytes
    short: str
    peer: Counterpart
    pin: peer.Pin
    adopts: bool
    skew_ms: int

    @property
    def notice(self) -> tuple[str, str] | None:
        """(`skewed-clock`, a sentence) where the clocks are more than a minute apart."""
        words = skew_words(self.skew_ms)
        return ("skewed-clock", words) if words else None


class Transcript(NamedTuple):
    """All that was said before the proofs: two whole messages, and one without its proof.

    `certificate`: the DER of the inviter's certificate, as each side knows it: the joiner from TLS,
    the inviter its own.
    """

    join: Mapping[str, JsonValue]
    invite: Mapping[str, JsonValue]
    prove: Mapping[str, JsonValue]
    certificate: bytes

    def digest(self) -> bytes:
        """SHA-256 of all of it."""
        said: dict[str, JsonValue] = {
            "join": dict(self.join),
            "invite": dict(self.invite),
            "prove": dict(self.prove),
            "certificate": certificate_hash(self.certificate).hex(),
        }
        return _digest("transcript", encode(said).encode())


# -- what is made of a transcript -----------------------------------------------------------------


def key_of(secret: bytes, transcript: bytes) -> bytes:
    """The key of one run, from the code and everything that was said in it."""
    return hkdf.derive(secret, transcript, _label("key"))


def proof(key: bytes, role: str) -> bytes:
    """That whoever speaks in this role knows the code."""
    return hkdf.tag(key, _label("proof") + role.encode())


def signed_text(role: str, transcript: bytes) -> bytes:
    """What a host signs with its key: that it took this role in this run."""
    return _label("signature") + role.encode() + b"\0" + transcript


def short_string(transcript: bytes) -> str:
    """Twelve digits in groups of four, for two people to compare."""
    digits = f"{int.from_bytes(_digest('short', transcript)[:16], 'big') % 10**12:012}"
    return " ".join((digits[:4], digits[4:8], digits[8:]))


def commitment(prove: Mapping[str, JsonValue]) -> bytes:
    """The digest that the joiner gives of what it will say (its nonce keeps it unguessable)."""
    return _digest("commitment", encode(dict(prove)).encode())


def skew_words(skew_ms: int) -> str | None:
    """How far the other's clock is from ours, in words; None for less than a minute or so."""
    apart_ms = abs(skew_ms)
    if apart_ms <= CLOCK_SKEW_TOLD_MS:
        return None
    unit_ms, unit = next((one for one in _UNITS if apart_ms >= 2 * one[0]), _UNITS[-1])
    side = "ahead of" if skew_ms > 0 else "behind"
    return f"the other host's clock is about {apart_ms // unit_ms:,} {unit} {side} this one's"


def refusal(code: str, ours: Sequence[int], theirs: Sequence[int]) -> tuple[str, str]:
    """(what happened, what to do) for a key of `REFUSALS`, where versions matter with those."""
    words, next_step = REFUSALS[code]
    if code != "version-mismatch" or not theirs:
        return words, next_step
    spoken = [", ".join(map(str, versions)) for versions in (ours, theirs)]
    older = "here" if max(ours) < max(theirs) else "on the other host"
    return f"{words}: {spoken[0]} here, {spoken[1]} there", f"bring mbx up to date {older}"


def certificate_hash(certificate: bytes) -> bytes:
    """SHA-256 of a certificate's DER: what peers are pinned to."""
    return hashlib.sha256(certificate).digest()


def _label(purpose: str) -> bytes:
    return b"mbx-pairing/1 " + purpose.encode() + b"\0"


def _digest(purpose: str, content: bytes) -> bytes:
    return hashlib.sha256(_label(purpose) + content).digest()


# -- messages -------------------------------------------------------------------------------------

_JOIN: Final = frozenset("type protocols commitment".split())
_ABOUT: Final = frozenset("type nonce host_key label addresses clock_ms owner".split())
_INVITE: Final = _ABOUT | {"protocols", "invitation"}
_PROVE: Final = _ABOUT | {"certificate", "adopt"}
_ACCEPT: Final = frozenset("type proof signature".split())
_FINISH: Final = frozenset("type signature".split())
_NO: Final = frozenset("type code protocols".split())
_CONFIRMED: Final = frozenset("type records".split())


class Join(NamedTuple):
    """The joiner's first words."""

    content: Mapping[str, JsonValue]
    protocol: int
    commitment: bytes


class About(NamedTuple):
    """What an `invite` or `prove` says (without its proof), and of whom."""

    content: Mapping[str, JsonValue]
    who: Counterpart
    clock_ms: int
    adopt: bool = False
    protocol: int = 0
    invitation: str = ""


def read(text: str, *, proved: bool = False) -> dict[str, JsonValue]:
    """The object of one message; `type` is a text. Raises Refused malformed.

    `proved`: the larger limit holds, since both sides know the code.
    """
    most_bytes = PAIRING_FRAME_MAX_BYTES if proved else HELLO_MAX_BYTES
    try:
        content = parse(text.encode(), most_bytes)
        if isinstance(content, dict) and encode(content) == text:
            fields.text(content.get("type"), "type")
            return content
    except (CanonicalError, RecordError, UnicodeEncodeError):
        pass
    raise Refused("malformed")


def join_message(protocols: Sequence[int], committed: bytes) -> dict[str, JsonValue]:
    """`join`: these versions are spoken, and this is what will be said."""
    return {"type": "join", "protocols": list(protocols), "commitment": committed.hex()}


def read_join(content: Mapping[str, JsonValue], ours: Sequence[int]) -> Join:
    """Raises Refused: version-mismatch first, since another version may have other fields."""
    protocol = _common(content, ours)
    try:
        fields.exactly(dict(content), _JOIN, "join")
        committed = fields.octets(content["commitment"], _TAG_BYTES, "commitment")
    except RecordError:
        raise Refused("malformed") from None
    return Join(content, protocol, committed)


def invite_message(
    own: Own, protocols: Sequence[int], invitation: str, nonce: bytes, clock_ms: int
) -> dict[str, JsonValue]:
    """`invite`: who invites."""
    about = _about("invite", own, nonce, clock_ms)
    return {**about, "protocols": list(protocols), "invitation": invitation}


def read_invite(content: Mapping[str, JsonValue], ours: Sequence[int], certificate: bytes) -> About:
    """`certificate`: the DER that was seen in TLS. Raises Refused as `read_join` does."""
    protocol = _common(content, ours)
    try:
        fields.exactly(dict(content), _INVITE, "invite")
        who = _who(content, certificate)
        invitation = fields.identifier(content["invitation"], "invitation")
        clock_ms = fields.whole(content["clock_ms"], "clock_ms")
    except RecordError:
        raise Refused("malformed") from None
    if who.owner is None:
        raise Refused("malformed")
    return About(content, who, clock_ms, False, protocol, invitation)


def prove_message(own: Own, nonce: bytes, clock_ms: int, *, adopt: bool) -> dict[str, JsonValue]:
    """`prove` without its proof, which is made of it: who joins."""
    certificate = base64.b64encode(own.certificate).decode()
    about = _about("prove", own, nonce, clock_ms)
    return {**about, "certificate": certificate, "adopt": adopt}


def read_prove(content: Mapping[str, JsonValue]) -> tuple[About, bytes]:
    """What a `prove` says, and its proof. Raises Refused malformed."""
    said = {name: value for name, value in content.items() if name != "proof"}
    try:
        given = fields.octets(content.get("proof"), _TAG_BYTES, "proof")
        fields.exactly(said, _PROVE, "prove")
        who = _who(content, _certificate(content["certificate"]))
        clock_ms = fields.whole(content["clock_ms"], "clock_ms")
        adopt = fields.flag(content["adopt"], "adopt")
    except RecordError:
        raise Refused("malformed") from None
    if adopt != (who.owner is None):
        raise Refused("malformed")
    return About(said, who, clock_ms, adopt), given


def accept_message(given: bytes, signature: bytes) -> dict[str, JsonValue]:
    """`accept`: the inviter's proof and signature."""
    return {"type": "accept", "proof": given.hex(), "signature": signature.hex()}


def read_accept(content: Mapping[str, JsonValue]) -> tuple[bytes, bytes]:
    """(proof, signature). Raises Refused malformed."""
    try:
        fields.exactly(dict(content), _ACCEPT, "accept")
        given = fields.octets(content["proof"], _TAG_BYTES, "proof")
        return given, fields.octets(content["signature"], keys.SIGNATURE_BYTES, "signature")
    except RecordError:
        raise Refused("malformed") from None


def finish_message(signature: bytes) -> dict[str, JsonValue]:
    """`finish`: the joiner's signature."""
    return {"type": "finish", "signature": signature.hex()}


def read_finish(content: Mapping[str, JsonValue]) -> bytes:
    """The signature. Raises Refused malformed."""
    try:
        fields.exactly(dict(content), _FINISH, "finish")
        return fields.octets(content["signature"], keys.SIGNATURE_BYTES, "signature")
    except RecordError:
        raise Refused("malformed") from None


def no_message(code: str, protocols: Sequence[int]) -> dict[str, JsonValue]:
    """`no`: the run is over, and why."""
    return {"type": "no", "code": code, "protocols": list(protocols)}


def read_no(content: Mapping[str, JsonValue]) -> tuple[str, tuple[int, ...]]:
    """(code, the versions that the other side speaks). Raises Refused malformed."""
    try:
        fields.exactly(dict(content), _NO, "no")
        return fields.word(content["code"], frozenset(REFUSALS), "code"), _protocols(content)
    except RecordError:
        raise Refused("malformed") from None


def confirmed_message(records: Sequence[str]) -> dict[str, JsonValue]:
    """`confirmed`: the person here agreed; with up to four signed records as texts."""
    return {"type": "confirmed", "records": list(records)}


def read_confirmed(content: Mapping[str, JsonValue]) -> tuple[str, ...]:
    """The records, not looked into. Raises Refused malformed."""
    try:
        fields.exactly(dict(content), _CONFIRMED, "confirmed")
        listed = fields.listed(content["records"], _RECORDS_MAX, "records")
        return tuple(fields.text(one, "record") for one in listed)
    except RecordError:
        raise Refused("malformed") from None


def _about(kind: str, own: Own, nonce: bytes, clock_ms: int) -> dict[str, JsonValue]:
    return {
        "type": kind,
        "nonce": nonce.hex(),
        "host_key": own.signer.public.hex(),
        "label": own.label,
        "addresses": list(own.addresses),
        "clock_ms": clock_ms,
        "owner": None if own.owner is None else own.owner.hex(),
    }


def _who(content: Mapping[str, JsonValue], certificate: bytes) -> Counterpart:
    """Of an `invite` or `prove` with the right fields. Raises RecordError."""
    fields.octets(content["nonce"], NONCE_BYTES, "nonce")
    public = _public(content["host_key"], "host_key")
    owner = content["owner"]
    return Counterpart(
        keys.key_id("host", public),
        public,
        certificate,
        peer.host_label(content["label"]),
        peer.addresses(content["addresses"]),
        None if owner is None else _public(owner, "owner"),
    )


def _public(value: JsonValue, what: str) -> bytes:
    public = fields.octets(value, keys.PUBLIC_BYTES, what)
    if not keys.is_strong_public_key(public):
        raise RecordError(6, f"{what}: not a key that anybody should trust")
    return public


def _certificate(value: JsonValue) -> bytes:
    """Standard base64 in its one spelling; what it decodes to is for others to judge."""
    text = fields.text(value, "certificate")
    try:
        raw = binascii.a2b_base64(text)
    except ValueError:
        raw = b""
    spelled = binascii.b2a_base64(raw, newline=False).decode()
    if not 1 <= len(raw) <= CERTIFICATE_MAX_BYTES or spelled != text:
        raise RecordError(6, "certificate: not base64 of a certificate")
    return raw


def _protocols(content: Mapping[str, JsonValue]) -> tuple[int, ...]:
    """The versions that are told: whole numbers that grow. Raises RecordError."""
    listed = fields.listed(content.get("protocols"), _PROTOCOLS_MAX, "protocols", least=1)
    found = tuple(fields.whole(one, "protocol", 1, _PROTOCOL_MAX) for one in listed)
    if list(found) != sorted(set(found)):
        raise RecordError(6, "protocols: not in order, each once")
    return found


def _common(content: Mapping[str, JsonValue], ours: Sequence[int]) -> int:
    """The newest version that both speak. Raises Refused."""
    try:
        theirs = _protocols(content)
    except RecordError:
        raise Refused("malformed") from None
    common = set(theirs) & set(ours)
    if not common:
        raise Refused("version-mismatch", theirs)
    return max(common)
