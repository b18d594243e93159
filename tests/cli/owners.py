"""The owner in front of a terminal: types the word that is asked for, and the passphrase."""

import subprocess
from pathlib import Path
from typing import Any, Final

from mbx.core.errors import EXIT_STATUS
from mbx.owner import keyfile
from tests.cli.conftest import Desk, document
from tests.support.seat import Screen
from tests.support.shells import Finished, Shell

PASSPHRASE: Final = "seven quiet otters"
SEED: Final = b"\x02" * 32
SEALED: Final = keyfile.seal(SEED, PASSPHRASE.encode(), bytes(28), n=keyfile.N_MIN)


class Human:
    """Somebody at a terminal of their own, who knows the passphrase."""

    def __init__(self, desk: Desk) -> None:
        self.desk = desk
        self.shell = Shell(env=desk.env, cwd=desk.home.parent, tty=True)
        self.screen = Screen(self.shell.keyboard)

    @property
    def key_path(self) -> Path:
        return self.desk.home / "owner.key"

    def run(self, command: str) -> Finished:
        return self.shell.run(command)

    def asked(self) -> str:
        """The word that is to be typed."""
        self.screen.expect("Type ")
        return self.screen.expect(" to agree")

    def agree(self) -> str:
        """Type the word that is asked for; what was shown before."""
        shown = self.screen.expect("Type ")
        self.screen.type(self.screen.expect(" to agree") + "\n")
        return shown

    def choose(self, passphrase: str = PASSPHRASE) -> None:
        self.screen.answer("New passphrase", passphrase)
        self.screen.answer("The same again:", passphrase)

    def sign(self, command: str) -> Finished:
        """Run a command that needs the signature, agree, and give the passphrase."""
        self.shell.start(command)
        self.agree()
        self.screen.answer("Passphrase:", PASSPHRASE)
        return self.shell.finish()

    def shows(self) -> dict[str, Any]:
        return document(self.run("mbx owner show --json"))

    def enroll(self) -> None:
        """Make a cheap key known: as after an interrupted init."""
        self.desk.home.mkdir(mode=0o700, exist_ok=True)
        keyfile.create(str(self.key_path), SEALED)
        done = self.sign("mbx owner init")
        assert done.status == 0, done.err


def refused(done: Finished | subprocess.CompletedProcess[str], code: str) -> str:
    """What a refused command said; nothing of it is a trace, or a secret."""
    status, err = (
        (done.status, done.err) if isinstance(done, Finished) else (done.returncode, done.stderr)
    )
    assert status == EXIT_STATUS[code], err
    assert err.startswith("error: ")
    assert "\nnext: " in err
    assert PASSPHRASE not in err
    return err
