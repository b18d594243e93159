"""How checks are said."""

import json
import os

import pytest

from mbx.doctor.verdict import Check, Remedy, size, span


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0, "0 s"), (59, "59 s"), (60, "1 min"), (7_200, "2 h"), (172_800, "2 d")],
)
def test_lengths_of_time_are_said_in_their_largest_unit(seconds: int, words: str) -> None:
    assert span(seconds) == words


@pytest.mark.parametrize(
    ("count", "words"),
    [
        (0, "0 bytes"),
        (1_023, "1023 bytes"),
        (1_536, "1.5 KiB"),
        (3 << 20, "3 MiB"),
        (2 << 30, "2 GiB"),
    ],
)
def test_sizes_are_said_in_their_largest_unit(count: int, words: str) -> None:
    assert size(count) == words


def test_an_object_has_the_fields_of_the_contract_and_no_broken_text() -> None:
    path = os.fsdecode(b"/home/\xff")
    check = Check("home", "fail", f"{path} is open", f"chmod 700 {path}", Remedy("close-file", "x"))
    told = check.as_object()
    assert told == {
        "name": "home",
        "level": "fail",
        "detail": "/home/\\xff is open",
        "fix": "chmod 700 /home/\\xff",
    }
    assert json.loads(json.dumps(told).encode("ascii")) == told
