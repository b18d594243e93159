"""S9 and S10: hooks with nothing to say, hooks that print, and the status line."""

import contextlib
import json
import os
import shutil
import statistics
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from benchmarks.report import Report, at_most
from benchmarks.wire import Line
from benchmarks.workshop import Daemon, Workshop, environment, register
from mbx.hooks.scripts import scripts
from mbx.paths import Paths

_CLIENT: Final = Path(__file__).parent.parent / "client.py"
_WAIT_S: Final = 10.0


@dataclass(frozen=True, slots=True)
class _Program:
    """What is timed: its words, for which client, whether it prints, what is removed before.

    `event` is the file that it has as its standard input. `is_told_again`: its session is shown
    before each run what it was shown at first, since what was announced is shown no more.
    """

    argv: list[str]
    client: str = "quiet"
    speaks: bool = False
    remove: str = ""
    event: str = "event.json"
    is_told_again: bool = False


def run(workshop: Workshop, report: Report) -> None:
    """S9: scripts that find out by themselves that there is nothing to say, or say a line."""
    times = _times(workshop, "S9", ("sh", "silent", "line", "guard"))
    for what, name, most in (
        ("a hook with nothing to say for its session", "silent", 2.5),
        ("the status line", "line", 2.5),
        ("the guard, of a tool that writes a file elsewhere", "guard", 4),
    ):
        pairs = list(zip(times[name], times["sh"], strict=True))
        report.compare("S9", what, "ms", pairs, "sh -c :", at_most(most))


def run_printing(workshop: Workshop, report: Report) -> None:
    """S10: the script and the Python that it starts to say something."""
    times = _times(workshop, "S10", ("python", "prints"))
    pairs = list(zip(times["prints"], times["python"], strict=True))
    what = "a hook that reads its event and prints a line"
    report.compare("S10", what, "ms", pairs, "python -c pass", at_most(2))


def _times(workshop: Workshop, case: str, names: Sequence[str]) -> dict[str, list[float]]:
    """Milliseconds of programs below two processes of a client; mail waits for one of them."""
    home = workshop.home()
    paths = Paths.from_environ({"MBX_HOME": str(home)})
    (home / "bin").mkdir(mode=0o700)
    for script in scripts(paths):
        (home / "bin" / script.name).write_text(script.content)
    times: dict[str, list[float]] = defaultdict(list)
    with Daemon(home) as daemon, _client(daemon, "quiet") as quiet, _client(daemon, "busy") as busy:
        folder, clients = Path(paths.snapshots_dir()), {"quiet": quiet, "busy": busy}
        _send(daemon)
        _await(folder / busy.own, "busy: 1 unread")
        _await(folder / quiet.own, "mbx quiet")
        shown = (folder / busy.own).resolve()
        again = {str(shown): shown.read_text()}
        _write_events(home, shown.read_text().split("\n")[1])
        programs = _programs(home / "bin", folder / f"{busy.own}.told")
        if "prints" in names:  # the daemon has taken back what is shown once, before it is timed
            busy.ask(_asked(home, programs["prints"], again, 1))
            _await_other(shown, again[str(shown)])
        for number in workshop.rounds():
            workshop.say(f"{case} round {number + 1}")
            for name in names:
                program = programs[name]
                asked = _asked(home, program, again, workshop.scale.commands)
                seconds = clients[program.client].ask(asked)
                times[name].append(statistics.median(seconds) * 1_000)
    return times


def _asked(home: Path, program: _Program, again: dict[str, str], count: int) -> dict[str, Any]:
    """What `benchmarks/client.py` reads."""
    return {
        "argv": program.argv,
        "input": str(home / program.event),
        "output": str(home / "output"),
        "speaks": program.speaks,
        "remove": program.remove,
        "restore": again if program.is_told_again else {},
        "count": count,
    }


def _programs(folder: Path, told: Path) -> dict[str, _Program]:
    hook = ["sh", str(folder / "hook.sh"), "claude", "UserPromptSubmit"]
    line = ["sh", str(folder / "statusline.sh"), "claude"]
    guard = ["sh", str(folder / "hook.sh"), "claude", "PreToolUse"]
    return {
        "sh": _Program(["sh", "-c", ":"]),
        "python": _Program([sys.executable, "-c", "pass"]),
        "silent": _Program(hook),
        "guard": _Program(guard, event="tool.json"),
        "line": _Program(line, "busy", speaks=True),
        "prints": _Program(hook, "busy", speaks=True, remove=str(told), is_told_again=True),
    }


def _write_events(home: Path, called: str) -> None:
    """Of a session that is called so already: else the daemon would have to be told."""
    told = {"session_id": called, "cwd": str(home)}
    writing = {"file_path": "/etc/hosts", "content": 'print("x")\n' * 30}
    tool = {"tool_name": "Write", "tool_input": writing}
    (home / "event.json").write_text(json.dumps(told | {"prompt": "x" * 2_000}))
    (home / "tool.json").write_text(json.dumps(told | tool))


def _send(daemon: Daemon) -> None:
    line = Line.of_session(daemon.socket)
    register(line, "bench-person")
    line.call("mail.send", to=["busy"], subject="s", body="b", kind="request", key="k-1")
    line.close()


class _Client:
    """The other end of `benchmarks/client.py`."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process
        pid = self._read()["pid"]
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
        self.own = f"{pid}-{fields[19]}"

    def ask(self, asked: dict[str, Any]) -> list[float]:
        """Seconds of each run."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(asked) + "\n")
        self._process.stdin.flush()
        times: list[float] = self._read()
        return times

    def _read(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError("a client of the bench has ended")
        return json.loads(line)


@contextlib.contextmanager
def _client(daemon: Daemon, name: str) -> Iterator[_Client]:
    folder = daemon.home / f"cli-{name}"
    folder.mkdir()
    python = shutil.which("python3", path=os.defpath) or sys.executable
    (folder / "claude").symlink_to(python)
    process = subprocess.Popen(
        [str(folder / "claude"), "-I", str(_CLIENT), daemon.socket, name],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment(daemon.home),
    )
    with process:
        yield _Client(process)
        assert process.stdin is not None
        process.stdin.close()


def _await(path: Path, words: str) -> None:
    deadline = time.monotonic() + _WAIT_S
    while time.monotonic() < deadline:
        with contextlib.suppress(FileNotFoundError):
            if words in path.read_text():
                return
        time.sleep(0.01)
    raise RuntimeError(f"{path} does not say {words!r}")


def _await_other(path: Path, text: str) -> None:
    deadline = time.monotonic() + _WAIT_S
    while time.monotonic() < deadline:
        if path.read_text() != text:
            return
        time.sleep(0.01)
    raise RuntimeError(f"{path} stays as it was")
