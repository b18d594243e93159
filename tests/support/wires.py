"""A wire between two hosts that a test may bend: a port that goes on to another one.

What goes over it is recorded piece by piece, as the sockets gave it; a `Bend` decides what arrives
of each piece. It knows no key: what it can do, anybody on the way can do.
"""

import socket
import struct
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, Self

from tests.support.shells import TIMEOUT_S

LOOPBACK: Final = "127.0.0.1"
_PIECE_BYTES: Final = 65_536
_RESET: Final = struct.pack("ii", 1, 0)
"""A socket that lingers for no time at all ends with a reset."""


class Piece(NamedTuple):
    """What one read gave: which way it goes, where it begins in that direction, and the bytes."""

    inward: bool
    place: int
    data: bytes


class Cut(Exception):
    """A bend ends the connection, behind `rest`; `hard`: by a reset instead of an end in order."""

    def __init__(self, rest: bytes = b"", *, hard: bool = False) -> None:
        super().__init__()
        self.rest = rest
        self.hard = hard


@dataclass(eq=False)
class Passage:
    """One connection over a wire. `inward` is what the dialler says, all else goes outward."""

    number: int
    bend: "Bend"
    pieces: list[Piece] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)
    ended: threading.Event = field(default_factory=threading.Event)
    sockets: tuple[socket.socket, ...] = ()
    carriers: int = 2
    """Directions in which it still goes."""

    def said(self, *, inward: bool) -> bytes:
        """All that went one way, as it was said."""
        return b"".join(piece.data for piece in self.pieces if piece.inward is inward)

    @property
    def carried(self) -> int:
        """Bytes of both directions."""
        return sum(len(piece.data) for piece in self.pieces)

    def cut(self, *, hard: bool = False) -> None:
        """End it on both sides."""
        for one in self.sockets:
            with suppress(OSError):
                if hard:
                    one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
                    one.close()
                else:
                    one.shutdown(socket.SHUT_RDWR)
        self.ended.set()


Bend = Callable[[Passage, Piece], bytes]
"""What arrives of a piece, which is the last of the passage's `pieces`; may raise Cut."""


def straight(_: Passage, piece: Piece) -> bytes:
    """As it is."""
    return piece.data


class Flip:
    """One bit of one byte of one connection is changed: of one direction, or of all that goes."""

    def __init__(self, place: int, *, inward: bool | None = None, mask: int = 1) -> None:
        self.place, self.inward, self.mask = place, inward, mask
        self.has_flipped = False
        self._passage: Passage | None = None

    def __call__(self, passage: Passage, piece: Piece) -> bytes:
        """A bend."""
        self._passage = self._passage or passage
        if passage is not self._passage:
            return piece.data
        if self.inward is None:
            start = passage.carried - len(piece.data)
        elif self.inward is piece.inward:
            start = piece.place
        else:
            return piece.data
        at = self.place - start
        if not 0 <= at < len(piece.data):
            return piece.data
        self.has_flipped = True
        return piece.data[:at] + bytes([piece.data[at] ^ self.mask]) + piece.data[at + 1 :]


class CutAfter:
    """One connection ends once so many pieces have gone over; `torn`: in the middle of the last."""

    def __init__(self, pieces: int, *, hard: bool = False, torn: bool = False) -> None:
        self.pieces, self.hard, self.torn = pieces, hard, torn
        self.has_cut = False
        self._passage: Passage | None = None

    def __call__(self, passage: Passage, piece: Piece) -> bytes:
        """A bend."""
        self._passage = self._passage or passage
        if passage is not self._passage or len(passage.pieces) < self.pieces:
            return piece.data
        self.has_cut = True
        rest = piece.data[: len(piece.data) // 2] if self.torn else piece.data
        raise Cut(rest, hard=self.hard)


class Wire:
    """A port that goes to another one. `close` it, or use it in ``with``.

    `arm` sets the bend of connections that begin from then on. A target of None leads nowhere: who
    comes is hung up on.
    """

    def __init__(
        self,
        target: int | None,
        *,
        target_host: str = LOOPBACK,
        host: str = LOOPBACK,
        port: int = 0,
    ) -> None:
        self.target = target
        self.passages: list[Passage] = []
        self._target_host = target_host
        self._bend: Bend = straight
        self._changed = threading.Condition()
        self._is_closed = False
        self._listening = socket.create_server((host, port))
        self.port: int = self._listening.getsockname()[1]
        self._threads: list[threading.Thread] = []
        self._start(self._accept)

    def arm(self, bend: Bend = straight) -> int:
        """Bend what begins from now on; how many connections there were before."""
        with self._changed:
            self._bend = bend
            return len(self.passages)

    def passage(self, number: int) -> Passage:
        """The connection of that number, from 0, as soon as it has begun."""
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.passages) > number, TIMEOUT_S), (
                f"nobody came over the wire for connection {number}"
            )
            return self.passages[number]

    @property
    def last(self) -> Passage:
        """The newest connection."""
        return self.passages[-1]

    def cut(self, *, hard: bool = False) -> int:
        """End all that stand; how many those were."""
        standing = [one for one in self.passages if not one.ended.is_set()]
        for one in standing:
            one.cut(hard=hard)
        return len(standing)

    def close(self) -> None:
        """End everything."""
        self._is_closed = True
        with suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self.cut()
        for thread in self._threads:
            thread.join(TIMEOUT_S)
        self._listening.close()
        for passage in self.passages:
            for one in passage.sockets:
                one.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- inside -----------------------------------------------------------------------------------

    def _start(self, work: Any, *arguments: Any) -> None:
        thread = threading.Thread(target=work, args=arguments)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        with suppress(OSError):
            while not self._is_closed:
                ours, _ = self._listening.accept()
                theirs = self._dialled()
                if theirs is None:
                    ours.close()
                    continue
                for one in (ours, theirs):
                    one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                with self._changed:
                    passage = Passage(len(self.passages), self._bend, sockets=(ours, theirs))
                    self.passages.append(passage)
                    self._changed.notify_all()
                self._start(self._carry, passage, ours, theirs, True)
                self._start(self._carry, passage, theirs, ours, False)

    def _dialled(self) -> socket.socket | None:
        if self.target is None:
            return None
        try:
            return socket.create_connection((self._target_host, self.target), TIMEOUT_S)
        except OSError:
            return None

    def _carry(
        self, passage: Passage, source: socket.socket, target: socket.socket, inward: bool
    ) -> None:
        try:
            self._carry_on(passage, source, target, inward)
        finally:
            passage.ended.set()
            with passage.lock:
                passage.carriers -= 1
                is_over = not passage.carriers
            if is_over:  # a test may break thousands
                source.close()
                target.close()

    @staticmethod
    def _carry_on(
        passage: Passage, source: socket.socket, target: socket.socket, inward: bool
    ) -> None:
        with suppress(OSError):
            source.settimeout(None)
            place = 0
            while data := source.recv(_PIECE_BYTES):
                piece = Piece(inward, place, data)
                place += len(data)
                try:
                    with passage.lock:
                        passage.pieces.append(piece)
                        arriving = passage.bend(passage, piece)
                except Cut as cut:
                    target.sendall(cut.rest)
                    passage.cut(hard=cut.hard)
                    return
                target.sendall(arriving)
        with suppress(OSError):
            target.shutdown(socket.SHUT_WR)


class Impostor:
    """Whoever comes to its port is served by a function of the test. Use it in ``with``."""

    def __init__(self, serve: Callable[[socket.socket], None]) -> None:
        self.visits = 0
        self._serve = serve
        self._came = threading.Condition()
        self._listening = socket.create_server((LOOPBACK, 0))
        self.port: int = self._listening.getsockname()[1]
        self._thread = threading.Thread(target=self._accept)
        self._thread.start()

    def visited(self, times: int) -> None:
        """Wait until so many visits are over."""
        with self._came:
            assert self._came.wait_for(lambda: self.visits >= times, TIMEOUT_S), "nobody comes"

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                visitor, _ = self._listening.accept()
                visitor.settimeout(TIMEOUT_S)
                with visitor, suppress(OSError):
                    self._serve(visitor)
                with self._came:
                    self.visits += 1
                    self._came.notify_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._thread.join(TIMEOUT_S)
        self._listening.close()
