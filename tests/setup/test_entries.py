"""Whose an entry is, and how an installation is named and started."""

import os
import subprocess
from pathlib import Path

import pytest

from mbx.core.errors import MbxError
from mbx.paths import Paths
from mbx.setup import installer
from mbx.setup.entries import Installation

HERE = Installation(("/opt/mbx",), "/here", {}, "/usual")
USUAL = HERE._replace(home="/usual")
ODD_HOMES = ["/a b", '/a"b', "/a$HOME", "/a`b`", "/a\\b", "/a'b", "/ü", "/a\nb"]


@pytest.mark.parametrize(
    ("entry", "whose"),
    [
        ({"command": "/x/mbx", "args": ["mcp"], "env": {"MBX_HOME": "/here"}}, "mine"),
        ({"command": "mbx", "args": ["mcp"]}, "another's"),
        ({"command": ["/x/mbx", "mcp"], "environment": {"MBX_HOME": "/here/../here"}}, "mine"),
        ({"command": "/py", "args": ["-m", "mbx", "mcp"], "env": {"MBX_HOME": "/here"}}, "mine"),
        ({"command": "/x/mbx", "args": ["mcp"], "env": {"MBX_HOME": 1}}, "another's"),
        ({"command": "/x/mbx", "args": ["serve"]}, "foreign"),
        ({"command": "npx", "args": ["mcp"]}, "foreign"),
        ({"command": "npx", "args": "mcp"}, "foreign"),
        ({"url": "http://mbx/mcp"}, "foreign"),
        ("mbx mcp", "foreign"),
        (None, "foreign"),
    ],
)
def test_a_server_entry_is_known_by_what_it_starts(entry: object, whose: str) -> None:
    assert HERE.whose_server(entry) == whose


def test_an_entry_that_names_no_home_is_of_the_usual_one() -> None:
    assert USUAL.whose_server({"command": "mbx", "args": ["mcp"]}) == "mine"


@pytest.mark.parametrize(
    ("hook", "whose"),
    [
        ({"command": 'sh "/here/bin/hook.sh" claude Stop'}, "mine"),
        ({"bash": 'sh "/here/bin/hook.sh" copilot agentStop'}, "mine"),
        (
            {
                "command": '[ ! -r "/here/bin/hook.sh" ] || sh "/here/bin/hook.sh" codex Stop',
            },
            "mine",
        ),
        ({"command": 'mine; sh "/here/bin/hook.sh" codex Stop'}, "foreign"),
        ({"command": 'sh "/there/bin/hook.sh" claude Stop'}, "another's"),
        ({"command": 'sh "/here/bin/hook.sh"'}, "foreign"),
        ({"command": "sh /here/bin/hook.sh claude Stop"}, "foreign"),
        ({"type": "mcp_tool", "server": "mbx", "tool": "mbx_hook"}, "mine"),
        ({"type": "mcp_tool", "server": "mbx", "tool": "other"}, "foreign"),
        ({"command": ["sh"]}, "foreign"),
        (7, "foreign"),
    ],
)
def test_a_hook_is_known_by_its_line(hook: object, whose: str) -> None:
    assert HERE.whose_hook(hook) == whose


@pytest.mark.parametrize("home", ODD_HOMES)
def test_a_line_of_a_home_with_odd_letters_is_what_a_shell_reads_and_known_again(home: str) -> None:
    odd = HERE._replace(home=home)
    line = odd.hook("codex", "Stop")
    assert odd.whose_line(line) == "mine"
    run = line.partition(" || ")[2]
    said = subprocess.run(
        ["sh", "-c", f"set -- {run}; printf '%s|' \"$@\""],
        capture_output=True,
        check=True,
        timeout=10,
    )
    assert said.stdout.decode().split("|")[:-1] == ["sh", f"{home}/bin/hook.sh", "codex", "Stop"]


def test_the_lines_are_those_that_codex_was_told_to_trust() -> None:
    hook, line = "/here/bin/hook.sh", "/here/bin/statusline.sh"
    assert HERE.hook("codex", "Stop") == f'[ ! -r "{hook}" ] || sh "{hook}" codex Stop'
    assert HERE.status_line("claude") == f'[ ! -r "{line}" ] || sh "{line}" claude'


def test_only_what_is_not_usual_is_written_into_entries(tmp_path: Path) -> None:
    def given(**environ: str) -> object:
        environ["HOME"] = str(tmp_path)
        paths = Paths.from_environ(environ)
        return installer.installation_of(paths, environ, ("/m",)).environ

    usual = os.path.realpath(tmp_path / ".local/share/mbx")
    assert given() == {}
    assert given(MBX_HOME=usual, MBX_RUN=f"{usual}/run") == {}
    assert given(MBX_HOME="/h") == {"MBX_HOME": "/h"}
    assert given(MBX_RUN="/r") == {"MBX_RUN": "/r"}
    assert given(MBX_HOME="/h", MBX_RUN="/r") == {"MBX_HOME": "/h", "MBX_RUN": "/r"}


def test_a_home_that_settings_cannot_hold_is_refused(tmp_path: Path) -> None:
    environ = {"HOME": str(tmp_path), "MBX_HOME": os.fsdecode(b"/a\xff")}
    with pytest.raises(MbxError, match="no UTF-8"):
        installer.installation_of(Paths.from_environ(environ), environ, ("/m",))


def test_the_program_is_named_by_where_it_really_is(tmp_path: Path) -> None:
    real = tmp_path / "venv" / "bin" / "mbx"
    real.parent.mkdir(parents=True)
    real.write_text("#!/bin/sh\n")
    real.chmod(0o755)
    link = tmp_path / "bin" / "mbx"
    link.parent.mkdir()
    link.symlink_to(real)
    found = (os.path.realpath(real),)
    python = str(tmp_path / "python")
    assert installer.program_of(str(link), python, "") == found
    assert installer.program_of("mbx", python, f"relative:{link.parent}") == found
    assert installer.program_of("__main__.py", str(real.with_name("python")), "") == found
    assert installer.program_of("__main__.py", python, "") == (python, "-m", "mbx")
