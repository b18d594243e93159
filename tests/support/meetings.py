"""Two hosts that pair without sockets: their desks, real pairings, a wire that can be bent."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pytest

from mbx.core.endpoints import Endpoint
from mbx.core.errors import MbxError
from mbx.core.keys import SigningKey, crockford
from mbx.daemon import certificates
from mbx.daemon.certificates import TlsKey
from mbx.daemon.context import Answer
from mbx.daemon.faces.channels import ChannelEnded
from mbx.daemon.faces.peers import Undialled
from mbx.daemon.pairings import Pairings
from mbx.store import hosts, peers
from mbx.store.database import Committed, Outcome
from mbx.store.hosts import HostRow
from mbx.store.peers import PeerRow
from tests.support.owner import TERMINAL, Owner, content, wire
from tests.support.paired import PairedDesk

DESK_AT: Final = "192.0.2.7:24629"
NEWS_S: Final = 10.0
"""How long a test waits for what must come."""

Bend = Callable[[str], Sequence[str]]
"""A text that was sent -> the texts that arrive."""


def straight(text: str) -> Sequence[str]:
    return [text]


class WireEnd:
    """One end of a wire in memory, as a channel: what goes in comes out at the other."""

    def __init__(self, certificate: bytes | None, bend: Bend = straight) -> None:
        self.certificate = certificate
        self.other: WireEnd = self
        self.has_room = True
        self.sent: list[str] = []
        self.is_proved = False
        self._bend = bend
        self._texts: asyncio.Queue[str | None] = asyncio.Queue()
        self._is_closed = False

    async def receive(self) -> str:
        text = await self._texts.get()
        if text is None:
            self._texts.put_nowait(None)
            raise ChannelEnded("lost")
        return text

    def send(self, text: str) -> None:
        if self._is_closed:
            raise ChannelEnded("closed")
        self.sent.append(text)
        for arriving in self._bend(text):
            self.other._texts.put_nowait(arriving)

    def proved(self) -> bool:
        self.is_proved = self.has_room
        return self.has_room

    async def close(self) -> None:
        self.cut()

    def cut(self) -> None:
        """Both ends hear no more than what was sent."""
        for end in (self, self.other):
            if not end._is_closed:
                end._is_closed = True
                end._texts.put_nowait(None)


@dataclass
class Wires:
    """The network of one host: who answers at which address."""

    tls: TlsKey
    hosts: dict[str, "MeetingDesk"] = field(default_factory=dict)
    listening: list[Endpoint] = field(default_factory=list)
    refused: set[str] = field(default_factory=set)
    """Hosts that nobody can listen at."""
    bend_to: Bend = straight
    bend_fro: Bend = straight
    ends: list[tuple[WireEnd, WireEnd]] = field(default_factory=list)
    asked: list[bool] = field(default_factory=list)

    def listen(self, endpoints: Sequence[Endpoint]) -> list[Endpoint]:
        if any(one.host in self.refused for one in endpoints):
            raise MbxError("conflict", "cannot listen there")
        self.listening += [one for one in endpoints if one not in self.listening]
        return self.listening

    def shut(self, endpoints: Sequence[Endpoint]) -> None:
        self.listening = [one for one in self.listening if one not in endpoints]

    async def dial_pairing(self, endpoint: Endpoint) -> WireEnd:
        await asyncio.sleep(0)
        host = self.hosts.get(str(endpoint))
        if host is None:
            raise Undialled("unreachable", f"{endpoint} does not answer")
        ours = WireEnd(host.wires.tls.certificate, self.bend_to)
        theirs = WireEnd(None, self.bend_fro)
        ours.other, theirs.other = theirs, ours
        self.ends.append((ours, theirs))
        host.serve(theirs)
        return ours


@dataclass
class MeetingDesk(PairedDesk):
    """A host that can pair; its owner, if it has one, sits at `TERMINAL`."""

    wires: Wires = field(default=None)  # type: ignore[assignment]
    pairings: Pairings = field(default=None)  # type: ignore[assignment]
    owner: Owner | None = None
    tasks: set[asyncio.Task[None]] = field(default_factory=set)
    defects: list[BaseException] = field(default_factory=list)
    paired: list[str] = field(default_factory=list)
    """Key ids of hosts with which a pairing is recorded on both sides, as this one was told."""

    async def leave(self) -> None:
        """End what is under way, and the store."""
        await self.pairings.close()
        tasks = list(self.tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        assert self.defects == []
        self.close()

    def serve(self, end: WireEnd) -> None:
        """Somebody came who may only pair."""
        task = asyncio.create_task(self.pairings.serve(end))
        self.tasks.add(task)
        task.add_done_callback(self._left)

    def _left(self, task: asyncio.Task[None]) -> None:
        self.tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self.defects.append(error)

    async def ask(self, method: str, **params: object) -> dict[str, Any]:
        """The result of one call at the owner's terminal; it may have to wait for it."""
        answer = self.carry_out(self.work(TERMINAL, method, params))
        for effect in answer.effects:
            self.pairings.heed(effect)
        if answer.sequel is None:
            return answer.result
        outcome: asyncio.Future[Outcome[Answer]] = asyncio.get_running_loop().create_future()
        self.pairings.carry_out(answer.sequel, outcome.set_result)
        found = await asyncio.wait_for(outcome, NEWS_S)
        if not isinstance(found, Committed):
            raise found.error
        result: dict[str, Any] = found.value.result
        return result

    async def refused(self, method: str, **params: object) -> MbxError:
        """The refusal of one call."""
        try:
            result = await self.ask(method, **params)
        except MbxError as error:
            return error
        raise AssertionError(f"{method} was not refused: {result}")

    async def news(self, run: str, state: str) -> dict[str, Any]:
        """How a run stands as soon as it is in this state."""
        told = await self.ask("pair.state", run=run)
        while told["state"] != state:
            assert told["state"] != "over", told["end"]
            told = await self.ask("pair.state", run=run, seen=told["seen"])
        return told

    async def heard(self, run: str) -> dict[str, Any]:
        """How a run stands as soon as the other side's person has agreed."""
        told = await self.ask("pair.state", run=run)
        while not told["agreed"]["there"]:
            assert told["state"] != "over", told["end"]
            told = await self.ask("pair.state", run=run, seen=told["seen"])
        return told

    def draft(self, pairing: str, **wanted: object) -> dict[str, Any]:
        """The drafted `peer` record of a pairing."""
        return self.call(TERMINAL, "owner.draft", act="peer", pairing=pairing, **wanted)

    async def agree(self, pairing: str, **wanted: object) -> dict[str, Any]:
        """The owner here signs."""
        return await self.ask("owner.apply", record=self.signed(self.draft(pairing, **wanted)))

    def signed(self, draft: dict[str, Any]) -> dict[str, Any]:
        """The record of a draft, signed by the owner here."""
        assert self.owner is not None
        return wire(draft["kind"], content(draft), self.owner.key)


def meeting_desk(
    folder: Path, label: str, owner_seed: int | None = 7, *, told_ms: int = 0
) -> MeetingDesk:
    """A host of that label; `owner_seed` None: it has no owner. `told_ms`: see `Pairings`."""
    key = SigningKey.from_seed(label.encode().ljust(32, b"!"))
    made = MeetingDesk(label=label, key=key)
    made.add_owner()
    row = HostRow(made.host.key_id, key.public, label, crockford(label.encode().ljust(32)))
    made.do(lambda tx: hosts.create(tx, row, made.world.now_ms()))
    path = folder / f"{label}.key"
    tls = certificates.load_or_create(
        str(path), label.encode().ljust(32, b"?"), made.host.key_id, must_exist=False
    )
    made.wires = Wires(tls)

    def network(is_known: bool) -> Wires:
        made.wires.asked.append(is_known)
        return made.wires

    made.pairings = Pairings(
        made.host,
        made.world,
        network,
        lambda: ["192.0.2.7", "2001:db8::7"],
        made.defects.append,
        made.paired.append,
        told_ms,
    )
    made.find_pairing = made.pairings.proven
    if owner_seed is not None:
        made.owner = Owner(made, SigningKey.from_seed(bytes([owner_seed]) * 32))
        made.owner.enroll()
    return made


@dataclass
class Met:
    """Two hosts whose people are to compare."""

    desk: MeetingDesk
    laptop: MeetingDesk
    at_desk: dict[str, Any]
    at_laptop: dict[str, Any]

    @property
    def pairing(self) -> str:
        """Its id, alike on both."""
        return str(self.at_desk["compare"]["pairing"])

    async def ends(self) -> tuple[str, str]:
        """How it ends on the desk and on the laptop."""
        codes = []
        for host, first in ((self.desk, self.at_desk), (self.laptop, self.at_laptop)):
            told = first
            while told["end"] is None:
                told = await host.ask("pair.state", run=told["run"], seen=told["seen"])
            codes.append(str(told["end"]["code"]))
        return codes[0], codes[1]


def connect(desk: MeetingDesk, laptop: MeetingDesk) -> None:
    """The laptop reaches the desk at `DESK_AT`."""
    laptop.wires.hosts[DESK_AT] = desk


async def meet(desk: MeetingDesk, laptop: MeetingDesk) -> Met:
    """The laptop joins the desk with its code, up to the comparison."""
    connect(desk, laptop)
    invited = await desk.ask("pair.invite")
    joined = await laptop.ask("pair.join", address=DESK_AT, code=invited["code"])
    return Met(
        desk,
        laptop,
        await desk.news(invited["run"], "comparing"),
        await laptop.news(joined["run"], "comparing"),
    )


def present(host: MeetingDesk) -> list[PeerRow]:
    """The pairings that stand."""
    return host.do(peers.present)


# -- fixtures, for the conftest of a folder -------------------------------------------------------


@pytest.fixture(name="desk")
async def desk_of_test(tmp_path: Path) -> AsyncIterator[MeetingDesk]:
    """A host with an owner."""
    made = meeting_desk(tmp_path, "desk")
    yield made
    await made.leave()


@pytest.fixture(name="laptop")
async def laptop_of_test(tmp_path: Path) -> AsyncIterator[MeetingDesk]:
    """A host with another owner."""
    made = meeting_desk(tmp_path, "laptop", 8)
    yield made
    await made.leave()


@pytest.fixture(name="bare")
async def bare_of_test(tmp_path: Path) -> AsyncIterator[MeetingDesk]:
    """A host without owner."""
    made = meeting_desk(tmp_path, "bare", None)
    yield made
    await made.leave()
