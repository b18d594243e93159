"""Addresses to mailboxes: each mailbox once, however many ways it was named.

What is written to a retired identity goes on to where the owner forwarded it. A name alone is the
identity here, else the only one of that name on a paired host.
"""

from collections.abc import Iterable, Sequence

from mbx.core import names
from mbx.core.errors import MbxError
from mbx.core.limits import RECIPIENTS_MAX
from mbx.core.names import Address
from mbx.daemon import forwarding
from mbx.daemon.context import Context
from mbx.daemon.posting import Recipient
from mbx.store import identities, leases, peers
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
    recipient = _met_again(tx, identity) if identity.peer_no else _followed(tx, identity)
    if recipient.peer is not None and recipient.peer.ended_ms is not None:
        raise MbxError(
            "not-paired",
            f"{identity.name} lives on {recipient.peer.label}, which is not paired with this host"
            " any more (nothing was sent)",
            "mbx peers list",
        )
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
    if address.kind == "everyone":
        everyone = leases.of_everyone(tx)
        here = [Recipient(who, row, True) for who, row in everyone if who.no != sender_no]
        return [*here, *(_elsewhere(tx, who, quiet=True) for who in peers.identities_present(tx))]
    if address.kind == "role":
        same = leases.of_role(tx, address.name)
        here = [Recipient(who, row) for who, row in same if who.no != sender_no]
        away = peers.identities_present(tx, address.name)
        return [*here, *(_elsewhere(tx, who) for who in away)]
    if address.kind == "lead":
        return []
    name = names.OWNER if address.kind == "owner" else address.name
    named = leases.of_name(tx, name) if address.host in (None, context.host.label) else None
    if named is None:
        return _on_a_peer(context, tx, address, name)
    return [_followed(tx, named[0]) if named[0].retired_ms is not None else Recipient(*named)]


def _on_a_peer(context: Context, tx: Tx, address: Address, name: str) -> list[Recipient]:
    """The only one of that name on a paired host, or on the host that was named."""
    if address.host == context.host.label:
        return []
    known = peers.named(tx, name, address.host) or peers.forwarded(tx, name, address.host)
    found = [_elsewhere(tx, who) for who in known]
    if len(found) > 1:
        candidates = [to.peer.address(name) for to in found if to.peer is not None]
        raise MbxError(
            "ambiguous",
            f"{name} lives on several hosts: {', '.join(candidates)} (nothing was sent)",
            f"write to {candidates[0]}, say",
            candidates=candidates,
        )
    return found


def _elsewhere(tx: Tx, identity: IdentityRow, *, quiet: bool = False) -> Recipient:
    """A mailbox of a paired host, or the one there that has its mail."""
    assert identity.peer_no is not None
    peer = peers.by_no(tx, identity.peer_no)
    end = forwarding.end_of(tx, identity) if identity.retired_ms is not None else None
    if end is None:
        return Recipient(identity, None, quiet, peer=peer)
    return Recipient(end, None, quiet, (identity.name,), is_named=False, peer=peer)


def _met_again(tx: Tx, identity: IdentityRow) -> Recipient:
    """A mailbox of a paired host; after a new pairing with that host, the same one under that.

    It is the same host by its key and the same identity by its id, which that host has told of.
    """
    recipient = _elsewhere(tx, identity)
    if recipient.peer is None or recipient.peer.ended_ms is None:
        return recipient
    peer = peers.by_key(tx, recipient.peer.key_id)
    again = peers.identity_of(tx, peer.no, identity.identity) if peer is not None else None
    return recipient if again is None else _elsewhere(tx, again)


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
    suggestions = {str(address): _close(tx, address, known) for address in unknown}
    words = []
    for address in unknown:
        close = suggestions[str(address)] if address.kind == "name" else []
        hint = f"; did you mean {' or '.join(close)}?" if close else ""
        words.append(f"{address}: {_why(context, tx, address)}{hint}")
    return MbxError(
        "unknown-recipient",
        "; ".join(words) + " (nothing was sent)",
        _where_to_look(context, tx, unknown),
        unknown=list(suggestions),
        suggestions=suggestions,
    )


def _where_to_look(context: Context, tx: Tx, unknown: Sequence[Address]) -> str:
    """The command that lists what could have been meant: hosts, or everybody on all of them."""
    hosts = {address.host for address in unknown} - {None, context.host.label}
    if any(peers.by_label(tx, host or "") is None for host in hosts):
        return "mbx peers list --all"
    return "mbx agents"


def _close(tx: Tx, address: Address, known: Sequence[str]) -> list[str]:
    """What an unknown address may have meant, as addresses."""
    away = [who for who in peers.identities_present(tx) if address.host is None]
    if address.host is not None and (peer := peers.by_label(tx, address.host)) is not None:
        away = peers.identities_present(tx, label=peer.label)
        close = names.suggest(address.name, [who.name for who in away])
        return [peer.address(name) for name in close]
    return names.suggest(address.name, [*known, *(who.name for who in away)])


def _why(context: Context, tx: Tx, address: Address) -> str:
    if address.host not in (None, context.host.label):
        peer = peers.called(tx, address.host or "")
        if peer is None:
            return "no paired host has that label"
        if peer.ended_ms is not None:
            return f"{peer.label} is not paired with this host any more"
        if peers.is_retired_on(tx, address.name, peer.no):
            return "retired there: nobody is written to under that name any more"
        return "nobody there is called so"
    former = peers.formerly_on(tx, address.name) if address.kind == "name" else None
    if former is not None and address.host is None:
        return f"it lived on {former}, which is not paired with this host any more"
    return {
        "role": "nobody else has that role",
        "everyone": "there is nobody else",
        "lead": "the owner has named no lead of your project",
    }.get(address.kind, "nobody here has that address")
