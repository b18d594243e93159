"""One client of a contest for leases, as a program of its own: `python -I -S claimant.py …`.

It claims, releases, registers, sends and reads as its seed says, and writes one line of JSON before
each call and one after each return, with the steady clock of the machine, so that a killed client
leaves a call without return. It learns from standard input that a daemon is there again (a point)
or that the contest is over (its end), and tells of each ten calls by one byte on standard output.

Nothing of mbx is used: bytes go in and lines come out.
"""

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
_REFUSED: Final = ("code", "holds", "holder", "identity", "epoch", "granted_epoch", "before")
"""What the journal keeps of a refusal."""


class Gone(Exception):
    """The daemon hung up, or nobody listens."""


class Caller:
    """One connection to the daemon, and the journal of what was asked and heard on it."""

    told: tuple[str, ...] = ("agent", "released", "epoch", "id", "lease", "lost", "pending")
    """What the journal keeps of an answer."""

    def __init__(self, path: str, journal_path: str, session: str = "") -> None:
        """`session`: the conversation that it says it is; none: it says nothing."""
        self.path = path
        self.session = session
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        self.journal = os.open(journal_path, flags, 0o600)
        self.socket: socket.socket | None = None
        self.received = b""
        self.heard = bytearray()
        """What standard input said and nobody attended to yet."""
        self.calls = 0

    # -- the one who started it -----------------------------------------------------------------

    def next_word(self) -> str:
        """The next byte of standard input. SystemExit at its end."""
        while not self.heard:
            self.heard += os.read(0, 64) or sys.exit(0)
        return chr(self.heard.pop(0))

    def is_over(self) -> bool:
        """Whether standard input has ended; points that came for nothing are dropped."""
        ready, _, _ = select.select([0], [], [], 0)
        return bool(ready) and os.read(0, 64) == b""

    # -- calls ----------------------------------------------------------------------------------

    def tell(self, method: str, params: dict[str, Any], **more: object) -> dict[str, Any]:
        """One call with its two lines in the journal. Raises Gone, once there is a daemon again."""
        self.calls += 1
        now = time.monotonic_ns()
        self.note(call=self.calls, method=method, params=more or params, t=now)
        try:
            answer = self.ask(method, params)
        except Gone:
            self.note(back=self.calls, outcome="unknown", t=time.monotonic_ns())
            self.connect()
            raise
        self.heard_back(answer)
        return answer

    def heard_back(self, answer: dict[str, Any]) -> None:
        """The line of an answer that has come now."""
        now = time.monotonic_ns()
        refused = "code" in answer
        told = _of(answer, _REFUSED if refused else self.told)
        self.note(back=self.calls, outcome="refused" if refused else "ok", result=told, t=now)

    def note(self, **line: object) -> None:
        """One line in one write: a kill cuts none."""
        os.write(self.journal, json.dumps(line).encode() + b"\n")

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
                self.arrive()
            except (OSError, Gone):
                while self.next_word() != ".":
                    pass
            else:
                return

    def arrive(self) -> None:
        """The first words on a connection: a conversation may get its own again by them."""
        since = time.monotonic_ns()
        self.note(hello=since)
        hello: dict[str, Any] = {"protocol": 1, "client": "claimant"}
        if self.session:
            hello["session"] = {"cli": "claude", "id": self.session}
        self.ask("hello", hello)
        told = _of(self.ask("session.whoami", {}), Caller.told)
        self.note(arrived=told, since=since, t=time.monotonic_ns())

    def say(self, method: str, params: dict[str, Any]) -> None:
        """Ask, and do not wait for the answer."""
        assert self.socket is not None
        message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        try:
            self.socket.sendall(json.dumps(message, separators=(",", ":")).encode() + b"\n")
        except OSError as error:
            raise Gone from error

    def hear(self) -> dict[str, Any]:
        """The result of what was asked, or the data of the error."""
        assert self.socket is not None
        try:
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

    def ask(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """One call and its result, or the data of the error."""
        self.say(method, params)
        return self.hear()


class Claimant(Caller):
    """A session, and what it believes to hold."""

    def __init__(self, path: str, journal_path: str, seed: str, session: str) -> None:
        super().__init__(path, journal_path, session)
        self.chance = random.Random(seed)
        self.holds: str | None = None
        self.lost = False
        """Told that somebody else has what it held; it goes on for a while as if nothing were."""

    def run(self) -> None:
        """Until standard input ends."""
        self.connect()
        while not self.is_over():
            self.step()
            if self.calls % CALLS_A_SIGN == 0:
                os.write(1, b".")

    def step(self) -> None:
        """One call, and what is believed after it."""
        method, params = self.wish()
        try:
            answer = self.tell(method, params)
        except Gone:
            self.holds, self.lost = None, False
            return
        code = answer.get("code")
        if code in {"no-lease", "lease-lost"}:
            self.holds, self.lost = None, code == "lease-lost"
        elif code == "conflict":
            self.holds, self.lost = answer.get("holds"), False
        elif code is None and method in {"identity.claim", "identity.register", "session.whoami"}:
            self.holds, self.lost = answer["agent"], bool(answer.get("lost"))
        elif code is None and method == "identity.release":
            self.holds = None

    def wish(self) -> tuple[str, dict[str, Any]]:
        """What a client may want: who holds something mostly uses it and gives it back."""
        name, drawn = self.chance.choice(NAMES), self.chance.random()
        body = f"{os.getpid()} {self.calls + 1}"
        letter = {"to": [name], "subject": "s", "body": body}
        busy = self.holds is not None or self.lost
        if drawn < (0.40 if busy else 0.04):
            return "mail.send", letter
        if drawn < (0.46 if busy else 0.06):
            return "mail.inbox", {"limit": 1}
        if drawn < (0.52 if busy else 0.08):
            return "session.whoami", {}
        if drawn < (0.78 if busy else 0.11):
            return "identity.release", {}
        if drawn < 0.88 and self.holds:
            return "identity.claim", {"name": self.holds}
        if drawn < 0.15:
            return "identity.register", {"name": name, "role": "dev"}
        return "identity.claim", {"name": name}


def _of(answer: dict[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    return {name: answer[name] for name in names if name in answer}


if __name__ == "__main__":
    Claimant(*sys.argv[1:5]).run()
