"""The addresses of this machine at which others may reach it.

What the system tells of its interfaces is filtered here: no loopback, no addresses that mean
something on one wire only, none that are about to go.
"""

import errno
import ipaddress
import socket
import struct
import sys
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, Final

_GETADDR: Final = 22
_DUMP: Final = 0x301
"""linux/rtnetlink.h and netlink.h: RTM_GETADDR, NLM_F_REQUEST | NLM_F_DUMP."""
_NEW_ADDRESS: Final = 20
_GROUPS: Final = 0x10 | 0x100
"""linux/rtnetlink.h: RTMGRP_IPV4_IFADDR, RTMGRP_IPV6_IFADDR."""
_DONE: Final = 3
_ERROR: Final = 2
_HEAD: Final = struct.Struct("=IHHII")
_ABOUT: Final = struct.Struct("=BBBBI")
_ATTRIBUTE: Final = struct.Struct("=HH")
_ADDRESS: Final = 1
_LOCAL: Final = 2
_FLAGS: Final = 8
_DATAGRAM_BYTES: Final = 65_536

_PASSING: Final = 0x01 | 0x08 | 0x20 | 0x40
"""linux/if_addr.h, of IPv6: temporary, a duplicate, deprecated, tentative."""
_PROBES: Final = (
    (socket.AF_INET, "192.0.2.1"),
    (socket.AF_INET6, "2001:db8::1"),
)
"""Addresses that are nobody's: asked for a route to them, a socket says which of ours it takes."""


def own_addresses() -> list[str]:
    """IPv4 and IPv6 addresses in their usual spelling; those of the usual routes first.

    Empty where the system tells none.
    """
    found = [text for text in _told() if _is_reachable(text)]
    first = [text for text in _routed() if text in found]
    return list(dict.fromkeys((*first, *sorted(found, key=lambda text: ":" in text))))


def is_own(name: tuple[Any, ...]) -> bool:
    """Whether a socket's own name, as `getsockname` gives it, still is an address of this machine.

    True where the system cannot say.
    """
    family = socket.AF_INET6 if ":" in name[0] else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.bind((name[0], 0, *name[2:]))
    except OSError as error:
        return error.errno != errno.EADDRNOTAVAIL
    return True


def changes() -> socket.socket | None:
    """A socket that can be read whenever an address of this machine came or went; for `forget`.

    None where the system tells nobody.
    """
    if sys.platform != "linux":
        return None
    kernel: socket.socket | None = None
    try:
        kernel = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_NONBLOCK, 0)
        kernel.bind((0, _GROUPS))
    except OSError:
        if kernel is not None:
            kernel.close()
        return None
    return kernel


def forget(kernel: socket.socket) -> None:
    """Read away what was told: that something changed is all that counts."""
    while True:
        try:
            kernel.recv(_DATAGRAM_BYTES)
        except OSError as error:
            if error.errno != errno.ENOBUFS:  # more was told than there was room for
                return


def _is_reachable(text: str) -> bool:
    address = ipaddress.ip_address(text)
    return not (
        address.is_loopback
        or address.is_link_local
        or address.is_unspecified
        or address.is_multicast
    )


def _told() -> list[str]:
    """Every address of every interface that stays for a while."""
    if sys.platform != "linux":
        from mbx.kernel import portable

        return portable.addresses()
    with suppress(OSError), socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0) as kernel:
        kernel.bind((0, 0))
        about = _ABOUT.pack(socket.AF_UNSPEC, 0, 0, 0, 0)
        size_bytes = _HEAD.size + len(about)
        kernel.send(_HEAD.pack(size_bytes, _GETADDR, _DUMP, 1, 0) + about)
        return list(_dumped(kernel))
    return []


def _dumped(kernel: socket.socket) -> Iterator[str]:
    while True:
        data = kernel.recv(_DATAGRAM_BYTES)
        while len(data) >= _HEAD.size:
            size_bytes, sort, _, _, _ = _HEAD.unpack_from(data)
            if sort in (_DONE, _ERROR) or size_bytes < _HEAD.size:
                return
            if sort == _NEW_ADDRESS:
                yield from _address(data[_HEAD.size : size_bytes])
            data = data[_aligned(size_bytes) :]


def _address(message: bytes) -> Iterator[str]:
    family, _, flags, _, _ = _ABOUT.unpack_from(message)
    attributes: dict[int, bytes] = {}
    rest = message[_ABOUT.size :]
    while len(rest) >= _ATTRIBUTE.size:
        size_bytes, sort = _ATTRIBUTE.unpack_from(rest)
        if size_bytes < _ATTRIBUTE.size:
            break
        attributes[sort] = rest[_ATTRIBUTE.size : size_bytes]
        rest = rest[_aligned(size_bytes) :]
    if _FLAGS in attributes:
        flags = int.from_bytes(attributes[_FLAGS], sys.byteorder)
    raw = attributes.get(_LOCAL) or attributes.get(_ADDRESS)
    is_passing = family == socket.AF_INET6 and flags & _PASSING
    if raw is not None and family in (socket.AF_INET, socket.AF_INET6) and not is_passing:
        yield socket.inet_ntop(family, raw)


def _aligned(size_bytes: int) -> int:
    return (size_bytes + 3) & ~3


def _routed() -> Iterator[str]:
    """The addresses that this machine speaks from to the rest of the world; nothing is sent."""
    for family, nobody in _PROBES:
        with suppress(OSError), socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect((nobody, 9))
            yield probe.getsockname()[0]
