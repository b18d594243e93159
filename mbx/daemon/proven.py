"""A pairing that both hosts have proved, as drafts and the acts of the owner's records see it."""

from typing import NamedTuple

from mbx.core import keys, pairing
from mbx.core.pairing import Match
from mbx.core.peer import Pin
from mbx.core.record import Record
from mbx.daemon.host import Host


class Proven(NamedTuple):
    """One that waits for its people, in the memory of this daemon and nowhere else.

    `certificate` (DER) and `addresses` are what we told of ourselves; `listening` is where this
    host is to listen from now on; `dialled` the address at which we reached the other one, None
    where it came to us. `received`: what the other side's person sent along, None before they
    agreed. `enclosed`: what ours will.
    """

    match: Match
    certificate: bytes
    addresses: tuple[str, ...]
    listening: tuple[str, ...]
    dialled: str | None = None
    received: tuple[Record, ...] | None = None
    enclosed: tuple[Record, ...] = ()

    @property
    def id(self) -> str:
        """Names the pairing: 26 characters of its transcript, alike on both hosts."""
        return keys.crockford(self.match.transcript)

    def own_pin(self, host: Host) -> Pin:
        """What the other side records of us."""
        return Pin(
            host.key_id,
            host.signer.public,
            pairing.certificate_hash(self.certificate),
            host.label,
            self.match.pin.owner,
            self.match.transcript,
        )
