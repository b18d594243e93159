"""One question to the daemon, by a hook: never started for it, never waited for beyond the second.

No answer is counted: `down` where nobody listens, `slow` where somebody does who does not answer.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

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


def ask(
    place: Place, params: Mapping[str, str], key: tuple[str, str] | None, wishes: Mapping[str, str]
) -> dict[str, Any] | None:
    """What `session.hook` answers; None where it does not, or refuses.

    `key`: the conversation (cli, id) as which the connection says hello. `wishes`: an environment
    whose MBX_AGENT and MBX_ROLE the owner set at the launch.
    """
    hello = introduction(wishes)
    if key is not None:
        hello["session"] = {"cli": key[0], "id": key[1]}
    lines = encode(request(0, "hello", hello)) + encode(request(1, "session.hook", dict(params)))
    deadline = time.monotonic() + HOOK_DEADLINE_MS / 1000
    try:
        connection = Connection.open(place.socket_path(), time.monotonic, deadline)
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
