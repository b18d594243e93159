"""The acts that the audit log tells of."""

from typing import Final

OWNERS: Final = frozenset(
    {
        "clock",
        "forward",
        "owner",
        "owner-mail",
        "pair",
        "peer-change",
        "policy",
        "prune",
        "retire",
        "revoke",
        "takeover",
        "unpair",
    }
)
"""Acts by a record of the owner's, which the store keeps for ever."""

ACTS: Final = OWNERS | {
    "acted",
    "claim",
    "hand-on",
    "host",
    "lapse",
    "link-stopped",
    "record-refused",
    "register",
    "release",
    "rename",
    "revive",
    "set",
    "unpaired",
}
"""Every act. `acted`: mail was acked with the outcome acted; `hand-on`: mail of a
forwarded identity went on; `host`: the store was made;
`link-stopped`: the streams of two hosts do not fit; `record-refused`: a host of the same
owner will not take what the owner signed; `unpaired`: a paired host has ended it."""
