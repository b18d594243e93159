"""Addresses to mailboxes: each mailbox once, however many ways it was named."""

from collections.abc import Iterable, Sequence

from mbx.core import names
from mbx.core.errors import MbxError
from mbx.core.limits import RECIPIENTS_MAX
from mbx.core.names import Address
from mbx.daemon.context import Context
from mbx.daemon.posting import Recipient
from mbx.store import identities, leases
from mbx.store.database import Tx


def resolve(
    context: Context, tx: Tx, sender_no: int, addresses: Sequence[Address]
) -> list[Recipient]:
    """The mailboxes that `addresses` reach, in the order of their first mention.

    A role and ``*`` do not reach the sender itself; a copy that came only by ``*`` is quiet. Raises
    MbxError unknown-recipient (with suggestions), closed (a retired one was named) or too-many,
    before anything is stored.
    """
    found: dict[int, Recipient] = {}
    unknown: list[Address] = []
    for address in addresses:
        reached = list(_reached(context, tx, sender_no, address))
        if not reached:
            unknown.append(address)
        for recipient in reached:
            known = found.get(recipient.identity.no)
            if known is None or (known.quiet and not recipient.quiet):
                found[recipient.identity.no] = recipient
    if unknown:
        raise _unknown(context, tx, unknown)
    _refuse_retired(found.values())
    if len(found) > RECIPIENTS_MAX:
        raise MbxError(
            "too-many",
            f"these addresses reach more than {RECIPIENTS_MAX:,} mailboxes (nothing was sent)",
            "send to fewer",
            limit=RECIPIENTS_MAX,
        )
    return list(found.values())


def _reached(context: Context, tx: Tx, sender_no: int, address: Address) -> Iterable[Recipient]:
    if address.host not in (None, context.host.label):
        return []
    if address.kind == "everyone":
        everyone = leases.of_everyone(tx)
        return [Recipient(who, row, True) for who, row in everyone if who.no != sender_no]
    if address.kind == "role":
        same = leases.of_role(tx, address.name)
        return [Recipient(who, row) for who, row in same if who.no != sender_no]
    if address.kind == "lead":
        return []
    named = leases.of_name(tx, "owner" if address.kind == "owner" else address.name)
    return [] if named is None else [Recipient(*named)]


def _refuse_retired(recipients: Iterable[Recipient]) -> None:
    """A role and ``*`` never reach a retired identity, so it was named."""
    retired = [to.identity.name for to in recipients if to.identity.retired_ms is not None]
    if retired:
        raise MbxError(
            "closed",
            f"nobody reads the mail of {', '.join(retired)} any more: retired (nothing was sent)",
            "mbx agents",
            retired=retired,
        )


def _unknown(context: Context, tx: Tx, unknown: Sequence[Address]) -> MbxError:
    known = identities.names(tx)
    suggestions = {str(address): names.suggest(address.name, known) for address in unknown}
    words = []
    for address in unknown:
        close = suggestions[str(address)] if address.kind == "name" else []
        hint = f"; did you mean {' or '.join(close)}?" if close else ""
        words.append(f"{address}: {_why(context, address)}{hint}")
    return MbxError(
        "unknown-recipient",
        "; ".join(words) + " (nothing was sent)",
        "mbx identity list",
        unknown=list(suggestions),
        suggestions=suggestions,
    )


def _why(context: Context, address: Address) -> str:
    if address.host not in (None, context.host.label):
        return "no paired host has that label"
    return {
        "role": "nobody else has that role",
        "everyone": "there is nobody else",
        "lead": "the owner has named no lead of your project",
    }.get(address.kind, "nobody here has that address")
