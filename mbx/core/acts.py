"""The acts that the audit log tells of."""

from typing import Final

OWNERS: Final = frozenset(
    {"clock", "forward", "owner", "owner-mail", "policy", "prune", "retire", "revoke", "takeover"}
)
"""Acts by a record of the owner's, which the store keeps for ever."""

ACTS: Final = OWNERS | {
    "acted",
    "claim",
    "hand-on",
    "host",
    "lapse",
    "register",
    "release",
    "rename",
    "revive",
    "set",
}
"""Every act. `acted`: mail was acked with the outcome acted; `hand-on`: mail of a
forwarded identity went on; `host`: the store was made."""
