"""The face of paired hosts: who is let in from the network, and how a peer is dialled.

Whoever shows a certificate that the store knows gets a link (``/link``); whoever shows none may
only pair (``/pair``). A browser page cannot do either: a request with an `Origin` is refused. What
is said in a channel, who is paired, and when to dial, others decide.
"""

from __future__ import annotations  # nested functions would evaluate theirs each time

import asyncio
import socket
from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing, suppress
from http import HTTPStatus
from typing import Final, NamedTuple

from mbx.core.endpoints import Endpoint
from mbx.core.errors import MbxError
from mbx.core.pairing import certificate_hash
from mbx.daemon.certificates import Context, is_no_tls, is_other_certificate
from mbx.daemon.faces import networks
from mbx.daemon.faces.channels import TERMS, Asked, Channel, ChannelEnded, Clock, Terms
from mbx.daemon.faces.networks import Crowd, Stranger, Unreachable

LINK_PATH: Final = "/link"
PAIR_PATH: Final = "/pair"

_OTHER_CERTIFICATE: Final = (
    "shows another certificate than the paired one; one that was installed anew has to be paired"
    " again"
)

Serving = Callable[[Channel], Awaitable[None]]
"""What runs while a channel is open; when it returns, the channel is closed."""


class Callers(NamedTuple):
    """What a listener needs of the daemon behind it.

    `context` gives the TLS context of now; its anchors may hold former peers too, so that they hear
    that they are none instead of a broken connection. `peer_of` says whose certificate a digest is
    (the host's key id; None: nobody's any more) and is asked on every connection. `admits` says
    whether the host with a key id may have a link now, or calls too often. `serve_link` and
    `serve_pairing` run for each channel; a pairing that is proved is told by the channel's
    `proved`, after which it is no stranger. `defect` hears of errors of ours. `run` names
    this start of the daemon to peers; empty: it is not named.
    """

    context: Callable[[], Context]
    peer_of: Callable[[bytes], str | None]
    admits: Callable[[str], bool]
    serve_link: Serving
    serve_pairing: Serving
    defect: Callable[[BaseException], None]
    now_ms: Clock
    run: str = ""


class Listener:
    """Lets callers in at its endpoints, until closed."""

    def __init__(self, callers: Callers, crowd: Crowd, terms: Terms = TERMS) -> None:
        self._callers = callers
        self._crowd = crowd
        self._terms = terms
        self._listening: dict[Endpoint, tuple[socket.socket, asyncio.Task[None]]] = {}
        self._greeting: set[asyncio.Task[None]] = set()
        self._unused: dict[asyncio.Task[None], socket.socket] = {}

    def open(self, endpoints: Sequence[Endpoint]) -> list[Endpoint]:
        """Listen at all of these or at none; where that is now. Raises MbxError conflict."""
        sockets: list[socket.socket] = []
        try:
            for endpoint in endpoints:
                sockets.append(networks.listen(endpoint))
        except MbxError:
            for listening in sockets:
                listening.close()
            raise
        most, opened = networks.descriptors_max(), []
        for listening in sockets:
            work = networks.accept(listening, self._welcome, self._crowd.counts, most)
            opened.append(networks.bound(listening))
            self._listening[opened[-1]] = (listening, asyncio.create_task(work))
        return opened

    def shut(self, endpoints: Sequence[Endpoint]) -> None:
        """Listen at these no longer; who came in there may stay."""
        for endpoint in endpoints:
            found = self._listening.pop(endpoint, None)
            if found is not None:
                listening, accepting = found
                accepting.cancel()
                networks.forgo(listening)

    async def close(self) -> None:
        """Let nobody in any more, and end every channel that came in here."""
        accepting = [task for _, task in self._listening.values()]
        self.shut(list(self._listening))
        await _ended(accepting)
        await _ended(self._greeting)

    def _welcome(self, stranger: Stranger) -> None:
        """A place in the crowd, and a task of its own; who gets none has cost little."""
        channel = Channel(stranger.address, self._callers.now_ms, self._terms)
        task: asyncio.Task[None] | None = None

        def evict() -> None:
            if channel.is_up:
                channel.abort()
            elif task is not None:
                task.cancel()

        channel.guest = self._crowd.admit(stranger.address, evict)
        if channel.guest is None:
            stranger.connection.close()
            return
        task = asyncio.create_task(self._greet(stranger, channel))
        self._greeting.add(task)
        self._unused[task] = stranger.connection
        task.add_done_callback(self._greeted)

    def _greeted(self, task: asyncio.Task[None]) -> None:
        self._greeting.discard(task)
        unused = self._unused.pop(task, None)
        if unused is not None:
            unused.close()  # it was put out before its first turn
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self._callers.defect(error)

    async def _greet(self, stranger: Stranger, channel: Channel) -> None:
        """One caller, from its accept to its end."""
        for task in self._greeting & {asyncio.current_task()}:
            del self._unused[task]
        try:
            asked = await self._asked(stranger, channel)
            serve = self._answered(channel, asked) if asked is not None else None
            if serve is not None:
                with suppress(ChannelEnded):
                    await serve(channel)
                await channel.close()
            else:
                await channel.gone()
        finally:
            channel.abort()
            assert channel.guest is not None
            channel.guest.leave()

    async def _asked(self, stranger: Stranger, channel: Channel) -> Asked | None:
        """TLS and the caller's half of the upgrade; None: it did not manage that in time."""
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(self._terms.handshake_s):
                await loop.connect_accepted_socket(
                    lambda: channel,
                    stranger.connection,
                    ssl=self._callers.context(),
                    ssl_handshake_timeout=self._terms.handshake_s,
                    ssl_shutdown_timeout=self._terms.close_s,
                )
                return await channel.asked()
        except (OSError, TimeoutError, ChannelEnded):
            self._crowd.counts["no handshake"] += 1
            channel.abort()
            return None

    def _answered(self, channel: Channel, asked: Asked) -> Serving | None:
        """Our half: what is to run for the caller, or None, who is refused."""
        digest = None if channel.certificate is None else certificate_hash(channel.certificate)
        peer = None if digest is None else self._callers.peer_of(digest)
        status, why = _judged(asked, is_shown=digest is not None, is_known=peer is not None)
        if peer is not None and not why and not self._callers.admits(peer):
            status, why = HTTPStatus.SERVICE_UNAVAILABLE, "called too often"
        if peer is not None and not why and not (channel.guest and channel.guest.identified()):
            status, why = HTTPStatus.SERVICE_UNAVAILABLE, "too many links"
        if why:
            self._crowd.counts[why] += 1
        if not channel.answer(status, self._callers.run if peer is not None else ""):
            return None
        channel.open(peer)
        return self._callers.serve_pairing if peer is None else self._callers.serve_link


def _judged(asked: Asked, *, is_shown: bool, is_known: bool) -> tuple[HTTPStatus, str]:
    """What a caller gets, and why where that is nothing."""
    if asked.has_origin:
        return HTTPStatus.FORBIDDEN, "a browser"
    if asked.path == LINK_PATH:
        if is_known:
            return HTTPStatus.SWITCHING_PROTOCOLS, ""
        return HTTPStatus.FORBIDDEN, "not paired"
    if asked.path == PAIR_PATH:
        if not is_shown:
            return HTTPStatus.SWITCHING_PROTOCOLS, ""
        return HTTPStatus.FORBIDDEN, "a certificate at pairing"
    return HTTPStatus.NOT_FOUND, "another path"


async def _ended(tasks: list[asyncio.Task[None]] | set[asyncio.Task[None]]) -> None:
    """Cancel these and wait until they are over."""
    ending = list(tasks)
    tasks.clear()
    for task in ending:
        task.cancel()
    await asyncio.gather(*ending, return_exceptions=True)


# -- dialling -------------------------------------------------------------------------------------


class Undialled(Exception):
    """A dial that came to nothing: a `code`, and words for people.

    `unreachable`: no address answers, or none in time. `wrong-host`: another certificate than the
    pinned one. `not-paired`: it does not know ours (any more). `busy`: one of both has no room, or
    it was called too often. `closed`: it hung up without a word. `no-mbx`: something else listens
    there.
    """

    def __init__(self, code: str, words: str) -> None:
        super().__init__(words)
        self.code = code
        self.words = words


class Pinned(NamedTuple):
    """A paired host: its key id, and the SHA-256 of its certificate's DER."""

    host: str
    digest: bytes


_ITS_OWN_WORD: Final = frozenset({"not-paired", "busy"})
"""What the host itself says, behind its pinned certificate: other addresses of it say the same."""


async def dial(
    endpoints: Sequence[Endpoint],
    context: Context,
    pinned: Pinned | None,
    crowd: Crowd,
    now_ms: Clock,
    terms: Terms = TERMS,
    run: str = "",
) -> Channel:
    """An open channel: to this peer, or (None) to whoever listens there, for a pairing.

    `run`: the start of our daemon, which the peer is told.

    The first of the endpoints that answers as it should. No proxy, no redirect, no second try but
    at their other addresses. Raises Undialled: what the host itself said, else what came last.
    """
    guest = crowd.dialled()
    if guest is None:
        raise Undialled("busy", "this host has as many links as it can have")
    try:
        ours = _Ours(context, pinned, now_ms, terms, run)
        channel = await _first(endpoints, ours)
    except BaseException:
        guest.leave()
        raise
    channel.seat(guest)
    channel.open(pinned.host if pinned is not None else None)
    return channel


class _Ours(NamedTuple):
    """What we bring to a dial; see `dial`."""

    context: Context
    pinned: Pinned | None
    now_ms: Clock
    terms: Terms
    run: str


async def _first(endpoints: Sequence[Endpoint], ours: _Ours) -> Channel:
    """The first channel that is let in. Raises Undialled."""
    failure = Undialled("unreachable", "no address of it is known")
    async with aclosing(networks.reach_some(endpoints)) as connections:
        async for found in connections:
            try:
                if isinstance(found, Unreachable):
                    raise Undialled("unreachable", str(found))
                return await _asked(found, ours)
            except Undialled as undialled:
                failure = undialled
                if ours.pinned is not None and failure.code in _ITS_OWN_WORD:
                    break
    raise failure


async def _asked(connection: socket.socket, ours: _Ours) -> Channel:
    """The channel over a connection, which ends with it. Raises Undialled."""
    try:
        channel = Channel(connection.getpeername()[0], ours.now_ms, ours.terms, asks=True)
    except OSError as error:
        connection.close()
        raise Undialled("unreachable", str(error)) from None
    try:
        await _secured(channel, connection, ours)
    except BaseException:
        channel.abort()
        raise
    return channel


async def _secured(channel: Channel, connection: socket.socket, ours: _Ours) -> None:
    """TLS, the pin and the upgrade. Raises Undialled."""
    loop, pinned, terms = asyncio.get_running_loop(), ours.pinned, ours.terms
    at = f"the host at {channel.address}"
    try:
        async with asyncio.timeout(terms.handshake_s):
            await loop.create_connection(
                lambda: channel,
                sock=connection,
                ssl=ours.context,
                server_hostname="",
                ssl_handshake_timeout=terms.handshake_s,
                ssl_shutdown_timeout=terms.close_s,
            )
            if pinned is not None and certificate_hash(channel.certificate or b"") != pinned.digest:
                raise Undialled("wrong-host", f"{at} {_OTHER_CERTIFICATE}")
            path, run = (PAIR_PATH, "") if pinned is None else (LINK_PATH, ours.run)
            status = await channel.ask(path, run)
    except TimeoutError:
        raise Undialled("unreachable", f"{at} does not answer in time") from None
    except ChannelEnded as ended:
        if ended.why in ("malformed", "too large"):
            raise Undialled("no-mbx", f"{at} is no mbx") from None
        raise Undialled("closed", f"{at} hung up; it may not know this host (any more)") from None
    except OSError as error:
        if is_other_certificate(error):
            raise Undialled("wrong-host", f"{at} {_OTHER_CERTIFICATE}") from None
        if is_no_tls(error):
            raise Undialled("no-mbx", f"{at} is no mbx") from None
        raise Undialled("closed", f"{at} hung up") from None
    _check_status(status, at)


def _check_status(status: int, at: str) -> None:
    if status == HTTPStatus.FORBIDDEN:
        raise Undialled("not-paired", f"{at} is not paired with this host (any more)")
    if status == HTTPStatus.SERVICE_UNAVAILABLE:
        raise Undialled("busy", f"{at} has no room for a link now, or was called too often")
    if status != HTTPStatus.SWITCHING_PROTOCOLS:
        raise Undialled("no-mbx", f"{at} is no mbx")
