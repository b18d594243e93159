"""Keeps the full-text index close behind the commits, when nothing better is to be done."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from mbx.core.errors import MbxError
from mbx.daemon.workers.committer import Committer
from mbx.store import search
from mbx.store.database import Committed, Outcome
from mbx.store.search import Progress

WAIT_S: Final = 3.0
"""So long a search waits for the index; its caller waits for 4.5 s in all (`mbx.client`)."""

_SMALL_BATCH_MESSAGES: Final = 48
"""What is indexed between the commits of others: their answers wait for it (about 2 ms)."""

_LARGE_BATCH_MESSAGES: Final = 512
"""What is indexed at once when nobody wants anything: cheaper a message."""

_MEDIUM_BATCH_MESSAGES: Final = 128
"""What is indexed at once when nobody writes, but somebody reads (about 2 ms), or when so much is
pending that it steps back behind nobody: more than a group of sends brings."""

_BEHIND_MESSAGES: Final = 4_096
"""So much."""

_QUIET_S: Final = 0.005
"""When nobody has written for so long, it is quiet, until somebody writes again."""

_NEVER: Final = -1

_PATIENCE_CHECKS: Final = 40
"""So often it steps back behind those who write before it takes its turn among them."""


@dataclass(slots=True, eq=False)
class _Follower:
    """Somebody who needs the index: `until` is the last message there was after it asked."""

    follow: Callable[[], None]
    refuse: Callable[[Exception], None]
    until: int | None = None
    timer: asyncio.TimerHandle | None = None


class Indexer:
    """Indexes pending messages in batches after being told that there are some."""

    def __init__(self, committer: Committer) -> None:
        self._committer = committer
        self._work = asyncio.Event()
        self._work.set()
        self._followers: list[_Follower] = []
        self._is_behind = True
        self._left = 0
        self._quiet_since = _NEVER
        """How many writes had been asked for when it was last seen to be quiet."""
        self._reads_asked = 0
        """How many reads had been asked for at the batch before."""

    def wake(self) -> None:
        """There are new messages."""
        self._is_behind = True
        self._work.set()

    def when_caught_up(
        self, follow: Callable[[], None], refuse: Callable[[Exception], None]
    ) -> None:
        """Call `follow` when the index has what is committed by now.

        `refuse` is called instead with what went wrong, or when that takes longer than a caller
        waits: a store that was upgraded is indexed anew, for minutes if it is large.
        """
        if not self._is_behind:
            follow()
            return
        one = _Follower(follow, refuse)
        one.timer = asyncio.get_running_loop().call_later(WAIT_S, self._give_up, one)
        self._followers.append(one)
        self._work.set()

    async def serve(self) -> None:
        """Index whenever woken, until cancelled."""
        while True:
            await self._work.wait()
            self._work.clear()
            while await self._step():
                pass

    async def _step(self) -> bool:
        """One batch; whether there is more to do."""
        count = await self._count()
        asked = [one for one in self._followers if one.until is None]
        self._work.clear()
        was_quiet = self._is_quiet
        outcome: Outcome[Progress] = await self._committer.written(
            lambda tx: search.index_some(tx, count)
        )
        if was_quiet:
            self._quiet_since += 1  # the batch itself disturbs nobody
        if not isinstance(outcome, Committed):
            self._let_go(lambda one: True, outcome.error)
            return False
        for one in asked:
            one.until = outcome.value.newest
        self._left = outcome.value.pending
        self._is_behind = self._left > 0 or self._work.is_set()
        indexed = outcome.value.indexed
        self._let_go(lambda one: one.until is not None and one.until <= indexed)
        return self._left > 0

    async def _count(self) -> int:
        """How many messages the next batch has at most."""
        before, self._reads_asked = self._reads_asked, self._committer.reads_asked
        if self._left > _BEHIND_MESSAGES:
            return _LARGE_BATCH_MESSAGES if self._committer.unused else _MEDIUM_BATCH_MESSAGES
        if not await self._await_quiet():
            return _SMALL_BATCH_MESSAGES
        is_read = self._committer.reads_asked > before and not self._followers
        return _MEDIUM_BATCH_MESSAGES if is_read else _LARGE_BATCH_MESSAGES

    def _let_go(self, which: Callable[[_Follower], bool], refusal: Exception | None = None) -> None:
        """Let those follow who have what they asked for, or refuse them."""
        going = [one for one in self._followers if which(one)]
        self._followers = [one for one in self._followers if one not in going]
        for one in going:
            if one.timer is not None:
                one.timer.cancel()
            if refusal is None:
                one.follow()
            else:
                one.refuse(refusal)

    def _give_up(self, impatient: _Follower) -> None:
        self._let_go(lambda one: one is impatient, _too_far_behind(self._left))

    @property
    def _is_quiet(self) -> bool:
        """Nobody has written since it was seen to be quiet."""
        return self._quiet_since == self._committer.writes_asked

    async def _await_quiet(self) -> bool:
        """Wait a little for a moment in which nobody writes; False when there was none."""
        for _ in range(_PATIENCE_CHECKS):
            if self._is_quiet or self._followers:
                return True
            self._quiet_since = self._committer.writes_asked if self._committer.idle else _NEVER
            await asyncio.sleep(_QUIET_S)
        return self._is_quiet


def _too_far_behind(left: int) -> MbxError:
    return MbxError(
        "rate-limited",
        f"the index of words is {left} messages behind; it catches up by itself",
        "repeat the search in a minute",
        pending=left,
    )
