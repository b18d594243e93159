"""The daemon's life: one per home, started by anybody, stopped without loss, back after a kill."""

import contextlib
import fcntl
import json
import os
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from mbx.core.limits import LOG_FILE_MAX_BYTES, LOG_FILES_KEPT
from mbx.paths import Paths
from tests.support.daemon import MBX, Daemon, HungUpError, fresh_home, request
from tests.support.shells import TIMEOUT_S, bare_environment

DAEMON = (sys.executable, "-I", "-m", "mbx.daemon")


@pytest.fixture
def home() -> Iterator[Path]:
    with fresh_home() as folder:
        yield folder


def files(home: Path) -> dict[str, bytes]:
    return {
        path.name: path.read_bytes()
        for path in home.iterdir()
        if path.is_file() and path.name not in {"daemon.log", "daemon.lock"}
    }


def refusal(home: Path, **more: str) -> dict[str, str]:
    """What the daemon says when it does not start."""
    daemon = Daemon(home, environment=more)
    said = daemon.start()
    assert daemon.wait() != 0
    error = said["error"]
    assert isinstance(error, dict)
    return error


# -- one daemon per home --------------------------------------------------------------------------


def test_of_twenty_simultaneous_starters_one_wins_and_all_are_served(home: Path) -> None:
    environment = bare_environment(MBX_HOME=str(home))
    argv = [MBX, "daemon", "status", "--json"]
    starters = [
        subprocess.Popen(
            [MBX, "identity", "list", "--json"],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        for _ in range(20)
    ]
    try:
        for starter in starters:
            out, err = starter.communicate(timeout=TIMEOUT_S)
            assert (starter.returncode, err) == (0, b"")
            assert json.loads(out) == {"identities": [], "next_after": None}
        told = subprocess.run(argv, env=environment, capture_output=True, check=True)
        pid = json.loads(told.stdout)["pid"]
        starts = [row for row in (home / "daemon.log").read_text().splitlines() if "ready" in row]
        assert len(starts) == 1
        assert json.loads(starts[0])["pid"] == pid
    finally:
        subprocess.run([MBX, "daemon", "stop"], env=environment, capture_output=True, check=True)
    assert not (home / "run" / "mbx.sock").exists()


def test_of_twenty_simultaneous_daemons_one_serves_and_the_others_end_quietly(home: Path) -> None:
    with ExitStack() as stack:
        daemons = [Daemon(home) for _ in range(20)]
        for daemon in daemons:
            daemon.process = subprocess.Popen(
                [*DAEMON, "--foreground"], env=daemon.environment, stdout=subprocess.PIPE
            )
            stack.callback(daemon.kill)
        said = []
        for daemon in daemons:
            assert daemon.process is not None
            assert daemon.process.stdout is not None
            daemon.said = json.loads(daemon.process.stdout.readline())
            said.append(daemon.said)
        (winner,) = [daemon for daemon in daemons if daemon.said["ready"]]
        for daemon in daemons:
            if daemon is not winner:
                assert (daemon.said["reason"], daemon.wait()) == ("running", 0)
        winner.socket_path = winner.said["socket"]
        assert winner.status()["pid"] == winner.pid


def test_a_second_daemon_leaves_the_first_ones_socket_alone(home: Path) -> None:
    with Daemon(home) as daemon:
        inode = os.stat(daemon.socket_path).st_ino
        second = Daemon(home)
        assert second.start()["ready"] is False
        assert second.wait() == 0
        assert os.stat(daemon.socket_path).st_ino == inode
        assert daemon.status()["pid"] == daemon.pid


def test_a_daemon_that_ends_removes_only_its_own_socket(home: Path) -> None:
    with Daemon(home) as daemon:
        os.unlink(daemon.socket_path)
        Path(daemon.socket_path).write_text("somebody else's")
        daemon.stop()
        assert Path(daemon.socket_path).read_text() == "somebody else's"


def test_every_spelling_of_a_home_is_the_same_daemon(home: Path) -> None:
    with Daemon(home) as daemon:
        link = home.with_name(home.name + "-link")
        link.symlink_to(home)
        try:
            for spelling in (f"{home}/", f"{home}/../{home.name}", str(link)):
                told = daemon.mbx("daemon", "status", "--json", MBX_HOME=spelling)
                assert json.loads(told.stdout)["pid"] == daemon.pid
        finally:
            link.unlink()


# -- left-overs -----------------------------------------------------------------------------------


def test_after_kill_nine_left_overs_do_not_block_the_next_start(home: Path) -> None:
    with Daemon(home) as daemon:
        state = daemon.state_hash()
        daemon.kill()
        assert Path(daemon.socket_path).exists()
        assert (home / "daemon.lock").exists()
        daemon.start()
        assert daemon.state_hash() == state


def test_a_lock_file_alone_does_not_block_and_a_held_one_does(home: Path) -> None:
    lock = home / "daemon.lock"
    lock.write_text("4711\n")
    with Daemon(home) as daemon:
        daemon.stop()
    with lock.open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        blocked = Daemon(home)
        assert blocked.start()["reason"] == "running"
        assert blocked.wait() == 0


def test_two_homes_cannot_share_a_run_folder(home: Path) -> None:
    run = str(home / "shared")
    ours, theirs = home / "ours", home / "theirs"
    with Daemon(ours, environment={"MBX_RUN": run}) as daemon:
        error = refusal(theirs, MBX_RUN=run)
        assert (error["code"], error["path"]) == ("daemon-unreachable", run)
        assert "MBX_RUN" in error["next"]
        with daemon.line() as line:
            line.hello()
            assert line.call("daemon.status")["home"] == str(ours)
    with Daemon(theirs, environment={"MBX_RUN": run}):
        assert refusal(ours, MBX_RUN=run)["code"] == "daemon-unreachable"


def test_something_else_in_the_sockets_place_is_named_and_left(home: Path) -> None:
    run = home / "run"
    run.mkdir(mode=0o700)
    place = run / "mbx.sock"
    place.write_text("mine")
    error = refusal(home)
    assert error["code"] == "daemon-unreachable"
    assert str(place) in error["message"]
    assert error["next"] == f"move {place} aside"
    assert place.read_text() == "mine"
    place.unlink()
    place.symlink_to(home / "elsewhere")
    assert refusal(home)["code"] == "daemon-unreachable"
    assert place.is_symlink()


# -- places ---------------------------------------------------------------------------------------


def test_a_home_too_long_for_a_socket_gets_a_short_run_folder(home: Path) -> None:
    deep = home / ("d" * 60) / ("ü" * 30)
    deep.mkdir(parents=True)
    deep.chmod(0o700)
    run = Paths.from_environ({"MBX_HOME": str(deep)}).run_dir()
    assert run.startswith("/tmp/mbx-")
    try:
        with Daemon(deep) as daemon:
            assert daemon.status()["home"] == str(deep)
            assert Path(daemon.socket_path).parent == Path(run)
            told = daemon.mbx("daemon", "status", "--json")
            assert json.loads(told.stdout)["pid"] == daemon.pid
        os.chmod(run, 0o755)
        assert run in refusal(deep)["message"]
    finally:
        shutil.rmtree(run)


def test_a_home_with_odd_characters_works(home: Path) -> None:
    odd = home / "a b'\"é\n$(x)"
    odd.mkdir(mode=0o700)
    with Daemon(odd) as daemon:
        told = daemon.mbx("daemon", "status", "--json")
        assert json.loads(told.stdout)["home"] == str(odd)


def test_a_home_whose_path_is_no_utf8_works_and_is_told_in_escapes(home: Path) -> None:
    odd = home / os.fsdecode(b"caf\xe9")
    odd.mkdir(mode=0o700)
    with Daemon(odd) as daemon:
        told = daemon.mbx("daemon", "status", "--json")
        assert json.loads(told.stdout)["home"] == rf"{home}/caf\xe9"


@pytest.mark.parametrize("mode", [0o701, 0o750, 0o777])
@pytest.mark.parametrize("which", [".", "run"])
def test_a_folder_open_to_others_is_refused_with_the_remedy(
    mode: int, which: str, home: Path
) -> None:
    folder = home / which
    folder.mkdir(mode=0o700, exist_ok=True)
    folder.chmod(mode)
    error = refusal(home)
    assert error["code"] == "daemon-unreachable"
    assert f"{mode:04o}" in error["message"]
    assert error["next"] == f"chmod 700 {os.path.normpath(folder)}"
    home.chmod(0o700)


def test_a_link_in_place_of_the_run_folder_is_resolved_and_what_it_leads_to_is_checked(
    home: Path,
) -> None:
    elsewhere = home / "elsewhere"
    elsewhere.mkdir(mode=0o755)
    (home / "run").symlink_to(elsewhere)
    assert str(elsewhere) in refusal(home)["message"]
    elsewhere.chmod(0o700)
    with Daemon(home) as daemon:
        assert Path(daemon.socket_path) == elsewhere / "mbx.sock"


def test_a_home_that_is_a_file_is_refused(home: Path) -> None:
    place = home / "file"
    place.write_text("x")
    assert refusal(place)["code"] == "daemon-unreachable"
    assert place.read_text() == "x"


# -- stopping and coming back ---------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_the_daemon_in_order(number: signal.Signals, home: Path) -> None:
    with Daemon(home) as daemon, daemon.agent() as agent:
        agent.registered("anna").close()
        daemon.signal(number)
        assert daemon.wait() == 0
    assert not Path(daemon.socket_path).exists()
    assert not (home / "store.db-wal").exists() or not (home / "store.db-wal").stat().st_size


def test_stop_is_answered_and_open_connections_end(home: Path) -> None:
    with Daemon(home) as daemon, daemon.line() as idle, daemon.line() as line:
        idle.hello()
        line.hello()
        assert line.call("daemon.stop") == {"stopping": True, "pid": daemon.pid}
        assert idle.is_closed()
        assert daemon.wait() == 0


def test_stop_waits_for_nobody_who_does_not_read(home: Path) -> None:
    with Daemon(home) as daemon, daemon.agent() as agent:
        line = agent.registered("anna")
        sent = line.call("mail.send", to=["anna"], subject="s", body="x" * 200_000)
        line.write(b"".join(request(n, "mail.read", ids=[sent["id"]]) + b"\n" for n in range(30)))
        daemon.stop()
        line.close()


def test_what_was_accepted_is_there_after_a_kill_and_leases_and_mail_go_on(home: Path) -> None:
    with Daemon(home) as daemon, daemon.agent() as agent:
        with agent.registered("anna") as line:
            sent = line.call("mail.send", to=["anna"], subject="s", body="b", key="k")
        epoch = None
        for _ in range(3):
            daemon.kill()
            daemon.start()
            with agent.connect() as line:
                lease = line.call("session.whoami")["lease"]
                assert epoch in (None, lease["epoch"])
                epoch = lease["epoch"]
                assert [one["id"] for one in line.call("mail.inbox")["messages"]] == [sent["id"]]
                repeat = line.call("mail.send", to=["anna"], subject="s", body="b", key="k")
                assert (repeat["id"], repeat["duplicate"]) == (sent["id"], True)


def test_a_holder_that_died_while_no_daemon_ran_is_found_dead_at_the_start(home: Path) -> None:
    with Daemon(home) as daemon:
        with daemon.agent() as agent:
            agent.registered("anna").close()
            daemon.kill()
        daemon.start()
        with daemon.line() as line:
            line.hello()
            shown = line.call("identity.show", name="anna")
        assert (shown["state"], shown["claimable"]) == ("lapsed", True)


def test_the_command_starts_the_daemon_and_stops_it(home: Path) -> None:
    daemon = Daemon(home)

    def status() -> dict[str, object]:
        told = json.loads(daemon.mbx("daemon", "status", "--json").stdout)
        assert isinstance(told, dict)
        return told

    assert status()["running"] is False
    assert list(home.iterdir()) == [], "asking starts nothing"
    try:
        assert daemon.mbx("daemon", "start").returncode == 0
        first = status()
        assert first["running"] is True
        assert daemon.mbx("daemon", "restart").returncode == 0
        second = status()
        assert (second["running"], second["pid"] == first["pid"]) == (True, False)
    finally:
        assert daemon.mbx("daemon", "stop").returncode == 0
    assert status()["running"] is False
    assert daemon.mbx("daemon", "stop").returncode == 0


def test_a_daemon_started_on_demand_keeps_no_terminal_folder_or_stream_of_its_starter(
    home: Path,
) -> None:
    daemon = Daemon(home)
    try:
        told = subprocess.run(
            [MBX, "daemon", "start", "--json"],
            env={**daemon.environment, "MBX_AGENT": "spy", "SECRET": "s3cret"},
            cwd=home,
            capture_output=True,
            timeout=TIMEOUT_S,
            check=True,
        )
        pid = json.loads(told.stdout)["pid"]
        entry = Path(f"/proc/{pid}")
        assert os.readlink(entry / "cwd") == "/"
        assert {os.readlink(entry / "fd" / str(n)) for n in range(3)} == {"/dev/null"}
        assert b"s3cret" not in (entry / "environ").read_bytes()
        assert os.getsid(pid) not in (pid, os.getsid(0)), "no session leader, so no terminal"
    finally:
        daemon.mbx("daemon", "stop")


# -- versions and stores --------------------------------------------------------------------------


def test_a_store_of_a_newer_version_is_refused_and_not_touched(home: Path) -> None:
    with Daemon(home) as daemon:
        daemon.stop()
    with contextlib.closing(sqlite3.connect(home / "store.db")) as store:
        store.execute("PRAGMA user_version = 99")
        store.commit()
    before = files(home)
    error = refusal(home)
    assert error["code"] == "version-mismatch"
    assert "schema 99" in error["message"]
    assert files(home) == before


FOREIGN = {
    "text": b"Dear diary,\n" * 1_000,
    "one byte": b"x",
    "half a header": b"SQLite format 3\x00" + b"\x10\x00",
    "zeros": bytes(8_192),
}


@pytest.mark.parametrize("content", FOREIGN.values(), ids=FOREIGN.keys())
def test_a_file_that_is_no_store_is_refused_and_not_touched(content: bytes, home: Path) -> None:
    (home / "store.db").write_bytes(content)
    (home / "store.db").chmod(0o600)
    error = refusal(home)
    assert error["code"] == "store-damaged"
    assert str(home / "store.db") in error["message"]
    assert files(home) == {"store.db": content}


def test_a_database_of_another_program_is_refused_and_not_touched(home: Path) -> None:
    with contextlib.closing(sqlite3.connect(home / "store.db")) as store:
        store.execute("CREATE TABLE notes (text)")
        store.commit()
    before = files(home)
    assert refusal(home)["code"] == "store-damaged"
    assert files(home) == before


def test_a_store_that_is_a_link_or_a_folder_is_refused(home: Path) -> None:
    place = home / "store.db"
    elsewhere = home / "elsewhere.db"
    elsewhere.write_bytes(b"")
    place.symlink_to(elsewhere)
    assert refusal(home)["code"] in {"store-damaged", "daemon-unreachable"}
    assert elsewhere.read_bytes() == b""
    place.unlink()
    place.mkdir()
    assert refusal(home)["code"] in {"store-damaged", "daemon-unreachable"}


def test_nobody_else_can_open_the_store_while_the_daemon_runs(home: Path) -> None:
    with (
        Daemon(home),
        contextlib.closing(sqlite3.connect(home / "store.db", timeout=0)) as store,
        pytest.raises(sqlite3.OperationalError, match="locked"),
    ):
        store.execute("SELECT * FROM host")


# -- the log --------------------------------------------------------------------------------------


def test_the_log_stays_small_however_many_bad_lines_come(home: Path) -> None:
    with Daemon(home) as daemon:
        with daemon.line() as line:
            line.hello()
            for _ in range(100):
                line.write(b"\x1b[2J nonsense\n" * 200)
                for _ in range(200):
                    assert "error" in line.read()
        for _ in range(200):
            with daemon.line() as line, contextlib.suppress(HungUpError):
                line.write(b"\0" * 100 + b"\n")
                line.read()
        daemon.stop()
    log = (home / "daemon.log").read_bytes()
    assert len(log) < 8_192
    assert b"nonsense" not in log
    for row in log.splitlines():
        assert isinstance(json.loads(row), dict)


def test_a_full_log_is_moved_aside_and_few_are_kept(home: Path) -> None:
    log = home / "daemon.log"
    for round_no in range(LOG_FILES_KEPT + 2):
        log.write_bytes(b"x" * (LOG_FILE_MAX_BYTES - 10) + b"\n")
        with Daemon(home) as daemon:
            daemon.stop()
        assert log.stat().st_size < LOG_FILE_MAX_BYTES, round_no
    kept = sorted(path.name for path in home.glob("daemon.log*"))
    assert kept == ["daemon.log", *(f"daemon.log.{n}" for n in range(1, LOG_FILES_KEPT + 1))]


def test_no_mail_key_or_token_is_logged(home: Path) -> None:
    with Daemon(home) as daemon, daemon.agent() as agent:
        with agent.registered("anna") as line:
            line.call("mail.send", to="anna", subject="canary-subject", body="canary-body")
            line.refusal("mail.send", to="anna", subject="canary-subject" * 20, body="")
            line.ask(b'{"canary-line')
        (token_file,) = (home / "run" / "sessions").iterdir()
        token = json.loads(token_file.read_text())["token"]
        daemon.stop()
    log = (home / "daemon.log").read_text()
    assert "canary" not in log
    assert token not in log
    assert json.loads((home / "host.key").read_text())["seed"] not in log


# -- other users ----------------------------------------------------------------------------------

BECOME_NOBODY = """
import os, socket
os.setgroups([])
os.setgid(65534)
os.setuid(65534)
"""


@pytest.mark.root
def test_another_user_can_neither_connect_nor_read(home: Path) -> None:
    attempt = (
        BECOME_NOBODY
        + """
import sys
for name in ("store.db", "host.key", "daemon.log", "run/mbx.sock", "run/sessions"):
    try:
        os.stat(os.path.join(sys.argv[1], name))
        print("saw", name)
    except PermissionError:
        pass
try:
    socket.socket(socket.AF_UNIX).connect(sys.argv[2])
    print("connected")
except PermissionError:
    pass
"""
    )
    with Daemon(home) as daemon:
        argv = [sys.executable, "-I", "-S", "-c", attempt, str(home), daemon.socket_path]
        told = subprocess.run(argv, capture_output=True, check=False)
        assert (told.stdout, told.stderr) == (b"", b"")


@pytest.mark.root
def test_a_connection_of_another_user_is_cut_without_a_word(home: Path) -> None:
    """Were the folder ever opened, the kernel's word on the caller still decides."""
    ask = (
        BECOME_NOBODY
        + """
import sys
line = socket.socket(socket.AF_UNIX)
line.connect(sys.argv[1])
try:
    line.sendall(sys.argv[2].encode() + b"\\n")
    print(line.recv(100))
except (BrokenPipeError, ConnectionResetError):
    print(b"")
"""
    )
    with Daemon(home) as daemon:
        for path in (home, home / "run"):
            path.chmod(0o711)
        os.chmod(daemon.socket_path, 0o666)
        hello = request(0, "hello", protocol=1).decode()
        argv = [sys.executable, "-I", "-S", "-c", ask, daemon.socket_path, hello]
        told = subprocess.run(argv, capture_output=True, check=False)
        assert (told.stdout, told.stderr) == (b"b''\n", b"")
        assert daemon.status()["running"] is True
        home.chmod(0o700)


def test_a_listener_left_by_nobody_is_replaced_without_a_gap(home: Path) -> None:
    """A listener that does not hold the lock is no daemon."""
    run = home / "run"
    run.mkdir(mode=0o700)
    with socket.socket(socket.AF_UNIX) as stale:
        stale.bind(str(run / "mbx.sock"))
        stale.listen()
        with Daemon(home) as daemon:
            assert daemon.status()["pid"] == daemon.pid


_BROKEN = """
import mbx.daemon.app
from mbx.daemon.__main__ import main
async def broken(*_):
    raise ValueError("the body of a letter")
mbx.daemon.app.run = broken
main(())
"""
"""A daemon with a defect that nobody foresaw: replaced in the process that the test starts."""


def test_a_defect_that_ends_the_daemon_is_in_the_log_by_kind_and_place(home: Path) -> None:
    ended = subprocess.run(
        [sys.executable, "-I", "-c", _BROKEN],
        env=bare_environment(MBX_HOME=str(home)),
        stderr=subprocess.DEVNULL,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert ended.returncode != 0
    last = json.loads((home / "daemon.log").read_text().splitlines()[-1])
    assert last["event"] == "ended by a defect"
    assert last["whence"].startswith("ValueError < ")
    assert "letter" not in last["whence"]


@pytest.mark.root
def test_the_daemon_is_closed_to_others_of_its_user() -> None:
    somebody = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")
    with fresh_home() as home:
        os.chown(home, 65534, 65534)
        with Daemon(home, prefix=somebody) as daemon:
            entry = Path(f"/proc/{daemon.pid}")
            assert "Uid:\t65534" in (entry / "status").read_text()
            # The entries of a process that is not dumpable belong to root, whoever runs it.
            assert {(entry / name).stat().st_uid for name in ("mem", "environ", "maps")} == {0}
