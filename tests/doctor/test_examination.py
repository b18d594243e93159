"""All checks within a bounded time, whatever hangs or breaks."""

import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from mbx.core.errors import MbxError
from mbx.doctor import examination
from mbx.doctor.examination import Visit, examine, run_sections
from mbx.doctor.verdict import Check
from mbx.paths import Paths
from tests.support.patience import looks

WELL = Check("a", "ok", "well")
LONG_S = 60.0


@pytest.fixture
def gate() -> Iterator[threading.Event]:
    """What a section can hang at; opened at the end."""
    opened = threading.Event()
    yield opened
    opened.set()


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a machine that is held up for seconds nothing hangs yet."""
    monkeypatch.setattr(examination, "PLACES_S", LONG_S)
    monkeypatch.setattr(examination, "SECTION_S", LONG_S)


class Rest:
    """A clock that is first looked at when all threads begun since are over, but for one."""

    def __init__(self) -> None:
        self._before = set(threading.enumerate())

    def monotonic(self) -> float:
        for _ in looks():
            if len(set(threading.enumerate()) - self._before) == 1:
                break
        return time.monotonic()

    def sleep(self, seconds: float, /) -> None:
        raise AssertionError(f"nobody waits here, and not {seconds} s")


def visit(paths: Paths | MbxError, **environ: str) -> Visit:
    def resolve() -> Paths:
        if isinstance(paths, MbxError):
            raise paths
        return paths

    return Visit(resolve, environ, "mbx", os.geteuid(), time.time_ns() // 1_000_000, time)


def test_a_section_that_hangs_is_a_fault_and_the_others_are_told(gate: threading.Event) -> None:
    def hang() -> list[Check]:
        gate.wait(20)
        return [WELL]

    found = run_sections({"disk": hang, "a": lambda: [WELL]}, 0.05, Rest())
    assert [(check.name, check.level) for check in found] == [("disk", "fail"), ("a", "ok")]
    assert "hangs" in found[0].detail


def test_a_section_that_breaks_is_a_fault_without_its_words() -> None:
    def fail() -> list[Check]:
        raise ValueError("secret")

    (found,) = run_sections({"files": fail}, LONG_S, time)
    assert (found.level, found.detail) == ("fail", "the check itself failed (ValueError)")


def test_the_waits_together_stay_below_ten_seconds() -> None:
    assert examination.PLACES_S + examination.SECTION_S <= 9.0


@pytest.mark.usefixtures("patient")
def test_without_places_the_reason_is_told_with_what_can_be_seen() -> None:
    checks, paths = examine(visit(MbxError("usage", "HOME is unset", "set MBX_HOME"), PATH=""))
    assert paths is None
    assert [(check.name, check.level) for check in checks] == [
        ("places", "fail"),
        ("path", "warn"),
        ("program", "info"),
        ("terminal", "info"),
        ("border", "info"),
    ]
    assert checks[0].fix == "set MBX_HOME"


def test_places_that_hang_are_told(gate: threading.Event, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(examination, "PLACES_S", 0.05)

    def hang() -> Paths:
        gate.wait(20)
        raise MbxError("usage", "too late")

    checks, paths = examine(visit(MbxError("usage", ""))._replace(resolve=hang))
    assert paths is None
    assert (checks[0].name, checks[0].level) == ("places", "fail")


@pytest.mark.usefixtures("patient")
def test_nothing_yet_is_no_fault_and_nothing_is_made(tmp_path: Path) -> None:
    home = tmp_path / "home"
    checks, _ = examine(visit(Paths(str(home), str(home / "run"))))
    assert [check for check in checks if check.level == "fail"] == []
    assert not home.exists()


@pytest.mark.usefixtures("patient")
def test_what_is_others_is_neither_closed_nor_filled(tmp_path: Path) -> None:
    """A run folder that is a link may lead anywhere."""
    (tmp_path / "home").mkdir(mode=0o700)
    shared = tmp_path / "shared"
    shared.mkdir()
    (shared / "letter").write_text("x")
    shared.chmod(0o1777)
    checks, _ = examine(visit(Paths(str(tmp_path / "home"), str(shared))))
    assert [(one.name, one.level) for one in checks if one.level == "fail"] == [("run", "fail")]
    assert [one.remedy for one in checks if one.remedy is not None] == []
