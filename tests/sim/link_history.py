"""What is told of two linked hosts, event by event, and what is left at the end.

Host 0 and host 1; a link is known by its number. A stream is told by who sends it: what host 1 took
in place 7 is compared with what host 0 wrote there.
"""

from dataclasses import dataclass
from typing import NamedTuple, TypeAlias


class Written(NamedTuple):
    """The store of `host` has a record for the other host, in this place of its stream."""

    host: int
    seq: int
    digest: bytes


class Withdrew(NamedTuple):
    """`host` gave a place up that it had never offered: its sender was told that it came back."""

    host: int
    seq: int


class Asked(NamedTuple):
    """The machine of `host` asked its store to commit these places."""

    host: int
    link: int
    first: int
    last: int


class Took(NamedTuple):
    """The store of `host` committed a place of the other's stream, with a record or without."""

    host: int
    link: int
    seq: int
    digest: bytes
    is_record: bool


class Acked(NamedTuple):
    """The store of `host` dropped its stream up to this place: the peer has it."""

    host: int
    upto: int


class Said(NamedTuple):
    """A frame left `host`. `first` and `last` are places; of ``ok`` both are `upto`."""

    host: int
    link: int
    sort: str
    first: int
    last: int
    at_ms: int


class Heard(NamedTuple):
    """A frame reached `host`; as `Said`."""

    host: int
    link: int
    sort: str
    first: int
    last: int
    at_ms: int


class Held(NamedTuple):
    """What the machine of `host` holds: places and frame bytes under way, and bytes of texts."""

    host: int
    link: int
    offered: int
    offered_bytes: int
    uncommitted: int
    uncommitted_bytes: int
    kept_bytes: int


class Stopped(NamedTuple):
    """`host` says that its streams and the peer's do not fit, or that the peer runs twice.

    `by_peer`: it was told so by the other host.
    """

    host: int
    link: int
    kind: str
    by_peer: bool = False


class Stood(NamedTuple):
    """`host` goes on: both have compared and said so."""

    host: int
    link: int


class Ended(NamedTuple):
    """The machine of `host` closed."""

    host: int
    link: int
    code: str
    by_peer: bool


class Spoilt(NamedTuple):
    """The pipe lost or doubled a frame of this link: whoever sees it may well complain."""

    link: int


class Restored(NamedTuple):
    """The store of `host` is another copy: these places of its stream, so many of the other's.

    `withdrawn`: the places that it knows as given up. `sound`: nothing that the other relies on is
    missing, so links may go on.
    """

    host: int
    sent: tuple[bytes, ...]
    received: int
    withdrawn: frozenset[int]
    sound: bool


Event: TypeAlias = (
    Written
    | Withdrew
    | Asked
    | Took
    | Acked
    | Said
    | Heard
    | Held
    | Stopped
    | Stood
    | Ended
    | Spoilt
    | Restored
)


@dataclass(frozen=True)
class Left:
    """The store of a host at the end: its stream and what it has of the other's, with the heads."""

    sent: tuple[bytes, ...]
    sent_head: bytes
    acked: int
    received: tuple[bytes, ...]
    received_head: bytes


@dataclass(frozen=True)
class LinkCase:
    """A whole run. `healed`: at its end nothing was disturbed any more, for long enough."""

    events: tuple[Event, ...]
    left: tuple[Left, Left]
    healed: bool = True
