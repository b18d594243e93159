"""What is said of disks, file systems, the PATH and the border."""

import re
from pathlib import Path

import pytest

from mbx.doctor import places
from mbx.doctor.places import Command, Mount, Space
from tests.support.rules import ROOT

MOUNTS = r"""
21 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
30 21 0:40 / /home ro,nosuid - nfs4 server:/home rw,vers=4.2
31 21 0:41 / /mnt/with\040blank rw - tmpfs none rw
32 21 0:42 / /srv rw,relatime - ext4 /dev/sdb1 ro
33 30 0:43 / /home/ana rw - ext4 /dev/sdc1 rw
34 21 0:44 / /data rw - ext4 /dev/sdd1 rw
35 34 0:45 / /data rw - cifs //server/data rw
broken
""".strip()


@pytest.mark.parametrize(
    ("path", "mount"),
    [
        ("/var/mbx", Mount("/", "ext4", False)),
        ("/home/ben", Mount("/home", "nfs4", True)),
        ("/home/ana/x", Mount("/home/ana", "ext4", False)),
        ("/home/anatol", Mount("/home", "nfs4", True)),
        ("/mnt/with blank/x", Mount("/mnt/with blank", "tmpfs", False)),
        ("/srv", Mount("/srv", "ext4", True)),
        ("/data/x", Mount("/data", "cifs", False)),
    ],
)
def test_the_innermost_mount_counts_and_the_last_one_hides(path: str, mount: Mount) -> None:
    assert places.mount_of(MOUNTS, path) == mount


def test_an_unknown_mount_is_said_to_be_unknown() -> None:
    assert places.mount_of("", "/x") is None
    assert places.file_system(None, "/x").level == "info"


@pytest.mark.parametrize(
    ("mount", "level"),
    [
        (Mount("/", "ext4", False), "ok"),
        (Mount("/", "ext4", True), "fail"),
        (Mount("/h", "nfs4", False), "warn"),
        (Mount("/h", "fuse.sshfs", False), "warn"),
        (Mount("/h", "9p", False), "warn"),
        (Mount("/h", "tmpfs", False), "info"),
    ],
)
def test_a_file_system_that_may_not_hold_is_named(mount: Mount, level: str) -> None:
    assert places.file_system(mount, "/h").level == level


@pytest.mark.parametrize(
    ("space", "level"),
    [
        (Space(places.SPACE_LOW_BYTES, None), "ok"),
        (Space(places.SPACE_LOW_BYTES - 1, None), "warn"),
        (Space(places.SPACE_FULL_BYTES, None), "warn"),
        (Space(places.SPACE_FULL_BYTES - 1, None), "fail"),
        (Space(1 << 40, places.INODES_LOW), "ok"),
        (Space(1 << 40, places.INODES_LOW - 1), "warn"),
    ],
)
def test_a_full_disk_is_named(space: Space, level: str) -> None:
    assert places.space(space, "/h").level == level


def test_a_disk_with_room_for_some_sends_is_not_said_to_refuse_all() -> None:
    detail = places.space(Space(2_621_440, None), "/h").detail
    assert detail == "the disk of /h is full but for 2.5 MiB: sends are, or may be, refused"


ONE, TWO = Command("/a/mbx", "/opt/1/mbx"), Command("/b/mbx", "/opt/2/mbx")


@pytest.mark.parametrize(
    ("seen", "running", "words"),
    [
        ([ONE], "/opt/1/mbx", []),
        ([ONE, Command("/c/mbx", ONE.real)], ONE.real, []),
        ([ONE], None, []),
        ([ONE, TWO], ONE.real, ["/b/mbx is hidden"]),
        ([ONE, TWO], TWO.real, ["/b/mbx is hidden", "leads to /a/mbx"]),
        ([ONE], "/opt/2/mbx", ["leads to /a/mbx"]),
        ([], "/opt/2/mbx", ["no mbx is on the PATH"]),
        ([], None, ["no mbx is on the PATH"]),
    ],
)
def test_another_mbx_on_the_path_is_named(
    seen: list[Command], running: str | None, words: list[str]
) -> None:
    checks = places.commands(seen, running)
    assert [check.level for check in checks] == (["warn"] * len(words) or ["ok"])
    assert all(word in check.detail for word, check in zip(words, checks, strict=False))
    assert all(check.fix for check in checks if check.level == "warn")


def test_the_border_is_told_in_the_words_of_the_threat_model() -> None:
    page = Path(ROOT, "docs", "threat-model.md").read_text(encoding="utf-8")
    section = page.partition("## The border\n")[2]
    told = " ".join(section.strip().partition("\n\n")[0].split())
    words = re.sub(r"[.;:]", "", told).lower()
    assert re.sub(r"[.;:]", "", places.border().detail).lower() == words
