"""Two to five hosts in one seeded world: real stores and rules, a network that is made of lists.

Chance decides who sends, reads and acks, which texts arrive (now and then twice), where connections
are cut, when strangers knock, and when a daemon dies: between the commit of a unit and whatever
would have followed from it. Now and then, and at each death, what hosts say of each other is held
against what is so. At the end the network heals, and what every host holds is compared with what
was accepted anywhere.
"""

import heapq
import itertools
import random
import re
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from mbx.core.errors import MbxError
from mbx.core.frames import Bye, Hello, encode
from mbx.core.limits import UNOFFERED_MAX_MS
from mbx.core.streams import EMPTY_HEAD, Incoming, Outgoing, StreamState
from mbx.daemon import bouncing, directory
from mbx.daemon.context import Answer
from mbx.daemon.dispatch import Work
from mbx.daemon.effects import Queued
from mbx.daemon.gate import Caller
from mbx.daemon.links import Links
from mbx.store import peers
from mbx.store.database import Committed, Outcome, Refused
from mbx.store.peers import PeerRow
from tests.sim import relays
from tests.sim.relays import Copy, Glimpse, Held, Stream
from tests.support.muteends import MuteEnd
from tests.support.paired import PairedDesk, desk, pair

NAMES: Final = ("ana", "ben", "cat", "dan", "eve")
LABELS: Final = ("desk", "lap", "rack", "pi", "box")
_FULL: Final = MbxError("disk-full", "the disk is full")
_QUIET_TURNS: Final = 400
"""Within so many turns after the last fault everything has settled, or never does."""
STEPS: Final = 60
"""Of most seeds."""
LONG_STEPS: Final = 400
"""Of one seed in so many as `_LONG_EVERY`."""
_LONG_EVERY: Final = 25
_GLANCE_STEPS: Final = 20
"""So often hosts are held against each other while all goes on."""
_DOUBLED: Final = 0.05
"""Of the frames that offer or acknowledge something, so many arrive twice."""
_TOUCHES_PLACES: Final = re.compile(r'\{"type":"(?:put|ok|no)"')
_PUT: Final = re.compile(r'\{"type":"put","seq":(\d+)')
_OK: Final = '{"type":"ok"'
_STRANGER: Final = "z" * 26
_HELLO: Final = Hello(
    _STRANGER,
    "s" * 26,
    StreamState(Outgoing("t" * 26, 0, EMPTY_HEAD, 0), Incoming(None, 0, EMPTY_HEAD)),
)
"""Of a stranger that begins."""


class Died(Exception):
    """A daemon died: what was committed is on its disk, nothing else of it is left."""


class Timers:
    """What hosts want to be called for, on the world's one steady clock."""

    def __init__(self) -> None:
        self.now_ms = 0
        self._due: list[tuple[float, int, Callable[[], None], list[bool]]] = []
        self._numbers = itertools.count()

    def call_later(self, delay_s: float, act: Callable[[], None]) -> "_Cancel":
        off: list[bool] = []
        heapq.heappush(self._due, (self.now_ms + delay_s * 1000, next(self._numbers), act, off))
        return _Cancel(off)

    def take_due(self) -> Callable[[], None] | None:
        """The next that is due, if any is."""
        while self._due and self._due[0][0] <= self.now_ms:
            _, _, act, off = heapq.heappop(self._due)
            if not off:
                return act
        return None


@dataclass
class _Cancel:
    off: list[bool]

    def cancel(self) -> None:
        self.off.append(True)


@dataclass(eq=False)
class Wire(MuteEnd):
    """One end of a connection."""

    host: "SimHost"
    out: deque[str] = field(default_factory=deque)
    other: "Wire | None" = None
    connection: object | None = None
    is_closed: bool = False

    def send(self, text: str) -> None:
        if not self.is_closed:
            self.out.append(text)

    def close(self) -> None:
        """What was written still arrives; then the other end sees the end."""
        self.is_closed = True


class SimHost:
    """One host: its desk (the disk), and the links of its daemon, which end when it dies."""

    def __init__(self, world: "World", label: str, names: list[str]) -> None:
        self.world = world
        self.desk: PairedDesk = desk(label)
        self.desk.find_link = lambda no: self.links.state(no) if self.links else None
        self.label = label
        self.callers: dict[str, Caller] = {}
        for number, name in enumerate(names):
            self.callers[name] = self.desk.holder(name, 100 + number)
        self.is_full = False
        self.links: Links | None = None
        self.lives = 0
        """How often its daemon was started."""

    def start(self) -> None:
        self.lives += 1
        self.links = Links(
            self.desk.dispatcher,
            self._submit,
            self._dial,
            lambda what, **facts: None,
            self._call_later,
        )
        self.links.know(self.desk.do(peers.present), str(LABELS.index(self.label)) * 26)
        self.tell()

    def _call_later(self, delay_s: float, act: Callable[[], None]) -> "_Cancel":
        """Whom a dead daemon wanted to be called by, nobody calls."""
        daemon = self.lives

        def if_alive() -> None:
            if self.lives == daemon:
                act()

        return self.world.timers.call_later(delay_s, if_alive)

    def tell(self) -> None:
        """As the daemon does soon after something has changed."""
        context = self.desk.dispatcher.context()

        def unit(tx: Any) -> Answer:
            told = directory.tell(context, tx)
            return Answer({}, (Queued(told),) if told else ())

        self._submit(Work(unit, writes=True), lambda outcome: None)

    def give_up(self) -> None:
        """What waited for too long without ever being handed to a link."""
        context = self.desk.dispatcher.context()

        def unit(tx: Any) -> Answer:
            every = [bouncing.give_up(context, tx, peer) for peer in peers.present(tx)]
            return Answer({}, tuple(effect for some in every for effect in some))

        self._submit(Work(unit, writes=True), lambda outcome: None)

    def call(self, name: str, method: str, **params: object) -> dict[str, Any] | None:
        """The result of a call of an agent here; None if it was refused, or never answered."""
        work = self.desk.work(self.callers[name], method, params)
        results: list[dict[str, Any]] = []

        def done(outcome: Outcome[Answer]) -> None:
            if isinstance(outcome, Committed):
                results.append(outcome.value.result)

        self._submit(work, done)
        return results[0] if results else None

    def _submit(self, work: Work, done: Callable[[Outcome[Answer]], None]) -> None:
        if self.is_full and work.writes:
            done(Refused(_FULL))
            return
        try:
            answer = self.desk.carry_out(work)
        except MbxError as refusal:
            done(Refused(refusal))
            return
        self.world.counts["commits"] += work.writes
        if work.writes and self.world.dies(self):
            raise Died(self.label)
        for effect in answer.effects:
            if isinstance(effect, Queued) and self.links is not None:
                self.links.queued(effect.peers)
        done(Committed(answer, 0))

    def _dial(self, row: PeerRow) -> None:
        self.world.dials.append((self, row))


class World:
    """Hosts, connections, chance. `play` one seed; `problems` says what is wrong at its end."""

    def __init__(self, seed: int, steps: int) -> None:
        self.chance = random.Random(f"hosts {seed}")
        self.steps = steps
        self.counts: Counter[str] = Counter()
        self.timers = Timers()
        self.dials: list[tuple[SimHost, PeerRow]] = []
        self.wires: list[tuple[Wire, Wire]] = []
        self.accepted: list[tuple[str, str, str]] = []
        """Host, sender and id of each message that was answered to its sender."""
        self.may_die = False
        self.glimpsed: list[Glimpse] = []
        self.found: list[str] = []
        """What was wrong while it went on, in lines that begin with the invariant."""
        self._put: Counter[tuple[str, str]] = Counter()
        count = self.chance.choice((2, 2, 3, 3, 4, 5))
        self.hosts: list[SimHost] = []
        for label in LABELS[:count]:
            names = self.chance.sample(NAMES, self.chance.randint(1, 3))
            self.hosts.append(SimHost(self, label, names))
        self.pairs = [
            (one, other)
            for one, other in itertools.combinations(self.hosts, 2)
            if count == 2 or self.chance.random() < 0.8
        ]
        for one, other in self.pairs:
            pair(one.desk, other.desk)
        for host in self.hosts:
            # The clocks of two hosts need not agree, not even by minutes.
            host.desk.world.wall_ms += self.chance.randint(-600_000, 600_000)
            host.start()

    # -- what happens ----------------------------------------------------------------------------

    def play(self) -> None:
        self.may_die = True
        for step in range(self.steps):
            if step % _GLANCE_STEPS == 0:
                self.glance()
            act = self.chance.choices(
                [
                    *(self.send, self.read, self.ack, self.move, self.cut),
                    *(self.pass_time, self.break_disk, self.pass_days, self.knock),
                ],
                (22, 10, 8, 40, 4, 13, 2, 1, 1),
            )[0]
            self.during(act)
        self.counts["steps"] += self.steps
        self.glance()
        self.heal()
        self.glance()
        self.counts["virtual minutes"] += self.timers.now_ms // 60_000

    def during(self, act: Callable[[], None]) -> None:
        """Do something; a host that dies of it starts again at once."""
        try:
            act()
        except Died as death:
            self.counts["deaths"] += 1
            [host] = [one for one in self.hosts if one.label == death.args[0]]
            self.bury(host)
            self.glance()

    def dies(self, host: SimHost) -> bool:
        return self.may_die and self.chance.random() < 0.01

    def bury(self, host: SimHost) -> None:
        """Its connections are gone; another daemon begins on the same store.

        A host that dies of what it has to note about that is next.
        """
        died = []
        for wires in [both for both in self.wires if host in (both[0].host, both[1].host)]:
            try:
                self.sever(wires, dead=host)
            except Died as death:
                died.append(death.args[0])
        host.links = None
        self.dials = [dial for dial in self.dials if dial[0] is not host]
        may_die, self.may_die = self.may_die, False
        host.start()
        self.may_die = may_die
        for label in died:
            self.counts["deaths"] += 1
            self.bury(next(one for one in self.hosts if one.label == label))

    def send(self) -> None:
        host = self.chance.choice(self.hosts)
        name = self.chance.choice(list(host.callers))
        to = [
            self.chance.choice((*NAMES, "*", "role:dev")) for _ in range(self.chance.randint(1, 2))
        ]
        if self.chance.random() < 0.5:
            other = self.chance.choice(self.hosts)
            to = [f"{self.chance.choice(list(other.callers))}@{other.label}"]
        kind = self.chance.choice(("message", "request"))
        number = self.counts["sends"]
        self.counts["sends"] += 1
        sent = host.call(
            name,
            "mail.send",
            to=to,
            subject=f"number {number}",
            body="x" * (number % 50),
            kind=kind,
        )
        if sent is not None:
            self.counts["accepted"] += 1
            self.accepted.append((host.label, name, sent["id"]))

    def _inbox(self) -> tuple[SimHost, str, list[str]]:
        host = self.chance.choice(self.hosts)
        name = self.chance.choice(list(host.callers))
        listed = host.call(name, "mail.inbox", limit=50)
        return host, name, [one["id"] for one in listed["messages"]] if listed else []

    def read(self) -> None:
        host, name, ids = self._inbox()
        if ids:
            host.call(name, "mail.read", ids=[self.chance.choice(ids)])

    def ack(self) -> None:
        host, name, ids = self._inbox()
        if ids:
            one = self.chance.choice(ids)
            if self.chance.random() < 0.3:
                host.call(name, "mail.reply", id=one, body="done", final="acted")
            else:
                host.call(name, "mail.ack", ids=[one], did="built it")

    def move(self) -> None:
        """Some texts arrive, one after the other on each way."""
        self.connect()
        for _ in range(self.chance.randint(1, 8)):
            ways = [
                (wire, wire.other)
                for both in self.wires
                for wire in both
                if wire.out and wire.other is not None
            ]
            if not ways:
                break
            one, other = self.chance.choice(ways)
            text = one.out.popleft()
            self.counts["texts"] += 1
            self._note(one, other, text)
            if other.host.links is not None and other.connection is not None:
                other.host.links.heard(other.connection, text)
        self.reap()

    def _note(self, one: Wire, other: Wire, text: str) -> None:
        """Count what arrives; it may arrive once more."""
        if self.may_die and _TOUCHES_PLACES.match(text) and self.chance.random() < _DOUBLED:
            self.counts["frames doubled"] += 1
            one.out.appendleft(text)
        if (put := _PUT.match(text)) is not None:
            way, seq = (one.host.label, other.host.label), int(put[1])
            self.counts["frames offered again"] += seq <= self._put[way]
            self._put[way] = max(self._put[way], seq)

    def knock(self) -> None:
        """Somebody who is not paired says what a peer might say, and nothing changes."""
        host = self.chance.choice(self.hosts)
        if host.links is None:
            return
        self.counts["strangers"] += 1
        before = host.desk.connection.total_changes
        for frame in (_HELLO, Bye("unpaired"), Bye("another-store")):
            connection = host.links.connected(_STRANGER, Wire(host), is_ours=False)
            host.links.heard(connection, encode(frame))
        if host.desk.connection.total_changes != before:
            self.found.append(f"I20 a stranger has changed what {host.label} keeps")

    def glance(self) -> None:
        """Hold what each host says of the others against what these have."""
        now = [glimpse_of(host) for host in self.hosts]
        self.found += relays.overclaims(self.glimpsed, now)
        self.glimpsed = now
        self.counts["glances"] += 1

    def reap(self) -> None:
        """A connection that one end closed, and that is empty, is over for both."""
        for both in list(self.wires):
            if any(wire.is_closed and not wire.out for wire in both):
                self.sever(both)

    def cut(self) -> None:
        if self.wires:
            chosen = self.chance.choice(self.wires)
            self.counts["cuts"] += 1
            self.counts["lost texts"] += sum(len(wire.out) for wire in chosen)
            self.sever(chosen)

    def sever(self, both: tuple[Wire, Wire], dead: SimHost | None = None) -> None:
        if both in self.wires:
            self.wires.remove(both)
        for wire in both:
            wire.is_closed = True
            self.counts["acknowledgements lost"] += sum(text.startswith(_OK) for text in wire.out)
            wire.out.clear()
        for wire in both:
            if (
                wire.host is not dead
                and wire.host.links is not None
                and wire.connection is not None
            ):
                connection, wire.connection = wire.connection, None
                wire.host.links.gone(connection)

    def connect(self) -> None:
        """Each try that is under way ends, well or not."""
        while self.dials:
            host, row = self.dials.pop(0)
            other = next(one for one in self.hosts if one.label == row.label)
            if self.chance.random() < 0.3 and self.may_die:
                self.counts["failed dials"] += 1
                if host.links is not None:
                    host.links.unreachable(row.no, "unreachable")
                continue
            self.counts["connections"] += 1
            here, there = Wire(host), Wire(other)
            here.other, there.other = there, here
            self.wires.append((here, there))
            if host.links is not None and other.links is not None:
                here.connection = host.links.connected(other.desk.host.key_id, here, is_ours=True)
                there.connection = other.links.connected(
                    host.desk.host.key_id, there, is_ours=False
                )
        self.reap()

    def pass_time(self, ms: int | None = None) -> None:
        step = self.chance.choice((100, 1_000, 5_000, 20_000, 70_000)) if ms is None else ms
        self.timers.now_ms += step
        for host in self.hosts:
            host.desk.world.pass_ms(step)
        while (act := self.timers.take_due()) is not None:
            act()

    def pass_days(self) -> None:
        """Nobody hears of anybody for three days."""
        for both in list(self.wires):
            self.sever(both)
        self.pass_time(UNOFFERED_MAX_MS + 1)
        while self.dials:
            host, row = self.dials.pop(0)
            if host.links is not None:
                host.links.unreachable(row.no, "unreachable")
        for host in self.hosts:
            host.give_up()
        self.counts["days apart"] += 1

    def break_disk(self) -> None:
        host = self.chance.choice(self.hosts)
        host.is_full = not host.is_full
        self.counts["full disks"] += host.is_full

    # -- the end ---------------------------------------------------------------------------------

    def heal(self) -> None:
        self.may_die = False
        for host in self.hosts:
            host.is_full = False
        for turn in range(_QUIET_TURNS):
            if turn % 20 == 0:
                for host in self.hosts:
                    host.tell()
            self.connect()
            while any(wire.out for both in self.wires for wire in both):
                self.move()
            if self.is_settled():
                self.counts["turns to settle"] += turn
                return
            self.pass_time(5_000)

    def is_settled(self) -> bool:
        return all(
            one.desk.stream(other.label).acked_seq == one.desk.stream(other.label).out_seq
            for both in self.pairs
            for one, other in (both, both[::-1])
        )

    def problems(self) -> list[str]:
        """What is wrong with what all the stores say."""
        for host in self.hosts:
            away = host.desk.rows(
                "SELECT d.error FROM deliveries AS d JOIN identities AS i ON i.no = d.recipient_no"
                " WHERE i.peer_no IS NOT NULL"
            )
            self.counts["crossed"] += len(away)
            self.counts["returned"] += sum(error is not None for (error,) in away)
        streams = [
            stream_of(one, other) for both in self.pairs for one, other in (both, both[::-1])
        ]
        accepted = [(label, message) for label, _, message in self.accepted]
        return self.found + relays.problems([held(host) for host in self.hosts], streams, accepted)


def held(host: SimHost) -> Held:
    """What a host's store says."""
    texts = dict(host.desk.rows("SELECT id, payload FROM messages"))
    copies = host.desk.rows(
        "SELECT m.id, i.identity, coalesce(p.label, ?), d.stage, d.outcome, d.did, d.error"
        " FROM deliveries AS d JOIN messages AS m ON m.no = d.message_no"
        " JOIN identities AS i ON i.no = d.recipient_no LEFT JOIN peers AS p ON p.no = i.peer_no",
        host.label,
    )
    unread = host.desk.rows(
        "SELECT i.identity, b.unread, (SELECT count(*) FROM deliveries AS d"
        " WHERE d.recipient_no = i.no AND d.stage < 4) FROM mailboxes AS b"
        " JOIN identities AS i ON i.no = b.identity_no"
    )
    return Held(
        host.label,
        texts,
        dict(host.desk.rows("SELECT id, count(*) FROM messages GROUP BY id")),
        [Copy(*copy) for copy in copies],
        {identity: (kept, counted) for identity, kept, counted in unread},
    )


def glimpse_of(host: SimHost) -> Glimpse:
    """What a host has and says of the others now."""
    stages, told = {}, {}
    for message, identity, where, stage in host.desk.rows(
        "SELECT m.id, i.identity, p.label, d.stage FROM deliveries AS d"
        " JOIN messages AS m ON m.no = d.message_no JOIN identities AS i ON i.no = d.recipient_no"
        " LEFT JOIN peers AS p ON p.no = i.peer_no"
    ):
        if where is None:
            stages[message, identity] = stage
        else:
            told[message, identity] = (where, stage)
    streams = {label: host.desk.stream(label) for label in host.desk.peer_nos}
    return Glimpse(
        host.label,
        stages,
        told,
        {label: one.acked_seq for label, one in streams.items()},
        {label: one.in_seq for label, one in streams.items()},
    )


def stream_of(sender: SimHost, receiver: SimHost) -> Stream:
    """One direction as both ends have it."""
    there, here = sender.desk.stream(receiver.label), receiver.desk.stream(sender.label)
    placed = sender.desk.rows(
        "SELECT m.id FROM outbox AS o JOIN messages AS m ON m.no = o.message_no"
        " WHERE o.peer_no = ? AND o.withdrawn_ms IS NULL ORDER BY o.seq",
        sender.desk.peer_nos[receiver.label],
    )
    arrived = receiver.desk.rows(
        "SELECT m.id FROM messages AS m JOIN identities AS i ON i.no = m.sender_no"
        " WHERE i.peer_no = ? ORDER BY m.no",
        receiver.desk.peer_nos[sender.label],
    )
    return Stream(
        sender.label,
        receiver.label,
        (there.out_seq, there.out_head),
        there.acked_seq,
        (here.in_seq, here.in_head),
        (there.stopped, here.stopped),
        tuple(row[0] for row in placed),
        tuple(row[0] for row in arrived),
    )


def play(seed: int, steps: int | None = None) -> World:
    """One seed, from its beginning to its settled end; every so often a long one."""
    own = STEPS if seed % _LONG_EVERY else LONG_STEPS
    world = World(seed, own if steps is None else steps)
    world.play()
    return world
