"""The unit: its words by systemd's rules, as systemd itself reads and starts them."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from mbx.service.job import Job, Started
from mbx.service.seal import PLACE, whose
from mbx.service.systemd import Systemd, command_line, quoted, words
from tests.support.patience import looks
from tests.support.usermanager import missing, user_manager

ODD = [
    "plain",
    "two words ",
    "100%",
    "%h %% %",
    "$HOME ${HOME} $$",
    "it's",
    'say "so"',
    "back\\slash\\",
    "\\x41 \\n",
    "ünï 日本 🐟",
    "a;b # c",
    "=x=",
    PLACE,
]
PROBE = """
import json, os, sys
told = {"argv": sys.argv[2:], "home": os.environ["MBX_HOME"], "run": os.environ["MBX_RUN"]}
with open(sys.argv[1] + ".new", "w") as file:
    json.dump(told, file)
os.rename(sys.argv[1] + ".new", sys.argv[1])
"""


def job(*command: str, home: str = "/h", run_dir: str = "/r") -> Job:
    return Job("mbx", command or ("/usr/bin/python3", "-I"), home, run_dir, "1")


@pytest.mark.parametrize("word", [*ODD, ""])
def test_a_quoted_word_is_read_back_as_it_was(word: str) -> None:
    assert words(f"{quoted(word)} {quoted('next')}") == [word, "next"]


@pytest.mark.parametrize("word", ODD)
def test_program_and_home_are_read_back_from_the_unit(word: str) -> None:
    wanted = job(f"/opt/{word}/python", "-I", word, home=f"/home/{word}")
    text = Systemd().text(wanted)
    assert Systemd().read(text) == Started(f"/opt/{word}/python", wanted.home)
    assert whose(text) == "ours"


def test_a_text_that_names_no_program_or_home_says_nothing() -> None:
    for text in ("", "ExecStart=\n", 'ExecStart="/x"\n', 'Environment="MBX_HOME=/h"\n'):
        assert Systemd().read(text) is None


def test_only_a_program_that_systemd_would_refuse_is_started_by_a_shell() -> None:
    assert command_line(("/a b%/python", "-I")) == '"/a b%%/python" "-I"'
    for char in "\\\"'$":
        assert command_line((f"/a{char}/python",)).startswith('"/bin/sh" "-c" ')


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")
@pytest.mark.parametrize("word", ODD)
def test_systemd_finds_nothing_wrong_with_the_unit(tmp_path: Path, word: str) -> None:
    folder = tmp_path / word.replace("/", "")
    folder.mkdir()
    program = folder / "python"
    program.symlink_to(sys.executable)
    wanted = job(str(program), "-I", word, home=str(folder), run_dir=str(folder))
    path = tmp_path / "mbx.service"
    path.write_text(Systemd().text(wanted), encoding="utf-8")
    done = subprocess.run(
        ["systemd-analyze", "--user", "verify", "--man=no", str(path)],
        env={"PATH": os.environ["PATH"], "HOME": str(tmp_path), "XDG_RUNTIME_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
        timeout=15,
    )
    assert (done.returncode, [one for one in done.stderr.splitlines() if "mbx" in one]) == (0, [])


@pytest.mark.root
@pytest.mark.long
@pytest.mark.timeout(90)
def test_systemd_starts_what_was_meant_whatever_the_words_are(tmp_path: Path) -> None:
    if (why := missing()) is not None:
        pytest.skip(why)
    units = tmp_path / ".config/systemd/user"
    units.mkdir(parents=True)
    probe = tmp_path / "probe.py"
    probe.write_text(PROBE)
    for number, word in enumerate(ODD):
        folder = tmp_path / f"{number}{word}"
        folder.mkdir()
        (folder / "python").symlink_to(os.path.realpath(sys.executable))
        command = (str(folder / "python"), "-I", str(probe), str(tmp_path / f"{number}.json"), word)
        text = Systemd().text(job(*command, home=str(folder), run_dir=f"{folder}/run"))
        (units / f"mbx-{number}.service").write_text(text, encoding="utf-8")
    with user_manager(tmp_path) as manager:
        if manager is None:
            pytest.skip("a systemd of a user does not start here")
        manager.control("start", *(f"mbx-{number}.service" for number in range(len(ODD))))
        told = [tmp_path / f"{number}.json" for number in range(len(ODD))]
        assert any(all(path.exists() for path in told) for _ in looks())
        for path, (number, word) in zip(told, enumerate(ODD), strict=True):
            home = f"{tmp_path}/{number}{word}"
            meant = {"argv": [word], "home": home, "run": f"{home}/run"}
            assert json.loads(path.read_text()) == meant
