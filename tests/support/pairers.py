"""People who pair their hosts: each at a terminal of their own, before the real command."""

import os
import re
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from mbx.core.keys import SigningKey
from mbx.owner import keyfile
from scripts.ports import reserve_port
from tests.cli.conftest import Desk, document
from tests.cli.owners import PASSPHRASE, Human
from tests.support.human import Human as Raw
from tests.support.human import signed
from tests.support.patience import looks
from tests.support.shells import Finished

CODE: Final = re.compile(r"\b(?:[0-9A-Z]{4}-){6}[0-9A-Z]{4}\b")
DIGITS: Final = re.compile(r"\b\d{4} \d{4} \d{4}\b")
WRONG_CODE: Final = "0000-0000-0000-0000-0000-0000-0000"
"""Its check characters are right."""


class Person(Human):
    """Somebody who pairs the host of a desk with another."""

    port = 0

    def own(self, number: int) -> None:
        """Have an owner: the key of this number, sealed at little cost, known to the daemon."""
        seed = bytes([number]) * 32
        done = self.desk.run("daemon", "start")
        assert done.returncode == 0, done.stderr
        keyfile.create(
            str(self.key_path), keyfile.seal(seed, PASSPHRASE.encode(), bytes(28), n=keyfile.N_MIN)
        )
        key = SigningKey.from_seed(seed)
        with Raw(str(self.desk.home / "run" / "mbx.sock")) as raw, raw.line() as line:
            draft = line.call("owner.draft", act="rotate", public_key=key.public.hex())
            line.call("owner.enroll", record=signed(draft, key))

    def pair(self, options: str = "") -> str:
        """Begin as the inviter; the code."""
        self.port = self.port or reserve_port()
        self.shell.start(f"mbx pair --listen 127.0.0.1:{self.port} {options}")
        shown = self.screen.expect("Waiting for the other host")
        assert f"mbx join 127.0.0.1:{self.port}" in shown
        found = CODE.search(shown)
        assert found is not None, shown
        return found[0]

    def join(self, other: "Person", code: str, options: str = "") -> None:
        """Go to the other host."""
        self.shell.start(f"mbx join 127.0.0.1:{other.port} {options}")
        self.screen.answer("Code that the other host shows:", code)

    def compare(self) -> str:
        """The digits, once they are shown and asked about."""
        found = DIGITS.search(self.screen.expect("Does the other screen show the same?"))
        assert found is not None
        return found[0]

    def say(self, answer: str) -> None:
        """Type a line."""
        self.screen.type(answer + "\n")

    def sign_records(self, records: int = 1) -> list[str]:
        """Agree to the records and give the passphrase; what was shown of each."""
        shown = [self.agree() for _ in range(records)]
        self.screen.answer("Passphrase:", PASSPHRASE)
        return shown

    def says_yes_in_vain(self) -> Finished:
        """Agree to a pairing that is over; one who is not told in time signs a void record."""
        self.say("yes")
        for _ in looks():
            if self.shell.is_over():
                break
            if self.screen.shows("Type "):
                self.sign_records()
                break
        return self.shell.finish()

    def controls_no_jobs(self) -> None:
        """Whoever stops a command of this person's from now on: their shell waits for it."""
        self.shell.start("set +m")
        assert self.shell.finish().status == 0

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the command that runs in this person's shell, and to it alone."""
        children = Path(f"/proc/{self.shell.pid}/task/{self.shell.pid}/children").read_text()
        [child] = children.split()
        os.kill(int(child), number)

    def finish(self) -> Finished:
        """Wait for the end of the command."""
        return self.shell.finish()

    def peers(self) -> list[dict[str, Any]]:
        """The pairings that stand."""
        with Raw(str(self.desk.home / "run" / "mbx.sock")) as raw, raw.line() as line:
            return list(line.call("peers.list")["peers"])


@contextmanager
def person(folder: Path) -> Iterator[Person]:
    """Somebody at a desk of their own."""
    folder.mkdir()
    desk = Desk(folder / "home")
    made = Person(desk)
    try:
        yield made
    finally:
        made.shell.close()
        desk.close()


def told(done: Finished) -> dict[str, Any]:
    """The error that a command told with ``--json``."""
    error: dict[str, Any] = document(done)["error"]
    return error
