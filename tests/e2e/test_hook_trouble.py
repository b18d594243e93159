"""Hooks while mbx itself is in trouble: nobody is held up, nothing is said, nothing is touched."""

import fcntl
import json
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from mbx.core.clients import HOOK_SCRIPT, STATUS_LINE_SCRIPT
from mbx.core.limits import HOOK_MISSES_MAX
from mbx.paths import Paths
from tests.support.daemon import MBX, Daemon, fresh_home, fresh_name
from tests.support.hooks import Client, context_of, put_scripts
from tests.support.patience import looks
from tests.support.shells import BASH, Finished, Shell, bare_environment, look_alike

pytestmark = [pytest.mark.long, pytest.mark.timeout(120)]

TRIES = 8
"""Of what has to be done within a time, on a machine that may be busy."""

ACTS = ("start", "prompt", "tool", "stop", "end", "guard")


@pytest.fixture
def own_daemon() -> Iterator[Daemon]:
    """A daemon that the test may stop and kill."""
    with fresh_home() as home, Daemon(home) as daemon:
        yield daemon


@contextmanager
def told(daemon: Daemon, folder: Path) -> Iterator[tuple[Client, Client, str]]:
    """A client whose status line shows the first mail to its name, and the one who sent it."""
    with Client(daemon, folder / "one") as client, Client(daemon, folder / "two") as other:
        name = fresh_name("ana")
        client.hook("start")
        client.register(name)
        other.register(fresh_name("ben"))
        other.mbx(f"send --to {name} --subject s -m b")
        client.await_status(f"mbx {name}: 1 unread")
        yield client, other, name


def silent(done: Finished) -> bool:
    return (done.status, done.out, done.err) == (0, "", "")


def fields_of(act: str) -> dict[str, str]:
    return {"reason": "prompt_input_exit"} if act == "end" else {}


def beat(folder: Path) -> None:
    """Give the sign of life that a hung daemon does not give, however long it hangs."""
    uptime_s = float(Path("/proc/uptime").read_text().split()[0])
    (folder / "fresh").write_text(f"{int(uptime_s)}\n")


def slow_of(folder: Path) -> int:
    """How many hooks have had no answer in time."""
    counted = folder / "slow"
    return int(counted.read_text().split()[0]) if counted.exists() else 0


def test_a_hung_daemon_costs_a_second_at_most_and_is_counted_as_slow(
    own_daemon: Daemon, tmp_path: Path
) -> None:
    with told(own_daemon, tmp_path) as (client, _, name):
        folder = Path(client.paths.snapshots_dir())
        own_daemon.signal(signal.SIGSTOP)
        try:
            # What the daemon had prepared is said all the same.
            beat(folder)
            assert "1 new" in context_of(client.hook("prompt"))
            assert slow_of(folder) == 0
            put_scripts(own_daemon.home)
            for count, act in enumerate(("start", "end"), 1):
                for _ in range(TRIES):  # one whose second is over before it begins is not counted
                    beat(folder)
                    assert silent(client.hook(act, **fields_of(act)))
                    if slow_of(folder) >= count:
                        break
                assert slow_of(folder) == count
            assert not (folder / "down").exists()
        finally:
            own_daemon.signal(signal.SIGCONT)
        assert client.mbx("whoami")["agent"] in (name, None)


def test_a_dead_daemon_keeps_hooks_silent_and_is_counted_as_down(
    own_daemon: Daemon, tmp_path: Path
) -> None:
    with Client(own_daemon, tmp_path / "one") as client:
        name = fresh_name("ana")
        client.hook("start")
        client.register(name)
        own_daemon.kill()
        folder = Path(client.paths.snapshots_dir())
        beat = int((folder / "fresh").read_text())
        (folder / "fresh").write_text(f"{beat - 11}\n")
        for act in ACTS:
            assert silent(client.hook(act, **fields_of(act))), act
        assert silent(client.status_line())
        assert int((folder / "down").read_text().split()[0]) == 5  # the guard asks nobody
        assert not (folder / "slow").exists()


@pytest.mark.parametrize("more", [-2, -1, 0, 1])
def test_a_script_counts_misses_up_to_a_limit(
    own_daemon: Daemon, tmp_path: Path, more: int
) -> None:
    with Client(own_daemon, tmp_path / "one") as client:
        folder = Path(client.paths.snapshots_dir())
        assert any((folder / "fresh").exists() for _ in looks()), "there is no sign of life"
        own_daemon.kill()
        (folder / "fresh").unlink()
        (folder / "down").write_text(f"{HOOK_MISSES_MAX + more}\n")
        assert silent(client.hook("prompt"))
        counted = min(HOOK_MISSES_MAX + more + 1, HOOK_MISSES_MAX)
        assert (folder / "down").read_text() == f"{counted}\n"


@pytest.mark.parametrize("content", ["", "x\n", "99999999999999999999999999\n", "-1\n", "1e9\n"])
def test_a_sign_of_life_that_says_nothing_is_none(
    own_daemon: Daemon, tmp_path: Path, content: str
) -> None:
    with Client(own_daemon, tmp_path / "one") as client:
        client.register(fresh_name("ana"))
        own_daemon.kill()
        folder = Path(client.paths.snapshots_dir())
        (folder / "fresh").write_text(content)
        assert silent(client.hook("prompt"))
        assert silent(client.status_line())


def test_without_any_daemon_nothing_is_said_started_or_made(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    put_scripts(home)
    before = sorted(str(path) for path in home.rglob("*"))
    program = look_alike(tmp_path / "cli", "claude")
    with Shell([str(program), *BASH[1:]], env=bare_environment(MBX_HOME=str(home))) as shell:
        for event in ("SessionStart", "UserPromptSubmit", "Stop", "SessionEnd", "PreToolUse"):
            text = json.dumps({"session_id": "abc", "reason": "logout"})
            for command in (
                f"sh {home}/bin/{HOOK_SCRIPT} claude {event}",
                f"{MBX} hook {event} --cli claude",
            ):
                done = shell.run(f"echo '{text}' | {command}")
                assert silent(done), command
        assert silent(shell.run(f"sh {home}/bin/{STATUS_LINE_SCRIPT} claude </dev/null"))
        assert silent(shell.run(f"{MBX} statusline claude </dev/null"))
    assert sorted(str(path) for path in home.rglob("*")) == before


def test_a_first_hook_waits_for_the_daemon_that_somebody_else_starts(
    own_daemon: Daemon, tmp_path: Path
) -> None:
    with Client(own_daemon, tmp_path / "one") as client:
        name = fresh_name("ana")
        client.hook("start")
        client.register(name)
        for _ in range(TRIES):  # a machine that is busy takes longer than a hook may
            own_daemon.mbx("daemon", "stop")
            client.run(f"{MBX} daemon start >/dev/null 2>&1 & :")
            if name in context_of(client.hook("start")):
                break
            client.mbx("whoami")  # waits for the start that was under way
        else:
            pytest.fail(f"no first hook was told who {name} is")
        own_daemon.mbx("daemon", "stop")


def test_a_start_that_fails_is_not_waited_for_and_nothing_is_started_by_a_hook(
    own_daemon: Daemon, tmp_path: Path
) -> None:
    with Client(own_daemon, tmp_path / "one") as client:
        client.register(fresh_name("ana"))
        own_daemon.mbx("daemon", "stop")
        path = Paths.from_environ(own_daemon.environment).start_lock_path()
        lock = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        fcntl.flock(lock, fcntl.LOCK_EX)  # as one who starts it for ever
        assert silent(client.hook("start"))
        os.close(lock)
        assert silent(client.hook("start"))
        assert own_daemon.mbx("daemon", "status").stdout.startswith("no daemon is running")
        assert (Path(client.paths.snapshots_dir()) / "down").read_text().split() == ["2"]


def test_files_of_the_wrong_sort_in_the_way_hold_nobody_up(
    own_daemon: Daemon, tmp_path: Path
) -> None:
    with Client(own_daemon, tmp_path / "one") as client:
        name = fresh_name("ana")
        client.register(name)
        folder = Path(client.paths.snapshots_dir())
        told = folder / f"{client.own}.told"
        told.unlink(missing_ok=True)
        os.mkfifo(told)
        (folder / "slow").mkdir()
        (folder / "down").symlink_to(tmp_path / "elsewhere")
        for act in ACTS:
            if act not in ("end", "start"):
                assert silent(client.hook(act)), act
        own_daemon.kill()
        (folder / "fresh").unlink()
        os.mkfifo(folder / "fresh")
        for act in ACTS:
            assert silent(client.hook(act, **fields_of(act))), act
        assert silent(client.status_line())
        assert not (tmp_path / "elsewhere").exists()


def test_a_client_that_reads_no_answer_gets_no_trouble(own_daemon: Daemon, tmp_path: Path) -> None:
    with (
        Client(own_daemon, tmp_path / "one") as client,
        Client(own_daemon, tmp_path / "two") as other,
    ):
        name = fresh_name("ana")
        client.register(name)
        other.register(fresh_name("ben"))
        other.mbx(f"send --to {name} --subject s -m b")
        client.await_status(f"mbx {name}: 1 unread")
        command = f"sh {client.paths.home()}/bin/{HOOK_SCRIPT} claude UserPromptSubmit"
        assert silent(client.run(f"{command} </dev/null >&-"))
        assert silent(client.run(f"{command} <&- 2>&- >/dev/full"))
        # What nobody got was not announced.
        assert "1 new" in context_of(client.hook("prompt"))


def test_a_daemon_that_starts_again_announces_nothing_twice(
    own_daemon: Daemon, tmp_path: Path
) -> None:
    with told(own_daemon, tmp_path) as (client, other, name):
        assert "1 new" in context_of(client.hook("prompt"))
        own_daemon.kill()
        own_daemon.start()
        client.await_status(f"mbx {name}: 1 unread")
        assert silent(client.hook("prompt"))
        other.mbx(f"send --to {name} --subject s -m b")
        client.await_status(f"mbx {name}: 2 unread")
        assert "1 new" in context_of(client.hook("prompt"))
        assert client.mbx("whoami")["session"]["id"] == client.conversation
