"""Trust and policy lines: the receiver's own words on a message, from its own records only."""

import re
import unicodedata
from collections.abc import Callable
from typing import Final, Literal, NamedTuple

from mbx.core.authority import Grant, manner

Origin = Literal["local", "paired", "owner", "unverified"]

TRUST_LOCAL: Final = "local"
AUTHORITY_OWNER: Final = "authority: OWNER"
UNVERIFIED: Final = "unverified-sender"
POLICY_ASK: Final = "ask"
_ASK_MEANS: Final = "read, answer, share information, ack; nothing more is delegated"

_OURS: Final = "tru[s5]t|p[o0][li1|][li1|]cy|auth[o0]r[li1|]ty"
"""Our words, also with the letters and digits of ASCII that look like theirs."""
_IMITATION: Final = re.compile(
    rf"[\W\d_]*(?:{_OURS})(?:[\W_]*line)?[\W_]*[:=\u02d0\u2236\ua789]", re.IGNORECASE
)
_ALIKE: Final = bytes.maketrans(b"01l|5", b"oiiis")
_WORDS: Final = (b"trust", b"poiicy", b"authority")
"""Our words as `_ALIKE` makes them: a look at memory's speed, before the pattern's."""
_TAGS: Final = re.compile(r"<(?:/?[a-z]|[!?])[^<>\n]{0,80}>", re.IGNORECASE)
"""Of HTML and XML, comments too: a renderer shows what stands around them as one word."""
_MARKS: Final = "*`~"
"""Of Markdown, which shows none of them inside a word."""
_NO_MARKS: Final = str.maketrans("", "", _MARKS)
_REFERENCES: Final = re.compile(
    r"&(?:#x([0-9a-f]{1,6})|#([0-9]{1,7})|(shy|zwj|zwnj|lrm|rlm|nobreak|zerowidthspace));",
    re.IGNORECASE,
)
"""Characters of HTML told by their number, or by a name and not seen."""
_UNSEEN: Final = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]"
    r"|[\x00-\x08\x0e-\x1b\x7f-\x84\x86-\x9f\xad\u0300-\u036f\u061c\u115f\u1160\u17b4\u17b5"
    r"\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufe00-\ufe0f\ufdfa\ufdfb\ufeff\ufff9-\ufffb"
    r"\U000e0000-\U000e0fff]"
)
"""What people do not see, and a model may read over: marks on letters too, but no line break.

Two letters are among it of which a normal form makes eighteen: a body would grow with them."""
_UNSEEN_ASCII: Final = bytes((*range(0x09), *range(0x0E, 0x1C), 0x7F))
"""Of these, what a text of ASCII can have (the pattern costs 800 instructions a character)."""
_LOOK_ALIKES: Final = str.maketrans(
    "\u0430\u0441\u0435\u04bb\u0456\u04cf\u043e\u0440\u0455\u0442\u0443\u04af\u0433"
    "\u03b1\u03b5\u03b9\u03bf\u03c1\u03c4\u03c5\u03b3\u0131\u057d\u0578\u0570"
    "\u1d00\u1d04\u029c\u026a\u029f\u1d0f\u1d18\u0280\ua731\u1d1b\u1d1c\u028f",
    "acehilopstyyraeioptuyiuuhachiloprstuy",
)
"""Small letters of other scripts, and small capitals, for the Latin ones of our words."""


class Lines(NamedTuple):
    """`trust` and `policy` for listings, and the two lines of a message that is read."""

    trust: str
    policy: str
    trust_line: str
    policy_line: str


def owner_lines(key_id: str) -> Lines:
    """Of mail that the owner's own key signed: its authority stands alone."""
    line = f"authority: OWNER (signed by the owner's key {key_id})"
    return Lines(AUTHORITY_OWNER, "owner", line, "")


def local_lines(grant: Grant, rfc3339: Callable[[int], str]) -> Lines:
    """Of mail that an identity of this host sent under its lease."""
    trust_line = "trust: local (sent by an identity of this host, under its lease)"
    return Lines(TRUST_LOCAL, policy_word(grant), trust_line, policy_line(grant, rfc3339))


def paired_lines(label: str, grant: Grant, rfc3339: Callable[[int], str]) -> Lines:
    """Of mail that a paired host signed in the name of one of its identities; `label` is ours."""
    trust = f"verified (paired host {label})"
    trust_line = f"trust: {trust}: that host vouches for its own names, and for nothing else"
    return Lines(trust, policy_word(grant), trust_line, policy_line(grant, rfc3339))


def unverified_lines(grant: Grant, rfc3339: Callable[[int], str]) -> Lines:
    """Of mail whose sender's words nothing proves."""
    trust_line = f"trust: {UNVERIFIED} (nothing proves who wrote this)"
    return Lines(UNVERIFIED, policy_word(grant), trust_line, policy_line(grant, rfc3339))


def policy_word(grant: Grant) -> str:
    """The policy in a listing: ``ask``, or the level and its classes."""
    if not grant.classes:
        return POLICY_ASK
    return f"{grant.level}: {', '.join(grant.classes)}"


def policy_line(grant: Grant, rfc3339: Callable[[int], str]) -> str:
    """The policy of a message that is read: what it lets the agent do, by which record, till when.

    ``ask`` names the record that would have governed, and why it grants nothing.
    """
    if not grant.classes:
        record = f"record {grant.record}" if grant.record else ""
        means = "; ".join(one for one in (_ASK_MEANS, grant.reason, record) if one)
        return f"policy: ask ({means})"
    words = [", ".join(grant.classes)]
    if how := manner(grant):
        words.append(how)
    if grant.reason:
        words.append(grant.reason)
    words.append(f"record {grant.record}")
    if grant.exp_ms is not None:
        words.append(f"until {rfc3339(grant.exp_ms)}")
    if grant.projects:
        words.append(f"projects {', '.join(grant.projects)}")
    return f"policy: {grant.level} ({'; '.join(words)})"


def imitations(body: str) -> int:
    """How many lines of a body look like a trust or policy line of ours.

    Whatever is not shown goes first: our words may be cut by it.
    """
    told = _REFERENCES.sub(_character, body) if "&" in body else body
    seen = told if _is_all_seen(told) else _seen(told)
    if "<" in seen:
        seen = _TAGS.sub("", seen)
    folded = seen.casefold().encode("utf-8", "replace").translate(_ALIKE, _MARKS.encode())
    if not any(word in folded for word in _WORDS):
        return 0
    shown = seen.translate(_NO_MARKS)
    return sum(1 for line in shown.splitlines() if _IMITATION.match(line) is not None)


def _character(reference: re.Match[str]) -> str:
    """What it stands for; nothing for what is not seen, or is no character. It breaks no line."""
    hexadecimal, decimal, _ = reference.groups()
    number = int(hexadecimal, 16) if hexadecimal else int(decimal or 0)
    is_character = 0 < number < 0xD800 or 0xDFFF < number <= 0x10FFFF
    character = chr(number) if is_character else ""
    return " " if character.isspace() or character.splitlines() == [""] else character


def _is_all_seen(body: str) -> bool:
    if not body.isascii():
        return False
    raw = body.encode()
    return len(raw.translate(None, _UNSEEN_ASCII)) == len(raw)


def _seen(body: str) -> str:
    """What people see of it, in our letters."""
    seen = _UNSEEN.sub("", body)
    if not seen.isascii():
        seen = _UNSEEN.sub("", unicodedata.normalize("NFKD", seen))
        seen = seen.casefold().translate(_LOOK_ALIKES)
    return seen
