"""A daemon's network over real sockets and TLS: links that die with an address, and farewells."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pytest

from mbx.core.endpoints import Endpoint
from mbx.core.frames import Bye, parse
from mbx.daemon.faces.channels import Channel, Terms
from mbx.daemon.farewells import TOLD
from mbx.daemon.links import UNPAIRED
from mbx.daemon.linkstate import Wire
from mbx.daemon.network import Network
from mbx.store.peers import PeerRow
from scripts.ports import reserve_port
from tests.support.network import WAIT_S, monotonic_ms, until
from tests.support.tls import LOOPBACK, Machine, machine

PATIENT: Final = Terms(handshake_s=WAIT_S, first_frame_s=WAIT_S, close_s=WAIT_S, probe_s=WAIT_S)
"""Whatever these are for comes: a machine that stands still for seconds cuts nobody off."""


@dataclass
class Ears:
    """What a host's links would hear; `greeting` is what they say first."""

    greeting: str = ""
    wires: list[Wire] = field(default_factory=list)
    heard_texts: list[str] = field(default_factory=list)
    ended: int = 0
    unreached: list[tuple[int, str]] = field(default_factory=list)

    def admits(self, key_id: str) -> bool:
        return True

    def connected(self, key_id: str, wire: Wire, *, is_ours: bool) -> object:
        self.wires.append(wire)
        if self.greeting:
            wire.send(self.greeting)
        return wire

    def heard(self, connection: Wire, text: str) -> None:
        self.heard_texts.append(text)
        connection.close()

    def gone(self, connection: Wire) -> None:
        self.ended += 1

    def unreachable(self, peer_no: int, code: str) -> None:
        self.unreached.append((peer_no, code))


@dataclass
class Host:
    """One host with its network."""

    own: Machine
    run: str = "r" * 26
    ears: Ears = field(default_factory=Ears)
    parted: list[tuple[int, str]] = field(default_factory=list)
    defects: list[BaseException] = field(default_factory=list)
    at: Endpoint = field(default_factory=lambda: Endpoint(LOOPBACK, reserve_port()))
    """Nobody else's, also when nobody listens there any more."""

    def __post_init__(self) -> None:
        async def nobody(_: Channel) -> None:
            raise AssertionError("nobody pairs here")

        self.network = Network(
            self.own.tls,
            self.ears,  # type: ignore[arg-type]
            nobody,
            lambda no, code: self.parted.append((no, code)),
            monotonic_ms,
            self.defects.append,
            self.run,
            PATIENT,
        )

    def row(self, no: int = 1) -> PeerRow:
        """This host, as another one that reaches it has recorded it."""
        public = self.own.host.signer.public
        known = (self.own.id, public, self.own.tls.certificate, "it", "it", (str(self.at),))
        return PeerRow(no, *known, None, "record", 1, 1, None, None, None, (), ())


@pytest.fixture
async def two(tmp_path: Path) -> AsyncIterator[tuple[Host, Host]]:
    """The first one dials, the second one listens; each has recorded the other."""
    here, there = (Host(machine(tmp_path, number)) for number in (1, 2))
    here.network.know([there.row()], [])
    there.network.know([here.row()], [])
    [there.at] = there.network.listen([there.at])
    yield here, there
    for host in (here, there):
        await host.network.close()
        assert host.defects == []


async def linked(here: Host, there: Host) -> None:
    here.network.dial(there.row())
    await until(lambda: bool(here.ears.wires and there.ears.wires))


async def test_a_link_from_an_address_that_is_gone_ends_at_once_and_no_other(
    two: tuple[Host, Host],
) -> None:
    here, there = two
    await linked(here, there)
    asked: list[Any] = []

    def is_own(name: tuple[Any, ...]) -> bool:
        asked.append(name[0])
        return True

    here.network.moved(is_own)
    assert asked == [LOOPBACK]
    assert (here.ears.ended, there.ears.ended) == (0, 0)
    here.network.moved(lambda name: False)
    await until(lambda: (here.ears.ended, there.ears.ended) == (1, 1))
    here.network.moved(is_own)  # nothing hangs on any address now
    assert asked == [LOOPBACK]


@pytest.mark.parametrize(("named", "heard"), [("s" * 26, "s" * 26), ("", None), ("what", None)])
async def test_each_end_names_the_start_of_its_daemon_and_an_older_mbx_names_none(
    tmp_path: Path, named: str, heard: str | None
) -> None:
    here, there = Host(machine(tmp_path, 1)), Host(machine(tmp_path, 2), run=named)
    here.network.know([there.row()], [])
    there.network.know([here.row()], [])
    [there.at] = there.network.listen([there.at])
    await linked(here, there)
    assert (here.ears.wires[0].run, there.ears.wires[0].run) == (heard, "r" * 26)
    there.network.dial(here.row()._replace(addresses=()))
    for host in (here, there):
        await host.network.close()


@pytest.mark.parametrize("is_ours", [True, False], ids=["dialled", "called"])
async def test_a_question_is_answered_by_who_lives_also_on_a_connection_that_is_closed_behind_it(
    two: tuple[Host, Host], is_ours: bool
) -> None:
    """By who asked: an answer that follows the other end's goodbye is heard of by nobody."""
    here, there = two
    await linked(here, there)
    asker = (here if is_ours else there).ears.wires[0]
    answers: list[str] = []
    asker.question(lambda: answers.append("the other end"))
    asker.close()
    await until(lambda: (here.ears.ended, there.ears.ended) == (1, 1))
    asker.question(lambda: answers.append("nobody"))
    assert answers == ["the other end"]


async def test_a_removed_host_is_told_once_it_has_said_hello(two: tuple[Host, Host]) -> None:
    here, there = two
    there.ears.greeting = "its hello"
    here.network.part(there.row(7))
    await until(lambda: bool(here.parted))
    assert here.parted == [(7, TOLD)]
    [text] = there.ears.heard_texts
    assert parse(text) == Bye(UNPAIRED)
    assert here.ears.wires == []  # it is no link


async def test_who_knows_that_it_is_removed_says_so_and_who_is_away_is_tried_again(
    two: tuple[Host, Host],
) -> None:
    here, there = two
    there.network.know([], [here.row()])
    here.network.part(there.row())
    await until(lambda: bool(here.parted))
    there.network.shut([there.at])
    here.network.part(there.row())
    await until(lambda: len(here.parted) == 2)
    assert [code for _, code in here.parted] == ["not-paired", "unreachable"]


async def test_who_hangs_up_before_the_bye_has_not_been_told(two: tuple[Host, Host]) -> None:
    here, there = two
    here.network.part(there.row())
    await until(lambda: bool(there.ears.wires))
    there.network.moved(lambda name: False)
    await until(lambda: bool(here.parted))
    assert here.parted == [(1, "lost")]
    await asyncio.sleep(0)
