"""Agent CLIs that speak MCP: the real `mbx mcp` below a process that looks like one of them."""

import json
import os
import select
import shlex
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Self

from tests.support.daemon import MBX
from tests.support.shells import TIMEOUT_S, look_alike

HANDSHAKE: Final = "2025-11-25"
MODERN: Final = "2026-07-28"
_META: Final = {
    "io.modelcontextprotocol/protocolVersion": MODERN,
    "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "0"},
    "io.modelcontextprotocol/clientCapabilities": {},
}

Message = dict[str, Any]


class Harness:
    """One session of an agent CLI, as far as its MCP server can tell. Use it in ``with``.

    `era` is the protocol that it speaks; it greets by itself unless told otherwise.
    """

    def __init__(
        self,
        folder: Path,
        environment: Mapping[str, str],
        *,
        name: str = "claude",
        era: str = HANDSHAKE,
        greets: bool = True,
        cwd: Path | None = None,
    ) -> None:
        self.era = era
        self._number = 0
        self._kept: list[Message] = []
        self._buffer = b""
        script = f"{shlex.quote(MBX)} mcp; exit $?"
        self.process = subprocess.Popen(
            [look_alike(folder, name), "-c", script],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=dict(environment),
            cwd=cwd,
        )
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self._stdin, self._stdout = self.process.stdin.fileno(), self.process.stdout.fileno()
        if greets:
            self.greet()

    # -- messages -------------------------------------------------------------------------------

    def greet(self) -> Message:
        """The first exchange of the era; what the server said of itself."""
        method, params = self.greeting()
        told = self.ask(method, **params)
        if self.era != MODERN:
            self.notify("notifications/initialized")
        return told

    def greeting(self) -> tuple[str, Message]:
        """Method and parameters of the first request of the era."""
        if self.era == MODERN:
            return "server/discover", {}
        client = {"name": "test", "version": "0"}
        return "initialize", {
            "protocolVersion": self.era,
            "capabilities": {},
            "clientInfo": client,
        }

    def request(self, number: int, method: str, params: Message | None = None) -> Message:
        """A request as it is written."""
        return {"jsonrpc": "2.0", "id": number, "method": method, **self._with(params)}

    def send(self, method: str, params: Message | None = None) -> int:
        """Write a request; its id."""
        self._number += 1
        self.write(self.request(self._number, method, params))
        return self._number

    def notify(self, method: str, **params: Any) -> None:
        """Write a notification."""
        self.write({"jsonrpc": "2.0", "method": method, **self._with(params or None)})

    def write(self, message: object) -> None:
        """Write anything as a line."""
        self.write_raw(json.dumps(message).encode() + b"\n")

    def write_raw(self, raw: bytes) -> None:
        """Write bytes as they are."""
        view = memoryview(raw)
        while view:
            view = view[os.write(self._stdin, view) :]

    def read(self) -> Message:
        """The next message from the server. Raises AssertionError when none comes in time."""
        while b"\n" not in self._buffer:
            assert select.select([self._stdout], [], [], TIMEOUT_S)[0], "the server says nothing"
            piece = os.read(self._stdout, 1 << 20)
            assert piece, f"the server ended: {self.errors()}"
            self._buffer += piece
        line, _, self._buffer = self._buffer.partition(b"\n")
        told = json.loads(line)
        assert isinstance(told, dict)
        assert told["jsonrpc"] == "2.0"
        return told

    def answer(self, number: int) -> Message:
        """The message that answers a request; others are kept for those who ask for them."""
        for kept in self._kept:
            if kept.get("id") == number and "method" not in kept:
                self._kept.remove(kept)
                return kept
        while True:
            told = self.read()
            if told.get("id") == number and "method" not in told:
                return told
            self._kept.append(told)

    def told(self, method: str) -> Message:
        """The next notification of this method."""
        while True:
            for kept in self._kept:
                if kept.get("method") == method:
                    self._kept.remove(kept)
                    return kept
            self._kept.append(self.read())

    def ask(self, method: str, **params: Any) -> Message:
        """A request and its result. Raises AssertionError for an error."""
        told = self.answer(self.send(method, params or None))
        assert "error" not in told, told
        result = told["result"]
        assert isinstance(result, dict)
        return result

    def call(self, tool: str, **arguments: Any) -> Message:
        """A tool call; its structured content. Raises AssertionError for a refusal."""
        result = self.result(tool, arguments)
        assert not result.get("isError"), result
        structured = result["structuredContent"]
        assert isinstance(structured, dict)
        return structured

    def refusal(self, tool: str, **arguments: Any) -> Message:
        """What a tool call that is refused says."""
        result = self.result(tool, arguments)
        assert result.get("isError") is True, result
        structured = result["structuredContent"]
        assert isinstance(structured, dict)
        return structured

    def result(self, tool: str, arguments: Message) -> Message:
        """The whole result of a tool call."""
        return self.ask("tools/call", name=tool, arguments=arguments)

    def _with(self, params: Message | None) -> Message:
        if self.era == MODERN:
            return {
                "params": {**(params or {}), "_meta": {**_META, **(params or {}).get("_meta", {})}}
            }
        return {} if params is None else {"params": params}

    # -- the process ----------------------------------------------------------------------------

    def hang_up(self) -> None:
        """Close the server's input."""
        assert self.process.stdin is not None
        self.process.stdin.close()

    def finish(self) -> int:
        """Wait for the end; the exit status."""
        return self.process.wait(TIMEOUT_S)

    def errors(self) -> str:
        """What was written to standard error, once it has ended."""
        assert self.process.stderr is not None
        return self.process.stderr.read().decode()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for end in (self.process.stdin, self.process.stdout):
            if end is not None and not end.closed:
                end.close()
        self.process.send_signal(signal.SIGKILL) if self.process.poll() is None else None
        self.process.wait(TIMEOUT_S)
        if self.process.stderr is not None:
            self.process.stderr.close()


PYTHON: Final = sys.executable
"""The interpreter of the tests."""
