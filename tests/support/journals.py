"""What a contest was: its journals read back as histories of leases, and what they count.

One history of `tests.sim.linear.Step` for each identity. Answers are named as the clients knew
them; what was unknown to the owner is settled from the store, which has a record or has it not.
"""

import json
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

from mbx.core.lease import LeaseState
from tests.sim.image import Audit, Image
from tests.sim.linear import NEVER, UNSEEN, Kind, Seen, Step, by_search
from tests.sim.sequence import by_sequence, displaced_calls
from tests.support.claimant import NAMES

_CLAIMS: Final[Mapping[str, Kind]] = {"identity.claim": "claim", "identity.register": "register"}
_CALLS: Final[Mapping[str, Kind]] = {
    "identity.release": "release",
    "mail.send": "use",
    "mail.inbox": "read",
    "session.whoami": "read",
}
_STATES: Final = {state.name.lower(): state for state in LeaseState}
_ANSWER: Final = ("id", "agent", "before", "after", "acceptance")
"""What each answer to one record says alike."""


@dataclass
class Player:
    """One client of a contest: the process that holds for it, and when it was hurt (ns)."""

    number: int
    slot: int
    pid: int
    cli: str
    names: tuple[str, ...]
    """What its session is called: its conversation (if it has one) and its process."""
    journal: Path
    started: float
    ended: float = NEVER
    """When it was killed, or told that the contest is over."""
    stops: list[tuple[float, float]] = field(default_factory=list)

    @property
    def conversation(self) -> str:
        """Its session as the audit log may name it, the same for all processes of one."""
        return f"{self.cli}/{self.names[0]}"

    @cached_property
    def lines(self) -> list[dict[str, Any]]:
        """What it wrote; nothing if it was killed before it could."""
        return read(self.journal)

    @property
    def arrived(self) -> float:
        """When it first said hello."""
        return next((line["hello"] for line in self.lines if "hello" in line), NEVER)

    def is_stopped(self, at: float) -> bool:
        """Whether it could do nothing then."""
        return any(since <= at < until for since, until in self.stops)


def read(journal: Path) -> list[dict[str, Any]]:
    """The lines of a journal."""
    if not journal.exists():
        return []
    return [json.loads(line) for line in journal.read_bytes().splitlines()]


@dataclass(frozen=True)
class _Call:
    """A call and its return, of the player `no` or (-1) of the owner."""

    no: int
    method: str
    params: Mapping[str, Any]
    outcome: Any
    result: Mapping[str, Any]
    called: float
    returned: float

    @property
    def code(self) -> str | None:
        code: str | None = self.result.get("code")
        return code

    def step(self, kind: Kind, outcome: Any = None, epoch: int = 0, **more: Any) -> Step:
        """A step of it, by its player unless another `session` is named."""
        no = more.pop("session", self.no)
        told = outcome or self.outcome
        return Step(no, kind, told, self.called, self.returned, epoch, **more)


def _calls(no: int, lines: Sequence[Mapping[str, Any]]) -> Iterator[_Call]:
    """Each call with its return; one without is that of a client that was killed."""
    asked: Mapping[str, Any] | None = None
    for line in [*lines, {"back": 0, "outcome": "unknown", "t": NEVER}]:
        if "call" in line:
            asked = line
        elif "back" in line and asked is not None:
            told = line.get("result", {})
            spans = asked["t"], line["t"]
            yield _Call(no, asked["method"], asked["params"], line["outcome"], told, *spans)
            asked = None


class Story:
    """All that was written, and the store that it left."""

    def __init__(self, players: Sequence[Player], owners: Sequence[Path], store: Image) -> None:
        self.players = players
        self.store = store
        self.met: Counter[str] = Counter()
        self.by_pid = {one.pid: one.number for one in players}
        self.identity_of = {
            row.content["name"]: row.identity or "" for row in store.audit if row.act == "register"
        }
        self.steps: dict[str, list[Step]] = {self.identity_of.get(name, name): [] for name in NAMES}
        self._sent_under = {
            message.id: (message.content["from"]["identity"], message.content["lease"]["epoch"])
            for message in store.messages
        }
        self._numbers = {
            (one.cli, one.names[-1]): one.number for one in players
        }  # a conversation's name may be that of several processes
        for one in players:
            self._play(one)
        self.owners = [call for path in owners for call in _calls(-1, read(path))]
        self._settle(self.owners)

    def wrong(self) -> list[str]:
        """What does not fit, by either way; and what was refused and left something."""
        names = {one.number: one.conversation for one in self.players}
        found = by_sequence(self.steps, self._audit(), names)
        for identity, steps in self.steps.items():
            found += [f"{identity}: {what}" for what in by_search(steps)]
        return found + self._other_answers() + self._left_behind()

    def counts(self) -> Counter[str]:
        """How often what came up."""
        calls = {(step.session, step.called) for step, _ in displaced_calls(self.steps)}
        return self.met + Counter({"calls of displaced sessions": len(calls)})

    # -- clients --------------------------------------------------------------------------------

    def _play(self, player: Player) -> None:
        ends = 1
        for line, following in pairwise([*player.lines, {}]):
            if "hello" in line:
                ends += following.get("t", NEVER) > player.ended
                self._arrived(player, line["hello"], following)
        for call in _calls(player.number, player.lines):
            ends += call.returned > player.ended and call.method in _CLAIMS
            self.met["calls"] += 1
            what = call.code or call.method
            self.met["unknown" if call.outcome == "unknown" else f"{call.outcome} {what}"] += 1
            self._told(call)
        for _ in range(ends if player.ended != NEVER else 0):
            # What it asked for last may be granted after its death was noticed, and noticed again.
            self._everywhere(Step(player.number, "lapse", "unknown", player.ended, NEVER))

    def _arrived(self, player: Player, since: float, line: Mapping[str, Any]) -> None:
        """A hello: of a conversation it may have come to something, whatever was told later."""
        told, at = line.get("arrived", {}), line.get("t", NEVER)
        if len(player.names) > 1:
            self._everywhere(Step(player.number, "arrive", "unknown", since, at))
        if told.get("agent"):
            self.met["arrived with an identity"] += 1
            epoch = told["lease"]["epoch"]
            self._at(told["agent"], Step(player.number, "arrive", "ok", since, at, epoch))
        if told.get("pending"):
            self.met["arrived and waits"] += 1
            waits = Step(player.number, "wait", "ok", since, at)
            self._at(told["pending"], waits)
            self._at(
                told["pending"], replace(waits, kind="arrive", outcome="unknown", returned=NEVER)
            )

    def _told(self, call: _Call) -> None:
        """What the answer to one call says of the leases."""
        result, code = call.result, call.code
        if call.method in _CLAIMS:
            name, kind = call.params["name"], _CLAIMS[call.method]
            if code in {None, "name-taken"}:
                self._at(name, call.step(kind, epoch=result.get("epoch", 0)))
            elif code == "in-use":
                holder = result.get("holder")
                seen = self._held(holder) if holder else Seen(None, LeaseState.HELD)
                self._at(name, call.step(kind, seen=seen))
            elif code == "conflict":
                self._at(result["holds"], call.step("use", "ok"))
        elif code == "lease-lost":
            self._lost(call)
        elif code == "no-lease" or (call.method == "identity.release" and code is None):
            self._released(call)
        elif call.method == "mail.send" and code is None and call.outcome == "ok":
            identity, epoch = self._sent_under[result["id"]]
            self.steps[identity].append(call.step("use", epoch=epoch))
        elif call.method == "session.whoami" and call.outcome == "ok":
            self._whoami(call)
        elif call.method == "mail.inbox" and call.outcome == "ok":
            self._everywhere(call.step("read"))

    def _released(self, call: _Call) -> None:
        """A release, or a call that was answered no-lease."""
        if call.outcome == "ok":
            epoch = call.result["epoch"]
            self._at(call.result["released"], call.step("release", epoch=epoch))
        else:
            self._everywhere(call.step(_CALLS[call.method]))

    def _lost(self, call: _Call) -> None:
        """It had something and lost it; of what it is told so, the answer says most."""
        result, kind = call.result, _CALLS[call.method]
        holder = result.get("holder")
        if holder is None:  # asked under one lease, and by the time it was done it had another
            self.met["lease-lost for another"] += 1
            self._everywhere(call.step(kind, "lost", -1))
            return
        identity = self.identity_of[result["identity"]]
        seen = Seen(result["epoch"], None, self._number(holder))
        for other in self.steps:
            lost = call.step(kind, "lost", result["granted_epoch"], seen=seen)
            self.steps[other].append(lost if other == identity else call.step(kind, "refused"))

    def _whoami(self, call: _Call) -> None:
        told = call.result
        if told["agent"]:
            self._at(told["agent"], call.step("use", epoch=told["lease"]["epoch"]))
        else:
            outcome, epoch = ("lost", -1) if told["lost"] else ("refused", 0)
            self._everywhere(call.step("read", outcome, epoch))

    # -- the owner ------------------------------------------------------------------------------

    def _settle(self, calls: Sequence[_Call]) -> None:
        applied = {one.record_id for one in self.store.owner_records}
        brought: dict[str, list[_Call]] = defaultdict(list)
        for call in calls:
            if call.method == "owner.apply":
                brought[call.params["record"]].append(call)
            else:
                self._seen(call)
        for record, some in brought.items():
            unknown = [call for call in some if call.outcome == "unknown"]
            is_settled = record in applied and not any(_acted(call) for call in some)
            for call in some:
                if call.outcome != "unknown":
                    self._taken(call)
                    continue
                words = "it had acted" if record in applied else "it had not acted"
                self.met["takeover unknown"] += 1
                self.met[f"takeover unknown: {words}"] += 1
                if is_settled and len(unknown) == 1:
                    self._takeover(call, "ok", call.params["expects"] + 1)
                elif is_settled:
                    self._takeover(call, "unknown")
            self.met["records brought by two at once"] += _is_at_once(some)

    def _seen(self, call: _Call) -> None:
        """What the owner was shown of who holds what."""
        if call.method == "owner.draft":
            self.met[f"draft {call.code or 'made'}"] += 1
        if call.outcome != "ok":
            return
        if call.method == "identity.list":
            for entry in call.result["identities"]:
                state, holder = _STATES[entry["state"]], entry["holder"]
                seen = self._held(holder) if holder else Seen(None, state)
                self._at(entry["name"], call.step("look", seen=seen))
        elif call.method == "owner.draft":
            content = json.loads(call.result["payload"])
            holder = content["holder"]
            seen = Seen(content["epoch"])
            if holder:
                seen = Seen(content["epoch"], LeaseState.HELD, self._number(holder))
            self._at(content["name"], call.step("look", seen=seen))

    def _taken(self, call: _Call) -> None:
        """A takeover that was answered."""
        result, params = call.result, call.params
        if call.outcome == "ok" and result["duplicate"]:
            self.met["takeover again"] += 1
            self._takeover(call, "again")
        elif call.outcome == "ok":
            before, epoch = self._before(result["before"]), result["after"]["epoch"]
            self.met["takeover ok"] += 1
            self.met[f"takeover of one that is {result['before']['state']}"] += 1
            self._takeover(call, "ok", epoch, before)
            for who, no in (("from", before.holder), ("for", self._to(call))):
                if no is not None and self.players[no].is_stopped(call.called):
                    self.met[f"takeover {who} a stopped process"] += 1
        elif "before" in result:
            self.met["takeover refused: another epoch"] += 1
            self._takeover(call, "stale", seen=self._before(result["before"]))
        elif call.code == "conflict" and "holds" in result:
            self.met["takeover refused: it holds another"] += 1
            self._takeover(call, "refused")
            held = Seen(None, LeaseState.HELD, self._to(call))
            self._at(result["holds"], call.step("look", "ok", seen=held))
        elif call.code == "conflict":
            self.met["takeover refused: it holds it"] += 1
            seen = Seen(params["expects"], LeaseState.HELD, self._to(call))
            self._takeover(call, "refused", seen=seen)
        else:
            self.met[f"takeover refused: {call.code}"] += 1
            self._takeover(call, "refused")

    def _takeover(self, call: _Call, outcome: Any, epoch: int = 0, seen: Seen = UNSEEN) -> None:
        params = call.params
        step = call.step(
            "takeover",
            outcome,
            epoch,
            session=self._to(call),
            expects=params["expects"],
            record=params["record"],
            seen=seen,
        )
        self._at(params["name"], step)

    def _to(self, call: _Call) -> int:
        """The session that a record is for; of a conversation, the process that there was then."""
        meant: Player = self.players[call.params["to"]]
        if call.params["label"] == meant.names[-1]:
            return meant.number
        there = [one for one in self.players if one.slot == meant.slot]
        return [one.number for one in there if one.arrived <= call.returned][-1]

    # -- words ----------------------------------------------------------------------------------

    def _held(self, holder: Mapping[str, Any]) -> Seen:
        return Seen(holder["epoch"], LeaseState.HELD, self.by_pid[holder["pid"]])

    def _before(self, told: Mapping[str, Any]) -> Seen:
        holder = self._number(told["holder"]) if told["holder"] else None
        return Seen(told["epoch"], _STATES[told["state"]], holder)

    def _number(self, holder: Mapping[str, str]) -> int | None:
        """The player of a session, None for that of a conversation."""
        return self._numbers.get((holder["cli"], holder["session"]))

    def _at(self, name: str, step: Step) -> None:
        self.steps[self.identity_of.get(name, name)].append(step)

    def _everywhere(self, step: Step) -> None:
        for steps in self.steps.values():
            steps.append(step)

    def _audit(self) -> list[Audit]:
        """The log with one name for each conversation, whichever process of it is meant."""
        same = {f"{one.cli}/{name}": one.names[0] for one in self.players for name in one.names}

        def named(told: Any) -> Any:
            if not isinstance(told, dict):
                return told
            told = {key: named(value) for key, value in told.items()}
            if "session" in told:
                told["session"] = same[f"{told['cli']}/{told['session']}"]
            return told

        return [replace(row, detail=json.dumps(named(row.content))) for row in self.store.audit]

    # -- beside the leases ----------------------------------------------------------------------

    def _other_answers(self) -> list[str]:
        """A record that is brought again gets its first answer, whoever brings it."""
        first: dict[str, Any] = {}
        found = []
        for call in sorted(self.owners, key=lambda one: one.returned):
            if call.method == "owner.apply" and call.outcome == "ok":
                told = {name: call.result[name] for name in _ANSWER}
                if first.setdefault(call.params["record"], told) != told:
                    found.append(f"record {call.params['record']} was answered in two ways")
        return found

    def _left_behind(self) -> list[str]:
        """A letter is in the store once if it was accepted, and not at all if it was refused."""
        kept = Counter(message.content["body"] for message in self.store.messages)
        found = []
        for one in self.players:
            for call in _calls(one.number, one.lines):
                if call.method != "mail.send":
                    continue
                allowed = {"ok": {1}, "refused": {0}, "unknown": {0, 1}}[call.outcome]
                count = kept.pop(call.params["body"], 0)
                if count not in allowed:
                    found.append(f"a letter that was {call.outcome} is there {count} times: {call}")
        return found + [f"nobody wrote {body!r}" for body in kept]


def _acted(call: _Call) -> bool:
    return call.outcome == "ok" and not call.result["duplicate"]


def _is_at_once(calls: Sequence[_Call]) -> bool:
    """Whether two had one record in hand at a time, and it acted."""
    spans = sorted((call.called, call.returned) for call in calls)
    overlaps = any(one[1] > other[0] for one, other in pairwise(spans))
    return overlaps and any(_acted(call) for call in calls)
