"""What a daemon has to do with other hosts, put together: links, network, and what is told them.

The network is loaded, and the TLS key made, when there is a first reason: somebody is paired, or a
pairing begins. A host that is alone pays nothing for it.
"""

from __future__ import annotations  # the network is a name for the type checker alone, at first

import asyncio
import socket
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

from mbx.core.absence import Presence
from mbx.core.endpoints import Endpoint, parse_endpoint
from mbx.core.errors import MbxError
from mbx.core.keys import crockford
from mbx.core.limits import TOMBSTONE_MS
from mbx.daemon import bouncing, directory
from mbx.daemon.context import Answer
from mbx.daemon.dispatch import Dispatcher, Work
from mbx.daemon.effects import (
    Described,
    Effect,
    Ended,
    Granted,
    HandBack,
    Met,
    Paired,
    Ping,
    Queued,
    Renamed,
    Retired,
    Unwelcome,
)
from mbx.daemon.farewells import Farewells, due
from mbx.daemon.journal import Journal, whence
from mbx.daemon.links import Links, by_the_loop
from mbx.daemon.linkstate import NetworkState, listen_where_possible
from mbx.daemon.world import moment
from mbx.kernel import addresses
from mbx.paths import Paths
from mbx.store import hosts, outbox, peers
from mbx.store.database import Committed, Outcome, Tx
from mbx.store.peers import PeerRow

if TYPE_CHECKING:
    from mbx.daemon.faces.channels import Channel
    from mbx.daemon.network import Network

_TELL_AFTER_S: Final = 0.2
"""What changes within so short a time is told together."""
_MOVED_AFTER_S: Final = 0.5
"""A machine that gets another network is told of several changes: they are looked at together."""
_ROUND_S: Final = 60.0
"""How often mail is looked for that has waited too long, and places that may be forgotten."""
_FORGET_ROWS: Final = 1_000


class Relay:
    """The links of this host, as the daemon starts, feeds and ends them.

    `reachable`: where others can dial who listens at these.
    """

    def __init__(
        self,
        paths: Paths,
        dispatcher: Dispatcher,
        submit: Callable[[Work, Callable[[Outcome[Answer]], None]], None],
        serve_pairing: Callable[[Channel], Awaitable[None]],
        journal: Journal,
        reachable: Callable[[Sequence[Endpoint]], Sequence[str]],
    ) -> None:
        self._paths = paths
        self._dispatcher = dispatcher
        self._submit = submit
        self._serve_pairing = serve_pairing
        self._journal = journal
        self._reachable = reachable
        self._network: Network | None = None
        self._telling: asyncio.TimerHandle | None = None
        self._moving: asyncio.TimerHandle | None = None
        self._changes: socket.socket | None = None
        self._fault: str | None = None
        self._deaf: str | None = None
        self.links = Links(dispatcher, submit, self._dial, journal.write)
        self._farewells = Farewells(dispatcher.world, self._part, by_the_loop)
        world = dispatcher.world
        self._presence = Presence(world.now_ms(), world.monotonic_ms())

    # -- what the daemon asks ----------------------------------------------------------------------

    def heed(self, effect: Effect) -> None:
        """What a commit let out, as far as it concerns other hosts."""
        match effect:
            case Queued():
                self.links.queued(effect.peers)
            case Paired():
                self.look()
            case Ping():
                self.links.measure(effect.peer_no)
            case HandBack():
                self._hand_back(effect)
            case Unwelcome():
                self._journal.write(
                    "a paired host refuses a record", peer=effect.peer, code=effect.code
                )
            case Granted() | Ended() | Retired() | Renamed() | Described() | Met():
                self._changed()

    @property
    def state(self) -> NetworkState:
        """Where this host listens, and what is wrong with its network."""
        listening = self._network.listening if self._network is not None else []
        return NetworkState(
            tuple(map(str, listening)),
            self._fault,
            tuple(self._reachable(listening)),
            self._deaf,
        )

    async def serve(self) -> None:
        """Until cancelled: begin with who is paired, then keep house."""
        self.look()
        self._resume()
        while True:
            await asyncio.sleep(_ROUND_S)
            self.keep_house()
            self._resume()
            self._look_again()

    def look(self) -> None:
        """A pairing began, changed or ended, or the daemon starts: look who is paired."""

        def unit(tx: Tx) -> Answer:
            every, host = peers.everything(tx), hosts.find(tx)
            return Answer({"every": every, "listen": hosts.listen(tx), "host": host})

        def settle(outcome: Outcome[Answer]) -> None:
            if isinstance(outcome, Committed):
                found = outcome.value.result
                self._know(found["every"], found["listen"], found["host"].store_id)

        # Behind what is under way: a pairing that is being recorded must be seen.
        self._submit(Work(unit, writes=True), settle)

    def listen(self, endpoints: Sequence[Endpoint]) -> list[Endpoint]:
        """Listen there from now on, all or none; where that is. Raises MbxError."""
        return self.network().listen(endpoints)

    def network(self, *, must_exist: bool = False) -> Network:
        """The network; loaded, and the TLS key made, by the first call.

        `must_exist`: others know this host by its certificate. Raises MbxError for a TLS key that
        is lost or damaged.
        """
        if self._network is None:
            from mbx.daemon import certificates
            from mbx.daemon.network import Network

            world = self._dispatcher.world
            tls = certificates.load_or_create(
                self._paths.tls_key_path(),
                moment(world).draw("tls key"),
                self._dispatcher.host.key_id,
                must_exist=must_exist,
            )
            self._network = Network(
                tls,
                self.links,
                self._serve_pairing,
                self._farewells.tried,
                world.monotonic_ms,
                self._defect,
                crockford(world.random_bytes(16)),
            )
            self._follow_addresses()
        return self._network

    async def close(self) -> None:
        """Say goodbye to everybody, and end what is left."""
        for timer in (self._telling, self._moving):
            if timer is not None:
                timer.cancel()
        if self._changes is not None:
            asyncio.get_running_loop().remove_reader(self._changes)
            self._changes.close()
        self.links.close()
        self._farewells.close()
        if self._network is not None:
            await self._network.close()

    # -- inside ------------------------------------------------------------------------------------

    def _know(self, every: Sequence[PeerRow], listen: Sequence[str], store_id: str) -> None:
        present = [row for row in every if row.ended_ms is None]
        parting = due(every, self._dispatcher.world.now_ms())
        if not (present or listen or parting or self._network):
            return
        try:
            network = self.network(must_exist=bool(every))
            network.know(present, [row for row in every if row.ended_ms is not None])
            self._listen(network, [parse_endpoint(text, listening=True) for text in listen])
            self._fault = None
        except MbxError as error:
            if not (present or listen):
                return  # only somebody removed is left to be told
            if error.message != self._fault:
                self._journal.write("the network cannot be used", why=error.message)
            self._fault = error.message
        if self._network is not None:
            self.links.know(present, store_id)
            self._farewells.know(parting)
            self._changed()

    def _listen(self, network: Network, wanted: Sequence[Endpoint]) -> None:
        """Listen where this host was told to, as far as that can be now."""
        failed = listen_where_possible(network.listen, wanted)
        deaf = "; ".join(error.message for error in failed) or None
        if deaf is not None and deaf != self._deaf:
            self._journal.write("this host does not listen everywhere it was told to", why=deaf)
        self._deaf = deaf

    def _look_again(self) -> None:
        """Whatever hindered the network may be gone."""
        if self._fault is not None or self._deaf is not None:
            self.look()

    def _follow_addresses(self) -> None:
        """Hear of addresses of this machine that come and go, where the system tells."""
        self._changes = changes = addresses.changes()
        if changes is None:
            return
        loop = asyncio.get_running_loop()

        def told() -> None:
            addresses.forget(changes)
            if self._moving is None:
                self._moving = loop.call_later(_MOVED_AFTER_S, self._moved)

        loop.add_reader(changes, told)

    def _moved(self) -> None:
        """This machine has other addresses: dead links end, tries may succeed, peers are told."""
        self._moving = None
        if self._network is not None:
            self._network.moved(addresses.is_own)
        self._look_again()
        self.links.wake()
        self._changed()

    def _changed(self) -> None:
        """Something about the identities here has changed: peers are told, soon and together."""
        if self.links.is_wanted and self._telling is None:
            loop = asyncio.get_running_loop()
            self._telling = loop.call_later(_TELL_AFTER_S, self._tell)

    def _dial(self, row: PeerRow) -> None:
        if self._network is not None:
            self._network.dial(row)

    def _part(self, row: PeerRow) -> None:
        if self._network is not None:
            self._network.part(row)

    def _tell(self) -> None:
        """Queue what peers do not know yet of the identities here."""
        self._telling = None
        context = self._dispatcher.context()

        def unit(tx: Tx) -> Answer:
            told = directory.tell(context, tx)
            return Answer({}, (Queued(told),) if told else ())

        self._inside(unit)

    def keep_house(self) -> None:
        """One round: return what has waited too long, forget what nobody can ask for any more."""
        context, world = self._dispatcher.context(), self._dispatcher.world
        now_ms, steady_ms = context.moment.now_ms, world.monotonic_ms()
        self._presence = self._presence.look(now_ms, steady_ms)
        may_give_up = self._presence.has_tried(steady_ms)

        def unit(tx: Tx) -> Answer:
            effects = [
                effect
                for peer in (peers.present(tx) if may_give_up else ())
                for effect in bouncing.give_up(context, tx, peer)
            ]
            outbox.forget_acknowledged(tx, context.moment.now_ms - TOMBSTONE_MS, _FORGET_ROWS)
            return Answer({}, tuple(effects))

        if self.links.is_wanted:
            self._inside(unit)
            self._changed()  # who is there, and the addresses of this machine, tell of themselves

    def _resume(self) -> None:
        """Go on returning mail where a death of the daemon or a full disk has ended that."""

        def unit(tx: Tx) -> Answer:
            return Answer({}, tuple(HandBack(no, 0) for no in outbox.left_over(tx)))

        self._submit(Work(unit, writes=False), lambda outcome: None)

    def _hand_back(self, left: HandBack) -> None:
        """The next piece of mail that returns to its senders."""
        context = self._dispatcher.context()
        self._inside(lambda tx: bouncing.continued(context, tx, left))

    def _inside(self, unit: Callable[[Tx], Answer]) -> None:
        def settle(outcome: Outcome[Any]) -> None:
            if not isinstance(outcome, Committed):
                self._journal.write("relaying was refused", whence=whence(outcome.error))

        self._submit(Work(unit, writes=True), settle)

    def _defect(self, error: BaseException) -> None:
        self._journal.write("a connection failed inside", whence=whence(error))
