"""Kimi Code and the older kimi-cli: server entry, hooks in config.toml, status line, skill."""

import os
from typing import Final

from mbx.setup.client import (
    Client,
    Document,
    Machine,
    Scripts,
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


def _both(
    folder: str, client: Client, installation: Installation, scripts: Scripts | None
) -> list[Document]:
    member = server_member(installation, server(installation))
    found = [Document(os.path.join(folder, "mcp.json"), "json", (member,))]
    if scripts is not None:
        hooks = tuple(_hook(installation, client.name, event) for event in client.events)
        found.append(Document(os.path.join(folder, "config.toml"), "toml", hooks))
    return found


def _documents(
    machine: Machine, installation: Installation, scripts: Scripts | None
) -> list[Document]:
    folder = _folder(machine)
    found = _both(folder, CLIENT, installation, scripts)
    if scripts is not None:
        line = status_line(installation, NAME, "status_line")
        line = line._replace(value={"command": line.value["command"]})
        found.append(Document(os.path.join(folder, "tui.toml"), "toml", (line,)))
    return [*found, skill(folder)]


def _old_documents(
    machine: Machine, installation: Installation, scripts: Scripts | None
) -> list[Document]:
    return _both(_old_folder(machine), OLD_CLIENT, installation, scripts)


_EVENTS: Final = (
    "SessionStart",
    "UserPromptSubmit",
    "PostToolUse",
    "Stop",
    "SessionEnd",
    "PreToolUse",
)

CLIENT: Final = Client(
    NAME,
    "Kimi Code",
    ("kimi",),
    _traces,
    _documents,
    _EVENTS,
)
"""What stands where: docs/setup.md."""

OLD_CLIENT: Final = Client(
    OLD_NAME,
    "kimi-cli",
    ("kimi-cli",),
    _old_traces,
    _old_documents,
    _EVENTS,
)
"""Its program is called `kimi` too: the folder tells them apart."""
