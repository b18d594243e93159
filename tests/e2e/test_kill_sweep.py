"""kill -9 at write-like system calls of every scene: what was answered is there, exactly once.

`MBX_SWEEP=all` in the environment goes through every point, not through every k-th.
"""

import os
import sys
from collections import Counter
from collections.abc import Iterator
from typing import Final

import pytest

from tests.support.daemon import fresh_home
from tests.support.scenes import BY_NAME, SCENES
from tests.support.strace import Point, choose, needs_strace, points_of
from tests.support.sweep import Report, Scene, World, sweep

pytestmark = needs_strace

EVERY: Final = os.environ.get("MBX_SWEEP") == "all"
LIMIT_S: Final = 7_200 if EVERY else 300
"""Of one scene, on the busiest machine; a point takes about 0.6 s on two quiet cores."""

HIT_MIN: Final = 150
"""Deaths in all scenes together."""

CALLS_MET: Final = {
    *("pwrite64", "fdatasync", "fsync", "ftruncate", "write"),
    *("rename", "unlink", "link", "mkdir", "bind", "openat"),
}
"""What a daemon really calls (others of `WRITE_LIKE` are traced too); each must have been met."""


@pytest.fixture(scope="module")
def reports() -> Iterator[list[Report]]:
    """What the scenes met; at the end, if all were played, their sums are told and judged."""
    collected: list[Report] = []
    yield collected
    if len(collected) < len(SCENES):
        return
    known, hit = Counter[str](), Counter[str]()
    for report in collected:
        known += report.known
        hit += report.hit
    rows = " ".join(f"{call} {hit[call]}/{known[call]}" for call in sorted(known))
    sys.stdout.write(f"kill sweep: {hit.total()} of {known.total()} points: {rows}\n")
    assert hit.total() >= HIT_MIN
    if os.uname().machine == "x86_64":  # elsewhere some calls go by another name
        assert hit.keys() >= CALLS_MET


@pytest.mark.long
@pytest.mark.timeout(LIMIT_S)
@pytest.mark.parametrize("scene", SCENES, ids=lambda scene: scene.name)
def test_a_death_at_a_write_loses_doubles_and_invents_nothing(
    scene: Scene, reports: list[Report]
) -> None:
    with fresh_home() as home, World(home) as world:
        report = sweep(scene, world, every=EVERY)
    sys.stdout.write(f"{report}\n")
    assert report.found == []
    reports.append(report)
    assert report.hit.total() >= max(5, report.chosen * 2 // 3), "most points were not met"


# -- planted defects ------------------------------------------------------------------------------

ANSWERS_BEFORE_THE_COMMIT: Final = """
import asyncio
from mbx.store import database

class Held:
    def __init__(self, real):
        self.real, self.is_held = real, False
    def execute(self, sql, parameters=()):
        if sql == "COMMIT":
            self.is_held = True
            return None
        return self.real.execute(sql, parameters)
    @property
    def in_transaction(self):
        return not self.is_held and self.real.in_transaction
    @property
    def total_changes(self):
        return self.real.total_changes

def commit(connection, units=()):
    if connection.in_transaction:
        connection.execute("COMMIT")
    return []

def begin(connection, units, hurry):
    commit(connection)
    return database.run_group(Held(connection), units, hurry)

async def write(self, units, hurry=lambda: False):
    outcomes = await self._hop(begin, units, hurry)
    loop = asyncio.get_running_loop()
    loop.call_later(0.02, lambda: loop.create_task(self._hop(commit, ())))
    return outcomes

async def read(self, units):
    def after_commit(connection, units):
        commit(connection)
        return database.run_reads(connection, units)
    return await self._hop(after_commit, units)

def read_here(self, unit, real=database.Database.read_here):
    commit(self._connection._conn)
    return real(self, unit)

database.Database.write = write
database.Database.read = read
database.Database.read_here = read_here
"""

KEY_IN_PLACE: Final = """
from mbx.daemon.privatefile import PrivateFile

def create(self, content):
    with open(self.path, "xb", buffering=0) as file:
        file.write(content)

PrivateFile._create = create
"""

CREDENTIAL_IN_PLACE: Final = """
import json
from mbx.daemon.credentials import Credentials

def write(self, cli, session_id, identity, epoch, token):
    told = {"identity": identity, "epoch": epoch, "token": token}
    with open(self._paths.session_file(cli, session_id), "wb", buffering=0) as file:
        file.write(json.dumps(told).encode())

Credentials.write = write
"""

DEFECTS: Final = {
    "answers leave before the commit": (ANSWERS_BEFORE_THE_COMMIT, "send to one", "I1"),
    "the host key is written in place": (KEY_IN_PLACE, "first boot", "start"),
    "credentials are written in place": (CREDENTIAL_IN_PLACE, "claim", "I17"),
}
"""What is replaced in the daemon's process, the scene that must show it, and as what."""

SWEEPS_MAX: Final = 3
"""Beside other work a daemon commits more; the few points that are chosen may all be of that."""


@pytest.mark.long
@pytest.mark.timeout(LIMIT_S)
@pytest.mark.parametrize("name", DEFECTS)
def test_a_planted_defect_is_found_within_the_points_of_ci(name: str) -> None:
    defect, scene, invariant = DEFECTS[name]
    found: list[str] = []
    for _ in range(SWEEPS_MAX):
        with fresh_home() as home, World(home, defect) as world:
            report = sweep(BY_NAME[scene], world)
        sys.stdout.write(f"{name}: found after {report.hit.total()} deaths: {report.found[:1]}\n")
        found = report.found
        if found:
            break
    assert found != []
    assert all(f": {invariant}: " in text for text in found), found


# -- points ---------------------------------------------------------------------------------------

TRACE: Final = """\
7 openat(AT_FDCWD</>, "/home/a", O_RDONLY) = 3
7 openat(AT_FDCWD</>, "/home/host.key.new", O_WRONLY|O_CREAT|O_EXCL, 0600) = 3</home/host.key.new>
7 pwrite64(4</home/store.db-wal>, ""..., 24, 0) = 24
8 pwrite64(4</home/store.db-wal>, ""..., 24, 0 <unfinished ...>
7 write(5<socket:[11022]>, ""..., 9) = 9
8 <... pwrite64 resumed>) = 24
8 pwrite64(4</home/store.db>, ""..., 24, 0) = 24
8 write(6<anon_inode:[eventfd]>, ""..., 8) = 8
"""


def test_points_are_counted_as_strace_counts_them_for_each_thread_by_itself() -> None:
    assert points_of(TRACE) == [
        Point("loop", "openat", "host.key.new", 2),
        Point("loop", "pwrite64", "store.db-wal", 1),
        Point("store", "pwrite64", "store.db-wal", 1, is_shadowed=True),
        Point("loop", "write", "socket", 1),
        Point("store", "pwrite64", "store.db", 2),
        Point("store", "write", "anon_inode", 1, is_shadowed=True),
    ]


def test_some_points_are_chosen_evenly_and_the_first_of_each_sort() -> None:
    many = [Point("store", "pwrite64", "store.db-wal", count) for count in range(1, 101)]
    rare = Point("loop", "link", "host.key.new", 1)
    chosen = choose([*many, rare], 12)
    assert rare in chosen
    assert many[0] in chosen
    assert 10 <= len(chosen) <= 14
    assert choose([*many, rare], None) == [*many, rare]
