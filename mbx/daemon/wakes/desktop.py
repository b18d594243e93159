"""The desktop: a notice to the person, where nothing reaches a session and its mail has waited.

It wakes no agent. So what became of it is unknown, whatever the desktop says: the same mail is not
noticed twice, hooks say it as if nothing had been, and no sender is promised anything.
"""

import os
import re
import stat
from collections.abc import Callable
from typing import Final

from mbx.core.evidence import Process
from mbx.core.waking import notice_words
from mbx.daemon import processes
from mbx.daemon.holders import Target
from mbx.daemon.wakes import LEASE_CHANGED, Seen, Told, still_there
from mbx.daemon.wakes.command import environment, program, run

COMMAND: Final = "notify-send"
"""Of libnotify: the usual way to the desktop's notices, by D-Bus."""

_SCREENS: Final = ("DISPLAY", "WAYLAND_DISPLAY")
_BUS: Final = "DBUS_SESSION_BUS_ADDRESS"
_NAMES: Final = (*_SCREENS, _BUS, "HOME", "PATH")
_SOCKET: Final = re.compile(r"unix:(?:path|abstract)=/[A-Za-z0-9/_.-]+(?:,guid=[0-9a-f]+)?")
"""An address of a bus that is a socket. Other sorts of address start programs."""

_NO_DESKTOP: Final = "its session is on no desktop that shows notices"
_SHOWN: Final = "a notice was shown on the desktop"
_NOT_SHOWN: Final = "the desktop did not show a notice"
_SLOW: Final = "the desktop did not say whether it showed a notice"


class Desktop:
    """The desktop that a session runs on."""

    names_conversations = True

    def look(self, target: Target) -> Seen:
        """Whether its process was started on a desktop, and the command is there."""
        return Seen("none", _NO_DESKTOP) if _found(target.process) is None else Seen("ready")

    async def wake(self, target: Target, text: str, is_current: Callable[[], bool]) -> Told:
        """Show a notice with the count and the name that `text` has."""
        found = _found(target.process)
        if found is None:
            return Told("failed", _NO_DESKTOP)
        if not still_there(target, is_current):
            return LEASE_CHANGED
        path, variables = found
        argv = (path, "--app-name=mbx", "--", "mbx", notice_words(text))
        try:
            status = await run(argv, environment(variables))
        except OSError:
            return Told("failed", _NOT_SHOWN)
        if status is None or status < 0:
            return Told("unknown", _SLOW)
        return Told("unknown", _SHOWN) if status == 0 else Told("failed", _NOT_SHOWN)


def _found(process: Process) -> tuple[str, dict[str, str]] | None:
    """The command, and what it needs of the process's environment; None where no desktop is."""
    variables = processes.variables(process, _NAMES) or {}
    if not any(variables.get(name) for name in _SCREENS):
        return None
    bus = variables.get(_BUS, "")
    if not _SOCKET.fullmatch(bus):
        bus = f"/run/user/{os.geteuid()}/bus"
        if not _is_own_socket(bus):
            return None
        variables[_BUS] = f"unix:path={bus}"
    path = program(COMMAND, variables)
    return None if path is None else (path, variables)


def _is_own_socket(path: str) -> bool:
    try:
        found = os.lstat(path)
    except OSError:
        return False
    return stat.S_ISSOCK(found.st_mode) and found.st_uid == os.geteuid()
