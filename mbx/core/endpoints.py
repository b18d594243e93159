"""Where a host can be reached: ``HOST[:PORT]`` as people type it, and its one spelling.

A host is an IPv4 address in four plain numbers, an IPv6 address (in brackets where a port follows;
``%zone`` for link-local ones) or a name in ASCII. Everything else is refused by what is wrong with
it: a URL, a number that some systems would take for an address, a name that needs encoding. What is
printed has the port always, and reads back as the same endpoint.
"""

import ipaddress
import re
from dataclasses import dataclass
from typing import Final

from mbx.core.errors import MbxError
from mbx.core.limits import ENDPOINT_MAX_CHARS, HOST_NAME_MAX_CHARS

DEFAULT_PORT: Final = 24_629
"""Among the registered ports and assigned to nobody (24 and M-B-X on a telephone's keys), below
those that Linux gives to outgoing connections (32,768 and up)."""

_PORT_MAX: Final = 65_535
_FORM: Final = (
    "HOST or HOST:PORT, an IPv6 address with a port as [ADDRESS]:PORT;"
    f" the port is {DEFAULT_PORT} unless told"
)
_NUMBER: Final = re.compile("0|[1-9][0-9]{0,4}")
_LABEL: Final = re.compile("[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
_NUMERIC: Final = re.compile("[0-9]+|0x[0-9a-f]*")
_ZONE: Final = re.compile("[A-Za-z0-9._~-]{1,15}")
"""Names of network interfaces have at most 15 characters (IFNAMSIZ of Linux)."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A host as `parse_endpoint` spells it, and a port."""

    host: str
    port: int

    @property
    def zone(self) -> str:
        """The interface of a link-local IPv6 address; it means something on this machine only."""
        return self.host.partition("%")[2]

    def __str__(self) -> str:
        """The one spelling: with the port, IPv6 in brackets."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_endpoint(text: str, *, listening: bool = False) -> Endpoint:
    """The endpoint that the whole text spells.

    `listening`: where to listen, so that every address of the machine (``0.0.0.0``, ``[::]``) will
    do and a name will not. Raises MbxError usage with the facts `field` (address) and `reason`.
    """
    if not text:
        raise _refusal("empty", "an address is empty")
    if len(text) > ENDPOINT_MAX_CHARS:
        raise _refusal("length", f"an address has more than {ENDPOINT_MAX_CHARS} characters")
    _check_characters(text)
    host, port = _split(text)
    endpoint = Endpoint(_host(host), DEFAULT_PORT if port is None else _port(port))
    _check_use(endpoint.host, listening=listening)
    return endpoint


def is_spelled(text: str, *, zoned: bool = False) -> bool:
    """Whether a text is the one spelling of an endpoint.

    `zoned`: one with a zone will do too, which says something to the machine of its writer only.
    """
    try:
        endpoint = parse_endpoint(text)
    except MbxError:
        return False
    return str(endpoint) == text and (zoned or not endpoint.zone)


def is_of_a_network(text: str) -> bool:
    """Whether this spelled endpoint is an IP address that other machines can mean too.

    What others say of themselves is dialled only where this holds: no names, which would be looked
    up here, and nothing of this machine or of its own wire.
    """
    host = parse_endpoint(text).host.partition("%")[0]
    try:
        found = ipaddress.ip_address(host)
    except ValueError:
        return False
    return not (found.is_loopback or found.is_link_local)


def _check_characters(text: str) -> None:
    if not text.isascii():
        raise _refusal(
            "character",
            f"the address {_quoted(text)} is not ASCII",
            "write a name of other letters in its ASCII form (xn--...)",
        )
    if not text.isprintable() or " " in text:
        raise _refusal("character", f"the address {_quoted(text)} has a blank or a control in it")
    if "://" in text or "/" in text:
        raise _refusal("form", f"the address {_quoted(text)} is a URL or a path")
    if "@" in text:
        raise _refusal("form", f"the address {_quoted(text)} names a user")


def _split(text: str) -> tuple[str, str | None]:
    """(host, port or None), each not yet checked. More than one colon is IPv6 without a port."""
    if not text.startswith("["):
        if text.count(":") > 1:
            return text, None
        host, colon, port = text.partition(":")
        return host, port if colon else None
    address, closed, rest = text[1:].partition("]")
    if not closed or (rest and not rest.startswith(":")):
        raise _refusal("form", f"the brackets of {_quoted(text)} do not end before a port")
    if ":" not in address:
        raise _refusal("form", f"only an IPv6 address stands in brackets, not {_quoted(address)}")
    return address, rest[1:] if rest else None


def _port(text: str) -> int:
    if _NUMBER.fullmatch(text) is None or not 1 <= int(text) <= _PORT_MAX:
        raise _refusal("port", f"the port {_quoted(text)} is no number from 1 to {_PORT_MAX}")
    return int(text)


def _host(text: str) -> str:
    if ":" in text:
        return _ipv6(text)
    name = text.lower().removesuffix(".")
    labels = name.split(".")
    # Systems take such for IPv4 in odd ways: 127.1, 0177.0.0.1, 2130706433, 0x7f.1.
    if _NUMERIC.fullmatch(labels[-1]) is not None:
        try:
            return str(ipaddress.IPv4Address(text))
        except ValueError:
            raise _refusal(
                "address",
                f"{_quoted(text)} is no IPv4 address of four numbers up to 255",
            ) from None
    if len(name) > HOST_NAME_MAX_CHARS or not all(map(_LABEL.fullmatch, labels)):
        raise _refusal(
            "name",
            f"{_quoted(text)} is no host name: parts of a-z, 0-9 and hyphens, up to 63 each,"
            f" {HOST_NAME_MAX_CHARS} in all",
        )
    return name


def _ipv6(text: str) -> str:
    address, percent, zone = text.partition("%")
    try:
        found = ipaddress.IPv6Address(address)
    except ValueError:
        raise _refusal("address", f"{_quoted(text)} is no IPv6 address") from None
    if found.ipv4_mapped is not None:
        raise _refusal(
            "address",
            f"{_quoted(text)} is an IPv4 address in disguise",
            f"write {found.ipv4_mapped}",
        )
    if percent and (not found.is_link_local or _ZONE.fullmatch(zone) is None):
        raise _refusal("zone", f"the zone of {_quoted(text)} is no interface of a link-local one")
    return f"{found.compressed}{percent}{zone}"


def _check_use(host: str, *, listening: bool) -> None:
    try:
        found = ipaddress.ip_address(host)
    except ValueError:
        if listening:
            raise _refusal(
                "address",
                f"{_quoted(host)} is a name; listening needs an address of this machine",
                "write 0.0.0.0 or [::] for all of them",
            ) from None
        return
    if found.is_multicast or str(found) == "255.255.255.255":
        raise _refusal("address", f"{host} is no address of a single host")
    if found.is_unspecified and not listening:
        raise _refusal("address", f"{host} is no address that can be reached")


def _refusal(reason: str, message: str, next_step: str = f"write it as {_FORM}") -> MbxError:
    return MbxError("usage", message, next_step, field="address", reason=reason)


def _quoted(text: str) -> str:
    """A refused text inside our sentence: in ASCII, cut."""
    return ascii(text[:60]) + ("..." if len(text) > 60 else "")
