"""`mbx mcp`: the pipe between an agent CLI and the daemon, on standard input and output.

It understands as little as it can: it numbers the client's lines, passes them to the daemon, and
passes back what comes. It knows which requests have no answer yet, so that after the daemon was
killed, stopped or upgraded it connects again and writes them again under their old numbers; the
daemon does nothing twice. It ends when its input ends, its output breaks, or its parent is gone. No
SDK, no asyncio, no click: this runs once for every session of every agent.

Nothing but messages of the protocol ever reaches standard output.
"""

import os
import select
import time
from collections.abc import Mapping
from typing import Final, NamedTuple

from mbx.client import Client, Clock
from mbx.core.errors import MbxError
from mbx.core.limits import REQUEST_LINE_MAX_BYTES
from mbx.descriptors import fill
from mbx.paths import Paths
from mbx.wire import Connection, ConnectionLost, JsonObject, WireError, decode, encode

RETRY_MS: Final = 1_000
"""How often an idle connector looks whether a daemon is there again; it starts none by itself."""

DRAIN_MS: Final = 5_000
"""What is under way when the client's input ends may take so long; as long as a command waits."""

_CHUNK_BYTES: Final = 256 * 1024
_WRITE_BYTES: Final = 4_096
"""A pipe that is ready takes so much without blocking (PIPE_BUF of pipe(7))."""

_UNSENT_MAX_BYTES: Final = 4 * REQUEST_LINE_MAX_BYTES
"""Beyond it nothing more is read from the other side until this one has taken some."""

_PARSE_ERROR: Final = -32700
_LASTING: Final = ("initialize", "notifications/initialized", "subscriptions/listen")
"""What makes a connection of the protocol what it is, in this order."""
_LISTEN: Final = _LASTING[2]
_CANCELLED: Final = "notifications/cancelled"

_LINE_MAX_BYTES: Final = REQUEST_LINE_MAX_BYTES - len("1234567890123456 ")
"""Of a line of the client: its number and a space stand before it when the daemon reads it."""

_REFUSED_MAX_BYTES: Final = 8 * REQUEST_LINE_MAX_BYTES
"""A line that is too long is read up to here, so that its request is refused under its own id: who
asked would else wait for ever. Of what is longer still nothing is kept."""


class _Ended(Exception):
    """The client is gone."""


class _Line(NamedTuple):
    """A line that the client wrote: its number and bytes, what it asks for, and its id as JSON.

    `key` of one that cancels is the id of what it cancels.
    """

    number: int
    text: bytes
    method: str
    key: str

    @property
    def numbered(self) -> bytes:
        """As the daemon reads it."""
        return b"%d %s\n" % (self.number, self.text)


def run(starting: Client, waiting: Client, project: str | None) -> int:
    """Pipe until the client is gone; the exit status.

    `starting` starts the daemon where none runs, `waiting` never does.
    """
    connector = Connector(starting, waiting, project)
    try:
        connector.pipe()
    except _Ended:
        connector.close()
    return 0


class Connector:
    """One pipe, for one client, through as many lives of the daemon as there are."""

    def __init__(self, starting: Client, waiting: Client, project: str | None) -> None:
        self._starting = starting
        self._waiting = waiting
        self._hello: JsonObject = {"id": os.urandom(16).hex(), "project": project, "again": False}
        self._number = 0
        self._heard = bytearray()
        self._to_client = bytearray()
        self._to_daemon = bytearray()
        self._open: dict[str, _Line] = {}
        """Requests without an answer, by id, in the order in which they came."""
        self._lasting: dict[str, _Line] = {}
        """What is written first on each new connection, by method and id."""
        self._silenced: set[str] = set()
        """Ids of requests whose answer the client has: the next one is dropped."""
        self._connection: Connection | None = None
        self._is_discarding = False
        self._has_ended = False
        self._poll = select.poll()
        self._parent = _parent_descriptor()
        if self._parent is not None:
            self._poll.register(self._parent, select.POLLIN)

    def pipe(self) -> None:
        """Pipe until the client is gone; raises _Ended then."""
        while True:
            if self._connection is None and not self._connect():
                self._turn(RETRY_MS)
            else:
                self._turn(None)

    def close(self) -> None:
        """Let go of the daemon."""
        if self._connection is not None:
            self._poll.unregister(self._connection.fileno())
            self._connection.close()
            self._connection = None

    # -- the daemon -----------------------------------------------------------------------------

    def _connect(self) -> bool:
        """Whether there is a connection now. Where requests wait, a daemon is started for them."""
        client = self._starting if self._open or self._number == 0 else self._waiting
        try:
            self._connection = client.open_pipe(self._hello)
        except MbxError as error:
            self._answer_all(error)
            return False
        self._hello["again"] = True
        self._to_daemon.clear()
        self._silenced.clear()
        for line in sorted(self._lasting.values(), key=lambda one: _LASTING.index(one.method)):
            self._to_daemon += line.numbered
            if line.key and line.key not in self._open and line.method != _LISTEN:
                self._silenced.add(line.key)
        for line in self._open.values():
            if line not in self._lasting.values():
                self._to_daemon += line.numbered
        return True

    def _lost(self) -> None:
        self.close()

    def _from_daemon(self, connection: Connection) -> None:
        try:
            lines = connection.lines(_CHUNK_BYTES)
        except (ConnectionLost, WireError):
            self._lost()
            return
        for text in lines:
            key = _answered(text)
            if key in self._silenced:
                self._silenced.discard(key)
                continue
            self._open.pop(key, None)
            self._to_client += text + b"\n"

    # -- the client -----------------------------------------------------------------------------

    def _from_client(self) -> None:
        piece = os.read(0, _CHUNK_BYTES)
        if not piece:
            self._has_ended = True
            if self._heard:  # the last line needs no end of its own
                self._heard_line(b"")
            if not self._open and not self._to_client:
                raise _Ended
            return
        *lines, rest = piece.split(b"\n")
        for text in lines:
            self._heard_line(text)
        self._heard += rest
        if len(self._heard) > _REFUSED_MAX_BYTES and not self._is_discarding:
            self._is_discarding = True
            self._refuse_line(b"")
        if self._is_discarding:
            self._heard.clear()

    def _heard_line(self, last: bytes) -> None:
        """A line is whole with this, its last piece."""
        self._heard += last
        whole, self._heard = bytes(self._heard), bytearray()
        if self._is_discarding:
            self._is_discarding = False
        elif len(whole) > _LINE_MAX_BYTES:
            self._refuse_line(whole)
        elif whole.strip():
            self._take(whole)

    def _take(self, text: bytes) -> None:
        self._number += 1
        line = _read(self._number, text.strip())
        if line.method == _CANCELLED:  # of what is cancelled there may come no answer
            self._open.pop(line.key, None)
            self._lasting.pop(_LISTEN + line.key, None)
        elif line.method in _LASTING:
            where = line.method + (line.key if line.method == _LISTEN else "")
            self._lasting[where] = line
        if line.key and line.method not in (_LISTEN, _CANCELLED):
            self._open[line.key] = line
        if self._connection is not None:
            self._to_daemon += line.numbered

    def _refuse_line(self, text: bytes) -> None:
        """One that is too long: under its id, where it has one."""
        from mbx.mcp.offline import refused

        why = f"a call may have {_LINE_MAX_BYTES:,} bytes; this one is longer"
        error = MbxError("usage", why, "make it shorter, or send where its text is to be found")
        try:
            message = decode(text)
        except WireError:
            message = {}
        if not _key(message.get("id")):
            message = {"id": None}
        self._to_client += encode(refused(message, error, _PARSE_ERROR))

    def _answer_all(self, error: MbxError) -> None:
        """No daemon can be reached: what waits is told so, but for what is constant."""
        if not self._open:
            return
        from mbx.mcp.offline import answer

        for line in self._open.values():
            self._to_client += encode(answer(decode(line.text), error))
        self._open.clear()

    # -- one turn -------------------------------------------------------------------------------

    def _turn(self, wait_ms: int | None) -> None:
        """Wait for something, and do it. Raises _Ended."""
        self._ask_for_what_can_be_done()
        if self._has_ended:
            if not self._open and not self._to_client:
                raise _Ended
            wait_ms = DRAIN_MS
        events = dict(self._poll.poll(wait_ms))
        if self._has_ended and not events:
            raise _Ended
        if self._parent in events or events.get(1, 0) & (select.POLLERR | select.POLLHUP):
            raise _Ended
        if events.get(0, 0):
            self._from_client()
        if events.get(1, 0) & select.POLLOUT:
            self._write_to_client()
        connection = self._connection
        if connection is not None and (seen := events.get(connection.fileno(), 0)):
            if seen & select.POLLOUT:
                self._write_to_daemon(connection)
            if seen & (select.POLLIN | select.POLLHUP | select.POLLERR) and self._connection:
                self._from_daemon(connection)

    def _ask_for_what_can_be_done(self) -> None:
        is_full = len(self._to_daemon) > _UNSENT_MAX_BYTES or len(self._open) > _OPEN_MAX
        if self._has_ended or is_full:
            _unregister(self._poll, 0)
        else:
            self._poll.register(0, select.POLLIN)
        self._poll.register(1, select.POLLOUT if self._to_client else 0)
        if self._connection is not None:
            wanted = select.POLLIN if len(self._to_client) <= _UNSENT_MAX_BYTES else 0
            wanted |= select.POLLOUT if self._to_daemon else 0
            self._poll.register(self._connection.fileno(), wanted)

    def _write_to_client(self) -> None:
        try:
            written = os.write(1, self._to_client[:_WRITE_BYTES])
        except OSError:
            raise _Ended from None
        del self._to_client[:written]

    def _write_to_daemon(self, connection: Connection) -> None:
        try:
            written = connection.send_some(bytes(self._to_daemon[:_CHUNK_BYTES]))
        except ConnectionLost:
            self._lost()
            return
        del self._to_daemon[:written]


_OPEN_MAX: Final = 1_024
"""Requests without an answer; beyond it the client is not read."""


def _read(number: int, text: bytes) -> _Line:
    """A line, as far as it must be understood; what is no message is the daemon's to refuse."""
    try:
        message = decode(text)
    except WireError:
        return _Line(number, text, "", "")
    method = message.get("method")
    if not isinstance(method, str):
        return _Line(number, text, "", "")
    if method == _CANCELLED:
        params = message.get("params")
        cancelled = params.get("requestId") if isinstance(params, dict) else None
        return _Line(number, text, method, _key(cancelled))
    return _Line(number, text, method, _key(message.get("id")))


def _answered(text: bytes) -> str:
    """The id of the request that a line of the daemon answers; "" for any other line."""
    try:
        message = decode(text)
    except WireError:
        return ""
    return "" if "method" in message else _key(message.get("id"))


def _key(request_id: object) -> str:
    """An id as text that tells 1 and "1" apart; "" for none."""
    if isinstance(request_id, bool) or not isinstance(request_id, (str, int)):
        return ""
    return repr(request_id)


def _unregister(poll: "select.poll", descriptor: int) -> None:
    try:
        poll.unregister(descriptor)
    except KeyError:
        pass


def _parent_descriptor() -> int | None:
    """A descriptor that tells the end of the parent; None where the kernel gives none."""
    try:
        return os.pidfd_open(os.getppid())
    except (AttributeError, OSError):
        return None


def main(environ: Mapping[str, str]) -> int:
    """`mbx mcp`, with the places that the environment names."""
    from mbx.launch import start_daemon
    from mbx.project import current_project

    fill()
    clock: Clock = time
    paths = Paths.from_environ(environ)
    starting = Client(paths, environ, clock, start=start_daemon)
    waiting = Client(paths, environ, clock, start=None)
    try:
        project = current_project()
    except MbxError:  # a path that is no text names no project
        project = None
    return run(starting, waiting, project)
