"""Sessions that spoke to this daemon: the owner may give one an identity that it never asked for.

Only in memory, and only so many: a session that is not known any more is known again as soon as it
says a word, such as ``mbx whoami``.
"""

from collections import OrderedDict
from dataclasses import replace
from typing import Final, NamedTuple

from mbx.core.evidence import Lineage, Process, own_id

KEPT_MAX: Final = 1_024
"""Twice the connections of one daemon."""


class Encounter(NamedTuple):
    """A session as the walk found it."""

    cli: str
    session_id: str
    process: Process
    conversation: str

    @property
    def names(self) -> tuple[str, ...]:
        """By what it may be called: its own id names it too."""
        return (self.session_id, own_id(self.process, self.conversation))


class Encounters:
    """The sessions met last, by what they are called; one name may have been several processes."""

    def __init__(self) -> None:
        self._met: OrderedDict[Encounter, None] = OrderedDict()
        self._called: OrderedDict[Process, str] = OrderedDict()

    def met(self, lineage: Lineage) -> None:
        """A caller whose session is known said hello."""
        if lineage.verdict != "session" or lineage.process is None:
            return
        one = Encounter(lineage.cli, lineage.session_id, lineage.process, lineage.conversation)
        self._met[one] = None
        self._met.move_to_end(one)
        if len(self._met) > KEPT_MAX:
            self._met.popitem(last=False)

    def name(self, process: Process, called: str) -> None:
        """A hook told what the one conversation of a process is called now."""
        self._called[process] = called
        self._called.move_to_end(process)
        if len(self._called) > KEPT_MAX:
            self._called.popitem(last=False)

    def current(self, lineage: Lineage) -> Lineage:
        """The same session by what its hooks call it now: a tool's connection is older than that.

        In a process of many conversations the connection is of one, and of no other.
        """
        known = self._called.get(lineage.process) if lineage.process is not None else None
        if known is None or lineage.shared or known == lineage.session_id:
            return lineage
        return replace(lineage, session_id=known)

    def forget(self) -> None:
        """Nobody is known any more, as at a start."""
        self._met.clear()
        self._called.clear()

    def called(self, cli: str, session_id: str) -> list[Encounter]:
        """Those that go by this name, or whose process does, newest first."""
        return [one for one in reversed(self._met) if one.cli == cli and session_id in one.names]

    def label(self, process: Process, conversation: str) -> str | None:
        """What a session was called last by a name that is not its own id; None: never."""
        called = None if conversation else self._called.get(process)
        if called is not None:  # by its hooks, which know of the conversation as it is now
            return called
        own = own_id(process, conversation)
        found = (
            one.session_id
            for one in reversed(self._met)
            if (one.process, one.conversation) == (process, conversation) and one.session_id != own
        )
        return next(found, None)
