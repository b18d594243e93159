"""Claude Code: server entry, hooks, status line, skill."""

import os
from typing import Final

from mbx.core.clients import CLIENTS
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
    waiting_hook,
)
from mbx.setup.entries import Installation
from mbx.setup.wishes import Wish

NAME: Final = "claude"

_BY_TOOL: Final = ("UserPromptSubmit", "PostToolUse")
"""Its servers are not connected yet when SessionStart fires; Stop and SessionEnd need a process."""

_WAIT_S: Final = 24 * 60 * 60
"""How long a hook that waits for mail may run; each end of a turn starts a new one."""


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
        *(
            waiting_hook(installation, NAME, event, asyncRewake=True, timeout=_WAIT_S)
            for event in CLIENTS[NAME].waits
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
            "Mail may start a turn in an idle session of Claude Code, also in one that runs with"
            " all permissions bypassed. If you want none there, set"
            ' "crossSessionInbound": "refuse" in ~/.claude/settings.json yourself.'
        ),
    ),
)
"""What stands where: docs/setup.md."""
