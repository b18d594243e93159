"""Checks of our folders and files, from what `lstat` says and from a few bytes of two of them."""

import base64
import json
from collections.abc import Iterable, Sequence
from typing import Final, Literal, NamedTuple

from mbx.core.limits import LOG_FILE_MAX_BYTES
from mbx.doctor.verdict import Check, Level, Remedy, size, span
from mbx.paths import link_step, quoted

Kind = Literal["missing", "hidden", "folder", "file", "socket", "link", "other"]

WAL_LARGE_BYTES: Final = 64 * 1024 * 1024
"""Twice what the daemon lets the write-ahead log keep: nobody has taken it in for long."""

LEFTOVER_S: Final = 60
"""A `.new` file lives for milliseconds; an older one was left by a process that was killed."""

CLOCK_SLACK_MS: Final = 60_000
"""So much may two clocks of one machine and its disk differ without a word about it."""

STORE_HEADER_BYTES: Final = 100
"""The header of an SQLite file, which says whose it is and how large ("Database File Format")."""

LOG_LARGE_BYTES: Final = LOG_FILE_MAX_BYTES + 64 * 1024
"""The daemon begins a new file before this; a larger one cannot be moved aside."""

BAD_ENDS: Final = frozenset({"ended", "ended by a defect", "the store failed"})
"""The events of `daemon.log` with which a daemon ends that nobody has stopped."""

_MAGIC: Final = b"SQLite format 3\x00"
_APPLICATION_ID: Final = b"mbx1"
_KEY_TYPE: Final = "mbx-host-key"
_KEY_MAX_BYTES: Final = 4_096
_SEED_BYTES: Final = 32


class Entry(NamedTuple):
    """One path without following links; `hidden` is what may not be looked at."""

    path: str
    kind: Kind
    mode: int = 0
    user_id: int = 0
    size_bytes: int = 0
    modified_ms: int = 0
    why: str = ""
    """What the system said of a hidden one; of a link, where it leads."""
    is_of_others: bool = False
    """A folder of things that are not mbx's (`mbx.paths.is_of_others`)."""


def folder(name: str, seen: Entry, user_id: int, *, missing: Level, needed: str) -> Check:
    """A folder of ours: real, of this user, closed to others.

    `missing` is the level when it is not there, and `needed` says what that means.
    """
    path = quoted(seen.path)
    if seen.kind == "missing":
        remedy = Remedy("make-folder", seen.path) if missing == "warn" else None
        fix = "mbx doctor --fix" if remedy else None
        return Check(name, missing, f"{seen.path} is not there: {needed}", fix, remedy)
    if seen.kind == "hidden":
        return Check(name, "fail", f"{seen.path} cannot be looked at: {seen.why}", f"ls -ld {path}")
    if seen.kind != "folder":
        what = "a link" if seen.kind == "link" else "no folder"
        return Check(name, "fail", f"{seen.path} is {what}", f"mv {path} {path}.aside")
    if seen.user_id != user_id:
        return _foreign(name, seen, user_id)
    if seen.mode & 0o077 or seen.mode & 0o700 != 0o700:
        wrong = "open to others" if seen.mode & 0o077 else "closed to its own user"
        if seen.is_of_others:
            return Check(
                name,
                "fail",
                f"{seen.path} is {wrong} (mode {seen.mode:04o}) and holds what is not mbx's",
                f"set MBX_{name.upper()} to a folder of your own",
            )
        return Check(
            name,
            "fail",
            f"{seen.path} is {wrong} (mode {seen.mode:04o}); the daemon refuses it",
            f"chmod 700 {path}",
            Remedy("close-folder", seen.path),
        )
    return Check(name, "ok", f"{seen.path}, mode 0700")


def modes(seen: Iterable[Entry], user_id: int) -> list[Check]:
    """Files that only their user may read and write."""
    there = [one for one in seen if one.kind != "missing"]
    faults = [fault for one in there if (fault := _private(one, user_id)) is not None]
    return faults or [Check("modes", "ok", f"{len(there)} files, closed to others")]


def key(seen: Entry, content: bytes | None, user_id: int, *, has_store: bool) -> Check:
    """The host key, as the daemon demands it at its start. What is in it is never told."""
    path, restore = quoted(seen.path), "put host.key back from a backup, mode 600"
    if seen.kind == "missing":
        if has_store:
            detail = f"{seen.path} is missing, but the store belongs to it"
            return Check("host key", "fail", detail, restore)
        return Check("host key", "info", "not made yet: the first start makes it")
    if seen.kind == "link":
        return Check("host key", "fail", f"{seen.path} {seen.why}", link_step(seen.path))
    if seen.kind != "file":
        detail = f"{seen.path} is no regular file"
        return Check("host key", "fail", detail, f"mv {path} {path}.aside, then {restore}")
    if seen.user_id != user_id:
        return _foreign("host key", seen, user_id)
    if seen.mode & 0o077 or not seen.mode & 0o400:
        wrong = "can be read by others" if seen.mode & 0o077 else "cannot be read"
        return Check(
            "host key",
            "fail",
            f"{seen.path} {wrong} (mode {seen.mode:04o}); the daemon refuses it",
            f"chmod 600 {path}",
            Remedy("close-file", seen.path),
        )
    if content is None or not _is_key(content):
        return Check("host key", "fail", f"{seen.path} is damaged", restore)
    if not has_store:
        detail = "it is there and the store is not: the next start makes an empty store"
        return Check("host key", "warn", detail, "put store.db back from a backup")
    return Check("host key", "ok", "closed to others, whole")


def store(seen: Entry, header: bytes | None, wal: Entry, newest_schema: int) -> Check:
    """The store by its header alone: only the daemon opens it."""
    path = quoted(seen.path)
    aside = f"mbx daemon stop; mv {path} {path}.aside, then put a backup back"
    if seen.kind == "missing":
        return Check("store", "info", "not made yet: the first start makes it")
    if seen.kind == "link":
        return Check("store", "fail", f"{seen.path} {seen.why}", link_step(seen.path))
    if seen.kind != "file" or header is None:
        return Check("store", "fail", f"{seen.path} is no file that can be read", aside)
    if not header:
        return Check("store", "info", "empty: the next start fills it")
    application_id = header[68:72]
    logged = wal.kind == "file" and wal.size_bytes > 0
    if len(header) < STORE_HEADER_BYTES or not header.startswith(_MAGIC):
        return Check("store", "fail", f"{seen.path} is damaged or no mbx store", aside)
    if application_id != _APPLICATION_ID and (application_id != bytes(4) or not logged):
        return Check("store", "fail", f"{seen.path} belongs to another program", aside)
    schema = int.from_bytes(header[60:64], "big")
    if schema > newest_schema:
        return Check(
            "store",
            "fail",
            f"{seen.path} has schema {schema}, made by a newer mbx; this one knows {newest_schema}",
            "install the newer mbx again",
        )
    lost_bytes = _promised_bytes(header) - seen.size_bytes
    if lost_bytes > 0 and not logged:
        return Check("store", "fail", f"{seen.path} is cut short by {size(lost_bytes)}", aside)
    return Check("store", "ok", f"{size(seen.size_bytes)}, schema {schema or newest_schema}")


def wal(seen: Entry) -> Check:
    """The write-ahead log."""
    if seen.kind == "file" and seen.size_bytes > WAL_LARGE_BYTES:
        return Check(
            "wal",
            "warn",
            f"the write-ahead log has {size(seen.size_bytes)}: it was not taken in for long",
            "mbx daemon restart",
        )
    return Check("wal", "ok", size(seen.size_bytes))


def log(seen: Sequence[Entry], user_id: int, tail: bytes | None) -> list[Check]:
    """`daemon.log` and its older parts, first the one in use; `tail` is the end of that."""
    found = [fault for one in seen if (fault := _log_file(one, user_id)) is not None]
    if (end := bad_end(tail or b"")) is not None:
        event, at = end
        detail = f"the last daemon ended by itself at {at} ({event})"
        found.append(Check("log", "warn", detail, f"tail {quoted(seen[0].path)}"))
    total_bytes = sum(one.size_bytes for one in seen)
    return found or [Check("log", "ok", f"{size(total_bytes)}, bounded")]


def bad_end(tail: bytes) -> tuple[str, str] | None:
    """(event, time) when the last daemon of a log ended in a way nobody asked for."""
    ended = None
    for line in tail.split(b"\n"):
        try:
            entry = json.loads(line)
            event, at = str(entry["event"]), str(entry["at"])
        except (ValueError, KeyError, TypeError, RecursionError):
            continue
        if event in ("ready", "stopped"):
            ended = None
        elif event in BAD_ENDS and ended is None:
            ended = (event, at[:24])
    return ended


def leftovers(seen: Iterable[Entry], now_ms: int) -> list[Check]:
    """Files that a killed process was about to put in place."""
    old = [
        one for one in seen if one.kind == "file" and now_ms - one.modified_ms > LEFTOVER_S * 1000
    ]
    return [
        Check(
            "left-overs",
            "warn",
            f"{one.path} was left by a process that was killed "
            f"{span((now_ms - one.modified_ms) // 1000)} ago",
            f"rm {quoted(one.path)}",
            Remedy("remove-leftover", one.path),
        )
        for one in old
    ] or [Check("left-overs", "ok", "none")]


def clock(seen: Iterable[Entry], newest_ms: int | None, now_ms: int) -> Check:
    """This machine's clock against the newest record (where a daemon told it) and file."""
    times = [one.modified_ms for one in seen if one.kind == "file"]
    latest_ms = max([*times, newest_ms or 0], default=0)
    if latest_ms > now_ms + CLOCK_SLACK_MS:
        behind = span((latest_ms - now_ms) // 1000)
        which = "newest record" if latest_ms == newest_ms else "newest file"
        return Check("clock", "warn", f"the clock is {behind} behind the {which}", "date")
    return Check("clock", "ok", "not behind the newest record")


def _private(seen: Entry, user_id: int) -> Check | None:
    path = quoted(seen.path)
    if seen.kind == "link":
        return Check("modes", "fail", f"{seen.path} {seen.why}", link_step(seen.path))
    if seen.kind not in ("file", "socket"):
        detail = f"{seen.path} is no regular file"
        return Check("modes", "fail", detail, f"mv {path} {path}.aside")
    if seen.user_id != user_id:
        return _foreign("modes", seen, user_id)
    if seen.mode & 0o077 == 0 and seen.mode & 0o600 == 0o600:
        return None
    is_open = bool(seen.mode & 0o077)
    wrong = "can be used by others" if is_open else "cannot be read and written by its own user"
    return Check(
        "modes",
        "warn" if is_open else "fail",
        f"{seen.path} {wrong} (mode {seen.mode:04o})",
        f"chmod 600 {path}",
        Remedy("close-file", seen.path),
    )


def _log_file(seen: Entry, user_id: int) -> Check | None:
    path = quoted(seen.path)
    if seen.kind == "missing":
        return None
    if seen.kind != "file":
        detail = f"{seen.path} is no regular file: nothing can be logged"
        return Check("log", "fail", detail, f"mv {path} {path}.aside")
    if seen.user_id != user_id:
        return _foreign("log", seen, user_id)
    if seen.mode & 0o077 or seen.mode & 0o600 != 0o600:
        wrong = "can be used by others" if seen.mode & 0o077 else "cannot be written"
        return Check(
            "log",
            "warn",
            f"{seen.path} {wrong} (mode {seen.mode:04o})",
            f"chmod 600 {path}",
            Remedy("close-file", seen.path),
        )
    if seen.size_bytes > LOG_LARGE_BYTES:
        detail = f"{seen.path} has grown to {size(seen.size_bytes)}; it should be moved aside"
        return Check("log", "warn", detail, f"truncate -s 0 {path}")
    return None


def _foreign(name: str, seen: Entry, user_id: int) -> Check:
    return Check(
        name,
        "fail",
        f"{seen.path} belongs to user {seen.user_id}, not to user {user_id}",
        f"sudo chown -R {user_id} {quoted(seen.path)}",
    )


def _promised_bytes(header: bytes) -> int:
    """The size that the header speaks of; 0 where its own counters say that it is out of date."""
    if header[24:28] != header[92:96]:
        return 0
    page_bytes = int.from_bytes(header[16:18], "big")
    return (65_536 if page_bytes == 1 else page_bytes) * int.from_bytes(header[28:32], "big")


def _is_key(content: bytes) -> bool:
    """Whether this can be a key: what only cryptography could tell, the daemon tells."""
    if len(content) > _KEY_MAX_BYTES:
        return False
    try:
        told = json.loads(content.decode("utf-8-sig").strip())
        seed = base64.b64decode(told["seed"], validate=True)
        has_id = isinstance(told["key_id"], str)
        return bool(told["type"] == _KEY_TYPE and told["v"] == 1 and has_id) and (
            len(seed) == _SEED_BYTES
        )
    except (ValueError, KeyError, TypeError, RecursionError):
        return False
