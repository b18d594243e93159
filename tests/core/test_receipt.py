"""Receipts state facts; words that were not said are left out."""

from mbx.core.canonical import encode, parse
from mbx.core.delivery import Stage
from mbx.core.limits import DID_KEPT_CHARS, NOTE_MAX_CHARS, RECORD_MAX_BYTES
from mbx.core.receipt import FACTS_MAX, Fact, payload


def test_a_fact_without_words_has_none() -> None:
    fact = Fact("m" * 26, "r" * 26, Stage.READ, 5)
    assert fact.as_object() == {"message": "m" * 26, "recipient": "r" * 26, "stage": 4, "at": 5}


def test_what_was_done_stands_in_the_fact() -> None:
    fact = Fact("m" * 26, "r" * 26, Stage.ACKED, 5, "acted", "fixed it", "note")
    made = fact.as_object()
    assert (made["outcome"], made["did"], made["note"]) == ("acted", "fixed it", "note")


def test_the_longest_receipt_fits_a_record() -> None:
    words = ("acted", "\x01" * DID_KEPT_CHARS, "\x01" * NOTE_MAX_CHARS)
    facts = [Fact("m" * 26, "r" * 26, Stage.ACKED, 2**52, *words)] * FACTS_MAX
    made = payload(facts, epoch=1, sequence=2, now_ms=3, nonce="0" * 32, audience="h" * 26)
    text = encode(made).encode()
    assert len(text) <= RECORD_MAX_BYTES
    assert parse(text, RECORD_MAX_BYTES) == made
