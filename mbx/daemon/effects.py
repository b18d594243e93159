"""Effects: what must happen after a commit, as values.

A unit returns them; only a commit lets them out.
"""

from dataclasses import dataclass
from typing import NamedTuple

from mbx.core.evidence import Process, SessionKey
from mbx.core.exposure import Exposure


@dataclass(frozen=True, slots=True)
class Granted:
    """A session was given an identity: watch its process, write its credential."""

    session_no: int
    process: Process
    conversation: str
    cli: str
    session_id: str
    identity_no: int
    identity: str
    name: str
    epoch: int
    token: str


@dataclass(frozen=True, slots=True)
class Waiting:
    """A session waits for an identity that somebody else holds: watch its process."""

    session_no: int
    process: Process
    conversation: str
    cli: str
    session_id: str


@dataclass(frozen=True, slots=True)
class Ended:
    """A session no longer holds an identity by its own act or its death: forget it."""

    session_no: int
    process: Process
    conversation: str
    cli: str
    session_id: str
    identity_no: int
    epoch: int


@dataclass(frozen=True, slots=True)
class Revive:
    """A lapsed lease was used by its holder: it is held again."""

    identity_no: int
    epoch: int


class Arrived(NamedTuple):
    """New mail was committed: the index has work, recipients can be told."""

    recipients: tuple[int, ...]


class Handled(NamedTuple):
    """Mail of this mailbox was read or acked: what waits in it became less."""

    identity_no: int


class Called(NamedTuple):
    """A hook told what the one conversation of this process is called now."""

    process: Process
    called: str


@dataclass(frozen=True, slots=True)
class Relabelled:
    """A session goes by another label; `called` is what its client calls the conversation now.

    `before`: its label up to now, by which its credential is found.
    """

    process: Process
    cli: str
    before: str
    session_id: str
    called: str


class Queued(NamedTuple):
    """Something was given a place in the streams to these paired hosts (their keys)."""

    peers: tuple[int, ...]


class Paired(NamedTuple):
    """A pairing began, changed or ended: whoever keeps the links looks at all of them again."""


class Met(NamedTuple):
    """A link to a paired host stands: what could not be told without one is due."""

    peer_no: int


class Agreed(NamedTuple):
    """The person here agreed to a pairing (its id) and it is recorded: the other side is told."""

    pairing: str


class Seen(NamedTuple):
    """A holder was heard of (kept in memory; the store gets it once a minute)."""

    identity_no: int
    epoch: int


@dataclass(frozen=True, slots=True)
class Ticketed:
    """A conversation of a shared process was given a bind ticket, of which the digest is kept."""

    process: Process
    key: SessionKey
    digest: bytes


@dataclass(frozen=True, slots=True)
class Stop:
    """The daemon was asked to stop."""


@dataclass(frozen=True, slots=True)
class Mend:
    """The daemon was asked to keep house now, not within a minute."""


@dataclass(frozen=True, slots=True)
class Authorised:
    """A record of the owner's was applied: the second place must know before anybody is told.

    `version`: of the chain; `audit_no`, `audit_hash`: the audit log's last row. `followed`: chains
    of other hosts (key ids) that went so far: chain, version, when (ms UTC).
    """

    version: int
    audit_no: int
    audit_hash: str
    followed: tuple[tuple[str, int, int], ...] = ()


class Glimpsed(NamedTuple):
    """A conversation read this while nothing could be written: it must be remembered elsewhere."""

    cli: str
    session_id: str
    read: tuple[Exposure, ...]


@dataclass(frozen=True, slots=True)
class Renamed:
    """An identity has another name."""

    identity_no: int
    name: str


class Described(NamedTuple):
    """An identity says something else of itself."""

    identity_no: int


@dataclass(frozen=True, slots=True)
class Retired:
    """An identity has ended: whoever watches its mailbox is told."""

    identity_no: int


@dataclass(frozen=True, slots=True)
class HandOn:
    """Unacked mail of a forwarded identity is left: the next piece is to be handed on."""

    identity_no: int


@dataclass(frozen=True, slots=True)
class Ping:
    """Somebody wants to know how long an answer of a paired host takes, or a link to it now."""

    peer_no: int


@dataclass(frozen=True, slots=True)
class Unwelcome:
    """A paired host (our label for it) refuses for ever what is no mail; `code` is of its nack."""

    peer: str
    code: str


@dataclass(frozen=True, slots=True)
class HandBack:
    """Mail that a paired host will not get is left: the next piece behind a place is returned."""

    peer_no: int
    after_seq: int


Effect = (
    Authorised
    | Unwelcome
    | HandBack
    | Ping
    | HandOn
    | Retired
    | Glimpsed
    | Handled
    | Mend
    | Called
    | Relabelled
    | Renamed
    | Waiting
    | Granted
    | Ended
    | Revive
    | Arrived
    | Queued
    | Described
    | Paired
    | Met
    | Agreed
    | Seen
    | Stop
    | Ticketed
)
"""Every effect there is."""
