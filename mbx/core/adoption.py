"""Adopting an owner at pairing: two records by which a host without owner gets the inviter's.

The inviter's owner signs both, for the host that joins: the record that brings its key in (it needs
no signature but that key's own) and that host's `peer` record about the inviter. They travel in
`confirmed`; the person at the joining host sees them in full and agrees there. Nothing in them is
believed but what the transcript of the pairing has proved.
"""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from mbx.core.canonical import JsonValue
from mbx.core.chains import ROTATE_FIELDS
from mbx.core.keys import key_id
from mbx.core.peer import Pin, read_peer
from mbx.core.record import Record, RecordError, verify

ENROLMENT: Final = "rotate"
PEERING: Final = "peer"

FIRST_VERSION: Final = 1
"""Of the `peer` record: a host without owner has none about anybody."""


class Adoption(NamedTuple):
    """The two records of an adoption, in the order in which they are applied."""

    enrolment: Record
    peering: Record


def enrolment_payload(owner: bytes, envelope: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
    """The payload that makes `owner` (32 bytes) a host's first key; `envelope`: iat, nonce, aud."""
    return {
        "v": 1,
        "type": ENROLMENT,
        **envelope,
        "owner": key_id("owner", owner),
        "public_key": owner.hex(),
        "previous": None,
        "until_version": 0,
        "head": None,
    }


def read(records: Sequence[Record], owner: bytes, host: str, pin: Pin) -> Adoption:
    """The adoption of `owner` (its public key) by the host with key id `host`.

    `pin`: what that host records of the inviter. Raises RecordError for anything else.
    """
    if [record.kind for record in records] != [ENROLMENT, PEERING]:
        raise RecordError(2, "not the two records of an adoption")
    enrolment, peering = records
    signer = key_id("owner", owner)
    said = [
        verify(record, kind=record.kind, signers={signer: owner}, audience=host)
        for record in records
    ]
    if any(payload.get("owner") != signer for payload in said):
        raise RecordError(6, "owner: not the one who signed")
    first = said[0]
    told = (first.get("public_key"), first.get("previous"))
    if first.keys() != ROTATE_FIELDS or told != (owner.hex(), None):
        raise RecordError(6, "not the first key of a host")
    peer = read_peer(said[1])
    if peer.pin != pin:
        raise RecordError(6, "peer: not the host of this pairing")
    if peer.version != FIRST_VERSION:
        raise RecordError(6, f"version: not {FIRST_VERSION}")
    return Adoption(enrolment, peering)
