"""Claude Code: server entry, hooks, status line, skill."""

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
    status_line,
)
from mbx.setup.entries import Installation
from mbx.setup.wishes import Wish

NAME: Final = "claude"

_BY_TOOL: Final = ("UserPromptSubmit", "PostToolUse")
"""Its servers are not connected yet when SessionStart fires; Stop and SessionEnd need a process."""


def _folder(machine: Machine) -> str:
    return machine.folder("CLAUDE_CONFIG_DIR", ".claude")


def _state(machine: Machine) -> str:
    return os.path.join(machine.environ.get("CLAUDE_CONFIG_DIR") or machine.home, ".claude.json")


def _traces(machine: Machine) -> tuple[str, ...]:
    return _folder(machine), _state(machine)


def _documents(machine: Machine, installation: Installation, scripts: Scripts) -> list[Document]:
    entry = {"type": "stdio", **server(installation), "alwaysLoad": True}
    wishes: tuple[Wish, ...] = (
        *(
            grouped_hook(installation, NAME, event, by_tool=event in _BY_TOOL)
            for event in CLIENT.events
        ),
        status_line(installation, NAME, "statusLine", padding=0, refreshInterval=2),
    )
    folder = _folder(machine)
    return [
        Document(_state(machine), "json", (server_member(installation, entry),)),
        Document(os.path.join(folder, "settings.json"), "json", wishes),
        skill(folder),
    ]


CLIENT: Final = Client(
    NAME,
    "Claude Code",
    ("claude",),
    _traces,
    _documents,
    events_of(NAME),
    (
        (
            "Claude Code asks before mail may wake an idle session that runs with all permissions"
            ' bypassed. If you want no question there, add "crossSessionInbound": "accept" to'
            " ~/.claude/settings.json yourself; any process of yours can then prompt such a"
            " session."
        ),
    ),
)
"""What stands where: docs/setup.md."""
