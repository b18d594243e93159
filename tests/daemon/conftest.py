"""A running daemon for the tests of one file, agents that connect to it, and hosts that pair."""

from tests.support.daemon import (
    agent_of_test,
    daemon_of_module,
    holder_of_module,
    new_holder_of_test,
)
from tests.support.meetings import bare_of_test, desk_of_test, laptop_of_test

__all__ = [
    "agent_of_test",
    "bare_of_test",
    "daemon_of_module",
    "desk_of_test",
    "holder_of_module",
    "laptop_of_test",
    "new_holder_of_test",
]
