"""What our owner signed on another host: believed by the owner's signature alone, and followed.

A paired host hands on what was drafted on it. It can hold that back, and nothing else: a record of
its own owner's, of a key that it made, of a third host or for somebody else is refused. What the
owner signed is kept even where it does not fit the chain so far, since it may take something back;
`mbx.core.chains` finds what is missing or stands there twice, and what is older counts no more.
"""

from typing import Final

from mbx.core.chains import ends_told, read_link
from mbx.core.errors import MbxError
from mbx.core.names import OWNER
from mbx.core.peer import Nack
from mbx.core.record import Record
from mbx.daemon import applying, hostmail, reaching
from mbx.daemon.applying import Applied
from mbx.daemon.context import Context
from mbx.daemon.effects import Effect
from mbx.store import audit, followed, identities, owners
from mbx.store.database import Tx
from mbx.store.owners import Followed
from mbx.store.peers import PeerRow

KINDS: Final = frozenset({"policy", "revoke", "rotate"})
"""Kinds of records of the owner's that reach every host of the same owner."""


class Foreign(Exception):
    """A record that is not our owner's, or not this host's to hand on; `code` as in a nack."""

    def __init__(self, code: str = "wrong-issuer") -> None:
        super().__init__(code)
        self.code = code


def take(context: Context, tx: Tx, peer: PeerRow, record: Record) -> tuple[Effect, ...]:
    """Follow a record of our owner's that `peer` sent; what the commit lets out.

    Raises Foreign, RecordError or MbxError for one that will never be taken.
    """
    if owners.find(tx, record.id) is not None:
        return ()  # it came by another way, or again
    if not reaching.is_same_owner(tx, peer):
        raise Foreign
    if record.kind == "rotate":
        return _rotation(context, tx, record, peer)
    own = context.host.key_id
    entry, _ = read_link(record, context.authority.keys(tx, peer.key_id), peer.key_id, own)
    known = followed.find(tx, peer.key_id)
    if known is not None and entry.version < known.first_version:
        raise Foreign("conflict")  # from before we were told of anything: it can only bring back
    told = applying.summary(entry)
    applying.audit_act(
        context, tx, record.kind, record, host=peer.label, version=entry.version, **told
    )
    followed.extend(tx, peer.key_id, entry.version)
    place = Followed(peer.key_id, entry.version)
    applied = Applied({"host": peer.label, **told}, followed=place)
    return tuple(applying.kept(context, tx, record, applied).effects)


def _rotation(context: Context, tx: Tx, record: Record, peer: PeerRow) -> tuple[Effect, ...]:
    """The owner changed the key on another host: the former one signed that, so it holds here too.

    Whoever hands it on vouches for nothing, so it need not be the host where it was drafted. Our
    own chain ends for the former key where the record says, which is as far as that host knew it.
    """
    own, known = context.host.key_id, owners.keys(tx)[0]
    try:
        key, payload = applying.introduced(context, record, former=known)
    except MbxError as error:
        raise Foreign from error
    if payload["previous"] != known.key_id or payload.get("chain", own) == own:
        raise Foreign
    if key.key_id in [one.key_id for one in owners.keys(tx)]:
        raise Foreign("conflict")
    until_version, _ = ends_told(payload, own).get(own, (0, None))
    owners.add_key(tx, key, context.moment.now_ms, until_version)
    applying.audit_act(
        context, tx, "owner", record, owner=key.key_id, before=known.key_id, host=peer.label
    )
    told = {"before": {"owner": known.key_id}, "after": {"owner": key.key_id}}
    answer = applying.kept(context, tx, record, Applied({"host": peer.label, **told}))
    # Those that it is for may hear of us before they hear of the host that it was drafted on.
    has_it = (peer.key_id, str(payload["chain"]))
    return (
        *answer.effects,
        *reaching.spread(context, tx, record, payload["aud"], has_it),
    )


def refused(context: Context, tx: Tx, peer: PeerRow, nack: Nack) -> tuple[Effect, ...] | None:
    """A host of the same owner will not take a record of the owner's; None: it is about mail.

    What the owner signed does not hold there, so the owner is told: once, however often it is said,
    and by nobody who was never sent it.
    """
    row = owners.find(tx, nack.message)
    owner = identities.by_name(tx, OWNER)
    if row is None or row.kind not in KINDS or owner is None:
        return None
    subject = f"{peer.label} refuses a record that you signed ({row.kind})"
    if not reaching.is_same_owner(tx, peer) or hostmail.has_said(tx, subject, row.record_id):
        return ()
    audit.append(
        tx,
        at_ms=context.moment.now_ms,
        act="record-refused",
        identity=None,
        peer=peer.label,
        key_id=peer.key_id,
        kind=row.kind,
        refused=row.record_id,
        code=nack.code,
    )
    body = "\n".join(
        (
            f"Record {row.record_id} ({row.kind}) does not hold on {peer.label}: code {nack.code}.",
            *(_OLDER if nack.code == "conflict" else _ANOTHER_KEY),
        )
    )
    return hostmail.write(context, tx, owner, subject, body)


_ANOTHER_KEY: Final = (
    "That host may have another owner's key by now: mbx owner show, there and here.",
    "If it has: mbx peers remove, then pair again.",
)
_OLDER: Final = (
    "That host knew later records of this one: the store here may be an older copy.",
    "What shall hold there is to be signed there.",
)
