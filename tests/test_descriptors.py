"""A process that was started with closed standard descriptors has some that are at their end."""

import subprocess
import sys

import pytest

CODE = """
import os, sys
from mbx import descriptors

descriptors.fill()
told = [os.open(os.devnull, os.O_RDONLY), os.read(0, 1)]
for number in (1, 2):
    try:
        told.append(os.write(number, b"x"))
    except OSError:
        told.append(None)
sys.exit(0 if told == [3, b"", *EXPECTED] else 1)
"""


@pytest.mark.parametrize(
    ("closed", "written"),
    [("</dev/null", [1, 1]), ("<&-", [1, 1]), (">&-", [None, 1]), ("<&- >&- 2>&-", [None, None])],
)
def test_whatever_was_closed_ends_and_takes_nothing(closed: str, written: list[int | None]) -> None:
    done = subprocess.run(
        [
            "sh",
            "-c",
            f'exec "$0" -c "$1" {closed}',
            sys.executable,
            f"EXPECTED = {written}\n{CODE}",
        ],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=15,
        check=False,
    )
    assert done.returncode == 0, done.stderr
