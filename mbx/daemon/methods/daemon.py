"""`daemon.status` and `daemon.stop`: answered across versions."""

from typing import Final

from mbx.daemon.context import Answer, Context
from mbx.daemon.effects import Stop
from mbx.daemon.gate import Open
from mbx.daemon.methods.table import open_method
from mbx.daemon.params import Params
from mbx.paths import printable
from mbx.store import inspection, search
from mbx.store.database import Tx


def _read_status(params: Params) -> bool:
    return params.boolean("hash")


def _status(context: Context, tx: Tx, caller: Open, with_hash: bool) -> Answer:
    facts = context.facts
    return Answer(
        {
            "running": True,
            "pid": facts.pid,
            "version": facts.version,
            "protocol": facts.protocol,
            "host": context.host.label,
            "home": printable(facts.home),
            "socket": printable(facts.socket),
            "uptime_s": context.uptime_ms // 1000,
            "commit_seq": tx.commit_seq,
            "index_pending": search.progress(tx).pending,
            "state_hash": inspection.state_hash(tx) if with_hash else None,
        }
    )


def _read_nothing(params: Params) -> None:
    return None


def _stop(context: Context, tx: Tx, caller: Open, request: None) -> Answer:
    return Answer({"stopping": True, "pid": context.facts.pid}, (Stop(),))


METHODS: Final = (
    open_method(
        "daemon.status",
        "The running daemon: process, version, places; with `hash` a digest of the whole state.",
        _read_status,
        _status,
        across_versions=True,
    ),
    open_method(
        "daemon.stop",
        "Finish what was accepted, close the store, end.",
        _read_nothing,
        _stop,
        across_versions=True,
    ),
)
"""What this module adds to the table of methods."""
