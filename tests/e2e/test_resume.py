"""Agent CLIs that crash, come back, and are named at launch: real processes, one daemon."""

import json
import os
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.support.daemon import MBX, Daemon, fresh_name
from tests.support.shells import Shell, bare_environment, look_alike

PLAIN = ("--norc", "--noprofile")


class Clients:
    """Starts processes that look like one agent CLI, each with its conversation and wishes."""

    def __init__(self, daemon: Daemon, folder: Path, stack: ExitStack) -> None:
        self._claude = str(look_alike(folder, "claude"))
        self._home = str(daemon.home)
        self._stack = stack

    def start(self, session_id: str, **wishes: str) -> Shell:
        """A living agent CLI in the conversation `session_id`."""
        path = f"{Path(MBX).parent}{os.pathsep}{os.environ['PATH']}"
        env = bare_environment(MBX_HOME=self._home, MBX_CLI="claude", MBX_SESSION=session_id)
        client = Shell([self._claude, *PLAIN], env={**env, **wishes, "PATH": path})
        return self._stack.enter_context(client)


@pytest.fixture
def clients(daemon: Daemon, tmp_path: Path) -> Iterator[Clients]:
    with ExitStack() as stack:
        yield Clients(daemon, tmp_path, stack)


def whoami(client: Shell) -> Any:
    return json.loads(client.run("mbx whoami --json").out)


def until_claimed(client: Shell, name: str) -> None:
    """Ask until the session holds `name`: the daemon hears of a death when the kernel tells it."""
    for _ in range(200):
        if whoami(client)["agent"] == name:
            return
    raise AssertionError(f"{name} was not given")


def test_an_agent_cli_that_crashed_has_its_identity_and_mail_again(clients: Clients) -> None:
    name = fresh_name()
    first = clients.start("s-1", MBX_AGENT=name, MBX_ROLE="tester")
    told = whoami(first)
    assert (told["agent"], told["session"]) == (name, {"cli": "claude", "id": "s-1"})
    first.run(f"mbx send --to {name} --subject 'to myself' -m hello")
    first.kill()
    again = clients.start("s-1")
    until_claimed(again, name)
    assert whoami(again)["lease"]["epoch"] == 2
    assert whoami(again)["unread"] == 1
    other = clients.start("s-2")
    assert whoami(other)["agent"] is None


def test_a_twin_waits_for_the_living_and_follows_it(clients: Clients) -> None:
    name = fresh_name()
    first = clients.start("s-3", MBX_AGENT=name, MBX_ROLE="tester")
    assert whoami(first)["agent"] == name
    twin = clients.start("s-3")
    told = whoami(twin)
    assert (told["agent"], told["pending"]) == (None, name)
    assert twin.run("mbx inbox --json").status == 5
    first.kill()
    until_claimed(twin, name)
    assert whoami(twin)["pending"] is None


def test_who_waits_is_served_after_the_daemon_was_killed_too(
    clients: Clients, daemon: Daemon
) -> None:
    name = fresh_name()
    first = clients.start("s-5", MBX_AGENT=name, MBX_ROLE="tester")
    assert whoami(first)["agent"] == name
    twin = clients.start("s-5")
    assert whoami(twin)["pending"] == name
    daemon.kill()
    first.kill()
    daemon.start()
    until_claimed(twin, name)


def test_a_wish_at_launch_never_takes_a_name_from_anybody(clients: Clients) -> None:
    name = fresh_name()
    holder = clients.start("s-6", MBX_AGENT=name, MBX_ROLE="tester")
    assert whoami(holder)["agent"] == name
    rival = clients.start("s-7", MBX_AGENT=name, MBX_ROLE="tester")
    assert whoami(rival)["agent"] is None
    assert whoami(holder)["agent"] == name
    unknown = clients.start("s-8", MBX_AGENT=fresh_name())
    assert whoami(unknown)["agent"] is None


def test_looking_around_claims_nothing(clients: Clients) -> None:
    name = fresh_name()
    client = clients.start("s-9", MBX_AGENT=name, MBX_ROLE="tester")
    for command in ("mbx daemon status", "mbx identity list", "mbx agents", "mbx doctor"):
        client.run(f"{command} --json")
    listed = json.loads(client.run("mbx identity list --json").out)["identities"]
    assert name not in [one["name"] for one in listed]
    assert whoami(client)["agent"] == name
