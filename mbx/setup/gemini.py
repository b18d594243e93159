"""Gemini CLI: server entry and hooks in one file, skill. It has no status line."""

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
from mbx.setup.entries import HOOK_TIMEOUT_S, Installation
from mbx.setup.wishes import Wish

NAME: Final = "gemini"

_TIMEOUT_MS: Final = HOOK_TIMEOUT_S * 1_000
"""Its hooks count in milliseconds."""


def _folder(machine: Machine) -> str:
    return os.path.join(machine.environ.get("GEMINI_CLI_HOME") or machine.home, ".gemini")


def _traces(machine: Machine) -> tuple[str, ...]:
    return (_folder(machine),)


def _documents(machine: Machine, installation: Installation, scripts: Scripts) -> list[Document]:
    wishes: list[Wish] = [server_member(installation, server(installation))]
    for event in CLIENT.events:
        wishes.append(grouped_hook(installation, NAME, event, timeout=_TIMEOUT_MS, matcher="*"))
    folder = _folder(machine)
    return [Document(os.path.join(folder, "settings.json"), "json", tuple(wishes)), skill(folder)]


CLIENT: Final = Client(
    NAME,
    "Gemini CLI",
    ("gemini",),
    _traces,
    _documents,
    events_of(NAME),
)
"""What stands where: docs/setup.md."""
