"""Two paired hosts on bad networks: real daemons in namespaces of their own, paired by owners.

Not part of the ordinary tests: `scripts/networks` runs it (`scripts/networks --long` for the long
form), as root, where `ip` and `nft` are. Each scene hurts the line or a host while both sides send;
once it is whole again everything must be drained within a bounded time, each message once and in
the order of its sender, with its receipt at the sender, nothing waiting, and both heads equal.
"""

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from tests.support import netns
from tests.support.daemon import Daemon, fresh_home
from tests.support.exchange import End, Exchange
from tests.support.hosts import PairedHost, addresses, copies, pair_by_owners
from tests.support.netns import IN, OUT, Bridge, Place
from tests.support.worlds import (
    DAY_S,
    WallClock,
    can_unshare,
    set_ahead,
    unshared,
    with_steady_clock_of,
)

FORM: Final = os.environ.get("MBX_TEST_NETWORKS", "")
IS_LONG: Final = FORM == "long"
DRAINED_S: Final = 90.0
"""Within this everything is drained once the line is good again (PROOF T09)."""
BACKLOG: Final = 50_000
SHIFTED: Final = ("-T", "--monotonic", str(DAY_S), "--boottime", str(DAY_S))

_WHY_NOT = "only by scripts/networks" if not FORM else netns.missing()

pytestmark = [
    pytest.mark.root,
    pytest.mark.long,
    pytest.mark.timeout(1_800),
    pytest.mark.skipif(_WHY_NOT is not None, reason=str(_WHY_NOT)),
]


def wait_s(seconds: float) -> None:
    """Let a bad line be bad for so long."""
    threading.Event().wait(seconds)


def patiently(limit_s: float) -> Callable[[Callable[[], Any], str], Any]:
    """A wait of at most so many seconds."""

    def wait(look: Callable[[], Any], what: str) -> Any:
        end_s = time.monotonic() + limit_s
        while time.monotonic() < end_s:
            found = look()
            if found:
                return found
            wait_s(0.05)
        raise AssertionError(f"in vain for {limit_s} s: {what}")

    return wait


class Scene:
    """Two hosts on a bridge, and what was done to them."""

    def __init__(self, stack: ExitStack, places: int = 2, **how: dict[str, Any]) -> None:
        """`how`: label of a host -> how its daemon is started."""
        self.stack = stack
        self.bridge = stack.enter_context(Bridge(places))
        self.places = dict(zip(("desk", "lap"), self.bridge.places[:2], strict=True))
        hosts = []
        for label, place in self.places.items():
            more = dict(how.get(label, {}))
            prefix = (*place.prefix, *more.pop("prefix", ()))
            home = stack.enter_context(fresh_home())
            hosts.append(
                PairedHost(home, label, ip=place.ip, everywhere=True, prefix=prefix, **more)
            )
        self.exchange = Exchange(stack, hosts[0], hosts[1], pair_by_owners)
        self.cuts = self.resets = 0
        self.exchange.send(5)
        self.exchange.settle(patiently(DRAINED_S))

    @property
    def lap(self) -> Place:
        """The host whose line is hurt."""
        return self.places["lap"]

    @contextmanager
    def traffic(self, every_s: float = 0.05) -> Iterator[None]:
        """Both sides send all the time."""
        over = threading.Event()
        threads = [
            threading.Thread(target=self._send, args=(end, over, every_s))
            for end in self.exchange.ends
        ]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            over.set()
            for thread in threads:
                thread.join(30)

    @staticmethod
    def _send(end: End, over: threading.Event, every_s: float) -> None:
        while not over.wait(every_s):
            end.send()

    def drained(self, what: str, limit_s: float = DRAINED_S) -> None:
        """The line is good: everything drains, is as it should be, and doctor is content."""
        began_s = time.monotonic()
        self.exchange.settle(patiently(limit_s))
        took_s = time.monotonic() - began_s
        for end in self.exchange.ends:
            assert end.peer()["link"]["up"]
            told = json.loads(end.host.daemon.mbx("doctor", "--json").stdout)
            bad = [one for one in told["checks"] if one["level"] == "fail"]
            assert [one for one in bad if one["name"] in ("peers", "listener", "outbox")] == []
        sent = sum(len(end.sent) for end in self.exchange.ends)
        sys.stdout.write(
            f"{what}: {sent:,} messages, {self.cuts} cuts, {self.resets} resets,"
            f" drained after {took_s:.1f} s\n"
        )


@pytest.fixture
def scene() -> Iterator[Scene]:
    with ExitStack() as stack:
        yield Scene(stack)


# -- lines that come and go -----------------------------------------------------------------------


@pytest.mark.parametrize("ways", [(IN, OUT), (IN,), (OUT,)], ids=["both", "in", "out"])
def test_a_line_that_is_cut_for_a_while_both_ways_or_one_way(
    scene: Scene, ways: tuple[str, ...]
) -> None:
    for cut_s in (2, 8, 70) if IS_LONG else (2, 8):
        with scene.traffic():
            wait_s(1)
            scene.lap.cut(*ways)
            scene.cuts += 1
            wait_s(cut_s)
        scene.lap.heal()
        scene.drained(f"cut {'+'.join(ways)} for {cut_s} s")


def test_a_line_that_was_cut_until_both_ends_gave_it_up(scene: Scene) -> None:
    """No word comes and no reset: each end finds out by itself that the other is gone."""
    ends = scene.exchange.ends
    scene.lap.cut()
    scene.cuts += 1
    patiently(120)(lambda: not any(end.peer()["link"]["up"] for end in ends), "both gave it up")
    scene.exchange.send(50)
    scene.lap.heal()
    scene.drained("cut until both ends gave the link up")


def test_three_packets_of_ten_are_lost(scene: Scene) -> None:
    scene.lap.lose(30)
    with scene.traffic():
        wait_s(60 if IS_LONG else 15)
    scene.lap.heal()
    scene.drained("30 % loss each way")
    scene.lap.reset()  # and now a link has to come about under such losses
    scene.exchange.send(1)
    scene.resets += 1
    scene.lap.lose(30)
    scene.exchange.send(20)
    began_s = time.monotonic()
    scene.exchange.settle(patiently(300))
    took_s = time.monotonic() - began_s
    sys.stdout.write(f"a new link under 30 % loss, and 40 messages: {took_s:.1f} s\n")
    scene.lap.heal()
    scene.drained("after it")


def test_a_line_of_64_kbit(scene: Scene) -> None:
    scene.lap.throttle(8_192)
    for _ in range(40 if IS_LONG else 10):
        for end in scene.exchange.ends:
            end.send("x" * 8_192)
    wait_s(30 if IS_LONG else 10)
    scene.exchange.send(10)
    scene.lap.heal()
    scene.drained("a line of 64 kbit/s")


def test_a_line_that_goes_and_comes_each_200_ms(scene: Scene) -> None:
    with scene.lap.flapping(0.2) as cuts, scene.traffic():
        wait_s(60 if IS_LONG else 10)
    scene.cuts += len(cuts)
    scene.drained("flapping each 200 ms")


@pytest.mark.parametrize("label", ["desk", "lap"])
def test_a_reset_at_each_packet_of_a_whole_exchange(scene: Scene, label: str) -> None:
    """The host is reset, or the other one: only one end hears of it, the other finds out."""
    place, wait = scene.places[label], patiently(DRAINED_S)
    packet, is_within = 0, True
    while is_within:
        place.reset()  # the link ends, and the next exchange begins anew
        scene.exchange.send(1)
        wait(place.hits, "a packet is reset")
        place.reset(packet)
        scene.exchange.send(1)
        scene.exchange.settle(wait)
        is_within = bool(place.hits())
        scene.resets += 1 + is_within
        packet += 1 if IS_LONG else 3
    assert packet >= 12
    place.heal()
    scene.drained(f"a reset at each packet that comes to {label}")


@pytest.mark.parametrize("stopped_s", [3, 70] if IS_LONG else [3])
def test_a_host_that_stops_in_the_middle_of_a_frame_and_goes_on(
    scene: Scene, stopped_s: int
) -> None:
    """Short, the link goes on where it was; long, the other one has given it up meanwhile."""
    big = "x" * 262_144
    for end in scene.exchange.ends:
        daemon = end.host.daemon
        scene.lap.throttle(32_768)
        for one in scene.exchange.ends:
            one.send(big)
        wait_s(2)  # a frame takes eight seconds at that speed
        daemon.signal(signal.SIGSTOP)
        wait_s(stopped_s)
        scene.lap.heal()
        daemon.signal(signal.SIGCONT)
        scene.exchange.send(5)
        scene.drained(f"{end.host.label} stopped for {stopped_s} s in the middle of a frame")


def test_a_host_that_is_cut_off_keeps_nothing_from_a_third_one() -> None:
    """Of two peers of one host the one is cut off: mail to both is with the other one at once."""
    with ExitStack() as stack:
        scene = Scene(stack, places=3)
        here, place = scene.exchange.here, scene.bridge.places[2]
        home = stack.enter_context(fresh_home())
        tower = PairedHost(home, "tower", ip=place.ip, everywhere=True, prefix=place.prefix)
        stack.enter_context(tower.daemon)
        agent = stack.enter_context(tower.daemon.agent())
        cleo = stack.enter_context(agent.registered("cleo"))
        pair_by_owners(tower, here.host)
        wait = patiently(DRAINED_S)
        wait(lambda: "cleo@tower" in addresses(here.line), "cleo is known")
        scene.lap.cut()
        scene.cuts += 1
        sent = []
        for _ in range(100):
            here.send()  # to ben alone, and now to both
            both = here.line.call("mail.send", to=[here.to, "cleo@tower"], subject="s", body="b")
            here.sent.append(both["id"])
            sent.append(both["id"])
        last = sent[-1]
        wait(lambda: copies(here.line, last)["cleo@tower"]["stage"] == "delivered", "cleo has it")
        assert copies(here.line, last)[here.to]["stage"] == "queued"
        assert [one["id"] for one in cleo.call("mail.inbox", limit=200)["messages"]] == sent
        place.cut()  # and now the other way round: only the first one is there
        scene.cuts += 1
        scene.lap.heal()
        scene.drained("one of two peers is cut off, then the other one")


# -- hosts that sleep, move, and have other clocks ------------------------------------------------


@pytest.mark.skipif(not WallClock.is_available(), reason="faketime is not installed")
def test_a_host_that_sleeps_for_a_day_while_the_other_goes_on(tmp_path: Path) -> None:
    """Asleep its steady clock stands, as on Linux; for the other both clocks go on."""
    clock, ahead = WallClock(tmp_path / "clock"), tmp_path / "ahead"
    set_ahead(ahead, 0)
    awake = {"environment": clock.environment, "python": with_steady_clock_of(ahead)}
    with ExitStack() as stack:
        scene = Scene(stack, desk=awake, lap={"environment": clock.environment})
        lap = scene.exchange.there.host.daemon
        scene.exchange.send(20)
        lap.signal(signal.SIGSTOP)
        scene.lap.cut()
        scene.cuts += 1
        for _ in range(50):
            scene.exchange.here.send()
        clock.step(DAY_S)
        set_ahead(ahead, DAY_S * 1_000)
        for _ in range(50):
            scene.exchange.here.send()
        wait_s(70 if IS_LONG else 3)
        lap.signal(signal.SIGCONT)
        scene.lap.heal()
        scene.exchange.send(5)
        scene.drained("asleep for a day")


@pytest.mark.skipif(not FORM or not can_unshare(*SHIFTED), reason="no time namespaces")
def test_a_host_that_was_off_while_its_clocks_went_on_for_a_day(scene: Scene) -> None:
    there = scene.exchange.there
    there.host.daemon.stop()
    for _ in range(100):
        scene.exchange.here.send()
    prefix = (*scene.lap.prefix, *unshared(*SHIFTED))
    there.host.daemon = scene.stack.enter_context(Daemon(there.host.home, prefix=prefix))
    scene.exchange.again(there)
    if there.line.call("session.whoami")["agent"] is None:  # seen from there the holder began later
        there.line.call("identity.claim", name=there.name)
    scene.exchange.send(20)
    scene.drained("off, and back with its steady clock a day further")


@pytest.mark.skipif(not WallClock.is_available(), reason="faketime is not installed")
@pytest.mark.parametrize("ahead_s", [600, -600])
def test_a_host_whose_clock_is_ten_minutes_off(tmp_path: Path, ahead_s: int) -> None:
    clock = WallClock(tmp_path / "clock")
    clock.step(ahead_s)
    with ExitStack() as stack:
        scene = Scene(stack, lap={"environment": clock.environment})
        with scene.traffic():
            wait_s(2)
            scene.lap.reset()
            wait_s(1)
            scene.resets += scene.lap.hits()
            scene.lap.heal()
        scene.drained(f"a clock {ahead_s:+d} s off")
        for end, sign in zip(scene.exchange.ends, (1, -1), strict=True):
            assert abs(end.peer()["clock_ahead_ms"] - sign * ahead_s * 1_000) < 60_000
        clock.step(-2 * ahead_s)
        scene.exchange.send(20)
        scene.drained(f"set to {-ahead_s:+d} s while it runs")


def test_a_host_that_gets_another_address_is_followed_without_its_owner(scene: Scene) -> None:
    here, new = scene.exchange.here, scene.bridge.address(77)
    with scene.traffic(0.2):
        wait_s(1)
        scene.lap.move_to(new)
        scene.cuts += 1
        wait_s(2)
    scene.drained("another address", 150)
    at = f"{new}:{scene.exchange.there.host.port}"
    patiently(DRAINED_S)(lambda: at in here.peer()["told_addresses"], "the new address is told")
    assert here.peer()["addresses"] != [at]  # what the owner signed stands
    scene.places["desk"].refuse_callers()  # so that only who has followed can dial
    scene.lap.reset()
    scene.exchange.send(1)
    scene.resets += 1
    scene.lap.heal()
    scene.exchange.send(10)
    scene.drained("dialled at the new address")


# -- much that waited -----------------------------------------------------------------------------


def test_fifty_thousand_messages_that_waited_for_a_host_drain_in_order(scene: Scene) -> None:
    here, there = scene.exchange.ends
    there.host.daemon.stop()
    began_s = time.monotonic()
    here.send_many(BACKLOG)
    queued_s = time.monotonic() - began_s
    assert here.peer()["queued"] == BACKLOG
    before = here.host.daemon.resident_kib()
    there.host.daemon.start()
    scene.exchange.again(there)
    began_s = time.monotonic()
    patiently(600)(scene.exchange.is_settled, "the backlog is drained")
    took_s = time.monotonic() - began_s
    scene.drained(f"{BACKLOG:,} messages that waited")
    rows = [
        f"{end.host.label} {end.host.daemon.resident_kib() // 1024} MiB"
        f" (most {end.host.daemon.peak_kib() // 1024})"
        for end in scene.exchange.ends
    ]
    sys.stdout.write(
        f"queued in {queued_s:.1f} s, drained in {took_s:.1f} s"
        f" ({BACKLOG / took_s:,.0f} messages/s); RSS {', '.join(rows)};"
        f" before the drain desk {before // 1024} MiB\n"
    )
    assert max(end.host.daemon.peak_kib() for end in scene.exchange.ends) < 150 * 1024
