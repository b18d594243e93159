"""A link in each of its states, and its commands in few words, for tests of the machine alone."""

from collections.abc import Callable
from functools import cache, lru_cache

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
from mbx.core.frames import Bye, Frame, Hello, No, Ok, Place, Put, encode, parse
from mbx.core.link import Link, open_link
from mbx.core.streams import EMPTY_HEAD, Incoming, Outgoing, StreamState, extended
from tests.support.frames import HOSTS, STORES, record

US, THEM = HOSTS
FAULT = "bye protocol, closed protocol"
BAD = "bye malformed, closed malformed"
NOTHING = "nothing"
TIMEOUT = "bye timeout, closed timeout"

OUT, INTO = "3" * 26, "4" * 26
DIGESTS = [bytes([no]) * 32 for no in range(1, 10)]


@cache
def head(count: int) -> bytes:
    """The head after so many places, the same ones in both streams."""
    found = EMPTY_HEAD
    for digest in DIGESTS[:count]:
        found = extended(found, digest)
    return found


@cache
def ours(sent: int = 9, acked: int = 2, received: int = 4) -> Hello:
    state = StreamState(Outgoing(OUT, sent, head(sent), acked), Incoming(INTO, received, head(4)))
    if received == 0:
        state = state._replace(into=Incoming(None, 0, EMPTY_HEAD))
    return Hello(US, STORES[0], state)


@cache
def theirs(sent: int = 6, acked: int = 3, received: int = 2) -> Hello:
    """Of ours they have `received`, of theirs they wrote `sent`."""
    into = Incoming(OUT if received else None, received, head(received))
    return Hello(THEM, STORES[1], StreamState(Outgoing(INTO, sent, head(sent), acked), into))


def told(commands: list[Command]) -> str:
    """Commands in few words."""
    return ", ".join(_word(command) for command in commands) or "nothing"


def _word(command: Command) -> str:
    match command:
        case Send(text):
            return _said(parse(text))
        case Fetch(after):
            return f"fetch {after}"
        case Commit(_, first, places):
            return f"commit {first}+{len(places)}"
        case Refused(seq, code):
            return f"refused {seq} {code}"
        case Stopped(verdict, by_peer):
            return f"stopped {verdict.kind}{' by peer' if by_peer else ''}"
        case Closed(code, by_peer):
            return f"closed {code}{' by peer' if by_peer else ''}"
        case Stood():
            return "stood"
        case Recall(place) | Acknowledged(place) | Unfit(place):
            return f"{type(command).__name__.lower()} {place}"


def _said(frame: Frame) -> str:
    match frame:
        case Put(seq, places):
            return f"put {seq}+{len(places)}"
        case Ok(upto):
            return f"say ok {upto}"
        case No(seq, code):
            return f"say no {seq} {code}"
        case Bye(code):
            return f"bye {code}"
    return type(frame).__name__.lower()


def some(count: int) -> tuple[Place, ...]:
    return tuple(record(f'{{"no":{no}}}') for no in range(count))


@lru_cache
def text_of(frame: Frame) -> str:
    return encode(frame)


def hear(link: Link, frame: Frame, now_ms: int = 0) -> str:
    return told(link.receive(text_of(frame), now_ms))


def greeting() -> Link:
    return open_link(ours(), THEM, STORES[1], 0)[0]


def comparing() -> Link:
    """They have place 2 of our 9: what was our head there?"""
    link = greeting()
    link.receive(text_of(theirs()), 0)  # recall 2
    return link


def noted() -> Link:
    """As before, and they have said already that they go on."""
    link = comparing()
    link.receive(text_of(Ok(2)), 0)  # nothing
    return link


def agreeing() -> Link:
    link = comparing()
    link.recalled(2, head(2), 0)  # say ok 4
    return link


def standing() -> Link:
    """Our outbox gave nothing yet: a fetch runs."""
    link = agreeing()
    link.receive(text_of(Ok(2)), 0)  # stood, fetch 2
    return link


def offering() -> Link:
    """Places 3 to 5 are under way."""
    link = standing()
    link.fetched(2, some(3), 0)  # put 3+3, fetch 5
    return link


def paused() -> Link:
    """The peer refused place 3 for now."""
    link = offering()
    link.receive(text_of(No(3, "busy", 5_000)), 0)  # refused 3 busy
    return link


def receiving() -> Link:
    """Places 5 and 6 of theirs wait for the commit."""
    link = standing()
    link.receive(text_of(Put(5, some(2))), 0)  # commit 5+2
    return link


def skipping() -> Link:
    """We refused place 5 for now."""
    link = receiving()
    link.defer(5, "disk-full", 5_000)  # say no 5 disk-full
    return link


def closed() -> Link:
    link = standing()
    link.lost()  # closed lost
    return link


STATES: dict[str, Callable[[], Link]] = {
    make.__name__: make
    for make in (
        greeting,
        comparing,
        noted,
        agreeing,
        standing,
        offering,
        paused,
        receiving,
        skipping,
        closed,
    )
}
