"""The meaning of our two markers: `long` states its own limit, `root` needs root.

And no clock for what Hypothesis draws: by its own settings an example has 200 ms, and a machine
that holds the process for as long, once, would make a test fail that says nothing about time.

And signals as a terminal gives them: a shell without job control starts what it puts into the
background with SIGINT and SIGQUIT ignored, and nohup with SIGHUP; so would be all that tests start.
"""

import os
import signal

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile("mbx", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("mbx")


def pytest_configure(config: pytest.Config) -> None:
    """Have the signals that a shell may have taken away."""
    for number, handler in (
        (signal.SIGINT, signal.default_int_handler),
        (signal.SIGQUIT, signal.SIG_DFL),
        (signal.SIGHUP, signal.SIG_DFL),
    ):
        if signal.getsignal(number) == signal.SIG_IGN:
            signal.signal(number, handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Refuse a long test without a limit of its own; skip tests for root where we are not root."""
    unlimited = [
        item.nodeid
        for item in items
        if item.get_closest_marker("long") and not item.get_closest_marker("timeout")
    ]
    if unlimited:
        raise pytest.UsageError(f"long tests need @pytest.mark.timeout(seconds): {unlimited}")
    if os.geteuid() != 0:
        for item in items:
            if item.get_closest_marker("root"):
                item.add_marker(pytest.mark.skip(reason="needs the rights of root"))
