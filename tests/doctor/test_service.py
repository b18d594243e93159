"""A service that no longer starts this daemon is named with the reason and what helps."""

from pathlib import Path

import pytest

from mbx.doctor.service import Around, checks
from mbx.service.job import Job
from mbx.service.platforms import Found
from mbx.service.seal import whose
from mbx.service.systemd import Systemd

JOB = Job("mbx", ("/venv/bin/python", "-I"), "/home/a/mbx", "/home/a/mbx/run", "2.0")
AGAIN = "mbx daemon install"
WELL = Around(lambda path: True, lambda path: True, "0::/app.slice/mbx.service\n")


def found(job: Job = JOB, *, text: str | None = None) -> Found:
    text = Systemd().text(job) if text is None else text
    return Found(Systemd(), JOB, "/home/a/.config/systemd/user/mbx.service", text, whose(text))


def said(there: Found | None, around: Around = WELL) -> list[tuple[str, str, str | None]]:
    return [(check.level, check.detail, check.fix) for check in checks(there, around)]


def test_without_a_service_nothing_is_said() -> None:
    assert said(None) == []


def test_a_service_in_use_or_waiting_for_its_session_is_well() -> None:
    well = [("ok", "mbx.service starts the daemon with your session", None)]
    assert said(found()) == well
    assert said(found(), WELL._replace(groups=None)) == well


@pytest.mark.parametrize(
    ("job", "level", "words"),
    [
        (JOB._replace(command=("/old/python", "-I")), "warn", "starts /old/python, and this is"),
        (JOB._replace(home="/home/b/mbx"), "warn", "the daemon of /home/b/mbx, not of /home/a/mbx"),
        (JOB._replace(command=("/venv/bin/python", "-S"), version="1.0"), "warn", "by mbx 1.0"),
    ],
)
def test_a_stale_file_is_told_with_what_is_other(job: Job, level: str, words: str) -> None:
    ((seen, detail, fix),) = said(found(job))
    assert (seen, words in detail, fix) == (level, True, AGAIN)


def test_another_version_that_would_write_the_same_is_well() -> None:
    assert said(found(JOB._replace(version="1.0")))[0][0] == "ok"


def test_a_python_that_is_gone_is_a_fault(tmp_path: Path) -> None:
    gone = WELL._replace(is_program=lambda path: Path(path).exists())
    ((level, detail, fix),) = said(found(), gone)
    assert (level, fix) == ("fail", AGAIN)
    assert "/venv/bin/python, which is gone" in detail


def test_a_file_that_was_changed_is_left_alone_and_said() -> None:
    ((level, detail, fix),) = said(found(text=Systemd().text(JOB) + "Nice=5\n"))
    assert (level, "was changed" in detail) == ("warn", True)
    path = "/home/a/.config/systemd/user/mbx.service"
    assert fix == f"mv {path} {path}.aside, then mbx daemon install"


def test_a_service_that_nothing_wants_or_that_is_passed_by_is_told() -> None:
    assert said(found(), WELL._replace(is_there=lambda path: False))[0][0] == "warn"
    beside = WELL._replace(groups="0::/session.scope\n")
    ((level, detail, fix),) = said(found(), beside)
    assert (level, fix) == ("info", "mbx daemon restart")
    assert "started by a command" in detail
