"""Two paired hosts that write to each other, and what must hold whatever happened in between.

Each direction is told what its sender was answered; at the end everything is with the other host,
once and in order, its sender knows it, and both ends tell the same of the two streams.
"""

import itertools
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from functools import partial
from operator import itemgetter
from typing import Any, Final

from tests.support.daemon import Agent, Line, request
from tests.support.hosts import PairedHost, addresses, until

PAGE: Final = 200


class End:
    """One host and its only holder, who writes to the one of the other host."""

    def __init__(self, host: PairedHost, name: str, to: str) -> None:
        self.host, self.name, self.to = host, name, to
        self.sent: list[str] = []
        self._seen: list[str] = []
        """What was received up to `_cursor`, as it was looked at before."""
        self._cursor: str | None = None
        self.agent: Agent
        self.line: Line

    def send(self, body: str = "over the wire") -> str:
        """One message; its id."""
        subject = f"{self.name} {len(self.sent)}"
        answer = self.line.call("mail.send", to=[self.to], subject=subject, body=body)
        self.sent.append(str(answer["id"]))
        return self.sent[-1]

    def send_many(self, count: int, in_flight: int = 64) -> None:
        """So many short messages, as fast as one connection takes them."""
        numbers = range(len(self.sent), len(self.sent) + count)
        for start in range(0, count, in_flight):
            batch = numbers[start : start + in_flight]
            self.line.write(b"".join(self._request(number) for number in batch))
            answers = [self.line.read() for _ in batch]
            self.sent += [one["result"]["id"] for one in sorted(answers, key=itemgetter("id"))]

    def _request(self, number: int) -> bytes:
        words = {"subject": f"{self.name} {number}", "body": "waits"}
        return request(number, "mail.send", to=[self.to], **words) + b"\n"

    def received(self, *, anew: bool = True) -> list[str]:
        """Ids of all that arrived, in order; not `anew`: what was looked at before is taken so."""
        if anew:
            self._seen, self._cursor = [], None
        found, cursor = list(self._seen), self._cursor
        while True:
            page = self.line.call("mail.inbox", all=True, limit=PAGE, cursor=cursor)
            found += [one["id"] for one in page["messages"]]
            cursor = page["next_cursor"]
            if cursor is None:
                return found
            self._seen, self._cursor = list(found), cursor

    def stages(self, *, anew: bool = True) -> list[str]:
        """How far each message came that was sent, the newest first; not `anew`: of the last."""
        found: list[str] = []
        cursor: str | None = None
        while True:
            page = self.line.call("mail.sent", limit=PAGE, cursor=cursor)
            found += [one["recipients"][0]["stage"] for one in page["messages"]]
            cursor = page["next_cursor"]
            if cursor is None or not anew:
                return found

    def peer(self) -> Mapping[str, Any]:
        """Everything about the other host."""
        label = self.to.partition("@")[2]
        found: Mapping[str, Any] = self.line.call("peers.show", name=label)
        return found


class Exchange:
    """`here` has ana, `there` has ben; both daemons run, and know each other's holder."""

    def __init__(
        self,
        stack: ExitStack,
        here: PairedHost,
        there: PairedHost,
        pair: Callable[[PairedHost, PairedHost], None] = lambda here, there: None,
    ) -> None:
        """`pair` pairs the two once their daemons run, where their stores do not say it already."""
        self.stack = stack
        self.here = End(here, "ana", f"ben@{there.label}")
        self.there = End(there, "ben", f"ana@{here.label}")
        for end in self.ends:
            stack.enter_context(end.host.daemon)
            end.agent = stack.enter_context(end.host.daemon.agent())
            end.line = stack.enter_context(end.agent.registered(end.name))
        pair(here, there)
        for end in self.ends:
            until(partial(_knows, end), f"{end.to} is known")

    @property
    def ends(self) -> tuple[End, End]:
        """Both."""
        return self.here, self.there

    def send(self, each: int = 1) -> None:
        """So many messages each way, in turns."""
        for end in itertools.chain.from_iterable(itertools.repeat(self.ends, each)):
            end.send()

    def again(self, end: End) -> None:
        """The holder speaks to a daemon that was started again."""
        end.line.close()
        end.line = self.stack.enter_context(end.agent.connect())

    def is_settled(self) -> bool:
        """Whether nothing waits any more, at either end, and both know it."""
        one, other = (end.peer() for end in self.ends)
        return all(_is_settled(*pair) for pair in ((one, other), (other, one)))

    def settle(
        self, wait: Callable[[Callable[[], Any], str], Any] = until, *, anew: bool = True
    ) -> None:
        """Wait until everything has arrived and is receipted; what came is what was sent.

        Not `anew`: only what came since the last look is looked at.
        """
        wait(self.is_settled, f"both are settled: {[_brief(end.peer()) for end in self.ends]}")
        for end, other in (self.ends, self.ends[::-1]):
            assert other.received(anew=anew) == end.sent  # once each, in order, and nothing else
            stages = end.stages(anew=anew)
            assert set(stages) <= {"delivered"}
            assert len(stages) == (len(end.sent) if anew else min(len(end.sent), PAGE))

    def hashes(self) -> list[str]:
        """The state of both stores."""
        return [end.host.daemon.state_hash() for end in self.ends]


def _knows(end: End) -> bool:
    return end.to in addresses(end.line)


def _is_settled(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    out, into = one["sending"], other["receiving"]
    return bool(
        one["state"] == "up"
        and one["queued"] == 0
        and out["acked"] == out["seq"] == into["seq"]
        and out["head"] == into["head"]
        and out["stream"] == into["stream"]
    )


def _brief(peer: Mapping[str, Any]) -> dict[str, Any]:
    return {key: peer[key] for key in ("state", "reason", "queued", "sending", "receiving")}
