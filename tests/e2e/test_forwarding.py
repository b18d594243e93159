"""A forward of more mail than one transaction hands on, with a real daemon that is killed in it."""

import pytest

from mbx.core.limits import FORWARD_PIECE_ROWS
from tests.support.daemon import Agent, Daemon, fresh_home, request
from tests.support.human import Human, do
from tests.support.patience import looks

pytestmark = [pytest.mark.long, pytest.mark.timeout(240)]

LETTERS = 3 * FORWARD_PIECE_ROWS + 1


def test_all_of_it_arrives_once_although_the_daemon_dies_on_the_way() -> None:
    with fresh_home() as home:
        with Daemon(home) as daemon, Human(daemon.socket_path) as human:
            human.enroll()
            with Agent(daemon.socket_path) as agent, agent.registered("old-dev") as line:
                line.call("identity.release")
            with Agent(daemon.socket_path) as sender, sender.registered("sender-dev") as line:
                letter = {"to": ["old-dev"], "subject": "s", "body": "b"}
                for first in range(0, LETTERS, 500):
                    numbers = range(first, min(first + 500, LETTERS))
                    line.write(
                        b"".join(
                            request(n, "mail.send", key=f"k{n}", **letter) + b"\n" for n in numbers
                        )
                    )
                    assert all("result" in line.read() for _ in numbers)
            with human.line() as line:
                answer = do(line, "forward", name="old-dev", to="sender-dev")
            assert (answer["moved"], answer["left"]) == (
                FORWARD_PIECE_ROWS,
                LETTERS - FORWARD_PIECE_ROWS,
            )
            daemon.kill()
        with (
            Daemon(home) as daemon,
            Agent(daemon.socket_path) as agent,
            agent.connect() as line,
        ):
            line.call("identity.claim", name="sender-dev", key="k")
            assert any(line.call("session.whoami")["unread"] == LETTERS for _ in looks()), (
                "it does not arrive"
            )
            found = line.call("diagnostics.show", mailbox="old-dev")
            assert (found["status"], found["queue_total"]) == ("mailbox-retired", 0)
            health = line.call("daemon.health")
            assert health["audit"]["first_break"] is None
            assert health["stranded"] == []
