"""Sequels: what is asked of the daemon's memory once a unit has been carried out.

Effects happen behind an answer; a sequel makes the answer. Pairings have them: what an invitation
needs is read in a transaction, but the invitation itself, and whoever waits for it, is memory.
"""

from typing import NamedTuple

from mbx.core.endpoints import Endpoint
from mbx.core.pairing_code import PairingCode
from mbx.core.record import Record


class Invite(NamedTuple):
    """Open an invitation, good for `ttl_ms`.

    `owner`: the owner's public key. `listen`: where to listen as well, none: where the store says
    (`remembered`), or else everywhere. `is_known`: others have pinned our certificate.
    """

    owner: bytes
    listen: tuple[Endpoint, ...]
    remembered: tuple[Endpoint, ...]
    ttl_ms: int
    is_known: bool


class Join(NamedTuple):
    """Go to a host that invites; `owner` None: adopt its owner."""

    owner: bytes | None
    endpoint: Endpoint
    code: PairingCode
    is_known: bool


class Look(NamedTuple):
    """How a run stands, as soon as that is something else than what was `seen`."""

    run: str
    seen: int


class Hold(NamedTuple):
    """The connection that asks is there as long as the command of a run is."""

    run: str


class Decline(NamedTuple):
    """The person here said no, or left."""

    run: str


class Enclose(NamedTuple):
    """Have these records go with our word that we agree; `pairing` as in `Proven.id`."""

    pairing: str
    records: tuple[Record, ...]


Sequel = Invite | Join | Look | Hold | Decline | Enclose
"""Every sequel there is."""
