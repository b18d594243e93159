"""The meaning of our two markers: `long` states its own limit, `root` needs root."""

import os

import pytest


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
