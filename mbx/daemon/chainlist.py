"""The owner's chains as listings, `owner show` and doctor show them."""

from mbx.core.authority import Book
from mbx.core.chains import Chain, Damage
from mbx.core.limits import LIST_MAX_ROWS
from mbx.core.policy import Policy, Subject
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
