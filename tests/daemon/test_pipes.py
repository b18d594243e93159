"""Pipes, line by line: numbers, limits, what is refused, and what is accounted for."""

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any, Final

import pytest

from mbx.core.limits import PIPE_LINES_MAX, PROJECT_MAX_CHARS, REQUEST_LINE_MAX_BYTES
from mbx.daemon.faces.pipes import Pipe, PipeHello, Pipes, read_hello
from tests.support.daemon import Agent, Daemon, Line, RefusedError, fresh_home, fresh_name
from tests.support.mcp import HANDSHAKE
from tests.support.patience import looks
from tests.support.worlds import without_module

PIPE = "0123456789abcdef" * 2


@pytest.fixture
def pipe(agent: Agent) -> Iterator[Line]:
    """A connection that has become a pipe and is greeted."""
    with agent.bare() as line:
        line.hello(holder="self", pipe={"id": PIPE})
        greet(line)
        yield line


def greet(line: Line) -> None:
    client = {"name": "test", "version": "0"}
    ask(line, 1, "initialize", protocolVersion=HANDSHAKE, capabilities={}, clientInfo=client)
    write(line, 2, {"jsonrpc": "2.0", "method": "notifications/initialized"})


def write(line: Line, number: int, message: object) -> None:
    line.write(f"{number} {json.dumps(message)}\n".encode())


def ask(line: Line, number: int, method: str, **params: Any) -> dict[str, Any]:
    write(line, number, {"jsonrpc": "2.0", "id": number, "method": method, "params": params})
    told = line.read()
    assert told["id"] == number, told
    result = told["result"]
    assert isinstance(result, dict)
    return result


def call(line: Line, number: int, tool: str, **arguments: Any) -> dict[str, Any]:
    told = ask(line, number, "tools/call", name=tool, arguments=arguments)["structuredContent"]
    assert isinstance(told, dict)
    return told


# -- hello ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "said",
    [
        7,
        [],
        {},
        {"id": "short"},
        {"id": PIPE.upper()},
        {"id": PIPE + "0"},
        {"id": PIPE, "project": 7},
        {"id": PIPE, "project": "a\0b"},
        {"id": PIPE, "project": "x" * (PROJECT_MAX_CHARS + 1)},
        {"id": PIPE, "again": 1},
    ],
)
def test_a_hello_that_names_no_pipe_is_refused_and_nothing_was_said(
    agent: Agent, said: Any
) -> None:
    with agent.bare() as line:
        with pytest.raises(RefusedError) as refusal:
            line.hello(holder="self", pipe=said)
        assert refusal.value.data["code"] == "usage"
        line.hello()
        assert line.call("session.whoami")["agent"] is None


@pytest.mark.parametrize("chars", [PROJECT_MAX_CHARS - 1, PROJECT_MAX_CHARS])
def test_a_project_may_have_its_limit(chars: int) -> None:
    hello = read_hello({"id": PIPE, "project": "x" * chars})
    assert hello is not None
    assert hello.project is not None
    assert len(hello.project) == chars
    assert read_hello(None) is None


# -- lines ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "raw",
    [
        b"\n",
        b"{}\n",
        b"x {}\n",
        b"07 {}\n",
        b"-1 {}\n",
        b"1234567890123456789 {}\n",
        b"5 \n",
        b"5 nonsense\n",
        b"5 []\n",
        b'5 {"a": 1, "a": 2}\n',
        b'5 {"a": NaN}\n',
        b"5 " + b'{"a":' * 50 + b"1" + b"}" * 50 + b"\n",
        b"5 " + b"x" * REQUEST_LINE_MAX_BYTES + b"\n",
    ],
)
def test_a_line_that_is_none_is_answered_and_the_next_one_is_read(pipe: Line, raw: bytes) -> None:
    pipe.write(raw)
    told = pipe.read()
    assert told["id"] is None
    assert "error" in told
    assert call(pipe, 9, "mbx_whoami")["agent"] is None


def test_the_same_number_of_the_same_pipe_does_nothing_twice(agent: Agent) -> None:
    name, ids = fresh_name(), []
    for attempt in range(2):
        with agent.bare() as line:
            line.hello(holder="self", pipe={"id": PIPE, "again": attempt > 0})
            greet(line)
            if attempt:
                assert line.read()["method"] == "notifications/tools/list_changed"
            call(line, 3, "mbx_identity", action="register", name=name, role="tester")
            ids.append(call(line, 4, "mbx_send", to=name, subject="s", body="b")["id"])
    assert len(set(ids)) == 1
    with agent.connect() as line:
        assert line.call("mail.inbox")["unread"] == 1
        line.call("identity.release", key="k")


def test_another_request_under_a_number_that_was_used_is_a_conflict(
    agent: Agent, pipe: Line
) -> None:
    name = fresh_name()
    call(pipe, 3, "mbx_identity", action="register", name=name, role="tester")
    one = call(pipe, 4, "mbx_send", to=name, subject="s", body="b", key="mine")
    again = call(pipe, 5, "mbx_send", to=name, subject="s", body="b", key="mine")
    assert (again["id"], again["duplicate"]) == (one["id"], True)
    told = call(pipe, 6, "mbx_send", to=name, subject="other", body="b", key="mine")
    assert told["code"] == "idempotency-conflict"
    call(pipe, 7, "mbx_identity", action="release")


def test_memory_of_many_lines_is_given_back(daemon: Daemon, pipe: Line) -> None:
    body = "x" * 200_000
    note = {"jsonrpc": "2.0", "method": "notifications/x", "params": {"a": body}}
    for number in range(10, 40):
        told = ask(pipe, number, "tools/call", name="mbx_send", arguments={"to": "a", "body": body})
        assert told["isError"] is True
        write(
            pipe,
            number + 100,
            {"jsonrpc": "2.0", "method": "notifications/x", "params": {"a": body}},
        )
    for number in range(300, 500):  # far over what may wait in all, if it were kept
        write(pipe, number, note)
    assert call(pipe, 600, "mbx_whoami")["agent"] is None


def test_a_pipe_that_hangs_up_leaves_nothing_behind(daemon: Daemon, agent: Agent) -> None:
    def hang_up() -> None:
        with agent.bare() as line:
            line.hello(holder="self", pipe={"id": PIPE})
            greet(line)
            call(line, 3, "mbx_whoami")
            write(line, 4, {"jsonrpc": "2.0", "id": 4, "method": "tools/list"})

    hang_up()
    before = daemon.open_descriptors()
    for _ in range(20):
        hang_up()
    assert any(daemon.open_descriptors() <= before for _ in looks())


def test_a_pipe_that_says_no_more_is_answered_and_closed(agent: Agent) -> None:
    with agent.bare() as line:
        line.hello(holder="self", pipe={"id": PIPE})
        greet(line)
        call(line, 3, "mbx_whoami")  # from here on it is the SDK that answers
        asked = {"jsonrpc": "2.0", "id": 4, "method": "tools/call", "params": {"name": "mbx_inbox"}}
        write(line, 4, asked)
        line.socket.shutdown(socket.SHUT_WR)
        assert line.read()["id"] == 4
        assert line.is_closed()


# -- limits ---------------------------------------------------------------------------------------


class Unread:
    """A connection that only counts."""

    def __init__(self) -> None:
        self.written: list[bytes] = []
        self.under_way = 0
        self.released_bytes = 0

    def ask(self, method: str, params: Any, done: Any) -> None:
        raise AssertionError("nobody reads the lines")

    def hook_answer(self, event: str, known: dict[str, Any]) -> dict[str, Any]:
        raise AssertionError("nobody reads the lines")

    def write_line(self, line: bytes) -> None:
        self.written.append(line)

    def taken(self) -> None:
        self.under_way += 1

    def settled(self) -> None:
        self.under_way -= 1

    def forgotten(self, size_bytes: int) -> None:
        self.released_bytes += size_bytes


@pytest.mark.parametrize(
    ("count", "refused"), [(PIPE_LINES_MAX - 1, 0), (PIPE_LINES_MAX, 0), (PIPE_LINES_MAX + 1, 1)]
)
async def test_lines_that_nobody_looked_at_are_bounded(count: int, refused: int) -> None:
    connected = Unread()
    pipe = Pipe(connected, PipeHello(PIPE))
    line = b'1 {"jsonrpc": "2.0", "method": "notifications/x"}'
    for _ in range(count):
        pipe.receive(line)
    assert len(connected.written) == refused
    assert connected.released_bytes == refused * (len(line) + 1)
    assert pipe.lines.qsize() == min(count, PIPE_LINES_MAX)


async def test_requests_are_counted_until_they_are_answered_and_streams_are_not() -> None:
    connected = Unread()
    pipe = Pipe(connected, PipeHello(PIPE))
    for number, method in enumerate(
        ("initialize", "tools/call", "tools/call", "subscriptions/listen")
    ):
        text = json.dumps({"jsonrpc": "2.0", "id": number, "method": method, "params": {}})
        pipe.receive(b"%d %s" % (number, text.encode()))
    assert connected.under_way == 2
    assert len(connected.written) == 1, "the handshake is answered at once"
    pipe.answered(1)
    pipe.answered(1)
    pipe.answered("2")
    pipe.answered(None)
    assert connected.under_way == 1
    pipe.answered(2)
    assert connected.under_way == 0


# -- failures -------------------------------------------------------------------------------------


def numbered(number: int, message: object) -> bytes:
    return f"{number} {json.dumps(message)}".encode()


def asked(number: int, method: str = "tools/call") -> bytes:
    """A line with a request, of which line and request have the same number."""
    return numbered(number, {"jsonrpc": "2.0", "id": number, "method": method, "params": {}})


def failures(written: list[bytes]) -> list[object]:
    """The ids of the requests that were answered with an internal error; nothing else was."""
    told = [json.loads(line) for line in written]
    assert {one["error"]["code"] for one in told} <= {-32603}
    return [one["id"] for one in told]


NOTE: Final = {"jsonrpc": "2.0", "method": "notifications/x"}


async def test_a_pipe_that_failed_answers_all_that_is_asked_and_keeps_nothing() -> None:
    connected = Unread()
    pipe = Pipe(connected, PipeHello(PIPE))
    lines = [asked(1), asked(1), asked(2), numbered(3, NOTE), asked(4, "subscriptions/listen")]
    for line in lines:
        pipe.receive(line)
    first = pipe.lines.get_nowait()
    assert first is not None
    pipe.passed_on(first)
    pipe.fail()
    assert sorted(map(str, failures(connected.written))) == ["1", "1", "2", "4"]
    later = [asked(5), asked(6, "initialize"), numbered(7, NOTE), numbered(8, {"id": 8})]
    for line in later:
        pipe.receive(line)
    assert failures(connected.written[4:]) == [5, 6]
    assert (connected.under_way, pipe.lines.qsize()) == (0, 0)
    assert connected.released_bytes == sum(len(line) + 1 for line in (*lines, *later))


async def test_a_pipe_that_failed_does_not_answer_again_what_was_answered() -> None:
    connected = Unread()
    pipe = Pipe(connected, PipeHello(PIPE))
    line = asked(1, "initialize")
    pipe.receive(line)
    pipe.fail()
    assert [json.loads(one).keys() for one in connected.written] == [{"jsonrpc", "id", "result"}]
    assert connected.released_bytes == len(line) + 1


async def test_an_id_that_is_used_twice_gives_back_its_bytes_twice() -> None:
    connected = Unread()
    pipe = Pipe(connected, PipeHello(PIPE))
    lines = [asked(1), asked(1), numbered(2, {"jsonrpc": "2.0", "id": 1, "result": {}})]
    for line in lines:
        pipe.receive(line)
        read = pipe.lines.get_nowait()
        assert read is not None
        pipe.passed_on(read)
    pipe.answered(1)
    assert connected.released_bytes == sum(len(line) + 1 for line in lines)


async def test_true_is_no_id_and_settles_no_request_of_another() -> None:
    connected = Unread()
    pipe = Pipe(connected, PipeHello(PIPE))
    pipe.receive(asked(1))
    pipe.receive(numbered(2, {"jsonrpc": "2.0", "id": True, "method": "tools/call"}))
    pipe.answered(True)
    assert connected.under_way == 1


class Reading:
    """A server that reads its lines and answers nothing; at a notification it fails."""

    def __init__(self) -> None:
        self.read: list[int] = []

    async def serve(self, pipe: Pipe) -> None:
        while (line := await pipe.lines.get()) is not None:
            pipe.passed_on(line)
            if line.request_id is None:
                raise RuntimeError("inside")
            self.read.append(line.number)


class Bench:
    """The pipes of a daemon, with a server that can be loaded at the `tries`-th attempt."""

    def __init__(self, tries: int = 1) -> None:
        self.server = Reading()
        self.said: list[str] = []
        self._left = tries
        self.pipes = Pipes(self._load, lambda event, **_: self.said.append(event))

    def _load(self) -> Reading:
        self._left -= 1
        if self._left:
            raise ImportError("no SDK")
        return self.server

    def open(self) -> tuple[Pipe, Unread]:
        connected = Unread()
        pipe = Pipe(connected, PipeHello(PIPE))
        self.pipes.opened(pipe)
        return pipe, connected

    async def until(self, seen: Callable[[], bool]) -> None:
        for _ in looks():
            await asyncio.sleep(0)
            if seen():
                return
        raise AssertionError(f"it did not come to that: {self.said}")


@asynccontextmanager
async def serving(bench: Bench) -> AsyncIterator[Bench]:
    task = asyncio.create_task(bench.pipes.serve())
    await asyncio.sleep(0)
    yield bench
    assert not task.done()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_server_that_cannot_be_loaded_is_told_and_the_next_pipe_tries_again() -> None:
    async with serving(Bench(tries=2)) as bench:
        pipe, connected = bench.open()
        pipe.receive(asked(1))
        await bench.until(lambda: connected.under_way == 0)
        assert failures(connected.written) == [1]
        other, _ = bench.open()
        other.receive(asked(2))
        await bench.until(lambda: bench.server.read == [2])
        pipe.receive(asked(3))
        assert failures(connected.written) == [1, 3]
        assert bench.said == ["a pipe failed inside"]


async def test_a_pipe_that_fails_inside_is_answered_and_the_others_go_on() -> None:
    async with serving(Bench()) as bench:
        (pipe, connected), (other, unharmed) = bench.open(), bench.open()
        for number in (1, 2):
            pipe.receive(asked(number))
        other.receive(asked(7))
        await bench.until(lambda: sorted(bench.server.read) == [1, 2, 7])
        pipe.receive(numbered(3, NOTE))
        await bench.until(lambda: connected.under_way == 0)
        assert failures(connected.written) == [1, 2]
        assert (unharmed.written, unharmed.under_way) == ([], 1)


def test_a_daemon_without_the_sdk_answers_its_pipes_so() -> None:
    with (
        fresh_home() as home,
        Daemon(home, python=without_module("mcp")) as daemon,
        daemon.agent() as agent,
        agent.bare() as line,
    ):
        line.hello(holder="self", pipe={"id": PIPE})
        for number in (1, 2):
            write(line, number, {"jsonrpc": "2.0", "id": number, "method": "resources/list"})
            told = line.read()
            assert (told["id"], told["error"]["code"]) == (number, -32603)
        with agent.connect() as other:
            assert other.call("session.whoami")["agent"] is None
