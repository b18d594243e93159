"""A whole daemon that knows of processes what psutil tells: claims, crashes, resuming, mail."""

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from mbx.kernel import portable
from tests.support.daemon import MBX, Daemon, fresh_home
from tests.support.patience import looks
from tests.support.platforms import PORTABLE_DAEMON
from tests.support.shells import Finished, Shell, look_alike


@pytest.fixture(scope="module")
def portable_daemon() -> Iterator[Daemon]:
    with fresh_home() as home, Daemon(home, python=PORTABLE_DAEMON) as daemon:
        yield daemon


@pytest.fixture
def start(portable_daemon: Daemon) -> Iterator[Callable[..., Shell]]:
    path = f"{Path(MBX).parent}:{portable_daemon.environment['PATH']}"
    with ExitStack() as stack:

        def shell(argv: tuple[str, ...] = ("bash", "--norc", "--noprofile"), **env: str) -> Shell:
            known = {**portable_daemon.environment, "PATH": path, **env}
            return stack.enter_context(Shell(argv, env=known))

        yield shell


def told(done: Finished) -> Any:
    assert done.status == 0, done.out + done.err
    return json.loads(done.out)


def test_it_is_the_portable_one_that_runs(portable_daemon: Daemon) -> None:
    loaded = Path(f"/proc/{portable_daemon.pid}/maps").read_text()
    assert "psutil" in loaded
    assert portable.boot_id() in (
        "no-boot-id",
        Path("/proc/sys/kernel/random/boot_id").read_text().strip(),
    )


def test_a_holder_that_crashed_leaves_its_name_to_whoever_claims_it_with_its_mail(
    start: Callable[..., Shell],
) -> None:
    anna, ben = start(), start()
    told(anna.run("mbx identity register anna --role tester --json"))
    told(ben.run("mbx identity register ben --role tester --json"))
    assert told(anna.run("(mbx whoami --json; true)"))["agent"] == "anna", "a subshell of it"
    told(ben.run("mbx send --to anna --subject hello -m 'for whoever is anna' --json"))
    other = start()
    refused = other.run("mbx identity claim anna --json")
    assert json.loads(refused.out)["error"]["code"] == "in-use"
    anna.kill()
    claimed = told(other.run("mbx identity claim anna --json"))
    assert (claimed["agent"], claimed["epoch"]) == ("anna", 2)
    assert [one["subject"] for one in told(other.run("mbx inbox --json"))["messages"]] == ["hello"]


def test_an_agent_cli_that_waits_is_served_when_the_holder_is_found_dead(
    start: Callable[..., Shell], tmp_path: Path
) -> None:
    claude = str(look_alike(tmp_path, "claude"))
    known = {"MBX_CLI": "claude", "MBX_SESSION": "s-1"}
    argv = (claude, "--norc", "--noprofile")
    first = start(argv, **known, MBX_AGENT="carla", MBX_ROLE="tester")
    assert told(first.run("mbx whoami --json"))["agent"] == "carla"
    twin = start(argv, **known)
    assert told(twin.run("mbx whoami --json"))["pending"] == "carla"
    first.kill()
    for _ in looks():
        if told(twin.run("mbx whoami --json"))["agent"] == "carla":
            return
    raise AssertionError("the death was not found")


def test_a_living_holder_keeps_its_name_over_a_restart_of_the_daemon(
    start: Callable[..., Shell], portable_daemon: Daemon
) -> None:
    dora = start()
    told(dora.run("mbx identity register dora --role tester --json"))
    portable_daemon.stop()
    portable_daemon.start()
    who = told(dora.run("mbx whoami --json"))
    assert (who["agent"], who["lease"]["epoch"]) == ("dora", 1)
    refused = start().run("mbx identity claim dora --json")
    assert json.loads(refused.out)["error"]["code"] == "in-use"
