"""The log is bounded, folds repeats, and is private."""

import itertools
import json
import os
from pathlib import Path

import pytest

from mbx import daemon
from mbx.core.errors import MbxError
from mbx.core.limits import LOG_FILE_MAX_BYTES, LOG_FILES_KEPT
from mbx.daemon.journal import _LEVEL_OF, LEVELS, Journal, level_of, whence
from tests.support.office import HandWorld


def entries(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_an_entry_is_one_line_of_json_with_its_time(tmp_path: Path) -> None:
    journal = Journal(str(tmp_path / "daemon.log"), HandWorld().now_ms)
    journal.write("ready", pid=7, why="a\nb", more=None, odd=[1])
    journal.close()
    assert entries(tmp_path / "daemon.log") == [
        {
            "at": "2023-11-14T22:13:20.000Z",
            "event": "ready",
            "pid": 7,
            "why": "a\nb",
            "more": None,
            "odd": "[1]",
        }
    ]
    assert (tmp_path / "daemon.log").stat().st_mode & 0o077 == 0


EVENTS = {
    "a session said hello": "debug",
    "a session could not arrive": "error",
    "refused a connection: too many": "warning",
    "the floor could not be written": "warning",
    "ready": "always",
    "stopped": "always",
    "ended by a defect": "always",
}


@pytest.mark.parametrize("level", LEVELS)
def test_what_is_below_the_level_is_not_written_but_starts_and_ends_always_are(
    tmp_path: Path, level: str
) -> None:
    journal = Journal(str(tmp_path / "daemon.log"), HandWorld().now_ms, level)
    for event in EVENTS:
        journal.write(event)
    journal.close()
    order = (*LEVELS, "always")
    wanted = [one for one, its in EVENTS.items() if order.index(its) >= order.index(level)]
    assert [entry["event"] for entry in entries(tmp_path / "daemon.log")] == wanted


def test_the_level_is_a_word_of_the_environment() -> None:
    assert level_of({}) == level_of({"MBX_LOG": ""}) == "info"
    assert [level_of({"MBX_LOG": word}) for word in ("debug", "ERROR")] == ["debug", "error"]
    for word in ("trace", "1", " debug", "x" * 9_999):
        with pytest.raises(MbxError, match="MBX_LOG is") as refused:
            level_of({"MBX_LOG": word})
        assert refused.value.code == "usage"
        assert "debug, info, warning, error" in str(refused.value.next_step)


def test_events_with_a_level_of_their_own_are_events_of_the_code() -> None:
    """So that none is renamed out of its level."""
    source = "".join(path.read_text() for path in Path(daemon.__path__[0]).rglob("*.py"))
    assert [one for one in _LEVEL_OF if source.count(f'"{one}"') < 2] == []


def test_a_pipe_in_its_place_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "daemon.log")
    with pytest.raises(OSError, match=r"daemon\.log"):
        Journal(str(tmp_path / "daemon.log"), HandWorld().now_ms)


def test_what_one_peer_does_again_and_again_hides_nothing_of_another(tmp_path: Path) -> None:
    journal = Journal(str(tmp_path / "daemon.log"), HandWorld().now_ms)
    for _ in range(100):
        journal.write("a link ended", peer="rogue")
    journal.write("a link ended", peer="lap")
    journal.close()
    assert [entry["peer"] for entry in entries(tmp_path / "daemon.log")] == ["rogue", "lap"]


def test_repeats_within_a_minute_are_folded_and_counted(tmp_path: Path) -> None:
    world = HandWorld()
    journal = Journal(str(tmp_path / "daemon.log"), world.now_ms)
    for _ in range(1_000):
        journal.write("again", n=1)
    world.pass_ms(60_000)
    journal.write("again", n=2)
    journal.close()
    assert [entry.get("folded") for entry in entries(tmp_path / "daemon.log")] == [None, 999]


def test_a_clock_that_steps_back_does_not_silence_the_log(tmp_path: Path) -> None:
    world = HandWorld()
    journal = Journal(str(tmp_path / "daemon.log"), world.now_ms)
    journal.write("again")
    world.wall_ms -= 10_000_000
    journal.write("again")
    journal.close()
    assert len(entries(tmp_path / "daemon.log")) == 2


def test_the_files_never_grow_beyond_their_bound(tmp_path: Path) -> None:
    journal = Journal(str(tmp_path / "daemon.log"), HandWorld().now_ms)
    for number in range(4_000):
        journal.write(f"event {number}", why="x" * 5_000)
    journal.close()
    sizes = {name: (tmp_path / name).stat().st_size for name in os.listdir(tmp_path)}
    kept = {f"daemon.log.{number}" for number in range(1, LOG_FILES_KEPT + 1)}
    assert set(sizes) == {"daemon.log", *kept}
    assert max(sizes.values()) <= LOG_FILE_MAX_BYTES


def test_a_log_that_cannot_begin_anew_uses_no_descriptor_of_others(tmp_path: Path) -> None:
    journal = Journal(str(tmp_path / "daemon.log"), HandWorld().now_ms)
    (tmp_path / "daemon.log.1").touch()
    in_the_way = tmp_path / f"daemon.log.{LOG_FILES_KEPT}"
    in_the_way.mkdir()
    letters = itertools.count()

    def fill() -> None:
        for _ in range(LOG_FILE_MAX_BYTES // 2_000 + 1):
            journal.write(f"event {next(letters)}", why="x" * 2_000)

    fill()
    other = os.open(tmp_path / "other", os.O_RDWR | os.O_CREAT)
    fill()
    assert os.fstat(other).st_size == 0
    os.close(other)
    in_the_way.rmdir()
    journal.write("room again")
    journal.close()
    assert entries(tmp_path / "daemon.log")[-1]["event"] == "room again"


def test_an_old_log_is_continued(tmp_path: Path) -> None:
    for _ in range(2):
        journal = Journal(str(tmp_path / "daemon.log"), HandWorld().now_ms)
        journal.write("ready")
        journal.close()
    assert len(entries(tmp_path / "daemon.log")) == 2


def test_a_defect_is_told_by_kind_and_place_and_never_by_its_words() -> None:
    def inner() -> None:
        raise KeyError("the body of a letter")

    with pytest.raises(KeyError) as caught:
        inner()
    told = whence(caught.value)
    assert told.startswith("KeyError < test_journal.py:")
    assert " inner < test_journal.py:" in told
    assert "letter" not in told
