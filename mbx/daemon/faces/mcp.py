"""The official MCP SDK, loaded once for all sessions: one server, one run for each pipe.

Imported by the first pipe, in a thread (`mbx.daemon.faces.pipes`). It speaks the protocol in both
eras; what a tool does is decided by the methods of the local protocol.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, Final, NamedTuple

import anyio
import mcp_types as types
from mcp.server.lowlevel.server import NotificationOptions, Server
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler
from mcp.shared.exceptions import MCPError
from mcp.shared.message import ServerMessageMetadata, SessionMessage
from pydantic import ValidationError

from mbx import __version__
from mbx.daemon.faces.pipes import Numbered, Pipe
from mbx.mcp import greetings, guide
from mbx.mcp.tools import TOOLS

_INVALID_PARAMS: Final = -32602
_INVALID_REQUEST: Final = -32600
_INITIALIZED: Final = "notifications/initialized"
_TOOLS_CHANGED: Final = "notifications/tools/list_changed"
_TOOLS: Final = [types.Tool.model_validate(dict(tool), by_name=False) for tool in TOOLS]


class _Line(NamedTuple):
    """Where a request stood: what a handler finds in its context."""

    pipe: Pipe
    number: int


class McpServer:
    """The SDK's server with our tools, guide and prompt."""

    def __init__(self) -> None:
        # It logs what clients send: nothing of that belongs into our log.
        logging.getLogger("mcp").setLevel(logging.CRITICAL + 1)
        self._server: Server[Any] = Server(
            greetings.NAME,
            version=__version__,
            title=greetings.TITLE,
            instructions=guide.INSTRUCTIONS,
            on_list_tools=_list_tools,
            on_call_tool=_call_tool,
            on_list_resources=_list_resources,
            on_read_resource=_read_resource,
            on_list_prompts=_list_prompts,
            on_get_prompt=_get_prompt,
            on_subscriptions_listen=ListenHandler(InMemorySubscriptionBus()),
        )
        self._server.middleware.clear()  # of tracing, which we do not have
        self._options = self._server.create_initialization_options(
            NotificationOptions(tools_changed=True)
        )

    async def serve(self, pipe: Pipe) -> None:
        """Read and answer the lines of a pipe until they end."""
        to_sdk, inbox = anyio.create_memory_object_stream[SessionMessage | Exception](0)
        outbox, from_sdk = anyio.create_memory_object_stream[SessionMessage](0)
        answered: set[str | int] = set()
        async with asyncio.TaskGroup() as group:
            group.create_task(_feed(pipe, to_sdk, answered))
            group.create_task(_drain(pipe, from_sdk, answered))
            await self._server.run(inbox, outbox, self._options)


async def _feed(pipe: Pipe, to_sdk: Any, answered: set[str | int]) -> None:
    """The client's lines, each with its number, until they end."""
    async with to_sdk:
        while (line := await pipe.lines.get()) is not None:
            pipe.passed_on(line)
            message = _message(pipe, line)
            if message is None:
                continue
            if line.is_answered:
                answered.add(line.message["id"])
            with suppress(anyio.BrokenResourceError):
                await to_sdk.send(message)
            if pipe.hello.is_again and line.message.get("method") == _INITIALIZED:
                pipe.write(_tools_changed())


def _message(pipe: Pipe, line: Numbered) -> SessionMessage | None:
    try:
        message = types.jsonrpc_message_adapter.validate_python(line.message, by_name=False)
    except ValidationError:
        _refuse(pipe, line)
        return None
    metadata = ServerMessageMetadata(
        request_context=_Line(pipe, line.number),
        on_request_unanswered=_unanswered(pipe, line.message.get("id")),
    )
    return SessionMessage(message, metadata)


def _unanswered(pipe: Pipe, request_id: object) -> Callable[[], Awaitable[None]]:
    async def settle() -> None:
        pipe.answered(request_id)

    return settle


def _refuse(pipe: Pipe, line: Numbered) -> None:
    """A line that is JSON and no message of the protocol."""
    error = types.ErrorData(code=_INVALID_REQUEST, message="this is no message of the protocol")
    given = line.message.get("id")
    known = given if isinstance(given, (str, int)) and not isinstance(given, bool) else None
    answer = types.JSONRPCError(jsonrpc="2.0", id=known, error=error)
    pipe.write(answer.model_dump_json(by_alias=True, exclude_unset=True).encode())
    pipe.answered(given)


async def _drain(pipe: Pipe, from_sdk: Any, answered: set[str | int]) -> None:
    """What the SDK answers, but for what was answered before it was there."""
    async with from_sdk:
        async for told in from_sdk:
            message = told.message
            is_answer = isinstance(message, (types.JSONRPCResponse, types.JSONRPCError))
            if is_answer and message.id in answered:
                answered.discard(message.id)
                continue
            pipe.write(message.model_dump_json(by_alias=True, exclude_unset=True).encode())
            if is_answer:  # only now: a connection of which nothing is open any more may close
                pipe.answered(message.id)
            if pipe.hello.is_again and _acknowledges_tools(message):
                pipe.write(_tools_changed(message.params["_meta"]))


def _acknowledges_tools(message: types.JSONRPCMessage) -> bool:
    if not isinstance(message, types.JSONRPCNotification) or message.params is None:
        return False
    is_ack = message.method == "notifications/subscriptions/acknowledged"
    return is_ack and bool(message.params.get("notifications", {}).get("toolsListChanged"))


def _tools_changed(meta: object = None) -> bytes:
    """After a restart of the daemon the tools may be others."""
    params = None if meta is None else {"_meta": meta}
    note = types.JSONRPCNotification(jsonrpc="2.0", method=_TOOLS_CHANGED, params=params)
    return note.model_dump_json(by_alias=True, exclude_none=True).encode()


# -- handlers -------------------------------------------------------------------------------------


async def _list_tools(ctx: Any, params: Any) -> types.ListToolsResult:
    return types.ListToolsResult(tools=_TOOLS)


async def _call_tool(ctx: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
    line: _Line = ctx.request
    try:
        told = await line.pipe.call(params.name, params.arguments or {}, line.number)
    except LookupError:
        raise MCPError(_INVALID_PARAMS, f"there is no tool {params.name[:80]!r}") from None
    return types.CallToolResult(
        content=[types.TextContent(type="text", text=told.text)],
        structured_content=told.structured,
        is_error=told.is_refusal,
    )


async def _list_resources(ctx: Any, params: Any) -> types.ListResourcesResult:
    one = types.Resource(
        uri=guide.GUIDE_URI,
        name="guide",
        title="How to work with your mailbox",
        mime_type="text/markdown",
    )
    return types.ListResourcesResult(resources=[one])


async def _read_resource(
    ctx: Any, params: types.ReadResourceRequestParams
) -> types.ReadResourceResult:
    if str(params.uri) != guide.GUIDE_URI:
        raise MCPError(_INVALID_PARAMS, f"there is no resource {str(params.uri)[:80]!r}")
    content = types.TextResourceContents(
        uri=guide.GUIDE_URI, mime_type="text/markdown", text=guide.GUIDE
    )
    return types.ReadResourceResult(contents=[content])


async def _list_prompts(ctx: Any, params: Any) -> types.ListPromptsResult:
    one = types.Prompt(
        name=guide.PROMPT, title="Mailbox guide", description="How to work with your mailbox."
    )
    return types.ListPromptsResult(prompts=[one])


async def _get_prompt(ctx: Any, params: types.GetPromptRequestParams) -> types.GetPromptResult:
    if params.name != guide.PROMPT:
        raise MCPError(_INVALID_PARAMS, f"there is no prompt {params.name[:80]!r}")
    content = types.TextContent(type="text", text=guide.GUIDE)
    return types.GetPromptResult(
        description="How to work with your mailbox.",
        messages=[types.PromptMessage(role="user", content=content)],
    )
