"""What clients ask first, answered from constants: before the SDK is loaded, or without a daemon.

The answers are those of the SDK's server, to the letter; a test compares them. Both eras of the
protocol are spoken: the handshake (`initialize`) of 2025-11-25 and before, and `server/discover` of
2026-07-28, in which each request says its version by itself.
"""

from collections.abc import Mapping
from typing import Any, Final

from mbx import __version__
from mbx.mcp.guide import INSTRUCTIONS
from mbx.mcp.tools import TOOLS

MODERN: Final = "2026-07-28"
"""The revision without a handshake."""

HANDSHAKE: Final = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
"""The revisions with one, the newest last."""

LISTEN: Final = "subscriptions/listen"
"""A request that stays open."""

NAME: Final = "mbx"
TITLE: Final = "mbx mailbox"

_VERSION_KEY: Final = "io.modelcontextprotocol/protocolVersion"
_SERVER_KEY: Final = "io.modelcontextprotocol/serverInfo"
_UNCACHED: Final = {"ttlMs": 0, "cacheScope": "private"}
_INFO: Final = {"name": NAME, "title": TITLE, "version": __version__}
_CAPABILITIES: Final = {
    "prompts": {"listChanged": False},
    "resources": {"subscribe": False, "listChanged": False},
    "tools": {"listChanged": True},
}


_MODERN_CAPABILITIES: Final = {
    "prompts": {"listChanged": True},
    "resources": {"listChanged": True, "subscribe": True},
    "tools": {"listChanged": True},
}
"""In that era every change is told on the streams of `subscriptions/listen`, if there are any."""


def answer(request: Mapping[str, Any]) -> dict[str, Any] | None:
    """The result of a request of which nothing but constants is wanted; None for every other."""
    params = _params(request)
    is_modern = _is_modern(params)
    match request.get("method"):
        case "initialize":
            return _initialized(params)
        case "ping" if not is_modern:
            return {}
        case "tools/list" if "cursor" not in params:
            return _listed(is_modern)
        case "server/discover" if is_modern:
            return _discovered()
    return None


def of_era(request: Mapping[str, Any], result: dict[str, Any]) -> dict[str, Any]:
    """A result as the revision that the request names wants it."""
    return _modern(result) if _is_modern(_params(request)) else result


def _params(request: Mapping[str, Any]) -> Mapping[str, Any]:
    params = request.get("params")
    return params if isinstance(params, dict) else {}


def _is_modern(params: Mapping[str, Any]) -> bool:
    meta = params.get("_meta")
    return isinstance(meta, dict) and meta.get(_VERSION_KEY) == MODERN


def _initialized(params: Mapping[str, Any]) -> dict[str, Any]:
    asked = params.get("protocolVersion")
    return {
        "protocolVersion": asked if asked in HANDSHAKE else HANDSHAKE[-1],
        "capabilities": _CAPABILITIES,
        "serverInfo": _INFO,
        "instructions": INSTRUCTIONS,
    }


def _listed(is_modern: bool) -> dict[str, Any]:
    tools = [dict(tool) for tool in TOOLS]
    return _modern({"tools": tools, **_UNCACHED}) if is_modern else {"tools": tools}


def _discovered() -> dict[str, Any]:
    return _modern(
        {
            "supportedVersions": [MODERN],
            "capabilities": _MODERN_CAPABILITIES,
            "instructions": INSTRUCTIONS,
            **_UNCACHED,
        }
    )


def _modern(result: dict[str, Any]) -> dict[str, Any]:
    return {**result, "resultType": "complete", "_meta": {_SERVER_KEY: _INFO}}
