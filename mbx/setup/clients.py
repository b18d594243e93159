"""The clients that setup knows, and which of them are on this machine."""

import os
from typing import Final, NamedTuple

from mbx.setup import claude, codex, copilot, gemini, kimi, opencode, qwen
from mbx.setup.client import Client, Machine

CLIENTS: Final[tuple[Client, ...]] = (
    claude.CLIENT,
    codex.CLIENT,
    opencode.CLIENT,
    gemini.CLIENT,
    kimi.CLIENT,
    kimi.OLD_CLIENT,
    qwen.CLIENT,
    copilot.CLIENT,
)
"""In the order in which they are told."""

BY_NAME: Final = {client.name: client for client in CLIENTS}
"""The same by the names that `--only` takes."""


class Trace(NamedTuple):
    """What shows that a client is here: its program on the PATH, or a place that it keeps."""

    client: Client
    program: str | None
    place: str | None

    @property
    def is_found(self) -> bool:
        """Whether anything was found."""
        return self.program is not None or self.place is not None


def look_for(client: Client, machine: Machine) -> Trace:
    """What there is of a client on this machine."""
    path = machine.environ.get("PATH", os.defpath)
    program = next(filter(None, (_on_path(name, path) for name in client.programs)), None)
    place = next((one for one in client.traces(machine) if os.path.lexists(one)), None)
    return Trace(client, program, place)


def _on_path(name: str, path: str) -> str | None:
    for folder in filter(os.path.isabs, path.split(os.pathsep)):
        candidate = os.path.join(folder, name)
        if os.path.isfile(candidate) and os.access(candidate, os.X_OK):
            return candidate
    return None
