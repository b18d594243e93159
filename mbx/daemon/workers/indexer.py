"""Keeps the full-text index close behind the commits, when nothing better is to be done."""

import asyncio
from typing import Final

from mbx.daemon.workers.committer import Committer
from mbx.store import search
from mbx.store.database import Committed

_SMALL_BATCH_MESSAGES: Final = 48
"""What is indexed between the commits of others: their answers wait for it (about 2 ms)."""

_LARGE_BATCH_MESSAGES: Final = 512
"""What is indexed at once when nobody sends, or when too much is pending: cheaper a message."""

_BEHIND_MESSAGES: Final = 4_096
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
                quiet = left > _BEHIND_MESSAGES or await self._is_quiet()
                count = _LARGE_BATCH_MESSAGES if quiet else _SMALL_BATCH_MESSAGES
                outcome = await self._committer.written(
                    lambda tx, count=count: search.index_some(tx, count)  # type: ignore[misc]
                )
                left = outcome.value if isinstance(outcome, Committed) else 0

    async def _is_quiet(self) -> bool:
        """Wait a little for a moment in which nobody sends; False when there was none."""
        for _ in range(_PATIENCE_CHECKS):
            was_idle = self._committer.idle
            await asyncio.sleep(_IDLE_CHECK_S)
            if was_idle and self._committer.idle:
                return True
        return False
