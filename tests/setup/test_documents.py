"""The table of docs/setup.md is what the modules of the clients say."""

import re

import pytest

from mbx.setup import claude, codex, copilot, gemini, kimi, opencode, qwen
from mbx.setup.client import Machine
from mbx.setup.clients import BY_NAME
from mbx.setup.steps import named
from tests.setup.conftest import Place
from tests.support.rules import ROOT

VARIABLES = {
    "CLAUDE_CONFIG_DIR": (claude, "/c/settings.json"),
    "CODEX_HOME": (codex, "/c/config.toml"),
    "OPENCODE_CONFIG_DIR": (opencode, "/c/opencode.json"),
    "XDG_CONFIG_HOME": (opencode, "/c/opencode/opencode.json"),
    "GEMINI_CLI_HOME": (gemini, "/c/.gemini/settings.json"),
    "KIMI_CODE_HOME": (kimi, "/c/mcp.json"),
    "QWEN_HOME": (qwen, "/c/settings.json"),
    "COPILOT_HOME": (copilot, "/c/mcp-config.json"),
}


def rows() -> list[tuple[str, str, str]]:
    """(client, file, entries) of each row of the table."""
    page = (ROOT / "docs" / "setup.md").read_text(encoding="utf-8")
    found, client = [], ""
    row = re.compile(r"^\| (.*?) ?\| `(~/.+?)` \| (.+?) \|$", re.MULTILINE)
    for first, path, entries in row.findall(page):
        client = first.split("`")[1] if first else client
        found.append((client, path, entries.replace("`", "")))
    return found


def test_the_table_names_every_file_and_entry(place: Place) -> None:
    expected = []
    for client in BY_NAME.values():
        machine = Machine({}, "~")
        for document in client.documents(machine, place.installation, place.scripts):
            entries = dict.fromkeys(named(wish.path) for wish in document.wishes)
            expected.append((client.name, document.path, " ".join(entries) or "whole file"))
    assert rows() == expected


def test_an_event_at_which_nothing_can_be_done_starts_no_process() -> None:
    assert "PostToolUse" not in BY_NAME["kimi"].events
    assert set(BY_NAME["kimi-cli"].events) == {"SessionStart", "Stop", "SessionEnd", "PreToolUse"}
    assert BY_NAME["opencode"].events == ()


def test_the_table_names_every_variable() -> None:
    page = (ROOT / "docs" / "setup.md").read_text(encoding="utf-8")
    named_there = re.findall(r"\[(`[A-Z_`, ]+)\]", page)
    assert set(re.findall(r"[A-Z_]+", " ".join(named_there))) == set(VARIABLES)


@pytest.mark.parametrize("variable", VARIABLES)
def test_a_clients_own_variable_moves_its_files(place: Place, variable: str) -> None:
    module, path = VARIABLES[variable]
    machine = Machine({variable: "/c"}, "/home/me")
    documents = module.CLIENT.documents(machine, place.installation, place.scripts)
    assert path in [document.path for document in documents]
    assert all(document.path.startswith("/c/") for document in documents)
