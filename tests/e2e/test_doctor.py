"""Planted faults, each named by `mbx doctor`; and `mbx diagnostics` beside a real daemon."""

import contextlib
import json
import os
import re
import signal
import socket
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from mbx.cli.commands.diagnostics import UNREACHABLE
from mbx.cli.commands.doctor import NAME_CHARS
from scripts.pairedhosts import plant_peer
from scripts.planting import DAMAGED_PAGE, LATER_S, OTHER_VERSION, PLANTED, change_store, contents
from tests.support.daemon import MBX, Daemon, fresh_home
from tests.support.patience import looks
from tests.support.rules import ROOT
from tests.support.shells import TIMEOUT_S, Shell, bare_environment, look_alike

pytestmark = [pytest.mark.long, pytest.mark.timeout(120)]

CANARY: Final = "canary-8d1e77"
LATE: Final = re.compile(
    r"answers, after \d+ ms|did not say in time|took the connection and does not answer"
)
"""What doctor says of a daemon that was kept waiting, as each is now and then on a busy machine."""


class Doctor:
    """The doctor of one home, from outside of every session."""

    def __init__(self, home: Path, **more: str) -> None:
        path = f"{Path(MBX).parent}{os.pathsep}{os.environ['PATH']}"
        self.env = bare_environment(MBX_HOME=str(home), PATH=path) | more

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """A command, as it is."""
        return subprocess.run(
            [MBX, *arguments],
            env=self.env,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
            stdin=subprocess.DEVNULL,
        )

    def examine(self, *options: str) -> subprocess.CompletedProcess[str]:
        """`mbx doctor`, once more where the daemon was only late."""
        done = self.run("doctor", *options)
        for _ in looks():
            if LATE.search(" ".join(done.stdout.split())) is None:
                break
            done = self.run("doctor", *options)
        return done

    def checks(self, *options: str) -> dict[str, list[dict[str, Any]]]:
        """The checks by name; the exit status fits them."""
        done = self.examine("--json", *options)
        assert done.stderr == ""
        told = json.loads(done.stdout)
        assert told["ok"] == (done.returncode == 0)
        assert told["ok"] == all(check["level"] != "fail" for check in told["checks"])
        found: dict[str, list[dict[str, Any]]] = {}
        for check in told["checks"]:
            assert set(check) == {"name", "level", "detail", "fix"}
            assert len(check["name"]) <= NAME_CHARS
            assert check["fix"] or check["level"] in ("ok", "info"), check
            found.setdefault(check["name"], []).append(check)
        return found

    def faults(self, *options: str) -> dict[str, str]:
        """Name -> the worst level of what is neither well nor only told."""
        faults: dict[str, str] = {}
        for name, checks in self.checks(*options).items():
            levels = {check["level"] for check in checks} & {"warn", "fail"}
            if levels:
                faults[name] = min(levels)
        return faults


@pytest.fixture
def home() -> Iterator[Path]:
    with fresh_home() as folder:
        yield folder


@pytest.fixture
def lived_in(home: Path) -> Path:
    """A home in which a daemon has run, mail was sent and everything has ended in order."""
    with Daemon(home) as daemon:
        with contextlib.ExitStack() as agents:
            ana, _ = (
                agents.enter_context(agents.enter_context(daemon.agent()).registered(name))
                for name in ("ana", "ben")
            )
            ana.call("mail.send", to=["ben"], subject=CANARY, body=CANARY)
        daemon.stop()
    return home


# -- well -----------------------------------------------------------------------------------------


def test_a_healthy_daemon_is_probed_and_nothing_is_changed(home: Path) -> None:
    with Daemon(home) as daemon, daemon.agent() as ana, ana.registered("ana"):
        before, state = contents(home), daemon.state_hash()
        assert Doctor(home).faults() == {}
        assert contents(home) == before
        assert daemon.state_hash() == state
        (probe,) = Doctor(home).checks()["daemon"]
        assert f"process {daemon.pid} answers" in probe["detail"]


def test_a_stopped_installation_is_not_started_and_not_changed(lived_in: Path) -> None:
    before = contents(lived_in)
    assert Doctor(lived_in).faults() == {"daemon": "warn"}
    assert contents(lived_in) == before


def test_nothing_yet_is_no_fault_and_makes_nothing(home: Path) -> None:
    home.rmdir()
    assert Doctor(home).faults() == {}
    assert not home.exists()
    home.mkdir()


def test_text_for_people_fits_eighty_columns_and_has_no_colours_in_a_pipe(home: Path) -> None:
    with Daemon(home):
        done = Doctor(home).examine()
    assert done.returncode == 0
    assert "\x1b" not in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 80
    assert done.stdout.splitlines()[-1] == "all is well"


def test_every_check_stands_in_the_page_for_operators(lived_in: Path) -> None:
    page = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")
    with Daemon(lived_in):
        names = Doctor(lived_in).checks()
    assert [name for name in names if f"`{name}`" not in page] == []


# -- planted faults: no daemon runs ---------------------------------------------------------------


@pytest.mark.parametrize("fault", PLANTED)
def test_a_planted_fault_is_named_and_nothing_else_and_nothing_changes(
    lived_in: Path, fault: str
) -> None:
    plant, name, level = PLANTED[fault]
    plant(lived_in)
    before = contents(lived_in)
    absent = {"daemon": "warn"} if (lived_in / "store.db").exists() else {}
    assert Doctor(lived_in).faults() == absent | {name: level}
    assert contents(lived_in) == before


FIXED: Final = ("key open", "store open", "home open", "run open", "sessions missing")
FIXED_TOO: Final = ("socket stale", "left-over", "log unwritable")


@pytest.mark.parametrize("fault", [*FIXED, *FIXED_TOO])
def test_what_is_safe_to_mend_is_mended_and_the_daemon_starts(lived_in: Path, fault: str) -> None:
    plant, name, _ = PLANTED[fault]
    plant(lived_in)
    assert Doctor(lived_in).faults("--fix") == {"daemon": "warn"}
    with Daemon(lived_in):
        assert Doctor(lived_in).faults().get(name) is None


@pytest.mark.parametrize("fault", ["key missing", "key damaged", "store damaged", "socket a file"])
def test_what_is_not_safe_to_mend_is_left_as_it_is(lived_in: Path, fault: str) -> None:
    PLANTED[fault][0](lived_in)
    before = contents(lived_in)
    assert Doctor(lived_in).run("doctor", "--fix").returncode == 1
    assert contents(lived_in) == before


def test_a_second_mbx_on_the_path_is_named(lived_in: Path, tmp_path: Path) -> None:
    other = tmp_path / "mbx"
    other.write_text("#!/bin/sh\nexit 1\n")
    other.chmod(0o755)
    doctor = Doctor(lived_in)
    doctor.env["PATH"] += f"{os.pathsep}{tmp_path}"
    (check,) = doctor.checks()["path"]
    assert (check["level"], check["fix"]) == ("warn", f"mv {other} {other}.aside")


def test_a_program_that_keeps_the_store_locked_is_named(lived_in: Path) -> None:
    connection = sqlite3.connect(lived_in / "store.db")
    connection.execute("BEGIN EXCLUSIVE")
    try:
        (check,) = Doctor(lived_in).checks()["lock"]
    finally:
        connection.close()
    assert (check["level"], check["fix"]) == ("fail", f"kill {os.getpid()}")


# -- planted faults: a daemon that is not as it should be -----------------------------------------


@contextlib.contextmanager
def paused(daemon: Daemon) -> Iterator[None]:
    daemon.signal(signal.SIGSTOP)
    try:
        yield
    finally:
        daemon.signal(signal.SIGCONT)


def test_a_hung_daemon_is_named_with_what_wakes_it(home: Path) -> None:
    with Daemon(home) as daemon:
        with paused(daemon):
            (check,) = Doctor(home).checks()["daemon"]
        assert (check["level"], check["fix"]) == ("fail", f"kill -CONT {daemon.pid}")
        assert "stopped" in check["detail"]


def test_a_lock_held_by_a_process_that_does_not_listen_is_named(lived_in: Path) -> None:
    hold = (
        "import fcntl,sys; f=open(sys.argv[1],'r+'); fcntl.flock(f,2); print(flush=True); input()"
    )
    argv = [sys.executable, "-I", "-S", "-c", hold, str(lived_in / "daemon.lock")]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline()
        (check,) = Doctor(lived_in).checks()["daemon"]
        holder.kill()
    assert (check["level"], check["fix"]) == ("fail", f"kill -9 {holder.pid}")


@pytest.mark.parametrize(("protocol", "level"), [(1, "warn"), (9, "fail")])
def test_a_daemon_of_another_version_is_named(home: Path, protocol: int, level: str) -> None:
    with Daemon(home, python=("-c", OTHER_VERSION, str(protocol))):
        checks = Doctor(home).checks()
    (check,) = checks["versions"]
    assert (check["level"], check["fix"]) == (level, "mbx daemon restart")
    assert "9.9.9" in check["detail"]
    assert checks["daemon"][0]["level"] == "ok"


def test_a_daemon_of_another_home_at_our_socket_is_named(home: Path) -> None:
    with fresh_home() as other, Daemon(other):
        doctor = Doctor(home, MBX_RUN=str(other / "run"))
        (check,) = doctor.checks()["daemon"]
    assert check["level"] == "fail"
    assert check["detail"] == f"the daemon at the socket serves {other}, not {home}"


def test_a_damaged_page_is_named_while_the_daemon_serves(lived_in: Path) -> None:
    change_store(lived_in, *DAMAGED_PAGE)
    with Daemon(lived_in):
        (check,) = Doctor(lived_in).checks()["store pages"]
    assert check["level"] == "fail"
    assert "2nd reference to page 3" in check["detail"]
    assert not {"\n", "*"} & set(check["detail"])


def test_a_changed_audit_log_is_named(lived_in: Path) -> None:
    change_store(lived_in, "UPDATE audit SET act = 'other' WHERE no = 3")
    with Daemon(lived_in):
        (check,) = Doctor(lived_in).checks()["audit"]
    assert check["level"] == "fail"
    assert "row 3" in check["detail"]


def test_stranded_mail_is_named_with_its_last_holder(lived_in: Path) -> None:
    change_store(lived_in, f"UPDATE messages SET accepted_ms = accepted_ms - {LATER_S * 1_000}")
    with Daemon(lived_in):
        (check,) = Doctor(lived_in).checks()["stranded mail"]
    assert (check["level"], check["fix"]) == ("warn", "mbx identity claim ben")
    assert check["detail"].startswith("1 unacked message for ben, whom nobody holds")
    assert "last held by run " in check["detail"]


def test_records_of_a_later_time_are_named(lived_in: Path) -> None:
    change_store(lived_in, f"UPDATE messages SET accepted_ms = accepted_ms + {LATER_S * 1_000}")
    with Daemon(lived_in):
        (check,) = Doctor(lived_in).checks()["clock"]
    assert check["level"] == "warn"
    assert "behind the newest record" in check["detail"]


@pytest.mark.parametrize(
    ("fault", "found"),
    [
        ("", {}),
        ("UPDATE streams SET stopped = 'fork'", {"peers": "fail"}),
        ("UPDATE streams SET lag_ms = -600000", {"clocks": "warn"}),
        ("UPDATE streams SET queued_messages = 80000", {"outbox": "warn"}),
        ("UPDATE streams SET queued_bytes = 536870912", {"outbox": "fail"}),
        ("UPDATE peers SET ended_ms = 1, ended_by = 'peer'", {"peers": "warn"}),
    ],
)
def test_what_is_wrong_between_paired_hosts_is_named(
    lived_in: Path, fault: str, found: dict[str, str]
) -> None:
    plant_peer(lived_in, bytes(range(32)), 1)
    if fault:
        change_store(lived_in, fault)
    with Daemon(lived_in):
        assert Doctor(lived_in).faults() == found


def test_a_port_that_is_taken_and_a_key_that_is_lost_are_named(lived_in: Path) -> None:
    plant_peer(lived_in, bytes(range(32)), 1)
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        change_store(lived_in, f"""UPDATE host SET listen = '["127.0.0.1:{port}"]'""")
        with Daemon(lived_in):
            found = Doctor(lived_in).checks()
            assert found["listener"][0]["level"] == "fail"
            assert str(port) in found["listener"][0]["detail"]
    (lived_in / "tls.key").unlink()
    with Daemon(lived_in):
        assert Doctor(lived_in).faults() == {"listener": "fail", "tls key": "fail"}
    assert not (lived_in / "tls.key").exists()


def test_a_missing_credential_is_named_and_written_again(home: Path) -> None:
    with Daemon(home) as daemon, daemon.agent() as ana, ana.registered("ana"):
        (credential,) = (home / "run" / "sessions").iterdir()
        credential.unlink()
        assert Doctor(home).faults() == {"credentials": "warn"}
        assert not credential.exists()
        # A daemon that is late has not written it yet when doctor ends; then it is asked again.
        assert any(Doctor(home).faults("--fix") == {} for _ in looks())
        assert credential.exists()


def test_a_session_that_waits_for_its_identity_is_named(home: Path, tmp_path: Path) -> None:
    claude = [str(look_alike(tmp_path, "claude")), "--norc", "--noprofile"]
    with Daemon(home):
        conversation = {"MBX_CLI": "claude", "MBX_SESSION": "s-1", "MBX_AGENT": "ana"}
        env = Doctor(home, **conversation, MBX_ROLE="tester").env
        with Shell(claude, env=env) as first, Shell(claude, env=env) as twin:
            for shell in (first, twin):
                assert shell.run("mbx whoami").status == 0
            (check,) = Doctor(home).checks()["pending"]
            assert " waits for ana since " in check["detail"]
            assert check["fix"] == "mbx identity show ana"


def test_neither_command_gives_the_caller_the_identity_of_its_launch(
    home: Path, tmp_path: Path
) -> None:
    claude = [str(look_alike(tmp_path, "claude")), "--norc", "--noprofile"]
    wish = {"MBX_CLI": "claude", "MBX_SESSION": "s-2", "MBX_AGENT": "ben", "MBX_ROLE": "tester"}
    with Daemon(home) as daemon, Shell(claude, env=Doctor(home, **wish).env) as shell:
        before = daemon.state_hash()
        for command in ("mbx doctor", "mbx doctor --fix", "mbx diagnostics --mailbox ben"):
            shell.run(command)
        assert daemon.state_hash() == before


# -- what only root can plant ---------------------------------------------------------------------


@contextlib.contextmanager
def mounted(folder: Path, *options: str) -> Iterator[None]:
    done = subprocess.run(
        ["mount", "-t", "tmpfs", *options, "none", str(folder)], capture_output=True, check=False
    )
    if done.returncode != 0:
        pytest.skip("nothing can be mounted here")
    try:
        yield
    finally:
        subprocess.run(["umount", str(folder)], check=True)


@pytest.mark.root
def test_a_full_disk_is_named(home: Path) -> None:
    with mounted(home, "-o", "size=64k,mode=0700"):
        assert Doctor(home).faults() == {"disk": "fail"}


@pytest.mark.root
def test_a_read_only_disk_is_named(home: Path) -> None:
    with mounted(home, "-o", "size=64m,mode=0700,ro"):
        assert Doctor(home).faults() == {"file system": "fail", "disk": "warn"}


@pytest.mark.root
def test_a_run_folder_of_another_user_is_named(lived_in: Path) -> None:
    os.chown(lived_in / "run", 65_534, 65_534)
    (check,) = Doctor(lived_in).checks()["run"]
    assert (check["level"], check["fix"]) == ("fail", f"sudo chown -R 0 {lived_in / 'run'}")


def test_a_run_folder_in_tmp_that_is_not_ours_is_named(home: Path) -> None:
    long = home / ("x" * 90)
    doctor = Doctor(home, MBX_RUN=str(long))
    asked = (
        "import os; from mbx.paths import Paths; print(Paths.from_environ(os.environ).run_dir())"
    )
    run = Path(
        subprocess.run(
            [sys.executable, "-c", asked],
            env=doctor.env,
            check=True,
            capture_output=True,
            text=True,
        ).stdout.strip()
    )
    run.mkdir()
    run.chmod(0o755)
    try:
        (check,) = doctor.checks()["places"]
    finally:
        run.rmdir()
    assert (check["level"], check["fix"]) == ("fail", f"chmod 700 {run}")


# -- diagnostics ----------------------------------------------------------------------------------


def test_three_situations_have_three_words(home: Path) -> None:
    doctor = Doctor(home)

    def show(*scope: str) -> dict[str, Any]:
        told: dict[str, Any] = json.loads(doctor.run("diagnostics", "--json", *scope).stdout)
        return told

    def answered(*scope: str) -> dict[str, Any]:
        """What the daemon says, once it is not too late for it."""
        return next(told for _ in looks() if "error" not in (told := show(*scope)))

    with Daemon(home) as daemon, daemon.agent() as ana:
        with ana.registered("ana") as line:
            session = line.call("session.whoami")["session"]
            held = answered("--mailbox", "ana")
            line.call("identity.release")
            free = answered("--cli", session["cli"], "--session", session["id"])
        with paused(daemon):
            hung = show("--mailbox", "ana")["error"]
    assert (held["status"], free["status"]) == ("mailbox-held", "no-binding")
    assert (hung["code"], hung["status"]) == (UNREACHABLE, UNREACHABLE)
    assert held["installed_version"] == held["daemon_version"] == hung["installed_version"]
    assert hung["daemon_version"] is None
    assert (held["connector"], held["holder"]["pid"]) == (None, ana.pid)


def test_diagnostics_starts_no_daemon_and_refuses_an_unknown_scope(lived_in: Path) -> None:
    doctor = Doctor(lived_in)
    before = contents(lived_in)
    done = doctor.run("diagnostics", "--mailbox", "ana")
    assert (done.returncode, done.stdout) == (6, "")
    assert contents(lived_in) == before
    with Daemon(lived_in):
        assert doctor.run("diagnostics", "--mailbox", "an").returncode == 3
        assert doctor.run("diagnostics").returncode == 2
        assert doctor.run("diagnostics", "--cli", "run").returncode == 2
        assert doctor.run("diagnostics", "--mailbox", "ben", "--limit", "0").returncode == 2


# -- nothing that is nobody's business ------------------------------------------------------------


def test_no_words_of_mail_and_no_secret_in_any_output(lived_in: Path) -> None:
    secrets = [CANARY, json.loads((lived_in / "host.key").read_text())["seed"]]
    with Daemon(lived_in) as daemon, daemon.agent() as ana, ana.connect() as line:
        line.call("identity.claim", name="ana")
        line.call("identity.set", description=CANARY, card=CANARY)
        sent = line.call("mail.send", to=["ana"], subject=CANARY, body=CANARY, topic=CANARY)
        line.call("mail.ack", ids=[sent["id"]], did=CANARY, note=CANARY)
        (credential,) = (lived_in / "run" / "sessions").glob("*.json")
        secrets.append(json.loads(credential.read_text())["token"])
        (lived_in / "host.key").chmod(0o644)
        for arguments in (
            ["doctor"],
            ["doctor", "--json"],
            ["diagnostics", "--mailbox", "ben"],
            ["diagnostics", "--mailbox", "ana", "--json"],
            ["doctor", "--fix"],
        ):
            done = Doctor(lived_in, MBX_LOG="debug").run(*arguments)
            assert done.stdout
            for secret in secrets:
                assert secret not in done.stdout + done.stderr
