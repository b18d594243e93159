"""Conversations of `kimi web` that are woken through its own interface, and where they are not."""

import socket
import uuid
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from tests.support.clients import KimiWeb
from tests.support.daemon import Daemon, Line, fresh_home, fresh_name
from tests.support.patience import looks
from tests.support.waking import reach, send, stage_of, until, wakes
from tests.support.worlds import with_limits

LOOK_MS = 10_000
"""What the look-alike of the server has for an answer: on a busy machine more than the second of
`WAKE_LOOK_MS`, after which it would count as one that does not answer."""


@pytest.fixture(scope="module", name="daemon")
def patient_daemon() -> Iterator[Daemon]:
    with fresh_home() as home, Daemon(home, python=with_limits(WAKE_LOOK_MS=LOOK_MS)) as started:
        yield started


@pytest.fixture
def sender(daemon: Daemon) -> Iterator[Line]:
    with daemon.agent() as agent, agent.registered(fresh_name()) as line:
        yield line


class Seat:
    """A server with one conversation that has a name."""

    def __init__(self, stack: ExitStack, daemon: Daemon, *words: str, label: bool = True) -> None:
        self.client = stack.enter_context(KimiWeb(daemon.socket_path, *words))
        self.id = f"session_{uuid.uuid4()}"
        self.name = fresh_name()
        self.client.write(id=self.id)
        session = {"session": {"cli": "kimi", "id": self.id}} if label else {}
        self.line = stack.enter_context(self.client.registered(self.name, **session))


@pytest.fixture
def seat(daemon: Daemon) -> Iterator[Seat]:
    with ExitStack() as stack:
        yield Seat(stack, daemon)


def until_told(line: Line, name: str, words: str) -> None:
    """Wait until a sender is told so."""
    found = ("", "", "")
    for _ in looks():
        found = reach(line, name)
        if words in found[2]:
            return
    raise AssertionError(found)


def test_an_idle_conversation_is_given_a_count_and_a_name_with_its_own_model(
    sender: Line, seat: Seat
) -> None:
    until(sender, seat.name, "idle")
    sent = send(sender, seat.name)
    assert sent["state"] == "live-wake"
    text = f"mbx: 1 message waits for {seat.name}; call mbx_inbox"
    assert seat.client.woken() == {
        "path": f"/api/v1/sessions/{seat.id}/prompts",
        "body": {"content": [{"type": "text", "text": text}], "model": "m-1"},
    }
    [woken] = wakes(sender, seat.name)
    assert (woken["way"], woken["outcome"]) == ("kimi", "admitted")
    assert stage_of(sender, sent["id"]) == "notified"


@pytest.mark.parametrize(
    ("told", "outcome"),
    [
        ({"answer": {"status": "queued"}}, "admitted"),
        ({"answer": None, "code": 40401}, "unknown"),
        ({"answer": {}, "code": 40401}, "failed"),
        ({"answer": {"status": "lost"}}, "unknown"),
    ],
)
def test_what_the_server_answers_is_the_outcome(
    sender: Line, seat: Seat, told: dict[str, Any], outcome: str
) -> None:
    seat.client.write(**told)
    until(sender, seat.name, "idle")
    send(sender, seat.name)
    seat.client.woken()
    assert wakes(sender, seat.name)[0]["outcome"] == outcome


@pytest.mark.parametrize(
    "told", [{"busy": True}, {"main_turn_active": True}, {"pending_interaction": "approval"}]
)
def test_a_conversation_in_a_turn_is_left_alone_and_woken_when_it_is_idle(
    sender: Line, seat: Seat, told: dict[str, Any]
) -> None:
    seat.client.write(**told)
    until_told(sender, seat.name, "it is in a turn")
    assert send(sender, seat.name)["state"] == "live-next-prompt"
    assert not seat.client.was_woken()
    seat.client.write(busy=False, main_turn_active=False, pending_interaction="none")
    assert "1 message waits" in str(seat.client.woken())


@pytest.mark.parametrize(
    ("told", "words"),
    [
        ({"agent_config": {"model": ""}}, "no model yet"),
        ({"agent_config": None}, "no model yet"),
        ({"id": "session_00000000"}, "does not answer"),
        ({"record": {"pid": 1}}, "listens to nobody"),
        ({"record": {"port": None}}, "listens to nobody"),
        ({"record": {"port": 0}}, "listens to nobody"),
        ({"record": {"port": 65_536}}, "listens to nobody"),
        ({"token": "short"}, "token"),
        ({"token": "t" * 16 + "\r\nX: y"}, "token"),
    ],
)
def test_what_cannot_be_told_for_certain_is_no_way(
    sender: Line, seat: Seat, told: dict[str, Any], words: str
) -> None:
    until(sender, seat.name, "idle")
    seat.client.write(**told)
    until_told(sender, seat.name, words)
    assert send(sender, seat.name)["state"] == "live-next-prompt"
    assert not seat.client.was_woken()


def test_the_port_of_another_process_gets_no_token(sender: Line, seat: Seat) -> None:
    with socket.create_server(("127.0.0.1", 0)) as stranger:
        stranger.setblocking(False)
        seat.client.write(record={"port": stranger.getsockname()[1]})
        until_told(sender, seat.name, "listens to nobody")
        send(sender, seat.name)
        with pytest.raises(BlockingIOError):
            stranger.accept()


def test_a_conversation_that_no_hook_named_has_no_way(daemon: Daemon, sender: Line) -> None:
    with ExitStack() as stack:
        seat = Seat(stack, daemon, label=False)
        until_told(sender, seat.name, "its conversation is not known")


def test_of_many_conversations_the_holder_is_prompted(daemon: Daemon, sender: Line) -> None:
    with ExitStack() as stack:
        seat = Seat(stack, daemon, "web")
        other = {"cli": "kimi", "id": f"session_{uuid.uuid4()}"}
        theirs = stack.enter_context(seat.client.connect(session=other))
        assert theirs.call("session.whoami")["agent"] is None
        until(sender, seat.name, "idle")
        send(sender, seat.name)
        assert seat.client.woken()["path"] == f"/api/v1/sessions/{seat.id}/prompts"
