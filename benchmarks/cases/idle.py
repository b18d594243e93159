"""S13: what a daemon costs on which nobody calls, with sessions and without."""

import time
from contextlib import ExitStack
from typing import Final

from benchmarks.report import Report, figure_at_most
from benchmarks.workshop import Daemon, Workshop, holder, names

_SETTLING: Final = 10
"""It rests for a tenth of the time before that is measured."""


def run(workshop: Workshop, report: Report) -> None:
    """Both daemons over the same time, in which one round of housekeeping falls."""
    count, idle_s = workshop.scale.sessions, workshop.scale.idle_s
    workshop.say(f"S13 for {idle_s:g} s")
    with Daemon(workshop.home()) as alone, Daemon(workshop.home()) as crowded, ExitStack() as held:
        for name in names("bench", count):
            held.enter_context(holder(crowded.socket, name, "mail.watch"))
        time.sleep(idle_s / _SETTLING)
        before = [daemon.cpu_s() for daemon in (alone, crowded)]
        begun = time.perf_counter()
        time.sleep(idle_s)
        passed_s = time.perf_counter() - begun
        shares = [
            (daemon.cpu_s() - spent_s) / passed_s * 100
            for daemon, spent_s in zip((alone, crowded), before, strict=True)
        ]
    note = f"over {idle_s:g} s; without a session {shares[0]:.2f} %; there are no links yet"
    what = f"CPU of an idle daemon, {count} sessions that watch"
    report.state("S13", what, "% of a core", shares[1:], figure_at_most(0.5, "≤ 0.5 %"), note)
