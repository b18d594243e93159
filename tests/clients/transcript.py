"""A transcript of what humans, models and clients said, made from the real requests and screens."""

import json
import re
from typing import Final

from tests.clients.fakemodel import FakeModel, Request
from tests.clients.terminal import Terminal

_SHOWN_MAX_CHARS: Final = 1_600
"""Of one result; the rest is counted."""

_PLUMBING: Final = re.compile(r"completed|Tool loaded\.|mcp__[a-z_]+|ok")
"""What clients put beside a result and says nothing."""

_REMINDER: Final = "<system-reminder>"
"""What begins so are the client's own words beside a result."""

_WOKEN: Final = "Another Claude session sent a message:"
"""How Claude Code frames what comes by its socket; a paragraph of its own follows."""

_TRACES: Final = ("[mbx", "mbx:", "mbx_", "mbx ")
"""Of what a client tells its model before the first prompt, what has one of these is mbx's word."""


class Transcript:
    """Lines of Markdown, in the order in which things happened."""

    def __init__(self, model: FakeModel) -> None:
        self._model = model
        self._told: dict[str, int] = {}
        self._lines: list[str] = []

    def says(self, text: str) -> None:
        """Words of the narrator."""
        self._lines += [text, ""]

    def played(self, lane: str, who: str) -> None:
        """What a lane's model has said and called since this was asked last, and what came back."""
        requests = [one for one in self._model.of(lane) if not one.is_search]
        first = self._told.get(lane, 0)
        self._told[lane] = len(requests)
        for place, request in enumerate(requests[first:], first):
            before = requests[place - 1] if place else None
            for told in _new(request, before):
                self._block("gets" if before and before.calls else "is told", who, told)
            for tool, given in request.calls:
                self._block("calls", who, f"{tool} {json.dumps(given, ensure_ascii=False)}")
            if request.said:
                self._block("says", who, request.said)

    def screen(self, terminal: Terminal, what: str) -> None:
        """What a screen shows now."""
        self._lines += [f"{what}:", "", "```text", terminal.picture(), "```", ""]

    def _block(self, verb: str, who: str, text: str) -> None:
        if len(text) > _SHOWN_MAX_CHARS:
            left = len(text) - _SHOWN_MAX_CHARS
            text = f"{text[:_SHOWN_MAX_CHARS]} … ({left} characters more)"
        self._lines += [f"{who} {verb}", "", *(f"    {line}" for line in text.splitlines()), ""]

    def __str__(self) -> str:
        return "\n".join(self._lines)


def _new(request: Request, before: Request | None) -> list[str]:
    """What a request says that the one before did not, and that the model did not say itself.

    Of the first one only what mbx says: the rest is the client's own, and long.
    """
    if before is None:
        short = [one for one in request.strings if len(one) < _SHOWN_MAX_CHARS]
        return [one for one in short if one.lstrip().startswith(_TRACES)]
    known, inputs = set(before.strings), [given for _, given in before.calls]
    own = {before.said, *(text for name, given in before.calls for text in (name, *_texts(given)))}
    own |= known
    new = (one for one in request.strings if one not in own and _value(one) not in inputs)
    return [_cut(one) for one in new if not _PLUMBING.fullmatch(one) and _REMINDER not in one]


def _cut(text: str) -> str:
    if not text.lstrip().startswith(_WOKEN):
        return text
    first, _, rest = text.strip().partition("\n\n")
    return f"{first}\n(… and {len(rest)} characters of the client's own)"


def _value(text: str) -> object:
    """The JSON value that a text is; None for any other text."""
    try:
        return json.loads(text)
    except ValueError:
        return None


def _texts(value: object) -> list[str]:
    if isinstance(value, str):
        return [value]
    if isinstance(value, dict):
        return [text for entry in value.values() for text in _texts(entry)]
    if isinstance(value, list):
        return [text for entry in value for text in _texts(entry)]
    return []
