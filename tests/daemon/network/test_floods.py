"""Floods: half-open connections, slow ones, heaps of them. A good peer hardly notices.

Nothing here measures time. That a peer stays responsive is said by order: its exchanges complete
while the flood is on. That memory is bounded is said by counts of connections, bytes and
descriptors.
"""

import asyncio
import os
import resource
import select
import socket
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager, suppress
from pathlib import Path

import pytest
from websockets.frames import Opcode

from mbx.core.endpoints import Endpoint
from mbx.core.limits import (
    DESCRIPTORS_PERCENT_MAX,
    STRANGER_FRAMES_MAX,
    STRANGERS_MAX,
    STRANGERS_OF_ADDRESS_MAX,
)
from mbx.daemon.faces import networks
from mbx.daemon.faces.channels import Channel
from mbx.daemon.faces.networks import Crowd
from mbx.daemon.faces.peers import Undialled
from tests.support.network import (
    WAIT_S,
    Caller,
    Home,
    descriptors,
    frame,
    home_with_peers,
    request,
    until,
)
from tests.support.tls import LOOPBACK

PLACES = [f"127.0.0.{number}" for number in range(2, 14)]


async def exchanges(channel: Channel, count: int) -> int:
    """So many texts there and back again."""
    for number in range(count):
        channel.send(f"text {number}")
        assert await channel.receive() == f"text {number}"
    return count


@asynccontextmanager
async def under(home: Home) -> AsyncIterator[Channel]:
    """An honest link that was there before the flood, goes through it, and is there after it."""
    channel = await home.dialled(home.peers[0])
    await exchanges(channel, 1)
    yield channel
    await exchanges(channel, 10)
    assert channel.why is None
    await channel.close()


def told(what: str) -> None:
    sys.stdout.write(f"{what}\n")


# -- the crowd alone ------------------------------------------------------------------------------


def admitted(crowd: Crowd, *places: str) -> list[str]:
    """Let one in from each place; who was put out for it, by its number."""
    out: list[str] = []
    for number, place in enumerate(places):
        name = f"{number} of {place}"
        if crowd.admit(place, lambda name=name: out.append(name)) is None:  # type: ignore[misc]
            out.append(f"not {name}")
    return out


def test_four_of_one_address_are_let_in_and_a_fifth_is_not() -> None:
    crowd = Crowd()
    assert STRANGERS_OF_ADDRESS_MAX == 4
    assert admitted(crowd, *["10.0.0.1"] * 3) == []
    assert admitted(crowd, "10.0.0.1") == []
    assert admitted(crowd, "10.0.0.1") == ["not 0 of 10.0.0.1"]
    assert admitted(crowd, "10.0.0.2") == []
    assert crowd.counts == {"too many of one address": 1}


def test_eight_strangers_are_inside_and_a_ninth_takes_the_place_of_one_of_the_busiest() -> None:
    crowd = Crowd()
    assert STRANGERS_MAX == 8
    places = ["10.0.0.1", "10.0.0.2", "10.0.0.2", "10.0.0.3", "10.0.0.4", "10.0.0.5", "10.0.0.6"]
    assert admitted(crowd, *places) == []
    assert admitted(crowd, "10.0.0.7") == []
    assert crowd.strangers == 8
    assert admitted(crowd, "10.0.0.8") == []
    assert crowd.strangers == 8
    assert crowd.counts == {"made room": 1}


def test_who_makes_room_is_the_oldest_of_the_place_that_has_the_most() -> None:
    crowd = Crowd()
    out = admitted(crowd, "10.0.0.1", *["10.0.0.2"] * 4, *["10.0.0.3"] * 3, "10.0.0.4", "10.0.0.5")
    assert out == ["1 of 10.0.0.2", "2 of 10.0.0.2"]


def test_a_network_of_ipv6_counts_as_one_address() -> None:
    crowd = Crowd()
    assert admitted(crowd, *(f"2001:db8:0:1::{number}" for number in range(4))) == []
    assert admitted(crowd, "2001:db8:0:1:ffff::1") == ["not 0 of 2001:db8:0:1:ffff::1"]
    assert admitted(crowd, "2001:db8:0:2::1", "fe80::1%eth0") == []


def test_links_do_not_count_as_strangers_and_leave_once() -> None:
    crowd = Crowd()
    guests = [crowd.admit("10.0.0.1", lambda: None) for _ in range(4)]
    for guest in guests:
        assert guest is not None
        assert guest.identified()
        assert guest.identified()
    assert (crowd.strangers, crowd.links) == (0, 4)
    for guest in guests:
        assert guest is not None
        guest.leave()
        guest.leave()
    assert (crowd.strangers, crowd.links) == (0, 0)


def test_who_has_left_or_made_room_never_takes_a_place_again() -> None:
    crowd = Crowd()
    left, out = crowd.admit("10.0.0.1", lambda: None), crowd.admit("10.0.0.2", lambda: None)
    link = crowd.dialled()
    assert left is not None
    assert out is not None
    assert link is not None
    left.leave()
    link.leave()
    admitted(crowd, *(f"10.0.1.{number}" for number in range(8)))
    assert crowd.counts["made room"] == 1
    for gone in (left, out, link):
        assert not gone.identified()
    assert (crowd.strangers, crowd.links) == (8, 0)


# -- connections ----------------------------------------------------------------------------------


async def test_half_open_connections_of_many_places_keep_no_peer_out(tmp_path: Path) -> None:
    """They say nothing, or half a handshake; a second peer comes in during the flood."""
    async with home_with_peers(tmp_path) as home, under(home) as channel:
        before = descriptors()
        held: list[Caller] = []
        most = done = 0
        for number in range(120):
            place = PLACES[number % len(PLACES)]
            with suppress(OSError):
                caller = await home.caller(source=place, plain=True)
                caller.write([b"", b"\x16", b"\x16\x03\x01\x02\x00\x01"][number % 3])
                held.append(caller)
            most = max(most, home.crowd.strangers)
            if number % 20 == 0:
                done += await exchanges(channel, 5)
                second = await home.dialled(home.peers[1])
                done += await exchanges(second, 1)
                await second.close()
        assert most <= STRANGERS_MAX
        assert home.crowd.counts["made room"] >= 60
        # Each caller that was put out costs us nothing any more; the test's own ends stay open.
        await until(lambda: descriptors() <= before + len(held) + STRANGERS_MAX + 2)
        told(
            f"{len(held)} half-open connections, {most} inside at most, {done} exchanges meanwhile"
        )
        assert done == 36
        for caller in held:
            caller.hang_up()


async def test_a_burst_that_is_accepted_in_one_turn_is_thinned_out_at_once(home: Home) -> None:
    """Four of them have to go before anything was done for them, and are closed all the same."""
    with ExitStack() as stack:
        burst = [stack.enter_context(socket.socket()) for _ in PLACES]
        for place, one in zip(PLACES, burst, strict=True):
            one.bind((place, 0))
            one.setblocking(False)
            one.connect_ex((home.endpoint.host, home.endpoint.port))
        await until(lambda: home.crowd.counts["made room"] == len(PLACES) - STRANGERS_MAX)
        gone: list[socket.socket] = []  # whichever came first

        def are_told() -> bool:
            gone[:] = select.select(burst, [], [], 0)[0]
            return len(gone) >= len(PLACES) - STRANGERS_MAX

        await until(are_told)
        assert [one.recv(1) for one in gone] == [b""] * (len(PLACES) - STRANGERS_MAX)
        assert home.crowd.strangers == STRANGERS_MAX


async def test_a_stranger_that_is_inside_makes_room_too(home: Home) -> None:
    first = await home.stranger(PLACES[0])
    for place in PLACES[1:]:
        await home.caller(source=place, plain=True)
    await first.ended()
    await until(lambda: home.pairings[0].why is not None)
    assert home.crowd.counts["made room"] == len(PLACES) - STRANGERS_MAX
    assert home.crowd.strangers == STRANGERS_MAX


async def secured(home: Home, source: str) -> Caller:
    """A caller whose TLS was up in time, having tried as often as it takes."""
    async with asyncio.timeout(WAIT_S):
        while True:
            with suppress(OSError):
                return await home.caller(source=source)


async def test_a_caller_that_crawls_is_cut_off_whatever_it_crawls_through(tmp_path: Path) -> None:
    """A byte of TLS, of the upgrade, or of a frame at a time, for as long as it is let."""
    async with home_with_peers(tmp_path) as home, under(home) as channel:
        home.hurry(first_frame_s=0.5)
        framed = await home.stranger(PLACES[1])
        home.hurry(handshake_s=0.5)
        hello, upgrade = await home.caller(plain=True), await secured(home, PLACES[0])
        ended: list[str] = []

        async def crawl(name: str, caller: Caller, data: bytes) -> None:
            with suppress(OSError):
                for byte in data * 100:
                    if caller.reader.at_eof() or caller.writer.is_closing():
                        break
                    caller.write(bytes([byte]))
                    await asyncio.get_running_loop().run_in_executor(None, lambda: None)
            await caller.ended()
            ended.append(name)

        crawling = asyncio.gather(
            crawl("TLS", hello, b"\x16\x03\x01\x40\x00" + b"\x01" * 16_000),
            crawl("upgrade", upgrade, request("/pair")[:-2] + b"X: y\r\n" * 10_000),
            crawl("frame", framed, b"\x81\xfe\x0f\xff" + b"m" * 5_000),
        )
        done = 0
        while not crawling.done():
            done += await exchanges(channel, 10)
        await crawling
        assert sorted(ended) == ["TLS", "frame", "upgrade"]
        assert done >= 10
        await until(lambda: home.crowd.strangers == 0)


CONNECTS = """
import socket, sys
held, connected = [], 0
for number in range(1_200):
    source = (f"127.0.0.{2 + number % 12}", 0)
    try:
        where = (sys.argv[1], int(sys.argv[2]))
        held.append(socket.create_connection(where, 5, source_address=source))
        connected += 1
    except OSError:
        pass
    if len(held) > 100:
        held.pop(0).close()
    if number % 100 == 99:
        print(connected, flush=True)
"""


@pytest.mark.long
@pytest.mark.timeout(90)
async def test_heaps_of_connects_leave_nothing_behind(home: Home) -> None:
    """They come from a process of its own, which tells how far it is."""
    asyncio.get_running_loop().set_debug(False)  # a trace back for each of them would be the load
    before = descriptors()
    connected = done = 0
    async with under(home) as channel:
        where = (home.endpoint.host, str(home.endpoint.port))
        child = await asyncio.create_subprocess_exec(
            sys.executable, "-c", CONNECTS, *where, stdout=asyncio.subprocess.PIPE
        )
        assert child.stdout is not None
        while line := await child.stdout.readline():
            connected = int(line)
            done += await exchanges(channel, 3)
        assert await child.wait() == 0
        told(f"{connected} connects, {done} exchanges meanwhile; {dict(home.crowd.counts)}")
    assert connected >= 1_000
    assert done == 36
    await until(lambda: home.crowd.strangers == 0)
    await until(lambda: descriptors() <= before + 1)


# -- frames ---------------------------------------------------------------------------------------


async def test_a_stranger_that_floods_is_gone_before_its_flood_is_read(tmp_path: Path) -> None:
    floods = {
        "pings": frame(Opcode.PING, b"p" * 100),
        "pongs": frame(Opcode.PONG, b""),
        "empty fragments": frame(Opcode.CONT, b"", fin=False),
        "texts": frame(Opcode.TEXT, b"x"),
    }
    # All of it within one second, however long that takes.
    async with home_with_peers(tmp_path, now_ms=lambda: 5_000) as home, under(home) as channel:
        for name, one in floods.items():
            caller = await home.stranger()
            if name == "empty fragments":
                caller.write(frame(Opcode.TEXT, b"", fin=False))
            for _ in range(20):
                caller.write(one * 2_000)
            await exchanges(channel, 5)
            heard = await caller.ended()
            # What stands in the piece that broke the limit is answered too: 4 KiB at most.
            assert heard.count(b"\x8a") <= STRANGER_FRAMES_MAX + 1 + 4_096 // len(one), name
        assert [one.why for one in home.pairings] == ["flood"] * len(floods)


async def test_a_peer_that_pings_and_hears_nothing_does_not_fill_our_memory(home: Home) -> None:
    """It never reads: our pongs pile up until we stop hearing its pings."""
    async with under(home) as channel:
        caller = await home.hostile_peer(home.peers[1])
        caller.writer.transport.pause_reading()  # type: ignore[attr-defined]
        await until(lambda: len(home.links) == 2)
        theirs = home.links[1]
        caller.write(frame(Opcode.TEXT, b"hello"))
        sent = largest = 0
        while "unread" not in theirs._pauses and sent < 400:
            caller.write(frame(Opcode.PING, b"p" * 125) * 500)
            sent += 1
            await exchanges(channel, 1)
            assert theirs._transport is not None
            largest = max(largest, theirs._transport.get_write_buffer_size())
        assert "unread" in theirs._pauses
        assert largest < 1_500_000
        told(f"{sent * 500} pings, {largest} bytes of pongs waiting at most")
        caller.hang_up()


async def test_a_peer_that_sends_and_is_not_read_is_held_back(tmp_path: Path) -> None:
    async with home_with_peers(tmp_path, takes=False) as home:
        caller = await home.hostile_peer(home.peers[1])
        await until(lambda: len(home.links) == 1)
        (theirs,) = home.links
        block = frame(Opcode.TEXT, b"x" * 1_000_000)
        caller.write(frame(Opcode.TEXT, b"hello"))
        for _ in range(20):
            caller.write(block)
        await until(lambda: "full" in theirs._pauses)
        for _ in range(100):
            await asyncio.sleep(0)
        assert theirs._waiting_bytes < 6_000_000
        assert len(theirs._texts) < 7
        caller.hang_up()


# -- descriptors ----------------------------------------------------------------------------------


@contextmanager
def few_descriptors(more: int) -> Iterator[None]:
    """A limit of which four fifths are in use with so many more than now.

    No number below is left free, so that the numbers of new ones say how many are in use.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    highest = max(int(name) for name in os.listdir("/proc/self/fd"))
    held = [os.open(os.devnull, os.O_RDONLY)]
    while held[-1] < highest:
        held.append(os.dup(held[0]))
    few = (held[-1] + more) * 100 // DESCRIPTORS_PERCENT_MAX + 1
    resource.setrlimit(resource.RLIMIT_NOFILE, (few, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for descriptor in held:
            os.close(descriptor)


async def let_in(home: Home) -> Channel:
    """The link that a peer gets once there is room, having tried as often as it takes."""
    while True:
        with suppress(Undialled):
            return await home.dialled(home.peers[1])


async def test_nobody_is_let_in_where_descriptors_run_short(tmp_path: Path) -> None:
    """What is left is for the store, and for the callers of this machine."""
    async with home_with_peers(tmp_path) as home, under(home) as channel:
        with few_descriptors(12):
            (home.endpoint,) = home.listener.open([Endpoint(LOOPBACK, 0)])
            callers = [await home.caller(source=place, plain=True) for place in PLACES]
            await until(lambda: home.crowd.counts["descriptors ran short"] > 0)
            await exchanges(channel, 20)
            with (tmp_path / "a file of the store").open("w"):
                pass
            for caller in callers:
                caller.hang_up()
            # Once there are some again, who waits outside is let in.
            again = await let_in(home)
            await exchanges(again, 1)
            await again.close()


def test_without_a_limit_descriptors_are_still_counted() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert networks.descriptors_max() == soft * DESCRIPTORS_PERCENT_MAX // 100
    assert DESCRIPTORS_PERCENT_MAX == 80
    if hard == resource.RLIM_INFINITY:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        assert networks.descriptors_max() > 100_000
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
