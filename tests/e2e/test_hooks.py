"""Hooks of agent CLIs: the real scripts below look-alikes of the clients, and the real daemon."""

import json
import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from mbx.core.clients import CLIENTS, HOOK_SCRIPT, STATUS_LINE_SCRIPT
from mbx.hooks.guard import FIELDS
from tests.support.daemon import MBX, Daemon, fresh_home, fresh_name
from tests.support.hooks import Client, context_of, conversation
from tests.support.mcp import Harness
from tests.support.patience import looks
from tests.support.shells import look_alike
from tests.support.waking import stage_of as stage

pytestmark = [pytest.mark.long, pytest.mark.timeout(120)]

Start = Callable[..., Client]


@pytest.fixture
def start(daemon: Daemon, tmp_path: Path) -> Iterator[Start]:
    """Starts agent CLIs at the daemon of the file."""
    with ExitStack() as stack:
        count = iter(range(100))

        def started(name: str = "claude", **options: Any) -> Client:
            return stack.enter_context(
                Client(daemon, tmp_path / f"cli-{next(count)}", name, **options)
            )

        yield started


def silent(done: Any) -> bool:
    return (done.status, done.out, done.err) == (0, "", "")


def test_each_message_is_announced_once_and_by_nothing_but_names_and_counts(start: Start) -> None:
    ana, ben = start(), start("codex")
    one, other = fresh_name("ana"), fresh_name("ben")
    ana.register(one)
    ben.register(other)
    assert silent(ana.hook("prompt"))
    ben.mbx(f"send --to {one} --subject 'do it now' -m secret")
    ana.await_status(f"mbx {one}: 1 unread")
    said = context_of(ana.hook("prompt"))
    assert said == f"mbx: 1 new for {one} from {other}, 1 unread. Next: mbx_inbox."
    assert silent(ana.hook("tool"))
    assert silent(ana.hook("prompt"))
    assert silent(ben.hook("prompt"))
    ben.mbx(f"send --to {one} --subject again -m b")
    ana.await_status(f"mbx {one}: 2 unread")
    assert f"1 new for {one} from {other}, 2 unread" in context_of(ana.hook("tool"))
    ana.mbx(f"read {ana.mbx('inbox')['messages'][0]['id']}")
    ana.await_status(f"mbx {one}: 1 unread")
    assert silent(ana.hook("prompt"))


def stage_of(client: Client, message: str) -> tuple[str, str]:
    """What a sender sees of a message: how far it went, and since when."""
    [found] = client.mbx(f"sent {message}")["messages"]
    [told] = found["recipients"]
    return told["stage"], told["at"]


def until_notified(client: Client, message: str) -> str:
    """Wait until a sender sees that a message was announced; since when."""
    told = ("", "")
    for _ in looks():
        told = stage_of(client, message)
        if told[0] == "notified":
            return told[1]
    raise AssertionError(told)


@pytest.mark.parametrize("act", ["prompt", "tool", "start"])
@pytest.mark.parametrize("kind", ["status", "request"])
def test_a_sender_hears_once_that_a_hook_announced_its_mail(
    start: Start, act: str, kind: str
) -> None:
    ana, ben = start(), start("codex")
    one = fresh_name("ana")
    ana.register(one)
    ben.register(fresh_name("ben"))
    sent = ben.mbx(f"send --to {one} --subject s -m b --kind {kind}")["id"]
    ana.await_status(f"mbx {one}: 1 unread")
    assert stage_of(ben, sent)[0] == "delivered"
    assert "1 " in context_of(ana.hook(act))
    since = until_notified(ben, sent)
    assert silent(ana.hook("prompt"))
    later = ben.mbx(f"send --to {one} --subject s -m b --kind {kind}")["id"]
    ana.await_status(f"mbx {one}: 2 unread")
    assert f"1 new for {one}" in context_of(ana.hook("tool"))
    until_notified(ben, later)
    assert stage_of(ben, sent) == ("notified", since)


def test_a_sender_hears_of_what_was_announced_while_the_daemon_was_away(
    start: Start, tmp_path: Path
) -> None:
    with fresh_home() as home, Daemon(home) as daemon, Client(daemon, tmp_path / "one") as ana:
        ana.register("ana")
        with daemon.agent() as agent:
            with agent.registered("ben") as ben:
                letter = {"to": ["ana"], "subject": "s", "body": "b"}
                sent = ben.call("mail.send", key="1", **letter)["id"]
                ana.await_status("mbx ana: 1 unread")
            daemon.kill()
            assert "1 new for ana" in context_of(ana.hook("prompt"))
            daemon.start()
            with agent.connect() as ben:
                assert "notified" in (stage(ben, sent) for _ in looks())


def greeting_of(client: Client, session: str = "", **fields: Any) -> str:
    return context_of(client.hook("start", session, **fields))


def label_of(client: Client) -> str:
    told = client.mbx("whoami")["session"]["id"]
    assert isinstance(told, str)
    return told


def test_a_session_that_begins_is_told_who_it_is_and_what_waits(start: Start) -> None:
    client, writer = start(), start("codex")
    said = greeting_of(client, source="startup")
    assert said.startswith("mbx: this session has no mailbox identity.")
    name = fresh_name("ana")
    client.register(name)
    assert greeting_of(client, source="compact").startswith(
        f"mbx: your mailbox identity is {name}, 0 unread."
    )
    writer.register(fresh_name("ben"))
    writer.mbx(f"send --to {name} --subject s -m b")
    client.await_status(f"mbx {name}: 1 unread")
    assert f"{name}, 1 unread. Next: mbx_inbox." in greeting_of(client, source="resume")
    assert silent(client.hook("prompt"))


def test_a_clear_gives_another_id_and_keeps_the_lease_with_the_process(
    start: Start, daemon: Daemon
) -> None:
    client = start()
    client.hook("start", source="startup")
    name = fresh_name("ana")
    client.register(name)
    assert label_of(client) == client.conversation
    epoch = client.mbx("whoami")["lease"]["epoch"]
    one, other = client.conversation, conversation()
    client.hook("start", other, source="clear")  # as Kimi Code: the new one comes first
    assert silent(client.hook("end", reason="clear"))
    assert silent(client.hook("end", reason="prompt_input_exit"))  # not of this session
    told = client.mbx("whoami")
    assert (told["agent"], told["lease"]["epoch"]) == (name, epoch)
    assert told["session"]["id"] == other
    files = {path.name for path in (daemon.home / "run" / "sessions").iterdir()}
    paths = client.paths
    assert Path(paths.session_file("claude", other)).name in files
    assert Path(paths.session_file("claude", one)).name not in files
    client.await_status(f"mbx {name}")
    assert client.status_line().out == f"mbx {name}\n"


@pytest.mark.parametrize("reason", ["clear", "resume", "other", "no such reason", None, 7])
def test_an_end_for_another_reason_than_a_real_one_keeps_the_lease(
    start: Start, reason: object
) -> None:
    client = start()
    client.hook("start")
    name = fresh_name("ana")
    client.register(name)
    assert silent(client.hook("end", reason=reason))
    assert client.mbx("whoami")["agent"] == name


def test_a_real_end_frees_the_lease_for_who_waits_and_the_conversation_comes_back(
    start: Start,
) -> None:
    client = start()
    client.hook("start")
    name = fresh_name("ana")
    client.register(name)
    again = start()
    said = greeting_of(again, client.conversation, source="resume")
    assert f"another session holds {name}" in said
    again.await_status(f"mbx: waits for {name}")
    assert silent(client.hook("end", reason="prompt_input_exit"))
    again.await_status(f"mbx {name}")
    assert again.mbx("whoami")["agent"] == name
    assert client.mbx("whoami")["agent"] is None
    assert silent(client.hook("prompt"))
    assert client.shown() == ""


def test_a_session_that_gave_its_identity_back_gets_none_by_going_on(
    start: Start, daemon: Daemon
) -> None:
    client = start()
    client.hook("start", source="startup")
    name = fresh_name("ana")
    client.register(name)
    client.run(f"export MBX_AGENT={name}")
    client.mbx("identity release")
    for act in ("prompt", "tool", "stop", "end"):
        assert silent(client.hook(act, reason="logout")), act
    for source in ("clear", "compact"):
        client.hook("start", conversation(), source=source)
    client.run("unset MBX_AGENT")
    assert client.mbx("whoami")["agent"] is None


def test_an_identity_named_at_launch_is_taken_when_the_session_begins(
    start: Start, daemon: Daemon
) -> None:
    client, name = start(), fresh_name("ana")
    event = json.dumps({"session_id": client.conversation, "source": "startup"}).encode()
    done = client.hook_raw("SessionStart", event, f"MBX_AGENT={name} MBX_ROLE=dev")
    assert context_of(done).startswith(f"mbx: your mailbox identity is {name}, 0 unread.")
    assert label_of(client) == client.conversation


def test_another_name_and_another_holder_change_what_is_said(start: Start) -> None:
    client, writer = start(), start("codex")
    name, sender = fresh_name("ana"), fresh_name("ben")
    client.register(name)
    writer.register(sender)
    other = fresh_name("cai")
    client.mbx(f"identity rename {other}")
    client.await_status(f"mbx {other}")
    writer.mbx(f"send --to {other} --subject s -m b")
    client.await_status(f"mbx {other}: 1 unread")
    assert f"1 new for {other}" in context_of(client.hook("prompt"))
    client.mbx("identity release")
    writer.mbx("identity release")
    writer.mbx(f"identity claim {other}")
    writer.await_status(f"mbx {other}: 1 unread")
    assert client.shown() == ""
    assert silent(client.status_line())
    assert f"1 new for {other}" in context_of(writer.hook("prompt"))


def test_a_killed_client_leaves_nothing_behind(start: Start) -> None:
    client = start()
    client.hook("start")
    name = fresh_name("ana")
    client.register(name)
    own, folder = client.own, Path(client.paths.snapshots_dir())
    client.kill()
    fork = start()
    fork.mbx(f"identity claim {name}")
    fork.await_status(f"mbx {name}")
    assert [path.name for path in folder.iterdir() if own in path.name] == []


def test_two_sessions_in_one_folder_never_see_each_others_mail(start: Start) -> None:
    ana, nobody, writer = start(), start(), start("codex")
    name = fresh_name("ana")
    ana.register(name)
    writer.register(fresh_name("ben"))
    writer.mbx(f"send --to {name} --subject s -m b --kind request")
    ana.await_status(f"mbx {name}: 1 unread")
    for act in ("prompt", "tool", "stop", "end"):
        assert silent(nobody.hook(act, ana.conversation, reason="logout")), act
        assert silent(writer.hook(act, ana.conversation, reason="other")), act
    assert silent(nobody.status_line())
    assert "1 new" in context_of(ana.hook("prompt"))


def test_a_stop_keeps_the_turn_going_once_for_mail_that_wakes_and_for_no_other(
    start: Start,
) -> None:
    client, writer = start(), start("codex")
    name, sender = fresh_name("ana"), fresh_name("ben")
    client.register(name)
    writer.register(sender)
    writer.mbx(f"send --to {name} --subject s -m b")
    client.await_status(f"mbx {name}: 1 unread")
    assert silent(client.hook("stop", stop_hook_active=False))
    writer.mbx(f"send --to {name} --subject s -m b --kind request")
    client.await_status(f"mbx {name}: 2 unread")
    told = json.loads(client.hook("stop", stop_hook_active=False).out)
    assert told["decision"] == "block"
    assert told["reason"].startswith(f"mbx: 1 new message asks for {name} from {sender}.")
    for _ in range(3):
        assert silent(client.hook("stop", stop_hook_active=True))
    assert silent(client.hook("prompt"))


def test_kimi_is_kept_going_by_its_exit_status(start: Start) -> None:
    client, writer = start("kimi"), start("codex")
    name = fresh_name("ana")
    client.register(name)
    writer.register(fresh_name("ben"))
    writer.mbx(f"send --to {name} --subject s -m b --kind request")
    client.await_status(f"mbx {name}: 1 unread")
    said = client.hook("stop")
    assert (said.status, said.out) == (2, "")
    assert said.err.startswith(f"mbx: 1 new message asks for {name}")
    assert silent(client.hook("stop"))
    writer.mbx(f"send --to {name} --subject s -m b")
    client.await_status(f"mbx {name}: 2 unread")
    assert client.hook("prompt").out.startswith(f"mbx: 1 new for {name}")


def test_a_subagent_does_not_take_the_news_from_its_agent(start: Start) -> None:
    client, writer = start(), start("codex")
    name = fresh_name("ana")
    client.register(name)
    writer.register(fresh_name("ben"))
    writer.mbx(f"send --to {name} --subject s -m b")
    client.await_status(f"mbx {name}: 1 unread")
    assert silent(client.hook("tool", agent_id="a1", agent_type="explore"))
    assert "1 new" in context_of(client.hook("tool"))


def test_a_conversation_of_a_shared_process_gets_its_own_news_and_a_ticket(start: Start) -> None:
    shared, writer = start("kimi", arguments="web"), start("codex")
    name, sender = fresh_name("ana"), fresh_name("ben")
    shared.run(f"export MBX_CLI=kimi MBX_SESSION={shared.conversation}")
    shared.mbx(f"identity register {name} --role tester")
    shared.run("unset MBX_CLI MBX_SESSION")
    writer.register(sender)
    writer.mbx(f"send --to {name} --subject s -m b --kind request")
    said = ""
    for _ in looks():
        said = shared.hook("prompt").out
        if said:
            break
    assert said.startswith(f"mbx: 1 new for {name} from {sender}")
    writer.mbx(f"send --to {name} --subject s -m b --kind request")
    for _ in looks():
        assert silent(shared.hook("prompt", conversation()))
        assert silent(shared.hook("stop", conversation()))
        assert silent(shared.status_line())
        if shared.hook("stop").status == 2:
            break
    else:
        raise AssertionError("its own conversation is not told")


def test_a_conversation_of_a_shared_codex_is_given_a_ticket_for_its_tools(start: Start) -> None:
    shared = start("codex", arguments="app-server")
    said = greeting_of(shared, source="startup")
    found = re.search(r'mbx_whoami with bind "([0-9a-f]{32})"', said)
    assert found is not None, said
    shared.run("true")


def test_the_guard_refuses_what_writes_into_our_folders_and_nothing_else(
    start: Start, daemon: Daemon, tmp_path: Path
) -> None:
    client = start()
    (tmp_path / "way").symlink_to(daemon.home)
    for path in (daemon.home / "store.db", daemon.home / "run" / "x", tmp_path / "way" / "y"):
        refused = client.hook(
            "guard", tool_name="Write", tool_input={"file_path": str(path), "content": "x"}
        )
        assert refused.status == 2, path
        assert "only the mbx daemon writes them" in refused.err
    patch = f"*** Begin Patch\n*** Update File: {daemon.home}/store.db\n*** End Patch"
    assert client.hook("guard", tool_name="apply_patch", tool_input={"input": patch}).status == 2
    ours = f"{daemon.home}/x"
    arguments: list[Any] = [
        *({field: ours} for field in sorted(FIELDS)),
        {"paths": ["/tmp/x", ours]},
        {"edits": [{"text": "x"}, {"uri": f"file://{ours}"}]},
        json.dumps({"path": ours}),
        patch,
        {"diff": f"--- a/x\n+++ {ours}\n@@ -1 +1 @@\n"},
    ]
    for given in arguments:
        told = client.hook("guard", tool_name="edit", tool_input=given)
        assert told.status == 2, (given, told)
    for tool, fields in (
        ("Write", {"file_path": str(tmp_path / "mine")}),
        ("Read", {"file_path": str(daemon.home / "daemon.log")}),
        ("Write", {"file_path": 7}),
        ("Write", []),
        (None, {"file_path": str(daemon.home)}),
    ):
        assert silent(client.hook("guard", tool_name=tool, tool_input=fields)), (tool, fields)


HOSTILE = [
    b"",
    b"\0" * 1000,
    b"{",
    b"[" * 100_000,
    b"null",
    b'"text"',
    b"\xff\xfe{}",
    b'{"session_id": ' + b"9" * 100_000 + b"}",
    b'{"session_id": "../../../../etc/passwd"}',
    b'{"session_id": "a\\u0000b", "reason": "prompt_input_exit"}',
    b'{"session_id": "' + b"x" * 5_000_000 + b'"}',
    b'{"session_id": {"a": []}, "tool_name": ["x"], "tool_input": {"file_path": {}}}',
]


@pytest.mark.parametrize("raw", HOSTILE, ids=range(len(HOSTILE)))
def test_any_input_ends_in_silence_and_changes_nothing(
    start: Start, daemon: Daemon, raw: bytes
) -> None:
    client = start()
    client.hook("start")
    name = fresh_name("ana")
    client.register(name)
    before = daemon.state_hash()
    for act in ("prompt", "tool", "stop", "end", "guard"):
        done = client.hook_raw(CLIENTS["claude"].events[act], raw)
        assert silent(done), (act, done)
    for words in ("", "claude", "claude NoSuchEvent", "nobody Stop", "claude 'Stop; false'"):
        assert silent(
            client.run(f"sh {client.paths.home()}/bin/{HOOK_SCRIPT} {words} </dev/null")
        ), words
    assert daemon.state_hash() == before
    assert client.mbx("whoami")["session"]["id"] == client.conversation


def test_an_input_that_never_ends_is_not_waited_for(start: Start) -> None:
    client = start(deadline_ms=None)
    name = fresh_name("ana")
    client.register(name)
    fifo = client.folder / "endless"
    command = f"sh {client.paths.home()}/bin/{HOOK_SCRIPT} claude"
    client.run(f"mkfifo {fifo}; exec 9<>{fifo}")
    assert silent(client.run(f"{command} UserPromptSubmit <&9"))
    assert silent(client.run(f"{command} SessionStart <&9"))


def test_a_client_below_a_client_is_told_nothing_of_the_one_above(
    start: Start, tmp_path: Path
) -> None:
    outer, writer = start(), start("codex")
    name = fresh_name("ana")
    outer.register(name)
    writer.register(fresh_name("ben"))
    writer.mbx(f"send --to {name} --subject s -m b --kind request")
    outer.await_status(f"mbx {name}: 1 unread")
    event = json.dumps({"session_id": outer.conversation, "reason": "logout"})
    for inner in ("claude", "codex"):
        program = look_alike(tmp_path / f"inner-{inner}", inner)
        for act in ("prompt", "tool", "stop", "end"):
            word = CLIENTS[inner].events[act]
            hook = f"sh {outer.paths.home()}/bin/{HOOK_SCRIPT} {inner} {word}; :"
            done = outer.run(f"echo '{event}' | {program} --norc -c '{hook}'")
            assert silent(done), (inner, act)
        line = f"sh {outer.paths.home()}/bin/{STATUS_LINE_SCRIPT} claude; :"
        assert silent(outer.run(f"{program} --norc -c '{line}' </dev/null"))
    assert outer.mbx("whoami")["agent"] == name
    assert "1 new" in context_of(outer.hook("prompt"))


def test_the_tool_for_hooks_says_what_a_hook_says_and_learns_the_current_id(
    daemon: Daemon, tmp_path: Path, start: Start
) -> None:
    with Harness(tmp_path / "cli", daemon.environment) as session:
        name, writer = fresh_name("ana"), start("codex")
        called = conversation()

        def hook(event: str, session_id: str = called) -> dict[str, Any]:
            told = session.result("mbx_hook", {"event": event, "session": session_id})
            assert not told.get("isError")
            assert json.loads(told["content"][0]["text"]) == told["structuredContent"]
            structured = told["structuredContent"]
            assert isinstance(structured, dict)
            return structured

        assert hook("UserPromptSubmit") == {}
        session.call("mbx_identity", action="register", name=name, role="tester")
        assert session.call("mbx_whoami")["session"]["id"] == called
        writer.register(fresh_name("ben"))
        writer.mbx(f"send --to {name} --subject s -m b --kind request")
        said: dict[str, Any] = {}
        for _ in looks():
            said = hook("UserPromptSubmit")
            if said:
                break
        output = said["hookSpecificOutput"]
        assert output["hookEventName"] == "UserPromptSubmit"
        assert f"1 new for {name}" in output["additionalContext"]
        assert hook("PostToolUse") == hook("Stop") == hook("Nonsense") == {}
        cleared = conversation()
        greeting = hook("SessionStart", cleared)["hookSpecificOutput"]["additionalContext"]
        assert greeting.startswith(f"mbx: your mailbox identity is {name}, 1 unread.")
        assert session.call("mbx_whoami")["session"]["id"] == cleared
        assert hook("SessionEnd") == {}
        assert hook("UserPromptSubmit", "\n" * 500) == {}
        assert session.call("mbx_whoami")["agent"] == name


def test_a_conversation_that_comes_back_is_known_by_the_tool_for_hooks(
    daemon: Daemon, tmp_path: Path
) -> None:
    name, begins = fresh_name("ana"), {"event": "SessionStart", "session": conversation()}

    def greeting(session: Harness) -> str:
        told = session.result("mbx_hook", begins)["structuredContent"]
        text = told["hookSpecificOutput"]["additionalContext"]
        assert isinstance(text, str)
        return text

    with Harness(tmp_path / "one", daemon.environment, name="codex") as session:
        assert "no mailbox identity" in greeting(session)
        session.call("mbx_identity", action="register", name=name, role="tester")
    said = ""
    with Harness(tmp_path / "two", daemon.environment, name="codex") as again:
        for _ in looks():
            said = greeting(again)
            if name in said and "another session" not in said:
                break
        assert said.startswith(f"mbx: your mailbox identity is {name}, 0 unread.")
        assert again.call("mbx_whoami")["session"]["id"] == begins["session"]


def test_the_tool_for_hooks_tells_nothing_of_a_sibling_in_a_shared_process(
    daemon: Daemon, tmp_path: Path, start: Start
) -> None:
    shared, writer = start("codex", arguments="app-server"), start("codex")
    name = fresh_name("ana")
    shared.run(f"export MBX_CLI=codex MBX_SESSION={shared.conversation}")
    shared.mbx(f"identity register {name} --role tester")
    shared.run("unset MBX_CLI MBX_SESSION")
    writer.register(fresh_name("ben"))
    writer.mbx(f"send --to {name} --subject s -m b --kind request")
    lines = [
        {
            "jsonrpc": "2.0",
            "id": 1,
            "method": "initialize",
            "params": {
                "protocolVersion": "2025-11-25",
                "capabilities": {},
                "clientInfo": {"name": "t", "version": "0"},
            },
        },
        {
            "jsonrpc": "2.0",
            "id": 2,
            "method": "tools/call",
            "params": {
                "name": "mbx_hook",
                "arguments": {"event": "SessionStart", "session": shared.conversation},
            },
        },
    ]
    asked = tmp_path / "lines"
    asked.write_text("".join(json.dumps(line) + "\n" for line in lines))
    told = shared.run(f"{MBX} mcp <{asked}").out.splitlines()
    [answer] = [json.loads(line)["result"] for line in told if json.loads(line)["id"] == 2]
    assert answer["content"][0]["text"] == "{}"
    assert shared.hook("prompt").status == 0
