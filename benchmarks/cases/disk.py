"""S16: what a message takes on disk, once it was sent, indexed, read and acked."""

import os
from pathlib import Path
from typing import Final

from benchmarks import floors, wire
from benchmarks.mail import Sends
from benchmarks.report import Report, at_most
from benchmarks.wire import Line
from benchmarks.workshop import Daemon, Workshop, another_process, register, register_and_release

_READER: Final = "bench-reader"
_SIGNATURE_BYTES: Final = 64


def run(workshop: Workshop, report: Report) -> None:
    """Read and acked one by one (a receipt each), and by twenty."""
    count = workshop.scale.disk_messages
    envelope = len(floors.canonical(floors.payload(1, "0" * 32))) + _SIGNATURE_BYTES
    for together, goal in ((1, at_most(4)), (20, at_most(4))):
        workshop.say(f"S16 by {together}")
        sent, done = _bytes_a_message(workshop, count, together)
        note = f"before it was read and acked: {sent:,.0f} bytes"
        what = f"disk a message, read and acked by {together}"
        report.compare("S16", what, "bytes", [(done, envelope)], "the envelope", goal, note)


def _bytes_a_message(workshop: Workshop, count: int, together: int) -> tuple[float, float]:
    """(sent and indexed, read and acked too), each the growth of the file a message."""
    daemon = Daemon(workshop.home())
    daemon.start()
    line = Line.of_session(daemon.socket)
    register_and_release(line, [_READER])
    empty = _closed_bytes(daemon)
    with another_process(lambda _, __: _send(daemon.socket, count)):
        pass
    sent = _closed_bytes(daemon)
    line.close()
    line = Line.of_session(daemon.socket)
    line.call("identity.claim", name=_READER)
    _read_and_ack(line, together)
    line.close()
    done = _closed_bytes(daemon)
    daemon.stop()
    return (sent - empty) / count, (done - empty) / count


def _send(path: str, count: int) -> None:
    line = Line.of_session(path)
    register(line, "bench-sender")
    wire.drive([line], Sends("disk", (_READER,)).take(count))
    wire.wait_until_indexed(line)


def _read_and_ack(line: Line, together: int) -> None:
    number = 0
    while found := line.call("mail.inbox", limit=200)["messages"]:
        ids = [one["id"] for one in found]
        for first in range(0, len(ids), together):
            number += 1
            some = ids[first : first + together]
            line.call("mail.read", ids=some)
            line.call("mail.ack", ids=some, did="read it", key=f"0198f2c4-7b1e-ack-{number:012}")


def _closed_bytes(daemon: Daemon) -> int:
    """The size of the closed store: its log is in the file then."""
    daemon.stop()
    store = Path(daemon.home) / "store.db"
    size_bytes = os.stat(store).st_size
    daemon.start()
    return size_bytes
