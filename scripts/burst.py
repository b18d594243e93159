#!/usr/bin/env python3
"""A careless sender: writes messages as fast as the daemon takes them, until the daemon is gone.

    burst.py TO NAME REPORT

It repeats nothing. REPORT (a FIFO) gets a line for each message whose fate is known:
``accepted KEY ID``, and at the end one for each that was written and not answered: ``unknown KEY``.
The subject of each message is its key. Exit status: 0 when the daemon ended, 1 when it did not.
"""

import os
import sys
import time
from typing import Final

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.realpath(__file__))))

from mbx.client import hello_params
from mbx.paths import Paths
from mbx.wire import Connection, ConnectionLost, encode, request

IN_FLIGHT: Final = 16
MESSAGES_MAX: Final = 20_000
"""It ends when the daemon is killed; so many messages without a kill are a failure."""
_DEADLINE_S: Final = 60.0


class Burst:
    """One connection, `IN_FLIGHT` messages on the way at any time."""

    def __init__(self, connection: Connection, to: str, name: str, report: int) -> None:
        self._connection = connection
        self._to = to
        self._name = name
        self._report = report
        self._deadline = time.monotonic() + _DEADLINE_S
        self.waiting: dict[int, str] = {}
        self.written = 0

    def say_hello(self, paths: Paths) -> None:
        """The first line of every connection."""
        hello = request(0, "hello", hello_params(paths, os.environ))
        self._connection.send(encode(hello), self._deadline)
        if "error" in self._connection.receive(self._deadline):
            raise SystemExit("the daemon refused our hello")

    def until_it_ends(self) -> bool:
        """Send until the connection is lost; False when it never is."""
        try:
            while self.written < MESSAGES_MAX:
                while len(self.waiting) < IN_FLIGHT:
                    self._send()
                self._take_answer()
        except ConnectionLost:
            return True
        return False

    def _send(self) -> None:
        self.written += 1
        key = f"{self._name}-{self.written:05d}"
        self.waiting[self.written] = key
        params = {"to": [self._to], "subject": key, "body": key, "key": key}
        line = encode(request(self.written, "mail.send", params))
        self._connection.send(line, self._deadline)

    def _take_answer(self) -> None:
        answer = self._connection.receive(self._deadline)
        if "error" in answer:
            raise SystemExit(f"refused: {answer['error']['message']}")
        key = self.waiting.pop(answer["id"])
        self.tell(f"accepted {key} {answer['result']['id']}")

    def tell(self, line: str) -> None:
        """Report one line at once."""
        os.write(self._report, line.encode() + b"\n")


def main(to: str, name: str, report_path: str) -> int:
    """Send until the daemon ends, then say what is not known."""
    paths = Paths.from_environ(os.environ)
    report = os.open(report_path, os.O_WRONLY)
    deadline = time.monotonic() + _DEADLINE_S
    burst = Burst(Connection.open(paths.socket_path(), time.monotonic, deadline), to, name, report)
    burst.say_hello(paths)
    ended = burst.until_it_ends()
    for key in burst.waiting.values():
        burst.tell(f"unknown {key}")
    answered = burst.written - len(burst.waiting)
    print(f"written {burst.written}, accepted {answered}, unknown {len(burst.waiting)}")
    print("the daemon is gone" if ended else "the daemon never ended")
    return 0 if ended else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
