"""S7: a send on one host until whoever watches on another is told, over the link."""

import json
import statistics
import time
from contextlib import ExitStack
from typing import Final

from benchmarks import hosts, wire
from benchmarks.cases.relay import HERE, THERE, paired
from benchmarks.floors import sync_s
from benchmarks.mail import body
from benchmarks.report import Report, at_most, figure_at_most
from benchmarks.wire import Line
from benchmarks.workshop import Echo, Workshop, register

_READER: Final = "bench-reader"
_IDS: Final = 200
_FLOOR_IS: Final = "2 × (fdatasync + echo)"


def run(workshop: Workshop, report: Report) -> None:
    """One message after the other; what was told is acked between the rounds."""
    pairs, latencies_ms, count = [], [], workshop.scale.told
    file = workshop.home() / "synced"
    with ExitStack() as open_now:
        here, there = paired(workshop)
        open_now.enter_context(here)
        open_now.enter_context(there)
        line, reader, watcher = (
            Line.of_session(here.socket),
            Line.of_session(there.socket),
            Line.of_session(there.socket),
        )
        register(line, "bench-load")
        register(reader, _READER)
        hosts.wait_until_known(line, [f"{_READER}@{THERE}"])
        watcher.call("mail.watch")
        first = _request(0)
        line.ask(first)
        _heard(watcher)
        with Echo(workshop.home() / "echo.sock", line.ask(first)) as echo:
            bare = Line(echo.path)
            for number in workshop.rounds():
                workshop.say(f"S7 round {number + 1}")
                _ack_all(reader)
                hosts.wait_until_settled(line, reader, (HERE, THERE))
                took_s = [_told_s(line, watcher, 1 + number * count + one) for one in range(count)]
                echo_s = statistics.median(wire.drive([bare], [first] * count).latencies_s)
                floor_s = 2 * (sync_s(file, count) + echo_s)
                pairs.append((statistics.median(took_s) * 1_000, floor_s * 1_000))
                latencies_ms += [one * 1_000 for one in took_s]
            bare.close()
        for one in (line, reader, watcher):
            one.close()
    what = "send → another host's watcher is told"
    report.compare("S7", f"{what}, p50", "ms", pairs, _FLOOR_IS, at_most(10))
    latencies_ms.sort()
    p99_ms = latencies_ms[len(latencies_ms) * 99 // 100]
    report.state("S7", f"{what}, p99", "ms", [p99_ms], figure_at_most(100, "≤ 100 ms"))


def _told_s(line: Line, watcher: Line, number: int) -> float:
    ready = _request(number)
    begun = time.perf_counter()
    line.socket.sendall(ready)
    _heard(watcher)
    took_s = time.perf_counter() - begun
    line.ask(b"")  # the answer, which came long before
    return took_s


def _heard(watcher: Line) -> None:
    told = json.loads(watcher.ask(b""))
    if told.get("method") != "mail.arrived":
        raise RuntimeError(f"not what a watcher is told: {told}")


def _ack_all(reader: Line) -> None:
    while listed := reader.call("mail.inbox", limit=_IDS)["messages"]:
        reader.call("mail.ack", ids=[one["id"] for one in listed], did="read it")


def _request(number: int) -> bytes:
    params = {
        "to": [f"{_READER}@{THERE}"],
        "kind": "request",
        "subject": f"Bench message {number}",
        "body": body(number),
        "key": f"0198f2c4-7b1e-told-{number:012}",
    }
    return wire.request(number, "mail.send", params)
