"""Codex: server entry in config.toml, hooks in hooks.json, skill. No program for a status line."""

import os
from typing import Final

from mbx.setup.client import (
    Client,
    Document,
    Machine,
    Scripts,
    events_of,
    grouped_hook,
    server,
    server_member,
    skill,
)
from mbx.setup.entries import START_TIMEOUT_S, Installation

NAME: Final = "codex"

_BY_TOOL: Final = ("UserPromptSubmit", "PostToolUse")
"""Events whose `mcp_tool` hooks put their text before the model. A session begins by a process: the
server's environment lacks what the session was started with (MBX_AGENT)."""


def _folder(machine: Machine) -> str:
    return machine.folder("CODEX_HOME", ".codex")


def _traces(machine: Machine) -> tuple[str, ...]:
    return (_folder(machine),)


def _documents(machine: Machine, installation: Installation, scripts: Scripts) -> list[Document]:
    folder = _folder(machine)
    entry = server(installation, required=True, startup_timeout_sec=START_TIMEOUT_S)
    member = server_member(installation, entry, "mcp_servers")
    hooks = tuple(
        grouped_hook(installation, NAME, event, by_tool=event in _BY_TOOL)
        for event in CLIENT.events
    )
    return [
        Document(os.path.join(folder, "config.toml"), "toml", (member,)),
        Document(os.path.join(folder, "hooks.json"), "json", hooks),
        skill(folder),
    ]


CLIENT: Final = Client(
    NAME,
    "Codex",
    ("codex",),
    _traces,
    _documents,
    events_of(NAME),
    (
        (
            "Codex: start it once in a terminal. It shows the new hooks and asks whether you trust"
            " them; until you say yes they do not run (`codex exec` skips them without a word)."
        ),
    ),
)
"""What stands where: docs/setup.md."""
