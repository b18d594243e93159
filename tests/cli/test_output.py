"""What is printed, and how it ends when nobody can take it."""

import json
import os
import pty
import subprocess
import sys

import pytest

from mbx.cli.output import Output, OutputFailed, ReaderGone, ago, cell
from mbx.core.errors import MbxError

NOW_MS = 1_796_083_200_000  # 2026-12-01T00:00:00Z
HOSTILE = "a\x1b[2J\u202e\nb\x07"


@pytest.mark.parametrize(
    ("at", "told"),
    [
        ("2026-12-01T00:00:00.000Z", "now"),
        ("2026-11-30T23:59:56.000Z", "now"),
        ("2026-11-30T23:59:30.000Z", "30 s ago"),
        ("2026-11-30T23:58:01.000Z", "1 min ago"),
        ("2026-11-30T22:00:00.000Z", "2 h ago"),
        ("2026-11-01T00:00:00.000Z", "30 d ago"),
        ("2026-12-01T00:05:00.000Z", "in 5 min"),
        ("2026-12-01T02:00:00.000+02:00", "now"),
        ("yesterday\x1b", r"yesterday\u{1b}"),
        (None, "-"),
        (5, "-"),
    ],
)
def test_times_are_told_as_a_distance_and_never_as_a_negative_age(at: object, told: str) -> None:
    assert ago(at, NOW_MS) == told


@pytest.mark.parametrize(
    ("value", "told"),
    [(None, "-"), ("", "-"), (True, "yes"), (False, "no"), (0, "0"), ("ü", "ü"), ([1], "[1]")],
)
def test_every_value_has_a_form_for_people(value: object, told: str) -> None:
    assert cell(value) == told


def test_foreign_text_in_a_cell_is_visible_and_on_one_line() -> None:
    told = cell(HOSTILE)
    assert told.isprintable()
    assert r"\u{1b}" in told


def printed(output: Output, act: str, *arguments: object) -> str:
    """What a method of an Output writes to standard output."""
    reading, writing = os.pipe()
    kept = os.dup(1)
    os.dup2(writing, 1)
    os.close(writing)
    try:
        getattr(output, act)(*arguments)
    finally:
        os.dup2(kept, 1)
        os.close(kept)
    with os.fdopen(reading, encoding="utf-8") as pipe:
        return pipe.read()


ROWS = [["one", "short"], ["two", "a long text that does not fit " * 5], ["drei", "ü😀" * 30]]


@pytest.mark.parametrize("columns", [20, 40, 80])
def test_a_table_fits_the_terminal(columns: int) -> None:
    from mbx.core.text import width

    output = Output({"COLUMNS": str(columns)})
    lines = printed(output, "table", ("ID", "SUBJECT"), ROWS, 1).splitlines()
    assert len(lines) == 4
    assert all(width(line) <= columns for line in lines)
    assert lines[0].split() == ["ID", "SUBJECT"]


def test_without_a_terminal_nothing_is_cut() -> None:
    lines = printed(Output({}), "table", ("ID", "SUBJECT"), ROWS, 1).splitlines()
    assert [line.split("  ", 1)[1].strip() for line in lines[1:]] == [
        row[1].strip() for row in ROWS
    ]


@pytest.mark.parametrize("columns", ["", "0", "x", "-5", "9" * 5000, "²"])
def test_an_odd_width_of_the_environment_does_no_harm(columns: str) -> None:
    told = Output({"COLUMNS": columns}).columns()
    assert told is None or told > 0


def test_nothing_is_bold_without_a_terminal() -> None:
    assert Output({"TERM": "xterm"}).strong("x") == "x"


@pytest.mark.parametrize(
    ("environ", "bold"),
    [
        ({"TERM": "xterm"}, True),
        ({"TERM": "xterm", "NO_COLOR": "1"}, False),
        ({"TERM": "xterm", "NO_COLOR": ""}, True),
        ({"TERM": "dumb"}, False),
        ({}, False),
    ],
)
def test_bold_is_for_terminals_that_want_it(environ: dict[str, str], bold: bool) -> None:
    outer, inner = pty.openpty()
    kept = os.dup(1)
    os.dup2(inner, 1)
    try:
        told = Output(environ).strong("x")
    finally:
        os.dup2(kept, 1)
        for descriptor in (kept, outer, inner):
            os.close(descriptor)
    assert (told != "x") is bold


@pytest.mark.parametrize("columns", [0, 12, 80])
def test_a_bold_cell_is_as_wide_as_a_plain_one(columns: int) -> None:
    rows, outer, inner = [["lap", "down", "x"], ["nas", "up 1 min", "y"]], *pty.openpty()
    kept = os.dup(1)
    os.dup2(inner, 1)
    try:
        output = Output({"TERM": "xterm", "COLUMNS": str(columns)})
        output.table(("HOST", "LINK", "WHY"), rows, 2, bold={(0, 1)})
        told = ""
        while told.count("\n") < 1 + len(rows):  # a terminal may give less than was written
            told += os.read(outer, 4096).decode()
    finally:
        os.dup2(kept, 1)
        for descriptor in (kept, outer, inner):
            os.close(descriptor)
    lines = told.replace("\x1b[1m", "").replace("\x1b[0m", "").splitlines()
    if columns == 12:
        assert lines[1:] == ["lap   down …", "nas   up 1 …"], "no mark of it is cut in two"
    else:
        assert "\x1b[1mdown\x1b[0m" in told
        assert lines == ["HOST  LINK      WHY", "lap   down      x", "nas   up 1 min  y"]


def test_a_document_is_one_line_of_ascii() -> None:
    text = printed(Output({}), "document", {"x": HOSTILE + "ü\u2028"})
    assert text.isascii()
    assert text.count("\n") == 1
    assert json.loads(text) == {"x": HOSTILE + "ü\u2028"}


def test_an_error_with_json_is_a_document_on_standard_output() -> None:
    output = Output({})
    output.as_json = True
    error = MbxError("in-use", "held", "mbx whoami", holder={"cli": "x"})
    assert json.loads(printed(output, "error", error)) == {
        "error": {"code": "in-use", "message": "held", "next": "mbx whoami", "holder": {"cli": "x"}}
    }


def test_an_error_for_people_stays_on_its_two_lines(capfd: pytest.CaptureFixture[str]) -> None:
    Output({}).error(MbxError("usage", HOSTILE, "mbx\nx"))
    out, err = capfd.readouterr()
    assert out == ""
    assert [line.split(":")[0] for line in err.splitlines()] == ["error", "next"]
    assert "\x1b" not in err


def test_a_reader_that_is_gone_is_told_apart_from_a_full_disk() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    full = os.open("/dev/full", os.O_WRONLY)
    kept = os.dup(1)
    try:
        os.dup2(writing, 1)
        with pytest.raises(ReaderGone):
            Output({}).text("x")
        os.dup2(full, 1)
        with pytest.raises(OutputFailed, match="No space left"):
            Output({}).text("x")
    finally:
        os.dup2(kept, 1)
        for descriptor in (writing, full, kept):
            os.close(descriptor)


def test_a_non_blocking_pipe_that_is_full_gets_everything_in_the_end() -> None:
    program = (
        "import os, sys\nfrom mbx.cli.output import Output\n"
        "os.set_blocking(1, False)\nOutput({}).raw(b'z' * 1_000_000)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, check=True, timeout=15
    )
    assert done.stdout == b"z" * 1_000_000


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
def test_any_locale_can_print_any_text(encoding: str) -> None:
    program = "from mbx.cli.output import Output\nOutput({}).text('ü 😀 \\udcff')\n"
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONIOENCODING": encoding},
        capture_output=True,
        check=True,
        timeout=15,
    )
    expected = {
        "ascii": rb"\xfc \U0001f600 \udcff",
        "latin-1": b"\xfc \\U0001f600 \\udcff",
        "utf-8": "ü 😀 \\udcff".encode(),
    }
    assert done.stdout == expected[encoding] + b"\n"
    assert done.stderr == b""


def test_notes_go_to_standard_error_and_need_no_reader() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    kept = os.dup(2)
    os.dup2(writing, 2)
    try:
        Output({}).note("x")
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(writing)


def test_a_note_is_one_line_on_standard_error(capfd: pytest.CaptureFixture[str]) -> None:
    Output({}).note("x")
    assert capfd.readouterr() == ("", "x\n")
