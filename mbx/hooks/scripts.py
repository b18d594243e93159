"""The files that `mbx setup` puts for hooks and status lines: their exact contents for given paths.

The command lines that clients are given are `hook_command` and `statusline_command`; they never
change, since clients keep a person's consent by them. What the scripts do may.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from mbx import PROTOCOL
from mbx.core.clients import (
    CLIENTS,
    HOOK_SCRIPT,
    STATUS,
    STATUS_LINE_SCRIPT,
    STATUS_LINES,
    WAIT,
    WAITS_AS,
    command_line,
)
from mbx.core.limits import HOOK_MISSES_MAX, SNAPSHOT_MAX_BYTES, SNAPSHOT_STALE_MS, WAKE_TURN_MS
from mbx.core.snapshot import DOWN, FRESH, SAID, VERSION, told_name
from mbx.hooks.events import BLOCKS
from mbx.hooks.guard import FIELDS
from mbx.hooks.place import SHELLS, STEPS_MAX
from mbx.paths import Paths, quoted

_FILES: Final = {"FRESH": FRESH, "DOWN": DOWN, "TOLD": told_name(""), "VERSION": VERSION}

READ_BYTES: Final = 64 * 1024
"""What the script reads of the event for the guard; Python reads the rest. It is handed on in the
environment, where a text may have 128 KiB (MAX_ARG_STRLEN of Linux)."""

PARTS_MAX: Final = 600
"""Texts of an event, with what is between them, that the script looks at; more is for Python."""

GAP_MAX_CHARS: Final = 200
"""Between two texts; more (long lists of numbers) is for Python."""

_ENTRY: Final = "from mbx.hooks.events import run; run()"


class Script(NamedTuple):
    """One file below `MBX_HOME/bin`."""

    name: str
    content: str


def program() -> tuple[str, ...]:
    """How the hooks of this installation are started.

    Isolated, so that nobody's settings for Python (`PYTHONPATH`) reach them.
    """
    return (sys.executable, "-I", "-c", _ENTRY)


def hook_command(paths: Paths, cli: str, event: str) -> str:
    """What a client runs at an event, for ever."""
    return command_line(paths.home(), HOOK_SCRIPT, cli, event)


def statusline_command(paths: Paths, cli: str) -> str:
    """What a client runs for its status line."""
    return command_line(paths.home(), STATUS_LINE_SCRIPT, cli)


def scripts(paths: Paths, started: Sequence[str] | None = None) -> tuple[Script, Script]:
    """Both scripts, mode 0700. `started`: the words that start `mbx.hooks.events` (`program`)."""
    words = " ".join(quoted(word) for word in started or program())
    common = {
        **_FILES,
        "FOLDER": quoted(paths.snapshots_dir()),
        "SHELLS": " | ".join(sorted(SHELLS)),
        "STEPS": str(STEPS_MAX),
        "STALE": str(SNAPSHOT_STALE_MS // 1000),
        "OTHER_NAMES": _harness(),
    }
    hook = {
        **common,
        "HOME": quoted(paths.home()),
        "RUN": quoted(paths.run_dir()),
        "FIELDS": " | ".join(sorted(FIELDS)),
        "READ": str(READ_BYTES),
        "PARTS": str(PARTS_MAX),
        "GAP": str(GAP_MAX_CHARS),
        "PROGRAM": words,
        "BLOCKS": str(BLOCKS),
        "MISSES": str(HOOK_MISSES_MAX),
        "EVENTS": _lines(_events()),
        "STATUS": " | ".join(_by_status()),
        "VARIABLES": _lines(_variables()),
    }
    line = {**common, "CLIENTS": " | ".join(STATUS_LINES)}
    return _script(HOOK_SCRIPT, hook), _script(STATUS_LINE_SCRIPT, line)


def opencode_plugin(paths: Paths, started: Sequence[str] | None = None) -> str:
    """The module for OpenCode's folder of plugins."""
    values = {
        **_FILES,
        "FOLDER": json.dumps(paths.snapshots_dir()),
        "PROGRAM": json.dumps(list(started or program())),
        "STALE": str(SNAPSHOT_STALE_MS // 1000),
        "BYTES": str(SNAPSHOT_MAX_BYTES),
        "SAID": SAID,
        "SOCKET": json.dumps(paths.socket_path()),
        "TURN": str(WAKE_TURN_MS),
        "PROTOCOL": str(PROTOCOL),
    }
    return _filled("opencode.js", values)


def _script(name: str, values: dict[str, str]) -> Script:
    return Script(name, _filled(name, values))


def _filled(name: str, values: dict[str, str]) -> str:
    with open(os.path.join(os.path.dirname(__file__), name), encoding="utf-8") as file:
        text = file.read()
    for key, value in values.items():
        text = text.replace(f"@{key}@", value)
    return text


def _events() -> Iterable[str]:
    """One arm for each act that can come to something, so that other events cost nothing."""
    acts: dict[str, list[str]] = {}
    for client in CLIENTS.values():
        for act, event in client.heeded().items():
            acts.setdefault(act, []).append(f"'{client.name} {event}'")
    for act, words in acts.items():
        yield f"{' | '.join(words)}) act={act} ;;"
    waiting = [f"'{client.name} {WAITS_AS}'" for client in CLIENTS.values() if client.waits]
    yield f"{' | '.join(waiting)}) act={WAIT} ;;"


def _by_status() -> Iterable[str]:
    for client in CLIENTS.values():
        for act, form in client.forms.items():
            if form == STATUS:
                yield f"'{client.name} {act}'"
        if client.waits:
            yield f"'{client.name} {WAIT}'"


def _variables() -> Iterable[str]:
    for client in CLIENTS.values():
        if client.variable:
            yield f"{client.name}) current=${client.variable} ;;"


def _harness() -> str:
    """The name among the processes is the client's own, but for one that has two programs."""
    return "".join(
        f"{client.name}) harness={client.harness} ;;"
        for client in CLIENTS.values()
        if client.harness != client.name
    )


def _lines(lines: Iterable[str]) -> str:
    return "\n".join(f"  {line}" for line in lines)
