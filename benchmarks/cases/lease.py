"""S14: a claim against a send; from a holder's death to the next claim."""

import os
import signal
import statistics
import time
from typing import Final

from benchmarks.mail import RECIPIENTS, Sends
from benchmarks.report import Report, at_most, figure_at_most
from benchmarks.wire import Line, RefusedError, wait_until_readable
from benchmarks.workshop import Daemon, Workshop, another_process, register_and_release

NAME: Final = "bench-lease"
_PATIENCE_S: Final = 10.0


def run(workshop: Workshop, report: Report) -> None:
    """Each on a daemon of one home, one call after another."""
    pairs, deaths_ms = [], []
    with Daemon(workshop.home()) as daemon:
        line = Line.of_session(daemon.socket)
        register_and_release(line, [*RECIPIENTS, NAME])
        sends = Sends("lease")
        for number in workshop.rounds():
            workshop.say(f"S14 round {number + 1}")
            pairs.append(_claim_and_send(line, sends, workshop.scale.claims))
        for _ in range(workshop.scale.deaths * workshop.scale.rounds):
            deaths_ms.append(_death_ms(daemon.socket, line))
        line.close()
    report.compare("S14", "claim, p50", "ms", pairs, "a send, p50", at_most(2))
    deaths_ms.sort()
    goal = figure_at_most(50, "≤ 50 ms")
    report.state("S14", "holder dies → claimed by another, p50", "ms", deaths_ms, goal)
    p99_ms = deaths_ms[len(deaths_ms) * 99 // 100]
    report.state("S14", "holder dies → claimed by another, p99", "ms", [p99_ms], goal)


def _claim_and_send(line: Line, sends: Sends, count: int) -> tuple[float, float]:
    """p50 of `count` claims and of as many sends, alternating, in ms."""
    claims, sent, clock = [], [], time.perf_counter
    for ready in sends.take(count):
        begun = clock()
        line.call("identity.claim", name=NAME)
        claims.append(clock() - begun)
        begun = clock()
        line.ask(ready)
        sent.append(clock() - begun)
        line.call("identity.release")
    return statistics.median(claims) * 1_000, statistics.median(sent) * 1_000


def _death_ms(path: str, line: Line) -> float:
    """A process that holds the identity is killed; how long until this one has it."""

    def hold(reading: int, writing: int) -> None:
        own = Line.of_session(path)
        own.call("identity.claim", name=NAME)
        os.write(writing, b".")
        wait_until_readable(reading)

    with another_process(hold) as (pid, _, ready):
        os.read(ready, 1)
        begun = time.perf_counter()
        os.kill(pid, signal.SIGKILL)
        while not _is_claimed(line):
            if time.perf_counter() - begun > _PATIENCE_S:
                raise TimeoutError("a dead holder's identity does not become claimable")
        took_s = time.perf_counter() - begun
    line.call("identity.release")
    return took_s * 1_000


def _is_claimed(line: Line) -> bool:
    try:
        line.call("identity.claim", name=NAME)
    except RefusedError as refused:
        if refused.code != "in-use":
            raise
        return False
    return True
