"""Two hosts that pair: their keys and words, and a wire between them that a test may bend."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from mbx.core import pairing
from mbx.core.canonical import encode
from mbx.core.keys import SigningKey
from mbx.core.pairing import PROTOCOLS, Match, Own
from mbx.core.pairing_code import PairingCode
from mbx.core.pairing_run import (
    Clock,
    Command,
    Compare,
    Confirmed,
    End,
    Invitation,
    Inviter,
    Joiner,
    Send,
    WrongProof,
)

WALL_MS = 1_700_000_000_000
START_MS = 5_000
CODE = PairingCode.from_random(bytes(range(17)))
OTHER_CODE = PairingCode.from_random(bytes(range(1, 18)))
OWNER = SigningKey.from_seed(b"\x11" * 32).public
OTHER_OWNER = SigningKey.from_seed(b"\x12" * 32).public


def own(number: int, label: str, owner: bytes | None = OWNER) -> Own:
    """A host of its own key; the certificate is any bytes, since the core looks into none."""
    return Own(
        SigningKey.from_seed(bytes([number]) * 32),
        b"certificate of " + label.encode(),
        label,
        (f"{label}.local:24629", f"10.0.0.{number}:24629"),
        owner,
    )


DESK = own(1, "desk")
LAPTOP = own(2, "laptop", OTHER_OWNER)
BARE = own(3, "bare", None)
STRANGER = own(4, "stranger", OTHER_OWNER)


def invitation(code: PairingCode = CODE) -> Invitation:
    return Invitation(code, "1" * 26, START_MS)


def inviter(
    invited: Invitation | None = None,
    who: Own = DESK,
    *,
    nonce: int = 1,
    wall_ms: int = WALL_MS,
    protocols: Sequence[int] = PROTOCOLS,
) -> Inviter:
    clock = Clock(START_MS, wall_ms)
    return Inviter(invited or invitation(), who, bytes([nonce]) * 32, clock, protocols)


def joiner(
    code: PairingCode = CODE,
    who: Own = LAPTOP,
    *,
    sees: bytes = DESK.certificate,
    nonce: int = 2,
    wall_ms: int = WALL_MS,
    protocols: Sequence[int] = PROTOCOLS,
) -> Joiner:
    clock = Clock(START_MS, wall_ms)
    return Joiner(code, who, sees, bytes([nonce]) * 32, clock, protocols)


Machine = Inviter | Joiner
Bend = Callable[[str, str], Sequence[str]]
"""(direction `joiner` or `inviter` of whoever speaks, text) -> the texts that arrive."""


def straight(_speaker: str, text: str) -> Sequence[str]:
    return [text]


@dataclass
class Heard:
    """What one machine asked of its driver."""

    matches: list[Match] = field(default_factory=list)
    wrong: list[int] = field(default_factory=list)
    records: list[tuple[str, ...]] = field(default_factory=list)
    ends: list[End] = field(default_factory=list)
    sent: list[str] = field(default_factory=list)

    def take(self, commands: Sequence[Command]) -> list[str]:
        """Note the commands; the texts that are to be sent."""
        texts = []
        for command in commands:
            match command:
                case Send(text):
                    texts.append(text)
                case Compare(found):
                    self.matches.append(found)
                case WrongProof(left):
                    self.wrong.append(left)
                case Confirmed(records):
                    self.records.append(records)
                case End():
                    self.ends.append(command)
        self.sent += texts
        return texts

    @property
    def code(self) -> str | None:
        """How the run ended; None: it has not."""
        return self.ends[-1].code if self.ends else None


class Meeting(NamedTuple):
    """A joiner and an inviter, what each heard, and the time that passes with each message."""

    joiner: Joiner
    inviter: Inviter
    at_joiner: Heard
    at_inviter: Heard

    @classmethod
    def of(cls, one: Joiner, other: Inviter) -> "Meeting":
        return cls(one, other, Heard(), Heard())

    def run(self, bend: Bend = straight, now_ms: int = START_MS) -> "Meeting":
        """Let them talk until nobody has anything to say."""
        spoken = [("joiner", text) for text in self.at_joiner.take(self.joiner.start(now_ms))]
        return self.go_on(spoken, bend, now_ms)

    def go_on(
        self, spoken: list[tuple[str, str]], bend: Bend = straight, now_ms: int = START_MS
    ) -> "Meeting":
        while spoken:
            speaker, text = spoken.pop(0)
            for arriving in bend(speaker, text):
                if speaker == "joiner":
                    answers = self.at_inviter.take(self.inviter.receive(arriving, now_ms))
                    spoken += [("inviter", answer) for answer in answers]
                else:
                    answers = self.at_joiner.take(self.joiner.receive(arriving, now_ms))
                    spoken += [("joiner", answer) for answer in answers]
        return self

    @property
    def has_agreed(self) -> bool:
        """Both sides accepted a proof and would show their people the same digits."""
        one, other = self.joiner.match, self.inviter.match
        return one is not None and other is not None and one.short == other.short


def meet(one: Joiner | None = None, other: Inviter | None = None, bend: Bend = straight) -> Meeting:
    """A whole run up to the comparison."""
    return Meeting.of(one or joiner(), other or inviter()).run(bend)


def spoken_in_a_run() -> dict[str, str]:
    """One valid message of each type, all of the run of `joiner()` and `inviter()`."""
    meeting = meet()
    said = meeting.at_joiner.sent + meeting.at_inviter.sent
    said.append(encode(pairing.confirmed_message([])))
    return {json.loads(text)["type"]: text for text in said}
