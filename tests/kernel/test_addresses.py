"""The addresses of this machine, as the kernel tells them and as they can be given to others."""

import ipaddress
import socket
import subprocess
import sys

import pytest

from mbx.kernel import addresses, portable
from tests.support.patience import looks
from tests.support.worlds import can_unshare, unshared


def test_every_address_that_is_told_can_be_bound_and_reached_from_elsewhere() -> None:
    found = addresses.own_addresses()
    assert len(set(found)) == len(found)
    for text in found:
        address = ipaddress.ip_address(text)
        assert str(address) == text
        assert not address.is_loopback
        assert not address.is_link_local
        family = socket.AF_INET6 if address.version == 6 else socket.AF_INET
        with socket.socket(family) as bound:
            try:
                bound.bind((text, 0))
            except OSError:
                assert text not in addresses.own_addresses(), "it has gone meanwhile, or is none"


def test_both_ways_of_asking_tell_of_the_same_interfaces() -> None:
    """An address may come or go between the two."""
    told, portably = set[str](), set[str]()
    for _ in looks():
        told, portably = set(addresses._told()), set(portable.addresses())
        if told == set(addresses._told()):
            break
    assert {one for one in told if ":" not in one} == {one for one in portably if ":" not in one}
    assert {one for one in told if ":" in one} <= portably
    assert "127.0.0.1" in told


def test_passing_addresses_and_those_of_one_wire_are_left_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told = ["::1", "fe80::1", "2001:db8::7", "127.0.0.1", "10.0.0.5", "192.168.1.4", "0.0.0.0"]
    monkeypatch.setattr(addresses, "_told", lambda: told)
    monkeypatch.setattr(addresses, "_routed", lambda: iter(["192.168.1.4", "203.0.113.9"]))
    assert addresses.own_addresses() == ["192.168.1.4", "10.0.0.5", "2001:db8::7"]


def test_a_machine_that_tells_nothing_has_no_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    def forbidden(*_: object, **__: object) -> socket.socket:
        raise PermissionError

    monkeypatch.setattr(socket, "socket", forbidden)
    assert addresses.own_addresses() == []


def message(family: int, flags: int, attributes: bytes) -> bytes:
    return bytes([family, 64, flags & 0xFF, 0, 1, 0, 0, 0]) + attributes


def attribute(sort: int, value: bytes) -> bytes:
    head = addresses._ATTRIBUTE.pack(len(value) + 4, sort)
    return head + value + bytes(-len(value) % 4)


def test_what_the_kernel_says_of_an_address_is_read() -> None:
    four, six = socket.inet_aton("10.0.0.5"), socket.inet_pton(socket.AF_INET6, "2001:db8::7")
    secondary = message(socket.AF_INET, 1, attribute(1, bytes(4)) + attribute(2, four))
    assert list(addresses._address(secondary)) == ["10.0.0.5"]
    assert list(addresses._address(message(socket.AF_INET6, 0x80, attribute(1, six)))) == [
        "2001:db8::7"
    ]
    for passing in (0x01, 0x08, 0x20, 0x40):
        bent = message(socket.AF_INET6, passing, attribute(1, six))
        assert list(addresses._address(bent)) == []
        flags = attribute(8, passing.to_bytes(4, "little"))
        assert (
            list(addresses._address(message(socket.AF_INET6, 0, attribute(1, six) + flags))) == []
        )
    assert list(addresses._address(message(99, 0, attribute(1, six)))) == []
    assert list(addresses._address(message(socket.AF_INET, 0, b"\0\0\0\0"))) == []


def test_a_name_of_a_socket_is_ours_as_long_as_its_address_is() -> None:
    with socket.create_server(("127.0.0.1", 0)) as here:
        assert addresses.is_own(here.getsockname())
    assert not addresses.is_own(("192.0.2.1", 1))
    assert not addresses.is_own(("2001:db8::1", 1, 0, 0)) or not socket.has_ipv6


_ANOTHER_ADDRESS = """
import fcntl, select, socket, struct
from mbx.kernel import addresses

def give(text):  # SIOCSIFADDR
    where = struct.pack("16sH2x4s8x", b"lo", socket.AF_INET, socket.inet_aton(text))
    with socket.socket() as any_socket:
        fcntl.ioctl(any_socket, 0x8916, where)

def is_told():
    return bool(select.select([changes], [], [], 0)[0])

changes = addresses.changes()
assert not is_told()
give("10.9.9.9")
assert is_told() and addresses.is_own(("10.9.9.9", 1))
addresses.forget(changes)
assert not is_told()
give("10.9.9.8")
assert is_told() and not addresses.is_own(("10.9.9.9", 1)) and addresses.is_own(("10.9.9.8", 1))
"""


@pytest.mark.skipif(not can_unshare("--net"), reason="needs a network namespace")
def test_a_change_of_address_is_told_at_once() -> None:
    program = [*unshared("--net"), sys.executable, "-c", _ANOTHER_ADDRESS]
    done = subprocess.run(program, capture_output=True, text=True, timeout=20, check=False)
    assert (done.returncode, done.stderr) == (0, "")
