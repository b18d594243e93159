"""JSON, with comments and trailing commas, edited in its text: every other byte stays; pure.

What was added by `write` is taken out by `write` so that the first text is there again.
"""

import json
import re
from typing import Any, Final, NamedTuple

from mbx.setup.steps import (
    Append,
    Path,
    Put,
    Refused,
    Remove,
    Step,
    changed,
    named,
    newline_of,
    place,
    same,
)

DEPTH_MAX: Final = 200
"""Objects and lists within each other; settings of people have fewer than ten."""

_BLANK: Final = " \t\r\n"
_NUMBER: Final = re.compile(r"-?(?:0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?")
_WORDS: Final = {"true": True, "false": False, "null": None}
_DECODER: Final = json.JSONDecoder()
_DIGITS_MAX: Final = 300
"""Python reads no more than 4,300 digits; a number of that length is only compared."""


class _Item(NamedTuple):
    """A member or an element: its key, where it begins, its value, and the comma after it."""

    key: str | None
    start: int
    value: "_Node"
    comma: int | None


class _Node(NamedTuple):
    """A value with its span; `items` of objects and lists."""

    start: int
    end: int
    data: Any
    items: tuple[_Item, ...] = ()


class Json:
    """JSON as agent CLIs keep it: an empty file is an empty object.

    It remembers the text that it read last: states of years have megabytes, a second each.
    """

    def __init__(self) -> None:
        self._last: tuple[str, _Node] | None = None

    def read(self, text: str) -> Any:
        """The data. Raises Refused with line and column."""
        return {} if _is_empty(text) else self._scanned(text).data

    def write(self, text: str, step: Step) -> str:
        """The text after one complete step. Raises Refused where a key stands twice."""
        if _is_empty(text):
            assert isinstance(step, Put)
            new_line = newline_of(text)
            value = {step.path[0]: step.value} if step.path else step.value
            return text + _rendered(value, new_line, "  ") + new_line
        root = self._scanned(text)
        if isinstance(step, Remove):
            container = _find(text, root, step.path[:-1])
            return _without(text, container, _index(text, container, step.path[-1]))
        if isinstance(step, Append):
            return _with(text, root, step.path, None, step.value)
        container = _find(text, root, step.path[:-1])
        last = step.path[-1]
        known = range(len(container.items)) if isinstance(last, int) else _keys(container)
        if last in known:
            old = container.items[_index(text, container, last)].value
            value = _styled(text, root, old.start, step.value)
            return text[: old.start] + value + text[old.end :]
        assert isinstance(last, str)
        return _with(text, root, step.path[:-1], last, step.value)

    def follows(self, data: Any, step: Step, new: Any) -> bool:
        """Equal in values, kinds and order."""
        return same(new, changed(data, step))

    def _scanned(self, text: str) -> _Node:
        if self._last is None or self._last[0] != text:
            self._last = (text, _scan(text))
        return self._last[1]


# -- adding and removing --------------------------------------------------------------------------


def _with(text: str, root: _Node, path: Path, key: str | None, value: Any) -> str:
    """With one more item, the last of the container at a path."""
    container = _find(text, root, path)
    head = "" if key is None else json.dumps(key, ensure_ascii=False) + _colon(text, container)
    close = container.end - 1
    if container.items:
        last = container.items[-1]
        follows = last.value.end if last.comma is None else last.comma + 1
        spot = _last_ink(text, follows, close)
        first = container.items[0]
        gap = _gap_before(text, first.start, container.start + 1)
        if len(container.items) > 1:
            gap = _gap_before(text, last.start, container.start + 1)
        elif not gap and last.comma is None and not _is_compact(text, root):
            gap = " "
        if not gap.count("\n") and _is_line_comment(text, follows, spot):
            gap = newline_of(text) + gap
        comma_spot = last.value.end
        new = gap + head + _styled(text, root, last.start, value)
        if last.comma is not None:
            return text[:spot] + new + "," + text[spot:]
        return text[:comma_spot] + "," + text[comma_spot:spot] + new + text[spot:]
    inside = text[container.start + 1 : close]
    if inside:
        spot = _last_ink(text, container.start + 1, close)
        gap = "" if spot == container.start + 1 else newline_of(text)
        return text[:spot] + gap + head + _styled(text, root, container.start, value) + text[spot:]
    if _is_compact(text, root):
        return text[:close] + " " + head + _styled(text, root, close, value) + text[close:]
    outer, unit, new_line = _indent(text, container.start), _unit(text, root), newline_of(text)
    body = _rendered(value, new_line + outer + unit, unit)
    return f"{text[:close]}{new_line}{outer}{unit}{head}{body}{new_line}{outer}{text[close:]}"


def _without(text: str, container: _Node, index: int) -> str:
    """Without one item, and without the comma and the blanks that came with it."""
    item, items = container.items[index], container.items
    floor, end = container.start + 1, item.value.end
    if index:
        previous = items[index - 1]
        assert previous.comma is not None
        gap = len(_gap_before(text, item.start, previous.comma + 1))
        if item.comma is None:
            kept = text[: previous.comma]
            return _joined(kept, text[previous.comma + 1 : item.start - gap], text[end:])
        tail = _inked(text[end : item.comma]) + text[item.comma + 1 :]
        spot = previous.comma + 1
        return _joined(text[:spot], text[spot : item.start - gap], tail)
    gap_text = _gap_before(text, item.start, floor)
    start = item.start - len(gap_text)
    if item.comma is not None:
        rest = item.comma + 1
        if len(items) > 1:
            if not text[rest : items[1].start].strip(_BLANK):
                rest = items[1].start
            start = item.start
        return _joined(
            text[:floor], text[floor:start], _inked(text[end : item.comma]) + text[rest:]
        )
    if start == floor:
        if gap_text and not text[end : container.end - 1].strip(_BLANK):
            end = container.end - 1
    elif gap_text != newline_of(text):
        start = item.start
    return _joined(text[:floor], text[floor:start], text[end:])


def _joined(head: str, trivia: str, tail: str) -> str:
    """Three pieces, with an end of line behind a comment that would else run on."""
    blanks = tail[: len(tail) - len(tail.lstrip(_BLANK))]
    runs_on = _is_line_comment(trivia, 0, len(trivia)) and "\n" not in blanks
    return head + trivia + (newline_of(head + tail) if runs_on else "") + tail


def _inked(trivia: str) -> str:
    """Comments as they are; nothing for blanks alone."""
    return trivia if trivia.strip(_BLANK) else ""


def _gap_before(text: str, offset: int, floor: int) -> str:
    """The blanks directly before an offset, not beyond `floor`."""
    start = offset
    while start > floor and text[start - 1] in _BLANK:
        start -= 1
    return text[start:offset]


def _is_line_comment(text: str, start: int, end: int) -> bool:
    """Whether a span of blanks and comments ends with a comment that its line must end."""
    at = start
    while at < end:
        begins, at = at, _skip_one(text, at)
        if at >= end:
            return text.startswith("//", begins)
    return False


def _last_ink(text: str, start: int, end: int) -> int:
    """Behind the last character of a span that is no blank; its start if all are."""
    while end > start and text[end - 1] in _BLANK:
        end -= 1
    return end


# -- how the text is laid out ---------------------------------------------------------------------


def _is_compact(text: str, root: _Node) -> bool:
    """Whether the whole document stands on one line."""
    return bool(root.items) and "\n" not in text[root.start : root.end]


def _colon(text: str, container: _Node) -> str:
    """What stands between the keys and the values of an object."""
    if container.items and container.items[-1].key is not None:
        item = container.items[-1]
        _, end = _string(text, item.start)
        between = text[end : item.value.start]
        if not between.strip(_BLANK + ":") and "\n" not in between:
            return between
    return ": "


def _indent(text: str, offset: int) -> str:
    """The blanks at the beginning of the line of an offset."""
    start = text.rfind("\n", 0, offset) + 1
    end = start
    while end < offset and text[end] in " \t":
        end += 1
    return text[start:end]


def _unit(text: str, root: _Node) -> str:
    """One step of indentation, as the first member has it."""
    if root.items:
        gap = _gap_before(text, root.items[0].start, root.start + 1)
        unit = gap.rpartition("\n")[2] if "\n" in gap else ""
        return unit or "  "
    return "  "


def _styled(text: str, root: _Node, near: int, value: Any) -> str:
    """A value in the layout of the document, for a line that is indented as the one of `near`."""
    if _is_compact(text, root):
        return json.dumps(value, ensure_ascii=False)
    unit = _unit(text, root)
    return _rendered(value, newline_of(text) + _indent(text, near), unit)


def _rendered(value: Any, new_line: str, unit: str) -> str:
    """A value over several lines; short lists of plain values stay on one."""
    inner = new_line + unit
    if isinstance(value, dict) and value:
        rows = [
            f"{json.dumps(key, ensure_ascii=False)}: {_rendered(one, inner, unit)}"
            for key, one in value.items()
        ]
        return "{" + inner + f",{inner}".join(rows) + new_line + "}"
    if isinstance(value, list) and any(isinstance(one, dict | list) for one in value):
        rows = [_rendered(one, inner, unit) for one in value]
        return "[" + inner + f",{inner}".join(rows) + new_line + "]"
    return json.dumps(value, ensure_ascii=False)


# -- finding --------------------------------------------------------------------------------------


def _find(text: str, root: _Node, path: Path) -> _Node:
    node = root
    for part in path:
        node = node.items[_index(text, node, part)].value
    return node


def _keys(container: _Node) -> list[str | None]:
    return [item.key for item in container.items]


def _index(text: str, container: _Node, part: str | int) -> int:
    if isinstance(part, int):
        return part
    found = [number for number, item in enumerate(container.items) if item.key == part]
    if len(found) > 1:
        second = place(text, container.items[found[1]].start)
        raise Refused(f"the key {named((part,))} stands twice in one object ({second})")
    return found[0]


# -- reading --------------------------------------------------------------------------------------


def _is_empty(text: str) -> bool:
    return not text.removeprefix("\ufeff").strip(_BLANK)


def _scan(text: str) -> _Node:
    start = _skip(text, 1 if text.startswith("\ufeff") else 0)
    node = _value(text, start, 0)
    end = _skip(text, node.end)
    if end != len(text):
        raise _unexpected(text, end)
    return node


def _skip(text: str, at: int) -> int:
    """Past blanks and comments."""
    while at < len(text) and (text[at] in _BLANK or text[at] == "/"):
        at = _skip_one(text, at)
    return at


def _skip_one(text: str, at: int) -> int:
    """Past one blank or comment. Raises Refused for what is neither."""
    if text[at] in _BLANK:
        return at + 1
    if text.startswith("//", at):
        end = text.find("\n", at)
        return len(text) if end < 0 else end
    if not text.startswith("/*", at):
        raise _unexpected(text, at)
    end = text.find("*/", at + 2)
    if end < 0:
        raise Refused(f"a comment has no end ({place(text, at)})")
    return end + 2


def _value(text: str, at: int, depth: int) -> _Node:
    if depth > DEPTH_MAX:
        raise Refused(f"more than {DEPTH_MAX} levels ({place(text, at)})")
    sign = text[at : at + 1]
    if sign in ("{", "["):
        return _container(text, at, depth)
    if sign == '"':
        word, end = _string(text, at)
        return _Node(at, end, word)
    for word, meant in _WORDS.items():
        if text.startswith(word, at):
            return _Node(at, at + len(word), meant)
    number = _NUMBER.match(text, at)
    if number is None:
        raise _unexpected(text, at)
    digits = number[0]
    is_whole = number[1] is None and number[2] is None and len(digits) <= _DIGITS_MAX
    return _Node(at, number.end(), int(digits) if is_whole else float(digits))


def _container(text: str, start: int, depth: int) -> _Node:
    is_object = text[start] == "{"
    close = "}" if is_object else "]"
    items: list[_Item] = []
    at = _skip(text, start + 1)
    while text[at : at + 1] != close:
        if items and items[-1].comma is None:
            raise _unexpected(text, at)
        key, begins = None, at
        if is_object:
            if text[at : at + 1] != '"':
                raise _unexpected(text, at)
            key, at = _string(text, at)
            at = _skip(text, at)
            if text[at : at + 1] != ":":
                raise _unexpected(text, at)
            at = _skip(text, at + 1)
        node = _value(text, at, depth + 1)
        at = _skip(text, node.end)
        comma = at if text[at : at + 1] == "," else None
        items.append(_Item(key, begins, node, comma))
        if comma is not None:
            at = _skip(text, at + 1)
    data: Any = [item.value.data for item in items]
    if is_object:
        data = {item.key: item.value.data for item in items}
    return _Node(start, at + 1, data, tuple(items))


def _string(text: str, at: int) -> tuple[str, int]:
    """A string and the offset behind it."""
    try:
        found, end = _DECODER.raw_decode(text, at)
    except json.JSONDecodeError as error:
        raise Refused(f"{error.msg.lower()} ({place(text, error.pos)})") from None
    assert isinstance(found, str), "it begins with a quotation mark"
    return found, end


def _unexpected(text: str, at: int) -> Refused:
    if at >= len(text):
        return Refused(f"it ends in the middle ({place(text, at)})")
    return Refused(f"unexpected {text[at]!r} ({place(text, at)})")
