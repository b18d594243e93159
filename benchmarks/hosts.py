"""Homes of hosts that are paired with each other, for daemons that really link over TLS.

Their owners' part (code, digits, signatures) is over before anything is measured, so its outcome is
put into the stores: each host's row and certificate, and the two streams.
"""

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from benchmarks.wire import Line
from benchmarks.workshop import Daemon, Workshop, names
from mbx.core.keys import crockford
from mbx.daemon import certificates
from mbx.paths import Paths
from mbx.store import hosts, outbox, peers
from mbx.store.database import Committed, Tx, run_group
from mbx.store.hosts import HostRow
from mbx.store.migrate import open_store
from mbx.store.peers import NewPeer
from scripts.ports import reserve_port

_PATIENCE_S: Final = 120.0
LOOK_S: Final = 0.01
"""How often it is asked whether a link has come to rest: asking costs the daemon half a ms."""


@dataclass(frozen=True, slots=True)
class Home:
    """A home folder whose daemon can be linked: its label, its keys, where it listens."""

    folder: Path
    label: str
    row: HostRow
    certificate: bytes
    address: str


def prepare(folder: Path, label: str) -> Home:
    """A home with a store, a label and a TLS key; its daemon will listen on the loopback."""
    with Daemon(folder):
        pass  # makes the store and the host key
    row: HostRow = _commit(folder, hosts.find)
    path = Paths(str(folder), str(folder / "run")).tls_key_path()
    tls = certificates.load_or_create(path, os.urandom(32), row.key_id, must_exist=False)
    address = f"127.0.0.1:{reserve_port()}"

    def unit(tx: Tx) -> None:
        tx.run("UPDATE host SET label = ?", (label,))
        hosts.set_listen(tx, [address])

    _commit(folder, unit)
    return Home(folder, label, row, tls.certificate, address)


def pair(caller: Home, called: Home) -> None:
    """Both know each other; `caller` knows an address, and so is the one that dials."""
    _know(caller, called, (called.address,))
    _know(called, caller, ())


def star(workshop: Workshop, count: int) -> tuple[Daemon, list[Daemon]]:
    """A daemon that is paired with `count` others, and those; they dial it."""
    hub = prepare(workshop.home(), "hub")
    others = [prepare(workshop.home(), label) for label in names("host", count)]
    for one in others:
        pair(one, hub)
    return Daemon(hub.folder), [Daemon(one.folder) for one in others]


def stream_seqs(line: Line, label: str) -> tuple[int, int, int]:
    """Places of our stream to a host: given, acknowledged; and those that we took of its own."""
    shown = line.call("peers.show", name=label)
    return shown["sending"]["seq"], shown["sending"]["acked"], shown["receiving"]["seq"]


def wait_until_linked(line: Line, count: int) -> None:
    """Return when so many links stand."""
    _wait(
        lambda: sum(peer["state"] == "up" for peer in line.call("peers.list")["peers"]) >= count,
        "the links do not stand",
    )


def wait_until_known(line: Line, addresses: Sequence[str]) -> None:
    """Return when everybody at these addresses can be written to from here."""
    _wait(
        lambda: set(addresses) <= {one["address"] for one in line.call("agents.list")["agents"]},
        "a host does not hear of another's identities",
    )


def wait_until_settled(here: Line, there: Line, labels: tuple[str, str]) -> None:
    """Return when both hosts (`labels`: ours, theirs) have all of the other's stream, and know it.

    Ours first: what follows from it there is queued in the transaction that takes it.
    """
    own, other = labels

    def is_settled() -> bool:
        out, acked, _ = stream_seqs(here, other)
        if acked != out:
            return False
        back, back_acked, taken = stream_seqs(there, own)
        return taken >= out and back_acked == back

    _wait(is_settled, "two hosts do not come to rest")


def _wait(look: Callable[[], bool], what: str) -> None:
    deadline = time.perf_counter() + _PATIENCE_S
    while not look():
        if time.perf_counter() > deadline:
            raise TimeoutError(what)
        time.sleep(LOOK_S)


def _know(here: Home, other: Home, addresses: tuple[str, ...]) -> None:
    def unit(tx: Tx) -> None:
        peer = NewPeer(
            other.row.key_id,
            other.row.public_key,
            other.certificate,
            other.label,
            other.label,
            addresses,
            None,
            crockford(os.urandom(32)),
            1,
        )
        outbox.begin(tx, peers.add(tx, peer, 1), crockford(os.urandom(32)))

    _commit(here.folder, unit)


def _commit(folder: Path, unit: Callable[[Tx], Any]) -> Any:
    connection = open_store(str(folder / "store.db"))
    try:
        outcome = run_group(connection, [unit])[0]
    finally:
        connection.close()
    if not isinstance(outcome, Committed):
        raise outcome.error
    return outcome.value
