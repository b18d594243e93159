"""Where bodies come from: every byte as it was given, or a refusal that names what is wrong."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from mbx.cli.bodies import source_of
from mbx.core.errors import MbxError
from mbx.core.limits import BODY_MAX_BYTES

READ_STDIN = (
    "import sys, hashlib\n"
    "from mbx.cli.bodies import source_of\n"
    "from mbx.core.errors import MbxError\n"
    "try:\n"
    "    body = source_of(None, None, '-').read().encode()\n"
    "    print(len(body), hashlib.sha256(body).hexdigest())\n"
    "except MbxError as error:\n"
    "    print(error.code, error.message)\n"
)


def refusal(message: str | None, file: str | None, dash: str | None) -> MbxError:
    with pytest.raises(MbxError) as refused:
        source_of(message, file, dash).read()
    return refused.value


@pytest.mark.parametrize(
    "body", ["", "a", "a\r\nb\n\n", "\ufeffx", "ü😀\u202e", "\x01\x1b", "e\u0301\u0000"]
)
def test_a_file_gives_exactly_its_bytes(tmp_path: Path, body: str) -> None:
    file = tmp_path / "body"
    file.write_bytes(body.encode())
    assert source_of(None, str(file), None).read() == body
    assert source_of(body, None, None).read() == body


@pytest.mark.parametrize("extra", [-1, 0, 1])
@pytest.mark.parametrize("character", ["x", "ü", "😀"])
def test_the_limit_is_exact_and_named(tmp_path: Path, extra: int, character: str) -> None:
    size_bytes = BODY_MAX_BYTES + extra
    width = len(character.encode())
    body = character * (size_bytes // width) + "x" * (size_bytes % width)
    file = tmp_path / "body"
    file.write_text(body, encoding="utf-8")
    if extra <= 0:
        assert source_of(None, str(file), None).read() == body
        assert source_of(body, None, None).read() == body
        return
    for refused in (refusal(None, str(file), None), refusal(body, None, None)):
        assert refused.code == "body-too-large"
        assert "262,145" in refused.message
        assert "262,144" in refused.message
        assert refused.facts == {"limit_bytes": 262_144, "size_bytes": 262_145}


@pytest.mark.parametrize(
    ("raw", "offset"),
    [
        (b"ab\xff", 2),
        (b"\xc3", 0),
        (b"\xed\xa0\x80", 0),
        (b"a\xc0\x80", 1),
        (b"\xf5\x80\x80\x80", 0),
    ],
)
def test_bytes_that_are_no_utf8_are_refused_with_their_place(
    tmp_path: Path, raw: bytes, offset: int
) -> None:
    file = tmp_path / "body"
    file.write_bytes(raw)
    refused = refusal(None, str(file), None)
    assert refused.code == "usage"
    assert f"0x{raw[offset]:02x} at offset {offset}" in refused.message
    assert str(file) in refused.message


@pytest.mark.parametrize("name", ["missing", "folder", "", "nul\0"])
def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, name: str) -> None:
    (tmp_path / "folder").mkdir()
    refused = refusal(None, str(tmp_path / name) if name else "", None)
    assert refused.code == "usage"
    assert name in refused.message


def test_no_body_and_two_bodies_are_usage_errors() -> None:
    assert refusal(None, None, None).code == "usage"
    assert refusal("a", "b", None).code == "usage"
    assert refusal("a", None, "-").code == "usage"
    assert "'x'" in refusal(None, None, "x").message


def test_only_standard_input_is_waited_for() -> None:
    assert source_of(None, "-", None).waits
    assert source_of(None, None, "-").waits
    assert not source_of("-", None, None).waits
    assert not source_of(None, "x", None).waits


def stdin_told(**how: object) -> str:
    done = subprocess.run(
        [sys.executable, "-c", READ_STDIN],
        capture_output=True,
        check=True,
        timeout=15,
        **how,  # type: ignore[call-overload]
    )
    out: bytes = done.stdout
    return out.decode()


def test_a_pipe_larger_than_its_buffer_is_read_to_the_end() -> None:
    assert stdin_told(input=b"y\n" * (BODY_MAX_BYTES // 2)).startswith(f"{BODY_MAX_BYTES} ")


def test_a_pipe_over_the_limit_is_refused_with_its_size() -> None:
    assert "300,000" in stdin_told(input=b"y" * 300_000)


def test_a_non_blocking_pipe_that_is_late_is_waited_for() -> None:
    reading, writing = os.pipe()
    os.set_blocking(reading, False)
    child = subprocess.Popen(
        [sys.executable, "-c", READ_STDIN], stdin=reading, stdout=subprocess.PIPE
    )
    os.close(reading)
    for _ in range(3):
        os.write(writing, b"z" * 50_000)
    os.close(writing)
    out, _ = child.communicate(timeout=15)
    assert out.startswith(b"150000 ")


def test_closed_standard_input_is_no_empty_body() -> None:
    done = subprocess.run(
        ["sh", "-c", 'exec "$@" <&-', "sh", sys.executable, "-c", READ_STDIN],
        capture_output=True,
        text=True,
        check=True,
        timeout=15,
    )
    assert done.stdout == "usage standard input is closed\n"


def test_an_endless_input_is_refused_and_left() -> None:
    with open("/dev/zero", "rb") as endless:
        assert "at least" in stdin_told(stdin=endless)
