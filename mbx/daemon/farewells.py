"""Hosts that our owner has removed, and that may not know it yet: they are dialled to be told.

A host that was away when its pairing was ended, and that has no address of ours, would wait for a
link for ever. So the one that ended it dials, says `bye`, and is done with it. Nothing of that is
kept: after a start each host that was removed of late is dialled once more, and says by its answer
that it knows.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from mbx.core.dialing import Dialling
from mbx.core.limits import FAREWELL_MAX_MS
from mbx.daemon.links import TURNED_AWAY, CallLater, Timer
from mbx.daemon.world import World
from mbx.store.peers import PeerRow

TOLD: Final = "told"
"""Outcome of a dial: the other host has heard the bye, and hung up in good order."""

_DONE: Final = frozenset({TOLD, TURNED_AWAY})


def due(rows: Iterable[PeerRow], now_ms: int) -> list[PeerRow]:
    """Of all pairings, those that our owner has ended of late; none of a host paired again."""
    latest = {row.key_id: row for row in rows}
    return [row for row in latest.values() if _is_due(row, now_ms) and row.dialled_at]


def _is_due(row: PeerRow, now_ms: int) -> bool:
    if row.ended_ms is None or row.ended_by != "us":
        return False
    return now_ms - row.ended_ms <= FAREWELL_MAX_MS


@dataclass(slots=True)
class _Parting:
    """One host that is to be told."""

    row: PeerRow
    dialling: Dialling
    timer: Timer | None = None


class Farewells:
    """Tells removed hosts. `dial` begins a try, whose outcome comes to `tried`."""

    def __init__(
        self, world: World, dial: Callable[[PeerRow], None], call_later: CallLater
    ) -> None:
        self._world = world
        self._dial = dial
        self._call_later = call_later
        self._partings: dict[int, _Parting] = {}
        self._told: set[int] = set()

    @property
    def waiting(self) -> list[str]:
        """Labels of those that are still to be told."""
        return [one.row.label for one in self._partings.values()]

    def know(self, rows: Iterable[PeerRow]) -> None:
        """These were removed. Where a link stood, its own end tells: so the first try waits."""
        wanted = {row.no: row for row in rows if row.no not in self._told}
        for no in [no for no in self._partings if no not in wanted]:
            self._forget(no)
        for no, row in wanted.items():
            if no not in self._partings:
                begun = Dialling.begin("stand-by", self._world.monotonic_ms())
                self._partings[no] = one = _Parting(row, begun)
                self._set_timer(one)

    def tried(self, peer_no: int, code: str) -> None:
        """A try has ended: `TOLD`, or the code of a dial that came to nothing."""
        one = self._partings.get(peer_no)
        if one is None:
            return
        if code in _DONE:
            self._told.add(peer_no)
            self._forget(peer_no)
            return
        chance = self._world.random_bytes(8)
        one.dialling = one.dialling.failed(code, self._world.monotonic_ms(), chance)
        self._set_timer(one)

    def close(self) -> None:
        """Nothing begins any more."""
        for no in list(self._partings):
            self._forget(no)

    # -- inside ------------------------------------------------------------------------------------

    def _forget(self, no: int) -> None:
        timer = self._partings.pop(no).timer
        if timer is not None:
            timer.cancel()

    def _set_timer(self, one: _Parting) -> None:
        if one.dialling.due_ms is not None:
            wait_ms = max(0, one.dialling.due_ms - self._world.monotonic_ms())
            one.timer = self._call_later(wait_ms / 1000, lambda: self._ring(one))

    def _ring(self, one: _Parting) -> None:
        one.timer = None
        now_ms = self._world.monotonic_ms()
        if not _is_due(one.row, self._world.now_ms()):
            self._forget(one.row.no)
        elif one.dialling.due_ms is not None and now_ms >= one.dialling.due_ms:
            one.dialling = one.dialling.trying(now_ms)
            self._dial(one.row)
        else:
            self._set_timer(one)
