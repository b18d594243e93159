"""Agents over MCP: the real connector, the real daemon, the official SDK at both ends."""

import asyncio
import json
import os
import select
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from mbx.core.limits import BODY_MAX_BYTES, JSON_ELEMENTS_MAX, REQUEST_LINE_MAX_BYTES
from mbx.daemon.codec import LINE_VALUES_MAX
from mbx.mcp import greetings
from mbx.mcp.guide import GUIDE, GUIDE_URI, PROMPT
from mbx.mcp.tools import TOOLS
from tests.support.daemon import MBX, Daemon, fresh_home, fresh_name
from tests.support.mcp import HANDSHAKE, MODERN, PYTHON, Harness
from tests.support.shells import look_alike

ERAS = ["2025-06-18", HANDSHAKE, MODERN]

pytestmark = [pytest.mark.long, pytest.mark.timeout(120)]

Start = Callable[..., Harness]


@pytest.fixture
def start(daemon: Daemon, tmp_path: Path) -> Iterator[Start]:
    """Starts sessions of agent CLIs at the daemon of the file."""
    with ExitStack() as stack:
        count = iter(range(100))

        def started(**options: Any) -> Harness:
            folder = tmp_path / f"cli-{next(count)}"
            return stack.enter_context(Harness(folder, daemon.environment, **options))

        yield started


def registered(session: Harness, stem: str = "agent") -> str:
    name = fresh_name(stem)
    session.call("mbx_identity", action="register", name=name, role="tester")
    return name


# -- the protocol ---------------------------------------------------------------------------------


@pytest.mark.parametrize("era", ERAS)
def test_an_agent_registers_writes_reads_answers_and_acks(start: Start, era: str) -> None:
    one, other = start(era=era), start(era=era, name="codex")
    ana, ben = registered(one), registered(other)
    sent = one.call(
        "mbx_send", to=[ben], subject="Port?", body="Which one?", kind="request", needs_reply=True
    )
    assert sent["recipients"][0]["state"] == "live-next-prompt"
    [waiting] = other.call("mbx_inbox")["messages"]
    assert (waiting["id"], waiting["from"].split("@")[0]) == (sent["id"], ana)
    result = other.result("mbx_read", {"ids": waiting["id"][:8]})
    [letter] = result["structuredContent"]["messages"]
    assert letter["body"] == "Which one?"
    assert f"--- begin {letter['boundary']}" in result["content"][0]["text"]
    other.call("mbx_reply", id=letter["id"], body="8081", final="acted", did="looked it up")
    [told] = one.call("mbx_sent", id=sent["id"])["messages"]
    assert (told["recipients"][0]["stage"], told["recipients"][0]["did"]) == (
        "acked",
        "looked it up",
    )
    [answer] = one.call("mbx_inbox")["messages"]
    assert answer["kind"] == "reply"
    assert [m["id"] for m in one.call("mbx_thread", id=sent["id"])["messages"]] == [
        sent["id"],
        answer["id"],
    ]
    assert one.call("mbx_ack", ids=json.dumps([answer["id"]]), did="noted")["acked"] == [
        answer["id"]
    ]
    assert {ana, ben} <= {agent["name"] for agent in one.call("mbx_agents")["agents"]}
    assert one.call("mbx_search", query="Which")["messages"][0]["id"] == sent["id"]
    assert one.call("mbx_identity", action="release")["released"] == ana


@pytest.mark.parametrize("era", ERAS)
def test_what_is_constant_is_what_the_sdk_says(start: Start, era: str) -> None:
    """Before the SDK is loaded the same is answered, to the letter."""
    session = start(era=era)
    session.call("mbx_whoami")  # a tool call is answered by the SDK: it is there
    again = start(era=era, greets=False)
    hello = again.request(1, *again.greeting())
    again.write(hello)
    assert again.answer(1)["result"] == greetings.answer(hello)
    if era != MODERN:
        again.notify("notifications/initialized")
    listed = again.request(2, "tools/list", {})
    again.write(listed)
    assert again.answer(2)["result"] == greetings.answer(listed)


def test_the_guide_is_a_resource_and_a_prompt(start: Start) -> None:
    session = start()
    [resource] = session.ask("resources/list")["resources"]
    assert resource["uri"] == GUIDE_URI
    [content] = session.ask("resources/read", uri=GUIDE_URI)["contents"]
    assert content["text"] == GUIDE
    [prompt] = session.ask("prompts/list")["prompts"]
    assert prompt["name"] == PROMPT
    [message] = session.ask("prompts/get", name=PROMPT)["messages"]
    assert message["content"]["text"] == GUIDE
    for method, params in (("resources/read", {"uri": "x://y"}), ("prompts/get", {"name": "no"})):
        assert session.answer(session.send(method, params))["error"]["code"] == -32602


def test_without_identity_only_three_tools_answer_and_the_others_say_what_to_call(
    start: Start,
) -> None:
    session = start()
    assert session.call("mbx_whoami")["agent"] is None
    session.call("mbx_identity", action="list")
    session.call("mbx_agents")
    samples = {
        "ids": ["abcdef"],
        "id": "abcdef",
        "to": ["x"],
        "subject": "s",
        "body": "b",
        "query": "q",
    }
    for tool in TOOLS:
        if tool["name"] in ("mbx_whoami", "mbx_identity", "mbx_agents", "mbx_hook"):
            continue
        needed = tool["inputSchema"].get("required", ())
        told = session.refusal(tool["name"], **{name: samples[name] for name in needed})
        assert told["code"] == "no-lease"
        assert 'mbx_identity with action "claim"' in told["next"]


def test_calls_overlap_and_a_cancelled_one_holds_nobody_up(start: Start) -> None:
    session = start()
    name = registered(session)
    numbers = []
    for count in range(40):
        call = {"name": "mbx_send", "arguments": {"to": name, "subject": str(count), "body": "b"}}
        numbers.append(session.send("tools/call", call))
    session.notify("notifications/cancelled", requestId=numbers[3], reason="test")
    session.notify("notifications/cancelled", requestId=10_000, reason="long answered")
    answered = [session.answer(n)["result"] for n in numbers if n != numbers[3]]
    assert len({one["structuredContent"]["id"] for one in answered}) == 39
    page = session.call("mbx_inbox", limit=200)
    assert len(page["messages"]) in (39, 40)
    for _ in range(200):  # more than may be in flight: none of the forty is counted still
        session.call("mbx_whoami")


def test_a_second_handshake_on_a_connection_is_taken(start: Start) -> None:
    session = start()
    session.greet()
    assert session.call("mbx_whoami")["agent"] is None


@pytest.mark.parametrize("size", [BODY_MAX_BYTES - 1, BODY_MAX_BYTES, BODY_MAX_BYTES + 1])
def test_a_body_of_the_largest_size_comes_back_in_pieces(start: Start, size: int) -> None:
    session = start()
    name, body = registered(session), "\x01" * size  # grows sixfold as JSON
    result = session.result("mbx_send", {"to": name, "subject": "s", "body": body})
    if size > BODY_MAX_BYTES:
        assert result["structuredContent"]["code"] == "body-too-large"
        return
    one = result["structuredContent"]["id"]
    parts: list[dict[str, Any]] = [{"body": "", "next_offset": 0}]
    while (offset := parts[-1]["next_offset"]) is not None:
        parts += session.call("mbx_read", ids=[one], offset=offset, max_bytes=100_000)["messages"]
    assert "".join(part["body"] for part in parts) == body


def test_what_has_more_goes_on_to_its_end_by_what_the_answer_says(start: Start) -> None:
    session = start()
    name = registered(session)
    first = session.call("mbx_send", to=name, subject="s", body="pages")["id"]
    for _ in range(4):
        session.call("mbx_reply", id=first, body="pages")
    mail: dict[str, dict[str, Any]] = {
        "mbx_inbox": {},
        "mbx_sent": {},
        "mbx_thread": {"id": first},
        "mbx_search": {"query": "pages"},
    }
    for tool, given in mail.items():
        seen, more = list[str](), {"limit": 2}
        while more:
            result = session.result(tool, {**given, **more})
            page = result["structuredContent"]
            seen += [one["id"] for one in page["messages"]]
            more = {"limit": 2, "cursor": page["next_cursor"]} if page["has_more"] else {}
            assert ("more: the same with cursor" in result["content"][0]["text"]) is bool(more)
        assert len(seen) == len(set(seen)) == 5, tool


def test_lines_that_are_no_messages_are_answered_and_the_next_one_is_read(start: Start) -> None:
    session = start()
    for line in (b"not json\n", b"[]\n", b"7\n", b'{"a": 1}\n', b'{"jsonrpc": "2.0"}\n', b"\xff\n"):
        session.write_raw(line)
        assert "error" in session.read(), line
    session.write_raw(b"\n  \n")
    assert session.call("mbx_whoami")["agent"] is None
    unknown = session.answer(session.send("tools/call", {"name": "mbx_nothing", "arguments": {}}))
    assert unknown["error"]["code"] == -32602
    assert session.answer(session.send("nothing/here", {}))["error"]["code"] == -32601


@pytest.mark.parametrize("era", [HANDSHAKE, MODERN])
@pytest.mark.parametrize(
    ("given", "why"),
    [
        ('{"limit": 12345678901234567}', "more than 16 digits"),
        ('{"limit": 1, "limit": 2}', "duplicate key"),
        ('{"from": "\\ud83d"}', "lone surrogate"),
        ('{"limit": NaN}', "NaN and Infinity are not JSON"),
        ('{"from": [[[[[[[]]]]]]]}', "deeper than 8"),
        ('{"from": [' + "0," * JSON_ELEMENTS_MAX + "0]}", "more than 1024 elements"),
        ('{"from": [' + "0," * LINE_VALUES_MAX + "0]}", "more than 8,192 values"),
        ('{"from": "' + "x" * REQUEST_LINE_MAX_BYTES + '"}', "this one is longer"),
    ],
)
def test_a_call_whose_json_is_refused_is_refused_under_its_own_id(
    start: Start, era: str, given: str, why: str
) -> None:
    session = start(era=era)
    call = json.dumps(session.request(7, "tools/call", {"name": "mbx_inbox", "arguments": 0}))
    session.write_raw(call.replace('"arguments": 0', f'"arguments": {given}').encode() + b"\n")
    result = session.answer(7)["result"]
    assert result["isError"] is True
    assert (result["structuredContent"]["code"], bool(result["structuredContent"]["next"])) == (
        "usage",
        True,
    )
    assert why in result["content"][0]["text"]
    assert session.call("mbx_whoami")["agent"] is None


@pytest.mark.parametrize("over", [-1, 0, 1])
def test_a_line_is_answered_at_its_limit(start: Start, over: int) -> None:
    session = start()
    call = {"name": "mbx_agents", "arguments": {"role": ""}}
    bare = json.dumps(session.request(7, "tools/call", call))
    call["arguments"] = {"role": "x" * (REQUEST_LINE_MAX_BYTES - 17 - len(bare) + over)}
    session.write(session.request(7, "tools/call", call))
    assert session.answer(7)["result"].get("isError", False) is (over > 0)


def test_what_was_cancelled_waits_for_nothing(start: Start) -> None:
    """More calls than may be open at once: the connector keeps none of which no answer comes."""
    session = start()
    letter = {"to": registered(session), "subject": "s", "body": "b"}
    lines = b""
    for number in range(2_000, 5_000):
        call = {"name": "mbx_send", "arguments": letter}
        cancel = {"method": "notifications/cancelled", "params": {"requestId": number}}
        for message in (session.request(number, "tools/call", call), {"jsonrpc": "2.0", **cancel}):
            lines += json.dumps(message).encode() + b"\n"
    session.write_raw(lines)
    assert session.call("mbx_whoami")["agent"] == letter["to"]


def test_arguments_in_a_text_are_understood(start: Start) -> None:
    session = start()
    empty: tuple[Any, ...] = ('{"all": true}', "", [])
    for given in empty:
        number = session.send("tools/call", {"name": "mbx_identity", "arguments": given})
        assert session.answer(number)["result"]["structuredContent"]["code"] == "usage"
    listed = {"name": "mbx_identity", "arguments": '{"action": "list"}'}
    assert (
        "identities"
        in session.answer(session.send("tools/call", listed))["result"]["structuredContent"]
    )


def test_the_official_client_works_in_every_mode(daemon: Daemon, tmp_path: Path) -> None:
    claude = look_alike(tmp_path, "claude")
    program = tmp_path / "client.py"
    program.write_text(
        "import asyncio, os, sys\n"
        "from mcp.client.client import Client\n"
        "from mcp.client.stdio import StdioServerParameters, stdio_client\n"
        "async def main(mode):\n"
        f"    server = StdioServerParameters(command={MBX!r}, args=['mcp'], env=dict(os.environ))\n"
        "    async with Client(stdio_client(server), mode=mode) as client:\n"
        "        assert len((await client.list_tools()).tools) >= 11\n"
        "        told = await client.call_tool('mbx_whoami', {})\n"
        "        assert told.structured_content['session']['cli'] == 'claude'\n"
        "        assert not told.is_error\n"
        "for mode in ('auto', 'legacy', '2026-07-28'):\n"
        "    asyncio.run(main(mode))\n"
        "print('done')\n"
    )

    async def run() -> tuple[bytes, int]:
        process = await asyncio.create_subprocess_exec(
            str(claude),
            "-c",
            f"{PYTHON} {program}; exit $?",
            env=daemon.environment,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        out, _ = await process.communicate()
        return out, process.returncode or 0

    out, status = asyncio.run(run())
    assert (out.decode().splitlines()[-1], status) == ("done", 0), out.decode()


def test_people_read_the_guide_too(daemon: Daemon) -> None:
    assert daemon.mbx("guide").stdout.strip() == GUIDE.strip()
    assert json.loads(daemon.mbx("guide", "--json").stdout) == {"guide": GUIDE}
    assert "mcp add" in daemon.mbx("mcp", "--help").stdout


# -- sessions -------------------------------------------------------------------------------------


def test_a_session_holds_its_identity_over_its_own_connectors(start: Start, tmp_path: Path) -> None:
    """A client that starts its server twice (a handshake first) is one session all the same."""
    session = start()
    name = registered(session)
    twin = start(name="claude")
    assert twin.call("mbx_whoami")["agent"] is None, "another process is another session"
    told = twin.refusal("mbx_identity", action="claim", name=name)
    assert told["code"] == "in-use"
    assert told["holder"]["cli"] == "claude"


def test_a_project_is_that_of_the_folder_in_which_the_client_works(
    start: Start, tmp_path: Path
) -> None:
    (tmp_path / "work" / ".git").mkdir(parents=True)
    (tmp_path / "work" / "src").mkdir()
    session = start(cwd=tmp_path / "work" / "src")
    registered(session)
    assert session.call("mbx_whoami")["project"] == str(tmp_path / "work")


def test_an_agent_named_at_launch_is_that_agent_at_once(daemon: Daemon, tmp_path: Path) -> None:
    name = fresh_name()
    wished = daemon.environment | {"MBX_AGENT": name, "MBX_ROLE": "tester"}
    with Harness(tmp_path / "cli", wished) as session:
        assert session.call("mbx_whoami")["agent"] == name


# -- the end, and what goes on --------------------------------------------------------------------


def test_it_ends_with_its_input_and_says_nothing_else(start: Start) -> None:
    session = start()
    session.call("mbx_whoami")
    session.hang_up()
    assert session.finish() == 0
    assert session.errors() == ""


def test_what_was_asked_before_the_input_ended_is_answered(start: Start) -> None:
    session = start()
    number = session.send("tools/call", {"name": "mbx_whoami", "arguments": {}})
    session.hang_up()
    assert session.answer(number)["result"]["structuredContent"]["agent"] is None
    assert session.finish() == 0


def test_the_last_line_needs_no_end_of_its_own(start: Start) -> None:
    session = start()
    last = session.request(77, "tools/call", {"name": "mbx_whoami", "arguments": {}})
    session.write_raw(json.dumps(last).encode())
    session.hang_up()
    assert session.answer(77)["result"]["structuredContent"]["agent"] is None
    assert session.finish() == 0


@pytest.mark.parametrize("closed", ["<&-", ">&-", "<&- >&- 2>&-"])
def test_it_ends_at_once_where_its_input_or_output_is_closed(daemon: Daemon, closed: str) -> None:
    done = subprocess.run(
        ["sh", "-c", f'exec "$0" mcp {closed}', MBX],
        input=json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/list"}).encode() + b"\n",
        env=daemon.environment,
        capture_output=True,
        timeout=15,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


def test_it_ends_when_its_parent_is_gone(start: Start) -> None:
    session = start()
    shown = Path(f"/proc/{session.process.pid}/task/{session.process.pid}/children").read_text()
    connector = int(shown.split()[0])
    watched = os.pidfd_open(connector)
    session.process.kill()
    assert select.select([watched], [], [], 15)[0], "the connector outlives its client"
    os.close(watched)


@pytest.mark.parametrize("how", ["killed", "stopped"])
@pytest.mark.parametrize("era", [HANDSHAKE, MODERN])
def test_a_daemon_that_comes_back_is_gone_on_with(tmp_path: Path, how: str, era: str) -> None:
    with (
        fresh_home() as home,
        Daemon(home) as daemon,
        Harness(tmp_path / "cli", daemon.environment, era=era) as session,
    ):
        name = registered(session)
        daemon.kill() if how == "killed" else daemon.stop()
        daemon.start()
        assert session.call("mbx_whoami")["agent"] == name
        if era == HANDSHAKE:
            session.told("notifications/tools/list_changed")
        sent = session.call("mbx_send", to=name, subject="s", body="b")
        assert session.call("mbx_inbox")["messages"][0]["id"] == sent["id"]


def test_a_request_starts_the_daemon_and_an_idle_session_does_not(tmp_path: Path) -> None:
    with (
        fresh_home() as home,
        Daemon(home) as daemon,
        Harness(tmp_path / "cli", daemon.environment) as session,
    ):
        session.call("mbx_whoami")
        daemon.stop()
        status = json.loads(daemon.mbx("daemon", "status", "--json").stdout)
        assert status["running"] is False
        assert session.call("mbx_whoami")["agent"] is None
        started = json.loads(daemon.mbx("daemon", "status", "--json").stdout)
        assert started["running"] is True
        assert daemon.mbx("daemon", "stop").returncode == 0


def test_an_answer_that_a_kill_swallowed_is_given_once_and_nothing_is_doubled(
    tmp_path: Path,
) -> None:
    """Killed after the commit, before the answer: SIGSTOP keeps the answer from leaving."""
    with (
        fresh_home() as home,
        Daemon(home) as daemon,
        Harness(tmp_path / "cli", daemon.environment) as session,
    ):
        name = registered(session)
        numbers: list[int] = []
        for round_no in range(4):
            for count in range(8):
                arguments = {"to": name, "subject": f"{round_no}-{count}", "body": "b"}
                numbers.append(
                    session.send("tools/call", {"name": "mbx_send", "arguments": arguments})
                )
            daemon.kill()
            daemon.start()
        answers = [session.answer(number)["result"] for number in numbers]
        ids = [one["structuredContent"]["id"] for one in answers]
        assert len(set(ids)) == len(numbers)
        stored = session.call("mbx_inbox", limit=200)["messages"]
        assert sorted(one["id"] for one in stored) == sorted(ids)
        # The connector may have been the one that started it.
        assert daemon.mbx("daemon", "stop").returncode == 0


def test_without_a_daemon_that_can_start_tools_are_listed_and_calls_say_why(tmp_path: Path) -> None:
    with fresh_home() as home:
        daemon = Daemon(home)
        (home / "run").write_text("in the way")
        with Harness(tmp_path / "cli", daemon.environment) as session:
            assert len(session.ask("tools/list")["tools"]) == len(TOOLS)
            assert session.refusal("mbx_whoami")["code"] == "daemon-unreachable"
            (home / "run").unlink()
            assert session.call("mbx_whoami")["agent"] is None
            assert daemon.mbx("daemon", "stop").returncode == 0
