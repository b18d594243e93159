"""`mbx daemon install`: with a real systemd of a user, and where none can be reached."""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.conftest import Desk
from tests.support import launchctl
from tests.support.patience import looks
from tests.support.usermanager import UserManager, missing, user_manager

UNIT = "mbx.service"
FAILS = "#!/bin/sh\necho 'Failed to connect to bus: No medium found' >&2\nexit 1\n"


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[UserManager]:
    """A systemd of a user whose home is the test's folder."""
    if (why := missing()) is not None:
        pytest.skip(why)
    with user_manager(tmp_path) as manager:
        if manager is None:
            pytest.skip("a systemd of a user does not start here")
        yield manager
        manager.run("mbx", "daemon", "stop")


def said(manager: UserManager, *words: str, status: int = 0) -> dict[str, object]:
    """The document of a command."""
    done = manager.run("mbx", *words, "--json")
    assert done.returncode == status, (done.stdout, done.stderr)
    told: dict[str, object] = json.loads(done.stdout)
    return told


def checks(manager: UserManager) -> list[tuple[str, str | None]]:
    """What doctor says of the service: level and next step."""
    told = json.loads(manager.run("mbx", "doctor", "--json").stdout)
    return [(one["level"], one["fix"]) for one in told["checks"] if one["name"] == "service"]


@pytest.mark.root
@pytest.mark.long
@pytest.mark.timeout(120)
def test_the_service_takes_the_daemon_over_keeps_it_and_gives_it_back(manager: UserManager) -> None:
    before = said(manager, "daemon", "start")["pid"]
    assert checks(manager) == []
    told = said(manager, "daemon", "install")
    assert told["service"] == UNIT
    assert told["act"] == "write"
    assert told["pid"] == manager.main_pid(UNIT) == said(manager, "daemon", "status")["pid"]
    assert told["pid"] != before
    assert manager.control("is-enabled", UNIT) == "enabled"
    assert checks(manager) == [("ok", None)]

    again = said(manager, "daemon", "install")
    assert (again["act"], again["pid"]) == ("unchanged", told["pid"])

    manager.control("disable", UNIT)
    assert checks(manager) == [("warn", "mbx daemon install")]
    told = said(manager, "daemon", "install")
    assert (manager.control("is-enabled", UNIT), told["pid"]) == ("enabled", manager.main_pid(UNIT))

    restarted = said(manager, "daemon", "restart")["pid"]
    assert restarted == manager.main_pid(UNIT) != told["pid"]

    gone = said(manager, "daemon", "uninstall")
    assert gone["act"] == "remove"
    assert said(manager, "daemon", "status")["running"] is False
    left = [path for path in (manager.home / ".config").rglob("*") if not path.is_dir()]
    assert left == []
    assert said(manager, "daemon", "uninstall")["act"] == "unchanged"
    assert "no service is installed" in manager.run("mbx", "daemon", "uninstall").stdout


@pytest.mark.root
@pytest.mark.long
@pytest.mark.timeout(120)
def test_service_and_start_on_demand_never_make_two_daemons(manager: UserManager) -> None:
    told = said(manager, "daemon", "install")
    os.kill(int(str(told["pid"])), signal.SIGKILL)
    by_command = said(manager, "daemon", "start")["pid"]
    for _ in looks():
        if manager.control("is-active", UNIT) not in ("activating", "deactivating"):
            break
    assert said(manager, "daemon", "status")["pid"] == by_command
    assert manager.main_pid(UNIT) in (0, by_command)

    stopped = manager.run("mbx", "daemon", "stop").stdout
    assert stopped.startswith("stopped\n")
    assert f"{UNIT} starts it again with your next session" in stopped
    assert manager.control("is-active", UNIT) == "inactive"
    assert said(manager, "daemon", "status")["running"] is False

    assert said(manager, "whoami")["agent"] is None  # on demand, beside the service
    assert manager.main_pid(UNIT) == 0
    assert checks(manager) == [("info", "mbx daemon restart")]
    assert said(manager, "daemon", "restart")["pid"] == manager.main_pid(UNIT)
    assert said(manager, "daemon", "stop") == {"running": False, "stopped": True, "service": UNIT}
    assert said(manager, "daemon", "start")["pid"] == manager.main_pid(UNIT)


@pytest.mark.root
@pytest.mark.long
@pytest.mark.timeout(120)
def test_a_daemon_that_fails_is_started_again_by_the_service(manager: UserManager) -> None:
    told = said(manager, "daemon", "install")
    os.kill(int(str(told["pid"])), signal.SIGKILL)
    assert any(manager.main_pid(UNIT) not in (0, told["pid"]) for _ in looks())
    assert any(said(manager, "daemon", "status")["running"] for _ in looks())


@pytest.mark.root
@pytest.mark.long
@pytest.mark.timeout(120)
def test_a_home_of_its_own_has_a_service_of_its_own(manager: UserManager) -> None:
    odd = manager.home / "a home $HOME 100%h 'so'"
    places = {"MBX_HOME": str(odd), "MBX_RUN": str(odd / "run dir")}
    done = manager.run("mbx", "daemon", "install", "--json", **places)
    assert done.returncode == 0, done.stdout + done.stderr
    own = json.loads(done.stdout)
    usual = said(manager, "daemon", "install")
    assert own["service"].startswith("mbx-")
    assert own["pid"] == manager.main_pid(own["service"]) != usual["pid"]
    status = json.loads(manager.run("mbx", "daemon", "status", "--json", **places).stdout)
    assert (status["home"], status["pid"]) == (str(odd), own["pid"])
    assert status["socket"] == str(odd / "run dir/mbx.sock")
    assert manager.run("mbx", "daemon", "uninstall", **places).returncode == 0
    assert manager.main_pid(UNIT) == usual["pid"]


@pytest.mark.root
@pytest.mark.long
@pytest.mark.timeout(120)
def test_a_daemon_that_cannot_start_is_named_not_waited_for(manager: UserManager) -> None:
    said(manager, "daemon", "start")
    said(manager, "daemon", "stop")
    key = manager.home / ".local/share/mbx/host.key"
    key.chmod(0o644)
    refused = said(manager, "daemon", "install", status=6)["error"]
    assert isinstance(refused, dict)
    assert refused["next"] == "mbx daemon run"
    assert said(manager, "daemon", "start", status=1)["error"]["code"] == "store-damaged"  # type: ignore[index]
    manager.control("stop", UNIT)


def stand_in(desk: Desk, text: str) -> None:
    """Another `systemctl` is found first."""
    folder = desk.home.parent / "programs"
    folder.mkdir(parents=True)
    (folder / "systemctl").write_text(text)
    (folder / "systemctl").chmod(0o755)
    desk.env["PATH"] = f"{folder}:{desk.env['PATH']}"


def test_where_no_manager_is_reached_the_file_is_written_and_the_commands_are_said(
    own_desk: Desk,
) -> None:
    stand_in(own_desk, FAILS)
    done = own_desk.run("daemon", "install")
    assert done.returncode == 1
    lines = done.stdout.splitlines()
    path = lines[0].removeprefix("wrote  ")
    assert Path(path).is_file()
    assert lines[1].endswith("Failed to connect to bus: No medium found")
    name = os.path.basename(path)
    assert [line.strip() for line in lines[3:]] == [
        "systemctl --user daemon-reload",
        f"systemctl --user enable {name}",
        f"systemctl --user start {name}",
    ]
    told = json.loads(own_desk.run("daemon", "stop", "--json").stdout)
    assert told == {"running": False, "stopped": False, "service": name}
    assert own_desk.run("daemon", "start").returncode == 0  # by itself, since the service cannot
    assert own_desk.status()["running"]

    done = own_desk.run("daemon", "uninstall", "--json")
    assert (done.returncode, json.loads(done.stdout)["steps"]) == (0, ["mbx daemon stop"])
    assert not os.path.exists(path)
    assert own_desk.status()["running"]


def test_a_preview_changes_nothing_and_shows_the_whole_file(own_desk: Desk) -> None:
    stand_in(own_desk, FAILS)
    done = own_desk.run("daemon", "install", "--dry-run")
    assert done.returncode == 0
    for part in ("would write", "+ExecStart=", "+[Install]", "systemctl --user enable"):
        assert part in done.stdout
    assert os.listdir(own_desk.home.parent) == ["programs"]
    told = json.loads(own_desk.run("daemon", "uninstall", "--dry-run", "--json").stdout)
    assert (told["act"], told["dry_run"], told["diff"]) == ("unchanged", True, None)


def test_what_is_not_ours_is_refused_by_name(own_desk: Desk) -> None:
    stand_in(own_desk, FAILS)
    told = json.loads(own_desk.run("daemon", "install", "--dry-run", "--json").stdout)
    path = Path(told["path"])
    path.parent.mkdir(parents=True)
    path.write_text("[Service]\nExecStart=/bin/true\n")
    for act in ("install", "uninstall"):
        done = own_desk.run("daemon", act, "--json")
        error = json.loads(done.stdout)["error"]
        assert (done.returncode, error["code"]) == (1, "conflict")
        assert str(path) in error["message"]
    assert path.read_text() == "[Service]\nExecStart=/bin/true\n"


def test_a_machine_without_a_manager_is_told_what_to_run(own_desk: Desk) -> None:
    folder = own_desk.home.parent / "only"
    folder.mkdir(parents=True)
    for name in ("sh", "env"):
        (folder / name).symlink_to(str(shutil.which(name)))
    own_desk.env["PATH"] = str(folder)
    done = own_desk.run("daemon", "install")
    assert done.returncode == 2
    assert "mbx daemon run" in done.stderr
    assert os.listdir(own_desk.home.parent) == ["only"]


AS_ON_MACOS = """
import sys
sys.platform = "darwin"
from mbx.cli.main import run
sys.exit(run(sys.argv[1:]))
"""
"""The command line, where it asks what it runs on."""


@pytest.mark.long
@pytest.mark.timeout(120)
def test_on_macos_launchd_is_asked_in_its_own_words(own_desk: Desk) -> None:
    folder = own_desk.home.parent / "programs"
    folder.mkdir(parents=True)
    shutil.copy(launchctl.__file__, folder / "launchctl.py")
    script = f'#!/bin/sh\nexec {sys.executable} {folder}/launchctl.py "$@"\n'
    (folder / "launchctl").write_text(script)
    (folder / "launchctl").chmod(0o755)
    own_desk.env["PATH"] = f"{folder}:{own_desk.env['PATH']}"

    def command(*words: str) -> dict[str, object]:
        done = subprocess.run(
            [sys.executable, "-c", AS_ON_MACOS, "daemon", *words, "--json"],
            env=own_desk.env,
            capture_output=True,
            text=True,
            check=False,
            timeout=30,
        )
        assert done.returncode == 0, (done.stdout, done.stderr)
        told: dict[str, object] = json.loads(done.stdout)
        return told

    before = command("start")["pid"]
    told = command("install")
    assert told["pid"] == own_desk.status()["pid"] != before
    assert str(told["path"]).startswith(f"{own_desk.home.parent}/Library/LaunchAgents/mbx-")
    assert told["steps"] == []
    again = command("install")
    assert (again["act"], again["pid"]) == ("unchanged", told["pid"])
    stopped = command("stop")
    assert stopped["service"] == told["service"]
    assert own_desk.status()["running"] is False
    assert command("restart")["pid"] != told["pid"]
    assert command("install")["pid"] == own_desk.status()["pid"]
    assert command("uninstall")["act"] == "remove"
    assert own_desk.status()["running"] is False
    assert not os.path.exists(str(told["path"]))
