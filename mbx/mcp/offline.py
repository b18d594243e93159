"""What a client is told without the SDK: what is constant, and why a request is not carried out."""

from collections.abc import Mapping
from typing import Any, Final

from mbx.core.errors import MbxError
from mbx.mcp import greetings
from mbx.mcp.rendering import refusal

_INTERNAL_ERROR: Final = -32603


def answer(message: Mapping[str, Any], error: MbxError) -> dict[str, Any]:
    """The answer to a request: of constants where it needs no more, else the error."""
    told = {"jsonrpc": "2.0", "id": message.get("id")}
    constant = greetings.answer(message)
    if constant is not None:
        return {**told, "result": constant}
    return refused(message, error, _INTERNAL_ERROR)


def refused(message: Mapping[str, Any], error: MbxError, code: int) -> dict[str, Any]:
    """The refusal of a request: of a tool call as its result, which the model sees and can mend.

    `code`: of the protocol, for requests of another sort.
    """
    told = {"jsonrpc": "2.0", "id": message.get("id")}
    if message.get("method") != "tools/call":
        return {**told, "error": {"code": code, "message": error.message}}
    structured, text = refusal(error)
    result: dict[str, Any] = {
        "content": [{"type": "text", "text": text}],
        "structuredContent": structured,
        "isError": True,
    }
    return {**told, "result": greetings.of_era(message, result)}
