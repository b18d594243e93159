"""The daemon's life as the command sees it: started on demand, stopped, killed, hung, hindered."""

import contextlib
import json
import os
import select
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from mbx.launch import ProcessEnd
from mbx.paths import Paths, quoted
from tests.cli.conftest import MBX, Desk, contents, document

FIELDS = {"running", "pid", "version", "home", "socket", "uptime_s", "state_hash"}
HUNG_S = 8.0
"""An error against a hung daemon is due within 5 s; the machine may be busy."""

HUNG_TRIES = 4
"""A machine that is held up once delays one try; a command that waits without end, all."""


def kill(desk: Desk) -> None:
    """Kill the daemon with -9 and wait until it has ended."""
    pid = desk.status()["pid"]
    pidfd = os.pidfd_open(pid)
    signal.pidfd_send_signal(pidfd, signal.SIGKILL)
    ends = select.poll()
    ends.register(pidfd, select.POLLIN)
    assert ends.poll(15_000)
    os.close(pidfd)


def test_status_of_no_daemon_is_an_answer_and_starts_nothing(own_desk: Desk) -> None:
    done = own_desk.run("daemon", "status", "--json")
    assert done.returncode == 0
    assert json.loads(done.stdout) == dict.fromkeys(FIELDS) | {"running": False}
    assert own_desk.run("daemon", "status").stdout.startswith("no daemon is running")
    assert not own_desk.home.exists()


def test_stop_without_a_daemon_is_no_error_and_starts_nothing(own_desk: Desk) -> None:
    done = own_desk.run("daemon", "stop")
    assert (done.returncode, done.stdout) == (0, "no daemon was running\n")
    assert not own_desk.home.exists()


def test_a_daemon_is_started_stopped_and_restarted(own_desk: Desk) -> None:
    assert own_desk.run("daemon", "start").returncode == 0
    first = own_desk.status()
    assert set(first) >= FIELDS
    assert (first["running"], first["state_hash"]) == (True, None)
    assert own_desk.run("daemon", "start").returncode == 0
    assert own_desk.status()["pid"] == first["pid"]

    assert own_desk.run("daemon", "restart").returncode == 0
    second = own_desk.status()
    assert second["pid"] != first["pid"]

    end = ProcessEnd(second["pid"])
    done = own_desk.run("daemon", "stop", "--json")
    assert json.loads(done.stdout) == {"running": False, "stopped": True, "service": None}
    assert own_desk.status()["running"] is False
    assert end.wait(0, time)  # it is over when `stop` says so


def test_the_hash_of_the_state_is_there_when_asked_for(desk: Desk) -> None:
    desk.run("daemon", "start")
    said = json.loads(desk.run("daemon", "status", "--hash", "--json").stdout)
    assert len(said["state_hash"]) == 64


def test_a_command_starts_the_daemon_on_demand_with_private_files(own_desk: Desk) -> None:
    own_desk.home.parent.mkdir(exist_ok=True)
    done = subprocess.run(
        ["sh", "-c", f"umask 0; exec {MBX} whoami --json"],
        env=own_desk.env,
        capture_output=True,
        check=True,
        timeout=15,
    )
    assert json.loads(done.stdout)["agent"] is None
    assert own_desk.home.stat().st_mode & 0o077 == 0
    for path, found, _ in contents(own_desk.home):
        assert found.st_mode & 0o077 == 0, path


@pytest.mark.timeout(120)
def test_many_simultaneous_starters_are_all_served_by_one_daemon(own_desk: Desk) -> None:
    starters = [
        subprocess.Popen(
            [str(MBX), "daemon", "status" if number % 2 else "start", "--json"],
            env=own_desk.env,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        for number in range(0, 24, 2)
    ]
    said = []
    for starter in starters:
        out, err = starter.communicate(timeout=40)
        assert starter.returncode == 0, (out, err)
        said.append(json.loads(out))
    assert {one["pid"] for one in said} == {own_desk.status()["pid"]}
    assert all(one["running"] for one in said)


def test_a_killed_daemon_comes_back_on_demand_with_leases_and_mail(own_desk: Desk) -> None:
    ana, ben = own_desk.shell("ana"), own_desk.shell("ben")
    sent = document(ana.run("mbx send --to ben --subject S -m kept --json"))
    kill(own_desk)
    listed = document(ben.run("mbx inbox --json"))
    assert [one["id"] for one in listed["messages"]] == [sent["id"]]
    assert document(ana.run("mbx whoami --json"))["agent"] == "ana"


@pytest.fixture
def stopped(own_desk: Desk) -> Iterator[tuple[Desk, int]]:
    """A daemon that takes connections and never answers, and its process."""
    own_desk.shell("ana")
    pid = own_desk.status()["pid"]
    os.kill(pid, signal.SIGSTOP)
    yield own_desk, pid
    os.kill(pid, signal.SIGCONT)


def in_time(desk: Desk, command: list[str]) -> subprocess.CompletedProcess[str]:
    """A command that ends within `HUNG_S` of its start."""
    for _ in range(HUNG_TRIES):
        with contextlib.suppress(subprocess.TimeoutExpired):
            return desk.run(*command, "--json", timeout_s=HUNG_S)
    raise AssertionError(f"{command} does not end in time")


@pytest.mark.long
@pytest.mark.timeout(90)
def test_a_hung_daemon_is_an_error_in_time_that_names_its_process(
    stopped: tuple[Desk, int],
) -> None:
    hung, pid = stopped
    commands = [
        (["daemon", "status"], 6),
        (["daemon", "stop"], 6),
        (["whoami"], 6),
        (["identity", "register", "xaver", "--role", "x"], 75),
    ]
    with ThreadPoolExecutor(len(commands)) as pool:
        ended = list(pool.map(lambda one: in_time(hung, one[0]), commands))
    for done, (command, status) in zip(ended, commands, strict=True):
        error = json.loads(done.stdout)["error"]
        assert done.returncode == status, command
        assert error["code"] == ("outcome-unknown" if status == 75 else "daemon-unreachable")
        if status == 6:
            assert error["next"] == f"kill -CONT {pid}"
            assert "is stopped" in error["message"]
    (told,) = [
        one
        for one in json.loads(hung.run("doctor", "--json").stdout)["checks"]
        if one["name"] == "daemon"
    ]
    assert told["fix"] == f"kill -CONT {pid}", "doctor says the same"


def test_a_damaged_host_key_reaches_the_user_in_words_and_stays_as_it_is(own_desk: Desk) -> None:
    own_desk.run("daemon", "start")
    own_desk.run("daemon", "stop")
    key = own_desk.home / "host.key"
    key.write_bytes(b"damaged")
    done = own_desk.run("whoami")
    assert done.returncode != 0
    assert str(key) in done.stderr
    assert [line.split(":")[0] for line in done.stderr.splitlines()] == ["error", "next"]
    assert key.read_bytes() == b"damaged"


def test_the_level_of_the_log_is_that_of_the_starter(own_desk: Desk) -> None:
    own_desk.env["MBX_LOG"] = "loud"
    done = own_desk.run("daemon", "start")
    assert (done.returncode, "MBX_LOG is 'loud'" in done.stderr) == (2, True)
    own_desk.env["MBX_LOG"] = "debug"
    own_desk.run("daemon", "start")
    own_desk.run("identity", "list")
    log = (own_desk.home / "daemon.log").read_text()
    assert '"event": "a session said hello"' in log


@pytest.mark.parametrize("name", ["store.db", "host.key", "daemon.lock"])
@pytest.mark.parametrize("leads", [True, False])
def test_a_link_in_the_place_of_a_file_is_called_one_and_nothing_begins_behind_it(
    own_desk: Desk, tmp_path: Path, name: str, leads: bool
) -> None:
    own_desk.run("daemon", "start")
    own_desk.run("daemon", "stop")
    file, elsewhere = own_desk.home / name, tmp_path / "elsewhere"
    file.rename(elsewhere if leads else tmp_path / "lost")
    file.symlink_to(elsewhere)
    done = own_desk.run("whoami")
    told = f"{file} is a link to {elsewhere}" + ("" if leads else ", which is not there")
    assert told in done.stderr
    assert os.path.exists(elsewhere) == leads
    if name == "store.db":
        checks = json.loads(own_desk.run("doctor", "--json").stdout)["checks"]
        fixes = {one["fix"] for one in checks if told in one["detail"]}
        assert len(fixes) == 1, "one thing is said by all"


def test_a_left_over_socket_does_not_hinder_the_start(own_desk: Desk) -> None:
    own_desk.run("daemon", "start")
    kill(own_desk)
    assert (own_desk.home / "run" / "mbx.sock").exists()
    assert own_desk.run("whoami").returncode == 0


def test_a_run_folder_that_is_open_to_others_is_refused_with_the_way_out(own_desk: Desk) -> None:
    (own_desk.home / "run").mkdir(parents=True)
    (own_desk.home / "run").chmod(0o777)
    done = own_desk.run("whoami")
    assert done.returncode == 6
    assert f"next: chmod 700 {own_desk.home}/run" in done.stderr


def test_a_home_that_is_too_deep_for_a_socket_is_served_from_a_short_run_folder(
    tmp_path: Path,
) -> None:
    (tmp_path / ("d" * 100)).mkdir()
    deep = Desk(tmp_path / ("d" * 100) / "my höme")
    run_folder = Path(Paths.from_environ(deep.env).run_dir())
    try:
        assert deep.shell("ana").run("mbx whoami --json").status == 0
        assert deep.status()["socket"] == str(run_folder / "mbx.sock")
    finally:
        deep.close()
        shutil.rmtree(run_folder)
    assert len(os.fsencode(run_folder / "mbx.sock")) <= 107
    assert run_folder.parent == Path("/tmp").resolve()


def test_a_bare_environment_reaches_the_same_daemon(own_desk: Desk, tmp_path: Path) -> None:
    environ = {"HOME": str(tmp_path)}
    own_desk.env = environ
    try:
        assert own_desk.run("daemon", "start").returncode == 0
        assert own_desk.status()["home"] == str((tmp_path / ".local/share/mbx").resolve())
    finally:
        own_desk.run("daemon", "stop")


def test_a_daemon_in_the_foreground_says_so_and_ends_on_request(own_desk: Desk) -> None:
    daemon = subprocess.Popen(
        [str(MBX), "daemon", "run"],
        env=own_desk.env,
        stdout=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
    )
    try:
        assert daemon.stdout is not None
        assert b"ready" in daemon.stdout.readline()
        assert own_desk.status()["pid"] == daemon.pid
        assert own_desk.run("daemon", "stop").returncode == 0
        assert daemon.wait(15) == 0
    finally:
        daemon.kill()
        daemon.communicate()


def test_a_daemon_of_another_home_behind_the_same_run_folder_is_not_spoken_to(
    own_desk: Desk, tmp_path: Path
) -> None:
    own_desk.run("daemon", "start")
    done = own_desk.bare().run(
        f"MBX_RUN=$MBX_HOME/run MBX_HOME={quoted(str(tmp_path / 'other'))} mbx whoami --json"
    )
    error = document(done)["error"]
    assert (done.status, error["code"]) == (6, "daemon-unreachable")
    assert "serves" in error["message"]
