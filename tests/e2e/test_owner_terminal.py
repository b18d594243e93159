"""The owner's mail, from real terminals and from everything that is none of the owner's.

The commands are typed: by a human on a pty or in tmux, by a look-alike of an agent CLI, by what an
agent CLI starts to look like a human, by setsid and cron. Nobody else may read, ack, or change.
"""

import json
import shlex
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mbx.core.evidence import HARNESSES
from tests.support.daemon import MBX, Daemon, Line, fresh_name
from tests.support.shells import BASH, Console, Finished, Shell, TmuxPane, look_alike

needs_tmux = pytest.mark.skipif(not TmuxPane.is_available(), reason="tmux is not installed")
VERBS = ("inbox", "read", "ack")
ON_A_PTY = f"{sys.executable} -I -c 'import pty, sys; pty.spawn(sys.argv[1:])'"


@pytest.fixture(scope="module")
def env(daemon: Daemon) -> dict[str, str]:
    """What a user's shell has: the command on the PATH."""
    path = f"{Path(MBX).parent}:{daemon.environment['PATH']}"
    return daemon.environment | {"PATH": path}


@pytest.fixture
def terminal(env: dict[str, str]) -> Iterator[Shell]:
    with Shell(env=env, tty=True) as started:
        yield started


@pytest.fixture
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="owner-") as short:  # paths of sockets are limited
        yield Path(short)


@pytest.fixture
def asked(holder: tuple[str, Line]) -> str:
    """The id of a question to the owner that nobody has read."""
    _, line = holder
    letter = {"to": ["owner"], "kind": "decision", "subject": "Which port?", "body": "8081?\x07"}
    return str(line.call("mail.send", **letter)["id"])


def copy_of(line: Line, message_id: str) -> dict[str, Any]:
    """What its sender sees of the only copy of a message."""
    (message,) = line.call("mail.sent", id=message_id)["messages"]
    (copy,) = message["recipients"]
    assert isinstance(copy, dict)
    return copy


def document(done: Finished) -> dict[str, Any]:
    """The JSON that a command printed."""
    told = json.loads(done.out)
    assert isinstance(told, dict)
    return told


# -- the owner ------------------------------------------------------------------------------------


@pytest.fixture(params=["terminal", pytest.param("tmux", marks=needs_tmux)])
def console(request: pytest.FixtureRequest, env: dict[str, str]) -> Iterator[Console]:
    with Shell(env=env, tty=True) if request.param == "terminal" else TmuxPane(env=env) as started:
        yield started


def test_on_a_terminal_the_owner_reads_and_acks_and_the_sender_learns_it(
    console: Console, holder: tuple[str, Line], asked: str
) -> None:
    name, line = holder
    listed = document(console.run("mbx inbox --owner --limit 200 --json"))
    assert asked in [message["id"] for message in listed["messages"]]
    assert copy_of(line, asked)["stage"] == "delivered", "listing changes no state"
    shown = console.run("mbx inbox --owner --limit 200").out
    assert "Which port?" in shown
    assert shown.splitlines()[-1] == "next: mbx read --owner ID"
    read = console.run(f"mbx read --owner {asked[:12]}").out
    assert f"from {name}@" in read
    assert "| 8081?" in read, "the sender's words stand behind a gutter"
    assert "\x07" not in read
    assert copy_of(line, asked)["stage"] == "read"
    acked = document(console.run(f"mbx ack --owner {asked} --did 'took 8081' --json"))
    assert acked["acked"] == [asked]
    copy = copy_of(line, asked)
    assert (copy["stage"], copy["did"], copy["outcome"]) == ("acked", "took 8081", "acted")
    after = document(console.run("mbx inbox --owner --limit 200 --json"))
    assert asked not in [message["id"] for message in after["messages"]]


def test_the_owner_needs_no_lease_and_keeps_one_that_the_shell_has(
    terminal: Shell, asked: str
) -> None:
    assert terminal.run(f"mbx read --owner {asked} --raw").out == "8081?\x07"
    refused = document(terminal.run("mbx inbox --json"))
    assert refused["error"]["code"] == "no-lease", "the owner's terminal is no identity"
    name = fresh_name()
    assert terminal.run(f"mbx identity register {name} --role tester").status == 0
    assert terminal.run(f"mbx ack --owner {asked}").status == 0
    told = document(terminal.run("mbx whoami --json"))
    assert (told["agent"], told["unread"]) == (name, 0)
    assert document(terminal.run("mbx inbox --json"))["messages"] == []


def test_mbx_run_is_no_obstacle_by_itself(terminal: Shell) -> None:
    command = f"mbx run --as {fresh_name()} --role tester -- sh -c 'mbx inbox --owner --json; :'"
    done = terminal.run(command)
    assert "messages" in document(done)


def test_a_part_of_a_body_and_a_page_name_the_way_on_in_the_owners_mail(
    terminal: Shell, asked: str
) -> None:
    cut = terminal.run(f"mbx read --owner {asked} --max-bytes 4").out
    assert f"more: mbx read --owner {asked} --offset 4" in cut
    assert terminal.run("mbx inbox --owner --limit 1 --all").status == 0
    unknown = document(terminal.run("mbx read --owner zzzzzz --json"))["error"]
    assert (unknown["code"], unknown["next"]) == ("not-found", "mbx inbox --all --owner")


# -- everybody else -------------------------------------------------------------------------------


def calls(folder: Path, message_id: str) -> str:
    """Shell text that tries all three commands; their answers and statuses go to a file."""
    script = folder / "calls"
    tried = [f"mbx inbox --owner --json; echo $? >>{folder}/status"]
    tried += [
        f"mbx {verb} --owner {message_id} --json; echo $? >>{folder}/status" for verb in VERBS[1:]
    ]
    script.write_text("{\n" + "\n".join(tried) + f"\n}} >{folder}/told 2>{folder}/err </dev/null\n")
    return f"sh {script}"


def assert_refused(folder: Path, reason: str) -> None:
    """All three were refused for this reason, each with the next step."""
    told = [json.loads(row)["error"] for row in (folder / "told").read_text().splitlines()]
    assert [error["code"] for error in told] == ["owner-required"] * len(VERBS)
    for error in told:
        assert error["message"].startswith("only the owner's terminal may do this: ")
        assert reason in error["message"], error["message"]
        assert error["next"] == "type it in a terminal of your own, outside any agent CLI"
    assert (folder / "status").read_text().split() == ["1"] * len(VERBS)
    assert (folder / "err").read_text() == ""


def agent(folder: Path, text: str, cli: str) -> str:
    """Shell text that runs `text` in a look-alike of an agent CLI."""
    script = folder / f"{cli}-does"
    script.write_text(f"{text}\ntrue\n")
    return f"{look_alike(folder, cli)} {script}"


TMUX_BELOW = """
export TMUX_TMPDIR={folder}
tmux -L below -f /dev/null -D & server=$!
until test -S {folder}/tmux-$(id -u)/below; do :; done
tmux -L below new-session -d '{calls}; tmux -L below wait-for -S done'
tmux -L below wait-for done
kill $server; wait
"""

TMUX = "a tmux server below it"
CLIS = sorted(HARNESSES)

BELOW_AN_AGENT = {
    "its command": "{calls}",
    "a fork of it": "( ( {calls}; true ); true )",
    "its background": "{calls} & wait",
    "a pty that it opens": f"{ON_A_PTY} {{calls}}",
    "a pty in a session of its own": f"setsid --wait {ON_A_PTY} {{calls}}",
    "a shell in a pty in a pty": f"{ON_A_PTY} {ON_A_PTY} bash -c '{{calls}}; true'",
    "a login": "(exec -a sshd bash -c '(exec -a -su bash --noprofile -c \"{calls}; :\"); :')",
    "without terminal": "setsid --wait {calls}",
    TMUX: TMUX_BELOW,
}


@pytest.mark.parametrize("way", BELOW_AN_AGENT)
def test_below_an_agent_cli_nothing_makes_the_owners_terminal(
    daemon: Daemon, terminal: Shell, folder: Path, holder: tuple[str, Line], asked: str, way: str
) -> None:
    if way == TMUX and not TmuxPane.is_available():
        pytest.skip("tmux is not installed")
    cli = CLIS[list(BELOW_AN_AGENT).index(way) % len(CLIS)]
    text = BELOW_AN_AGENT[way].format(calls=calls(folder, asked), folder=folder)
    typed = agent(folder, text, cli)
    before = daemon.state_hash()
    done = terminal.run(typed)
    assert (done.status, done.err) == (0, "")
    assert_refused(folder, f"the agent CLI {cli} (process ")
    assert daemon.state_hash() == before
    assert copy_of(holder[1], asked)["stage"] == "delivered"


def test_there_are_as_many_ways_as_agent_clis() -> None:
    assert len(BELOW_AN_AGENT) >= len(CLIS) >= 7


@pytest.mark.parametrize("outside", [True, False])
def test_mbx_run_above_or_below_an_agent_cli_changes_nothing(
    terminal: Shell, folder: Path, holder: tuple[str, Line], asked: str, outside: bool
) -> None:
    run = f"mbx run --as {fresh_name()} --role tester -- "
    tried = calls(folder, asked)
    terminal.run(
        run + agent(folder, tried, "claude") if outside else agent(folder, run + tried, "claude")
    )
    assert_refused(folder, "the agent CLI claude (process ")
    assert copy_of(holder[1], asked)["stage"] == "delivered"


@pytest.mark.parametrize("typed", ["setsid --wait {calls}", "setsid --wait sh -c '{calls}; true'"])
def test_without_a_controlling_terminal_nobody_is_the_owner(
    daemon: Daemon, terminal: Shell, folder: Path, asked: str, typed: str
) -> None:
    before = daemon.state_hash()
    terminal.run(typed.format(calls=calls(folder, asked)))
    assert_refused(folder, "the calling process has no controlling terminal")
    assert daemon.state_hash() == before


@pytest.mark.parametrize("program", ["cron", "sshd", "bash"])
def test_a_job_and_a_remote_command_have_no_terminal(
    daemon: Daemon, env: dict[str, str], folder: Path, asked: str, program: str
) -> None:
    before = daemon.state_hash()
    argv = (str(look_alike(folder, program)), *BASH[1:])
    with Shell(argv, env=env) as job:
        job.run(f"sh -c {shlex.quote(calls(folder, asked) + '; true')}")
    assert_refused(folder, "the calling process has no controlling terminal")
    assert daemon.state_hash() == before


def test_a_refusal_is_told_to_people_with_the_next_step(env: dict[str, str]) -> None:
    with Shell(env=env) as pipe:
        done = pipe.run("mbx inbox --owner")
    assert (done.status, done.out) == (1, "")
    error, next_step = done.err.splitlines()
    assert error.startswith("error: only the owner's terminal may do this: the calling process has")
    assert next_step == "next: type it in a terminal of your own, outside any agent CLI"


def test_on_one_connection_the_terminal_is_looked_at_for_each_request(
    daemon: Daemon, asked: str
) -> None:
    with daemon.agent() as process, process.connect() as line:
        for verb in VERBS:
            params = {} if verb == "inbox" else {"ids": [asked]}
            assert line.refusal(f"owner.{verb}", **params)["code"] == "owner-required"
        assert line.call("daemon.status")["running"] is True


# -- what is not defended -------------------------------------------------------------------------


@needs_tmux
def test_what_leaves_its_agent_cli_for_a_terminal_of_its_own_passes_as_documented(
    terminal: Shell, folder: Path, holder: tuple[str, Line], asked: str
) -> None:
    """A tmux server is nobody's child, whoever started it: docs/threat-model.md says so."""
    detached = f"TMUX_TMPDIR={folder} tmux -L gone -f /dev/null new-session -d "
    wait = f"TMUX_TMPDIR={folder} tmux -L gone wait-for"
    inside = f"mbx read --owner {asked} --json >{folder}/told; tmux wait-for -S done"
    terminal.run(agent(folder, f"{detached} {shlex.quote(inside)}\n{wait} done", "claude"))
    told = json.loads((folder / "told").read_text())
    assert [message["id"] for message in told["messages"]] == [asked]
    assert copy_of(holder[1], asked)["stage"] == "read", "but the sender learns it"
