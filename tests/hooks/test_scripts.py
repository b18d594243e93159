"""The files that setup puts: complete, quoted, and with the command lines that never change."""

import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from mbx.core.clients import CLIENTS, HOOK_SCRIPT, command_line
from mbx.hooks.scripts import (
    hook_command,
    opencode_plugin,
    program,
    scripts,
    statusline_command,
)
from mbx.paths import Paths

SHELLS = [name for name in ("dash", "bash", "busybox", "ksh", "zsh") if shutil.which(name)]
ODD = 'it\'s $(a) "home" `b`'


def _line(script: str, words: str) -> str:
    path = f"/h/mbx/bin/{script}"
    return f'[ ! -r "{path}" ] || sh "{path}" {words}'


@pytest.mark.parametrize("shell", SHELLS)
def test_a_script_that_is_gone_holds_nobody_up(tmp_path: Path, shell: str) -> None:
    line = command_line(str(tmp_path), HOOK_SCRIPT, "claude", "UserPromptSubmit")
    done = subprocess.run([shell, "-c", line], capture_output=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


def test_the_command_lines_are_those_that_clients_keep_a_consent_by() -> None:
    paths = Paths("/h/mbx", "/h/mbx/run")
    assert hook_command(paths, "codex", "Stop") == _line("hook.sh", "codex Stop")
    assert statusline_command(paths, "claude") == _line("statusline.sh", "claude")


@pytest.mark.parametrize("shell", SHELLS)
def test_every_shell_reads_the_scripts(tmp_path: Path, shell: str) -> None:
    for script in scripts(Paths(f"/h/{ODD}", f"/h/{ODD}/run")):
        file = tmp_path / script.name
        file.write_text(script.content)
        words = [shell, "sh", "-n"] if shell == "busybox" else [shell, "-n"]
        done = subprocess.run([*words, str(file)], capture_output=True, check=False, timeout=10)
        assert (done.returncode, done.stderr) == (0, b"")
        assert re.findall(r"@[A-Z_]+@", script.content) == []


def test_odd_paths_are_quoted_words() -> None:
    hook, line = scripts(Paths(f"/h/{ODD}", f"/h/{ODD}/run"), ["/o d/python", "-c", "x; y"])
    folder = f"/h/{ODD}/run/snapshots"
    assert f"folder={shlex.quote(folder)}" in hook.content
    assert f"folder={shlex.quote(folder)}" in line.content
    assert "'/o d/python' -c 'x; y' \"$event\"" in hook.content


def test_each_event_of_each_client_that_can_come_to_something_has_its_arm() -> None:
    hook, _ = scripts(Paths("/h", "/h/run"))
    for client in CLIENTS.values():
        for act, event in client.events.items():
            is_known = f"'{client.name} {event}'" in hook.content
            assert is_known == (act in ("start", "end") or client.forms[act] != "nothing")


def test_the_program_is_isolated_from_settings_of_others() -> None:
    assert program()[1] == "-I"


def test_the_plugin_is_a_module_that_javascript_reads(tmp_path: Path) -> None:
    text = opencode_plugin(Paths(f"/h/{ODD}", f"/h/{ODD}/run"))
    assert re.findall(r"@[A-Z_]+@", text) == []
    node = shutil.which("node")
    if node is not None:
        file = tmp_path / "plugin.mjs"
        file.write_text(text)
        done = subprocess.run([node, "--check", str(file)], capture_output=True, check=False)
        assert (done.returncode, done.stderr) == (0, b"")
