"""The guard: writes into mbx's own folders are refused, and nothing else is."""

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
    event = {"toolName": "edit", "toolArgs": {"path": str(home / "x")}}
    assert guard.refuses(event, (str(home),))


@pytest.mark.parametrize(
    "event",
    [{}, {"tool_name": 7}, {"tool_name": "Write"}, {"tool_name": "Write", "tool_input": [1]}],
)
def test_an_event_that_says_nothing_is_let_pass(home: Path, event: dict[str, Any]) -> None:
    assert not guard.refuses(event, (str(home),))
