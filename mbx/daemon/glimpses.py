"""What conversations read while the disk was full: no table can take it, so the daemon remembers.

It counts as what the table holds, for the same hour. Only the end of the daemon forgets it.
"""

from collections import OrderedDict
from collections.abc import Iterable
from typing import Final

from mbx.core.exposure import Exposure, joined
from mbx.core.limits import EXPOSURE_MS

KEPT_MAX: Final = 1_024
"""Conversations; twice the connections of one daemon."""

_Conversation = tuple[str, str]


class Glimpses:
    """By conversation (cli, session id), then by sender."""

    def __init__(self) -> None:
        self._read: OrderedDict[_Conversation, dict[int, Exposure]] = OrderedDict()

    def add(self, cli: str, session_id: str, read: Iterable[Exposure], now_ms: int) -> None:
        """Remember these, and forget what is more than an hour old."""
        self._forget(now_ms)
        for fresh in read:
            known = self._read.setdefault((cli, session_id), {})
            known[fresh.source_no] = joined(known.get(fresh.source_no), fresh)
            self._read.move_to_end((cli, session_id))
        while len(self._read) > KEPT_MAX:
            self._read.popitem(last=False)

    def of(self, cli: str, session_id: str) -> list[Exposure]:
        """What this conversation read so (older ones may be among them: the rules tell)."""
        return list(self._read.get((cli, session_id), {}).values())

    def of_all(self) -> list[Exposure]:
        """What all of them read so."""
        return [one for known in self._read.values() for one in known.values()]

    def _forget(self, now_ms: int) -> None:
        for conversation, known in list(self._read.items()):
            if all(now_ms - one.read_ms >= EXPOSURE_MS for one in known.values()):
                del self._read[conversation]
