"""The audit log against what vouches for it: its chain, the host's signatures, the second place.

Whoever can write the store can write all rows from one on anew. But each acceptance of an owner's
record names the row that was the newest then, under the host's signature, and so does the floor in
its own folder. A log that was written anew, or put back, differs from them.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from mbx.core.acts import OWNERS
from mbx.core.canonical import CanonicalError, JsonValue, parse
from mbx.core.limits import INTEGER_MAX
from mbx.core.record import ANY_AUDIENCE, RecordError, Sealed, verify
from mbx.daemon.host import Host
from mbx.store import acceptances, audit, chain, hosts
from mbx.store.acceptances import Acceptance
from mbx.store.audit import AuditRow
from mbx.store.chain import Fault
from mbx.store.database import Tx

PIECE_ROWS: Final = 1_000
"""Rows that are looked at in one unit of work: about 10 ms."""

PIECE_ACCEPTANCES: Final = 50
"""And acceptances, each with a signature to verify."""

DETAIL_MAX_BYTES: Final = 262_144
"""More than any act writes into one row."""


class Anchor(NamedTuple):
    """A row that something outside of the chain vouches for: its hash, and what that is."""

    no: int
    hash: str
    whose: str


def examined(tx: Tx, after: int, count: int) -> tuple[list[AuditRow], list[Fault]]:
    """The rows behind row `after`, and what is wrong with them: the chain, and what they speak of.

    A log without any row is wrong too: the first tells which host the store belongs to.
    """
    rows, faults = chain.examine_after(tx, after, count)
    if not rows and not after and hosts.find(tx) is not None:
        faults = [Fault("missing", 1, 1, chain.missing_words(1, 1))]
    return rows, [*faults, *_without_record(tx, rows)]


def _without_record(tx: Tx, rows: Sequence[AuditRow]) -> Iterator[Fault]:
    """Acts of the owner whose record is not kept any more."""
    for row in rows:
        if row.act in OWNERS:
            record = (details(row) or {}).get("record")
            if isinstance(record, str) and not acceptances.is_kept(tx, record):
                words = f"the owner's record {record}, which row {row.no} tells of, is missing"
                yield Fault("record", row.no, row.no, words)


def details(row: AuditRow) -> Mapping[str, JsonValue] | None:
    """What a row tells; None for a text that nothing of ours has written."""
    try:
        found = parse(row.detail.encode("utf-8", "surrogateescape"), DETAIL_MAX_BYTES)
    except CanonicalError:
        return None
    return found if isinstance(found, dict) else None


def anchor_of(host: Host, acceptance: Acceptance) -> Anchor | Fault:
    """The row that an acceptance vouches for, verified with the host key."""
    sealed = Sealed("acceptance", acceptance.payload, b"", "", acceptance.signature)
    name = acceptance.record_id.encode("ascii", "replace").decode()
    try:
        payload = verify(
            sealed.record(host.key_id),
            kind="acceptance",
            signers={host.key_id: host.signer.public},
            audience=ANY_AUDIENCE,
        )
        no, digest, record = payload["audit_no"], payload["audit_hash"], payload["record"]
    except (RecordError, KeyError) as error:
        words = f"the acceptance of record {name} is not what this host signed ({error})"
        return Fault("acceptance", 0, 0, words)
    if record != acceptance.record_id or not isinstance(no, int) or not isinstance(digest, str):
        words = f"the acceptance of record {name} belongs to another record"
        return Fault("acceptance", 0, 0, words)
    return Anchor(no, digest, f"the acceptance of record {record}")


def against(tx: Tx, anchors: Sequence[Anchor], since: int = 0) -> list[Fault]:
    """Where the log is not what the anchors vouch for; `since`: up to which row it is known to be.

    Rows whose place is empty are for the chain to tell, but for those behind the newest.
    """
    head_no, _ = audit.head(tx)
    faults: list[Fault] = []
    good = since
    for anchor in sorted(anchors):
        if not 0 < anchor.no <= INTEGER_MAX:
            continue
        found = audit.hash_at(tx, anchor.no)
        if found is not None and found.hex() == anchor.hash:
            good = anchor.no
        elif found is not None:
            first = good + 1
            words = f"row {anchor.no} is not the one that {anchor.whose} names"
            if first < anchor.no:
                words += f": rows {first} to {anchor.no} may have been written anew"
            faults.append(Fault("rewritten", first, anchor.no, words))
        elif anchor.no > head_no:
            words = f"{chain.missing_words(head_no + 1, anchor.no)} at the end: {anchor.whose}"
            faults.append(
                Fault("missing", head_no + 1, anchor.no, f"{words} names row {anchor.no}")
            )
    return faults


def accepted(host: Host, tx: Tx, after: int, count: int) -> tuple[list[Acceptance], list[Fault]]:
    """The acceptances behind the record with key `after`, and what is wrong by them."""
    found = acceptances.behind(tx, after, count)
    told = [anchor_of(host, one) for one in found]
    before = [anchor_of(host, one) for one in acceptances.behind(tx, after - 1, 1) if after]
    since = max((one.no for one in before if isinstance(one, Anchor)), default=0)
    anchors = [one for one in told if isinstance(one, Anchor)]
    faults = [one for one in told if isinstance(one, Fault)]
    return found, [*faults, *against(tx, anchors, since)]


def by_floor(host: Host, tx: Tx, reached: tuple[int, bytes]) -> list[Fault]:
    """What is wrong by the second place, which knows a row; nothing where it knows of none yet."""
    no, digest = reached
    if not no:
        return []
    since = 0
    acceptance = acceptances.newest(tx)
    told = anchor_of(host, acceptance) if acceptance is not None else None
    if isinstance(told, Anchor) and told.no < no and not against(tx, [told]):
        since = told.no
    return against(tx, [Anchor(no, digest.hex(), "the floor")], since)


def newest(host: Host, tx: Tx, count: int, reached: tuple[int, bytes]) -> tuple[int, list[Fault]]:
    """(how many of the newest rows were looked at, what is wrong with them), in one short look."""
    checked, faults = chain.examine_last(tx, count)
    acceptance = acceptances.newest(tx)
    if acceptance is not None:
        told = anchor_of(host, acceptance)
        faults += against(tx, [told]) if isinstance(told, Anchor) else [told]
    return checked, [*faults, *by_floor(host, tx, reached)]
