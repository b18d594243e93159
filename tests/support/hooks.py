"""Agent CLIs that run hooks: the scripts that setup puts, below a process that looks like one."""

import json
import shlex
import sys
import uuid
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from mbx.core.clients import CLIENTS
from mbx.core.limits import HOOK_DEADLINE_MS
from mbx.hooks.scripts import hook_command, scripts, statusline_command
from mbx.paths import Paths
from tests.support.daemon import MBX, Daemon
from tests.support.patience import looks
from tests.support.shells import Finished, Shell, look_alike

PATIENT_MS: Final = 10_000
"""What a hook may take where the test is about what it says: on a machine that is busy the second
that it has (`HOOK_DEADLINE_MS`) is over now and then before it has said anything."""


def conversation() -> str:
    """What a client calls a conversation: an id that no other has."""
    return str(uuid.uuid4())


def put_scripts(home: Path, deadline_ms: int | None = None) -> Paths:
    """What `mbx setup` puts below the home; its paths.

    `deadline_ms`: what the hooks take instead of their second, and its parts as much longer;
    replaced in the process that the script starts, as mbx has no such option.
    """
    paths = Paths.from_environ({"MBX_HOME": str(home)})
    folder = home / "bin"
    folder.mkdir(mode=0o700, exist_ok=True)
    for script in scripts(paths, None if deadline_ms is None else _started_within(deadline_ms)):
        aside = folder / f"{script.name}.new"
        aside.write_text(script.content)
        aside.rename(folder / script.name)
    return paths


def _started_within(deadline_ms: int) -> tuple[str, ...]:
    longer = deadline_ms / HOOK_DEADLINE_MS
    code = (
        f"from mbx.core import limits; limits.HOOK_DEADLINE_MS = {deadline_ms}; "
        f"from mbx.hooks import asking; asking.START_S *= {longer}; asking.STARTER_S *= {longer}; "
        "from mbx.hooks.events import run; run()"
    )
    return (sys.executable, "-I", "-c", code)


class Client(Shell):
    """One process of an agent CLI, that runs commands and hooks as its children."""

    def __init__(
        self,
        daemon: Daemon,
        folder: Path,
        name: str = "claude",
        *,
        arguments: str = "",
        environment: Mapping[str, str] = MappingProxyType({}),
        deadline_ms: int | None = PATIENT_MS,
    ) -> None:
        """`deadline_ms`: see `put_scripts`; None where the second itself is what is looked at."""
        self.name = name
        self.conversation = conversation()
        self.paths = put_scripts(daemon.home, deadline_ms)
        program = look_alike(folder, CLIENTS[name].harness)
        self._events = folder / "event.json"
        # `bash -s WORD`: reads commands from its input, and has WORD in its command line.
        argv = [str(program), "--norc", "--noprofile"]
        argv += ["-s", *arguments.split()] if arguments else []
        super().__init__(argv, env={**daemon.environment, **environment}, cwd=folder)

    def hook(self, act: str, session: str = "", **fields: Any) -> Finished:
        """Run the hook for what happened, as the client does: its event on standard input."""
        client = CLIENTS[self.name]
        event = client.events[act]
        told = {
            client.session_field: session or self.conversation,
            "hook_event_name": event,
            "cwd": "/",
            **fields,
        }
        return self.hook_raw(event, json.dumps(told).encode())

    def hook_raw(self, event: str, raw: bytes, variables: str = "") -> Finished:
        """Run the hook with any input, in a bare environment. TimeoutError."""
        self._events.write_bytes(raw)
        command = hook_command(self.paths, self.name, event)
        line = f"{_bare(command, variables)} <{shlex.quote(str(self._events))}"
        return self.run(line)

    def status_line(self) -> Finished:
        """Run the script of the status line."""
        return self.run(_bare(statusline_command(self.paths, self.name)))

    def mbx(self, words: str) -> dict[str, Any]:
        """Run a command of mbx below the client; its object."""
        done = self.run(f"{shlex.quote(MBX)} {words} --json")
        told = json.loads(done.out)
        assert isinstance(told, dict)
        assert done.status == 0, told
        return told

    @property
    def own(self) -> str:
        """What the process goes by."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(") ")[2].split()
        return f"{self.pid}-{fields[19]}"

    def shown(self) -> str:
        """The line of the snapshot of this process; "" for none."""
        try:
            lines = (Path(self.paths.snapshots_dir()) / self.own).read_text().split("\n")
        except FileNotFoundError:
            return ""
        return lines[2]

    def register(self, name: str) -> None:
        """Hold a new identity, and wait until that is known to hooks."""
        self.mbx(f"identity register {name} --role tester")
        self.await_status(f"mbx {name}")

    def await_status(self, line: str) -> None:
        """Wait until the daemon has written this status line for the session of this process."""
        seen = ""
        for _ in looks():
            seen = self.shown()
            if seen == line:
                return
        raise AssertionError(f"the status line stays {seen!r}, not {line!r}")


def context_of(done: Finished) -> str:
    """The text in a hook's output of the nested form; "" for no output."""
    if not done.out:
        return ""
    told = json.loads(done.out)["hookSpecificOutput"]["additionalContext"]
    assert isinstance(told, str)
    return told


def _bare(command: str, variables: str = "") -> str:
    """As clients run a command line: by a shell, which knows little."""
    kept = 'PATH="$PATH" HOME="$HOME" LANG=C.UTF-8 TERM=dumb'
    return f"env -i {kept} {variables} sh -c {shlex.quote(command)}"
