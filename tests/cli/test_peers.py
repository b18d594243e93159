"""`mbx peers …` by a human at a terminal, a real daemon; paired hosts are rows in its store."""

import json
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from mbx.cli.commands.peers import about, link_words
from mbx.cli.commands.status import peers_words
from mbx.core.errors import EXIT_STATUS
from mbx.core.keys import SigningKey, crockford, key_id
from mbx.core.record import Sealed
from mbx.store import hosts, outbox, owners, peers
from mbx.store.database import Tx
from mbx.store.peers import NewPeer
from tests.cli.conftest import Desk, document
from tests.cli.owners import PASSPHRASE, SEED, Human, refused
from tests.cli.test_completion import offered
from tests.support.hosts import do, until
from tests.support.paired import peer_record

LAP = SigningKey.from_seed(b"lap".ljust(32, b"!"))
PI = SigningKey.from_seed(b"pi".ljust(32, b"!"))
HOUR_MS = 3_600_000


def plant(tx: Tx, label: str, key: SigningKey, now_ms: int, owner: str | None = None) -> None:
    """A pairing with the owner's record, a name on that host, and an earlier link.

    `owner`: the key id of its owner, where that is the one here too.
    """
    host = hosts.find(tx)
    assert host is not None
    new = NewPeer(
        key_id("host", key.public),
        key.public,
        bytes(32),
        label,
        f"{label}-at-home",
        ("127.0.0.1:9",),
        owner,
        crockford(b"planted".ljust(32)),
        1,
    )
    no = peers.add(tx, new, now_ms)
    outbox.begin(tx, no, crockford(label.encode().ljust(32)))
    row = peers.by_no(tx, no)
    record = peer_record(row, SigningKey.from_seed(SEED), host.key_id, now_ms)
    owners.add(tx, record, None, now_ms, "{}", Sealed("acceptance", "{}", bytes(32), "", bytes(64)))
    where = {"label": label, "addresses": row.addresses}
    peers.change(tx, no, record_id=record.id, version=1, **where)  # type: ignore[arg-type]
    peers.seen(tx, no, now_ms)
    peers.save_identity(
        tx,
        no,
        crockford(f"{label} ben".encode().ljust(32)),
        name="ben",
        role="tester",
        description="",
        retired=False,
        now_ms=now_ms,
    )


@pytest.fixture(scope="module")
def owner(desk: Desk) -> Iterator[Human]:
    """Ana is here; lap is paired, and its network is not there."""
    human = Human(desk)
    human.enroll()
    desk.shell("ana")
    desk.run("daemon", "stop")
    do(desk.home, partial(plant, label="lap", key=LAP, now_ms=1_790_000_000_000))
    desk.run("daemon", "start")
    yield human
    human.shell.close()


def only(desk: Desk, label: str = "lap") -> dict[str, Any]:
    answer = json.loads(desk.run("peers", "list", "--all", "--json").stdout)
    [found] = [one for one in answer["peers"] if one["label"] == label]
    told: dict[str, Any] = found
    return told


def test_a_paired_host_is_listed_with_what_waits_for_it(desk: Desk, owner: Human) -> None:
    sent = desk.shell("ana").run("mbx send --to ben@lap --subject s -m b")
    assert sent.status == 0, sent.err
    one = only(desk)
    assert (one["state"], one["queued"], one["owner"]) == ("down", 1, "other")
    assert one["host"] == key_id("host", LAP.public)
    shell = desk.bare()
    plain = shell.run("mbx peers list").out
    assert plain.splitlines()[0].split() == ["HOST", "LINK", "SEEN", "WAITING", "OWNER", "ABOUT"]
    assert "lap" in plain
    assert "\nthis host: " in plain, "its TLS key is not there"
    assert plain.endswith("\nnext: mbx doctor\n")
    assert "\x1b" not in plain
    for columns in (40, 60, 80):
        lines = shell.run(f"COLUMNS={columns} mbx peers list").out.splitlines()
        assert max(map(len, lines[:2])) <= columns
    status = shell.run("mbx status").out
    assert "peers   1: lap down (seen " in status
    assert "1 message waits" in status
    agents = document(shell.run("mbx agents --host lap --json"))["agents"]
    assert [one["address"] for one in agents] == ["ben@lap"]
    assert "nobody like that" in shell.run("mbx agents --host nowhere").out


def test_one_host_is_shown_with_a_key_that_people_can_compare(desk: Desk, owner: Human) -> None:
    shell = desk.bare()
    told = shell.run("mbx peers show lap").out
    assert "lap, calls itself lap-at-home" in told
    assert "other (no power here)" in told
    key = document(shell.run("mbx peers show lap --json"))["host"]
    assert key == key_id("host", LAP.public)
    [shown] = [line for line in told.splitlines() if line.startswith("key id")]
    assert shown.removeprefix("key id").replace(" ", "") == key
    assert max(map(len, shown.split()[2:])) == 5
    assert "did you mean lap" in refused(shell.run("mbx peers show lab"), "not-paired")


def test_a_ping_without_a_link_says_so_and_fails(desk: Desk, owner: Human) -> None:
    done = desk.run("peers", "ping", "lap")
    assert done.returncode == 1
    assert done.stdout.startswith("no link to lap")
    assert done.stderr == ""
    told = json.loads(desk.run("peers", "ping", "lap", "--json").stdout)
    assert (told["up"], told["answers"], told["round_trip_ms"]) == (False, False, None)


def test_labels_are_completed(desk: Desk, owner: Human) -> None:
    shell = desk.bare()
    assert offered(shell, "peers show l") == ["lap"]
    assert offered(shell, "peers ''") == ["list", "show", "ping", "addr", "remove"]
    assert "lap" in offered(shell, "agents --host ''")


def test_addresses_and_label_change_by_the_owners_signature(desk: Desk, owner: Human) -> None:
    refused(desk.run("peers", "addr", "lap", "10.0.0.9"), "owner-required")
    refused(owner.run("mbx peers addr lap"), "usage")
    refused(owner.run("mbx peers addr lap http://lap"), "usage")
    owner.shell.start("mbx peers addr lap 127.0.0.1:10 --label laptop")
    shown = owner.agree()
    assert "lap is called laptop from now on" in " ".join(shown.split())
    owner.screen.answer("Passphrase:", "seven quiet otters")
    done = owner.shell.finish()
    assert done.status == 0, done.err
    assert "changed: laptop (was lap) is dialled at 127.0.0.1:10" in done.out
    assert only(desk, "laptop")["addresses"] == ["127.0.0.1:10"]
    assert owner.sign("mbx peers addr laptop --label lap").status == 0


def test_policies_go_to_the_hosts_that_have_the_owners_key(own_desk: Desk) -> None:
    human = Human(own_desk)
    try:
        human.enroll()
        own_desk.shell("ana")
        own_desk.run("daemon", "stop")
        signer = key_id("owner", SigningKey.from_seed(SEED).public)
        at_ms = 1_790_000_000_000
        do(own_desk.home, partial(plant, label="lap", key=LAP, now_ms=at_ms, owner=signer))
        do(own_desk.home, partial(plant, label="pi", key=PI, now_ms=at_ms))
        own_desk.run("daemon", "start")
        command = "mbx policy set ben@lap,ana --level collaborate --from ana,host:pi,ben@lap"
        human.shell.start(command)
        shown = " ".join(human.agree().split())
        for words in ('to[1].label: "lap"', 'to[1].name: "ben"', 'from[2].label: "pi"'):
            assert words in shown
        assert f"it goes to lap too ({key_id('host', LAP.public)})" in shown
        human.screen.answer("Passphrase:", PASSPHRASE)
        done = human.shell.finish()
        assert done.status == 0, done.err
        assert "may make ben@lap, ana do: read, edit" in done.out
        refusal = refused(human.run(command.replace("ben@lap,ana", "ben@pi")), "owner-required")
        assert "pi has another owner" in refusal
        policy = document(human.run("mbx policy list --to ben@lap --json"))["policies"][0]["id"]
        told = human.run(f"mbx policy show {policy}").out
        assert "to        ben@lap, ana" in told
        assert "signed on" in told
        assert only(own_desk)["signed_waiting"] == 1
        assert "lap does not have 1 record that you signed" in human.run("mbx doctor").out
        assert human.sign(f"mbx policy revoke {policy[:8]}").status == 0
        assert only(own_desk)["signed_waiting"] == 2
        assert only(own_desk, "pi")["signed_waiting"] == 0
    finally:
        human.shell.close()


def test_a_removal_is_signed_told_and_remembered(own_desk: Desk) -> None:
    human = Human(own_desk)
    try:
        human.enroll()
        ana = own_desk.shell("ana")
        own_desk.run("daemon", "stop")
        do(own_desk.home, partial(plant, label="lap", key=LAP, now_ms=1_790_000_000_000))
        own_desk.run("daemon", "start")
        letter = document(ana.run("mbx send --to ben@lap --subject s -m b --json"))["id"]
        own_desk.run("peers", "remove", "lap")
        assert only(own_desk)["state"] == "down"
        done = human.sign("mbx peers remove lap --reason 'sold'")
        assert done.status == 0, done.err
        assert "removed: lap" in done.out
        assert "1 message returns to its sender" in done.out
        assert "no paired hosts" in own_desk.run("peers", "list").stdout
        assert only(own_desk)["state"] == "removed"
        assert "returned" in ana.run(f"mbx sent {letter}").out
        assert "Returned: your message to ben@lap" in ana.run("mbx inbox").out
        late = ana.run("mbx send --to ben@lap --subject s -m b")
        assert "not paired with this host any more" in refused(late, "unknown-recipient")
        assert late.status == EXIT_STATUS["unknown-recipient"]
        assert "not paired" in refused(human.run("mbx peers remove lap"), "not-paired")
    finally:
        human.shell.close()


def test_a_return_that_was_interrupted_goes_on_at_the_next_start(own_desk: Desk) -> None:
    ana = own_desk.shell("ana")
    own_desk.run("daemon", "stop")
    do(own_desk.home, partial(plant, label="lap", key=LAP, now_ms=1_790_000_000_000))
    own_desk.run("daemon", "start")
    letter = document(ana.run("mbx send --to ben@lap --subject s -m b --json"))["id"]
    own_desk.run("daemon", "stop")
    do(own_desk.home, lambda tx: peers.end(tx, 1, "us", 1_790_000_000_000))
    own_desk.run("daemon", "start")

    def returned() -> bool:
        return "returned" in ana.run(f"mbx sent {letter}").out

    until(returned, "the mail comes back")
    assert ana.run("mbx inbox").out.count("Returned: your message to ben@lap") == 1


def test_all_hosts_are_told_on_one_line() -> None:
    now_ms, at = 10 * HOUR_MS, "1970-01-01T07:00:00.000Z"
    up = {"label": "tower", "state": "up", "link": {"since": at}, "queued": 0}
    down = {"label": "pi", "state": "down", "link": {}, "queued": 14, "last_seen": at}
    assert link_words(up, now_ms) == "up 3 h"
    assert link_words(up | {"state": "removed-us"}, now_ms) == "removed us"
    full = up | {"reason": "it is full", "link": {"refused_since": at}}
    assert about(full, now_ms) == "it is full (for 3 h)"
    assert about(up | {"reason": None}, now_ms) == "-"
    words = peers_words([up, down], now_ms)
    assert words == "2: pi down (seen 3 h ago), tower up 3 h, 14 messages wait"
