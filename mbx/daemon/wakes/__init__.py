"""The ways to wake a session from outside, one module for each agent CLI that has one.

`WAYS` names them. A session is looked at (`look`, in a thread: files and processes are read) before
it is woken (`wake`). What a client does not tell is never guessed: then its session sees its mail
at its next prompt.
"""

from collections.abc import Callable
from typing import Final, Literal, NamedTuple, Protocol

from mbx.core.brake import Outcome
from mbx.daemon import processes
from mbx.daemon.holders import Target

Status = Literal["idle", "ready", "busy", "blocked", "none"]
"""What was seen of a session. ``ready``: it can be woken, and whether it is idle nobody can say.
``none``: there is no way to this session, or not now."""

OPEN: Final[frozenset[Status]] = frozenset(("idle", "ready"))
"""Of these, a session would be woken."""


class Seen(NamedTuple):
    """A session as its client tells of it; `why` in constant words where it cannot be woken."""

    status: Status
    why: str = ""

    @property
    def is_open(self) -> bool:
        """Whether it would be woken now."""
        return self.status in OPEN


class Told(NamedTuple):
    """How a wake ended, and in constant words why."""

    outcome: Outcome
    reason: str


IN_A_TURN: Final = "it is in a turn"
"""Why a session is busy."""

LEASE_CHANGED: Final = Told("failed", "the lease changed before it was told")
"""Who is not `still_there` is told nothing."""


def still_there(target: Target, is_current: Callable[[], bool]) -> bool:
    """Whether it holds the lease that it is woken for, in a process that lives.

    Asked directly before a session is told anything; `is_current` is that of `Way.wake`.
    """
    return is_current() and processes.evidence(target.process) == "live"


class Way(Protocol):
    """How the sessions of one agent CLI are woken. It is called by the name of that agent CLI."""

    @property
    def names_conversations(self) -> bool:
        """Whether it reaches exactly one of the conversations of a shared process."""

    def look(self, target: Target) -> Seen:
        """What is seen of a session now. Reads files: never called on the loop."""

    async def wake(self, target: Target, text: str, is_current: Callable[[], bool]) -> Told:
        """Give `text` to exactly this session; within a bounded time.

        `is_current` is asked directly before: whether it still holds the lease that it is woken
        for.
        """
