"""Waiting for mail: pushed, fenced, without polling."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.daemon import Daemon, Line, fresh_name


class Pair:
    """A sender and a watching recipient, each a process of its own."""

    def __init__(self, sender: Line, watcher: Line, name: str) -> None:
        self.sender = sender
        self.watcher = watcher
        self.name = name

    def send(self, **more: Any) -> None:
        letter = {"to": [self.name], "subject": "s", "body": "b", "kind": "task"}
        self.sender.call("mail.send", **(letter | more))


@pytest.fixture
def pair(daemon: Daemon) -> Iterator[Pair]:
    name = fresh_name()
    with (
        daemon.agent() as one,
        daemon.agent() as two,
        one.registered(fresh_name()) as sender,
        two.registered(name) as watcher,
    ):
        yield Pair(sender, watcher, name)


def test_mail_that_wakes_is_told_at_once_with_counts_and_no_words(pair: Pair) -> None:
    begun = {"agent": pair.name, "unread": 0, "waking": 0, "arrived": False}
    assert pair.watcher.call("mail.watch") == begun
    pair.send(subject="secret", body="secret")
    told = pair.watcher.read()
    assert told == {
        "jsonrpc": "2.0",
        "method": "mail.arrived",
        "params": {"agent": pair.name, "unread": 1, "waking": 1},
    }


def test_mail_that_wakes_nobody_is_not_told(pair: Pair) -> None:
    pair.watcher.call("mail.watch")
    pair.send(kind="status")
    pair.send(kind="message")
    pair.send(wake="inbox")
    pair.send(kind="message", body=f"@{pair.name} look")
    told = pair.watcher.read()
    assert told["params"] == {"agent": pair.name, "unread": 4, "waking": 1}


def test_mail_that_waits_already_is_told_when_the_watch_begins(pair: Pair) -> None:
    pair.send()
    assert pair.watcher.call("mail.watch")["waking"] == 1
    assert pair.watcher.read()["method"] == "mail.arrived"


def test_a_watcher_without_a_lease_is_refused(daemon: Daemon) -> None:
    with daemon.agent() as agent, agent.connect() as line:
        assert line.refusal("mail.watch")["code"] == "no-lease"


def test_a_watcher_whose_session_gave_the_lease_back_is_told_and_hears_no_more(
    daemon: Daemon,
) -> None:
    name = fresh_name()
    with daemon.agent() as agent, agent.registered(name) as line, agent.connect() as other:
        line.call("mail.watch")
        other.call("identity.release")
        told = line.read()
        assert (told["method"], told["params"]["code"]) == ("lease.lost", "no-lease")
