"""The two queues in front of the store: writes in groups that share a sync, reads over snapshots.

Groups make themselves: whatever waits while one commit runs goes into the next (4 to 9 messages at
64 clients, measured); waiting for more than a turn of the loop brought nothing, and for who is
alone that turn is a loss. Callers hand in a unit and a callback; hanging up cannot cancel a unit
nor eat its effects.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from mbx.core.limits import GROUP_MAX_UNITS
from mbx.store.database import Database, Outcome, StoreFailure, Unit

Done = Callable[[Outcome[Any]], None]
"""Told the outcome of a unit, from the loop."""


def _let_it_out(defect: Exception) -> None:
    raise defect


class _Queue:
    """Units waiting for one kind of hop."""

    def __init__(
        self,
        hop: Callable[[Sequence[Unit[Any]]], Awaitable[list[Outcome[Any]]]],
        on_defect: Callable[[Exception], None],
    ) -> None:
        self._hop = hop
        self._on_defect = on_defect
        self._waiting: deque[tuple[Unit[Any], Done]] = deque()
        self._arrived = asyncio.Event()
        self._running = 0
        self._answered = 0
        """How many units the last group had."""
        self.empty = asyncio.Event()
        self.empty.set()

    def add(self, unit: Unit[Any], done: Done) -> None:
        self._waiting.append((unit, done))
        self._arrived.set()
        self.empty.clear()

    @property
    def is_at_rest(self) -> bool:
        """Whether no unit waits or is with the store's thread; the last may still be answered."""
        return not (self._waiting or self._running)

    async def serve(self) -> None:
        while True:
            await self._arrived.wait()
            if self._answered > 1:
                # One turn of the loop: those who were answered together ask again in it, and join.
                await asyncio.sleep(0)
            batch = self._take()
            outcomes = await self._hop([unit for unit, _ in batch])
            self._running, self._answered = 0, len(outcomes)
            self._put_back(batch[len(outcomes) :])
            for (_, done), outcome in zip(batch, outcomes, strict=False):
                self._tell(done, outcome)
            if not self._waiting:
                self.empty.set()

    def _tell(self, done: Done, outcome: Outcome[Any]) -> None:
        try:
            done(outcome)
        except Exception as defect:  # noqa: BLE001  one caller's answer must not end the service
            self._on_defect(defect)

    def _take(self) -> list[tuple[Unit[Any], Done]]:
        count = min(GROUP_MAX_UNITS, len(self._waiting))
        batch = [self._waiting.popleft() for _ in range(count)]
        self._running = len(batch)
        if not self._waiting:
            self._arrived.clear()
        return batch

    def _put_back(self, left_out: Sequence[tuple[Unit[Any], Done]]) -> None:
        if left_out:
            self._waiting.extendleft(reversed(left_out))
            self._arrived.set()


class Committer:
    """Serves both queues until the store fails or its task is cancelled.

    `on_defect` is told what a callback raised; the service goes on.
    """

    def __init__(
        self, database: Database, on_defect: Callable[[Exception], None] = _let_it_out
    ) -> None:
        self._database = database
        self._reads = _Queue(database.read, on_defect)
        # A reader waits for one unit and one sync, not for a whole group.
        self._writes = _Queue(lambda units: database.write(units, self._is_read_waiting), on_defect)
        self.writes_asked = 0
        """How many writes were ever handed in."""
        self.reads_asked = 0
        """How many reads."""

    def write(self, unit: Unit[Any], done: Done) -> None:
        """Run `unit` in the next group; `done` gets its outcome once that is synced."""
        self.writes_asked += 1
        self._writes.add(unit, done)

    def read(self, unit: Unit[Any], done: Done, *, brief: bool = False) -> None:
        """Run `unit` over the next snapshot.

        A `brief` one, when nothing else is under way, runs here and now: two changes of threads
        cost more than the reading itself. That is so too while the last commit is being answered:
        whoever watches is told of it, and a link looks what is new.
        """
        self.reads_asked += 1
        if brief and self._writes.is_at_rest and self._reads.is_at_rest:
            done(self._database.read_here(unit))
        else:
            self._reads.add(unit, done)

    def _is_read_waiting(self) -> bool:
        """Asked by the store's thread after each unit of a group."""
        return not self._reads.empty.is_set()

    async def written(self, unit: Unit[Any]) -> Outcome[Any]:
        """As `write`, for those who can wait."""
        outcome: asyncio.Future[Outcome[Any]] = asyncio.get_running_loop().create_future()

        def settle(result: Outcome[Any]) -> None:
            if not outcome.done():
                outcome.set_result(result)

        self.write(unit, settle)
        return await outcome

    @property
    def idle(self) -> bool:
        """True when no write waits or runs."""
        return self._writes.empty.is_set()

    @property
    def unused(self) -> bool:
        """True when nothing waits or runs, neither a write nor a read."""
        return self._writes.empty.is_set() and self._reads.empty.is_set()

    async def serve(self) -> None:
        """Serve both queues. Raises StoreFailure when the store can no longer be trusted."""
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._writes.serve())
                group.create_task(self._reads.serve())
        except* StoreFailure as failures:
            first = failures.exceptions[0]
            assert isinstance(first, StoreFailure)
            raise first from None

    async def drain(self) -> None:
        """Wait until nothing waits or runs."""
        await self._writes.empty.wait()
        await self._reads.empty.wait()
