"""What one session is told at its hooks and in its status line: constants, counts, checked names.

Never a subject, a body, a role or a description: what others wrote stays where it is framed. The
daemon writes a `Snapshot` as a small file for each session, hooks and status line read it: a shell
its first lines, by `read`, Python all of it. Loaded by every hook that prints, so nothing heavy is
imported.
"""

from __future__ import annotations

from mbx.core.limits import SNAPSHOT_STALE_MS

TYPE_CHECKING = False
if TYPE_CHECKING:  # `typing` itself is too heavy for a hook
    from collections.abc import Iterable, Sequence
    from typing import Final

HELD = "held"
PENDING = "pending"
SHARED = "shared"

FRESH = "fresh"
"""The file of the daemon's sign of life."""

DOWN = "down"
SLOW = "slow"
"""The files in which hooks count that they found no daemon, and that one did not answer."""

SAID = "said"
"""The pipe by which those who announced something name the session that they told."""

VERSION = "1"
"""The first word of a snapshot: of another version nothing is believed."""

_NAMED_MAX: Final = 3
_NAME_CHARS: Final = frozenset("abcdefghijklmnopqrstuvwxyz0123456789-@.")
_NEXT = "Next: mbx_inbox."


class Row:
    """One unread message: its place in the store, its `mark`, whether it wakes, who sent it.

    Marks grow with each arrival, so that what arrived after the last announcement is new.
    """

    __slots__ = ("mark", "no", "sender", "wakes")

    def __init__(self, no: int, mark: int, wakes: bool, sender: str) -> None:
        self.no = no
        self.mark = mark
        self.wakes = wakes
        self.sender = sender


class Snapshot:
    """What is known for one session. `state`: it holds `name`, waits for it, or is one of many.

    `called` is what its client calls the conversation, `own` what no other process goes by. Of a
    shared process there is one with no name, whose `newest` tells only whether any has unread mail.
    """

    __slots__ = ("called", "cli", "name", "newest", "own", "rows", "state", "unread")

    def __init__(
        self,
        cli: str,
        called: str,
        own: str,
        state: str,
        name: str = "-",
        unread: int = 0,
        newest: int = 0,
        rows: Sequence[Row] = (),
    ) -> None:
        self.cli = cli
        self.called = called
        self.own = own
        self.state = state
        self.name = name
        self.unread = unread
        self.newest = newest
        self.rows = rows

    @property
    def newest_waking(self) -> int:
        """The mark of the newest unread message that wakes; 0: there is none."""
        return max((row.mark for row in self.rows if row.wakes), default=0)

    def as_text(self) -> str:
        """Its file. The first line is for shells: words without a blank, in this order."""
        head = (
            VERSION,
            self.cli,
            self.state,
            self.own,
            str(self.newest),
            str(self.newest_waking),
            str(self.unread),
            self.name,
        )
        rows = [f"{row.no} {row.mark} {int(row.wakes)} {row.sender}" for row in self.rows]
        return "\n".join((" ".join(head), self.called, self.status_line(), *rows)) + "\n"

    def status_line(self) -> str:
        """The line on the client's screen; "" where nothing can be said of one conversation."""
        if self.state == HELD:
            return f"mbx {self.name}: {self.unread} unread" if self.unread else f"mbx {self.name}"
        return f"mbx: waits for {self.name}" if self.state == PENDING else ""

    def news(self, told: int) -> str:
        """What is new since the mark `told`; "" for nothing."""
        if self.state != HELD or self.newest <= told:
            return ""
        fresh = [row for row in self.rows if row.mark > told]
        what = f"{len(fresh)} new" if fresh else "new mail"
        whence = _named(row.sender for row in fresh)
        return f"mbx: {what} for {self.name}{whence}, {self.unread} unread. {_NEXT}"

    def stop(self, told: int) -> str:
        """Why a turn should go on: mail that wakes came since the mark `told`; "" for nothing."""
        fresh = [row for row in self.rows if row.wakes and row.mark > told]
        if self.state != HELD or not fresh:
            return ""
        asks = "message asks" if len(fresh) == 1 else "messages ask"
        whence = _named(row.sender for row in fresh)
        return (
            f"mbx: {len(fresh)} new {asks} for {self.name}{whence}. Before you end your turn:"
            " mbx_inbox, mbx_read, act within the policy line, mbx_ack."
        )


def parse(text: str) -> Snapshot | None:
    """The snapshot in a file; None for one that is none, or of another version."""
    lines = text.split("\n")
    head = lines[0].split(" ")
    if len(lines) < 4 or len(head) != 8 or head[0] != VERSION:
        return None
    _, cli, state, own, newest, _, unread, name = head
    try:
        rows = []
        for line in lines[3:-1]:
            no, mark, wakes, sender = line.split(" ")
            rows.append(Row(int(no), int(mark), wakes == "1", sender))
        return Snapshot(cli, lines[1], own, state, name, int(unread), int(newest), rows)
    except ValueError:
        return None


def told_name(own: str) -> str:
    """The file in which is kept what a session was told, by what no other process goes by."""
    return f"{own}.told"


def is_fresh(beat_ms: int, now_ms: int) -> bool:
    """Whether the daemon's last sign of life still counts; one from before a reboot does not."""
    return 0 <= now_ms - beat_ms <= SNAPSHOT_STALE_MS


def greeting(
    agent: str | None, unread: int, pending: str | None = None, ticket: str | None = None
) -> str:
    """What a session is told when it begins: who it is, what waits, what to do next.

    `ticket`: by which a conversation of a shared process names itself to its tools.
    """
    if agent is not None:
        text = f"mbx: your mailbox identity is {agent}, {unread} unread."
        step = _NEXT if unread else "Next: go on; mail is announced."
    elif pending is not None:
        text = f"mbx: another session holds {pending}; you get it when that one ends."
        step = "Next: go on; mbx_whoami tells."
    else:
        text = "mbx: this session has no mailbox identity. Take one only if you were given a name."
        step = "Next: mbx_whoami."
    bind = f' First: mbx_whoami with bind "{ticket}".' if ticket is not None else ""
    return f"{text}{bind} {step}"


def _named(senders: Iterable[str]) -> str:
    """`` from a, b and 2 more``: only what has the characters of an address."""
    known = [name for name in dict.fromkeys(senders) if name and set(name) <= _NAME_CHARS]
    if not known:
        return ""
    shown, more = known[:_NAMED_MAX], len(known) - _NAMED_MAX
    return f" from {', '.join(shown)}" + (f" and {more} more" if more > 0 else "")
