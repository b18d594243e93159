"""Accepted means on the disk, and stored once: kills, stops, a full disk, order of syscalls."""

import contextlib
import itertools
import random
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.daemon import Daemon, Line, RefusedError, fresh_home, fresh_name, request
from tests.support.load import Load

pytestmark = [pytest.mark.long, pytest.mark.timeout(120)]

KILLS = 30
SEED = 4_711
BODY = "x" * 100_000


@pytest.fixture
def home() -> Iterator[Path]:
    with fresh_home() as folder:
        yield folder


# -- kills and stops under load -------------------------------------------------------------------


@pytest.mark.timeout(300)
def test_thirty_kills_under_eight_clients_lose_nothing_and_double_nothing(
    home: Path,
) -> None:
    chance = random.Random(SEED)
    with Daemon(home) as daemon, Load(daemon) as load:
        for kill in itertools.count(1):  # thirty, and until one fell between commit and answer
            load.wait_for(chance.randrange(1, 40))
            load.while_down(daemon.kill)
            if kill >= KILLS and (load.duplicates or kill >= 3 * KILLS):
                break
        load.wait_for(8)
        load.finish()
        stored = load.check_once()
    sys.stdout.write(
        f"seed {SEED}: {kill} kills, {stored} accepted and stored once,"
        f" {load.repeats} outcomes unknown, {load.duplicates} of them accepted before\n"
    )
    assert load.repeats >= KILLS, "the kills hit no request: this run has shown nothing"
    assert load.duplicates > 0, "no kill fell between commit and answer"


def test_stops_under_eight_clients_end_well_and_lose_nothing(home: Path) -> None:
    chance = random.Random(SEED)
    with Daemon(home) as daemon, Load(daemon) as load:

        def stop() -> None:
            with daemon.line() as line:
                line.hello()
                line.call("daemon.stop")
            assert daemon.wait() == 0

        for _ in range(5):
            load.wait_for(chance.randrange(8, 80))
            load.while_down(stop)
        load.wait_for(8)
        load.finish()
        assert load.check_once() > 40


# -- a full disk ----------------------------------------------------------------------------------


@contextlib.contextmanager
def small_disk(home: Path, size: str) -> Iterator[None]:
    options = f"size={size},mode=0700"
    mount = ["mount", "-t", "tmpfs", "-o", options, "mbx-test", str(home)]
    if subprocess.run(mount, capture_output=True, check=False).returncode != 0:
        pytest.skip("no file system can be mounted here")
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(home)], check=True)


def fill(home: Path) -> None:
    """Take what is left of the disk."""
    with (home / "rest").open("wb", buffering=0) as rest, contextlib.suppress(OSError):
        while True:
            rest.write(bytes(4_096))


def send_until_full(line: Line, name: str) -> list[str]:
    """The ids of the messages that were accepted before one was refused."""
    accepted: list[str] = []
    while len(accepted) < 200:
        params = {"to": [name], "subject": "s", "body": BODY, "key": f"k{len(accepted)}"}
        try:
            accepted.append(line.call("mail.send", **params)["id"])
        except RefusedError as refused:
            if refused.code != "disk-full" or not refused.data["next"]:
                raise
            return accepted
    raise AssertionError("the disk never fills")


def ack_until_full(line: Line, ids: list[str]) -> int:
    """How many small changes found a last corner before one was refused."""
    for count, one in enumerate(ids):
        try:
            line.call("mail.ack", ids=[one])
        except RefusedError as refused:
            if refused.code != "disk-full":
                raise
            return count
    raise AssertionError("there is always room for an ack")


def listed(line: Line) -> list[str]:
    messages = line.call("mail.inbox", limit=200, all=True)["messages"]
    return [one["id"] for one in messages]


@pytest.mark.root
def test_on_a_full_disk_mail_is_refused_reading_goes_on_and_it_recovers_by_itself(
    home: Path,
) -> None:
    with small_disk(home, "20m"):
        (home / "ballast").write_bytes(bytes(10 * 1024 * 1024))
        with Daemon(home) as daemon, daemon.agent() as agent:
            name = fresh_name()
            with agent.registered(name) as line:
                accepted = send_until_full(line, name)
                fill(home)
                acked = ack_until_full(line, accepted)
                refused = line.refusal(
                    "mail.send", to=[name], subject="s", body=BODY, key=f"k{len(accepted)}"
                )
                assert refused["code"] == "disk-full"
                assert listed(line) == accepted
                assert line.call("session.whoami")["agent"] == name
                read = line.call("mail.read", ids=[accepted[-1]])
                assert read["messages"][0]["body"] == BODY
                assert "could not be marked read" in read["warnings"][0]
                assert line.call("mail.inbox")["unread"] == len(accepted) - acked
                for file in ("ballast", "rest"):
                    (home / file).unlink()
                sent = line.call(
                    "mail.send", to=[name], subject="s", body=BODY, key=f"k{len(accepted)}"
                )
                assert sent["duplicate"] is False
                assert "warnings" not in line.call("mail.read", ids=[accepted[-1]])
            daemon.kill()
            daemon.start()
            with agent.connect() as line:
                assert listed(line) == [*accepted, sent["id"]]


# -- sync, then speak -----------------------------------------------------------------------------

STRACE = shutil.which("strace")
CALLS = "trace=pwrite64,fdatasync,fsync,sendto,sendmsg,write,writev"
WEAKENED = (
    "import sys, mbx.store.database as database; "
    "database.PRAGMAS = tuple(('PRAGMA synchronous = NORMAL', question, 1)"
    " if 'synchronous' in question else (statement, question, wanted)"
    " for statement, question, wanted in database.PRAGMAS); "
    "from mbx.daemon.__main__ import main; sys.exit(main(sys.argv[1:]))"
)
"""The control: replaced in the process that the test starts; mbx has no such option."""


def traced_sends(home: Path, python: tuple[str, ...], count: int) -> list[str]:
    """The system calls of a daemon that accepted `count` sends with the ids probe-N."""
    assert STRACE is not None
    trace = home / "trace"
    prefix = (STRACE, "-f", "-y", "-s", "4096", "-e", CALLS, "-o", str(trace))
    with Daemon(home, prefix=prefix, python=python) as daemon, daemon.agent() as agent:
        with agent.registered("anna") as line:
            for number in range(count):
                probe = request(f"probe-{number}", "mail.send", to="anna", subject="s", body="b")
                assert "result" in line.ask(probe)
        daemon.stop()
    return trace.read_text(errors="replace").splitlines()


def order_of(lines: list[str], probe: str) -> list[str]:
    """What happened between the answer before and the answer to `probe`: W(rite), S(ync), A(nswer).

    A sync counts where it has returned, a write and an answer where they begin.
    """
    events: list[str] = []
    syncing: set[str] = set()
    for line in lines:
        thread, _, call = line.partition(" ")
        call = call.strip()
        if re.match(r"(sendto|sendmsg|write|writev)\(.*jsonrpc.*\\\"id\\\":", call):
            if f'\\"{probe}\\"' in call:
                return [*events, "A"]
            events = []
        elif call.startswith("pwrite64(") and "store.db-wal>" in call:
            events.append("W")
        elif call.startswith(("fdatasync(", "fsync(")) and "store.db-wal>" in call:
            if call.endswith("= 0"):
                events.append("S")
            else:
                syncing.add(thread)
        elif "fdatasync resumed" in call and thread in syncing and call.endswith("= 0"):
            syncing.discard(thread)
            events.append("S")
    raise AssertionError(f"no answer to {probe} in {len(lines)} lines")


def is_durable(events: list[str]) -> bool:
    """Written, then synced after the last write, then answered."""
    return "W" in events and re.fullmatch("[WS]*W+S+A", "".join(events)) is not None


@pytest.mark.skipif(STRACE is None, reason="strace is not installed")
def test_the_log_is_synced_between_its_write_and_the_answer(home: Path) -> None:
    lines = traced_sends(home, ("-I", "-m", "mbx.daemon"), 5)
    for number in range(5):
        events = order_of(lines, f"probe-{number}")
        assert is_durable(events), events


@pytest.mark.skipif(STRACE is None, reason="strace is not installed")
def test_with_the_setting_weakened_the_same_check_fails(home: Path) -> None:
    lines = traced_sends(home, ("-I", "-c", WEAKENED), 5)
    verdicts = [is_durable(order_of(lines, f"probe-{number}")) for number in range(5)]
    assert verdicts == [False] * 5
