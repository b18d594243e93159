"""Rows of kin: which sessions run below which, so that what one read counts for the others.

Written when a session is about to hold something, and kept as long as it does and for more than an
hour after it; so neither the end of a process nor a restart of the daemon makes anybody forget.
"""

from collections.abc import Iterable
from typing import Final

from mbx.core.evidence import Process, own_id
from mbx.core.exposure import Exposure
from mbx.core.kinship import Ancestor
from mbx.core.limits import EXPOSURE_MS
from mbx.store import exposures
from mbx.store.database import Tx
from mbx.store.sessions import SessionRow

HEARD: Final = " heard"
"""Ends the label under which it is kept what a conversation, before it came into a process,
overheard in others."""
UNSEEN: Final = "?"
"""Stands for ancestors that could not be read: whoever they were, they may have read anything."""
SEEN_STEP_MS: Final = EXPOSURE_MS // 4
"""So coarsely it is kept when a session was last known; rows stay twice as long as they must."""
_KEPT_MS: Final = EXPOSURE_MS + 2 * SEEN_STEP_MS

_KNOWN: Final = "SELECT 1 FROM kin WHERE process = ? AND cli = ? AND session_id = ? LIMIT 1"
_CAME: Final = (
    "SELECT 1 FROM kin WHERE cli = ?2 AND session_id = ?3 AND process <> ?1 AND NOT EXISTS"
    " (SELECT 1 FROM kin WHERE process = ?1 AND cli = ?2 AND session_id = ?3) LIMIT 1"
)
_CALLED: Final = (
    "INSERT INTO kin (ancestor, process, cli, session_id, is_agent, counts, seen_ms)"
    " SELECT ancestor, process, ?2, ?3, max(is_agent), max(counts), ?4 FROM kin WHERE process = ?1"
    " GROUP BY ancestor ON CONFLICT (ancestor, process, cli, session_id)"
    " DO UPDATE SET seen_ms = excluded.seen_ms"
)
_PLACE: Final = (
    "INSERT INTO kin (ancestor, process, cli, session_id, is_agent, counts, seen_ms)"
    " VALUES (?1, ?2, ?3, ?4, ?5, ?5 OR ?1 = ?2 OR EXISTS (SELECT 1 FROM kin"
    " WHERE ancestor = ?1 AND process = ?1), ?6)"
    " ON CONFLICT (ancestor, process, cli, session_id) DO NOTHING"
)
_COUNTS: Final = "UPDATE kin SET counts = 1 WHERE ancestor = ? AND NOT counts"
_COUNTS_NOT: Final = (
    "UPDATE kin SET counts = 0 WHERE counts AND NOT is_agent AND NOT EXISTS (SELECT 1"
    " FROM kin AS its WHERE its.ancestor = kin.ancestor AND its.process = kin.ancestor)"
)
# Those below whatever counts above the session, also above where its conversation was before. Other
# conversations of a shared process are strangers, unless something above hears them both.
_BESIDE: Final = (
    "SELECT theirs.cli, theirs.session_id FROM sessions AS s CROSS JOIN kin AS mine"
    " CROSS JOIN kin AS theirs ON theirs.ancestor = mine.ancestor"
    " WHERE s.no = ?1 AND mine.counts = 1"
    " AND (theirs.cli <> s.cli OR theirs.session_id <> s.session_id)"
    " AND (theirs.process <> mine.process OR theirs.ancestor <> mine.process"
    " OR s.conversation = '') AND "
)
# In two halves: as one with OR and DISTINCT it takes twice as long (5.5 against 2.8 µs, measured).
_CONVERSATIONS: Final = (
    _BESIDE
    + "mine.process = s.boot_id || ' ' || s.pid || '-' || s.start_ticks UNION ALL "
    + _BESIDE
    + "mine.cli = s.cli AND mine.session_id = s.session_id"
)
_IS_UNSEEN: Final = (
    "SELECT 1 FROM sessions AS s CROSS JOIN kin AS k"
    " ON k.process = s.boot_id || ' ' || s.pid || '-' || s.start_ticks"
    " WHERE s.no = ?1 AND k.counts = 0 AND k.ancestor = '?'"
)
# The worse of all, as `mbx.core.exposure.joined` has it.
_WORST: Final = "SELECT source_no, max(root_ms), max(hop), min(hop_limit), max(read_ms) FROM "
# In this order, or SQLite walks all that anybody read within the hour.
_READ: Final = (
    _WORST + "(" + _CONVERSATIONS + ") AS beside CROSS JOIN exposures AS e"
    " ON e.cli = beside.cli AND e.session_id = beside.session_id WHERE e.read_ms > ?2"
    " GROUP BY source_no"
)
_READ_BY_ALL: Final = _WORST + "exposures WHERE read_ms > ? GROUP BY source_no"
_AHEAD: Final = "UPDATE kin SET seen_ms = ?1 WHERE seen_ms > ?1"
_SEEN: Final = (
    "UPDATE kin SET seen_ms = ?1 WHERE seen_ms < ?2 AND process IN"
    " (SELECT boot_id || ' ' || pid || '-' || start_ticks FROM sessions WHERE identity_no"
    " IS NOT NULL OR no IN (SELECT session_no FROM pending)"
    " OR no IN (SELECT session_no FROM leases WHERE state <> 0))"
)
_OLD: Final = (
    "DELETE FROM kin WHERE seen_ms < ? AND NOT EXISTS (SELECT 1 FROM exposures AS e"
    " WHERE e.cli = kin.cli AND e.session_id = kin.session_id)"
)
_SEEN_AT_LAST: Final = "DELETE FROM kin WHERE ancestor = '?' AND process = ?"


def key(process: Process) -> str:
    """How the rows name a process."""
    return f"{process.boot_id} {process.pid}-{process.start_ticks}"


def is_known(tx: Tx, process: Process, cli: str, session_id: str) -> bool:
    """Whether something is kept of this process by this label."""
    return tx.one(_KNOWN, (key(process), cli, session_id)) is not None


def comes(tx: Tx, session: SessionRow) -> bool:
    """Whether a conversation goes on in this process that was in another one before."""
    place = (key(session.process), session.cli, session.session_id)
    return tx.one(_CAME, place) is not None


def called(tx: Tx, session: SessionRow, now_ms: int) -> bool:
    """The session goes by its label; False where nothing is kept of its process yet."""
    return _called(tx, session, session.session_id, now_ms)


def _called(tx: Tx, session: SessionRow, label: str, now_ms: int) -> bool:
    return tx.run(_CALLED, (key(session.process), session.cli, label, now_ms)) > 0


def bring(tx: Tx, session: SessionRow, heard: Iterable[Exposure], now_ms: int) -> None:
    """Keep for the process of a session what its conversation overheard in another one."""
    label, read_before = own_id(session.process) + HEARD, list(heard)
    if read_before:
        exposures.expose(tx, session.cli, label, read_before)
        _called(tx, session, label, now_ms)


def place(
    tx: Tx, session: SessionRow, ancestors: Iterable[Ancestor], now_ms: int, *, unseen: bool
) -> None:
    """Keep what stands above a session; `unseen`: not all of it could be read."""
    own = key(session.process)
    tx.run(_SEEN_AT_LAST, (own,))
    above = [(key(one.process), one.is_agent) for one in ancestors]
    above += [(own, False), *([(UNSEEN, False)] if unseen else ())]
    for ancestor, is_agent in above:
        row = (ancestor, own, session.cli, session.session_id, int(is_agent), now_ms)
        tx.run(_PLACE, row)
    tx.run(_COUNTS, (own,))


def conversations(tx: Tx, session_no: int) -> list[tuple[str, str]]:
    """The other conversations (cli, session id) that the session shares something above with."""
    return list(dict.fromkeys(tx.all(_CONVERSATIONS, (session_no,))))


def is_unseen(tx: Tx, session_no: int) -> bool:
    """Whether some of what stands above the session could not be read."""
    return tx.one(_IS_UNSEEN, (session_no,)) is not None


def read(tx: Tx, session_no: int, now_ms: int) -> list[Exposure]:
    """What those conversations read within the hour, the worst of each sender."""
    found = tx.all(_READ, (session_no, now_ms - EXPOSURE_MS))
    return [Exposure(*row) for row in found]


def read_by_all(tx: Tx, now_ms: int) -> list[Exposure]:
    """What any conversation read within the hour, the worst of each sender."""
    return [Exposure(*row) for row in tx.all(_READ_BY_ALL, (now_ms - EXPOSURE_MS,))]


def forget_old(tx: Tx, now_ms: int) -> None:
    """Remove the rows of sessions of which nothing counts any more; exposures go first."""
    tx.run(_AHEAD, (now_ms,))
    tx.run(_SEEN, (now_ms, now_ms - SEEN_STEP_MS))
    tx.run(_OLD, (now_ms - _KEPT_MS,))
    tx.run(_COUNTS_NOT)
