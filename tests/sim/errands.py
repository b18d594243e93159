"""One request after another at a desk, each compared with what the model says of it.

The machine of `tests.sim.machine` decides what is asked; here it is asked, answered, refused or
lost with the daemon, and told to the history that `tests.sim.checker` reads.
"""

import hashlib
from collections import Counter
from dataclasses import dataclass, replace
from typing import Any, Final

from mbx.core.delivery import STAGE_LABELS
from mbx.core.errors import MbxError
from mbx.core.evidence import own_id
from mbx.daemon.dispatch import Work
from mbx.daemon.effects import Granted
from mbx.daemon.gate import Caller
from mbx.daemon.resuming import Wish
from tests.sim.case import mark
from tests.sim.desk import Desk
from tests.sim.disk import Crash, Plan
from tests.sim.history import Call, Return
from tests.sim.model import (
    HELD,
    KEYED,
    LOOKING,
    NOTHING,
    SESSION_METHODS,
    Identity,
    Model,
    Refusal,
    Request,
    Seat,
)
from tests.support.office import conversation, harness, shell, unseen

met: Counter[str] = Counter()
"""How often each rule, answer and crash came up in this process."""

ELSEWHERE: Final = frozenset({"policy-denied"})
"""Refusals of accepted mail that the model says nothing of: how far a text may be passed on."""

_ASKED_KEPT: Final = 6


@dataclass(frozen=True)
class Op:
    """A request and the number that its history knows it by."""

    no: int
    request: Request


class Errands:
    """A desk, the sessions that come to it, and the model of both."""

    def __init__(self) -> None:
        super().__init__()
        self.desk = Desk()
        self.model = Model()
        self.seats = [
            Seat(101, "shell", ""),
            Seat(102, "shell", ""),
            Seat(103, "claude", "talk-1"),
            Seat(104, "opencode", "alpha", shared=True),
            Seat(104, "opencode", "beta", shared=True),
        ]
        self.pids = 104
        self.ops = 0
        self.attempts = 0
        self.keys = 0
        self.late: list[tuple[Op, Work]] = []
        self.asked: list[Op] = []
        """Keyed requests that were answered, or may have been."""

    # -- carrying out ---------------------------------------------------------------------------

    def _do(
        self, seat: Seat, method: str, params: dict[str, Any], *, keyed: bool = False
    ) -> dict[str, Any] | None:
        return self._ask(self._op(seat, method, params, key=self._key(keyed)))

    def _key(self, keyed: bool) -> str | None:
        self.keys += keyed
        return f"key {self.keys}" if keyed else None

    def _op(self, seat: Seat, method: str, params: dict[str, Any], *, key: str | None = None) -> Op:
        self.ops += 1
        if "body" in params:
            params = {**params, "body": mark(self.ops) + f"memo word{_letters(self.ops)}"}
        own_key = key if method in KEYED else None
        return Op(self.ops, Request(seat, method, params, own_key, self._grant(seat)))

    def _grant(self, seat: Seat) -> tuple[int, int]:
        """What the daemon would note of a request that this session makes now."""
        return self.desk.grants.get((_process(seat), _talk(seat)), NOTHING)

    def _work(self, op: Op) -> Work:
        request = op.request
        caller = _caller(request)
        params = {**request.params, **({"key": request.key} if request.key else {})}
        return self.desk.work(caller, request.method, params)

    def _again(self, op: Op) -> None:
        """Repeat a request, by a session that still lives."""
        if op.request.seat.evidence != "dead":
            grant = self._grant(op.request.seat)
            self._ask(replace(op, request=replace(op.request, grant=grant)))

    def _ask(
        self, op: Op, work: Work | None = None, plan: Plan | None = None
    ) -> dict[str, Any] | None:
        """Carry the request out and compare; the result, or None where it was refused or lost."""
        request, desk = op.request, self.desk
        try:
            expected, code = self.model.answer(request), None
        except Refusal as refusal:
            expected, code = {}, refusal.code
        before = self._hash()
        desk.attempt = self.attempts = self.attempts + 1
        desk.effects.clear()
        try:
            answer = desk.outcome(work or self._work(op), plan)
        except MbxError as error:
            self._refused(op, error, code, before)
            return None
        except Crash as crash:
            self._crashed(op, crash, code, before)
            return None
        result = answer.value.result
        assert code is None, f"{request.method} was not refused with {code}: {result}"
        _compare(expected, result)
        repeated = self.model.is_repeat(request)
        met[f"{'repeated' if repeated else 'ok'} {request.method}"] += 1
        self._tell(op, Return(self.attempts, "ok", answer.commit_seq, result))
        if request.method == "identity.claim":
            self._count_displaced(request, result["epoch"])
        was_held = all(one.state == HELD for one in self.model.identities.values() if one.epoch)
        self.model.done(request, result, self._token())
        if was_held and (request.method in LOOKING or repeated):
            assert self._hash() == before, f"{request.method} has changed the store"
        if request.key is not None:
            self.asked = [*self.asked, op][-_ASKED_KEPT:]
        return result

    def _refused(self, op: Op, error: MbxError, code: str | None, before: str) -> None:
        if error.code in ELSEWHERE and code is None:
            code = error.code
        assert error.code == code, f"refused with {error.code}, not {code}: {error}"
        assert self._hash() == before, f"a call refused with {code} has changed the store"
        met[f"refused {code}"] += 1
        self._tell(op, Return(self.attempts, "refused", code=error.code))

    def _count_displaced(self, request: Request, epoch: int) -> None:
        identity = self.model.named(request.params["name"])
        if identity is None or identity.holder is None or identity.epoch == epoch:
            return
        if identity.state == HELD:
            dead = identity.holder.evidence == "dead"
            met["taken from one that is dead" if dead else "taken after silence"] += 1

    def _crashed(self, op: Op, crash: Crash, code: str | None, before: str) -> None:
        """Nobody was answered: all of it happened, or nothing."""
        request = op.request
        met[f"crash {crash.point}"] += 1
        self.desk.connection.lose_power()
        committed = crash.point == "after COMMIT" and code is None
        if crash.point != "after COMMIT":
            assert self._hash() == before, "a crash before COMMIT has changed the store"
        if committed:
            known: dict[str, Any] = {}
            if "body" in request.params:
                newest = self.desk.rows("SELECT id FROM messages ORDER BY no DESC LIMIT 1")
                known["id"] = newest[0][0]
            if request.method in {"identity.claim", "identity.register"}:
                known["epoch"] = self.model.answer(request)["epoch"]
            holder, state = self._state_of(request)
            self.model.done(request, known)
            if state is not None and holder is not None:
                holder.state = state  # what would have revived it was lost with the daemon
        self._tell(op, Return(self.attempts, "unknown"))
        self._reopen(crash.point)
        if request.key is not None:
            self.asked = [*self.asked, op][-_ASKED_KEPT:]

    def _state_of(self, request: Request) -> tuple[Identity | None, str | None]:
        """The lease of a mailbox call and its state, which the call itself leaves as it is."""
        if request.method in SESSION_METHODS:
            return None, None
        own = self.model.admitted(request)
        return own, own.state

    def _reopen(self, point: str) -> None:
        self.late.clear()  # they were in the memory of the daemon that is gone
        waiting = list(self.model.waiting)
        self.desk.reopen(point)
        self.model.restart()
        for seat in waiting:
            if seat.bound is not None:
                self._tell_followed(seat)

    def _arrive(self, seat: Seat) -> None:
        desk = self.desk
        desk.attempt = self.attempts = self.attempts + 1
        desk.effects.clear()
        self.ops += 1
        op = Op(self.ops, Request(seat, "identity.claim", {}))
        caller = _caller(replace(op.request, grant=self._grant(seat)))
        answer = desk.outcome(desk.dispatcher.arrival(caller, Wish()))
        granted = self.model.arrive(seat)
        if granted is not None:
            self.model.grant(granted, seat, self._token())
            met["came back to its own"] += 1
            told = {"agent": granted.name, "epoch": granted.epoch}
            self._tell(op, Return(self.attempts, "ok", answer.commit_seq, told))
        else:
            met["waits"] += seat.waits is not None
            self._tell(op, Return(self.attempts, "refused", code="nothing for it"))

    def _bury(self, seat: Seat) -> None:
        self.desk.effects.clear()
        self.desk.bury(_process(seat), _talk(seat))
        followed = self.model.bury(seat)
        if followed is not None:
            met["followed a dead one"] += 1
            self.model.grant(*followed, self._token())
            self._tell_followed(followed[1])

    def _tell_followed(self, seat: Seat) -> None:
        """Who waited has asked for what it now got, by whatever label it got it."""
        assert seat.bound is not None
        self.ops += 1
        self.attempts += 1
        told = {"agent": self.model.identities[seat.bound[0]].name, "epoch": seat.bound[1]}
        request = Request(seat, "identity.claim", {})
        self._tell(Op(self.ops, request), Return(self.attempts, "ok", 0, told))

    def _token(self) -> str | None:
        granted = [one for one in self.desk.effects if isinstance(one, Granted)]
        return granted[0].token if granted else None

    def _tell(self, op: Op, answer: Return) -> None:
        """One call and its return, for the checker."""
        request = op.request
        under = None
        if request.grant is not None and request.grant != NOTHING and not request.unseen:
            no, epoch = request.grant
            named = self.desk.rows("SELECT identity FROM identities WHERE no = ?", no)
            under = (named[0][0], epoch)
        self.desk.events.append(
            Call(
                self.attempts,
                op.no,
                self._label(request.seat),
                request.method,
                request.params,
                request.key,
                under,
            )
        )
        self.desk.events.append(answer)

    def _label(self, seat: Seat) -> str:
        """As audit rows name the session, which may have been met a moment ago."""
        met_as = self.desk.rows(
            "SELECT session_id FROM sessions WHERE pid = ? AND conversation = ?",
            seat.pid,
            _talk(seat),
        )
        return f"{seat.cli}/{met_as[0][0] if met_as else seat.label or seat.session_id}"

    def _labels(self, seat: Seat) -> list[str]:
        """As audit rows may name it from now on, and nobody else.

        Who waits for a name may be granted it before anybody sees that it is gone: under its own
        id, where another process of its conversation goes by the usual one by then.
        """
        own = f"{seat.cli}/{own_id(_process(seat), _talk(seat))}"
        return list(dict.fromkeys((self._label(seat), own)))

    def _heard(self, seat: Seat) -> None:
        seat.silent_ms = 0
        if self.model.is_holder(seat.bound) and seat.bound is not None:
            self.desk.heard_ms[seat.bound[0]] = self.desk.world.monotonic_ms()

    def _hash(self) -> str:
        return self.desk.state_hash()


def _letters(number: int) -> str:
    return "".join("abcdefghij"[int(digit)] for digit in str(number))


def _talk(seat: Seat) -> str:
    return seat.conversation if seat.shared else ""


def _process(seat: Seat) -> Any:
    return _plain(seat).lineage.process


def _plain(seat: Seat) -> Caller:
    if seat.shared:
        return conversation(seat.pid, seat.conversation, seat.cli)
    return harness(seat.pid, seat.conversation, seat.cli) if seat.conversation else shell(seat.pid)


def _caller(request: Request) -> Caller:
    """Who the daemon takes the other end for."""
    if request.unseen:
        return unseen(request.token)
    caller = _plain(request.seat)
    if request.token is not None:
        caller = caller._replace(token_hash=hashlib.sha256(request.token.encode()).digest())
    no, epoch = request.grant if request.grant is not None else (None, None)
    return caller._replace(granted_epoch=epoch, granted_identity_no=no)


def _compare(expected: dict[str, Any], result: dict[str, Any]) -> None:
    """The answer says what it must, and says it of nothing else."""
    shown = result.get("messages", ())
    told = {
        **result,
        "ids": [entry["id"] for entry in shown],
        "failed_ids": [one["id"] for one in result.get("failed", ())],
        "addresses": [one["address"] for one in result.get("recipients", ())],
        "stages": [STAGE_LABELS.index(one["stage"]) for one in shown if one.get("stage")],
        "copies": {
            one["id"]: {
                copy["address"]: STAGE_LABELS.index(copy["stage"])
                for copy in one.get("recipients", ())
            }
            for one in shown
        },
    }
    assert {name: told.get(name) for name in expected} == expected
