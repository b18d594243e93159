"""A scripted stand-in for a model service: agent clients think they speak to a model.

Everything around the model stays real: the client starts its MCP servers, calls their tools, runs
its hooks and puts their output into its next request, which is recorded here. APIs are told apart
by the path of the request, all on one port of the loopback address (`tests.clients.apis`); what is
answered is a script's next turn (`tests.clients.script`).

Clients also ask for titles, summaries and the like. Such requests offer no tools: they are answered
with the script's ``side`` text, or with a value of the schema they ask for, and take no turn.

Several clients can use one server, each in a lane of its own: the lane's name stands in front of
the path of the base URL (``model.url + "/ana"``). Without one the lane is "main".

It knows no credentials, takes any key, and never records a header that carries one.
"""

import gzip
import json
import re
import threading
import zlib
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar, Final, Self

from tests.clients.apis import API_OF_PATH, Api, Json
from tests.clients.script import Script, calls_of, find_tool, indirect, sample, strings

_SEARCH_TOOLS: Final = ("ToolSearch", "tool_search")
"""Some clients offer the tools of MCP servers only after a search."""

_SEARCHES_MAX: Final = 3
_SEARCH_PAUSE_S: Final = 1.0
"""Between two searches: clients start MCP servers while the first turn runs."""

_GATE_S: Final = 60.0
"""A turn that waits for a gate goes on after this long."""

_API_WORDS: Final = frozenset(
    "v1 v1beta v1alpha v2 messages responses chat models api backend-api".split()
)
"""What a path begins with when it names no lane."""


@dataclass(frozen=True)
class Request:
    """A request that took a turn: what the client sent, and what it was answered."""

    lane: str
    turn: int | None
    strings: tuple[str, ...]
    tools: tuple[str, ...]
    said: str
    calls: tuple[tuple[str, Json], ...]
    body: Json
    is_search: bool = False
    """It was answered with a search for the turn's tools; the turn is still to be played."""

    @property
    def text(self) -> str:
        """Every string of the conversation that the client sent."""
        return "\n".join(self.strings)


class FakeModel:
    """The server. Use it in ``with``."""

    def __init__(self, script: list[Json] | Json) -> None:
        self.script = Script(script)
        self.requests: list[Request] = []
        self.failures: list[str] = []
        self.ended = threading.Event()
        self._changed = threading.Condition()
        self._serial = 0
        self._gates: dict[str, threading.Event] = {}
        model = self

        class Bound(_Handler):
            fake = model

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Bound)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.ended.set()
        with self._changed:
            for gate in self._gates.values():
                gate.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    # -- what tests ask -------------------------------------------------------------------------

    def of(self, lane: str = "main") -> list[Request]:
        """The requests of a lane that took a turn, or came after its last one."""
        with self._changed:
            return [one for one in self.requests if one.lane == lane]

    def text(self, number: int = -1, lane: str = "main") -> str:
        """The text of one of them."""
        return self.of(lane)[number].text

    def wait_for(self, turn: int, lane: str = "main", within_s: float = 60) -> Request:
        """Wait until a turn of a lane is played; the request that it answers."""

        def found() -> Request | None:
            own = (one for one in self.requests if one.lane == lane)
            return next((one for one in own if one.turn == turn and not one.is_search), None)

        with self._changed:
            told = self._changed.wait_for(found, within_s)
            assert told is not None, f"turn {turn} of {lane!r} does not come: {self.problems()}"
        return told

    def open(self, gate: str) -> None:
        """Let the turns that wait for a gate go on."""
        self.gate(gate).set()

    def gate(self, name: str) -> threading.Event:
        """The gate of this name."""
        with self._changed:
            return self._gates.setdefault(name, threading.Event())

    def problems(self) -> list[str]:
        """Expectations that failed, and turns that nobody asked for."""
        with self._changed:
            left = [
                f"lane {lane!r}: {count} turns were not asked for"
                for lane, count in self.script.left().items()
                if count
            ]
            return self.failures + left

    def check(self) -> None:
        """Raise AssertionError if an expectation failed or turns are left."""
        problems = self.problems()
        assert not problems, "\n".join(problems)

    # -- what a request gets ----------------------------------------------------------------------

    def answer(self, api: Api, lane: str, body: Json) -> tuple[Json, Json]:
        """Record a request and choose its turn: the turn, and the reply."""
        tools = api.tools(body)
        told = tuple(one for field in api.conversation for one in strings(body.get(field)))
        with self._changed:
            self._serial += 1
            reply: Json = {"id": f"fake{self._serial}", "text": "", "calls": []}
            if not tools:
                schema = api.schema(body)
                reply["text"] = json.dumps(sample(schema)) if schema else self.script.side
                return {}, reply
            turn = self._play(lane, tools, told, reply, body)
            self._changed.notify_all()
        return turn, reply

    def _play(
        self, lane: str, tools: dict[str, Json], told: tuple[str, ...], reply: Json, body: Json
    ) -> Json:
        """Fill in the reply from the lane's next turn, or from a search for its tools."""
        text = "\n".join(told)
        number, turn = self.script.next(lane)
        calls = [indirect(call, tools, text) for call in calls_of(turn)]
        missing = [call["tool"] for call in calls if not find_tool(call["tool"], tools)]
        search = next((name for name in _SEARCH_TOOLS if name in tools), None)
        searches = self.script.searches.get((lane, number), 0)
        is_search = bool(missing and search and searches < _SEARCHES_MAX)
        if is_search:
            # As a model does: the tool is looked up first, and the turn played after that.
            self.script.searches[lane, number] = searches + 1
            turn = {"pause_s": _SEARCH_PAUSE_S} if searches else {}
            calls = [{"tool": search, "input": {"query": " ".join(missing)}}]
        else:
            self.script.take(lane, number)
        problems = self.script.judge(lane, turn, text, tools)
        reply["text"] = self.script.fill(lane, turn.get("text", ""))
        for call in calls:
            if name := find_tool(call["tool"], tools):
                place = {"id": f"{reply['id']}_{len(reply['calls'])}", "name": name, **tools[name]}
                given = self.script.fill(lane, call.get("input", {}))
                reply["calls"].append(place | {"input": given})
            else:
                problems.append(f"the turn calls {call['tool']!r}, which is not offered")
        if calls and not reply["calls"] and not reply["text"]:
            reply["text"] = f"(no tool {calls[0]['tool']} is offered)"
        self.failures += [f"lane {lane!r}, turn {number}: {problem}" for problem in problems]
        names = tuple((call["name"], call["input"]) for call in reply["calls"])
        offered, said = tuple(sorted(tools)), reply["text"]
        self.requests.append(Request(lane, number, told, offered, said, names, body, is_search))
        return turn


class _Handler(BaseHTTPRequestHandler):
    fake: ClassVar[FakeModel]
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  (its name upstream)
        """Nothing is logged."""

    def do_HEAD(self) -> None:
        """A sign of life."""
        self._send({})

    def do_GET(self) -> None:
        """The list of models."""
        _, path = self._lane()
        if not path.endswith("/models"):
            self._send({"error": {"message": f"nothing at GET {path}"}}, 404)
            return
        model = {"id": "fake-model", "object": "model", "type": "model", "display_name": "Fake"}
        self._send({"object": "list", "data": [model], "models": [], "has_more": False})

    def do_POST(self) -> None:
        """A request to the model, or for the number of its tokens."""
        lane, path = self._lane()
        try:
            body = json.loads(self._body() or b"{}")
        except ValueError:
            self._send({"error": {"message": "the body is no JSON"}}, 400)
            return
        api = next((api for pattern, api in API_OF_PATH if re.search(pattern, path)), None)
        if path.endswith("count_tokens"):
            self._send({"input_tokens": 10})
        elif path.endswith(":countTokens"):
            self._send({"totalTokens": 10})
        elif api is None:
            self._send({"error": {"message": f"nothing at POST {path}"}}, 404)
        else:
            self._play(api, lane, path, body)

    # -- inside -----------------------------------------------------------------------------------

    def _lane(self) -> tuple[str, str]:
        path = self.path.split("?")[0]
        first, _, rest = path.lstrip("/").partition("/")
        if first and first not in _API_WORDS and rest:
            return first, "/" + rest
        return "main", path

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding", "").lower() == "chunked":
            pieces = []
            while size := int(self.rfile.readline().split(b";")[0], 16):
                pieces.append(self.rfile.read(size))
                self.rfile.readline()
            self.rfile.readline()
            raw = b"".join(pieces)
        else:
            raw = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        coding = self.headers.get("Content-Encoding", "")
        if coding == "gzip":
            return gzip.decompress(raw)
        return zlib.decompress(raw) if coding == "deflate" else raw

    def _send(self, told: Any, status: int = 200) -> None:
        raw = json.dumps(told).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(raw)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(raw)

    def _play(self, api: Api, lane: str, path: str, body: Json) -> None:
        turn, reply = self.fake.answer(api, lane, body)
        if "pause_s" in turn:
            self.fake.ended.wait(turn["pause_s"])
        if "until" in turn:
            self.fake.gate(turn["until"]).wait(_GATE_S)
        try:
            self._reply(api, path, body, turn, reply)
        except (BrokenPipeError, ConnectionResetError):
            pass  # the client went away

    def _reply(self, api: Api, path: str, body: Json, turn: Json, reply: Json) -> None:
        if status := turn.get("status"):
            self._send(api.error(status, reply["text"] or "an error was scripted"), status)
            return
        if not api.streams(path, body):
            self._send(api.message(body, reply))
            return
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Cache-Control", "no-cache")
        self.send_header("Connection", "close")
        self.end_headers()
        self.close_connection = True
        for piece in api.stream(body, reply):
            self.wfile.write(piece)
            self.wfile.flush()
