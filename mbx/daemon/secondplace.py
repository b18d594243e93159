"""Keeps the floor up with the store.

With each record of the owner's at once; with the audit log at the start, once a minute if it moved,
and at an orderly stop.

A log that was put back from a copy, or written anew, does not have the row that the floor names.
Then the floor keeps that row, whatever happens after: it is the proof. What was signed before is
void then (`mbx.daemon.booting`). While the file cannot be written, all who look at the owner's
records are told so.
"""

import os
from typing import Any, Final, NamedTuple

from mbx.core.errors import MbxError
from mbx.daemon import floor
from mbx.daemon.authority import Authority
from mbx.daemon.effects import Authorised
from mbx.daemon.floor import Floor, FollowedFloor
from mbx.daemon.host import Host
from mbx.daemon.journal import Journal
from mbx.daemon.world import World, moment
from mbx.store import audit
from mbx.store.database import Committed, Outcome, Tx

_NOT_WRITTEN: Final = "the floor could not be written"


class Seen(NamedTuple):
    """The audit log's newest row, and the row that the floor may name: (number, hash)."""

    head: tuple[int, bytes]
    reached: tuple[int, bytes]


class SecondPlace:
    """The floor's file at `path`, and what was `known` of it; `authority` reads what is reached.

    Where there was no file, though the owner had signed, it stays lost until the owner signs again.
    """

    def __init__(self, path: str, host: Host, known: Floor, world: World, journal: Journal) -> None:
        self._path = path
        self._host = host
        self._world = world
        self._journal = journal
        reached = (known.audit_no, bytes.fromhex(known.audit_hash))
        self.authority = Authority(
            host.key_id,
            known.version,
            reached,
            known.void,
            {one.chain: (one.version, one.at_ms) for one in known.followed},
            {one.chain: one.void for one in known.followed if one.void is not None},
        )
        self._is_lost = known.has_seen and not os.path.lexists(path)
        self._is_put_back = False

    def authorised(self, effect: Authorised) -> None:
        """The second place knows before the answer leaves; what is refused there is told."""
        self.authority.floor = effect.version
        for chain, version, at_ms in effect.followed:
            self.authority.raise_followed(chain, version, at_ms)
        reached = (effect.audit_no, bytes.fromhex(effect.audit_hash))
        known = self.authority.audit_reached
        if self._is_put_back or reached[0] < known[0]:  # or told after a later one of its group
            reached = known
        self._is_lost = not self._save(reached) and self._is_lost

    def look(self, tx: Tx) -> Seen:
        """The unit that finds how far the log goes."""
        return Seen(audit.head(tx), audit.reached(tx, *self.authority.audit_reached))

    def follow(self, outcome: Outcome[Any]) -> None:
        """Write the floor if the log that `look` saw has moved."""
        if not isinstance(outcome, Committed):
            return
        seen: Seen = outcome.value
        self._is_put_back = seen.reached != seen.head
        has_moved = seen.reached[0] > self.authority.audit_reached[0]
        if (has_moved or self.authority.floor_fault) and not self._is_lost:
            self._save(seen.reached)

    def _save(self, reached: tuple[int, bytes]) -> bool:
        no, digest = reached
        known = self.authority
        followed = tuple(
            FollowedFloor(chain, *far, known.followed_void.get(chain))
            for chain, far in sorted(known.followed.items())
        )
        place = Floor(known.floor, no, digest.hex(), known.void, followed)
        try:
            floor.save(self._path, self._host, moment(self._world), place)
        except (OSError, MbxError) as error:  # what was applied holds; the next round tries again
            self._journal.write(_NOT_WRITTEN, why=error)
            self.authority.floor_fault = str(error)
            return False
        self.authority.floor_fault = ""
        self.authority.audit_reached = reached
        return True
