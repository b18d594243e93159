"""Conversations of one process that many share, told apart by tickets: real processes."""

import json
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from mbx.paths import Paths
from tests.support.conversations import SharedProcess
from tests.support.daemon import Daemon, Line, fresh_name, request
from tests.support.patience import looks


@pytest.fixture
def shared(daemon: Daemon) -> Iterator[SharedProcess]:
    with SharedProcess(daemon.socket_path) as started:
        yield started


def who(line: Line, **params: object) -> tuple[str | None, str | None]:
    """(conversation, identity) of a connection."""
    told = line.call("session.whoami", **params)
    return told["session"] and told["session"]["id"], told["agent"]


def subjects(line: Line) -> list[str]:
    return [one["subject"] for one in line.call("mail.inbox")["messages"]]


def test_two_conversations_of_one_process_have_each_their_own_identity_and_mail(
    shared: SharedProcess,
) -> None:
    anna, ben, a, b = fresh_name(), fresh_name(), fresh_name("a"), fresh_name("b")
    tools = {a: shared.tool(), b: shared.tool()}
    assert [who(line) for line in tools.values()] == [(None, None)] * 2
    assert tools[a].refusal("identity.register", name=anna, role="dev")["code"] == "no-lease"
    for session_id, name in ((a, anna), (b, ben)):
        line = tools[session_id]
        assert who(line, bind=shared.ticket(session_id)) == (session_id, None)
        line.call("identity.register", name=name, role="dev")
    tools[a].call("mail.send", to=ben, subject="for ben", body="1")
    tools[b].call("mail.send", to=anna, subject="for anna", body="2")
    for session_id, name in ((a, anna), (b, ben)):
        again = shared.bound(session_id)
        for line in (tools[session_id], again, shared.hook(session_id)):
            assert who(line) == (session_id, name)
            assert subjects(line) == [f"for {'anna' if session_id == a else 'ben'}"]
    unnamed = shared.tool()
    assert who(unnamed) == (None, None)
    assert unnamed.refusal("mail.inbox")["code"] == "no-lease"
    assert tools[b].refusal("identity.claim", name=anna)["code"] in ("in-use", "conflict")


def test_two_processes_with_one_conversation_have_each_their_own_credential(
    daemon: Daemon, shared: SharedProcess
) -> None:
    anna, ben, session_id = fresh_name(), fresh_name(), fresh_name("a")
    with SharedProcess(daemon.socket_path) as other:
        lines = {anna: shared.hook(session_id), ben: other.hook(session_id)}
        for name, line in lines.items():
            line.call("identity.register", name=name, role="dev")
        told = {name: line.call("session.whoami") for name, line in lines.items()}
        paths = Paths.from_environ({"MBX_HOME": str(daemon.home)})
        for name, one in told.items():
            assert one["agent"] == name
            file = paths.session_file(one["session"]["cli"], one["session"]["id"])
            content = json.loads(Path(file).read_text())
            assert content["identity"] == one["identity"]


def test_a_ticket_is_good_once_and_never_turns_one_conversation_into_another(
    shared: SharedProcess,
) -> None:
    a, b = fresh_name("a"), fresh_name("b")
    of_a, of_b = shared.ticket(a), shared.ticket(b)
    first, second = shared.tool(), shared.tool()
    assert who(first, bind=of_a) == (a, None)
    refused = first.refusal("session.whoami", bind=of_b)
    assert (refused["code"], refused["session"]["id"]) == ("conflict", a)
    assert who(first) == (a, None)
    used = second.refusal("session.whoami", bind=of_a)
    wrong = second.refusal("session.whoami", bind="0" * 32)
    assert used == wrong
    assert used["code"] == "not-found"
    assert second.refusal("session.whoami", bind=7)["code"] == "usage"
    assert second.refusal("session.whoami", bind=of_b, more=1)["code"] == "usage"
    assert who(second, bind=None) == (None, None)
    assert who(second, bind=of_b) == (b, None), "none of the refusals used it up"


def test_nobody_but_the_process_itself_can_hand_a_ticket_in(
    shared: SharedProcess, daemon: Daemon
) -> None:
    a = fresh_name("a")
    ticket = shared.ticket(a)
    with SharedProcess(daemon.socket_path) as twin, daemon.agent() as agent:
        strangers = [twin.tool(), twin.hook(a), agent.connect(), daemon.line()]
        strangers[-1].hello()
        for line in strangers:
            before = who(line)
            assert line.refusal("session.whoami", bind=ticket)["code"] == "not-found"
            assert who(line) == before
        for line in strangers[2:]:
            assert line.refusal("session.ticket")["code"] in ("usage", "no-lease")
            line.close()
    assert who(shared.tool(), bind=ticket) == (a, None)


def test_a_conversation_that_binds_gets_what_it_had_before_the_call_is_answered(
    daemon: Daemon, shared: SharedProcess
) -> None:
    name, a = fresh_name(), fresh_name("a")
    wish = {"agent": name, "role": "dev"}
    tool, ticket = shared.bare(), shared.ticket(a)
    tool.write(
        request(0, "hello", protocol=1, client="test", **wish)
        + b"\n"
        + request(1, "session.whoami", bind=ticket)
        + b"\n"
        + request(2, "mail.send", to=name, subject="to myself", body="b")
        + b"\n"
    )
    answers = {one["id"]: one for one in (tool.read(), tool.read(), tool.read())}
    assert answers[1]["result"]["agent"] == name
    assert answers[2]["result"]["id"]
    with SharedProcess(daemon.socket_path) as twin:
        waits = twin.bound(a)
        assert waits.call("session.whoami")["pending"] == name
        shared.shell.kill()
        for _ in looks():
            if who(waits) == (a, name):
                break
        assert subjects(waits) == ["to myself"]
        assert who(twin.bound("other")) == ("other", None)


def test_a_caller_that_hangs_up_after_its_ticket_is_still_answered_and_let_go(
    shared: SharedProcess,
) -> None:
    tool, ticket = shared.bare(), shared.ticket("c")
    asked = (request(0, "hello", protocol=1), request(1, "session.whoami", bind=ticket))
    tool.write(b"".join(one + b"\n" for one in asked))
    tool.socket.shutdown(socket.SHUT_WR)
    tool.read()
    assert tool.read()["result"]["session"] == {"cli": "codex", "id": "c"}
    assert tool.is_closed()


def test_tickets_are_lost_with_the_daemon_and_asked_for_again(
    shared: SharedProcess, daemon: Daemon
) -> None:
    name, a = fresh_name(), fresh_name("a")
    shared.bound(a).call("identity.register", name=name, role="dev")
    ticket = shared.ticket(a)
    daemon.stop()
    daemon.start()
    tool = shared.tool()
    assert tool.refusal("session.whoami", bind=ticket)["code"] == "not-found"
    assert who(tool, bind=shared.ticket(a)) == (a, name)
