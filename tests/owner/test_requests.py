"""Requests and signed records as files."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from mbx.core.errors import MbxError
from mbx.core.record import Record
from mbx.owner import files, requests
from mbx.owner.draft import Draft

DRAFT = Draft("takeover", '{"a":"\u00fc\U0001f600"}', "api-dev", ("a fact",))
KEY_ID = "0123456789abcdefghjkmnpqrs"
RECORD = Record("takeover", "{}", {KEY_ID: "A" * 86 + "=="})
REQUEST_OBJECT: dict[str, Any] = {
    "v": 1,
    "type": "owner-request",
    "kind": "takeover",
    "payload": "{}",
    "confirm": "api-dev",
    "lines": [],
}
RECORD_OBJECT: dict[str, Any] = {
    "v": 1,
    "type": "owner-record",
    "kind": "takeover",
    "payload": "{}",
    "signatures": dict(RECORD.signatures),
}


def test_a_request_and_a_record_come_back_as_they_were_written(tmp_path: Path) -> None:
    request, record = tmp_path / "request", tmp_path / "record"
    old_mask = os.umask(0)
    try:
        requests.write_request(str(request), DRAFT)
        requests.write_record(str(record), RECORD)
    finally:
        os.umask(old_mask)
    assert requests.read_request(str(request)) == DRAFT
    assert requests.read_record(str(record)) == RECORD
    assert requests.read_record(str(record)).signatures == RECORD.signatures
    for path in (request, record):
        assert path.stat().st_mode & 0o7777 == 0o600
        assert path.read_bytes().count(b"\n") == 1


def test_a_file_that_exists_is_never_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "request"
    path.write_bytes(b"precious")
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "nowhere")
    for there in (path, link):
        with pytest.raises(MbxError) as refused:
            requests.write_request(str(there), DRAFT)
        assert (refused.value.code, str(there) in refused.value.message) == ("conflict", True)
    assert path.read_bytes() == b"precious"
    assert not (tmp_path / "nowhere").exists()


def test_a_full_disk_is_named_and_leaves_nothing() -> None:
    with pytest.raises(MbxError) as refused:
        files.write_new("/proc/none/request", b"x")
    assert refused.value.code == "usage"
    assert files.unwritten("f", OSError(28, "No space left on device")).code == "disk-full"


def test_what_cannot_be_carried_is_not_written(tmp_path: Path) -> None:
    path = tmp_path / "request"
    with pytest.raises(MbxError, match="2,097,152 bytes"):
        requests.write_request(str(path), Draft("takeover", "x" * requests.MAX_BYTES, "x"))
    assert not path.exists()


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "not JSON"),
        (b"x", "not JSON"),
        (b"[]", "no JSON object"),
        (b"\xff", "not UTF-8"),
        (b'{"v":1,"v":1}', "duplicate"),
        (b'{"type":NaN}', "JSON|number"),
        (b"[" * 100_000, "deep|JSON"),
        (b'{"x":"' + b"x" * requests.MAX_BYTES + b'"}', "2,097,152 bytes"),
        (json.dumps({**REQUEST_OBJECT, "v": 2}).encode(), "v is not 1"),
        (json.dumps({**REQUEST_OBJECT, "v": True}).encode(), "v is not 1"),
        (json.dumps({**REQUEST_OBJECT, "x": 1}).encode(), "not known"),
        (json.dumps({**REQUEST_OBJECT, "type": "x"}).encode(), "type is not"),
        (json.dumps(RECORD_OBJECT).encode(), "signed record"),
        (b'{"v":1,"type":"owner-request"}', "lacks confirm, kind, lines, payload"),
        (json.dumps({**REQUEST_OBJECT, "kind": 1}).encode(), "no text"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_what_is_wrong_with_a_request_is_said(tmp_path: Path, content: bytes, why: str) -> None:
    path = tmp_path / "request"
    path.write_bytes(content)
    with pytest.raises(MbxError, match=why):
        requests.read_request(str(path))


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"kind": None}, "no text"),
        ({"payload": {}}, "no text"),
        ({"signatures": {}}, "1 to 2"),
        ({"signatures": []}, "1 to 2"),
        ({"signatures": {f"{n}{KEY_ID[1:]}": "A" * 86 + "==" for n in range(3)}}, "1 to 2"),
        ({"signatures": {"x": "A" * 86 + "=="}}, "key id"),
        ({"signatures": {KEY_ID: "A" * 87}}, "base64"),
        ({"signatures": {KEY_ID: "-" * 86 + "=="}}, "base64"),
        ({"signatures": {KEY_ID: 1}}, "base64"),
        ({"type": "owner-request"}, "is a request|not known|request that"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_what_is_wrong_with_a_record_is_said(
    tmp_path: Path, change: dict[str, Any], why: str
) -> None:
    path = tmp_path / "record"
    path.write_text(json.dumps({**RECORD_OBJECT, **change}))
    with pytest.raises(MbxError, match=why):
        requests.read_record(str(path))


def test_no_file_a_folder_and_a_pipe_are_named(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path, code, why in (
        ("none", "not-found", "there is no file"),
        ("", "usage", "not a regular file"),
        ("pipe", "usage", "not a regular file"),
        ("a\0b", "usage", "null"),
    ):
        with pytest.raises(MbxError, match=why) as refused:
            requests.read_request(str(tmp_path / path))
        assert refused.value.code == code
