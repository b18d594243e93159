"""What is answered from constants."""

from typing import Any

import pytest

from mbx.core.errors import MbxError
from mbx.mcp import greetings, offline
from mbx.mcp.tools import TOOLS

META = {"_meta": {"io.modelcontextprotocol/protocolVersion": greetings.MODERN}}


def asked(method: str, **params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": 7, "method": method, "params": params}


@pytest.mark.parametrize("version", greetings.HANDSHAKE)
def test_each_revision_with_a_handshake_is_spoken(version: str) -> None:
    told = greetings.answer(asked("initialize", protocolVersion=version))
    assert told is not None
    assert told["protocolVersion"] == version


@pytest.mark.parametrize("version", ["2030-01-01", None, 7, ""])
def test_a_revision_that_is_not_known_gets_the_newest(version: object) -> None:
    told = greetings.answer(asked("initialize", protocolVersion=version))
    assert told is not None
    assert told["protocolVersion"] == greetings.HANDSHAKE[-1]


def test_the_tools_are_told_in_both_eras() -> None:
    old, new = greetings.answer(asked("tools/list")), greetings.answer(asked("tools/list", **META))
    assert old is not None
    assert new is not None
    assert old["tools"] == new["tools"] == [dict(tool) for tool in TOOLS]
    assert "resultType" not in old
    assert new["resultType"] == "complete"


@pytest.mark.parametrize(
    "request_",
    [
        asked("tools/call", name="mbx_whoami"),
        asked("tools/list", cursor="c"),
        asked("server/discover"),
        asked("ping", **META),
        asked("prompts/list"),
        {"method": ["initialize"]},
        {"method": "tools/list", "params": [1]} | {"method": "tools/call"},
    ],
)
def test_everything_else_is_for_the_server(request_: dict[str, Any]) -> None:
    assert greetings.answer(request_) is None


def test_without_a_daemon_a_tool_call_says_what_is_wrong() -> None:
    error = MbxError("daemon-unreachable", "no daemon listens", "mbx daemon start")
    told = offline.answer(asked("tools/call", name="mbx_inbox"), error)
    assert told["id"] == 7
    assert told["result"]["isError"] is True
    assert told["result"]["structuredContent"]["code"] == "daemon-unreachable"
    assert "mbx daemon start" in told["result"]["content"][0]["text"]
    assert "resultType" not in told["result"]
    modern = offline.answer(asked("tools/call", name="mbx_inbox", **META), error)
    assert modern["result"]["resultType"] == "complete"
    assert "result" in offline.answer(asked("initialize"), error)
    assert offline.answer(asked("prompts/list"), error)["error"]["message"] == "no daemon listens"
