"""Kimi Code and the older kimi-cli: server entry, hooks in config.toml, status line, skill."""

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
    status_line,
)
from mbx.setup.entries import HOOK_TIMEOUT_S, Installation
from mbx.setup.wishes import Element

NAME: Final = "kimi"
OLD_NAME: Final = "kimi-cli"


def _folder(machine: Machine) -> str:
    return machine.folder("KIMI_CODE_HOME", ".kimi-code")


def _old_folder(machine: Machine) -> str:
    return os.path.join(machine.home, ".kimi")


def _traces(machine: Machine) -> tuple[str, ...]:
    return (_folder(machine),)


def _old_traces(machine: Machine) -> tuple[str, ...]:
    return (_old_folder(machine),)


def _hook(installation: Installation, cli: str, event: str) -> Element:
    """An entry of `[[hooks]]`: these keys and no others, or the whole file is refused."""
    command = installation.hook(cli, event)
    value = {"event": event, "command": command, "timeout": HOOK_TIMEOUT_S}
    return Element(("hooks",), value, installation.whose_hook, event=event)


def _both(folder: str, client: Client, installation: Installation) -> list[Document]:
    member = server_member(installation, server(installation))
    hooks = tuple(_hook(installation, client.name, event) for event in client.events)
    return [
        Document(os.path.join(folder, "mcp.json"), "json", (member,)),
        Document(os.path.join(folder, "config.toml"), "toml", hooks),
    ]


def _documents(machine: Machine, installation: Installation, scripts: Scripts) -> list[Document]:
    folder = _folder(machine)
    line = status_line(installation, NAME, "status_line")
    line = line._replace(value={"command": line.value["command"]})
    return [
        *_both(folder, CLIENT, installation),
        Document(os.path.join(folder, "tui.toml"), "toml", (line,)),
        skill(folder),
    ]


def _old_documents(
    machine: Machine, installation: Installation, scripts: Scripts
) -> list[Document]:
    return _both(_old_folder(machine), OLD_CLIENT, installation)


CLIENT: Final = Client(
    NAME,
    "Kimi Code",
    ("kimi",),
    _traces,
    _documents,
    events_of(NAME),
)
"""What stands where: docs/setup.md."""

OLD_CLIENT: Final = Client(
    OLD_NAME,
    "kimi-cli",
    ("kimi-cli",),
    _old_traces,
    _old_documents,
    events_of(OLD_NAME),
)
"""Its program is called `kimi` too: the folder tells them apart."""
