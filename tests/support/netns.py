"""Hosts in network namespaces of their own, on one bridge, whose lines a test makes bad.

Needs root, `ip`, `nft`, and a kernel that has both. The bridge stands in a namespace too, so that
nothing of the machine's own network is touched. What is done to a line is a rule of `nft` there.
"""

import itertools
import json
import os
import shutil
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final, Self

from tests.support.shells import TIMEOUT_S

IN, OUT = "in", "out"
"""Ways of a packet, as the host sees it whose line is bad."""
_ONCE: Final = 65_536
"""A counter that goes round only after so many packets counts to a place once in a test."""
_numbers = itertools.count(1)


def missing() -> str | None:
    """Why there can be no namespaces here, None: there can."""
    if os.geteuid() != 0:
        return "needs the rights of root"
    for program in ("ip", "nft"):
        if shutil.which(program) is None:
            return f"{program} is not installed"
    probe = f"mbx-probe-{os.getpid()}"
    if not _works("ip", "netns", "add", probe):
        return "the kernel gives no network namespaces"
    try:
        works = _works("ip", "netns", "exec", probe, "nft", "add", "table", "inet", "probe")
    finally:
        _works("ip", "netns", "del", probe)
    return None if works else "the kernel has no nftables"


def _works(*argv: str) -> bool:
    return subprocess.run(argv, check=False, capture_output=True, timeout=TIMEOUT_S).returncode == 0


def _run(*argv: str, said: str | None = None) -> str:
    done = subprocess.run(
        argv, check=False, capture_output=True, text=True, timeout=TIMEOUT_S, input=said
    )
    assert done.returncode == 0, f"{' '.join(argv)}: {done.stderr}"
    return done.stdout


class Place:
    """One host's network: its namespace, its address, and what is wrong with its line."""

    def __init__(self, name: str, number: int, net: int) -> None:
        self.name = name
        self.net = net
        self.ip = ""
        self.device = f"v{number}"
        self.moves = 0

    @property
    def prefix(self) -> tuple[str, ...]:
        """What runs a program in here."""
        return ("ip", "netns", "exec", self.name)

    def inside(self, *argv: str, said: str | None = None) -> str:
        """Run a program in here; what it says."""
        return _run(*self.prefix, *argv, said=said)

    def move_to(self, ip: str) -> None:
        """Have this address, and no other; packets that come for the former one go nowhere."""
        self.inside("ip", "address", "flush", "dev", self.device)
        self.inside("ip", "address", "add", f"{ip}/24", "dev", self.device)
        self.ip = ip

    # -- bad lines --------------------------------------------------------------------------------

    def rules(self, *rules: tuple[str, str]) -> None:
        """These and no others: (way, rule of nft)."""
        chains = "".join(
            f"chain {way} {{ type filter hook {hook} priority 0; policy accept;\n"
            + "".join(f"{rule}\n" for which, rule in rules if which == way)
            + "}\n"
            for way, hook in ((IN, "input"), (OUT, "output"))
        )
        text = f"flush ruleset\ntable inet bad {{\n{chains}}}\n"
        self.inside("nft", "-f", "-", said=text)

    def heal(self) -> None:
        """A good line."""
        self.rules()

    def cut(self, *ways: str) -> None:
        """Nothing goes these ways (none given: both), and nobody is told."""
        self.rules(
            *(
                (way, "oifname != lo drop" if way == OUT else "iifname != lo drop")
                for way in ways or (IN, OUT)
            )
        )

    def lose(self, percent: int) -> None:
        """So many of a hundred packets are lost, each way."""
        rule = f"numgen random mod 100 < {percent} drop"
        self.rules((IN, rule), (OUT, rule))

    def throttle(self, bytes_per_s: int) -> None:
        """What is more than that is dropped, each way."""
        rule = f"limit rate over {bytes_per_s} bytes/second drop"
        self.rules((IN, rule), (OUT, rule))

    def reset(self, packet: int | None = None) -> None:
        """Answer with a reset what comes: everything, or the packet of that number from now on."""
        which = "" if packet is None else f"numgen inc mod {_ONCE} == {packet} "
        self.rules((IN, f"meta l4proto tcp {which}counter reject with tcp reset"))

    def hits(self) -> int:
        """How many packets a counting rule has met."""
        told: Any = json.loads(self.inside("nft", "-j", "list", "ruleset"))
        return sum(
            part["counter"]["packets"]
            for one in told["nftables"]
            for part in one.get("rule", {}).get("expr", ())
            if "counter" in part
        )

    def refuse_callers(self) -> None:
        """Nobody can connect to here, as behind a firewall; it can connect to others."""
        self.rules((IN, "tcp flags & (syn | ack) == syn drop"))

    @contextmanager
    def flapping(self, every_s: float) -> Iterator[list[int]]:
        """The line goes and comes all the time; the list's length says how often it went."""
        over, cuts = threading.Event(), list[int]()

        def flap() -> None:
            while not over.wait(every_s):
                self.cut()
                cuts.append(len(cuts))
                over.wait(every_s)
                self.heal()

        thread = threading.Thread(target=flap)
        thread.start()
        try:
            yield cuts
        finally:
            over.set()
            thread.join(TIMEOUT_S)
            self.heal()


class Bridge:
    """A network of places. Use it in ``with``."""

    def __init__(self, places: int) -> None:
        self.net = next(_numbers)
        stem = f"mbx-{os.getpid()}-{self.net}"
        self._switch = f"{stem}-switch"
        self.places = [Place(f"{stem}-{number}", number, self.net) for number in range(places)]
        self._made: list[str] = []

    def __enter__(self) -> Self:
        try:
            self._make()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def address(self, number: int) -> str:
        """An address of this network."""
        return f"10.77.{self.net}.{number}"

    def close(self) -> None:
        """Remove all of it."""
        for name in self._made:
            _works("ip", "netns", "del", name)
        self._made.clear()

    def _make(self) -> None:
        for name in (self._switch, *(place.name for place in self.places)):
            _run("ip", "netns", "add", name)
            self._made.append(name)
        switch = ("ip", "-n", self._switch, "link")
        _run(*switch, "add", "br0", "type", "bridge")
        _run(*switch, "set", "br0", "up")
        for number, place in enumerate(self.places):
            end = ("peer", "name", place.device, "netns", place.name)
            _run(*switch, "add", f"p{number}", "type", "veth", *end)
            _run(*switch, "set", f"p{number}", "master", "br0", "up")
            place.inside("ip", "link", "set", "lo", "up")
            place.inside("ip", "link", "set", place.device, "up")
            place.move_to(self.address(number + 1))
