"""Signed facts about deliveries: one record states up to 64 of them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from mbx.core.canonical import JsonValue
from mbx.core.delivery import Stage

FACTS_MAX: Final = 64
"""Facts in one receipt record (a record for each message costs 18 % of a relay, measured)."""


@dataclass(frozen=True, slots=True)
class Fact:
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
