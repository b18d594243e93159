"""Token files: private, whole, only the daemon's."""

import json
import os
from pathlib import Path

import pytest

from mbx.daemon.credentials import Credentials
from mbx.paths import Paths


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    made = Paths.from_environ({"MBX_HOME": str(tmp_path / "home")})
    (tmp_path / "home" / "run").mkdir(parents=True, mode=0o700)
    (tmp_path / "home").chmod(0o700)
    return made


def content(paths: Paths) -> object:
    with open(paths.session_file("claude", "s-1"), "rb") as file:
        return json.loads(file.read())


def test_a_credential_is_private_and_names_identity_epoch_and_token(paths: Paths) -> None:
    credentials = Credentials(paths)
    credentials.write("claude", "s-1", "i" * 26, 3, "t" * 64)
    assert content(paths) == {"identity": "i" * 26, "epoch": 3, "token": "t" * 64}
    path = paths.session_file("claude", "s-1")
    assert os.stat(path).st_mode & 0o777 == 0o600
    assert os.stat(os.path.dirname(path)).st_mode & 0o777 == 0o700
    assert os.listdir(os.path.dirname(path)) == [os.path.basename(path)]


def test_session_ids_never_become_parts_of_a_path(paths: Paths) -> None:
    credentials = Credentials(paths)
    credentials.write("../..", "/etc/passwd\0", "i" * 26, 1, "t")
    assert len(os.listdir(paths.sessions_dir())) == 1


def test_only_the_credential_of_the_ended_epoch_is_removed(paths: Paths) -> None:
    credentials = Credentials(paths)
    credentials.write("claude", "s-1", "i" * 26, 4, "t")
    credentials.remove("claude", "s-1", 3)
    assert credentials.told("claude", "s-1") is not None
    credentials.remove("claude", "s-1", 4)
    assert credentials.told("claude", "s-1") is None
    credentials.remove("claude", "s-1", 4)


@pytest.mark.parametrize("damage", [b"", b"[1]", b"{", b"\xff"])
def test_a_damaged_credential_is_left_alone(paths: Paths, damage: bytes) -> None:
    credentials = Credentials(paths)
    path = Path(paths.session_file("claude", "s-1"))
    path.write_bytes(damage)
    credentials.remove("claude", "s-1", 1)
    assert path.read_bytes() == damage


def test_what_is_no_file_in_its_place_holds_nobody_up(paths: Paths) -> None:
    credentials = Credentials(paths)
    os.mkfifo(paths.session_file("claude", "s-1"))
    os.mkdir(paths.session_file("claude", "s-2"))
    assert credentials.told("claude", "s-1") is None
    assert credentials.told("claude", "s-2") is None
    credentials.keep_only(set())
    assert os.listdir(paths.sessions_dir()) == [
        os.path.basename(paths.session_file("claude", "s-2"))
    ]


def test_left_overs_of_a_killed_daemon_are_removed_and_others_files_are_not(paths: Paths) -> None:
    credentials = Credentials(paths)
    for session_id in ("s-1", "s-2"):
        credentials.write("claude", session_id, "i" * 26, 1, "t")
    folder = Path(paths.sessions_dir())
    (folder / "half.new").write_bytes(b"")
    (folder / "README").write_bytes(b"")
    credentials.keep_only({("claude", "s-1")})
    assert credentials.told("claude", "s-1") is not None
    assert credentials.told("claude", "s-2") is None
    assert {name for name in os.listdir(folder) if not name.endswith(".json")} == {"README"}


def test_a_folder_that_was_removed_is_made_again(paths: Paths) -> None:
    credentials = Credentials(paths)
    os.rmdir(paths.sessions_dir())
    credentials.write("claude", "s-1", "i" * 26, 1, "t")
    assert credentials.told("claude", "s-1") is not None
    assert os.stat(paths.sessions_dir()).st_mode & 0o777 == 0o700
