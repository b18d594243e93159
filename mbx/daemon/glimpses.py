"""What conversations read where nothing can be written: in listings, and while the disk is full.

The daemon remembers it, and it counts as what the table of exposures holds, for the same hour. A
daemon that is stopped puts it into that table; only one that is killed forgets it.
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
        """Remember these, and forget what was read more than an hour ago, the oldest first."""
        known = self._read.setdefault((cli, session_id), {})
        self._read.move_to_end((cli, session_id))
        for fresh in read:
            known[fresh.source_no] = joined(known.get(fresh.source_no), fresh)
        while self._read and (len(self._read) > KEPT_MAX or self._is_first_old(now_ms)):
            self._read.popitem(last=False)

    def of(self, cli: str, session_id: str) -> list[Exposure]:
        """What this conversation read so (older ones may be among them: the rules tell)."""
        return list(self._read.get((cli, session_id), {}).values())

    def of_all(self) -> list[Exposure]:
        """What all of them read so."""
        return [one for _, _, read in self.everything() for one in read]

    def everything(self) -> list[tuple[str, str, list[Exposure]]]:
        """Each conversation (cli, session id) with what it read so."""
        return [(*whose, list(known.values())) for whose, known in list(self._read.items())]

    def _is_first_old(self, now_ms: int) -> bool:
        first = next(iter(self._read.values()))
        return all(now_ms - one.read_ms >= EXPOSURE_MS for one in first.values())
