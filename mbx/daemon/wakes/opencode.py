"""OpenCode: its plugin gives the session a prompt, by the client's own interface inside it.

The plugin tells by its connection whether the session is idle, and afterwards whether the prompt
was taken. It names the conversation, so a server of many conversations is no obstacle.
"""

from collections.abc import Callable
from typing import Final

from mbx.core.evidence import Process, ProcessEntry
from mbx.daemon import processes
from mbx.daemon.holders import Target
from mbx.daemon.offers import Offers
from mbx.daemon.wakes import IN_A_TURN, LEASE_CHANGED, Seen, Told, still_there

_NOT_CONNECTED: Final = (
    "mbx's plugin in this OpenCode is not connected: it is from the first prompt on"
)
_ONE_TURN: Final = "it runs one turn and ends (opencode run)"


class OpenCode:
    """The way to a session of OpenCode."""

    names_conversations = True

    def __init__(self, offers: Offers) -> None:
        self._offers = offers

    def look(self, target: Target) -> Seen:
        """What the plugin told last."""
        offer = self._offers.of(target)
        if offer is None:
            return Seen("none", _NOT_CONNECTED)
        if _runs_one_turn(target.process):
            return Seen("none", _ONE_TURN)
        return Seen("busy", IN_A_TURN) if offer.state == "busy" else Seen("idle")

    async def wake(self, target: Target, text: str, is_current: Callable[[], bool]) -> Told:
        """Ask the plugin; what it answers is how it ended."""
        if not still_there(target, is_current):
            return LEASE_CHANGED
        return await self._offers.ask(target, text)


def _runs_one_turn(process: Process) -> bool:
    entry = processes.read_entry(process.pid)
    return isinstance(entry, ProcessEntry) and "run" in entry.argv[1:]
