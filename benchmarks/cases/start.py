"""S8: the whole process of the commands that agents run most."""

import os
import statistics
import sys
import time
from collections import defaultdict
from pathlib import Path

from benchmarks.report import Report, at_most
from benchmarks.wire import Line
from benchmarks.workshop import Daemon, Workshop, environment, register


def run(workshop: Workshop, report: Report) -> None:
    """Two commands and, for comparison, `mbx --help` against a Python that does nothing."""
    home, mbx = workshop.home(), str(Path(sys.executable).with_name("mbx"))
    nothing = [sys.executable, "-c", "pass"]
    commands = {name: [mbx, *name.split()] for name in ("inbox", "whoami", "--help")}
    times: dict[str, list[float]] = defaultdict(list)
    with Daemon(home) as daemon:
        line = Line.of_session(daemon.socket)
        register(line, "bench-person")  # this process is the holder, the commands are its children
        for number in workshop.rounds():
            workshop.say(f"S8 round {number + 1}")
            for name, argv in {"nothing": nothing, **commands}.items():
                runs = [_run_s(argv, home) for _ in range(workshop.scale.commands)]
                times[name].append(statistics.median(runs) * 1_000)
        line.close()
    for name in commands:
        pairs = list(zip(times[name], times["nothing"], strict=True))
        goal = None if name.startswith("-") else at_most(5.5)
        report.compare("S8", f"`mbx {name}`, whole process", "ms", pairs, "python -c pass", goal)


def _run_s(argv: list[str], home: Path) -> float:
    """Seconds from start to end of a program; its output goes nowhere."""
    nowhere = [(os.POSIX_SPAWN_OPEN, fd, os.devnull, os.O_RDWR, 0) for fd in (0, 1)]
    begun = time.perf_counter()
    pid = os.posix_spawn(argv[0], argv, environment(home), file_actions=nowhere)
    _, status = os.waitpid(pid, 0)
    took = time.perf_counter() - begun
    if status:
        raise RuntimeError(f"{argv} ended with {os.waitstatus_to_exitcode(status)}")
    return took
