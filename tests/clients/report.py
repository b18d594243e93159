"""The report of a run over the real clients, `docs/clients.md`: made of what pytest reported."""

import platform
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from tests.clients.clients import CLIENTS
from tests.clients.inspector import INSPECTOR

_SEEN: Final = {"passed": "yes", "failed": "**NO**", "skipped": "–"}

_FACTS: Final = {
    "protocol": "revision of MCP",
    "lease": "mbx knows it as",
    "tools": "tools in its first request",
    "shown": "its model is shown of a result",
    "instructions": "instructions reach the model",
}
"""What tests record of a client: name -> words of the report."""

_HEAD: Final = """\
# Real clients

What agent CLIs that others wrote do with mbx. `scripts/check-clients` writes this page: it fetches
the clients at the versions below and runs them, without a network, against a scripted model
(`tests/clients/README.md`). The clients are real, and so is the mbx behind them; only what the
model says is written down beforehand. Ids and times differ from run to run. A dash is what a client
cannot do, or is not asked: the test says why.
"""


@dataclass
class Results:
    """What a run has seen."""

    outcomes: dict[tuple[str, str], str] = field(default_factory=dict)
    """(test, client) -> passed, failed or skipped; client "" for tests of several."""
    facts: dict[tuple[str, str], str] = field(default_factory=dict)
    """(fact, client) -> value."""
    pieces: dict[str, str] = field(default_factory=dict)
    """Title -> text that goes into the report as it is."""

    def saw(self, nodeid: str, outcome: str, properties: Iterable[tuple[str, object]]) -> None:
        """Take the outcome of a test, and what it recorded."""
        test, client = _place(nodeid)
        if self.outcomes.get((test, client)) != "failed":
            self.outcomes[test, client] = outcome
        for name, value in properties:
            if name in _FACTS:
                self.facts[name, client] = str(value)
            else:
                self.pieces[name] = str(value)


def _place(nodeid: str) -> tuple[str, str]:
    """The sentence of a test, and which client it was about."""
    name, _, parameters = nodeid.rpartition("::")[2].partition("[")
    client = next((one for one in parameters.rstrip("]").split("-") if one in CLIENTS), "")
    if parameters.startswith("kimi-cli"):
        client = "kimi-cli"
    extra = "" if client or not parameters else f" ({parameters.rstrip(']')})"
    return name.removeprefix("test_").replace("_", " ") + extra, client


def render(results: Results, installed: Mapping[str, bool], day: str) -> str:
    """The report as a page."""
    names = [name for name in CLIENTS if installed[name]]
    lines = [_HEAD, f"Run on {day}, {platform.system()} {platform.machine()}.", ""]
    lines += ["## Versions", "", "| client | package | |", "| --- | --- | --- |"]
    for name, client in CLIENTS.items():
        told = "driven" if installed[name] else "not installed in this run"
        lines.append(f"| {name} | `{client.packages[0]}` | {told} |")
    lines += [f"| Inspector | `{INSPECTOR}` | |", ""]
    lines += ["## What was seen of each", "", *_table(_FACTS, results.facts, names), ""]
    tests = sorted({test for test, client in results.outcomes if client})
    seen = {place: _SEEN[told] for place, told in results.outcomes.items()}
    lines += ["## What held", "", *_table({one: one for one in tests}, seen, names), ""]
    others = sorted(test for test, client in results.outcomes if not client)
    lines += ["| with several clients, or none | |", "| --- | --- |"]
    lines += [f"| {test} | {seen[test, '']} |" for test in others]
    for title in sorted(results.pieces):
        lines += ["", f"## {title}", "", results.pieces[title].strip()]
    return "\n".join(lines) + "\n"


def _table(
    rows: Mapping[str, str], cells: Mapping[tuple[str, str], str], names: list[str]
) -> list[str]:
    lines = [f"| | {' | '.join(names)} |", f"| --- |{' --- |' * len(names)}"]
    for row, words in rows.items():
        told = (cells.get((row, name), "–") for name in names)
        lines.append(f"| {words} | {' | '.join(told)} |")
    return lines
