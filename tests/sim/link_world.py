"""Two hosts, their stores, and the pipes between them: the outside of `mbx.core.link`.

A host's store is what survives its death. What the machine asks of the store waits in a queue and
is done one by one, as by a daemon; a death forgets what waits, and may come between a commit and
its answer. A pipe carries texts in order, until somebody cuts it; a bad one loses or doubles some.
"""

import random
import re
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Final

from mbx.core import copies
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
from mbx.core.copies import Parting
from mbx.core.dialing import Dialling, Initiative, newer_stays
from mbx.core.frames import Bye, Hello, Place, Withdrawal, encode
from mbx.core.keys import crockford
from mbx.core.link import LOST, Link, Phase, open_link
from mbx.core.record import Record
from mbx.core.streams import COPIED, EMPTY_HEAD, Incoming, Outgoing, StreamState, extended
from tests.sim import link_history as history
from tests.sim.link_history import Event
from tests.support.frames import HOSTS, STORES

PING_DEATH_MS: Final = 60_000
"""After so long at the latest an end notices by itself that its connection is dead."""


@dataclass
class Store:
    """What one host has committed."""

    no: int
    out_id: str
    out: list[Place] = field(default_factory=list)
    digests: list[bytes] = field(default_factory=list)
    heads: list[bytes] = field(default_factory=lambda: [EMPTY_HEAD])
    offered: int = 0
    acked: int = 0
    in_id: str | None = None
    received: list[bytes] = field(default_factory=list)
    in_head: bytes = EMPTY_HEAD
    known_store: str | None = None
    parting: Parting | None = None
    """How a link was stopped last."""

    @property
    def is_copied(self) -> bool:
        """Whether the peer is known to run twice."""
        return self.parting is not None and self.parting.kind == COPIED

    def hello(self) -> Hello:
        """What it says of itself now."""
        out = Outgoing(self.out_id, len(self.out), self.heads[-1], self.acked)
        into = Incoming(self.in_id, len(self.received), self.in_head)
        return Hello(HOSTS[self.no], STORES[self.no], StreamState(out, into))

    def copy(self) -> "Store":
        """A backup."""
        return replace(
            self,
            out=list(self.out),
            digests=list(self.digests),
            heads=list(self.heads),
            received=list(self.received),
        )

    def withdrawn(self) -> frozenset[int]:
        """The places without record."""
        return frozenset(
            seq for seq, place in enumerate(self.out, 1) if isinstance(place, Withdrawal)
        )

    def left(self) -> history.Left:
        """For the checker."""
        return history.Left(
            tuple(self.digests), self.heads[-1], self.acked, tuple(self.received), self.in_head
        )


def is_sound(sender: Store, receiver: Store) -> bool:
    """Whether an onlooker would let this direction go on."""
    have = receiver.received
    if receiver.in_id not in (None, sender.out_id):
        return False
    return sender.acked <= len(have) and sender.digests[: len(have)] == have


class Pipe:
    """One connection. Each end has a queue of what is on the way to it."""

    def __init__(self, no: int, dialler: int) -> None:
        self.no = no
        self.dialler = dialler
        self.queues: tuple[deque[str], deque[str]] = (deque(), deque())
        self.is_new = [True, True]
        """Whether the end has not made a link of it yet, nor given it up."""
        self.is_left = [False, False]
        """Whether the end is done with it."""
        self.lost_ms: list[int | None] = [None, None]
        """When the end will notice that the other is gone, once it has read what is on the way."""
        self.is_cut = False

    def push(self, sender: int, text: str) -> None:
        """A text leaves one end; a dead pipe swallows it."""
        if not self.is_cut and not self.is_left[1 - sender]:
            self.queues[1 - sender].append(text)

    def cut(self, now_ms: int, notice_ms: tuple[int, int], kept: tuple[int, int]) -> None:
        """The line breaks at a frame boundary: so many texts still arrive at each end."""
        self.is_cut = True
        for end in (0, 1):
            while len(self.queues[end]) > kept[end]:
                self.queues[end].pop()
            self.lost_ms[end] = now_ms + notice_ms[end]

    def leave(self, end: int) -> None:
        """This end is done with it, and reads no more."""
        self.is_new[end] = False
        self.is_left[end] = True
        self.lost_ms[end] = None
        self.queues[end].clear()

    def is_over(self) -> bool:
        """Whether nothing comes of it any more."""
        return all(self.is_left)


_PUT: Final = re.compile(r'\{"type":"put","seq":(\d+),"(records|id)"')
_OTHER: Final = re.compile(r'\{"type":"([a-z]+)"(?:,"(?:upto|seq)":(\d+))?')


def summary(text: str) -> tuple[str, int, int]:
    """Sort, first and last place of one of our own texts, without reading all of it."""
    if (put := _PUT.match(text)) is not None:
        count = 1 if put[2] == "id" else text.count(',"signatures":{')
        return "put", int(put[1]), int(put[1]) + count - 1
    other = _OTHER.match(text)
    assert other is not None
    place = int(other[2] or 0)
    return other[1], place, place


@dataclass
class Wire:
    """What the two hosts share: the clock, chance, the pipes, and the history that is told."""

    chance: random.Random
    now_ms: int = 0
    pipes: list[Pipe] = field(default_factory=list)
    made: int = 0
    events: list[Event] = field(default_factory=list)
    met: Counter[str] = field(default_factory=Counter)


class Host:
    """One daemon: a store, the machine of its one link, and what waits to be done."""

    def __init__(self, wire: Wire, no: int, initiative: Initiative) -> None:
        self.wire = wire
        self.no = no
        self.initiative = initiative
        self.store = Store(no, crockford(wire.chance.randbytes(16)))
        self.is_full = False
        self.start()

    def start(self) -> None:
        """The daemon comes up with what is in its store."""
        self.is_up = True
        self.link: Link | None = None
        self.pipe: Pipe | None = None
        self.tasks: deque[Callable[[], None]] = deque()
        self.dialling = Dialling.begin(self.initiative, self.wire.now_ms)
        self.most_held = [0] * 5

    # -- the store ---------------------------------------------------------------------------------

    def write(self, record: Record) -> None:
        """A send is committed here; the link hears of it."""
        store = self.store
        store.out.append(record)
        store.digests.append(record.digest)
        store.heads.append(extended(store.heads[-1], record.digest))
        self._tell(history.Written(self.no, len(store.out), record.digest))
        if self.link is not None:
            self.perform(self.link.offer(len(store.out), self.wire.now_ms))

    def withdraw(self, seq: int) -> None:
        """A place that was never offered is given up; it keeps its digest."""
        assert seq > self.store.offered
        self.store.out[seq - 1] = Withdrawal(self.store.digests[seq - 1])
        self._tell(history.Withdrew(self.no, seq))

    def _fetch(self, link: Link, asked: Fetch) -> None:
        store, size = self.store, 0
        found: list[Place] = []
        for place in store.out[asked.after_seq : asked.after_seq + asked.places_max]:
            size += len(place.payload) if isinstance(place, Record) else 0
            if found and size > asked.bytes_max:
                break
            found.append(place)
        store.offered = max(store.offered, asked.after_seq + len(found))
        self.answer(link, lambda: link.fetched(asked.after_seq, found, self.wire.now_ms))

    def _commit(self, link: Link, link_no: int, asked: Commit) -> None:
        store, chance = self.store, self.wire.chance
        last = asked.first_seq + len(asked.places) - 1
        if asked.stream != store.in_id and store.in_id is not None:
            return
        if self.is_full:
            upto = asked.first_seq - 1
            if chance.random() < 0.3:
                upto = chance.randint(upto, last)
        else:
            upto = last
        for seq, place in enumerate(asked.places, asked.first_seq):
            if seq > upto or seq > len(store.received) + 1:
                break
            if seq <= len(store.received):
                self.wire.met["places that were there already"] += 1
                continue
            store.in_id = asked.stream
            store.received.append(place.digest)
            store.in_head = extended(store.in_head, place.digest)
            is_record = isinstance(place, Record)
            self._tell(history.Took(self.no, link_no, seq, place.digest, is_record))
        done = min(len(store.received), last)
        if done >= asked.first_seq:
            self.answer(link, lambda: link.committed(done))
        if done < last and done + 1 >= asked.first_seq and self.is_full:
            retry_ms = chance.choice([0, 1_500, 10**7])
            self.answer(link, lambda: link.defer(done + 1, "disk-full", retry_ms))

    def _acknowledge(self, upto: int) -> None:
        if upto > self.store.acked:
            self.store.acked = upto
            self._tell(history.Acked(self.no, upto))

    def _know(self, stood: Stood) -> None:
        self.store.known_store = stood.store
        self.store.in_id = stood.stream
        if self.store.parting is not None:
            self.store.parting = self.store.parting._replace(stood_since=True)

    def _recall(self, link: Link, seq: int) -> None:
        assert seq >= self.store.acked, "older heads may be forgotten"
        known = self.store.heads[seq]
        self.answer(link, lambda: link.recalled(seq, known, self.wire.now_ms))

    def answer(self, link: Link, call: Callable[[], list[Command]]) -> None:
        """The store has spoken; a link that was closed hears it too, and does nothing."""
        if link is self.link:
            self.perform(call())
        elif link.phase is Phase.CLOSED:
            assert call() == []

    # -- commands ----------------------------------------------------------------------------------

    def perform(self, commands: list[Command]) -> None:
        """Carry out what the machine of the one link asks."""
        link, pipe = self.link, self.pipe
        assert link is not None
        assert pipe is not None
        for command in commands:
            self._one(link, pipe, command)
        self._weigh(link, pipe)

    def _one(self, link: Link, pipe: Pipe, command: Command) -> None:
        wire = self.wire
        match command:
            case Send(text):
                sort, first, last = summary(text)
                self._tell(history.Said(self.no, pipe.no, sort, first, last, wire.now_ms))
                wire.met[f"said {sort}"] += 1
                pipe.push(self.no, text)
            case Fetch():
                self.tasks.append(lambda: self._fetch(link, command))
            case Commit(_, first, places):
                self._tell(history.Asked(self.no, pipe.no, first, first + len(places) - 1))
                self.tasks.append(lambda: self._commit(link, pipe.no, command))
            case Recall(seq):
                self.tasks.append(lambda: self._recall(link, seq))
            case Acknowledged(upto):
                self.tasks.append(lambda: self._acknowledge(upto))
            case Stood():
                wire.met["links that stood"] += 1
                self._tell(history.Stood(self.no, pipe.no))
                self.dialling = self.dialling.stood(wire.now_ms)
                self._give_up_tries()
                self.tasks.append(lambda: self._know(command))
            case Stopped(verdict, by_peer):
                before, is_ours = self.store.parting, not by_peer
                kind = copies.finding(verdict.kind, before, wire.now_ms, is_ours=is_ours)
                self.store.parting = Parting(kind, wire.now_ms, stood_since=False)
                wire.met[f"stopped {kind}"] += 1
                self._tell(history.Stopped(self.no, pipe.no, kind, by_peer))
            case Closed(code, by_peer):
                self._ended(pipe, code, by_peer)
            case Refused():
                wire.met["refusals heard"] += 1
            case Unfit():
                raise AssertionError("no record of a scene is too large for a frame")

    def _ended(self, pipe: Pipe, code: str, by_peer: bool) -> None:
        wire = self.wire
        wire.met[f"ended {code}"] += 1
        self._tell(history.Ended(self.no, pipe.no, code, by_peer))
        self._leave(pipe)
        self.link = self.pipe = None
        self._dialled(pipe, code)

    def _dialled(self, pipe: Pipe, code: str) -> None:
        """What the end of a connection means for the next try."""
        now_ms, chance = self.wire.now_ms, self.wire.chance.randbytes(4)
        if pipe.dialler == self.no and self.dialling.is_trying:
            self.dialling = self.dialling.failed(code, now_ms, chance)
        elif self.link is None:
            self.dialling = self.dialling.ended(code, now_ms, chance)

    def _leave(self, pipe: Pipe) -> None:
        """This end is closed; the other one notices when it has read what is on the way."""
        pipe.leave(self.no)
        if not pipe.is_cut and not pipe.is_left[1 - self.no]:
            pipe.lost_ms[1 - self.no] = self.wire.now_ms

    def _give_up_tries(self) -> None:
        for pipe in self.wire.pipes:
            if pipe.dialler == self.no and pipe.is_new[self.no]:
                self._leave(pipe)

    def _weigh(self, link: Link, pipe: Pipe) -> None:
        """Tell when the machine holds more than ever before."""
        held = (*link.offered, *link.uncommitted, link.kept_bytes)
        if any(new > old for new, old in zip(held, self.most_held, strict=True)):
            self.most_held = list(map(max, held, self.most_held))
            self._tell(history.Held(self.no, pipe.no, *held))

    def _tell(self, event: Event) -> None:
        self.wire.events.append(event)

    # -- connections -------------------------------------------------------------------------------

    def adopt(self, pipe: Pipe) -> None:
        """A connection is there: it replaces the link that there is, or is refused."""
        wire, by_us = self.wire, pipe.dialler == self.no
        pipe.is_new[self.no] = False
        if self.link is not None and self.pipe is not None:
            wire.met["second links"] += 1
            older = self.pipe.dialler == self.no
            mine, other = HOSTS[self.no], HOSTS[1 - self.no]
            if not newer_stays(mine, other, older_is_ours=older, newer_is_ours=by_us):
                pipe.push(self.no, encode(Bye("other-link")))
                self._leave(pipe)
                self._dialled(pipe, "other-link")
                # A sign of life is asked for; a dead older link is found out soon.
                if self.pipe.is_cut and self.pipe.lost_ms[self.no] is not None:
                    self.pipe.lost_ms[self.no] = wire.now_ms + 5_000
                return
            self.perform(self.link.close("other-link"))
        self.most_held = [0] * 5
        self.pipe = pipe
        self.link, commands = open_link(
            self.store.hello(),
            HOSTS[1 - self.no],
            self.store.known_store,
            wire.now_ms,
            is_copied=self.store.is_copied,
        )
        self.perform(commands)

    def hear(self, pipe: Pipe, text: str) -> None:
        """A text arrives."""
        if pipe is not self.pipe or self.link is None:
            return
        sort, first, last = summary(text)
        self._tell(history.Heard(self.no, pipe.no, sort, first, last, self.wire.now_ms))
        self.perform(self.link.receive(text, self.wire.now_ms))

    def lose(self, pipe: Pipe) -> None:
        """This end notices that the connection is gone."""
        was_new = pipe.is_new[self.no]
        pipe.leave(self.no)
        if pipe is self.pipe and self.link is not None:
            self.perform(self.link.lost())
        elif was_new and pipe.dialler == self.no:
            self._dialled(pipe, LOST)

    def dial(self) -> Pipe:
        """Try to reach the other."""
        self.dialling = self.dialling.trying(self.wire.now_ms)
        self.wire.made += 1
        pipe = Pipe(self.wire.made, self.no)
        self.wire.pipes.append(pipe)
        self.wire.met["tries"] += 1
        return pipe

    def is_dialling_due(self) -> bool:
        """Whether a try is to begin now; while a link is there, standing or not, none is."""
        due_ms = self.dialling.due_ms
        return (
            self.is_up and self.link is None and due_ms is not None and due_ms <= self.wire.now_ms
        )

    def tick(self) -> None:
        """Time has passed."""
        if self.link is not None:
            self.perform(self.link.tick(self.wire.now_ms))

    def run_task(self) -> None:
        """The store does what waits longest."""
        self.tasks.popleft()()

    def die(self, *, by_power_cut: bool) -> None:
        """The daemon is killed; perhaps the commit that ran is on the disk all the same."""
        wire = self.wire
        wire.met["deaths"] += 1
        self.link = self.pipe = None
        if self.tasks and wire.chance.random() < 0.5:
            wire.met["deaths between a commit and its answer"] += 1
            self.run_task()
        self.is_up = False
        self.tasks.clear()
        for pipe in wire.pipes:
            if by_power_cut and not pipe.is_cut:
                pipe.is_cut = True
                pipe.lost_ms[1 - self.no] = wire.now_ms + wire.chance.randint(0, PING_DEATH_MS)
            self._leave(pipe)

    def restore(self, older: Store, other: "Host") -> None:
        """The store is an older copy now; the daemon is down."""
        assert not self.is_up
        self.store = older.copy()
        sound = is_sound(self.store, other.store) and is_sound(other.store, self.store)
        self.wire.met[f"copies restored, {'sound' if sound else 'not sound'}"] += 1
        self._tell(
            history.Restored(
                self.no,
                tuple(self.store.digests),
                len(self.store.received),
                self.store.withdrawn(),
                sound,
            )
        )
