"""A real daemon on a folder of its own, raw lines to it, and processes that connect to it.

Nothing here uses the product's client: bytes go in and lines come out. Whose session a connection
is, the daemon asks the kernel; so an `Agent` is a process that is nobody's child, connects when it
is told to and hands the connected socket over. Every wait is for an event and is bounded.
"""

import contextlib
import itertools
import json
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Self

import pytest

from tests.support.patience import looks
from tests.support.shells import TIMEOUT_S, bare_environment, launch

MBX: Final = str(Path(sys.executable).with_name("mbx"))
"""The installed command."""

PYTHON: Final = (sys.executable, "-I", "-S", "-c")

_AGENT: Final = """
import socket
control = socket.socket(fileno=0)
while path := control.recv(4096):
    with socket.socket(socket.AF_UNIX) as line:
        try:
            line.connect(path)
        except OSError:
            control.send(b"!")
        else:
            socket.send_fds(control, [b"."], [line.fileno()])
"""

KILLED_AT_FLOOR: Final = """
import os, signal, sys
from mbx.daemon import floor
plain = floor.save
def save(path, *rest):
    if os.path.exists(path + ".kill"):
        os.unlink(path + ".kill")
        os.kill(os.getpid(), signal.SIGKILL)
    plain(path, *rest)
floor.save = save
from mbx.daemon.__main__ import main
sys.exit(main(sys.argv[1:]))
"""
"""A daemon that dies when a record is committed, before anybody is told of it."""

_LETTERS: Final = "abcdefghjk"
_numbers = itertools.count(1)


def fresh_name(stem: str = "agent") -> str:
    """A name that no other test has: numbers are spelt in letters, so that nothing looks alike."""
    return f"{stem}-" + "".join(_LETTERS[int(digit)] for digit in str(next(_numbers)))


class RefusedError(Exception):
    """The daemon refused a call; `data` is the error's data."""

    def __init__(self, error: dict[str, Any]) -> None:
        self.data: dict[str, Any] = error["data"]
        self.code: str = self.data["code"]
        super().__init__(f"{self.code}: {self.data['message']}")


class HungUpError(Exception):
    """The daemon closed the connection."""


class Line:
    """One connection, spoken to in raw bytes and answered in lines. Use it in ``with``."""

    def __init__(self, connected: socket.socket) -> None:
        self.socket = connected
        connected.settimeout(TIMEOUT_S)
        self._received = bytearray()
        self._ids = itertools.count(1)

    @classmethod
    def to(cls, path: str) -> Self:
        """A connection of this process."""
        connected = socket.socket(socket.AF_UNIX)
        connected.settimeout(TIMEOUT_S)
        try:
            connected.connect(path)
        except OSError:
            connected.close()
            raise
        return cls(connected)

    def write(self, data: bytes) -> None:
        """Send exactly these bytes. BrokenPipeError when the daemon has hung up."""
        self.socket.sendall(data)

    def read(self) -> dict[str, Any]:
        """The next answer. HungUpError when there is none any more."""
        while b"\n" not in self._received:
            try:
                piece = self.socket.recv(1 << 20)
            except (ConnectionResetError, BrokenPipeError):
                piece = b""
            if not piece:
                raise HungUpError
            self._received += piece
        line, _, rest = bytes(self._received).partition(b"\n")
        self._received = bytearray(rest)
        answer = json.loads(line)
        assert isinstance(answer, dict)
        return answer

    def is_closed(self) -> bool:
        """Wait for the daemon to close; answers before that must have been read."""
        with contextlib.suppress(HungUpError):
            unexpected = self.read()
            raise AssertionError(f"an answer instead of the end: {unexpected}")
        return True

    def ask(self, raw: bytes) -> dict[str, Any]:
        """Send one raw line (its end is added) and give the answer as it is."""
        self.write(raw + b"\n")
        return self.read()

    def hello(self, protocol: int = 1, **params: object) -> dict[str, Any]:
        """Say hello; the result. RefusedError."""
        return self._result(
            self.ask(request(0, "hello", protocol=protocol, client="test", **params)), 0
        )

    def call(self, method: str, **params: object) -> dict[str, Any]:
        """Call a method; its result. RefusedError."""
        number = next(self._ids)
        return self._result(self.ask(request(number, method, **params)), number)

    def refusal(self, method: str, **params: object) -> dict[str, Any]:
        """The data of the error that a call is answered with."""
        try:
            result = self.call(method, **params)
        except RefusedError as refused:
            return refused.data
        raise AssertionError(f"{method} was not refused: {str(result)[:300]}")

    @staticmethod
    def _result(answer: dict[str, Any], number: int) -> dict[str, Any]:
        assert answer["jsonrpc"] == "2.0"
        if "error" in answer:
            raise RefusedError(answer["error"])
        assert answer["id"] == number
        result = answer["result"]
        assert isinstance(result, dict)
        return result

    def close(self) -> None:
        """Hang up."""
        self.socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def request(number: object, method: str, /, **params: object) -> bytes:
    """One JSON-RPC request without its line end; lone surrogates and NaN as json writes them."""
    message = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
    return json.dumps(message, separators=(",", ":")).encode()


class Agent:
    """A process that is nobody's child, a session of its own, and connects for the test."""

    def __init__(self, socket_path: str, program: str = sys.executable) -> None:
        """`program`: a Python, by another name where the process is to look like something else."""
        self._path = socket_path
        self._control, theirs = socket.socketpair()
        self._control.settimeout(TIMEOUT_S)
        with theirs:
            self.pid = launch([program, *PYTHON[1:], _AGENT], stdin=theirs.fileno())
        self._pidfd = os.pidfd_open(self.pid)

    def bare(self) -> Line:
        """A connection that has not said hello. HungUpError when nobody listens."""
        self._control.send(self._path.encode())
        said, descriptors, _, _ = socket.recv_fds(self._control, 1, 1)
        assert said, "the agent has ended"
        if not descriptors:
            raise HungUpError
        return Line(socket.socket(fileno=descriptors[0]))

    def connect(self) -> Line:
        """A connection of the session that this process is itself."""
        line = self.bare()
        try:
            line.hello(holder="self")
        except BaseException:  # the daemon was killed meanwhile
            line.close()
            raise
        return line

    def registered(self, name: str, role: str = "tester") -> Line:
        """A connection under a fresh lease of a new identity."""
        line = self.connect()
        line.call("identity.register", name=name, role=role)
        return line

    def kill(self) -> None:
        """End the process, and wait for its end."""
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)
        assert _is_readable(self._pidfd), "the agent does not end"

    def close(self) -> None:
        """End the process, and wait until the daemon, if one runs, has seen its end."""
        self.kill()
        os.close(self._pidfd)
        self._control.close()
        with contextlib.suppress(FileNotFoundError, ConnectionError, HungUpError):
            self._wait_until_seen()

    def _wait_until_seen(self) -> None:
        with Line.to(self._path) as line:
            line.hello()
            for _ in looks():
                listed = line.call("identity.list")["identities"]
                if all((one["holder"] or {}).get("pid") != self.pid for one in listed):
                    return
        raise AssertionError("the daemon does not see that the agent has ended")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Daemon:
    """A daemon process in the foreground on its own home. Use it in ``with``."""

    def __init__(
        self,
        home: Path,
        *,
        prefix: Sequence[str] = (),
        python: Sequence[str] = ("-I", "-m", "mbx.daemon"),
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """`prefix` runs the daemon under another program, `python` is how Python is started."""
        self.home = home
        self.environment = bare_environment(MBX_HOME=str(home), **(environment or {}))
        self._argv = [*prefix, sys.executable, *python, "--foreground"]
        self.process: subprocess.Popen[bytes] | None = None
        self.said: dict[str, Any] = {}
        self.socket_path = ""

    def start(self) -> dict[str, Any]:
        """Start it and give the line with which it reports."""
        self.process = subprocess.Popen(
            self._argv,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
        )
        assert self.process.stdout is not None
        assert _is_readable(self.process.stdout.fileno()), "the daemon says nothing"
        self.said = json.loads(self.process.stdout.readline() or b"{}")
        self.socket_path = self.said.get("socket", "")
        return self.said

    @property
    def pid(self) -> int:
        """The daemon's own process, also under another program."""
        pid = self.said["pid"]
        assert isinstance(pid, int)
        return pid

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the daemon; not from outside its pid namespace, where 1 is another."""
        if self.pid > 1:
            os.kill(self.pid, number)

    def wait(self, timeout_s: float = TIMEOUT_S) -> int:
        """Its exit status, once it has ended."""
        assert self.process is not None
        status = self.process.wait(timeout_s)
        assert self.process.stdout is not None
        self.process.stdout.close()
        self.process = None
        return status

    def kill(self) -> None:
        """kill -9."""
        if self.process is not None:
            with contextlib.suppress(ProcessLookupError, KeyError):
                self.signal(signal.SIGKILL)
            self.process.kill()
            self.wait()

    def stop(self) -> None:
        """Ask it to stop, and wait until it has ended well."""
        if self.process is not None:
            self.signal(signal.SIGTERM)
            assert self.wait() == 0

    def line(self) -> Line:
        """A connection of this process that has not said hello."""
        return Line.to(self.socket_path)

    def agent(self) -> Agent:
        """A process that connects."""
        return Agent(self.socket_path)

    def status(self, **params: object) -> dict[str, Any]:
        """What `daemon.status` answers."""
        with self.line() as line:
            line.hello()
            return line.call("daemon.status", **params)

    def state_hash(self) -> str:
        """The digest of the whole state."""
        digest = self.status(hash=True)["state_hash"]
        assert isinstance(digest, str)
        return digest

    def resident_kib(self) -> int:
        """VmRSS of the daemon."""
        return self._memory_kib("VmRSS:")

    def peak_kib(self) -> int:
        """VmHWM of the daemon: the most that VmRSS ever was."""
        return self._memory_kib("VmHWM:")

    def _memory_kib(self, name: str) -> int:
        for row in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if row.startswith(name):
                return int(row.split()[1])
        raise AssertionError("the daemon has no memory")

    def open_descriptors(self) -> int:
        """How many descriptors the daemon has open."""
        return len(os.listdir(f"/proc/{self.pid}/fd"))

    def mbx(self, *arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
        """Run the command from here; whoever holds a lease is above the test, if anybody."""
        return subprocess.run(
            [MBX, *arguments],
            env={**self.environment, **more},
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )

    def __enter__(self) -> Self:
        said = self.start()
        assert said.get("ready") is True, said
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()


QUIET_LOOKS: Final = 2
"""So often in a row nobody must be seen: one who was listed may start another and end before it is
looked at."""


def processes_of(home: Path) -> dict[int, str]:
    """Who was started with this installation in its environment and still runs: pid and command."""
    found = {}
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it has just ended
            if os.fsencode(home) in (process / "environ").read_bytes():
                found[int(process.name)] = (process / "cmdline").read_text(errors="replace")
    return found


def left_alone(home: Path) -> None:
    """Wait until nobody uses an installation; whoever still does at the end is killed and told."""
    rest: dict[int, str] = {}
    quiet = 0
    for _ in looks():
        rest = processes_of(home)
        quiet = 0 if rest else quiet + 1
        if quiet == QUIET_LOOKS:
            return
    if not rest:
        return
    for pid in rest:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    raise AssertionError(f"left running on {home}: {rest}")


@contextlib.contextmanager
def fresh_home() -> Iterator[Path]:
    """A folder for one installation, 0700; its path is short, as those of sockets are limited.

    It is taken away when nobody uses it any more: what outlives a test would write into it, or
    start a daemon that nobody ends.
    """
    folder = Path(tempfile.mkdtemp(prefix="mbx-"))
    try:
        yield folder
        left_alone(folder)
    finally:
        shutil.rmtree(folder)


@contextlib.contextmanager
def running() -> Iterator[Daemon]:
    """A daemon on a fresh home."""
    with fresh_home() as home, Daemon(home) as daemon:
        yield daemon


# -- fixtures, for the conftest of a folder -------------------------------------------------------


@pytest.fixture(scope="module", name="daemon")
def daemon_of_module() -> Iterator[Daemon]:
    """A daemon for the tests of one file."""
    with running() as started:
        yield started


@pytest.fixture(name="agent")
def agent_of_test(daemon: Daemon) -> Iterator[Agent]:
    """A process that connects."""
    with daemon.agent() as started:
        yield started


@pytest.fixture(scope="module", name="holder")
def holder_of_module(daemon: Daemon) -> Iterator[tuple[str, Line]]:
    """The name and a connection of one agent for all tests of a file that share nothing."""
    name = fresh_name()
    with daemon.agent() as agent, agent.registered(name) as line:
        yield name, line


NewHolder = Callable[[], tuple[str, Line]]


@pytest.fixture(name="new_holder")
def new_holder_of_test(daemon: Daemon) -> Iterator[NewHolder]:
    """Makes agents that hold an identity of their own: its name, and a connection."""
    with contextlib.ExitStack() as stack:

        def make() -> tuple[str, Line]:
            agent = stack.enter_context(daemon.agent())
            name = fresh_name()
            return name, stack.enter_context(agent.registered(name))

        yield make


def _is_readable(descriptor: int) -> bool:
    events = select.poll()
    events.register(descriptor, select.POLLIN)
    return bool(events.poll(TIMEOUT_S * 1000))
