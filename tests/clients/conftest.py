"""Real clients are driven by `scripts/check-clients` alone; what they were seen to do is kept."""

import os
import time
from pathlib import Path

import pytest

from tests.clients.clients import CLIENTS, PLACE
from tests.clients.report import Results, render
from tests.support.daemon import (
    agent_of_test,
    daemon_of_module,
    holder_of_module,
    new_holder_of_test,
)

__all__ = ["agent_of_test", "daemon_of_module", "holder_of_module", "new_holder_of_test"]

collect_ignore = [] if PLACE in os.environ else ["real"]

_REPORT = PLACE + "_REPORT"
_results = Results()


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Keep what came out of a test over real clients."""
    if "/real/" in report.nodeid and (report.when == "call" or not report.passed):
        _results.saw(report.nodeid, report.outcome, report.user_properties)


def pytest_sessionfinish() -> None:
    """Write the report, where one is wanted."""
    if _REPORT in os.environ:
        installed = {name: bool(client.executable()) for name, client in CLIENTS.items()}
        page = render(_results, installed, time.strftime("%Y-%m-%d", time.gmtime()))
        Path(os.environ[_REPORT]).write_text(page, encoding="utf-8")
