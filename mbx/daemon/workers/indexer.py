"""Keeps the full-text index close behind the commits, when nothing better is to be done."""

import asyncio
from collections.abc import Callable
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
        self._followers: list[Callable[[], None]] = []
        self._is_behind = True

    def wake(self) -> None:
        """There are new messages."""
        self._is_behind = True
        self._work.set()

    def when_caught_up(self, follow: Callable[[], None]) -> None:
        """Call `follow` when the index has what is committed by now, but for a small rest."""
        if self._is_behind:
            self._followers.append(follow)
            self._work.set()
        else:
            follow()

    async def serve(self) -> None:
        """Index whenever woken, until cancelled."""
        while True:
            await self._work.wait()
            self._work.clear()
            self._is_behind = False
            left = 1
            while left:
                quiet = left > _BEHIND_MESSAGES or await self._is_quiet()
                count = _LARGE_BATCH_MESSAGES if quiet else _SMALL_BATCH_MESSAGES
                outcome = await self._committer.written(
                    lambda tx, count=count: search.index_some(tx, count)  # type: ignore[misc]
                )
                left = outcome.value if isinstance(outcome, Committed) else 0
                if left <= _SMALL_BATCH_MESSAGES:
                    self._let_follow()

    def _let_follow(self) -> None:
        followers, self._followers = self._followers, []
        for follow in followers:
            follow()

    async def _is_quiet(self) -> bool:
        """Wait a little for a moment in which nobody sends; False when there was none."""
        for _ in range(_PATIENCE_CHECKS):
            if self._followers:
                return True
            was_idle = self._committer.idle
            await asyncio.sleep(_IDLE_CHECK_S)
            if was_idle and self._committer.idle:
                return True
        return False
