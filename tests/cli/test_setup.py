"""`mbx setup` as people and scripts run it: it asks, previews, reports, and says what is left."""

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pexpect
import pytest

from mbx.core.clients import HOOK_SCRIPT, command_line
from tests.cli.conftest import MBX, Desk


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Desk]:
    """A home with two clients in it."""
    desk = Desk(tmp_path / "home")
    (tmp_path / ".claude").mkdir()
    (tmp_path / ".codex").mkdir()
    (tmp_path / ".codex/config.toml").write_text("a = 1\n")
    (tmp_path / ".claude.json").write_text('{"n": 1}')
    desk.env["PATH"] = f"{MBX.parent}:/usr/bin:/bin"
    yield desk
    desk.close()


def entry(place: Desk) -> object:
    found = json.loads((place.home.parent / ".claude.json").read_text())
    return found.get("mcpServers", {}).get("mbx")


def test_without_a_terminal_it_changes_nothing_unless_told_yes(place: Desk) -> None:
    done = place.run("setup")
    assert (done.returncode, done.stdout) == (2, "")
    assert "next: mbx setup --dry-run, then mbx setup --yes" in done.stderr
    assert not place.home.exists()
    done = place.run("setup", "--yes")
    assert (done.returncode, done.stderr) == (0, "")
    assert entry(place) == {
        "type": "stdio",
        "command": os.path.realpath(MBX),
        "args": ["mcp"],
        "env": {"MBX_HOME": os.path.realpath(place.home)},
        "alwaysLoad": True,
    }
    assert place.run("setup", "--yes").stdout.endswith("nothing to do\n")
    assert "End your sessions of Claude Code, Codex and start them again" in done.stdout
    assert place.status()["running"] is False


def test_a_preview_changes_nothing_and_shows_a_diff(place: Desk) -> None:
    done = place.run("setup", "--dry-run")
    assert done.returncode == 0
    assert "+[mcp_servers.mbx]" in done.stdout
    assert "nothing was changed: this was a preview" in done.stdout
    assert not place.home.exists()
    assert entry(place) is None


@pytest.mark.parametrize(("answer", "status"), [("n", 1), ("", 1), ("yes", 0)])
def test_on_a_terminal_it_asks(place: Desk, answer: str, status: int) -> None:
    child = pexpect.spawn(str(MBX), ["setup"], env=place.env, timeout=15)
    child.expect_exact("Change these files? [y/N] ")
    child.sendline(answer)
    child.expect(pexpect.EOF)
    child.wait()  # its terminal may be closed before it has ended: `close` would send it signals
    child.close()
    assert child.exitstatus == status
    assert (entry(place) is not None) == (status == 0)


def test_an_end_of_input_is_a_no(place: Desk) -> None:
    child = pexpect.spawn(str(MBX), ["setup"], env=place.env, timeout=15)
    child.expect_exact("Change these files? [y/N] ")
    child.sendeof()
    child.expect_exact("nothing was changed")
    child.expect(pexpect.EOF)
    child.wait()  # its terminal may be closed before it has ended: `close` would send it signals
    child.close()
    assert (child.exitstatus, entry(place)) == (1, None)


def test_the_document_says_what_was_done_to_each_file(place: Desk) -> None:
    (place.home.parent / ".claude.json").write_text('{"n": }')
    done = place.run("setup", "--yes", "--json")
    told = json.loads(done.stdout)
    assert (done.returncode, told["ok"], told["changed"]) == (1, False, True)
    files = {
        os.path.basename(file["path"]): file for one in told["clients"] for file in one["files"]
    }
    assert files[".claude.json"]["act"] == "refused"
    assert "line 1, column 7" in files[".claude.json"]["why"]
    assert files["config.toml"]["act"] == "write"
    assert "gemini" in told["not_found"]
    assert any("Mend it" in step for step in told["steps"])
    again = json.loads(place.run("setup", "--yes", "--json").stdout)
    assert again["changed"] is False
    assert "nothing was changed" in place.run("setup", "--yes").stdout


def test_only_some_clients_and_back_again(place: Desk) -> None:
    assert place.run("setup", "--yes", "--only", "codex").returncode == 0
    assert entry(place) is None
    config = place.home.parent / ".codex/config.toml"
    assert "mcp_servers.mbx" in config.read_text()
    done = place.run("setup", "--uninstall", "--yes", "--only", "codex")
    assert (done.returncode, config.read_text()) == (0, "a = 1\n")
    assert "restored" in done.stdout


def test_a_client_that_nobody_knows_is_a_usage_error(place: Desk) -> None:
    done = place.run("setup", "--only", "codex,emacs")
    assert done.returncode == 2
    assert "setup knows no client 'emacs'" in done.stderr


def test_a_client_asked_for_by_name_that_is_not_here_is_told_by_the_status(place: Desk) -> None:
    done = place.run("setup", "--yes", "--only", "codex,gemini")
    assert (done.returncode, "not found: gemini" in done.stdout) == (1, True)
    assert "mcp_servers.mbx" in (place.home.parent / ".codex/config.toml").read_text()


def test_a_program_on_the_path_is_enough_to_be_found(place: Desk, tmp_path: Path) -> None:
    program = tmp_path / "bin" / "gemini"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    place.env["PATH"] += f":{program.parent}"
    done = place.run("setup", "--yes", "--only", "gemini")
    assert f"Gemini CLI: found ({program})" in done.stdout
    assert (tmp_path / ".gemini/settings.json").exists()


def test_every_line_that_was_entered_runs_in_silence(place: Desk) -> None:
    place.run("setup", "--yes")
    lines = [
        hook["command"]
        for name in (".claude/settings.json", ".codex/hooks.json")
        for groups in json.loads((place.home.parent / name).read_text())["hooks"].values()
        for hook in groups[0]["hooks"]
        if hook["type"] == "command"
    ]
    settings = json.loads((place.home.parent / ".claude/settings.json").read_text())
    lines.append(settings["statusLine"]["command"])
    assert command_line(os.path.realpath(place.home), HOOK_SCRIPT, "codex", "Stop") in lines
    for line in lines:
        done = subprocess.run(
            ["sh", "-c", line],
            input=b'{"session_id":"x"}',
            env=place.env,
            capture_output=True,
            check=False,
            timeout=10,
        )
        assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


def test_doctor_says_whether_mbx_is_set_up_and_which(place: Desk, tmp_path: Path) -> None:
    def said() -> dict[str, str]:
        checks = json.loads(place.run("doctor", "--json").stdout)["checks"]
        return {check["detail"]: check["level"] for check in checks if check["name"] == "clients"}

    assert said()["Codex is here, and mbx is not set up in it"] == "info"
    place.run("setup", "--yes")
    assert said() == {"Claude Code: set up": "ok", "Codex: set up": "ok"}
    config = tmp_path / ".codex/config.toml"
    config.write_text(config.read_text().replace(os.path.realpath(MBX), "/elsewhere/bin/mbx"))
    (tmp_path / ".claude.json").write_text("{")
    levels = said()
    assert set(levels.values()) == {"warn"}
    assert any("command: was /elsewhere/bin/mbx" in detail for detail in levels)
    assert any("it ends in the middle" in detail for detail in levels)
