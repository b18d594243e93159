"""An owner for tests of the daemon's middle: a key of its own, that signs what it is asked to."""

from dataclasses import dataclass
from typing import Any

from mbx.core.canonical import parse
from mbx.core.keys import SigningKey, key_id
from mbx.core.record import Record, sign
from mbx.daemon.gate import Caller
from tests.support.office import OfficeDesk, at_terminal, nobody, shell

TERMINAL = at_terminal(shell(9))
"""The owner at a terminal of its own."""

Wire = dict[str, Any]
"""A record as it travels."""


@dataclass
class Owner:
    """The human: asks for drafts, signs them, brings them back."""

    desk: OfficeDesk
    key: SigningKey

    @property
    def id(self) -> str:
        return key_id("owner", self.key.public)

    def enroll(self) -> dict[str, Any]:
        """Make the key known to the host."""
        draft = self.draft("rotate", public_key=self.key.public.hex())
        return self.desk.call(TERMINAL, "owner.enroll", record=self.signed(draft))

    def draft(self, act: str, **wanted: object) -> dict[str, Any]:
        """What the daemon asks the owner to sign."""
        return self.desk.call(nobody(), "owner.draft", act=act, **wanted)

    def signed(self, draft: dict[str, Any], *keys: SigningKey) -> Wire:
        """The record of a draft, signed by the owner's key (and further keys)."""
        return wire(draft["kind"], content(draft), self.key, *keys)

    def apply(self, record: Wire, caller: Caller | None = None) -> dict[str, Any]:
        """Bring a record back."""
        return self.desk.call(caller or nobody(), "owner.apply", record=record)

    def do(self, act: str, **wanted: object) -> dict[str, Any]:
        """Draft, sign, apply."""
        return self.apply(self.signed(self.draft(act, **wanted)))


def content(draft: dict[str, Any]) -> dict[str, Any]:
    """The payload of a draft as a value."""
    payload = parse(draft["payload"].encode(), 2**20)
    assert isinstance(payload, dict)
    return payload


def wire(kind: str, payload: dict[str, Any], *keys: SigningKey, role: str = "owner") -> Wire:
    """A record of `payload`, signed by `keys`, as it travels."""
    records = [sign(kind, payload, key, key_id(role, key.public)) for key in keys]
    signatures: dict[str, str] = {}
    for record in records:
        signatures |= record.signatures
    return {"kind": kind, "payload": records[0].payload, "signatures": signatures}


def record_of(given: Wire) -> Record:
    """The record that travels so."""
    return Record(given["kind"], given["payload"], given["signatures"])


def an_owner(desk: OfficeDesk, seed: int = 7) -> Owner:
    """An owner whose key the host knows."""
    owner = Owner(desk, SigningKey.from_seed(bytes([seed]) * 32))
    owner.enroll()
    return owner
