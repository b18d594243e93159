"""Faults for `mbx doctor`, planted for real in a home: shared by `scripts/day` and the tests."""

import hashlib
import os
import shutil
import socket
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

LATER_S: Final = 7_200
"""Far enough away that no tolerance covers it."""
DAMAGED_PAGE: Final = (
    "PRAGMA writable_schema = ON",
    "UPDATE sqlite_schema SET rootpage = 3 WHERE name = 'messages_by_id'",
)
"""For `change_store`: an index begins on a page that is another's."""
OTHER_VERSION: Final = """
import sys, mbx
mbx.__version__ = "9.9.9"
mbx.PROTOCOL = int(sys.argv[1])
from mbx.daemon.__main__ import main
sys.exit(main(["--foreground"]))
"""
"""Python: a daemon of mbx 9.9.9 that speaks the protocol whose number is its argument."""


def contents(home: Path) -> dict[str, tuple[int, int, str]]:
    """Path -> mode, time of the last change, digest: everything that looking must leave alone.

    But for the snapshots, among which a living daemon gives signs of life by itself.
    """
    found, snapshots = {}, home / "run" / "snapshots"
    for path in [home, *sorted(home.rglob("*"))]:
        if path == snapshots or path.parent == snapshots:
            continue
        entry = path.lstat()
        digest = hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""
        found[str(path)] = (entry.st_mode, entry.st_mtime_ns, digest)
    return found


def change_store(home: Path, *statements: str) -> None:
    connection = sqlite3.connect(home / "store.db")
    for statement in statements:
        connection.execute(statement)
    connection.commit()
    connection.close()


def cut_in_half(path: Path) -> None:
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size // 2)


def stale_socket(home: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(home / "run" / "mbx.sock"))
        (home / "run" / "mbx.sock").chmod(0o600)


def old_left_over(home: Path) -> None:
    path = home / "host.key.new"
    path.touch(0o600)
    os.utime(path, (time.time() - LATER_S, time.time() - LATER_S))


def future_file(home: Path) -> None:
    os.utime(home / "store.db", (time.time() + LATER_S, time.time() + LATER_S))


def link_away(path: Path) -> None:
    path.rename(path.with_name("elsewhere"))
    path.symlink_to("elsewhere")


def grown(path: Path) -> None:
    with path.open("ab") as file:
        file.truncate(3 << 20)


def replaced_by_folder(path: Path) -> None:
    path.unlink(missing_ok=True)
    path.mkdir()


def bad_end(home: Path) -> None:
    with (home / "daemon.log").open("a") as log:
        log.write('{"at": "2026-01-31T12:00:00.000Z", "event": "the store failed", "why": "x"}\n')


PLANTED: Final[dict[str, tuple[Callable[[Path], object], str, str]]] = {
    "key missing": (lambda home: (home / "host.key").unlink(), "host key", "fail"),
    "key open": (lambda home: (home / "host.key").chmod(0o644), "host key", "fail"),
    "key damaged": (lambda home: (home / "host.key").write_bytes(b"{"), "host key", "fail"),
    "store gone": (lambda home: (home / "store.db").unlink(), "host key", "warn"),
    "store damaged": (lambda home: (home / "store.db").write_bytes(b"x" * 4096), "store", "fail"),
    "store cut short": (lambda home: cut_in_half(home / "store.db"), "store", "fail"),
    "store newer": (lambda home: change_store(home, "PRAGMA user_version = 99"), "store", "fail"),
    "store open": (lambda home: (home / "store.db").chmod(0o644), "modes", "warn"),
    "home open": (lambda home: home.chmod(0o755), "home", "fail"),
    "run open": (lambda home: (home / "run").chmod(0o770), "run", "fail"),
    "run a link": (lambda home: link_away(home / "run" / "sessions"), "sessions", "fail"),
    "sessions missing": (lambda home: shutil.rmtree(home / "run" / "sessions"), "sessions", "warn"),
    "socket stale": (stale_socket, "socket", "warn"),
    "socket a file": (lambda home: (home / "run" / "mbx.sock").touch(), "socket", "fail"),
    "socket a folder": (lambda home: (home / "run" / "mbx.sock").mkdir(), "socket", "fail"),
    "left-over": (old_left_over, "left-overs", "warn"),
    "log grown": (lambda home: grown(home / "daemon.log"), "log", "warn"),
    "log unwritable": (lambda home: (home / "daemon.log").chmod(0o400), "log", "warn"),
    "log a folder": (lambda home: replaced_by_folder(home / "daemon.log"), "log", "fail"),
    "a bad end": (bad_end, "log", "warn"),
    "clock behind": (future_file, "clock", "warn"),
}
"""Fault -> how it is planted where no daemon runs, the check that names it, and its level."""
