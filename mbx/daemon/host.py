"""This host: its label, its keys' ids, and the one way to sign in its name."""

from collections.abc import Mapping
from dataclasses import dataclass

from mbx.core import record
from mbx.core.canonical import JsonValue
from mbx.core.keys import SigningKey
from mbx.core.message import Party
from mbx.core.record import Sealed
from mbx.daemon import codec


@dataclass(frozen=True, slots=True)
class Host:
    """The host as one value: `label` is its name for people, `key_id` its name for records."""

    label: str
    key_id: str
    signer: SigningKey

    def sign(self, kind: str, payload: Mapping[str, JsonValue]) -> Sealed:
        """A record of `kind` signed with the host key."""
        return record.seal(kind, codec.canonical(payload), self.signer)

    def party(self, identity: str, name: str) -> Party:
        """A mailbox of this host as records name it."""
        return Party(identity, name, self.label)

    def address(self, name: str) -> str:
        """``name@host``."""
        return f"{name}@{self.label}"
