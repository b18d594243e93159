"""Somebody sits between two hosts that pair: over real sockets, with real daemons at both ends."""

import asyncio
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pytest

from mbx.core.endpoints import Endpoint
from mbx.core.keys import SigningKey, key_id
from mbx.daemon import certificates
from mbx.daemon.faces import peers as face
from mbx.daemon.faces.channels import Channel, ChannelEnded
from mbx.daemon.faces.networks import Crowd
from mbx.daemon.faces.peers import Callers, Listener, Undialled
from scripts.ports import reserve_port
from tests.support.daemon import Daemon, Line, fresh_home
from tests.support.human import Human, signed
from tests.support.wires import LOOPBACK, Flip, Wire

FLIPS = 80
"""Bytes that are flipped, one a run; spread over all that goes through."""


class Ends:
    """Two hosts with owners, spoken to in raw lines at their owners' terminals."""

    def __init__(self, stack: ExitStack) -> None:
        self.lines: list[Line] = []
        self.homes: list[Path] = []
        for _ in range(2):
            daemon = stack.enter_context(Daemon(stack.enter_context(fresh_home())))
            human = stack.enter_context(Human(daemon.socket_path))
            human.enroll()
            self.lines.append(stack.enter_context(human.line()))
            self.homes.append(daemon.home)
        self.port = reserve_port()

    def meet(self, port: int) -> tuple[dict[str, Any], dict[str, Any]]:
        """Invite at one, join at the other through a port; how both stand when it is settled."""
        invited = self.lines[0].call("pair.invite", listen=[f"{LOOPBACK}:{self.port}"])
        joined = self.lines[1].call("pair.join", address=f"{LOOPBACK}:{port}", code=invited["code"])
        while joined["state"] == "waiting":
            joined = self.lines[1].call("pair.state", run=joined["run"], seen=joined["seen"])
        # The joiner compares before its last words have come to the inviter.
        while True:
            invited = self.lines[0].call("pair.state", run=invited["run"])
            if joined["end"] is not None or invited["state"] != "waiting":
                return invited, joined
            joined = self.lines[1].call("pair.state", run=joined["run"])

    def peers(self) -> list[list[Any]]:
        return [line.call("peers.list")["peers"] for line in self.lines]


@pytest.fixture(scope="module")
def ends() -> Iterator[Ends]:
    with ExitStack() as stack:
        made = Ends(stack)
        yield made
        assert made.peers() == [[], []]


def shorts(*told: dict[str, Any]) -> list[str | None]:
    """What the two people would see to compare."""
    return [(one["compare"] or {}).get("short") for one in told]


def is_fooled(*told: dict[str, Any]) -> bool:
    """Both people see the same digits."""
    one, other = shorts(*told)
    return one is not None and one == other


@pytest.mark.long
@pytest.mark.timeout(120)
def test_a_flipped_byte_anywhere_on_the_wire_pairs_nobody(ends: Ends) -> None:
    with Wire(ends.port) as wire:
        assert is_fooled(*ends.meet(wire.port))  # through the wire as it is, they meet
        whole = wire.last.carried
        assert whole > 3_000
        flipped = 0
        for number in range(FLIPS):
            flip = Flip(number * whole // FLIPS)
            wire.arm(flip)
            assert not is_fooled(*ends.meet(wire.port)), f"byte {flip.place}"
            flipped += flip.has_flipped
        assert flipped >= FLIPS * 9 // 10, f"only {flipped} bytes were flipped"
        wire.arm()
        assert is_fooled(*ends.meet(wire.port))


class Relay:
    """Somebody with a certificate of their own: TLS ends here on both sides, texts are passed on.

    `bend` changes a text that goes to the inviter (True) or to the joiner.
    """

    def __init__(self, folder: Path, target: int, bend: Any) -> None:
        self._target = Endpoint(LOOPBACK, target)
        self._bend = bend
        self.passed = 0
        self.port = reserve_port()
        signer = SigningKey.from_seed(b"\x77" * 32)
        host = key_id("host", signer.public)
        self._tls = certificates.load_or_create(
            str(folder / "between.key"), b"\x78" * 32, host, must_exist=False
        )
        self._loop = asyncio.new_event_loop()
        self._ready, self._stop = threading.Event(), asyncio.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()
        assert self._ready.wait(10)

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(10)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_until_complete(self._serve())
        self._loop.close()

    async def _serve(self) -> None:
        def now_ms() -> int:
            return int(self._loop.time() * 1000)

        async def nobody(channel: Channel) -> None:
            raise AssertionError("nobody is paired with the one in between")

        async def between(channel: Channel) -> None:
            try:
                onward = await face.dial(
                    [self._target], certificates.joining(), None, Crowd(), now_ms
                )
            except Undialled:
                return
            try:
                async with asyncio.TaskGroup() as group:
                    group.create_task(self._pass(channel, onward, to_inviter=True))
                    group.create_task(self._pass(onward, channel, to_inviter=False))
            finally:
                await onward.close()

        context = certificates.listening(self._tls, {})
        callers = Callers(
            context=lambda: context,
            peer_of=lambda _: None,
            admits=lambda _: False,
            serve_link=nobody,
            serve_pairing=between,
            defect=lambda _: None,
            now_ms=now_ms,
        )
        listener = Listener(callers, Crowd())
        listener.open([Endpoint(LOOPBACK, self.port)])
        self._ready.set()
        await self._stop.wait()
        await listener.close()

    async def _pass(self, source: Channel, target: Channel, *, to_inviter: bool) -> None:
        with suppress(ChannelEnded):
            async for text in source:
                target.send(self._bend(text, to_inviter))
                self.passed += 1
        await target.close()


def as_it_is(text: str, _to_inviter: bool) -> str:
    return text


def test_one_in_between_with_a_certificate_of_its_own_is_found_out_by_the_code(
    ends: Ends, tmp_path: Path
) -> None:
    relay = Relay(tmp_path, ends.port, as_it_is)
    try:
        invited, joined = ends.meet(relay.port)
    finally:
        relay.close()
    assert relay.passed >= 3
    assert shorts(invited, joined) == [None, None]
    assert (joined["state"], joined["end"]["code"]) == ("over", "wrong-code")
    assert "somebody is in between" in joined["end"]["words"]
    assert invited["wrong_codes"] == 1  # and its owner is told
    assert ends.lines[0].call("pair.decline", run=invited["run"])["state"] == "over"


@pytest.mark.parametrize("address", ["localhost:{}", "[::1]:{}", "127.0.0.1:{}"])
def test_names_and_literals_of_both_families_are_joined(ends: Ends, address: str) -> None:
    if address.startswith("["):
        try:
            socket.create_server(("::1", 0), family=socket.AF_INET6).close()
        except OSError:
            pytest.skip("this machine has no IPv6 loopback")
    port = reserve_port("::1" if "::1" in address else LOOPBACK)
    listen = address.format(port).replace("localhost", LOOPBACK)
    invited = ends.lines[0].call("pair.invite", listen=[listen])
    assert listen in invited["addresses"]
    joined = ends.lines[1].call("pair.join", address=address.format(port), code=invited["code"])
    assert not shorts(joined)[0]
    joined = ends.lines[1].call("pair.state", run=joined["run"], seen=joined["seen"])
    assert is_fooled(ends.lines[0].call("pair.state", run=invited["run"], seen=1), joined)


def test_two_who_meet_without_anybody_in_between_see_the_same(ends: Ends) -> None:
    invited, joined = ends.meet(ends.port)
    assert is_fooled(invited, joined)
    draft = ends.lines[0].call(
        "owner.draft", act="peer", pairing=invited["compare"]["pairing"], label="laptop"
    )
    record = signed(draft)
    for line, told in zip(ends.lines, (invited, joined), strict=True):
        assert line.call("pair.decline", run=told["run"])["state"] == "over"
    refusal = ends.lines[0].refusal("owner.apply", record=record)
    assert refusal["code"] == "closed"
