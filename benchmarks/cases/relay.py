"""S6: mail that waits for another host, until its signed receipts are back and settled."""

import time
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Final

from benchmarks import hosts, wire
from benchmarks.floors import InsertFloor, verify_s
from benchmarks.mail import RECIPIENTS, Sends
from benchmarks.report import Report, at_least
from benchmarks.wire import Line
from benchmarks.workshop import Daemon, Workshop, register, register_and_release

HERE: Final = "desk"
THERE: Final = "lap"
ADDRESSES: Final = tuple(f"{name}@{THERE}" for name in RECIPIENTS)
_CLIENTS: Final = 8
_GROUP: Final = 64
_WARM_UP: Final = 64
_FLOOR_IS: Final = "the slower of: verification, raw insert in groups of 64"


@dataclass(frozen=True, slots=True)
class _Relayed:
    """One round: messages a second, and the processor time of both daemons each."""

    per_s: float
    here_us: float
    there_us: float


def run(workshop: Workshop, report: Report) -> None:
    """The host of the recipients is started while all the mail waits; it dials at once."""
    rounds, floors, count = [], [], workshop.scale.relayed
    insert = InsertFloor(workshop.home() / "floor.db")
    insert.insert_s(_WARM_UP, _GROUP, is_relayed=True)
    with ExitStack() as open_now:
        here, there = paired(workshop)
        open_now.enter_context(here)
        there.start()
        lines = [Line.of_session(here.socket) for _ in range(_CLIENTS)]
        known_to_each_other(lines[0], there)
        there.stop()
        sends = Sends("relay", ADDRESSES)
        for number in workshop.rounds():
            workshop.say(f"S6 round {number + 1}")
            wire.drive(lines, sends.take(count))
            wire.wait_until_indexed(lines[0])
            rounds.append(_relay(here, there, lines[0], count))
            floors.append((verify_s(min(count, 1_000)), _insert_s(insert, count)))
        _check_receipts(lines[0])
        for line in lines:
            line.close()
    insert.close()
    pairs = [(one.per_s, 1 / max(floor)) for one, floor in zip(rounds, floors, strict=True)]
    verify_us, insert_us = (sum(part) / len(part) * 1e6 for part in zip(*floors, strict=True))
    here_us = sum(one.here_us for one in rounds) / len(rounds)
    there_us = sum(one.there_us for one in rounds) / len(rounds)
    note = (
        f"floor: verify {verify_us:.0f} µs, insert {insert_us:.0f} µs; CPU each: sender's daemon"
        f" {here_us:.0f} µs, recipient's {there_us:.0f} µs; from its start on"
    )
    what = f"relay of {count:,} messages, receipts back and settled"
    report.compare("S6", what, "1/s", pairs, _FLOOR_IS, at_least(0.60), note)


def paired(workshop: Workshop) -> tuple[Daemon, Daemon]:
    """Daemons of the sender's and of the recipients' host, which is the one that dials."""
    one, other = (workshop.home() for _ in range(2))
    made = [hosts.prepare(one, HERE), hosts.prepare(other, THERE)]
    if made[0].row.key_id < made[1].row.key_id:
        # The smaller key id dials at once, the other only after a while: let it be the recipients'.
        made = [hosts.prepare(other, HERE), hosts.prepare(one, THERE)]
    here, there = made
    hosts.pair(there, here)
    return Daemon(here.folder), Daemon(there.folder)


def known_to_each_other(here: Line, there: Daemon) -> None:
    """This process holds an identity here, the recipients are there, and this host knows of it."""
    register(here, "bench-load")
    line = Line.of_session(there.socket)
    register_and_release(line, RECIPIENTS)
    hosts.wait_until_known(here, ADDRESSES)
    hosts.wait_until_settled(here, line, (HERE, THERE))
    line.close()


def _relay(here: Daemon, there: Daemon, line: Line, count: int) -> _Relayed:
    """Start the other daemon; until nothing is under way any more."""
    spent_s = here.cpu_s()
    there.start()
    begun, begun_s = time.perf_counter(), there.cpu_s()
    other = Line.of_session(there.socket)
    hosts.wait_until_settled(line, other, (HERE, THERE))
    seconds = time.perf_counter() - begun
    here_us = (here.cpu_s() - spent_s) / count * 1e6
    there_us = (there.cpu_s() - begun_s) / count * 1e6
    wire.wait_until_indexed(other)
    other.close()
    there.stop()
    return _Relayed(count / seconds, here_us, there_us)


def _insert_s(insert: InsertFloor, count: int) -> float:
    return insert.insert_s(count, _GROUP, is_relayed=True)


def _check_receipts(line: Line) -> None:
    """The newest messages are what their recipients' host says: in the mailbox there."""
    for message in line.call("mail.sent")["messages"]:
        states = [copy["stage"] for copy in message["recipients"]]
        if states != ["delivered"]:
            raise RuntimeError(f"a relayed message is {states}")
