"""Sessions of real clients: they end, are killed, work beside each other, outlive the daemon."""

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.clients.apis import Json
from tests.clients.clients import Client
from tests.clients.fakemodel import FakeModel
from tests.clients.seats import (
    PROMPT,
    each_client,
    finish,
    free,
    own_daemon,
    register,
    resumed,
    seated,
    shown,
)
from tests.clients.terminal import Terminal
from tests.support.daemon import Daemon, NewHolder, fresh_name

pytestmark = [pytest.mark.long, pytest.mark.timeout(150)]

Record = Callable[[str, object], None]
"""Keeps a fact for the report."""


@each_client
def test_after_kill_9_its_identity_can_be_claimed_at_once(
    client: Client,
    daemon: Daemon,
    new_holder: NewHolder,
    tmp_path: Path,
    record_property: Record,
) -> None:
    name = fresh_name()
    script = [register(name), {"expect": [f"{name}@"], "text": "Late.", "until": "never"}]
    with FakeModel(script) as model:
        session = seated(client, daemon, tmp_path, model.url)
        with session.running(PROMPT):
            model.wait_for(1)
            holder = shown(daemon, name)["holder"]
            assert holder["cli"] == client.known_as()
            record_property("lease", holder["cli"])
            os.kill(holder["pid"], signal.SIGKILL)
            assert free(daemon, name)["holder"] is None
        model.open("never")
    with daemon.agent() as agent, agent.connect() as line:
        assert line.call("identity.claim", name=name)["agent"] == name


@each_client
def test_when_it_ends_its_identity_can_be_claimed(
    client: Client, daemon: Daemon, tmp_path: Path
) -> None:
    name = fresh_name()
    with FakeModel([register(name), {"expect": [f"{name}@"], "text": "Done."}]) as model:
        seated(client, daemon, tmp_path, model.url).run(PROMPT)
        model.check()
    assert free(daemon, name)["holder"] is None


@each_client
def test_a_daemon_killed_in_mid_session_costs_it_nothing(client: Client, tmp_path: Path) -> None:
    name = fresh_name()
    letter = {"to": [name], "subject": "note to self", "body": "after the kill"}
    script: list[Json] = [
        register(name),
        {"tool": "mbx_send", "input": letter, "until": "killed"},
        {"expect": ["sent"], "tool": "mbx_inbox"},
        {"expect": ["note to self"], "text": "Done."},
    ]
    with own_daemon() as daemon, FakeModel(script) as model:
        session = seated(client, daemon, tmp_path, model.url)
        with session.running(PROMPT) as process:
            model.wait_for(1)
            before = shown(daemon, name)
            daemon.kill()
            model.open("killed")
            finish(process)
        model.check()
        status = daemon.mbx("daemon", "status")
        assert status.returncode == 0, status.stderr
        told = daemon.mbx("identity", "show", name, "--json")
        assert before["identity"] in told.stdout


@each_client
def test_two_sessions_in_one_folder_are_two_agents(
    client: Client, daemon: Daemon, tmp_path: Path
) -> None:
    one, other = fresh_name(), fresh_name()
    script = {
        "lanes": {
            "one": [
                register(one),
                {"expect": [f"{one}@"], "tool": "mbx_whoami", "until": "other has worked"},
                {"expect": [f"{one}@"], "reject": [f"{other}@"], "text": "Done."},
            ],
            "other": [
                register(other),
                {"expect": [f"{other}@"], "tool": "mbx_whoami"},
                {"expect": [f"{other}@"], "reject": [f"{one}@"], "text": "Done."},
            ],
        }
    }
    work = tmp_path / "work"
    with FakeModel(script) as model:
        first = seated(client, daemon, tmp_path / "1", f"{model.url}/one", work=work)
        second = seated(client, daemon, tmp_path / "2", f"{model.url}/other", work=work)
        with first.running(PROMPT) as process:
            model.wait_for(1, "one")
            second.run(PROMPT)
            model.open("other has worked")
            finish(process)
        model.check()


@each_client
def test_a_conversation_that_is_resumed_can_claim_what_it_held(
    client: Client, daemon: Daemon, tmp_path: Path
) -> None:
    name = fresh_name()
    script: list[Json] = [
        register(name),
        {"expect": [f"{name}@"], "text": "Done."},
        {
            "expect": ["go on", f"{name}@"],  # it remembers the first half
            "tool": "mbx_identity",
            "input": {"action": "claim", "name": name},
        },
        {"tool": "mbx_whoami"},
        {"expect": [f"{name}@"], "text": "It is mine again."},
    ]
    with FakeModel(script) as model:
        out = resumed(seated(client, daemon, tmp_path, model.url), daemon, name)
        model.check()
    assert "It is mine again." in out


@each_client
def test_a_new_conversation_in_the_same_process_keeps_the_identity(
    client: Client, daemon: Daemon, tmp_path: Path
) -> None:
    if not client.ready or not Terminal.is_available():
        pytest.skip("it has no terminal here")
    name = fresh_name()
    script: list[Json] = [
        register(name),
        {"expect": [f"{name}@"], "text": "I have a name."},
        {"reject": ["I have a name."], "tool": "mbx_whoami"},
        {"expect": [f"{name}@"], "text": "It is still mine."},
    ]
    with FakeModel(script) as model:
        session = seated(client, daemon, tmp_path, model.url)
        with Terminal(session) as terminal:
            terminal.do("take a name", "I have a name.")
            terminal.say(client.fresh)
            terminal.until(lambda screen: "I have a name." not in screen, "new conversation")
            terminal.do("who are you", "It is still mine.")
        model.check()
