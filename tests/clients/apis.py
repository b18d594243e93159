"""The APIs of model services, as far as agent clients use them: requests read, replies written.

Each API is a class: it reads a request body into the offered tools and the text of the
conversation, and writes a reply, whole or as the events of a stream. A reply is
``{"id", "text", "calls": [{"id", "name", "input", ...}]}``; a call carries what the API needs to
name its tool again.
"""

import json
import time
from collections.abc import Iterator
from typing import Any, ClassVar, Final, Protocol

Json = dict[str, Any]
"""An object of a request or of a reply."""


class Api(Protocol):
    """What the fake model needs of an API."""

    name: ClassVar[str]
    conversation: ClassVar[tuple[str, ...]]
    """The fields of a request that hold the conversation."""

    def tools(self, body: Json) -> dict[str, Json]:
        """The offered tools: full name -> what a call of it must carry besides."""

    def schema(self, body: Json) -> Json | None:
        """The JSON schema that the answer must have, where the request asks for one."""

    def streams(self, path: str, body: Json) -> bool:
        """Whether the reply is to be streamed."""

    def message(self, body: Json, reply: Json) -> Json:
        """A reply as one object."""

    def stream(self, body: Json, reply: Json) -> Iterator[bytes]:
        """A reply as the events of a stream."""

    def error(self, status: int, text: str) -> Json:
        """An error of the service."""


def sse(data: Any, event: str | None = None) -> bytes:
    """An event of a stream."""
    head = f"event: {event}\n" if event else ""
    return f"{head}data: {data if isinstance(data, str) else json.dumps(data)}\n\n".encode()


def halves(text: str) -> list[str]:
    """A text in two pieces, so that clients have to join a stream's deltas."""
    middle = len(text) // 2
    return [piece for piece in (text[:middle], text[middle:]) if piece]


class Anthropic:
    """Anthropic Messages: Claude Code."""

    name: ClassVar[str] = "anthropic-messages"
    conversation: ClassVar[tuple[str, ...]] = ("system", "messages")

    def tools(self, body: Json) -> dict[str, Json]:
        return {tool["name"]: {} for tool in body.get("tools", []) if "name" in tool}

    def schema(self, body: Json) -> Json | None:
        form = body.get("output_config", {}).get("format") or body.get("output_format") or {}
        return form.get("schema")

    def streams(self, path: str, body: Json) -> bool:
        return bool(body.get("stream"))

    def blocks(self, reply: Json) -> list[Json]:
        blocks: list[Json] = [{"type": "text", "text": reply["text"]}] if reply["text"] else []
        for call in reply["calls"]:
            blocks.append(
                {
                    "type": "tool_use",
                    "id": f"toolu_{call['id']}",
                    "name": call["name"],
                    "input": call["input"],
                }
            )
        return blocks

    def message(self, body: Json, reply: Json) -> Json:
        return {
            "id": f"msg_{reply['id']}",
            "type": "message",
            "role": "assistant",
            "model": body.get("model", "fake"),
            "content": self.blocks(reply),
            "stop_reason": "tool_use" if reply["calls"] else "end_turn",
            "stop_sequence": None,
            "usage": {
                "input_tokens": 10,
                "cache_creation_input_tokens": 0,
                "cache_read_input_tokens": 0,
                "output_tokens": 10,
            },
        }

    def stream(self, body: Json, reply: Json) -> Iterator[bytes]:
        message = self.message(body, reply)
        start = {**message, "content": [], "stop_reason": None}
        yield sse({"type": "message_start", "message": start}, "message_start")
        for index, block in enumerate(message["content"]):
            if block["type"] == "text":
                empty: Json = {"type": "text", "text": ""}
                deltas = [{"type": "text_delta", "text": piece} for piece in halves(block["text"])]
            else:
                empty = {**block, "input": {}}
                pieces = halves(json.dumps(block["input"]))
                deltas = [{"type": "input_json_delta", "partial_json": piece} for piece in pieces]
            head = {"index": index}
            yield sse(
                {"type": "content_block_start", **head, "content_block": empty},
                "content_block_start",
            )
            for delta in deltas:
                yield sse(
                    {"type": "content_block_delta", **head, "delta": delta}, "content_block_delta"
                )
            yield sse({"type": "content_block_stop", **head}, "content_block_stop")
        end = {"stop_reason": message["stop_reason"], "stop_sequence": None}
        yield sse(
            {"type": "message_delta", "delta": end, "usage": {"output_tokens": 10}}, "message_delta"
        )
        yield sse({"type": "message_stop"}, "message_stop")

    def error(self, status: int, text: str) -> Json:
        kinds = {
            400: "invalid_request_error",
            401: "authentication_error",
            429: "rate_limit_error",
            529: "overloaded_error",
        }
        return {"type": "error", "error": {"type": kinds.get(status, "api_error"), "message": text}}


class Responses:
    """OpenAI Responses: Codex."""

    name: ClassVar[str] = "openai-responses"
    conversation: ClassVar[tuple[str, ...]] = ("instructions", "input")

    def tools(self, body: Json) -> dict[str, Json]:
        found: dict[str, Json] = {}
        listed = list(body.get("tools") or [])
        items = body.get("input")
        for item in items if isinstance(items, list) else []:
            if isinstance(item, dict) and item.get("type") in (
                "additional_tools",
                "tool_search_output",
            ):
                listed += item.get("tools") or []
        for tool in listed:
            if tool.get("type") == "namespace":
                for inner in tool.get("tools", []):
                    found[f"{tool['name']}/{inner['name']}"] = {
                        "name": inner["name"],
                        "namespace": tool["name"],
                    }
            elif tool.get("name") or tool.get("type") == "tool_search":
                found[tool.get("name", "tool_search")] = {"kind": tool.get("type")}
        return found

    def schema(self, body: Json) -> Json | None:
        return ((body.get("text") or {}).get("format") or {}).get("schema")

    def streams(self, path: str, body: Json) -> bool:
        return bool(body.get("stream"))

    def items(self, reply: Json) -> list[Json]:
        items: list[Json] = []
        if reply["text"] or not reply["calls"]:
            content = [
                {"type": "output_text", "text": reply["text"], "annotations": [], "logprobs": []}
            ]
            items.append(
                {
                    "type": "message",
                    "id": f"msg_{reply['id']}",
                    "role": "assistant",
                    "status": "completed",
                    "content": content,
                }
            )
        for call in reply["calls"]:
            item = {
                "id": f"fc_{call['id']}",
                "call_id": f"call_{call['id']}",
                "name": call["name"],
                "status": "completed",
            }
            if call.get("kind") == "tool_search":
                del item["name"]
                item |= {
                    "type": "tool_search_call",
                    "execution": "client",
                    "arguments": call["input"],
                }
            elif call.get("kind") == "custom":
                item |= {
                    "type": "custom_tool_call",
                    "input": call["input"].get("input", json.dumps(call["input"])),
                }
            else:
                item |= {"type": "function_call", "arguments": json.dumps(call["input"])}
            if call.get("namespace"):
                item["namespace"] = call["namespace"]
            items.append(item)
        return items

    def message(self, body: Json, reply: Json) -> Json:
        return {
            "id": f"resp_{reply['id']}",
            "object": "response",
            "created_at": int(time.time()),
            "status": "completed",
            "model": body.get("model", "fake"),
            "output": self.items(reply),
            "error": None,
            "incomplete_details": None,
            "usage": {
                "input_tokens": 10,
                "input_tokens_details": {"cached_tokens": 0},
                "output_tokens": 10,
                "output_tokens_details": {"reasoning_tokens": 0},
                "total_tokens": 20,
            },
        }

    def stream(self, body: Json, reply: Json) -> Iterator[bytes]:
        number = 0

        def event(kind: str, **fields: Any) -> bytes:
            nonlocal number
            number += 1
            return sse({"type": kind, "sequence_number": number - 1, **fields}, kind)

        whole = self.message(body, reply)
        begun = {**whole, "status": "in_progress", "output": [], "usage": None}
        yield event("response.created", response=begun)
        yield event("response.in_progress", response=begun)
        for index, item in enumerate(whole["output"]):
            place = {"output_index": index, "item_id": item["id"]}
            if item["type"] == "message":
                part = item["content"][0]
                yield event(
                    "response.output_item.added",
                    output_index=index,
                    item={**item, "status": "in_progress", "content": []},
                )
                yield event(
                    "response.content_part.added",
                    **place,
                    content_index=0,
                    part={**part, "text": ""},
                )
                for piece in halves(part["text"]):
                    yield event(
                        "response.output_text.delta",
                        **place,
                        content_index=0,
                        delta=piece,
                        logprobs=[],
                    )
                yield event(
                    "response.output_text.done",
                    **place,
                    content_index=0,
                    text=part["text"],
                    logprobs=[],
                )
                yield event("response.content_part.done", **place, content_index=0, part=part)
            elif item["type"] == "tool_search_call":
                yield event(
                    "response.output_item.added",
                    output_index=index,
                    item={**item, "status": "in_progress"},
                )
            else:
                field, kind = (
                    ("input", "custom_tool_call_input")
                    if item["type"] == "custom_tool_call"
                    else ("arguments", "function_call_arguments")
                )
                yield event(
                    "response.output_item.added",
                    output_index=index,
                    item={**item, "status": "in_progress", field: ""},
                )
                for piece in halves(item[field]):
                    yield event(f"response.{kind}.delta", **place, delta=piece)
                yield event(f"response.{kind}.done", **place, **{field: item[field]})
            yield event("response.output_item.done", output_index=index, item=item)
        yield event("response.completed", response=whole)

    def error(self, status: int, text: str) -> Json:
        return {
            "error": {"type": "fake_error", "code": str(status), "message": text, "param": None}
        }


class Chat:
    """OpenAI Chat Completions: OpenCode, Kimi, Qwen Code, Copilot CLI."""

    name: ClassVar[str] = "openai-chat"
    conversation: ClassVar[tuple[str, ...]] = ("messages",)

    def tools(self, body: Json) -> dict[str, Json]:
        return {
            tool["function"]["name"]: {} for tool in body.get("tools") or [] if "function" in tool
        }

    def schema(self, body: Json) -> Json | None:
        return ((body.get("response_format") or {}).get("json_schema") or {}).get("schema")

    def streams(self, path: str, body: Json) -> bool:
        return bool(body.get("stream"))

    def calls(self, reply: Json) -> list[Json]:
        return [
            {
                "index": index,
                "id": f"call_{call['id']}",
                "type": "function",
                "function": {"name": call["name"], "arguments": json.dumps(call["input"])},
            }
            for index, call in enumerate(reply["calls"])
        ]

    def frame(self, body: Json, reply: Json, kind: str) -> Json:
        return {
            "id": f"chatcmpl_{reply['id']}",
            "object": kind,
            "created": int(time.time()),
            "model": body.get("model", "fake"),
            "choices": [],
        }

    usage: ClassVar[Json] = {"prompt_tokens": 10, "completion_tokens": 10, "total_tokens": 20}

    def message(self, body: Json, reply: Json) -> Json:
        said: Json = {"role": "assistant", "content": reply["text"] or None}
        if reply["calls"]:
            said["tool_calls"] = [
                {k: v for k, v in call.items() if k != "index"} for call in self.calls(reply)
            ]
        choice = {
            "index": 0,
            "message": said,
            "finish_reason": "tool_calls" if reply["calls"] else "stop",
        }
        return {
            **self.frame(body, reply, "chat.completion"),
            "choices": [choice],
            "usage": self.usage,
        }

    def stream(self, body: Json, reply: Json) -> Iterator[bytes]:
        frame = self.frame(body, reply, "chat.completion.chunk")

        def chunk(delta: Json, finish: str | None = None) -> bytes:
            return sse(
                {**frame, "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}
            )

        yield chunk({"role": "assistant", "content": ""})
        for piece in halves(reply["text"]):
            yield chunk({"content": piece})
        for call in self.calls(reply):
            first = {**call, "function": {**call["function"], "arguments": ""}}
            yield chunk({"tool_calls": [first]})
            for piece in halves(call["function"]["arguments"]):
                yield chunk(
                    {"tool_calls": [{"index": call["index"], "function": {"arguments": piece}}]}
                )
        yield chunk({}, "tool_calls" if reply["calls"] else "stop")
        yield sse({**frame, "usage": self.usage})
        yield sse("[DONE]")

    def error(self, status: int, text: str) -> Json:
        return {"error": {"type": "fake_error", "code": status, "message": text, "param": None}}


class Gemini:
    """Google Gemini: Gemini CLI."""

    name: ClassVar[str] = "gemini"
    conversation: ClassVar[tuple[str, ...]] = (
        "systemInstruction",
        "system_instruction",
        "contents",
    )

    def tools(self, body: Json) -> dict[str, Json]:
        return {
            declared["name"]: {}
            for tool in body.get("tools", [])
            for declared in tool.get("functionDeclarations", tool.get("function_declarations", []))
        }

    def schema(self, body: Json) -> Json | None:
        config: Json = body.get("generationConfig", {})
        return config.get("responseJsonSchema") or config.get("responseSchema")

    def streams(self, path: str, body: Json) -> bool:
        return ":streamGenerateContent" in path

    def message(self, body: Json, reply: Json) -> Json:
        parts: list[Json] = [{"text": reply["text"]}] if reply["text"] else []
        for call in reply["calls"]:
            parts.append(
                {
                    "functionCall": {
                        "id": f"call_{call['id']}",
                        "name": call["name"],
                        "args": call["input"],
                    }
                }
            )
        return {
            "candidates": [
                {"content": {"role": "model", "parts": parts}, "finishReason": "STOP", "index": 0}
            ],
            "usageMetadata": {
                "promptTokenCount": 10,
                "candidatesTokenCount": 10,
                "totalTokenCount": 20,
            },
            "modelVersion": "fake",
            "responseId": reply["id"],
        }

    def stream(self, body: Json, reply: Json) -> Iterator[bytes]:
        yield sse(self.message(body, reply))

    def error(self, status: int, text: str) -> Json:
        return {"error": {"code": status, "message": text, "status": "UNAVAILABLE"}}


API_OF_PATH: Final[list[tuple[str, Api]]] = [
    (r"/messages$", Anthropic()),
    (r"/responses$", Responses()),
    (r"/chat/completions$", Chat()),
    (r"/models/[^/]+:(generate|streamGenerate)Content$", Gemini()),
]
"""Pattern of a request's path -> the API that it belongs to."""
