"""Channels: one websocket over TLS each, as texts that go in and come out in order.

Everything that a hostile other side could do with frames, pings, fragments, silence, or a pipe that
it does not empty, is bounded here. This is the only home of the `websockets` library, of which the
part without I/O is used: it parses and builds frames, and everything about time, limits and
back-pressure is ours. Nothing of it is logged: a stranger could fill the log with its refusals.
"""

from __future__ import annotations  # nested functions would evaluate theirs each time

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from http import HTTPStatus
from typing import Any, Final, NamedTuple, cast

from websockets.client import ClientProtocol
from websockets.exceptions import PayloadTooBig
from websockets.frames import CloseCode, Frame, Opcode
from websockets.http11 import Request, Response
from websockets.protocol import CLOSED, CLOSING, CONNECTING, OPEN, Protocol
from websockets.server import ServerProtocol
from websockets.uri import WebSocketURI

from mbx.core import limits
from mbx.core.ids import is_id
from mbx.daemon import certificates
from mbx.daemon.faces.networks import Guest
from mbx.daemon.linkstate import RoundTrip

_PIECE_BYTES: Final = 4_096
"""So much of a stranger's is parsed at a time before limits are looked at: 682 frames at most."""
_PEERS_PIECE_BYTES: Final = 64 * 1024
"""Likewise of a peer's."""
_WRITE_HIGH_BYTES: Final = 256 * 1024
_WINDOW_MS: Final = 1_000
_TEXT_OVERHEAD_BYTES: Final = 128
"""What a text costs beside its own bytes, so that a heap of empty ones counts too."""

_DEAF: Final = logging.Logger("mbx.websockets")  # noqa: LOG001  (outside of the tree of loggers)
"""Where the library writes, and nobody reads."""
_DEAF.disabled = True

Clock = Callable[[], int]
"""Monotonic ms."""


_RUN: Final = "Mbx-Run"
"""The header of an upgrade, from either side, by which a host names the start of its daemon."""


class ChannelEnded(Exception):
    """A channel is over.

    `why`: `closed` in good order; `lost`, the transport went; `silent`, no sign of life; `slow`, no
    first text in time; `flood`, `too large`, `malformed`, limits that the other side broke;
    `refused`, by our answer to its upgrade.
    """

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why = why


class Terms(NamedTuple):
    """How long is waited for what, in seconds."""

    handshake_s: float = limits.HANDSHAKE_MS / 1000
    first_frame_s: float = limits.HELLO_DEADLINE_MS / 1000
    ping_s: float = limits.PING_MS / 1000
    close_s: float = limits.CLOSE_MS / 1000
    probe_s: float = limits.PROBE_MS / 1000


TERMS: Final = Terms()
"""What holds outside of tests."""


class Asked(NamedTuple):
    """What a caller asks for in its upgrade."""

    path: str
    has_origin: bool


class Channel(asyncio.Protocol):
    """One connection. `asks`: we have dialled it; otherwise we were called.

    `guest` is its place in the crowd, `certificate` the DER that the other side has shown with its
    key (None: none), known as soon as TLS is up; `peer` the host key id that `open` was told. `run`
    is the start of its daemon that the other side has named with the upgrade (None: none).
    """

    def __init__(
        self, address: str, now_ms: Clock, terms: Terms = TERMS, *, asks: bool = False
    ) -> None:
        self.address: Final = address
        self.guest: Guest | None = None
        self.certificate: bytes | None = None
        self.peer: str | None = None
        self.run: str | None = None
        self.lost_by: Exception | None = None
        """What the transport said when it went, if it said anything."""
        self._now_ms = now_ms
        self._terms = terms
        self._asks = asks
        self._loop = asyncio.get_running_loop()
        self._is_flush_due = False
        self._protocol: Protocol = _client("/") if asks else _server(0)
        self._transport: asyncio.Transport | None = None
        self._head: asyncio.Future[Request | Response | None] = self._loop.create_future()
        self._gone: asyncio.Future[None] = self._loop.create_future()
        self._why: str | None = None
        self._is_open = False
        self._is_stranger = True
        self._has_spoken = False
        self._head_bytes = 0
        self._window = (0, 0)
        self._missed = 0
        self._asked_ms: int | None = None
        self._questions = 0
        self._unanswered: dict[bytes, Callable[[], None]] = {}
        self.round_trip: RoundTrip | None = None
        """The last question for a sign of life that was answered."""
        self._fragments: list[bytes] = []
        self._fragments_bytes = 0
        self._texts: deque[tuple[str, int]] = deque()
        self._waiting_bytes = 0
        self._waiter: asyncio.Future[None] | None = None
        self._drained: asyncio.Future[None] | None = None
        self._pauses: set[str] = set()
        self._timers: dict[str, asyncio.TimerHandle] = {}

    # -- what its owner does ----------------------------------------------------------------------

    @property
    def why(self) -> str | None:
        """Why it is over (see `ChannelEnded`); None: it is not."""
        return self._why

    @property
    def is_up(self) -> bool:
        """Whether TLS is."""
        return self._transport is not None

    @property
    def own_name(self) -> tuple[Any, ...] | None:
        """Our end of the connection, as `getsockname` told when it came about; None: not up."""
        if self._transport is None:
            return None
        name: tuple[Any, ...] | None = self._transport.get_extra_info("sockname")
        return name

    @property
    def is_open(self) -> bool:
        """Whether texts may be sent."""
        return self._is_open and self._why is None

    async def receive(self) -> str:
        """The next text, for one taker. Raises ChannelEnded once all that arrived was taken."""
        while not self._texts:
            if self._why is not None:
                raise ChannelEnded(self._why)
            self._waiter = self._loop.create_future()
            await self._waiter
        text, size_bytes = self._texts.popleft()
        self._waiting_bytes -= size_bytes
        if self._waiting_bytes <= limits.CHANNEL_WAITING_MAX_BYTES // 2:
            self._resume("full")
        return text

    async def __aiter__(self) -> AsyncIterator[str]:
        """Texts until the end."""
        with suppress(ChannelEnded):
            while True:
                yield await self.receive()

    def send(self, text: str) -> None:
        """Write a text; `drain` waits where the other side is slow. Raises ChannelEnded.

        What is sent in one turn of the loop leaves together, and so arrives together.
        """
        self._check_open()
        self._protocol.send_text(text.encode())
        if not self._is_flush_due:
            self._is_flush_due = True
            self._loop.call_soon(self._flush)

    async def drain(self) -> None:
        """Wait until the other side has taken most of what was written. Raises ChannelEnded."""
        self._flush()
        while "unread" in self._pauses and self._why is None:
            self._drained = self._drained or self._loop.create_future()
            await asyncio.shield(self._drained)
        self._check_open()

    def proved(self) -> bool:
        """A pairing has been proved: the other side is no stranger. False: there is no room."""
        self._is_stranger = False
        return self.guest is None or self.guest.identified()

    def measure(self) -> None:
        """Ask for a sign of life, to see in `round_trip` how long the answer takes."""
        if self.is_open:
            self._ask_for_life()
            self._flush()

    def question(self, answered: Callable[[], None]) -> None:
        """Ask something that has one answer; `answered` is called if that comes, once.

        It is heard of also while the channel closes behind it, and proves that the other side lived
        now. Where the other side has closed the channel before it was asked, its answer is lost.
        """
        if self.is_open:
            self._questions += 1
            question = self._questions.to_bytes(8)
            self._unanswered[question] = answered
            self._protocol.send_ping(question)
            self._flush()

    def probe(self) -> None:
        """Ask for a sign of life now; whoever gives none within a few seconds is dead."""
        if self.is_open:
            self._missed = limits.PINGS_MISSED_MAX
            self._ask_for_life()
            self._flush()
            self._set_timer("ping", self._terms.probe_s, self._beat)

    async def close(self, code: int = CloseCode.NORMAL_CLOSURE) -> None:
        """Send what is written, say goodbye, and wait a moment for the other's."""
        if self.is_open:
            self._protocol.send_close(code)
            self._end("closed")
            self._flush()
            self._abort_later()
        await self.gone()

    def seat(self, guest: Guest) -> None:
        """Its place in the crowd, which it leaves when the transport goes."""
        self.guest = guest
        if self._gone.done():
            guest.leave()

    def abort(self) -> None:
        """End it at once."""
        self._cut("closed")

    async def gone(self) -> None:
        """Wait until the transport is."""
        if self._transport is not None:
            await asyncio.shield(self._gone)

    # -- the upgrade ------------------------------------------------------------------------------

    async def asked(self) -> Asked:
        """What the caller wants. Raises ChannelEnded."""
        request = await self._other_half()
        assert isinstance(request, Request)
        return Asked(request.path, "Origin" in request.headers)

    def answer(self, status: HTTPStatus, run: str = "") -> bool:
        """Let the caller in (101), or refuse it with another status; whether it is in.

        `run`: the start of our daemon, named to who is let in; empty: none.
        """
        request = self._head.result()
        protocol = self._protocol
        assert isinstance(request, Request)
        assert isinstance(protocol, ServerProtocol)
        let_in = status is HTTPStatus.SWITCHING_PROTOCOLS
        response = protocol.accept(request) if let_in else protocol.reject(status, "")
        if let_in and run:
            response.headers[_RUN] = run
        protocol.send_response(response)
        if protocol.state is not OPEN:
            self._end("refused")
            self._abort_later()
        self._flush()
        return protocol.state is OPEN

    async def ask(self, path: str, run: str = "") -> int:
        """Ask for this path; the status of the answer, 101 if we are in. Raises ChannelEnded.

        `run`: as for `answer`.
        """
        self._protocol = protocol = _client(path)
        request = protocol.connect()
        if run:
            request.headers[_RUN] = run
        protocol.send_request(request)
        self._flush()
        response = await self._other_half()
        assert isinstance(response, Response)
        is_in = response.status_code == HTTPStatus.SWITCHING_PROTOCOLS
        if is_in and protocol.handshake_exc is not None:
            raise ChannelEnded("malformed")
        return response.status_code

    def open(self, peer: str | None) -> None:
        """The upgrade is done: the clocks run. `peer`: who the certificate says it is.

        The other side may have spoken, and even gone, by now.
        """
        self.peer = peer
        self._is_stranger = peer is None
        self._is_open = True
        if self._why is not None:
            return
        if not self._has_spoken:
            self._set_timer("first text", self._terms.first_frame_s, self._too_slow)
        self._beat()

    # -- what the loop calls ----------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """TLS is up; nothing is known yet but the certificate."""
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is of no class of asyncio
        self._transport.set_write_buffer_limits(_WRITE_HIGH_BYTES)
        self.certificate = certificates.shown(transport.get_extra_info("ssl_object"))
        if not self._asks:
            paired = self.certificate is not None
            self._protocol = _server(
                limits.FRAME_MAX_BYTES if paired else limits.PAIRING_FRAME_MAX_BYTES
            )

    def data_received(self, data: bytes) -> None:
        """Piece by piece, so that no chunk is parsed far beyond a limit."""
        self._missed = 0
        step = _PIECE_BYTES if self._is_stranger else _PEERS_PIECE_BYTES
        for start in range(0, len(data), step):
            if self._why not in (None, "closed"):
                return
            self._parse(data[start : start + step])

    def eof_received(self) -> None:
        """The other side says nothing more; TLS is closed both ways by that."""
        self._end("lost")

    def pause_writing(self) -> None:
        """The other side takes nothing: hear nothing from it either."""
        self._pause("unread")

    def resume_writing(self) -> None:
        """It does again."""
        self._resume("unread")
        self._release_drain()

    def connection_lost(self, exc: Exception | None) -> None:
        """The transport is gone."""
        self.lost_by = exc
        self._end("lost")
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        if self.guest is not None:
            self.guest.leave()
        if not self._gone.done():
            self._gone.set_result(None)

    # -- what arrives -----------------------------------------------------------------------------

    def _parse(self, piece: bytes) -> None:
        if self._protocol.state is CONNECTING:
            self._head_bytes += len(piece)
            if self._head_bytes > limits.REQUEST_HEAD_MAX_BYTES:
                self._cut("too large")
                return
        self._protocol.receive_data(piece)
        for event in self._protocol.events_received():
            if isinstance(event, Frame):
                self._frame(event)
            elif not self._head.done():
                self._head.set_result(event)
        # Before the flush, which may close the transport, and that would count as a loss.
        if self._protocol.state in (CLOSING, CLOSED) or self._protocol.handshake_exc is not None:
            self._other_side_ended()
        self._flush()

    def _frame(self, frame: Frame) -> None:
        if frame.opcode is Opcode.PONG:
            answered = self._unanswered.pop(bytes(frame.data), None)
            if answered is not None:
                answered()
        if self._why is not None:
            return
        if not self._asks and not self._is_open:
            self._cut("malformed")  # frames before our answer to the upgrade
        elif self._is_stranger and self._is_flooding():
            self._breach("flood", CloseCode.POLICY_VIOLATION)
        elif frame.opcode is Opcode.BINARY:
            self._breach("malformed", CloseCode.UNSUPPORTED_DATA)
        elif frame.opcode in (Opcode.TEXT, Opcode.CONT):
            self._fragment(frame)
        elif frame.opcode is Opcode.PONG and not frame.data and self._asked_ms is not None:
            now_ms = self._now_ms()
            self.round_trip = RoundTrip(now_ms, now_ms - self._asked_ms)
            self._asked_ms = None

    def _is_flooding(self) -> bool:
        """Whether a stranger has sent more frames in a second than it may."""
        start_ms, count = self._window
        now_ms = self._now_ms()
        if now_ms - start_ms >= _WINDOW_MS:
            start_ms, count = now_ms, 0
        self._window = (start_ms, count + 1)
        return count >= limits.STRANGER_FRAMES_MAX

    def _fragment(self, frame: Frame) -> None:
        self._fragments.append(bytes(frame.data))
        self._fragments_bytes += len(frame.data)
        most_bytes = limits.FRAME_MAX_BYTES if self._has_spoken else limits.HELLO_MAX_BYTES
        if self._fragments_bytes > most_bytes or len(self._fragments) > limits.FRAGMENTS_MAX:
            self._breach("too large", CloseCode.MESSAGE_TOO_BIG)
        elif frame.fin:
            whole = b"".join(self._fragments)
            self._fragments, self._fragments_bytes = [], 0
            try:
                self._text(whole.decode(), len(whole) + _TEXT_OVERHEAD_BYTES)
            except UnicodeDecodeError:
                self._breach("malformed", CloseCode.INVALID_DATA)

    def _text(self, text: str, size_bytes: int) -> None:
        if not self._has_spoken:
            self._has_spoken = True
            self._cancel_timer("first text")
        self._texts.append((text, size_bytes))
        self._waiting_bytes += size_bytes
        if self._waiting_bytes > limits.CHANNEL_WAITING_MAX_BYTES:
            self._pause("full")
        self._wake()

    async def _other_half(self) -> Request | Response:
        head = await asyncio.shield(self._head)
        if head is None or (self._why is not None and not self._asks):
            raise ChannelEnded(self._why or "lost")
        named = head.headers.get_all(_RUN)
        self.run = named[0] if len(named) == 1 and is_id(named[0]) else None
        return head

    # -- ends -------------------------------------------------------------------------------------

    def _ask_for_life(self) -> None:
        self._protocol.send_ping(b"")
        if self._asked_ms is None:  # else the answer to the earlier one comes first
            self._asked_ms = self._now_ms()

    def _beat(self) -> None:
        """Ask for a sign of life; whoever gave none after two questions is dead.

        Not while it is us who do not listen.
        """
        if "full" not in self._pauses:
            if self._missed >= limits.PINGS_MISSED_MAX:
                self._cut("silent")
                return
            self._missed += 1
        if self.is_open:
            self._ask_for_life()
            self._flush()
        self._set_timer("ping", self._terms.ping_s, self._beat)

    def _too_slow(self) -> None:
        self._breach("slow", CloseCode.POLICY_VIOLATION)

    def _breach(self, why: str, code: int) -> None:
        """The other side broke a limit: say so, and hear nothing more."""
        self._protocol.fail(code)
        self._end(why)
        self._flush()
        self._abort_later()

    def _cut(self, why: str) -> None:
        """The other side deserves no goodbye, or would not hear it."""
        self._end(why)
        if self._transport is not None:
            self._transport.abort()

    def _other_side_ended(self) -> None:
        """A close frame came, or what is no websocket."""
        broke = self._protocol.parser_exc or self._protocol.handshake_exc
        too_large = isinstance(broke, PayloadTooBig)
        self._end("closed" if broke is None else "too large" if too_large else "malformed")
        self._abort_later()

    def _end(self, why: str) -> None:
        if self._why is None:
            self._why = why
        if not self._head.done():
            self._head.set_result(None)
        self._wake()
        self._release_drain()

    def _abort_later(self) -> None:
        if self._transport is not None and not self._gone.done():
            self._set_timer("close", self._terms.close_s, self._transport.abort)

    # -- small parts ------------------------------------------------------------------------------

    def _flush(self) -> None:
        """Write what the protocol wants written; its empty piece is the end."""
        self._is_flush_due = False
        pieces = self._protocol.data_to_send()
        if self._transport is None or self._transport.is_closing() or not pieces:
            return
        written = b"".join(pieces)
        if written:
            self._transport.write(written)
        if not pieces[-1]:
            self._transport.close()

    def _pause(self, reason: str) -> None:
        if self._transport is not None and not self._pauses:
            self._transport.pause_reading()
        self._pauses.add(reason)

    def _resume(self, reason: str) -> None:
        if reason in self._pauses:
            self._pauses.discard(reason)
            if self._transport is not None and not self._pauses:
                self._transport.resume_reading()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _release_drain(self) -> None:
        if self._drained is not None and not self._drained.done():
            self._drained.set_result(None)
        self._drained = None

    def _check_open(self) -> None:
        if not self.is_open:
            raise ChannelEnded(self._why or "lost")

    def _set_timer(self, name: str, delay_s: float, action: Callable[[], object]) -> None:
        self._cancel_timer(name)
        self._timers[name] = self._loop.call_later(delay_s, action)

    def _cancel_timer(self, name: str) -> None:
        timer = self._timers.pop(name, None)
        if timer is not None:
            timer.cancel()


def _server(max_bytes: int) -> ServerProtocol:
    return ServerProtocol(max_size=max_bytes, logger=_DEAF)


def _client(path: str) -> ClientProtocol:
    uri = WebSocketURI(secure=True, host="mbx", port=443, path=path, query="")
    return ClientProtocol(uri, max_size=limits.FRAME_MAX_BYTES, logger=_DEAF)
