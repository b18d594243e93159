"""What doctor says of the agent CLIs of this machine."""

from pathlib import Path

from mbx.core.clients import HOOK_SCRIPT, STATUS_LINE_SCRIPT
from mbx.doctor import clients
from tests.setup.conftest import Place


def said(place: Place) -> list[tuple[str, str]]:
    return [(check.level, check.detail) for check in clients.checks(place.plan())]


def test_without_a_client_there_is_nothing_to_do(tmp_path: Path) -> None:
    assert said(Place(tmp_path)) == [("info", "no agent CLI was found on this machine")]


def test_a_client_is_told_as_not_set_up_or_set_up(tmp_path: Path) -> None:
    place = Place(tmp_path)
    place.clients("codex", "gemini")
    place.run("gemini")
    assert said(place) == [
        ("info", "Codex is here, and mbx is not set up in it"),
        ("ok", "Gemini CLI: set up"),
    ]
    assert [check.fix for check in clients.checks(place.plan())] == ["mbx setup --only codex", None]


def test_an_entry_of_another_program_is_told_with_the_program(tmp_path: Path) -> None:
    place = Place(tmp_path)
    place.clients("kimi-cli")
    place.run()
    place.installation = place.installation._replace(program=("/venv/bin/mbx",))
    path = place.user / ".kimi/mcp.json"
    was = "mcpServers.mbx.command: was /opt/mbx/bin/mbx"
    assert said(place) == [
        ("warn", f"kimi-cli: not as this mbx would have it: {path} ({was})"),
    ]


def test_a_script_that_is_old_is_a_warning_and_one_that_is_gone_a_fault(tmp_path: Path) -> None:
    place = Place(tmp_path)
    place.clients("kimi-cli")
    place.run()
    (place.home / "bin" / HOOK_SCRIPT).unlink()
    (place.home / "bin" / STATUS_LINE_SCRIPT).write_text("old")
    assert [(level, detail.split(" ")[0]) for level, detail in said(place)] == [
        ("ok", "kimi-cli:"),
        ("fail", f"{place.installation.home}/bin/{HOOK_SCRIPT}"),
        ("warn", f"{place.installation.home}/bin/{STATUS_LINE_SCRIPT}"),
    ]
    place.run()
    assert said(place) == [("ok", "kimi-cli: set up")]


def test_a_file_that_setup_cannot_read_is_named(tmp_path: Path) -> None:
    place = Place(tmp_path)
    place.clients("codex")
    (place.user / ".codex/config.toml").write_text("a = \n")
    level, detail = said(place)[0]
    assert (level, "config.toml" in detail, "line 1" in detail) == ("warn", True, True)
