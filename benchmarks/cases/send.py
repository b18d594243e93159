"""S1: durable send over the socket with 1, 8 and 64 clients."""

import statistics
import time
from collections import defaultdict
from dataclasses import dataclass
from typing import Final

from benchmarks import wire
from benchmarks.floors import InsertFloor, signature_s
from benchmarks.mail import RECIPIENTS, Sends
from benchmarks.report import Report, at_least
from benchmarks.wire import Line
from benchmarks.workshop import Daemon, Echo, Workshop, register, register_and_release

_DRAINED: Final = {1: at_least(0.65), 8: at_least(0.80), 64: at_least(0.90)}
_ANSWERED: Final = {1: at_least(0.65), 8: at_least(0.90), 64: at_least(1.0)}
_WARM_UP: Final = 64
_FLOOR_IS: Final = "raw insert + bare echo + JSON and signature, serial"


@dataclass(frozen=True, slots=True)
class _Sent:
    """One round of some clients: messages a second, p50 of an answer, the daemon's CPU each."""

    answered_per_s: float
    drained_per_s: float
    p50_ms: float
    cpu_us: float


def run(workshop: Workshop, report: Report) -> None:
    """Both rates against the serial floor of the same round, and the parts of the floor."""
    sent: dict[int, list[_Sent]] = defaultdict(list)
    floors: dict[int, list[tuple[float, float, float]]] = defaultdict(list)
    home = workshop.home()
    insert = InsertFloor(workshop.home() / "floor.db")
    insert.insert_s(_WARM_UP, 1)
    with Daemon(home) as daemon:
        lines = connected(daemon, max(workshop.scale.sends))
        sends = Sends("send")
        answer = lines[0].ask(sends.take(1)[0])
        wire.drive(lines, sends.take(_WARM_UP))
        with Echo(home / "echo.sock", answer) as echo:
            echoes = [Line(echo.path) for _ in lines]
            for number in workshop.rounds():
                workshop.say(f"S1 round {number + 1}")
                for clients, count in workshop.scale.sends.items():
                    ready = sends.take(count)
                    sent[clients].append(_send(daemon, lines[:clients], ready))
                    floors[clients].append(_floor(insert, echoes[:clients], ready))
        for line in (*lines, *echoes):
            line.close()
    insert.close()
    _tell(report, sent, floors)


def connected(daemon: Daemon, count: int) -> list[Line]:
    """Connections of this process, which holds one identity; the recipients are made too."""
    lines = [Line.of_session(daemon.socket) for _ in range(count)]
    register_and_release(lines[0], RECIPIENTS)
    register(lines[0], "bench-load")
    return lines


def _send(daemon: Daemon, lines: list[Line], ready: list[bytes]) -> _Sent:
    begun_s, spent_s = time.perf_counter(), daemon.cpu_s()
    driven = wire.drive(lines, ready)
    wire.wait_until_indexed(lines[0])
    drained_s = time.perf_counter() - begun_s
    p50_ms = statistics.median(driven.latencies_s) * 1_000
    count, cpu_us = len(ready), (daemon.cpu_s() - spent_s) * 1e6
    return _Sent(count / driven.seconds, count / drained_s, p50_ms, cpu_us / count)


def _floor(
    insert: InsertFloor, echoes: list[Line], ready: list[bytes]
) -> tuple[float, float, float]:
    """Seconds a message for (insert, echo, signature)."""
    count = len(ready)
    return (
        insert.insert_s(count, len(echoes)),
        wire.drive(echoes, ready).seconds / count,
        signature_s(min(count, 1_000)),
    )


def _tell(
    report: Report,
    sent: dict[int, list[_Sent]],
    floors: dict[int, list[tuple[float, float, float]]],
) -> None:
    for clients, rounds in sent.items():
        rates = [1 / sum(parts) for parts in floors[clients]]
        drained = [(one.drained_per_s, floor) for one, floor in zip(rounds, rates, strict=True)]
        answered = [(one.answered_per_s, floor) for one, floor in zip(rounds, rates, strict=True)]
        parts = (statistics.median(part) * 1e6 for part in zip(*floors[clients], strict=True))
        note = "floor: insert {:.0f} + echo {:.0f} + JSON and signature {:.0f} µs".format(*parts)
        note += f"; p50 of a send {statistics.median(one.p50_ms for one in rounds):.2f} ms"
        note += f"; CPU of the daemon {statistics.median(one.cpu_us for one in rounds):.0f} µs each"
        what, goal = f"sends, {clients} clients, index drained", _DRAINED[clients]
        report.compare("S1", what, "1/s", drained, _FLOOR_IS, goal, note)
        what, goal = f"sends, {clients} clients, last answer", _ANSWERED[clients]
        report.compare("S1", what, "1/s", answered, _FLOOR_IS, goal)
