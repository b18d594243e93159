"""The end of a pairing between two real daemons, over TLS on the loopback; a ping before it."""

import time
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from mbx.store import hosts, peers
from tests.support import human
from tests.support.daemon import Line, fresh_home
from tests.support.hosts import PairedHost, addresses, copies, do, inbox, plant_pairing, until


class Two:
    """Two hosts that run: ana and the owner on the one, ben on the other."""

    def __init__(self, stack: ExitStack) -> None:
        self.stack = stack
        self.here = PairedHost(stack.enter_context(fresh_home()), "desk")
        self.there = PairedHost(stack.enter_context(fresh_home()), "lap")
        plant_pairing(self.here, self.there)
        stack.enter_context(self.here.daemon)
        self.running = stack.enter_context(ExitStack())
        self.start_there()
        self.ana = self._holder(stack, self.here, "ana")
        self.ben = self._holder(self.running, self.there, "ben")
        owner = stack.enter_context(human.owned(self.here.daemon))
        self.owner: Line = stack.enter_context(owner.line())
        until(lambda: "ben@lap" in addresses(self.ana), "ben is known here")
        until(lambda: "ana@desk" in addresses(self.ben), "ana is known there")

    def start_there(self) -> None:
        self.running.enter_context(self.there.daemon)

    def stop_there(self) -> None:
        self.running.close()

    def _holder(self, stack: ExitStack, host: PairedHost, name: str) -> Line:
        agent = stack.enter_context(host.daemon.agent())
        return stack.enter_context(agent.registered(name))

    def line_there(self) -> Line:
        """A caller at the other host that holds nothing."""
        line = self.running.enter_context(self.there.daemon.line())
        line.hello()
        return line


@pytest.fixture
def two() -> Iterator[Two]:
    with ExitStack() as stack:
        yield Two(stack)


def peer(line: Line, label: str) -> dict[str, Any]:
    """A paired host as it is listed, also one that is over."""
    found = line.call("peers.list", all=True)["peers"]
    [one] = [one for one in found if one["label"] == label]
    told: dict[str, Any] = one
    return told


def test_a_ping_goes_there_and_back_over_the_standing_link(two: Two) -> None:
    for line, label in ((two.ana, "lap"), (two.ben, "desk")):
        told = peer(line, label)
        assert (told["state"], told["link"]["up"]) == ("up", True)
        asked = line.call("peers.ping", name=label)
        assert (asked["up"], asked["round_trip_ms"]) == (True, None)

        def answered(
            line: Line = line, label: str = label, at: int = asked["asked_ms"]
        ) -> dict[str, Any] | None:
            said: dict[str, Any] = line.call("peers.ping", name=label, asked_ms=at)
            return said if said["round_trip_ms"] is not None else None

        assert until(answered, "an answer")["round_trip_ms"] >= 0


def test_a_removal_ends_the_link_at_once_and_the_other_host_learns_of_it(two: Two) -> None:
    answer = human.do(two.owner, "unpair", name="lap")
    assert answer["after"] == {"peer": "lap", "paired": False}
    until(lambda: peer(two.ben, "desk")["state"] == "removed-us", "the other host knows")
    assert peer(two.ana, "lap")["state"] == "removed"
    for line, to in ((two.ana, "ben@lap"), (two.ben, "ana@desk")):
        refused = line.refusal("mail.send", to=[to], subject="s", body="b")
        assert refused["code"] == "unknown-recipient"
        assert "not paired with this host any more" in refused["message"]
    until(lambda: peer(two.ben, "desk")["link"] is None, "nothing is dialled any more")


@pytest.mark.long
@pytest.mark.timeout(240)  # who stands by leaves the other five seconds to dial
def test_a_host_that_was_away_is_turned_away_when_it_comes_back(two: Two) -> None:
    message = two.ben.call("mail.send", to=["ana"], subject="s", body="b")["id"]
    until(lambda: inbox(two.ana), "the first mail arrives")
    until(lambda: copies(two.ben, message)["ana@desk"]["stage"] == "delivered", "delivered")
    two.stop_there()
    until(lambda: peer(two.ana, "lap")["state"] == "down", "the link is gone")
    mine = two.ana.call("mail.send", to=["ben@lap"], subject="s", body="b")["id"]
    assert peer(two.ana, "lap")["queued"] == 1
    human.do(two.owner, "unpair", name="lap")
    assert copies(two.ana, mine)["ben@lap"]["error"] == "not-paired"
    do(two.there.home, lambda tx: peers.learn_address(tx, 1, [two.here.address]))
    two.start_there()
    line = two.line_there()
    until(lambda: peer(line, "desk")["state"] == "removed-us", "it was turned away")


@pytest.mark.long
@pytest.mark.timeout(240)  # it is dialled after five seconds, and again with pauses
def test_a_host_that_was_away_and_cannot_dial_is_told_when_it_comes_back(two: Two) -> None:
    two.stop_there()
    until(lambda: peer(two.ana, "lap")["state"] == "down", "the link is gone")
    human.do(two.owner, "unpair", name="lap")
    two.start_there()
    line = two.line_there()
    assert peer(line, "desk")["addresses"] == []
    told = until(
        lambda: (found := peer(line, "desk"))["state"] == "removed-us" and found, "it was told"
    )
    assert told["reason"] == "that host has removed this one"
    assert told["next"] == "mbx peers remove desk"
    done = two.there.daemon.mbx("doctor")
    assert "desk has removed this host" in done.stdout


def test_a_lost_key_is_no_fault_where_only_removed_hosts_would_be_told() -> None:
    with ExitStack() as stack:
        here = PairedHost(stack.enter_context(fresh_home()), "desk")
        there = PairedHost(stack.enter_context(fresh_home()), "lap")
        plant_pairing(here, there)
        now_ms = time.time_ns() // 1_000_000
        do(here.home, lambda tx: peers.end(tx, 1, "us", now_ms))
        do(here.home, lambda tx: hosts.set_listen(tx, []))
        (here.home / "tls.key").unlink()
        stack.enter_context(here.daemon)
        agent = stack.enter_context(here.daemon.agent())
        # What it does at its start is committed before anybody's request.
        with agent.registered("ana") as line:
            assert peer(line, "lap")["state"] == "removed"
            assert line.call("daemon.health")["network_fault"] is None
