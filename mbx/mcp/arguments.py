"""The arguments of a tool call, as models really send them.

A model sends one id where a list is wanted, a number as text, null for what it leaves out, a list
written as JSON in a string. What is meant beyond doubt is understood; everything else is refused in
words that it can mend. What the values may be is decided by the daemon's methods, as for everybody.
"""

import json
from collections.abc import Mapping
from typing import Any, Final

from mbx.core.errors import MbxError
from mbx.mcp.tools import BY_NAME, Schema

_SPLIT: Final = frozenset(("to", "ids"))
"""Lists whose entries have no comma: one text with commas is several of them."""

_IDS: Final = frozenset(("id", "reply_to"))
"""Texts that are one id: in a list, as JSON, or among blanks it is the same one."""

_TWINS: Final = {"id": "ids", "ids": "id"}
"""A tool takes one of the two; the other one is what is meant."""

_TRUTHS: Final = {"true": True, "false": False}


def as_object(given: object) -> object:
    """The arguments of a call, also where they are an object in JSON, or a list of nothing.

    Anything else is given back as it is, for the protocol to refuse.
    """
    if given == []:
        return {}
    if isinstance(given, str):
        try:
            value = json.loads(given) if given.strip() else {}
        except (ValueError, RecursionError):
            return given
        return value if isinstance(value, dict) else given
    return given


def read(tool: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments that were given, each as the tool's schema has it.

    Raises MbxError usage, naming the argument, what is wanted and what may be given.
    """
    properties: Mapping[str, Schema] = BY_NAME[tool]["inputSchema"]["properties"]
    required = BY_NAME[tool]["inputSchema"].get("required", ())
    found: dict[str, Any] = {}
    for name, value in given.items():
        if value is None:
            continue
        known = name if name in properties else _TWINS.get(name, "")
        if known not in properties or (known != name and known in given):
            raise _usage(tool, f"{tool} has no argument {name[:40]!r}")
        found[known] = _value(tool, known, properties[known], value)
    for name in required:
        if name not in found:
            raise _usage(tool, f"{tool} needs the argument {name}")
    return found


def _value(tool: str, name: str, schema: Schema, value: Any) -> Any:
    match schema["type"]:
        case "array":
            return _texts(tool, name, value)
        case "integer":
            return _whole(tool, name, value)
        case "boolean":
            return _truth(tool, name, value)
        case _:
            return _text(tool, name, schema, value)


def _texts(tool: str, name: str, value: Any) -> list[str]:
    if isinstance(value, str):
        listed = _listed(value)
        if listed is None:
            listed = value.split(",") if name in _SPLIT else [value]
            listed = [entry.strip() for entry in listed] if name in _SPLIT else listed
        value = listed
    if not isinstance(value, list) or not all(isinstance(entry, str) for entry in value):
        raise _usage(tool, f"{name} must be a list of strings")
    return value


def _listed(text: str) -> list[Any] | None:
    """The list that a text is, written as JSON; None for any other text."""
    if not text.lstrip().startswith("["):
        return None
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, list) else None


def _whole(tool: str, name: str, value: Any) -> int:
    if isinstance(value, str) and value.strip().isascii() and value.strip().isdigit():
        value = int(value.strip()[:16])
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        raise _usage(tool, f"{name} must be a whole number")
    return value


def _truth(tool: str, name: str, value: Any) -> bool:
    if isinstance(value, str):
        value = _TRUTHS.get(value.strip().lower(), value)
    if not isinstance(value, bool):
        raise _usage(tool, f"{name} must be true or false")
    return value


def _text(tool: str, name: str, schema: Schema, value: Any) -> str:
    if name in _IDS:
        value = _listed(value) or value if isinstance(value, str) else value
        value = value[0] if isinstance(value, list) and len(value) == 1 else value
        value = value.strip() if isinstance(value, str) else value
    if not isinstance(value, str):
        raise _usage(tool, f"{name} must be a string")
    choices = schema.get("enum")
    if choices and value not in choices:
        folded = value.strip().lower()
        if folded not in choices:
            raise _usage(tool, f"{name} must be one of {', '.join(choices)}")
        return folded
    return value


def _usage(tool: str, message: str) -> MbxError:
    properties = ", ".join(BY_NAME[tool]["inputSchema"]["properties"])
    return MbxError("usage", message, f"{tool} takes: {properties}")
