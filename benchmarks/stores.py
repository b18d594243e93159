"""A store with very many messages, made once and kept: real rows, really signed, indexed.

Sending 10^6 messages over the socket would take longer and give the same rows. Every other
message went to `READER`, who acked all but the newest `UNREAD`; one of `SELDOM_OF` to `SELDOM`; the
others wait unread with the recipients of the bench. Receipts of the acks are left out: nothing that
is measured reads them.
"""

import hashlib
import os
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Final

from benchmarks import floors
from benchmarks.mail import RECIPIENTS, body
from benchmarks.wire import Line
from benchmarks.workshop import Daemon, Workshop, register, register_and_release
from mbx.core.keys import SigningKey
from mbx.core.record import seal
from mbx.daemon import keystore
from mbx.store import search
from mbx.store.database import Tx, connect

READER: Final = "bench-reader"
UNREAD: Final = 1_000
SELDOM: Final = "bench-seldom"
SELDOM_OF: Final = 5_000
_SENDER: Final = "bench-load"
_ROWS_A_TRANSACTION: Final = 10_000
_NONCE: Final = "0" * 32
_BODY: Final = "BODY"
_SUBJECT: Final = "Bench message 1"


def copy_of_large(workshop: Workshop) -> Path:
    """A home of its own with the large store in it."""
    return copy_of(workshop, workshop.scale.large_store)


def copy_of(workshop: Workshop, count: int) -> Path:
    """A home of its own with a store of `count` messages, which is made when there is none yet."""
    version = hashlib.sha256((floors.schema() + SELDOM).encode()).hexdigest()[:8]
    made = workshop.kept / f"store-{count}-{version}"
    if not made.exists():
        workshop.say(f"making a store of {count:,} messages (once)")
        building = workshop.home()
        _make(building, count, workshop.say)
        building.rename(made)
    home = workshop.home()
    for name in ("store.db", "host.key"):
        shutil.copy2(made / name, home / name)
    return home


def _make(home: Path, count: int, say: Callable[[str], None]) -> None:
    with Daemon(home) as daemon:
        line = Line.of_session(daemon.socket)
        register_and_release(line, [READER, SELDOM, *RECIPIENTS])
        register(line, _SENDER)
        line.call("identity.release")
        line.close()
    signer = keystore.load_or_create(str(home / "host.key"), b"", must_exist=True)
    connection = connect(str(home / "store.db"))
    try:
        _fill(connection, signer, count, say)
    finally:
        connection.close()
    shutil.rmtree(home / "run")


def _fill(
    connection: sqlite3.Connection, signer: SigningKey, count: int, say: Callable[[str], None]
) -> None:
    tx = Tx(connection, 0)
    nos: dict[str, int] = dict(tx.all("SELECT name, no FROM identities"))
    acked_below = count - 2 * min(UNREAD, count // 2)
    for first in range(0, count, _ROWS_A_TRANSACTION):
        last = min(first + _ROWS_A_TRANSACTION, count)
        connection.execute("BEGIN IMMEDIATE")
        for number in range(first, last):
            _add(connection, signer, number, nos[_SENDER], nos[_recipient(number)])
        tx.run("UPDATE counters SET value = value + ? WHERE name = 'commit_seq'", (last - first,))
        _ack_below(tx, nos[READER], min(last, acked_below))
        while search.index_some(tx, _ROWS_A_TRANSACTION).pending:
            pass
        connection.execute("COMMIT")
        if last % (10 * _ROWS_A_TRANSACTION) == 0:
            say(f"{last:,} messages")


def seldom_of(count: int) -> int:
    """How many of so many messages `SELDOM` has."""
    return (count + SELDOM_OF - 2) // SELDOM_OF


def _recipient(number: int) -> str:
    if number % SELDOM_OF == 1:
        return SELDOM
    return RECIPIENTS[number // 2 % len(RECIPIENTS)] if number % 2 else READER


def _add(
    connection: sqlite3.Connection,
    signer: SigningKey,
    number: int,
    sender_no: int,
    recipient_no: int,
) -> None:
    subject, text = f"Bench message {number}", body(number)
    before, between, after = _TEMPLATE
    payload = f"{before}{text}{between}{os.urandom(16).hex()}{after}".replace(_SUBJECT, subject, 1)
    record = seal("message", payload.encode(), signer)
    message, answer = floors.rows(number, sender_no, record)
    floors.add(connection, message, recipient_no, answer)


def _template() -> tuple[str, str, str]:
    """The payload around its body and its nonce: encoding each anew would take most of the time."""
    whole = floors.canonical({**floors.payload(1, _NONCE), "body": _BODY}).decode()
    before, rest = whole.split(_BODY)
    between, after = rest.split(_NONCE)
    return before, between, after


_TEMPLATE: Final = _template()


def _ack_below(tx: Tx, recipient_no: int, below_no: int) -> None:
    """Ack what the reader has of the messages up to number `below_no`."""
    acked = tx.run(
        "UPDATE deliveries SET stage = 5, epoch = 1, outcome = 'noted'"
        " WHERE recipient_no = ? AND message_no <= ? AND stage < 5",
        (recipient_no, below_no),
    )
    tx.run("UPDATE mailboxes SET unread = unread - ? WHERE identity_no = ?", (acked, recipient_no))
