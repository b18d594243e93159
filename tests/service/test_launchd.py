"""The agent of launchd: its property list says exactly what was meant, whatever the words are."""

import plistlib

import pytest

from mbx.service.job import Job, Started
from mbx.service.launchd import Launchd
from mbx.service.seal import whose
from tests.service.test_systemd import ODD

MANAGER = Launchd(501)


def job(word: str) -> Job:
    command = (f"/opt/{word}/python", "-I", word)
    return Job("mbx", command, f"/home/a/{word}", f"/home/a/{word}/run", "1.0")


@pytest.mark.parametrize("word", [*ODD, "<&>", "]]>", "-->"])
def test_the_list_holds_every_word_as_it_is(word: str) -> None:
    text = MANAGER.text(job(word))
    told = plistlib.loads(text.encode())
    assert told["ProgramArguments"] == list(job(word).command)
    assert told["EnvironmentVariables"] == {
        "MBX_HOME": job(word).home,
        "MBX_RUN": job(word).run_dir,
    }
    assert (told["Label"], told["Umask"], told["RunAtLoad"]) == ("mbx.daemon", 0o077, True)
    assert told["KeepAlive"] == {"SuccessfulExit": False}
    assert MANAGER.read(text) == Started(f"/opt/{word}/python", job(word).home)
    assert whose(text) == "ours"


@pytest.mark.parametrize("text", ["", "<plist", "<plist version='1.0'><dict/></plist>"])
def test_a_text_that_is_no_list_of_ours_says_nothing(text: str) -> None:
    assert MANAGER.read(text) is None


def test_the_process_is_read_from_what_launchctl_lists() -> None:
    listed = (
        '{\n\t"LimitLoadToSessionType" = "Aqua";\n\t"PID" = 4711;\n\t"LastExitStatus" = 0;\n};\n'
    )
    assert MANAGER.pid_in(listed) == 4711
    assert MANAGER.pid_in(listed.replace('"PID" = 4711;', "")) is None


def test_the_file_stands_where_launchd_looks_for_agents_of_the_user() -> None:
    path = MANAGER.path(job("x"), {"HOME": "/home/a"})
    assert path == "/home/a/Library/LaunchAgents/mbx.daemon.plist"
    assert MANAGER.left(job("x"), path) == ()
    assert MANAGER.beyond("a") is None
