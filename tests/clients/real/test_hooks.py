"""The hooks that `mbx setup` enters, in each real client: what their words reach, and when."""

from pathlib import Path
from typing import Final

import pytest

from tests.clients.apis import Json
from tests.clients.clients import CLIENTS, Client
from tests.clients.fakemodel import FakeModel
from tests.clients.seats import (
    PROMPT,
    each_client,
    finish,
    needs,
    own_daemon,
    prepared,
    register,
    resumed,
    seated,
    unheld,
)
from tests.clients.terminal import Terminal
from tests.support.daemon import Daemon, NewHolder, fresh_name
from tests.support.shells import TmuxPane

pytestmark = [pytest.mark.long, pytest.mark.timeout(150)]

needs_tmux = pytest.mark.skipif(not TmuxPane.is_available(), reason="tmux is not installed")

TOLD_AT_THE_START: Final = frozenset(("claude", "codex", "gemini", "qwen", "copilot", "opencode"))
TOLD_AT_A_PROMPT: Final = TOLD_AT_THE_START | {"kimi"}
TOLD_AFTER_A_TOOL: Final = TOLD_AT_THE_START - {"opencode"}
KEPT_GOING: Final = TOLD_AFTER_A_TOOL | {"kimi", "kimi-cli"}
"""What mbx can tell the model of each client at which event; the others tell it nothing there."""


def letter(name: str, **more: object) -> Json:
    """A request to somebody."""
    return {"to": [name], "subject": "Port", "body": "Which one?", "kind": "request", **more}


@each_client
def test_a_session_named_at_launch_is_told_who_it_is_and_what_waits(
    client: Client, daemon: Daemon, new_holder: NewHolder, tmp_path: Path
) -> None:
    _, ana = new_holder()
    name = unheld(daemon)
    ana.call("mail.send", key="1", **letter(name))
    is_told = client.name in TOLD_AT_A_PROMPT
    words = [name, "1 unread"]
    script: list[Json] = [{"expect" if is_told else "reject": words, "text": "I see."}]
    with FakeModel(script) as model:
        session = seated(client, daemon, tmp_path, model.url)
        session.env |= {"MBX_AGENT": name, "MBX_ROLE": "tester"}
        session.run(PROMPT)
        model.check()


@needs("claude")
def test_a_session_that_begins_while_no_daemon_runs_is_told_who_it_is(tmp_path: Path) -> None:
    with own_daemon() as daemon:
        name = unheld(daemon)
        script: list[Json] = [{"expect": [f"your mailbox identity is {name}"], "text": "I see."}]
        with FakeModel(script) as model:
            session = seated(CLIENTS["claude"], daemon, tmp_path, model.url)
            session.env |= {"MBX_AGENT": name, "MBX_ROLE": "tester"}
            daemon.mbx("daemon", "stop")
            session.run(PROMPT)
            model.check()


@each_client
def test_mail_that_comes_while_it_works_is_announced_once_after_a_tool(
    client: Client, daemon: Daemon, new_holder: NewHolder, tmp_path: Path
) -> None:
    if client.name not in TOLD_AFTER_A_TOOL:
        pytest.skip("its hooks tell its model nothing there")
    sender, ana = new_holder()
    name = fresh_name()
    news = f"mbx: 1 new for {name} from {sender}"  # of a kind that wakes nobody
    script: list[Json] = [
        register(name),
        {"reject": [news], "tool": "mbx_whoami", "until": "mail is there"},
        {"expect": [news], "tool": "mbx_whoami"},
        {"text": "Done."},
    ]
    with FakeModel(script) as model:
        session = seated(client, daemon, tmp_path, model.url)
        with session.running(PROMPT) as process:
            model.wait_for(1)
            ana.call("mail.send", key="1", **letter(name, kind="status"))
            prepared(daemon, f"mbx {name}: 1 unread")
            model.open("mail is there")
            finish(process)
        model.check()
        assert model.text(-1).count(news) == 1


@each_client
def test_mail_that_wakes_keeps_a_turn_going_once(
    client: Client, daemon: Daemon, new_holder: NewHolder, tmp_path: Path
) -> None:
    if client.name not in KEPT_GOING:
        pytest.skip("it has no hook at the end of a turn")
    _, ana = new_holder()
    name = fresh_name()
    script: list[Json] = [
        register(name),
        {"text": "Finished.", "until": "mail is there"},
        {"expect": [f"mbx: 1 new message asks for {name}"], "tool": "mbx_inbox"},
        {"text": "Now finished."},
    ]
    with FakeModel(script) as model:
        session = seated(client, daemon, tmp_path, model.url)
        with session.running(PROMPT) as process:
            model.wait_for(1)
            ana.call("mail.send", key="1", **letter(name))
            prepared(daemon, f"mbx {name}: 1 unread")
            model.open("mail is there")
            finish(process)
        model.check()
        assert model.of()[-1].turn == 3, "it was kept going again"


@each_client
def test_a_conversation_that_is_resumed_has_its_identity_again(
    client: Client, daemon: Daemon, tmp_path: Path
) -> None:
    if client.name == "opencode":
        pytest.skip("it tells the session of a resumed conversation with the first message")
    name = fresh_name()
    script: list[Json] = [
        register(name),
        {"expect": [f"{name}@"], "text": "Done."},
        {"tool": "mbx_inbox"},
        {"expect": ["unread"], "reject": ["no-lease"], "text": "It is mine again."},
    ]
    with FakeModel(script) as model:
        out = resumed(seated(client, daemon, tmp_path, model.url), daemon, name)
        model.check()
    assert "It is mine again." in out


@needs_tmux
@pytest.mark.parametrize(
    "client",
    [
        pytest.param(CLIENTS[name], id=name, marks=needs(name))
        for name in ("claude", "kimi", "qwen")
    ],
)
def test_the_status_line_says_who_it_is_and_what_waits(
    client: Client, daemon: Daemon, new_holder: NewHolder, tmp_path: Path
) -> None:
    _, ana = new_holder()
    name = fresh_name()
    with FakeModel([register(name), {"text": "I have a name."}]) as model:
        session = seated(client, daemon, tmp_path, model.url)
        with Terminal(session) as terminal:
            terminal.do("take a name", "I have a name.")
            terminal.shows(f"mbx {name}")
            ana.call("mail.send", key="1", **letter(name, kind="status"))
            terminal.shows(f"mbx {name}: 1 unread")
        model.check()
