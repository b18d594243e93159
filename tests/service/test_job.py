"""What a service is to run: one name for each home, and only what service managers can hold."""

import os
import sys
from pathlib import Path

import pytest

from mbx.core.errors import MbxError
from mbx.paths import Paths
from mbx.service.job import is_program, job_of


def test_the_usual_home_has_the_plain_name_and_another_one_its_own(tmp_path: Path) -> None:
    environ = {"HOME": str(tmp_path)}
    usual = job_of(Paths.from_environ(environ), environ)
    assert usual.name == "mbx"
    assert usual.command[1:] == ("-I", "-m", "mbx.daemon", "--foreground")
    names = set()
    for name in ("a", "b"):
        away = environ | {"MBX_HOME": str(tmp_path / name)}
        job = job_of(Paths.from_environ(away), away)
        assert (job.home, job.run_dir) == (str(tmp_path / name), str(tmp_path / name / "run"))
        names.add(job.name)
    assert len(names) == 2
    assert all(name.startswith("mbx-") and name[4:].isalnum() for name in names)


@pytest.mark.parametrize("name", ["line\nbreak", "tab\there", "bell\x07", "del\x7f", "\udcff"])
def test_a_path_that_no_manager_can_hold_is_refused(tmp_path: Path, name: str) -> None:
    environ = {"HOME": str(tmp_path), "MBX_HOME": f"{tmp_path}/{name}"}
    with pytest.raises(MbxError, match="no plain text") as refused:
        job_of(Paths.from_environ(environ), environ)
    assert refused.value.code == "usage"


def test_a_program_is_a_file_that_can_be_started(tmp_path: Path) -> None:
    plain = tmp_path / "plain"
    plain.write_text("")
    assert is_program(os.path.realpath(sys.executable))
    assert not any(map(is_program, (str(plain), str(tmp_path), str(tmp_path / "none"))))
