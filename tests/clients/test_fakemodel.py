"""The fake model by itself: every API, whole and streamed, without any client."""

import json
import urllib.error
import urllib.request
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.clients.apis import Json
from tests.clients.fakemodel import FakeModel
from tests.clients.script import Script, find_tool, sample

TURNS: list[Json] = [
    {"text": "Let me look.", "tool": "mbx_inbox", "input": {"limit": 5}, "expect": ["any mail?"]},
    {
        "text": "Done: {{id}}.",
        "capture": {"id": "msg_[0-9]+"},
        "expect": ["hello"],
        "reject": ["goodbye"],
    },
]
SCHEMA = {"type": "object", "properties": {"limit": {"type": "integer"}}}

Ask = Callable[[str, bool], tuple[str, Json]]
"""Path and body of a request in which the user said something, to be streamed or not."""


def post(url: str, body: Json) -> tuple[int, str]:
    raw = json.dumps(body).encode()
    request = urllib.request.Request(url, raw, {"Authorization": "Bearer secret"})
    try:
        with urllib.request.urlopen(request) as response:
            return response.status, response.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def events(text: str) -> list[Json]:
    lines = [line[6:] for line in text.splitlines() if line.startswith("data: ")]
    return [json.loads(line) for line in lines if line != "[DONE]"]


def anthropic(said: str, stream: bool) -> tuple[str, Json]:
    tools = [{"name": "mcp__mbx__mbx_inbox", "input_schema": SCHEMA}]
    said_so = [{"role": "user", "content": said}]
    return "/v1/messages", {"messages": said_so, "tools": tools, "stream": stream}


def responses(said: str, stream: bool) -> tuple[str, Json]:
    inner = {"type": "function", "name": "mbx_inbox", "parameters": SCHEMA}
    tools = [{"type": "namespace", "name": "mcp__mbx", "tools": [inner]}]
    said_so = [{"role": "user", "content": said}]
    return "/v1/responses", {"input": said_so, "tools": tools, "stream": stream}


def chat(said: str, stream: bool) -> tuple[str, Json]:
    tools = [{"type": "function", "function": {"name": "mbx_mbx_inbox", "parameters": SCHEMA}}]
    said_so = [{"role": "user", "content": said}]
    return "/v1/chat/completions", {"messages": said_so, "tools": tools, "stream": stream}


def gemini(said: str, stream: bool) -> tuple[str, Json]:
    tools = [{"functionDeclarations": [{"name": "mcp_mbx_mbx_inbox", "parameters": SCHEMA}]}]
    verb = "streamGenerateContent?alt=sse" if stream else "generateContent"
    contents = [{"role": "user", "parts": [{"text": said}]}]
    return f"/v1beta/models/fake:{verb}", {"contents": contents, "tools": tools}


@pytest.mark.parametrize("ask", [anthropic, responses, chat, gemini])
@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("lane", ["", "/ben"])
def test_every_api_plays_the_turns_of_a_lane(ask: Ask, stream: bool, lane: str) -> None:
    with FakeModel({"lanes": {"ben": TURNS}} if lane else TURNS) as model:
        answers = []
        for said in ("any mail?", "msg_42 says hello"):
            path, body = ask(said, stream)
            status, text = post(model.url + lane + path, body)
            assert status == 200
            answers.append(text)
            assert events(text) or not stream
        model.check()
        first, second = model.of(lane.strip("/") or "main")
    assert first.calls[0][0].endswith("mbx_inbox")
    assert second.said == "Done: msg_42."
    assert "mbx_inbox" in answers[0]
    assert "msg_42" in answers[1]


def test_the_pieces_of_a_stream_join_to_the_whole() -> None:
    with FakeModel([{"text": "Hello there."}] * 3) as model:

        def pieces(path: str, body: Json) -> list[Json]:
            return events(post(model.url + path, body)[1])

        told = pieces(*anthropic("x", True))
        deltas = [one["delta"] for one in told if one["type"] == "content_block_delta"]
        assert "".join(delta["text"] for delta in deltas) == "Hello there."
        told = pieces(*responses("x", True))
        spoken = [one["delta"] for one in told if one["type"] == "response.output_text.delta"]
        assert "".join(spoken) == "Hello there."
        assert [one["sequence_number"] for one in told] == list(range(len(told)))
        told = pieces(*chat("x", True))
        choices = [choice for one in told for choice in one["choices"]]
        assert "".join(choice["delta"].get("content") or "" for choice in choices) == "Hello there."


def test_requests_without_tools_take_no_turn() -> None:
    path, body = anthropic("title?", False)
    del body["tools"]
    with FakeModel(TURNS) as model:
        assert json.loads(post(model.url + path, body)[1])["content"][0]["text"] == "ok"
        schema = {"type": "object", "properties": {"title": {"type": "string"}}}
        body["output_config"] = {"format": {"type": "json_schema", "schema": schema}}
        told = json.loads(post(model.url + path, body)[1])["content"][0]["text"]
        assert json.loads(told) == {"title": "ok"}
        assert model.script.left() == {"main": 2}


def test_expectations_that_fail_and_turns_that_are_left_are_told() -> None:
    with FakeModel(TURNS) as model:
        post(model.url + "/v1/messages", anthropic("something else", False)[1])
        with pytest.raises(AssertionError, match=r"lacks 'any mail\?'"):
            model.check()
        assert "lane 'main': 1 turns were not asked for" in model.problems()


def test_a_tool_that_is_not_offered_is_searched_for_first() -> None:
    tools: list[Json] = [{"name": "ToolSearch", "input_schema": {}}]
    body: Json = {"messages": [], "tools": tools}
    with FakeModel([{"tool": "mbx_inbox"}, {"text": "Done."}]) as model:
        found = json.loads(post(model.url + "/v1/messages", body)[1])["content"][0]
        assert (found["name"], found["input"]) == ("ToolSearch", {"query": "mbx_inbox"})
        tools.append({"name": "mcp__mbx__mbx_inbox", "input_schema": {}})
        found = json.loads(post(model.url + "/v1/messages", body)[1])["content"][0]
        assert found["name"] == "mcp__mbx__mbx_inbox"
        post(model.url + "/v1/messages", body)
        model.check()


def test_an_error_of_the_service_can_be_scripted() -> None:
    with FakeModel([{"status": 529}]) as model:
        status, text = post(model.url + "/v1/messages", anthropic("x", True)[1])
    assert (status, json.loads(text)["error"]["type"]) == (529, "overloaded_error")


def test_a_turn_waits_until_its_gate_is_opened() -> None:
    path, body = anthropic("x", False)
    with (
        FakeModel([{"text": "Late.", "until": "gate"}]) as model,
        ThreadPoolExecutor(1) as pool,
    ):
        waiting = pool.submit(post, model.url + path, body)
        model.wait_for(0)
        assert not waiting.done()
        model.open("gate")
        assert "Late." in waiting.result()[1]


def test_fields_that_no_turn_has_are_refused() -> None:
    with pytest.raises(ValueError, match="unknown fields"):
        Script([{"tol": "mbx_inbox"}])


def test_the_shortest_offered_name_that_ends_so_is_the_tool() -> None:
    tools: dict[str, Json] = {
        "mcp__mbx__mbx_inbox": {},
        "mcp__mbx__mbx_inbox_all": {},
        "xmbx_inbox": {},
    }
    assert find_tool("mbx_inbox", tools) == "mcp__mbx__mbx_inbox"
    assert find_tool("inbox", {"mbx_inbox": {}}) == "mbx_inbox"
    assert find_tool("outbox", tools) is None


def test_a_sample_fits_its_schema() -> None:
    listed = {"type": "array", "items": {"type": "STRING"}, "minItems": 1}
    schema: dict[str, Any] = {"type": "object", "properties": {"a": {"enum": ["x"]}, "b": listed}}
    assert sample(schema) == {"a": "x", "b": ["ok"]}
