"""OpenCode: server entry, and a plugin in place of hooks. It has no status line."""

import os
from typing import Any, Final

from mbx.setup.client import MARKER, Client, Document, Machine, Scripts, server_member, skill
from mbx.setup.entries import Installation

NAME: Final = "opencode"


def _folder(machine: Machine) -> str:
    asked = machine.environ.get("OPENCODE_CONFIG_DIR")
    return asked or os.path.join(machine.folder("XDG_CONFIG_HOME", ".config"), "opencode")


def _traces(machine: Machine) -> tuple[str, ...]:
    return (_folder(machine),)


def _settings(folder: str) -> str:
    """The settings file that is there; it reads both and lays the second over the first."""
    names = ("opencode.jsonc", "opencode.json")
    paths = [os.path.join(folder, name) for name in names]
    return next((path for path in paths if os.path.lexists(path)), paths[-1])


def _documents(machine: Machine, installation: Installation, scripts: Scripts) -> list[Document]:
    folder = _folder(machine)
    entry: dict[str, Any] = {"type": "local", "command": [*installation.program, "mcp"]}
    if installation.environ:
        entry["environment"] = dict(installation.environ)
    entry["enabled"] = True
    member = server_member(installation, entry, "mcp")._replace(environ="environment")
    mark = "" if MARKER in scripts.plugin[:400] else f"// {MARKER}\n"
    return [
        Document(_settings(folder), "json", (member,)),
        Document(os.path.join(folder, "plugins", "mbx.js"), "file", text=f"{mark}{scripts.plugin}"),
        skill(folder),
    ]


CLIENT: Final = Client(
    NAME,
    "OpenCode",
    ("opencode",),
    _traces,
    _documents,
    (),
)
"""What stands where: docs/setup.md."""
