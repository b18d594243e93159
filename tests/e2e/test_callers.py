"""Who a caller is, for each kind of caller, with real processes: the session found by the walk."""

import json
import os
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.daemon import MBX, Daemon, fresh_name
from tests.support.shells import BASH, Console, Finished, Shell, TmuxPane, look_alike

PLAIN = ("--norc", "--noprofile")


@pytest.fixture(scope="module")
def env(daemon: Daemon) -> dict[str, str]:
    """What a user's shell has: the command on the PATH."""
    path = f"{Path(MBX).parent}:{daemon.environment['PATH']}"
    return daemon.environment | {"PATH": path}


@pytest.fixture
def shell(env: dict[str, str]) -> Iterator[Shell]:
    with Shell(env=env) as started:
        yield started


def document(done: Finished) -> dict[str, Any]:
    """The JSON that a command printed."""
    assert done.out, done.err
    told = json.loads(done.out)
    assert isinstance(told, dict)
    return told


def register(console: Console) -> str:
    """Make the console's shell hold a new identity."""
    name = fresh_name()
    done = console.run(f"mbx identity register {name} --role tester --json")
    assert done.status == 0, done.out + done.err
    return name


def whoami(console: Console, command: str = "mbx whoami --json") -> tuple[str | None, str | None]:
    """(identity, cli of the session) as a command in this shell is told."""
    told = document(console.run(command))
    return told["agent"], told["session"] and told["session"]["cli"]


# -- everything below a shell is that shell's -----------------------------------------------------

BELOW = {
    "typed": "mbx whoami --json",
    "script": "printf 'x=1\\nmbx whoami --json\\nx=2\\n' >$DIR/s.sh; bash $DIR/s.sh",
    "executable script": (
        "printf '#!/bin/sh\\nmbx whoami --json\\n:\\n' >$DIR/e; chmod +x $DIR/e; $DIR/e"
    ),
    "script of a script": 'sh -c \'bash -c "dash -c \\"mbx whoami --json; :\\"; :"; :\'',
    "last command of a shell": "bash -c 'true; mbx whoami --json'",
    "pipe": "echo x | mbx whoami --json | cat",
    "substitution": 'told=$(mbx whoami --json); echo "$told"',
    "nested substitution": 'told=$(echo "$(mbx whoami --json)"); echo "$told"',
    "subshell": "( ( mbx whoami --json; : ); : )",
    "background": "mbx whoami --json & wait",
    "exec in a subshell": "(exec mbx whoami --json)",
    "setsid": "setsid --wait mbx whoami --json",
    "setsid of a shell": "setsid --wait sh -c 'mbx whoami --json; :'",
    "nohup": "nohup mbx whoami --json",
    "env": "env FOO=1 nice timeout 20 mbx whoami --json",
    "xargs": "echo whoami --json | xargs mbx",
    "another interpreter": f"{sys.executable} -c \"import os; os.system('mbx whoami --json')\"",
    "a shell typed in the shell": "bash --norc --noprofile -c 'mbx whoami --json; exit'",
}


@pytest.mark.parametrize("command", BELOW.values(), ids=BELOW.keys())
def test_a_command_below_a_shell_acts_under_its_lease(command: str, shell: Shell) -> None:
    name = register(shell)
    assert whoami(shell, command.replace("$DIR", str(shell.folder))) == (name, "shell")


def test_a_substitution_and_a_script_can_claim_for_what_holds_them(shell: Shell) -> None:
    name = fresh_name()
    asked = f"told=$(mbx identity register {name} --role tester --json); echo $told"
    assert document(shell.run(asked))["agent"] == name
    assert whoami(shell)[0] == name, "a forked subshell is no shell of its own"
    shell.run("mbx identity release")
    script = f"bash -c 'mbx identity claim {name} --json; mbx whoami --json >&2'"
    done = shell.run(script)
    assert document(done)["agent"] == name
    assert json.loads(done.err)["agent"] == name
    assert whoami(shell)[0] is None, "a script is a shell of its own, and has ended"


def test_two_shells_are_two_sessions_and_neither_acts_for_the_other(
    shell: Shell, env: dict[str, str]
) -> None:
    name = register(shell)
    with Shell(env=env) as other:
        assert whoami(other) == (None, "shell")
        done = other.run("mbx inbox --json")
        assert (done.status, document(done)["error"]["code"]) == (5, "no-lease")
        done = other.run(f"mbx identity claim {name} --json")
        error = document(done)["error"]
        assert (done.status, error["code"]) == (1, "in-use")
        assert error["holder"]["session"].split("-")[0].endswith(str(shell.pid))
        register(other)
    assert whoami(shell)[0] == name


def test_a_terminal_makes_no_difference(env: dict[str, str]) -> None:
    with Shell([*BASH, "-i"], env=env, tty=True) as typed:
        assert whoami(typed)[1] == "shell"
        name = register(typed)
        assert whoami(typed, "echo | mbx whoami --json | cat")[0] == name


# -- agent CLIs -----------------------------------------------------------------------------------


def test_a_nested_harness_is_a_session_of_its_own(shell: Shell, tmp_path: Path) -> None:
    name = register(shell)
    claude = look_alike(tmp_path, "claude")
    codex = look_alike(tmp_path, "codex")
    inner = fresh_name()
    steps = f"mbx identity register {inner} --role tester --json >&2; mbx whoami --json"
    done = shell.run(f"{claude} {shlex.join((*PLAIN, '-c', steps + '; :'))}")
    told = document(done)
    assert (told["agent"], told["session"]["cli"]) == (inner, "claude")
    deeper = f"{codex} --norc --noprofile -c 'mbx whoami --json; :'; :"
    told = document(shell.run(f"{claude} {shlex.join((*PLAIN, '-c', deeper))}"))
    assert (told["agent"], told["session"]["cli"]) == (None, "codex")
    assert whoami(shell) == (name, "shell")


def test_commands_shells_and_detached_tools_of_a_harness_share_its_session(
    env: dict[str, str], tmp_path: Path
) -> None:
    with Shell([str(look_alike(tmp_path, "claude")), *PLAIN], env=env) as harness:
        name = register(harness)
        for command in (
            "mbx whoami --json",
            "bash -c 'mbx whoami --json; :'",
            "bash -i -c 'mbx whoami --json; :' 2>/dev/null",
            "setsid --wait bash -c 'mbx whoami --json; :'",
            "told=$(mbx whoami --json); echo $told",
        ):
            assert whoami(harness, command) == (name, "claude")


def test_what_a_caller_says_of_itself_never_skips_the_walk(
    shell: Shell, env: dict[str, str], tmp_path: Path
) -> None:
    claude = str(look_alike(tmp_path, "claude"))
    with Shell([claude, *PLAIN], env=env) as harness:
        name = register(harness)
        session = document(harness.run("mbx whoami --json"))["session"]
    said = f"MBX_CLI=claude MBX_SESSION={session['id']} MBX_AGENT={name} MBX_ROLE=tester"
    assert whoami(shell, f"{said} mbx whoami --json")[1] == "shell"
    done = shell.run(f"{said} mbx inbox --json")
    assert (done.status, document(done)["error"]["code"]) == (5, "no-lease")


# -- above which nothing is looked for ------------------------------------------------------------


@pytest.mark.skipif(not TmuxPane.is_available(), reason="tmux is not installed")
def test_each_pane_of_tmux_is_a_session_of_its_own(
    shell: Shell, env: dict[str, str], tmp_path: Path
) -> None:
    register(shell)
    with TmuxPane(env=env) as pane:
        assert whoami(pane) == (None, "shell")
        name = register(pane)
        assert whoami(pane, "told=$(mbx whoami --json); echo $told")[0] == name
        seen = tmp_path / "seen"
        pane.tmux("new-window", "-d", f"mbx whoami --json >{seen}; tmux wait-for -S told")
        pane.tmux("wait-for", "told")
        assert json.loads(seen.read_text())["agent"] is None
        assert whoami(pane)[0] == name


@pytest.mark.parametrize("gate", ["sshd", "su", "login", "screen"])
def test_a_login_below_an_agent_cli_is_a_session_of_its_own(
    gate: str, env: dict[str, str], tmp_path: Path
) -> None:
    claude, door = look_alike(tmp_path, "claude"), look_alike(tmp_path, gate)
    with Shell([str(claude), *PLAIN], env=env) as console:
        outer = register(console)
        console.type_line(f"{door} --norc --noprofile")
        console.type_line("(exec -a -bash bash --norc --noprofile)")
        assert whoami(console) == (None, "shell")
        name = register(console)
        assert whoami(console, "sh -c 'mbx whoami --json; :'") == (name, "shell")
        console.type_line("exit")
        console.type_line("exit")
        assert whoami(console) == (outer, "claude")


def test_a_cron_job_holds_an_identity_through_its_shell_and_loses_it_at_its_end(
    daemon: Daemon, env: dict[str, str], tmp_path: Path
) -> None:
    name = fresh_name()
    with Shell([str(look_alike(tmp_path, "cron")), *PLAIN], env=env) as cron:
        assert whoami(cron) == (None, None), "cron itself is no session"
        job = f"mbx identity register {name} --role tester --json >&2; mbx whoami --json; :"
        assert whoami(cron, f"sh -c {shlex.quote(job)}") == (name, "shell")
        done = cron.run("mbx inbox --json")
        error = document(done)["error"]
        assert (done.status, error["code"]) == (5, "no-lease")
        assert error["next"].startswith("mbx run")
    with daemon.line() as line:
        line.hello()
        assert line.call("identity.show", name=name)["claimable"] is True


def test_a_program_without_a_shell_has_no_session(daemon: Daemon) -> None:
    with daemon.agent() as service, service.bare() as line:
        line.hello()
        told = line.call("session.whoami")
        assert (told["session"], told["next"]) == (None, "mbx run --as NAME -- COMMAND")
        for method, params in (
            ("identity.register", {"name": fresh_name(), "role": "tester"}),
            ("identity.claim", {"name": fresh_name()}),
            ("mail.inbox", {}),
        ):
            refused = line.refusal(method, **params)
            assert (refused["code"], refused["next"]) == (
                "no-lease",
                "mbx run --as NAME -- COMMAND",
            )


def test_the_test_itself_is_nobodys_shell(shell: Shell) -> None:
    """Whatever started the tests, the shells here are below none of it."""
    parent = int(Path(f"/proc/{shell.pid}/stat").read_text().rpartition(")")[2].split()[1])
    assert parent not in (os.getpid(), os.getppid())
