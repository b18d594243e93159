"""The two halves of a standing link: what it offers of our stream, what it takes of the peer's.

Both ends count alike: a place is under way from its `put` until its `ok`, and a frame's bytes until
its last place is. So the window that the sender keeps is the one that the receiver enforces.
"""

from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

from mbx.core.commands import Acknowledged, Command, Commit, Fetch, Refused, Send, Unfit
from mbx.core.frames import (
    PUT_OVERHEAD_BYTES,
    No,
    Ok,
    Place,
    Put,
    encode,
    put_text,
    record_text,
    size_bytes,
)
from mbx.core.limits import (
    ANSWER_DEADLINE_MS,
    FRAME_MAX_BYTES,
    PUT_RECORDS_MAX,
    REFUSAL_RETRY_MAX_MS,
    REFUSAL_RETRY_MIN_MS,
    SLOWEST_LINE_BYTES_PER_S,
    WINDOW_MAX_BYTES,
    WINDOW_RECORDS_MAX,
)
from mbx.core.record import Record


class LinkFault(Exception):
    """The peer did what no honest peer does; `reason` says what, without quoting it."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class _Frame(NamedTuple):
    """A frame under way: its last place and its size."""

    last: int
    size_bytes: int


class _Frames:
    """Frames under way, in order, with their sizes added up."""

    def __init__(self) -> None:
        self._frames: deque[_Frame] = deque()
        self.size_bytes = 0

    def __bool__(self) -> bool:
        return bool(self._frames)

    def add(self, last: int, frame_bytes: int) -> None:
        self._frames.append(_Frame(last, frame_bytes))
        self.size_bytes += frame_bytes

    def settle(self, upto: int) -> None:
        """Those whose last place is settled are not under way any more."""
        while self._frames and self._frames[0].last <= upto:
            self.size_bytes -= self._frames.popleft().size_bytes

    def clear(self) -> None:
        self._frames.clear()
        self.size_bytes = 0


class _Piece(NamedTuple):
    """A fetched place as it is written: the text of its record, or of the whole withdrawing put."""

    seq: int
    text: str
    size_bytes: int
    is_record: bool


class Outflow:
    """What we offer: never more than the window, in order, again from wherever the peer says no.

    It holds the texts of one fetch at most; of what is under way only the sizes.
    """

    def __init__(self, acked: int, last: int, now_ms: int) -> None:
        self.acked = acked
        self.sent = acked
        self._last = last
        self._ready: deque[_Piece] = deque()
        self._under_way = _Frames()
        self._fetching: int | None = None
        self._is_more_offered = False
        self._resume_ms: int | None = None
        self._progress_ms = now_ms

    @property
    def under_way(self) -> tuple[int, int]:
        """Places that are offered and not acknowledged, and the bytes of their frames."""
        return self.sent - self.acked, self._under_way.size_bytes

    @property
    def kept_bytes(self) -> int:
        """Texts that wait for room in the window."""
        return sum(piece.size_bytes for piece in self._ready)

    def deadline(self) -> int | None:
        """When `pump` has something to do, or an answer is overdue."""
        if self._resume_ms is not None:
            return self._resume_ms
        if not self._under_way:
            return None
        allowed_ms = self._under_way.size_bytes * 1_000 // SLOWEST_LINE_BYTES_PER_S
        return self._progress_ms + ANSWER_DEADLINE_MS + allowed_ms

    def is_overdue(self, now_ms: int) -> bool:
        """Whether the peer owes an answer for too long: then the link is dead."""
        due_ms = self.deadline()
        return self._resume_ms is None and due_ms is not None and now_ms >= due_ms

    def offer(self, last: int) -> None:
        """The stream goes up to this place now."""
        self._last = max(self._last, last)
        self._is_more_offered = True

    def fetched(self, after_seq: int, places: Sequence[Place]) -> list[Command]:
        """Take in what the outbox gave; an answer to what was asked before a refusal is stale."""
        if after_seq != self._fetching:
            return []
        self._fetching = None
        if not places and not self._is_more_offered:
            self._last = self.sent  # nothing is there: not asked again before the next offer
        for seq, place in enumerate(places, after_seq + 1):
            piece = _piece(seq, place)
            if piece.is_record and piece.size_bytes + PUT_OVERHEAD_BYTES > FRAME_MAX_BYTES:
                self._last = seq - 1
                return [Unfit(seq, piece.size_bytes)]
            self._ready.append(piece)
        return []

    def ok(self, upto: int, now_ms: int) -> list[Command]:
        """The peer committed up to this place. Raises LinkFault if it was never offered."""
        if upto > self.sent:
            raise LinkFault("ok to a place that was not offered")
        if upto <= self.acked:
            return []
        self.acked = upto
        self._progress_ms = now_ms
        self._under_way.settle(upto)
        return [Acknowledged(upto)]

    def no(self, frame: No, now_ms: int) -> list[Command]:
        """The peer cannot take a place now: from there everything is offered again, later.

        Raises LinkFault for any but the first place that is under way.
        """
        if frame.seq != self.acked + 1 or frame.seq > self.sent:
            raise LinkFault("no to a place that was not the next")
        self.sent = self.acked
        self._under_way.clear()
        self._ready.clear()
        self._fetching = None
        retry_ms = min(max(frame.retry_ms, REFUSAL_RETRY_MIN_MS), REFUSAL_RETRY_MAX_MS)
        self._resume_ms = now_ms + retry_ms
        return [Refused(frame.seq, frame.code, retry_ms)]

    def pump(self, now_ms: int) -> list[Command]:
        """Offer what is ready as far as the window goes, and fetch what fits behind it."""
        if self._resume_ms is not None:
            if now_ms < self._resume_ms:
                return []
            self._resume_ms = None
        commands: list[Command] = []
        while self._ready and (text := self._next_frame(now_ms)) is not None:
            commands.append(Send(text))
        places, size = self._room()
        if not self._ready and self._fetching is None and self.sent < self._last and places:
            self._fetching = self.sent
            self._is_more_offered = False
            commands.append(Fetch(self.sent, min(places, PUT_RECORDS_MAX), size))
        return commands

    def _room(self) -> tuple[int, int]:
        """What the window lets through: places (0 when it is full), and bytes."""
        if not self._under_way:
            return WINDOW_RECORDS_MAX, FRAME_MAX_BYTES
        places = WINDOW_RECORDS_MAX - (self.sent - self.acked)
        size = WINDOW_MAX_BYTES - self._under_way.size_bytes
        return (places if size > 0 else 0), min(size, FRAME_MAX_BYTES)

    def _next_frame(self, now_ms: int) -> str | None:
        """The next `put`, counted as under way; None while the window has no room for it."""
        places, room = self._room()
        texts: list[str] = []
        size = PUT_OVERHEAD_BYTES
        first = self._ready[0]
        while self._ready and len(texts) < min(places, PUT_RECORDS_MAX):
            piece = self._ready[0]
            size += piece.size_bytes + 1
            is_alone = not texts and not self._under_way
            if size > room + 1 and not is_alone:
                break
            if texts and not piece.is_record:
                break
            texts.append(self._ready.popleft().text)
            if not piece.is_record:
                break
        if not texts:
            return None
        text = put_text(first.seq, texts) if first.is_record else texts[0]
        if not self._under_way:
            self._progress_ms = now_ms
        self.sent = first.seq + len(texts) - 1
        self._under_way.add(self.sent, size_bytes(text))
        return text


def _piece(seq: int, place: Place) -> _Piece:
    is_record = isinstance(place, Record)
    text = record_text(place) if isinstance(place, Record) else encode(Put(seq, (place,)))
    return _Piece(seq, text, size_bytes(text), is_record)


class Inflow:
    """What we take: each place once and in order; the answer waits for the commit.

    It holds no texts: those go to the daemon with `Commit`, and the window bounds them there.
    """

    def __init__(self, stream: str, committed: int) -> None:
        self.done = committed
        self._stream = stream
        self._received = committed
        self._under_way = _Frames()
        self._is_skipping = False

    @property
    def under_way(self) -> tuple[int, int]:
        """Places that the daemon was asked to commit and has not, and the bytes of their frames."""
        return self._received - self.done, self._under_way.size_bytes

    def put(self, frame: Put, frame_bytes: int) -> list[Command]:
        """Places of the peer's. Raises LinkFault for a gap, and for more than the window."""
        last = frame.seq + len(frame.places) - 1
        if frame.seq > self._received + 1:
            if self._is_skipping:
                return []  # it was under way when we said no
            raise LinkFault("a gap between places")
        if last <= self._received:
            return [self._ok()] if last <= self.done else []
        if last - self.done > WINDOW_RECORDS_MAX:
            raise LinkFault("more places than the window")
        if self._under_way and self._under_way.size_bytes + frame_bytes > WINDOW_MAX_BYTES:
            raise LinkFault("more bytes than the window")
        first = self._received + 1
        self._received = last
        self._is_skipping = False
        self._under_way.add(last, frame_bytes)
        return [Commit(self._stream, first, frame.places[first - frame.seq :])]

    def committed(self, upto: int) -> list[Command]:
        """The daemon committed up to this place. Raises ValueError if it was never asked to."""
        if upto > self._received:
            raise ValueError("committed what was not received")
        if upto <= self.done:
            return []
        self.done = upto
        self._under_way.settle(upto)
        return [self._ok()]

    def defer(self, seq: int, code: str, retry_ms: int) -> list[Command]:
        """The daemon cannot commit `seq`, the first of those it has: they are to be offered again.

        A place that was dropped already is no news. Raises ValueError for one amid the others.
        """
        if seq > self._received:
            return []
        if seq != self.done + 1:
            raise ValueError("deferred what is not the first place to be committed")
        self._received = self.done
        self._under_way.clear()
        self._is_skipping = True
        return [Send(encode(No(seq, code, retry_ms)))]

    def _ok(self) -> Send:
        return Send(encode(Ok(self.done)))
