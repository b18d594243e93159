"""What setup enters is what the hooks answer to: the same command lines, events and files."""

import os
import subprocess
from pathlib import Path

import pytest

from mbx.core.clients import CLIENTS, STATUS_LINES
from mbx.hooks.scripts import hook_command, statusline_command
from mbx.mcp.tools import HOOK
from mbx.paths import Paths
from mbx.setup import entries
from mbx.setup.client import Client
from mbx.setup.clients import CLIENTS as SET_UP
from mbx.setup.entries import Installation
from mbx.setup.scripts import scripts_for

HOME = "/home/ana/my mail"


def installation(home: str = HOME) -> Installation:
    return Installation(("/usr/bin/mbx",), home, {"MBX_HOME": home}, "/home/ana/.local/share/mbx")


@pytest.mark.parametrize("client", SET_UP, ids=lambda client: str(client.name))
def test_the_command_lines_and_events_are_those_of_the_hooks(client: Client) -> None:
    paths = Paths.from_environ({"MBX_HOME": HOME})
    has_plugin = client.name == "opencode"
    wired = tuple(CLIENTS[client.name].heeded().values())
    assert client.events == (() if has_plugin else wired)
    for event in client.events:
        assert installation().hook(client.name, event) == hook_command(paths, client.name, event)


@pytest.mark.parametrize("name", STATUS_LINES)
def test_the_command_of_a_status_line_is_that_of_the_hooks(name: str) -> None:
    paths = Paths.from_environ({"MBX_HOME": HOME})
    assert installation().status_line(name) == statusline_command(paths, name)


def test_the_scripts_are_put_below_the_home_and_are_shell(tmp_path: Path) -> None:
    made = scripts_for(installation(str(tmp_path)))
    assert [os.path.dirname(path) for path in made.files] == [str(tmp_path / "bin")] * 2
    for text in made.files.values():
        done = subprocess.run(["sh", "-n"], input=text, text=True, check=False, capture_output=True)
        assert (done.returncode, done.stderr) == (0, "")
        assert "@" not in text.replace("$@", "")
    assert made.plugin
    assert entries.HOOK_TOOL == HOOK
