"""New mail of one mailbox, as the snapshots of sessions need it: no subject, no text."""

from typing import Final, NamedTuple

from mbx.core.limits import SNAPSHOT_ROWS_MAX
from mbx.store.database import Tx

_LOOKED_AT: Final = 512
"""Open messages, the newest, among which unread ones are looked for."""

_NOTIFIED: Final = 3

_NEWEST: Final = (
    "SELECT newest.message_no, newest.wakes, i.name, p.label, newest.stage FROM"
    " (SELECT message_no, wakes, stage, epoch FROM deliveries INDEXED BY deliveries_open"
    " WHERE recipient_no = ? AND stage < 5 ORDER BY message_no DESC LIMIT ?) AS newest"
    " JOIN messages AS m ON m.no = newest.message_no JOIN identities AS i ON i.no = m.sender_no"
    " LEFT JOIN peers AS p ON p.no = i.peer_no"
    " WHERE newest.stage < 3 OR (newest.stage = 3 AND newest.epoch <> ?)"
    " ORDER BY newest.message_no DESC LIMIT ?"
)


class Unread(NamedTuple):
    """One unread message: its key, whether it wakes, and its sender (with the host, if paired).

    `is_announced`: to an earlier holder.
    """

    no: int
    wakes: bool
    sender: str
    is_announced: bool = False


def newest(tx: Tx, recipient_no: int, epoch: int) -> list[Unread]:
    """The newest messages of a mailbox that its holder of an epoch was not told of, oldest first.

    At most `SNAPSHOT_ROWS_MAX`. What was announced to it (*notified*) is unread, and no news.
    """
    rows = tx.all(_NEWEST, (recipient_no, _LOOKED_AT, epoch, SNAPSHOT_ROWS_MAX))
    return [
        Unread(no, bool(wakes), name if host is None else f"{name}@{host}", stage == _NOTIFIED)
        for no, wakes, name, host, stage in reversed(rows)
    ]
