"""Sessions that are woken by a connection of their own: what it is asked, and what it answers."""

from collections.abc import Iterator
from typing import Any

import pytest

from mbx.core.limits import WAKE_MODE_MAX_CHARS
from tests.support.clients import OpenCode
from tests.support.daemon import Daemon, Line, fresh_name
from tests.support.patience import looks
from tests.support.waking import reach, send, stage_of, until, wakes


@pytest.fixture
def sender(daemon: Daemon) -> Iterator[Line]:
    with daemon.agent() as agent, agent.registered(fresh_name()) as line:
        yield line


def offered(line: Line, state: str = "idle", **more: object) -> dict[str, Any]:
    return line.call("wake.offer", state=state, **more)


def asked(line: Line, name: str, waiting: int = 1) -> int:
    """Wait until the connection is asked to wake its session; the number of that wake."""
    told = line.read()
    many = "1 message waits" if waiting == 1 else f"{waiting} messages wait"
    assert (told["method"], told["params"]["text"]) == (
        "wake.asked",
        f"mbx: {many} for {name}; call mbx_inbox",
    )
    return int(told["params"]["wake"])


def until_reached(line: Line, name: str, state: str, words: str = "") -> None:
    """Wait until a sender is told so."""
    found = ("", "", "")
    for _ in looks():
        found = reach(line, name)
        if found[1] == state and words in found[2]:
            return
    raise AssertionError(found)


def test_an_idle_session_is_asked_with_a_count_and_a_name_and_its_word_is_the_outcome(
    daemon: Daemon, sender: Line
) -> None:
    name = fresh_name()
    with OpenCode(daemon.socket_path) as client, client.registered(name) as line:
        until_reached(sender, name, "live-next-prompt", "plugin in this OpenCode is not connected")
        assert offered(line)["agent"] == name
        until(sender, name, "idle")
        sent = send(sender, name)
        assert (sent["state"], sent["detail"]) == (
            "live-wake",
            "held by a live session; it is woken",
        )
        number = asked(line, name)
        assert stage_of(sender, sent["id"]) == "delivered"
        line.call("wake.settle", wake=number, outcome="admitted")
        [woken] = wakes(sender, name)
        assert (woken["way"], woken["outcome"], woken["messages"]) == ("opencode", "admitted", 1)
        assert stage_of(sender, sent["id"]) == "notified"
        assert send(sender, name)["state"] == "live-next-prompt"


@pytest.mark.parametrize(
    ("outcome", "words"),
    [
        ("busy", "it is in a turn (it is in a turn)"),
        ("failed", "did not reach it (its client did not take it)"),
        ("blocked", "takes no wakes (its client lets nobody wake it)"),
        ("unknown", "is not known (whether its client took it is not known)"),
    ],
)
def test_what_was_not_taken_is_told_to_senders_and_is_not_notified(
    daemon: Daemon, sender: Line, outcome: str, words: str
) -> None:
    name = fresh_name()
    with OpenCode(daemon.socket_path) as client, client.registered(name) as line:
        offered(line)
        until(sender, name, "idle")
        sent = send(sender, name)
        line.call("wake.settle", wake=asked(line, name), outcome=outcome)
        [woken] = wakes(sender, name)
        assert woken["outcome"] == outcome
        until_reached(sender, name, "live-next-prompt", words)
        assert stage_of(sender, sent["id"]) == "delivered"


def test_a_session_in_a_turn_is_not_asked_and_is_as_soon_as_it_is_idle(
    daemon: Daemon, sender: Line
) -> None:
    name = fresh_name()
    with OpenCode(daemon.socket_path) as client, client.registered(name) as line:
        offered(line, "busy")
        until_reached(sender, name, "live-next-prompt", "it is in a turn")
        assert send(sender, name)["state"] == "live-next-prompt"
        send(sender, name)
        assert sender.call("diagnostics.show", mailbox=name)["wakes"] == []
        offered(line, "idle")
        asked(line, name, 2)


def test_a_connection_that_ends_before_it_answers_leaves_it_unknown_and_nothing_is_repeated(
    daemon: Daemon, sender: Line
) -> None:
    name = fresh_name()
    with OpenCode(daemon.socket_path) as client, client.registered(name) as holder:
        with client.connect() as line:
            offered(line)
            until(sender, name, "idle")
            send(sender, name)
            asked(line, name)
        [woken] = wakes(sender, name)
        assert woken["outcome"] == "unknown"
        assert "ended before it answered" in woken["reason"]
        until_reached(sender, name, "live-next-prompt", "is not connected")
        with client.connect() as again:
            offered(again)
            until_reached(sender, name, "live-next-prompt", "the last wake reached it is not known")
            holder.call("mail.inbox")
            assert len(wakes(sender, name)) == 1


def test_who_is_not_connected_is_not_promised_a_wake(daemon: Daemon, sender: Line) -> None:
    name = fresh_name()
    with OpenCode(daemon.socket_path) as client, client.registered(name):
        with client.connect() as line:
            offered(line)
            until(sender, name, "idle")
        until_reached(sender, name, "live-next-prompt", "is not connected")
        assert send(sender, name)["state"] == "live-next-prompt"


def test_of_two_connections_of_a_session_the_newest_is_asked_and_the_other_told_it_is_over(
    daemon: Daemon, sender: Line
) -> None:
    name = fresh_name()
    with (
        OpenCode(daemon.socket_path) as client,
        client.registered(name) as one,
        client.connect() as other,
    ):
        offered(one)
        offered(other)
        assert one.read()["method"] == "wake.over"
        until(sender, name, "idle")
        send(sender, name)
        number = asked(other, name)
        one.call("wake.settle", wake=number, outcome="admitted")  # it was not asked
        assert sender.call("diagnostics.show", mailbox=name)["wakes"][0]["outcome"] is None
        other.call("wake.settle", wake=number, outcome="failed")
        assert wakes(sender, name)[0]["outcome"] == "failed"


def test_a_session_that_gets_a_name_later_is_woken_by_the_offer_that_it_made_before(
    daemon: Daemon, sender: Line
) -> None:
    name = fresh_name()
    with OpenCode(daemon.socket_path) as client, client.connect() as line:
        assert offered(line)["agent"] is None
        with client.registered(name):
            until(sender, name, "idle")
            send(sender, name)
            asked(line, name)


def test_the_offer_of_another_process_wakes_nobody(daemon: Daemon, sender: Line) -> None:
    name = fresh_name()
    with (
        OpenCode(daemon.socket_path) as client,
        client.registered(name) as line,
        OpenCode(daemon.socket_path) as stranger,
        stranger.connect() as theirs,
    ):
        offered(theirs)
        until_reached(sender, name, "live-next-prompt", "is not connected")
        send(sender, name)
        offered(line)
        asked(line, name)


def test_of_many_conversations_in_one_process_exactly_the_holder_is_asked(
    daemon: Daemon, sender: Line
) -> None:
    name, theirs = fresh_name(), [{"cli": "opencode", "id": f"ses_{number}"} for number in (1, 2)]
    with (
        OpenCode(daemon.socket_path, "serve") as client,
        client.registered(name, session=theirs[0]) as line,
        client.connect(session=theirs[1]) as other,
    ):
        assert offered(other)["shared"]
        assert offered(line)["shared"]
        until(sender, name, "idle")
        send(sender, name)
        asked(line, name)
        assert other.call("session.whoami")["agent"] is None


def test_a_server_of_conversations_that_names_none_can_offer_nothing(daemon: Daemon) -> None:
    with OpenCode(daemon.socket_path, "serve") as client, client.connect() as line:
        assert line.refusal("wake.offer")["code"] == "no-lease"


def test_a_client_that_runs_one_turn_is_not_woken(daemon: Daemon, sender: Line) -> None:
    name = fresh_name()
    with OpenCode(daemon.socket_path, "run", "hello") as client, client.registered(name) as line:
        offered(line)
        until_reached(sender, name, "live-next-prompt", "it runs one turn and ends")
        assert send(sender, name)["state"] == "live-next-prompt"
        assert line.call("mail.inbox")["unread"] == 1


@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("wake.offer", {"state": "asleep"}),
        ("wake.offer", {"mode": "x" * (WAKE_MODE_MAX_CHARS + 1)}),
        ("wake.offer", {"mode": "a\nb"}),
        ("wake.offer", {"text": "hello"}),
        ("wake.settle", {"wake": -1}),
        ("wake.settle", {"wake": 1, "outcome": "fine"}),
    ],
)
def test_what_is_no_offer_and_no_answer_is_refused(
    daemon: Daemon, method: str, params: dict[str, object]
) -> None:
    with OpenCode(daemon.socket_path) as client, client.connect() as line:
        assert line.refusal(method, **params)["code"] == "usage"


@pytest.mark.parametrize("more", [-1, 0])
def test_a_mode_has_so_many_characters(daemon: Daemon, more: int) -> None:
    mode = "x" * (WAKE_MODE_MAX_CHARS + more)
    with OpenCode(daemon.socket_path) as client, client.connect() as line:
        assert offered(line, mode=mode)["mode"] == mode


def test_an_answer_that_nobody_asked_for_changes_nothing(daemon: Daemon, sender: Line) -> None:
    name = fresh_name()
    with OpenCode(daemon.socket_path) as client, client.registered(name) as line:
        line.call("wake.settle", wake=10**9, outcome="admitted")
        assert sender.call("diagnostics.show", mailbox=name)["wakes"] == []
