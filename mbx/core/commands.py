"""What a link asks of the daemon that runs it: values, to be carried out in the order they come."""

from typing import NamedTuple, TypeAlias

from mbx.core.frames import Place
from mbx.core.streams import Verdict


class Send(NamedTuple):
    """Write this text to the peer, behind all earlier ones."""

    text: str


class Recall(NamedTuple):
    """Look up the head of our own stream at this place; answer with `Link.recalled`.

    The place is the last acknowledged one or behind it.
    """

    seq: int


class Stood(NamedTuple):
    """The link stands: both compared their streams and go on.

    `store` is the id of the peer's store, `stream` that of the stream that it sends: both are to be
    kept for the next time.
    """

    store: str
    stream: str


class Fetch(NamedTuple):
    """Read the outbox from behind `after_seq`; answer with `Link.fetched`.

    Contiguous places, one at least where there is one, not more than `places_max`, and no further
    one that takes their payloads over `bytes_max`. **What is handed over counts as offered**: that
    must be committed before, so that none of it is ever withdrawn.
    """

    after_seq: int
    places_max: int
    bytes_max: int


class Commit(NamedTuple):
    """Commit these places of the peer's stream, then call `Link.committed`.

    They come in order and may overlap in time; each is to be applied in order, in a transaction
    that skips the places which the store has already (another link may have brought them) and
    takes none after a gap. A record that nobody can believe is committed as its refusal. If nothing
    can be committed now, call `Link.defer` for the first place that was not, and drop the rest.
    """

    stream: str
    first_seq: int
    places: tuple[Place, ...]


class Acknowledged(NamedTuple):
    """The peer has committed every place up to this one: they may be dropped from the outbox."""

    upto: int


class Refused(NamedTuple):
    """The peer cannot take this place now, for a reason that passes; it is offered again later."""

    seq: int
    code: str
    retry_ms: int


class Unfit(NamedTuple):
    """No frame can carry the record of this place: give it up, leave its place, then `offer`."""

    seq: int
    size_bytes: int


class Stopped(NamedTuple):
    """The streams do not fit: nothing moves until somebody mends it. Tell the owner."""

    verdict: Verdict
    by_peer: bool


class Closed(NamedTuple):
    """The last command: close the connection. `reason` is for the log and quotes nobody."""

    code: str
    by_peer: bool = False
    reason: str = ""


Command: TypeAlias = (
    Send | Recall | Stood | Fetch | Commit | Acknowledged | Refused | Unfit | Stopped | Closed
)
"""Any of them."""
