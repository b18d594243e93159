"""Single steps in a document of objects and lists, whatever it is written in; pure."""

from collections.abc import Sequence
from typing import Any, Final, NamedTuple, Protocol

Path = tuple[str | int, ...]
"""Where something stands: keys of objects and numbers of elements, from the root."""

NOTHING: Final = object()
"""What `at` gives where there is nothing."""


class Refused(Exception):
    """A document is left as it is; the argument says why, and where in it."""


class Put(NamedTuple):
    """The value at a path is this one: changed, or added with the objects above it."""

    path: Path
    value: Any


class Append(NamedTuple):
    """The list at a path (made if it is not there) has one more element, the last."""

    path: Path
    value: Any


class Remove(NamedTuple):
    """What stands at a path is gone."""

    path: Path


Step = Put | Append | Remove
"""One change of a document."""


class Language(Protocol):
    """What a document is written in."""

    def read(self, text: str) -> Any:
        """The document's data. Raises Refused, naming the place."""

    def write(self, text: str, step: Step) -> str:
        """The text after a step that `complete` made. Raises Refused."""

    def follows(self, data: Any, step: Step, new: Any) -> bool:
        """Whether `new` is what the step makes of `data`, and nothing else."""


def at(data: Any, path: Path) -> Any:
    """What stands at a path, or `NOTHING`. Raises Refused where something else is in the way."""
    for depth, part in enumerate(path):
        wanted = dict if isinstance(part, str) else list
        if not isinstance(data, wanted):
            kind = "an object" if wanted is dict else "a list"
            raise Refused(f"{named(path[:depth]) or 'the document'} is not {kind}")
        if isinstance(data, dict):
            if part not in data:
                return NOTHING
            data = data[part]
        else:
            assert isinstance(part, int)
            if part >= len(data):
                return NOTHING
            data = data[part]
    return data


def named(path: Path) -> str:
    """A path for people: ``hooks.Stop[0]``."""
    words = "".join(f".{part}" if isinstance(part, str) else f"[{part}]" for part in path)
    return words.removeprefix(".")


def complete(data: Any, step: Step) -> Step:
    """The same step as a Put or an Append whose container is there, or a Remove."""
    if isinstance(step, Remove):
        return step
    path, value = step.path, step.value
    if isinstance(step, Append):
        found = at(data, path)
        if found is not NOTHING:
            if not isinstance(found, list):
                raise Refused(f"{named(path)} is not a list")
            return step
        value = [value]
    while len(path) > 1 and at(data, path[:-1]) is NOTHING:
        value = {path[-1]: value}
        path = path[:-1]
    at(data, path)  # raises where the container is of another kind
    return Put(path, value)


def changed(data: Any, step: Step) -> Any:
    """The data after a complete step; what is not on its way is shared with `data`."""
    return _changed(data, step.path, step)


def _changed(data: Any, rest: Path, step: Step) -> Any:
    if not rest and isinstance(step, Append):
        return [*data, step.value]
    if not rest:
        assert isinstance(step, Put)
        return step.value
    copy: Any = dict(data) if isinstance(data, dict) else list(data)
    if len(rest) == 1 and isinstance(step, Remove):
        del copy[rest[0]]
    elif len(rest) == 1 and isinstance(step, Put):
        copy[rest[0]] = step.value
    else:
        copy[rest[0]] = _changed(data[rest[0]], rest[1:], step)
    return copy


def carried_out(language: Language, text: str, steps: Sequence[Step]) -> str:
    """The text after steps that belong together, each checked by reading what was written.

    Raises Refused where the result would not say exactly what it should.
    """
    data = language.read(text) if steps else None
    for step in steps:
        whole = complete(data, step)
        text = language.write(text, whole)
        new = language.read(text)
        if not language.follows(data, whole, new):
            raise Refused(f"{named(step.path)} cannot be edited without changing more")
        data = new
    return text


def same(one: Any, other: Any) -> bool:
    """Equal in values, kinds and the order of members."""
    if one is other:
        return True
    if isinstance(one, dict) and isinstance(other, dict):
        return list(one) == list(other) and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))
    return type(one) is type(other) and (one == other or one != one)  # NaN


def newline_of(text: str) -> str:
    """How the lines of a text end, by majority."""
    pairs = text.count("\r\n")
    return "\r\n" if pairs > text.count("\n") - pairs else "\n"


def place(text: str, offset: int) -> str:
    """An offset for people."""
    line = text.count("\n", 0, offset) + 1
    column = offset - (text.rfind("\n", 0, offset) + 1) + 1
    return f"line {line}, column {column}"
