"""One channel: its limits at -1, 0 and +1, what the other side may do to it, and how it ends."""

import asyncio
import random
import subprocess
import sys
from pathlib import Path
from typing import Any, cast

import pytest
from websockets.frames import Opcode

from mbx.core.limits import (
    CHANNEL_WAITING_MAX_BYTES,
    CLOSE_MS,
    FRAGMENTS_MAX,
    FRAME_MAX_BYTES,
    HANDSHAKE_MS,
    HELLO_DEADLINE_MS,
    HELLO_MAX_BYTES,
    PAIRING_FRAME_MAX_BYTES,
    PING_MS,
    PINGS_MISSED_MAX,
    PROBE_MS,
    REQUEST_HEAD_MAX_BYTES,
    STRANGER_FRAMES_MAX,
)
from mbx.daemon.faces.channels import TERMS, Channel, ChannelEnded
from tests.support.network import (
    PATIENT,
    WAIT_S,
    Home,
    close_code,
    frame,
    home_with_peers,
    request,
    until,
)

TOO_LARGE, MALFORMED, BINARY, POLICY = 1009, 1007, 1003, 1008


async def link(home: Home, number: int = 0) -> tuple[Channel, Channel]:
    """A peer's channel, and the host's end of it."""
    count = len(home.links)
    channel = await home.dialled(home.peers[number])
    await until(lambda: len(home.links) == count + 1)
    return channel, home.links[-1]


async def why(channel: Channel) -> str:
    try:
        while True:
            await channel.receive()
    except ChannelEnded as ended:
        return ended.why


# -- sizes ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("more", [-1, 0, 1])
async def test_a_text_has_at_most_two_mebibytes(more: int, home: Home) -> None:
    channel, _ = await link(home)
    channel.send("hello")
    assert await channel.receive() == "hello"
    text = "\u00e9" * (FRAME_MAX_BYTES // 2 - 1) + "e" * (2 + more)
    assert len(text.encode()) == FRAME_MAX_BYTES + more
    channel.send(text)
    if more <= 0:
        assert await channel.receive() == text
    else:
        assert await why(channel) == "closed"
        assert home.links[0].why == "too large"


@pytest.mark.parametrize("more", [-1, 0, 1])
@pytest.mark.parametrize("shown", [True, False])
async def test_a_first_text_has_at_most_four_kibibytes(
    more: int, home: Home, *, shown: bool
) -> None:
    channel = await (home.dialled(home.peers[0]) if shown else home.joined())
    text = "x" * (HELLO_MAX_BYTES + more)
    channel.send(text)
    if more <= 0:
        assert await channel.receive() == text
    else:
        assert await why(channel) == "closed"


@pytest.mark.parametrize("more", [-1, 0, 1])
async def test_a_text_of_a_pairing_has_at_most_sixteen(more: int, home: Home) -> None:
    channel = await home.joined()
    channel.send("join")
    assert await channel.receive() == "join"
    text = "x" * (PAIRING_FRAME_MAX_BYTES + more)
    channel.send(text)
    if more <= 0:
        assert await channel.receive() == text
    else:
        assert await why(channel) == "closed"
        assert home.pairings[0].why == "too large"


async def test_a_length_is_refused_before_anything_of_it_is_kept(home: Home) -> None:
    caller = await home.hostile_peer(home.peers[0])
    caller.write(b"\x81\xff" + (2**62).to_bytes(8, "big") + b"mask")
    assert close_code(await caller.ended()) == TOO_LARGE


@pytest.mark.parametrize("more", [-1, 0, 1])
async def test_a_text_comes_in_at_most_256_frames(more: int, home: Home) -> None:
    caller = await home.hostile_peer(home.peers[0])
    count = FRAGMENTS_MAX + more
    caller.write(frame(Opcode.TEXT, b"x", fin=False))
    for number in range(2, count + 1):
        caller.write(frame(Opcode.CONT, b"x", fin=number == count))
    if more <= 0:
        assert await caller.reader.readexactly(count + 4) != b""
        assert home.links[0].why is None
        caller.hang_up()
    else:
        assert close_code(await caller.ended()) == TOO_LARGE


@pytest.mark.parametrize("more", [-1, 0, 1])
async def test_the_head_of_an_upgrade_has_at_most_eight_kibibytes(more: int, home: Home) -> None:
    caller = await home.caller()
    room = REQUEST_HEAD_MAX_BYTES + more - len(request("/pair", "A: ", "B: "))
    head = request("/pair", "A: " + "a" * (room // 2), "B: " + "b" * (room - room // 2))
    assert len(head) == REQUEST_HEAD_MAX_BYTES + more
    caller.write(head)
    answer = await caller.answer()
    assert answer.startswith(b"HTTP/1.1 101 ") == (more <= 0)
    caller.hang_up()
    await until(lambda: home.crowd.strangers == 0)


async def test_head_lines_without_end_are_cut_off(home: Home) -> None:
    caller = await home.caller()
    caller.write(b"GET /pair HTTP/1.1\r\n")
    for number in range(2_000):
        caller.write(f"X-{number}: {'y' * 50}\r\n".encode())
    assert b"HTTP/1.1 101" not in await caller.ended()
    assert home.pairings == []


# -- frames that are none -------------------------------------------------------------------------

BROKEN = {
    "binary": (frame(Opcode.BINARY, b"x"), BINARY),
    "no UTF-8": (frame(Opcode.TEXT, b"\xff\xfe"), MALFORMED),
    "half a character": (frame(Opcode.TEXT, b"\xc3"), MALFORMED),
    "a lone surrogate": (frame(Opcode.TEXT, b"\xed\xa0\x80"), MALFORMED),
    "not masked": (b"\x81\x01x", 1002),
    "a reserved bit": (b"\xf1\x81\0\0\0\0x", 1002),
    "an unknown kind": (b"\x83\x80\0\0\0\0", 1002),
    "a continuation of nothing": (frame(Opcode.CONT, b"x"), 1002),
    "a text within a text": (frame(Opcode.TEXT, b"x", fin=False) + frame(Opcode.TEXT, b"y"), 1002),
    "a long ping": (b"\x89\xfe\x00\x7e\0\0\0\0" + b"x" * 126, 1002),
    "half a ping": (b"\x09\x80\0\0\0\0", 1002),
}


@pytest.mark.parametrize("name", BROKEN)
@pytest.mark.parametrize("shown", [True, False])
async def test_a_broken_frame_ends_the_channel_with_the_code_for_it(
    name: str, home: Home, *, shown: bool
) -> None:
    data, code = BROKEN[name]
    caller = await (home.hostile_peer(home.peers[0]) if shown else home.stranger())
    caller.write(data)
    assert close_code(await caller.ended()) == code
    channels = home.links if shown else home.pairings
    await until(lambda: channels[0].why == "malformed")


async def test_what_is_said_before_the_answer_to_the_upgrade_ends_it(home: Home) -> None:
    caller = await home.caller()
    caller.write(request("/pair") + frame(Opcode.TEXT, b"early"))
    await caller.ended()
    assert home.pairings == []


async def test_noise_breaks_nothing(home: Home) -> None:
    chance = random.Random(7)
    for _ in range(20):
        caller = await home.stranger()
        caller.write(chance.randbytes(chance.randrange(1, 3_000)))
        caller.write(frame(Opcode.TEXT, b"tail"))
        caller.hang_up()
    await until(lambda: home.crowd.strangers == 0)
    assert len(home.pairings) == 20


# -- strangers' pace ------------------------------------------------------------------------------


@pytest.mark.parametrize("more", [-1, 0, 1])
async def test_a_stranger_sends_at_most_fifty_frames_a_second(more: int, tmp_path: Path) -> None:
    async with home_with_peers(tmp_path, now_ms=lambda: 5_000) as home:  # a long second
        caller = await home.stranger()
        caller.write(frame(Opcode.PING, b"") * (STRANGER_FRAMES_MAX + more))
        await until(lambda: home.pairings[0].why is not None or more <= 0)
        if more <= 0:
            caller.write(frame(Opcode.CLOSE, b"\x03\xe8"))
            assert close_code(await caller.ended()) == 1000
        else:
            assert close_code(await caller.ended()) == POLICY
            assert home.pairings[0].why == "flood"


async def test_a_peer_has_no_such_limit_and_neither_has_a_pairing_once_proved(home: Home) -> None:
    paired, joiner = await home.hostile_peer(home.peers[0]), await home.stranger()
    assert home.pairings[0].proved()
    for caller in (paired, joiner):
        caller.write(frame(Opcode.PING, b"") * 500)
        caller.write(frame(Opcode.CLOSE, b"\x03\xe8"))
        heard = await caller.ended()
        assert heard.count(b"\x8a\x00") >= 500
        assert heard.endswith(b"\x88\x02\x03\xe8")


# -- time -----------------------------------------------------------------------------------------


def test_the_deadlines_are_those_of_the_limits() -> None:
    assert (HANDSHAKE_MS, HELLO_DEADLINE_MS, CLOSE_MS) == (5_000, 5_000, 2_000)
    assert (PING_MS, PINGS_MISSED_MAX) == (20_000, 2)
    told_ms = (HANDSHAKE_MS, HELLO_DEADLINE_MS, PING_MS, CLOSE_MS, PROBE_MS)
    assert tuple(TERMS) == tuple(ms / 1000 for ms in told_ms)


@pytest.mark.parametrize("shown", [True, False])
async def test_who_says_nothing_at_first_is_cut_off(tmp_path: Path, *, shown: bool) -> None:
    async with home_with_peers(tmp_path, PATIENT._replace(first_frame_s=0.3)) as home:
        caller = await (home.hostile_peer(home.peers[0]) if shown else home.stranger())
        assert close_code(await caller.ended()) == POLICY
        channels = home.links if shown else home.pairings
        assert channels[0].why == "slow"


SIGNS = {
    "a pong": frame(Opcode.PONG, b""),
    "a text": frame(Opcode.TEXT, b"x"),
    "none": b"",
}


@pytest.mark.parametrize("sign", SIGNS)
async def test_a_peer_that_gives_no_sign_of_life_is_dead_after_two_pings(
    tmp_path: Path, sign: str
) -> None:
    said = SIGNS[sign]
    # One who answers has two pings' time for it.
    terms = PATIENT._replace(ping_s=0.5 if said else 0.1)
    async with home_with_peers(tmp_path, terms) as home:
        caller = await home.hostile_peer(home.peers[0])
        pings = 0
        while pings < 5:
            piece = await caller.reader.read(1_024)
            if not piece:
                break
            heard = piece.count(b"\x89\x00")
            pings += heard
            caller.write(said * heard)
        assert pings == (5 if said else PINGS_MISSED_MAX)
        assert home.links[0].why == (None if said else "silent")
        caller.hang_up()


@pytest.mark.parametrize("answers", [True, False])
async def test_who_is_asked_whether_it_lives_has_a_while_to_answer_and_no_more(
    tmp_path: Path, *, answers: bool
) -> None:
    terms = PATIENT._replace(probe_s=WAIT_S if answers else 0.3)
    async with home_with_peers(tmp_path, terms) as home:
        caller = await home.hostile_peer(home.peers[0])
        await until(lambda: len(home.links) == 1)
        (theirs,) = home.links
        assert await caller.reader.readexactly(2) == b"\x89\x00"  # the first of all
        theirs.probe()
        assert await caller.reader.readexactly(2) == b"\x89\x00"
        if answers:
            caller.write(frame(Opcode.PONG, b""))
            await until(lambda: theirs.round_trip is not None)
            theirs._beat()  # as soon as the while is over
            assert await caller.reader.readexactly(2) == b"\x89\x00"  # it goes on being asked
            assert theirs.why is None
        else:
            await caller.ended()
            assert theirs.why == "silent"
        caller.hang_up()


async def test_honest_channels_that_have_nothing_to_say_stay(tmp_path: Path) -> None:
    """Each side's pings are answered, with deadlines that pass many times meanwhile."""
    terms = PATIENT._replace(ping_s=0.5)
    async with home_with_peers(tmp_path, terms) as home:
        channel = await home.dialled(home.peers[0], terms)
        channel.send("hello")
        assert await channel.receive() == "hello"
        beats = 0

        def beat() -> None:
            nonlocal beats
            beats += 1
            if beats < 5:
                asyncio.get_running_loop().call_later(terms.ping_s, beat)

        beat()
        await until(lambda: beats == 5)
        assert (channel.why, home.links[0].why) == (None, None)
        await channel.close()


# -- a pipe that is not emptied -------------------------------------------------------------------


async def test_who_does_not_take_texts_slows_the_sender_down(tmp_path: Path) -> None:
    async with home_with_peers(tmp_path, takes=False) as home:
        channel, theirs = await link(home)
        channel.send("hello")
        block = "x" * 250_000
        sent = 0
        async with asyncio.timeout(WAIT_S):
            while "unread" not in channel._pauses or "full" not in theirs._pauses:
                if "unread" not in channel._pauses:
                    channel.send(block)
                    sent += 1
                await asyncio.sleep(0)
        assert sent < 200
        # No chunk is larger than 256 KiB, so no more than that and one text comes on top.
        assert theirs._waiting_bytes < CHANNEL_WAITING_MAX_BYTES + 600_000
        draining = asyncio.create_task(channel.drain())
        taken = [await theirs.receive() for _ in range(sent + 1)]
        assert taken == ["hello", *[block] * sent]
        await draining
        assert not theirs._pauses


async def test_empty_texts_fill_the_queue_too(tmp_path: Path) -> None:
    async with home_with_peers(tmp_path, takes=False) as home:
        caller = await home.hostile_peer(home.peers[0])
        (theirs,) = home.links
        for _ in range(60):
            caller.write(frame(Opcode.TEXT, b"") * 2_000)
        await until(lambda: "full" in theirs._pauses)
        assert len(theirs._texts) < 120_000
        caller.hang_up()


async def test_a_channel_that_we_do_not_empty_is_not_taken_for_dead(tmp_path: Path) -> None:
    async with home_with_peers(tmp_path, takes=False) as home:
        channel, theirs = await link(home)
        channel.send("hello")
        while "full" not in theirs._pauses:
            channel.send("x" * 500_000)
            await asyncio.sleep(0)
        theirs._terms = PATIENT._replace(ping_s=0.02)
        theirs._beat()
        beats = theirs._timers["ping"].when()
        await until(lambda: theirs._timers["ping"].when() > beats + 0.1)
        assert theirs.why is None
        channel.abort()


# -- ends -----------------------------------------------------------------------------------------


async def test_what_a_host_says_and_hangs_up_at_once_is_still_heard(home: Home) -> None:
    """The answer to the upgrade, a text and the goodbye come in one piece."""
    home.greeting = "not now"
    channel = await home.joined()
    assert await channel.receive() == "not now"
    assert await why(channel) == "closed"


HEAVY = ["websockets", "cryptography.x509", "mbx.daemon.certificates", "mbx.daemon.faces.peers"]


LOADED = f"""
import sys, mbx.daemon.__main__, mbx.daemon.app
print([name for name in {HEAVY} if name in sys.modules])
"""


def test_a_daemon_that_is_started_loads_nothing_of_the_network() -> None:
    """A tenth of a second and five mebibytes, for those who have no peers."""
    told = subprocess.run(
        [sys.executable, "-c", LOADED],
        capture_output=True,
        text=True,
        timeout=15,
        check=True,
    )
    assert told.stdout.strip() == "[]"


async def test_what_is_sent_in_one_turn_leaves_and_arrives_together(home: Home) -> None:
    channel, _ = await link(home)
    channel.send("hello")
    assert await channel.receive() == "hello"
    pieces: list[int] = []
    transport = cast(asyncio.Transport, channel._transport)

    class Noted:
        def write(self, data: bytes) -> None:
            pieces.append(len(data))
            transport.write(data)

        def __getattr__(self, name: str) -> Any:
            return getattr(transport, name)

    channel._transport = cast(asyncio.Transport, Noted())
    for text in ("one", "two", "three"):
        channel.send(text)
    assert [await channel.receive() for _ in range(3)] == ["one", "two", "three"]
    assert len(pieces) == 1
    channel._transport = transport


async def test_what_was_sent_before_a_close_arrives_before_it(home: Home) -> None:
    channel, theirs = await link(home)
    home.takes = False
    channel.send("one")
    assert await channel.receive() == "one"
    for number in range(5):
        theirs.send(f"last {number}")
    await theirs.close()
    assert [await channel.receive() for _ in range(5)] == [f"last {n}" for n in range(5)]
    assert await why(channel) == "closed"
    with pytest.raises(ChannelEnded):
        channel.send("too late")
    with pytest.raises(ChannelEnded):
        await channel.drain()
    await channel.close()
    channel.abort()


async def test_who_does_not_answer_a_goodbye_is_cut_off(tmp_path: Path) -> None:
    async with home_with_peers(tmp_path, PATIENT._replace(close_s=0.2), takes=False) as home:
        caller = await home.hostile_peer(home.peers[0])
        caller.write(frame(Opcode.TEXT, b"hello"))
        await until(lambda: len(home.links) == 1)
        await home.links[0].close()
        assert home.links[0].why == "closed"
        assert close_code(await caller.ended()) == 1000


async def test_a_link_that_is_torn_is_lost_for_both(home: Home) -> None:
    channel, theirs = await link(home)
    waiting = asyncio.create_task(why(channel))
    theirs.abort()
    assert await waiting == "lost"
    again, other_end = await link(home, 1)
    again.abort()
    assert await why(other_end) == "lost"
    async for _ in again:
        raise AssertionError("nothing comes out of an end")


async def test_a_close_without_a_code_and_one_with_words_are_both_an_end(home: Home) -> None:
    for payload in (b"", b"\x03\xe8bye", b"\x0f\xa0"):
        caller = await home.stranger()
        caller.write(frame(Opcode.CLOSE, payload))
        heard = await caller.ended()
        assert heard.endswith(b"\x88" + bytes([len(payload)]) + payload)
    assert {one.why for one in home.pairings} == {"closed"}
