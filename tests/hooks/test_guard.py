"""The guard: writes into mbx's own folders are refused, and nothing else is."""

import json
from pathlib import Path
from typing import Any

import pytest

from mbx.hooks import guard


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "mbx" / "run").mkdir(parents=True)
    return (tmp_path / "mbx").resolve()


def refused(home: Path, tool: str, cwd: Path, **arguments: Any) -> bool:
    event = {"tool_name": tool, "tool_input": arguments, "cwd": str(cwd)}
    return guard.refuses(event, (str(home),))


def test_every_way_to_name_a_file_of_ours_is_seen(home: Path, tmp_path: Path) -> None:
    (tmp_path / "way").symlink_to(home)
    for path in ("mbx/store.db", "./mbx/../mbx/x", "way/new", str(home), f"{home}/run/a/b"):
        assert refused(home, "Write", tmp_path, file_path=path), path
    for field in ("path", "notebook_path", "absolute_path", "filePath"):
        assert refused(home, "edit", tmp_path, **{field: str(home / "x")}), field
    patch = "*** Begin Patch\n*** Add File: mbx/new\n+x\n*** End Patch\n"
    assert refused(home, "apply_patch", tmp_path, patch=patch)
    assert refused(home, "shell", tmp_path, command=["apply_patch", patch])


def test_other_files_and_tools_that_read_are_nobodys_business(home: Path, tmp_path: Path) -> None:
    for path in ("mbx2/x", "mbxx", "a/mbx", "/", "mbx\0/x"):
        assert not refused(home, "Write", tmp_path, file_path=path), path
    for tool in ("Read", "read_file", "Grep", "LS"):
        assert not refused(home, tool, tmp_path, path=str(home / "daemon.log")), tool
    assert not refused(home, "Bash", tmp_path, command=f"cat {home}/daemon.log")


def test_copilot_says_it_in_its_own_words(home: Path) -> None:
    arguments = {"path": str(home / "x")}
    for given in (arguments, json.dumps(arguments)):
        assert guard.refuses({"toolName": "edit", "toolArgs": given}, (str(home),))


@pytest.mark.parametrize("field", sorted(guard.FIELDS))
def test_files_are_seen_in_lists_and_at_any_depth(home: Path, tmp_path: Path, field: str) -> None:
    ours = f"{home}/x"
    assert refused(home, "edit", tmp_path, **{field: ours})
    assert refused(home, "edit", tmp_path, **{field: ["/tmp/x", f"file://{ours}"]})
    assert refused(home, "mcp__fs__edit", tmp_path, edits=[{"new": "x"}, {field: ours}])
    assert not refused(home, "edit", tmp_path, content={"text": ours}, **{field: "/tmp/x"})


def test_patches_of_every_sort_are_read_to_their_end(home: Path, tmp_path: Path) -> None:
    others = "".join(f"*** Add File: a/{number}\n+x\n" for number in range(1_000))
    whole = f"*** Begin Patch\n{others}  *** Add File: mbx/new\r\n+x\n*** End Patch"
    assert refused(home, "apply_patch", tmp_path, input=whole)
    assert guard.refuses(
        {"tool_name": "apply_patch", "tool_input": whole, "cwd": str(tmp_path)}, (str(home),)
    )
    for name in ("mbx/x", "b/mbx/x", f"{home}/x\t2026-01-31 12:00:00"):
        assert refused(home, "apply", tmp_path, diff=f"--- a/x\n+++ {name}\n@@ -1 +1 @@\n"), name
    assert not refused(home, "apply", tmp_path, diff="--- a/x\n+++ b/x\n+ mbx/x\n")


def test_tools_that_read_are_known_below_any_server(home: Path, tmp_path: Path) -> None:
    for tool in ("mcp__fs__read_text_file", "ReadFile", "list_directory", "NotebookRead"):
        assert not refused(home, tool, tmp_path, path=f"{home}/daemon.log"), tool
    for tool in ("search_replace", "mcp__read__write_file", "find_and_replace"):
        assert refused(home, tool, tmp_path, path=f"{home}/daemon.log"), tool


@pytest.mark.parametrize(
    "event",
    [{}, {"tool_name": 7}, {"tool_name": "Write"}, {"tool_name": "Write", "tool_input": [1]}],
)
def test_an_event_that_says_nothing_is_let_pass(home: Path, event: dict[str, Any]) -> None:
    assert not guard.refuses(event, (str(home),))
