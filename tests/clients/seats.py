"""Agents in real clients at a daemon: what registers mbx with them, and who writes to them."""

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

from tests.clients.apis import Json
from tests.clients.clients import CLIENTS, Client, Session
from tests.support.daemon import MBX, Daemon, fresh_home, fresh_name
from tests.support.patience import looks
from tests.support.shells import TIMEOUT_S

PROMPT: Final = "look for mail"
"""What the human says. Without a question mark: in some clients that opens the help."""


_FINISH_S: Final = 90.0


def _param(client: Client) -> object:
    marks = () if client.executable() else (pytest.mark.skip(reason="not installed"),)
    return pytest.param(client, id=client.name, marks=marks)


each_client = pytest.mark.parametrize("client", [_param(one) for one in CLIENTS.values()])
"""The test is about one client; it runs for each that is installed."""


def needs(*names: str) -> pytest.MarkDecorator:
    """The test is about these clients, and skipped where one is not installed."""
    lacking = [name for name in names if not CLIENTS[name].executable()]
    return pytest.mark.skipif(bool(lacking), reason=f"not installed: {', '.join(lacking)}")


def seated(client: Client, daemon: Daemon, folder: Path, url: str, **more: Path) -> Session:
    """A session of a client that mbx was set up in, at this daemon."""
    session = client.prepare(folder, url, **more)
    session.env["MBX_HOME"] = str(daemon.home)
    done = subprocess.run(
        [MBX, "setup", "--only", client.name, "--yes"],
        env=session.env,
        capture_output=True,
        text=True,
        check=False,
        timeout=TIMEOUT_S,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return session


@contextmanager
def own_daemon() -> Iterator[Daemon]:
    """A daemon that a test may kill; whichever is there at the end is stopped."""
    with fresh_home() as home, Daemon(home) as daemon:
        try:
            yield daemon
        finally:
            daemon.mbx("daemon", "stop")


def unheld(daemon: Daemon) -> str:
    """The name of an identity whose holder has ended."""
    name = fresh_name("ben")
    with daemon.agent() as agent, agent.registered(name):
        pass
    return name


def shown(daemon: Daemon, name: str) -> Json:
    """What everybody is told of an identity."""
    with daemon.line() as line:
        line.hello()
        return line.call("identity.show", name=name)


def free(daemon: Daemon, name: str) -> Json:
    """Wait until an identity can be claimed; what is told of it then."""
    told: Json = {}
    for _ in looks():
        told = shown(daemon, name)
        if told["claimable"]:
            return told
    raise AssertionError(f"{name} is not free: {json.dumps(told)}")


def prepared(daemon: Daemon, line: str) -> None:
    """Wait until the daemon has prepared this status line for a session, and so for its hooks."""
    folder = Path(daemon.socket_path).parent / "snapshots"
    for _ in looks():
        if any(line in text.split("\n") for text in map(_text, folder.iterdir())):
            return
    raise AssertionError(f"no session is told {line!r}")


def finish(process: "subprocess.Popen[str]") -> None:
    """Wait for a client that works at one prompt; it must end well."""
    out, errors = process.communicate(timeout=_FINISH_S)
    assert process.returncode == 0, out + errors


def resumed(session: Session, daemon: Daemon, name: str) -> str:
    """What a conversation says that took a name, ended, and is resumed once the name is free."""
    session.run(PROMPT)
    free(daemon, name)
    return session.resume("go on")


def _text(path: Path) -> str:
    try:
        return path.read_text() if path.is_file() else ""
    except OSError:  # replaced, or gone with its session
        return ""


def register(name: str, **more: object) -> Json:
    """The turn in which a model takes a new name."""
    given = {"action": "register", "name": name, "role": "tester"}
    return {"tool": "mbx_identity", "input": given, **more}


def claim(name: str, **more: object) -> Json:
    """The turn in which a model takes a name that is free."""
    return {"tool": "mbx_identity", "input": {"action": "claim", "name": name}, **more}
