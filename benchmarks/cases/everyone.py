"""S15: one send to ``*`` against as many sends of S1 as would reach the same."""

import statistics
from typing import Final

from benchmarks import wire
from benchmarks.cases.send import connected
from benchmarks.mail import RECIPIENTS, Sends
from benchmarks.report import Report, at_least
from benchmarks.wire import Line
from benchmarks.workshop import Daemon, Workshop, names, register_and_release

_CLIENTS: Final = 64
_SENDER: Final = "bench-load"


def run(workshop: Workshop, report: Report) -> None:
    """Deliveries a second until the last answer: one client to ``*``, and 64 to one each."""
    scale, pairs, latencies = workshop.scale, list[tuple[float, float]](), list[float]()
    with Daemon(workshop.home()) as daemon:
        lines = connected(daemon, _CLIENTS)
        lines[0].call("identity.release")
        register_and_release(lines[0], names("bench-crowd", scale.everyone - len(RECIPIENTS)))
        lines[0].call("identity.claim", name=_SENDER)
        single, everyone = Sends("single"), Sends("everyone", ("*",))
        _check(lines[0], scale.everyone)
        wire.drive(lines, single.take(_CLIENTS))
        for number in workshop.rounds():
            workshop.say(f"S15 round {number + 1}")
            alone = wire.drive(lines[:1], everyone.take(scale.broadcasts))
            wire.wait_until_indexed(lines[0])
            many = wire.drive(lines, single.take(scale.sends[_CLIENTS]))
            wire.wait_until_indexed(lines[0])
            reached = scale.broadcasts * scale.everyone
            pairs.append((reached / alone.seconds, scale.sends[_CLIENTS] / many.seconds))
            latencies += alone.latencies_s
        for line in lines:
            line.close()
    note = f"p50 of a send to all of them {statistics.median(latencies) * 1_000:.1f} ms"
    what = f"deliveries of sends to *, {scale.everyone} identities, 1 client"
    floor_is = f"sends of S1 with {_CLIENTS} clients"
    report.compare("S15", what, "1/s", pairs, floor_is, at_least(3), note)


def _check(line: Line, wanted: int) -> None:
    sent = line.call("mail.send", to=["*"], subject="all", body="of you", key="0198f2c4-7b1e-all")
    if len(sent["recipients"]) != wanted:
        raise RuntimeError(f"* reaches {len(sent['recipients'])} identities, not {wanted}")
