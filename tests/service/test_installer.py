"""The file is put in its place whole, never over what is not ours, and taken away alone."""

import os
from pathlib import Path

import pytest

from mbx.core.errors import MbxError
from mbx.paths import Paths
from mbx.service import installer
from mbx.service.job import Act, Job
from mbx.service.platforms import found, manager_of
from mbx.service.systemd import Systemd
from mbx.setup.plan import Change
from tests.support.entries import entry_of

MANAGER = Systemd()


def job(home: Path) -> Job:
    return Job("mbx", ("/usr/bin/python3", "-I"), str(home / "mbx"), str(home / "run"), "1")


def planned(home: Path, *, installing: bool = True, version: str = "1") -> Change:
    wanted, environ = job(home)._replace(version=version), {"HOME": str(home)}
    return installer.plan(MANAGER, wanted, environ, installing=installing)


def test_a_file_is_written_once_and_taken_away_with_its_link(tmp_path: Path) -> None:
    first = planned(tmp_path)
    assert first.act == "write"
    assert not os.path.exists(first.path)
    installer.write(first)
    assert Path(first.path).read_text() == MANAGER.text(job(tmp_path))
    assert Path(first.path).stat().st_mode & 0o777 == 0o644
    assert planned(tmp_path).act == "unchanged"

    link = Path(MANAGER.left(job(tmp_path), first.path)[0])
    link.parent.mkdir()
    link.symlink_to(first.path)
    other = link.with_name("other.service")
    other.symlink_to("/dev/null")
    leaving = planned(tmp_path, installing=False)
    assert leaving.act == "remove"
    installer.remove(leaving, [str(link), str(other)])
    assert not link.is_symlink()
    assert other.is_symlink()
    assert not os.path.exists(first.path)
    assert planned(tmp_path, installing=False).act == "unchanged"


def test_a_file_of_an_older_version_is_written_anew_and_taken_away(tmp_path: Path) -> None:
    installer.write(planned(tmp_path, version="0.9"))
    again = planned(tmp_path)
    assert again.act == "write"
    assert "-# mbx: the daemon of" in again.diff()
    assert planned(tmp_path, installing=False).act == "remove"


@pytest.mark.parametrize("installing", [True, False])
@pytest.mark.parametrize("sort", ["foreign", "changed", "bytes", "folder", "masked", "pipe"])
def test_what_is_not_ours_is_refused_and_stays(tmp_path: Path, sort: str, installing: bool) -> None:
    path = Path(MANAGER.path(job(tmp_path), {"HOME": str(tmp_path)}))
    path.parent.mkdir(parents=True)
    ours = MANAGER.text(job(tmp_path))
    match sort:
        case "foreign":
            path.write_text("[Service]\nExecStart=/bin/true\n")
        case "changed":
            path.write_text(ours.replace("UMask=0077", "UMask=0022"))
        case "bytes":
            path.write_bytes(b"\xff" + ours.encode())
        case "folder":
            path.mkdir()
        case "masked":
            path.symlink_to("/dev/null")
        case "pipe":
            os.mkfifo(path)
    before = entry_of(path), path.read_bytes() if path.is_file() else None
    with pytest.raises(MbxError, match="left as it is") as refused:
        planned(tmp_path, installing=installing)
    assert refused.value.code == "conflict"
    assert before == (entry_of(path), path.read_bytes() if path.is_file() else None)


def test_a_file_that_changes_after_the_plan_is_not_written_over(tmp_path: Path) -> None:
    change = planned(tmp_path)
    path = Path(change.path)
    path.parent.mkdir(parents=True)
    path.write_text("mine")
    with pytest.raises(MbxError, match="changed meanwhile"):
        installer.write(change)
    assert path.read_text() == "mine"
    assert os.listdir(path.parent) == [path.name]


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / ".config").write_text("a file")
    with pytest.raises(MbxError, match="lies below a file"):
        planned(tmp_path)


def test_what_is_installed_is_found_by_home_and_only_if_it_was_ours(tmp_path: Path) -> None:
    environ, manager = {"HOME": str(tmp_path)}, manager_of("linux", 1)
    paths = Paths.from_environ(environ)
    assert found(paths, environ, manager) is None
    path = Path(manager.path(job(tmp_path), environ))
    path.parent.mkdir(parents=True)
    for text, whose in (("mine", None), (manager.text(job(tmp_path)), "ours")):
        path.write_text(text)
        there = found(paths, environ, manager)
        assert (there.whose if there else None) == whose
    path.write_text(manager.text(job(tmp_path)) + "\n")
    there = found(paths, environ, manager)
    assert there is not None
    assert (there.whose, there.name) == ("changed", "mbx.service")
    assert manager_of("darwin", 1).title == "launchd"


def test_a_command_of_the_manager_says_how_it_ended(tmp_path: Path) -> None:
    script = tmp_path / "ctl"
    script.write_text('#!/bin/sh\necho told "$XDG_RUNTIME_DIR"; echo "  no bus" >&2; exit $1\n')
    script.chmod(0o755)
    environ = {"PATH": f"{tmp_path}:/usr/bin:/bin", "XDG_RUNTIME_DIR": "/run/x"}
    done = installer.run(Act((str(tmp_path / "ctl"), "0")), environ)
    assert (done.is_done, done.told, done.why) == (True, "told /run/x\n", "")
    failed = Act((str(tmp_path / "ctl"), "3"))
    assert installer.run(failed, environ).why == "no bus"
    assert installer.run(Act((str(tmp_path / "none"),)), environ).why.endswith(
        "No such file or directory"
    )
    assert not installer.run_all((failed, failed), environ).is_done
    assert installer.run_all((failed._replace(may_fail=True),), environ).is_done
    assert installer.shown((Act(("a b", "c")), Act(("d",), True))) == ["'a b' c"]
