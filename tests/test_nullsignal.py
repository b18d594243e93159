"""What the null signal tells, of real processes."""

import os
import signal
import subprocess
import sys

import pytest

from mbx import nullsignal
from tests.support.shells import TIMEOUT_S


def test_a_process_is_there_until_its_end_was_taken_note_of() -> None:
    child = subprocess.Popen([sys.executable, "-I", "-S", "-c", "input()"], stdin=subprocess.PIPE)
    with child:
        assert (nullsignal.ask(child.pid), nullsignal.exists(child.pid)) == ("ours", True)
        child.send_signal(signal.SIGKILL)
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        assert nullsignal.exists(child.pid), "a zombie has its number still"
    assert child.returncode == -signal.SIGKILL


@pytest.mark.parametrize("pid", [2**22 + 1, 2**31 - 1])
def test_no_process_has_a_number_above_all_that_are_given_out(pid: int) -> None:
    """PID_MAX_LIMIT of Linux is 2^22 (proc(5))."""
    assert (nullsignal.ask(pid), nullsignal.exists(pid)) == ("absent", False)


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become somebody else")
def test_a_process_that_may_not_be_signalled_is_told_apart() -> None:
    code = "from mbx import nullsignal; print(nullsignal.ask(1), nullsignal.exists(1))"
    preamble = "import sys, os; import mbx.nullsignal; os.setgroups([]); os.setuid(65534); "
    done = subprocess.run(
        [sys.executable, "-c", preamble + code],
        capture_output=True,
        text=True,
        check=False,
        timeout=TIMEOUT_S,
    )
    assert (done.stdout, done.stderr) == ("another-user True\n", "")
