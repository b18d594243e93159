"""What a command has in hand: its output, its way to the daemon, the clock and chance.

This is the command line's entry point to time and randomness: everything below gets them from here.
"""

import os
import time
from collections.abc import Mapping

from mbx.cli.bodies import BodySource, source_of
from mbx.cli.output import Output
from mbx.client import ANSWER_S, Client, Clock, Starter, key_at
from mbx.core.errors import MbxError
from mbx.paths import Paths
from mbx.wire import JsonObject


class Session:
    """One invocation of `mbx`."""

    def __init__(self, output: Output, environ: Mapping[str, str]) -> None:
        self.output = output
        self.environ = environ

    @property
    def paths(self) -> Paths:
        """The places of this installation. Raises MbxError when the environment names none."""
        return Paths.from_environ(self.environ)

    @property
    def clock(self) -> Clock:
        """The monotonic clock."""
        return time

    def now_ms(self) -> int:
        """The wall clock, for relative times and for keys that sort by time."""
        return time.time_ns() // 1_000_000

    def new_key(self) -> str:
        """A fresh idempotency key."""
        return key_at(self.now_ms(), os.urandom(10))

    def draw_boundary(self) -> str:
        """A fresh 128-bit boundary, in hex."""
        return os.urandom(16).hex()

    def client(
        self, *, starting: bool = True, holder: bool = False, answer_s: float = ANSWER_S
    ) -> Client:
        """A client that starts the daemon on demand, or (`starting=False`) never does."""
        start: Starter | None = _start if starting else None
        return Client(
            self.paths, self.environ, self.clock, start=start, holder=holder, answer_s=answer_s
        )

    def ask(self, method: str, **params: object) -> JsonObject:
        """Call a method that changes nothing worth knowing about; None and () are left out."""
        return self.client().call(method, _given(params), changes=False)

    def change(self, method: str, *, key: str | None = None, **params: object) -> JsonObject:
        """Call a method that changes something, under one idempotency key for all repeats."""
        given = _given(params) | {"key": self.new_key() if key is None else key}
        return self.client().call(method, given, changes=True)

    def leased_body(self, message: str | None, body_file: str | None, dash: str | None) -> str:
        """The body that the options give, read and checked by `bodies`; see `leased_text`."""
        return self.leased_text(source_of(message, body_file, dash))

    def leased_text(self, source: BodySource) -> str:
        """What a source gives.

        A missing lease is told first: before waiting for standard input, and instead of what is
        wrong with the text.
        """
        if source.waits:
            self.require_lease()
        try:
            return source.read()
        except MbxError:
            if not source.waits:
                self.require_lease()
            raise

    def require_lease(self) -> None:
        """Raise what the daemon says to a mailbox command of this caller, if anything."""
        self.ask("mail.inbox", limit=1)


def _given(params: Mapping[str, object]) -> JsonObject:
    """Only what was given: a daemon need not tell null and absent apart."""
    return {name: value for name, value in params.items() if value is not None and value != ()}


def _start(paths: Paths, environ: Mapping[str, str], clock: Clock) -> bool:
    from mbx.launch import start_daemon

    return start_daemon(paths, environ, clock)
