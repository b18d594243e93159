"""Qwen Code: server entry, hooks and status line in one file, skill."""

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

NAME: Final = "qwen"


def _folder(machine: Machine) -> str:
    return machine.folder("QWEN_HOME", ".qwen")


def _traces(machine: Machine) -> tuple[str, ...]:
    return (_folder(machine),)


def _documents(machine: Machine, installation: Installation, scripts: Scripts) -> list[Document]:
    wishes: list[Wish] = [server_member(installation, server(installation, alwaysLoad=True))]
    wishes += [grouped_hook(installation, NAME, event) for event in CLIENT.events]
    wishes.append(status_line(installation, NAME, "ui", "statusLine", refreshInterval=2))
    folder = _folder(machine)
    return [Document(os.path.join(folder, "settings.json"), "json", tuple(wishes)), skill(folder)]


CLIENT: Final = Client(
    NAME,
    "Qwen Code",
    ("qwen",),
    _traces,
    _documents,
    events_of(NAME),
)
"""What stands where: docs/setup.md."""
