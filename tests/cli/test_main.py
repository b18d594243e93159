"""Every way in and out of the command that needs no daemon."""

import json
import os
import pkgutil
import signal
import socket
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import click
import pytest

import mbx.cli.commands.ack
import mbx.cli.commands.agents
import mbx.cli.commands.completion
import mbx.cli.commands.daemon
import mbx.cli.commands.identity
import mbx.cli.commands.inbox
import mbx.cli.commands.read
import mbx.cli.commands.reply
import mbx.cli.commands.run
import mbx.cli.commands.search
import mbx.cli.commands.send
import mbx.cli.commands.sent
import mbx.cli.commands.status
import mbx.cli.commands.thread
import mbx.cli.commands.version
import mbx.cli.commands.whoami
from mbx import __version__
from mbx.__main__ import main
from mbx.cli.main import COMMANDS, GROUPS, LazyGroup
from mbx.paths import Paths
from tests.cli.conftest import MBX
from tests.support.commandline import all_commands
from tests.support.peer import Peer, requests


def run(*arguments: str | bytes, home: Path, **how: Any) -> subprocess.CompletedProcess[bytes]:
    """`mbx ARGUMENTS` in an empty home."""
    environ = {"PATH": os.environ["PATH"], "MBX_HOME": str(home), **how.pop("env", {})}
    how = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | how
    kept: Any = subprocess.run([str(MBX), *arguments], env=environ, check=False, timeout=15, **how)
    done: subprocess.CompletedProcess[bytes] = kept
    return done


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


# --- the table -----------------------------------------------------------------------------------


def test_the_table_says_what_the_commands_say_of_themselves() -> None:
    own = {name.removeprefix("mbx "): command.short_help for name, command, _ in all_commands()}
    assert own == {name: line for name, (_, line) in COMMANDS.items()}


def test_each_command_is_called_as_the_table_calls_it() -> None:
    names = {name.split(" ")[-1]: command.name for name, command, _ in all_commands()}
    assert names == {name: name for name in names}


def test_the_lines_of_the_table_fit_beside_the_names() -> None:
    lines = [line for _, line in COMMANDS.values()] + list(GROUPS.values())
    assert all(line.endswith(".") and len(line) <= 70 for line in lines)


def test_a_command_in_help_examples_is_one_that_exists() -> None:
    names = {name for name, _, _ in all_commands()}
    for name, command, _ in all_commands():
        for line in command.examples.strip().splitlines():
            assert any(known in line for known in names), f"{name}: {line}"


# --- help and usage ------------------------------------------------------------------------------


@pytest.mark.parametrize("option", ["--help", "-h"])
def test_help_lists_every_command_and_ends_well(home: Path, option: str) -> None:
    done = run(option, home=home)
    assert (done.returncode, done.stderr) == (0, b"")
    for name, (_, line) in COMMANDS.items():
        if " " not in name:
            assert f"{name} " in done.stdout.decode()
            assert line in " ".join(done.stdout.decode().split())


def test_help_behind_the_end_of_options_is_not_help(home: Path) -> None:
    done = run("version", "--", "--help", home=home)
    assert (done.returncode, done.stdout) == (2, b"")


@pytest.mark.parametrize(
    "arguments",
    [
        ("nonsense",),
        ("identity", "nonsense"),
        ("--nonsense",),
        ("send",),
        ("send", "--to", "a", "--subject", "s"),
        ("send", "--to", "a", "--subject", "s", "-m", "a", "-"),
        ("send", "--to", "a", "--subject", "s", "-m", "a", "b"),
        ("read",),
        ("read", "--raw", "a", "b"),
        ("inbox", "--limit", "x"),
        ("thread",),
        ("search",),
        ("search", "--limit", "x", "y"),
        ("agents", "--nonsense"),
        ("completion",),
        ("completion", "csh"),
        ("identity", "rename"),
        ("identity", "set"),
        ("identity", "set", "--card", "x", "--card-file", "y"),
        ("ack", "--did"),
        ("run",),
        ("run", "--as", "x"),
        ("version", "x"),
    ],
)
@pytest.mark.parametrize("form", [(), ("--json",)], ids=["text", "json"])
def test_bad_usage_is_told_in_two_lines_or_one_document(
    home: Path, arguments: tuple[str, ...], form: tuple[str, ...]
) -> None:
    done = run(*arguments, *form, home=home)
    assert done.returncode == 2
    if form:
        error = json.loads(done.stdout)["error"]
        assert (error["code"], done.stderr) == ("usage", b"")
        assert error["next"]
    else:
        lines = done.stderr.decode().splitlines()
        assert [line.split(": ")[0] for line in lines] == ["error", "next"]
        assert done.stdout == b""
    assert not home.exists()


def test_a_mistyped_command_is_answered_with_near_names(home: Path) -> None:
    assert b"Did you mean inbox?" in run("inbx", home=home).stderr
    told = run("identity", "registr", home=home).stderr
    assert b"Did you mean register" in told, told


def test_json_as_a_value_or_behind_the_end_of_options_is_no_wish_for_json(home: Path) -> None:
    assert run("run", "--as", "x", "--bad", "--", "--json", home=home).stdout == b""


def test_the_version_needs_no_daemon(home: Path) -> None:
    assert run("version", "--json", home=home).stdout == (
        f'{{"version":"{__version__}","protocol":1}}\n'.encode()
    )
    assert run("--version", home=home).stdout == f"mbx {__version__}\n".encode()
    assert not home.exists()


def test_python_can_run_the_package(home: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-I", "-m", "mbx", "version"],
        env={"MBX_HOME": str(home)},
        capture_output=True,
        check=True,
        timeout=15,
    )
    assert done.stdout.startswith(b"mbx ")


# --- odd surroundings ----------------------------------------------------------------------------


def test_undecodable_arguments_are_refused_with_their_place(home: Path) -> None:
    done = run("send", "--to", "a", "--subject", b"ab\xff", "-m", "x", home=home)
    assert done.returncode == 2
    assert b"argument 5 is not UTF-8: byte 0xff at offset 2" in done.stderr
    done = run("identity", "show", b"\xed\xa0\x80", "--json", home=home)
    assert json.loads(done.stdout)["error"]["code"] == "usage"
    assert not home.exists()


@pytest.mark.parametrize(
    "locale",
    [
        {"LC_ALL": "C"},
        {"LC_ALL": "POSIX", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"},
        {"LC_ALL": "C", "PYTHONIOENCODING": "ascii"},
        {},
    ],
)
@pytest.mark.parametrize(
    "arguments", [("--help",), ("send", "--help"), ("identity", "show", "ü", "x")]
)
def test_help_and_errors_print_under_any_locale(
    home: Path, locale: dict[str, str], arguments: tuple[str, ...]
) -> None:
    done = run(*arguments, home=home, env=locale)
    assert done.returncode == (2 if "x" in arguments else 0)
    assert b"Traceback" not in done.stderr
    assert b"UnicodeEncodeError" not in done.stderr


@pytest.mark.parametrize("arguments", [("--help",), ("version",), ("nonsense", "--json")])
def test_a_closed_pipe_ends_quietly(home: Path, arguments: tuple[str, ...]) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    done = run(*arguments, home=home, stdout=writing)
    os.close(writing)
    assert done.stderr == b""
    assert done.returncode == (2 if "nonsense" in arguments else 0)


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
@pytest.mark.parametrize("arguments", [["version"], ["--help"], ["nonsense"]], ids=" ".join)
def test_closed_standard_streams_do_no_harm(home: Path, closed: str, arguments: list[str]) -> None:
    done = subprocess.run(
        ["sh", "-c", f'"$@" {closed}', "sh", str(MBX), *arguments],
        env={"PATH": os.environ["PATH"], "MBX_HOME": str(home)},
        capture_output=True,
        check=False,
        timeout=15,
    )
    assert done.returncode == (2 if "nonsense" in arguments else 0)
    assert b"Traceback" not in done.stderr


@pytest.mark.parametrize("argument", ["version", "--version", "--help"])
def test_a_full_disk_under_the_output_is_told(home: Path, argument: str) -> None:
    with open("/dev/full", "wb") as full:
        done = run(argument, home=home, stdout=full)
    assert done.returncode == 1
    assert done.stderr == b"error: cannot write the output: No space left on device\n"


def test_an_interrupt_ends_quietly(home: Path) -> None:
    def interrupt(connection: socket.socket) -> None:
        requests(connection)
        pid, _, _ = struct.unpack(
            "3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
        )
        os.kill(pid, signal.SIGINT)
        assert connection.recv(1) == b""

    with Peer(Paths(str(home), str(home / "run")), interrupt):
        done = run("inbox", home=home)
    assert (done.returncode, done.stdout, done.stderr) == (128 + signal.SIGINT, b"", b"")


@pytest.mark.parametrize("command", ["whoami", "daemon status", "daemon run", "doctor"])
def test_a_home_that_would_be_another_in_each_folder_is_refused(home: Path, command: str) -> None:
    home.mkdir(parents=True, exist_ok=True)
    for variable in ("MBX_HOME", "MBX_RUN"):
        done = subprocess.run(
            [MBX, *command.split()],
            env={**os.environ, "MBX_HOME": str(home / "h"), variable: "x"},
            cwd=home,
            capture_output=True,
            check=False,
            timeout=15,
        )
        assert done.returncode == (1 if command == "doctor" else 2)
        assert f"{variable} is relative".encode() in done.stderr + done.stdout
        assert os.listdir(home) == []


# --- the root group ------------------------------------------------------------------------------


@pytest.mark.parametrize("words", [[], ["identity"], ["owner"]])
def test_a_group_without_a_command_shows_its_help(home: Path, words: list[str]) -> None:
    """Not as a success: a script that forgot its command must not go on."""
    done = run(*words, home=home)
    told = run(*words, "--help", home=home)
    assert (done.returncode, done.stdout, told.returncode) == (2, b"", 0)
    assert done.stderr.strip() == told.stdout.strip()
    as_json = run(*words, "--json", home=home)
    assert as_json.returncode == 2
    assert json.loads(as_json.stdout)["error"]["code"] == "usage"


def test_groups_load_nothing_until_a_command_is_invoked(home: Path) -> None:
    program = (
        "import sys; from mbx.cli.main import run; run(['identity', '--help'])\n"
        "sys.exit(any(name.startswith('mbx.cli.commands') for name in sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, check=False, timeout=15
    )
    assert done.returncode == 0


def test_only_the_module_of_the_invoked_command_is_loaded(home: Path) -> None:
    program = (
        "import sys; from mbx.cli.main import run; run(['version'])\n"
        "print(*(n for n in sys.modules if n.startswith('mbx.cli.commands.')), file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, check=False, timeout=15
    )
    assert done.stderr == b"mbx.cli.commands.version\n"


def test_an_unknown_name_is_no_command() -> None:
    group = LazyGroup("x", "identity ")
    context = click.Context(group)
    assert group.get_command(context, "nonsense") is None
    below = [name.removeprefix("identity ") for name in COMMANDS if name.startswith("identity ")]
    assert group.list_commands(context) == below
    assert {"list", "claim", "takeover"} <= set(below)


def test_the_entry_gives_the_exit_status(monkeypatch: pytest.MonkeyPatch) -> None:
    import gc

    monkeypatch.setattr(sys, "argv", ["mbx", "nonsense"])
    try:
        assert main() == 2
    finally:
        gc.unfreeze()
        gc.enable()


def test_every_command_module_is_in_the_table() -> None:
    modules = {module.name for module in pkgutil.iter_modules(mbx.cli.commands.__path__)}
    assert {target.split(":")[0] for target, _ in COMMANDS.values()} == modules
