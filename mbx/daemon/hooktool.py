"""What the tool `mbx_hook` answers: the output of a hook, for clients whose hooks call tools.

It knows the session by the connection, never by what the call says, so nobody gets a sibling's
count; and what it tells is told by no other hook again.
"""

from collections.abc import Callable
from typing import Any, Final

from mbx.core.clients import CLIENTS, NESTED, PROMPT, START, STOP, TOOL, output
from mbx.core.evidence import Lineage
from mbx.core.snapshot import Snapshot, greeting
from mbx.daemon.workers.snapshots import Snapshots

_NEWS: Final[dict[str, Callable[[Snapshot, int], str]]] = {
    START: Snapshot.news,
    PROMPT: Snapshot.news,
    TOOL: Snapshot.news,
    STOP: Snapshot.stop,
}


def answer(
    snapshots: Snapshots, lineage: Lineage, event: str, known: dict[str, Any], now_ms: int
) -> dict[str, Any]:
    """The JSON object for a client's event; `known`: what `session.hook` answered, if it did."""
    client = CLIENTS.get(lineage.cli)
    act = client.act_of(event) if client is not None else ""
    form = client.forms.get(act, "") if client is not None else ""
    if act not in _NEWS:
        return {}
    text = snapshots.news(lineage, _NEWS[act], now_ms if act == STOP else None)
    if act == START and known:
        text = greeting(known["agent"], known["unread"] or 0, known["pending"])
    told = output(form or NESTED, event, text) if text else None
    return told or {}
