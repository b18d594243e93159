"""Copilot CLI: server entry, a file of hooks, skill. It has no status line."""

import os
from typing import Final

from mbx.setup.client import (
    Client,
    Document,
    Machine,
    Scripts,
    events_of,
    server,
    server_member,
    skill,
)
from mbx.setup.entries import HOOK_TIMEOUT_S, Installation
from mbx.setup.wishes import Constant, Element, Wish

NAME: Final = "copilot"


def _folder(machine: Machine) -> str:
    return machine.folder("COPILOT_HOME", ".copilot")


def _traces(machine: Machine) -> tuple[str, ...]:
    return (_folder(machine),)


def _documents(machine: Machine, installation: Installation, scripts: Scripts) -> list[Document]:
    folder = _folder(machine)
    entry = {"type": "local", **server(installation), "tools": ["*"]}
    member = server_member(installation, entry)
    wishes: list[Wish] = [Constant(("version",), 1)]
    for event in CLIENT.events:
        line = installation.hook(NAME, event)
        hook = {"type": "command", "bash": line, "timeoutSec": HOOK_TIMEOUT_S}
        wishes.append(Element(("hooks", event), hook, installation.whose_hook))
    return [
        Document(os.path.join(folder, "mcp-config.json"), "json", (member,)),
        Document(os.path.join(folder, "hooks", "mbx.json"), "json", tuple(wishes)),
        skill(folder),
    ]


CLIENT: Final = Client(
    NAME,
    "Copilot CLI",
    ("copilot",),
    _traces,
    _documents,
    events_of(NAME),
)
"""What stands where: docs/setup.md."""
