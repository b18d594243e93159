"""S11 and S18: what a session of an agent CLI pays for its mailbox over MCP."""

import json
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Final, Self

from benchmarks.report import Report, at_most, figure_at_most
from benchmarks.wire import Line
from benchmarks.workshop import Daemon, Workshop, environment, register

_CLIENT: Final = {"name": "bench", "version": "0"}
_META: Final = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientInfo": _CLIENT,
    "io.modelcontextprotocol/clientCapabilities": {},
}
_GREETINGS: Final[dict[str, dict[str, Any]]] = {
    "initialize": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": _CLIENT},
    "server/discover": {"_meta": _META},
}
_WAITING: Final = 20
_READER: Final = "bench-reader"
_SDK_IDLE: Final = """
import anyio, os, sys
from mcp.server.lowlevel.server import Server
from mcp.server.stdio import stdio_server
async def main():
    server = Server("floor")
    async with stdio_server() as (reading, writing):
        os.write(2, b"x\\n")
        await server.run(reading, writing, server.create_initialization_options())
anyio.run(main)
"""


class _Session:
    """One `mbx mcp`, spoken to by hand."""

    def __init__(self, home: Path) -> None:
        mbx = str(Path(sys.executable).with_name("mbx"))
        self._process = subprocess.Popen(
            [mbx, "mcp"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment(home)
        )
        self._number = 0

    def ask(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """A request and its result."""
        self._number += 1
        line = {"jsonrpc": "2.0", "id": self._number, "method": method, "params": params}
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(line).encode() + b"\n")
        self._process.stdin.flush()
        told = json.loads(self._process.stdout.readline())
        result = told["result"]
        assert isinstance(result, dict), told
        return result

    def call(self, tool: str, **arguments: Any) -> dict[str, Any]:
        """A tool call and its whole result."""
        return self.ask("tools/call", {"name": tool, "arguments": arguments})

    def rss_kib(self) -> int:
        """Resident memory."""
        return _rss_kib(self._process.pid)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for end in (self._process.stdin, self._process.stdout):
            if end is not None:
                end.close()
        self._process.wait()


def run(workshop: Workshop, report: Report) -> None:
    """S11: first answers, and the memory of a session."""
    home = workshop.home()
    with Daemon(home) as daemon:
        line = Line.of_session(daemon.socket)
        register(line, _READER)  # this process is the holder, the connectors its children
        _first_answers(workshop, report, home)
        _memory(report, home)
        line.close()


def paid(workshop: Workshop, report: Report) -> None:
    """S18: the bytes that a model reads, in the larger of the two forms of a result."""
    home = workshop.home()
    with Daemon(home) as daemon:
        line = Line.of_session(daemon.socket)
        register(line, _READER)
        _bytes(report, home)
        line.close()


def sdk_memory(workshop: Workshop, report: Report) -> None:
    """Of S12: the daemon once the SDK is loaded, against the SDK's own server."""
    home = workshop.home()
    with Daemon(home) as daemon, _Session(home) as session:
        session.ask("initialize", _GREETINGS["initialize"])
        session.call("mbx_whoami")
        pair = (daemon.rss_kib() / 1024, _sdk_mib())
    floor_is = "the SDK's own server, which serves nothing"
    report.compare("S12", "memory, idle, SDK loaded", "MiB", [pair], floor_is, at_most(1.7))


def _first_answers(workshop: Workshop, report: Report, home: Path) -> None:
    for method, params in _GREETINGS.items():
        pairs = []
        for number in workshop.rounds():
            workshop.say(f"S11 {method}, round {number + 1}")
            runs = [_first_s(home, method, params) for _ in range(workshop.scale.commands)]
            bare = [_nothing_s() for _ in range(workshop.scale.commands)]
            pairs.append((statistics.median(runs) * 1_000, statistics.median(bare) * 1_000))
        what = f"first answer of `mbx mcp`, `{method}`"
        report.compare("S11", what, "ms", pairs, "python -c pass", at_most(6))


def _first_s(home: Path, method: str, params: dict[str, Any]) -> float:
    begun = time.perf_counter()
    with _Session(home) as session:
        session.ask(method, params)
        return time.perf_counter() - begun


def _nothing_s() -> float:
    begun = time.perf_counter()
    subprocess.run([sys.executable, "-c", "pass"], check=True)
    return time.perf_counter() - begun


def _memory(report: Report, home: Path) -> None:
    bare = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    with _Session(home) as session:
        session.ask("initialize", _GREETINGS["initialize"])
        session.call("mbx_whoami")
        added_mib = (session.rss_kib() - _rss_kib(bare.pid)) / 1024
    what = "memory of a session, above a bare interpreter"
    report.state("S11", what, "MiB", [added_mib], figure_at_most(6, "≤ 6 MiB"))
    assert bare.stdin is not None
    bare.stdin.write(b"\n")
    bare.stdin.close()
    bare.wait()


def _sdk_mib() -> float:
    process = subprocess.Popen(
        [sys.executable, "-c", _SDK_IDLE],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    assert process.stderr is not None
    assert process.stdin is not None
    process.stderr.readline()
    rss_kib = _rss_kib(process.pid)
    process.stdin.close()
    process.stderr.close()
    process.wait()
    return rss_kib / 1024


def _bytes(report: Report, home: Path) -> None:
    with _Session(home) as session:
        session.ask("initialize", _GREETINGS["initialize"])
        listed = session.ask("tools/list", {})
        sent = [
            session.call(
                "mbx_send",
                to=_READER,
                subject=f"Which port does the API listen on now? {number}",
                body="x" * 700,
                kind="request",
                needs_reply=True,
            )
            for number in range(_WAITING)
        ]
        page = session.call("mbx_inbox")
    for what, size_bytes, most in (
        ("`tools/list`", _size(listed), 9_000),
        (f"a listing of {_WAITING} messages", _larger(page), 6_500),
        ("the answer to a send", _larger(sent[0]), 400),
    ):
        report.state("S18", what, "bytes", [size_bytes], figure_at_most(most, f"≤ {most:,} bytes"))


def _larger(result: dict[str, Any]) -> int:
    return max(_size(result["structuredContent"]), len(result["content"][0]["text"].encode()))


def _size(value: object) -> int:
    return len(json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode())


def _rss_kib(pid: int) -> int:
    with open(f"/proc/{pid}/status", encoding="ascii", errors="replace") as file:
        row = next(row for row in file if row.startswith("VmRSS:"))
    return int(row.split()[1])
