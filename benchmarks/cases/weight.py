"""S12: the daemon's start from cold, and its memory."""

import sys
from contextlib import ExitStack
from typing import Final

from benchmarks import hosts, stores
from benchmarks.cases import tools
from benchmarks.report import Report, at_most, figure_at_most
from benchmarks.wire import Line
from benchmarks.workshop import (
    Daemon,
    Workshop,
    environment,
    holder,
    names,
    register,
    time_to_first_line,
)

_IMPORTS: Final = """
import os, mbx.daemon.__main__
import asyncio, uvloop
from mbx.daemon import app
from mbx.daemon.journal import Journal
from mbx.daemon.world import SystemWorld
os.write(1, b"x\\n")
"""
_READS: Final = 200


def run(workshop: Workshop, report: Report) -> None:
    """Start against its own imports; idle, large and crowded memory."""
    _starts(workshop, report)
    idle_kib = _idle(workshop)
    report.state("S12", "memory, idle, empty store", "MiB", [idle_kib / 1024])
    large_kib = _large(workshop) - idle_kib
    report.state(
        "S12",
        f"memory added by {workshop.scale.large_store:,} messages",
        "MiB",
        [large_kib / 1024],
        figure_at_most(25, "≤ +25 MiB"),
    )
    tools.sdk_memory(workshop, report)
    _linked(workshop, report, idle_kib)
    count = workshop.scale.sessions
    each_kib = _crowded(workshop, count)
    report.state(
        "S12",
        f"memory added by each of {count} sessions",
        "KiB",
        [each_kib],
        figure_at_most(100, "≤ +100 KiB"),
    )


def _starts(workshop: Workshop, report: Report) -> None:
    new_home: list[tuple[float, float]] = []
    used_home: list[tuple[float, float]] = []
    for number in workshop.rounds():
        workshop.say(f"S12 round {number + 1}")
        for _ in range(workshop.scale.starts):
            daemon = Daemon(workshop.home())
            imports_ms = _imports_ms(daemon)
            new_home.append((daemon.start() * 1_000, imports_ms))
            daemon.stop()
            used_home.append((daemon.start() * 1_000, imports_ms))
            daemon.stop()
    floor_is = "a process that imports the same modules"
    report.compare("S12", "ready from cold, new home", "ms", new_home, floor_is, at_most(2))
    report.compare("S12", "ready from cold, home of before", "ms", used_home, floor_is, at_most(2))


def _imports_ms(daemon: Daemon) -> float:
    argv = [sys.executable, "-I", "-c", _IMPORTS]
    took_s, process, _ = time_to_first_line(argv, environment(daemon.home))
    process.wait()
    return took_s * 1_000


def _idle(workshop: Workshop) -> int:
    with Daemon(workshop.home()) as daemon:
        line = Line.of_session(daemon.socket)
        register(line, stores.READER)
        _read(line)
        line.close()
        return daemon.rss_kib()


def _large(workshop: Workshop) -> int:
    with Daemon(stores.copy_of_large(workshop)) as daemon:
        line = Line.of_session(daemon.socket)
        line.call("identity.claim", name=stores.READER)
        _read(line)
        line.close()
        return daemon.rss_kib()


def _linked(workshop: Workshop, report: Report, idle_kib: int) -> None:
    """What the first link brings (the network is loaded), and what each further one does."""
    rss_kib, most = {}, workshop.scale.links
    for count in (1, most):
        with ExitStack() as open_now:
            hub, others = hosts.star(workshop, count)
            for daemon in (hub, *others):
                open_now.enter_context(daemon)
            line = Line.of_session(hub.socket)
            register(line, stores.READER)
            hosts.wait_until_linked(line, count)
            _read(line)
            rss_kib[count] = hub.rss_kib()
            line.close()
    first_mib = (rss_kib[1] - idle_kib) / 1024
    report.state("S12", "memory added by a first link", "MiB", [first_mib])
    each_kib = (rss_kib[most] - rss_kib[1]) / (most - 1)
    report.state("S12", f"memory added by each link up to {most}", "KiB", [each_kib])


def _read(line: Line) -> None:
    for _ in range(_READS):
        line.call("mail.inbox")
        line.call("session.whoami")


def _crowded(workshop: Workshop, count: int) -> float:
    """KiB that each of `count` processes adds which hold an identity and an open connection."""
    with Daemon(workshop.home()) as daemon:
        line = Line.of_session(daemon.socket)
        before_kib = daemon.rss_kib()
        with ExitStack() as holders:
            for name in names("bench", count):
                holders.enter_context(holder(daemon.socket, name))
            added_kib = daemon.rss_kib() - before_kib
        line.close()
        return added_kib / count
