"""The official Inspector of MCP servers, as a command: it checks `mbx mcp` in each era."""

import json
import os
import subprocess
from collections.abc import Mapping
from typing import Final

from tests.clients.apis import Json
from tests.clients.clients import CLIENTS, RUN_S
from tests.support.daemon import MBX

INSPECTOR: Final = "@modelcontextprotocol/inspector@2.12.0"
"""The package that it comes in."""

ERAS: Final = ("legacy", "modern", "auto")
"""What it calls the handshake, the revision without one, and trying."""


def program() -> str | None:
    """The command, if it is installed."""
    path = CLIENTS["claude"].folder() / "inspector" / "node_modules" / ".bin" / "mcp-inspector"
    return str(path) if path.exists() else None


def inspect(home: str, era: str, *arguments: str, strict: bool = False) -> Json:
    """What it found, asking `mbx mcp` with a mailbox in `home`.

    Raises AssertionError when it is not content; `strict` makes it complain of a schema that some
    client would not take.
    """
    found = program()
    assert found is not None
    argv = [found, "--cli", MBX, "mcp", "--protocol-era", era, "-e", f"MBX_HOME={home}"]
    done = subprocess.run(
        [*argv, *(["--strict"] if strict else []), *arguments],
        env=_environment(home),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=RUN_S,
        check=False,
    )
    assert done.returncode == 0, (
        f"exit {done.returncode}: {done.stdout[-1500:]}{done.stderr[-1500:]}"
    )
    told = json.loads(done.stdout)
    assert isinstance(told, dict)
    return told


def _environment(home: str) -> Mapping[str, str]:
    return {
        "HOME": home,
        "PATH": CLIENTS["claude"].path(),
        "LANG": os.environ.get("LANG", "C.UTF-8"),
    }
