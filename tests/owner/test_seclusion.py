"""A process that opens a key is closed to others."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

_LOOK = """
import json, os, resource, sys
from mbx.owner import seclusion
before = seclusion.is_secluded()
seclusion.seclude()
seclusion.seclude()
core = resource.getrlimit(resource.RLIMIT_CORE)
print(json.dumps([before, seclusion.is_secluded(), core]), flush=True)
sys.stdin.read()
"""

linux_only = pytest.mark.skipif(sys.platform != "linux", reason="prctl is Linux's")


@linux_only
def test_the_process_is_not_dumpable_and_leaves_no_core() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", _LOOK], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert json.loads(process.stdout.readline()) == [False, True, [0, 0]]
        # Its entries belong to root then, whoever runs it: others of the same user are shut out.
        assert Path(f"/proc/{process.pid}/mem").stat().st_uid == 0


_BE_SOMEBODY = """
import ctypes, os, sys
from mbx.owner import seclusion
os.setgroups([]); os.setgid(65534); os.setuid(65534)
assert ctypes.CDLL(None).prctl(4, 1, 0, 0, 0) == 0, "a change of user closes a process too"
if sys.argv[1] == "secluded":
    seclusion.seclude()
print("ready", flush=True)
sys.stdin.read()
"""

_READ = """
import os, sys
os.setgroups([]); os.setgid(65534); os.setuid(65534)
for name in ("mem", "environ", "maps", "fd"):
    entry = f"/proc/{sys.argv[1]}/{name}"
    try:
        os.listdir(entry) if name == "fd" else os.close(os.open(entry, os.O_RDONLY))
    except PermissionError:
        print(name)
"""


@linux_only
@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to be two processes of another user")
def test_another_process_of_the_same_user_reads_nothing_of_it() -> None:
    refused: dict[str, list[str]] = {}
    for how in ("open", "secluded"):
        with subprocess.Popen(
            [sys.executable, "-c", _BE_SOMEBODY, how],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        ) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == b"ready\n"
            reading = [sys.executable, "-c", _READ, str(process.pid)]
            done = subprocess.run(reading, capture_output=True, text=True, timeout=20, check=True)
            refused[how] = done.stdout.split()
    assert refused == {"open": [], "secluded": ["mem", "environ", "maps", "fd"]}
