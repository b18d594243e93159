"""`mbx run`: an identity for a command, its signals and its exit status passed through."""

import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import mbx.run
from tests.cli.conftest import MBX, Desk, document


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desk]:
    """One installation for this module."""
    desk = Desk(tmp_path_factory.mktemp("desk") / "home")
    yield desk
    desk.close()


def run(desk: Desk, *arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(MBX), "run", *arguments],
        env=desk.env | env,
        capture_output=True,
        text=True,
        check=False,
        timeout=15,
        stdin=subprocess.DEVNULL,
    )


def state(desk: Desk, name: str) -> str:
    import json

    found: str = json.loads(desk.run("identity", "show", name, "--json").stdout)["state"]
    return found


def test_the_command_acts_as_the_identity_which_is_free_again_afterwards(desk: Desk) -> None:
    done = run(desk, "--as", "nightly", "--role", "ci", "--", "sh", "-c", "mbx whoami; exit 7")
    assert (done.returncode, done.stderr) == (7, "")
    assert done.stdout.startswith("nightly@")
    assert state(desk, "nightly") == "free"


def test_the_launch_time_pair_registers_and_claims(desk: Desk) -> None:
    done = run(desk, "--", "mbx", "whoami", MBX_AGENT="launched", MBX_ROLE="ci")
    assert done.stdout.startswith("launched@")


def test_a_name_on_the_command_line_does_not_borrow_the_role_of_another(desk: Desk) -> None:
    done = run(desk, "--as", "typo", "--", "true", MBX_AGENT="other", MBX_ROLE="ci")
    assert (done.returncode, done.stdout) == (3, "")
    assert "error: " in done.stderr


def test_the_command_does_not_inherit_another_conversation(desk: Desk) -> None:
    show = "import os; print(sorted(n for n in os.environ if n.startswith('MBX_')))"
    done = run(
        desk,
        *("--as", "clean", "--role", "ci", "--", sys.executable, "-c", show),
        MBX_CLI="claude",
        MBX_SESSION="s",
        MBX_AGENT="x",
        MBX_ROLE="y",
    )
    assert done.stdout == "['MBX_HOME']\n"


@pytest.mark.parametrize(
    ("command", "status"),
    [
        (("sh", "-c", "exit 0"), 0),
        (("sh", "-c", "exit 255"), 255),
        (("sh", "-c", "kill -TERM $$"), 128 + 15),
        (("sh", "-c", "kill -KILL $$"), 128 + 9),
        (("no-such-command-at-all",), 127),
        (("",), 2),
        (("/etc/passwd",), 126),
        (("/",), 126),
    ],
)
def test_the_exit_status_is_that_of_the_command(
    desk: Desk, command: tuple[str, ...], status: int
) -> None:
    done = run(desk, "--as", "codes", "--role", "ci", "--", *command)
    assert done.returncode == status
    if status != 2:  # what cannot be a command is refused before anything is held
        assert state(desk, "codes") == "free"
    if status in (2, 126, 127):
        assert done.stderr.startswith("error: ")


def test_options_behind_the_command_are_the_commands_own(desk: Desk) -> None:
    done = run(desk, "--as", "codes", "--role", "ci", "echo", "--as", "-h", "--json", "--", "x")
    assert done.stdout == "--as -h --json -- x\n"


def test_bytes_that_are_no_text_reach_the_command_unchanged(desk: Desk) -> None:
    done = subprocess.run(
        [str(MBX), "run", "--as", "codes", "--role", "ci", "--", "printf", "%s", b"a\xff\xc3"],
        env=desk.env,
        capture_output=True,
        check=True,
        timeout=15,
    )
    assert done.stdout == b"a\xff\xc3"


def test_a_held_identity_is_refused_and_the_command_does_not_run(
    desk: Desk, tmp_path: Path
) -> None:
    desk.shell("held")
    done = run(desk, "--as", "held", "--", "touch", str(tmp_path / "ran"))
    assert done.returncode == 1
    assert not (tmp_path / "ran").exists()


def test_it_is_a_session_of_its_own_below_another_holder(desk: Desk) -> None:
    outer = desk.shell("outer")
    done = outer.run("mbx run --as inner --role ci -- mbx whoami --json")
    assert document(done)["agent"] == "inner"
    assert document(outer.run("mbx whoami --json"))["agent"] == "outer"


def test_the_command_starts_with_a_clean_mask_and_without_pythons_ignored_signals(
    desk: Desk,
) -> None:
    done = run(desk, "--as", "codes", "--role", "ci", "--", "grep", "^Sig[BI]", "/proc/self/status")
    fields = dict(line.split() for line in done.stdout.splitlines())
    assert int(fields["SigBlk:"], 16) == 0
    assert int(fields["SigIgn:"], 16) & (1 << (signal.SIGPIPE - 1)) == 0


# --- signals -------------------------------------------------------------------------------------

WRAPPER = (str(MBX), "run", "--as")
COUNTING = """
import os, signal, sys
def count(number, frame):
    os.write(1, b"%d\\n" % number)
for name in ("SIGTERM", "SIGHUP", "SIGINT", "SIGQUIT", "SIGUSR1", "SIGUSR2"):
    signal.signal(getattr(signal, name), count)
os.write(1, b"ready\\n")
while True:
    line = sys.stdin.readline()
    if line:
        os.write(1, line.encode())
    if line.strip() == "end":
        sys.exit(3)
"""


class Held:
    """A counting command under `mbx run`, in a session of its own."""

    def __init__(self, desk: Desk, name: str) -> None:
        self.process = subprocess.Popen(
            [*WRAPPER, name, "--role", "ci", "--", sys.executable, "-u", "-c", COUNTING],
            env=desk.env,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        assert self.line() == "ready"

    def line(self) -> str:
        """The next line that the command writes."""
        assert self.process.stdout is not None
        ready, _, _ = select.select([self.process.stdout], [], [], 15)
        assert ready, "the command is silent"
        return self.process.stdout.readline().decode().strip()

    def say(self, word: str) -> None:
        """Write a line to the command, which it repeats."""
        assert self.process.stdin is not None
        self.process.stdin.write(word.encode() + b"\n")
        self.process.stdin.flush()

    def end(self) -> int:
        """Let the command end; the status of the wrapper."""
        self.say("end")
        assert self.line() == "end"
        self.process.communicate(timeout=15)
        return self.process.returncode


@pytest.mark.parametrize(
    "number",
    [
        signal.SIGTERM,
        signal.SIGHUP,
        signal.SIGINT,
        signal.SIGQUIT,
        signal.SIGUSR1,
        signal.SIGUSR2,
    ],
)
def test_a_signal_to_the_wrapper_reaches_the_command_once(desk: Desk, number: int) -> None:
    held = Held(desk, "signalled")
    held.process.send_signal(number)
    assert held.line() == str(number)
    held.say("once")
    assert held.line() == "once"
    assert held.end() == 3
    assert state(desk, "signalled") == "free"


def test_an_interrupt_from_the_terminal_reaches_the_command_once(desk: Desk) -> None:
    import pty

    outer, inner = pty.openpty()
    reading, writing = os.pipe()
    starter = (
        "import fcntl, os, sys, termios; os.setsid(); fcntl.ioctl(0, termios.TIOCSCTTY, 0);"
        "os.execvp(sys.argv[1], sys.argv[1:])"
    )
    typing = (sys.executable, "-c", starter)
    process = subprocess.Popen(
        [*typing, *WRAPPER, "typist", "--role", "ci", "--", sys.executable, "-u", "-c", COUNTING],
        env=desk.env,
        stdin=inner,
        stdout=writing,
    )
    os.close(inner)
    os.close(writing)
    with os.fdopen(reading) as said:
        assert said.readline() == "ready\n"
        os.write(outer, b"\x03")
        assert said.readline() == f"{signal.SIGINT}\n"
        os.write(outer, b"once\n")
        assert said.readline() == "once\n"
        os.write(outer, b"end\n")
        assert said.readline() == "end\n"
    assert process.wait(15) == 3
    os.close(outer)


def test_a_killed_wrapper_frees_the_identity(desk: Desk) -> None:
    held = Held(desk, "killed")
    assert state(desk, "killed") == "held"
    held.process.kill()
    held.process.wait(15)
    assert document(desk.bare().run("mbx identity show killed --json"))["claimable"] is True
    held.say("end")
    held.process.communicate(timeout=15)


def test_a_daemon_that_was_killed_meanwhile_does_not_change_the_exit_status(
    tmp_path: Path,
) -> None:
    own = Desk(tmp_path / "home")
    try:
        held = Held(own, "lasting")
        os.kill(own.status()["pid"], signal.SIGKILL)
        assert held.end() == 3
        assert state(own, "lasting") == "free"
    finally:
        own.close()


def test_the_statuses_are_those_of_posix_shells() -> None:
    assert (mbx.run.NOT_EXECUTABLE, mbx.run.NOT_FOUND, mbx.run.SIGNAL_BASE) == (126, 127, 128)
