"""Connections that wait for mail: told by a push when some arrives that wakes, never by polling.

Before each push the lease is looked at again, in a transaction: a watcher that lost its lease is
told that, once, and nothing more. Agents are told by `mbx.daemon.workers.wakes`, under its brake;
scripts and people at once, whenever there is mail that wakes.
"""

from __future__ import annotations  # nested functions would evaluate theirs each time

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from mbx.core.errors import MbxError
from mbx.core.evidence import HARNESSES
from mbx.daemon.context import Answer
from mbx.daemon.dispatch import Work
from mbx.daemon.gate import Caller
from mbx.store.database import Committed, Outcome

Push = Callable[[str, dict[str, Any]], None]
"""Sends a notification: method and params."""


class Watcher(NamedTuple):
    """One connection that waits: whose it is, for which mailbox, and how it is told."""

    caller: Caller
    identity_no: int
    push: Push

    @property
    def is_agent(self) -> bool:
        """Whether it is of an agent CLI, so that the brake is on it."""
        return self.caller.lineage.cli in HARNESSES


class Watchers:
    """All waiting connections. `glance` makes the unit that looks at a caller's lease and mail.

    `heed` is told of each mailbox that an agent begins to wait for.
    """

    def __init__(
        self,
        glance: Callable[[Caller], Work],
        submit: Callable[[Work, Callable[[Outcome[Answer]], None]], None],
        heed: Callable[[Iterable[int]], None] = lambda identities: None,
    ) -> None:
        self._glance = glance
        self._submit = submit
        self._heed = heed
        self._watchers: dict[object, Watcher] = {}

    def add(self, key: object, caller: Caller, identity_no: int, push: Push) -> None:
        """Tell `push` of mail for the identity that `caller` holds; `key` names the connection.

        What waits already is told too.
        """
        self._watchers[key] = Watcher(caller, identity_no, push)
        self.look((identity_no,))
        self._heed((identity_no,))

    def remove(self, key: object) -> None:
        """The connection is gone."""
        self._watchers.pop(key, None)

    def of(self, identity_no: int) -> list[tuple[object, Watcher]]:
        """Every connection that waits for mail of an identity."""
        found = self._watchers.items()
        return [(key, one) for key, one in found if one.identity_no == identity_no]

    def tell(self, key: object, watcher: Watcher, counts: Mapping[str, Any]) -> bool:
        """Tell one that mail arrived; False when its connection has ended meanwhile."""
        if self._watchers.get(key) is not watcher:
            return False
        watcher.push("mail.arrived", dict(counts))
        return True

    def lost(self, key: object, watcher: Watcher, error: MbxError) -> None:
        """Tell one that it holds the lease no more, and nothing after that."""
        if self._watchers.get(key) is watcher:
            self.remove(key)
            watcher.push("lease.lost", error.as_object())

    def look(self, identities: Iterable[int]) -> None:
        """Something happened to these identities: mail arrived, or a lease changed hands."""
        concerned = set(identities)
        for key, watcher in list(self._watchers.items()):
            if watcher.identity_no in concerned:
                self._look_at(key, watcher)

    def _look_at(self, key: object, watcher: Watcher) -> None:
        def tell(outcome: Outcome[Answer]) -> None:
            if isinstance(outcome, Committed):
                if outcome.value.result["waking"] and not watcher.is_agent:
                    self.tell(key, watcher, outcome.value.result)
            elif isinstance(outcome.error, MbxError):
                self.lost(key, watcher, outcome.error)

        self._submit(self._glance(watcher.caller), tell)
