"""A listening host on loopback, honest peers, and callers that keep none of the rules."""

import asyncio
import os
import ssl
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from websockets.frames import Frame, Opcode

from mbx.core.endpoints import Endpoint
from mbx.daemon import certificates
from mbx.daemon.certificates import Context
from mbx.daemon.faces.channels import Channel, Terms
from mbx.daemon.faces.networks import Crowd
from mbx.daemon.faces.peers import Callers, Listener, Pinned, Serving, dial
from tests.support.tls import LOOPBACK, Machine, anchors, machine

WAIT_S: Final = 15.0
KEY: Final = "dGhlIHNhbXBsZSBub25jZQ=="
PATIENT: Final = Terms(handshake_s=WAIT_S, first_frame_s=WAIT_S, close_s=WAIT_S)
"""Deadlines that no moment meets in which the machine stands still. A test that waits for one of
them makes that one short, and has nothing else to do before it."""


def monotonic_ms() -> int:
    return time.monotonic_ns() // 1_000_000


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


async def until(holds: Callable[[], bool]) -> None:
    """Turn the loop until something holds, at most `WAIT_S`."""
    async with asyncio.timeout(WAIT_S):
        while not holds():
            await asyncio.get_running_loop().run_in_executor(None, lambda: None)


@dataclass
class Home:
    """The listening host. `links` and `pairings` are the channels that came in, oldest first."""

    own: Machine
    peers: list[Machine]
    terms: Terms = PATIENT
    now_ms: Callable[[], int] = monotonic_ms
    crowd: Crowd = field(default_factory=Crowd)
    diallers: Crowd = field(default_factory=Crowd)
    links: list[Channel] = field(default_factory=list)
    pairings: list[Channel] = field(default_factory=list)
    defects: list[BaseException] = field(default_factory=list)
    known: dict[bytes, str] = field(default_factory=dict)
    callers: list["Caller"] = field(default_factory=list)
    too_often: set[str] = field(default_factory=set)
    """Hosts that have called too often."""
    takes: bool = True
    greeting: str = ""
    endpoint: Endpoint = field(default_factory=lambda: Endpoint(LOOPBACK, 0))
    listener: Listener = field(init=False)

    def __post_init__(self) -> None:
        context = certificates.listening(self.own.tls, anchors(*self.peers))
        self.known = {one.tls.digest: one.id for one in self.peers}
        callers = Callers(
            context=lambda: context,
            peer_of=self._peer_of,
            admits=lambda host: host not in self.too_often,
            serve_link=self._serve(self.links),
            serve_pairing=self._serve(self.pairings),
            defect=self.defects.append,
            now_ms=self.now_ms,
        )
        self.listener = Listener(callers, self.crowd, self.terms)

    def hurry(self, **deadlines_s: float) -> None:
        """Whoever comes from now on has these deadlines."""
        self.listener._terms = self.listener._terms._replace(**deadlines_s)

    def _peer_of(self, digest: bytes) -> str | None:
        return self.known.get(digest)

    def _serve(self, channels: list[Channel]) -> Serving:
        """Answers each text with itself, as long as the host `takes` any."""

        async def serve(channel: Channel) -> None:
            channels.append(channel)
            if self.greeting:
                channel.send(self.greeting)
                return
            if not self.takes:
                await channel.gone()
            async for text in channel:
                channel.send(text)
                await channel.drain()

        return serve

    def context_of(self, one: Machine) -> Context:
        return certificates.dialling(one.tls, self.own.id, self.own.tls.certificate)

    async def dialled(self, one: Machine, terms: Terms = PATIENT) -> Channel:
        """A link of an honest peer."""
        pinned = Pinned(self.own.id, self.own.tls.digest)
        return await dial(
            [self.endpoint], self.context_of(one), pinned, self.diallers, monotonic_ms, terms
        )

    async def joined(self) -> Channel:
        """A channel of somebody who wants to pair."""
        context = certificates.joining()
        return await dial([self.endpoint], context, None, self.diallers, monotonic_ms, PATIENT)

    async def caller(
        self, context: Context | None = None, *, source: str = LOOPBACK, plain: bool = False
    ) -> "Caller":
        """A connection of which the test writes every byte; TLS is up, if it is not to be plain."""
        secured: dict[str, Any] = {}
        if not plain:
            secured = {"ssl": context or certificates.joining(), "server_hostname": ""}
        reader, writer = await asyncio.open_connection(
            self.endpoint.host, self.endpoint.port, local_addr=(source, 0), **secured
        )
        caller = Caller(reader, writer)
        self.callers.append(caller)
        return caller

    async def stranger(self, source: str = LOOPBACK) -> "Caller":
        """A caller that is in, at the pairing."""
        caller = await self.caller(source=source)
        assert await caller.upgraded("/pair") == 101
        return caller

    async def hostile_peer(self, one: Machine) -> "Caller":
        """A caller that is in, with the certificate of a peer."""
        caller = await self.caller(self.context_of(one))
        assert await caller.upgraded("/link") == 101
        return caller


@asynccontextmanager
async def home_with_peers(
    folder: Path, terms: Terms = PATIENT, *, own_number: int = 1, **changes: Any
) -> AsyncIterator[Home]:
    """A host of its own number that listens, with three peers; it ends in good order."""
    before = descriptors()
    own, *others = (machine(folder, number) for number in (own_number, 2, 3, 4))
    home = Home(own, others, terms, **changes)
    (home.endpoint,) = home.listener.open([home.endpoint])
    try:
        yield home
    finally:
        await home.listener.close()
        for caller in home.callers:
            caller.hang_up()
    assert home.defects == []
    assert (home.crowd.strangers, home.crowd.links) == (0, 0)
    await until(lambda: descriptors() <= before + 3)  # uvloop opens some with its first turn


class Caller:
    """One connection in the hands of a test."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    def write(self, data: bytes) -> None:
        self.writer.write(data)

    async def upgraded(self, path: str, *lines: str, method: str = "GET") -> int:
        """Ask for the upgrade with these lines more; the status of the answer, 0 for none."""
        self.write(request(path, *lines, method=method))
        head = await self.answer()
        return int(head.split(b" ")[1]) if head.startswith(b"HTTP/1.1 ") else 0

    async def answer(self) -> bytes:
        """What is said up to an empty line, or up to the end."""
        try:
            async with asyncio.timeout(WAIT_S):
                return await self.reader.readuntil(b"\r\n\r\n")
        except asyncio.IncompleteReadError as ended:
            return ended.partial
        except OSError:
            return b""

    async def ended(self) -> bytes:
        """Wait until the other side has hung up; what it said before."""
        heard = b""
        async with asyncio.timeout(WAIT_S):
            try:
                while piece := await self.reader.read(65_536):
                    heard += piece
            except OSError:
                pass
        self.hang_up()
        return heard

    def hang_up(self) -> None:
        self.writer.transport.abort()


def request(path: str, *lines: str, method: str = "GET") -> bytes:
    """An upgrade with these header lines more."""
    head = [
        f"{method} {path} HTTP/1.1",
        "Host: mbx",
        "Upgrade: websocket",
        "Connection: Upgrade",
        f"Sec-WebSocket-Key: {KEY}",
        "Sec-WebSocket-Version: 13",
        *lines,
    ]
    return "\r\n".join([*head, "", ""]).encode()


def frame(opcode: Opcode, data: bytes, *, fin: bool = True) -> bytes:
    """A frame as a client sends it."""
    return Frame(opcode, data, fin).serialize(mask=True)


def close_code(heard: bytes) -> int:
    """The code of the close frame that the last four bytes of a short goodbye are."""
    place = heard.index(b"\x88")
    return int.from_bytes(heard[place + 2 : place + 4], "big")


def plain_context() -> Context:
    """Any client that speaks TLS 1.2 at most."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    return context
