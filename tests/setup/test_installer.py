"""Setup on real files: what it adds, what it leaves, and that it takes out every byte again."""

import json
import os
import tomllib
from pathlib import Path
from typing import Any

import pytest

from mbx.core.clients import WAITS_AS
from mbx.setup.clients import BY_NAME, CLIENTS
from mbx.setup.entries import HOOK_TIMEOUT_S
from mbx.setup.ledger import Ledger
from mbx.setup.steps import Refused
from tests.setup.conftest import FOLDERS, Place, acts
from tests.support.entries import entry_of

JSON_SHAPES = {
    "empty file": "",
    "blank lines": "\n\n",
    "empty object": "{}",
    "empty object on two lines": "{\n}\n",
    "one line": '{"theme":"dark","n":[[1,[2]],{}]}',
    "comments and trailing commas": '{\n  // my\n  "theme": "dark", /* so */\n  "a": [1, 2,],\n}\n',
    "tabs, no final newline": '{\n\t"theme": "dark"\n}',
    "CRLF": '{\r\n    "theme": "dark",\r\n    "a": {\r\n    }\r\n}\r\n',
    "BOM": '\ufeff{\n  "theme": "dark"\n}\n',
    "key twice elsewhere": '{\n  "a": 1,\n  "a": 2\n}\n',
    "own servers and hooks": json.dumps(
        {
            "mcpServers": {"other": {"command": "x", "env": {"A": "ü"}}},
            "mcp": {"other": {"type": "local", "command": ["x"]}},
            "hooks": {
                event: [{"matcher": "*", "hooks": [{"type": "command", "command": "mine"}]}]
                for event in ("SessionStart", "Stop", "AfterAgent", "agentStop")
            },
            "ui": {"hideBanner": True},
        },
        indent=3,
        ensure_ascii=False,
    ),
    "empty containers": '{\n  "mcpServers": {},\n  "hooks": {"Stop": []},\n  "mcp": {}\n}\n',
}

TOML_SHAPES = {
    "empty file": "",
    "one line": 'model = "m"\n',
    "no final newline": "a = 1",
    "CRLF and comments": '# mine\r\nmodel = "m" # so\r\n\r\n[a.b]\r\nc = [1,\r\n  2,]\r\n',
    "dotted and inline": "mcp_servers.other.command = 'x'\nstatus_bar = { a = 1 }\n",
    "arrays of tables": "[[hooks]]\nevent = 'Stop'\ncommand = 'mine'\n\n[[hooks]]\nevent = 'Stop'\n"
    "command = 'mine too'\n",
}


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8", newline="")


def fill(place: Place, name: str, json_text: str, toml_text: str) -> list[Path]:
    """Put a text into every settings file of a client."""
    place.clients(name)
    client = BY_NAME[name]
    documents = client.documents(place.setting.machine, place.installation, place.scripts)
    paths = []
    for document in documents:
        if document.kind != "file":
            write(Path(document.path), json_text if document.kind == "json" else toml_text)
            os.chmod(document.path, 0o640)
            paths.append(Path(document.path))
    return paths


def holds(data: Any, part: Any) -> bool:
    """Whether everything of `part` is in `data`, in its order."""
    if isinstance(part, dict):
        return isinstance(data, dict) and all(holds(data.get(key), part[key]) for key in part)
    if isinstance(part, list):
        return isinstance(data, list) and all(map(holds, data, part))
    return bool(data == part)


@pytest.mark.parametrize("name", FOLDERS)
@pytest.mark.parametrize("json_shape", JSON_SHAPES)
def test_setup_twice_changes_once_and_taking_it_out_gives_every_byte_back(
    place: Place, name: str, json_shape: str
) -> None:
    toml_shape = dict(zip(JSON_SHAPES, [*TOML_SHAPES, *TOML_SHAPES], strict=False))[json_shape]
    fill(place, name, JSON_SHAPES[json_shape], TOML_SHAPES[toml_shape])
    before = place.seen()
    assert set(acts(place.run()).values()) == {"write"}
    entered = place.seen()
    assert {path: entered[path][1] for path in before} == {path: before[path][1] for path in before}
    assert set(acts(place.run()).values()) == {"unchanged"}
    assert place.seen() == entered
    place.take_out()
    assert place.seen() == before


@pytest.mark.parametrize("name", FOLDERS)
@pytest.mark.parametrize("json_shape", JSON_SHAPES)
def test_what_people_change_afterwards_stays_and_only_ours_goes(
    place: Place, name: str, json_shape: str
) -> None:
    paths = fill(place, name, JSON_SHAPES[json_shape], TOML_SHAPES["one line"])
    before = {path: path.read_bytes() for path in paths}
    place.run()
    for path in paths:
        with path.open("ab") as file:
            file.write(b"\n# added\n" if path.suffix == ".toml" else b"\n// added\n")
    place.take_out()
    for path in paths:
        added = b"\n# added\n" if path.suffix == ".toml" else b"\n// added\n"
        left = path.read_bytes()
        assert left.endswith(added)
        if json_shape not in ("empty file", "blank lines"):
            assert left == before[path] + added


def test_every_file_of_people_still_says_what_it_said(place: Place) -> None:
    paths = [
        path
        for name in FOLDERS
        for path in fill(place, name, JSON_SHAPES["own servers and hooks"], "a = 1\n")
    ]
    place.run()
    for path in paths:
        text = path.read_text(encoding="utf-8")
        data = tomllib.loads(text) if path.suffix == ".toml" else json.loads(text)
        first = {"a": 1}
        if path.suffix != ".toml":
            first = json.loads(JSON_SHAPES["own servers and hooks"])
        assert holds(data, first)


def test_a_file_that_was_not_there_goes_again_with_the_folders_made_for_it(place: Place) -> None:
    place.clients("claude", "copilot")
    place.run()
    assert (place.user / ".claude/skills/mbx/SKILL.md").exists()
    place.take_out()
    assert place.seen() == {}
    assert not (place.user / ".claude/skills").exists()
    assert not (place.user / ".copilot/hooks").exists()


def test_an_entry_made_by_the_clients_own_command_is_taken_over_with_what_people_added(
    place: Place,
) -> None:
    place.clients("claude")
    entry = {"type": "stdio", "command": "mbx", "args": ["mcp"], "env": {"MINE": "1"}, "note": 2}
    write(place.user / ".claude.json", json.dumps({"mcpServers": {"mbx": entry}}, indent=2))
    place.run()
    new = json.loads((place.user / ".claude.json").read_text())["mcpServers"]["mbx"]
    assert (new["command"], new["note"], new["env"]["MINE"]) == ("/opt/mbx/bin/mbx", 2, "1")
    assert new["env"]["MBX_HOME"] == place.installation.home
    assert new["alwaysLoad"] is True


def test_a_server_of_the_same_name_that_is_no_mbx_is_left_and_named(place: Place) -> None:
    place.clients("claude", "codex")
    text = '{"mcpServers": {"mbx": {"command": "npx", "args": ["mailbox"]}}}'
    write(place.user / ".claude.json", text)
    plan = place.run()
    assert acts(plan)[".claude.json"] == "refused"
    assert "mcpServers.mbx" in plan.clients[0].changes[0].why
    assert (place.user / ".claude.json").read_text() == text
    assert (place.user / ".codex/config.toml").exists()


def test_a_status_line_of_ones_own_stays(place: Place) -> None:
    place.clients("claude", "qwen", "kimi")
    mine = {"type": "command", "command": "mine"}
    write(place.user / ".claude/settings.json", json.dumps({"statusLine": mine}))
    write(place.user / ".qwen/settings.json", json.dumps({"ui": {"statusLine": mine}}))
    write(place.user / ".kimi-code/tui.toml", "[status_line]\ncommand = 'mine'\n")
    plan = place.run()
    assert json.loads((place.user / ".claude/settings.json").read_text())["statusLine"] == mine
    assert json.loads((place.user / ".qwen/settings.json").read_text())["ui"]["statusLine"] == mine
    assert acts(plan)["tui.toml"] == "unchanged"
    notes = [note for one in plan.clients for change in one.changes for note in change.notes]
    assert notes == [
        "statusLine: yours stays",
        "status_line: yours stays",
        "ui.statusLine: yours stays",
    ]


def test_a_hook_that_people_moved_into_a_group_of_theirs_is_known_there(place: Place) -> None:
    place.clients("claude")
    place.run()
    path = place.user / ".claude/settings.json"
    data = json.loads(path.read_text())
    mine = {"type": "command", "command": "mine"}
    data["hooks"]["Stop"][0]["hooks"].append(mine)
    path.write_text(json.dumps(data))
    assert acts(place.run())["settings.json"] == "unchanged"
    place.take_out()
    assert json.loads(path.read_text()) == {"hooks": {"Stop": [{"hooks": [mine]}]}}


def test_doubled_hooks_become_one(place: Place) -> None:
    place.clients("claude")
    place.run()
    path = place.user / ".claude/settings.json"
    data = json.loads(path.read_text())
    data["hooks"]["Stop"] *= 3
    path.write_text(json.dumps(data))
    place.run()
    ends = json.loads(path.read_text())["hooks"]["Stop"]
    assert [one["hooks"][0]["command"].split()[-1] for one in ends] == ["Stop", WAITS_AS]


def test_another_installation_takes_over_and_taking_out_the_first_leaves_it(
    place: Place, tmp_path: Path
) -> None:
    place.clients("claude", "codex", "kimi")
    place.run()
    other = Place(tmp_path, name="other")
    plan = other.run()
    notes = [note for one in plan.clients for change in one.changes for note in change.notes]
    assert "mcpServers.mbx: was of another mbx home" in notes
    entered = other.seen()
    assert str(place.home) not in entered[".claude/settings.json"][0].decode()
    place.take_out()
    left = other.seen()
    files = (".claude.json", ".claude/settings.json", ".kimi-code/config.toml")
    skill = ".claude/skills/mbx/SKILL.md"
    for path in (*files, ".codex/config.toml", ".codex/hooks.json", skill):
        assert left[path] == entered[path]
    other.take_out()
    assert skill not in other.seen()
    place.take_out()
    assert not any(b"mbx" in content for content, _ in other.seen().values())


def test_the_usual_home_is_written_into_no_entry_and_an_old_one_is_taken_out(place: Place) -> None:
    place.clients("codex")
    place.run()
    usual = place.installation._replace(environ={}, usual_home=place.installation.home)
    place.installation = usual
    place.run()
    entry = tomllib.loads((place.user / ".codex/config.toml").read_text())["mcp_servers"]["mbx"]
    assert "MBX_HOME" not in entry.get("env", {})


@pytest.mark.parametrize(
    ("break_it", "words"),
    [
        (lambda path: path.write_text('{"a": }'), "unexpected '}' (line 1, column 7)"),
        (lambda path: path.write_bytes(b'{"a": "\xff"}'), "not UTF-8 (byte 0xff at offset 7)"),
        (lambda path: path.write_bytes('{"a": 1}'.encode("utf-16")), "not UTF-8"),
        (lambda path: path.mkdir(), "Is a directory"),
        (os.mkfifo, "is no plain file"),
        (lambda path: path.symlink_to("nowhere"), "is a link to nowhere, which is not there"),
        (lambda path: path.symlink_to(path.name), "is a link to"),
        (lambda path: (path.write_text("{}"), path.chmod(0o444)), "read-only"),
        (lambda path: (path.write_text("{}"), path.with_name("2").hardlink_to(path)), "2 names"),
    ],
    ids="syntax bytes utf16 folder fifo dangling loop read-only hard-link".split(),
)
def test_what_cannot_be_edited_safely_is_named_and_left_and_the_rest_is_done(
    place: Place, break_it: Any, words: str
) -> None:
    place.clients("claude", "gemini")
    path = place.user / ".claude/settings.json"
    break_it(path)
    before = entry_of(path)
    plan = place.run()
    refused = [change for one in plan.clients for change in one.changes if change.act == "refused"]
    assert [change.path for change in refused] == [str(path)]
    assert words in refused[0].why
    assert entry_of(path) == before
    assert (place.user / ".gemini/settings.json").exists()


def test_a_linked_settings_file_is_changed_where_it_really_is(place: Place, tmp_path: Path) -> None:
    place.clients("claude")
    real = tmp_path / "dotfiles.json"
    real.write_text("{}")
    link = place.user / ".claude/settings.json"
    link.symlink_to(real)
    place.run()
    assert link.is_symlink()
    assert "hooks" in json.loads(real.read_text())
    place.take_out()
    assert (link.is_symlink(), real.read_text()) == (True, "{}")


def test_a_file_of_the_same_name_as_ours_is_left(place: Place) -> None:
    place.clients("claude", "opencode")
    write(place.user / ".claude/skills/mbx/SKILL.md", "my own skill\n")
    plan = place.run("claude")
    assert acts(plan)["SKILL.md"] == "refused"
    place.take_out()
    assert (place.user / ".claude/skills/mbx/SKILL.md").read_text() == "my own skill\n"


def test_a_skill_that_people_changed_is_theirs_from_then_on(place: Place) -> None:
    place.clients("claude")
    place.run()
    path = place.user / ".claude/skills/mbx/SKILL.md"
    path.write_text(path.read_text() + "Be brief.\n")
    assert acts(place.run())["SKILL.md"] == "unchanged"
    place.take_out()
    assert path.read_text().endswith("Be brief.\n")


def test_entries_are_known_without_the_ledger(place: Place) -> None:
    place.clients()
    before = place.seen()
    place.run()
    (place.home / "setup/ledger.json").write_text("lost")
    assert set(acts(place.run()).values()) == {"unchanged"}
    place.take_out()
    left = b"".join(content for content, _ in place.seen().values())
    assert before == {}
    assert b"hook" not in left.replace(b'"hooks"', b"")
    assert b'"mbx"' not in left
    assert b"mcp_servers" not in left


def test_a_file_changed_between_look_and_write_is_not_overwritten(place: Place) -> None:
    from mbx.setup import installer

    place.clients("claude")
    path = place.user / ".claude.json"
    path.write_text("{}")
    ledger = Ledger(str(place.home))
    ledger.lock()
    plan = place.plan()
    path.write_text('{"newer": 1}')
    done = installer.carry_out(plan, place.setting, ledger)
    ledger.unlock()
    assert acts(done)[".claude.json"] == "refused"
    assert path.read_text() == '{"newer": 1}'


def test_only_one_setup_of_a_home_runs_at_a_time(place: Place) -> None:
    first, second = Ledger(str(place.home)), Ledger(str(place.home))
    first.lock()
    with pytest.raises(Refused, match="another mbx setup"):
        second.lock()
    first.unlock()
    second.lock()
    second.unlock()


def test_hooks_call_the_tool_where_the_client_can_and_else_a_process(place: Place) -> None:
    place.clients("codex", "claude")
    place.run()
    for name, event in ((".codex/hooks.json", "SessionStart"), (".claude/settings.json", "Stop")):
        hooks = json.loads((place.user / name).read_text())["hooks"]
        assert hooks["UserPromptSubmit"][0]["hooks"][0] == {
            "type": "mcp_tool",
            "server": "mbx",
            "tool": "mbx_hook",
            "input": {"event": "UserPromptSubmit", "session": "${session_id}"},
            "timeout": HOOK_TIMEOUT_S,
        }
        assert hooks[event][0]["hooks"][0]["type"] == "command"
    place.take_out()
    assert place.seen() == {}


@pytest.mark.parametrize("taken", ['{"mcpServers": {"mbx": {"command": "other"}}}', "{"])
def test_no_hook_calls_the_tool_of_a_server_that_is_not_mbx(place: Place, taken: str) -> None:
    place.clients("claude")
    settings = place.user / ".claude/settings.json"
    for text, kinds in (
        (taken, {"command"}),
        ("{}", {"command", "mcp_tool"}),
        (taken, {"command"}),
    ):
        write(place.user / ".claude.json", text)
        place.run()
        groups = json.loads(settings.read_text())["hooks"].values()
        assert {one["type"] for (group, *_) in groups for one in group["hooks"]} == kinds
    place.take_out()
    assert not settings.exists()


def test_a_remark_within_what_setup_made_stays(place: Place) -> None:
    place.clients("claude")
    settings = place.user / ".claude/settings.json"
    write(settings, "{}\n")
    place.run()
    write(settings, settings.read_text().replace('"Stop"', '// mine\n    "Stop"', 1))
    for _ in range(2):
        place.take_out()
        assert settings.read_text().split() == '{ "hooks": { // mine } }'.split()
        place.run()


def test_a_file_of_setup_s_that_holds_a_remark_stays(place: Place) -> None:
    place.clients("claude")
    place.run()
    settings = place.user / ".claude/settings.json"
    write(settings, "// mine\n" + settings.read_text())
    place.take_out()
    assert settings.read_text().split() == "// mine {}".split()


@pytest.mark.parametrize(
    "beside",
    [
        '"apiKey": "sk-live-1"',
        '"args": ["--api-key", "sk-live-1"]',
        '"args": ["--header", "Authorization: Bearer sk-live-1"]',
        '"args": ["--token=sk-live-1"]',
        '"url": "https://x.test/mcp?api_key=sk-live-1"',
    ],
)
def test_a_preview_leaves_out_secrets_however_they_are_given(place: Place, beside: str) -> None:
    text = f'{{\n  "mcpServers": {{\n    "x": {{\n      {beside}\n    }}\n  }}\n}}\n'
    write(place.user / ".claude.json", text)
    preview = "".join(change.diff() for change in place.plan().clients[0].changes)
    assert '"mbx": {' in preview
    assert "sk-live" not in preview


def test_a_preview_of_a_long_state_takes_no_longer_than_reading_it(place: Place) -> None:
    """One word of half a million letters: from each of them it would be hours."""
    word = "A" * 500_000
    write(place.user / ".claude.json", f'{{\n  "image": "{word}",\n  "b": 1\n}}\n')
    assert '"mbx": {' in "".join(change.diff() for change in place.plan().clients[0].changes)


def test_a_preview_shows_our_lines_and_no_secret_beside_them(place: Place) -> None:
    place.clients("claude")
    secrets = '    "ANTHROPIC_API_KEY": "sk-live-1",\n    "my_token": "tk-hidden"\n'
    text = f'{{\n  "env": {{\n{secrets}  }}\n}}\n'
    write(place.user / ".claude/settings.json", text)
    shown = "\n".join(change.diff() for change in place.plan().clients[0].changes)
    assert '+    "SessionStart"' in shown
    assert "sk-live-1" not in shown
    assert "tk-hidden" not in shown


def test_every_client_has_a_module_and_a_name_of_its_own() -> None:
    assert len({client.name for client in CLIENTS}) == len(CLIENTS) == len(FOLDERS)
