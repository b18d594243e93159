"""Who gets in from the network, as whom, and what a dial comes to."""

import asyncio
import errno
import os
import re
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from mbx.core.endpoints import Endpoint
from mbx.core.errors import MbxError
from mbx.core.limits import LINKS_MAX
from mbx.daemon import certificates
from mbx.daemon.faces import networks
from mbx.daemon.faces.channels import Channel, ChannelEnded
from mbx.daemon.faces.networks import Crowd
from mbx.daemon.faces.peers import Pinned, Undialled, dial
from tests.support.network import (
    PATIENT,
    Caller,
    Home,
    home_with_peers,
    monotonic_ms,
    plain_context,
    request,
    until,
)
from tests.support.tls import LOOPBACK, anchors, machine


async def says(channel: Channel, text: str) -> str:
    channel.send(text)
    await channel.drain()
    return await channel.receive()


async def refused(dialling: Any) -> Undialled:
    with pytest.raises(Undialled) as caught:
        await dialling
    assert len(caught.value.words) > 15
    return caught.value


# -- who gets in ----------------------------------------------------------------------------------


async def test_each_peer_gets_a_link_as_itself_and_texts_pass_both_ways(home: Home) -> None:
    channels = [await home.dialled(one) for one in home.peers]
    for number, channel in enumerate(channels):
        for text in (f"text {number}", "", "\u00e9\u4e2d\U0001f600\0", "x" * 100_000):
            assert await says(channel, text) == text
    assert [one.peer for one in home.links] == [one.id for one in home.peers]
    assert [one.certificate for one in home.links] == [one.tls.certificate for one in home.peers]
    assert {one.peer for one in channels} == {home.own.id}
    assert {one.address for one in [*channels, *home.links]} == {LOOPBACK}
    assert (home.crowd.links, home.crowd.strangers, home.diallers.links) == (3, 0, 3)
    for channel in channels:
        await channel.close()
    await until(lambda: home.crowd.links == 0)
    assert home.diallers.links == 0
    assert {one.why for one in [*channels, *home.links]} == {"closed"}


async def test_who_shows_no_certificate_may_pair_and_nothing_else(home: Home) -> None:
    channel = await home.joined()
    assert await says(channel, "join") == "join"
    assert (channel.peer, channel.certificate) == (None, home.own.tls.certificate)
    assert (home.pairings[0].peer, home.pairings[0].certificate) == (None, None)
    await channel.close()
    caller = await home.caller()
    assert await caller.upgraded("/link") == 403
    await caller.ended()
    assert home.links == []
    assert home.crowd.counts["not paired"] == 1


async def test_a_peer_that_was_removed_is_told_so_at_once_though_the_context_is_old(
    home: Home,
) -> None:
    first, second = home.peers[:2]
    channel = await home.dialled(first)
    del home.known[first.tls.digest]
    assert (await refused(home.dialled(first))).code == "not-paired"
    assert await says(channel, "ends by whoever removed it") != ""
    home.links[0].abort()
    with pytest.raises(ChannelEnded):
        await channel.receive()
    assert await says(await home.dialled(second), "still in") == "still in"


async def test_an_unknown_certificate_never_gets_as_far_as_an_answer(
    home: Home, tmp_path: Path
) -> None:
    reinstalled = machine(tmp_path, 2, tls_number=22)
    for stranger in (machine(tmp_path, 9), reinstalled):
        assert (await refused(home.dialled(stranger))).code == "closed"
    assert home.links == home.pairings == []
    assert home.crowd.counts["no handshake"] == 2


@pytest.mark.parametrize(
    ("path", "lines", "method", "status", "why"),
    [
        ("/", (), "GET", 404, "another path"),
        ("/links", (), "GET", 404, "another path"),
        ("/pair/", (), "GET", 404, "another path"),
        ("/pair?x=1", (), "GET", 404, "another path"),
        ("/../pair", (), "GET", 404, "another path"),
        ("/pair", ("Origin: https://example.org",), "GET", 403, "a browser"),
        ("/link", ("Origin: null",), "GET", 403, "a browser"),
        ("/pair", ("origin:",), "GET", 403, "a browser"),
        ("/link", (), "GET", 403, "not paired"),
        ("/pair", (), "POST", None, ""),
        ("/pair", ("Content-Length: 5",), "GET", None, ""),
        ("/pair", ("Sec-WebSocket-Version: 8",), "GET", None, ""),
    ],
)
async def test_what_is_not_asked_for_as_it_should_be_is_refused(
    path: str, lines: tuple[str, ...], method: str, status: int | None, why: str, home: Home
) -> None:
    """None: whatever the library says to what is no upgrade at all."""
    caller = await home.caller()
    said = await caller.upgraded(path, *lines, method=method)
    assert said == (status or said) != 101
    await caller.ended()
    assert home.links == home.pairings == []
    assert not why or home.crowd.counts[why] == 1


async def test_a_peer_that_shows_its_certificate_does_not_pair(home: Home) -> None:
    caller = await home.caller(home.context_of(home.peers[0]))
    assert await caller.upgraded("/pair") == 403
    await caller.ended()
    assert home.crowd.counts["a certificate at pairing"] == 1


async def test_no_compression_and_no_subprotocol_is_agreed_to(home: Home) -> None:
    caller = await home.caller()
    caller.write(
        request(
            "/pair",
            "Sec-WebSocket-Extensions: permessage-deflate; client_max_window_bits",
            "Sec-WebSocket-Protocol: chat",
        )
    )
    head = await caller.answer()
    assert head.startswith(b"HTTP/1.1 101 ")
    assert b"Extensions" not in head
    assert b"Sec-WebSocket-Protocol" not in head
    caller.write(b"\xc1\x80\0\0\0\0")  # a compressed text
    assert b"\x88" in await caller.ended()


async def test_neither_plain_words_nor_older_tls_are_answered(home: Home) -> None:
    plain = await home.caller(plain=True)
    plain.write(request("/pair"))
    assert b"HTTP" not in await plain.ended()
    with pytest.raises(OSError):  # noqa: PT011  (each loop has its own words)
        await home.caller(plain_context())
    await until(lambda: home.crowd.counts["no handshake"] == 2)


async def test_a_peer_that_calls_too_often_is_told_to_wait_and_takes_no_place(home: Home) -> None:
    home.too_often.add(home.peers[0].id)
    error = await refused(home.dialled(home.peers[0]))
    assert error.code == "busy"
    assert home.crowd.counts["called too often"] == 1
    assert (home.links, home.crowd.links) == ([], 0)
    channel = await home.dialled(home.peers[1])
    assert await says(channel, "in") == "in"
    home.too_often.clear()
    assert await says(await home.dialled(home.peers[0]), "in again") == "in again"


@pytest.mark.parametrize("more", [-1, 0, 1])
async def test_links_are_thirty_two_at_most_and_one_that_ends_makes_room(
    more: int, home: Home
) -> None:
    assert LINKS_MAX == 32
    places = [home.crowd.dialled() for _ in range(LINKS_MAX + more - 1)]
    if more == 1:
        error = await refused(home.dialled(home.peers[0]))
        assert error.code == "busy"
        assert places[0] is not None
        places[0].leave()
    channel = await home.dialled(home.peers[0])
    assert await says(channel, "in") == "in"
    for place in places:
        if place is not None:
            place.leave()


async def test_a_host_with_as_many_links_as_it_can_have_dials_no_more(home: Home) -> None:
    places = [home.diallers.dialled() for _ in range(LINKS_MAX)]
    assert None not in places
    error = await refused(home.dialled(home.peers[0]))
    assert (error.code, home.crowd.counts) == ("busy", {})


async def test_a_pairing_that_was_proved_counts_among_the_links(home: Home) -> None:
    await home.joined()
    await until(lambda: len(home.pairings) == 1)
    assert (home.crowd.strangers, home.crowd.links) == (1, 0)
    assert home.pairings[0].proved()
    assert (home.crowd.strangers, home.crowd.links) == (0, 1)


# -- where it listens -----------------------------------------------------------------------------


async def test_it_listens_on_both_families_and_says_where(home: Home) -> None:
    both = [Endpoint("0.0.0.0", 0), Endpoint("::", 0)]
    found = home.listener.open(both)
    assert [one.host for one in found] == ["0.0.0.0", "::"]
    assert all(one.port > 0 for one in found)
    same_port = Endpoint("::", found[0].port)
    assert home.listener.open([same_port]) == [same_port]
    for reached in (Endpoint("::1", found[1].port), Endpoint("127.0.0.1", found[0].port)):
        home.endpoint = reached
        channel = await home.dialled(home.peers[0])
        assert await says(channel, "here") == "here"
        assert channel.address == reached.host


async def test_an_address_that_is_taken_is_named_and_nothing_is_left_open(home: Home) -> None:
    with pytest.raises(MbxError, match=f"cannot listen on {home.endpoint}") as caught:
        home.listener.open([Endpoint(LOOPBACK, 0), home.endpoint])
    assert caught.value.code == "conflict"
    assert caught.value.next_step
    for gone in ("192.0.2.1", "fe80::1%no-such-wire"):
        with pytest.raises(MbxError, match=re.escape(str(Endpoint(gone, 24629)))) as caught:
            home.listener.open([Endpoint(gone, 24629)])
        assert caught.value.code == "conflict"


def test_a_family_that_the_machine_does_not_have_is_named_like_an_address_that_it_has_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class OldMachine(socket.socket):
        def __init__(self, family: int, kind: int) -> None:
            if family == socket.AF_INET6:
                raise OSError(errno.EAFNOSUPPORT, os.strerror(errno.EAFNOSUPPORT))
            super().__init__(family, kind)

    monkeypatch.setattr(socket, "socket", OldMachine)
    with pytest.raises(MbxError, match=r"\[::\]:24629: Address family not supported") as caught:
        networks.listen(Endpoint("::", 24629))
    assert caught.value.code == "conflict"


async def test_what_is_shut_lets_nobody_in_any_more_and_can_be_opened_again(home: Home) -> None:
    [other] = home.listener.open([Endpoint(LOOPBACK, 0)])
    channel = await home.dialled(home.peers[0])
    home.listener.shut([other, Endpoint(LOOPBACK, 1)])
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection(other.host, other.port)
    assert await says(channel, "still here") == "still here"
    assert home.listener.open([other]) == [other]
    home.listener.shut([home.endpoint])
    assert await says(channel, "who came in may stay") == "who came in may stay"
    home.endpoint = other
    assert await says(await home.dialled(home.peers[1]), "by the other one") == "by the other one"


async def test_a_listener_that_closes_ends_what_came_in_and_lets_nobody_in(home: Home) -> None:
    channel, joiner = await home.dialled(home.peers[0]), await home.joined()
    idle = await home.caller(plain=True)
    await until(lambda: len(home.pairings) == 1)
    await home.listener.close()
    for one in (channel, joiner):
        with pytest.raises(ChannelEnded):
            await one.receive()
    await idle.ended()
    assert (await refused(home.dialled(home.peers[0]))).code == "unreachable"


# -- what a dial comes to -------------------------------------------------------------------------


async def test_another_certificate_than_the_pinned_one_is_no_peer(
    home: Home, tmp_path: Path
) -> None:
    one = home.peers[0]
    false = machine(tmp_path, 1, tls_number=11)
    strict = certificates.dialling(one.tls, false.id, false.tls.certificate)
    pinned = Pinned(home.own.id, false.tls.digest)
    for context in (strict, home.context_of(one)):
        dialling = dial([home.endpoint], context, pinned, home.diallers, monotonic_ms, PATIENT)
        assert (await refused(dialling)).code == "wrong-host"
    assert home.links == []
    assert home.diallers.links == 0


ANSWERS = {
    "garbage": (b"\0\1\2\3 hello", "no-mbx"),
    "another protocol": (b"SSH-2.0-OpenSSH_9.9\r\n", "no-mbx"),
    "plain http": (b"HTTP/1.1 400 Bad Request\r\n\r\n", "no-mbx"),
    "nothing, and it hangs up": (b"", "closed"),
}


@pytest.mark.parametrize("name", ANSWERS)
async def test_what_listens_there_without_tls_is_no_mbx(name: str, home: Home) -> None:
    said, code = ANSWERS[name]

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(said)
        writer.close()

    async with await asyncio.start_server(answer, LOOPBACK, 0) as server:
        home.endpoint = Endpoint(*server.sockets[0].getsockname()[:2])
        assert (await refused(home.dialled(home.peers[0]))).code == code


WRONG_KEY = (
    b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Accept: AAAAAAAAAAAAAAAAAAAAAAAAAAA=\r\n\r\n"
)
BAD_UPGRADES = {
    "another page": (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi", "no-mbx"),
    "a redirect": (
        b"HTTP/1.1 302 Found\r\nLocation: wss://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n",
        "no-mbx",
    ),
    "no http": (b"+OK ready\r\n\r\n", "no-mbx"),
    "a head without end": (b"HTTP/1.1 101 x\r\n" + b"A: b\r\n" * 4_000, "no-mbx"),
    "a wrong key": (WRONG_KEY, "no-mbx"),
    "no room": (b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n", "busy"),
    "not paired": (b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n", "not-paired"),
    "nothing": (b"", "closed"),
}


@pytest.mark.parametrize("name", BAD_UPGRADES)
async def test_a_peer_that_answers_the_upgrade_oddly_is_not_linked(name: str, home: Home) -> None:
    said, code = BAD_UPGRADES[name]
    asked: list[bytes] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(said)
        writer.close()

    context = certificates.listening(home.own.tls, anchors(*home.peers))
    async with await asyncio.start_server(answer, LOOPBACK, 0, ssl=context) as server:
        home.endpoint = Endpoint(*server.sockets[0].getsockname()[:2])
        assert (await refused(home.dialled(home.peers[0]))).code == code
    assert asked[0].startswith(b"GET /link HTTP/1.1\r\n")
    assert b"Host: mbx" in asked[0]
    assert len(asked) == 1
    assert home.diallers.links == 0


@pytest.mark.parametrize("secured", [False, True])
async def test_who_never_answers_is_given_up_in_time(home: Home, *, secured: bool) -> None:
    """It takes the connection, or the request too, and says nothing."""
    context = certificates.listening(home.own.tls, anchors(*home.peers)) if secured else None
    held: list[asyncio.StreamWriter] = []
    async with await asyncio.start_server(
        lambda _reader, writer: held.append(writer), LOOPBACK, 0, ssl=context
    ) as server:
        home.endpoint = Endpoint(*server.sockets[0].getsockname()[:2])
        error = await refused(home.dialled(home.peers[0], PATIENT._replace(handshake_s=0.3)))
        assert error.code in ("unreachable", "closed")
        for writer in held:
            writer.transport.abort()
    assert home.diallers.links == 0


async def test_a_dial_that_is_cancelled_leaves_nothing_behind(home: Home) -> None:
    held: list[asyncio.StreamWriter] = []
    async with await asyncio.start_server(
        lambda _reader, writer: held.append(writer), LOOPBACK, 0
    ) as server:
        home.endpoint = Endpoint(*server.sockets[0].getsockname()[:2])
        task = asyncio.create_task(home.dialled(home.peers[0]))
        await until(lambda: len(held) == 1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        held[0].transport.abort()
    assert home.diallers.links == 0


async def test_no_proxy_of_the_environment_is_used(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    assert await says(await home.dialled(home.peers[0]), "direct") == "direct"


# -- all addresses of a name ----------------------------------------------------------------------


@contextmanager
def deaf_listener() -> Iterator[tuple[str, int]]:
    """A listener whose queue is full: what connects to it waits for ever."""
    with ExitStack() as stack:
        listener = stack.enter_context(socket.socket())
        listener.bind((LOOPBACK, 0))
        listener.listen(0)
        for _ in range(4):
            filler = stack.enter_context(socket.socket())
            filler.setblocking(False)
            filler.connect_ex(listener.getsockname())
        yield listener.getsockname()


def told(*addresses: tuple[str, int]) -> list[tuple[Any, ...]]:
    """What a name's question is answered with."""
    families = [socket.AF_INET6 if ":" in host else socket.AF_INET for host, _ in addresses]
    ends = [(host, port, 0, 0) if ":" in host else (host, port) for host, port in addresses]
    return [
        (family, socket.SOCK_STREAM, 6, "", end) for family, end in zip(families, ends, strict=True)
    ]


def naming(monkeypatch: pytest.MonkeyPatch, *addresses: tuple[str, int]) -> None:
    """Whatever name the system is asked for, these are its addresses."""

    async def answer(_endpoint: Endpoint) -> list[tuple[Any, ...]]:
        return told(*addresses)

    monkeypatch.setattr(networks, "_asked", answer)


async def test_the_first_address_that_answers_is_taken_whatever_the_others_do(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    port = home.endpoint.port
    with deaf_listener() as deaf:
        naming(monkeypatch, ("::1", 1), deaf, (LOOPBACK, 1), (LOOPBACK, port))
        home.endpoint = Endpoint("desk.example", port)
        channel = await home.dialled(home.peers[0])
        assert await says(channel, "found") == "found"


async def test_where_no_address_answers_each_is_named(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    naming(monkeypatch, ("::1", 1), (LOOPBACK, 1))
    home.endpoint = Endpoint("desk.example", 24629)
    error = await refused(home.dialled(home.peers[0]))
    assert error.code == "unreachable"
    for word in ("desk.example:24629", "::1: ", f"{LOOPBACK}: ", "refused"):
        assert word.lower() in error.words.lower()


async def test_a_name_that_nobody_has_is_said_to_have_no_address(home: Home) -> None:
    home.endpoint = Endpoint("nobody.invalid", 24629)
    error = await refused(home.dialled(home.peers[0]))
    assert error.code == "unreachable"
    assert "nobody.invalid has no address" in error.words


async def dialled_at(home: Home, *places: tuple[str, int]) -> Channel:
    """A link of a peer that knows these addresses."""
    one = home.peers[0]
    pinned = Pinned(home.own.id, home.own.tls.digest)
    endpoints = [Endpoint(host, port) for host, port in places]
    context = home.context_of(one)
    return await dial(endpoints, context, pinned, home.diallers, monotonic_ms, PATIENT)


async def test_an_old_address_at_which_nothing_answers_does_not_keep_the_others_waiting(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(networks, "CONNECT_MS", 60_000)  # longer than a test may take
    with deaf_listener() as deaf, deaf_listener() as another:
        channel = await dialled_at(home, deaf, another, (LOOPBACK, home.endpoint.port))
        assert await says(channel, "found") == "found"
    assert home.diallers.links == 1


async def test_addresses_that_are_somebody_elses_by_now_are_passed_over(
    home: Home, tmp_path: Path
) -> None:
    (tmp_path / "other").mkdir()
    async with home_with_peers(tmp_path / "other", own_number=9) as other:
        stranger = (other.endpoint.host, other.endpoint.port)
        channel = await dialled_at(home, (LOOPBACK, 1), stranger, (LOOPBACK, home.endpoint.port))
        assert await says(channel, "found") == "found"
        error = await refused(dialled_at(home, (LOOPBACK, 1), stranger))
        assert error.code == "wrong-host"


async def test_what_the_host_itself_says_counts_whatever_its_other_addresses_do(
    home: Home,
) -> None:
    home.known.clear()
    error = await refused(dialled_at(home, (LOOPBACK, home.endpoint.port), (LOOPBACK, 1)))
    assert error.code == "not-paired"
    assert (await refused(dialled_at(home))).code == "unreachable"
    assert home.diallers.links == 0


async def test_families_take_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    naming(monkeypatch, ("::1", 1), ("::2", 1), ("::2", 1), ("::3", 1), ("1.1.1.1", 1))
    found = await networks._addresses(Endpoint("desk.example", 1))
    assert [address[0] for _, address in found] == ["::1", "1.1.1.1", "::2", "::3"]


async def test_two_diallers_of_one_crowd_share_its_places(home: Home) -> None:
    crowd = Crowd()
    pinned = Pinned(home.own.id, home.own.tls.digest)
    context = home.context_of(home.peers[0])
    channel = await dial([home.endpoint], context, pinned, crowd, monotonic_ms, PATIENT)
    assert crowd.links == 1
    channel.abort()
    await channel.gone()
    assert crowd.links == 0


async def test_words_about_what_the_caller_did_stay_within_the_counts(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    async with home_with_peers(tmp_path) as home:
        callers: list[Caller] = []
        for data in (b"", b"\x16\x03\x01", b"GET / HTTP/1.1\r\n\r\n", b"\xff" * 70_000):
            caller = await home.caller(plain=True)
            caller.write(data)
            callers.append(caller)
        for caller in callers:
            caller.hang_up()
        for path in ("/", "/link"):
            caller = await home.caller()
            await caller.upgraded(path)
            await caller.ended()
        await until(lambda: home.crowd.strangers == 0)
    # A loop in debug mode tells of its own slow turns.
    said = [record.getMessage() for record in caplog.records]
    assert [words for words in said if not words.startswith("Executing ")] == []
