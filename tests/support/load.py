"""Clients that send without pause and repeat every unknown outcome with the same key.

Each is a thread with an agent of its own. A client never gives a message up: it goes on to the next
only when it knows the id under which this one was accepted.
"""

import threading
from collections.abc import Callable
from typing import Final, Self

from tests.support.daemon import Agent, Daemon, HungUpError, Line, RefusedError
from tests.support.shells import TIMEOUT_S

CLIENTS: Final = 8
PASSING: Final = frozenset({"daemon-unreachable", "disk-full"})
"""Refusals after which nothing was stored and the same request may be repeated."""


class Client:
    """One sender; `accepted` has the id that was told for each key."""

    def __init__(self, daemon: Daemon, name: str) -> None:
        self.name = name
        self.accepted: dict[str, str] = {}
        self.repeats = 0
        self.duplicates = 0
        self.failure: Exception | None = None
        self._agent: Agent = daemon.agent()
        self._line: Line | None = self._agent.registered(name)

    def send_next(self, up: Callable[[], None]) -> None:
        """Get one more message accepted, however often it takes; `up` waits for a daemon."""
        key = f"{self.name} {len(self.accepted)}"
        while key not in self.accepted:
            try:
                line = self._line = self._line or self._agent.connect()
                answer = line.call("mail.send", to=[self.name], subject=key, body=key, key=key)
            except (HungUpError, BrokenPipeError, ConnectionResetError):
                self._forget_line(up)
            except RefusedError as refused:
                if refused.code not in PASSING:
                    raise
                self._forget_line(up)
            else:
                self.accepted[key] = answer["id"]
                self.duplicates += answer["duplicate"]

    def stored(self) -> list[tuple[str, str]]:
        """(body, id) of all that lies in this client's own mailbox, in order of arrival."""
        found: list[tuple[str, str]] = []
        cursor = None
        with self._agent.connect() as line:
            while True:
                page = line.call("mail.inbox", limit=200, cursor=cursor)
                found += [(one["subject"], one["id"]) for one in page["messages"]]
                cursor = page["next_cursor"]
                if cursor is None:
                    return found

    def close(self) -> None:
        """End the agent."""
        if self._line is not None:
            self._line.close()
        self._agent.close()

    def _forget_line(self, up: Callable[[], None]) -> None:
        self.repeats += 1
        if self._line is not None:
            self._line.close()
            self._line = None
        up()


class Load:
    """`CLIENTS` clients at work while the block runs; their daemon may be killed and started."""

    def __init__(self, daemon: Daemon) -> None:
        self._daemon = daemon
        self.clients = [Client(daemon, f"client-{letter}") for letter in "abcdefgh"[:CLIENTS]]
        self._progress = threading.Condition()
        self._count = 0
        self._is_up = threading.Event()
        self._is_over = threading.Event()
        self._is_up.set()
        self._threads = [
            threading.Thread(target=self._work, args=(client,), name=client.name)
            for client in self.clients
        ]

    def wait_for(self, more: int) -> None:
        """Until this many more messages were accepted."""
        with self._progress:
            goal = self._count + more
            done = self._progress.wait_for(lambda: self._count >= goal or self._failed(), TIMEOUT_S)
            assert done, f"no progress: {self._count} of {goal} accepted"

    def while_down(self, act: Callable[[], None]) -> None:
        """End the daemon as `act` does it, and start it again."""
        self._is_up.clear()
        act()
        self._daemon.start()
        self._is_up.set()

    def finish(self) -> None:
        """Let each client end the message it is at."""
        self._is_over.set()
        for thread in self._threads:
            thread.join(TIMEOUT_S)
            assert not thread.is_alive(), f"{thread.name} does not end"
        for client in self.clients:
            if client.failure is not None:
                raise client.failure

    def check_once(self) -> int:
        """Accepted = stored exactly once, for all clients; how many messages that are."""
        for client in self.clients:
            assert client.stored() == list(client.accepted.items()), client.name
        return sum(len(client.accepted) for client in self.clients)

    @property
    def repeats(self) -> int:
        """How many outcomes were unknown and asked for again."""
        return sum(client.repeats for client in self.clients)

    @property
    def duplicates(self) -> int:
        """How many of those had been accepted the first time."""
        return sum(client.duplicates for client in self.clients)

    def _work(self, client: Client) -> None:
        try:
            while not self._is_over.is_set():
                client.send_next(self._wait_until_up)
                with self._progress:
                    self._count += 1
                    self._progress.notify_all()
        except Exception as failure:  # noqa: BLE001  every failure is raised again by `finish`
            client.failure = failure
            with self._progress:
                self._progress.notify_all()

    def _wait_until_up(self) -> None:
        assert self._is_up.wait(TIMEOUT_S), "no daemon comes back"

    def _failed(self) -> bool:
        return any(client.failure is not None for client in self.clients)

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._is_up.set()
        for thread in self._threads:
            thread.join(TIMEOUT_S)
        for client in self.clients:
            client.close()
