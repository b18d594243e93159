"""Daemons that are paired as if their owners had done it: each other's rows in their stores.

The pairing itself has its own tests; what comes after it (links, mail, receipts) is tested here on
real daemons, TLS and sockets, whose stores are prepared while they do not run.
"""

import json
import select
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from mbx.core.keys import crockford
from mbx.core.limits import REDIAL_MAX_MS
from mbx.daemon import certificates
from mbx.paths import Paths
from mbx.store import hosts, outbox, peers
from mbx.store.database import Committed, Tx, run_group
from mbx.store.migrate import open_store
from mbx.store.peers import NewPeer
from scripts.ports import reserve_port
from tests.support.daemon import Daemon, Line
from tests.support.human import Human
from tests.support.human import do as do_as_owner
from tests.support.shells import TIMEOUT_S

PAUSED_S: Final = REDIAL_MAX_MS / 1000 + TIMEOUT_S
"""One try for a link may come to nothing on a busy machine, and the next is a pause away."""

_TURN_MS: Final = 10


def do(home: Path, unit: Callable[[Tx], Any]) -> Any:
    """Commit a unit in the store of a daemon that does not run."""
    connection = open_store(str(home / "store.db"))
    try:
        outcome = run_group(connection, [unit])[0]
    finally:
        connection.close()
    assert isinstance(outcome, Committed), outcome
    return outcome.value


class PairedHost:
    """One host: its daemon, its label, and where it listens."""

    def __init__(
        self,
        home: Path,
        label: str,
        *,
        ip: str = "127.0.0.1",
        everywhere: bool = False,
        **how: Any,
    ) -> None:
        """`ip`: where it is dialled; it listens there, or `everywhere`. `how`: see `Daemon`."""
        self.home = home
        self.label = label
        self.ip = ip
        self.port = reserve_port()
        with Daemon(home):
            pass  # makes the store and the host key
        self.daemon = Daemon(home, **how)
        do(home, lambda tx: tx.run("UPDATE host SET label = ?", (label,)))
        row = do(home, hosts.find)
        self.key_id: str = row.key_id
        self.public: bytes = row.public_key
        path = Paths(str(home), str(home / "run")).tls_key_path()
        self.tls = certificates.load_or_create(
            path, label.encode().ljust(32, b"?"), self.key_id, must_exist=False
        )
        listens = f"0.0.0.0:{self.port}" if everywhere else self.address
        do(home, lambda tx: hosts.set_listen(tx, [listens]))

    @property
    def address(self) -> str:
        """Where it can be reached."""
        return f"{self.ip}:{self.port}"

    def knows(self, other: "PairedHost", address: str | None, owner: str | None = None) -> None:
        """Record a pairing with `other`, at that address (None: it is for the other to dial).

        `owner`: the key id of the owner that both have.
        """

        def unit(tx: Tx) -> None:
            peer = NewPeer(
                other.key_id,
                other.public,
                other.tls.certificate,
                other.label,
                other.label,
                [address] if address else [],
                owner,
                crockford(b"planted".ljust(32)),
                1,
            )
            no = peers.add(tx, peer, 1)
            outbox.begin(tx, no, crockford(f"{self.label}>{other.label}".encode().ljust(32)))

        do(self.home, unit)


def plant_pairing(
    one: PairedHost, other: PairedHost, *, through: str | None = None, owner: str | None = None
) -> None:
    """Both know each other; `through`: the address at which `one` reaches `other`.

    `owner`: the key id of the owner that both have, None where they have two.
    """
    one.knows(other, through or other.address, owner)
    other.knows(one, None, owner)


def pair_by_owners(joiner: PairedHost, inviter: PairedHost) -> None:
    """As two owners would: a code, twelve digits alike, and a record on each side, over the net."""
    with Human(inviter.daemon.socket_path) as one, Human(joiner.daemon.socket_path) as two:
        for human in (one, two):
            with human.line() as line:
                has_owner = line.call("owner.show")["owner"] is not None
            if not has_owner:
                human.enroll()
        with one.line() as inviting, two.line() as joining:
            invited = inviting.call("pair.invite")
            joined = joining.call("pair.join", address=inviter.address, code=invited["code"])
            runs = [(inviting, invited), (joining, joined)]
            shorts = [_news(*run, "comparing")["compare"]["short"] for run in runs]
            assert shorts[0] == shorts[1]
            pairing = joining.call("pair.state", run=joined["run"])["compare"]["pairing"]
            for line, other in ((inviting, joiner), (joining, inviter)):
                do_as_owner(line, "peer", pairing=pairing, label=other.label)
            for run in runs:
                assert _news(*run, "over")["end"]["code"] == "paired"


def _news(line: Line, told: dict[str, Any], state: str) -> dict[str, Any]:
    """How a run stands once it is in that state."""
    told = line.call("pair.state", run=told["run"])
    while told["state"] != state:
        assert told["state"] != "over", told["end"]
        told = line.call("pair.state", run=told["run"], seen=told["seen"])
    return told


def until(look: Callable[[], Any], what: str) -> Any:
    """What `look` gives as soon as it is true. Hosts tell nobody when they have heard of something.

    AssertionError with `what` after `PAUSED_S`.
    """
    nothing, tries = select.poll(), int(PAUSED_S * 1000) // _TURN_MS
    for _ in range(tries):
        found = look()
        if found:
            return found
        nothing.poll(_TURN_MS)  # leaves the processors to the daemons
    raise AssertionError(f"in vain: {what}")


def linked(daemon: Daemon) -> None:
    """Wait until the link to the only paired host stands, for which this daemon dials.

    Asking has it tried for at once: after a long absence the next try may be a minute away.
    """
    with daemon.line() as line:
        line.hello()
        [peer] = line.call("peers.list")["peers"]
        until(lambda: line.call("peers.ping", name=peer["label"])["up"], "the link stands")


def addresses(line: Line) -> dict[str, Any]:
    """Everybody that can be written to from here, by address."""
    return {one["address"]: one for one in line.call("agents.list")["agents"]}


def copies(line: Line, message_id: str) -> dict[str, Any]:
    """What became of a sent message, by address."""
    [message] = line.call("mail.sent", id=message_id)["messages"]
    return {one["address"]: one for one in message["recipients"]}


def inbox(line: Line) -> list[dict[str, Any]]:
    """Unacked mail."""
    found: list[dict[str, Any]] = line.call("mail.inbox")["messages"]
    return found


def journal(home: Path) -> list[dict[str, Any]]:
    """What a daemon wrote into its log."""
    return [json.loads(text) for text in (home / "daemon.log").read_text().splitlines()]
