"""The owner's terminal: what is read, what is not, and the state it is left in."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from mbx.core.errors import MbxError
from mbx.owner.terminal import Terminal, wipe
from tests.support.seat import Seat

# Asks one question of each kind and prints what it got; ends as `mbx` does.
_ASKER = """
import json, sys
from mbx.core.errors import MbxError
from mbx.owner.terminal import Terminal
try:
    with Terminal() as terminal:
        terminal.show("shown first")
        word = terminal.ask("Word:")
        secret = terminal.ask_hidden("Secret:")
        print(json.dumps([word, secret.decode("latin-1")]))
except MbxError as error:
    print(error.code)
    sys.exit(1)
except KeyboardInterrupt:
    sys.exit(130)
"""
ASKER = (sys.executable, "-c", _ASKER)
QUESTIONS = ("Word:", "Secret:")
ENDS: dict[str, tuple[str | signal.Signals, int]] = {
    "end of input": ("\x04", 1),
    "Ctrl-C": ("\x03", 130),
    "Ctrl-\\": ("\x1c", -signal.SIGQUIT),
    "SIGINT": (signal.SIGINT, 130),
    "SIGTERM": (signal.SIGTERM, -signal.SIGTERM),
    "SIGHUP": (signal.SIGHUP, -signal.SIGHUP),
    "SIGQUIT": (signal.SIGQUIT, -signal.SIGQUIT),
}


@pytest.fixture
def seat() -> Iterator[Seat]:
    with Seat(ASKER) as started:
        yield started


def reach(seat: Seat, question: str) -> None:
    """Answer whatever comes before a question, and wait for it."""
    for earlier in QUESTIONS[: QUESTIONS.index(question)]:
        seat.answer(earlier, "word")
    seat.expect(question)


def test_a_word_is_shown_and_a_secret_is_not(seat: Seat) -> None:
    seat.answer("Word:", "yes \u00fc")
    seat.expect("yes \u00fc")
    seat.expect("Secret:")
    assert not seat.echoes()
    seat.type("hush \u00fc\n")
    done = seat.finish()
    assert (done.status, done.out, done.err) == (0, '["yes \\u00fc", "hush \\u00c3\\u00bc"]\n', "")
    assert "hush" not in seat.drain()
    assert seat.state() == seat.before


def test_keys_that_correct_a_line_work_in_both(seat: Seat) -> None:
    seat.answer("Word:", "wrong\x15wo\x7ford")
    seat.answer("Secret:", "wrong\x15huss\x7fh")
    assert seat.finish().out == '["word", "hush"]\n'


@pytest.mark.parametrize("question", QUESTIONS)
@pytest.mark.parametrize("how", ENDS)
def test_every_way_out_leaves_the_terminal_as_it_was(seat: Seat, question: str, how: str) -> None:
    act, status = ENDS[how]
    reach(seat, question)
    assert seat.echoes() is (question == "Word:")
    if isinstance(act, signal.Signals):
        seat.signal(act)
    else:
        seat.type(act)
    done = seat.finish()
    assert (done.status, seat.state()) == (status, seat.before)
    assert done.out == ("owner-required\n" if how == "end of input" else "")


@pytest.mark.parametrize("question", QUESTIONS)
def test_a_stopped_question_gives_the_terminal_back_and_asks_again(
    seat: Seat, question: str
) -> None:
    reach(seat, question)
    seat.type("hal")
    if question == "Word:":
        seat.expect("hal")
    # Its group is no shell's job, so the kernel ignores Ctrl-Z; a forced stop stands for it.
    seat.signal(signal.SIGSTOP)
    os.waitid(os.P_PID, seat.process.pid, os.WSTOPPED | os.WNOWAIT)
    seat.signal(signal.SIGCONT)
    seat.expect(question)
    assert seat.echoes() is (question == "Word:")
    seat.type("again\n")
    if question == "Word:":
        seat.answer("Secret:", "x")
    assert "again" in seat.finish().out
    assert seat.state() == seat.before


_JOB = """
import os, signal, sys
line = os.open("/dev/tty", os.O_RDWR)
signal.signal(signal.SIGTTOU, signal.SIG_IGN)
child = os.fork()
if not child:
    os.setpgid(0, 0)
    signal.signal(signal.SIGTTOU, signal.SIG_IGN)
    os.tcsetpgrp(line, os.getpid())
    signal.signal(signal.SIGTTOU, signal.SIG_DFL)
    os.execv(sys.executable, [sys.executable, "-c", sys.argv[1]])
_, status = os.waitpid(child, os.WUNTRACED)
assert os.WSTOPSIG(status) == signal.SIGTSTP
os.tcsetpgrp(line, os.getpid())
os.write(line, b"stopped")
sys.stdin.buffer.read(1)
os.read(line, 100)
os.tcsetpgrp(line, child)
os.kill(child, signal.SIGCONT)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@pytest.mark.parametrize("question", QUESTIONS)
def test_ctrl_z_stops_it_as_a_job_with_the_terminal_as_it_was(question: str) -> None:
    with Seat((sys.executable, "-c", _JOB, _ASKER)) as seat:
        reach(seat, question)
        seat.type("\x1a")
        seat.expect("stopped")
        assert seat.state() == seat.before
        seat.type("fg\n")
        seat.expect(question)
        assert seat.echoes() is (question == "Word:")
        seat.type("after\n")
        if question == "Word:":
            seat.answer("Secret:", "x")
        done = seat.finish()
        assert (done.status, "after" in done.out) == (0, True)
        assert seat.state() == seat.before


def test_what_was_typed_before_a_question_answers_nothing(seat: Seat) -> None:
    seat.expect("Word:")
    seat.type("word\nearly\n")
    seat.expect("Secret:")
    seat.type("late\n")
    assert seat.finish().out == '["word", "late"]\n'


def test_a_terminal_in_a_strange_state_is_used_and_given_back_in_it(tmp_path: Path) -> None:
    import termios

    gate = tmp_path / "gate"
    os.mkfifo(gate)
    with Seat((sys.executable, "-c", f"open({str(gate)!r}).read()\n{_ASKER}")) as seat:
        strange = seat.state()
        strange[0] &= ~termios.ICRNL
        strange[3] &= ~(termios.ICANON | termios.ECHO | termios.ISIG)
        termios.tcsetattr(seat.inner, termios.TCSANOW, strange)
        strange = seat.state()
        gate.write_bytes(b"")  # until then nothing is asked
        seat.answer("Word:", "word")
        seat.expect("word")
        seat.answer("Secret:", "hush")
        assert seat.finish().out == '["word", "hush"]\n'
        assert seat.state() == strange


def test_standard_input_is_not_an_answer() -> None:
    with Seat(ASKER, stdin=b"piped\npiped\n") as seat:
        reach(seat, "Secret:")
        seat.type("typed\n")
        assert seat.finish().out == '["word", "typed"]\n'


@pytest.mark.parametrize("stdin", [b"", b"piped\npiped\n"])
def test_without_a_terminal_nobody_is_asked(stdin: bytes) -> None:
    done = subprocess.run(
        ASKER, input=stdin, capture_output=True, timeout=20, check=False, start_new_session=True
    )
    assert (done.returncode, done.stdout, done.stderr) == (1, b"owner-required\n", b"")


def test_a_terminal_that_hangs_up_ends_the_question() -> None:
    with Seat(ASKER) as seat:
        seat.expect("Word:")
        seat.hang_up()
        assert seat.finish().status in (1, -signal.SIGHUP)


def test_a_file_is_no_terminal() -> None:
    for path in ("/dev/null", "/nonexistent"):
        with pytest.raises(MbxError) as refused:
            Terminal(path)
        assert refused.value.code == "owner-required"


def test_long_lines_are_folded_and_a_wiped_secret_is_gone() -> None:
    asker = _ASKER.replace('"shown first"', 'terminal.columns() * "x" + "end"')
    with Seat((sys.executable, "-c", asker), columns=30) as seat:
        seat.expect("x" * 30 + "\r\nend")
    secret = bytearray(b"hush")
    view = secret
    wipe(secret)
    assert view == bytearray()
