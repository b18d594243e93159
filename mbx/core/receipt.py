"""Signed facts about deliveries: one record states up to 64 of them."""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from mbx.core.canonical import JsonValue
from mbx.core.delivery import OUTCOMES, Stage
from mbx.core.errors import MbxError
from mbx.core.ids import is_id
from mbx.core.limits import DID_KEPT_CHARS, NOTE_MAX_CHARS
from mbx.core.record import RecordError
from mbx.core.text import check_line, check_text

FACTS_MAX: Final = 64
"""Facts in one receipt record (a record for each message costs 18 % of a relay, measured)."""


class Fact(NamedTuple):
    """`recipient` (identity id) brought `message` (record id) to `stage` at `at_ms` (UTC)."""

    message: str
    recipient: str
    stage: Stage
    at_ms: int
    outcome: str | None = None
    did: str | None = None
    note: str | None = None

    def as_object(self) -> dict[str, JsonValue]:
        """The JSON object that is signed; absent words are left out."""
        fact: dict[str, JsonValue] = {
            "message": self.message,
            "recipient": self.recipient,
            "stage": int(self.stage),
            "at": self.at_ms,
        }
        words = {"outcome": self.outcome, "did": self.did, "note": self.note}
        fact.update({name: word for name, word in words.items() if word is not None})
        return fact


def payload(
    facts: Sequence[Fact], *, epoch: int, sequence: int, now_ms: int, nonce: str, audience: str
) -> Mapping[str, JsonValue]:
    """The payload of a receipt record; `sequence`: the commit sequence that made it true."""
    return {
        "v": 1,
        "type": "receipt",
        "iat": now_ms,
        "nonce": nonce,
        "aud": audience,
        "epoch": epoch,
        "seq": sequence,
        "facts": [fact.as_object() for fact in facts],
    }


_FIELDS: Final = frozenset("v type iat nonce aud epoch seq facts".split())
_FACT: Final = frozenset("message recipient stage at".split())
_WORDS: Final = frozenset("outcome did note".split())
_STATED: Final = frozenset({Stage.DELIVERED, Stage.NOTIFIED, Stage.READ, Stage.ACKED})
"""What the host of a recipient can state; the stages before are the sender's own knowledge."""


def read(content: Mapping[str, JsonValue]) -> tuple[Fact, ...]:
    """The facts of a payload whose signature is verified.

    Raises RecordError (step 6) for anything that is not exactly a receipt of this version.
    """
    facts = content.get("facts")
    if content.keys() != _FIELDS or not isinstance(facts, list):
        raise RecordError(6, "fields missing or unknown")
    if not 1 <= len(facts) <= FACTS_MAX:
        raise RecordError(6, f"a receipt states 1 to {FACTS_MAX} facts")
    return tuple(_fact(fact) for fact in facts)


def _fact(fact: JsonValue) -> Fact:
    if not isinstance(fact, dict) or not _FACT <= fact.keys() <= _FACT | _WORDS:
        raise RecordError(6, "a fact has fields missing or unknown")
    message, recipient, stage, at_ms = (
        fact[name] for name in ("message", "recipient", "stage", "at")
    )
    if not is_id(message) or not is_id(recipient):
        raise RecordError(6, "a fact names no message or no mailbox")
    if type(stage) is not int or stage not in _STATED or type(at_ms) is not int or at_ms < 0:
        raise RecordError(6, "a fact has no stage or no time")
    outcome, did, note = fact.get("outcome"), fact.get("did"), fact.get("note")
    if (stage == Stage.ACKED) != (outcome in OUTCOMES) or (stage != Stage.ACKED and (did or note)):
        raise RecordError(6, "what was done belongs to an ack")
    try:
        _check_words(did, note)
    except MbxError as error:
        raise RecordError(6, error.message) from None
    return Fact(
        message,
        recipient,
        Stage(stage),
        at_ms,
        None if outcome is None else str(outcome),
        None if did is None else str(did),
        None if note is None else str(note),
    )


def _check_words(did: JsonValue, note: JsonValue) -> None:
    if did is not None:
        check_line("did", did if isinstance(did, str) else "", DID_KEPT_CHARS)
    if note is not None:
        check_text(
            "note", note if isinstance(note, str) else "", NOTE_MAX_CHARS, may_be_empty=False
        )
