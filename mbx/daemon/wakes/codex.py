"""Codex: its own command `codex queue` gives a session a prompt.

The command is the program that the holder runs, with the same folder. The session is named by its
thread, which its hooks told: without that there is no way. Whether it is idle, Codex does not say;
a prompt that comes during a turn waits for its end there.
"""

import asyncio
import re
from collections.abc import Callable, Mapping
from typing import Final

from mbx.core.evidence import Process, ProcessEntry, harness_of, own_id
from mbx.daemon import processes
from mbx.daemon.holders import Target
from mbx.daemon.wakes import LEASE_CHANGED, Seen, Told, still_there
from mbx.daemon.wakes.command import environment, program, run

FOLDER: Final = "CODEX_HOME"
"""The variable that moves the client's folder."""

THREAD: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]{7,63}")
"""What can be the id of a thread (a UUID today), and never an option."""

_NAMES: Final = (FOLDER, "HOME", "PATH")

_NO_THREAD: Final = "its thread is not known: the hooks of Codex tell it"
_ONE_TURN: Final = "it runs one turn and ends (codex exec)"
_NO_PROGRAM: Final = "the program of this Codex cannot be told"
_QUEUED: Final = "codex queue took it"
_REFUSED: Final = "codex queue refused it"
_SLOW: Final = "codex queue did not end in time"
_KILLED: Final = "codex queue was killed"
_NOT_STARTED: Final = "codex queue could not be started"


class Codex:
    """The way to a session of Codex. `label` tells what a session was called last."""

    names_conversations = False

    def __init__(self, label: Callable[[Process, str], str | None]) -> None:
        self._label = label

    def look(self, target: Target) -> Seen:
        """Whether it waits for prompts, and its thread and program are known."""
        if _runs_one_turn(target.process):
            return Seen("none", _ONE_TURN)
        if self._thread(target) is None:
            return Seen("none", _NO_THREAD)
        if _program(target.process, _variables(target.process)) is None:
            return Seen("none", _NO_PROGRAM)
        return Seen("ready")

    async def wake(self, target: Target, text: str, is_current: Callable[[], bool]) -> Told:
        """Run the command; its exit status is its word."""
        thread = self._thread(target)
        variables = await asyncio.to_thread(_variables, target.process)
        path = await asyncio.to_thread(_program, target.process, variables)
        if thread is None or path is None:
            return Told("failed", _NO_THREAD if thread is None else _NO_PROGRAM)
        if not still_there(target, is_current):
            return LEASE_CHANGED
        argv = (path, "queue", "--thread", thread, "--message", text)
        return await _run(argv, environment(variables))

    def _thread(self, target: Target) -> str | None:
        called = self._label(target.process, target.conversation) or target.called
        is_own = called == own_id(target.process, target.conversation)
        return called if not is_own and THREAD.fullmatch(called) else None


async def _run(argv: tuple[str, ...], environ: Mapping[str, str]) -> Told:
    try:
        status = await run(argv, environ)
    except OSError:
        return Told("failed", _NOT_STARTED)
    if status is None or status < 0:
        return Told("unknown", _SLOW if status is None else _KILLED)
    return Told("admitted", _QUEUED) if status == 0 else Told("failed", _REFUSED)


def _runs_one_turn(process: Process) -> bool:
    """Whether it is `codex exec`: its queue takes a message, and no turn follows that reads it."""
    entry = processes.read_entry(process.pid)
    return isinstance(entry, ProcessEntry) and "exec" in entry.argv[1:]


def _variables(process: Process) -> dict[str, str]:
    return processes.variables(process, _NAMES) or {}


def _program(process: Process, variables: Mapping[str, str]) -> str | None:
    """The path of the program that the process was started as; None where that is a script."""
    entry = processes.read_entry(process.pid)
    if not isinstance(entry, ProcessEntry) or harness_of(entry) != "codex":
        return None
    word = entry.argv[0]
    if word.rpartition("/")[2] != "codex":
        return None
    return program(word, variables)
