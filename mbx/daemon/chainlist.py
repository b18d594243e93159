"""The owner's chains as listings, `owner show` and doctor show them."""

from mbx.core.authority import Book, Clock
from mbx.core.chains import Chain, Damage
from mbx.core.limits import LIST_MAX_ROWS
from mbx.core.policy import Policy, Source, Subject
from mbx.daemon.context import Context, Result
from mbx.store import identities, peers
from mbx.store.database import Tx


def host_of(context: Context, book: Book, chain: str) -> str:
    """The label of the host on which the records of a chain are drafted."""
    return book.label_of(chain) or context.host.label


def called(context: Context, tx: Tx, policy: Policy, to: Subject) -> str:
    """Whom a policy concerns, by the name of now: ``name``, or ``name@host`` of another host."""
    home = to.host or policy.chain
    if home == context.host.key_id:
        row = identities.by_identity(tx, to.identity)
        return row.name if row else to.name
    peer = peers.by_key(tx, home)
    there = peers.identity_of(tx, peer.no, to.identity) if peer else None
    return peer.address(there.name if there else to.name) if peer else to.words


def sender(context: Context, tx: Tx, source: Source) -> str:
    """Whose mail a policy is about, by the names of now: another may have the name of then."""
    if source.kind == "local":
        return source.words
    if source.host == context.host.key_id:
        label, row = context.host.label, identities.by_identity(tx, source.identity)
    else:
        peer = peers.by_key(tx, source.host)
        label = peer.label if peer else source.label
        row = peers.identity_of(tx, peer.no, source.identity) if peer else None
    return source._replace(label=label, name=row.name if row else source.name).words


def standing(
    context: Context,
    tx: Tx,
    book: Book,
    policy: Policy,
    clock: Clock,
    recipient: str | None = None,
) -> str:
    """Why a policy grants nothing now; '' if it does. As `Book.standing`, with who obeys it.

    The chain of this host counts nowhere else once a pairing has ended, for good: what was signed
    before is not told to a host that is paired again.
    """
    fault = book.standing(policy, clock, recipient)
    if fault:
        return fault
    wanted = [to for to in policy.to if recipient in (None, to.identity)]
    disobeyed = disobeying(context, tx, policy)
    if not wanted or not set(wanted) <= disobeyed.keys():
        return ""
    return disobeyed[wanted[0]]


def in_effect(
    context: Context, tx: Tx, book: Book, clock: Clock, recipient: str | None = None
) -> list[Policy]:
    """The policies that grant something now (to this recipient), in the order of the book."""
    return [
        one for one in book.policies() if not standing(context, tx, book, one, clock, recipient)
    ]


def disobeying(context: Context, tx: Tx, policy: Policy) -> dict[Subject, str]:
    """Those among the recipients of a policy of this host whose own host follows it no more; why.

    Who follows what another host has signed, that one knows.
    """
    own = context.host.key_id
    if policy.chain != own:
        return {}
    found = {}
    for to in policy.to:
        if to.host in ("", own):
            continue
        peer = peers.by_key(tx, to.host)
        if peer is None:
            found[to] = f"ended with the pairing: {to.words} obeys it only until its host has heard"
        elif peer.paired_ms > policy.iat_ms:
            found[to] = f"ended with a pairing: {peer.label} was paired anew since it was signed"
    return found


def damage(context: Context, book: Book) -> list[Result]:
    """The places of all chains that cannot be believed, newest first; as many as are listed."""
    return [_damage(context, book, one) for one in book.damaged[:LIST_MAX_ROWS]]


def _damage(context: Context, book: Book, one: Damage) -> Result:
    return {
        "host": host_of(context, book, one.chain),
        "version": one.version,
        "reason": one.reason,
    }


def followed(book: Book) -> list[Result]:
    """The chains of other hosts of the same owner.

    `ended_version`: up to there nothing counts any more, since a pairing with the host has ended;
    `void_until`: nor up to there, since the store here was put back (None: it was not).
    """
    return [_followed(chain) for chain in book.followed.values()]


def _followed(chain: Chain) -> Result:
    return {
        "host": chain.label,
        "key_id": chain.host,
        "version": chain.version,
        "damage": sum(isinstance(one, Damage) for one in chain.entries),
        "ended_version": chain.ended,
        "void_until": chain.void,
    }
