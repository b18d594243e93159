"""The answer to a completion script: one candidate a line, as ``TYPE TAB VALUE TAB HELP``.

TYPE is `plain`, or `file` or `dir` for paths, which the shell completes itself. VALUE replaces the
whole last word. Whatever goes wrong, nothing is said: a person is typing on that line.
"""

import os
from collections.abc import Sequence

import click
from click.shell_completion import CompletionItem, ShellComplete

from mbx.cli.session import Session


def complete(root: click.Group, words: Sequence[str], session: Session) -> int:
    """Print the candidates for the last of `words`; the exit status, which is always 0."""
    try:
        typed = [os.fsencode(word).decode("utf-8", "replace") for word in words]
        lines = [_line(item) for item in candidates(root, typed, session)]
        session.output.text(*lines)
    except Exception:  # noqa: BLE001, S110  a trace would stand in the line that is being typed
        pass
    return 0


def candidates(
    root: click.Group, words: Sequence[str], session: Session
) -> list[CompletionItem[str]]:
    """The candidates for the last of `words`, behind the ones before it. Raises what click does."""
    *before, last = words or [""]
    found = ShellComplete(root, {"obj": session}, "mbx", "").get_completions(before, last)
    option, equals, _ = last.partition("=")
    if not (equals and option.startswith("--")):
        return found
    return [CompletionItem(f"{option}={one.value}", one.type, one.help) for one in found]


def _line(item: CompletionItem[str]) -> str:
    told = " ".join((item.help or "").split())
    return f"{item.type}\t{item.value}\t{told}"
