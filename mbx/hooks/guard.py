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

_READERS = frozenset(
    (
        "read",
        "read_file",
        "view",
        "glob",
        "grep",
        "ls",
        "list_directory",
        "readfile",
        "notebookread",
    )
)
_FIELDS = ("file_path", "filePath", "path", "notebook_path", "absolute_path", "filename")
_PATCH_FIELDS = ("patch", "input", "command")
_PATCH_MARKS = ("*** Update File: ", "*** Add File: ", "*** Delete File: ", "*** Move to: ")
_PATHS_MAX = 256


def refuses(event: Mapping[str, Any], folders: Iterable[str]) -> bool:
    """Whether the event is of a tool that writes a file below one of `folders` (real paths)."""
    tool = event.get("tool_name", event.get("toolName"))
    if not isinstance(tool, str) or tool.lower() in _READERS:
        return False
    given = event.get("tool_input", event.get("toolArgs"))
    arguments = given if isinstance(given, dict) else {}
    cwd = event.get("cwd")
    base = cwd if isinstance(cwd, str) and cwd else os.getcwd()
    guarded = tuple(folders)
    for count, path in enumerate(_paths(arguments)):
        if count >= _PATHS_MAX:
            return False
        if "\0" not in path and _is_below(os.path.join(base, os.path.expanduser(path)), guarded):
            return True
    return False


def _paths(arguments: Mapping[str, Any]) -> Iterator[str]:
    for field in _FIELDS:
        if isinstance(arguments.get(field), str):
            yield arguments[field]
    for field in _PATCH_FIELDS:
        text = arguments.get(field)
        if isinstance(text, list):
            text = "\n".join(one for one in text if isinstance(one, str))
        if isinstance(text, str) and "*** " in text:
            for line in text.splitlines():
                for mark in _PATCH_MARKS:
                    if line.startswith(mark):
                        yield line[len(mark) :].strip()


def _is_below(path: str, folders: Iterable[str]) -> bool:
    try:
        real = os.path.realpath(path)
    except (OSError, ValueError):
        return False
    return any(real == folder or real.startswith(folder + os.sep) for folder in folders)
