"""`mbx run` holds an identity for a command, passes signals and status on, gives it back."""

import json
import shlex
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.daemon import MBX, Daemon, Line, NewHolder, fresh_home, fresh_name
from tests.support.patience import looks
from tests.support.shells import TIMEOUT_S, Shell, look_alike

PLAIN = ("--norc", "--noprofile")
WHOAMI = "mbx whoami --json; :"


@pytest.fixture(scope="module")
def env(daemon: Daemon) -> dict[str, str]:
    path = f"{Path(MBX).parent}:{daemon.environment['PATH']}"
    return daemon.environment | {"PATH": path}


@pytest.fixture
def line(daemon: Daemon) -> Iterator[Line]:
    with daemon.line() as connected:
        connected.hello()
        yield connected


def run(env: dict[str, str], *argv: str, **more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [MBX, "run", *argv],
        env=env | more,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )


def told(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    assert done.stdout, done.stderr
    document = json.loads(done.stdout)
    assert isinstance(document, dict)
    return document


def state(line: Line, name: str) -> str:
    return str(line.call("identity.show", name=name)["state"])


# -- exit statuses and the end --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("command", "status"),
    [
        (["true"], 0),
        (["false"], 1),
        (["sh", "-c", "exit 3"], 3),
        (["sh", "-c", "exit 255"], 255),
        (["sh", "-c", "kill -TERM $$"], 128 + signal.SIGTERM),
        (["sh", "-c", "kill -KILL $$"], 128 + signal.SIGKILL),
        (["/nonexistent/program"], 127),
        (["/etc"], 126),
    ],
)
def test_the_exit_status_of_the_command_comes_back_and_the_identity_is_free(
    command: list[str], status: int, env: dict[str, str], line: Line
) -> None:
    name = fresh_name()
    done = run(env, "--as", name, "--role", "ci", "--", *command)
    assert done.returncode == status, done.stderr
    assert state(line, name) == "free"


def test_the_command_gets_the_streams_and_arguments_as_they_are(env: dict[str, str]) -> None:
    script = 'cat; printf "[%s]" "$@"; echo err >&2'
    done = subprocess.run(
        [
            *(MBX, "run", "--as", fresh_name(), "--role", "ci", "--", "sh", "-c", script, "sh"),
            *("a b", "", "--json", "--as", "é\n"),
        ],
        env=env,
        input="stdin",
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=True,
    )
    assert done.stdout == "stdin[a b][][--json][--as][é\n]"
    assert done.stderr == "err\n"


@pytest.mark.parametrize(
    "number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGQUIT]
)
def test_a_signal_to_the_wrapper_reaches_the_command(
    number: signal.Signals, env: dict[str, str], line: Line
) -> None:
    name = fresh_name()
    trap = f"trap 'exit 7' {number.name.removeprefix('SIG')}; echo up; while read x; do :; done"
    with subprocess.Popen(
        [MBX, "run", "--as", name, "--role", "ci", "--", "bash", "-c", trap],
        env=env,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as wrapper:
        assert wrapper.stdout is not None
        try:
            assert wrapper.stdout.readline() == b"up\n"
            assert state(line, name) == "held"
            wrapper.send_signal(number)
            assert wrapper.wait(TIMEOUT_S) == 7
        finally:  # else leaving the block would wait for ever
            wrapper.kill()
    assert state(line, name) == "free"


def test_a_wrapper_that_is_killed_leaves_its_identity_claimable(
    env: dict[str, str], line: Line
) -> None:
    name = fresh_name()
    with subprocess.Popen(
        [MBX, "run", "--as", name, "--role", "ci", "--", "sh", "-c", "echo up; read x"],
        env=env,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as wrapper:
        assert wrapper.stdout is not None
        assert wrapper.stdout.readline() == b"up\n"
        wrapper.kill()
        wrapper.wait(TIMEOUT_S)
        for _ in looks():
            if state(line, name) == "lapsed":
                break
        assert line.call("identity.show", name=name)["claimable"] is True
        again = run(env, "--as", name, "--", "mbx", "whoami", "--json")
        assert told(again)["lease"]["epoch"] == 2


# -- whose session it is --------------------------------------------------------------------------


def test_everything_below_the_wrapper_acts_as_its_identity(
    env: dict[str, str], tmp_path: Path
) -> None:
    claude, codex = (str(look_alike(tmp_path, name)) for name in ("claude", "codex"))
    for command in (
        ["mbx", "whoami", "--json"],
        ["sh", "-c", WHOAMI],
        ["setsid", "--wait", "sh", "-c", f"echo | {WHOAMI}"],
        [claude, *PLAIN, "-c", WHOAMI],
        ["sh", "-c", f"{claude} --norc --noprofile -c '{WHOAMI}'; :"],
    ):
        name = fresh_name()
        document = told(run(env, "--as", name, "--role", "ci", "--", *command))
        assert (document["agent"], document["session"]["cli"]) == (name, "run")
    deeper = f"{codex} {shlex.join((*PLAIN, '-c', WHOAMI))}; :"
    document = told(
        run(env, "--as", fresh_name(), "--role", "ci", "--", claude, *PLAIN, "-c", deeper)
    )
    assert (document["agent"], document["session"]["cli"]) == (None, "codex")


def test_below_another_holder_the_wrapper_is_its_own_session(env: dict[str, str]) -> None:
    with Shell(env=env) as shell:
        outer, inner, innermost = fresh_name(), fresh_name(), fresh_name()
        assert shell.run(f"mbx identity register {outer} --role tester").status == 0
        done = shell.run(f"mbx run --as {inner} --role ci -- mbx whoami --json")
        assert json.loads(done.out)["agent"] == inner
        nested = f"mbx run --as {innermost} --role ci -- mbx whoami --json"
        done = shell.run(f"mbx run --as {inner} -- sh -c '{nested}; mbx whoami --json >&2'")
        assert json.loads(done.out)["agent"] == innermost
        assert json.loads(done.err)["agent"] == inner
        assert json.loads(shell.run("mbx whoami --json").out)["agent"] == outer


def test_the_command_may_give_the_identity_back_itself(env: dict[str, str], line: Line) -> None:
    name = fresh_name()
    done = run(env, "--as", name, "--role", "ci", "--", "sh", "-c", "mbx identity release; exit 4")
    assert (done.returncode, done.stderr) == (4, "")
    assert state(line, name) == "free"


@pytest.mark.parametrize("below", ["{}", "claude -c '{}; :'"], ids=["command", "agent"])
def test_what_runs_below_it_after_that_never_acts_as_a_holder_further_up(
    below: str, env: dict[str, str], tmp_path: Path
) -> None:
    look_alike(tmp_path, "claude")
    outer, inner = fresh_name("outer"), fresh_name("inner")
    command = f"mbx identity release >/dev/null; {below.format('mbx inbox; mbx whoami --json')}"
    held = f"mbx run --as {inner} --role dev -- sh -c {shlex.quote(command)}"
    path = f"{tmp_path}:{env['PATH']}"
    done = run(env, "--as", outer, "--role", "dev", "--", "sh", "-c", held, PATH=path)
    assert "this session holds no identity" in done.stderr
    who = told(done)
    assert (who["agent"], who["session"]["cli"]) == (None, "run")


def test_mail_can_be_sent_and_read_by_commands_below_it(env: dict[str, str]) -> None:
    name = fresh_name()
    script = (
        f"mbx send --to {name} --subject Hi -m hello --json >/dev/null &&"
        ' id=$(mbx inbox --json | sed \'s/.*"id":"\\([^"]*\\)".*/\\1/\') && mbx read --raw $id'
    )
    done = run(env, "--as", name, "--role", "ci", "--", "sh", "-c", script)
    assert (done.stdout, done.stderr, done.returncode) == ("hello", "", 0)


# -- refusals -------------------------------------------------------------------------------------


def test_the_environment_may_name_the_identity_and_the_command_does_not_inherit_it(
    env: dict[str, str],
) -> None:
    name = fresh_name()
    seen = "env | grep -c ^MBX_AGENT=; mbx whoami --json; :"
    done = run(env, "--", "sh", "-c", seen, MBX_AGENT=name, MBX_ROLE="ci")
    count, document = done.stdout.splitlines()
    assert (count, json.loads(document)["agent"]) == ("0", name)


def test_without_a_name_or_a_command_it_is_a_usage_error_and_nothing_runs(
    env: dict[str, str], tmp_path: Path
) -> None:
    mark = tmp_path / "ran"
    for argv in ([], ["--", "touch", str(mark)], ["--as", fresh_name()], ["--as", "x", "--"]):
        assert run(env, *argv).returncode == 2
    assert not mark.exists()


def test_when_the_identity_is_not_to_be_had_the_command_does_not_run(
    env: dict[str, str], tmp_path: Path, new_holder: NewHolder
) -> None:
    mark = tmp_path / "ran"
    taken, _ = new_holder()
    for name, status in ((taken, 1), (fresh_name(), 3), ("No Name", 1), ("owner", 1)):
        done = run(env, "--as", name, "--", "touch", str(mark))
        assert done.returncode == status, done.stderr
        assert done.stderr.startswith("error: ")
    assert not mark.exists()
    assert "held by a live session" in run(env, "--as", taken, "--", "true").stderr


def test_a_daemon_that_is_killed_meanwhile_is_started_again_for_the_release(
    env: dict[str, str],
) -> None:
    with fresh_home() as home, Daemon(home) as own:
        name = fresh_name()
        script = f"kill -9 {own.pid}; mbx whoami --json; :"
        argv = ("--as", name, "--role", "ci", "--", "sh", "-c", script)
        try:
            done = run(env, *argv, MBX_HOME=str(home))
            assert (told(done)["agent"], done.returncode, done.stderr) == (name, 0, "")
            shown = json.loads(own.mbx("identity", "show", name, "--json").stdout)
            assert shown["state"] == "free"
        finally:
            assert own.mbx("daemon", "stop").returncode == 0
