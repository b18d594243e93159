"""What the daemon tells of paired hosts: in listings, to doctor, and of one mailbox of theirs."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from mbx.core.dialing import FUTILE
from mbx.core.limits import PARTED_TOLD_MS, TOLD_STATE_MS
from mbx.core.streams import STOPS, Kind
from mbx.daemon import peerlist, relaying
from mbx.daemon.effects import Paired, Ping
from mbx.daemon.linkstate import LinkState, NetworkState, RoundTrip
from mbx.daemon.methods import peers as method
from mbx.daemon.reach import Lasting, Reach
from mbx.store import hosts as host_rows
from mbx.store import peers
from mbx.store.hosts import HostRow
from tests.support.office import nobody
from tests.support.paired import PairedDesk, carry, desk, pair, settle

NOW_MS = 1_700_000_000_000
CANARY = "canary-8d11"
DOWN = LinkState(False, None, 1_005_000, 3, "unreachable")


class Hosts:
    """Two paired hosts, ana on the one and ben on the other; `link` is what is seen of the link."""

    def __init__(self) -> None:
        self.here, self.there = desk("desk"), desk("lap")
        self.ana = self.here.holder("ana", 10)
        self.ben = self.there.holder("ben", 20)
        pair(self.here, self.there)
        settle(self.here, self.there)
        self.link: LinkState | None = None
        self.network = NetworkState()
        self.here.dispatcher._link = lambda peer_no: self.link
        self.here.dispatcher._network = lambda: self.network
        self.here.effects.clear()

    def send(self, **words: str) -> str:
        content = {"subject": CANARY, "body": CANARY, **words}
        return str(self.here.call(self.ana, "mail.send", to=["ben"], **content)["id"])

    def lap(self) -> dict[str, Any]:
        [only] = told(self.here, "peers.list")["peers"]
        found: dict[str, Any] = only
        return found


@pytest.fixture
def hosts() -> Iterator[Hosts]:
    made = Hosts()
    yield made
    made.here.close()
    made.there.close()


def told(host: PairedDesk, method_name: str, /, **asked: object) -> dict[str, Any]:
    return host.call(nobody(), method_name, **asked)


# -- listings -------------------------------------------------------------------------------------


def test_a_link_that_stands_is_up_and_its_host_was_just_seen(hosts: Hosts) -> None:
    hosts.link = LinkState(True, 990_000, None, 0, None, RoundTrip(999_000, 7))
    one = hosts.lap()
    assert (one["state"], one["reason"], one["next"]) == ("up", None, None)
    assert one["link"]["since"] == "2023-11-14T22:13:10.000Z"
    assert (one["link"]["round_trip_ms"], one["last_seen"]) == (7, "2023-11-14T22:13:20.000Z")


def test_a_link_that_does_not_stand_says_why_and_when_it_is_tried_again(hosts: Hosts) -> None:
    hosts.link = DOWN
    hosts.here.do(lambda tx: peers.seen(tx, hosts.here.peer_nos["lap"], NOW_MS - 60_000))
    one = hosts.lap()
    assert (one["state"], one["reason"]) == ("down", "no address of it answers")
    assert one["link"]["next_try"] == "2023-11-14T22:13:25.000Z"
    assert (one["link"]["failures"], one["last_seen"]) == (3, "2023-11-14T22:12:20.000Z")
    assert one["next"] == "mbx peers addr lap ADDRESS, if it has another address now"
    hosts.link = DOWN._replace(code="wrong-host")
    assert "installed anew" in hosts.lap()["reason"]
    assert hosts.lap()["next"].startswith("mbx peers remove lap, then pair again")
    hosts.link = DOWN._replace(code="closed")
    assert hosts.lap()["next"] is None, "it may only have been started again"


def test_a_host_that_was_never_seen_and_hangs_up_may_not_know_this_one(hosts: Hosts) -> None:
    hosts.link = DOWN._replace(code="closed")
    assert hosts.lap()["next"].startswith("look there: mbx peers list; if this host is not in it")


def test_a_host_that_takes_nothing_for_now_says_why_and_since_when(hosts: Hosts) -> None:
    up = LinkState(True, 990_000, None, 0, None)
    hosts.link = up._replace(refused="disk-full", refused_ms=995_000)
    one = hosts.lap()
    assert (one["state"], one["reason"]) == ("up", "it takes nothing for now: its disk is full")
    assert one["link"]["refused_since"] == "2023-11-14T22:13:15.000Z"
    hosts.link = up._replace(refused=CANARY, refused_ms=995_000)
    assert hosts.lap()["reason"] == "it takes nothing for now"


def test_who_is_retired_on_a_paired_host_is_told_from_who_never_was_there(hosts: Hosts) -> None:
    no = hosts.here.peer_nos["lap"]
    hosts.here.do(
        lambda tx: tx.run(
            "UPDATE identities SET retired_ms = 1 WHERE peer_no = ? AND name = 'ben'", (no,)
        )
    )
    asked = {"subject": "s", "body": "b"}
    gone = hosts.here.refusal(hosts.ana, "mail.send", to=["ben@lap"], **asked)
    assert "ben@lap: retired there" in str(gone)
    never = hosts.here.refusal(hosts.ana, "mail.send", to=["zoe@lap"], **asked)
    assert "nobody there is called so" in str(never)


def test_what_waits_is_told_with_its_age_and_its_size(hosts: Hosts) -> None:
    assert (hosts.lap()["queued"], hosts.lap()["oldest_at"]) == (0, None)
    hosts.send()
    hosts.here.world.pass_ms(60_000)
    hosts.send()
    one = hosts.lap()
    assert (one["queued"], one["oldest_at"]) == (2, "2023-11-14T22:13:20.000Z")
    assert one["queued_bytes"] == hosts.here.stream("lap").queued_bytes > 0
    carry(hosts.here, hosts.there)
    assert (hosts.lap()["queued"], hosts.lap()["oldest_at"]) == (0, None)


@pytest.mark.parametrize("kind", sorted(STOPS))
def test_a_stopped_stream_is_told_with_what_to_do(hosts: Hosts, kind: Kind) -> None:
    context, no = hosts.here.dispatcher.context(), hosts.here.peer_nos["lap"]
    hosts.here.do(lambda tx: relaying.stopped(context, tx, no, kind))
    hosts.link = DOWN
    one = hosts.lap()
    assert (one["state"], one["reason"]) == ("stopped", peerlist.REASONS[kind])
    assert "mbx peers remove lap" in one["next"]


@pytest.mark.parametrize(("past_ms", "is_listed"), [(-1, True), (0, False), (1, False)])
def test_that_a_link_was_stopped_is_listed_for_thirty_days(
    hosts: Hosts, past_ms: int, is_listed: bool
) -> None:
    context, no = hosts.here.dispatcher.context(), hosts.here.peer_nos["lap"]
    hosts.here.do(lambda tx: relaying.stopped(context, tx, no, "fork"))
    hosts.here.do(lambda tx: relaying.stood(context, tx, no, "a" * 26, "b" * 26))
    hosts.here.world.pass_ms(PARTED_TOLD_MS + past_ms)
    hosts.link = LinkState(True, 990_000, None, 0, None)
    one = hosts.lap()
    assert one["state"] == "up"
    assert (one["parted"] is not None, one["next"] is not None) == (is_listed, is_listed)


def test_a_stop_that_is_found_again_is_told_once_and_dated_anew(hosts: Hosts) -> None:
    no = hosts.here.peer_nos["lap"]

    def compare() -> None:
        context = hosts.here.dispatcher.context()
        hosts.here.do(lambda tx: relaying.stopped(context, tx, no, "fork"))

    compare()
    hosts.here.world.pass_ms(5)
    compare()
    assert hosts.here.stream("lap").parted_ms == NOW_MS + 5
    assert len(hosts.here.rows("SELECT 1 FROM audit WHERE act = 'link-stopped'")) == 1


def _states(hosts: Hosts, message: str) -> set[str]:
    """What every listing says of ben, who is there as his host said last."""
    [copy] = hosts.here.call(hosts.ana, "mail.sent", id=message)["messages"][0]["recipients"]
    agents = hosts.here.call(hosts.ana, "agents.list")["agents"]
    [ben] = [one for one in agents if one["address"] == "ben@lap"]
    return {copy["liveness"], ben["state"], _diagnosed(hosts)}


def _diagnosed(hosts: Hosts) -> str:
    return str(told(hosts.here, "diagnostics.show", mailbox="ben@lap")["remote"]["state"])


def _ben(hosts: Hosts) -> tuple[str, str]:
    agents = hosts.here.call(hosts.ana, "agents.list")["agents"]
    [ben] = [one for one in agents if one["address"] == "ben@lap"]
    remote = told(hosts.here, "diagnostics.show", mailbox="ben@lap")["remote"]
    assert (remote["state"], remote["reach"]) == (ben["state"], ben["reach"])
    return ben["state"], ben["reach"]


def _tell(hosts: Hosts, lasting: Lasting | None) -> int:
    """The other host sees its session so; how many records it has for us because of that."""
    seen, before = Reach(False, "", lasting=lasting), hosts.there.stream("desk").out_seq
    hosts.there.dispatcher._reach = lambda row, thread: seen
    hosts.there.tell()
    count = hosts.there.stream("desk").out_seq - before
    settle(hosts.here, hosts.there)
    return count


def test_whether_somebody_there_rests_and_how_it_is_reached_is_its_hosts_word(
    hosts: Hosts,
) -> None:
    hosts.link = LinkState(True, 990_000, None, 0, None)
    theirs = hosts.link._replace(names_run=True)
    hosts.there.dispatcher._link = lambda peer_no: theirs
    assert _ben(hosts) == ("live", "unknown")
    assert _tell(hosts, None) == 0  # nothing that it did not say before
    assert _tell(hosts, Lasting(False, False)) == 1
    assert _ben(hosts) == ("live", "live-next-prompt")
    assert _tell(hosts, Lasting(True, True)) == 1
    assert _ben(hosts) == ("idle", "live-wake")
    assert _tell(hosts, Lasting(True, True)) == 0
    hosts.link = DOWN
    hosts.here.connection.execute("UPDATE peers SET seen_ms = 1")
    assert _ben(hosts) == ("unknown", "unknown")
    hosts.link = LinkState(True, 990_000, None, 0, None)
    hosts.there.call(hosts.ben, "identity.release")
    assert _tell(hosts, Lasting(True, True)) == 1
    assert _ben(hosts) == ("offline", "offline")


def test_a_host_that_does_not_name_its_run_is_told_who_rests_and_not_how_it_is_reached(
    hosts: Hosts,
) -> None:
    hosts.link = LinkState(True, 990_000, None, 0, None)
    theirs: LinkState | None = hosts.link
    hosts.there.dispatcher._link = lambda peer_no: theirs
    assert _tell(hosts, Lasting(False, True)) == 0
    assert _ben(hosts) == ("live", "unknown")
    assert _tell(hosts, Lasting(True, True)) == 1
    assert _ben(hosts) == ("idle", "unknown")
    theirs = hosts.link._replace(names_run=True)  # it was upgraded
    assert _tell(hosts, Lasting(True, True)) == 1
    assert _ben(hosts) == ("idle", "live-wake")
    theirs = None  # without a link nothing is said again
    assert _tell(hosts, Lasting(True, True)) == 0
    assert _tell(hosts, Lasting(False, True)) == 1
    assert _ben(hosts) == ("live", "unknown")
    theirs = hosts.link._replace(names_run=True)
    assert _tell(hosts, Lasting(False, True)) == 1
    assert _ben(hosts) == ("live", "live-wake")


@pytest.mark.parametrize(("past_ms", "state"), [(-1, "live"), (0, "unknown"), (1, "unknown")])
def test_who_is_there_is_known_until_a_minute_after_the_link(
    hosts: Hosts, past_ms: int, state: str
) -> None:
    message, no = hosts.send(), hosts.here.peer_nos["lap"]
    hosts.link = LinkState(True, 990_000, None, 0, None)
    hosts.here.world.pass_ms(10 * TOLD_STATE_MS)
    assert _states(hosts, message) == {"live"}
    context = hosts.here.dispatcher.context()
    hosts.here.do(lambda tx: relaying.left(context, tx, no))
    hosts.link = DOWN
    hosts.here.world.pass_ms(TOLD_STATE_MS + past_ms)
    assert _states(hosts, message) == {state}
    hosts.link = LinkState(True, 990_000, None, 0, None)
    assert _states(hosts, message) == {"live"}


def test_every_code_after_which_waiting_is_vain_has_words() -> None:
    assert peerlist.REASONS.keys() >= FUTILE


def test_a_code_that_the_other_host_made_up_is_not_repeated(hosts: Hosts) -> None:
    hosts.link = DOWN._replace(code=CANARY)
    assert hosts.lap()["reason"] == "it said an unknown code"


def test_all_of_one_host_is_shown_without_secrets_and_without_mail(hosts: Hosts) -> None:
    hosts.send()
    one = told(hosts.here, "peers.show", name="lap")
    assert one["sending"]["seq"] == hosts.here.stream("lap").out_seq
    assert one["sending"]["acked"] == one["sending"]["seq"] - 1
    assert len(one["sending"]["head"]) == len(one["receiving"]["head"]) == 16
    assert (one["version"], one["told_label"], one["owner"]) == (1, "lap", "other")
    assert CANARY not in json.dumps(one)
    refusal = hosts.here.refusal(nobody(), "peers.show", name="laq")
    assert (refusal.code, refusal.facts["suggestions"]) == ("not-paired", ["lap"])


def test_the_difference_of_two_clocks_is_seen_in_what_comes(hosts: Hosts) -> None:
    assert hosts.lap()["clock_ahead_ms"] == 0
    hosts.there.world.wall_ms += 600_000
    hosts.there.call(hosts.ben, "mail.send", to=["ana"], subject="s", body="b")
    carry(hosts.there, hosts.here)
    assert hosts.lap()["clock_ahead_ms"] == 600_000
    hosts.there.world.wall_ms -= 1_200_000
    hosts.there.call(hosts.ben, "mail.send", to=["ana"], subject="s", body="b")
    carry(hosts.there, hosts.here)
    assert hosts.lap()["clock_ahead_ms"] == -600_000


# -- addresses that a host tells of itself ---------------------------------------------------------


def test_a_host_that_moved_says_so_and_is_dialled_there_after_the_owners_addresses(
    hosts: Hosts,
) -> None:
    at = ("10.0.0.7:24629", "[2001:db8::1]:24629")
    hosts.there.dispatcher._network = lambda: NetworkState((), None, at)
    hosts.there.tell()
    assert carry(hosts.there, hosts.here) == 1
    assert any(isinstance(effect, Paired) for effect in hosts.here.effects)
    assert hosts.here.peer("lap").dialled_at == ("192.0.2.1:47100", *at)
    assert (hosts.lap()["addresses"], hosts.lap()["told_addresses"]) == (
        ["192.0.2.1:47100"],
        list(at),
    )
    hosts.there.tell()
    assert carry(hosts.there, hosts.here) == 0
    hosts.there.dispatcher._network = NetworkState
    hosts.there.tell()
    carry(hosts.there, hosts.here)
    assert hosts.here.peer("lap").dialled_at == ("192.0.2.1:47100",)


def test_nobody_makes_this_machine_speak_to_itself_or_look_up_a_name(hosts: Hosts) -> None:
    told_there = (
        "127.0.0.1:22",
        "[::1]:22",
        "lap.local:24629",
        "localhost:5432",
        "[fe80::1]:24629",
        "169.254.1.1:24629",
        "10.0.0.7:24629",
    )
    hosts.there.dispatcher._network = lambda: NetworkState((), None, told_there)
    hosts.there.tell()
    carry(hosts.there, hosts.here)
    assert hosts.lap()["told_addresses"] == ["10.0.0.7:24629"]


# -- ping -----------------------------------------------------------------------------------------


def test_a_ping_asks_once_and_looks_for_the_answer_afterwards(hosts: Hosts) -> None:
    hosts.link = LinkState(True, 1, None, 0, None, RoundTrip(999_999, 3))
    asked = told(hosts.here, "peers.ping", name="lap")
    assert (asked["up"], asked["round_trip_ms"]) == (True, None)
    assert hosts.here.effects == [Ping(hosts.here.peer_nos["lap"])]
    hosts.here.effects.clear()
    again = {"name": "lap", "asked_ms": asked["asked_ms"]}
    assert told(hosts.here, "peers.ping", **again)["round_trip_ms"] is None
    hosts.link = hosts.link._replace(round_trip=RoundTrip(asked["asked_ms"] + 4, 4))
    assert told(hosts.here, "peers.ping", **again)["round_trip_ms"] == 4
    assert hosts.here.effects == []


@pytest.mark.parametrize(
    ("link", "reason", "dials", "asks"),
    [
        (None, None, False, False),
        (DOWN, "no address of it answers", True, True),
        (DOWN._replace(due_ms=None, is_trying=True), "no address of it answers", True, True),
        (DOWN._replace(due_ms=None), "no address of it answers", False, True),
    ],
)
def test_a_ping_without_a_link_says_why_and_whether_one_is_tried_for(
    hosts: Hosts, link: LinkState | None, reason: str | None, dials: bool, asks: bool
) -> None:
    hosts.link = link
    said = told(hosts.here, "peers.ping", name="lap")
    assert (said["up"], said["round_trip_ms"], said["reason"]) == (False, None, reason)
    assert (said["dials"], said["failures"]) == (dials, link.failures if link else 0)
    assert hosts.here.effects == ([Ping(hosts.here.peer_nos["lap"])] if asks else [])


def test_a_ping_is_for_hosts_that_are_paired_and_changes_nothing(hosts: Hosts) -> None:
    assert hosts.here.refusal(nobody(), "peers.ping", name="box").code == "not-paired"
    assert {one.name for one in method.METHODS if not one.writes} == {
        "peers.list",
        "peers.show",
        "peers.ping",
    }


# -- doctor, diagnostics --------------------------------------------------------------------------


def test_doctor_is_told_of_hosts_and_of_the_listener(hosts: Hosts) -> None:
    hosts.here.do(
        lambda tx: host_rows.create(
            tx, HostRow(hosts.here.host.key_id, bytes(32), "desk", "0" * 26), 1
        )
    )
    hosts.here.do(lambda tx: host_rows.set_listen(tx, ["0.0.0.0:24629"]))
    hosts.network = NetworkState((), "the TLS key is lost", (), "port 24629 is taken")
    hosts.send()
    said = told(hosts.here, "daemon.health")
    assert [one["label"] for one in said["peers"]] == ["lap"]
    assert (said["listen"], said["listening"]) == (["0.0.0.0:24629"], [])
    faults = (said["network_fault"], said["listener_fault"])
    assert faults == ("the TLS key is lost", "port 24629 is taken")
    listed = told(hosts.here, "peers.list")
    for field in ("listen", "listening", "network_fault", "listener_fault"):
        assert listed[field] == said[field]
    assert said["stranded"] == []
    assert CANARY not in json.dumps(said)


def test_a_mailbox_of_a_paired_host_is_diagnosed_from_here(hosts: Hosts) -> None:
    hosts.link = LinkState(True, 990_000, None, 0, None)
    first, second, third = (hosts.send() for _ in range(3))
    for _ in range(2):
        settle(hosts.here, hosts.there)
    hosts.there.call(hosts.ben, "mail.ack", ids=[first])
    settle(hosts.here, hosts.there)
    waits = hosts.send()
    for name in ("ben", "ben@lap"):
        said = told(hosts.here, "diagnostics.show", mailbox=name)
        assert (said["status"], said["mailbox"]) == ("mailbox-remote", "ben@lap")
        assert (said["holder"], said["lease"], said["queue_total"]) == (None, None, 3)
        assert [one["id"] for one in said["queue"]] == [second, third, waits]
        assert [one["stage"] for one in said["queue"]] == ["delivered", "delivered", "queued"]
        assert [one["id"] for one in said["receipts"]] == [first]
        assert said["remote"]["state"] == "live"
        assert said["remote"]["host"]["label"] == "lap"
        assert CANARY not in json.dumps(said)
    assert told(hosts.here, "diagnostics.show", mailbox="ana@desk")["remote"] is None
    for name in ("ben@desk", "ana@lap", "ben@box", "owner@lap"):
        refusal = hosts.here.refusal(nobody(), "diagnostics.show", mailbox=name)
        assert refusal.code == "not-found"


def test_what_came_back_waits_for_nobody(hosts: Hosts) -> None:
    hosts.send()
    no, seq = hosts.here.peer_nos["lap"], hosts.here.stream("lap").out_seq
    context = hosts.here.dispatcher.context()
    hosts.here.do(lambda tx: relaying.unfit(context, tx, no, seq))
    said = told(hosts.here, "diagnostics.show", mailbox="ben@lap")
    assert (said["queue"], said["queue_total"]) == ([], 0)
