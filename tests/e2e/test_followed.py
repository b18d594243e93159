"""What the owner signs on one host holds on the other one: real daemons, TLS on the loopback."""

import shutil
import signal
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from mbx.core.keys import SigningKey, key_id
from tests.support import human
from tests.support.daemon import KILLED_AT_FLOOR, Agent, Daemon, Line, fresh_home
from tests.support.hosts import PairedHost, addresses, linked, plant_pairing, until
from tests.support.owner import content, wire

pytestmark = [pytest.mark.long, pytest.mark.timeout(240)]

OWNER = key_id("owner", human.KEY.public)
HEIR = SigningKey.from_seed(bytes([9]) * 32)


class Two:
    """Two hosts of one owner that run: ana on `desk`, ben on `lap`."""

    def __init__(self, stack: ExitStack) -> None:
        self.stack = stack
        self.here = PairedHost(stack.enter_context(fresh_home()), "desk")
        self.there = PairedHost(stack.enter_context(fresh_home()), "lap")
        self.there.daemon = Daemon(self.there.home, python=("-I", "-c", KILLED_AT_FLOOR))
        plant_pairing(self.here, self.there, owner=OWNER)
        self.agents: dict[str, Agent] = {}
        self.ana = self._begin(self.here, "ana")
        self.ben = self._begin(self.there, "ben")
        self.owner, self.owner_there = (self._owned(host) for host in (self.here, self.there))
        until(lambda: "ben@lap" in addresses(self.ana), "ben is known here")
        until(lambda: "ana@desk" in addresses(self.ben), "ana is known there")

    def _begin(self, host: PairedHost, name: str) -> Line:
        self.stack.enter_context(host.daemon)
        self.agents[name] = agent = self.stack.enter_context(host.daemon.agent())
        return self.stack.enter_context(agent.registered(name))

    def _owned(self, host: PairedHost) -> Line:
        owner = self.stack.enter_context(human.owned(host.daemon))
        line: Line = self.stack.enter_context(owner.line())
        return line

    def start_there(self, *, fits: bool = True) -> None:
        """`lap` is back, and ben speaks to it again; the hosts are linked if its store `fits`."""
        self.there.daemon.start()
        self.ben = self.stack.enter_context(self.agents["ben"].connect())
        if fits:
            linked(self.here.daemon)

    def set(self, level: str) -> str:
        """The owner signs on `desk` what mail of ana's may make ben do; the record's id."""
        wanted = {"to": ["ben@lap"], "level": level, "from": ["ana@desk"]}
        return str(human.do(self.owner, "policy", **wanted)["id"])

    def followed(self) -> list[str]:
        """The records that `lap` has, those in effect first and last."""
        return [one["id"] for one in self.ben.call("policy.list", all=True)["policies"]]

    def waiting(self) -> int:
        """How many records `desk` has not been told to be on `lap`."""
        [peer] = self.owner.call("peers.list")["peers"]
        assert (peer["signed_at"] is None) == (peer["signed_waiting"] == 0)
        return int(peer["signed_waiting"])

    def line(self) -> str:
        """The policy line of fresh mail of ana's, as ben reads it."""
        sent = self.ana.call("mail.send", to=["ben@lap"], subject="s", body="b")["id"]
        until(lambda: self._has(sent), "the mail arrives")
        [read] = self.ben.call("mail.read", ids=[sent])["messages"]
        return str(read["policy_line"])

    def _has(self, message: str) -> bool:
        return message in [one["id"] for one in self.ben.call("mail.inbox")["messages"]]


@pytest.fixture
def two() -> Iterator[Two]:
    with ExitStack() as stack:
        yield Two(stack)


def test_a_policy_and_its_end_hold_on_the_other_host_at_once(two: Two) -> None:
    """Streams keep their order: mail that is sent after the record is read under it."""
    policy = two.set("collaborate")
    line = two.line()
    assert line.startswith("policy: collaborate (read, edit;")
    assert f"record {policy}" in line
    human.do(two.owner, "revoke", records=[policy])
    assert two.line().startswith("policy: ask (")
    again = two.set("autonomous")
    assert f"record {again}" in two.line()
    human.do(two.owner_there, "revoke", records=[again])
    assert "revoked" in two.line()
    shown = until(lambda: _taken_back(two.owner, again), "desk hears what was signed on lap")
    assert (shown["host"], shown["to"]) == ("desk", ["ben@lap"])
    listed = two.there.daemon.mbx("policy", "list", "--all").stdout
    assert "SIGNED ON" in listed.splitlines()[0]
    assert {line.split()[-1] for line in listed.splitlines()[1:]} == {"desk"}
    signed_on = two.there.daemon.mbx("policy", "show", again).stdout
    assert "signed on desk" in " ".join(signed_on.split())
    owner = two.there.daemon.mbx("owner", "show").stdout
    assert f"desk ({two.here.key_id}) up to record 3" in owner


def test_what_was_signed_while_the_other_host_was_off_holds_at_the_next_contact(two: Two) -> None:
    policy = two.set("collaborate")
    assert f"record {policy}" in two.line()
    two.there.daemon.stop()
    human.do(two.owner, "revoke", records=[policy])
    narrow = two.set("autonomous")
    assert two.waiting() == 2
    two.start_there()
    until(lambda: narrow in two.followed(), "the records arrive")
    assert f"record {narrow}" in two.line()
    two.there.daemon.kill()
    two.start_there()
    assert f"record {narrow}" in two.line()
    until(lambda: two.waiting() == 0, "the other host has acknowledged them")


def test_a_death_between_commit_and_acknowledgement_changes_nothing(two: Two) -> None:
    flag = two.there.home / "floor" / "floor.json.kill"
    assert two.line().startswith("policy: ask")
    flag.touch()
    policy = two.set("collaborate")
    assert two.there.daemon.wait() == -signal.SIGKILL
    assert two.waiting() == 1
    two.start_there()
    until(lambda: policy in two.followed(), "the record arrives")
    assert f"record {policy}" in two.line()
    assert two.ben.call("daemon.health")["floor"] == "ok"
    human.do(two.owner, "revoke", records=[policy])
    assert two.line().startswith("policy: ask (")


def test_a_store_that_was_put_back_there_grants_nothing_of_what_it_followed(two: Two) -> None:
    two.set("yolo")
    assert two.line().startswith("policy: yolo")
    two.there.daemon.stop()
    copy = _copied(two.there.home)
    two.start_there()
    human.do(two.owner, "revoke", all=True)
    assert two.line().startswith("policy: ask (")
    two.there.daemon.stop()
    _put_back(copy, two.there.home)
    two.start_there(fits=False)
    [shown] = two.ben.call("policy.list", all=True)["policies"]
    assert shown["state"] == "record 2 of the owner's chain on desk is missing"
    [chain] = two.ben.call("owner.show")["followed"]
    assert (chain["host"], chain["version"], chain["damage"]) == ("desk", 2, 1)


def test_a_new_key_of_the_owner_is_obeyed_on_both(two: Two) -> None:
    draft = two.owner.call("owner.draft", act="rotate", public_key=HEIR.public.hex())
    record = wire(draft["kind"], content(draft), human.KEY, HEIR)
    two.owner.call("owner.apply", record=record)
    heir = key_id("owner", HEIR.public)
    until(lambda: two.ben.call("owner.show")["owner"]["key_id"] == heir, "the new key is known")
    wanted = {"act": "policy", "to": ["ben@lap"], "level": "collaborate", "from": ["ana@desk"]}
    signed = human.signed(two.owner.call("owner.draft", **wanted), HEIR)
    two.owner.call("owner.apply", record=signed)
    assert two.line().startswith("policy: collaborate (")


def _taken_back(line: Line, policy: str) -> dict[str, Any] | None:
    shown = line.call("policy.show", id=policy)
    return shown if "revoked" in shown["state"] else None


def _copied(home: Path) -> Path:
    copy = home / "copy"
    copy.mkdir()
    for path in home.glob("store.db*"):
        shutil.copy2(path, copy / path.name)
    return copy


def _put_back(copy: Path, home: Path) -> None:
    for path in home.glob("store.db*"):
        path.unlink()
    for path in copy.iterdir():
        shutil.copy2(path, home / path.name)
