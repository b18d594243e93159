"""The owner's keys one after the other: what each verifies, and where it ended."""

from typing import Any

import pytest

from mbx.core.authority import build
from mbx.core.canonical import encode
from mbx.core.chains import record_digest, with_ends
from mbx.core.keys import SigningKey, key_id
from mbx.core.record import Record, sign
from tests.core.test_authority import (
    HOST,
    KEY,
    NOW,
    OTHER_HOST,
    STRANGER,
    Chain,
    grant,
    is_ask,
    owner,
)

SUCCESSOR = SigningKey.from_seed(b"\x03" * 32)


def test_a_former_key_verifies_what_it_signed_and_nothing_later() -> None:
    chain = Chain()
    chain.policy("collaborate")
    end = record_digest(chain.links[0].record)
    owners = [owner(SUCCESSOR), owner(KEY, until_version=1)._replace(until_digest=end)]
    assert grant(chain.book(owners)).level == "collaborate"
    chain.policy("yolo", exp_ms=NOW + 1)
    assert is_ask(chain.book(owners), "record 2", "no key of the owner's")
    chain.links.pop()
    chain.key = SUCCESSOR
    chain.policy("autonomous")
    assert grant(chain.book(owners)).level == "autonomous"
    assert is_ask(chain.book(), "record 2")
    assert is_ask(chain.book([]), "record 2")


@pytest.mark.parametrize("until_digest", [None, "0" * 64, "of another"])
def test_where_a_key_ended_only_the_record_that_was_there_is_believed(
    until_digest: str | None,
) -> None:
    """Whoever has the former key could sign another one for that place."""
    chain = Chain()
    chain.policy("collaborate")
    owners = [owner(SUCCESSOR), owner(KEY, 1)._replace(until_digest=until_digest)]
    assert is_ask(chain.book(owners), "record 1", "changed the key")
    chain.key = SUCCESSOR
    chain.policy("autonomous")
    assert grant(chain.book(owners)).level == "autonomous"


def test_an_end_that_no_record_bears_out_moves_nothing() -> None:
    chain = Chain()
    chain.policy("collaborate")
    far = [owner(SUCCESSOR), owner(KEY, 2**62)]
    assert is_ask(chain.book(far), "record 1", "changed the key")
    assert chain.book(far).next.version == 2
    assert build([], far, HOST).entries == ()


def rotation(
    successor: SigningKey, former: SigningKey, *keys: SigningKey, **more: object
) -> Record:
    """The record by which one key follows the other, signed by both (or by `keys`)."""
    payload: dict[str, Any] = {
        "v": 1,
        "type": "rotate",
        "iat": NOW,
        "nonce": "0" * 32,
        "aud": HOST,
        "owner": key_id("owner", successor.public),
        "public_key": successor.public.hex(),
        "previous": key_id("owner", former.public),
        "until_version": 3,
        "head": "d" * 64,
        **more,
    }
    signatures: dict[str, str] = {}
    for key in keys or (successor, former):
        signatures |= sign("rotate", payload, key, key_id("owner", key.public)).signatures
    return Record("rotate", encode(payload), signatures)


def test_a_former_key_ends_where_both_keys_said_whatever_a_row_says() -> None:
    rows = [owner(STRANGER), owner(SUCCESSOR), owner(KEY, 9)]
    told = [rotation(SUCCESSOR, KEY), rotation(STRANGER, SUCCESSOR, until_version=5)]
    ends = [(None, None), (5, "d" * 64), (3, "d" * 64)]
    for records in (told, told[::-1]):
        found = with_ends(rows, records, HOST)
        assert [(key.until_version, key.until_digest) for key in found] == ends
    assert with_ends([], told, HOST) == []


@pytest.mark.parametrize(
    "record",
    [
        rotation(SUCCESSOR, KEY, SUCCESSOR),
        rotation(SUCCESSOR, KEY, KEY),
        rotation(SUCCESSOR, KEY, STRANGER),
        rotation(STRANGER, KEY, SUCCESSOR, KEY),
        rotation(SUCCESSOR, STRANGER, SUCCESSOR, KEY),
        rotation(SUCCESSOR, KEY, aud=OTHER_HOST),
        rotation(SUCCESSOR, KEY, until_version="3"),
        rotation(SUCCESSOR, KEY, until_version=True),
        rotation(SUCCESSOR, KEY, head=5),
        rotation(SUCCESSOR, KEY, more=1),
        Record("rotate", "{}", {}),
    ],
)
def test_a_record_that_is_not_both_keys_word_says_no_end(record: Record) -> None:
    rows = [owner(SUCCESSOR), owner(KEY, 9)]
    assert with_ends(rows, [record], HOST) == rows
    assert with_ends([rows[0], owner(KEY)], [record], HOST)[1].until_version == 0
