"""`peers.list`, `peers.show`, `peers.ping`: the paired hosts, as of now."""

from typing import Final, NamedTuple

from mbx.core.limits import INTEGER_MAX
from mbx.daemon import peerlabels, peerlist
from mbx.daemon.context import Answer, Context
from mbx.daemon.effects import Effect, Ping
from mbx.daemon.gate import Open
from mbx.daemon.methods.table import open_method
from mbx.daemon.params import Params
from mbx.store import hosts, peers
from mbx.store.database import Tx


def _read_list(params: Params) -> bool:
    return params.boolean("all")


def _list(context: Context, tx: Tx, caller: Open, every: bool) -> Answer:
    rows = peers.everything(tx) if every else peerlabels.listed(tx)
    return Answer(
        {
            "host": context.host.key_id,
            "label": context.host.label,
            "listen": list(hosts.listen(tx)),
            **context.network().told(),
            "peers": [peerlist.shown(context, tx, row) for row in rows],
        }
    )


def _read_show(params: Params) -> str:
    return params.string("name")


def _show(context: Context, tx: Tx, caller: Open, label: str) -> Answer:
    """Also one that has ended, if no other is called so. Raises MbxError not-paired."""
    peer = peers.called(tx, label)
    if peer is None:
        raise peerlabels.unknown(tx, label)
    return Answer(peerlist.in_full(context, tx, peer))


class PingRequest(NamedTuple):
    """Which host; `asked_ms`: what an earlier answer named, to look whether that was answered."""

    label: str
    asked_ms: int | None


def _read_ping(params: Params) -> PingRequest:
    label, asked_ms = params.string("name"), params.integer("asked_ms", -1, -1, INTEGER_MAX)
    return PingRequest(label, None if asked_ms < 0 else asked_ms)


def _ping(context: Context, tx: Tx, caller: Open, request: PingRequest) -> Answer:
    """Ask, or look whether an earlier question was answered: nobody waits inside the daemon.

    Where no link stands, asking tries for one at once, if it is for this host to dial.
    `asked_ms` is on the daemon's monotonic clock. Raises MbxError not-paired.
    """
    peer = peerlabels.standing(tx, request.label)
    now_ms = context.facts.started_ms + context.uptime_ms
    link = context.link(peer.no)
    stands = link is not None and link.stands
    asked_ms = now_ms if request.asked_ms is None else request.asked_ms
    last = link.round_trip if link is not None and stands else None
    is_answered = last is not None and request.asked_ms is not None and last.answered_ms >= asked_ms
    is_asked = link is not None and request.asked_ms is None
    effects: tuple[Effect, ...] = (Ping(peer.no),) if is_asked else ()
    told = peerlist.shown(context, tx, peer)
    return Answer(
        {
            "label": peer.label,
            "up": stands,
            "asked_ms": asked_ms,
            "round_trip_ms": last.took_ms if last is not None and is_answered else None,
            "reason": told["reason"],
            "last_seen": told["last_seen"],
            "dials": link is not None and (link.is_trying or link.due_ms is not None),
            "failures": link.failures if link is not None else 0,
            "next_try": told["link"]["next_try"] if told["link"] else None,
            "next": told["next"],
        },
        effects,
    )


METHODS: Final = (
    open_method(
        "peers.list",
        "Paired hosts, how their links are and what waits for them; with `all` ended ones too.",
        _read_list,
        _list,
    ),
    open_method(
        "peers.show",
        "One paired host: all that is known of it and of its streams.",
        _read_show,
        _show,
    ),
    open_method(
        "peers.ping",
        "Ask a paired host for a sign of life, and without a link try for one now; with `asked_ms`"
        " of the answer, whether it came.",
        _read_ping,
        _ping,
        brief=True,
    ),
)
"""What this module adds to the table of methods."""
