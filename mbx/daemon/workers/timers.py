"""What happens by itself from time to time. Nothing here decides who holds a lease."""

import asyncio
import hashlib
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from mbx.core.lease import is_renewal_due
from mbx.daemon import granting
from mbx.daemon.credentials import Credentials
from mbx.daemon.dispatch import Dispatcher
from mbx.daemon.holders import ATTENTION_MS, Holders
from mbx.daemon.processes import DeathWatch
from mbx.daemon.workers.committer import Committer
from mbx.daemon.world import Moment, moment
from mbx.store import exposures, identities, kin, leases, owners, sessions, wakes
from mbx.store.database import Committed, Tx
from mbx.store.leases import LeaseRow
from mbx.store.sessions import SessionRow

_POLL_S: Final = ATTENTION_MS / 1000
_ROUND_POLLS: Final = 60
"""A round of housekeeping each so many polls: once a minute."""

_Missing = tuple[str, str, str, int, str]


class Timers:
    """Polls processes that no descriptor watches, and keeps house once a minute.

    Housekeeping looks at the holders, saves last-seen times, signs leases again that are half over,
    and writes credentials that are missing or not of the present grant.
    """

    def __init__(
        self,
        dispatcher: Dispatcher,
        committer: Committer,
        holders: Holders,
        watch: DeathWatch,
        credentials: Credentials,
        each_poll: Callable[[], None] = lambda: None,
        each_round: Callable[[], None] = lambda: None,
    ) -> None:
        self._dispatcher = dispatcher
        self._committer = committer
        self._holders = holders
        self._watch = watch
        self._credentials = credentials
        self._each_poll = each_poll
        self._each_round = each_round
        self._is_hurried = False

    def hurry(self) -> None:
        """Keep house at the next poll."""
        self._is_hurried = True

    async def serve(self) -> None:
        """Until cancelled."""
        self._holders.attend()
        await self.housekeeping()
        while True:
            for _ in range(_ROUND_POLLS):
                await asyncio.sleep(_POLL_S)
                self._holders.attend()
                self.watch_the_clock()
                if self._watch.polled:
                    self._watch.poll()
                self._each_poll()
                if self._is_hurried:
                    break
            self._is_hurried = False
            await self.housekeeping()

    def watch_the_clock(self) -> None:
        """If the wall clock was set, keep house soon: signed times and last-seen times are off."""
        world, steps = self._dispatcher.world, self._dispatcher.clock_steps
        steps.look(world.now_ms(), world.monotonic_ms())
        if steps.take():
            self.hurry()

    async def housekeeping(self) -> None:
        """One round."""
        self._holders.look_around()
        world = self._dispatcher.world
        now = moment(world)
        self._dispatcher.clock_steps.look(now.now_ms, world.monotonic_ms())
        seen = self._holders.take_last_seen()
        outcome = await self._committer.written(lambda tx: self._round(tx, now, seen))
        self._each_round()
        if isinstance(outcome, Committed):
            for cli, session_id, identity, epoch, token in outcome.value:
                with suppress(OSError):  # the lease stands without it; the next round tries again
                    self._credentials.write(cli, session_id, identity, epoch, token)

    async def save_heard(self) -> None:
        """When holders were last heard of, for the next daemon: at an orderly stop."""
        seen, now_ms = self._holders.take_last_seen(), self._dispatcher.world.now_ms()
        if seen:
            await self._committer.written(lambda tx: identities.save_last_seen(tx, seen, now_ms))

    def _round(self, tx: Tx, now: Moment, seen: dict[int, int]) -> list[_Missing]:
        identities.save_last_seen(tx, seen, now.now_ms)
        sessions.forget_unused(tx)
        exposures.forget_old(tx, now.now_ms)
        kin.forget_old(tx, now.now_ms)
        owners.keep_clock(tx, now.now_ms)
        wakes.forget_old(tx, now.now_ms)
        missing: list[_Missing] = []
        for row in leases.held(tx):
            if is_renewal_due(row.expires_ms or 0, now.now_ms):
                granting.renew(tx, self._dispatcher.host, now, row)
            session = sessions.by_no(tx, row.lease.session_no or 0)
            if session is None:
                continue
            identity = identities.by_no(tx, row.identity_no).identity
            told = self._credentials.told(session.cli, session.session_id)
            if told != (identity, row.lease.epoch):
                missing.append(self._replacement(tx, now, row, session, identity))
        return missing

    def _replacement(
        self, tx: Tx, now: Moment, row: LeaseRow, session: SessionRow, identity: str
    ) -> _Missing:
        token = now.draw(f"token {row.identity_no}").hex()
        digest = hashlib.sha256(token.encode()).digest()
        leases.add_token(tx, row.identity_no, row.lease.epoch, digest)
        return (session.cli, session.session_id, identity, row.lease.epoch, token)
