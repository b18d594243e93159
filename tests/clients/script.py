"""What a scripted model does: its turns, and what it expects in the requests that it answers.

A script is a list of turns, or ``{"turns": [...], "lanes": {name: [...]}, "fallback": text,
"side": text}``. Each request of a client takes the next turn of its lane. A turn has, all optional:

- ``text``: what the model says;
- ``tool`` and ``input``, or several ``calls``: ``[{"tool", "input"}]``: the tools that it calls,
  named as the MCP server names them; clients add prefixes of their own, which are found here;
- ``capture``: ``{name: regular expression}``; the last match in the request (its first group, if it
  has one) replaces ``{{name}}`` in text, input and expectations, now and later in the lane;
- ``expect`` and ``reject``: strings that the text of the request must and must not have;
- ``offers``: tools that the request must offer;
- ``until``: the name of a gate; the agent is busy until the test opens it;
- ``status``: answer with this HTTP error instead;
- ``note``: for readers.

The text of a request is every string of the conversation that the client sent: instructions,
messages, calls, results, and what hooks added; not ids, and not the definitions of tools.
"""

import re
from collections.abc import Iterator
from typing import Any, Final

from tests.clients.apis import Json

_PLUMBING: Final = frozenset(
    "id call_id tool_use_id tool_call_id type role cache_control encrypted_content".split()
)
_TURN_FIELDS: Final = frozenset(
    "text tool input calls capture expect reject offers until status note".split()
)


class Script:
    """The turns of every lane, and how far each lane has come."""

    def __init__(self, told: list[Json] | Json) -> None:
        given: Json = {"turns": told} if isinstance(told, list) else told
        self.lanes: dict[str, list[Json]] = dict(given.get("lanes", {}))
        self.lanes.setdefault("main", list(given.get("turns", [])))
        self.fallback: str = given.get("fallback", "Done.")
        self.side: str = given.get("side", "ok")
        self.used: dict[str, int] = {}
        self.searches: dict[tuple[str, int | None], int] = {}
        self.values: dict[str, dict[str, str]] = {}
        for lane, turns in self.lanes.items():
            for number, turn in enumerate(turns):
                if unknown := set(turn) - _TURN_FIELDS:
                    told_so = f"turn {number} of lane {lane!r} has unknown fields"
                    raise ValueError(f"{told_so}: {sorted(unknown)}")

    def next(self, lane: str) -> tuple[int | None, Json]:
        """The turn that is next in a lane, and its number; `take` moves past it."""
        number = self.used.get(lane, 0)
        turns = self.lanes.get(lane, [])
        if number < len(turns):
            return number, turns[number]
        return None, {"text": self.fallback}

    def take(self, lane: str, number: int | None) -> None:
        """Move past a turn."""
        if number is not None:
            self.used[lane] = number + 1

    def fill(self, lane: str, value: Any) -> Any:
        """Put the captured values of the lane into every string of a value."""
        if isinstance(value, str):
            known = self.values.get(lane, {})
            return re.sub(r"\{\{(\w+)\}\}", lambda found: known.get(found[1], found[0]), value)
        if isinstance(value, list):
            return [self.fill(lane, item) for item in value]
        if isinstance(value, dict):
            return {key: self.fill(lane, item) for key, item in value.items()}
        return value

    def judge(self, lane: str, turn: Json, text: str, tools: dict[str, Json]) -> list[str]:
        """Take what the turn captures from a request, and say what it misses in it."""
        problems = []
        values = self.values.setdefault(lane, {})
        for name, pattern in turn.get("capture", {}).items():
            if found := list(re.finditer(pattern, text)):
                values[name] = found[-1][1] if found[-1].re.groups else found[-1][0]
            else:
                problems.append(f"nothing to capture as {name!r} with {pattern!r}")
        wanted = self.fill(lane, turn.get("expect", []))
        unwanted = self.fill(lane, turn.get("reject", []))
        problems += [f"the request lacks {one!r}" for one in wanted if one not in text]
        problems += [f"the request has {one!r}" for one in unwanted if one in text]
        for tool in turn.get("offers", []):
            if not find_tool(indirect({"tool": tool}, tools, text)["tool"], tools):
                problems.append(f"the request does not offer the tool {tool!r}")
        return problems

    def left(self) -> dict[str, int]:
        """How many turns of each lane nobody asked for."""
        return {lane: len(turns) - self.used.get(lane, 0) for lane, turns in self.lanes.items()}


def calls_of(turn: Json) -> list[Json]:
    """The tool calls of a turn."""
    one = [{"tool": turn["tool"], "input": turn.get("input", {})}] if "tool" in turn else []
    return one + list(turn.get("calls", []))


def find_tool(wanted: str, tools: dict[str, Json]) -> str | None:
    """The offered name that is, or ends in, the wanted one (the shortest)."""
    if wanted in tools:
        return wanted
    ends = [name for name in tools if re.search(rf"(^|[^A-Za-z0-9]){re.escape(wanted)}$", name)]
    return min(ends, key=len) if ends else None


def indirect(call: Json, tools: dict[str, Json], text: str) -> Json:
    """A call of a tool that a search has shown, through the offered tool `tool_call`.

    Qwen Code does not add found tools to the offered ones: they are called by name.
    """
    if find_tool(call["tool"], tools) or "tool_call" not in tools:
        return call
    pattern = rf'"name": ?"((?:[^"]*[^A-Za-z0-9"])?{re.escape(call["tool"])})"'
    shown = re.findall(pattern, text)
    if not shown:
        return call
    arguments = call.get("input", {})
    return {"tool": "tool_call", "input": {"name": shown[-1], "arguments": arguments}}


def strings(value: Any) -> Iterator[str]:
    """Every string inside a JSON value, in order, but for the plumbing of the API."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        plumbing = _PLUMBING if "type" in value or "role" in value else frozenset[str]()
        for key, item in value.items():
            if key not in plumbing:
                yield from strings(item)
    elif isinstance(value, list):
        for item in value:
            yield from strings(item)


def sample(schema: Any, depth: int = 0) -> Any:
    """A small value that fits a JSON schema, for requests that ask for JSON."""
    if depth > 8 or not isinstance(schema, dict):
        return None
    if "const" in schema:
        return schema["const"]
    if schema.get("enum"):
        return schema["enum"][0]
    for word in ("anyOf", "oneOf", "allOf"):
        if schema.get(word):
            return sample(schema[word][0], depth + 1)
    kind = schema.get("type")
    kind = (kind[0] if isinstance(kind, list) else kind or "object").lower()
    if kind == "object":
        fields: Json = schema.get("properties", {})
        wanted: list[str] = schema.get("required", list(fields))
        return {name: sample(fields.get(name, {}), depth + 1) for name in wanted}
    if kind == "array":
        return [
            sample(schema.get("items", {}), depth + 1) for _ in range(schema.get("minItems", 0))
        ]
    return {"string": "ok", "integer": 1, "number": 1, "boolean": False}.get(kind)
