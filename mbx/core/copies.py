"""Two copies of one host: what proves that a peer's store runs twice, or is used in turns.

A copy of a home has its host's key, and where its streams fit nothing in them tells the two apart.
Two observations prove a second store, and nothing that befalls one store explains either.

**Both live.** Each start of a daemon draws a *run*, told with the upgrade of each connection. When
connections of two runs meet, each is asked a question of its own. Whoever answers lived after both
had connected; one home has one daemon at a time, so both answers mean two homes. A connection that
a dead daemon has left behind, or that was late on the way, answers nothing.

**Turns.** A link was stopped since the peer's store was found older or another one, stood again,
and is to be stopped for such a reason again. A store that was put back is stopped once, and stands
once when it is put right; who is stopped behind that goes back and forth between two stores.

What neither sees: copies that are never up together, as long as no place of a stream moves between
them; and the copy of a running machine with its memory, which has the same run. Either is found by
its streams as soon as places have moved.
"""

from typing import Final, NamedTuple

from mbx.core.limits import PARTED_TOLD_MS
from mbx.core.streams import COPIED, Kind

_OF_THE_PEER: Final[frozenset[str]] = frozenset(
    {"another-store", "unknown-stream", "fork", "rollback-of-peer"}
)
"""Findings that a second store of the peer explains; the others are about our own."""


class Parting(NamedTuple):
    """How a link was stopped last: the finding, when (ms UTC), and whether one stood since."""

    kind: str
    at_ms: int
    stood_since: bool


def finding(kind: Kind, last: Parting | None, now_ms: int, *, is_ours: bool) -> Kind:
    """What a link is stopped for that was compared with `kind` now, `last` being the stop before.

    `COPIED` where the two are turns, and where it stays so because no owner has acted yet.
    `is_ours`: we have found it ourselves; what the peer alone says it found proves nothing.
    """
    if last is None:
        return kind
    if last.kind == COPIED and not last.stood_since:
        return COPIED
    is_turn = is_ours and last.stood_since and {kind, last.kind} <= _OF_THE_PEER
    return COPIED if is_turn and 0 <= now_ms - last.at_ms < PARTED_TOLD_MS else kind


def are_two_runs(one: str | None, other: str | None) -> bool:
    """Whether two connections of one host come from two starts of a daemon.

    An older mbx tells none of its run (None), and then nobody knows.
    """
    return None not in (one, other) and one != other


class Meeting(NamedTuple):
    """Connections of two runs of one host that were there at once, and which of them answered."""

    answered: frozenset[str] = frozenset()

    def answer(self, run: str) -> "Meeting":
        """The connection of this run has answered its question."""
        return Meeting(self.answered | {run})

    @property
    def proves_a_copy(self) -> bool:
        """Whether both daemons live."""
        return len(self.answered) > 1
