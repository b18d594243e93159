"""Whether a tool is about to write into mbx's own folders: an agent has no business there.

Only tools that name the file they write are judged. A shell command may do what it likes: this
prevents accidents, it is no border (docs/threat-model.md).
"""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:  # `typing` itself is too heavy for a hook
    from collections.abc import Iterable, Iterator, Mapping
    from typing import Any

REFUSAL = (
    "mbx: these are the mailbox's own files; only the mbx daemon writes them."
    " Use the mbx tools instead."
)
"""What the model is told."""

_READS = ("read", "view", "glob", "grep", "ls", "list", "notebookread")
"""How the names of tools begin that only read."""

FIELDS = frozenset(
    (
        *("file_path", "filePath", "path", "notebook_path", "absolute_path", "filename", "file"),
        *("target_file", "targetFile", "source", "destination", "paths", "files", "uri"),
    )
)
"""Where tools name a file, or several, at any depth of their arguments."""

_PATCH_FIELDS = ("patch", "input", "command", "diff")
_PATCH_MARKS = ("*** Update File: ", "*** Add File: ", "*** Delete File: ", "*** Move to: ")
_DIFF_MARKS = ("--- ", "+++ ")
_PATHS_MAX = 8_192
"""An event has no room for many more; each costs some twenty microseconds of the one second."""


def refuses(event: Mapping[str, Any], folders: Iterable[str]) -> bool:
    """Whether the event is of a tool that writes a file below one of `folders` (real paths)."""
    tool = event.get("tool_name", event.get("toolName"))
    if not isinstance(tool, str) or tool.rpartition("__")[2].lower().startswith(_READS):
        return False
    given = event.get("tool_input", event.get("toolArgs"))
    cwd = event.get("cwd")
    base = cwd if isinstance(cwd, str) and cwd else os.getcwd()
    guarded = tuple(folders)
    for count, path in enumerate(_paths(_arguments(given))):
        if count >= _PATHS_MAX:
            return False
        place = os.path.join(base, os.path.expanduser(path.removeprefix("file://")))
        if "\0" not in place and _is_below(place, guarded):
            return True
    return False


def _arguments(given: object) -> Mapping[str, Any]:
    """What a tool is called with; a text is its JSON, or else all that it takes: a patch."""
    if not isinstance(given, str):
        return given if isinstance(given, dict) else {}
    from mbx.hooks.event import as_object

    return as_object(given.encode("utf-8", "replace")) or {"patch": given}


def _paths(arguments: Mapping[str, Any]) -> Iterator[str]:
    for field in _PATCH_FIELDS:
        text = arguments.get(field)
        if isinstance(text, list):
            text = "\n".join(one for one in text if isinstance(one, str))
        if isinstance(text, str):
            yield from _patched(text)
    below: list[Any] = [arguments]
    while below:
        value = below.pop()
        for key, inner in value.items() if isinstance(value, dict) else ():
            named = inner if isinstance(inner, list) else [inner]
            yield from (one for one in named if key in FIELDS and isinstance(one, str))
            below.append(inner)
        below += value if isinstance(value, list) else ()


def _patched(text: str) -> Iterator[str]:
    """The files of a patch; those of a diff with and without the letter before them."""
    is_diff = "\n+++ " in text
    for line in text.splitlines() if is_diff or "*** " in text else ():
        bare = line.strip()
        for mark in _PATCH_MARKS:
            if bare.startswith(mark):
                yield bare[len(mark) :]
        if is_diff and bare.startswith(_DIFF_MARKS):
            name = bare[4:].partition("\t")[0]
            yield from (name, name[2:]) if name[:2] in ("a/", "b/") else (name,)


def _is_below(path: str, folders: Iterable[str]) -> bool:
    try:
        real = os.path.realpath(path)
    except (OSError, ValueError):
        return False
    return any(real == folder or real.startswith(folder + os.sep) for folder in folders)
