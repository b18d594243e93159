"""Rows of peers, streams and places: what each refuses, and what stays when it comes twice."""

from collections.abc import Iterator

import pytest

from mbx.core.keys import SigningKey
from mbx.core.limits import OFFERED_AT_ONCE_MAX_BYTES, PUT_RECORDS_MAX
from mbx.core.streams import EMPTY_HEAD
from mbx.store import messages, outbox, peers
from tests.support.office import OfficeDesk
from tests.support.paired import PairedDesk, desk, plant

NOBODY = 99


@pytest.fixture
def here() -> Iterator[PairedDesk]:
    made = desk("desk")
    made.peer_nos["lap"] = plant(made, SigningKey.from_seed(b"l" * 32), "lap")
    yield made
    made.close()


def _queue(here: OfficeDesk, no: int, digest: bytes, size_bytes: int = 10) -> None:
    ana = here.rows("SELECT no FROM messages")
    here.do(lambda tx: outbox.queue_message(tx, no, ana[0][0], "message", digest, size_bytes, 1))


@pytest.fixture
def no(here: PairedDesk) -> int:
    ana = here.holder("ana", 10)
    here.call(ana, "mail.send", to=["ana"], subject="s", body="b")
    _queue(here, here.peer_nos["lap"], b"1" * 32)
    _queue(here, here.peer_nos["lap"], b"2" * 32)
    return here.peer_nos["lap"]


def test_what_is_not_there_is_said(here: PairedDesk) -> None:
    with pytest.raises(LookupError, match="no streams"):
        here.do(lambda tx: outbox.stream(tx, NOBODY))
    with pytest.raises(LookupError, match="no peer"):
        here.do(lambda tx: peers.by_no(tx, NOBODY))
    with pytest.raises(LookupError, match="no message"):
        here.do(lambda tx: messages.origin(tx, NOBODY))
    assert here.do(lambda tx: messages.copy_to(tx, "0" * 26, NOBODY)) is None
    assert here.do(lambda tx: peers.by_key(tx, "0" * 26)) is None
    assert here.do(lambda tx: peers.by_label(tx, "nobody")) is None
    assert here.do(lambda tx: peers.told(tx, NOBODY)) is None


def test_nothing_is_queued_for_nobody(here: PairedDesk, no: int) -> None:
    with pytest.raises(LookupError, match="no streams"):
        _queue(here, NOBODY, b"3" * 32)


def test_heads_are_known_of_the_beginning_and_of_each_place(here: PairedDesk, no: int) -> None:
    assert here.do(lambda tx: outbox.head_at(tx, no, 0)) == EMPTY_HEAD
    assert here.do(lambda tx: outbox.head_at(tx, no, 2)) == here.stream("lap").out_head
    assert here.do(lambda tx: outbox.head_at(tx, no, 3)) is None


def test_an_acknowledgement_counts_once_and_not_beyond_the_end(here: PairedDesk, no: int) -> None:
    assert here.stream("lap").queued_messages == 2
    assert here.do(lambda tx: outbox.acknowledged(tx, no, 1, 5)) == (0, 1)
    assert here.do(lambda tx: outbox.acknowledged(tx, no, 1, 5)) == (1, 1)
    assert here.stream("lap").queued_messages == 1
    assert here.do(lambda tx: outbox.acknowledged(tx, no, 9, 5)) == (1, 2)
    state = here.stream("lap")
    assert (state.acked_seq, state.offered_seq, state.queued_messages) == (2, 2, 0)
    assert here.do(lambda tx: outbox.oldest_ms(tx, no)) is None


@pytest.mark.parametrize(
    ("places", "size_bytes", "is_offered"),
    [
        (PUT_RECORDS_MAX - 1, 10, True),
        (PUT_RECORDS_MAX, 10, True),
        (PUT_RECORDS_MAX + 1, 10, False),
        (3, OFFERED_AT_ONCE_MAX_BYTES - 21, True),
        (3, OFFERED_AT_ONCE_MAX_BYTES - 20, True),
        (3, OFFERED_AT_ONCE_MAX_BYTES - 19, False),
    ],
)
def test_what_one_frame_takes_is_offered_at_once(
    here: PairedDesk, no: int, places: int, size_bytes: int, is_offered: bool
) -> None:
    for number in range(places - 3):
        _queue(here, no, number.to_bytes(32))
    _queue(here, no, b"3" * 32, size_bytes)
    here.do(lambda tx: outbox.offered_at_once(tx, no))
    state = here.stream("lap")
    assert state.out_seq == places
    assert state.offered_seq == (places if is_offered else 0)


def test_a_place_is_withdrawn_once(here: PairedDesk, no: int) -> None:
    one = here.do(lambda tx: outbox.message_at(tx, no, 2))
    assert one is not None
    here.do(lambda tx: outbox.withdraw(tx, no, one, 5))
    here.do(lambda tx: outbox.withdraw(tx, no, one, 6))
    assert here.stream("lap").queued_messages == 1
    assert here.do(lambda tx: outbox.message_at(tx, no, 2)) is None
    assert here.do(lambda tx: outbox.oldest_ms(tx, no)) == 1


def test_places_are_forgotten_only_after_their_week(here: PairedDesk, no: int) -> None:
    here.do(lambda tx: outbox.acknowledged(tx, no, 2, 50))
    assert here.do(lambda tx: outbox.forget_acknowledged(tx, 50, 10)) == 0
    assert here.do(lambda tx: outbox.forget_acknowledged(tx, 51, 1)) == 1
    assert here.do(lambda tx: outbox.forget_acknowledged(tx, 51, 10)) == 1
    assert len(here.do(outbox.streams)) == 1
