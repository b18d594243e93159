"""The worker that writes snapshots: what it hears of, how often it writes, how much it keeps."""

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from mbx.core.errors import MbxError
from mbx.core.evidence import Process, own_id
from mbx.core.limits import SNAPSHOT_ROWS_MAX, SNAPSHOTS_MAX
from mbx.core.snapshot import FRESH, SAID, Snapshot, parse, told_name
from mbx.daemon.context import Answer
from mbx.daemon.dispatch import Work
from mbx.daemon.effects import Arrived, Ended, Granted, Handled, Relabelled, Renamed, Waiting
from mbx.daemon.holders import Target
from mbx.daemon.snapshotfiles import SnapshotFiles
from mbx.daemon.workers.snapshots import Snapshots, _Fact, _marked, _Session
from mbx.paths import Paths, make_folder, session_name
from mbx.store.database import Committed, Outcome, Refused
from mbx.store.sessions import SessionRow
from mbx.store.unread import Unread
from mbx.telling import mention, tell
from tests.support.patience import LOOKS_S

BOOT = "boot"


def process(number: int) -> Process:
    return Process(number, number * 10, BOOT)


class Store:
    """Answers what the worker reads: one fact for all sessions; or refuses, or keeps it waiting."""

    def __init__(self) -> None:
        self.fact = _Fact("ana")
        self.readings = 0
        self.read = asyncio.Event()
        self.is_refusing = False
        self.is_silent = False

    def submit(self, work: Work, done: Callable[[Outcome[Answer]], None]) -> None:
        assert not work.writes
        self.readings += 1
        self.read.set()
        if self.is_refusing:
            done(Refused(MbxError("store-damaged", "a page cannot be read")))
        elif not self.is_silent:
            done(Committed(Answer({"facts": [self.fact] * 16}), 1))


class Bench:
    """A worker over a folder of its own."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(mode=0o700)
        self.paths = Paths.from_environ({"MBX_HOME": str(folder)})
        make_folder(self.paths.run_dir())
        self.store = Store()
        self.said: list[str] = []
        self.announced: asyncio.Queue[tuple[Target, list[int]]] = asyncio.Queue()
        self.worker = self.started()

    def started(self) -> Snapshots:
        """A worker, as a daemon that starts makes one."""
        files = SnapshotFiles(self.paths)
        return Snapshots(
            files,
            self.store.submit,
            lambda words, **_: self.said.append(words),
            announced=lambda target, nos: self.announced.put_nowait((target, sorted(nos))),
        )

    @property
    def folder(self) -> Path:
        return Path(self.paths.snapshots_dir())

    def files(self) -> set[str]:
        return {path.name for path in self.folder.iterdir()} - {FRESH, SAID}

    def shown(self, name: str) -> Snapshot:
        read = parse((self.folder / name).read_text())
        assert read is not None
        return read

    def hook_says(self, number: int, mark: int) -> None:
        """A hook of the session of this process announces all up to a mark, and tells so."""
        own = own_id(process(number))
        assert tell(str(self.folder / told_name(own)), mark, lambda told: True)
        mention(str(self.folder / SAID), own)

    async def settle(self) -> None:
        """Until the worker has read and written what it heard of."""
        self.store.read.clear()
        await asyncio.wait_for(self.store.read.wait(), LOOKS_S)
        for _ in range(5):
            await asyncio.sleep(0)


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    made = Bench(tmp_path / "home")
    serving = asyncio.create_task(made.worker.serve())
    await asyncio.sleep(0)
    yield made
    serving.cancel()
    with suppress(asyncio.CancelledError):
        await serving


def granted(
    number: int, called: str = "conv", conversation: str = "", identity: int = 7
) -> Granted:
    return Granted(
        number, process(number), conversation, "claude", called, identity, "id", "ana", 3, "token"
    )


def unread(*numbers: int) -> _Fact:
    return _Fact("ana", len(numbers), tuple(Unread(number, True, "ben") for number in numbers))


async def test_a_session_has_its_file_its_name_and_loses_both_at_its_end(bench: Bench) -> None:
    bench.worker.heed(granted(5))
    await bench.settle()
    own, name = own_id(process(5)), session_name("claude", "conv")
    assert bench.files() == {own, name}
    assert (bench.folder / own).readlink() == Path(name)
    assert bench.shown(own).status_line() == "mbx ana"
    assert (bench.folder / name).stat().st_mode & 0o777 == 0o600
    bench.worker.heed(Ended(5, process(5), "", "claude", "conv", 7, 3))
    assert bench.files() == set()


async def test_what_happens_together_is_one_reading_and_nothing_new_is_no_write(
    bench: Bench,
) -> None:
    bench.worker.heed(granted(5))
    await bench.settle()
    file = bench.folder / session_name("claude", "conv")
    first, readings = file.stat().st_ino, bench.store.readings
    for _ in range(100):
        bench.worker.heed(Handled(7))
        bench.worker.heed(Handled(8))
    await bench.settle()
    assert bench.store.readings == readings + 1
    assert file.stat().st_ino == first


async def test_it_hears_of_arrivals_reading_and_other_names(bench: Bench) -> None:
    bench.worker.heed(granted(5))
    await bench.settle()
    own = own_id(process(5))
    for effect, fact in (
        (Arrived((7, 9)), unread(4)),
        (Handled(7), _Fact("ana")),
        (Renamed(7, "anna"), _Fact("anna")),
    ):
        bench.store.fact = fact
        bench.worker.heed(effect)
        await bench.settle()
        assert (bench.shown(own).name, bench.shown(own).unread) == (fact.name, fact.unread)


async def test_what_a_wake_announced_is_unread_and_no_news(bench: Bench) -> None:
    bench.store.fact = unread(4)
    bench.worker.heed(granted(5))
    await bench.settle()
    bench.store.fact = _Fact("ana", 1)  # no row: it is notified
    bench.worker.heed(Handled(7))
    await bench.settle()
    shown = bench.shown(own_id(process(5)))
    assert (shown.status_line(), shown.news(0), shown.stop(0)) == ("mbx ana: 1 unread", "", "")


def target() -> Target:
    """Who is granted by `granted(5)`."""
    return Target(7, 3, 5, "claude", "conv", process(5), "")


async def test_a_wake_leaves_out_what_a_hook_said_and_nothing_else(bench: Bench) -> None:
    bench.store.fact = unread(4, 5)
    bench.worker.heed(granted(5))
    await bench.settle()
    told = bench.folder / f"{own_id(process(5))}.told"
    for mark, untold in (("", {4, 5}), ("1 0 0\n", {5}), ("2 0 0\n", set())):
        told.write_text(mark)
        assert await bench.worker.untold(target(), [4, 5]) == untold


async def test_mail_that_is_not_shown_yet_was_announced_by_nobody(bench: Bench) -> None:
    bench.store.fact = unread(4)
    bench.worker.heed(granted(5))
    await bench.settle()
    (bench.folder / f"{own_id(process(5))}.told").write_text("1 0 0\n")
    bench.store.is_silent = True  # the reading hangs: what is shown stays old
    bench.worker.heed(Arrived((7,)))
    assert await bench.worker.untold(target(), [4, 9]) == {9}


async def test_where_nothing_is_shown_nothing_was_announced(bench: Bench) -> None:
    bench.worker.heed(granted(5))
    await bench.settle()
    assert bench.shown(own_id(process(5))).newest == 0
    assert await bench.worker.untold(target(), [9]) == {9}


async def test_what_a_hook_announced_is_passed_on_at_once_and_once(bench: Bench) -> None:
    bench.store.fact = unread(11, 12)
    bench.worker.heed(granted(5))
    await bench.settle()
    bench.hook_says(5, 1)
    target, nos = await asyncio.wait_for(bench.announced.get(), LOOKS_S)
    assert (target.identity_no, target.epoch, target.session_no, nos) == (7, 3, 5, [11])
    mention(str(bench.folder / SAID), own_id(process(5)))
    bench.hook_says(5, 2)
    assert (await asyncio.wait_for(bench.announced.get(), LOOKS_S))[1] == [11, 12]
    assert bench.announced.empty()


async def test_what_was_announced_is_looked_for_from_time_to_time(bench: Bench) -> None:
    """Who announced it may have been killed, or the store may have refused it."""
    bench.store.fact = unread(11)
    bench.worker.heed(granted(5))
    await bench.settle()
    assert tell(str(bench.folder / told_name(own_id(process(5)))), 1, lambda told: True)
    for _ in range(2):
        bench.worker._look_what_was_told()
        assert (await asyncio.wait_for(bench.announced.get(), LOOKS_S))[1] == [11]


async def test_what_a_wake_is_telling_of_no_hook_announced(bench: Bench) -> None:
    bench.store.fact = unread(11)
    bench.worker.heed(granted(5))
    await bench.settle()
    target = Target(7, 3, 5, "claude", "conv", process(5), "")
    announced = bench.worker.announce(target, [11])
    assert announced is not None
    bench.worker._look_what_was_told()
    assert bench.announced.empty()
    bench.worker.take_back(announced)
    bench.hook_says(5, 1)
    assert (await asyncio.wait_for(bench.announced.get(), LOOKS_S))[1] == [11]


async def test_a_wake_that_arrived_told_of_all_that_it_counted(bench: Bench) -> None:
    bench.store.fact = unread(11, 12)
    bench.worker.heed(granted(5))
    await bench.settle()
    announced = bench.worker.announce(Target(7, 3, 5, "claude", "conv", process(5), ""), [12])
    assert announced is not None
    bench.worker._look_what_was_told()
    assert bench.announced.empty()
    bench.worker.keep(announced)
    assert (await asyncio.wait_for(bench.announced.get(), LOOKS_S))[1] == [11, 12]


async def test_who_is_not_known_or_says_anything_is_heard_in_vain(bench: Bench) -> None:
    bench.store.fact = unread(11)
    bench.worker.heed(granted(5))
    await bench.settle()
    for own in ("6-60", "", "\n\n", "x" * 5_000, own_id(process(5))):
        mention(str(bench.folder / SAID), own)
    bench.hook_says(5, 1)
    assert (await asyncio.wait_for(bench.announced.get(), LOOKS_S))[1] == [11]


@pytest.mark.parametrize("other", ["file", "folder", "pipe"])
async def test_something_else_in_the_place_of_the_pipe_hurts_nobody(
    tmp_path: Path, other: str
) -> None:
    bench = Bench(tmp_path / "home")
    place = bench.folder / SAID
    if other == "folder":
        place.mkdir()
    elif other == "pipe":
        os.mkfifo(place)
    else:
        place.touch()
    serving = asyncio.create_task(bench.worker.serve())
    bench.store.fact = unread(11)
    bench.worker.heed(granted(5))
    await bench.settle()
    bench.hook_says(5, 1)
    if other == "folder":
        assert bench.said == ["nobody can name a session that was told something"]
        bench.worker._look_what_was_told()
    assert (await asyncio.wait_for(bench.announced.get(), LOOKS_S))[1] == [11]
    serving.cancel()
    with suppress(asyncio.CancelledError):
        await serving


async def test_a_reading_that_the_store_refused_is_made_again(bench: Bench) -> None:
    bench.worker.heed(granted(5))
    await bench.settle()
    bench.store.fact = unread(4)
    bench.store.is_refusing = True
    bench.worker.heed(Arrived((7,)))
    await bench.settle()
    bench.store.is_refusing = False
    await bench.settle()
    assert bench.shown(own_id(process(5))).unread == 1


async def test_who_waits_is_shown_as_waiting_until_it_is_granted(bench: Bench) -> None:
    bench.worker.heed(Waiting(5, process(5), "", "claude", "conv"))
    await bench.settle()
    own = own_id(process(5))
    assert bench.shown(own).status_line() == "mbx: waits for ana"
    bench.worker.heed(granted(5))
    await bench.settle()
    assert bench.shown(own).status_line() == "mbx ana"


async def test_a_displaced_session_has_nothing_left_to_show(bench: Bench) -> None:
    bench.worker.heed(granted(5, "one"))
    await bench.settle()
    bench.worker.heed(granted(6, "two"))
    await bench.settle()
    assert bench.files() == {own_id(process(6)), session_name("claude", "two")}
    bench.store.fact = _Fact(None)  # its lease has ended, and nobody said so
    bench.worker.heed(Handled(7))
    await bench.settle()
    assert bench.files() == set()


async def test_what_waits_is_new_to_who_gets_it_whatever_was_told_in_its_process(
    bench: Bench,
) -> None:
    own = own_id(process(5))
    (bench.folder / f"{own}.told").write_text("9 0 0\n")
    bench.store.fact = unread(4)
    bench.worker.heed(granted(5))
    await bench.settle()
    assert bench.shown(own).news(9) != ""
    bench.worker.heed(granted(5, identity=8))  # another identity, with older mail
    bench.store.fact = unread(3)
    await bench.settle()
    assert bench.shown(own).news(10) != ""


async def test_another_label_moves_the_file_and_keeps_what_was_told(bench: Bench) -> None:
    bench.store.fact = unread(4)
    bench.worker.heed(granted(5, "one"))
    await bench.settle()
    own = own_id(process(5))
    (bench.folder / f"{own}.told").write_text("1 0 0\n")
    bench.worker.heed(Relabelled(process(5), "claude", "one", "two", "two"))
    await bench.settle()
    assert bench.files() == {own, f"{own}.told", session_name("claude", "two")}
    assert (bench.shown(own).called, bench.shown(own).newest) == ("two", 1)


async def test_conversations_of_one_process_have_files_and_the_process_says_only_whether(
    bench: Bench,
) -> None:
    bench.store.fact = unread(4)
    bench.worker.heed(granted(5, "one", "one", 7))
    bench.worker.heed(granted(5, "two", "two", 8))
    await bench.settle()
    own = own_id(process(5))
    names = {session_name("claude", "one"), session_name("claude", "two")}
    assert bench.files() == {own, *names}
    of_process = bench.shown(own)
    assert (of_process.state, of_process.name, of_process.newest) == ("shared", "-", 1)
    assert of_process.status_line() == ""
    for called, identity in (("one", 7), ("two", 8)):
        bench.worker.heed(Ended(5, process(5), called, "claude", called, identity, 3))
    assert bench.files() == set()


async def test_a_daemon_that_starts_again_goes_on_with_the_marks_and_removes_the_rest(
    bench: Bench,
) -> None:
    bench.store.fact = unread(4, 2)
    bench.worker.heed(granted(5))
    await bench.settle()
    own, name = own_id(process(5)), session_name("claude", "conv")
    told = bench.folder / f"{own}.told"
    told.write_text("2 0 0\n")
    for stale in ("77-1", "77-1.told", "x.new", "f" * 64):
        (bench.folder / stale).write_text("x")
    (bench.folder / "slow").write_text("4\n")
    again = bench.started()
    again.heed(granted(5))
    bench.store.fact = unread(4, 2, 9)
    serving = asyncio.create_task(again.serve())
    await bench.settle()
    assert {row.no: row.mark for row in bench.shown(own).rows} == {4: 1, 2: 2, 9: 3}
    assert bench.files() == {own, name, f"{own}.told", "slow"}
    serving.cancel()
    with suppress(asyncio.CancelledError):
        await serving
    assert not (bench.folder / "fresh").exists()


@pytest.mark.parametrize("told", ["9 0 0\n", "", "x\n", "-3\n", "9" * 30])
async def test_after_a_start_what_comes_is_later_than_what_was_announced_and_read(
    tmp_path: Path, told: str
) -> None:
    bench = Bench(tmp_path / "home")
    bench.worker.restore(SessionRow(5, "claude", "conv", "", process(5), 7, 3))
    (bench.folder / f"{own_id(process(5))}.told").write_text(told)
    bench.store.fact = unread(4)
    serving = asyncio.create_task(bench.worker.serve())
    await bench.settle()
    assert bench.shown(own_id(process(5))).newest == (10 if told.startswith("9 ") else 1)
    serving.cancel()
    with suppress(asyncio.CancelledError):
        await serving


async def test_a_lost_folder_costs_snapshots_and_one_line_in_the_log(bench: Bench) -> None:
    bench.worker.heed(granted(5))
    await bench.settle()
    bench.folder.rename(bench.folder.with_name("elsewhere"))
    bench.store.fact = unread(4)
    for _ in range(3):
        bench.worker.heed(Handled(7))
        await bench.settle()
    assert bench.said == ["a snapshot could not be written"]
    bench.folder.with_name("elsewhere").rename(bench.folder)
    bench.worker.heed(Handled(7))
    await bench.settle()
    assert bench.shown(own_id(process(5))).unread == 1


@pytest.mark.parametrize("extra", [-1, 0, 1])
async def test_sessions_beyond_the_limit_are_not_written_for(tmp_path: Path, extra: int) -> None:
    bench = Bench(tmp_path / "home")
    for number in range(1, SNAPSHOTS_MAX + extra + 1):
        bench.worker.heed(Waiting(number, process(number), "", "claude", f"c{number}"))
    assert len(bench.worker) == SNAPSHOTS_MAX + min(extra, 0)


def session() -> _Session:
    return _Session(1, process(1), "", "claude", "conv", "conv", 7, 3)


@pytest.mark.parametrize("count", [SNAPSHOT_ROWS_MAX - 1, SNAPSHOT_ROWS_MAX])
def test_marks_go_by_arrival_and_not_by_age(count: int) -> None:
    one = session()
    numbers = list(range(100, 100 + count - 1))
    _marked(one, unread(*numbers))
    rows = _marked(one, unread(3, *numbers))  # forwarded: it is older than all that is there
    assert (rows[0].no, rows[0].mark, one.mark) == (3, count, count)
    assert [row.mark for row in rows[1:]] == list(range(1, count))


def test_an_arrival_beyond_the_rows_is_news_all_the_same() -> None:
    one = session()
    many: Any = unread(*range(SNAPSHOT_ROWS_MAX))._replace(unread=SNAPSHOT_ROWS_MAX + 1)
    _marked(one, many)
    before = one.mark
    one.has_arrival = True
    _marked(one, many)
    assert one.mark == before + 1
    _marked(one, many)
    assert one.mark == before + 1
