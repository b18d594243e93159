"""Kimi Code: `kimi web` gives a conversation a prompt, by its interface on this machine.

The server's own record names its process and port; both are believed only where the kernel says
that exactly the holder listens there, on this machine's own network, since the client's token goes
there. The conversation is named by its id, which its hooks told. It is prompted with the model that
it has: one that has none yet has no way. At a terminal Kimi Code listens to nobody.
"""

import asyncio
import json
import os
import pwd
import re
import socket
import stat
from collections.abc import Callable
from contextlib import closing, suppress
from typing import Any, Final, NamedTuple

from mbx.core.evidence import Process, own_id
from mbx.core.limits import CLIENT_RECORD_MAX_BYTES, WAKE_LOOK_MS, WAKE_TURN_MS
from mbx.daemon import processes
from mbx.daemon.holders import Target
from mbx.daemon.wakes import IN_A_TURN, LEASE_CHANGED, Seen, Told, still_there

FOLDER: Final = "KIMI_CODE_HOME"
"""The variable that moves the client's folder, by default `.kimi-code` at home."""

CONVERSATION: Final = re.compile(r"session_[0-9a-f-]{8,64}")
"""What can be the id of a conversation, and never another path of the interface."""

RECORDS_MAX: Final = 64
"""Records of servers that are looked at; the client removes those of servers that have ended."""

_TOKEN: Final = re.compile(r"[A-Za-z0-9_-]{16,128}")
_ANSWER_MAX_BYTES: Final = 256 * 1024
_TAKEN: Final = ("running", "queued")

_NO_SERVER: Final = "this Kimi Code listens to nobody (kimi web does)"
_NO_CONVERSATION: Final = "its conversation is not known: the hooks of Kimi Code tell it"
_CLOSED: Final = "the token of this kimi web cannot be read"
_NO_MODEL: Final = "its conversation has no model yet"
_NO_ANSWER: Final = "its kimi web does not answer"
_ADMITTED: Final = "kimi web took it as a prompt"
_REFUSED: Final = "kimi web refused it"
_LOST: Final = "kimi web did not say whether it took it"


class Server(NamedTuple):
    """Where the holder's own server listens, and what opens it."""

    address: str
    port: int
    token: str


class Conversation(NamedTuple):
    """What its server says of a conversation."""

    is_busy: bool
    model: str


class Kimi:
    """The way to a conversation of `kimi web`. `label` tells what a session was called last."""

    names_conversations = True

    def __init__(self, label: Callable[[Process, str], str | None]) -> None:
        self._label = label

    def look(self, target: Target) -> Seen:
        """What its server says of the conversation now."""
        called = self._conversation(target)
        server = _server(target.process)
        if isinstance(server, str):
            return Seen("none", server)
        if called is None:
            return Seen("none", _NO_CONVERSATION)
        told = _conversation(server, called)
        if told is None:
            return Seen("none", _NO_ANSWER)
        if not told.model:
            return Seen("none", _NO_MODEL)
        return Seen("busy", IN_A_TURN) if told.is_busy else Seen("idle")

    async def wake(self, target: Target, text: str, is_current: Callable[[], bool]) -> Told:
        """Give the conversation a prompt; the server's answer says whether it begins a turn."""
        called = self._conversation(target)
        server = await asyncio.to_thread(_server, target.process)
        if called is None or isinstance(server, str):
            return Told("failed", server if isinstance(server, str) else _NO_CONVERSATION)
        told = await asyncio.to_thread(_conversation, server, called)
        if told is None or not told.model:
            return Told("failed", _NO_ANSWER if told is None else _NO_MODEL)
        if told.is_busy:
            return Told("busy", IN_A_TURN)
        line = await asyncio.to_thread(_connected, server)
        if line is None:
            return Told("failed", _NO_ANSWER)
        body = {"content": [{"type": "text", "text": text}], "model": told.model}
        data = _request(server, "POST", f"sessions/{called}/prompts", body)
        with closing(line):
            # Nothing in here waits: between the last check and the prompt there is no time.
            if not still_there(target, is_current) or not _is_listening(target.process, server):
                return LEASE_CHANGED
            line.setblocking(False)
            try:
                if line.send(data) != len(data):
                    return Told("unknown", _LOST)
            except OSError:
                return Told("failed", _NO_ANSWER)
            return _outcome(await asyncio.to_thread(_answer, line, WAKE_TURN_MS))

    def _conversation(self, target: Target) -> str | None:
        called = self._label(target.process, target.conversation) or target.called
        is_own = called == own_id(target.process, target.conversation)
        return called if not is_own and CONVERSATION.fullmatch(called) else None


def _outcome(answer: dict[str, Any] | None) -> Told:
    """What the answer to a prompt means; every refusal of the client has a code."""
    if answer is None:
        return Told("unknown", _LOST)
    if answer.get("code") != 0:
        return Told("failed", _REFUSED)
    told = answer.get("data")
    is_taken = isinstance(told, dict) and told.get("status") in _TAKEN
    return Told("admitted", _ADMITTED) if is_taken else Told("unknown", _LOST)


# -- the server -----------------------------------------------------------------------------------


def _server(process: Process) -> Server | str:
    """The server that exactly this process is, or why there is none."""
    said = processes.variables(process, (FOLDER, "HOME")) or {}
    home = said.get("HOME") or pwd.getpwuid(os.geteuid()).pw_dir
    folder = said.get(FOLDER) or os.path.join(home, ".kimi-code")
    port = _port(process, os.path.join(folder, "server", "instances"))
    address = next(iter(_reachable(process, port)), None) if port else None
    if port is None or address is None:
        return _NO_SERVER
    token = (_file(os.path.join(folder, "server.token")) or b"").decode("ascii", "replace").strip()
    return Server(address, port, token) if _TOKEN.fullmatch(token) else _CLOSED


def _port(process: Process, folder: str) -> int | None:
    """The port in the record of this process, if there is one."""
    with suppress(OSError):
        names = sorted(os.listdir(folder), reverse=True)
        for name in names[:RECORDS_MAX]:
            record = _document(_file(os.path.join(folder, name)))
            port = record.get("port") if record and record.get("pid") == process.pid else None
            if isinstance(port, int) and 0 < port < 65_536:
                return port
    return None


def _reachable(process: Process, port: int) -> list[str]:
    """The loopback addresses at which this process is reached on a port, by the kernel's word."""
    here = processes.listens_at(process, port)
    any_address = "0.0.0.0"  # noqa: S104  (compared, never bound)
    loopbacks = (("127.0.0.1", {"127.0.0.1", any_address}), ("::1", {"::1", "::"}))
    return [address for address, listening in loopbacks if listening & here]


def _is_listening(process: Process, server: Server) -> bool:
    return server.address in _reachable(process, server.port)


def _file(path: str) -> bytes | None:
    """A small file of ours; None for anything else."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (OSError, ValueError):
        return None
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid():
            return None
        raw = os.read(descriptor, CLIENT_RECORD_MAX_BYTES + 1)
        return raw if len(raw) <= CLIENT_RECORD_MAX_BYTES else None
    except OSError:
        return None
    finally:
        os.close(descriptor)


def _document(raw: bytes | None) -> dict[str, Any] | None:
    try:
        told = json.loads(raw) if raw is not None else None
    except (ValueError, RecursionError):
        return None
    return told if isinstance(told, dict) else None


# -- its interface --------------------------------------------------------------------------------


def _conversation(server: Server, called: str) -> Conversation | None:
    """What the server says of a conversation; None where it says nothing of it."""
    line = _connected(server)
    if line is None:
        return None
    with closing(line):
        try:
            line.sendall(_request(server, "GET", f"sessions/{called}"))
        except OSError:
            return None
        told = (_answer(line, WAKE_LOOK_MS) or {}).get("data")
    if not isinstance(told, dict) or told.get("id") != called:
        return None
    config = told.get("agent_config")
    model = config.get("model") if isinstance(config, dict) else None
    asks = told.get("pending_interaction") not in (None, "none")
    is_busy = bool(told.get("busy")) or bool(told.get("main_turn_active")) or asks
    return Conversation(is_busy, model if isinstance(model, str) else "")


def _connected(server: Server) -> socket.socket | None:
    try:
        return socket.create_connection((server.address, server.port), WAKE_LOOK_MS / 1000)
    except OSError:
        return None


def _request(server: Server, method: str, path: str, body: object = None) -> bytes:
    """One request of HTTP/1.0: the answer ends with the connection."""
    content = b"" if body is None else json.dumps(body).encode()
    host = f"[{server.address}]" if ":" in server.address else server.address
    head = (
        f"{method} /api/v1/{path} HTTP/1.0",
        f"Host: {host}:{server.port}",
        f"Authorization: Bearer {server.token}",
        "Accept: application/json",
        "Connection: close",
        *(("Content-Type: application/json", f"Content-Length: {len(content)}") if content else ()),
    )
    return "\r\n".join(head).encode("ascii") + b"\r\n\r\n" + content


def _answer(line: socket.socket, within_ms: int) -> dict[str, Any] | None:
    """The object in an answer; None where none comes, each piece within a time, and in order."""
    raw = b""
    try:
        line.settimeout(within_ms / 1000)
        while piece := line.recv(64 * 1024):
            raw += piece
            if len(raw) > _ANSWER_MAX_BYTES:
                return None
    except OSError:
        return None
    head, _, content = raw.partition(b"\r\n\r\n")
    return _document(content) if head.startswith(b"HTTP/1.") else None
