"""A running daemon for the tests of one file, and agents that connect to it."""

from tests.support.daemon import (
    agent_of_test,
    daemon_of_module,
    holder_of_module,
    new_holder_of_test,
)

__all__ = ["agent_of_test", "daemon_of_module", "holder_of_module", "new_holder_of_test"]
