"""Which project a folder belongs to."""

import os
from pathlib import Path

import pytest

from mbx.core.errors import MbxError
from mbx.project import current_project, existing_project, project_at


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    root = tmp_path / "my 'project' ü"
    (root / ".git").mkdir(parents=True)
    (root / "a" / "b").mkdir(parents=True)
    return root


def test_the_git_root_around_the_folder_is_the_project(
    repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(repository / "a" / "b")
    assert current_project() == os.path.realpath(repository)


def test_a_link_into_the_project_leads_to_the_same_one(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "link").symlink_to(repository / "a")
    monkeypatch.chdir(tmp_path / "link")
    assert current_project() == project_at(str(repository)) == os.path.realpath(repository)


def test_a_linked_work_tree_has_a_file_in_place_of_the_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / ".git").write_text("gitdir: /elsewhere")
    monkeypatch.chdir(tmp_path)
    assert current_project() == os.path.realpath(tmp_path)


def test_outside_of_git_there_is_no_project_but_a_named_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir("/")
    assert current_project() is None
    assert project_at("/usr") == os.path.realpath("/usr")


@pytest.mark.parametrize("what", ["missing", "file", "link to nothing"])
def test_what_is_written_down_is_a_folder_that_is_there(tmp_path: Path, what: str) -> None:
    path = tmp_path / "it"
    if what == "file":
        path.write_text("")
    elif what == "link to nothing":
        path.symlink_to("nowhere")
    with pytest.raises(MbxError, match=r"does not exist|is not a folder") as caught:
        existing_project(str(path))
    assert caught.value.code == "usage"
    assert existing_project(str(tmp_path)) == os.path.realpath(tmp_path)


def test_a_folder_that_is_gone_has_no_project(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert current_project() is None


def test_a_project_whose_path_is_no_utf8_is_refused_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / os.fsdecode(b"\xff")
    (root / ".git").mkdir(parents=True)
    monkeypatch.chdir(root)
    with pytest.raises(MbxError, match="not UTF-8") as refused:
        current_project()
    assert refused.value.code == "usage"
