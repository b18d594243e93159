"""`mbx statusline C`: the line that `statusline.sh` prints, for clients that cannot run scripts.

The session is that of the process which runs it; of a shared process, the conversation that the
client names on standard input. Nothing is printed where that is not beyond doubt.
"""

from __future__ import annotations

import os

from mbx.core.clients import CLIENTS, STATUS_LINES
from mbx.hooks import event as events
from mbx.hooks.deadline import arm
from mbx.hooks.place import Place

TYPE_CHECKING = False
if TYPE_CHECKING:  # `typing` itself is too heavy for a hook
    from collections.abc import Mapping

_FIELDS = ("session_id", "sessionId")


def main(cli: str, environ: Mapping[str, str]) -> int:
    """The exit status, which is 0."""
    try:
        arm(environ)
        _show(cli, environ)
    except BaseException:  # noqa: BLE001  (a line on a screen never costs its client anything)
        return 0
    return 0


def _show(cli: str, environ: Mapping[str, str]) -> None:
    if cli not in STATUS_LINES:
        return
    given = {} if os.isatty(0) else events.read(0)
    called = next((named for field in _FIELDS if (named := events.session_of(given, field))), None)
    snapshot = Place.of("", "", environ).snapshot(CLIENTS[cli].harness, called)
    if snapshot is not None and snapshot.cli == CLIENTS[cli].harness and snapshot.status_line():
        os.write(1, snapshot.status_line().encode("ascii", "replace") + b"\n")
