"""How the daemon is started: detached, with a clean inheritance, its first words heard."""

import fcntl
import json
import os
import subprocess
import sys
import threading
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from mbx.core.errors import MbxError
from mbx.launch import ProcessEnd, _spawn_and_listen, daemon_argv, daemon_environ, start_daemon
from mbx.paths import Paths
from tests.support.daemon import Daemon, fresh_home

TELL = """
import json, os, signal, sys
print(json.dumps({"ready": True, "pid": os.getpid(), "sid": os.getsid(0), "ppid": os.getppid(),
  "cwd": os.getcwd(), "env": dict(os.environ), "umask": os.umask(0),
  "fds": sorted(int(n) for n in os.listdir("/proc/self/fd")),
  "int": signal.getsignal(signal.SIGINT) == signal.default_int_handler}), flush=True)
"""


def spawn(program: str, environ: dict[str, str] | None = None) -> dict[str, Any]:
    return _spawn_and_listen([sys.executable, "-I", "-S", "-c", program], environ or {}, time)


def test_the_daemon_is_a_session_of_its_own_that_is_nobodys_child() -> None:
    told = spawn(TELL)
    assert told["sid"] not in (told["pid"], os.getsid(0))
    assert told["ppid"] != os.getpid()
    assert told["cwd"] == "/"
    assert told["umask"] == 0o077


def test_no_open_file_of_the_starter_goes_along() -> None:
    reading, writing = os.pipe()
    os.set_inheritable(writing, True)
    told = spawn(TELL)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        assert pipe.read() == b""  # the end is seen at once: nobody else holds the pipe
    assert writing not in told["fds"] or told["fds"] == [0, 1, 2, 3]


def test_an_ignored_interrupt_of_the_starter_does_not_go_along(tmp_path: Path) -> None:
    program = tmp_path / "starter.py"
    program.write_text(
        "import sys, time, json, signal\n"
        "from mbx.launch import _spawn_and_listen\n"
        "argv = [sys.executable, '-I', '-S', '-c', sys.argv[1]]\n"
        "print(json.dumps(_spawn_and_listen(argv, {}, time)))"
    )
    done = subprocess.run(
        ["sh", "-c", 'trap "" INT; exec "$@"', "sh", sys.executable, str(program), TELL],
        capture_output=True,
        text=True,
        check=True,
        timeout=15,
    )
    assert json.loads(done.stdout)["int"] is True


def test_the_daemon_inherits_its_places_and_nothing_private() -> None:
    environ = {
        "PATH": "/bin",
        "HOME": "/srv/x",
        "LANG": "C.UTF-8",
        "LC_TIME": "C",
        "MBX_LOG": "debug",
        "MBX_AGENT": "alice",
        "MBX_SESSION": "s",
        "PYTHONPATH": "/evil",
        "API_KEY": "secret",
    }
    paths = Paths("/srv/x", "/srv/x/run")
    assert daemon_environ(paths, environ) == {
        "PATH": "/bin",
        "HOME": "/srv/x",
        "LANG": "C.UTF-8",
        "LC_TIME": "C",
        "MBX_LOG": "debug",
        "MBX_HOME": "/srv/x",
        "MBX_RUN": "/srv/x/run",
    }


def test_the_daemon_runs_isolated_from_python_variables() -> None:
    assert daemon_argv("--foreground")[1:] == ["-I", "-m", "mbx.daemon", "--foreground"]


def test_words_before_the_report_do_not_hide_it() -> None:
    assert spawn('print(\'a warning\\n{"other": 1}\\n{"ready": true}\', flush=True)')["ready"]


def test_a_daemon_that_ends_without_a_report_is_told_with_its_last_words() -> None:
    with pytest.raises(MbxError, match="ZeroDivisionError") as refused:
        spawn("1/0")
    assert refused.value.code == "daemon-unreachable"


def test_a_program_that_does_not_exist_is_told() -> None:
    said = _spawn_and_listen(["/nonexistent/python"], {}, time)
    assert "No such file" in said["error"]["message"]


def test_a_daemon_that_floods_its_report_is_given_up() -> None:
    with pytest.raises(MbxError):
        spawn("import sys; sys.stdout.write('x' * 10**6); sys.stdout.flush()")


class Hasty:
    """A clock on which every wait is long over."""

    def __init__(self) -> None:
        self._now_s = 0.0

    def monotonic(self) -> float:
        self._now_s += 19.9
        return self._now_s

    def sleep(self, seconds: float, /) -> None:
        self._now_s += seconds


def test_a_daemon_that_says_nothing_is_not_waited_for_for_ever() -> None:
    reading, writing = os.pipe()
    os.set_inheritable(reading, True)
    try:
        with pytest.raises(MbxError, match="not ready"):
            _spawn_and_listen(["/bin/cat", f"/proc/{os.getpid()}/fd/{reading}"], {}, Hasty())
    finally:
        os.close(writing)
        os.close(reading)


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    return Paths(str(tmp_path), str(tmp_path / "run"))


class Watched:
    """A clock that tells when somebody waits, and lets nobody go on before it is told to."""

    def __init__(self) -> None:
        self.waiting = threading.Semaphore(0)
        self.go_on = threading.Event()

    def monotonic(self) -> float:
        return 0.0

    def sleep(self, seconds: float, /) -> None:
        self.waiting.release()
        assert self.go_on.wait(15)


def test_whoever_finds_another_starter_waits_for_its_end(paths: Paths) -> None:
    os.mkdir(paths.run_dir(), 0o700)
    lock = os.open(paths.start_lock_path(), os.O_RDWR | os.O_CREAT, 0o600)
    fcntl.flock(lock, fcntl.LOCK_EX)
    clock, results = Watched(), list[bool]()
    waiters = [
        threading.Thread(target=lambda: results.append(start_daemon(paths, {}, clock)))
        for _ in range(3)
    ]
    for waiter in waiters:
        waiter.start()
    assert all(clock.waiting.acquire(timeout=15) for _ in waiters)
    assert results == []
    os.close(lock)
    clock.go_on.set()
    for waiter in waiters:
        waiter.join(15)
    assert results == [True, True, True]


def test_a_starter_that_hangs_is_told_after_a_while(paths: Paths) -> None:
    os.mkdir(paths.run_dir(), 0o700)
    lock = os.open(paths.start_lock_path(), os.O_RDWR | os.O_CREAT, 0o600)
    fcntl.flock(lock, fcntl.LOCK_EX)
    with pytest.raises(MbxError, match="another process"):
        start_daemon(paths, {}, Hasty())
    os.close(lock)


def test_a_link_in_the_place_of_the_start_lock_is_not_followed(paths: Paths) -> None:
    os.mkdir(paths.run_dir(), 0o700)
    target = Path(paths.home()) / "target"
    Path(paths.start_lock_path()).symlink_to(target)
    with pytest.raises(OSError, match=r"start\.lock"):
        start_daemon(paths, {}, time)
    assert not target.exists()


def test_the_end_of_a_process_is_noticed() -> None:
    sleeper = subprocess.Popen(["/bin/cat"], stdin=subprocess.PIPE)
    end = ProcessEnd(sleeper.pid)
    assert end.wait(0, time) is False
    again = ProcessEnd(sleeper.pid)
    sleeper.communicate()
    assert again.wait(10, time) is True
    assert ProcessEnd(sleeper.pid).wait(10, time) is True


def test_a_starter_that_has_few_descriptors_leaves_the_daemon_enough() -> None:
    narrow = ("sh", "-c", 'ulimit -S -n 64; exec "$@"', "sh")
    with fresh_home() as home, Daemon(home, prefix=narrow) as daemon, ExitStack() as callers:
        lines = [callers.enter_context(daemon.line()) for _ in range(80)]
        assert {line.hello()["protocol"] for line in lines} == {1}
