"""What users of the command meet first: its weight, its help, its exit codes."""

import ast
import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from mbx.core.errors import EXIT_STATUS
from tests.support.commandline import all_commands, needs_command
from tests.support.rules import MBX, dotted

# Each of these costs a light command more than all that it needs (DESIGN 3.2, SPEED).
HEAVY = set(
    "aiosqlite asyncio cryptography mcp orjson pathlib rich sqlite3 uvloop websockets".split()
)

# The contract: code -> exit status. It may grow; nothing in it may change.
CONTRACT = {
    2: "usage",
    3: "not-found unknown-identity unknown-recipient",
    4: "ambiguous",
    5: "no-lease lease-lost lease-foreign",
    6: "daemon-unreachable sandboxed version-mismatch",
    75: "outcome-unknown",
    1: "in-use name-taken name-invalid body-too-large text-invalid too-many idempotency-conflict "
    "closed conflict policy-denied owner-required owner-locked not-paired peer-refused queue-full "
    "disk-full store-damaged rate-limited",
}

# Runs the command as its console script does, then tells which modules it has loaded.
WEIGH = """
import sys
before = set(sys.modules)
report, sys.argv = sys.argv[1], ["mbx", *sys.argv[2:]]
from mbx.__main__ import main
status = 0
try:
    status = main()
except SystemExit as end:
    status = end.code
with open(report, "w") as file:
    file.write("\\n".join(set(sys.modules) - before))
sys.exit(status)
"""

HEAD = {
    "id": "0123456789abcdefghjkmnpqrs",
    "from": "ana@desk",
    "subject": "A subject",
    "kind": "message",
    "at": "2026-01-02T03:04:05.678Z",
    "thread": "0123456789abcdefghjkmnpqrs",
    "needs_reply": False,
    "stage": "delivered",
    "progress": "open",
    "trust": "local",
    "policy": "ask",
    "bytes": 12,
    "attachments": 0,
}

# What a daemon says to the two commands: the objects of the contract.
ANSWERS: dict[str, dict[str, Any]] = {
    "hello": {"protocol": 1, "version": "0.1.0", "host": "desk"},
    "session.whoami": {
        "agent": "ana",
        "address": "ana@desk",
        "identity": "0123456789abcdefghjkmnpqrs",
        "role": "builder",
        "description": "",
        "project": None,
        "session": {"cli": "shell", "id": "shell:1-1"},
        "lease": {"epoch": 1, "since": "2026-01-02T03:04:05.678Z", "expires_in_s": 1800},
        "unread": 1,
        "missed": None,
        "pending": None,
        "policies": [],
        "external": False,
        "version": "0.1.0",
        "daemon_version": "0.1.0",
        "next": None,
    },
    "mail.inbox": {"messages": [HEAD], "unread": 1, "next_cursor": None, "has_more": False},
}


def answer(line: bytes) -> bytes:
    request = json.loads(line)
    result = ANSWERS[request["method"]]
    return json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": result}).encode() + b"\n"


@contextmanager
def other_side(run: Path) -> Iterator[None]:
    """A listener in the place of the daemon, that serves one connection from `ANSWERS`."""
    run.mkdir(mode=0o700)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(str(run / "mbx.sock"))
        (run / "mbx.sock").chmod(0o600)
        listener.listen(1)
        listener.settimeout(15)

        def serve() -> None:
            connection, _ = listener.accept()
            with connection, connection.makefile("rb") as lines:
                for line in lines:
                    connection.sendall(answer(line))

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield
        finally:
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as last:
                last.connect(str(run / "mbx.sock"))  # ends a wait for a caller that never came
            thread.join(timeout=15)


def clean_environment(home: Path) -> dict[str, str]:
    """Ours without what steers mbx, Python or the measuring of coverage."""
    foreign = ("MBX_", "PYTHON", "COV_", "COVERAGE_")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(foreign)}
    return kept | {"MBX_HOME": str(home), "HOME": str(home)}


def weigh(home: Path, *arguments: str) -> tuple[subprocess.CompletedProcess[str], set[str]]:
    """Run `mbx ARGUMENTS`: how it ended, and the packages that it loaded beyond bare Python's."""
    report = home / "modules"
    done = subprocess.run(
        [sys.executable, "-I", "-c", WEIGH, str(report), *arguments],
        env=clean_environment(home),
        cwd=home,
        capture_output=True,
        text=True,
        timeout=15,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    loaded = report.read_text().split() if report.exists() else []
    return done, {name.split(".")[0] for name in loaded}


@pytest.fixture
def home(tmp_path: Path) -> Path:
    place = tmp_path / "home"
    place.mkdir(mode=0o700)
    return place


@needs_command
def test_help_loads_nothing_heavy_and_no_socket(home: Path) -> None:
    done, loaded = weigh(home, "--help")
    assert (done.returncode, done.stderr) == (0, "")
    assert "click" in loaded
    assert loaded & (HEAVY | {"socket"}) == set()


@needs_command
@pytest.mark.parametrize("arguments", [["whoami"], ["inbox"]], ids=" ".join)
@pytest.mark.parametrize("form", [[], ["--json"]], ids=["text", "json"])
def test_a_light_command_loads_nothing_heavy(
    home: Path, arguments: list[str], form: list[str]
) -> None:
    with other_side(home / "run"):
        done, loaded = weigh(home, *arguments, *form)
    assert (done.returncode, done.stderr) == (0, "")
    assert "ana@desk" in done.stdout
    assert loaded & HEAVY == set()


# `_json` is the C half of `json`, without its regular expressions.
HOOK_PARTS = {"mbx", "__future__", "_json", "gc"}
HOOK_HEAVY = HEAVY | set("click dataclasses enum functools hashlib json re socket typing".split())


def test_a_hook_below_its_script_loads_next_to_nothing(home: Path) -> None:
    words = ["--folder", str(home), "--own", "1-1", "--script"]
    done, loaded = weigh(home, "hook", "UserPromptSubmit", "--cli", "claude", *words)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert loaded - HOOK_PARTS == set()


@pytest.mark.parametrize(
    "arguments", [["hook", "Stop", "--cli", "codex"], ["statusline", "claude"]], ids=" ".join
)
def test_a_hook_and_a_status_line_load_nothing_heavy(home: Path, arguments: list[str]) -> None:
    done, loaded = weigh(home, *arguments)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert loaded & HOOK_HEAVY == set()


def test_a_hook_that_must_ask_the_daemon_loads_no_more_than_the_socket_and_json(home: Path) -> None:
    done, loaded = weigh(home, "hook", "SessionStart", "--cli", "claude")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert loaded & (HEAVY | {"click", "socket", "selectors", "hashlib", "dataclasses"}) == set()


def test_the_scale_shows_what_a_command_loads(home: Path) -> None:
    weighing = WEIGH.replace("from mbx.__main__ import main", "import sqlite3, pathlib; main = int")
    report = home / "modules"
    subprocess.run(
        [sys.executable, "-I", "-c", weighing, str(report)],
        env=clean_environment(home),
        check=True,
        timeout=15,
    )
    assert {"sqlite3", "pathlib"} <= set(report.read_text().split())


@needs_command
def test_every_command_has_help_with_an_example_of_itself() -> None:
    poor = [
        name
        for name, command, context in all_commands()
        if not command.help
        or not any(
            line.strip().removeprefix("$ ").startswith(name)
            for line in command.get_help(context).splitlines()
            if not line.startswith("Usage:")
        )
    ]
    assert poor == []


@needs_command
def test_every_option_says_what_it_is_for() -> None:
    silent = [
        f"{name} {parameter.opts[0]}"
        for name, command, _ in all_commands()
        for parameter in command.params
        if parameter.param_type_name == "option" and not parameter.help
    ]
    assert silent == []


@needs_command
def test_every_command_speaks_json() -> None:
    dumb = [
        name
        for name, command, _ in all_commands()
        if name != "mbx run" and "--json" not in {o for p in command.params for o in p.opts}
    ]
    assert dumb == []


@needs_command
def test_an_unknown_command_is_a_usage_error(home: Path) -> None:
    done, _ = weigh(home, "no-such-command")
    assert done.returncode == EXIT_STATUS["usage"]
    assert done.stdout == ""


def test_the_exit_codes_are_those_of_the_contract() -> None:
    promised = {code: status for status, codes in CONTRACT.items() for code in codes.split()}
    assert {code: EXIT_STATUS.get(code) for code in promised} == promised


def test_every_code_that_is_raised_is_in_the_table() -> None:
    raised = {
        node.args[0].value
        for module in MBX
        for node in module.nodes
        if isinstance(node, ast.Call)
        and dotted(node.func).split(".")[-1] == "MbxError"
        and node.args
        and isinstance(node.args[0], ast.Constant)
    }
    assert raised <= set(EXIT_STATUS)
