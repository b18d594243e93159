"""Look-alikes of agent CLIs that can be woken: real processes, records, sockets and commands.

Each connects to the daemon when it is told to, as `tests.support.daemon.Agent` does. What wakes it
is handed to the test as an event.
"""

import contextlib
import json
import os
import select
import shutil
import signal
import socket
import tempfile
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Self

from tests.support.daemon import PYTHON, Line
from tests.support.shells import TIMEOUT_S, bare_environment, launch, look_alike

_CLIENT: Final = r"""
import json, os, select, socket, sys
control = socket.socket(fileno=0)
folder, manner = sys.argv[1:3]
os.makedirs(folder + "/sessions", exist_ok=True)
door = socket.socket(socket.AF_UNIX)
door.bind(folder + "/messages.sock")
door.listen(1)
start = open("/proc/self/stat").read().rpartition(")")[2].split()[19]
record = {
    "pid": os.getpid(), "procStart": start, "sessionId": "s-1", "status": "idle",
    "statusUpdatedAt": 1, "messagingSocketPath": folder + "/messages.sock",
}

def write(**more):
    record.update(more)
    path = f"{folder}/sessions/{os.getpid()}.json"
    with open(path + ".new", "w") as file:
        json.dump(record, file)
    os.replace(path + ".new", path)

def connect(path):
    with socket.socket(socket.AF_UNIX) as line:
        line.connect(path)
        socket.send_fds(control, [b"."], [line.fileno()])

write()
control.send(b"=")
readers = [control] if manner == "deaf" else [control, door]
while True:
    for one in select.select(readers, [], [])[0]:
        if one is control:
            said = control.recv(65536)
            if not said:
                sys.exit()
            order = json.loads(said)
            if "connect" in order:
                connect(order["connect"])
            else:
                write(**order)
                control.send(b"=")
        elif one is door:
            readers.append(door.accept()[0])
        else:
            data = one.recv(65536)
            if not data:
                readers.remove(one)
                one.close()
            else:
                if manner == "turns":
                    write(status="busy", statusUpdatedAt=record["statusUpdatedAt"] + 1)
                control.send(b"L" + data)
"""

_QUEUE: Final = """#!/bin/sh
{queue}
for word; do printf '%s\\n' "$word"; done >"{folder}/words"
printf '%s\\n' "$HOME" >"{folder}/home"
printf x >"{folder}/fifo"
exit {status}
"""

_NAMED: Final = 'name="$1"; shift; exec -a "$name" "$@"'
"""Shell text: run a program under another name."""


class Client:
    """A process that looks like an agent CLI, a session of its own. Use it in ``with``."""

    def __init__(self, socket_path: str, argv: list[str], env: Mapping[str, str]) -> None:
        self._path = socket_path
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._control.settimeout(TIMEOUT_S)
        self._woken: deque[bytes] = deque()
        with theirs:
            self.pid = launch(argv, stdin=theirs.fileno(), env=env)
        self._pidfd = os.pidfd_open(self.pid)
        self._said(b"=")

    def connect(self, **hello: Any) -> Line:
        """A connection that said hello: the daemon finds the process as the agent CLI it is."""
        self._control.send(json.dumps({"connect": self._path}).encode())
        while True:
            said, descriptors, _, _ = socket.recv_fds(self._control, 65536, 1)
            if descriptors:
                break
            assert said[:1] == b"L", said
            self._woken.append(said[1:])
        line = Line(socket.socket(fileno=descriptors[0]))
        line.hello(**hello)
        return line

    def registered(self, name: str, **hello: Any) -> Line:
        """A connection under a fresh lease of a new identity."""
        line = self.connect(**hello)
        line.call("identity.register", name=name, role="tester")
        return line

    def woken(self) -> dict[str, Any]:
        """The next message that came to its socket; waits for it."""
        while not self._woken:
            said = self._control.recv(65536)
            assert said[:1] == b"L", said
            self._woken.append(said[1:])
        told = json.loads(self._woken.popleft())
        assert isinstance(told, dict)
        return told

    def was_woken(self) -> bool:
        """Whether a message has come that was not taken yet, without waiting."""
        while select.select([self._control], [], [], 0)[0]:
            said = self._control.recv(65536)
            assert said[:1] == b"L", said
            self._woken.append(said[1:])
        return bool(self._woken)

    def write(self, **fields: object) -> None:
        """Change its record of its session."""
        self._control.send(json.dumps(fields).encode())
        self._said(b"=")

    def _said(self, word: bytes) -> None:
        while True:
            said = self._control.recv(65536)
            assert said, "the client has ended"
            if said == word:
                return
            assert said[:1] == b"L", said
            self._woken.append(said[1:])

    def kill(self) -> None:
        """End the process, and wait for its end."""
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)
        assert select.select([self._pidfd], [], [], TIMEOUT_S)[0], "the client does not end"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        os.close(self._pidfd)
        self._control.close()


class Claude(Client):
    """Looks like Claude Code, with a record and a socket in a folder of its own.

    `manner`: ``turns`` takes messages and is busy then, ``silent`` takes them and begins no turn,
    ``deaf`` never looks at its socket.
    """

    def __init__(self, socket_path: str, manner: str = "turns", options: tuple[str, ...] = ()):
        self.folder = Path(tempfile.mkdtemp(prefix="claude-"))
        program = look_alike(self.folder / "bin", "claude", PYTHON[0])
        argv = [str(program), *PYTHON[1:], _CLIENT, str(self.folder), manner, *options]
        super().__init__(socket_path, argv, bare_environment(CLAUDE_CONFIG_DIR=str(self.folder)))

    def settings(self, **settings: object) -> None:
        """Write the settings of its user."""
        (self.folder / "settings.json").write_text(json.dumps(settings))

    def __exit__(self, *error: object) -> None:
        super().__exit__(*error)
        shutil.rmtree(self.folder)


class Codex(Client):
    """Looks like Codex; the command ``codex queue`` beside it keeps the words that it got.

    `queue`: shell text that the command runs first (``{folder}`` stands for its folder), `status`:
    how it ends. `words` stand in its own command line.
    """

    def __init__(
        self, socket_path: str, queue: str = ":", status: int = 0, words: Sequence[str] = ()
    ) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="codex-"))
        program = self.folder / "codex"
        first = queue.format(folder=self.folder)
        program.write_text(_QUEUE.format(folder=self.folder, queue=first, status=status))
        program.chmod(0o700)
        os.mkfifo(self.folder / "hang")
        os.mkfifo(self.folder / "fifo")
        self._hang = os.open(self.folder / "hang", os.O_RDWR)
        self._fifo = os.open(self.folder / "fifo", os.O_RDWR)
        argv = ["bash", "-c", _NAMED, "bash", str(program), *PYTHON, _CLIENT]
        argv += [str(self.folder / "state"), "turns", *words]
        super().__init__(socket_path, argv, bare_environment(CODEX_HOME=str(self.folder)))

    def taken(self) -> None:
        """Wait for the next ``codex queue``."""
        assert select.select([self._fifo], [], [], TIMEOUT_S)[0], "nothing was queued"
        os.read(self._fifo, 1)

    def release(self) -> None:
        """Let a ``codex queue`` that reads the pipe ``hang`` go on."""
        os.write(self._hang, b"\n")

    def queued(self) -> list[str]:
        """The words of the next ``codex queue``; waits for it."""
        self.taken()
        return (self.folder / "words").read_text().splitlines()

    def was_queued(self) -> bool:
        """Whether the command ran and nobody took its words yet."""
        return bool(select.select([self._fifo], [], [], 0)[0])

    def __exit__(self, *error: object) -> None:
        super().__exit__(*error)
        self.release()
        os.close(self._hang)
        os.close(self._fifo)
        shutil.rmtree(self.folder)


class OpenCode(Client):
    """Looks like OpenCode; what its plugin would say is said on its connections.

    `words` are those of its command line that count: the others are options and settings.
    """

    def __init__(self, socket_path: str, *words: str) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="opencode="))
        program = look_alike(self.folder / "bin", "opencode", PYTHON[0])
        argv = ["bash", "-c", _NAMED, "bash", str(program), str(program), *PYTHON[1:], _CLIENT]
        argv += [str(self.folder), "--silent", *words]
        super().__init__(socket_path, argv, bare_environment())

    def __exit__(self, *error: object) -> None:
        super().__exit__(*error)
        shutil.rmtree(self.folder)


_SERVER: Final = r"""
import json, os, socket, sys, threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
control = socket.socket(fileno=0)
folder = sys.argv[1].partition("=")[2]
told = {
    "id": "", "busy": False, "main_turn_active": False, "pending_interaction": "none",
    "agent_config": {"model": "m-1"}, "token": "t" * 43, "answer": {"status": "running"}, "code": 0,
}

class Handler(BaseHTTPRequestHandler):
    def log_message(self, *words):
        pass
    def say(self, code, data):
        raw = json.dumps({"code": code, "msg": "", "data": data}).encode()
        self.send_response(401 if code == 40101 else 200)
        self.send_header("Content-Length", str(len(raw)))
        self.end_headers()
        self.wfile.write(raw)
    def do_GET(self):
        if self.headers["Authorization"] != "Bearer " + told["token"]:
            self.say(40101, None)
        elif self.path == "/api/v1/sessions/" + told["id"]:
            shown = {k: v for k, v in told.items() if k not in ("token", "answer", "code")}
            self.say(0, shown)
        else:
            self.say(40401, None)
    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        control.send(b"L" + json.dumps({"path": self.path, "body": body}).encode())
        if told["answer"] is None:
            self.connection.close()
        else:
            self.say(told["code"], told["answer"])

server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
threading.Thread(target=server.serve_forever, daemon=True).start()
os.makedirs(folder + "/server/instances")
record = {"pid": os.getpid(), "host": "127.0.0.1", "port": server.server_address[1]}

def write(**more):
    told.update(more)
    with open(folder + "/server.token", "w") as file:
        file.write(told["token"] + "\n")
    with open(folder + "/server/instances/01M.json", "w") as file:
        json.dump({**record, **told.get("record", {})}, file)

def connect(path):
    with socket.socket(socket.AF_UNIX) as line:
        line.connect(path)
        socket.send_fds(control, [b"."], [line.fileno()])

write()
control.send(b"=")
while said := control.recv(65536):
    order = json.loads(said)
    if "connect" in order:
        connect(order["connect"])
    else:
        write(**order)
        control.send(b"=")
"""


class KimiWeb(Client):
    """Looks like the server of Kimi Code, which calls itself by one word; `woken` gives a prompt.

    `words` are those of its command line that count.
    """

    def __init__(self, socket_path: str, *words: str) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="kimi-"))
        argv = ["bash", "-c", _NAMED, "bash", "kimi-code", *PYTHON, _SERVER]
        argv += [f"folder={self.folder}", *words]
        super().__init__(socket_path, argv, bare_environment(KIMI_CODE_HOME=str(self.folder)))

    def __exit__(self, *error: object) -> None:
        super().__exit__(*error)
        shutil.rmtree(self.folder)
