"""Cursors of lists: opaque to users, bound to one list, one mailbox and one filter.

The order of every list is the integer key of commit order, in sorting, filtering and the cursor
alike. Where something may come to stand before a cursor (a forward hands on mail at its old place),
the cursor is also bound to how often that happened: it never steps past what became visible.
"""

import hashlib
from typing import Final

from mbx.core.errors import MbxError

_SCOPE_CHARS: Final = 8
_MAX_CHARS: Final = 64
_DIGITS_MAX: Final = 18


def encode(
    listing: str, identity: str, filters: tuple[object, ...], position: int, inserted: int = 0
) -> str:
    """The cursor after the row with key `position` of a listing.

    `inserted`: how often rows came to stand between others in this mailbox, up to now.
    """
    text = f"{listing}.{_scope(listing, identity, filters)}.{position}"
    return f"{text}.{inserted}" if inserted else text


def decode(
    text: object, listing: str, identity: str, filters: tuple[object, ...], inserted: int = 0
) -> int:
    """The position of a cursor. Raises MbxError usage (malformed) or conflict (it does not fit)."""
    again = f"leave the cursor out to start `mbx {listing}` from its beginning"
    if not isinstance(text, str) or len(text) > _MAX_CHARS or text.count(".") not in (2, 3):
        raise MbxError("usage", "the cursor is malformed", again)
    name, scope, *numbers = text.split(".")
    if not all(one.isascii() and one.isdigit() and len(one) <= _DIGITS_MAX for one in numbers):
        raise MbxError("usage", "the cursor is malformed", again)
    if name != listing or scope != _scope(listing, identity, filters):
        raise MbxError("conflict", "the cursor belongs to another list, mailbox or filter", again)
    position, known = (int(one) for one in (*numbers, "0")[:2])
    if known != inserted:
        why = "mail was forwarded to this mailbox since the cursor was given: some stands before it"
        raise MbxError("conflict", why, again)
    return position


def _scope(listing: str, identity: str, filters: tuple[object, ...]) -> str:
    text = repr((listing, identity, filters))
    return hashlib.sha256(text.encode("utf-8", "backslashreplace")).hexdigest()[:_SCOPE_CHARS]
