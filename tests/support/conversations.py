"""A process that looks like an agent CLI with many conversations, and connections from below it."""

import contextlib
import shlex
import socket
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Self

from tests.support.daemon import PYTHON, Line
from tests.support.shells import TIMEOUT_S, Shell, bare_environment, look_alike

_SERVER: Final = 'while IFS= read -r line; do eval "$line"; done\n'
"""What the look-alike runs: shell text that is typed at it."""

_TOOL: Final = """
import socket, sys
with socket.socket(socket.AF_UNIX) as door, socket.socket(socket.AF_UNIX) as line:
    door.connect(sys.argv[2])
    line.connect(sys.argv[1])
    socket.send_fds(door, [b"."], [line.fileno()])
    door.recv(1)
"""


class SharedProcess:
    """A process ``codex app-server``. Use it in ``with``.

    A connection that it opens says nothing of a conversation, unless the hello that a test says on
    it does, as a hook of one would.
    """

    def __init__(self, socket_path: str, *, env: Mapping[str, str] | None = None) -> None:
        self._path = socket_path
        self._stack = contextlib.ExitStack()
        folder = Path(self._stack.enter_context(tempfile.TemporaryDirectory(prefix="shared-")))
        (folder / "app-server").write_text(_SERVER)
        self._door_path = folder / "door"
        self._door = self._stack.enter_context(socket.socket(socket.AF_UNIX))
        self._door.bind(str(self._door_path))
        self._door.listen()
        self._door.settimeout(TIMEOUT_S)
        codex = str(look_alike(folder, "codex"))
        self.shell = self._stack.enter_context(
            Shell([codex, "app-server"], env=env or bare_environment(), cwd=folder)
        )

    def bare(self) -> Line:
        """A connection of a tool below the process, which has not said hello."""
        argv = [*PYTHON, _TOOL, self._path, str(self._door_path)]
        done = self.shell.run(f"{shlex.join(argv)} &")
        assert done.status == 0, done.err
        door, _ = self._door.accept()
        self._stack.enter_context(door)
        _, descriptors, _, _ = socket.recv_fds(door, 1, 1)
        return self._stack.enter_context(Line(socket.socket(fileno=descriptors[0])))

    def tool(self) -> Line:
        """A connection that names no conversation."""
        line = self.bare()
        line.hello()
        return line

    def hook(self, session_id: str) -> Line:
        """A connection of a hook of one conversation, which knows its id."""
        line = self.bare()
        line.hello(session={"cli": "codex", "id": session_id})
        return line

    def ticket(self, session_id: str) -> str:
        """What a hook of the conversation hands to it."""
        ticket = self.hook(session_id).call("session.ticket")["ticket"]
        assert isinstance(ticket, str)
        return ticket

    def bound(self, session_id: str) -> Line:
        """A connection of a tool that became the conversation."""
        line = self.tool()
        line.call("session.whoami", bind=self.ticket(session_id))
        return line

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()
