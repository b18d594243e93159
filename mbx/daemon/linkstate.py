"""How a link to a paired host is, what it needs of its connection, and the network of this one."""

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, Protocol

from mbx.core.endpoints import Endpoint
from mbx.core.errors import MbxError


class RoundTrip(NamedTuple):
    """A question for a sign of life: when it was answered (monotonic, ms), and after how long."""

    answered_ms: int
    took_ms: int


class Wire(Protocol):
    """One authenticated connection to a peer, as the face gives it."""

    def send(self, text: str) -> None:
        """Write a text behind all earlier ones."""

    def close(self) -> None:
        """Let out what was written, then end it."""

    def ping(self) -> None:
        """Ask for a sign of life now: if none comes, the connection ends."""

    def measure(self) -> None:
        """Ask how long an answer takes: nothing ends if none comes."""

    @property
    def round_trip(self) -> RoundTrip | None:
        """The last question that was answered."""

    @property
    def run(self) -> str | None:
        """Which start of its daemon the other end has named; None: an older mbx names none."""

    def question(self, answered: Callable[[], None]) -> None:
        """Ask this very thing now: `answered` is called once, if an answer to it comes.

        Also of a connection that is closed right after, as long as the other end is heard.
        """


class LinkState(NamedTuple):
    """What is known of the link to one peer.

    `since_ms`, `due_ms`: monotonic; since when it stands, and when it is tried next (None: it is
    for the other to dial). `failures`: tries in a row that came to nothing. `code`: how the last
    link ended, or why there was none. `round_trip`: the last one on the link that stands.
    `refused`: why the peer takes nothing for now, a code of its; `refused_ms`: since when.
    `names_run`: it names the start of its daemon, and knows all that came into mbx with that.
    `is_trying`: a try of ours runs.
    """

    stands: bool
    since_ms: int | None
    due_ms: int | None
    failures: int
    code: str | None
    round_trip: RoundTrip | None = None
    refused: str | None = None
    refused_ms: int | None = None
    names_run: bool = False
    is_trying: bool = False


class NetworkState(NamedTuple):
    """Where this host listens now, and why the network cannot be used at all.

    `reachable`: the addresses at which others may dial it, as far as this machine knows them.
    `deaf`: why it does not listen at all places where it was told to.
    """

    listening: tuple[str, ...] = ()
    fault: str | None = None
    reachable: tuple[str, ...] = ()
    deaf: str | None = None

    def told(self) -> dict[str, object]:
        """What answers say of it, beside where it was told to listen."""
        return {
            "listening": list(self.listening),
            "network_fault": self.fault,
            "listener_fault": self.deaf,
        }


def listen_where_possible(
    listen: Callable[[Sequence[Endpoint]], object], wanted: Iterable[Endpoint]
) -> list[MbxError]:
    """Listen at each of these where that can be now; why not at the others.

    An address may be gone with its network, and IPv6 from the whole machine: the rest goes on.
    """
    failed = []
    for endpoint in wanted:
        try:
            listen([endpoint])
        except MbxError as error:
            failed.append(error)
    return failed
