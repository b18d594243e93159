"""Where mail of retired identities goes on, and the handing on of what lies in their mailboxes."""

from typing import Final, NamedTuple

from mbx.core.delivery import Stage
from mbx.core.limits import FORWARD_STEPS_MAX
from mbx.store import search
from mbx.store.database import Tx

# A damaged store may lead in a circle: then the last step is at a retired identity, as any other
# way that leads nowhere.
_END: Final = (
    "WITH RECURSIVE way (no, next_no, step) AS ("
    " SELECT no, forward_no, 0 FROM identities WHERE no = ?1"
    " UNION ALL SELECT i.no, i.forward_no, w.step + 1 FROM way AS w"
    " JOIN identities AS i ON i.no = w.next_no WHERE w.step < ?2)"
    " SELECT no FROM way ORDER BY step DESC LIMIT 1"
)
_OPEN: Final = (
    "SELECT m.no, m.id, d.stage, d.wakes, i.peer_no"
    " FROM deliveries AS d INDEXED BY deliveries_open"
    " JOIN messages AS m ON m.no = d.message_no JOIN identities AS i ON i.no = m.sender_no"
    " WHERE d.recipient_no = ? AND d.stage < 5 ORDER BY d.message_no LIMIT ?"
)
_GIVE: Final = (
    "INSERT INTO deliveries (recipient_no, message_no, stage, stage_ms, wakes)"
    " VALUES (?, ?, ?, ?, ?) ON CONFLICT DO NOTHING"
)
_CLOSE: Final = (
    "UPDATE deliveries SET stage = 5, stage_ms = ?, epoch = 0, outcome = ?, did = NULL, note = ?"
    " WHERE recipient_no = ? AND message_no = ?"
)
_HANDED_ON: Final = "handed-on"
"""Counters of this name and the key of a mailbox."""
_INSERTED: Final = (
    "INSERT INTO counters (name, value) VALUES (?, 1)"
    " ON CONFLICT (name) DO UPDATE SET value = value + 1"
)
_LEFT: Final = (
    "SELECT i.no FROM identities AS i WHERE i.forward_no IS NOT NULL AND i.peer_no IS NULL"
    " AND EXISTS (SELECT 1 FROM deliveries INDEXED BY deliveries_open"
    " WHERE recipient_no = i.no AND stage < 5) ORDER BY i.no LIMIT ?"
)
_HERE: Final = (
    "SELECT no FROM identities WHERE forward_no IS NOT NULL AND peer_no IS NULL ORDER BY no"
)
_HAS_OPEN: Final = (
    "SELECT 1 FROM deliveries INDEXED BY deliveries_open WHERE recipient_no = ? AND stage < 5"
    " LIMIT 1"
)
_COUNT_OPEN: Final = (
    "SELECT count(*) FROM deliveries INDEXED BY deliveries_open"
    " WHERE recipient_no = ? AND stage < 5"
)


class OpenMail(NamedTuple):
    """One unacked message of a mailbox: its key, its id, its stage, whether it wakes.

    `sender_peer_no`: the paired host that its sender lives on, None for this one.
    """

    message_no: int
    id: str
    stage: int
    wakes: int
    sender_peer_no: int | None


def set_forward(tx: Tx, no: int, to_no: int | None) -> None:
    """Let mail for the retired identity `no` go to `to_no` from now on; None: to nobody."""
    tx.run("UPDATE identities SET forward_no = ? WHERE no = ?", (to_no, no))


def here(tx: Tx) -> list[int]:
    """Keys of the identities of this host that were ever forwarded."""
    return [int(row[0]) for row in tx.all(_HERE)]


def end_of(tx: Tx, no: int) -> int:
    """The key of the identity at the end of the forwards from `no`; `no` where there are none."""
    row = tx.one(_END, (no, FORWARD_STEPS_MAX))
    return int(row[0]) if row else no


def open_mail(tx: Tx, no: int, rows: int) -> list[OpenMail]:
    """The oldest unacked mail of a mailbox."""
    return [OpenMail(*row) for row in tx.all(_OPEN, (no, rows))]


def has_open_mail(tx: Tx, no: int) -> bool:
    """Whether a mailbox has unacked mail."""
    return tx.one(_HAS_OPEN, (no,)) is not None


def count_open(tx: Tx, no: int) -> int:
    """How much unacked mail a mailbox has, exactly: a walk over all of it."""
    row = tx.one(_COUNT_OPEN, (no,))
    return int(row[0]) if row else 0


def hand_on(
    tx: Tx, no: int, to_no: int, mail: list[OpenMail], now_ms: int, outcome: str, note: str
) -> int:
    """Deliver `mail` of `no` to `to_no` too, unless it has it, and ack it in the name of `no`.

    How many messages are new to `to_no`.
    """
    given: list[int] = []
    for one in mail:
        if tx.run(_GIVE, (to_no, one.message_no, int(Stage.DELIVERED), now_ms, one.wakes)):
            given.append(one.message_no)
        tx.run(_CLOSE, (now_ms, outcome, note, no, one.message_no))
    unread = sum(one.stage < Stage.READ for one in mail)
    for mailbox_no, change in ((to_no, len(given)), (no, -unread)):
        tx.run(
            "UPDATE mailboxes SET unread = unread + ? WHERE identity_no = ?", (change, mailbox_no)
        )
    search.add_copies(tx, to_no, given)
    if given:
        tx.run(_INSERTED, (f"{_HANDED_ON} {to_no}",))
    return len(given)


def handed_on(tx: Tx, no: int) -> int:
    """How often mail of others was handed on to this mailbox: it stands at its old place there."""
    row = tx.one("SELECT value FROM counters WHERE name = ?", (f"{_HANDED_ON} {no}",))
    return int(row[0]) if row else 0


def left(tx: Tx, rows: int) -> list[int]:
    """Keys of forwarded identities in whose mailboxes unacked mail lies yet."""
    return [int(row[0]) for row in tx.all(_LEFT, (rows,))]
