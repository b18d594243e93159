"""Ed25519 keys, strict verification, and the ids that are derived from keys.

The library alone verifies signatures that fit many messages or have more than one encoding: of 914
published edge cases it accepts 208, with the check made here first 43, none of small order (the
tests assert both). Keys and signatures are raw bytes as in RFC 8032: 32 and 64 of them.
"""

import hashlib
from functools import lru_cache
from typing import Final

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

# Sizes of RFC 8032, 5.1.5 and 5.1.6.
SEED_BYTES: Final = 32
PUBLIC_BYTES: Final = 32
SIGNATURE_BYTES: Final = 64

ROLES: Final = ("host", "owner", "tls")
"""What a key is for; one key has one role, and its id depends on it."""

_P: Final = 2**255 - 19
"""Prime of the field (RFC 8032, 5.1)."""
_L: Final = 2**252 + 27742317777372353535851937790883648493
"""Order of the base point."""
_Y_MASK: Final = 2**255 - 1
"""Bit 255 of an encoded point is the sign of x."""
_Y_OF_ORDER_8: Final = 0x7A03AC9277FDC74EC6CC392CFA53202A0F67100D760B3CBA4FD84D3D706A17C7
_SMALL_ORDER_Y: Final = frozenset({0, 1, _P - 1, _Y_OF_ORDER_8, _P - _Y_OF_ORDER_8})
"""y of all eight points whose order divides 8; each is refused with either sign bit."""

# Lower-case Crockford base32 has no i, l, o, u. Two characters (10 bits) are looked up at once.
_CROCKFORD: Final = "0123456789abcdefghjkmnpqrstvwxyz"
_CROCKFORD_PAIRS: Final = tuple(a + b for a in _CROCKFORD for b in _CROCKFORD)
_CROCKFORD_SHIFTS: Final = tuple(range(120, -1, -10))


class SigningKey:
    """A private key that signs; it shows its public half only. Made by `from_seed`."""

    __slots__ = ("_key", "public")

    def __init__(self, key: Ed25519PrivateKey) -> None:
        self._key = key  # kept: loading it again would double the cost of a signature
        self.public: Final = key.public_key().public_bytes_raw()

    @classmethod
    def from_seed(cls, seed: bytes) -> "SigningKey":
        """The key of a secret of 32 random bytes. Raises ValueError for another length."""
        if len(seed) != SEED_BYTES:
            raise ValueError(f"a seed has {SEED_BYTES} bytes")
        return cls(Ed25519PrivateKey.from_private_bytes(seed))

    def sign(self, message: bytes) -> bytes:
        """The 64 bytes of the signature (deterministic, RFC 8032)."""
        return self._key.sign(message)

    def __repr__(self) -> str:
        return f"SigningKey(public={self.public.hex()})"


def verify(public: bytes, signature: bytes, message: bytes) -> bool:
    """Whether `signature` of `message` is `public`'s, by the strict rules; never raises for bytes.

    Refused before the library is asked: wrong lengths, A or R not canonical or of small order, and
    S not below L.
    """
    if not _may_be_asked(public, signature):
        return False
    try:
        _loaded(public).verify(signature, message)
    except InvalidSignature:
        return False
    return True


def is_strong_public_key(public: bytes) -> bool:
    """Whether these are 32 bytes, canonical and not of small order: ask before recording a key.

    That the point lies on the curve is not asked; a key that does not verifies nothing.
    """
    return len(public) == PUBLIC_BYTES and _is_strong_point(public)


def key_id(role: str, public: bytes) -> str:
    """The id of a key: 26 characters derived from its role (one of `ROLES`) and its 32 bytes.

    Raises ValueError for another role or length.
    """
    if role not in ROLES:
        raise ValueError("unknown role of a key")
    if len(public) != PUBLIC_BYTES:
        raise ValueError(f"a public key has {PUBLIC_BYTES} bytes")
    return crockford(hashlib.sha256(b"mbx-key/1\0" + role.encode() + b"\0" + public).digest())


def crockford(raw: bytes) -> str:
    """The first 130 bits of `raw` as 26 characters of lower-case Crockford base32.

    16 bytes (an identity id) are followed by two zero bits. Raises ValueError for fewer.
    """
    if len(raw) < 16:
        raise ValueError("26 characters need at least 128 bits")
    bits = int.from_bytes(raw[:17].ljust(17, b"\0"), "big") >> 6
    return "".join([_CROCKFORD_PAIRS[bits >> shift & 1023] for shift in _CROCKFORD_SHIFTS])


def _may_be_asked(public: bytes, signature: bytes) -> bool:
    """The strict rules that need no message; they hold whatever the library checks itself."""
    return (
        len(signature) == SIGNATURE_BYTES
        and is_strong_public_key(public)
        and _is_strong_point(signature[:32])
        and int.from_bytes(signature[32:], "little") < _L
    )


def _is_strong_point(encoded: bytes) -> bool:
    y = int.from_bytes(encoded, "little") & _Y_MASK
    return y < _P and y not in _SMALL_ORDER_Y


@lru_cache(maxsize=256)  # a host meets few keys: its own, its owner's, its peers'
def _loaded(public: bytes) -> Ed25519PublicKey:
    return Ed25519PublicKey.from_public_bytes(public)
