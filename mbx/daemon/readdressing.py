"""What the owner calls a paired host and where it is dialled: a newer `peer` record changes both.

Everything else in the record is the pin (the key, the certificate, the owner, the pairing): what
two people have compared. A record with another pin is another pairing.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from mbx.core import names
from mbx.core.canonical import CanonicalError, parse
from mbx.core.errors import MbxError
from mbx.core.limits import NAME_MAX_CHARS, RECORD_MAX_BYTES
from mbx.core.peer import Peer, Pin, peer_payload, read_peer
from mbx.core.record import Record, RecordError
from mbx.core.streams import COPIED
from mbx.daemon import unpairing
from mbx.daemon.context import Context, Result
from mbx.daemon.drafting import Draft, envelope, owner_id
from mbx.daemon.effects import Effect, Paired
from mbx.daemon.peerlabels import standing
from mbx.store import audit, outbox, owners, peers
from mbx.store.database import Tx
from mbx.store.peers import PeerRow

CHANGE: Final = "peer-change"
"""The act, as `owner.draft` and the audit log call it, that changes label and addresses."""

_GOES_ON: Final = (
    "two copies of {label} were met: its link goes on by this, with whichever fits; see that one of"
    " them is stopped for good"
)

PEER: Final = "peer"
"""The kind of the record."""


def draft(
    context: Context, tx: Tx, label: str, addresses: Sequence[str], new_label: str | None
) -> Draft:
    """Another label, other addresses (none given: those of now) for the host called `label`.

    `addresses` are endpoints in their one spelling. The same again is signed where the link waits
    for that (two copies of the host were met). Raises MbxError not-paired, name-taken, usage when
    nothing would change.
    """
    owner, peer = owner_id(tx), standing(tx, label)
    wanted = Peer(
        peers.last_version(tx, peer.key_id) + 1,
        pin_of(tx, peer),
        label if new_label is None else new_label,
        tuple(dict.fromkeys(addresses)) or peer.addresses,
    )
    check_label(context, tx, wanted.label, peer.key_id)
    waits = outbox.stream(tx, peer.no).stopped == COPIED
    if (wanted.label, wanted.addresses) == (peer.label, peer.addresses) and not waits:
        raise MbxError(
            "usage",
            "that is how it is called and reached already: give other addresses, a label, or both",
            "mbx peers addr --help",
        )
    content = peer_payload(wanted, envelope(context, owner))
    read_peer(content)
    lines = (
        f"{label} is called {wanted.label} from now on"
        if wanted.label != label
        else f"{label} keeps its label",
        f"it is dialled at {_listed(wanted.addresses)}; until now at {_listed(peer.addresses)}",
        *((_GOES_ON.format(label=label),) if waits else ()),
    )
    return Draft(PEER, content, wanted.label, lines)


def change(
    context: Context, tx: Tx, record: Record, wanted: Peer, peer: PeerRow
) -> tuple[Result, tuple[Effect, ...]]:
    """Let the pairing that stands have another label and other addresses.

    Raises MbxError and changes nothing: `conflict` for another pin, or when something was signed
    about this host since the draft; `name-taken`.
    """
    if wanted.pin != pin_of(tx, peer):
        raise MbxError(
            "conflict",
            f"the record tells of another pairing with {peer.label}",
            "a changed key or certificate needs a new pairing: mbx pair",
        )
    unpairing.refuse_stale(tx, peer, wanted.version)
    check_label(context, tx, wanted.label, peer.key_id)
    peers.change(
        tx,
        peer.no,
        label=wanted.label,
        addresses=wanted.addresses,
        record_id=record.id,
        version=wanted.version,
    )
    outbox.release(tx, peer.no)
    audit.append(
        tx,
        at_ms=context.moment.now_ms,
        act=CHANGE,
        identity=None,
        peer=wanted.label,
        key_id=peer.key_id,
        version=wanted.version,
        record=record.id,
    )
    told: Result = {
        "act": CHANGE,
        "peer": wanted.label,
        "host": peer.key_id,
        "before": {"peer": peer.label, "addresses": list(peer.addresses)},
        "after": {"peer": wanted.label, "addresses": list(wanted.addresses)},
    }
    return told, (Paired(),)


def check_label(context: Context, tx: Tx, label: str, key_id: str) -> None:
    """Refuse what cannot be the label of the host with this key id here.

    Raises MbxError name-invalid, or name-taken where another host's label is the same to the eye.
    """
    names.check_host_label(label)
    taken = labels_but(context, tx, key_id)
    for other in taken:
        if names.skeleton(other) == names.skeleton(label):
            whose = "this host" if other == context.host.label else "a paired host"
            same = other if other == label else f"{other}, which looks like {label}"
            free = free_label(label, taken)
            raise MbxError(
                "name-taken",
                f"{whose} is called {same}",
                f"choose another label, such as {free}",
                suggestions=[free],
            )


def labels_but(context: Context, tx: Tx, key_id: str) -> list[str]:
    """The labels of this host and of the paired ones, without that of the host with this key id."""
    others = [row.label for row in peers.present(tx) if row.key_id != key_id]
    return [context.host.label, *others]


def free_label(label: str, taken: Sequence[str]) -> str:
    """The label, or the first one with a number behind it that looks like none of these."""
    looks = {names.skeleton(other) for other in taken}
    found, number = label, 1
    while names.skeleton(found) in looks:
        number += 1
        end = f"-{number}"
        found = label[: NAME_MAX_CHARS - len(end)].rstrip("-") + end
    return found


def pin_of(tx: Tx, peer: PeerRow) -> Pin:
    """What the owner signed of a pairing. Raises MbxError store-damaged when that is not there."""
    kept = owners.find(tx, peer.record_id)
    try:
        told = parse(kept.payload.encode(), RECORD_MAX_BYTES) if kept is not None else None
        if isinstance(told, Mapping):
            return read_peer(told).pin
    except (CanonicalError, UnicodeEncodeError, RecordError):
        pass
    raise MbxError(
        "store-damaged",
        f"the owner's record about {peer.label} is missing or damaged",
        f"mbx peers remove {peer.label}, then pair again",
    )


def _listed(addresses: Sequence[str]) -> str:
    return ", ".join(addresses) or "no address"
