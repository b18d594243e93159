"""S4: the unread inbox over the socket: small store, large store, beside senders."""

import os
import statistics
from pathlib import Path
from typing import Final

from benchmarks import stores, wire
from benchmarks.mail import RECIPIENTS, Sends
from benchmarks.report import Report, at_most
from benchmarks.wire import Line
from benchmarks.workshop import (
    Daemon,
    Echo,
    Workshop,
    another_process,
    register,
    register_and_release,
)

READER: Final = stores.READER
_INBOX: Final = wire.request(1, "mail.inbox", {})
_SENDERS: Final = 8
_BATCH: Final = 400


def run(workshop: Workshop, report: Report) -> None:
    """p50 against a bare echo and against each other; p99 beside senders against p50 idle."""
    small_home, large_home = workshop.home(), stores.copy_of_large(workshop)
    with Daemon(small_home) as small, Daemon(large_home) as large:
        small_line = _small(workshop, small)
        large_line = Line.of_session(large.socket)
        large_line.call("identity.claim", name=READER)
        answer = small_line.ask(_INBOX)
        with Echo(small_home / "echo.sock", answer) as echo:
            echo_line = Line(echo.path)
            lines = {"echo": echo_line, "small": small_line, "large": large_line}
            _measure(workshop, report, lines, small_home)
            for line in lines.values():
                line.close()


def _measure(workshop: Workshop, report: Report, lines: dict[str, Line], home: Path) -> None:
    count, p50s = workshop.scale.reads, {name: list[float]() for name in lines}
    beside: list[float] = []
    for number in workshop.rounds():
        workshop.say(f"S4 round {number + 1}")
        for name, line in lines.items():
            driven = wire.drive([line], [_INBOX] * count)
            p50s[name].append(statistics.median(driven.latencies_s) * 1_000)
        beside.append(_beside_senders(home, lines["small"], count) * 1_000)
    small, large = workshop.scale.small_store, workshop.scale.large_store
    echo_pairs = list(zip(p50s["small"], p50s["echo"], strict=True))
    size_pairs = list(zip(p50s["large"], p50s["small"], strict=True))
    busy_pairs = list(zip(beside, p50s["small"], strict=True))
    report.compare(
        "S4", f"inbox p50, {small:,} messages", "ms", echo_pairs, "bare echo, p50", at_most(3)
    )
    report.compare(
        "S4",
        f"inbox p50, {large:,} messages",
        "ms",
        size_pairs,
        f"p50 at {small:,}",
        at_most(1.5),
    )
    report.compare(
        "S4",
        f"inbox p99 beside {_SENDERS} senders",
        "ms",
        busy_pairs,
        "p50 of the idle daemon",
        at_most(10),
    )


def _small(workshop: Workshop, daemon: Daemon) -> Line:
    """This process as reader of a small mailbox that another process filled."""
    count = workshop.scale.small_store
    line = Line.of_session(daemon.socket)
    register_and_release(line, RECIPIENTS)
    register_and_release(line, ["bench-writer"])
    register(line, READER)

    def fill(reading: int, writing: int) -> None:
        own = Line.of_session(daemon.socket)
        register(own, "bench-filler")
        wire.drive([own], Sends("fill", (READER,)).take(count))
        os.write(writing, b".")

    with another_process(fill) as (_, _, done):
        os.read(done, 1)
    wire.wait_until_indexed(line)
    return line


def _beside_senders(home: Path, line: Line, count: int) -> float:
    """p99 of `count` inbox calls while another process sends on 8 connections, in seconds."""

    def send(reading: int, writing: int) -> None:
        path, told = wire.socket_of(home), False
        own = [Line.of_session(path) for _ in range(_SENDERS)]
        own[0].call("identity.claim", name="bench-writer")
        sends = Sends(f"beside-{os.getpid()}")
        while not wire.is_readable(reading):
            wire.drive(own, sends.take(_BATCH))
            if not told:
                told = bool(os.write(writing, b"."))

    with another_process(send) as (_, stop, ready):
        os.read(ready, 1)
        latencies = sorted(wire.drive([line], [_INBOX] * count).latencies_s)
        os.write(stop, b".")
    wire.wait_until_indexed(line)
    return latencies[len(latencies) * 99 // 100]
