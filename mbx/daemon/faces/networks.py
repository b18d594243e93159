"""TCP below the links: where we listen, how many strangers may be inside, how a host is reached.

Nothing here knows who anybody is. Before the other side has shown that, only numbers change: no
line of a log is written for what a stranger does.
"""

import asyncio
import errno
import ipaddress
import os
import resource
import socket
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Any, Final, NamedTuple, TypeVar

from mbx.core.endpoints import Endpoint
from mbx.core.errors import MbxError
from mbx.core.limits import (
    CONNECT_MS,
    DESCRIPTORS_PERCENT_MAX,
    LINKS_MAX,
    NEXT_ADDRESS_MS,
    STRANGERS_MAX,
    STRANGERS_OF_ADDRESS_MAX,
)

_BACKLOG: Final = 64
_PAUSE_S: Final = 1.0
"""Before somebody is let in again where descriptors ran short."""
_IPV6_PLACE_BITS: Final = 64
"""A site hands one machine a network of so many bits, so more of an address says nothing."""
_ADDRESSES_TRIED_MAX: Final = 16


_Result = TypeVar("_Result")


class Unreachable(Exception):
    """No address of an endpoint answered; the words say which were tried and what each said."""


# -- who is inside --------------------------------------------------------------------------------


class Guest:
    """One connection's place in the crowd, from its accept until its end."""

    def __init__(self, crowd: "Crowd", place: str, evict: Callable[[], None]) -> None:
        self._crowd = crowd
        self.place: Final = place
        self.evict: Final = evict
        self.is_gone = False

    def identified(self) -> bool:
        """It has shown who it is: it is no stranger any more. False: it is gone, or no room."""
        return self._crowd.promote(self)

    def leave(self) -> None:
        """It is gone."""
        self._crowd.forget(self)


class Crowd:
    """All connections of the network: strangers, and links up to their number.

    `counts` says what became of strangers, by words of our own.
    """

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self._strangers: dict[Guest, None] = {}  # the oldest first
        self._links: set[Guest] = set()

    @property
    def strangers(self) -> int:
        """How many have not shown yet who they are."""
        return len(self._strangers)

    @property
    def links(self) -> int:
        """How many have."""
        return len(self._links)

    def admit(self, address: str, evict: Callable[[], None]) -> Guest | None:
        """A place for a newcomer from this IP address, or None; `evict` ends it at once.

        A full house makes room: the oldest stranger of the place that has the most goes, so that
        whoever holds places and does nothing keeps nobody out.
        """
        place = _place(address)
        taken = Counter(guest.place for guest in self._strangers)
        if taken[place] >= STRANGERS_OF_ADDRESS_MAX:
            self.counts["too many of one address"] += 1
            return None
        if len(self._strangers) >= STRANGERS_MAX:
            most = max(taken.values())
            oldest = next(guest for guest in self._strangers if taken[guest.place] == most)
            self.counts["made room"] += 1
            self.forget(oldest)
            oldest.evict()
        guest = Guest(self, place, evict)
        self._strangers[guest] = None
        return guest

    def dialled(self) -> Guest | None:
        """A place for a link that we have dialled ourselves, or None."""
        guest = Guest(self, "", lambda: None)
        return guest if self.promote(guest) else None

    def promote(self, guest: Guest) -> bool:
        """See `Guest.identified`."""
        if guest in self._links:
            return True
        if guest.is_gone:
            return False
        self._strangers.pop(guest, None)
        if len(self._links) >= LINKS_MAX:
            self.counts["too many links"] += 1
            return False
        self._links.add(guest)
        return True

    def forget(self, guest: Guest) -> None:
        """See `Guest.leave`."""
        guest.is_gone = True
        self._strangers.pop(guest, None)
        self._links.discard(guest)


def _place(address: str) -> str:
    """What counts as one address: an IPv4 address, or the network that an IPv6 one lies in."""
    found = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(found, ipaddress.IPv4Address):
        return str(found)
    return str(ipaddress.IPv6Network((found.packed, _IPV6_PLACE_BITS), strict=False))


# -- listening ------------------------------------------------------------------------------------


class Stranger(NamedTuple):
    """An accepted connection, and the IP address that it came from."""

    connection: socket.socket
    address: str


def listen(endpoint: Endpoint) -> socket.socket:
    """A listening socket at an IP address of this machine (port 0: any that is free).

    Raises MbxError conflict, with the address and what the system says, where there is none: the
    interface of its zone may be gone, or the whole family.
    """
    try:
        return _listen(endpoint)
    except OSError as error:
        raise MbxError(
            "conflict",
            f"cannot listen on {endpoint}: {error.strerror}",
            "choose another address or port, or stop what listens there",
            address=str(endpoint),
        ) from error


def _listen(endpoint: Endpoint) -> socket.socket:
    family, _, _, _, address = socket.getaddrinfo(
        endpoint.host,
        endpoint.port,
        type=socket.SOCK_STREAM,
        flags=socket.AI_NUMERICHOST | socket.AI_PASSIVE,
    )[0]
    listening = socket.socket(family, socket.SOCK_STREAM)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            # So that 0.0.0.0 and [::] can both be listened on, each for its own family.
            listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        listening.bind(address)
        listening.listen(_BACKLOG)
        listening.setblocking(False)
    except OSError:
        listening.close()
        raise
    return listening


def bound(listening: socket.socket) -> Endpoint:
    """Where a socket listens."""
    host, port = listening.getsockname()[:2]
    return Endpoint(host, port)


def descriptors_max() -> int:
    """The first descriptor number that is too many for a stranger."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        soft = 1 << 20
    return soft * DESCRIPTORS_PERCENT_MAX // 100


async def accept(
    listening: socket.socket,
    welcome: Callable[[Stranger], None],
    counts: Counter[str],
    most_descriptors: int,
) -> None:
    """Let callers in until cancelled.

    Where descriptors run short (the kernel gives the lowest number that is free, so the number of
    the newest says how many are in use) the newcomer goes and all others wait a moment outside.
    """
    loop = asyncio.get_running_loop()
    ready = asyncio.Event()
    loop.add_reader(listening, ready.set)
    try:
        while True:
            await ready.wait()
            ready.clear()
            if not _accept_some(listening, welcome, counts, most_descriptors):
                loop.remove_reader(listening)
                await asyncio.sleep(_PAUSE_S)
                loop.add_reader(listening, ready.set)
    finally:
        if listening.fileno() >= 0:  # else `forgo` was faster
            loop.remove_reader(listening)


def forgo(listening: socket.socket) -> None:
    """Let nobody in there from now on, at once; its `accept` is to be cancelled."""
    asyncio.get_running_loop().remove_reader(listening)
    listening.close()


def _accept_some(
    listening: socket.socket,
    welcome: Callable[[Stranger], None],
    counts: Counter[str],
    most_descriptors: int,
) -> bool:
    """Those who wait now; False: pause."""
    for _ in range(_BACKLOG):
        try:
            connection, address = listening.accept()
        except BlockingIOError:
            return True
        except OSError as error:
            if error.errno == errno.ECONNABORTED:
                continue
            counts["accept failed"] += 1
            return False
        if connection.fileno() >= most_descriptors:
            connection.close()
            counts["descriptors ran short"] += 1
            return False
        connection.setblocking(False)
        welcome(Stranger(connection, address[0]))
    return True


# -- reaching a host ------------------------------------------------------------------------------

_Address = tuple[int, tuple[Any, ...]]
"""(family, what `connect` takes: host, port, and for IPv6 two numbers more)."""


async def reach(endpoint: Endpoint) -> socket.socket:
    """A connection to the first address of the endpoint that answers.

    All addresses of a name are tried, the families in turn, each a quarter of a second after the
    one before it unless that has failed already. Raises Unreachable.
    """
    addresses = await _addresses(endpoint)
    failed: list[str] = []
    trying: dict[asyncio.Task[socket.socket], str] = {}
    try:
        while addresses or trying:
            if addresses:
                family, address = addresses.pop(0)
                task = asyncio.create_task(_connect(family, address))
                trying[task] = str(address[0])
            head_start_s = NEXT_ADDRESS_MS / 1000 if addresses else None
            done, _ = await asyncio.wait(
                trying, timeout=head_start_s, return_when=asyncio.FIRST_COMPLETED
            )
            answered = [task for task in done if task.exception() is None]
            for task in done.difference(answered):
                error = task.exception()
                failed.append(f"{trying.pop(task)}: {_words(error) if error else ''}")
            if answered:
                del trying[answered[0]]
                return answered[0].result()
    finally:
        await _give_up(list(trying))
    raise Unreachable(f"{endpoint} does not answer ({'; '.join(failed)})")


async def reach_some(
    endpoints: Sequence[Endpoint],
) -> AsyncGenerator[socket.socket | Unreachable, None]:
    """Connections to those endpoints of one host that answer, as they come; else why not.

    They are tried in order, each a quarter of a second after the one before it unless that has
    failed already: an old address at which nothing answers must not keep the others waiting. Who
    takes a connection owns it; the rest ends with the generator, so close that (`aclosing`).
    """
    waiting, trying = list(endpoints), set[asyncio.Task[socket.socket]]()
    try:
        while waiting or trying:
            if waiting:
                trying.add(asyncio.create_task(reach(waiting.pop(0))))
            head_start_s = NEXT_ADDRESS_MS / 1000 if waiting else None
            done, _ = await asyncio.wait(
                trying, timeout=head_start_s, return_when=asyncio.FIRST_COMPLETED
            )
            for task in done:
                trying.discard(task)
                error = task.exception()
                if error is None:
                    yield task.result()
                elif isinstance(error, Unreachable):
                    yield error
                else:
                    raise error
    finally:
        await _give_up(list(trying))


async def _addresses(endpoint: Endpoint) -> list[_Address]:
    """In the system's order of preference, but the families in turn."""
    try:
        found = await _within(_asked(endpoint), CONNECT_MS)
    except (OSError, UnicodeError) as error:
        raise Unreachable(f"{endpoint.host} has no address ({_words(error)})") from None
    except TimeoutError:
        raise Unreachable(f"{endpoint.host} has no address (nobody answers the question)") from None
    listed: dict[_Address, None] = {}
    for family, _, _, _, address in found:
        if family in (socket.AF_INET, socket.AF_INET6):
            listed[family, address] = None
    first = [one for one in listed if one[0] == next(iter(listed))[0]]
    others = [one for one in listed if one not in first]
    turns = [one for pair in zip(first, others, strict=False) for one in pair]
    rest = first[len(others) :] + others[len(first) :]
    return [*turns, *rest][:_ADDRESSES_TRIED_MAX]


async def _asked(endpoint: Endpoint) -> list[tuple[Any, ...]]:
    """The system's answer, of another thread."""
    loop = asyncio.get_running_loop()
    return await loop.getaddrinfo(endpoint.host, endpoint.port, type=socket.SOCK_STREAM)


async def _connect(family: int, address: tuple[Any, ...]) -> socket.socket:
    connection = socket.socket(family, socket.SOCK_STREAM)
    try:
        connection.setblocking(False)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        loop = asyncio.get_running_loop()
        await _within(loop.sock_connect(connection, address), CONNECT_MS)
    except BaseException:
        connection.close()
        raise
    return connection


async def _within(work: Awaitable[_Result], limit_ms: int) -> _Result:
    async with asyncio.timeout(limit_ms / 1000):
        return await work


async def _give_up(tasks: Sequence[asyncio.Task[socket.socket]]) -> None:
    """End what is still tried; a connection that came about meanwhile is closed."""
    for task in tasks:
        task.cancel()
    for task in tasks:
        with suppress(OSError, TimeoutError, Unreachable, asyncio.CancelledError):
            (await task).close()


def _words(error: BaseException) -> str:
    if isinstance(error, TimeoutError):
        return "no answer"
    if isinstance(error, OSError) and error.errno is not None and error.errno > 0:
        return os.strerror(error.errno)  # the loops put their own words around it
    return str(error)
