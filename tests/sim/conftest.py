"""What all runs share: the ground that they start from, and what they met, told at the end."""

from collections import Counter
from collections.abc import Callable

import pytest

from tests.sim.ground import ground
from tests.sim.totals import Totals
from tests.support.office import empty_store

_COUNTS = pytest.StashKey[dict[str, Counter[str]]]()
_TOTALS = pytest.StashKey[Totals]()
_FOUND = pytest.StashKey[dict[str, int]]()


@pytest.fixture(scope="session", autouse=True)
def _sound_ground() -> None:
    """What all runs start from is made before any test plants a defect: it is kept for all."""
    ground()
    empty_store().close()


@pytest.fixture
def publish(pytestconfig: pytest.Config) -> Callable[[Totals], None]:
    """Have these counts printed at the end."""
    return lambda totals: pytestconfig.stash.__setitem__(_TOTALS, totals)


@pytest.fixture
def publish_defect(pytestconfig: pytest.Config) -> Callable[[str, int], None]:
    """Have it printed after how many seeds a planted defect was found."""
    found = pytestconfig.stash.setdefault(_FOUND, {})
    return found.__setitem__


@pytest.fixture
def publish_counts(pytestconfig: pytest.Config) -> Callable[[str, Counter[str]], None]:
    """Have the counts of something else printed at the end, under its name."""
    kept = pytestconfig.stash.setdefault(_COUNTS, {})
    return lambda name, counts: kept.__setitem__(name, Counter(counts))


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """The totals of the seeds, and the planted defects with the seeds that each took."""
    totals = config.stash.get(_TOTALS, None)
    if totals is not None:
        terminalreporter.section("simulation")
        for line in totals.lines():
            terminalreporter.line(line)
    for name, counts in config.stash.get(_COUNTS, {}).items():
        terminalreporter.section(name)
        for what, count in sorted(counts.items()):
            terminalreporter.line(f"{what:40}{count:>9,}")
    found = config.stash.get(_FOUND, {})
    if found:
        terminalreporter.section("planted defects: seeds until found")
        for name, seeds in sorted(found.items()):
            terminalreporter.line(f"{name:68}{seeds:>4}")
