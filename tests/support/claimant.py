"""One client of a contest for leases, as a program of its own: `python -I -S claimant.py …`.

It claims, releases, registers and sends as its seed says, and writes one line of JSON before each
call and one after each return, with the steady clock of the machine, so that a killed client leaves
a call without return. It learns from standard input that a daemon is there again (one byte) or that
the contest is over (its end), and tells of each ten calls by one byte on standard output.

Nothing of mbx is used: bytes go in and lines come out.
"""

import contextlib
import json
import os
import random
import select
import socket
import sys
import time
from typing import Any, Final

NAMES: Final = ("ada", "ben", "cleo")
CALLS_A_SIGN: Final = 10
TIMEOUT_S: Final = 20.0


class Gone(Exception):
    """The daemon hung up, or nobody listens."""


class Claimant:
    """A session with one connection, and the journal of what it asked and heard."""

    def __init__(self, path: str, journal_path: str, seed: str) -> None:
        self.path = path
        self.chance = random.Random(seed)
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        self.journal = os.open(journal_path, flags, 0o600)
        self.socket: socket.socket | None = None
        self.received = b""
        self.holds: str | None = None
        self.calls = 0

    def run(self) -> None:
        """Until standard input ends."""
        self.note(session=self.session())
        while not self.is_over():
            self.step()
            if self.calls % CALLS_A_SIGN == 0:
                os.write(1, b".")

    def session(self) -> dict[str, str]:
        """Whose the calls are."""
        while True:
            self.connect()
            with contextlib.suppress(Gone):
                own: dict[str, str] = self.ask("session.whoami", {})["session"]
                return own

    def is_over(self) -> bool:
        ready, _, _ = select.select([0], [], [], 0)
        return bool(ready) and os.read(0, 64) == b""

    def step(self) -> None:
        """One call, with its two lines in the journal."""
        method, params = self.wish()
        self.calls += 1
        self.note(call=self.calls, method=method, params=params, t=time.monotonic_ns())
        try:
            answer = self.ask(method, params)
        except Gone:
            self.note(back=self.calls, outcome="unknown", t=time.monotonic_ns())
            self.holds = None
            self.connect()
            return
        now = time.monotonic_ns()
        if "code" in answer:
            self.note(back=self.calls, outcome="refused", code=answer["code"], t=now)
            if answer["code"] in {"no-lease", "lease-lost"}:
                self.holds = None
            elif answer["code"] == "conflict":
                self.holds = answer.get("holds")
            return
        told = {k: answer[k] for k in ("agent", "released", "epoch", "id") if k in answer}
        self.note(back=self.calls, outcome="ok", result=told, t=now)
        self.holds = None if method == "identity.release" else told.get("agent", self.holds)

    def wish(self) -> tuple[str, dict[str, Any]]:
        """What a client may want: who holds something mostly uses it and gives it back."""
        name, drawn = self.chance.choice(NAMES), self.chance.random()
        letter = {"to": [name], "subject": "s", "body": f"from {os.getpid()}"}
        if drawn < (0.45 if self.holds else 0.05):
            return "mail.send", letter
        if drawn < (0.80 if self.holds else 0.10):
            return "identity.release", {}
        if drawn < 0.90 and self.holds:
            return "identity.claim", {"name": self.holds}
        if drawn < 0.15:
            return "identity.register", {"name": name, "role": "dev"}
        return "identity.claim", {"name": name}

    # -- the wire -------------------------------------------------------------------------------

    def connect(self) -> None:
        """Say hello to the daemon of now; wait to be told of one while there is none."""
        while True:
            if self.socket is not None:
                self.socket.close()
            self.socket, self.received = socket.socket(socket.AF_UNIX), b""
            self.socket.settimeout(TIMEOUT_S)
            try:
                self.socket.connect(self.path)
                self.ask("hello", {"protocol": 1, "client": "claimant"})
            except (OSError, Gone):
                if os.read(0, 64) == b"":
                    sys.exit(0)
            else:
                return

    def ask(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """One call and its result, or the data of the error."""
        assert self.socket is not None
        message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        try:
            self.socket.sendall(json.dumps(message, separators=(",", ":")).encode() + b"\n")
            while b"\n" not in self.received:
                piece = self.socket.recv(65_536)
                if not piece:
                    raise Gone
                self.received += piece
        except OSError as error:
            raise Gone from error
        line, _, self.received = self.received.partition(b"\n")
        answer: dict[str, Any] = json.loads(line)
        told: dict[str, Any] = answer["error"]["data"] if "error" in answer else answer["result"]
        return told

    def note(self, **line: object) -> None:
        """One line in one write: a kill cuts none."""
        os.write(self.journal, json.dumps(line).encode() + b"\n")


if __name__ == "__main__":
    Claimant(*sys.argv[1:4]).run()
