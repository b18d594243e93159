"""What --fix does, and what it leaves alone."""

import fcntl
import os
import socket
import stat
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from mbx.core.errors import MbxError
from mbx.doctor import remedies
from mbx.doctor.files import LEFTOVER_S
from mbx.doctor.remedies import Done, Hands
from mbx.doctor.verdict import Check, Remedy, RemedyKind
from mbx.paths import Paths
from tests.support.daemon import fresh_home

NOW_MS = time.time_ns() // 1_000_000
ME = os.geteuid()


@pytest.fixture
def home() -> Iterator[Path]:
    with fresh_home() as folder:
        (folder / "run").mkdir(mode=0o700)
        yield folder


def no_daemon() -> None:
    raise MbxError("daemon-unreachable", "no daemon listens")


def apply(
    home: Path,
    kind: RemedyKind,
    path: Path,
    *,
    user_id: int = ME,
    mend: Callable[[], None] = no_daemon,
) -> Done:
    hands = Hands(Paths(str(home), str(home / "run")), user_id, NOW_MS, time, mend)
    check = Check("x", "fail", "x", "x", Remedy(kind, str(path)))
    (done,) = remedies.apply([check, check, Check("y", "ok", "y")], hands)
    return done


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


def old(path: Path, seconds: int = LEFTOVER_S + 5) -> Path:
    path.touch(0o600)
    at = NOW_MS // 1_000 - seconds
    os.utime(path, (at, at))
    return path


@pytest.mark.parametrize("before", [0o644, 0o000, 0o606])
def test_a_file_is_closed_to_others_and_open_to_its_user(home: Path, before: int) -> None:
    (home / "f").write_bytes(b"same")
    (home / "f").chmod(before)
    assert apply(home, "close-file", home / "f").was_done
    assert mode_of(home / "f") == 0o600
    assert (home / "f").read_bytes() == b"same"


def test_a_folder_is_closed_to_others(home: Path) -> None:
    home.chmod(0o755)
    assert apply(home, "close-folder", home).was_done
    assert mode_of(home) == 0o700


def test_neither_a_link_nor_the_file_of_another_user_is_touched(home: Path) -> None:
    (home / "target").touch()
    (home / "target").chmod(0o644)
    (home / "link").symlink_to("target")
    assert not apply(home, "close-file", home / "link").was_done
    assert not apply(home, "close-file", home / "target", user_id=ME + 1).was_done
    assert mode_of(home / "target") == 0o644


def test_a_missing_folder_is_made_private(home: Path) -> None:
    assert apply(home, "make-folder", home / "run" / "sessions").was_done
    assert mode_of(home / "run" / "sessions") == 0o700


def test_a_socket_nobody_listens_at_is_removed(home: Path) -> None:
    path = home / "run" / "mbx.sock"
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(path))
    assert apply(home, "remove-socket", path).was_done
    assert not path.exists()


def test_a_socket_is_left_alone_while_a_daemon_has_the_lock(home: Path) -> None:
    path = home / "run" / "mbx.sock"
    with socket.socket(socket.AF_UNIX) as listening, (home / "daemon.lock").open("w") as lock:
        listening.bind(str(path))
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert not apply(home, "remove-socket", path).was_done
    assert path.exists()


def test_what_is_no_socket_any_more_is_left_alone(home: Path) -> None:
    path = home / "run" / "mbx.sock"
    path.write_text("mine")
    done = apply(home, "remove-socket", path)
    assert (done.was_done, done.why) == (False, "it is no socket any more")
    assert path.read_text() == "mine"


def test_an_old_left_over_is_removed_and_a_fresh_one_is_not(home: Path) -> None:
    assert apply(home, "remove-leftover", old(home / "host.key.new")).was_done
    assert not (home / "host.key.new").exists()
    fresh = old(home / "a.json.new", 1)
    assert not apply(home, "remove-leftover", fresh).was_done
    assert not apply(home, "remove-leftover", old(home / "host.key")).was_done
    assert fresh.exists()
    assert (home / "host.key").exists()


def test_a_credential_is_written_by_the_daemon_when_asked(home: Path) -> None:
    path = home / "run" / "a.json"
    assert apply(home, "credentials", path, mend=path.touch).was_done
    path.unlink()
    done = apply(home, "credentials", path)
    assert (done.was_done, done.why) == (False, "no daemon listens")


def test_a_credential_is_not_waited_for_without_end(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remedies, "MEND_S", 0.01)
    done = apply(home, "credentials", home / "none.json", mend=lambda: None)
    assert (done.was_done, done.why) == (False, "the daemon has not written it yet")
    assert done.as_object() == {
        "act": "credentials",
        "path": str(home / "none.json"),
        "done": False,
    }
