"""S13: what a daemon costs on which nobody calls, with sessions and links and without."""

import time
from contextlib import ExitStack
from typing import Final

from benchmarks import hosts
from benchmarks.report import Report, figure_at_most
from benchmarks.wire import Line
from benchmarks.workshop import Daemon, Workshop, holder, names

_SETTLING: Final = 10
"""It rests for a tenth of the time before that is measured."""


def run(workshop: Workshop, report: Report) -> None:
    """Both daemons over the same time, in which one round of housekeeping falls."""
    scale = workshop.scale
    count, idle_s, links = scale.sessions, scale.idle_s, scale.links
    workshop.say(f"S13 for {idle_s:g} s")
    with Daemon(workshop.home()) as alone, ExitStack() as open_now:
        crowded, others = hosts.star(workshop, links)
        for daemon in (crowded, *others):
            open_now.enter_context(daemon)
        for name in names("bench", count):
            open_now.enter_context(holder(crowded.socket, name, "mail.watch"))
        line = Line.of_session(crowded.socket)
        hosts.wait_until_linked(line, links)
        line.close()
        time.sleep(idle_s / _SETTLING)
        watched = (alone, crowded, others[0])
        before = [daemon.cpu_s() for daemon in watched]
        begun = time.perf_counter()
        time.sleep(idle_s)
        passed_s = time.perf_counter() - begun
        shares = [
            (daemon.cpu_s() - spent_s) / passed_s * 100
            for daemon, spent_s in zip(watched, before, strict=True)
        ]
    note = f"over {idle_s:g} s; alone {shares[0]:.2f} %, with one link {shares[2]:.2f} %"
    what = f"CPU of an idle daemon, {count} sessions that watch, {links} links"
    report.state("S13", what, "% of a core", [shares[1]], figure_at_most(0.5, "≤ 0.5 %"), note)
