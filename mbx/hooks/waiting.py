"""`hook.sh CLI Wait`: a hook that its client leaves running, and is woken by when it ends.

It waits only where the daemon says, within the deadline of every hook, that nothing else reaches
the session: a client that runs one turn would wait for its end, and one that does not know such
hooks before it goes on. Then it waits for the daemon's question on its own connection, which is all
that it does; over a new daemon it asks again.
"""

from __future__ import annotations

import os
import re
import time
from typing import TYPE_CHECKING, Any, Final

from mbx.core.limits import HOOK_DEADLINE_MS
from mbx.core.snapshot import HELD
from mbx.hooks.deadline import disarm
from mbx.wire import (
    Connection,
    ConnectionLost,
    NoAnswer,
    WireError,
    encode,
    introduction,
    request,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from mbx.core.clients import Client
    from mbx.hooks.place import Place

_FOREVER_S: Final = 10 * 365 * 24 * 3600.0
_PAUSE_S: Final = 2.0
_PAUSE_MAX_S: Final = 30.0
"""Between two tries to reach a daemon that is away."""

_WORDS: Final = re.compile(r"mbx: [a-z0-9 ;,_-]{1,200}")
"""What may be said: counts and names. Nobody but the daemon writes there; it costs nothing."""

_BEGINS: Final = "SessionStart"


class _Lost(Exception):
    """The daemon has ended, or hangs."""


def wait(
    client: Client,
    place: Place,
    event: Mapping[str, Any],
    environ: Mapping[str, str],
    say: Callable[[str], int],
) -> int:
    """The exit status: that of `say` once there was something to say, else 0."""
    from mbx.hooks.events import wishes_of

    called, mode = event.get(client.session_field), event.get("permission_mode")
    begins = event.get("hook_event_name") == _BEGINS
    if not begins:
        snapshot = place.snapshot(client.harness, called if isinstance(called, str) else None)
        if snapshot is None or snapshot.state != HELD:
            return 0
    hello = introduction(wishes_of(event, environ) if begins else {})
    if isinstance(called, str):
        hello["session"] = {"cli": client.harness, "id": called}
    offer = {"waits": True, "mode": mode if isinstance(mode, str) else ""}
    lines = encode(request(0, "hello", hello)) + encode(request(1, "wake.offer", offer))
    has_waited, pause_s = False, _PAUSE_S
    while True:
        try:
            return _once(place, lines, say, has_waited=has_waited)
        except _Lost:
            has_waited = True
        except (NoAnswer, ConnectionLost, WireError, OSError):
            if not has_waited:
                return 0
        if not _is_there(place):
            return 0
        time.sleep(pause_s)
        pause_s = min(pause_s * 2, _PAUSE_MAX_S)


def _once(place: Place, lines: bytes, say: Callable[[str], int], *, has_waited: bool) -> int:
    """Wait with one daemon. Raises `_Lost` when it was waited for and has ended."""
    deadline = time.monotonic() + HOOK_DEADLINE_MS / 1000
    connection = Connection.open(place.socket_path(), time.monotonic, deadline)
    is_awaited = False
    try:
        connection.send(lines, deadline)
        while True:
            told = connection.receive(deadline)
            if told.get("error") or told.get("method") == "wake.over":
                return 0
            if told.get("id") == 1 and told["result"]["agent"] is None:
                return 0
            if told.get("method") == "wake.awaited":
                is_awaited, deadline = True, time.monotonic() + _FOREVER_S
                if not has_waited:
                    disarm()
            if told.get("method") == "wake.asked":
                return _answer(connection, told["params"], say)
    except (ConnectionLost, NoAnswer):
        if is_awaited:
            raise _Lost from None
        raise
    finally:
        connection.close()


def _answer(connection: Connection, asked: Mapping[str, Any], say: Callable[[str], int]) -> int:
    """Say it, then tell that it was said; whether a turn begins, others see."""
    status, outcome = 0, "failed"
    if _WORDS.fullmatch(asked["text"]):
        status, outcome = say(asked["text"]), "admitted"
    settle = request(2, "wake.settle", {"wake": asked["wake"], "outcome": outcome})
    deadline = time.monotonic() + HOOK_DEADLINE_MS / 1000
    try:
        connection.send(encode(settle), deadline)
        connection.receive(deadline)
    except (ConnectionLost, NoAnswer, WireError):
        pass
    return status


def _is_there(place: Place) -> bool:
    """Whether the client's process still is: its hooks may outlive it."""
    pid, _, ticks = place.own.partition("-")
    try:
        with open(f"/proc/{int(pid)}/stat", "rb") as file:
            fields = file.read(4_096).rpartition(b") ")[2].split()
    except (OSError, ValueError):
        return bool(pid) and not os.path.exists("/proc/self/stat")
    return len(fields) > 19 and fields[19].decode() == ticks
