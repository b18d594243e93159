"""Starting the daemon on demand: one starter at a time, a detached process, its first line read.

The starter takes `start.lock`, forks twice with `setsid`, and reads from a pipe the one JSON line
with which the daemon says that it is ready or why it is not. Whoever finds the lock taken waits for
its holder, who starts the daemon for all. Imported only when no daemon runs.
"""

import fcntl
import os
import select
import signal
import sys
from collections.abc import Mapping
from typing import Final, NoReturn

from mbx.client import FORBIDDEN, PAUSE_FIRST_S, PAUSE_LAST_S, Clock, error_of, unreachable
from mbx.core.errors import MbxError
from mbx.nullsignal import exists
from mbx.paths import Paths, make_folder
from mbx.wire import JsonObject, WireError, decode, encode

READY_S: Final = 20.0
"""How long a starting daemon is waited for: opening a large store after a crash takes its time."""
FIRST_LINES_MAX_BYTES: Final = 64 * 1024
PASSED_ON: Final = ("PATH", "HOME", "LANG", "LANGUAGE", "TERM", "TZ", "TMPDIR", "MBX_LOG")
"""What the daemon gets of its starter's environment, with `LC_*`: it outlives the starter and shows
its environment in /proc, so keys of other programs and this agent's identity stay behind."""


def daemon_argv(*options: str) -> list[str]:
    """The command that runs the daemon, isolated from PYTHON* variables and the current folder."""
    if not sys.executable:
        raise MbxError("daemon-unreachable", "cannot find the Python that runs this command")
    return [sys.executable, "-I", "-m", "mbx.daemon", *options]


def daemon_environ(paths: Paths, environ: Mapping[str, str]) -> dict[str, str]:
    """The environment of a daemon: a short list, and the installation's own places."""
    kept = {k: v for k, v in environ.items() if k in PASSED_ON or k.startswith("LC_")}
    return kept | {"MBX_HOME": paths.home(), "MBX_RUN": paths.run_dir()}


def start_daemon(paths: Paths, environ: Mapping[str, str], clock: Clock) -> bool:
    """Start the daemon, or wait for whoever is starting it; a `client.Starter`.

    True when there is news: one was started here and is ready, or another starter has just ended.
    Raises MbxError with what the daemon said instead of being ready; OSError when the system
    refuses a file or a process.
    """
    make_folder(paths.run_dir())
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
    lock = os.open(paths.start_lock_path(), flags, 0o600)
    try:
        if not _taken(lock, fcntl.LOCK_EX):
            _wait_for_other(lock, paths, clock)
            return True
        said = _spawn_and_listen(daemon_argv(), daemon_environ(paths, environ), clock)
    finally:
        os.close(lock)
    told = said.get("error")
    if isinstance(told, dict):
        if told.get("errno") in FORBIDDEN:
            raise OSError(told["errno"], os.strerror(told["errno"]), told.get("path"))
        raise error_of(told)
    return said.get("ready") is True


class ProcessEnd:
    """Waiting for the end of a process that is no child; opened while it surely still runs."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._pidfd: int | None = None
        if hasattr(os, "pidfd_open"):
            try:
                self._pidfd = os.pidfd_open(pid)
            except OSError:  # gone already, or hidden from us: ask by number
                pass

    def wait(self, seconds: float, clock: Clock) -> bool:
        """True when the process has ended within that time."""
        if self._pidfd is not None:
            poll = select.poll()
            poll.register(self._pidfd, select.POLLIN)
            ended = bool(poll.poll(int(seconds * 1000)))
            os.close(self._pidfd)
            self._pidfd = None
            return ended
        deadline = clock.monotonic() + seconds
        while exists(self._pid):
            if clock.monotonic() >= deadline:
                return False
            clock.sleep(PAUSE_FIRST_S)
        return True


def _taken(lock: int, how: int) -> bool:
    try:
        fcntl.flock(lock, how | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _wait_for_other(lock: int, paths: Paths, clock: Clock) -> None:
    """Until the other starter ends; many can wait, as each asks for a shared lock only."""
    deadline, pause_s = clock.monotonic() + READY_S, PAUSE_FIRST_S
    while not _taken(lock, fcntl.LOCK_SH):
        if clock.monotonic() >= deadline:
            why = f"another process has been starting it for {READY_S:g} s"
            raise unreachable(paths.socket_path(), why)
        clock.sleep(pause_s)
        pause_s = min(pause_s * 2, PAUSE_LAST_S)


def _spawn_and_listen(argv: list[str], environ: Mapping[str, str], clock: Clock) -> JsonObject:
    """Run `argv` detached and return the JSON line with which it reports. Raises MbxError."""
    ours, theirs = os.pipe()
    try:
        child = os.fork()
        if child == 0:
            _detach(theirs, argv, environ)
        os.close(theirs)
        os.waitpid(child, 0)
        return _first_report(ours, clock)
    finally:
        os.close(ours)


def _detach(report: int, argv: list[str], environ: Mapping[str, str]) -> NoReturn:
    """In the child: become a session of its own, fork again, run the daemon. Never returns."""
    try:
        os.setsid()
        if os.fork() == 0:
            _become(report, argv, environ)
    except OSError as error:
        _report_failure(report, error)
    finally:
        os._exit(0)


def _become(report: int, argv: list[str], environ: Mapping[str, str]) -> NoReturn:
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.dup2(report, 1)
    os.dup2(report, 2)
    # A pipe of the caller left open in the daemon would keep the caller's readers waiting for ever.
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))
    os.chdir("/")
    os.umask(0o077)
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGCHLD):
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    try:
        os.execve(argv[0], argv, environ)  # noqa: S606  (our own interpreter, from a list)
    except OSError as error:
        _report_failure(1, error)
    os._exit(127)


def _report_failure(report: int, error: OSError) -> None:
    message = f"cannot start the daemon: {error}"
    told = {"error": {"code": "daemon-unreachable", "message": message, "next": None}}
    os.write(report, encode(told))


def _first_report(pipe: int, clock: Clock) -> JsonObject:
    """The first line that is a report; lines before it (a traceback) explain a silent end."""
    poll, deadline, said = select.poll(), clock.monotonic() + READY_S, b""
    poll.register(pipe, select.POLLIN)
    while len(said) < FIRST_LINES_MAX_BYTES:
        left_ms = int((deadline - clock.monotonic()) * 1000)
        if left_ms <= 0 or not poll.poll(left_ms):
            raise _not_ready(f"the daemon was started and is not ready after {READY_S:g} s")
        piece = os.read(pipe, 4096)
        if not piece:
            break
        said += piece
        for line in said.split(b"\n")[:-1]:
            if (report := _report_in(line)) is not None:
                return report
    words = said.decode("utf-8", "backslashreplace").strip().splitlines()
    raise _not_ready(f"the daemon ended before it was ready: {words[-1] if words else 'no word'}")


def _report_in(line: bytes) -> JsonObject | None:
    try:
        told = decode(line)
    except WireError:
        return None
    return told if "ready" in told or "error" in told else None


def _not_ready(why: str) -> MbxError:
    step = "mbx daemon run"
    return MbxError("daemon-unreachable", why, step)
