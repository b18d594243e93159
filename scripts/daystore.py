"""A look at the store of a day from outside: a copy of its files is opened, never the files.

While a daemon runs nobody else can open its store, so it is stopped (SIGSTOP) for the moment of
the copy. The copy is then recovered as SQLite recovers after a crash: it is what a kill at that
moment leaves behind.
"""

import json
import shutil
import sqlite3
import stat
from pathlib import Path
from typing import Final

from mbx.store import audit
from mbx.store.audit import AuditRow
from mbx.store.database import Tx
from scripts.closedstore import audit_store
from scripts.daychecks import Copy, Stored
from scripts.dayhistory import tag_of

_FILES: Final = ("store.db", "store.db-wal")
_OWN_BITS: Final = stat.S_IRWXG | stat.S_IRWXO
_MESSAGES: Final = (
    "SELECT m.id, i.identity, m.payload FROM messages m JOIN identities i ON i.no = m.sender_no"
    " ORDER BY m.no"
)
_COPIES: Final = (
    "SELECT m.id, i.identity, d.stage, d.did FROM deliveries d"
    " JOIN messages m ON m.no = d.message_no JOIN identities i ON i.no = d.recipient_no"
)
_IDENTITIES: Final = "SELECT identity, name, role FROM identities ORDER BY no"


def copy_store(home: Path, folder: Path) -> Path:
    """Copy the files of a store whose daemon is stopped into an empty folder; the store there."""
    folder.mkdir(mode=0o700)
    for name in _FILES:
        if (home / name).exists():
            shutil.copyfile(home / name, folder / name)
    return folder / "store.db"


def look_into(path: Path) -> Stored:
    """Recover and read the copy of a store."""
    found = Stored()
    connection = sqlite3.connect(path)
    try:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        for (said,) in connection.execute("PRAGMA integrity_check"):
            if said != "ok":
                found.faults.append(f"I17 integrity_check: {said}")
        for row in connection.execute("PRAGMA foreign_key_check"):
            found.faults.append(f"I17 foreign_key_check: {row}")
        _read(connection, found)
    finally:
        connection.close()
    verified = audit_store(path)
    found.faults += [f"I17 {fault}" for fault in verified.faults]
    found.records = len(verified.messages) + verified.receipts + verified.leases
    return found


def _read(connection: sqlite3.Connection, found: Stored) -> None:
    for message, sender, payload in connection.execute(_MESSAGES):
        tag = tag_of(json.loads(payload)["body"])
        found.messages.setdefault(tag, []).append((message, sender))
    for message, recipient, stage, did in connection.execute(_COPIES):
        found.copies[message, recipient] = Copy(stage, did)
    for (payload,) in connection.execute("SELECT payload FROM receipts ORDER BY no"):
        for fact in json.loads(payload)["facts"]:
            found.facts.append((fact["message"], fact["recipient"], fact["stage"]))
    found.audit = list(audit.rows(Tx(connection, 0)))


def audit_rows(path: Path) -> list[AuditRow]:
    """The audit log of the copy of a store. One place to switch to whatever reads it later."""
    return look_into(path).audit


def identities(path: Path) -> list[tuple[str, str, str]]:
    """(identity, name, role) of all, in the order in which they were registered."""
    connection = sqlite3.connect(path)
    try:
        return connection.execute(_IDENTITIES).fetchall()
    finally:
        connection.close()


def wrong_files(home: Path) -> list[str]:
    """I17: what others may read, and temporary files, in the home of a daemon at rest."""
    found = []
    for path in [home, *sorted(home.rglob("*"))]:
        try:
            mode = path.lstat().st_mode
        except FileNotFoundError:  # a credential of a session that ended just now
            continue
        if mode & _OWN_BITS and not stat.S_ISLNK(mode):  # the mode of a link means nothing
            found.append(f"I17 {path.relative_to(home)} is open to others: {stat.filemode(mode)}")
        if path.name.endswith((".new", ".tmp", "-journal")):
            found.append(f"I17 {path.relative_to(home)} was left behind")
    return found
