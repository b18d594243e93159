"""TOML, edited in its text: tables of ours are cut in and out, tomlkit does what that cannot; pure.

The only place of tomlkit: docs/decisions/0030.
"""

import json
import re
import tomllib
from collections.abc import Iterator
from typing import Any, Final

import tomlkit
from tomlkit.exceptions import TOMLKitError

from mbx.setup.steps import (
    NOTHING,
    Append,
    Path,
    Put,
    Refused,
    Remove,
    Step,
    at,
    changed,
    newline_of,
    same,
)

_BARE: Final = re.compile(r"[A-Za-z0-9_-]+")
_HEADER: Final = re.compile(r"[ \t]*\[")
_LINE: Final = re.compile(r"[^\n]*\n|[^\n]+")
"""Nothing else ends a line: a remark may hold what `str.splitlines` breaks at, such as U+2028."""


class Toml:
    """TOML 1.0 as agent CLIs keep it."""

    def read(self, text: str) -> Any:
        """The data. Raises Refused with line and column."""
        try:
            return tomllib.loads(text.removeprefix("\ufeff"))
        except (tomllib.TOMLDecodeError, RecursionError) as error:
            why = "more levels than can be read" if isinstance(error, RecursionError) else error
            raise Refused(str(why)) from None

    def write(self, text: str, step: Step) -> str:
        """The text after one complete step, by the first way that changes nothing else."""
        data = self.read(text)
        for candidate in _candidates(text, step):
            try:
                if self.follows(data, step, self.read(candidate)):
                    return candidate
            except Refused:
                continue
        raise Refused("its tables are laid out in a way that cannot be edited safely")

    def follows(self, data: Any, step: Step, new: Any) -> bool:
        """Equal in values and kinds; a table that was only there for what was removed may go."""
        wanted = changed(data, step)
        if same_apart_from_order(new, wanted):
            return True
        path = step.path[:-1] if isinstance(step, Remove) else ()
        while path and at(wanted, path) in ({}, []):
            wanted = changed(wanted, Remove(path))
            if same_apart_from_order(new, wanted):
                return True
            path = path[:-1]
        return False


def same_apart_from_order(one: Any, other: Any) -> bool:
    """Equal in values and kinds; TOML gives the order of tables no meaning."""
    if isinstance(one, dict) and isinstance(other, dict):
        pairs = ((one[key], other[key]) for key in one.keys() & other.keys())
        return one.keys() == other.keys() and all(same_apart_from_order(*pair) for pair in pairs)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same_apart_from_order, one, other))
    return same(one, other)


# -- by text: whole tables, at the end ------------------------------------------------------------


def _candidates(text: str, step: Step) -> Iterator[str]:
    """Texts that may be what a step makes, the one that changes least first."""
    try:
        if isinstance(step, Remove):
            yield from _cuts(text, step.path)
        elif isinstance(step, Append):
            yield _with_block(text, f"[[{_dotted(step.path)}]]", step.value)
        else:
            yield _with_table(text, step.path, step.value)
    except Refused:
        pass
    try:
        yield _by_library(text, step)
    except (Refused, TOMLKitError, KeyError, ValueError, TypeError, IndexError):
        return


def _with_table(text: str, path: Path, value: Any) -> str:
    while isinstance(value, dict) and len(value) == 1:  # a table that only holds ours
        key, inner = next(iter(value.items()))
        if not isinstance(inner, dict) and not _is_tables(inner):
            break
        path, value = (*path, key), inner
    if _is_tables(value) and len(value) == 1:
        return _with_block(text, f"[[{_dotted(path)}]]", value[0])
    if not isinstance(value, dict):
        raise Refused("no table")
    return _with_block(text, f"[{_dotted(path)}]", value)


def _with_block(text: str, header: str, table: dict[str, Any]) -> str:
    """With a table at the end, behind an empty line.

    A text without an end of its last line has none afterwards either: so it can be taken out again.
    """
    new_line = newline_of(text)
    lines = [header, *(f"{_word(key)} = {_inline(value)}" for key, value in table.items())]
    block = new_line.join(lines)
    if not text.removeprefix("\ufeff"):
        return text + block + new_line
    if text.endswith("\n"):
        return text + new_line + block + new_line
    return text + new_line * 2 + block


def _cuts(text: str, path: Path) -> Iterator[str]:
    """Without the lines of a table at a path, and without the empty line before it.

    A text over several lines may hold the same header: the last one is tried first.
    """
    is_numbered = isinstance(path[-1], int)
    dotted = _dotted(path[:-1] if is_numbered else path)
    header = f"[[{dotted}]]" if is_numbered else f"[{dotted}]"
    lines = _LINE.findall(text)
    for start in reversed([no for no, line in enumerate(lines) if _spelt(line) == header]):
        yield _cut(lines, start)


def _cut(lines: list[str], start: int) -> str:
    end = start + 1
    while end < len(lines) and not _HEADER.match(lines[end]):
        end += 1
    while end > start + 1 and (not lines[end - 1].strip() or lines[end - 1].lstrip()[0] == "#"):
        end -= 1
    has_end = lines[end - 1].endswith("\n")
    if start and not lines[start - 1].strip():
        start -= 1
    kept = lines[:start] + lines[end:]
    if not has_end and start == len(kept) and kept:
        kept[-1] = kept[-1].removesuffix("\n").removesuffix("\r")
    return "".join(kept)


def _spelt(line: str) -> str:
    """A header without blanks and remarks, its keys unquoted where they may be."""
    bare = line.partition("#")[0].strip().replace('"', "").replace("'", "")
    return "".join(bare.split())


def _dotted(path: Path) -> str:
    if any(isinstance(part, int) for part in path):
        raise Refused("no table of its own")
    return ".".join(_word(str(part)) for part in path)


def _word(key: str) -> str:
    return key if _BARE.fullmatch(key) else json.dumps(key)


def _is_tables(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(one, dict) for one in value)


def _inline(value: Any) -> str:
    if isinstance(value, dict):
        pairs = (f"{_word(key)} = {_inline(one)}" for key, one in value.items())
        return "{ " + ", ".join(pairs) + " }"
    if isinstance(value, list):
        return "[" + ", ".join(map(_inline, value)) + "]"
    if isinstance(value, str):  # TOML knows no surrogates, and DEL only escaped
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    return json.dumps(value)


# -- by library: values within what is there ------------------------------------------------------


def _by_library(text: str, step: Step) -> str:
    mark = "\ufeff" if text.startswith("\ufeff") else ""
    plain = text.removeprefix(mark)
    document = tomlkit.parse(plain)
    if tomlkit.dumps(document) != plain:
        raise Refused("the library would change other lines")
    _edit(document, step)
    new = tomlkit.dumps(document)
    if "\r\n" in plain and "\n" not in plain.replace("\r\n", ""):
        new = new.replace("\r\n", "\n").replace("\n", "\r\n")
    return mark + new


def _edit(document: Any, step: Step) -> None:
    if isinstance(step, Append):
        at(document, step.path).append(_item(step.value))
        return
    holder, last = at(document, step.path[:-1]), step.path[-1]
    if holder is NOTHING:
        raise Refused("no such table")
    if isinstance(step, Put):
        holder[last] = _item(step.value)
    else:
        del holder[last]


def _item(value: Any) -> Any:
    """A value as the library writes it: tables inline, so that they fit everywhere."""
    if isinstance(value, dict):
        table = tomlkit.inline_table()
        for key, one in value.items():
            table[key] = _item(one)
        return table
    if isinstance(value, list):
        array = tomlkit.array()
        for one in value:
            array.append(_item(one))
        return array
    return tomlkit.item(value)
