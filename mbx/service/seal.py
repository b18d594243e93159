"""A file of ours bears a digest of itself, so that one which somebody changed is told from ours.

The text has the digest's place as `PLACE`; the digest is of the text with that word in its place.
"""

import hashlib
import re
from typing import Final, Literal

PLACE: Final = "@SHA256@"
"""Stands where the digest goes."""

WRITTEN_BY: Final = "written by mbx daemon install"
"""Stands in every file that the command wrote; behind it the version, in brackets."""

Whose = Literal["ours", "changed", "foreign"]
"""As we wrote it; ours once, and changed since; never ours."""

_DIGEST: Final = re.compile(r"sha256 ([0-9a-f]{64})")
_VERSION: Final = re.compile(re.escape(WRITTEN_BY) + r" \(mbx ([^()\s]{1,40})\)")


def sealed(text: str) -> str:
    """The text with its digest in the place for it."""
    return text.replace(PLACE, _digest(text), 1)


def whose(text: str) -> Whose:
    """Whose a file is, by its text."""
    found = _DIGEST.search(text)
    if found is None or WRITTEN_BY not in text:
        return "foreign"
    plain = text[: found.start(1)] + PLACE + text[found.end(1) :]
    return "ours" if _digest(plain) == found[1] else "changed"


def version_of(text: str) -> str | None:
    """The version of mbx that wrote it, as the file says."""
    found = _VERSION.search(text)
    return found[1] if found else None


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8")).hexdigest()
