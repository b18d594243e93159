"""Pairings that are under way: one invitation at most, and one visit to a host that invites.

All of it is memory: a daemon that is started again knows of none, and its codes are void. The
machines of `mbx.core.pairing_run` decide; here texts are moved, deadlines kept, and the command
that waits on somebody's terminal is told. A code is in memory only, and never in a log.
"""

from __future__ import annotations  # the network is a name for the type checker alone

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol

from mbx.core import adoption, frames, keys, pairing
from mbx.core.endpoints import DEFAULT_PORT, Endpoint
from mbx.core.errors import MbxError
from mbx.core.limits import INVITATION_TOLD_MS, INVITATION_TTL_MS, PEER_ADDRESSES_MAX
from mbx.core.pairing import INVITER, JOINER, Match, Own
from mbx.core.pairing_code import RANDOM_BYTES, PairingCode
from mbx.core.pairing_run import (
    PAIRED,
    Clock,
    Command,
    Compare,
    Confirmed,
    End,
    Invitation,
    Inviter,
    Joiner,
    Send,
    WrongProof,
    refusal_text,
)
from mbx.core.record import Record, RecordError
from mbx.daemon.context import Answer, Result
from mbx.daemon.effects import Agreed, Effect
from mbx.daemon.host import Host
from mbx.daemon.linkstate import listen_where_possible
from mbx.daemon.pairingside import ENDS, Channel, Machine, Settle, Side
from mbx.daemon.proven import Proven
from mbx.daemon.sequels import Decline, Enclose, Hold, Invite, Join, Look, Sequel
from mbx.daemon.world import World, moment
from mbx.store.database import Committed, Refused

if TYPE_CHECKING:
    from mbx.daemon.certificates import TlsKey

EVERYWHERE: Final = (Endpoint("0.0.0.0", DEFAULT_PORT), Endpoint("::", DEFAULT_PORT))  # noqa: S104
"""Where an inviter listens unless it is told otherwise."""


_UNREACHABLE: Final = (
    "check the address, that mbx pair is waiting on the other host, and that its firewall lets the"
    " port in"
)


class Network(Protocol):
    """What is needed of `mbx.daemon.network.Network`."""

    tls: TlsKey
    listening: list[Endpoint]

    def listen(self, endpoints: Sequence[Endpoint]) -> list[Endpoint]:
        """Listen there too. Raises MbxError."""

    def shut(self, endpoints: Sequence[Endpoint]) -> None:
        """Listen at these no longer."""

    async def dial_pairing(self, endpoint: Endpoint) -> Channel:
        """A channel to whoever listens there. Raises Undialled."""


class Pairings:
    """The pairings of this daemon.

    `network` gives the network, and loads it at first (its argument: others have pinned our
    certificate). `addresses` are those of this machine. `defect` hears of errors of ours. `paired`
    is called with the other's key id when both sides have recorded a pairing. `told_ms`: how long a
    port that was opened for nothing stays open, to say so.
    """

    def __init__(
        self,
        host: Host,
        world: World,
        network: Callable[[bool], Network],
        addresses: Callable[[], Sequence[str]],
        defect: Callable[[Exception], None],
        paired: Callable[[str], None],
        told_ms: int = INVITATION_TOLD_MS,
    ) -> None:
        self._host = host
        self._world = world
        self._network = network
        self._addresses = addresses
        self._defect = defect
        self._paired = paired
        self._told_ms = told_ms
        self._sides: dict[str, Side] = {}  # role -> the one that was begun last
        self._tasks: set[asyncio.Task[None]] = set()

    # -- what the daemon asks ----------------------------------------------------------------------

    def proven(self, pairing_id: str) -> Proven | None:
        """The pairing of that id that waits for its people. Also asked from the store's thread."""
        for side in list(self._sides.values()):
            found = side.proven()
            if found is not None and found.id == pairing_id:
                return found
        return None

    def carry_out(self, sequel: Sequel, settle: Settle) -> None:
        """Do what a unit asked for; `settle` gets the answer, now or when there is one."""
        try:
            if isinstance(sequel, Look):
                self._side(sequel.run).look(sequel.seen, settle)
                return
            if isinstance(sequel, Decline):
                self._start(self._decline(self._side(sequel.run), settle))
                return
            result = self._done(sequel)
        except MbxError as error:
            settle(Refused(error))
        else:
            settle(Committed(Answer(result), 0))

    def _done(self, sequel: Invite | Join | Hold | Enclose) -> Result:
        match sequel:
            case Hold(run):
                return {"run": self._side(run).id}
            case Invite():
                return self._invite(sequel)
            case Join():
                return self._join(sequel)
            case Enclose(pairing_id, records):
                return self._enclose(pairing_id, records)

    def left(self, run: str) -> None:
        """The command that holds this run has ended, or was killed.

        As if it had declined, unless its person has signed.
        """
        for side in self._sides.values():
            if side.id == run and side.end is None and not side.has_agreed:
                self._decline_there(side)
                side.over("left-here")

    def heed(self, effect: Effect) -> None:
        """What a commit let out: once our side is recorded, the other one is told."""
        if isinstance(effect, Agreed):
            self._agreed(effect)

    def _agreed(self, effect: Agreed) -> None:
        side = next((one for one in self._sides.values() if one.is_of(effect.pairing)), None)
        if side is None or side.end is not None or side.has_agreed:
            return
        side.has_agreed = True
        if side.is_cut:
            side.over(PAIRED if side.received is not None else "unanswered")
            return
        side.changed()
        if side.machine is not None and side.channel is not None:
            texts = [frames.record_text(record) for record in side.enclosed]
            self._do(side, side.machine, side.channel, side.machine.confirm(texts))

    async def serve(self, channel: Channel) -> None:
        """One caller who may only pair, until it is done with. Raises ChannelEnded."""
        side = self._sides.get(INVITER)
        invited = side.invitation if side is not None else None
        if side is None or invited is None:
            return await self._refuse(channel, "not-inviting")
        if side.end is not None and invited.refusal(self._now_ms()) is None:
            declined = side.end[0] in ("declined", "left")  # withdrawn before its use
            return await self._refuse(channel, "declined" if declined else "not-inviting")
        machine = Inviter(invited, side.own, self._draw("nonce"), self._clock())
        await self._drive(side, machine, channel, [])
        return None

    async def close(self) -> None:
        """End everything."""
        for side in self._sides.values():
            side.over("stopped")
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # -- what callers ask --------------------------------------------------------------------------

    def _invite(self, wanted: Invite) -> Result:
        network = self._network(wanted.is_known)
        before = tuple(network.listening)
        listening = self._listen(network, wanted)
        opened = tuple(one for one in listening if one not in before)
        now = self._clock()
        code = PairingCode.from_random(self._world.random_bytes(RANDOM_BYTES))
        own = self._own(network, wanted.owner, listening)
        side = Side(
            id=keys.crockford(self._draw("run")),
            role=INVITER,
            own=own,
            now_ms=self._world.monotonic_ms,
            expires_ms=now.wall_ms + wanted.ttl_ms,
            until_ms=now.now_ms + wanted.ttl_ms,
            listening=tuple(map(str, listening)),
            opened=self._inherited() + opened,
            ended=lambda side: self._shut(network, side),
            invitation=Invitation(
                code, keys.crockford(self._draw("invitation")), now.now_ms, wanted.ttl_ms
            ),
        )
        self._begin(side)
        return {**side.told(), "code": code.shown()}

    def _listen(self, network: Network, wanted: Invite) -> list[Endpoint]:
        """Where this host listens now. Raises MbxError conflict."""
        if wanted.listen:
            return list(network.listen(wanted.listen))
        if wanted.remembered or network.listening:
            failed = listen_where_possible(network.listen, wanted.remembered)
            if failed and not network.listening:
                raise failed[0]
            return list(network.listening)
        try:
            return list(network.listen(EVERYWHERE))
        except MbxError:  # without IPv6 on this machine
            return list(network.listen(EVERYWHERE[:1]))

    def _inherited(self) -> tuple[Endpoint, ...]:
        """What the invitation that is replaced had opened; it is for the new one to close."""
        older = self._sides.get(INVITER)
        if older is None or older.has_agreed:
            return ()
        opened, older.opened = older.opened, ()
        return opened

    def _shut(self, network: Network, side: Side) -> None:
        """Close what a pairing had opened that came to nothing; the store knows nothing of it.

        Not at once: whoever comes with the code then hears why it is void, and nothing else.
        """
        if side.has_agreed or not side.opened:
            return

        def shut() -> None:
            opened, side.opened = side.opened, ()
            network.shut(opened)

        asyncio.get_running_loop().call_later(self._told_ms / 1000, shut)

    def _join(self, wanted: Join) -> Result:
        self._refuse_own(wanted.code)
        network = self._network(wanted.is_known)
        now = self._clock()
        side = Side(
            id=keys.crockford(self._draw("run")),
            role=JOINER,
            own=self._own(network, wanted.owner, network.listening),
            now_ms=self._world.monotonic_ms,
            expires_ms=now.wall_ms + INVITATION_TTL_MS,
            until_ms=now.now_ms + INVITATION_TTL_MS,
            dialled=str(wanted.endpoint),
        )
        self._begin(side)
        self._start(self._visit(side, network, wanted))
        return side.told()

    def _refuse_own(self, code: PairingCode) -> None:
        """Typed at the wrong machine, a code stays good. Raises MbxError conflict."""
        inviting = self._sides.get(INVITER)
        if inviting is None or inviting.end is not None or inviting.invitation is None:
            return
        if inviting.invitation.is_of(code):
            raise MbxError(
                "conflict",
                "that is the code that this host itself shows; it stays good",
                "type it on the other machine, where you run mbx join",
            )

    def _own(self, network: Network, owner: bytes | None, listening: Sequence[Endpoint]) -> Own:
        told = told_addresses(listening, self._addresses)
        return Own(self._host.signer, network.tls.certificate, self._host.label, told, owner)

    def _begin(self, side: Side) -> None:
        """This one takes the place of whatever was under way."""
        for older in self._sides.values():
            self._decline_there(older)
            older.over("replaced")
        self._sides[side.role] = side
        side.end_at(side.until_ms, self._timed_out)

    def _side(self, run: str) -> Side:
        for side in self._sides.values():
            if side.id == run:
                return side
        raise MbxError(
            "closed",
            "this daemon knows of no such pairing: it was started again since, and the code is"
            " void",
            "mbx pair on one host, then mbx join on the other",
        )

    async def _decline(self, side: Side, settle: Settle) -> None:
        """Answered once the other side has heard it, or has had the time for it."""
        channel = side.channel if side.end is None else None
        self._decline_there(side)
        side.over("unanswered" if side.has_agreed else "declined-here")
        try:
            if channel is not None:
                await channel.close()
        finally:
            settle(Committed(Answer(side.told()), 0))

    def _decline_there(self, side: Side) -> None:
        if side.end is None and side.machine is not None and side.channel is not None:
            self._send(side.channel, side.machine.decline())
            self._start(side.channel.close())

    def _enclose(self, pairing_id: str, records: tuple[Record, ...]) -> Result:
        for side in self._sides.values():
            if side.is_of(pairing_id):
                side.enclosed = records
                return side.told()
        raise MbxError("closed", "that pairing is over", "mbx pair begins another one")

    # -- runs --------------------------------------------------------------------------------------

    async def _visit(self, side: Side, network: Network, wanted: Join) -> None:
        from mbx.daemon.faces.peers import Undialled

        try:
            channel = await network.dial_pairing(wanted.endpoint)
        except Undialled as failure:
            step = _UNREACHABLE if failure.code in ("unreachable", "closed") else _OF_UNDIALLED
            side.over(failure.code, failure.words, step)
            return
        if side.end is not None:
            await channel.close()
            return
        machine = Joiner(
            wanted.code, side.own, channel.certificate or b"", self._draw("nonce"), self._clock()
        )
        side.machine, side.channel = machine, channel
        await self._drive(side, machine, channel, machine.start(self._now_ms()))

    async def _drive(
        self, side: Side, machine: Machine, channel: Channel, first: Sequence[Command]
    ) -> None:
        """Move texts between a channel and its machine, and keep its deadlines, to the end."""
        from mbx.daemon.faces.channels import ChannelEnded

        self._do(side, machine, channel, first)
        while machine.state != "ended":
            try:
                async with asyncio.timeout(self._left_s(machine)):
                    text = await channel.receive()
            except TimeoutError:
                commands = machine.tick(self._now_ms())
            except ChannelEnded:
                commands = machine.lost()
            else:
                commands = machine.receive(text, self._now_ms())
            self._do(side, machine, channel, commands)
        await channel.close()

    def _left_s(self, machine: Machine) -> float | None:
        if machine.deadline is None:
            return None
        return max(0, machine.deadline - self._now_ms() + 1) / 1000

    def _do(
        self, side: Side, machine: Machine, channel: Channel, commands: Sequence[Command]
    ) -> None:
        """What a machine asked for."""
        self._send(channel, commands)
        for command in commands:
            match command:
                case WrongProof(left):
                    side.wrong += 1
                    side.changed()
                    if not left:
                        side.over("burnt-here")
                case Compare(match):
                    self._matched(side, machine, channel, match)
                case Confirmed(texts):
                    self._confirmed(side, machine, channel, texts)
                case End():
                    self._ended(side, machine, channel, command)

    def _send(self, channel: Channel, commands: Sequence[Command]) -> None:
        """Write what is to be sent; a channel that is over tells so when it is read."""
        from mbx.daemon.faces.channels import ChannelEnded

        for command in commands:
            if isinstance(command, Send):
                try:
                    channel.send(command.text)
                except ChannelEnded:
                    return

    def _matched(self, side: Side, machine: Machine, channel: Channel, match: Match) -> None:
        """Both sides know the code: from now on it is for the people."""
        from mbx.daemon import certificates

        side.machine, side.channel = machine, channel
        if side.end is not None:
            self._do(side, machine, channel, machine.decline())
            return
        try:
            certificates.check(match.peer.certificate, match.peer.host)
        except ValueError:
            side.over("malformed", *pairing.REFUSALS["malformed"])
            self._do(side, machine, channel, machine.decline())
            return
        if not channel.proved():
            side.over("busy-here")
            self._do(side, machine, channel, machine.decline())
            return
        side.match = match
        side.end_at(machine.deadline or side.until_ms, self._timed_out)
        side.changed()

    def _confirmed(
        self, side: Side, machine: Machine, channel: Channel, texts: Sequence[str]
    ) -> None:
        """The other side's person agreed; what came along must be what this pairing needs."""
        try:
            side.received = self._believed(side, texts)
        except (frames.FrameError, RecordError):
            side.over("malformed", *pairing.REFUSALS["malformed"])
            self._do(side, machine, channel, machine.decline())
            return
        side.changed()

    def _believed(self, side: Side, texts: Sequence[str]) -> tuple[Record, ...]:
        """Raises FrameError, RecordError."""
        records = tuple(frames.parse_record(text) for text in texts)
        found = side.match
        if found is not None and found.adopts and found.role == JOINER:
            adoption.read(records, found.peer.owner or b"", self._host.key_id, found.pin)
        elif records:
            raise RecordError(2, "records that nobody asked for")
        return records

    def _ended(self, side: Side, machine: Machine, channel: Channel, end: End) -> None:
        """A run is over; most of those of strangers say nothing about the invitation."""
        self._start(channel.close())
        if side.end is not None:
            return
        if side.machine is None and side.invitation is not None:
            if side.invitation.refusal(self._now_ms()) == "used":
                side.over(end.code, end.words, end.next_step)
            return
        if side.machine is not machine:
            return
        if end.code == PAIRED:
            side.over(PAIRED)
            if side.match is not None:
                self._paired(side.match.pin.host)
        elif side.has_agreed:
            side.over("unanswered", f"{ENDS['unanswered'][0]} ({end.words})")
        elif end.code in ("lost", "timeout") and side.received is not None:
            side.is_cut = True  # they have recorded it: ours may still agree
            side.changed()
        elif end.code == "timeout" and side.match is not None:
            side.over("undecided")
        else:
            side.over(end.code, end.words, end.next_step)

    def _timed_out(self, side: Side) -> None:
        if side.match is None:
            side.over("expired-here" if side.role == INVITER else "timeout")
        elif side.has_agreed:
            side.over("unanswered")
        else:
            self._decline_there(side)
            side.over("undecided")

    # -- small parts -------------------------------------------------------------------------------

    async def _refuse(self, channel: Channel, code: str) -> None:
        """Say no, once the caller has said what it wants: nobody is spoken to first."""
        await channel.receive()
        channel.send(refusal_text(code))
        await channel.close()

    def _now_ms(self) -> int:
        return self._world.monotonic_ms()

    def _clock(self) -> Clock:
        return Clock(self._world.monotonic_ms(), self._world.now_ms())

    def _draw(self, label: str) -> bytes:
        return moment(self._world).draw(f"pairing {label}")

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._finished)

    def _finished(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if isinstance(error, Exception):
            self._defect(error)


_OF_UNDIALLED: Final = "check the address: an mbx that invites must listen there"


def told_addresses(
    listening: Sequence[Endpoint], own_addresses: Callable[[], Sequence[str]]
) -> tuple[str, ...]:
    """Where others reach what listens at these endpoints: up to eight, in their one spelling.

    ``0.0.0.0`` and ``[::]`` stand for all addresses of this machine.
    """
    found: list[str] = []
    for endpoint in listening:
        if endpoint.host in ("0.0.0.0", "::"):  # noqa: S104
            is_6 = endpoint.host == "::"
            own = [text for text in own_addresses() if (":" in text) == is_6]
            found += [str(Endpoint(text, endpoint.port)) for text in own]
        elif not endpoint.zone:
            found.append(str(endpoint))
    return tuple(dict.fromkeys(found))[:PEER_ADDRESSES_MAX]
