"""What was told is told once, whoever tells it, and kept only when somebody heard it."""

import os
from pathlib import Path

import pytest

from mbx.core.limits import HOOK_MISSES_MAX, HOOK_STOPS_HOUR_MAX
from mbx.telling import count_miss, take_back, tell, told

HOUR_MS = 3_600_000


def test_each_mark_is_told_once_and_later_ones_again(tmp_path: Path) -> None:
    path, heard = str(tmp_path / "told"), list[int]()

    def say(told: int) -> bool:
        heard.append(told)
        return True

    assert tell(path, 3, say)
    assert not tell(path, 3, say)
    assert not tell(path, 2, say)
    assert tell(path, 7, say)
    assert heard == [0, 3]
    assert os.stat(path).st_mode & 0o777 == 0o600


def test_what_was_not_said_was_not_told(tmp_path: Path) -> None:
    path = str(tmp_path / "told")
    assert not tell(path, 3, lambda told: False)

    def fail(told: int) -> bool:
        raise BrokenPipeError

    with pytest.raises(BrokenPipeError):
        tell(path, 3, fail)
    assert tell(path, 3, lambda told: told == 0)


def test_what_did_not_arrive_is_taken_back_unless_more_was_said(tmp_path: Path) -> None:
    path = str(tmp_path / "told")
    assert told(path) == 0
    assert tell(path, 3, lambda before: True)
    take_back(path, 3, 0)
    assert told(path) == 0
    assert tell(path, 3, lambda before: before == 0)
    assert tell(path, 5, lambda before: True)
    take_back(path, 3, 0)
    assert told(path) == 5


def test_while_one_says_it_no_other_does(tmp_path: Path) -> None:
    path = str(tmp_path / "told")
    reading, writing = os.pipe()
    child = 0

    def say(told: int) -> bool:
        nonlocal child
        child = os.fork()
        if child == 0:  # another process, at the same moment
            os._exit(tell(path, 3, lambda told: True))
        return os.waitpid(child, 0)[1] == 0

    assert tell(path, 3, say)
    os.close(reading)
    os.close(writing)


@pytest.mark.parametrize("content", [b"", b"x y z", b"-1", b"9" * 60, b"\0" * 64, b"1e9 0 0"])
def test_a_file_that_says_nothing_counts_as_none(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "told"
    path.write_bytes(content)
    assert told(str(path)) == 0
    assert tell(str(path), 3, lambda before: before == 0)


def test_turns_are_kept_going_so_often_an_hour_and_no_more(tmp_path: Path) -> None:
    path = str(tmp_path / "told")
    marks, hour_ms = range(1, HOOK_STOPS_HOUR_MAX + 2), 5 * HOUR_MS
    done = [tell(path, mark, lambda told: True, hour_ms) for mark in marks]
    assert done == [True] * HOOK_STOPS_HOUR_MAX + [False]
    assert tell(path, 100, lambda told: True)  # a prompt tells it all the same
    assert not tell(path, 101, lambda told: True, hour_ms + HOUR_MS - 1)
    assert tell(path, 102, lambda told: True, hour_ms + HOUR_MS)


def test_a_link_or_a_pipe_in_its_place_is_left_alone(tmp_path: Path) -> None:
    link, pipe = tmp_path / "link", tmp_path / "pipe"
    link.symlink_to(tmp_path / "elsewhere")
    os.mkfifo(pipe)
    with pytest.raises(OSError, match="link"):
        tell(str(link), 1, lambda told: True)
    assert not tell(str(pipe), 1, lambda told: True)
    count_miss(str(link))
    count_miss(str(pipe))
    count_miss(str(tmp_path / "no" / "folder"))
    assert sorted(one.name for one in tmp_path.iterdir()) == ["link", "pipe"]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (b"", 1),
        (b"41\n", 42),
        (b"x\n", 1),
        (b"%d\n" % (HOOK_MISSES_MAX - 1), HOOK_MISSES_MAX),
        (b"%d\n" % HOOK_MISSES_MAX, HOOK_MISSES_MAX),
        (b"%d\n" % (HOOK_MISSES_MAX + 1), HOOK_MISSES_MAX),
    ],
)
def test_misses_are_counted_up_to_a_limit(tmp_path: Path, before: bytes, after: int) -> None:
    path = tmp_path / "slow"
    path.write_bytes(before)
    count_miss(str(path))
    assert int(path.read_bytes().split()[0]) == after
