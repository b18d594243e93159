"""Bind tickets: by which a conversation of a shared process names itself on another connection.

One process may host many conversations, and a call that comes through a tool of it says which
process it is of, not which conversation. A hook of the conversation knows: it asks for a ticket,
and the conversation hands it in on the connection that is to be its own. A ticket is good once, for
ten minutes, for a connection of exactly that process. Tickets live in memory: after a restart they
are asked for again.
"""

import hashlib
from typing import NamedTuple

from mbx.core.errors import MbxError
from mbx.core.evidence import Lineage, Process, SessionKey, chosen
from mbx.core.limits import TICKET_TTL_MS, TICKETS_MAX, TICKETS_OF_CONVERSATION_MAX
from mbx.daemon.effects import Ticketed
from mbx.daemon.world import World


class _Ticket(NamedTuple):
    process: Process
    key: SessionKey
    expires_ms: int
    """Monotonic."""


class Tickets:
    """All tickets that may still be used, oldest first, by the digest of their text."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._tickets: dict[bytes, _Ticket] = {}

    def __len__(self) -> int:
        self._drop_expired()
        return len(self._tickets)

    def issued(self, effect: Ticketed) -> None:
        """A conversation was given a ticket; the oldest one goes where there are too many."""
        self._drop_expired()
        owner = (effect.process, effect.key)
        same = [one for one, told in self._tickets.items() if (told.process, told.key) == owner]
        for digest in same[: max(0, len(same) - TICKETS_OF_CONVERSATION_MAX + 1)]:
            del self._tickets[digest]
        while len(self._tickets) >= TICKETS_MAX:
            del self._tickets[next(iter(self._tickets))]
        expires_ms = self._world.monotonic_ms() + TICKET_TTL_MS
        self._tickets[effect.digest] = _Ticket(effect.process, effect.key, expires_ms)

    def redeem(self, text: str, lineage: Lineage) -> Lineage:
        """What a connection is from now on; the ticket is used up.

        Raises MbxError not-found for a ticket that is none, or is not for this process, and
        conflict on a connection of another conversation. Then nothing has changed.
        """
        self._drop_expired()
        digest = digest_of(text)
        ticket = self._tickets.get(digest)
        process = lineage.process if lineage.shared else lineage.undecided
        if ticket is None or ticket.process != process:
            raise MbxError(
                "not-found",
                "there is no such bind ticket for the process of this connection",
                "ask for another one from a hook of the conversation",
            )
        if lineage.shared and lineage.session_id != ticket.key.id:
            raise MbxError(
                "conflict",
                "this connection is another conversation already",
                "bind a connection of its own",
                session={"cli": lineage.cli, "id": lineage.session_id},
            )
        del self._tickets[digest]
        return lineage if lineage.shared else chosen(ticket.process, ticket.key)

    def _drop_expired(self) -> None:
        now_ms = self._world.monotonic_ms()
        for digest, ticket in list(self._tickets.items()):
            if now_ms < ticket.expires_ms:
                return
            del self._tickets[digest]


def digest_of(text: str) -> bytes:
    """What is kept of a ticket."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()
