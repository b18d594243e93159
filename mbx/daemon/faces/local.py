"""The local face: JSON-RPC lines over a unix socket, for processes of the same user.

Bounded everywhere: bytes a line, requests in flight a connection, connections, bytes waiting in
all. After a bad line the connection stays in step: one clear answer, nothing of it read as the next
request.
"""

from __future__ import annotations  # nested functions would evaluate theirs each time

import asyncio
import socket
from collections.abc import Callable, Mapping
from typing import Any, Final, cast

from mbx.core.canonical import CanonicalError
from mbx.core.errors import MbxError
from mbx.core.limits import (
    ANSWER_MAX_BYTES,
    CONNECTIONS_MAX,
    REQUEST_LINE_MAX_BYTES,
    REQUESTS_IN_FLIGHT_MAX,
    SESSION_ID_MAX_CHARS,
    WAITING_MAX_BYTES,
)
from mbx.daemon import codec, processes
from mbx.daemon.context import Answer
from mbx.daemon.faces.party import Office, Party, begun_in, changes, ticket_in
from mbx.daemon.faces.pipes import Pipe, read_hello
from mbx.daemon.gate import Caller
from mbx.daemon.journal import whence
from mbx.daemon.offers import Offer
from mbx.store.database import Committed, Outcome, Refused

HELLO_DEADLINE_S: Final = 10.0
"""A connection that has not said hello by then is closed."""

WATCH: Final = "mail.watch"
"""The method after which a connection is pushed to."""

HOLD: Final = "pair.hold"
"""The method after which the end of a connection is that of a pairing."""

OFFER: Final = "wake.offer"
"""The method after which a connection is asked to wake its session."""

SETTLE: Final = "wake.settle"
"""The method by which it answers."""

_PARSE_ERROR: Final = -32700
_INVALID_REQUEST: Final = -32600
_REFUSED: Final = -32000
_RESERVED_CONNECTIONS: Final = 8
"""Places beyond the limit, for `daemon.status` and `daemon.stop` alone."""

_UNSENT_MAX_BYTES: Final = 24 * ANSWER_MAX_BYTES
_WEIGHTS: Final = {"mail.read": 16, "mail.sent": 16, "owner.read": 16, "pair.state": 0}
"""What counts as several requests in flight: four answers of 1 MiB may wait for their reader.

One that waits for news counts as none: `mbx.daemon.pairingside` bounds them."""


class LocalFace:
    """All local connections and what they may use together."""

    def __init__(self, office: Office) -> None:
        self.office = office
        self.connections: set[LocalConnection] = set()
        self.waiting_bytes = 0
        self.in_flight = 0

    def connection(self) -> LocalConnection:
        """A protocol object for a new connection."""
        return LocalConnection(self)

    def close(self) -> None:
        """Send what is written and close every connection."""
        for connection in list(self.connections):
            connection.close()

    def waited(self, size_bytes: int) -> None:
        """Account for bytes that arrived (negative: that were answered); at the limit all wait."""
        was_full = self.waiting_bytes > WAITING_MAX_BYTES
        self.waiting_bytes += size_bytes
        if was_full and self.waiting_bytes <= WAITING_MAX_BYTES:
            for connection in list(self.connections):
                connection.resume()

    def relieve(self) -> None:
        """At the limit, with no work under way that could end it: give up the longest lines.

        Only unfinished ones, so that whoever hoards them holds nobody up.
        """
        while self.waiting_bytes > WAITING_MAX_BYTES and not self.in_flight:
            longest = max(self.connections, key=LocalConnection.unfinished_bytes)
            if not longest.unfinished_bytes():
                return
            longest.give_up_line()


class LocalConnection(asyncio.Protocol):
    """One connection: splits lines, says hello, hands calls on, writes answers."""

    def __init__(self, face: LocalFace) -> None:
        self._face = face
        self._office = face.office
        self._transport: asyncio.Transport | None = None
        self._buffer = bytearray()
        self._searched = 0
        self._discarding = False
        self._in_flight = 0
        self._paused = False
        self._blocked = False
        self._ended = False
        self._party = Party(self._office, self._went_on)
        self._pipe: Pipe | None = None
        self._deadline: asyncio.TimerHandle | None = None
        self._held = set[str]()
        """Pairings that this connection holds."""

    # -- transport ------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A process connected: only our own user's may stay."""
        # uvloop's transports are none of asyncio's classes, but have their methods.
        self._transport = transport = cast(asyncio.Transport, transport)
        sock: socket.socket = transport.get_extra_info("socket")
        self._party.connected(sock)
        with processes.peer_of(sock) as peer:
            if peer.uid != self._office.user_id:
                self._office.log("refused another user", uid=peer.uid)
                transport.abort()
                return
        if len(self._face.connections) >= CONNECTIONS_MAX:
            self._office.log("refused a connection: too many")
            if len(self._face.connections) >= CONNECTIONS_MAX + _RESERVED_CONNECTIONS:
                self._answer_error(None, _REFUSED, _too_many_connections())
                transport.close()
                return
            self._party.serve_only_across_versions(_too_many_connections())
        self._face.connections.add(self)
        loop = asyncio.get_running_loop()
        self._deadline = loop.call_later(HELLO_DEADLINE_S, transport.close)

    def connection_lost(self, error: Exception | None) -> None:
        """The other end is gone; its units go on."""
        self._leave()
        self._face.connections.discard(self)
        self._office.watchers.remove(self)
        self._office.offers.remove(self)
        self._face.waited(-len(self._buffer))
        self._buffer.clear()
        self._transport = None
        self._party.lost()
        if self._pipe is not None:
            self._pipe.end()
        if self._deadline:
            self._deadline.cancel()

    def _leave(self) -> None:
        """What this connection has held ends with it."""
        while self._held:
            self._office.left(self._held.pop())

    def pause_writing(self) -> None:
        """The caller does not read its answers: stop reading its requests."""
        self._blocked = True
        self._pace()

    def resume_writing(self) -> None:
        """The caller reads again."""
        self._blocked = False
        self.resume()

    def eof_received(self) -> bool:
        """The caller will say no more; what it asked is still answered, then we close too."""
        self._ended = True
        self._leave()
        return self._in_flight > 0 or self._party.is_arriving

    def data_received(self, data: bytes) -> None:
        """Bytes arrived."""
        self._face.waited(len(data))
        self._buffer += data
        self._take_lines()
        self._face.relieve()

    # -- pace -----------------------------------------------------------------------------------

    def resume(self) -> None:
        """Go on reading if nothing speaks against it any more."""
        if self._paused and not self._must_wait():
            self._paused = False
            if self._transport:
                self._transport.resume_reading()
            self._take_lines()

    def close(self) -> None:
        """Close after what is written has left."""
        if self._transport:
            self._transport.close()

    def _must_wait(self) -> bool:
        return (
            self._blocked
            or self._party.is_arriving
            or self._in_flight >= REQUESTS_IN_FLIGHT_MAX
            or (self._face.waiting_bytes > WAITING_MAX_BYTES and self._face.in_flight > 0)
        )

    def _pace(self) -> None:
        if self._must_wait() and not self._paused and self._transport:
            self._paused = True
            self._transport.pause_reading()

    # -- lines ----------------------------------------------------------------------------------

    def _take_lines(self) -> None:
        while not self._must_wait():
            end = self._buffer.find(b"\n", self._searched)
            if end < 0:
                self._searched = len(self._buffer)
                self._check_length()
                return
            line = bytes(self._buffer[:end])
            del self._buffer[: end + 1]
            self._searched = 0
            if self._discarding:
                self._discarding = False
                self._face.waited(-len(line) - 1)
            else:
                self._receive(line)
        self._pace()

    def _check_length(self) -> None:
        """An endless line is answered once, then dropped as it comes, up to its end."""
        if len(self._buffer) <= REQUEST_LINE_MAX_BYTES:
            return
        self._drop_line(_line_too_long())

    def unfinished_bytes(self) -> int:
        """Bytes here of a line whose end has not come; 0 while whole lines may wait among them."""
        return 0 if self._must_wait() else len(self._buffer)

    def give_up_line(self) -> None:
        """Answer the unfinished line, which takes the room of others, and drop it as it comes."""
        self._drop_line(_no_room())

    def _drop_line(self, refusal: MbxError) -> None:
        if not self._discarding:
            self._discarding = True
            self._answer_error(None, _INVALID_REQUEST, refusal)
        size_bytes = len(self._buffer)
        self._buffer.clear()
        self._searched = 0
        self._face.waited(-size_bytes)

    def _receive(self, line: bytes) -> None:
        size_bytes = len(line) + 1
        if self._pipe is not None:
            self._pipe.receive(line)
            return
        request_id: object = None
        if len(line) > REQUEST_LINE_MAX_BYTES:  # its end came together with the byte too many
            self._answer_error(None, _INVALID_REQUEST, _line_too_long())
            self._face.waited(-size_bytes)
            return
        try:
            message = codec.decode(line, REQUEST_LINE_MAX_BYTES)
            if not isinstance(message, dict):
                raise MbxError("usage", "a request is one JSON object on one line")
            request_id = _request_id(message)
            self._call(request_id, message, size_bytes)
        except CanonicalError as error:
            refusal = MbxError("usage", f"the line is no JSON that is accepted here: {error}")
            self._answer_error(None, _PARSE_ERROR, refusal)
        except MbxError as error:
            self._answer_error(request_id, _REFUSED, error)
        else:
            return
        self._face.waited(-size_bytes)

    def _call(self, request_id: object, message: dict[str, Any], size_bytes: int) -> None:
        """Take up one request; raises MbxError when it is refused before it becomes work."""
        method, params = message.get("method"), message.get("params")
        if message.get("jsonrpc") != "2.0" or not isinstance(method, str):
            raise MbxError("usage", 'a request has "jsonrpc": "2.0", an id and a method')
        if method == "hello":
            pipe = read_hello(params.get("pipe")) if isinstance(params, dict) else None
            if self._deadline:
                self._deadline.cancel()
            self._answer(request_id, self._party.hello(params))
            self._face.waited(-size_bytes)
            if pipe is not None:
                self._pipe = Pipe(self, pipe)
                self._office.pipes.opened(self._pipe)
            return
        self._party.check_greeted(method)
        self._party.bind(ticket_in(method, params))
        if self._party.is_arriving:  # a ticket made it a conversation, which first gets what it had
            self._party.when_arrived(
                lambda: self._take_up_late(request_id, method, params, size_bytes)
            )
            return
        self._take_up(request_id, method, params, size_bytes)

    def _take_up_late(
        self, request_id: object, method: str, params: object, size_bytes: int
    ) -> None:
        try:
            self._take_up(request_id, method, params, size_bytes)
        except MbxError as error:
            self._answer_error(request_id, _REFUSED, error)
            self._face.waited(-size_bytes)

    def _take_up(self, request_id: object, method: str, params: object, size_bytes: int) -> None:
        caller = self._party.caller(method)
        work = self._office.accept(caller, method, params)
        if self._buffer:  # others wait behind it: the loop must not be kept
            work = work._replace(brief=False)
        weight, changing = _WEIGHTS.get(method, 1), changes(method)
        self._in_flight += weight
        self._face.in_flight += weight
        self._party.changing += changing

        def done(outcome: Outcome[Answer]) -> None:
            self._party.changing -= changing
            self._done(request_id, size_bytes, weight, outcome)
            if isinstance(outcome, Committed):
                self._go_on(method, caller, outcome.value.result)

        self._office.submit(work, done)

    def _go_on(self, method: str, caller: Caller, result: Mapping[str, Any]) -> None:
        """What a method that was answered means for the connection itself."""
        process = caller.lineage.process
        if method == HOLD:
            self._hold(result["run"])
        elif self._transport is None:
            pass  # nobody is there to be pushed to
        elif method == WATCH:
            self._watch(caller)
        elif method == OFFER and process is not None:
            told = (result["state"], result["mode"], result["waits"])
            conversation = caller.lineage.conversation
            self._office.offers.add(Offer(self, process, conversation, self._push, *told))
        elif method == SETTLE:
            self._office.offers.answered(self, result["wake"], result["outcome"])

    def _hold(self, run: str) -> None:
        """A pairing lasts as long as this connection does, which may have ended meanwhile."""
        self._held.add(run)
        if self._ended or self._transport is None:
            self._leave()

    def _watch(self, caller: Caller) -> None:
        """Push to this connection from now on; what arrived meanwhile is looked for at once."""
        lineage = caller.lineage
        grant = None
        if lineage.process is not None:
            grant = self._office.grant_of(lineage.process, lineage.conversation)
        if grant is not None:
            self._office.watchers.add(self, caller, grant[0], self._push)

    def _push(self, method: str, params: dict[str, Any]) -> None:
        told = {key: value for key, value in params.items() if key != "identity_no"}
        self._write({"jsonrpc": "2.0", "method": method, "params": told})

    def _done(
        self, request_id: object, size_bytes: int, weight: int, outcome: Outcome[Answer]
    ) -> None:
        self._in_flight -= weight
        self._face.in_flight -= weight
        self._face.waited(-size_bytes)
        if isinstance(outcome, Committed):
            self._answer(request_id, outcome.value.result)
        elif isinstance(outcome.error, MbxError):
            self._answer_error(request_id, _REFUSED, outcome.error)
        else:
            self._office.log("a request failed inside", whence=whence(outcome.error))
            self._answer_error(request_id, _REFUSED, _internal())
        self._went_on()
        self._face.relieve()

    # -- what a pipe needs ----------------------------------------------------------------------

    def ask(
        self, method: str, params: Mapping[str, Any], done: Callable[[Outcome[Answer]], None]
    ) -> None:
        """Carry out a call of this connection's caller. Raises MbxError when refused early."""
        self._party.bind(ticket_in(method, dict(params)))
        self._party.introduce(begun_in(method, params))
        self._party.when_arrived(lambda: self._begin(method, params, done))

    def _begin(
        self, method: str, params: Mapping[str, Any], done: Callable[[Outcome[Answer]], None]
    ) -> None:
        changing = changes(method)

        def settle(outcome: Outcome[Answer]) -> None:
            self._party.changing -= changing
            if isinstance(outcome, Committed) or isinstance(outcome.error, MbxError):
                done(outcome)
                return
            self._office.log("a request failed inside", whence=whence(outcome.error))
            done(Refused(_internal()))

        try:
            work = self._office.accept(self._party.caller(method), method, params)
        except MbxError as error:
            done(Refused(error))
            return
        self._party.changing += changing
        self._office.submit(work, settle)

    def hook_answer(self, event: str, known: dict[str, Any]) -> dict[str, Any]:
        """What a hook of this connection's session prints at an event of its client."""
        return self._office.answer_hook(self._party.lineage, event, known)

    def write_line(self, line: bytes) -> None:
        """Write a line, without its end."""
        self._send(line + b"\n")

    def taken(self) -> None:
        """A request is under way."""
        self._in_flight += 1
        self._face.in_flight += 1

    def settled(self) -> None:
        """A request under way was answered, or never will be."""
        self._in_flight -= 1
        self._face.in_flight -= 1
        self._went_on()
        self._face.relieve()

    def forgotten(self, size_bytes: int) -> None:
        """So many bytes that arrived are kept no longer."""
        self._face.waited(-size_bytes)

    def _went_on(self) -> None:
        """Its session has what it had, or a request its answer: go on, or end what has ended."""
        self.resume()
        if self._ended and not self._in_flight:
            self.close()

    # -- answers --------------------------------------------------------------------------------

    def _answer(self, request_id: object, result: object) -> None:
        self._write({"jsonrpc": "2.0", "id": request_id, "result": result})

    def _answer_error(self, request_id: object, number: int, error: MbxError) -> None:
        body = {"code": number, "message": error.message, "data": error.as_object()}
        self._write({"jsonrpc": "2.0", "id": request_id, "error": body})

    def _write(self, answer: object) -> None:
        self._send(codec.encode(answer) + b"\n")

    def _send(self, line: bytes) -> None:
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        transport.write(line)
        if transport.get_write_buffer_size() > _UNSENT_MAX_BYTES:
            self._office.log("closed a connection that does not read its answers")
            transport.abort()


def _request_id(message: dict[str, Any]) -> object:
    request_id = message.get("id")
    if isinstance(request_id, str) and len(request_id) <= SESSION_ID_MAX_CHARS:
        return request_id
    if isinstance(request_id, int) and not isinstance(request_id, bool):
        return request_id
    raise MbxError("usage", "a request needs an id: a whole number or a short string")


def _line_too_long() -> MbxError:
    return MbxError(
        "too-many",
        f"a request line may have {REQUEST_LINE_MAX_BYTES:,} bytes; this one is longer",
        limit_bytes=REQUEST_LINE_MAX_BYTES,
    )


def _no_room() -> MbxError:
    return MbxError(
        "rate-limited",
        f"over {WAITING_MAX_BYTES:,} bytes of unfinished requests wait; this one was the longest",
        "repeat it, written in one go",
    )


def _too_many_connections() -> MbxError:
    return MbxError(
        "rate-limited",
        f"{CONNECTIONS_MAX} connections are open already",
        "close some, then repeat",
    )


def _internal() -> MbxError:
    return MbxError(
        "internal",
        "the daemon failed at this request and changed nothing; its log says where",
        "see daemon.log in the home folder that mbx daemon status names",
    )
