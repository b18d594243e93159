"""S17: start after kill -9, with a large store and with an empty one."""

import statistics
from pathlib import Path

from benchmarks import stores, wire
from benchmarks.mail import Sends
from benchmarks.report import Goal, Report
from benchmarks.wire import Line
from benchmarks.workshop import Daemon, Workshop


def run(workshop: Workshop, report: Report) -> None:
    """The large one is killed right after sends, so that its log is long."""
    empty_home, large_home = workshop.home(), stores.copy_of_large(workshop)
    pairs = []
    for number in workshop.rounds():
        workshop.say(f"S17 round {number + 1}")
        sends = Sends(f"kill-{number}").take(workshop.scale.unchecked)
        pairs.append((_start_ms(large_home, sends), _start_ms(empty_home, [])))
    limit_ms = 1.5 * statistics.median(floor for _, floor in pairs) + 500
    goal = Goal(limit_ms, at_most=True, of="figure", text="≤ 1.5 × + 500 ms")
    what = f"start after kill -9, {workshop.scale.large_store:,} messages"
    report.compare("S17", what, "ms", pairs, "start with an empty store", goal)


def _start_ms(home: Path, sends: list[bytes]) -> float:
    """From the kill of a daemon that has just sent to the next one's ready, in ms."""
    daemon = Daemon(home)
    daemon.start()
    if sends:
        line = Line.of_session(daemon.socket)
        line.call("identity.claim", name=stores.READER)
        wire.drive([line], sends)
        line.close()
    daemon.kill()
    took_s = daemon.start()
    daemon.stop()
    return took_s * 1_000
