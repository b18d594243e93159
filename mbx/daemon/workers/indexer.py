"""Keeps the full-text index close behind the commits, when nothing better is to be done."""

import asyncio
from typing import Final

from mbx.daemon.workers.committer import Committer
from mbx.store import search
from mbx.store.database import Committed

_BATCH_MESSAGES: Final = 256
_IDLE_CHECK_S: Final = 0.02
_PATIENCE_CHECKS: Final = 10
"""So often it steps back behind waiting sends before it takes its turn among them."""


class Indexer:
    """Indexes pending messages in batches after being told that there are some."""

    def __init__(self, committer: Committer) -> None:
        self._committer = committer
        self._work = asyncio.Event()
        self._work.set()

    def wake(self) -> None:
        """There are new messages."""
        self._work.set()

    async def serve(self) -> None:
        """Index whenever woken, until cancelled."""
        while True:
            await self._work.wait()
            self._work.clear()
            left = 1
            while left:
                await self._wait_for_quiet()
                outcome = await self._committer.written(
                    lambda tx: search.index_some(tx, _BATCH_MESSAGES)
                )
                left = outcome.value if isinstance(outcome, Committed) else 0

    async def _wait_for_quiet(self) -> None:
        for _ in range(_PATIENCE_CHECKS):
            if self._committer.idle:
                return
            await asyncio.sleep(_IDLE_CHECK_S)
