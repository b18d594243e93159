"""The official Inspector is content with `mbx mcp`, in each era of the protocol."""

import json
from pathlib import Path

import pytest

from mbx.mcp.tools import TOOLS
from tests.clients.inspector import ERAS, inspect, program
from tests.support.daemon import Daemon

pytestmark = [
    pytest.mark.long,
    pytest.mark.timeout(90),
    pytest.mark.skipif(program() is None, reason="not installed"),
]


@pytest.mark.parametrize("era", ERAS)
def test_the_inspector_takes_every_schema(daemon: Daemon, era: str) -> None:
    told = inspect(str(daemon.home), era, "--method", "tools/list", strict=True)
    assert [tool["name"] for tool in told["tools"]] == [tool["name"] for tool in TOOLS]


@pytest.mark.parametrize("era", ERAS)
def test_the_inspector_calls_a_tool(daemon: Daemon, era: str) -> None:
    call = ("--method", "tools/call", "--tool-name", "mbx_whoami")
    told = inspect(str(daemon.home), era, *call)
    assert told["structuredContent"]["agent"] is None
    assert "you have no identity" in told["content"][0]["text"]


@pytest.mark.parametrize("era", ERAS)
def test_the_inspector_starts_a_daemon_where_none_runs(tmp_path: Path, era: str) -> None:
    home = tmp_path / "home"
    call = ("--method", "tools/call", "--tool-name", "mbx_agents")
    told = inspect(str(home), era, *call)
    daemon = Daemon(home)
    try:
        assert json.loads(daemon.mbx("daemon", "status", "--json").stdout)["running"] is True
    finally:
        daemon.mbx("daemon", "stop")
    assert told["structuredContent"] == {"agents": []}
