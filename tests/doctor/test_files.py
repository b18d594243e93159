"""What is said of our folders and files, for everything that can be seen of them."""

import base64
import json
from typing import Any

import pytest

from mbx.doctor import files
from mbx.doctor.files import Entry
from mbx.doctor.verdict import Check

ME, OTHER = 1_000, 1_001
NOW_MS = 1_700_000_000_000
FOLDER = Entry("/h", "folder", 0o700, ME)
FILE = Entry("/h/f", "file", 0o600, ME, 4_096, NOW_MS)
GONE = Entry("/h/f", "missing")


def key_file(**other: Any) -> bytes:
    content = {
        "v": 1,
        "type": "mbx-host-key",
        "key_id": "k" * 26,
        "seed": base64.b64encode(bytes(32)).decode(),
    }
    return json.dumps(content | other).encode()


def header(
    *,
    schema: int = 2,
    application: bytes = b"mbx1",
    pages: int = 1,
    changed: int = 7,
    valid: int = 7,
) -> bytes:
    raw = bytearray(100)
    raw[:16] = b"SQLite format 3\x00"
    raw[16:18] = (4_096).to_bytes(2, "big")
    raw[24:28] = changed.to_bytes(4, "big")
    raw[28:32] = pages.to_bytes(4, "big")
    raw[60:64] = schema.to_bytes(4, "big")
    raw[68:72] = application
    raw[92:96] = valid.to_bytes(4, "big")
    return bytes(raw)


def told(check: Check) -> tuple[str, str | None]:
    return check.level, check.fix


# -- folders --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("seen", "level", "fix"),
    [
        (FOLDER, "ok", None),
        (FOLDER._replace(mode=0o755), "fail", "chmod 700 /h"),
        (FOLDER._replace(mode=0o500), "fail", "chmod 700 /h"),
        (FOLDER._replace(user_id=OTHER), "fail", f"sudo chown -R {ME} /h"),
        (FOLDER._replace(kind="link"), "fail", "mv /h /h.aside"),
        (FOLDER._replace(kind="file"), "fail", "mv /h /h.aside"),
        (Entry("/h", "hidden", why="Permission denied"), "fail", "ls -ld /h"),
        (Entry("/h", "missing"), "info", None),
    ],
)
def test_a_folder_is_ours_alone_or_named_with_its_remedy(
    seen: Entry, level: str, fix: str | None
) -> None:
    check = files.folder("home", seen, ME, missing="info", needed="later")
    assert told(check) == (level, fix)
    assert (check.remedy is not None) == (fix == "chmod 700 /h")


def test_a_folder_of_others_is_never_closed() -> None:
    """It may be /tmp: a link or a wrong variable led there."""
    seen = FOLDER._replace(mode=0o1777, is_of_others=True)
    check = files.folder("run", seen, ME, missing="info", needed="later")
    assert (check.level, check.remedy) == ("fail", None)
    assert check.fix == "set MBX_RUN to a folder of your own"


def test_a_folder_that_is_needed_can_be_made() -> None:
    check = files.folder("sessions", Entry("/h/s", "missing"), ME, missing="warn", needed="x")
    assert check.remedy == ("make-folder", "/h/s")


# -- files ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("seen", "level"),
    [
        (FILE._replace(mode=0o640), "warn"),
        (FILE._replace(mode=0o602), "warn"),
        (FILE._replace(mode=0o400), "fail"),
        (FILE._replace(user_id=OTHER), "fail"),
        (FILE._replace(kind="folder"), "fail"),
        (Entry("/h/f", "hidden", why="Permission denied"), "fail"),
    ],
)
def test_a_file_that_is_not_ours_alone_is_named(seen: Entry, level: str) -> None:
    (check,) = files.modes([FILE, GONE, seen], ME)
    assert check.level == level
    assert "/h/f" in check.detail


def test_files_that_are_ours_alone_are_counted() -> None:
    assert files.modes([FILE, FILE, GONE], ME) == [
        Check("modes", "ok", "2 files, closed to others")
    ]


@pytest.mark.parametrize(
    ("seen", "content", "has_store", "level"),
    [
        (FILE, key_file(), True, "ok"),
        (FILE, b"\xef\xbb\xbf" + key_file() + b"\r\n", True, "ok"),
        (FILE, key_file(), False, "warn"),
        (GONE, None, True, "fail"),
        (GONE, None, False, "info"),
        (FILE._replace(mode=0o644), key_file(), True, "fail"),
        (FILE._replace(mode=0o200), None, True, "fail"),
        (FILE._replace(user_id=OTHER), key_file(), True, "fail"),
        (FILE._replace(kind="link"), None, True, "fail"),
        (FILE, None, True, "fail"),
        (FILE, b"{", True, "fail"),
        (FILE, b"[" * 4_000, True, "fail"),
        (FILE, key_file(seed="AAAA"), True, "fail"),
        (FILE, key_file(type="other"), True, "fail"),
        (FILE, key_file(key_id=5), True, "fail"),
        (FILE, key_file() + b" " * 4_096, True, "fail"),
    ],
)
def test_the_key_is_whole_and_ours_alone_or_named(
    seen: Entry, content: bytes | None, has_store: bool, level: str
) -> None:
    check = files.key(seen, content, ME, has_store=has_store)
    assert check.level == level
    assert "AAAA" not in f"{check}"
    assert level in ("ok", "info") or check.fix


# -- the store ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("seen", "head", "wal", "level", "word"),
    [
        (FILE, header(), GONE, "ok", "schema 2"),
        (GONE, None, GONE, "info", "not made"),
        (FILE, b"", GONE, "info", "empty"),
        (FILE._replace(kind="folder"), None, GONE, "fail", "no file"),
        (FILE, None, GONE, "fail", "no file"),
        (FILE, b"x" * 100, GONE, "fail", "damaged"),
        (FILE, header()[:50], GONE, "fail", "damaged"),
        (FILE, header(application=b"abcd"), GONE, "fail", "another program"),
        (FILE, header(application=bytes(4)), GONE, "fail", "another program"),
        (FILE, header(application=bytes(4), schema=0), FILE, "ok", "schema 2"),
        (FILE, header(schema=3), GONE, "fail", "newer mbx"),
        (FILE, header(pages=3), GONE, "fail", "cut short by 8 KiB"),
        (FILE, header(pages=3), FILE, "ok", "schema 2"),
        (FILE, header(pages=3, valid=6), GONE, "ok", "schema 2"),
    ],
)
def test_the_store_is_judged_by_its_header(
    seen: Entry, head: bytes | None, wal: Entry, level: str, word: str
) -> None:
    check = files.store(seen, head, wal, 2)
    assert check.level == level
    assert word in check.detail
    assert level != "fail" or check.fix


def test_a_log_of_writes_that_nobody_takes_in_is_named() -> None:
    assert files.wal(FILE._replace(size_bytes=files.WAL_LARGE_BYTES)).level == "ok"
    assert files.wal(FILE._replace(size_bytes=files.WAL_LARGE_BYTES + 1)).level == "warn"
    assert files.wal(GONE).level == "ok"


# -- the log --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("seen", "level", "fix"),
    [
        (FILE._replace(size_bytes=files.LOG_LARGE_BYTES + 1), "warn", "truncate -s 0 /h/f"),
        (FILE._replace(mode=0o400), "warn", "chmod 600 /h/f"),
        (FILE._replace(mode=0o644), "warn", "chmod 600 /h/f"),
        (FILE._replace(kind="folder"), "fail", "mv /h/f /h/f.aside"),
        (FILE._replace(user_id=OTHER), "fail", f"sudo chown -R {ME} /h/f"),
    ],
)
def test_a_log_that_has_grown_or_cannot_be_written_is_named(
    seen: Entry, level: str, fix: str
) -> None:
    assert [told(check) for check in files.log([seen, GONE], ME, None)] == [(level, fix)]


def test_a_log_that_is_well_says_how_large_it_is() -> None:
    assert files.log([FILE, FILE], ME, b"") == [Check("log", "ok", "8 KiB, bounded")]
    assert files.log([GONE], ME, None)[0].level == "ok"


def line(event: object, at: object = "2026-01-31T12:00:00.000Z") -> bytes:
    return json.dumps({"at": at, "event": event}).encode() + b"\n"


@pytest.mark.parametrize(
    ("tail", "event"),
    [
        (line("ready") + line("the store failed") + line("ended"), "the store failed"),
        (line("ended by a defect"), "ended by a defect"),
        (line("ended") + line("ready"), None),
        (line("ended") + line("ready") + line("stopped"), None),
        (b'cut off"}\n[]\nnull\n' + line(["ended"]), None),
        (line("a callback failed"), None),
    ],
)
def test_an_end_that_nobody_asked_for_is_found_in_the_log(tail: bytes, event: str | None) -> None:
    found = files.bad_end(tail)
    assert (found and found[0]) == event
    assert (files.log([FILE], ME, tail)[0].level == "warn") == (event is not None)


def test_only_old_left_overs_are_left_overs() -> None:
    limit = NOW_MS - files.LEFTOVER_S * 1_000
    new, old = (FILE._replace(modified_ms=at) for at in (limit, limit - 1))
    assert files.leftovers([new], NOW_MS) == [Check("left-overs", "ok", "none")]
    (check,) = files.leftovers([new, old], NOW_MS)
    assert (check.level, check.fix) == ("warn", "rm /h/f")


def test_a_clock_behind_what_was_written_is_named() -> None:
    limit = NOW_MS + files.CLOCK_SLACK_MS
    late = FILE._replace(modified_ms=limit + 3_600_001)
    assert files.clock([FILE, GONE], limit, NOW_MS).level == "ok"
    assert "newest record" in files.clock([FILE], limit + 1, NOW_MS).detail
    assert "1 h behind the newest file" in files.clock([late], None, NOW_MS).detail
    assert files.clock([], None, NOW_MS).level == "ok"
