"""`pair.*`: for the owner's terminal alone. What they ask for happens in `mbx.daemon.pairings`.

`pair.decline` is open to whoever knows the run, which only the command of that terminal was told: a
command whose terminal has been closed sits at none any more, and must still be able to say no.

A code comes in and goes out over the local socket only; no method that knows one keeps its answer.
"""

from typing import Final, NamedTuple

from mbx.core.endpoints import Endpoint, parse_endpoint
from mbx.core.errors import MbxError
from mbx.core.limits import INVITATION_TTL_MS, PEER_ADDRESSES_MAX
from mbx.core.pairing_code import PairingCode, parse_code
from mbx.core.record import Record
from mbx.daemon import applying, drafting, peering
from mbx.daemon.context import Answer, Context
from mbx.daemon.gate import Open, OwnerTerminal
from mbx.daemon.methods.owner import RECORD_FIELDS, read_record
from mbx.daemon.methods.table import open_method, owner_method
from mbx.daemon.params import Params
from mbx.daemon.sequels import Decline, Enclose, Hold, Invite, Join, Look
from mbx.store import hosts, owners, peers
from mbx.store.database import Tx

_TTL_MIN_MS: Final = 1_000
_SEEN_MAX: Final = 2**31


class _Wanted(NamedTuple):
    listen: tuple[Endpoint, ...]
    ttl_ms: int


def _read_invite(params: Params) -> _Wanted:
    listen = tuple(
        parse_endpoint(text, listening=True)
        for text in params.strings("listen", PEER_ADDRESSES_MAX)
    )
    ttl_ms = params.integer("ttl_ms", INVITATION_TTL_MS, _TTL_MIN_MS, INVITATION_TTL_MS)
    return _Wanted(listen, ttl_ms)


def _invite(context: Context, tx: Tx, caller: OwnerTerminal, request: _Wanted) -> Answer:
    drafting.owner_id(tx)
    remembered = tuple(parse_endpoint(text, listening=True) for text in hosts.listen(tx))
    owner = owners.keys(tx)[0].public
    is_known = bool(peers.everything(tx))
    invite = Invite(owner, request.listen, remembered, request.ttl_ms, is_known)
    return Answer({}, sequel=invite)


class _Visit(NamedTuple):
    endpoint: Endpoint
    code: PairingCode


def _read_join(params: Params) -> _Visit:
    return _Visit(parse_endpoint(params.string("address")), parse_code(params.string("code")))


def _join(context: Context, tx: Tx, caller: OwnerTerminal, request: _Visit) -> Answer:
    known = owners.keys(tx)
    owner = known[0].public if known else None
    is_known = bool(peers.everything(tx))
    return Answer({}, sequel=Join(owner, request.endpoint, request.code, is_known))


class _Seen(NamedTuple):
    run: str
    seen: int


def _read_look(params: Params) -> _Seen:
    return _Seen(params.string("run"), params.integer("seen", 0, 0, _SEEN_MAX))


def _look(context: Context, tx: Tx, caller: OwnerTerminal, request: _Seen) -> Answer:
    return Answer({}, sequel=Look(request.run, request.seen))


def _read_run(params: Params) -> str:
    return params.string("run")


def _hold(context: Context, tx: Tx, caller: OwnerTerminal, run: str) -> Answer:
    return Answer({}, sequel=Hold(run))


def _decline(context: Context, tx: Tx, caller: Open, run: str) -> Answer:
    return Answer({}, sequel=Decline(run))


class _Enclosed(NamedTuple):
    pairing: str
    records: tuple[Record, ...]


def _read_enclose(params: Params) -> _Enclosed:
    pairing = params.string("pairing")
    enrolment = read_record(params.mapping("enrolment", RECORD_FIELDS))
    return _Enclosed(pairing, (enrolment, read_record(params.mapping("peer", RECORD_FIELDS))))


def _enclose(context: Context, tx: Tx, caller: OwnerTerminal, request: _Enclosed) -> Answer:
    peering.check_enclosed(context, tx, request.pairing, request.records)
    return Answer({}, sequel=Enclose(request.pairing, request.records))


def _read_adopt(params: Params) -> str:
    return params.string("pairing")


def _adopt(context: Context, tx: Tx, caller: OwnerTerminal, pairing: str) -> Answer:
    """First the owner, then what it signed, in one transaction: both or nothing."""
    adopted = peering.adopted(context, pairing)
    if owners.keys(tx) and owners.find(tx, adopted.enrolment.id) is None:
        raise MbxError(
            "conflict",
            "this host has got an owner meanwhile: it adopts nobody",
            peering.PAIR_AGAIN,
        )
    enrolled = applying.enroll(context, tx, adopted.enrolment)
    paired = applying.apply(context, tx, adopted.peering)
    result = {**paired.result, "owner": enrolled.result["after"]["owner"]}
    return Answer(result, (*enrolled.effects, *paired.effects))


METHODS: Final = (
    owner_method(
        "pair.invite",
        "Open an invitation, and listen; it answers with the code, once.",
        _read_invite,
        _invite,
        writes=False,
    ),
    owner_method("pair.join", "Go to a host that invites.", _read_join, _join, writes=False),
    owner_method(
        "pair.state",
        "How a pairing stands, as soon as that is something new (or after 20 seconds).",
        _read_look,
        _look,
        writes=False,
        brief=True,
    ),
    owner_method(
        "pair.hold",
        "Say no to a pairing, or leave it, by ending this connection.",
        _read_run,
        _hold,
        writes=False,
    ),
    open_method(
        "pair.decline", "Say no to a pairing, or leave it.", _read_run, _decline, writes=False
    ),
    owner_method(
        "pair.enclose",
        "Records of the owner's for a host that adopts it: sent along when the owner agrees.",
        _read_enclose,
        _enclose,
        writes=False,
    ),
    owner_method(
        "pair.adopt",
        "Take the inviter's owner, and pair with the inviter, by the records that it sent.",
        _read_adopt,
        _adopt,
        writes=True,
        keyed=False,
    ),
)
"""What this module adds to the table of methods."""
