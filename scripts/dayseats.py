"""Where the sessions of a day sit: real processes on terminals of their own, of five looks.

An agent CLI is told by the name of its process, or of the script that its interpreter runs
(`mbx.core.evidence`). So `claude` and `codex` are links to bash, and `gemini` is a script below a
link called `node`. A `shell` is a plain bash, and `run` a bash below `mbx run`.
"""

import contextlib
import json
import os
import shlex
import shutil
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

from mbx.core.errors import EXIT_STATUS
from scripts.dayhistory import Session
from scripts.terminals import BASH, Terminal, TerminalError, bare_environment

Kind = Literal["claude", "codex", "gemini", "shell", "run"]
CLIENTS: Final = ("claude", "codex", "gemini")
"""The kinds that have conversations, which come back under the same id."""
KINDS: Final[dict[Kind, int]] = {"claude": 5, "codex": 4, "gemini": 4, "shell": 4, "run": 3}
"""How many of the twenty sessions are of each kind."""

_READER: Final = """\
eval "$PROMPT_COMMAND"
while IFS= read -r line; do eval "$line"; eval "$PROMPT_COMMAND"; done
"""
_STARTS_MAX: Final = 40
_PAUSE_S: Final = 0.1


@dataclass(frozen=True)
class Answer:
    """What one `mbx … --json` gave: exit status, document, and the error's code if it has one."""

    status: int
    document: dict[str, Any]

    @property
    def code(self) -> str:
        """The error's code; empty when there was none."""
        code: str = self.document.get("error", {}).get("code", "")
        return code


class Ground:
    """The folders of a day and the programs in them. `home` is the daemon's."""

    def __init__(self, work: Path) -> None:
        self.work = work
        self.home = work / "home"
        self._bin = work / "bin"
        self._bin.mkdir()
        bash = shutil.which("bash") or "/bin/bash"
        for name in ("claude", "codex", "node"):
            (self._bin / name).symlink_to(bash)
        self._gemini = work / "gemini-cli" / "bundle" / "gemini.js"
        self._gemini.parent.mkdir(parents=True)
        self._gemini.write_text(_READER)
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}"
        self.env = bare_environment(path, str(work), str(self.home))

    def argv(self, kind: Kind, name: str, role: str) -> Sequence[str]:
        """The program that looks like `kind`."""
        match kind:
            case "shell":
                return BASH
            case "run":
                return ("mbx", "run", "--as", name, "--role", role, "--", *BASH)
            case "gemini":
                return (str(self._bin / "node"), str(self._gemini))
            case _:
                return (str(self._bin / kind), *BASH[1:])


class Seat:
    """One session: a process of some look, which runs `mbx` commands as they are typed at it."""

    def __init__(
        self, ground: Ground, kind: Kind, name: str, role: str, conversation: str, *, wish: bool
    ) -> None:
        """`wish`: an agent CLI is named at its launch, as its owner's configuration would do."""
        self.kind = kind
        env = dict(ground.env)
        if kind in CLIENTS:
            env |= {"MBX_CLI": kind, "MBX_SESSION": conversation}
            if wish:
                env |= {"MBX_AGENT": name, "MBX_ROLE": role}
        self._terminal = _opened(env, str(ground.work), ground.argv(kind, name, role))
        # Else the shell would give up a command that slept with it, as a stopped job.
        self._terminal.run("set +m")
        self.session: Session = ("", "")

    @property
    def pid(self) -> int:
        """The holder process."""
        return self._terminal.pid

    def processes(self) -> list[int]:
        """All processes of this session."""
        return self._terminal.processes()

    def ask(self, *words: str) -> Answer:
        """Run ``mbx WORDS --json``. Raises TerminalError when the session ends first."""
        return _answer(self._terminal.run(shlex.join(["mbx", *words, "--json"])))

    def start(self, command: str) -> None:
        """Type a line of shell; `finish` waits for its end."""
        self._terminal.start(command)

    def finish(self) -> tuple[int, str]:
        """Exit status and output of the line that was typed. Raises TerminalError."""
        done = self._terminal.finish()
        return done.status, done.text

    def kill(self) -> None:
        """`kill -9` for all processes of the session."""
        self._terminal.kill()

    def close(self) -> None:
        """End it and give its terminal back."""
        self._terminal.close()


class NoDocumentError(Exception):
    """A command with --json said something that is no JSON document."""


def _answer(done: Any) -> Answer:
    lines = done.text.strip().splitlines()
    try:
        document = json.loads(lines[-1])
    except (IndexError, ValueError):
        raise NoDocumentError(f"exit {done.status}: {done.text[-300:]!r}") from None
    answer = Answer(done.status, document)
    if answer.code and EXIT_STATUS.get(answer.code) != done.status:
        raise NoDocumentError(f"exit {done.status} for {answer.code}")
    return answer


def _opened(env: dict[str, str], folder: str, argv: Sequence[str]) -> Terminal:
    """`mbx run` ends at once while the daemon has not yet seen that its forerunner died."""
    for _ in range(_STARTS_MAX):
        with contextlib.suppress(TerminalError):
            return Terminal(env, folder, argv=argv)
        time.sleep(_PAUSE_S)
    raise TerminalError(f"{shlex.join(argv)} does not start")


@contextlib.contextmanager
def asleep(pids: Sequence[int]) -> Iterator[None]:
    """All these processes stand still, as when the lid of a laptop is closed."""
    _signal(pids, signal.SIGSTOP)
    try:
        yield
    finally:
        _signal(pids, signal.SIGCONT)


def _signal(pids: Sequence[int], number: signal.Signals) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
