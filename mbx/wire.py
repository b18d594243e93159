"""JSON-RPC lines over the daemon's unix socket, blocking, with a deadline on every step.

Only `json` and `_socket` are loaded: `socket` would bring `selectors` and `enum` to every command.
Deadlines are points of the caller's monotonic clock, in seconds.
"""

import _socket
import json
import sys
from collections.abc import Callable, Mapping
from typing import Any, Final

from mbx import PROTOCOL, __version__
from mbx.core.limits import REQUEST_LINE_MAX_BYTES

JsonObject = dict[str, Any]
"""A decoded JSON object; whoever uses a field knows its type from the contract."""

WISHES: Final = {"agent": "MBX_AGENT", "role": "MBX_ROLE"}
"""What the owner wishes for a session at its launch: the field of hello, and the variable."""

LINE_MAX_BYTES: Final = REQUEST_LINE_MAX_BYTES
"""Lists and reads stop at half of it; the draft of a letter is as long as its request will be."""
_CHUNK_BYTES: Final = 64 * 1024
_PEER_CREDENTIALS_BYTES: Final = 12  # struct ucred of unix(7): pid, uid, gid


class WireError(Exception):
    """What arrived is no answer of an mbx daemon: too long, no JSON, no object."""


class ConnectionLost(Exception):
    """The other end is gone; `written` tells whether the whole request had left before."""

    def __init__(self, reason: str, *, written: bool) -> None:
        super().__init__(reason)
        self.written = written


class NoAnswer(Exception):
    """The deadline passed; `written` tells whether the whole request had left before."""

    def __init__(self, *, written: bool) -> None:
        super().__init__("no answer in time")
        self.written = written


def introduction(wishes: Mapping[str, str]) -> JsonObject:
    """What every hello says; with what an environment, perhaps an empty one, wishes."""
    named = {field: wishes[name] for field, name in WISHES.items() if wishes.get(name)}
    return {"protocol": PROTOCOL, "client": __version__, **named}


def encode(message: JsonObject) -> bytes:
    """One line of ASCII JSON. Raises ValueError on NaN and infinities."""
    text = json.dumps(message, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return text.encode("ascii") + b"\n"


def decode(line: bytes) -> JsonObject:
    """The object in one line. Raises WireError unless it is exactly one finite JSON object."""
    try:
        value = _DECODER.decode(line.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise WireError(f"not JSON: {error}") from None
    if not isinstance(value, dict):
        raise WireError("not a JSON object")
    return value


def request(number: int, method: str, params: JsonObject) -> JsonObject:
    """A JSON-RPC 2.0 request."""
    return {"jsonrpc": "2.0", "id": number, "method": method, "params": params}


class Connection:
    """A connected socket that writes and reads lines; `clock` gives monotonic seconds."""

    def __init__(self, socket: _socket.socket, clock: Callable[[], float]) -> None:
        self._socket = socket
        self._clock = clock
        self._buffer = bytearray()
        self._written = False

    @classmethod
    def open(cls, path: str, clock: Callable[[], float], deadline: float) -> "Connection":
        """Connect to the socket at `path`.

        Raises OSError as the system says it (BlockingIOError: the queue of the listener is full);
        NoAnswer at the deadline.
        """
        socket = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
        connection = cls(socket, clock)
        try:
            connection._arm(deadline)
            socket.connect(path)
        except BaseException:
            socket.close()
            raise
        return connection

    def peer(self) -> tuple[int | None, int] | None:
        """(pid, uid) of whoever listens, by the kernel's word; None where it does not say.

        The pid is None for one that has no number here: it is outside of our pid namespace.
        """
        option = getattr(_socket, "SO_PEERCRED", None)
        if option is None:
            return None
        raw = self._socket.getsockopt(_socket.SOL_SOCKET, option, _PEER_CREDENTIALS_BYTES)
        return _native_int(raw[0:4]) or None, _native_int(raw[4:8])

    def send(self, lines: bytes, deadline: float) -> None:
        """Write whole lines. Raises ConnectionLost or NoAnswer."""
        self._written = False
        self._arm(deadline)
        try:
            self._socket.sendall(lines)
        except TimeoutError:
            raise NoAnswer(written=False) from None
        except OSError as error:
            raise ConnectionLost(str(error), written=False) from None
        self._written = True

    def receive(self, deadline: float) -> JsonObject:
        """The next message. Raises ConnectionLost, NoAnswer or WireError."""
        while True:
            end = self._buffer.find(b"\n")
            if end >= 0:
                line = bytes(self._buffer[:end])
                del self._buffer[: end + 1]
                return decode(line)
            if len(self._buffer) > LINE_MAX_BYTES:
                raise WireError(f"a line over {LINE_MAX_BYTES} bytes")
            self._buffer += self._read(deadline)

    def fileno(self) -> int:
        """Its descriptor, for waiting."""
        return self._socket.fileno()

    def send_some(self, raw: bytes) -> int:
        """Write what can be written now; how many bytes that was. Raises ConnectionLost."""
        self._socket.setblocking(False)
        try:
            return self._socket.send(raw)
        except BlockingIOError:
            return 0
        except OSError as error:
            raise ConnectionLost(str(error), written=False) from None

    def lines(self, most_bytes: int) -> list[bytes]:
        """The whole lines among what is there now, read already or not, without their ends.

        Raises ConnectionLost when there is nothing more to come.
        """
        self._socket.setblocking(False)
        try:
            piece = self._socket.recv(most_bytes)
        except BlockingIOError:
            piece = None
        except OSError as error:
            raise ConnectionLost(str(error), written=self._written) from None
        if piece is not None:
            if not piece:
                raise ConnectionLost("the daemon closed the connection", written=self._written)
            self._buffer += piece
        *whole, rest = self._buffer.split(b"\n")
        self._buffer = bytearray(rest)
        return [bytes(line) for line in whole]

    def close(self) -> None:
        """Let the socket go; it may be called again."""
        self._socket.close()

    def _read(self, deadline: float) -> bytes:
        self._arm(deadline)
        try:
            piece = self._socket.recv(_CHUNK_BYTES)
        except TimeoutError:
            raise NoAnswer(written=self._written) from None
        except OSError as error:
            raise ConnectionLost(str(error), written=self._written) from None
        if not piece:
            raise ConnectionLost("the daemon closed the connection", written=self._written)
        return piece

    def _arm(self, deadline: float) -> None:
        left = deadline - self._clock()
        if left <= 0:
            raise NoAnswer(written=self._written)
        self._socket.settimeout(left)


def _native_int(raw: bytes) -> int:
    return int.from_bytes(raw, sys.byteorder, signed=True)


def _refuse_constant(name: str) -> float:
    raise ValueError(f"{name} is no JSON number")


def _finite(text: str) -> float:
    value = float(text)
    if value in (float("inf"), float("-inf")):
        raise ValueError(f"{text} is too large")
    return value


_DECODER: Final = json.JSONDecoder(parse_constant=_refuse_constant, parse_float=_finite)
