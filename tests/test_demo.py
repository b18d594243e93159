"""The demo, run in its fastest form below an agent CLI, and its transcript against the store.

The store is asked through `mbx` itself, by a daemon that is started again on what the demo left.
"""

import json
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import Any

import pytest

from scripts.closedstore import audit_store
from scripts.demostage import Stage, Transcript
from scripts.demostory import Differences, compare
from tests.support.rules import ROOT
from tests.support.shells import bare_environment, look_alike

LIMIT_S = 180.0
PAGE = 200

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the demo needs pidfds")


def long(test: Callable[..., None]) -> Callable[..., None]:
    """Whichever test comes first waits for the demo."""
    limited: Callable[..., None] = pytest.mark.long(pytest.mark.timeout(LIMIT_S)(test))
    return limited


@dataclass(frozen=True)
class Shown:
    """A demo that ended: what it said and wrote, and what its store says afterwards."""

    status: int
    output: str
    transcript: dict[str, Any]
    home: Path
    state_hash: str
    identities: dict[str, dict[str, Any]]
    sent_by_ana: dict[str, dict[str, Any]]
    inbox_of_ben: list[dict[str, Any]]


def ask(home: Path, *words: str) -> Any:
    mbx = Path(sys.executable).with_name("mbx")
    done = subprocess.run(
        [mbx, *words, "--json"],
        env=bare_environment(MBX_HOME=str(home)),
        capture_output=True,
        check=True,
        timeout=LIMIT_S,
    )
    return json.loads(done.stdout)


def pages_as(home: Path, name: str, *words: str) -> list[dict[str, Any]]:
    """All messages of a listing, as `name`."""
    mbx = str(Path(sys.executable).with_name("mbx"))
    found: list[dict[str, Any]] = []
    cursor: list[str] = []
    while True:
        listing = [mbx, *words, "--limit", str(PAGE), *cursor, "--json"]
        page = ask(home, "run", "--as", name, "--", *listing)
        found += page["messages"]
        if not page["has_more"]:
            return found
        cursor = ["--cursor", page["next_cursor"]]


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> Shown:
    folder = tmp_path_factory.mktemp("demo")
    home, written = folder / "home", folder / "transcript.json"
    # Not the last command of the shell: the harness stays above the demo.
    harness = look_alike(folder, "claude")
    command = f'"$0" scripts/demo.py --fast --home {home} --json {written}; exit $?'
    done = subprocess.run(
        [harness, "-c", command, sys.executable],
        cwd=ROOT,
        env=bare_environment(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=LIMIT_S,
    )
    assert written.exists(), done.stdout + done.stderr
    ask(home, "daemon", "start")
    try:
        return Shown(
            status=done.returncode,
            output=done.stdout + done.stderr,
            transcript=json.loads(written.read_bytes()),
            home=home,
            state_hash=ask(home, "daemon", "status", "--hash")["state_hash"],
            identities={one["name"]: one for one in ask(home, "identity", "list")["identities"]},
            sent_by_ana={one["id"]: one for one in pages_as(home, "ana", "sent")},
            inbox_of_ben=pages_as(home, "ben", "inbox", "--all"),
        )
    finally:
        ask(home, "daemon", "stop")


@long
def test_every_claim_of_the_demo_holds_below_an_agent_cli(shown: Shown) -> None:
    assert shown.status == 0, shown.output
    assert shown.transcript["held"] is True
    assert all(claim["held"] for claim in shown.transcript["claims"])
    assert shown.output.rstrip().splitlines()[-1].startswith("PROVED: ")
    assert "\x1b" not in shown.output, "colours are for terminals"


@long
def test_the_transcript_describes_the_store_as_the_demo_left_it(shown: Shown) -> None:
    closed = shown.transcript["closed"]
    assert shown.state_hash == closed["state_hash"]
    told = {one["agent"]: one for one in shown.transcript["identities"]}
    assert told.keys() == shown.identities.keys() == {"ana", "ben"}
    for name, one in told.items():
        stored = shown.identities[name]
        assert (one["identity"], one["role"]) == (stored["identity"], stored["role"])
        assert one["session"]["cli"] == "shell", "the harness above must not count"
        assert one["session"]["id"].startswith(f"{one['pid']}-")


@long
def test_the_stages_that_the_sender_saw_are_those_of_the_store(shown: Shown) -> None:
    request, reply = shown.transcript["messages"]
    assert request["stages"] == ["delivered", "read", "acked"]
    [copy] = shown.sent_by_ana[request["id"]]["recipients"]
    assert (copy["stage"], copy["did"]) == ("acked", request["did"])
    [received] = [one for one in shown.inbox_of_ben if one["id"] == request["id"]]
    assert (received["subject"], received["stage"]) == (request["subject"], "acked")
    assert reply["reply_to"] == request["id"]


@long
def test_what_was_accepted_around_the_kill_is_in_the_store_once(shown: Shown) -> None:
    [kill] = shown.transcript["kills"]
    assert kill["signal"] == "SIGKILL"
    assert kill["pid"] != kill["pid_afterwards"]
    assert kill["unknown"], "a kill that interrupts nothing proves nothing"
    [request, _] = shown.transcript["messages"]
    others = (request["id"], shown.transcript["owner"]["message"])
    arrived = [one for one in shown.inbox_of_ben if one["id"] not in others]
    assert compare([kill], arrived) == Differences([], [], [], [])
    keys = {one["id"]: one["subject"] for one in shown.sent_by_ana.values()}
    pairs = {**kill["accepted"], **kill["repeated"]}
    assert {keys[message_id]: message_id for message_id in pairs.values()} == pairs


@long
def test_the_bare_shell_was_refused_and_nothing_changed(shown: Shown) -> None:
    refusal = shown.transcript["refusal"]
    assert refusal["state_hash_before"] == refusal["state_hash_after"]
    verdicts = {one["command"].split()[1]: one for one in refusal["attempts"]}
    claim = verdicts.pop("identity")
    assert (claim["code"], claim["exit"]) == ("in-use", 1)
    assert verdicts.keys() == {"inbox", "read", "send", "reply", "ack", "sent"}
    assert {(one["code"], one["exit"]) for one in verdicts.values()} == {("no-lease", 5)}


@long
def test_mail_to_the_other_machine_is_in_the_store_with_what_its_receipts_said(
    shown: Shown,
) -> None:
    hosts = shown.transcript["hosts"]
    address = f"dora@{hosts['label']}"
    [copy] = shown.sent_by_ana[hosts["request"]]["recipients"]
    assert (copy["address"], copy["stage"], copy["outcome"], copy["did"]) == (
        address,
        "acked",
        "acted",
        hosts["did"],
    )
    kill = hosts["kill"]
    sent = {*kill["accepted"].values(), *kill["repeated"].values()}
    assert len(sent) >= 150
    copies = [copy for one in sent for copy in shown.sent_by_ana[one]["recipients"]]
    assert {(copy["address"], copy["stage"]) for copy in copies} == {(address, "delivered")}
    assert len({*hosts["killed"], *hosts["keys"]}) == 4, "two daemons of two hosts"
    assert hosts["closed"]["messages"] == len(sent) + 3, "beside them request, reply and notice"


@long
def test_a_record_that_was_changed_is_found_in_the_closed_store(
    shown: Shown, tmp_path: Path
) -> None:
    copy = tmp_path / "store.db"
    shutil.copyfile(shown.home / "store.db", copy)
    assert audit_store(copy).faults == []
    with sqlite3.connect(copy) as connection:
        connection.execute(
            "UPDATE messages SET payload = replace(payload, 'API', 'ATM')"
            " WHERE no = (SELECT min(no) FROM messages)"
        )
        connection.execute("UPDATE audit SET act = 'nothing' WHERE no = 2")
    connection.close()
    faults = " ".join(audit_store(copy).faults)
    assert "wrong signature" in faults
    assert "the audit chain breaks at row 2" in faults


KILL: dict[str, Any] = {
    "accepted": {"k1": "id1"},
    "unknown": ["k2"],
    "repeated": {"k2": "id2"},
}
ARRIVED = [{"id": "id1", "subject": "k1"}, {"id": "id2", "subject": "k2"}]


@pytest.mark.parametrize(
    ("kills", "arrived", "wrong"),
    [
        ([KILL], ARRIVED[1:], Differences(["id1"], [], [], [])),
        ([KILL], ARRIVED[:1], Differences([], ["k2"], [], [])),
        ([{**KILL, "repeated": {}}], ARRIVED[:1], Differences([], ["k2"], [], [])),
        ([KILL], [*ARRIVED, {"id": "id3", "subject": "k2"}], Differences([], [], ["k2"], ["id3"])),
        ([KILL], [*ARRIVED, {"id": "id3", "subject": "k3"}], Differences([], [], [], ["id3"])),
        ([KILL], ARRIVED, Differences([], [], [], [])),
    ],
    ids=["lost", "missing", "never repeated", "doubled", "invented", "right"],
)
def test_the_comparison_of_told_and_arrived_finds_what_is_wrong(
    kills: list[dict[str, Any]], arrived: list[dict[str, Any]], wrong: Differences
) -> None:
    assert compare(kills, arrived) == wrong


def test_one_claim_that_does_not_hold_makes_the_verdict() -> None:
    transcript, out = Transcript(), StringIO()
    assert not transcript.held(), "nothing claimed is nothing proved"
    transcript.claim("water is wet", True, "")
    assert transcript.held()
    transcript.claim("the moon is cheese", False, "rock")
    assert not transcript.document()["held"]
    Stage(out, 0.0).verdict(transcript.held(), transcript.counts())
    assert out.getvalue().endswith("NOT PROVED: 1 of 2 claims held\n")


def test_the_demo_leaves_a_store_that_is_in_use_alone(tmp_path: Path) -> None:
    ask(tmp_path, "daemon", "start")
    before = ask(tmp_path, "daemon", "status", "--hash")
    done = subprocess.run(
        [sys.executable, "scripts/demo.py", "--home", str(tmp_path)],
        cwd=ROOT,
        env=bare_environment(),
        capture_output=True,
        text=True,
        check=False,
        timeout=15,
    )
    after = ask(tmp_path, "daemon", "status", "--hash")
    ask(tmp_path, "daemon", "stop")
    assert done.returncode == 2
    assert "not empty" in done.stderr
    assert [after[field] for field in ("pid", "state_hash")] == [
        before[field] for field in ("pid", "state_hash")
    ]
