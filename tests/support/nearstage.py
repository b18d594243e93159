"""The stage of a rogue in this process: real store, real links, real rules, a clock turned by hand.

For many short sequences; the moves and what must hold after them are those of the real stage.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from mbx.core.errors import MbxError
from mbx.daemon import bouncing
from mbx.daemon.context import Answer
from mbx.daemon.dispatch import Work
from mbx.daemon.effects import HandBack, Paired, Queued, Unwelcome
from mbx.daemon.gate import Caller
from mbx.daemon.links import Links
from mbx.store import outbox, peers
from mbx.store.database import Committed, Outcome, Refused, Tx
from tests.support.byzantine import HONEST, LABEL, Stage, new_peer, plant_retired, stream_to
from tests.support.muteends import MuteEnd
from tests.support.office import nobody
from tests.support.owner import Owner, an_owner
from tests.support.paired import PairedDesk, desk
from tests.support.rogue import Rogue, Turned


@dataclass(eq=False)
class NearWire:
    """A connection within this process; the host's texts lie in a list until they are read."""

    links: Links
    connection: object | None = None
    out: list[str] = field(default_factory=list)
    is_closed: bool = False

    def close(self) -> None:
        """Either side hangs up."""
        if not self.is_closed:
            self.is_closed = True
            if self.connection is not None:
                self.links.gone(self.connection)


class RogueEnd:
    """The rogue's end of it."""

    def __init__(self, wire: NearWire) -> None:
        self._wire = wire

    def send(self, text: str) -> None:
        """Heard at once, unless the host has hung up."""
        if not self._wire.is_closed:
            self._wire.links.heard(self._wire.connection, text)

    def read(self) -> str | None:
        """AssertionError where nothing will ever come."""
        if self._wire.out:
            return self._wire.out.pop(0)
        assert self._wire.is_closed, "the host says nothing"
        return None

    def close(self) -> None:
        self._wire.out.clear()
        self._wire.close()


class _HostEnd(MuteEnd):
    """The host's end."""

    def __init__(self, wire: NearWire) -> None:
        self._wire = wire

    def send(self, text: str) -> None:
        self._wire.out.append(text)

    def close(self) -> None:
        self._wire.close()


class _Off:
    def __init__(self, timers: dict[object, tuple[int, Callable[[], None]]], what: object) -> None:
        self._timers, self._what = timers, what

    def cancel(self) -> None:
        """It will not be called."""
        self._timers.pop(self._what, None)


class NearStage(Stage):
    """A host in this process, with an owner who has given rights to nobody but hal."""

    def __init__(self, labels: Sequence[str]) -> None:
        self.desk: PairedDesk = desk("desk")
        super().__init__(self.desk.host.key_id, self.desk.host.signer.public)
        self.callers: dict[str, Caller] = {"": nobody()}
        for number, name in enumerate(("ana", "ben")):
            self.callers[name] = self.desk.holder(name, 100 + number)
        self.owner: Owner = an_owner(self.desk)
        self.log: list[str] = []
        self.held: list[tuple[Work, Callable[[Outcome[Answer]], None]]] | None = None
        """What waits for the store; None: nothing ever does."""
        self._timers: dict[object, tuple[int, Callable[[], None]]] = {}
        self._tls = {label: b"certificate of " + label.encode() for label in (*labels, HONEST)}
        self.desk.do(self._pair)
        self.links = Links(
            self.desk.dispatcher,
            self._submit,
            lambda row: self.links.unreachable(row.no, "unreachable"),
            lambda what, **facts: self.log.append(what),
            self._call_later,
        )
        self._look()
        self.set_scene()
        self.owner.do("policy", to=["ana"], level="collaborate", **{"from": ["local"]})

    def _pair(self, tx: Tx) -> None:
        plant_retired(tx)
        for label, certificate in self._tls.items():
            no = peers.add(tx, new_peer(self.rogue(label), certificate), 1)
            outbox.begin(tx, no, stream_to(label))
            self.desk.peer_nos[label] = no

    def call(self, who: str, method: str, **params: object) -> dict[str, Any]:
        [outcome] = self.ask(who, method, **params)
        if isinstance(outcome, Refused):
            raise outcome.error
        return dict(outcome.value.result)

    def dial(self, rogue: Rogue) -> RogueEnd:
        if not self.links.admits(rogue.key_id):
            self.refused_calls += 1
            raise Turned(503)
        wire = NearWire(self.links)
        wire.connection = self.links.connected(rogue.key_id, _HostEnd(wire), is_ours=False)
        return RogueEnd(wire)

    def log_bytes(self) -> int:
        return 0  # what is folded, the journal's own tests say

    def owners_mail(self) -> list[str]:
        found = self.desk.rows(
            "SELECT m.subject FROM messages AS m JOIN deliveries AS d ON d.message_no = m.no"
            " JOIN identities AS i ON i.no = d.recipient_no WHERE i.name = 'owner'"
            " AND i.peer_no IS NULL ORDER BY m.no"
        )
        return [str(row[0]) for row in found]

    def pardon(self, rogue: Rogue) -> None:
        self.desk.do(lambda tx: outbox.release(tx, self.desk.peer_nos[rogue.label]))

    def pass_ms(self, ms: int) -> None:
        """Time passes, and what was to happen in it does."""
        self.desk.world.pass_ms(ms)
        now_ms = self.desk.world.monotonic_ms()
        for what, (due_ms, act) in list(self._timers.items()):
            if due_ms <= now_ms and self._timers.pop(what, None) is not None:
                act()

    def close(self) -> None:
        """The end."""
        self.links.close()
        self.desk.close()

    def _call_later(self, delay_s: float, act: Callable[[], None]) -> _Off:
        what = object()
        due_ms = self.desk.world.monotonic_ms() + int(delay_s * 1000)
        self._timers[what] = (due_ms, act)
        return _Off(self._timers, what)

    def _look(self) -> None:
        self.links.know(self.desk.do(peers.present), "s" * 26)

    def ask(self, who: str, method: str, **params: object) -> list[Outcome[Answer]]:
        """A call that may have to wait: its outcome is in the list once it is there."""
        outcomes: list[Outcome[Answer]] = []
        self._submit(self.desk.work(self.callers[who], method, params), outcomes.append)
        return outcomes

    def step(self) -> None:
        """The store does what has waited longest."""
        assert self.held
        self._do(*self.held.pop(0))

    def look(self) -> None:
        """The links learn who is paired now."""
        self._look()

    def _submit(self, work: Work, done: Callable[[Outcome[Answer]], None]) -> None:
        if self.held is None:
            self._do(work, done)
        else:
            self.held.append((work, done))

    def _do(self, work: Work, done: Callable[[Outcome[Answer]], None]) -> None:
        try:
            answer = self.desk.carry_out(work)
        except (MbxError, AssertionError) as refusal:
            if not isinstance(refusal, MbxError):
                raise
            done(Refused(refusal))
            return
        for effect in answer.effects:
            match effect:
                case Queued():
                    self.links.queued(effect.peers)
                case Paired():
                    self._look()
                case HandBack():
                    self._hand_back(effect)
                case Unwelcome():
                    self.log.append(f"{effect.peer} refuses a record: {effect.code}")
        done(Committed(answer, 0))

    def _hand_back(self, left: HandBack) -> None:
        context = self.desk.dispatcher.context()
        work = Work(lambda tx: bouncing.continued(context, tx, left), writes=True)
        self._submit(work, lambda outcome: None)


@pytest.fixture(name="stage")
def near_stage_of_test() -> Iterator[NearStage]:
    """A host in this process, and one rogue that is paired with it: `LABEL`."""
    stage = NearStage([LABEL])
    yield stage
    stage.honest.hang_up()
    stage.close()
