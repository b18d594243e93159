"""The tools: constants, annotated, terse, and those of the contract."""

import hashlib
import json
import re
from typing import Any

import pytest

from mbx.core import message
from mbx.core.delivery import OUTCOMES
from mbx.core.errors import EXIT_STATUS
from mbx.mcp.guide import GUIDE, GUIDE_URI, INSTRUCTIONS, PROMPT
from mbx.mcp.tools import BY_NAME, TOOLS

# What clients have shown their users: whoever changes it on purpose writes the new digest here.
DIGEST = "86fcaf574fb1592324d0dd7b01c55982c1a9512cf8059d96860ba9ed66d84c95"

LIST_MAX_BYTES = 9_000
"""S18: what every session pays for `tools/list`, with the tools that are still to come."""

ARGUMENTS = {
    "mbx_whoami": "name? role? description? card? bind?",
    "mbx_identity": "action name? role? description? all?",
    "mbx_agents": "query? role? project? host?",
    "mbx_inbox": "limit? cursor? kind? from? all?",
    "mbx_read": "ids offset? max_bytes?",
    "mbx_send": "to subject body kind? needs_reply? refs? topic? reply_to? origin? wake? key?",
    "mbx_reply": "id body kind? needs_reply? origin? final? did?",
    "mbx_ack": "ids outcome? did? note?",
    "mbx_thread": "id cursor? limit?",
    "mbx_search": "query from? to? kind? since? until? cursor? limit?",
    "mbx_sent": "id? cursor? limit? offset?",
    "mbx_hook": "event session?",
}
"""The contract: tool -> its arguments; it may grow."""


def listed() -> bytes:
    told = {"tools": [dict(tool) for tool in TOOLS]}
    return json.dumps(told, separators=(",", ":"), sort_keys=True).encode()


def test_names_descriptions_and_schemas_change_only_on_purpose() -> None:
    digest = hashlib.sha256(listed() + INSTRUCTIONS.encode() + GUIDE.encode()).hexdigest()
    assert digest == DIGEST


def test_what_a_session_pays_for_the_list_is_bounded() -> None:
    assert len(listed()) <= LIST_MAX_BYTES


@pytest.mark.parametrize("tool", ARGUMENTS)
def test_each_tool_of_the_contract_takes_its_arguments(tool: str) -> None:
    schema: dict[str, Any] = BY_NAME[tool]["inputSchema"]
    words = ARGUMENTS[tool].split()
    assert set(schema["properties"]) >= {word.rstrip("?") for word in words}
    assert sorted(schema.get("required", [])) == sorted(w for w in words if not w.endswith("?"))


@pytest.mark.parametrize("tool", TOOLS, ids=lambda tool: str(tool["name"]))
def test_each_tool_is_annotated_so_that_it_may_be_called_unattended(tool: dict[str, Any]) -> None:
    hints = tool["annotations"]
    assert set(hints) == {"readOnlyHint", "destructiveHint", "openWorldHint"}
    assert hints["destructiveHint"] is False
    assert hints["openWorldHint"] is False
    assert len(tool["title"]) <= 30


@pytest.mark.parametrize("tool", TOOLS, ids=lambda tool: str(tool["name"]))
def test_each_description_ends_with_the_usual_next_step(tool: dict[str, Any]) -> None:
    steps = tool["description"].rpartition("Next: ")[2]
    assert 0 < len(steps) <= 90
    assert steps.endswith(".")
    assert set(re.findall(r"mbx_[a-z]+", tool["description"])) <= set(BY_NAME)


@pytest.mark.parametrize("tool", TOOLS, ids=lambda tool: str(tool["name"]))
def test_schemas_use_only_what_every_client_takes(tool: dict[str, Any]) -> None:
    schema = tool["inputSchema"]
    assert schema["type"] == "object"
    for entry in schema["properties"].values():
        assert set(entry) <= {"type", "description", "enum", "items", "minimum"}
        assert isinstance(entry["type"], str)  # a union is refused by some


def test_the_words_are_those_of_the_core() -> None:
    kinds = BY_NAME["mbx_send"]["inputSchema"]["properties"]["kind"]["enum"]
    outcomes = BY_NAME["mbx_ack"]["inputSchema"]["properties"]["outcome"]["enum"]
    assert tuple(kinds) == message.KINDS
    assert set(outcomes) == set(OUTCOMES)


def test_the_guide_names_tools_and_codes_that_exist() -> None:
    assert set(re.findall(r"mbx_[a-z]+", GUIDE + INSTRUCTIONS)) <= set(BY_NAME) | {PROMPT}
    assert {"lease-lost", "in-use"} <= set(EXIT_STATUS)
    assert GUIDE_URI == "mbx://guide"
    assert len(INSTRUCTIONS) <= 600
    assert len(GUIDE) <= 3_000
