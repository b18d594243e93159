"""One question to the daemon, by a hook: never started for it, never waited for beyond the second.

A client that begins starts its hook and `mbx mcp` at once, and the pipe starts the daemon: for that
start the first hook waits. No answer is counted: `down` where nobody listens, `slow` where somebody
does who does not answer.
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any, Final

from mbx.core.limits import HOOK_DEADLINE_MS
from mbx.core.snapshot import DOWN, SLOW
from mbx.telling import count_miss
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
    from collections.abc import Mapping

    from mbx.hooks.place import Place


STARTER_S: Final = 0.3
"""How long it is waited for somebody who begins to start the daemon: a Python that begins at the
same moment takes 0.05 s to it."""

START_S: Final = 0.75
"""How long it is waited for the daemon that somebody starts (0.3 s): the rest of the second is for
the question."""

_LOOK_S: Final = 0.01


def ask(
    place: Place,
    params: Mapping[str, str],
    key: tuple[str, str] | None,
    wishes: Mapping[str, str],
    *,
    is_first: bool = False,
) -> dict[str, Any] | None:
    """What `session.hook` answers; None where it does not, or refuses.

    `key`: the conversation (cli, id) as which the connection says hello. `wishes`: an environment
    whose MBX_AGENT and MBX_ROLE the owner set at the launch. `is_first`: a daemon that somebody
    else is starting is waited for.
    """
    hello = introduction(wishes)
    if key is not None:
        hello["session"] = {"cli": key[0], "id": key[1]}
    lines = encode(request(0, "hello", hello)) + encode(request(1, "session.hook", dict(params)))
    deadline = time.monotonic() + HOOK_DEADLINE_MS / 1000
    try:
        connection = (_opened_patiently if is_first else _opened)(place, deadline)
    except (NoAnswer, BlockingIOError):
        count_miss(place.miss_path(SLOW))
        return None
    except OSError:
        count_miss(place.miss_path(DOWN))
        return None
    try:
        connection.send(lines, deadline)
        while True:
            told = connection.receive(deadline)
            if told.get("id") == 1:
                result = told.get("result")
                return result if isinstance(result, dict) else None
    except NoAnswer:
        count_miss(place.miss_path(SLOW))
    except ConnectionLost:
        count_miss(place.miss_path(DOWN))
    except WireError:
        pass
    finally:
        connection.close()
    return None


def _opened(place: Place, deadline: float) -> Connection:
    return Connection.open(place.socket_path(), time.monotonic, deadline)


def _opened_patiently(place: Place, deadline: float) -> Connection:
    """Raises OSError where nobody listens, nor is going to, as far as can be seen."""
    began, was_started = time.monotonic(), False
    while True:
        is_started = _is_being_started(place)
        try:
            return _opened(place, deadline)
        except (FileNotFoundError, ConnectionRefusedError):
            waited_s = time.monotonic() - began
            has_ended = was_started and not is_started
            if has_ended or waited_s >= (START_S if is_started else STARTER_S):
                raise
        was_started = is_started
        time.sleep(_LOOK_S)


def _is_being_started(place: Place) -> bool:
    """Whether somebody holds the starters' lock, by the kernel's list: nothing is locked for it."""
    try:
        inode = os.stat(place.start_lock_path()).st_ino
        with open("/proc/locks", encoding="ascii", errors="replace") as file:
            return any(f":{inode} " in line and " FLOCK " in line for line in file)
    except OSError:
        return False
