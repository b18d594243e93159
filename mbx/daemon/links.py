"""The links to paired hosts: one for each, run by the machine of `mbx.core.link` over the store.

Nothing is decided here. The machine says what follows from what comes in; this module carries it
out in the order it was said, hands everything that changes the store to the one committer, and lets
a text out only when the transaction that justifies it is synced.
"""

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

from mbx.core import copies
from mbx.core import link as links
from mbx.core.commands import (
    Acknowledged,
    Closed,
    Command,
    Commit,
    Fetch,
    Recall,
    Refused,
    Send,
    Stood,
    Stopped,
    Unfit,
)
from mbx.core.dialing import Dialling, Initiative, initiative, newer_stays
from mbx.core.errors import MbxError
from mbx.core.frames import Hello
from mbx.core.intake import Intake
from mbx.core.limits import STOP_TOLD_MS
from mbx.core.link import Link, Phase
from mbx.core.patience import after_breach, after_call, may_call
from mbx.core.streams import COPIED, STOPS, Kind
from mbx.daemon import relaying, unpairing
from mbx.daemon.context import Answer, Context
from mbx.daemon.dispatch import Dispatcher, Work
from mbx.daemon.linkstate import LinkState, Wire
from mbx.store import outbox
from mbx.store.database import Committed, Outcome, Tx
from mbx.store.peers import PeerRow

REPLACED = "other-link"
"""Code of a link that gave way to another one of the same peer."""
UNPAIRED = "unpaired"
"""Code of a link to a host that is not paired any more."""
TURNED_AWAY = "not-paired"
"""Code of a dial that was answered by the right host, which says that it is not paired with us."""
STOPPING = "stopping"
"""Code of a link whose daemon ends."""
_BREACHES = frozenset({"malformed", "protocol", "wrong-host", *STOPS})
"""Codes of our own `bye` after which the peer may call less often for a while."""
_EARLY_MAX = 2
"""Nobody says more than its hello and its verdict before it has heard ours."""
_FEW_PLACES = 8
"""So many are read on the loop."""
_RETRY_MS = 5_000
"""When a place is offered again that a full disk refused."""


class Timer(Protocol):
    """Something that will be called."""

    def cancel(self) -> None:
        """It will not be."""


CallLater = Callable[[float, Callable[[], None]], Timer]
"""Have something called in so many seconds."""


def by_the_loop(delay_s: float, act: Callable[[], None]) -> Timer:
    """Timers of the running loop."""
    return asyncio.get_running_loop().call_later(delay_s, act)


@dataclass(slots=True)
class _Connection:
    """A connection with its machine, which comes to be when the store was read."""

    wire: Wire
    is_ours: bool
    link: Link | None = None
    intake: Intake = field(default_factory=Intake)
    early: list[str | bytes] = field(default_factory=list)
    """What came before there was a machine to hear it: a hello, and a word or two after it."""


@dataclass(slots=True)
class _Peer:
    """One paired host."""

    row: PeerRow
    dialling: Dialling
    connection: _Connection | None = None
    offered_seq: int = 0
    """Up to here our stream counts as offered, as far as was seen: it never falls."""
    is_asking: bool = False
    """A unit is under way that looks how far our stream goes."""
    code: str | None = None
    refused: str | None = None
    """Why it takes nothing for now, until it has acknowledged a place or its link ends."""
    refused_ms: int | None = None
    timer: Timer | None = None
    credit_due_ms: int = 0
    """When it may call as often as at first (`mbx.core.patience`)."""
    stops_told: dict[str, int] = field(default_factory=dict)
    """Kind of a stop -> when the owner was told of it last (monotonic ms)."""


Submit = Callable[[Work, Callable[[Outcome[Answer]], None]], None]
"""Hand a unit of work to the committer; its effects are let out, then the callback is called."""

Dial = Callable[[PeerRow], None]
"""Try to reach a peer; the outcome comes to `Links.connected` or `Links.unreachable`."""


class Links:
    """All links of this host.

    `dial` begins a try, which ends in `connected` or `unreachable`. `log` takes a sentence and
    fields. `call_later`: by the running loop unless told.
    """

    def __init__(
        self,
        dispatcher: Dispatcher,
        submit: Submit,
        dial: Dial,
        log: Callable[..., None],
        call_later: CallLater | None = None,
    ) -> None:
        self._dispatcher = dispatcher
        self._store_id = ""
        self._submit = submit
        self._dial = dial
        self._log = log
        self._call_later = call_later or by_the_loop
        self._peers: dict[int, _Peer] = {}
        self._is_closed = False

    # -- who is paired ---------------------------------------------------------------------------

    @property
    def is_wanted(self) -> bool:
        """Whether there is anybody to have a link with."""
        return bool(self._peers)

    def know(self, rows: Iterable[PeerRow], store_id: str) -> None:
        """These are the pairings that stand now: ends links of others, begins with new ones.

        `store_id` names our own store, as hellos tell it.
        """
        self._store_id = store_id
        present = {row.no: row for row in rows}
        for no in [no for no in self._peers if no not in present]:
            peer = self._peers.pop(no)
            self._part(peer, UNPAIRED)
            self._set_timer(peer)
        for no, row in present.items():
            known = self._peers.get(no)
            what = self._initiative(row)
            if known is None:
                is_first = row.seen_ms is None
                begun = Dialling.begin(what, self._now_ms(), is_first=is_first)
                known = self._peers[no] = _Peer(row, begun)
            elif (known.row.dialled_at, known.row.version) != (row.dialled_at, row.version):
                known.dialling = known.dialling.knowing(what, self._now_ms())
            known.row = row
            self._set_timer(known)

    def state(self, peer_no: int) -> LinkState | None:
        """How the link to a peer is, None for who is not paired."""
        peer = self._peers.get(peer_no)
        if peer is None:
            return None
        dialling, one = peer.dialling, peer.connection
        return LinkState(
            dialling.stood_ms is not None,
            dialling.stood_ms,
            dialling.due_ms,
            dialling.failures,
            peer.code,
            one.wire.round_trip if one is not None else None,
            peer.refused,
            peer.refused_ms,
            one is not None and one.wire.run is not None,
            dialling.is_trying,
        )

    def measure(self, peer_no: int) -> None:
        """Ask a peer how long an answer takes; where nothing connects us, try for a link now."""
        peer = self._peers.get(peer_no)
        if peer is not None and peer.connection is not None:
            peer.connection.wire.measure()
        else:
            self.wake(peer_no)

    def wake(self, peer_no: int | None = None) -> None:
        """A sign that a try may succeed now, for one peer or for all."""
        for no, peer in self._peers.items():
            if peer_no in (None, no):
                peer.dialling = peer.dialling.woken(self._now_ms())
                self._set_timer(peer)

    def paired(self, key_id: str) -> None:
        """The other side of a pairing has recorded it too: a try can succeed from now on."""
        peer = self._called(key_id)
        if peer is not None:
            peer.dialling = peer.dialling.paired(self._now_ms())
            self._set_timer(peer)

    def queued(self, peer_nos: Iterable[int]) -> None:
        """Something was given a place in the streams to these peers."""
        for no in peer_nos:
            peer = self._peers.get(no)
            if peer is None:
                continue
            if peer.connection is not None:
                self._look(peer)
            if peer.dialling.stood_ms is None:
                self.wake(no)  # also while a connection begins, which may come to nothing

    # -- connections -----------------------------------------------------------------------------

    def admits(self, key_id: str) -> bool:
        """Whether the host with this key id may call now; each that may is a call."""
        peer, now_ms = self._called(key_id), self._now_ms()
        if peer is None or not may_call(peer.credit_due_ms, now_ms):
            return False
        peer.credit_due_ms = after_call(peer.credit_due_ms, now_ms)
        return True

    def connected(self, key_id: str, wire: Wire, *, is_ours: bool) -> object | None:
        """A connection whose other end has proved to be this host; what `heard` is to be given.

        None when it is not wanted: not paired any more, or the other one stays.
        """
        peer = self._called(key_id)
        if peer is None or self._is_closed:
            wire.close()
            return None
        older = peer.connection
        if older is not None:
            self._ask_both(peer, older.wire, wire)
        if older is not None and is_ours and not peer.dialling.is_trying:
            wire.close()  # a try of ours that was still under way when the other one stood
            return None
        if older is not None:
            own = self._dispatcher.host.key_id
            if not newer_stays(own, key_id, older_is_ours=older.is_ours, newer_is_ours=is_ours):
                older.wire.ping()
                wire.close()
                return None
            self._part(peer, REPLACED)
        peer.connection = made = _Connection(wire, is_ours)
        self._begin(peer, made)
        return made

    def unreachable(self, peer_no: int, code: str) -> None:
        """The try that `dial` began gave no connection."""
        peer = self._peers.get(peer_no)
        if peer is not None:
            self._failed(peer, code)

    def heard(self, connection: object, text: str | bytes) -> None:
        """The other end of a connection sent a message."""
        found = self._of(connection)
        if found is None:
            return
        peer, one = found
        if one.link is not None:
            self._carry_out(peer, one, one.link.receive(text, self._now_ms()))
        elif len(one.early) < _EARLY_MAX:
            one.early.append(text)
        else:
            self._carry_out(peer, one, [Closed("protocol", reason="texts before our hello")])

    def gone(self, connection: object) -> None:
        """A connection has ended."""
        found = self._of(connection)
        if found is not None:
            peer, one = found
            commands = one.link.lost() if one.link is not None else [Closed(links.LOST)]
            self._carry_out(peer, one, commands)

    def close(self) -> None:
        """Say bye to everybody; nothing begins any more."""
        self._is_closed = True
        for peer in self._peers.values():
            self._part(peer, STOPPING)
            if peer.timer is not None:
                peer.timer.cancel()
                peer.timer = None

    # -- one connection --------------------------------------------------------------------------

    def _ask_both(self, peer: _Peer, *wires: Wire) -> None:
        """Two connections of one host: where they are of two runs, ask whether both live."""
        if not copies.are_two_runs(*(wire.run for wire in wires)):
            return
        meeting = copies.Meeting()

        def answered(run: str) -> None:
            nonlocal meeting
            meeting = meeting.answer(run)
            if meeting.proves_a_copy and peer.row.no in self._peers and not self._is_closed:
                self._tell(peer, "two copies of a peer are there at once")
                self._stopped(peer, COPIED, is_ours=True)
                self._part(peer, COPIED)

        for wire in wires:
            wire.question(partial(answered, wire.run or ""))

    def _begin(self, peer: _Peer, one: _Connection) -> None:
        """Read how our streams stand, behind all that was handed to the committer before."""

        def unit(tx: Tx) -> Answer:
            return Answer({"stream": outbox.stream(tx, peer.row.no)})

        def greet(outcome: Outcome[Answer]) -> None:
            if peer.connection is not one:
                return
            if not isinstance(outcome, Committed):
                self._carry_out(peer, one, [Closed("store")])
                return
            state: outbox.StreamRow = outcome.value.result["stream"]
            ours = Hello(self._dispatcher.host.key_id, self._store_id, state.both)
            is_copied, now_ms = state.stopped == COPIED, self._now_ms()
            one.link, commands = links.open_link(
                ours, peer.row.key_id, state.in_store, now_ms, is_copied=is_copied
            )
            self._carry_out(peer, one, commands)
            for text in one.early:
                self._carry_out(peer, one, one.link.receive(text, self._now_ms()))
            one.early.clear()

        self._submit(Work(unit, writes=True), greet)

    def _carry_out(self, peer: _Peer, one: _Connection, commands: Iterable[Command]) -> None:
        for command in commands:
            match command:
                case Send(text):
                    one.wire.send(text)
                case Recall(seq):
                    self._recall(peer, one, seq)
                case Stood(store, stream):
                    self._stood(peer, one, store, stream)
                case Fetch():
                    self._fetch(peer, one, command)
                case Commit():
                    self._commit(peer, one, command)
                case Acknowledged(upto):
                    peer.refused = peer.refused_ms = None
                    self._keep(peer, partial(relaying.acknowledged, upto=upto))
                case Refused(seq, code, _):
                    peer.refused = code
                    peer.refused_ms = peer.refused_ms or self._now_ms()
                    self._tell(peer, "a place was refused for now", seq=seq, code=code)
                case Unfit(seq, size_bytes):
                    self._keep(peer, partial(relaying.unfit, seq=seq))
                    self._tell(peer, "a record fits into no frame", bytes=size_bytes)
                case Stopped(verdict, by_peer):
                    self._stopped(peer, verdict.kind, is_ours=not by_peer)
                case Closed(code, by_peer, reason):
                    self._closed(peer, one, code, by_peer=by_peer, reason=reason)
        self._set_timer(peer)

    def _keep(self, peer: _Peer, act: Callable[[Context, Tx, int], Answer]) -> None:
        """Something that the store is to know, and nobody waits for; a full disk only delays it."""
        context, no = self._dispatcher.context(), peer.row.no

        def settle(outcome: Outcome[Answer]) -> None:
            if isinstance(outcome, Committed):
                return
            if _is_passing(outcome.error) and no in self._peers and not self._is_closed:
                self._call_later(_RETRY_MS / 1000, lambda: self._keep(peer, act))
            else:
                self._tell(peer, "a link could not be recorded", why=_words(outcome.error))

        self._submit(Work(lambda tx: act(context, tx, no), writes=True), settle)

    def _stopped(self, peer: _Peer, kind: Kind, *, is_ours: bool) -> None:
        told_ms, now_ms = peer.stops_told.get(kind), self._now_ms()
        is_told = told_ms is not None and now_ms - told_ms < STOP_TOLD_MS
        if not is_told:
            peer.stops_told[kind] = now_ms
        self._keep(peer, partial(relaying.stopped, kind=kind, is_ours=is_ours, is_told=is_told))

    def _tell(self, peer: _Peer, what: str, **facts: object) -> None:
        self._log(what, peer=peer.row.label, **facts)

    def _recall(self, peer: _Peer, one: _Connection, seq: int) -> None:
        def unit(tx: Tx) -> Answer:
            return Answer({"head": outbox.head_at(tx, peer.row.no, seq)})

        def settle(outcome: Outcome[Answer]) -> None:
            if one.link is not None and isinstance(outcome, Committed):
                head = outcome.value.result["head"]
                self._carry_out(peer, one, one.link.recalled(seq, head, self._now_ms()))

        self._submit(Work(unit, writes=False), settle)

    def _stood(self, peer: _Peer, one: _Connection, store: str, stream: str) -> None:
        peer.dialling = peer.dialling.stood(self._now_ms())
        peer.code = None
        self._keep(peer, partial(relaying.stood, store=store, stream=stream))
        self._tell(peer, "a link stands", dialled="here" if one.is_ours else "there")
        self._look(peer)

    def _fetch(self, peer: _Peer, one: _Connection, wanted: Fetch) -> None:
        """What was offered with its send is only read: no commit stands before it leaves."""
        own_key, no, offered_seq = self._dispatcher.host.key_id, peer.row.no, peer.offered_seq
        is_new = wanted.after_seq >= offered_seq

        def unit(tx: Tx) -> Answer:
            if is_new:
                return Answer({"places": relaying.offered(tx, no, own_key, wanted)})
            return Answer({"places": relaying.offered_before(tx, no, own_key, wanted, offered_seq)})

        def settle(outcome: Outcome[Answer]) -> None:
            if one.link is None:
                return
            if isinstance(outcome, Committed):
                found = outcome.value.result["places"]
                commands = one.link.fetched(wanted.after_seq, found, self._now_ms())
            else:
                commands = one.link.close("store")
            self._carry_out(peer, one, commands)

        is_brief = offered_seq - wanted.after_seq <= _FEW_PLACES
        self._submit(Work(unit, writes=is_new, brief=is_brief), settle)

    def _commit(self, peer: _Peer, one: _Connection, wanted: Commit) -> None:
        one.intake.add(wanted)
        self._commit_next(peer, one)

    def _commit_next(self, peer: _Peer, one: _Connection) -> None:
        """Hand the next piece to the store, unless one is there."""
        piece, context = one.intake.take(), self._dispatcher.context()
        if piece is None:
            return

        def unit(tx: Tx) -> Answer:
            no, stream = peer.row.no, piece.stream
            return relaying.accept(context, tx, no, stream, piece.first_seq, piece.places)

        def settle(outcome: Outcome[Answer]) -> None:
            one.intake.settled()
            if one.link is None or one.link.phase is Phase.CLOSED:
                return
            if isinstance(outcome, Committed):
                commands = one.link.committed(piece.first_seq + len(piece.places) - 1)
            elif _is_passing(outcome.error):
                one.intake.drop()
                commands = one.link.defer(piece.first_seq, _words(outcome.error), _RETRY_MS)
            else:
                self._tell(peer, "what a peer sent was not taken", why=_words(outcome.error))
                commands = one.link.close("refused")
            self._carry_out(peer, one, commands)
            self._commit_next(peer, one)

        self._submit(Work(unit, writes=True), settle)

    def _look(self, peer: _Peer) -> None:
        """Tell the machine how far our stream goes now; one look at a time is enough."""
        if peer.connection is None or peer.is_asking:
            return
        peer.is_asking = True

        def unit(tx: Tx) -> Answer:
            state = outbox.stream(tx, peer.row.no)
            return Answer({"seq": state.out_seq, "offered": state.offered_seq})

        def settle(outcome: Outcome[Answer]) -> None:
            peer.is_asking = False
            one = peer.connection
            if one is not None and one.link is not None and isinstance(outcome, Committed):
                seq = outcome.value.result["seq"]
                peer.offered_seq = max(peer.offered_seq, outcome.value.result["offered"])
                self._carry_out(peer, one, one.link.offer(seq, self._now_ms()))

        self._submit(Work(unit, writes=False, brief=True), settle)

    def _part(self, peer: _Peer, code: str) -> None:
        """Say bye on the connection there is, if any."""
        one = peer.connection
        if one is not None:
            commands = one.link.close(code) if one.link is not None else [Closed(code)]
            self._carry_out(peer, one, commands)

    def _closed(
        self, peer: _Peer, one: _Connection, code: str, *, by_peer: bool, reason: str
    ) -> None:
        one.wire.close()
        one.intake.drop()
        if peer.connection is not one:
            return
        peer.connection = peer.refused = peer.refused_ms = None
        if code in _BREACHES and not by_peer:
            peer.credit_due_ms = after_breach(peer.credit_due_ms, self._now_ms())
        stood = peer.dialling.stood_ms is not None
        chance, now_ms = self._dispatcher.world.random_bytes(8), self._now_ms()
        if stood:
            peer.dialling = peer.dialling.ended(code, now_ms, chance)
            self._keep(peer, relaying.left)
        else:
            peer.dialling = peer.dialling.failed(code, now_ms, chance)
        if by_peer and code == UNPAIRED:
            self._keep(peer, unpairing.dismissed)
        if stood or peer.code != code:
            told = {"reason": reason} if reason else {}
            who = "there" if by_peer else "here"
            self._tell(peer, "a link ended", code=code, by=who, **told)
        peer.code = code

    def _failed(self, peer: _Peer, code: str) -> None:
        chance = self._dispatcher.world.random_bytes(8)
        if peer.code != code and peer.connection is None:
            self._tell(peer, "a peer could not be reached", code=code)
        if peer.connection is None:
            peer.code = code
            if code == TURNED_AWAY:
                self._keep(peer, unpairing.turned_away)
        peer.dialling = peer.dialling.failed(code, self._now_ms(), chance)
        self._set_timer(peer)

    # -- time ------------------------------------------------------------------------------------

    def _now_ms(self) -> int:
        return self._dispatcher.world.monotonic_ms()

    def _initiative(self, row: PeerRow) -> Initiative:
        own = self._dispatcher.host.key_id
        return initiative(own, row.key_id, we_can=bool(row.dialled_at), they_can=None)

    def _set_timer(self, peer: _Peer) -> None:
        if peer.timer is not None:
            peer.timer.cancel()
            peer.timer = None
        due = [ms for ms in (peer.dialling.due_ms, _deadline(peer)) if ms is not None]
        if due and not self._is_closed and peer.row.no in self._peers:
            delay_s = max(0, min(due) - self._now_ms()) / 1000
            peer.timer = self._call_later(delay_s, lambda: self._ring(peer))

    def _ring(self, peer: _Peer) -> None:
        peer.timer = None
        now_ms, one = self._now_ms(), peer.connection
        if one is not None and one.link is not None:
            self._carry_out(peer, one, one.link.tick(now_ms))
        due_ms = peer.dialling.due_ms
        if due_ms is not None and now_ms >= due_ms:
            peer.dialling = peer.dialling.trying(now_ms)
            self._dial(peer.row)
        self._set_timer(peer)

    def _called(self, key_id: str) -> _Peer | None:
        return next((one for one in self._peers.values() if one.row.key_id == key_id), None)

    def _of(self, connection: object) -> tuple[_Peer, _Connection] | None:
        for peer in self._peers.values():
            if peer.connection is connection and peer.connection is not None:
                return peer, peer.connection
        return None


def _deadline(peer: _Peer) -> int | None:
    one = peer.connection
    return one.link.deadline() if one is not None and one.link is not None else None


def _is_passing(error: Exception) -> bool:
    return isinstance(error, MbxError) and error.code in ("disk-full", "queue-full")


def _words(error: Exception) -> str:
    return error.code if isinstance(error, MbxError) else type(error).__name__
