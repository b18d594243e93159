"""MCP connections: lines of an agent CLI that the connector pipes to the daemon.

After a hello that names a pipe, every line is ``NUMBER SPACE JSON``: the place of the line in all
that the client ever wrote, and what it wrote. After a lost connection the connector says which pipe
it is and writes the unanswered lines again under their old numbers; pipe and number make the
idempotency key of what a tool changes, so nothing is done twice. What is written back are the bare
JSON lines of the protocol.

The SDK (0.7 s, 30 MiB) is loaded by the first pipe, in a thread of its own; until then the handful
of requests by which clients start are answered from constants.
"""

from __future__ import annotations  # nested functions would evaluate theirs each time

import asyncio
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Final, NamedTuple, Protocol, TypeGuard

from mbx.core.canonical import CanonicalError
from mbx.core.errors import MbxError
from mbx.core.limits import PIPE_LINES_MAX, PROJECT_MAX_CHARS, REQUEST_LINE_MAX_BYTES
from mbx.daemon import codec
from mbx.daemon.context import Answer
from mbx.daemon.journal import whence
from mbx.mcp import arguments, calls, greetings, offline, rendering
from mbx.mcp.calls import Step, Surroundings
from mbx.mcp.tools import BY_NAME, HOOK
from mbx.store.database import Committed, Outcome

_NUMBERED: Final = re.compile(rb"([1-9][0-9]{0,15}|0) ")
_PIPE: Final = re.compile(r"[0-9a-f]{32}")
_PARSE_ERROR: Final = -32700
_INTERNAL_ERROR: Final = -32603
_FAILED: Final = (
    "mbx failed at serving this connection, and its log says where: start the MCP server again,"
    " or use the mbx command"
)
_PAGES_MAX: Final = 64
"""Pages that one listing looks through for something to show."""


class Connected(Protocol):
    """What a pipe needs of the connection that it lies on."""

    def ask(
        self, method: str, params: Mapping[str, Any], done: Callable[[Outcome[Answer]], None]
    ) -> None:
        """Carry out a call of the connection's caller. Raises MbxError when it is refused early."""

    def hook_answer(self, event: str, known: dict[str, Any]) -> dict[str, Any]:
        """What a hook of the connection's session prints at an event; `known`: of the session."""

    def write_line(self, line: bytes) -> None:
        """Write a line, without its end."""

    def taken(self) -> None:
        """A request is under way."""

    def settled(self) -> None:
        """A request under way was answered, or never will be."""

    def forgotten(self, size_bytes: int) -> None:
        """So many bytes that arrived are kept no longer."""


class Numbered(NamedTuple):
    """A line of the client: its number, the message, and whether it was answered already.

    `is_kept`: it is a request that is under way, whose bytes count until it is answered.
    """

    number: int
    message: dict[str, Any]
    size_bytes: int
    is_answered: bool = False
    is_kept: bool = False

    @property
    def request_id(self) -> str | int | None:
        """The id of a request; None for what is none."""
        given = self.message.get("id") if "method" in self.message else None
        return given if _is_id(given) else None


class ToolResult(NamedTuple):
    """What a tool call gives: the object, the same as text, and whether it is a refusal."""

    structured: dict[str, Any]
    text: str
    is_refusal: bool = False


class PipeHello(NamedTuple):
    """What the connector says: which pipe it is, where its client works, whether it comes again."""

    pipe: str
    project: str | None = None
    is_again: bool = False


def read_hello(said: object) -> PipeHello | None:
    """The part of a hello that makes the connection a pipe. Raises MbxError usage."""
    if said is None:
        return None
    if not isinstance(said, dict):
        raise MbxError("usage", "pipe must be an object with id, project and again")
    pipe, project, again = said.get("id"), said.get("project"), said.get("again", False)
    if not isinstance(pipe, str) or _PIPE.fullmatch(pipe) is None:
        raise MbxError("usage", "the id of a pipe has 32 lower-case hexadecimal characters")
    if project is not None and (
        not isinstance(project, str) or len(project) > PROJECT_MAX_CHARS or "\0" in project
    ):
        raise MbxError("usage", f"project must be a path of at most {PROJECT_MAX_CHARS} characters")
    if not isinstance(again, bool):
        raise MbxError("usage", "again must be true or false")
    return PipeHello(pipe, project, again)


class Pipe:
    """One MCP connection. `lines` is what the SDK reads; None ends it."""

    def __init__(self, connected: Connected, hello: PipeHello) -> None:
        self._connected = connected
        self.hello = hello
        self.lines: asyncio.Queue[Numbered | None] = asyncio.Queue()
        self.is_early = True
        """Nobody reads `lines` yet: what can be answered from constants is."""
        self._under_way: dict[str | int, int] = {}
        self._has_failed = False

    def receive(self, line: bytes) -> None:
        """A line of the connector's; one that is no message is answered so."""
        try:
            self._take(self._read(line))
        except MbxError as error:
            self._refuse(line.partition(b" ")[2], error)
            self._connected.forgotten(len(line) + 1)

    def end(self) -> None:
        """The connection is gone: what is under way goes on, and nobody is answered."""
        self.lines.put_nowait(None)

    def fail(self) -> None:
        """Nobody reads `lines` any more: all that is asked, and will be, is answered with an error.

        The connection stays, since whatever failed may fail on the next one too.
        """
        self._has_failed = True
        while not self.lines.empty():
            line = self.lines.get_nowait()
            if line is not None:
                self._turn_down(line)
        for request_id in list(self._under_way):
            self._write_failure(request_id)
            self.answered(request_id)

    def write(self, line: bytes) -> None:
        """Write a message to the client."""
        self._connected.write_line(line)

    def answered(self, request_id: object) -> None:
        """A request has its answer, or never gets one."""
        if _is_id(request_id) and request_id in self._under_way:
            self._connected.forgotten(self._under_way.pop(request_id))
            self._connected.settled()

    def passed_on(self, line: Numbered) -> None:
        """A line left the queue; one of a request is kept until that is answered."""
        if not line.is_kept:
            self._connected.forgotten(line.size_bytes)

    async def call(self, tool: str, given: Mapping[str, Any], number: int) -> ToolResult:
        """Carry out a tool call that stood on the line of this number.

        Raises LookupError for a tool that is not there.
        """
        if tool not in BY_NAME:
            raise LookupError(tool)
        try:
            told = arguments.read(tool, given)
            named = told.pop("key", None)
            steps = calls.steps_of(tool, told, Surroundings(self.hello.project))
            if tool == HOOK:
                return await self._hooked(str(told["event"]), steps[0])
            result: dict[str, Any] = {}
            for place, step in enumerate(steps):
                key = calls.key_of(f"mcp.{self.hello.pipe}.{number}", place, named)
                result = await self._carry_out(step, key)
        except MbxError as error:
            return ToolResult(*rendering.refusal(error), is_refusal=True)
        structured = rendering.structured(tool, result)
        return ToolResult(structured, rendering.text(tool, result), _is_all_failed(result))

    # -- inside -----------------------------------------------------------------------------------

    async def _hooked(self, event: str, step: Step) -> ToolResult:
        """The output of a hook; whatever is wrong, it says nothing and holds nobody up."""
        known: dict[str, Any] = {}
        with suppress(MbxError):
            known = await self._asked(step.method, step.params)
        answer = self._connected.hook_answer(event, known)
        return ToolResult(answer, codec.encode(answer).decode())

    def _read(self, line: bytes) -> Numbered:
        found = _NUMBERED.match(line)
        if found is None:
            raise MbxError("usage", "a line of a pipe begins with its number and a space")
        if self.lines.qsize() >= PIPE_LINES_MAX:
            raise MbxError("rate-limited", f"over {PIPE_LINES_MAX} messages wait already")
        try:
            message = codec.decode(line[found.end() :], REQUEST_LINE_MAX_BYTES)
        except CanonicalError as error:
            why = f"the line is no JSON that is accepted here: {error}"
            raise MbxError("usage", why, "write it again without that") from None
        if not isinstance(message, dict):
            raise MbxError("usage", "a message is one JSON object on one line")
        params: Any = message.get("params")
        if isinstance(params, dict) and "arguments" in params:
            params["arguments"] = arguments.as_object(params["arguments"])
        return Numbered(int(found[1]), message, len(line) + 1)

    def _refuse(self, text: bytes, error: MbxError) -> None:
        """A line that is not read: under its id, for who asked would else wait for ever."""
        message: Mapping[str, Any] = codec.made_out(text)
        if not _is_id(message.get("id")) or "method" not in message:
            message = {"id": None}
        try:
            self.write(codec.encode(offline.refused(message, error, _PARSE_ERROR)))
        except TypeError:  # an id that cannot be written
            self.write(codec.encode(offline.refused({"id": None}, error, _PARSE_ERROR)))

    def _take(self, line: Numbered) -> None:
        if self._has_failed:
            self._turn_down(line)
            return
        request_id = line.request_id
        if request_id is not None:
            early = greetings.answer(line.message) if self.is_early else None
            if early is not None:
                self.write(codec.encode({"jsonrpc": "2.0", "id": request_id, "result": early}))
                line = line._replace(is_answered=True)
            elif line.message["method"] != greetings.LISTEN and request_id not in self._under_way:
                self._under_way[request_id] = line.size_bytes
                self._connected.taken()
                line = line._replace(is_kept=True)
        self.lines.put_nowait(line)

    def _turn_down(self, line: Numbered) -> None:
        """A line that nobody will read; one that is kept is answered with those under way."""
        if line.request_id is not None and not (line.is_answered or line.is_kept):
            self._write_failure(line.request_id)
        self.passed_on(line)

    def _write_failure(self, request_id: str | int) -> None:
        told = {"code": _INTERNAL_ERROR, "message": _FAILED}
        self.write(codec.encode({"jsonrpc": "2.0", "id": request_id, "error": told}))

    async def _carry_out(self, step: Step, key: str) -> dict[str, Any]:
        params = {**step.params, "key": key} if step.keyed else dict(step.params)
        result = await self._asked(step.method, params)
        for _ in range(_PAGES_MAX):
            if result.get("messages") != [] or not result.get("has_more"):
                break
            result = await self._asked(step.method, {**params, "cursor": result["next_cursor"]})
        return result

    async def _asked(self, method: str, params: Mapping[str, Any]) -> dict[str, Any]:
        """The result of one call. A client that cancels cannot cancel what was begun."""
        future: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()

        def done(outcome: Outcome[Answer]) -> None:
            if future.done():
                return
            if isinstance(outcome, Committed):
                future.set_result(outcome.value.result)
            else:
                future.set_exception(outcome.error)

        self._connected.ask(method, params, done)
        return await future


def _is_id(given: object) -> TypeGuard[str | int]:
    """Whether it may be the id of a request; JSON's true is no number."""
    return isinstance(given, (str, int)) and not isinstance(given, bool)


def _is_all_failed(result: Mapping[str, Any]) -> bool:
    """Whether several were asked for and none was done."""
    done = result.get("messages") or result.get("acked")
    return bool(result.get("failed")) and not done


class Server(Protocol):
    """The SDK behind its one home."""

    async def serve(self, pipe: Pipe) -> None:
        """Read and answer the lines of a pipe until they end."""


class Pipes:
    """All pipes; a worker of the daemon."""

    def __init__(self, load: Callable[[], Server], log: Callable[..., None]) -> None:
        self._load = load
        self._log = log
        self._server: asyncio.Future[Server] | None = None
        self._group: asyncio.TaskGroup | None = None

    async def serve(self) -> None:
        """Serve pipes until cancelled."""
        async with asyncio.TaskGroup() as group:
            self._group = group
            await asyncio.Event().wait()

    def opened(self, pipe: Pipe) -> None:
        """A connection became a pipe."""
        if self._group is not None:
            self._group.create_task(self._serve(pipe))

    async def _serve(self, pipe: Pipe) -> None:
        try:
            server = await self._loaded()
            pipe.is_early = False
            await server.serve(pipe)
        except Exception as error:  # noqa: BLE001  (of one pipe; the others go on)
            self._log("a pipe failed inside", whence=whence(error))
            pipe.fail()

    async def _loaded(self) -> Server:
        """The SDK's server, loaded once, beside the loop; what failed is tried by the next pipe."""
        if self._server is None:
            self._server = asyncio.ensure_future(asyncio.to_thread(self._load))
        loading = self._server
        try:
            return await asyncio.shield(loading)
        except Exception:
            if self._server is loading:
                self._server = None
            raise
