"""What mbx enters into agent CLIs, and how it knows its own entries again; pure.

An entry is known by its meaning, not by its spelling: CLIs rewrite their files.
"""

import os
import re
from collections.abc import Mapping
from typing import Any, Final, Literal, NamedTuple

from mbx.core.clients import HOOK_SCRIPT, STATUS_LINE_SCRIPT, WAITS_AS, command_line

SERVER: Final = "mbx"
"""The name of the MCP server, and of the skill."""

HOOK_TOOL: Final = "mbx_hook"
"""The tool that hooks of the type `mcp_tool` call."""

HOOK_TIMEOUT_S: Final = 3
"""A hook itself ends within a second; more than this Codex takes for no SessionEnd, and says so."""

START_TIMEOUT_S: Final = 30
"""How long a client should wait for `mbx mcp`, which may have to start the daemon."""

Whose = Literal["mine", "another's", "foreign"]
"""Of this installation; of mbx with another home folder; not of mbx at all."""

_LINE: Final = re.compile(
    r'(?:\[ ! -r "[^"]*(?:\\.[^"]*)*" \] \|\| )?'  # not run where the script is gone
    r'sh "((?:[^"\\]|\\.)+)/bin/'
    rf'(?:{re.escape(HOOK_SCRIPT)}|{re.escape(STATUS_LINE_SCRIPT)})" .*',
    re.DOTALL,
)
_ESCAPED: Final = re.compile(r"\\([\\\"$`])")


class Installation(NamedTuple):
    """The installation that is entered.

    `program` is how it is started (absolute), `environ` what an entry must set so that it is this
    one (empty for the usual home), `usual_home` the home of an entry that sets nothing.
    `whose_tool`: whose the client's MCP server entry is, whose tool its hooks call. `has_server`:
    the entry is, or will be, there; else no hook calls the tool of what is called so.
    """

    program: tuple[str, ...]
    home: str
    environ: Mapping[str, str]
    usual_home: str
    whose_tool: Whose = "mine"
    has_server: bool = True

    def hook(self, cli: str, event: str) -> str:
        """The command line of a hook. It never changes: Codex trusts it letter by letter."""
        return command_line(self.home, HOOK_SCRIPT, cli, event)

    def status_line(self, cli: str) -> str:
        """The command line of a status line."""
        return command_line(self.home, STATUS_LINE_SCRIPT, cli)

    def tool_hook(self, event: str) -> dict[str, Any]:
        """A hook that calls the tool instead of a process."""
        given = {"event": event, "session": "${session_id}"}
        return {"type": "mcp_tool", "server": SERVER, "tool": HOOK_TOOL, "input": given}

    # -- whose an entry is ------------------------------------------------------------------------

    def whose_server(self, entry: object) -> Whose:
        """Of an MCP server entry, in any of the clients' forms."""
        if not isinstance(entry, dict):
            return "foreign"
        command, more = entry.get("command"), entry.get("args", [])
        whole = command if isinstance(command, list) else [command]
        words = [*whole, *(more if isinstance(more, list) else [more])]
        if not words or not all(isinstance(word, str) for word in words) or words[-1] != "mcp":
            return "foreign"
        name = os.path.basename(words[0])
        if name != "mbx" and words[1:-1] != ["-m", "mbx"]:
            return "foreign"
        given = entry.get("env", entry.get("environment"))
        home = given.get("MBX_HOME") if isinstance(given, dict) else None
        return self._whose(home or self.usual_home)

    def whose_line(self, command: object) -> Whose:
        """Of the command line of a hook or status line."""
        found = _LINE.fullmatch(command) if isinstance(command, str) else None
        return "foreign" if found is None else self._whose(_ESCAPED.sub(r"\1", found[1]))

    def whose_hook(self, hook: object) -> Whose:
        """Of one hook, in any of the clients' forms; one that waits is told apart."""
        if not isinstance(hook, dict) or _waits(hook):
            return "foreign"
        if hook.get("type") == "mcp_tool":
            is_ours = hook.get("server") == SERVER and hook.get("tool") == HOOK_TOOL
            return self.whose_tool if is_ours else "foreign"
        return self.whose_line(hook.get("command", hook.get("bash")))

    def whose_waiting_hook(self, hook: object) -> Whose:
        """Of a hook that its client leaves running."""
        if not isinstance(hook, dict) or not _waits(hook):
            return "foreign"
        return self.whose_line(hook["command"])

    def _whose(self, home: object) -> Whose:
        if not isinstance(home, str):
            return "another's"
        return "mine" if os.path.realpath(home) == self.home else "another's"


def _waits(hook: Mapping[str, object]) -> bool:
    command = hook.get("command")
    return isinstance(command, str) and command.endswith(f" {WAITS_AS}")
