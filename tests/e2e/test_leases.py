"""Leases from end to end: death, release, tokens, races, and what a bare shell cannot do."""

import hashlib
import json
import os
import shutil
import signal
import stat
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.support.daemon import (
    MBX,
    Agent,
    Daemon,
    Line,
    NewHolder,
    RefusedError,
    fresh_home,
    fresh_name,
)
from tests.support.daemon import request as raw_request
from tests.support.patience import looks
from tests.support.shells import Shell

CLAIMANTS = 8
ROUNDS = 10


@pytest.fixture
def line(daemon: Daemon) -> Iterator[Line]:
    with daemon.line() as connected:
        connected.hello()
        yield connected


@pytest.fixture
def env(daemon: Daemon) -> dict[str, str]:
    path = f"{Path(MBX).parent}:{daemon.environment['PATH']}"
    return daemon.environment | {"PATH": path}


def lapses(line: Line, name: str) -> bool:
    """Wait, by bounded round trips, until the holder of `name` is known to be dead."""
    for _ in looks():
        shown = line.call("identity.show", name=name)
        if shown["state"] == "lapsed":
            return bool(shown["claimable"])
    return False


def session_file(daemon: Daemon, session: dict[str, str]) -> Path:
    digest = hashlib.sha256(f"{session['cli']}\0{session['id']}".encode()).hexdigest()
    return daemon.home / "run" / "sessions" / f"{digest}.json"


# -- death ----------------------------------------------------------------------------------------


def test_the_death_of_its_holder_makes_an_identity_claimable(
    daemon: Daemon, agent: Agent, line: Line
) -> None:
    name = fresh_name()
    with daemon.agent() as first, first.registered(name) as held:
        epoch = held.call("session.whoami")["lease"]["epoch"]
        first.kill()
        with agent.connect() as heir:  # at once: a claim looks at the holder itself
            granted = heir.call("identity.claim", name=name)
        assert granted["epoch"] == epoch + 1
        refused = held.refusal("mail.inbox")
        assert refused["code"] in {"lease-lost", "no-lease"}, "the dead get nothing more"
    assert line.call("identity.show", name=name)["holder"]["pid"] == agent.pid


def test_without_a_claim_the_death_is_seen_as_well(daemon: Daemon, line: Line) -> None:
    name = fresh_name()
    with daemon.agent() as first:
        first.registered(name).close()
    assert lapses(line, name)


def test_a_stopped_holder_is_alive(daemon: Daemon, agent: Agent, line: Line) -> None:
    name = fresh_name()
    with daemon.agent() as first, first.registered(name), agent.connect() as other:
        os.kill(first.pid, signal.SIGSTOP)
        assert other.refusal("identity.claim", name=name)["code"] == "in-use"
        assert line.call("identity.show", name=name)["claimable"] is False


def test_the_death_of_a_shell_with_its_terminal_makes_its_identity_claimable(
    env: dict[str, str], line: Line
) -> None:
    name = fresh_name()
    with Shell(["bash", "--norc", "-i"], env=env, tty=True) as shell:
        assert shell.run(f"mbx identity register {name} --role tester").status == 0
        assert line.call("identity.show", name=name)["state"] == "held"
        shell.hang_up()
        assert shell.has_ended()
        assert lapses(line, name)


def test_a_connection_outlives_the_tool_that_made_it_while_the_holder_lives(
    env: dict[str, str], daemon: Daemon, line: Line
) -> None:
    name = fresh_name()
    with Shell(env=env) as shell:
        shell.run(f"mbx identity register {name} --role tester")
        shell.run("mbx whoami")
        assert line.call("identity.show", name=name)["state"] == "held"
        daemon.kill()
        daemon.start()
        told = json.loads(shell.run("mbx whoami --json").out)
        assert told["agent"] == name


# -- release and races ----------------------------------------------------------------------------


def test_a_session_gets_its_own_lease_back_from_every_connection(agent: Agent) -> None:
    name = fresh_name()
    with agent.registered(name) as one, agent.connect() as two:
        first = one.call("session.whoami")["lease"]
        assert two.call("identity.claim", name=name)["epoch"] == first["epoch"]
        assert two.call("session.whoami")["lease"]["epoch"] == first["epoch"]
        two.call("identity.release")
        assert one.refusal("mail.inbox")["code"] == "no-lease"
        assert one.refusal("mail.inbox")["next"].startswith("mbx identity claim")


def test_a_release_serves_whoever_claims_and_the_former_holder_gets_nothing(
    agent: Agent, new_holder: NewHolder
) -> None:
    name, first = new_holder()
    first.call("mail.send", to=[name], subject="s", body="b")
    first.call("identity.release")
    with agent.connect() as second:
        granted = second.call("identity.claim", name=name)
        assert granted["unread"] == 1
        (message,) = second.call("mail.inbox")["messages"]
        for method, params in (
            ("mail.inbox", {}),
            ("mail.read", {"ids": [message["id"]]}),
            ("mail.ack", {"ids": [message["id"]]}),
            ("mail.send", {"to": [name], "subject": "s", "body": "b"}),
            ("identity.release", {}),
        ):
            assert first.refusal(method, **params)["code"] == "no-lease"
        assert first.refusal("identity.claim", name=name)["code"] == "in-use"


def test_of_eight_simultaneous_claims_exactly_one_wins(daemon: Daemon) -> None:
    name = fresh_name()
    with ExitStack() as stack:
        agents = [stack.enter_context(daemon.agent()) for _ in range(CLAIMANTS)]
        lines = [stack.enter_context(agent.connect()) for agent in agents]
        epochs = []
        for round_no in range(ROUNDS):
            claim = raw_request(round_no, "identity.claim", name=name, role="tester") + b"\n"
            for line in lines:
                line.write(claim)
            answers = [line.read() for line in lines]
            winners = [n for n, answer in enumerate(answers) if "result" in answer]
            assert len(winners) == 1
            codes = [one["error"]["data"]["code"] for one in answers if "error" in one]
            assert codes == ["in-use"] * (CLAIMANTS - 1)
            for answer in answers:
                if "error" in answer:
                    assert answer["error"]["data"]["holder"]["pid"] == agents[winners[0]].pid
            epochs.append(answers[winners[0]]["result"]["epoch"])
            lines[winners[0]].call("identity.release")
        assert epochs == list(range(1, ROUNDS + 1))


def test_of_eight_simultaneous_registrations_exactly_one_wins(daemon: Daemon) -> None:
    stem = fresh_name()
    with ExitStack() as stack:
        agents = [stack.enter_context(daemon.agent()) for _ in range(CLAIMANTS)]
        lines = [stack.enter_context(agent.connect()) for agent in agents]
        for number, line in enumerate(lines):  # half of them ask for a look-alike
            name = f"{stem}-o" if number % 2 else f"{stem}-0"
            line.write(raw_request(1, "identity.register", name=name, role="tester") + b"\n")
        answers = [line.read() for line in lines]
        assert sum("result" in answer for answer in answers) == 1
        codes = {one["error"]["data"]["code"] for one in answers if "error" in one}
        assert codes == {"name-taken"}


# -- tokens ---------------------------------------------------------------------------------------


def test_a_token_file_is_private_and_says_identity_epoch_and_token(
    daemon: Daemon, agent: Agent
) -> None:
    name = fresh_name()
    with agent.registered(name) as line:
        told = line.call("session.whoami")
        path = session_file(daemon, told["session"])
        content = json.loads(path.read_text())
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
        assert sorted(content) == ["epoch", "identity", "token"]
        assert (content["identity"], content["epoch"]) == (told["identity"], 1)
        assert len(bytes.fromhex(content["token"])) == 32
        line.call("identity.release")
        assert not path.exists()
        line.call("identity.claim", name=name)
        again = json.loads(path.read_text())
        assert again["epoch"] == 2
        assert again["token"] != content["token"]


def credential(daemon: Daemon, holder: Line) -> dict[str, Any]:
    """What a caller says in hello who was given a session's token file."""
    session = holder.call("session.whoami")["session"]
    token = json.loads(session_file(daemon, session).read_text())["token"]
    return {"session": session, "token": token}


def orphan(daemon: Daemon) -> Line:
    """A connection of a process that has ended."""
    with daemon.agent() as agent:
        return agent.bare()


def test_who_was_heard_of_before_an_orderly_stop_was_so_after_it() -> None:
    with fresh_home() as home, Daemon(home) as daemon, daemon.agent() as agent:
        agent.registered("anna").close()

        def heard_at() -> object:
            with daemon.line() as line:
                line.hello()
                [anna] = line.call("agents.list")["agents"]
                return anna["last_seen"]

        before = heard_at()
        daemon.stop()
        daemon.start()
        assert heard_at() == before is not None


def test_a_connection_that_a_dead_process_left_is_nobodys_whatever_token_it_shows(
    daemon: Daemon, new_holder: NewHolder
) -> None:
    _, holder = new_holder()
    said = credential(daemon, holder)
    with orphan(daemon) as line:
        line.hello(**said)
        assert line.call("session.whoami")["agent"] is None
        assert line.refusal("mail.inbox")["code"] == "no-lease"


@pytest.mark.root
@pytest.mark.skipif(shutil.which("unshare") is None, reason="unshare is not installed")
def test_where_the_walk_cannot_say_the_token_counts() -> None:
    name = fresh_name()
    with fresh_home() as home, Daemon(home) as first, first.agent() as agent:
        holder = agent.registered(name)
        said = credential(first, holder)
        first.stop()
        holder.close()
        # A daemon in a pid namespace of its own is given no number of those outside.
        apart = ("unshare", "--pid", "--fork", "--kill-child")
        with Daemon(home, prefix=apart) as second, second.line() as line, second.line() as wrong:
            line.hello(**said)
            assert line.call("session.whoami")["agent"] == name
            assert line.call("mail.inbox")["messages"] == []
            wrong.hello(**(said | {"token": "0" * 64}))
            assert wrong.refusal("mail.inbox")["code"] == "no-lease"
            assert line.call("daemon.stop")["stopping"] is True
            assert second.wait() == 0
        with Daemon(home) as third, agent.connect() as again:
            again.call("identity.release")
            again.call("identity.claim", name=name)
            third.stop()
        with Daemon(home, prefix=apart) as fourth, fourth.line() as line:
            line.hello(**said)
            refused = line.refusal("mail.inbox")
            assert refused["code"] in {"no-lease", "lease-lost"}, "all tokens die with their epoch"
            assert line.call("daemon.stop")["stopping"] is True
            assert fourth.wait() == 0


def test_without_or_with_a_wrong_token_such_a_caller_gets_nothing(
    daemon: Daemon, new_holder: NewHolder
) -> None:
    _, holder = new_holder()
    said = credential(daemon, holder)
    wrong = f"{int(said['token'], 16) ^ 1:064x}"
    for hello in ({}, {"session": said["session"]}, said | {"token": wrong}):
        with orphan(daemon) as line:
            line.hello(**hello)
            assert line.refusal("mail.inbox")["code"] == "no-lease"
            assert line.refusal("identity.claim", name="anybody")["code"] == "no-lease"


def test_a_token_from_another_session_is_foreign_and_opens_nothing(
    daemon: Daemon, agent: Agent, new_holder: NewHolder
) -> None:
    name, holder = new_holder()
    said = credential(daemon, holder)
    for own in (None, fresh_name()):
        with agent.bare() as line:
            line.hello(holder="self", **said)
            if own is not None:
                with agent.connect() as honest:
                    honest.call("identity.register", name=own, role="tester")
            for method, params in (
                ("mail.inbox", {}),
                ("mail.send", {"to": [name], "subject": "s", "body": "b"}),
                ("identity.release", {}),
                ("identity.claim", {"name": name}),
            ):
                assert line.refusal(method, **params)["code"] == "lease-foreign"
    with agent.bare() as line:  # no session at all is not "cannot say"
        line.hello(**said)
        assert line.refusal("mail.inbox")["code"] in {"lease-foreign", "no-lease"}
    assert holder.call("session.whoami")["agent"] == name


def test_a_missing_token_file_is_written_again(
    daemon: Daemon, agent: Agent, new_holder: NewHolder
) -> None:
    _name, holder = new_holder()
    path = session_file(daemon, holder.call("session.whoami")["session"])
    path.unlink()
    daemon.kill()
    daemon.start()
    with agent.connect() as line:
        for _ in looks():
            if path.exists():
                break
            line.call("session.whoami")
    content = json.loads(path.read_text())
    assert (content["epoch"], stat.S_IMODE(path.stat().st_mode)) == (1, 0o600)
    assert len(bytes.fromhex(content["token"])) == 32


# -- what a bare shell cannot do ------------------------------------------------------------------


def forbidden(name: str, message_id: str) -> list[tuple[str, dict[str, object], str]]:
    """(method, parameters, code) of what a session without a lease may not do."""
    mail: list[tuple[str, dict[str, object]]] = [
        ("mail.inbox", {}),
        ("mail.inbox", {"all": True}),
        ("mail.inbox", {"limit": 1_000}),
        ("mail.inbox", {"cursor": "nonsense"}),
        ("mail.read", {"ids": [message_id]}),
        ("mail.read", {"ids": [message_id[:6]], "max_bytes": 10}),
        ("mail.read", {"ids": ["zzzzzz"]}),
        ("mail.read", {"ids": []}),
        ("mail.read", {}),
        ("mail.ack", {"ids": [message_id]}),
        ("mail.ack", {"ids": [message_id], "did": "x" * 1_000, "outcome": "acted"}),
        ("mail.ack", {"ids": ["x"] * 500}),
        ("mail.ack", {"ids": [message_id], "key": "k"}),
        ("mail.send", {"to": [name], "subject": "s", "body": "b"}),
        ("mail.send", {"to": [name], "subject": "s", "body": "b", "from": name}),
        ("mail.send", {"to": [name], "subject": "s", "body": "x" * 300_000}),
        ("mail.send", {"to": ["*"], "subject": "s", "body": "b"}),
        ("mail.send", {"to": ["nobody"], "subject": "\0", "body": "\0"}),
        ("mail.send", {"to": [name], "subject": "s", "body": "b", "reply_to": message_id}),
        ("mail.send", {"to": [name], "subject": "s", "body": "b", "key": "first"}),
        ("mail.send", {}),
        ("mail.reply", {"id": message_id, "body": "b"}),
        ("mail.reply", {"id": message_id, "body": "b", "final": "acted", "did": "d"}),
        ("mail.reply", {"id": "zzzzzz", "body": "b"}),
        ("mail.sent", {}),
        ("mail.sent", {"id": message_id}),
        ("mail.sent", {"cursor": "nonsense"}),
        ("identity.release", {}),
        ("identity.release", {"key": "first"}),
    ]
    refused: list[tuple[str, dict[str, object], str]] = [
        (method, params, "no-lease") for method, params in mail
    ]
    return [
        *refused,
        ("identity.claim", {"name": name}, "in-use"),
        ("identity.claim", {"name": name, "role": "tester"}, "in-use"),
        ("identity.claim", {"name": "nobody-at-all"}, "unknown-identity"),
        ("identity.claim", {"name": name, "force": True}, "usage"),
        ("identity.register", {"name": name, "role": "tester"}, "name-taken"),
        ("identity.register", {"name": "owner", "role": "tester"}, "name-invalid"),
        ("identity.release", {"name": name}, "usage"),
        ("owner.sign", {}, "usage"),
        ("store.query", {"sql": "SELECT 1"}, "usage"),
    ]


def test_each_forbidden_call_of_a_bare_session_is_refused_and_changes_nothing(
    daemon: Daemon, agent: Agent, new_holder: NewHolder
) -> None:
    name, holder = new_holder()
    first = {"to": [name], "subject": "s", "body": "b", "key": "first"}
    sent = holder.call("mail.send", **first)["id"]
    calls = forbidden(name, sent)
    assert len(calls) >= 30
    state = daemon.state_hash()
    with agent.connect() as bare:
        for method, params, code in calls:
            refused = bare.refusal(method, **params)
            assert refused["code"] == code, (method, params)
            assert refused["message"]
            assert daemon.state_hash() == state, (method, params)
    assert holder.call("mail.inbox")["unread"] == 1


def test_the_commands_of_a_bare_shell_are_refused_with_exit_status_five(
    daemon: Daemon, env: dict[str, str], new_holder: NewHolder
) -> None:
    name, holder = new_holder()
    sent = holder.call("mail.send", to=[name], subject="s", body="b")["id"]
    state = daemon.state_hash()
    with Shell(env=env) as shell:
        for command in (
            "inbox",
            f"read {sent}",
            "read nonsense",
            f"ack {sent} --did x",
            f"send --to {name} --subject s -m b",
            f"send --to {name} --subject s --body-file /nonexistent",
            f"reply {sent} -m b",
            "sent",
            "identity release",
        ):
            done = shell.run(f"mbx {command} --json")
            assert (done.status, done.err) == (5, ""), command
            error = json.loads(done.out)["error"]
            assert error["code"] == "no-lease"
            assert error["next"].startswith("mbx identity claim NAME")
            assert daemon.state_hash() == state, command
        done = shell.run("mbx inbox")
        assert (done.status, done.out) == (5, "")
        assert [row.split(":")[0] for row in done.err.splitlines()] == ["error", "next"]
        done = shell.run("echo body | mbx send --to x --subject s -")
        assert done.status == 5


def test_open_calls_of_a_bare_session_change_nothing_either(daemon: Daemon, agent: Agent) -> None:
    state = daemon.state_hash()
    with agent.connect() as bare:
        for method in ("session.whoami", "identity.list", "daemon.status"):
            bare.call(method)
        with pytest.raises(RefusedError):
            bare.call("identity.show", name="nobody-at-all")
    assert daemon.state_hash() == state
