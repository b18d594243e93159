"""The commands of `mbx` as click knows them, for tests of its surface and of the documents."""

import importlib
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.rules import ROOT

COMMAND_EXISTS = all((ROOT / "mbx" / path).exists() for path in ("__main__.py", "cli/main.py"))
needs_command = pytest.mark.skipif(not COMMAND_EXISTS, reason="the mbx command is not there yet")


def root_group() -> Any:
    """The one click group of `mbx.cli.main`."""
    click = importlib.import_module("click")
    module = importlib.import_module("mbx.cli.main")
    groups = [value for value in vars(module).values() if isinstance(value, click.Group)]
    assert len(groups) == 1, "mbx.cli.main has one group, the root"
    return groups[0]


def commands_of(group: Any, context: Any, path: str) -> Iterator[tuple[str, Any, Any]]:
    """(full name, command, context) of each command that is not a group, lazy ones loaded."""
    click = importlib.import_module("click")
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None, f"{path} {name} is listed but cannot be loaded"
        inner = click.Context(command, info_name=name, parent=context)
        if isinstance(command, click.Group):
            yield from commands_of(command, inner, f"{path} {name}")
        else:
            yield f"{path} {name}", command, inner


def all_commands() -> list[tuple[str, Any, Any]]:
    """All commands below the root: see `commands_of`."""
    click = importlib.import_module("click")
    group = root_group()
    return list(commands_of(group, click.Context(group, info_name="mbx"), "mbx"))


def options_of(command: Any) -> set[str]:
    """Every spelling of every option of the command, `--help` too."""
    spelt = {one for option in command.params for one in (*option.opts, *option.secondary_opts)}
    return spelt | {"--help"}
