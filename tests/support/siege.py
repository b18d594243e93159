"""A paired host besieged by a rogue one, for attacks on what our owner signed."""

from collections.abc import Iterator
from typing import Any

import pytest

from mbx.core.keys import SigningKey
from mbx.core.record import Record
from tests.support.estate import Estate, key
from tests.support.owner import content, record_of, wire
from tests.support.paired import PairedDesk

STRANGER, INVENTED = key(91), key(92)
HOUR = 3_600_000


class Siege(Estate):
    """An estate with a policy in force, and a rogue host `pi` whose owner is another one."""

    def __init__(self) -> None:
        super().__init__()
        self.policy = self.set("ben@lap", "collaborate", "ana@desk")
        self.settle()
        self.pi, self.eve = self.add("pi", "eve", 30, seed=8)
        self.foreign = key(8)
        self.before = self.line()
        assert self.level() == "collaborate"

    def draft(self, kind: str = "policy") -> dict[str, Any]:
        """What our owner would sign on `desk` next: all for eve's and ana's mail."""
        self.pass_ms()
        if kind == "revoke":
            return content(self.owner.draft("revoke", all=True))
        wanted = {"to": ["ben@lap"], "level": "yolo", "from": ["local", "host:pi"]}
        return content(self.owner.draft("policy", **wanted))

    def forged(self, *keys: SigningKey, kind: str = "policy", **changes: Any) -> Record:
        """The draft with changes, signed by our owner or by `keys`."""
        payload = {**self.draft(kind), **changes}
        return record_of(wire(kind, payload, *(keys or (self.owner.key,))))

    def is_as_before(self) -> bool:
        """Mail of ana's is under the same policy, that of the rogue host's under none."""
        same = self.line() == self.before
        return same and self.line_of(self.pi, self.eve).startswith("policy: ask (read")

    def goes_on(self) -> bool:
        """The link lives: what the owner signs now holds there, and is gone when taken back."""
        newest = self.set("ben@lap", "autonomous", "ana@desk")
        self.settle()
        held = f"record {newest}" in self.line() and self.level() == "autonomous"
        self.revoke(newest)
        self.settle()
        return held and self.level() == "ask"

    def refusals(self, by: PairedDesk) -> list[str]:
        """The codes of what `lap` has refused of a host."""
        places = self.there.places(by.label)
        nacks = [one.record.payload for one in places if one.record and one.record.kind == "nack"]
        return [text.partition('"code":"')[2].partition('"')[0] for text in nacks]


@pytest.fixture(name="siege")
def siege_of_test() -> Iterator[Siege]:
    made = Siege()
    yield made
    made.close()
