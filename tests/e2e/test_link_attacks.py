"""Somebody sits on the line of two paired hosts: real daemons, real sockets, a wire that is bent.

What the wire can do, anybody on the way can. After each attack everything that was sent is with the
other host, once and in order, and nothing else is; whoever has proved nothing has changed nothing.
`MBX_TEST_FLIPS=all` flips each of the first 4,096 bytes, else about a hundred and twenty of all.
"""

import os
import socket
import ssl
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest

from tests.support.daemon import fresh_home
from tests.support.exchange import Exchange
from tests.support.hosts import PairedHost, plant_pairing, until
from tests.support.network import KEY
from tests.support.tls import machine
from tests.support.wires import LOOPBACK, Bend, Cut, CutAfter, Flip, Impostor, Passage, Piece, Wire
from tests.support.worlds import with_limits

IS_LONG: Final = os.environ.get("MBX_TEST_FLIPS") == "all"
FLIPS: Final = 120
LONG_FLIPS: Final = 4_096
STRAIGHTS: Final = 3
"""The shortest of so many exchanges is what is said in any: a slow one has pings in it too."""
CUTS_MIN: Final = 9
"""An exchange has more pieces than that, however the system splits and joins what is written."""
QUICK: Final = {
    "REDIAL_FIRST_MS": 10,
    "REDIAL_MAX_MS": 40,
    "REDIAL_WOKEN_MS": 10,
    "CALL_MS": 10,
    "CALL_BREACH_MS": 200,
    "STAND_BY_MS": 10,
    "HANDSHAKE_MS": 700,
    "HELLO_DEADLINE_MS": 700,
    "PING_MS": 250,
    "CLOSE_MS": 200,
    "PROBE_MS": 250,
}
"""Pauses and deadlines that a hundred attacks can wait for; what comes is awaited, not measured."""

pytestmark = [pytest.mark.long, pytest.mark.timeout(3_600 if IS_LONG else 240)]


class Line:
    """Two paired hosts, and the wire over which the one dials the other."""

    def __init__(self, stack: ExitStack, **limits: int) -> None:
        how: dict[str, Any] = {"python": with_limits(**limits)} if limits else {}
        self.hosts = [
            PairedHost(stack.enter_context(fresh_home()), label, **how) for label in ("desk", "lap")
        ]
        here, there = self.hosts
        self.wire = stack.enter_context(Wire(there.port))
        plant_pairing(here, there, through=f"{LOOPBACK}:{self.wire.port}")
        self.exchange = Exchange(stack, here, there)

    def round(self, bend: Bend) -> Passage:
        """A new connection that is bent, mail both ways, and in the end all is as it should be."""
        number = self.wire.arm(bend)
        self.wire.cut()
        self.exchange.send()
        bent = self.wire.passage(number)
        self.exchange.settle(anew=False)
        return bent

    def straight(self) -> Passage:
        """A whole exchange that nobody disturbs, as it goes over the wire."""
        passage = self.round(lambda _, piece: piece.data)
        self.exchange.settle()
        assert not passage.ended.is_set()
        return passage


@pytest.fixture(scope="module")
def quick() -> Iterator[Line]:
    """For attacks that are many."""
    with ExitStack() as stack:
        yield Line(stack, **QUICK)


# -- what is bent on the way ----------------------------------------------------------------------


def test_a_flipped_byte_anywhere_forges_doubles_reorders_and_loses_nothing(quick: Line) -> None:
    wholes = [quick.straight() for _ in range(STRAIGHTS)]
    sizes = {way: min(len(one.said(inward=way)) for one in wholes) for way in (True, False)}
    assert min(sizes.values()) > 2_000
    places = [(inward, place) for inward in (True, False) for place in range(sizes[inward])]
    step = max(1, len(places) // FLIPS)
    chosen = places[:: 1 if IS_LONG else step]
    if IS_LONG:
        chosen = [one for one in chosen if one[1] < LONG_FLIPS]
    for number, (inward, place) in enumerate(chosen):
        has_flipped = False
        while not has_flipped:
            flip = Flip(min(place, sizes[inward] - 1), inward=inward, mask=1 << number % 8)
            bent = quick.round(flip)
            has_flipped = flip.has_flipped
            if not has_flipped and not bent.ended.is_set():  # a shorter one went by whole
                sizes[inward] = min(sizes[inward], len(bent.said(inward=inward)))
    sys.stdout.write(f"flipped {len(chosen)} bytes of {sum(sizes.values())}\n")
    quick.straight()


@pytest.mark.parametrize("how", ["in order", "by a reset", "in mid-piece"])
def test_a_cut_at_each_boundary_of_a_whole_exchange_loses_nothing(quick: Line, how: str) -> None:
    cuts, is_within = 0, True
    while is_within:
        cut = CutAfter(cuts + 1, hard=how == "by a reset", torn=how == "in mid-piece")
        bent = quick.round(cut)
        cuts += cut.has_cut
        # A connection that was not cut and has ended was given up by a slow machine: once more.
        is_within = cut.has_cut or bent.ended.is_set()
    sys.stdout.write(f"cut {how} {cuts} times, until a whole exchange had gone by\n")
    assert cuts >= CUTS_MIN
    quick.straight()


class Splice(NamedTuple):
    """From some place on, what the dialler says on one connection goes to another listener."""

    number: int
    place: int
    target: socket.socket

    def bend(self, passage: Passage, piece: Piece) -> bytes:
        if passage.number != self.number or not piece.inward or piece.place < self.place:
            return piece.data
        with suppress(OSError):
            self.target.sendall(piece.data)
        return b""


def test_two_connections_that_are_spliced_into_each_other_carry_nothing_across(
    quick: Line,
) -> None:
    whole = len(quick.straight().said(inward=True))
    for place in range(0, whole, whole // 8):
        target = socket.create_connection((LOOPBACK, quick.hosts[1].port))
        earlier = quick.wire.last.said(inward=True)[:place]
        target.sendall(earlier)

        quick.round(Splice(len(quick.wire.passages), place, target).bend)
        target.close()


def test_a_link_comes_back_with_the_first_message_after_an_attacker_went_away() -> None:
    with ExitStack() as stack:
        line = Line(stack)
        tries = 6

        def cut(passage: Passage, piece: Piece) -> bytes:
            raise Cut(hard=True)

        number = line.wire.arm(cut)
        line.wire.cut()
        for attempt in range(tries):
            line.exchange.here.send()  # wakes whoever can dial
            line.wire.passage(number + attempt)
        assert line.exchange.here.peer()["link"]["failures"] >= tries - 1
        line.wire.arm()
        line.exchange.here.send()
        line.exchange.settle()


# -- what proves nothing changes nothing ----------------------------------------------------------


@pytest.fixture
def unchanged(quick: Line) -> Iterator[Line]:
    """The link is off while somebody tries something; then both stores are what they were."""
    recorded = quick.straight()
    target, quick.wire.target = quick.wire.target, None
    quick.wire.cut()
    until(lambda: not any(end.peer()["link"]["up"] for end in quick.exchange.ends), "it is off")
    quick.wire.passages.append(recorded)  # the last one: what is replayed
    before = quick.exchange.hashes()
    yield quick
    assert quick.exchange.hashes() == before
    quick.wire.target = target
    quick.straight()


def hung_up_on(said: bytes, port: int) -> bytes:
    """Say this to a port, and wait for the end; what was answered."""
    heard = b""
    with socket.create_connection((LOOPBACK, port), 15) as caller, suppress(ConnectionError):
        caller.sendall(said)
        while piece := caller.recv(65_536):
            heard += piece
    return heard


def test_the_recorded_words_of_the_dialler_are_worth_nothing(unchanged: Line) -> None:
    recorded = unchanged.wire.last
    port = unchanged.hosts[1].port
    for part in (1, 2, 4):  # all of it, and what ends in the middle of the handshake
        said = recorded.said(inward=True)
        heard = hung_up_on(said[: len(said) // part], port)
        assert recorded.said(inward=False)[:200] != heard[:200]
        assert len(heard) < len(recorded.said(inward=False))


def test_the_recorded_words_of_the_listener_are_worth_nothing(unchanged: Line) -> None:
    said = unchanged.wire.last.said(inward=False)

    def replay(visitor: socket.socket) -> None:
        assert visitor.recv(65_536)
        visitor.sendall(said)
        while visitor.recv(65_536):
            pass

    with Impostor(replay) as impostor:
        unchanged.wire.target = impostor.port
        impostor.visited(3)
        unchanged.wire.target = None


def test_a_dialler_that_hears_itself_or_its_own_listener_has_no_link(unchanged: Line) -> None:
    def reflect(visitor: socket.socket) -> None:
        while said := visitor.recv(65_536):
            visitor.sendall(said)

    with Impostor(reflect) as impostor:
        unchanged.wire.target = impostor.port
        impostor.visited(3)
    here = unchanged.exchange.here
    unchanged.wire.target = here.host.port  # its own words go in at its own door
    until(lambda: here.peer()["link"]["code"] == "wrong-host", "another host answers")
    unchanged.wire.target = None
    assert not here.peer()["link"]["up"]


def test_words_of_the_listener_said_to_a_listener_are_hung_up_on(unchanged: Line) -> None:
    for host in unchanged.hosts:
        hung_up_on(unchanged.wire.last.said(inward=False), host.port)


def test_another_host_with_a_certificate_of_its_own_is_not_the_peer(
    unchanged: Line, tmp_path: Path
) -> None:
    stranger = machine(tmp_path, 7)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(stranger.tls.path)

    def serve(visitor: socket.socket) -> None:
        with suppress(ssl.SSLError), context.wrap_socket(visitor, server_side=True) as secured:
            secured.recv(65_536)

    here = unchanged.exchange.here
    with Impostor(serve) as impostor:
        unchanged.wire.target = impostor.port
        impostor.visited(3)  # and it goes on trying: anybody on the way can answer
        until(lambda: here.peer()["link"]["code"] == "wrong-host", "it says so")
        assert "another host answers" in here.peer()["reason"]
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    with Impostor(serve) as impostor:
        unchanged.wire.target = impostor.port
        impostor.visited(3)
    unchanged.wire.target = None
    assert not here.peer()["link"]["up"]


def test_neither_older_tls_nor_a_plain_websocket_is_spoken(unchanged: Line) -> None:
    upgrade = (
        "GET /link HTTP/1.1\r\nHost: mbx\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        f"Sec-WebSocket-Key: {KEY}\r\nSec-WebSocket-Version: 13\r\n\r\n"
    ).encode()
    assert b"HTTP" not in hung_up_on(upgrade, unchanged.hosts[1].port)
    older = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    older.check_hostname, older.verify_mode = False, ssl.CERT_NONE
    older.maximum_version = ssl.TLSVersion.TLSv1_2
    with (
        socket.create_connection((LOOPBACK, unchanged.hosts[1].port), 15) as caller,
        pytest.raises((ssl.SSLError, ConnectionError)),
    ):
        older.wrap_socket(caller)
    answer = (
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n"
    )

    def plain(visitor: socket.socket) -> None:
        visitor.recv(65_536)
        visitor.sendall(answer)
        visitor.recv(65_536)

    with Impostor(plain) as impostor:
        unchanged.wire.target = impostor.port
        impostor.visited(3)
        unchanged.wire.target = None
    here = unchanged.exchange.here
    until(lambda: here.peer()["link"]["code"] == "no-mbx", "no mbx answers there")


def test_no_proxy_that_the_environment_names_is_asked() -> None:
    asked = threading.Event()

    def trap(visitor: socket.socket) -> None:
        asked.set()

    with ExitStack() as stack:
        proxy = stack.enter_context(Impostor(trap))
        names = [f"{kind}_proxy" for kind in ("http", "https", "all", "ws", "wss", "socks")]
        names += [name.upper() for name in names]
        where = dict.fromkeys(names, f"http://{LOOPBACK}:{proxy.port}")
        here, there = (
            PairedHost(stack.enter_context(fresh_home()), label, environment=where)
            for label in ("desk", "lap")
        )
        plant_pairing(here, there)
        exchange = Exchange(stack, here, there)
        exchange.send()
        exchange.settle()
    assert not asked.is_set()
