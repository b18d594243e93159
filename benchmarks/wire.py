"""Raw sockets and ready-made bytes: the load, so that the server is what is measured."""

import json
import select
import socket
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

_CHUNK_BYTES: Final = 1 << 18
_PATIENCE_S: Final = 60.0


class RefusedError(Exception):
    """The daemon answered with an error; `code` is that of the contract."""

    def __init__(self, error: dict[str, Any]) -> None:
        data: dict[str, Any] = error.get("data", {})
        super().__init__(f"{data.get('code')}: {error.get('message')}")
        self.code = data.get("code")


class Line:
    """One connection to the daemon (or to the echo), spoken to in whole lines."""

    def __init__(self, path: str) -> None:
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(_PATIENCE_S)
        self.socket.connect(path)
        self._number = 0

    @classmethod
    def of_session(cls, path: str) -> Self:
        """A connection of this process as a session of its own, as `mbx run` opens it."""
        line = cls(path)
        line.call("hello", protocol=1, client="0", holder="self")
        return line

    def call(self, method: str, **params: object) -> dict[str, Any]:
        """One call; its result. Raises RefusedError."""
        self._number += 1
        answer = json.loads(self.ask(request(self._number, method, params)))
        if "error" in answer:
            raise RefusedError(answer["error"])
        result: dict[str, Any] = answer["result"]
        return result

    def ask(self, ready: bytes) -> bytes:
        """Write a ready-made line; the answering line."""
        self.socket.sendall(ready)
        answer = self.socket.recv(_CHUNK_BYTES)
        while not answer.endswith(b"\n"):
            more = self.socket.recv(_CHUNK_BYTES)
            if not more:
                raise ConnectionError("hung up")
            answer += more
        return answer

    def close(self) -> None:
        """Hang up."""
        self.socket.close()


def request(number: int, method: str, params: dict[str, Any]) -> bytes:
    """One JSON-RPC line."""
    body = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
    return json.dumps(body, separators=(",", ":")).encode() + b"\n"


@dataclass(frozen=True, slots=True)
class Driven:
    """What a drive took: all of it, and each request by itself (seconds)."""

    seconds: float
    latencies_s: list[float]


def drive(lines: Sequence[Line], requests: Sequence[bytes]) -> Driven:
    """Send all `requests`, one in flight on each of `lines`, and wait for every answer."""
    if len(lines) == 1:
        return _drive_one(lines[0], requests)
    return _drive_many(lines, iter(requests))


def _drive_one(line: Line, requests: Sequence[bytes]) -> Driven:
    clock, latencies = time.perf_counter, []
    begun = last = clock()
    for ready in requests:
        answer = line.ask(ready)
        now = clock()
        latencies.append(now - last)
        last = now
        _check(answer)
    return Driven(last - begun, latencies)


def _drive_many(lines: Sequence[Line], requests: Iterator[bytes]) -> Driven:
    clock, latencies, waiting = time.perf_counter, [], 0
    by_fd = {line.socket.fileno(): line.socket for line in lines}
    sent_at: dict[int, float] = {}
    parts: dict[int, bytes] = dict.fromkeys(by_fd, b"")
    poll = select.epoll()
    for fd in by_fd:
        poll.register(fd, select.EPOLLIN)
    begun = clock()
    for (fd, sock), ready in zip(by_fd.items(), requests, strict=False):
        sent_at[fd] = clock()
        sock.sendall(ready)
        waiting += 1
    while waiting:
        for fd, _ in poll.poll(_PATIENCE_S):
            answer = parts[fd] + by_fd[fd].recv(_CHUNK_BYTES)
            if not answer.endswith(b"\n"):
                parts[fd] = answer
                continue
            parts[fd] = b""
            now = clock()
            latencies.append(now - sent_at[fd])
            _check(answer)
            following = next(requests, None)
            if following is None:
                waiting -= 1
                continue
            sent_at[fd] = now
            by_fd[fd].sendall(following)
    seconds = clock() - begun
    poll.close()
    return Driven(seconds, latencies)


def _check(answer: bytes) -> None:
    if b'"result"' not in answer[:80]:
        raise RuntimeError(f"not the answer of a success: {answer[:300]!r}")


def wait_until_indexed(line: Line) -> None:
    """Return when nothing is pending for the full-text index."""
    deadline = time.perf_counter() + _PATIENCE_S
    while line.call("daemon.status")["index_pending"]:
        if time.perf_counter() > deadline:
            raise TimeoutError("the full-text index does not catch up")
        time.sleep(0.001)


def socket_of(home: Path) -> str:
    """Where the daemon of `home` listens."""
    return str(home / "run" / "mbx.sock")


def is_readable(fd: int) -> bool:
    """Whether somebody wrote to (or closed) the other end of a pipe."""
    return bool(select.select([fd], [], [], 0)[0])


def wait_until_readable(fd: int) -> None:
    """Return when somebody wrote to (or closed) the other end of a pipe."""
    select.select([fd], [], [])
