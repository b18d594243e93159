"""Whether a calling process sits at the owner's terminal: a pure rule over its ancestors.

It keeps agents and accidents away from what is meant for the human. It is no proof of a human: a
process of the same user that detaches itself from its agent CLI and opens a terminal of its own
passes (docs/threat-model.md). What needs proof is signed with the owner's passphrase.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from mbx.core.errors import MbxError
from mbx.core.evidence import ProcessEntry, Unreadable, harness_of

NO_PROCESS: Final = "the kernel does not name the calling process, or it has ended"
NO_TERMINAL: Final = "the calling process has no controlling terminal"
UNREADABLE: Final = "the entry of an ancestor of the calling process cannot be read"
TOO_FAR: Final = "the calling process has more ancestors than are looked at"
OUT_OF_SIGHT: Final = "an ancestor of the calling process is in a pid namespace that is not seen"


@dataclass(frozen=True, slots=True)
class Terminal:
    """Whether the caller is at the owner's terminal, and if not which condition failed.

    `unknown`: it is not known to be elsewhere either, so that looking again may help.
    """

    ok: bool
    reason: str = ""
    unknown: bool = False


def refusal(seen: Terminal) -> MbxError:
    """What whoever is not at the owner's terminal is told."""
    return MbxError(
        "owner-required",
        f"only the owner's terminal may do this: {seen.reason}",
        "type it in a terminal of your own, outside any agent CLI",
    )


def owners_terminal(chain: Iterable[ProcessEntry | Unreadable]) -> Terminal:
    """The rule for the process at the head of `chain` (itself, its parent, and so on).

    It has a controlling terminal, every ancestor up to pid 1 was read, and none of them is an agent
    CLI or a copy that one made of itself. Nothing ends the walk before: a terminal multiplexer,
    su or sshd below an agent CLI is still below it. Pid 1 itself may be closed to us.
    """
    read: list[ProcessEntry] = []
    end: Unreadable | None = None
    for entry in chain:
        if isinstance(entry, Unreadable):
            end = entry
            break
        cli = harness_of(entry)
        if cli is not None:
            where = "is above the caller" if read else "is the caller"
            return Terminal(False, f"the agent CLI {cli} (process {entry.pid}) {where}")
        read.append(entry)
    if not read:
        return Terminal(False, NO_PROCESS, unknown=True)
    if not read[0].tty:
        return Terminal(False, NO_TERMINAL)
    return _all_seen(read, end)


def _all_seen(read: list[ProcessEntry], end: Unreadable | None) -> Terminal:
    """Unknown is not a yes: no ancestor may be hidden, nor its program."""
    if end is not None and end.is_too_far:
        return Terminal(False, TOO_FAR)
    if any(not entry.argv and entry.pid != 1 for entry in read):
        return Terminal(False, UNREADABLE, unknown=True)
    if end is not None:
        return Terminal(True) if end.pid == 1 else Terminal(False, UNREADABLE, unknown=True)
    return Terminal(True) if read[-1].pid == 1 else Terminal(False, OUT_OF_SIGHT)
