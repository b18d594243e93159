"""Addresses to mailboxes: each mailbox once, however many ways it was named.

What is written to a retired identity goes on to where the owner forwarded it.
"""

from collections.abc import Iterable, Sequence

from mbx.core import names
from mbx.core.errors import MbxError
from mbx.core.limits import RECIPIENTS_MAX
from mbx.core.names import Address
from mbx.daemon import forwarding
from mbx.daemon.context import Context
from mbx.daemon.posting import Recipient
from mbx.store import identities, leases
from mbx.store.database import Tx
from mbx.store.identities import IdentityRow


def resolve(
    context: Context, tx: Tx, sender_no: int, addresses: Sequence[Address]
) -> list[Recipient]:
    """The mailboxes that `addresses` reach, in the order of their first mention.

    A role and ``*`` do not reach the sender itself; a copy that came only by ``*`` is quiet. Raises
    MbxError unknown-recipient (with suggestions), closed (a retired one was named) or too-many,
    before anything is stored.
    """
    every: list[Recipient] = []
    unknown: list[Address] = []
    for address in addresses:
        reached = list(_reached(context, tx, sender_no, address))
        if not reached:
            unknown.append(address)
        every += reached
    if unknown:
        raise _unknown(context, tx, unknown)
    found = each_once(every)
    _refuse_retired(found)
    if len(found) > RECIPIENTS_MAX:
        raise MbxError(
            "too-many",
            f"these addresses reach more than {RECIPIENTS_MAX:,} mailboxes (nothing was sent)",
            "send to fewer",
            limit=RECIPIENTS_MAX,
        )
    return found


def each_once(reached: Iterable[Recipient]) -> list[Recipient]:
    """One recipient for each mailbox, in the order of their first mention."""
    found: dict[int, Recipient] = {}
    for recipient in reached:
        known = found.get(recipient.identity.no)
        found[recipient.identity.no] = known.joined(recipient) if known else recipient
    return list(found.values())


def mailbox_of(tx: Tx, identity: IdentityRow) -> Recipient:
    """Where mail for this identity goes. Raises MbxError closed if it goes nowhere any more."""
    recipient = _followed(tx, identity)
    _refuse_retired([recipient])
    return recipient


def _followed(tx: Tx, identity: IdentityRow) -> Recipient:
    """The identity, or where the owner forwarded it; a retired one that leads nowhere is itself."""
    end = forwarding.end_of(tx, identity) if identity.retired_ms is not None else None
    if end is None:
        return Recipient(identity, leases.find(tx, identity.no))
    row = leases.find(tx, end.no)
    return Recipient(end, row, forwarded=(identity.name,), is_named=False)


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
    if named is None:
        return []
    return [_followed(tx, named[0]) if named[0].retired_ms is not None else Recipient(*named)]


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
