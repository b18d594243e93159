"""Everything about the network runs on the daemon's own kind of loop, and on the standard one."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path

import pytest
import uvloop

from tests.support.network import Home, home_with_peers


def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """The loops: limits and floods are tried on the daemon's only."""
    own = {"uvloop": uvloop.new_event_loop}
    both = own | {"asyncio": asyncio.new_event_loop}
    return both if "test_peers" in item.nodeid else own


@pytest.fixture(name="home")
async def home_of_test(tmp_path: Path) -> AsyncIterator[Home]:
    """A listening host with three peers; it must have met no defect, and lost no descriptor."""
    async with home_with_peers(tmp_path) as home:
        yield home
