"""The part that looks: real files, real locks, real listeners, and nothing changed by looking."""

import contextlib
import fcntl
import json
import os
import socket
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from mbx.doctor import looking
from mbx.doctor.places import Command
from mbx.doctor.serving import Process
from mbx.paths import Paths
from tests.support.children import SLEEPER
from tests.support.daemon import fresh_home
from tests.support.patience import LOOKS_S

ME = os.geteuid()


@pytest.fixture
def paths() -> Iterator[Paths]:
    with fresh_home() as home:
        (home / "run").mkdir(mode=0o700)
        yield Paths(str(home), str(home / "run"))


# -- files ----------------------------------------------------------------------------------------


def test_every_kind_of_entry_is_told_apart_and_no_link_is_followed(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"12345")
    (tmp_path / "file").chmod(0o640)
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "file")
    os.mkfifo(tmp_path / "fifo")
    kinds = {
        name: looking.look(str(tmp_path / name)).kind
        for name in ("file", "folder", "link", "fifo", "none", "file/below")
    }
    assert kinds == {
        "file": "file",
        "folder": "folder",
        "link": "link",
        "fifo": "other",
        "none": "missing",
        "file/below": "missing",
    }
    seen = looking.look(str(tmp_path / "file"))
    assert (seen.mode, seen.user_id, seen.size_bytes) == (0o640, ME, 5)


def test_a_folder_is_of_others_when_nothing_in_it_is_ours(tmp_path: Path) -> None:
    place = str(tmp_path)
    assert not looking.look_into(place).is_of_others
    for name, is_of_others in (("run", False), ("letters", True), ("store.db", False)):
        (tmp_path / name).mkdir()
        assert looking.look_into(place).is_of_others == is_of_others
    (tmp_path / "file").write_bytes(b"")
    assert not looking.look_into(str(tmp_path / "file")).is_of_others


def test_a_name_that_the_system_refuses_is_hidden_and_no_trace(tmp_path: Path) -> None:
    seen = looking.look(str(tmp_path / ("x" * 300)))
    assert (seen.kind, seen.why) == ("hidden", "File name too long")


def test_the_ends_of_files_are_read_and_nothing_that_could_block(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"0123456789")
    (tmp_path / "link").symlink_to(tmp_path / "file")
    os.mkfifo(tmp_path / "fifo")
    file = str(tmp_path / "file")
    assert looking.first_bytes(file, 3) == b"012"
    assert looking.last_bytes(file, 3) == b"789"
    assert looking.last_bytes(file, 30) == b"0123456789"
    for name in ("link", "fifo", "none", ""):
        assert looking.first_bytes(str(tmp_path / name), 3) is None
    assert looking.names_in(str(tmp_path / "none")) == []


def test_the_installed_schema_is_that_of_the_migrations() -> None:
    from mbx.store.migrate import migrations

    assert looking.newest_schema() == len(migrations())


# -- what we stand on -----------------------------------------------------------------------------


def test_the_nearest_folder_answers_for_one_that_is_not_there(tmp_path: Path) -> None:
    deep = str(tmp_path / "a" / "b")
    assert looking.nearest(deep) == str(tmp_path)
    assert looking.space_at(deep).free_bytes > 0
    mount = looking.mount_at(deep)
    assert mount is not None
    assert os.path.ismount(mount.point)


def test_commands_are_found_in_the_order_of_the_path(tmp_path: Path) -> None:
    one, two = tmp_path / "1" / "mbx", tmp_path / "2" / "mbx"
    for path in (one, two):
        path.parent.mkdir()
        path.write_text("#!/bin/sh\n")
    assert looking.commands_on(f"{one.parent}:{two.parent}") == []
    for path in (one, two):
        path.chmod(0o755)
    found = looking.commands_on(f"{two.parent}:/no/such:{one.parent}:{two.parent}")
    assert found == [Command(str(two), str(two)), Command(str(one), str(one))]
    assert looking.running_command(str(one)) == str(one)
    assert looking.running_command("-c") is None


# -- locks ----------------------------------------------------------------------------------------

HOLD = f"""
import fcntl, sys
file = open(sys.argv[1], "r+")
fcntl.flock(file, fcntl.LOCK_EX)
{SLEEPER}
"""


@contextlib.contextmanager
def holding(path: str) -> Iterator[int]:
    """Another process has locked the file; its number."""
    Path(path).touch(0o600)
    argv = [sys.executable, "-I", "-S", "-c", HOLD, path]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"up\n"
        try:
            yield child.pid
        finally:
            child.kill()


def test_who_holds_a_lock_is_known_without_locking(paths: Paths) -> None:
    assert looking.locks_of(paths).daemon is None
    with holding(paths.lock_path()) as pid:
        holder = looking.locks_of(paths).daemon
        assert holder is not None
        assert (holder.pid, holder.is_daemon) == (pid, False)
    assert looking.locks_of(paths).daemon is None
    with open(paths.lock_path(), "r+") as file:  # nobody is in the way
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_a_lock_on_the_store_is_told_with_its_holder(paths: Paths) -> None:
    store = Path(paths.store_path())
    store.touch()
    code = HOLD.replace("fcntl.flock", "fcntl.lockf")
    argv = [sys.executable, "-I", "-S", "-c", code, str(store)]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"up\n"
        locks = looking.locks_of(paths)
        child.kill()
    assert locks.store is not None
    assert locks.store.pid == child.pid


def test_a_process_is_described_and_a_gone_one_is_a_question_mark() -> None:
    seen = looking.process(os.getpid())
    assert (seen.pid, seen.state, seen.is_daemon) == (os.getpid(), "R", False)
    assert looking.process(2**22 + 1) == Process(2**22 + 1)


# -- the probe ------------------------------------------------------------------------------------


class StandingClock:
    """No time passes but that of the waits themselves, however long the machine holds us up."""

    def monotonic(self) -> float:
        return 0.0

    def sleep(self, seconds: float, /) -> None:
        raise AssertionError(f"nobody waits here, and not {seconds} s")


STANDING = StandingClock()


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who answers at all is waited for."""
    monkeypatch.setattr(looking, "PROBE_S", LOOKS_S)
    monkeypatch.setattr(looking, "HEALTH_S", LOOKS_S)


@contextlib.contextmanager
def listener(paths: Paths, answers: list[bytes] | None) -> Iterator[None]:
    """Somebody who listens and answers each line with the next of `answers`, or with nothing."""
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(paths.socket_path())
        listening.listen(4)
        if answers is None:
            yield
            return

        def serve() -> None:
            connected, _ = listening.accept()
            with connected, connected.makefile("rb") as lines, contextlib.suppress(OSError):
                for answer in answers:
                    lines.readline()
                    connected.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield
        finally:
            thread.join(10)


def test_nobody_there_is_absent(paths: Paths) -> None:
    assert looking.probe(paths, ME, STANDING).outcome == "absent"
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(paths.socket_path())
    assert looking.probe(paths, ME, STANDING).outcome == "absent"
    os.unlink(paths.socket_path())
    Path(paths.socket_path()).touch()
    assert looking.probe(paths, ME, STANDING).outcome == "absent"


def test_a_listener_of_another_user_is_not_spoken_to(paths: Paths) -> None:
    with listener(paths, None):
        seen = looking.probe(paths, ME + 1, STANDING)
    assert (seen.outcome, seen.user_id) == ("foreign", ME)


def test_who_takes_the_connection_and_says_nothing_is_silent(
    paths: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(looking, "PROBE_S", 0.05)
    with listener(paths, None):
        seen = looking.probe(paths, ME, STANDING)
    assert (seen.outcome, seen.pid) == ("silent", os.getpid())


@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize(
    "answers", [[b"HTTP/1.1 400 Bad Request\n", b""], [b""], [b'{"id":0}\n', b'{"id":1}\n']]
)
def test_something_else_that_answers_is_no_daemon(paths: Paths, answers: list[bytes]) -> None:
    with listener(paths, answers):
        assert looking.probe(paths, ME, STANDING).outcome == "no-daemon"


def answer(number: int, **result: object) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": number, "result": result}).encode() + b"\n"


@pytest.mark.usefixtures("patient")
def test_a_daemon_that_does_not_know_health_still_answers(paths: Paths) -> None:
    refused = b'{"id":2,"error":{"code":-32000,"data":{"code":"usage"}}}\n'
    with listener(paths, [answer(0, version="1"), answer(1, version="1"), refused]):
        seen = looking.probe(paths, ME, STANDING)
    assert (seen.outcome, seen.hello, seen.health) == ("answered", {"version": "1"}, None)
    assert seen.health_refusal == {"code": "usage"}


@pytest.mark.usefixtures("patient")
def test_a_daemon_that_dies_before_it_says_how_it_is_still_answered(paths: Paths) -> None:
    with listener(paths, [answer(0, version="1"), answer(1, version="1")]):
        seen = looking.probe(paths, ME, STANDING)
    assert (seen.outcome, seen.health, seen.health_refusal) == ("answered", None, None)


def test_looking_leaves_every_file_as_it_is(paths: Paths) -> None:
    Path(paths.lock_path()).touch(0o600)
    before = sorted(
        (str(path), path.lstat().st_mtime_ns, stat.S_IMODE(path.lstat().st_mode))
        for path in Path(paths.home()).rglob("*")
    )
    looking.probe_patiently(paths, ME, STANDING)
    after = sorted(
        (str(path), path.lstat().st_mtime_ns, stat.S_IMODE(path.lstat().st_mode))
        for path in Path(paths.home()).rglob("*")
    )
    assert after == before
