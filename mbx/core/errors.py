"""Refusals that users, agents and scripts meet: a stable code, a sentence, the next step.

Every refusal of mbx is one `MbxError`; its `code` is one of `EXIT_STATUS`, which is also the one
table of process exit statuses::

    MbxError
     +- exit 2   usage
     +- exit 3   not-found, unknown-identity, unknown-recipient
     +- exit 4   ambiguous
     +- exit 5   no-lease, lease-lost, lease-foreign
     +- exit 6   daemon-unreachable, sandboxed, version-mismatch
     +- exit 75  outcome-unknown           (EX_TEMPFAIL of sysexits.h)
     +- exit 1   every other code
"""

from collections.abc import Mapping
from types import MappingProxyType

EXIT_STATUS: Mapping[str, int] = MappingProxyType(
    {
        "usage": 2,
        "not-found": 3,
        "unknown-identity": 3,
        "unknown-recipient": 3,
        "ambiguous": 4,
        "no-lease": 5,
        "lease-lost": 5,
        "lease-foreign": 5,
        "daemon-unreachable": 6,
        "sandboxed": 6,
        "version-mismatch": 6,
        "outcome-unknown": 75,
        "in-use": 1,
        "name-taken": 1,
        "name-invalid": 1,
        "body-too-large": 1,
        "text-invalid": 1,
        "too-many": 1,
        "idempotency-conflict": 1,
        "closed": 1,
        "conflict": 1,
        "policy-denied": 1,
        "owner-required": 1,
        "owner-locked": 1,
        "not-paired": 1,
        "peer-refused": 1,
        "queue-full": 1,
        "disk-full": 1,
        "store-damaged": 1,
        "rate-limited": 1,
        "internal": 1,
    }
)
"""Error code -> process exit status. The codes are stable: they may grow, never change meaning."""


class MbxError(Exception):
    """A refusal with a stable code.

    `code` is a key of `EXIT_STATUS`, `message` one sentence for people, `next_step` the exact
    command or act that helps (or None), `facts` further JSON-able facts for programs.
    """

    def __init__(
        self, code: str, message: str, next_step: str | None = None, **facts: object
    ) -> None:
        if code not in EXIT_STATUS:
            raise ValueError(f"unknown error code {code!r}")
        super().__init__(message)
        self.code = code
        self.message = message
        self.next_step = next_step
        self.facts = facts

    @property
    def exit_status(self) -> int:
        """The process exit status that belongs to the code."""
        return EXIT_STATUS[self.code]

    def as_object(self) -> dict[str, object]:
        """The JSON object ``{code, message, next, …facts}`` that every face shows."""
        return {"code": self.code, "message": self.message, "next": self.next_step, **self.facts}
