"""What a link has taken in and the store has not: committed in pieces, one at a time.

Whoever else needs the store comes in between two pieces, so that a peer that sends as fast as it
can makes nobody wait for more than one. What comes meanwhile is joined to what waits: many small
records are one piece.
"""

from collections import deque

from mbx.core.commands import Commit
from mbx.core.frames import Place
from mbx.core.limits import COMMIT_PIECE_BYTES
from mbx.core.record import Record


class Intake:
    """The places of one link, in order and without gaps; the window bounds how many there are."""

    def __init__(self) -> None:
        self._stream = ""
        self._first_seq = 0
        self._waiting: deque[Place] = deque()
        self._is_out = False

    def add(self, wanted: Commit) -> None:
        """These follow on what waits, or begin anew where nothing does. Raises ValueError."""
        if not self._waiting:
            self._stream, self._first_seq = wanted.stream, wanted.first_seq
        elif wanted.first_seq != self._first_seq + len(self._waiting):
            raise ValueError("places that do not follow on those that wait")
        self._waiting.extend(wanted.places)

    def take(self) -> Commit | None:
        """The next piece, None while one is out or nothing waits; a record is never cut."""
        if self._is_out or not self._waiting:
            return None
        piece: list[Place] = []
        left_bytes = COMMIT_PIECE_BYTES
        while self._waiting:
            left_bytes -= _size_bytes(self._waiting[0])
            if piece and left_bytes < 0:
                break
            piece.append(self._waiting.popleft())
        first_seq = self._first_seq
        self._first_seq += len(piece)
        self._is_out = True
        return Commit(self._stream, first_seq, tuple(piece))

    def settled(self) -> None:
        """The piece that was out is committed, or refused."""
        self._is_out = False

    def drop(self) -> None:
        """What waits is offered again, or by nobody any more."""
        self._waiting.clear()


def _size_bytes(place: Place) -> int:
    return len(place.payload) if isinstance(place, Record) else 0
