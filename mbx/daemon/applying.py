"""Applying what the owner signed: verified with the owner's key, acting once.

The act, its audit row and the host's signed acceptance are one transaction. A record that cannot
act now changes nothing, and may be tried again as long as it is fresh.
"""

import json
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from mbx.core import chains, directive, keys
from mbx.core.authority import Book
from mbx.core.canonical import JsonValue
from mbx.core.chains import OwnerKey
from mbx.core.directive import Forwarding
from mbx.core.errors import MbxError
from mbx.core.limits import CLOCK_BACK_MAX_MS, DRAFT_TTL_MS
from mbx.core.message import OWNER_MAIL
from mbx.core.peer import read_peer
from mbx.core.policy import Policy, Revocation, Source, Subject
from mbx.core.record import Record, RecordError, Sealed, verify
from mbx.daemon import (
    chainlist,
    codec,
    displacing,
    forwarding,
    letters,
    peering,
    reaching,
    readdressing,
    retiring,
    unpairing,
)
from mbx.daemon.authority import DRAFT_AGAIN
from mbx.daemon.context import Answer, Context, Result
from mbx.daemon.drafting import FORMER_KEY, INIT, check_names
from mbx.daemon.effects import Authorised, Effect
from mbx.daemon.times import rfc3339
from mbx.store import audit, owners, peers
from mbx.store.database import Tx
from mbx.store.owners import Followed
from mbx.store.peers import PeerRow


class Applied(NamedTuple):
    """What a record did: its place in the chain (if it has one), what it changed, its effects.

    `followed`: its place in the chain of another host.
    """

    result: Result
    version: int | None = None
    effects: tuple[Effect, ...] = ()
    followed: Followed | None = None


Act = Callable[[Context, Tx, Record, Mapping[str, JsonValue]], Applied]
"""What one kind of record does, from the record and its verified payload."""


def apply(context: Context, tx: Tx, record: Record) -> Answer:
    """Do what the record says, or answer as before. Raises MbxError; then nothing has changed."""
    earlier = owners.find(tx, _id(record))
    if earlier is not None and earlier.payload == record.payload:
        return Answer({**json.loads(earlier.answer), "duplicate": True})
    act = _ACTS.get(record.kind)
    if act is None:
        raise MbxError("usage", "that is no kind of record that the owner signs")
    payload = {} if act is _rotate else _verified(context, tx, record)
    applied = act(context, tx, record, payload)
    return kept(context, tx, record, applied)


def enroll(context: Context, tx: Tx, record: Record) -> Answer:
    """The first key of the owner; the gate has seen that the caller is at the owner's terminal."""
    if owners.keys(tx) and owners.find(tx, _id(record)) is None:
        raise MbxError(
            "conflict", "this host has an owner already", "mbx owner rotate changes the key"
        )
    if owners.keys(tx):
        return apply(context, tx, record)
    key, payload = introduced(context, record, former=None)
    if payload["previous"] is not None:
        raise MbxError("conflict", "the record names a key before it; this host knows none")
    owners.add_key(tx, key, context.moment.now_ms, 0)
    audit_act(context, tx, "owner", record, owner=key.key_id)
    applied = Applied({"before": None, "after": {"owner": key.key_id}})
    return kept(context, tx, record, applied)


# -- what each kind does --------------------------------------------------------------------------


def _rotate(context: Context, tx: Tx, record: Record, payload: Mapping[str, JsonValue]) -> Applied:
    """`payload` is not verified yet: the record brings one of the two keys that signed it."""
    if not owners.keys(tx):
        raise MbxError("owner-required", "this host has no owner yet", INIT)
    known = owners.keys(tx)[0]
    key, content = introduced(context, record, former=known)
    _check_age(context, tx, content)
    book = context.authority.book(tx)
    version = book.version
    if key.key_id in [one.key_id for one in owners.keys(tx)]:
        raise MbxError("conflict", FORMER_KEY)
    made_for = (content["previous"], content["until_version"], content["head"])
    if made_for != (known.key_id, version, book.head):
        raise MbxError("conflict", "the draft was made for another state of the chain", DRAFT_AGAIN)
    reaching.refuse_others(context, tx, content)
    if content.get("chain", context.host.key_id) != context.host.key_id:
        raise MbxError("owner-required", "the record is not to be believed: of another host")
    owners.add_key(tx, key, context.moment.now_ms, version)
    audit_act(context, tx, "owner", record, owner=key.key_id, before=known.key_id)
    told: Result = {"before": {"owner": known.key_id}, "after": {"owner": key.key_id}}
    return Applied(told, effects=reaching.spread(context, tx, record, content["aud"]))


def introduced(
    context: Context, record: Record, former: OwnerKey | None
) -> tuple[OwnerKey, Mapping[str, JsonValue]]:
    """The key that a record of kind rotate brings, which must have signed it too.

    Its own signature proves possession and nothing else: trust comes from the owner's terminal, or
    from the signature of the key before it. Raises MbxError owner-required.
    """
    try:
        claimed = json.loads(record.payload) if len(record.payload) < _ROTATE_MAX_CHARS else {}
        public = bytes.fromhex(claimed["public_key"])
        key = OwnerKey(keys.key_id("owner", public), public)
        signers = {key.key_id: public} | ({former.key_id: former.public} if former else {})
        payload = verify(record, kind="rotate", signers=signers, audience=context.host.key_id)
        chains.ends_told(payload, context.host.key_id)
    except (RecordError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise MbxError("owner-required", f"the record is not to be believed: {error}") from error
    told = (payload.get("owner"), payload.get("public_key"))
    if told != (key.key_id, public.hex()):
        raise MbxError("owner-required", "the record is not to be believed: fields are wrong")
    if not keys.is_strong_public_key(public):
        raise MbxError("owner-required", "the record is not to be believed: a weak key")
    return key, payload


_ROTATE_MAX_CHARS: Final = 32_768
"""Some 200 for each host of the owner's."""


def _chained(context: Context, tx: Tx, record: Record, payload: Mapping[str, JsonValue]) -> Applied:
    """A policy or a revocation: the next of the chain, or refused. No version is used twice."""
    book = context.authority.book(tx)
    version, previous = book.next
    if payload.get("version") != version:
        raise MbxError(
            "conflict",
            f"the chain goes on with version {version}; the record is for {payload.get('version')}",
            DRAFT_AGAIN,
        )
    if payload.get("previous") != previous:
        raise MbxError("conflict", "the record follows another record than ours", DRAFT_AGAIN)
    before = _effective(context, tx)
    own = context.host.key_id
    try:
        entry, _ = chains.read_link(record, context.authority.keys(tx), own, own)
    except RecordError as error:
        raise MbxError("owner-required", f"the record is not to be believed: {error}") from error
    if isinstance(entry, Policy):  # a revocation holds here, whoever else is to have it
        reaching.refuse_others(context, tx, payload)
    _refuse_void(book, entry)
    _refuse_misnamed(context, tx, entry)
    told = summary(entry)
    audit_act(context, tx, record.kind, record, version=version, **told)
    effects = reaching.spread(context, tx, record, payload["aud"])
    return Applied({"version": version, "before": {"policies": before}, **told}, version, effects)


def _refuse_void(book: Book, entry: chains.Entry) -> None:
    """What was signed before all was revoked is void, also as the newest record: tell it at once.

    A clock that went back by seconds leads here.
    """
    for revoked in book.revocations:
        if isinstance(entry, Policy) and revoked.voids(entry):
            raise MbxError(
                "closed",
                f"record {revoked.id} revoked all that was signed up to {rfc3339(revoked.iat_ms)};"
                " this one was not signed later",
                DRAFT_AGAIN,
            )


def _refuse_misnamed(context: Context, tx: Tx, entry: chains.Entry) -> None:
    """The owner read the names: ids of others beside them were not what was agreed to.

    A request that was changed on its way to the key leads here, and a rename meanwhile.
    """
    if not isinstance(entry, Policy):
        return
    named: list[Subject | Source] = [*entry.to, *entry.sources]
    for one in named:
        peer = _host_named(context, tx, one)
        if isinstance(one, Subject) and peer is not None and not reaching.is_same_owner(tx, peer):
            raise MbxError("conflict", f"{peer.label} has another owner", DRAFT_AGAIN)
        if one.identity:
            check_names(tx, [(one.identity, one.name)], peer)


def _host_named(context: Context, tx: Tx, one: Subject | Source) -> PeerRow | None:
    """The paired host that a record names, None for ours. Raises MbxError conflict."""
    if one.host in ("", context.host.key_id):
        if one.host and one.label != context.host.label:
            raise MbxError("conflict", f"this host is not called {one.label}", DRAFT_AGAIN)
        return None
    peer = peers.by_key(tx, one.host)
    if peer is None or peer.label != one.label:
        now = f"is called {peer.label}" if peer else "is not paired with this one"
        words = f"the record names the host {one.label}; that host {now}"
        raise MbxError("conflict", words, DRAFT_AGAIN)
    return peer


def summary(entry: chains.Entry) -> dict[str, JsonValue]:
    """What a record of a chain says, for the audit log and for who brought it."""
    if isinstance(entry, Policy):
        return {
            "to": [subject.words for subject in entry.to],
            "level": entry.level,
            "classes": list(entry.classes),
            "from": [source.words for source in entry.sources],
            "until": rfc3339(entry.exp_ms),
        }
    if isinstance(entry, Revocation):
        return {"revokes": list(entry.records) if entry.records is not None else "all"}
    return {}


def _effective(context: Context, tx: Tx) -> int:
    """How many policies grant something now."""
    book = context.authority.book(tx)
    clock = context.authority.clock(tx, context.moment.now_ms)
    return len(chainlist.in_effect(context, tx, book, clock))


def _takeover(
    context: Context, tx: Tx, record: Record, payload: Mapping[str, JsonValue]
) -> Applied:
    result, granted = displacing.take_over(context, tx, record, payload)
    return Applied(result, effects=(granted,))


def _directive(
    context: Context, tx: Tx, record: Record, payload: Mapping[str, JsonValue]
) -> Applied:
    """Housekeeping by the owner's word; `act` says which."""
    act = payload.get("act")
    if act == _CLOCK:
        return _set_clock(context, tx, record, payload)
    try:
        wanted = directive.read(payload)
    except RecordError as error:
        raise MbxError("owner-required", f"the record is not to be believed: {error}") from error
    if isinstance(wanted, Forwarding):
        result, effects = forwarding.forward(context, tx, record, wanted)
    else:
        result, effects = retiring.retire(context, tx, record, wanted)
    return Applied(result, effects=effects)


def _set_clock(
    context: Context, tx: Tx, record: Record, payload: Mapping[str, JsonValue]
) -> Applied:
    no, head = audit.head(tx)
    high_ms, now_ms = owners.clock_high_ms(tx), context.moment.now_ms
    made_for = (payload.get("high"), payload.get("audit_no"), payload.get("audit_hash"))
    if payload.keys() != _CLOCK_FIELDS or made_for != (high_ms, no, head.hex()):
        raise MbxError("conflict", "something has happened since the draft was made", DRAFT_AGAIN)
    owners.set_clock(tx, now_ms)
    audit_act(context, tx, _CLOCK, record, before=high_ms, after=now_ms)
    return Applied({"before": {"at": rfc3339(high_ms)}, "after": {"at": rfc3339(now_ms)}})


_CLOCK: Final = "clock"
_CLOCK_FIELDS: Final = frozenset("v type iat nonce aud owner act high audit_no audit_hash".split())


def _letter(context: Context, tx: Tx, record: Record, payload: Mapping[str, JsonValue]) -> Applied:
    told, effects = letters.deliver(context, tx, record, payload)
    return Applied(told, effects=effects)


def _peer(context: Context, tx: Tx, record: Record, payload: Mapping[str, JsonValue]) -> Applied:
    """A pairing; or another label or other addresses for a host whose pairing stands."""
    try:
        wanted = read_peer(payload)
    except RecordError as error:
        raise MbxError("owner-required", f"the record is not to be believed: {error}") from error
    peer = peers.by_key(tx, wanted.pin.host)
    if peer is None:
        result, effects = peering.pair(context, tx, record, wanted)
    else:
        result, effects = readdressing.change(context, tx, record, wanted, peer)
    return Applied(result, effects=effects)


def _unpair(context: Context, tx: Tx, record: Record, payload: Mapping[str, JsonValue]) -> Applied:
    result, effects = unpairing.end(context, tx, record, payload)
    return Applied(result, effects=effects)


_ACTS: Final[Mapping[str, Act]] = {
    OWNER_MAIL: _letter,
    "rotate": _rotate,
    "directive": _directive,
    "policy": _chained,
    "revoke": _chained,
    "takeover": _takeover,
    readdressing.PEER: _peer,
    unpairing.UNPAIR: _unpair,
}
"""Kind of record -> what it does. The record is verified and meant for this host."""


# -- believing and keeping ------------------------------------------------------------------------


def _verified(context: Context, tx: Tx, record: Record) -> Mapping[str, JsonValue]:
    """The payload, signed by the owner's key of now, for this host, neither stale nor early."""
    known = owners.keys(tx)
    if not known:
        raise MbxError("owner-required", "this host has no owner yet", INIT)
    owner = known[0]
    signers = {owner.key_id: owner.public}
    try:
        payload = verify(record, kind=record.kind, signers=signers, audience=context.host.key_id)
    except RecordError as error:
        raise MbxError(
            "owner-required", f"the record is not to be believed: {error}", DRAFT_AGAIN
        ) from error
    if payload.get("owner") != owner.key_id:
        raise MbxError("owner-required", "the record names another owner than the one who signed")
    _check_age(context, tx, payload)
    return payload


def _check_age(context: Context, tx: Tx, payload: Mapping[str, JsonValue]) -> None:
    """A clock that was set back revives nothing until the owner says that it is right."""
    now_ms = context.moment.now_ms
    if payload.get("act") == _CLOCK:
        return
    if context.authority.clock(tx, now_ms).is_behind:
        raise MbxError(
            "closed",
            f"the clock is behind: it was {rfc3339(owners.clock_high_ms(tx))} before",
            "set the clock right; if it is right now, mbx owner clock",
        )
    iat_ms, exp_ms = payload["iat"], payload.get("exp")
    assert isinstance(iat_ms, int)
    if isinstance(exp_ms, int) and now_ms >= exp_ms:
        raise MbxError("closed", f"the record expired at {rfc3339(exp_ms)}", DRAFT_AGAIN)
    if iat_ms > now_ms + CLOCK_BACK_MAX_MS:
        raise MbxError("closed", "the draft is of a time that has not come", DRAFT_AGAIN)
    if now_ms - iat_ms >= DRAFT_TTL_MS:
        raise MbxError("closed", "the draft is more than a day old", DRAFT_AGAIN)


def kept(context: Context, tx: Tx, record: Record, applied: Applied) -> Answer:
    """Keep a record that was applied, with the host's signed word on it; what is answered."""
    result: Result = {
        "applied": True,
        "duplicate": False,
        "kind": record.kind,
        "id": record.id,
        **applied.result,
    }
    followed = applied.followed
    version = followed.version if followed is not None else applied.version
    acceptance = _acceptance(context, tx, record, version)
    result["acceptance"] = {"id": acceptance.id, "seq": tx.commit_seq}
    owners.raise_clock(tx, context.moment.now_ms)
    answer = codec.encode(result).decode()
    now_ms = context.moment.now_ms
    owners.add(tx, record, applied.version, now_ms, answer, acceptance, followed)
    head_no, head_hash = audit.head(tx)
    told = Authorised(
        max(applied.version or 0, context.authority.floor),
        head_no,
        head_hash.hex(),
        ((*followed, now_ms),) if followed is not None else (),
    )
    return Answer(result, (told, *applied.effects))


def _acceptance(context: Context, tx: Tx, record: Record, version: int | None) -> Sealed:
    """The host's word that it applied the record: where in its history, after which audit row."""
    no, head = audit.head(tx)
    return context.host.sign(
        "acceptance",
        {
            "v": 1,
            "type": "acceptance",
            "iat": context.moment.now_ms,
            "nonce": context.moment.nonce(f"acceptance {record.id}"),
            "aud": owners.keys(tx)[0].key_id,
            "record": record.id,
            "kind": record.kind,
            "version": version,
            "seq": tx.commit_seq,
            "audit_no": no,
            "audit_hash": head.hex(),
        },
    )


def audit_act(context: Context, tx: Tx, act: str, record: Record, **detail: JsonValue) -> None:
    """Tell the audit log of what a record did."""
    audit.append(
        tx, at_ms=context.moment.now_ms, act=act, identity=None, record=record.id, **detail
    )


def _id(record: Record) -> str:
    try:
        return record.id
    except ValueError as error:
        raise MbxError("usage", "the payload of the record is no text") from error
