"""Two real daemons, paired, over TLS on the loopback: mail, receipts, restarts."""

import shutil
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from typing import Any

import pytest

from mbx.daemon.peerlist import REASONS
from mbx.store import hosts
from tests.support.clients import Claude
from tests.support.daemon import Agent, Daemon, Line, RefusedError, fresh_home
from tests.support.hosts import (
    PairedHost,
    addresses,
    copies,
    do,
    inbox,
    linked,
    pair_by_owners,
    plant_pairing,
    until,
)
from tests.support.human import Human
from tests.support.human import do as do_as_owner

pytestmark = [pytest.mark.long, pytest.mark.timeout(240)]


class Two:
    """Two hosts that run, ana on the one and ben on the other."""

    def __init__(self, stack: ExitStack, here: PairedHost, there: PairedHost) -> None:
        self.stack, self.here, self.there = stack, here, there
        self.agents: dict[str, Agent] = {}
        plant_pairing(here, there)
        stack.enter_context(here.daemon)
        stack.enter_context(there.daemon)
        self.ana = self._holder(stack, here, "ana")
        self.ben = self._holder(stack, there, "ben")
        until(lambda: "ben@lap" in addresses(self.ana), "ben is known here")
        until(lambda: "ana@desk" in addresses(self.ben), "ana is known there")

    def send(self, **words: object) -> str:
        """One message from ana to ben; its id."""
        content = {"subject": "hello", "body": "over the wire", **words}
        sent = self.ana.call("mail.send", to=["ben@lap"], **content)
        return str(sent["id"])

    def stage(self, message_id: str) -> str:
        """How far it came, as ana may know."""
        return str(copies(self.ana, message_id)["ben@lap"]["stage"])

    def all_of_ben(self) -> list[str]:
        """Ids of all that ben has, in the order of arrival."""
        found: list[str] = []
        cursor: str | None = None
        while True:
            page = self.ben.call("mail.inbox", all=True, limit=200, cursor=cursor)
            found += [one["id"] for one in page["messages"]]
            cursor = page["next_cursor"]
            if cursor is None:
                return found

    def again(self, host: PairedHost, name: str) -> Line:
        """The holder of that name speaks to a daemon that was started again."""
        line = self.stack.enter_context(self.agents[name].connect())
        assert line.call("session.whoami")["agent"] == name
        if host is self.there:
            linked(self.here.daemon)
        return line

    def _holder(self, stack: ExitStack, host: PairedHost, name: str) -> Line:
        self.agents[name] = agent = stack.enter_context(host.daemon.agent())
        return stack.enter_context(agent.registered(name))


@pytest.fixture
def two() -> Iterator[Two]:
    with ExitStack() as stack:
        here = PairedHost(stack.enter_context(fresh_home()), "desk")
        there = PairedHost(stack.enter_context(fresh_home()), "lap")
        yield Two(stack, here, there)


def test_each_host_is_told_how_the_agents_of_the_other_are_reached(two: Two) -> None:
    def reached(name: str) -> str:
        return str(addresses(two.ana)[f"{name}@lap"]["reach"])

    with Claude(two.there.daemon.socket_path) as claude, claude.registered("cleo") as cleo:
        until(lambda: "cleo@lap" in addresses(two.ana), "cleo is known here")
        own = until(lambda: addresses(two.ben)["cleo@lap"]["state"] == "idle", "cleo is looked at")
        assert own
        cleo.call("identity.set", description="somebody to wake")  # else within a minute
        until(lambda: reached("cleo") == "live-wake", "it is told that cleo would be woken")
        assert addresses(two.ana)["cleo@lap"]["state"] == "live"  # it has not rested for long
        assert reached("ben") == "live-next-prompt"
    until(lambda: reached("cleo") == "offline", "it is told that cleo has ended")


def test_mail_and_receipts_travel_between_two_daemons(two: Two) -> None:
    message = two.send()
    [arrived] = until(lambda: inbox(two.ben), "the mail arrives")
    assert (arrived["id"], arrived["from"]) == (message, "ana@desk")
    until(lambda: two.stage(message) == "delivered", "the first receipt")
    two.ben.call("mail.ack", ids=[message], outcome="acted", did="built it")
    until(lambda: two.stage(message) == "acked", "the last receipt")
    assert copies(two.ana, message)["ben@lap"]["did"] == "built it"


def test_a_body_of_every_size_and_content_passes(two: Two) -> None:
    bodies = ["", "\x01" * 262_144, "\U0001f600" * 65_536, "x" * 262_144]
    sent = [two.send(body=body) for body in bodies]
    until(lambda: len(inbox(two.ben)) == len(bodies), "all arrive")
    for message, body in zip(sent, bodies, strict=True):
        assert _read(two.ben, message) == body
    assert [one["id"] for one in two.ben.call("mail.inbox", all=True)["messages"]] == sent


def _read(line: Line, message: str) -> str:
    read, offset = "", 0
    while True:
        [piece] = line.call("mail.read", ids=[message], offset=offset)["messages"]
        read += str(piece["body"])
        if piece["next_offset"] is None:
            return read
        offset = piece["next_offset"]


@pytest.mark.parametrize("who", ["sender", "receiver"])
def test_mail_survives_the_death_of_either_daemon(two: Two, who: str) -> None:
    victim = two.here if who == "sender" else two.there
    before = [two.send(subject=f"before {number}") for number in range(20)]
    victim.daemon.kill()
    victim.daemon.start()
    if who == "sender":
        two.ana = two.again(two.here, "ana")
    else:
        two.ben = two.again(two.there, "ben")
    after = [two.send(subject=f"after {number}") for number in range(20)]
    until(lambda: len(two.all_of_ben()) == 40, "all arrive")
    assert two.all_of_ben() == before + after
    until(lambda: two.stage(after[-1]) == "delivered", "receipts arrive too")


def test_what_is_sent_while_the_other_host_is_off_arrives_when_it_is_back(two: Two) -> None:
    two.there.daemon.stop()
    sent = [two.send(subject=f"number {number}") for number in range(300)]
    assert two.stage(sent[0]) == "queued"
    for _ in range(3):
        done = two.here.daemon.mbx("peers", "ping", "lap")
        assert (done.returncode, "no link to lap" in done.stdout) == (1, True)
    two.there.daemon.start()
    two.ben = two.again(two.there, "ben")
    done = two.here.daemon.mbx("peers", "ping", "lap")
    assert (done.returncode, "lap answers after" in done.stdout) == (0, True)
    until(lambda: two.stage(sent[-1]) == "delivered", "the last one arrives")
    assert two.all_of_ben() == sent


def test_a_copy_that_takes_the_link_over_does_not_make_a_stop_unseen(two: Two) -> None:
    """The copied host and its copy have one key: whichever fits is let in, and that is told."""

    def desk() -> dict[str, Any]:
        [one] = two.ben.call("peers.list")["peers"]
        found: dict[str, Any] = one
        return found

    two.here.daemon.stop()
    copy = copied(two.stack, two.here)
    until(lambda: desk()["state"] == "down", "the host that was copied is away")
    with copy:
        until(lambda: desk()["state"] == "up", "the copy has the link")
        message = two.ben.call("mail.send", to=["ana@desk"], subject="s", body="b")["id"]
        until(lambda: copies(two.ben, message)["ana@desk"]["stage"] == "delivered", "it is there")
    two.here.daemon.start()
    until(lambda: desk()["state"] == "stopped", "the copied host does not fit")
    two.here.daemon.stop()
    with copy:
        until(lambda: desk()["state"] == "up", "the copy fits")
        assert desk()["parted"]["reason"] == REASONS["rollback-of-peer"]
        assert "a copy of a host runs" in desk()["next"]
        checks = two.there.daemon.mbx("doctor", "--json").stdout
        assert "the link to desk was stopped" in checks
        for words, told in (
            (("list",), "was stopped"),
            (("show", "desk"), REASONS["rollback-of-peer"]),
        ):
            assert told in " ".join(two.there.daemon.mbx("peers", *words).stdout.split())
    two.here.daemon.start()
    until(lambda: desk()["state"] == "stopped", "the copied host once more")
    assert desk()["reason"] == REASONS["copies-of-peer"]
    two.here.daemon.stop()
    with copy:
        until(lambda: own_word(copy) == REASONS["copies-of-us"], "the copy does not fit any more")
    two.here.daemon.start()


def copied(stack: ExitStack, host: PairedHost) -> Daemon:
    """The daemon of a copy of a home, as it is now."""
    copy = Daemon(stack.enter_context(fresh_home()))
    skipped = shutil.ignore_patterns("run")
    shutil.copytree(host.home, copy.home, ignore=skipped, dirs_exist_ok=True)
    return copy


def only_peer(daemon: Daemon, method: str = "peers.list") -> dict[str, Any]:
    """What a host says of the one that it is paired with; by `peers.show` of the streams too."""
    with daemon.line() as line:
        line.hello()
        [one] = line.call("peers.list")["peers"]
        found: dict[str, Any] = one
        return found if method == "peers.list" else line.call(method, name=one["label"])


def are_at_rest(*daemons: Daemon) -> bool:
    """Whether the link of two stands and each has all of the other's: a copy made now fits."""
    told = [only_peer(daemon, "peers.show") for daemon in daemons]
    return all(one["state"] == "up" for one in told) and all(
        one["sending"]["acked"] == one["sending"]["seq"] == other["receiving"]["seq"]
        for one, other in (told, told[::-1])
    )


def own_word(daemon: Daemon) -> str | None:
    """Why that link is as it is."""
    reason: str | None = only_peer(daemon)["reason"]
    return reason


def says(daemon: Daemon, reason: str) -> bool:
    return own_word(daemon) == reason


def test_two_copies_of_a_home_that_run_at_once_are_stopped_until_the_owner_has_acted() -> None:
    with ExitStack() as stack:
        here = PairedHost(stack.enter_context(fresh_home()), "desk")
        there = PairedHost(stack.enter_context(fresh_home()), "lap")
        stack.enter_context(here.daemon)
        stack.enter_context(there.daemon)
        pair_by_owners(here, there)
        until(lambda: are_at_rest(here.daemon, there.daemon), "all is told")
        here.daemon.stop()
        copy = copied(stack, here)
        here.daemon.start()
        until(lambda: are_at_rest(here.daemon, there.daemon), "the link stands again")
        with copy:
            until(lambda: only_peer(there.daemon)["state"] == "stopped", "it is found")
            heard = REASONS["copies-of-us"]
            for one in (here.daemon, copy):  # by a call of its own, which the other's delays
                until(partial(says, one, heard), "both hear of it")
        told = only_peer(there.daemon)
        assert told["reason"] == REASONS["copies-of-peer"]
        assert "mbx peers addr desk" in told["next"]
        checks = there.daemon.mbx("doctor", "--json").stdout
        assert "the link to desk is stopped" in checks
        assert "two copies" in " ".join(there.daemon.mbx("peers", "list").stdout.split())
        # One of the two alone does not change that, nor does a daemon that is started again.
        for host in (here, there):
            host.daemon.stop()
            host.daemon.start()
        until(lambda: own_word(here.daemon) == REASONS["copies-of-us"], "it is known still")
        assert only_peer(there.daemon)["state"] == "stopped"
        with Human(there.daemon.socket_path) as human, human.line() as line:
            do_as_owner(line, "peer-change", name="desk")
        here.daemon.stop()
        here.daemon.start()
        until(lambda: only_peer(there.daemon)["state"] == "up", "the owner has acted")
        assert only_peer(there.daemon)["parted"] is None


def test_who_writes_to_a_forwarded_identity_of_the_other_host_is_told_who_has_its_mail(
    two: Two,
) -> None:
    with ExitStack() as stack:
        cai = stack.enter_context(two.there.daemon.agent())
        new = stack.enter_context(cai.registered("cai"))
        until(lambda: "cai@lap" in addresses(two.ana), "cai is known here")
        two.ben.call("identity.release")
        human = stack.enter_context(Human(two.there.daemon.socket_path))
        human.enroll()
        with human.line() as line:
            do_as_owner(line, "forward", name="ben", to="cai")

        def reach() -> dict[str, Any]:
            """Who is told to get it; until the other host is heard of, ben."""
            try:
                [one] = two.ana.call("mail.send", to=["ben@lap"], subject="s", body="b")[
                    "recipients"
                ]
            except RefusedError:
                return {}
            found: dict[str, Any] = one
            return found if found["state"] == "forwarded" else {}

        told = until(reach, "the forward is known here")
        assert (told["address"], told["detail"].split(":")[0]) == (
            "ben@lap",
            "forwarded to cai@lap",
        )
        until(lambda: inbox(new), "and the mail arrives")


def test_a_daemon_that_is_killed_and_started_again_and_again_is_no_copy(two: Two) -> None:
    for victim in (two.here, two.there, two.here, two.here, two.there):
        victim.daemon.kill()
        victim.daemon.start()
        until(lambda: only_peer(two.there.daemon)["state"] == "up", "the link stands again")
    for host in (two.here, two.there):
        assert only_peer(host.daemon)["parted"] is None


@pytest.mark.parametrize("gone", ["192.0.2.1", "[fe80::1%no-such-wire]"])
def test_an_address_that_is_gone_keeps_nobody_from_the_others(gone: str) -> None:
    with ExitStack() as stack:
        here = PairedHost(stack.enter_context(fresh_home()), "desk")
        there = PairedHost(stack.enter_context(fresh_home()), "lap")
        do(there.home, lambda tx: hosts.set_listen(tx, [f"{gone}:24629", there.address]))
        two = Two(stack, here, there)  # each reaches the other
        said = two.ben.call("daemon.health")
        assert said["listening"] == [there.address]
        assert said["listener_fault"].startswith(f"cannot listen on {gone}:24629: ")
        assert said["network_fault"] is None
