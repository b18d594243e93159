"""What a client's module says of its client, and the forms that several clients share; pure."""

import os
from collections.abc import Callable, Mapping
from typing import Any, Final, Literal, NamedTuple

from mbx.core import clients as hooks
from mbx.mcp.guide import GUIDE
from mbx.setup.entries import HOOK_TIMEOUT_S, SERVER, Installation
from mbx.setup.wishes import Element, Member, Wish

MARKER: Final = "written by mbx setup"
"""Stands at the beginning of every file that is ours as a whole."""

_SKILL: Final = f"""\
---
name: {SERVER}
description: How to work with your mbx mailbox. Use it when mail is announced, when you want to \
write to another agent, and when an mbx tool or command refuses something.
---

<!-- {MARKER} -->

"""


class Machine(NamedTuple):
    """Whose configuration is looked for: the environment and the user's home folder."""

    environ: Mapping[str, str]
    home: str

    def folder(self, variable: str, *usual: str) -> str:
        """A client's folder: where its variable says, else below the user's home."""
        return self.environ.get(variable) or os.path.join(self.home, *usual)


class Document(NamedTuple):
    """One file: entries of ours in a file of the client's, or (`text`) a file of our own.

    `is_shared`: it is the same for every mbx home.
    """

    path: str
    kind: Literal["json", "toml", "file"]
    wishes: tuple[Wish, ...] = ()
    text: str = ""
    is_shared: bool = False


class Scripts(NamedTuple):
    """What hooks run: files below mbx's home by path, and the text of OpenCode's plugin."""

    files: Mapping[str, str]
    plugin: str


Documents = Callable[[Machine, Installation, Scripts], list[Document]]
"""The files of a client, as they should be."""


class Client(NamedTuple):
    """One agent CLI.

    `traces` are the places that show that somebody uses it; `events` (its own names) are told to
    the hook script; `hook_remarks` are what the human has to do where there are hooks.
    """

    name: str
    title: str
    programs: tuple[str, ...]
    traces: Callable[[Machine], tuple[str, ...]]
    documents: Documents
    events: tuple[str, ...]
    hook_remarks: tuple[str, ...] = ()


def events_of(cli: str) -> tuple[str, ...]:
    """The events of a client at which its hook has something to do or to say."""
    return tuple(hooks.CLIENTS[cli].heeded().values())


def server(installation: Installation, **more: Any) -> dict[str, Any]:
    """An MCP server entry as most clients have it."""
    program, *words = installation.program
    entry: dict[str, Any] = {"command": program, "args": [*words, "mcp"]}
    if installation.environ:
        entry["env"] = dict(installation.environ)
    return entry | more


def server_member(
    installation: Installation, entry: dict[str, Any], holder: str = "mcpServers"
) -> Member:
    """The wish for a server entry."""
    return Member((holder, SERVER), entry, installation.whose_server)


def grouped_hook(
    installation: Installation,
    cli: str,
    event: str,
    *,
    by_tool: bool = False,
    timeout: int = HOOK_TIMEOUT_S,
    **group: Any,
) -> Element:
    """A hook in the form that Claude Code gave the world: a group that holds it alone."""
    if by_tool and installation.has_server:
        hook = installation.tool_hook(event) | {"timeout": timeout}
    else:
        hook = {"type": "command", "command": installation.hook(cli, event), "timeout": timeout}
    value = {**group, "hooks": [hook]}
    return Element(("hooks", event), value, installation.whose_hook, within="hooks")


def waiting_hook(installation: Installation, cli: str, event: str, **more: Any) -> Element:
    """A hook that the client leaves running, in a group that holds it alone."""
    command = installation.hook(cli, hooks.WAITS_AS)
    value = {"hooks": [{"type": "command", "command": command, **more}]}
    return Element(("hooks", event), value, installation.whose_waiting_hook, within="hooks")


def status_line(installation: Installation, cli: str, *path: str, **more: Any) -> Member:
    """A status line, where people have none of their own."""
    value = {"type": "command", "command": installation.status_line(cli), **more}

    def whose(found: object) -> Any:
        command = found.get("command") if isinstance(found, dict) else None
        return installation.whose_line(command)

    return Member(path, value, whose, gives_way=True)


def skill(folder: str) -> Document:
    """The guide, where the client looks for skills."""
    path = os.path.join(folder, "skills", SERVER, "SKILL.md")
    return Document(path, "file", text=_SKILL + GUIDE, is_shared=True)
