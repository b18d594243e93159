"""Where a message is shown: our lines, and between two boundary lines the sender's own.

An agent gets `framed`: the body unaltered between two lines that carry a fresh 128-bit boundary.
A person gets `shown`: the same layout, each foreign line made visible and set behind a gutter. In
both, trust and policy lines stand outside; they come from the receiving daemon only::

    message 7K2Q...: request, needs a reply
    from api-dev@box to ui-dev@box at 2026-11-30T12:00:00.000Z
    trust: local
    policy: ask
    --- begin 0f3c... (the sender's own words) ---
    subject: Which port?

    The body, as it was written.
    --- end 0f3c... ---

To read the body back: what stands between the two boundary lines, without the one line feed before
the end line, from behind the first empty line.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Self

from mbx.core.text import fold, visible, visible_lines

BOUNDARY_HEX_CHARS: Final = 32
"""128 bits, in lower-case hex."""

GUTTER: Final = "| "
"""Before each line that another party wrote."""

GUTTER_CONTINUED: Final = "|>"
"""Before the further rows of a foreign line that is wider than the terminal."""

_BOUNDARY: Final = re.compile(f"[0-9a-f]{{{BOUNDARY_HEX_CHARS}}}")
_DRAWS_MAX: Final = 8
"""A second draw has odds of about 2**-110; a source that needs this many is broken."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """One message as it is shown.

    Ours: `id`, `kind`, `sender` and `to` (checked addresses), `at` (RFC 3339), `reply_to` (an id or
    empty), `needs_reply`, `trust_line`, `policy_line`, and `after`: lines behind the frame, such as
    where a cut body goes on. The sender's: `subject`, `topic`, `refs`, `body`.
    """

    id: str
    kind: str
    sender: str
    to: tuple[str, ...]
    at: str
    trust_line: str
    policy_line: str
    subject: str
    body: str
    needs_reply: bool = False
    reply_to: str = ""
    topic: str = ""
    refs: tuple[str, ...] = ()
    after: tuple[str, ...] = ()

    @classmethod
    def of(cls, message: Mapping[str, Any], *, after: tuple[str, ...] = ()) -> Self:
        """A message as `mail.read` answers it, and what stands behind its frame."""
        return cls(
            id=message["id"],
            kind=message["kind"],
            sender=message["from"],
            to=tuple(message["to"]),
            at=message["at"],
            trust_line=message["trust_line"],
            policy_line=message["policy_line"],
            subject=message["subject"],
            body=message["body"],
            needs_reply=bool(message["needs_reply"]),
            reply_to=message.get("reply_to") or "",
            topic=message.get("topic") or "",
            refs=tuple(message["refs"]),
            after=after,
        )


def boundary_for(draw: Callable[[], str], *foreign: str) -> str:
    """A boundary that occurs in none of the foreign texts, in no letter case.

    `draw` gives 32 fresh random lower-case hex characters each time. Raises ValueError when what it
    gives is of another form, or is found in the texts again and again.
    """
    folded = [text.lower() for text in foreign]
    for _ in range(_DRAWS_MAX):
        boundary = draw()
        _check_boundary(boundary)
        if not any(boundary in text for text in folded):
            return boundary
    raise ValueError("the source of boundaries repeats itself")


def framed(message: Shown, boundary: str) -> str:
    """The text for agents, without a line feed at the end.

    Raises ValueError when the boundary is malformed or occurs in what the sender wrote: draw one
    with `boundary_for`.
    """
    foreign = ["\n".join(_head(message)), "", message.body]
    return _enclosed(message, boundary, foreign)


def shown(message: Shown, boundary: str, columns: int | None = None) -> str:
    """The text for people, without a line feed at the end; raises as `framed` does.

    `columns` is the width of the terminal, None when there is none: then no line is folded.
    """
    head = gutter("\n".join(_head(message)), columns)
    return _enclosed(message, boundary, [head, GUTTER.rstrip(), gutter(message.body, columns)])


def gutter(body: str, columns: int | None = None) -> str:
    """A foreign text for people: visible, each row behind a gutter, folded to the terminal.

    Rows are folded by us since a terminal would wrap them without a gutter, and what comes first on
    the next row could pass for a line of ours.
    """
    return "\n".join(_rows(body, columns))


def _rows(body: str, columns: int | None) -> Iterator[str]:
    for line in visible_lines(body):
        rows = [line] if columns is None else fold(line, columns - len(GUTTER))
        yield (GUTTER + rows[0]).rstrip(" ")
        for row in rows[1:]:
            yield GUTTER_CONTINUED + row


def _enclosed(message: Shown, boundary: str, foreign: list[str]) -> str:
    """Our lines, the boundary lines, and the foreign text between those."""
    _check_boundary(boundary)
    text = "\n".join(foreign)
    if boundary in text:
        raise ValueError("the boundary occurs in the text that it must enclose")
    begin = f"--- begin {boundary} (the sender's own words) ---"
    end = f"--- end {boundary} ---"
    return "\n".join([*_ours(message), begin, text, end, *map(visible, message.after)])


def _ours(message: Shown) -> list[str]:
    """The lines before the frame; `visible` keeps each of them one line, whatever a field holds."""
    lines = [
        f"message {message.id}: {message.kind}{', needs a reply' if message.needs_reply else ''}",
        f"from {message.sender} to {', '.join(message.to)} at {message.at}",
        f"in reply to {message.reply_to}" if message.reply_to else "",
        message.trust_line,
        message.policy_line,
    ]
    return [visible(line) for line in lines if line]


def _head(message: Shown) -> list[str]:
    """The sender's short fields, each on one line that is not empty."""
    fields = [("subject", message.subject)]
    if message.topic:
        fields.append(("topic", message.topic))
    fields.extend(("ref", ref) for ref in message.refs)
    # Made visible apart from our label, so that no mark of theirs combines with it.
    return [f"{label}: {visible(value)}" for label, value in fields]


def _check_boundary(boundary: str) -> None:
    if _BOUNDARY.fullmatch(boundary) is None:
        raise ValueError("a boundary has 32 lower-case hex characters")
