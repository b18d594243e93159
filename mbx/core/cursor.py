"""Cursors of lists: opaque to users, bound to one list, one mailbox and one filter.

The order of every list is the integer key of commit order, in sorting, filtering and the cursor
alike.
"""

import hashlib
from typing import Final

from mbx.core.errors import MbxError

_SCOPE_CHARS: Final = 8
_MAX_CHARS: Final = 64


def encode(listing: str, identity: str, filters: tuple[object, ...], position: int) -> str:
    """The cursor after the row with key `position` of a listing."""
    return f"{listing}.{_scope(listing, identity, filters)}.{position}"


def decode(text: object, listing: str, identity: str, filters: tuple[object, ...]) -> int:
    """The position of a cursor. Raises MbxError usage (malformed) or conflict (of another list)."""
    again = f"leave the cursor out to start `mbx {listing}` from its beginning"
    if not isinstance(text, str) or len(text) > _MAX_CHARS or text.count(".") != 2:
        raise MbxError("usage", "the cursor is malformed", again)
    name, scope, position = text.split(".")
    if not (position.isascii() and position.isdigit() and len(position) <= 18):
        raise MbxError("usage", "the cursor is malformed", again)
    if name != listing or scope != _scope(listing, identity, filters):
        raise MbxError("conflict", "the cursor belongs to another list, mailbox or filter", again)
    return int(position)


def _scope(listing: str, identity: str, filters: tuple[object, ...]) -> str:
    text = repr((listing, identity, filters))
    return hashlib.sha256(text.encode("utf-8", "backslashreplace")).hexdigest()[:_SCOPE_CHARS]
