"""What a method may know besides its transaction and its principal."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from mbx.core.evidence import Evidence, Process
from mbx.core.lease import Observation
from mbx.daemon.authority import Authority
from mbx.daemon.effects import Effect
from mbx.daemon.encounters import Encounter
from mbx.daemon.host import Host
from mbx.daemon.kinship import See
from mbx.daemon.linkstate import LinkState, NetworkState
from mbx.daemon.proven import Proven
from mbx.daemon.reach import Reach
from mbx.daemon.sequels import Sequel
from mbx.daemon.world import Moment
from mbx.store.leases import LeaseRow

Result = dict[str, Any]
"""The JSON object of an answer, with the fields of the contract."""


@dataclass(frozen=True, slots=True)
class Facts:
    """What `daemon status` tells of the running process; times on the monotonic clock, ms."""

    pid: int
    version: str
    protocol: int
    home: str
    socket: str
    started_ms: int


class Context(NamedTuple):
    """One request's surroundings.

    `observe` tells what is known of a lease's holder, `look` whether a process lives, `see` what
    stands above it, `sessions_called` which sessions of that cli and id spoke to this daemon,
    `authority` what the owner signed, `link` how the link to a peer (its key) is, `network` where
    this host listens, `proven` the pairing of that id that waits for its people, `last_seen_ms`
    when a holder was last heard of in this daemon's life (ms UTC), `reach` whether new mail of a
    thread (None: of a new one) would wake the holder of a lease now.
    """

    host: Host
    moment: Moment
    facts: Facts
    observe: Callable[[LeaseRow], Observation | None]
    last_seen_ms: Callable[[int], int | None]
    uptime_ms: int
    authority: Authority
    look: Callable[[Process], Evidence]
    see: See
    sessions_called: Callable[[str, str], Sequence[Encounter]]
    link: Callable[[int], LinkState | None]
    network: Callable[[], NetworkState]
    proven: Callable[[str], Proven | None]
    reach: Callable[[LeaseRow, str | None], Reach]


class Answer(NamedTuple):
    """A result and the effects that its commit lets out; a `sequel` gives the result instead."""

    result: Result
    effects: Sequence[Effect] = ()
    sequel: Sequel | None = None
