"""Leases through pauses: of the daemon, of holders, and days on which nobody types."""

import json
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.support.daemon import MBX, Agent, Daemon, Line, fresh_home, fresh_name, request
from tests.support.patience import LOOKS_S, looks
from tests.support.shells import Shell, look_alike
from tests.support.worlds import set_ahead, with_limits, with_steady_clock_of

HOUR_MS = 3_600_000
LEASE_MS = 1_000
SHARED_MS = 1_500
"""Time-outs of a lease, and of a conversation in a shared process, where a test shortens them."""
BEYOND_S = 4
"""Whole seconds of a daemon that are longer than every shortened time-out."""


@pytest.fixture
def home() -> Iterator[Path]:
    with fresh_home() as folder:
        yield folder


def shell_environment(daemon: Daemon) -> dict[str, str]:
    return daemon.environment | {"PATH": f"{Path(MBX).parent}:{daemon.environment['PATH']}"}


def registered(shell: Shell, name: str) -> None:
    done = shell.run(f"mbx identity register {name} --role tester --json")
    assert done.status == 0, done.out + done.err


class Conversation:
    """One of the conversations of an agent CLI process that hosts many."""

    def __init__(self, stack: ExitStack, daemon: Daemon, folder: Path, name: str) -> None:
        program = str(look_alike(folder, "codex"))
        environment = shell_environment(daemon) | {"MBX_CLI": "codex", "MBX_SESSION": "talk-1"}
        # A shell whose command line is that of a server; its commands come from a pipe.
        argv = [program, "--norc", "--noprofile", "-s", "app-server"]
        self.shell = stack.enter_context(Shell(argv, env=environment))
        self.name = name
        registered(self.shell, name)

    def agent(self) -> str | None:
        """What it holds, as it is told; a sign of life."""
        told = json.loads(self.shell.run("mbx whoami --json").out)
        return str(told["agent"]) if told["agent"] else None


def code_of(line: Line, name: str) -> str:
    """What a claim of `name` by another session is answered."""
    return str(line.refusal("identity.claim", name=name)["code"])


def shows_life(conversation: Conversation, line: Line) -> None:
    """It says something, and nobody may claim its name then: at once, else it is silent again."""
    for _ in looks():
        assert conversation.agent() == conversation.name
        if not line.call("identity.show", name=conversation.name)["claimable"]:
            return
    raise AssertionError(f"{conversation.name} is claimable right after a sign of life")


def falls_silent(line: Line, name: str) -> None:
    """Wait until it may be claimed; while the daemon stood still, nobody was silent."""
    for _ in looks():
        if line.call("identity.show", name=name)["claimable"]:
            return
    raise AssertionError(f"{name} is never claimable")


def pass_s(line: Line, seconds: int) -> int:
    """Wait until the daemon is so many seconds older; how often it was asked."""
    until = line.call("daemon.status")["uptime_s"] + seconds
    for asked in looks(within_s=seconds + LOOKS_S):
        if line.call("daemon.status")["uptime_s"] >= until:
            return asked
    raise AssertionError("the daemon does not get older")


# -- the daemon stands still ----------------------------------------------------------------------


@pytest.mark.long
@pytest.mark.timeout(120)
def test_hours_in_which_the_daemon_stood_still_are_nobodys_silence(
    home: Path, tmp_path: Path
) -> None:
    ahead = tmp_path / "ahead"
    set_ahead(ahead, 0)
    idle, talk, dead = fresh_name("idle"), fresh_name("talk"), fresh_name("dead")
    with ExitStack() as stack:
        daemon = stack.enter_context(Daemon(home, python=with_steady_clock_of(ahead)))
        shell = stack.enter_context(Shell(env=shell_environment(daemon)))
        registered(shell, idle)
        conversation = Conversation(stack, daemon, tmp_path / "bin", talk)
        stranger, doomed = (stack.enter_context(daemon.agent()) for _ in range(2))
        doomed.registered(dead).close()
        line = stack.enter_context(stranger.connect())
        pass_s(line, 2)  # the timers run
        pauses = (2 * HOUR_MS, 9 * HOUR_MS, 3 * 24 * HOUR_MS)
        for number, pause_ms in enumerate(pauses):
            daemon.signal(signal.SIGSTOP)
            # These wait in the socket: they are read before the daemon does anything else.
            for name in (talk, idle):
                line.write(request(number, "identity.claim", name=name) + b"\n")
            set_ahead(ahead, int(ahead.read_text()) + pause_ms)
            if number == len(pauses) - 1:
                doomed.kill()
            daemon.signal(signal.SIGCONT)
            for name in (talk, idle):
                refused = line.read()["error"]["data"]
                assert (refused["code"], refused["holder"]["epoch"]) == ("in-use", 1), name
            pass_s(line, 2)
            for name in (talk, idle):
                assert code_of(line, name) == "in-use"
        assert line.call("daemon.status")["uptime_s"] > sum(pauses) // 1000
        assert conversation.agent() == talk
        assert shell.run("mbx inbox").status == 0
        assert line.call("identity.claim", name=dead)["epoch"] == 2, "death is no silence"
    sys.stdout.write(f"{len(pauses)} pauses of {sum(pauses) // HOUR_MS} h, no lease lost\n")


def test_a_daemon_that_was_stopped_for_a_moment_answers_all_who_waited(home: Path) -> None:
    name = fresh_name()
    with ExitStack() as stack:
        daemon = stack.enter_context(Daemon(home))
        agent, other = (stack.enter_context(daemon.agent()) for _ in range(2))
        line = stack.enter_context(agent.registered(name))
        stranger = stack.enter_context(other.connect())
        daemon.signal(signal.SIGSTOP)
        for number in range(20):
            told = {"to": [name], "subject": str(number), "body": "b", "key": f"k{number}"}
            line.write(request(number, "mail.send", **told) + b"\n")
        stranger.write(request(1, "identity.claim", name=name) + b"\n")
        daemon.signal(signal.SIGCONT)
        answers = [line.read() for _ in range(20)]
        assert [answer["id"] for answer in answers] == list(range(20))
        assert stranger.read()["error"]["data"]["code"] == "in-use"
        subjects = [one["subject"] for one in line.call("mail.inbox")["messages"]]
        assert subjects == [str(number) for number in range(20)]


# -- holders stand still, or are idle -------------------------------------------------------------


@pytest.mark.long
@pytest.mark.timeout(120)
def test_a_holder_that_is_stopped_or_idle_beyond_every_time_out_keeps_its_name(
    home: Path, tmp_path: Path
) -> None:
    idle, stopped, still, talk = (fresh_name(one) for one in ("idle", "stopped", "still", "talk"))
    limits = with_limits(
        LEASE_TIMEOUT_MS=LEASE_MS, LEASE_RENEW_MS=LEASE_MS // 2, SHARED_TIMEOUT_MS=SHARED_MS
    )
    refusals = 0
    with ExitStack() as stack:
        daemon = stack.enter_context(Daemon(home, python=limits))
        shell, frozen = (stack.enter_context(Shell(env=shell_environment(daemon))) for _ in "12")
        registered(shell, idle)
        registered(frozen, stopped)
        agent, stranger, heir = (stack.enter_context(daemon.agent()) for _ in range(3))
        held = stack.enter_context(agent.registered(still))
        frozen.signal(signal.SIGSTOP)
        signal.pidfd_send_signal(agent._pidfd, signal.SIGSTOP)
        conversation = Conversation(stack, daemon, tmp_path / "bin", talk)
        line = stack.enter_context(stranger.connect())
        began_s = time.monotonic()
        shows_life(conversation, line)
        for _ in range(BEYOND_S):
            for name in (idle, stopped, still):
                assert code_of(line, name) == "in-use", name
                refusals += 1
            pass_s(line, 1)
        assert time.monotonic() - began_s > (LEASE_MS + SHARED_MS) / 1000
        falls_silent(line, talk)
        granted = line.call("identity.claim", name=talk)
        assert granted["epoch"] == 2, "the time-outs bite: this one had to show signs of life"
        assert conversation.agent() is None
        frozen.signal(signal.SIGCONT)
        signal.pidfd_send_signal(agent._pidfd, signal.SIGCONT)
        assert held.call("mail.inbox")["messages"] == []
        for console, name in ((shell, idle), (frozen, stopped)):
            told = json.loads(console.run("mbx whoami --json").out)
            assert (told["agent"], told["lease"]["epoch"]) == (name, 1)
            assert console.run("mbx inbox").status == 0
        for name in (idle, stopped, still):
            assert code_of(line, name) == "conflict"  # it holds the other one by now
        _dies_stopped(daemon, agent, heir, still)
    sys.stdout.write(f"{refusals} claims of stopped and idle holders refused\n")


def _dies_stopped(daemon: Daemon, agent: Agent, heir: Agent, name: str) -> None:
    """A stopped holder that is killed is dead at once."""
    signal.pidfd_send_signal(agent._pidfd, signal.SIGSTOP)
    agent.kill()
    with heir.connect() as line:
        assert line.call("identity.claim", name=name)["epoch"] == 2
