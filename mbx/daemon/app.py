"""The daemon put together: store, holders, faces and workers; its start, its service, its end."""

from __future__ import annotations  # nested functions would evaluate theirs each time

import asyncio
import gc
import os
import signal
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any, Final

from mbx import PROTOCOL, __version__
from mbx.core.endpoints import Endpoint
from mbx.core.errors import MbxError
from mbx.core.evidence import Lineage
from mbx.core.limits import STOP_DEADLINE_MS
from mbx.daemon import announcing, booting, hooktool
from mbx.daemon.booting import Boot
from mbx.daemon.context import Answer, Facts
from mbx.daemon.credentials import Credentials
from mbx.daemon.dispatch import Dispatcher, Work
from mbx.daemon.effects import (
    Arrived,
    Authorised,
    Called,
    Effect,
    Ended,
    Glimpsed,
    Granted,
    HandOn,
    Mend,
    Relabelled,
    Renamed,
    Retired,
    Revive,
    Seen,
    Stop,
    Ticketed,
    Waiting,
)
from mbx.daemon.encounters import Encounters
from mbx.daemon.faces.door import Door
from mbx.daemon.faces.local import LocalFace
from mbx.daemon.faces.party import Office
from mbx.daemon.faces.pipes import Pipes, Server
from mbx.daemon.gate import Caller
from mbx.daemon.holders import Holders, Target
from mbx.daemon.journal import Journal, whence
from mbx.daemon.linkstate import LinkState, NetworkState
from mbx.daemon.offers import Offers
from mbx.daemon.pairings import Network, Pairings, told_addresses
from mbx.daemon.processes import DeathWatch, above, boot_id, evidence
from mbx.daemon.proven import Proven
from mbx.daemon.reach import Reach
from mbx.daemon.relay import Relay
from mbx.daemon.secondplace import SecondPlace
from mbx.daemon.snapshotfiles import SnapshotFiles
from mbx.daemon.tickets import Tickets
from mbx.daemon.wakes.brakes import Brakes
from mbx.daemon.wakes.claude import Claude
from mbx.daemon.wakes.codex import Codex
from mbx.daemon.wakes.desktop import Desktop
from mbx.daemon.wakes.kimi import Kimi
from mbx.daemon.wakes.opencode import OpenCode
from mbx.daemon.watching import Watchers
from mbx.daemon.workers.committer import Committer
from mbx.daemon.workers.indexer import Indexer
from mbx.daemon.workers.snapshots import Snapshots
from mbx.daemon.workers.timers import Timers
from mbx.daemon.workers.wakes import Wakes
from mbx.daemon.world import World, moment
from mbx.kernel.addresses import own_addresses
from mbx.paths import Paths, make_folder, printable
from mbx.store.database import Committed, Database, Outcome, Place, Refused, StoreFailure, Tx
from mbx.store.leases import LeaseRow
from mbx.store.migrate import open_store

_DRAIN_S: Final = STOP_DEADLINE_MS / 1000 - 1.5
"""What accepted work may take at a stop; the rest of the five seconds is for closing the store."""

Announce = Callable[[], None]
"""Called once, when callers are served."""


async def run(paths: Paths, world: World, journal: Journal, announce: Announce) -> None:
    """Serve until told to stop. `announce` is called once, when callers are served.

    The caller holds the daemon lock. Raises MbxError for what the owner can mend, StoreFailure when
    the store can no longer be trusted.
    """
    loop = asyncio.get_running_loop()
    make_folder(paths.run_dir())
    connection = open_store(paths.store_path())
    database = await Database.open(lambda: connection, Place(paths.store_path()))
    try:
        outcome = (await database.write([lambda tx: booting.boot(tx, paths, world, boot_id())]))[0]
        if not isinstance(outcome, Committed):
            raise outcome.error
        daemon = Daemon(paths, world, journal, database, outcome.value, loop)
        await daemon.serve(announce)
    finally:
        await database.close()


class Daemon:
    """One running daemon."""

    def __init__(
        self,
        paths: Paths,
        world: World,
        journal: Journal,
        database: Database,
        boot: Boot,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._journal = journal
        self._database = database
        self._stop = asyncio.Event()
        self._committer = Committer(database, self._log_defect)
        self._indexer = Indexer(self._committer)
        self._watch = DeathWatch(loop)
        self._holders = Holders(world, self._watch, self._bury)
        self._credentials = Credentials(paths)
        where, started_ms = (paths.home(), paths.socket_path()), world.monotonic_ms()
        facts = Facts(os.getpid(), __version__, PROTOCOL, *where, started_ms)
        self._encounters = Encounters()
        self._second_place = SecondPlace(paths.floor_path(), boot.host, boot.floor, world, journal)
        self._dispatcher = Dispatcher(
            boot.host,
            world,
            facts,
            self._holders.observe,
            self._holders.last_seen_ms,
            authority=self._second_place.authority,
            look=evidence,
            see=above,
            sessions_called=self._encounters.called,
            link=self._link_state,
            network=self._network_state,
            proven=self._proven,
            reach=self._reach,
        )
        self._pairings = Pairings(
            boot.host, world, self._network, own_addresses, self._log_defect, self._paired
        )
        self._relay = Relay(
            paths, self._dispatcher, self._submit, self._pairings.serve, journal, _reachable
        )
        self._unburied: dict[int, str] = {}
        self._unmoved: set[int] = set()
        self._timers = Timers(
            self._dispatcher,
            self._committer,
            self._holders,
            self._watch,
            self._credentials,
            self._do_what_is_left,
            self._follow_audit,
        )
        self._tickets = Tickets(world)
        self._watchers = Watchers(self._dispatcher.glance, self._submit, self._look_who_waits)
        self._offers = Offers(self._look_soon)
        self._pipes = Pipes(_load_mcp, journal.write)
        self._snapshots = Snapshots(
            SnapshotFiles(paths), self._submit, journal.write, announced=self._notified
        )
        self._wakes = self._make_wakes(boot, world, loop)
        self._face = LocalFace(self._office(paths, boot))
        self._door = Door(
            paths.socket_path(), self._face.connection, journal.write, database.check_place
        )
        self._credentials.keep_only({(row.cli, row.session_id) for row, _ in boot.sessions})
        self._take_up(boot)

    def _office(self, paths: Paths, boot: Boot) -> Office:
        """What local faces need of this daemon."""
        return Office(
            user_id=os.geteuid(),
            host_label=boot.host.label,
            home=printable(paths.home()),
            known=self._holders.known,
            grant_of=self._holders.grant_of,
            accept=self._accept,
            arrival=self._dispatcher.arrival,
            met=self._encounters.met,
            submit=self._submit,
            left=self._pairings.left,
            redeem=self._tickets.redeem,
            watchers=self._watchers,
            offers=self._offers,
            pipes=self._pipes,
            current=self._encounters.current,
            answer_hook=self._answer_hook,
            log=self._journal.write,
        )

    def _take_up(self, boot: Boot) -> None:
        """Go on with the sessions that the store tells of."""
        self._snapshots.forget_told(boot.interrupted)
        for row, name in boot.sessions:
            self._holders.restore(row, name)
            self._snapshots.restore(row)
        for effect in boot.effects:
            self._perform(effect)
            self._snapshots.heed(effect)

    def _make_wakes(self, boot: Boot, world: World, loop: asyncio.AbstractEventLoop) -> Wakes:
        brakes = Brakes(world)
        brakes.load(boot.past)
        return Wakes(
            host=boot.host,
            world=world,
            submit=self._submit,
            sessions=self._holders,
            watchers=self._watchers,
            ways={
                "claude": Claude(self._offers, loop.call_soon_threadsafe),
                "codex": Codex(self._encounters.label),
                "opencode": OpenCode(self._offers),
                "kimi": Kimi(self._encounters.label),
            },
            brakes=brakes,
            announcements=self._snapshots,
            log=self._journal.write,
            desktop=Desktop(),
        )

    async def serve(self, announce: Announce) -> None:
        """Listen, answer, end in order."""
        self._second_place.follow((await self._database.read([self._second_place.look]))[0])
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(self._log_exception)
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop.set)
        await self._door.open()
        gc.collect()
        gc.freeze()
        self._journal.write("ready", version=__version__, pid=os.getpid())
        try:
            async with asyncio.TaskGroup() as group:
                workers = (
                    self._committer,
                    self._indexer,
                    self._timers,
                    self._door,
                    self._relay,
                    self._pipes,
                    self._snapshots,
                    self._wakes,
                )
                tasks = [group.create_task(worker.serve()) for worker in workers]
                announce()
                await self._stop.wait()
                await self._wind_down()
                for task in tasks:
                    task.cancel()
        except* StoreFailure as failures:
            self._journal.write("the store failed", why=failures.exceptions[0])
            raise failures.exceptions[0] from None
        finally:
            self._door.remove()
            self._watch.close()
        self._journal.write("stopped", pid=os.getpid())

    async def _wind_down(self) -> None:
        """Accept nothing new, finish what was accepted, let the answers out."""
        self._door.close()
        await self._pairings.close()
        await self._relay.close()
        try:
            async with asyncio.timeout(_DRAIN_S):
                await self._committer.drain()
                await self._timers.save_heard()
                self._inside(self._dispatcher.keeping())
                self._follow_audit()
                await self._committer.drain()
        except TimeoutError:
            self._journal.write("stopped with work waiting; its callers were not answered")
        self._face.close()
        await asyncio.sleep(0)

    # -- requests -------------------------------------------------------------------------------

    def _accept(self, caller: Caller, method: object, params: object) -> Work:
        if self._stop.is_set():
            raise MbxError(
                "daemon-unreachable", "the daemon is stopping", "repeat the command", stopping=True
            )
        if method == "identity.claim" and isinstance(params, dict):
            self._holders.look_at(params.get("name"))
        return self._dispatcher.work(caller, method, params)

    def _submit(self, work: Work, done: Callable[[Outcome[Answer]], None]) -> None:
        if not work.writes:
            self._committer.read(
                work.unit, lambda outcome: self._finish(outcome, done), brief=work.brief
            )
        elif work.after_index:
            later = work._replace(after_index=False)
            self._indexer.when_caught_up(
                lambda: self._submit(later, done), lambda error: done(Refused(error))
            )
        elif work.when_full is None:
            self._committer.write(work.unit, lambda outcome: self._finish(outcome, done))
        else:
            reading = Work(work.when_full, writes=False)
            self._committer.write(
                work.unit,
                lambda outcome: (
                    self._submit(reading, done)
                    if _is_disk_full(outcome)
                    else self._finish(outcome, done)
                ),
            )

    def _finish(self, outcome: Outcome[Answer], done: Callable[[Outcome[Answer]], None]) -> None:
        """Committed: let the effects out, then the answer."""
        if isinstance(outcome, Committed):
            for effect in outcome.value.effects:
                self._perform(effect)
                self._snapshots.heed(effect)
                self._relay.heed(effect)
                self._pairings.heed(effect)
            if outcome.value.sequel is not None:
                self._pairings.carry_out(outcome.value.sequel, done)
                return
        done(outcome)

    def _perform(self, effect: Effect) -> None:
        match effect:
            case Seen() | Glimpsed():
                self._note(effect)
            case Arrived():
                self._indexer.wake()
                self._watchers.look(effect.recipients)
                self._wakes.look(effect.recipients)
            case Granted() | Ended() | Retired():
                self._lease_changed(effect)
            case Revive():
                self._inside(self._dispatcher.revival(effect))
            case Renamed() | Relabelled() | Called():
                self._called_otherwise(effect)
            case HandOn():
                self._hand_on(effect.identity_no)
            case Authorised():
                self._second_place.authorised(effect)
            case Waiting():
                self._holders.waits(effect)
            case Mend():
                self._timers.hurry()
            case Ticketed():
                self._tickets.issued(effect)
            case Stop():
                self._stop.set()

    def _follow_audit(self) -> None:
        """Have the second place know how far the audit log goes, if it has moved."""
        self._committer.read(self._second_place.look, self._second_place.follow, brief=True)

    def _answer_hook(self, lineage: Lineage, event: str, known: dict[str, Any]) -> dict[str, Any]:
        now_ms = self._dispatcher.world.now_ms()
        return hooktool.answer(self._snapshots, lineage, event, known, now_ms)

    def _network_state(self) -> NetworkState:
        return self._relay.state

    def _notified(self, target: Target, nos: Collection[int]) -> None:
        """Hooks announced these messages to a session: their senders hear of it."""
        host, now = self._dispatcher.host, moment(self._dispatcher.world)

        def unit(tx: Tx) -> Answer:
            return Answer({}, announcing.tell(tx, host, now, target, nos))

        self._inside(Work(unit, writes=True))

    def _link_state(self, peer_no: int) -> LinkState | None:
        return self._relay.links.state(peer_no)

    def _reach(self, row: LeaseRow, thread: str | None) -> Reach:
        return self._wakes.reach(row, thread)

    def _look_who_waits(self, identities: Iterable[int]) -> None:
        self._wakes.look(identities)

    def _look_soon(self) -> None:
        self._wakes.look_soon()

    def _proven(self, pairing: str) -> Proven | None:
        return self._pairings.proven(pairing)

    def _network(self, is_known: bool) -> Network:
        return self._relay.network(must_exist=is_known)

    def _paired(self, key_id: str) -> None:
        self._relay.links.paired(key_id)

    def _lease_changed(self, effect: Granted | Ended | Retired) -> None:
        if isinstance(effect, Granted):
            self._holders.granted(effect)
        elif isinstance(effect, Ended):
            self._holders.ended(effect)
            self._offers.dismiss(effect.process, effect.conversation)
        self._watchers.look((effect.identity_no,))
        if isinstance(effect, Granted):
            self._wakes.look((effect.identity_no,))
            self._keep(effect)
        elif isinstance(effect, Ended):
            self._credentials.remove(effect.cli, effect.session_id, effect.epoch)

    def _called_otherwise(self, effect: Renamed | Relabelled | Called) -> None:
        if isinstance(effect, Renamed):
            self._holders.renamed(effect)
        elif isinstance(effect, Called):
            self._encounters.name(effect.process, effect.called)
        else:
            self._holders.relabelled(effect)
            self._credentials.rename(effect.cli, effect.before, effect.session_id)

    def _note(self, effect: Seen | Glimpsed) -> None:
        """What is kept in memory alone."""
        if isinstance(effect, Seen):
            self._holders.heard(effect.identity_no, effect.epoch)
        else:
            self._dispatcher.glimpsed(effect)

    def _keep(self, granted: Granted) -> None:
        try:
            self._credentials.write(
                granted.cli, granted.session_id, granted.identity, granted.epoch, granted.token
            )
        except OSError as error:  # the lease stands; the timers write the file again
            self._journal.write("a credential could not be written", why=error.strerror)

    def _bury(self, session_no: int, why: str) -> None:
        """End a session whose process is dead; what a full disk refuses is tried again."""

        def settle(outcome: Outcome[Answer]) -> None:
            if _is_disk_full(outcome):
                self._unburied[session_no] = why
            else:
                self._log_refusal(outcome)

        self._submit(self._dispatcher.burial(session_no, why), settle)

    def _hand_on(self, identity_no: int) -> None:
        """Hand on a piece of forwarded mail; what a full disk refuses is tried again."""

        def settle(outcome: Outcome[Answer]) -> None:
            if _is_disk_full(outcome):
                self._unmoved.add(identity_no)
            else:
                self._log_refusal(outcome)

        self._submit(self._dispatcher.handing_on(identity_no), settle)

    def _do_what_is_left(self) -> None:
        left, self._unburied = self._unburied, {}
        for session_no, why in left.items():
            self._bury(session_no, why)
        unmoved, self._unmoved = self._unmoved, set()
        for identity_no in unmoved:
            self._hand_on(identity_no)

    def _inside(self, work: Work) -> None:
        """Work of the daemon's own: nobody waits for its answer."""
        self._submit(work, self._log_refusal)

    def _log_defect(self, defect: Exception) -> None:
        self._journal.write("an answer failed inside", whence=whence(defect))

    def _log_exception(self, loop: asyncio.AbstractEventLoop, told: dict[str, Any]) -> None:
        error = told.get("exception")
        self._journal.write("a callback failed", whence=whence(error) if error else None)

    def _log_refusal(self, outcome: Outcome[Any]) -> None:
        if not isinstance(outcome, Committed):
            self._journal.write("work of its own was refused", whence=whence(outcome.error))


def _load_mcp() -> Server:
    """The SDK's server; it takes long and much, so only where somebody speaks MCP."""
    from mbx.daemon.faces.mcp import McpServer

    return McpServer()


def _reachable(listening: Sequence[Endpoint]) -> Sequence[str]:
    return told_addresses(listening, own_addresses)


def _is_disk_full(outcome: Outcome[Any]) -> bool:
    error = None if isinstance(outcome, Committed) else outcome.error
    return isinstance(error, MbxError) and error.code == "disk-full"
