"""S5: search, newest first, in a large store against a smaller one: common and rare words."""

import statistics
from collections import defaultdict
from contextlib import ExitStack
from typing import Final, NamedTuple

from benchmarks import stores, wire
from benchmarks.report import Report, at_most, figure_at_most
from benchmarks.wire import Line
from benchmarks.workshop import Daemon, Workshop, register

_COMMON: Final = "message"
"""In the subject of every message of the bench; the number beside it is in that of one."""
_NEWCOMER: Final = "bench-newcomer"
_GOAL: Final = figure_at_most(10, "≤ 10 ms")
_PAGE: Final = 20


class _Search(NamedTuple):
    """Who searches for what, and how many it finds."""

    what: str
    name: str
    query: str
    found: int
    kind: str | None = None

    def params(self) -> dict[str, str]:
        """Those of the call."""
        return {"query": self.query} | ({"kind": self.kind} if self.kind else {})


def run(workshop: Workshop, report: Report) -> None:
    """p50 of each search at both sizes; each hit is an exposure, so most searches are a commit."""
    large, small = workshop.scale.large_store, workshop.scale.search_store
    times: dict[tuple[str, int], list[float]] = defaultdict(list)
    with ExitStack() as stack:
        lines = {size: _line(workshop, stack, size) for size in (large, small)}
        for number in workshop.rounds():
            for which in range(len(_searches(large))):
                for size, line in lines.items():
                    search = _searches(size)[which]
                    workshop.say(f"S5 round {number + 1}: {search.what}, {size:,} messages")
                    times[search.what, size].append(_p50_ms(workshop, line, search))
    for search in _searches(large):
        figures = times[search.what, large]
        pairs = list(zip(figures, times[search.what, small], strict=True))
        told = f"search p50, {large:,} messages, {search.what}"
        report.compare("S5", told, "ms", pairs, f"p50 at {small:,}", at_most(3))
        report.state("S5", told, "ms", figures, _GOAL)


def _searches(size: int) -> tuple[_Search, ...]:
    """In a store of `size`, of which the reader has the messages of even numbers."""
    rare, page = str(size // 4 * 2), min(_PAGE, size // 2)
    few = min(_PAGE, stores.seldom_of(size))
    return (
        _Search("a word of all", stores.READER, _COMMON, page),
        _Search("a word of one", stores.READER, rare, 1),
        _Search("both words", stores.READER, f"{_COMMON} {rare}", 1),
        _Search("a word of all, of a kind without mail", stores.READER, _COMMON, 0, "decision"),
        _Search("a word of all, by one with little mail", stores.SELDOM, _COMMON, few),
        _Search("a word of all, by one without mail", _NEWCOMER, _COMMON, 0),
    )


def _line(workshop: Workshop, stack: ExitStack, size: int) -> Line:
    daemon = stack.enter_context(Daemon(stores.copy_of(workshop, size)))
    line = Line.of_session(daemon.socket)
    stack.callback(line.close)
    register(line, _NEWCOMER)
    wire.wait_until_indexed(line)
    return line


def _p50_ms(workshop: Workshop, line: Line, search: _Search) -> float:
    """Of the searches of a round. Raises RuntimeError where one finds what it should not."""
    line.call("identity.release")
    line.call("identity.claim", name=search.name)
    found = len(line.call("mail.search", **search.params())["messages"])
    if found != search.found:
        raise RuntimeError(f"{search.what}: finds {found} messages, not {search.found}")
    ready = [wire.request(1, "mail.search", search.params())] * workshop.scale.searches
    return statistics.median(wire.drive([line], ready).latencies_s) * 1_000
