"""HKDF with SHA-256 (RFC 5869): keys for one purpose from one secret and its circumstances."""

import hashlib
import hmac
from typing import Final

_HASH_BYTES: Final = 32
_BLOCKS_MAX: Final = 255
"""The counter of a block is one byte (RFC 5869, 2.3)."""


def derive(secret: bytes, salt: bytes, purpose: bytes, length: int = _HASH_BYTES) -> bytes:
    """`length` bytes of key (at most 8,160) for `purpose`, bound to `salt`.

    Raises ValueError for more bytes than there are.
    """
    if length > _HASH_BYTES * _BLOCKS_MAX:
        raise ValueError("HKDF gives at most 8,160 bytes")
    # An absent salt is a block of zeros, which HMAC makes of an empty key by itself.
    extracted = tag(salt, secret)
    blocks, block = b"", b""
    for counter in range(1, -(-length // _HASH_BYTES) + 1):
        block = tag(extracted, block + purpose + bytes([counter]))
        blocks += block
    return blocks[:length]


def tag(key: bytes, message: bytes) -> bytes:
    """HMAC-SHA256 of a message (32 bytes)."""
    return hmac.new(key, message, hashlib.sha256).digest()


def is_same(left: bytes, right: bytes) -> bool:
    """Whether two tags are equal; how long it takes says nothing about where they differ."""
    return hmac.compare_digest(left, right)
