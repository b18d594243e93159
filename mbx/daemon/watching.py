"""Connections that wait for mail: told by a push when some arrives that wakes, never by polling.

Before each push the lease is looked at again, in a transaction of its own: a watcher that lost its
lease is told that, once, and nothing more.
"""

from __future__ import annotations  # nested functions would evaluate theirs each time

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from mbx.core.errors import MbxError
from mbx.daemon.context import Answer
from mbx.daemon.dispatch import Work
from mbx.daemon.gate import Caller
from mbx.store.database import Committed, Outcome

Push = Callable[[str, dict[str, Any]], None]
"""Sends a notification: method and params."""


class _Watcher(NamedTuple):
    caller: Caller
    identity_no: int
    push: Push


class Watchers:
    """All waiting connections. `glance` makes the unit that looks at a caller's lease and mail."""

    def __init__(
        self,
        glance: Callable[[Caller], Work],
        submit: Callable[[Work, Callable[[Outcome[Answer]], None]], None],
    ) -> None:
        self._glance = glance
        self._submit = submit
        self._watchers: dict[object, _Watcher] = {}

    def add(self, key: object, caller: Caller, identity_no: int, push: Push) -> None:
        """Tell `push` of mail for the identity that `caller` holds; `key` names the connection."""
        self._watchers[key] = _Watcher(caller, identity_no, push)

    def remove(self, key: object) -> None:
        """The connection is gone."""
        self._watchers.pop(key, None)

    def look(self, identities: Iterable[int]) -> None:
        """Something happened to these identities: mail arrived, or a lease changed hands."""
        concerned = set(identities)
        for key, watcher in list(self._watchers.items()):
            if watcher.identity_no in concerned:
                self._look_at(key, watcher)

    def _look_at(self, key: object, watcher: _Watcher) -> None:
        def tell(outcome: Outcome[Answer]) -> None:
            if self._watchers.get(key) is not watcher:
                return
            if isinstance(outcome, Committed):
                if outcome.value.result["waking"]:
                    watcher.push("mail.arrived", outcome.value.result)
            elif isinstance(outcome.error, MbxError):
                self.remove(key)
                watcher.push("lease.lost", outcome.error.as_object())

        self._submit(self._glance(watcher.caller), tell)
