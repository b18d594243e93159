"""The human with the key: drafts, signs, brings back; late, twice, out of order, and for nothing.

The owner signs what the daemon drafted, as the real one does. It also signs texts of its own making
(another epoch, another destination), brings what was overtaken by then, and passes on what others
forged: none of that may act.
"""

import hashlib
import json
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from mbx.core.evidence import Process
from mbx.core.keys import SigningKey, key_id
from mbx.core.policy import CLASSES, LEVELS
from mbx.core.record import sign
from tests.sim.case import mark
from tests.sim.clients import Op, Session
from tests.sim.history import Return

DRAFTS: Final = frozenset({"owner.draft", "owner.compose"})
APPLIES: Final = frozenset({"owner.enroll", "owner.apply"})

_WAITS: Final = (0, 0, 0, 0, 0, 0, 1, 2, 5, 12, 30)
"""Steps from the draft to the moment at which the signed record is brought."""


class Sight(NamedTuple):
    """What the owner sees of the world: names, and sessions by what they are called."""

    names: Sequence[str]
    idle: Sequence[str]
    busy: Sequence[str]
    dead: Sequence[str]


@dataclass(eq=False)
class Owner(Session):
    """The owner's client: no session, no lease; `kind` and process are only its label."""

    kind: str = "owner"
    process: Process = field(default_factory=lambda: Process(0, 0, ""))
    chance: random.Random = field(default_factory=random.Random)
    next_no: Callable[[], int] = field(default=lambda: 0)
    seed: int = 0
    now: int = 0
    """The step."""
    is_enrolled: bool = False
    ready: list[tuple[int, Op]] = field(default_factory=list)
    """(step, what is brought then)."""
    brought: list[Op] = field(default_factory=list)
    policies: list[str] = field(default_factory=list)
    _keys: dict[str, SigningKey] = field(default_factory=dict)

    # -- what it asks for -----------------------------------------------------------------------

    def next(self, sight: Sight) -> Op:
        """What it does now: bring something that is due, or ask for a draft."""
        due = [one for one in self.ready if one[0] <= self.now]
        if due and self.chance.random() < 0.8:
            chosen = self.chance.choice(due)
            self.ready.remove(chosen)
            return chosen[1]
        if not self.is_enrolled and (self.ready or self.in_flight):
            return self._op("owner.show", {})
        if self.brought and self.chance.random() < 0.1:
            return self.chance.choice(self.brought[-6:])
        return self._draft(sight)

    def _draft(self, sight: Sight) -> Op:
        if not self.is_enrolled:
            return self._op("owner.draft", self._rotate(sight))
        acts, weights = zip(*_ACTS, strict=True)
        act = self.chance.choices(acts, weights)[0]
        if act == "letter":
            no = self.next_no()
            return Op(no, "owner.compose", self._letter(sight, no), None)
        if act == "show":
            return self._op("owner.show", {})
        make: Callable[[Sight], dict[str, Any]] = getattr(self, f"_{act}")
        return self._op("owner.draft", make(sight))

    def _op(self, method: str, params: Mapping[str, Any]) -> Op:
        return Op(self.next_no(), method, params, None)

    def _takeover(self, sight: Sight) -> dict[str, Any]:
        cli, _, session = self._destination(sight).partition("/")
        return {"act": "takeover", "name": self._name(sight), "cli": cli, "session": session}

    def _destination(self, sight: Sight) -> str:
        drawn = self.chance.random()
        for least, labels in ((0.2, sight.idle), (0.1, sight.busy), (0.05, sight.dead)):
            if drawn >= least and labels:
                return self.chance.choice(list(labels))
        return "shell/1-1"

    def _policy(self, sight: Sight) -> dict[str, Any]:
        level = self.chance.choices(LEVELS, (1, 4, 3, 2))[0]
        wanted: dict[str, Any] = {
            "act": "policy",
            "to": sorted({self._name(sight) for _ in range(self.chance.choice((2, 3, 4)))}),
            "level": level,
            "from": self.chance.choice(
                (["local"], ["local"], [self._name(sight)], ["role:worker"])
            ),
        }
        if self.chance.random() < 0.3:
            wanted["classes"] = self.chance.sample(CLASSES, 2)
        if self.chance.random() < 0.5:
            wanted["ttl_s"] = self.chance.choice((5, 20, 60, 3_600))
        if self.chance.random() < 0.2:
            wanted["projects"] = ["/srv/one", "/srv/two"]
        return wanted

    def _revoke(self, sight: Sight) -> dict[str, Any]:
        if not self.policies or self.chance.random() < 0.25:
            return {"act": "revoke", "all": True}
        newest = self.chance.choice((*self.policies[-2:], self.policies[-1]))
        return {"act": "revoke", "records": [newest]}

    def _clock(self, sight: Sight) -> dict[str, Any]:
        return {"act": "clock"}

    def _rotate(self, sight: Sight) -> dict[str, Any]:
        key = SigningKey.from_seed(_seed(f"owner {self.seed} {len(self._keys)}"))
        self._keys[key_id("owner", key.public)] = key
        return {"act": "rotate", "public_key": key.public.hex()}

    def _letter(self, sight: Sight, no: int) -> dict[str, Any]:
        told: dict[str, Any] = {
            "to": sorted({self._name(sight) for _ in range(self.chance.choice((1, 1, 2)))}),
            "subject": f"subject {no}",
            "body": mark(no) + "the owner's own word",
        }
        return {**told, "origin": "external"} if self.chance.random() < 0.3 else told

    def _name(self, sight: Sight) -> str:
        return "nobody" if self.chance.random() < 0.03 else self.chance.choice(sight.names)

    # -- what it learns -------------------------------------------------------------------------

    def learn(self, op: Op, answer: Return) -> None:
        if op.method in DRAFTS and answer.outcome == "ok":
            self._sign(op, answer.result)
        elif op.method in APPLIES:
            if answer.outcome == "ok":
                self._believe(op, answer.result)
            elif answer.outcome == "unknown" or self.chance.random() < 0.1:
                self.ready.append((self.now + self.chance.choice((0, 1, 5)), op))

    def _believe(self, op: Op, result: Mapping[str, Any]) -> None:
        self.is_enrolled = True
        if not result["duplicate"]:
            self.brought.append(op)
            self.policies += [result["id"]] if result["kind"] == "policy" else []

    def _sign(self, op: Op, draft: Mapping[str, Any]) -> None:
        kind, content = draft["kind"], json.loads(draft["payload"])
        if self.chance.random() < 0.12:
            self._bring(op, forged(kind, content, self._keys, self.chance))
        if kind == "takeover" and self.chance.random() < 0.25:
            content = self._own_words(content)
        self._bring(op, self._signed(kind, content))

    def _own_words(self, content: dict[str, Any]) -> dict[str, Any]:
        """A text that no daemon drafted, which the owner signs all the same."""
        if self.chance.random() < 0.75:
            return {**content, "epoch": max(0, content["epoch"] + self.chance.choice((-1, 1)))}
        return {**content, "destination": {"cli": "shell", "session": "1-1"}}

    def _signed(self, kind: str, content: Mapping[str, Any]) -> dict[str, Any]:
        by = [content["owner"]]
        if kind == "rotate" and content["previous"] in self._keys:
            by.append(content["previous"])
        return wire(kind, content, {one: self._keys[one] for one in by if one in self._keys})

    def _bring(self, op: Op, record: Mapping[str, Any]) -> None:
        is_first = record["kind"] == "rotate" and not self.is_enrolled
        method = "owner.enroll" if is_first else "owner.apply"
        no = op.no if op.method == "owner.compose" else self.next_no()
        brings = Op(no, method, {"record": record}, None)
        copies = 2 if self.chance.random() < 0.1 else 1
        waits = _WAITS if self.is_enrolled else (0,)
        self.ready += [(self.now + self.chance.choice(waits), brings) for _ in range(copies)]


_ACTS: Final = (
    ("takeover", 40),
    ("policy", 50),
    ("revoke", 14),
    ("letter", 10),
    ("show", 14),
    ("clock", 6),
    ("rotate", 4),
)
"""What the owner asks a draft of, with weights."""


def wire(kind: str, content: Mapping[str, Any], keys: Mapping[str, SigningKey]) -> dict[str, Any]:
    """The record as it travels, signed by each of `keys` (by the id that it goes by)."""
    records = [sign(kind, content, key, one) for one, key in keys.items()]
    signatures = {one: text for each in records for one, text in each.signatures.items()}
    return {"kind": kind, "payload": records[0].payload, "signatures": signatures}


def forged(
    kind: str, content: Mapping[str, Any], keys: Mapping[str, SigningKey], chance: random.Random
) -> dict[str, Any]:
    """A record that the owner did not sign so: by a stranger, a former key, or changed since."""
    owner = content["owner"]
    stranger = SigningKey.from_seed(_seed("a stranger"))
    how = chance.choice(("stranger", "own name", "former", "changed"))
    if how == "changed":
        good = wire(kind, content, {owner: keys.get(owner, stranger)})
        later = {**content, "nonce": "f" * 32}
        return {**good, "payload": wire(kind, later, {owner: stranger})["payload"]}
    if how == "former":
        former = next(iter(keys))
        return wire(kind, {**content, "owner": former}, {former: keys[former]})
    if how == "own name":
        own = key_id("owner", stranger.public)
        return wire(kind, {**content, "owner": own}, {own: stranger})
    return wire(kind, content, {owner: stranger})


def _seed(words: str) -> bytes:
    return hashlib.sha256(words.encode()).digest()
