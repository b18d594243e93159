"""The two records of an adoption: what they must say, and that nothing else is taken."""

from typing import Any

import pytest

from mbx.core import adoption
from mbx.core.keys import SigningKey, key_id
from mbx.core.peer import Peer, Pin, peer_payload
from mbx.core.record import Record, RecordError, sign

OWNER = SigningKey.from_seed(b"\x21" * 32)
OTHER = SigningKey.from_seed(b"\x22" * 32)
INVITER = SigningKey.from_seed(b"\x23" * 32)
HOST = key_id("host", SigningKey.from_seed(b"\x24" * 32).public)
OWNER_ID = key_id("owner", OWNER.public)
PIN = Pin(
    key_id("host", INVITER.public), INVITER.public, b"\x01" * 32, "desk", OWNER_ID, b"\x02" * 32
)
ENVELOPE: dict[str, Any] = {"iat": 1_700_000_000_000, "nonce": "0" * 32, "aud": HOST}


def signed(kind: str, payload: dict[str, Any], key: SigningKey = OWNER) -> Record:
    return sign(kind, payload, key, key_id("owner", key.public))


def enrolment(key: SigningKey = OWNER, **change: object) -> Record:
    return signed("rotate", adoption.enrolment_payload(OWNER.public, ENVELOPE) | change, key)


def peering(key: SigningKey = OWNER, version: int = 1, pin: Pin = PIN, **change: object) -> Record:
    peer = Peer(version, pin, "desk", ("desk.local:24629",))
    return signed("peer", peer_payload(peer, {**ENVELOPE, "owner": OWNER_ID}) | change, key)


def read(*records: Record) -> adoption.Adoption:
    return adoption.read(records, OWNER.public, HOST, PIN)


def test_the_two_records_of_one_owner_about_one_host_are_an_adoption() -> None:
    one, other = enrolment(), peering()
    assert read(one, other) == adoption.Adoption(one, other)


@pytest.mark.parametrize(
    "records",
    [
        (),
        (enrolment(),),
        (peering(), enrolment()),
        (enrolment(), peering(), peering()),
        (enrolment(OTHER), peering()),
        (enrolment(), peering(OTHER)),
        (enrolment(aud="0" * 26), peering()),
        (enrolment(), peering(aud="0" * 26)),
        (enrolment(public_key=OTHER.public.hex()), peering()),
        (enrolment(owner=key_id("owner", OTHER.public)), peering()),
        (enrolment(previous="0" * 26), peering()),
        (enrolment(more=1), peering()),
        (enrolment(), peering(version=2)),
        (enrolment(), peering(pin=PIN._replace(transcript=b"\x03" * 32))),
        (enrolment(), peering(pin=PIN._replace(certificate=b"\x03" * 32))),
        (enrolment(), peering(pin=PIN._replace(owner=None))),
        (enrolment(), peering(more=1)),
    ],
)
def test_anything_else_is_none(records: tuple[Record, ...]) -> None:
    with pytest.raises(RecordError):
        read(*records)
