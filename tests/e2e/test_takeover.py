"""The owner's takeover over real processes: the holder that is stopped, and what it had sent."""

import fcntl
import os
import signal
import socket
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.daemon import Agent, Daemon, Line, fresh_home, request
from tests.support.human import Human, do, gated, signed
from tests.support.patience import looks

SIOCOUTQ = 0x5411
"""linux/sockios.h: bytes that the other end of a socket has not read yet."""

REQUESTS = 300


@pytest.fixture
def place() -> Iterator[tuple[Daemon, Path]]:
    """A daemon whose commits wait while a file exists."""
    with fresh_home() as home:
        gate = home / "gate"
        with Daemon(home, python=gated(gate)) as daemon:
            yield daemon, gate


def unread_bytes(line: Line) -> int:
    raw = fcntl.ioctl(line.socket.fileno(), SIOCOUTQ, b"\0" * 4)
    return int(struct.unpack("i", raw)[0])


def until(condition: Any, what: str) -> None:
    """Look again and again; each look is a round trip to the kernel or the daemon."""
    for _ in looks():
        if condition():
            return
    raise AssertionError(what)


def turn(daemon: Daemon) -> None:
    """The daemon's loop has gone round: a new connection was greeted, without the store."""
    with daemon.line() as line:
        line.hello()


def session_of(line: Line) -> dict[str, Any]:
    session = line.call("session.whoami")["session"]
    assert isinstance(session, dict)
    return session


def test_what_a_stopped_holder_had_under_way_is_refused_after_the_takeover(
    place: tuple[Daemon, Path],
) -> None:
    daemon, gate = place
    with (
        Human(daemon.socket_path) as human,
        Agent(daemon.socket_path) as old,
        Agent(daemon.socket_path) as new,
        Agent(daemon.socket_path) as other,
        old.registered("ui-dev") as held,
        new.connect() as waits,
        other.registered("api-dev") as reader,
        human.line() as owner,
    ):
        human.enroll()
        whose = session_of(waits)
        wanted = {"name": "ui-dev", "cli": whose["cli"], "session": whose["id"]}
        record = signed(owner.call("owner.draft", act="takeover", **wanted))
        gate.touch()
        owner.write(request(90, "owner.apply", record=record) + b"\n")
        until(lambda: unread_bytes(owner) == 0, "the daemon does not read the takeover")
        turn(daemon)
        letter = {"to": ["api-dev"], "subject": "late", "body": "x" * 2_000}
        calls = [request(n, "mail.send", key=f"k{n}", **letter) for n in range(100, 100 + REQUESTS)]
        held.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 21)
        held.write(b"".join(call + b"\n" for call in calls))
        os.kill(old.pid, signal.SIGSTOP)
        total = sum(len(call) + 1 for call in calls)
        until(lambda: unread_bytes(held) < total, "nothing of it is read")
        turn(daemon)
        left = unread_bytes(held)
        assert 0 < left < total, "some wait for the commit, and some in the socket's buffer"
        gate.unlink()
        answer = owner.read()["result"]
        assert (answer["before"]["epoch"], answer["after"]["epoch"]) == (1, 2)
        after = daemon.state_hash()
        os.kill(old.pid, signal.SIGCONT)
        answers = [held.read() for _ in range(REQUESTS)]
        assert {one["error"]["data"]["code"] for one in answers} == {"lease-lost"}
        assert daemon.state_hash() == after
        assert reader.call("mail.inbox")["messages"] == []
        for method in ("mail.inbox", "mail.sent", "mail.watch", "identity.release"):
            assert held.refusal(method)["code"] == "lease-lost"
        assert waits.call("session.whoami")["agent"] == "ui-dev"
        assert waits.call("mail.inbox")["messages"] == []


def test_a_displaced_session_is_told_on_its_open_connection_and_never_comes_back_by_itself(
    place: tuple[Daemon, Path],
) -> None:
    daemon, _ = place
    with (
        Human(daemon.socket_path) as human,
        Agent(daemon.socket_path) as old,
        Agent(daemon.socket_path) as new,
        old.registered("ui-dev") as held,
        new.connect() as waits,
        human.line() as owner,
    ):
        human.enroll()
        held.call("mail.watch")
        whose = session_of(waits)
        do(owner, "takeover", name="ui-dev", cli=whose["cli"], session=whose["id"])
        told = held.read()
        assert told["method"] == "lease.lost"
        assert told["params"]["code"] == "lease-lost"
        with old.connect() as again:
            assert again.refusal("mail.inbox")["code"] == "lease-lost"
            assert again.refusal("identity.claim", name="ui-dev")["code"] == "in-use"
        waits.call("identity.release")
        with old.connect() as again:
            assert again.call("session.whoami")["agent"] is None
            assert again.call("session.whoami")["pending"] is None
            assert again.call("identity.claim", name="ui-dev")["epoch"] == 3


def test_an_approval_survives_what_it_could_not_do_and_a_kill_of_the_daemon(
    place: tuple[Daemon, Path],
) -> None:
    daemon, _ = place
    with (
        Human(daemon.socket_path) as human,
        Agent(daemon.socket_path) as old,
        old.registered("ui-dev") as held,
        human.line() as owner,
        Agent(daemon.socket_path) as new,
    ):
        human.enroll()
        with new.connect() as line:
            whose = session_of(line)
        wanted = {"name": "ui-dev", "cli": whose["cli"], "session": whose["id"]}
        record = signed(owner.call("owner.draft", act="takeover", **wanted))
        daemon.kill()
        daemon.start()
        with human.line() as line:
            refused = line.refusal("owner.apply", record=record)
            assert refused["code"] == "not-found"
            assert "whoami" in refused["next"]
            with old.connect() as still:
                assert still.call("mail.inbox")["messages"] == []
            with new.connect() as there:
                there.call("session.whoami")
                answer = line.call("owner.apply", record=record)
                assert answer["after"]["holder"]["session"] == whose["id"]
                assert there.call("mail.inbox")["messages"] == []
        daemon.kill()
        daemon.start()
        with human.line() as line:
            assert line.call("owner.apply", record=record)["duplicate"] is True
        with old.connect() as displaced:
            assert displaced.refusal("mail.inbox")["code"] == "lease-lost"
        held.close()
