"""Claude Code: one JSON line to the socket of the session, which its own record names.

The record lies in the client's folder under the number of its process. It is believed only where
process and start are the holder's, and the socket only where the kernel says that exactly this
process listens there. The client holds a message back where it skips its permission prompts, unless
its user's settings accept it; that shows by no turn that begins, and is then unknown.

Where it would hold messages back, or has no socket, a hook that the client left running is asked
instead: when that ends with words, the client takes them as a notice and begins a turn.
"""

import asyncio
import json
import os
import pwd
import socket
import stat
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from mbx.core.evidence import Process, ProcessEntry
from mbx.core.limits import CLIENT_RECORD_MAX_BYTES, WAKE_TURN_MS
from mbx.daemon import processes
from mbx.daemon.holders import Target
from mbx.daemon.offers import Offers
from mbx.daemon.wakes import IN_A_TURN, LEASE_CHANGED, Seen, Told, still_there

FOLDER: Final = "CLAUDE_CONFIG_DIR"
"""The variable that moves the client's folder, by default `.claude` at home."""

SKIPPING: Final = frozenset(("bypassPermissions", "--dangerously-skip-permissions"))
"""Words of a command line that skip the permission prompts."""

ONE_TURN: Final = frozenset(("-p", "--print"))
"""Words of a command line by which it runs one turn and ends, once its hooks have."""

WAITS_SINCE: Final = (2, 1, 332)
"""The version from which on it is known to leave a waiting hook running (`asyncRewake`)."""

_LOOK_S: Final = 0.2
_LOOKS: Final = WAKE_TURN_MS // 200

_NO_RECORD: Final = "Claude Code has no record of this session that could be read"
_NOT_ITS_OWN: Final = "the record under the number of this process is another process's"
_NO_SOCKET: Final = "this Claude Code has no socket for messages"
_STARTING: Final = "Claude Code does not say whether it is idle"
_REFUSES: Final = 'its setting "crossSessionInbound" takes no messages'
_SKIPS: Final = (
    "it skips permission prompts and holds messages back; the user's setting"
    ' "crossSessionInbound": "accept" lets them in'
)
_TURN: Final = "it took the message and began a turn"
_NO_TURN: Final = "it took the message and began no turn: it may be held back by a dialog"
_NOT_CONNECTED: Final = "its socket takes no connection"
_HOOK_TURN: Final = "its waiting hook took the message, and it began a turn"
_NO_HOOK_TURN: Final = "its waiting hook took the message, and it began no turn"
_STRANGER: Final = "another process than the holder listens on its socket"
_PARTLY: Final = "its socket took only a part of the message"


class Record(NamedTuple):
    """What counts of a session's record; `changed`: when its status did (as the client writes)."""

    socket_path: str
    status: str
    changed: object
    version: tuple[int, ...] = ()


class Claude:
    """The way to a session of Claude Code. `soon`: calls something on the loop, from any thread."""

    names_conversations = False

    def __init__(self, offers: Offers, soon: Callable[..., object]) -> None:
        self._offers = offers
        self._soon = soon

    def look(self, target: Target) -> Seen:
        """What the record, the settings, the command line and a waiting hook say."""
        folder = _folder(target.process)
        record = _record(target.process, folder)
        refused = self._refused(target, folder, record)
        is_awaited = refused is not None and self._is_awaited(target, record, refused)
        if is_awaited:
            self._soon(self._offers.keep, target)
        else:
            self._soon(self._offers.dismiss, target.process, target.conversation)
        if isinstance(record, str) or (refused is not None and not is_awaited):
            return refused or Seen("none")
        if record.status == "idle":
            return Seen("idle")
        return Seen("busy", IN_A_TURN if record.status == "busy" else _STARTING)

    def _refused(self, target: Target, folder: str, record: "Record | str") -> Seen | None:
        """Why its socket is no way; None: it is one."""
        if isinstance(record, str):
            return Seen("none", record)
        if not _is_own_socket(record.socket_path):
            return Seen("none", _NO_SOCKET)
        offer = self._offers.of(target)
        held_back = _held_back(target.process, folder, offer.mode if offer else "")
        return Seen("blocked", held_back) if held_back else None

    def _is_awaited(self, target: Target, record: "Record | str", refused: Seen) -> bool:
        """Whether a hook waits there whose end wakes it, and its user did not refuse messages."""
        if isinstance(record, str) or refused.why == _REFUSES or self._offers.of(target) is None:
            return False
        return record.version >= WAITS_SINCE and not ONE_TURN & set(_words(target.process))

    async def wake(self, target: Target, text: str, is_current: Callable[[], bool]) -> Told:
        """Write the line, or ask the hook; then wait until a turn is seen to begin."""
        folder = await asyncio.to_thread(_folder, target.process)
        record = await asyncio.to_thread(_record, target.process, folder)
        if isinstance(record, str):
            return Told("failed", record)
        refused = await asyncio.to_thread(self._refused, target, folder, record)
        if refused is not None:
            if not self._is_awaited(target, record, refused):
                return Told("failed", refused.why)
            return await self._ask(target, text, is_current, folder, record)
        with socket.socket(socket.AF_UNIX) as line:
            told = _write(line, record, target.process, text, is_current)
            if told is not None:
                return told
            return await _turn(target.process, folder, record)

    async def _ask(
        self,
        target: Target,
        text: str,
        is_current: Callable[[], bool],
        folder: str,
        record: Record,
    ) -> Told:
        """Have the waiting hook say it; whether the client heeded that, its record tells."""
        if not still_there(target, is_current):
            return LEASE_CHANGED
        told = await self._offers.ask(target, text)
        if told.outcome != "admitted":
            return told
        seen = await _turn(target.process, folder, record)
        return Told(seen.outcome, _HOOK_TURN if seen.outcome == "admitted" else _NO_HOOK_TURN)


def _write(
    line: socket.socket,
    record: Record,
    process: Process,
    text: str,
    is_current: Callable[[], bool],
) -> Told | None:
    """Nothing in here waits: between the last check and the line there is no time. None: written.

    A listener that takes no connection refuses at once, since a unix socket never waits for it.
    """
    line.setblocking(False)
    try:
        line.connect(record.socket_path)
        with processes.peer_of(line) as peer:
            is_holder = peer.pid == process.pid and peer.uid == os.geteuid() and peer.is_alive()
    except OSError:
        return Told("failed", _NOT_CONNECTED)
    if not is_holder or processes.evidence(process) != "live":
        return Told("failed", _STRANGER)
    if not is_current():
        return LEASE_CHANGED
    message = {"type": "user", "message": {"role": "user", "content": text}}
    data = json.dumps(message).encode() + b"\n"
    try:
        sent = line.send(data)
    except OSError:
        return Told("failed", _NOT_CONNECTED)
    return None if sent == len(data) else Told("unknown", _PARTLY)


async def _turn(process: Process, folder: str, before: Record) -> Told:
    """Whether the client is seen to begin a turn: nothing else says that it took what it read."""
    for _ in range(_LOOKS):
        await asyncio.sleep(_LOOK_S)
        now = await asyncio.to_thread(_record, process, folder)
        if isinstance(now, Record) and (now.status == "busy" or now.changed != before.changed):
            return Told("admitted", _TURN)
    return Told("unknown", _NO_TURN)


def _folder(process: Process) -> str:
    """Where that process has its records; its HOME counts before the password database."""
    said = processes.variables(process, (FOLDER, "HOME")) or {}
    home = said.get("HOME") or pwd.getpwuid(os.geteuid()).pw_dir
    return said.get(FOLDER) or os.path.join(home, ".claude")


def _record(process: Process, folder: str) -> Record | str:
    """The record of exactly this process, or why there is none."""
    found = _document(os.path.join(folder, "sessions", f"{process.pid}.json"))
    if found is None:
        return _NO_RECORD
    # `procStart` is the start as /proc tells it, in words of another form where there is no /proc.
    if found.get("pid") != process.pid or found.get("procStart") != str(process.start_ticks):
        return _NOT_ITS_OWN
    socket_path, status = found.get("messagingSocketPath"), found.get("status")
    return Record(
        socket_path if isinstance(socket_path, str) else "",
        status if isinstance(status, str) else "",
        found.get("statusUpdatedAt"),
        _version(found.get("version")),
    )


def _version(said: object) -> tuple[int, ...]:
    """The numbers of a version; empty for what is none."""
    words = said.split(".") if isinstance(said, str) else []
    return (
        tuple(map(int, words)) if all(word.isascii() and word.isdigit() for word in words) else ()
    )


def _document(path: str) -> dict[str, Any] | None:
    """The object in a small file of ours; None for anything else."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (OSError, ValueError):
        return None
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid():
            return None
        raw = os.read(descriptor, CLIENT_RECORD_MAX_BYTES + 1)
        told = json.loads(raw) if len(raw) <= CLIENT_RECORD_MAX_BYTES else None
    except (OSError, ValueError, RecursionError):
        return None
    finally:
        os.close(descriptor)
    return told if isinstance(told, dict) else None


def _is_own_socket(path: str) -> bool:
    try:
        found = os.lstat(path)
    except (OSError, ValueError):
        return False
    return stat.S_ISSOCK(found.st_mode) and found.st_uid == os.geteuid()


def _words(process: Process) -> tuple[str, ...]:
    entry = processes.read_entry(process.pid)
    return entry.argv[1:] if isinstance(entry, ProcessEntry) else ()


def _held_back(process: Process, folder: str, mode: str) -> str:
    """Why the client would hold a message back, as far as can be said before; empty: it would not.

    `mode`: the one that its hook told at the end of a turn. It may be changed while it runs: where
    no hook told it, that shows only by the turn that does not begin.
    """
    settings = _document(os.path.join(folder, "settings.json")) or {}
    inbound = settings.get("crossSessionInbound")
    if inbound in ("hold", "refuse"):
        return _REFUSES
    if inbound == "accept":
        return ""
    if mode:
        return _SKIPS if mode in SKIPPING else ""
    permissions = settings.get("permissions")
    usual = permissions.get("defaultMode") if isinstance(permissions, dict) else None
    started = {word.rpartition("=")[2] for word in _words(process)}
    return _SKIPS if usual in SKIPPING or SKIPPING & started else ""
