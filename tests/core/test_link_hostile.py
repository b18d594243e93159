"""What hostile peers send: it closes the link or is an ordinary frame, and never anything else."""

import random
import sys
from collections import Counter

import pytest

from mbx.core.commands import Acknowledged, Closed, Command, Commit, Fetch, Send
from mbx.core.frames import (
    Bye,
    Frame,
    FrameError,
    Hello,
    No,
    Ok,
    Place,
    Put,
    Withdrawal,
    encode,
    parse,
    size_bytes,
)
from mbx.core.limits import (
    FRAME_MAX_BYTES,
    HELLO_MAX_BYTES,
    WINDOW_MAX_BYTES,
    WINDOW_RECORDS_MAX,
)
from mbx.core.link import Link, Phase
from mbx.core.streams import EMPTY_HEAD, Incoming, Outgoing, StreamState
from tests.support.frames import HOSTS, STORES, mutated, record
from tests.support.linking import INTO, OUT, STATES, greeting, head, some, standing, text_of, theirs

GOOD: list[Frame] = [
    theirs(),
    theirs(received=9),
    Ok(2),
    Ok(4),
    Put(5, some(2)),
    Put(5, (Withdrawal(b"w" * 32),)),
    Put(3, some(2)),
    No(3, "busy", 5_000),
    Bye("stopping"),
    Bye("version-mismatch", 2),
]
"""What fits into one or the other state; the mutations begin from these."""


def understood(text: str, link: Link) -> Frame | None:
    """The frame that the text is at this point of the link, if it is one."""
    try:
        return parse(text, HELLO_MAX_BYTES if link.phase is Phase.GREETING else FRAME_MAX_BYTES)
    except FrameError:
        return None


def held(link: Link) -> tuple[object, ...]:
    return link.phase, link.offered, link.uncommitted, link.kept_bytes, link.deadline()


@pytest.mark.long
@pytest.mark.timeout(120)
def test_10000_mutated_frames_close_the_link_or_are_frames_and_do_nothing_else() -> None:
    """In every state. A text that is no frame has the same outcome wherever it comes."""
    met: Counter[str] = Counter()
    states = [name for name in STATES if name != "closed"]
    for seed in range(10_000):
        chance = random.Random(seed)
        state = chance.choice(states)
        text = mutated(chance, text_of(chance.choice(GOOD)))
        link = STATES[state]()
        frame = understood(text, link)
        commands = link.receive(text, 0)
        if frame is None:
            bye, closed = commands
            assert bye == Send(encode(Bye("malformed")))
            assert isinstance(closed, Closed)
            assert (closed.code, closed.by_peer) == ("malformed", False)
            assert held(link) == (Phase.CLOSED, (0, 0), (0, 0), 0, None)
        else:
            twin = STATES[state]()
            assert twin.receive(text, 0) == commands
            assert held(twin) == held(link)
        met[f"{state} {'malformed' if frame is None else 'frame'}"] += 1
    sys.stdout.write(f"mutated frames for links: {dict(sorted(met.items()))}\n")
    assert [state for state in states if met[f"{state} malformed"] < 700] == []
    assert sum(count for name, count in met.items() if name.endswith("frame")) > 300


# --- peers that speak well and lie ---------------------------------------------------------------


def lie(chance: random.Random, daemon: "Daemon") -> Frame:
    """A well-formed frame, most often one that fits, now and then with numbers of mischief."""
    is_fitting = chance.random() < 0.93
    if is_fitting:
        place = daemon.received + 1
        acked = chance.randint(daemon.acked, daemon.sent)
        refused = daemon.acked + 1 if daemon.sent > daemon.acked else None
    else:
        place = chance.choice([1, 4, 5, 6, 9, 69, 261, 2**53 - 64])
        acked = chance.choice([0, 1, 3, 300, 2**53 - 1])
        refused = chance.choice([1, 3, 4, 70, 2**53 - 1])
    count = chance.choice([1, 1, 2, 5, 64])
    match chance.randrange(10 if is_fitting else 12):
        case 0 | 1 | 2:
            return Ok(acked)
        case 3 | 4 | 5 | 6 | 7:
            return Put(place, (record("a" * chance.choice([1] * 9 + [20_000])),) * count)
        case 8:
            return Put(place, (Withdrawal(chance.randbytes(32)),))
        case 9:
            retry_ms = chance.choice([0, 5_000, 2**53 - 1])
            return Ok(acked) if refused is None else No(refused, "busy", retry_ms)
        case 10:
            return theirs(chance.choice([0, 4, 6]), 0, chance.choice([0, 2, 9]))
        case _:
            return Bye(chance.choice(["fork", "unpaired", "x"]))


class Daemon:
    """Answers the machine as it should be answered, and sees that it asks for nothing wrong."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.link = standing()
        self.acked, self.sent, self.received, self.done = 2, 2, 4, 4
        self.waiting: list[Command] = [Fetch(2, 64, FRAME_MAX_BYTES)]
        self.link.offer(400, 0)
        self.now_ms = 0

    def check(self, commands: list[Command]) -> None:
        """Whatever the peer says, these hold."""
        for command in commands:
            match command:
                case Commit(stream, first, places):
                    assert stream == INTO
                    assert first == self.received + 1
                    self.received += len(places)
                    self.waiting.append(command)
                case Acknowledged(upto):
                    assert self.acked < upto <= self.sent
                    self.acked = upto
                case Fetch():
                    self.waiting.append(command)
                case Send(text):
                    self._said(parse(text))
        for count, size in (self.link.offered, self.link.uncommitted):
            assert count <= WINDOW_RECORDS_MAX
            assert size <= WINDOW_MAX_BYTES

    def _said(self, frame: Frame) -> None:
        match frame:
            case Put(seq, places):
                assert seq <= self.sent + 1
                self.sent = max(self.sent, seq + len(places) - 1)
            case Ok(upto):
                assert upto <= self.done
            case No(seq):
                assert seq == self.done + 1
                self.received = self.done
                self.waiting = [one for one in self.waiting if isinstance(one, Fetch)]

    def work(self) -> None:
        """Do one of the things that wait."""
        self.now_ms += self.chance.choice([0, 10, 2_000])
        self.check(self.link.tick(self.now_ms))
        if not self.waiting:
            return
        match self.waiting.pop(0):
            case Fetch(after, places_max):
                found: tuple[Place, ...] = some(min(places_max, max(400 - after, 0)))
                self.check(self.link.fetched(after, found, self.now_ms))
            case Commit(_, first, places):
                if self.chance.random() < 0.2 and self.received > self.done:
                    self.check(self.link.defer(self.done + 1, "busy", 1_000))
                elif first + len(places) - 1 <= self.received:
                    self.done = max(self.done, first + len(places) - 1)
                    self.check(self.link.committed(self.done))


@pytest.mark.long
@pytest.mark.timeout(120)
def test_no_peer_that_lies_gets_more_than_its_link_closed() -> None:
    met: Counter[str] = Counter()
    for seed in range(300):
        chance = random.Random(seed)
        daemon = Daemon(chance)
        for _ in range(40):
            if chance.random() < 0.5:
                daemon.work()
            else:
                commands = daemon.link.receive(encode(lie(chance, daemon)), daemon.now_ms)
                daemon.check(commands)
                met["frames"] += 1
                met["closed"] += any(isinstance(one, Closed) for one in commands)
            if daemon.link.phase is Phase.CLOSED:
                break
    sys.stdout.write(f"lies told to links: {dict(met)}\n")
    assert met["frames"] > 2_000
    assert met["closed"] > 150


def test_no_hello_that_lies_does_more_than_stop_the_link() -> None:
    met: Counter[str] = Counter()
    heads = {no: head(no) for no in range(10)}
    for seed in range(3_000):
        chance = random.Random(seed)
        sent, received = chance.choice([0, 3, 4, 6, 10**15]), chance.choice([0, 1, 2, 9, 10, 10**9])
        hello = Hello(
            chance.choice([HOSTS[1], HOSTS[1], HOSTS[1], HOSTS[0]]),
            STORES[chance.randrange(2)],
            StreamState(
                Outgoing(
                    chance.choice([INTO, INTO, OUT]),
                    sent,
                    _head(chance, heads, sent),
                    chance.randint(0, sent),
                ),
                Incoming(
                    chance.choice([OUT, OUT, INTO]) if received or chance.random() < 0.5 else None,
                    received,
                    _head(chance, heads, received),
                ),
            ),
        )
        link = greeting()
        commands = link.receive(encode(hello), 0)
        if link.phase is Phase.COMPARING:
            commands = link.recalled(received, heads.get(received), 0)
        assert link.phase in {Phase.AGREEING, Phase.CLOSED}
        assert (Send(encode(Ok(4))) in commands) == (link.phase is Phase.AGREEING)
        assert not any(isinstance(one, Commit | Acknowledged | Fetch) for one in commands)
        met[link.phase.value] += 1
    sys.stdout.write(f"hellos that lie: {dict(met)}\n")
    assert met["closed"] > 1_000
    assert met["agreeing"] > 20


def _head(chance: random.Random, heads: dict[int, bytes], place: int) -> bytes:
    if place == 0:
        return EMPTY_HEAD
    return heads[place] if place in heads and chance.random() < 0.8 else b"f" * 32


def test_a_frame_that_grows_without_end_is_not_read() -> None:
    for link, limit in ((greeting(), HELLO_MAX_BYTES), (standing(), FRAME_MAX_BYTES)):
        text = '{"type":"put","seq":5,"records":[' + "[" * limit
        assert size_bytes(text) > limit
        (_, closed) = link.receive(text, 0)
        assert closed == Closed("malformed", False, f"more than {limit} bytes")
