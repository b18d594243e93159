"""Reading and writing files of others."""

import os
from pathlib import Path

import pytest

from mbx.setup import files
from mbx.setup.steps import Refused

ME = os.geteuid()


def test_a_file_is_replaced_with_its_mode_and_attributes(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text("old")
    path.chmod(0o751)
    try:
        os.setxattr(path, "user.note", b"mine")
    except OSError:
        pytest.skip("no extended attributes here")
    files.write(str(path), files.read(str(path), ME), b"new")
    assert (path.read_text(), path.stat().st_mode & 0o7777) == ("new", 0o751)
    assert os.getxattr(path, "user.note") == b"mine"
    assert os.listdir(tmp_path) == ["a.json"]


@pytest.mark.parametrize("more", [-1, 0, 1])
def test_a_file_longer_than_the_limit_is_refused(tmp_path: Path, more: int) -> None:
    path = tmp_path / "a.json"
    with path.open("wb") as file:
        file.truncate(files.FILE_MAX_BYTES + more)
    if more <= 0:
        assert files.read(str(path), ME).content is not None
    else:
        with pytest.raises(Refused, match="bytes"):
            files.read(str(path), ME)


@pytest.mark.parametrize("is_there", [True, False])
def test_nothing_of_another_user_is_touched_and_nothing_made_in_its_folders(
    tmp_path: Path, is_there: bool
) -> None:
    path = tmp_path / "folder" / "a.json"
    if is_there:
        path.parent.mkdir()
        path.write_text("{}")
    with pytest.raises(Refused, match=f"belongs to user {ME}, not to user {ME + 1}"):
        files.read(str(path), ME + 1)


def test_a_left_over_of_a_killed_run_is_not_in_the_way(tmp_path: Path) -> None:
    (tmp_path / ".a.mbx-new").write_text("half")
    files.replace(str(tmp_path / "a"), b"whole", 0o600)
    assert os.listdir(tmp_path) == ["a"]


def test_a_link_put_in_the_place_of_the_new_file_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "theirs").write_text("theirs")
    (tmp_path / ".a.mbx-new").symlink_to("theirs")
    files.replace(str(tmp_path / "a"), b"ours", 0o600)
    assert (tmp_path / "theirs").read_text() == "theirs"


def test_a_file_below_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("")
    with pytest.raises(Refused, match="below a file"):
        files.read(str(tmp_path / "a" / "b"), ME)


def test_folders_that_were_made_go_and_those_with_something_in_them_stay(tmp_path: Path) -> None:
    made = files.make_folders(str(tmp_path / "a" / "b" / "c"))
    (tmp_path / "a" / "mine").write_text("")
    files.remove_folders(made)
    assert os.listdir(tmp_path / "a") == ["mine"]
