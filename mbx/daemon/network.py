"""The daemon's side of the network: where it listens, whom it dials, and the wires of its links.

Loaded only by a host that has somebody to speak with, since what stands below it is large. Nothing
is decided here: a connection whose other end has shown a pinned certificate goes to `Links`, one
that shows none to the pairings, and texts are moved between sockets and them.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any, Final

from mbx.core.endpoints import Endpoint, parse_endpoint
from mbx.core.errors import MbxError
from mbx.core.frames import Bye, encode
from mbx.core.limits import HELLO_DEADLINE_MS
from mbx.core.pairing import certificate_hash
from mbx.daemon import certificates
from mbx.daemon.certificates import Context, TlsKey
from mbx.daemon.faces import peers as face
from mbx.daemon.faces.channels import TERMS, Channel, ChannelEnded, Terms
from mbx.daemon.faces.networks import Crowd
from mbx.daemon.faces.peers import Callers, Listener, Pinned, Undialled
from mbx.daemon.farewells import TOLD
from mbx.daemon.links import UNPAIRED, Links
from mbx.daemon.linkstate import RoundTrip
from mbx.store.peers import PeerRow

_UNREACHABLE: Final = "unreachable"


class Network:
    """The listener, the dials and the channels of this host.

    `serve_pairing` runs for each connection that may only pair. `parted` gets the outcome of each
    `part`: the row's key and a code. `defect` hears of errors of ours. `run` names this start of
    the daemon to paired hosts (`mbx.core.copies`). `terms`: how long a connection waits for what.
    """

    def __init__(
        self,
        tls: TlsKey,
        links: Links,
        serve_pairing: Callable[[Channel], Awaitable[None]],
        parted: Callable[[int, str], None],
        now_ms: Callable[[], int],
        defect: Callable[[BaseException], None],
        run: str,
        terms: Terms = TERMS,
    ) -> None:
        self.tls = tls
        self._run = run
        self._terms = terms
        self.crowd = Crowd()
        self._links = links
        self._parted = parted
        self._now_ms = now_ms
        self._defect = defect
        self._anchors: dict[str, bytes] = {}
        self._hosts: dict[bytes, str] = {}
        self._context: Context | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._serving: set[Channel] = set()
        self.listening: list[Endpoint] = []
        self._listener = Listener(
            Callers(
                self._listening_context,
                self._hosts.get,
                links.admits,
                self._serve_link,
                serve_pairing,
                defect,
                now_ms,
                run,
            ),
            self.crowd,
            terms,
        )

    def know(self, present: Iterable[PeerRow], former: Iterable[PeerRow]) -> None:
        """Whose certificates are known now, and whose were once: those hear that they are none."""
        anchors = {row.key_id: row.certificate for row in former}
        rows = list(present)
        anchors.update({row.key_id: row.certificate for row in rows})
        self._hosts.clear()
        self._hosts.update({certificate_hash(row.certificate): row.key_id for row in rows})
        if anchors != self._anchors:
            self._anchors, self._context = anchors, None

    def listen(self, endpoints: Sequence[Endpoint]) -> list[Endpoint]:
        """Listen at these as well, all or none; where that is. Raises MbxError conflict."""
        fresh = [one for one in endpoints if one not in self.listening]
        self.listening += self._listener.open(fresh)
        return self.listening

    def shut(self, endpoints: Sequence[Endpoint]) -> None:
        """Listen at these no longer."""
        self._listener.shut(endpoints)
        self.listening = [one for one in self.listening if one not in endpoints]

    def dial(self, row: PeerRow) -> None:
        """Try the addresses of a peer, one after the other."""
        self._begin(lambda: self._dial(row))

    def moved(self, is_own: Callable[[tuple[Any, ...]], bool]) -> None:
        """Addresses of this machine came or went: what hangs on one that is gone is dead.

        `is_own` says so of a socket's own name. Nothing else would tell before pings are missed.
        """
        for channel in list(self._serving):
            if channel.own_name is not None and not is_own(channel.own_name):
                channel.abort()

    def part(self, row: PeerRow) -> None:
        """Try to tell a removed host that it is removed."""
        self._begin(lambda: self._part(row))

    async def dial_pairing(self, endpoint: Endpoint) -> Channel:
        """A channel to whoever listens there. Raises Undialled."""
        context = certificates.joining()
        return await face.dial([endpoint], context, None, self.crowd, self._now_ms, self._terms)

    async def close(self) -> None:
        """End everything; the links have said goodbye before."""
        await self._listener.close()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # -- inside ----------------------------------------------------------------------------------

    def _listening_context(self) -> Context:
        if self._context is None:
            self._context = certificates.listening(self.tls, self._anchors)
        return self._context

    async def _dial(self, row: PeerRow) -> None:
        found = await self._reached(row)
        if isinstance(found, Channel):
            await self._serve(found, is_ours=True)
        else:
            self._links.unreachable(row.no, found)

    async def _part(self, row: PeerRow) -> None:
        found = await self._reached(row)
        self._parted(row.no, await _said_bye(found) if isinstance(found, Channel) else found)

    async def _reached(self, row: PeerRow) -> Channel | str:
        """A channel to the first address that is the pinned host's, or why there is none."""
        endpoints: list[Endpoint] = []
        for text in row.dialled_at:
            with suppress(MbxError):
                endpoints.append(parse_endpoint(text))
        pinned = Pinned(row.key_id, certificate_hash(row.certificate))
        try:
            context = certificates.dialling(self.tls, row.key_id, row.certificate)
            now_ms, terms, run = self._now_ms, self._terms, self._run
            return await face.dial(endpoints, context, pinned, self.crowd, now_ms, terms, run)
        except Undialled as failure:
            return failure.code
        except (MbxError, ValueError):
            return _UNREACHABLE

    async def _serve_link(self, channel: Channel) -> None:
        await self._serve(channel, is_ours=False)

    async def _serve(self, channel: Channel, *, is_ours: bool) -> None:
        """Move texts from a channel to its link until either ends."""
        wire = _Wire(channel, self._begin)
        connection = self._links.connected(channel.peer or "", wire, is_ours=is_ours)
        self._serving.add(channel)
        try:
            if connection is not None:
                async for text in channel:
                    self._links.heard(connection, text)
        finally:
            self._serving.discard(channel)
            if connection is not None:
                self._links.gone(connection)
            await wire.ended()

    def _begin(self, work: Callable[[], Awaitable[None]]) -> None:
        task = asyncio.ensure_future(_run(work, self._defect))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


async def _said_bye(channel: Channel) -> str:
    """Tell a host that it is not paired any more; `TOLD` once it has hung up in good order.

    Whoever has said its hello hears what comes next.
    """
    try:
        async with asyncio.timeout(HELLO_DEADLINE_MS / 1000):
            await channel.receive()
            channel.send(encode(Bye(UNPAIRED)))
            while True:
                await channel.receive()
    except TimeoutError:
        return "timeout"
    except ChannelEnded as ended:
        return TOLD if ended.why == "closed" else "lost"
    finally:
        await channel.close()


async def _run(
    work: Callable[[], Awaitable[None]], defect: Callable[[BaseException], None]
) -> None:
    try:
        await work()
    except Exception as error:  # noqa: BLE001  one connection must not end the service
        defect(error)


class _Wire:
    """A channel as a link sees it. What a window lets out is all that it can ever hold."""

    def __init__(
        self, channel: Channel, begin: Callable[[Callable[[], Awaitable[None]]], None]
    ) -> None:
        self._channel = channel
        self._begin = begin
        self._is_closing = False

    def send(self, text: str) -> None:
        """Write a text; one that finds the channel over is lost with it."""
        try:
            self._channel.send(text)
        except ChannelEnded:
            return

    def close(self) -> None:
        """Say goodbye behind what was written."""
        if not self._is_closing:
            self._is_closing = True
            self._begin(self._channel.close)

    def ping(self) -> None:
        """Ask for a sign of life now."""
        self._channel.probe()

    def measure(self) -> None:
        """Ask how long an answer takes."""
        self._channel.measure()

    @property
    def run(self) -> str | None:
        """The start of the daemon that the other end has named."""
        return self._channel.run

    def question(self, answered: Callable[[], None]) -> None:
        """Ask something of its own."""
        self._channel.question(answered)

    @property
    def round_trip(self) -> RoundTrip | None:
        """How long the last one took."""
        return self._channel.round_trip

    async def ended(self) -> None:
        """Until the channel is gone."""
        self._is_closing = True
        await self._channel.close()
