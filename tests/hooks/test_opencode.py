"""The plugin of OpenCode, in a Node that looks like it, at a real daemon."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.daemon import Daemon, Line, fresh_home, fresh_name, running
from tests.support.patience import looks
from tests.support.plugin import NODE, Plugin
from tests.support.waking import reach, send, stage_of, until, wakes

pytestmark = pytest.mark.skipif(NODE is None, reason="node is not installed")

SESSION = "ses_one"
OTHER = "ses_two"


@pytest.fixture
def daemon() -> Iterator[Daemon]:
    """Its own for each test: a conversation of one id gets back what it held in another process."""
    with running() as one:
        yield one


@pytest.fixture
def sender(daemon: Daemon) -> Iterator[Line]:
    with daemon.agent() as agent, agent.registered(fresh_name()) as line:
        yield line


@pytest.fixture
def plugin(daemon: Daemon, tmp_path: Path) -> Iterator[Plugin]:
    with Plugin(daemon.home, tmp_path) as made:
        yield made


def seated(plugin: Plugin, sender: Line, session: str = SESSION, agent: str = "build") -> str:
    """A conversation that has a name and is idle; the name."""
    name = fresh_name()
    plugin.chat(session, agent)
    plugin.call("identity.register", name=name, role="tester")
    plugin.status(session, "busy")
    plugin.status(session, "idle")
    until(sender, name, "idle")
    return name


def notice(name: str) -> str:
    return f"mbx: 1 message waits for {name}; call mbx_inbox"


def test_an_idle_conversation_is_prompted_as_it_was_before_and_that_is_told(
    plugin: Plugin, sender: Line
) -> None:
    name = seated(plugin, sender, agent="plan")
    sent = send(sender, name)
    assert sent["state"] == "live-wake"
    assert plugin.told() == {
        "prompted": SESSION,
        "body": {
            "agent": "plan",
            "model": {"providerID": "p", "modelID": "m"},
            "variant": "high",
            "parts": [{"type": "text", "text": notice(name)}],
        },
    }
    assert wakes(sender, name)[0]["outcome"] == "admitted"
    assert stage_of(sender, sent["id"]) == "notified"


@pytest.mark.parametrize(
    ("manner", "outcome"), [("refuses", "failed"), ("breaks", "unknown"), ("throws", "unknown")]
)
def test_a_prompt_that_is_not_taken_is_told_as_what_it_is(
    plugin: Plugin, sender: Line, manner: str, outcome: str
) -> None:
    name = seated(plugin, sender)
    plugin.does(manner=manner)
    sent = send(sender, name)
    assert plugin.told()["prompted"] == SESSION
    assert wakes(sender, name)[0]["outcome"] == outcome
    assert stage_of(sender, sent["id"]) == "delivered"


@pytest.mark.long
@pytest.mark.timeout(120)
def test_a_prompt_that_nobody_sees_taken_is_unknown(plugin: Plugin, sender: Line) -> None:
    name = seated(plugin, sender)
    plugin.does(manner="loses")
    send(sender, name)
    assert plugin.told()["prompted"] == SESSION
    assert wakes(sender, name)[0]["outcome"] == "unknown"


def test_a_conversation_in_a_turn_is_left_alone_until_it_is_idle(
    plugin: Plugin, sender: Line
) -> None:
    name = seated(plugin, sender)
    plugin.status(SESSION, "busy")
    for _ in looks():
        if "it is in a turn" in reach(sender, name)[2]:
            break
    assert send(sender, name)["state"] == "live-next-prompt"
    plugin.order(event=_idle(SESSION))
    told = [plugin.told(), plugin.told()]
    assert {"done": True} in told
    assert SESSION in [one.get("prompted") for one in told]


def _idle(session: str) -> dict[str, object]:
    return {
        "type": "session.status",
        "properties": {"sessionID": session, "status": {"type": "idle"}},
    }


def test_a_new_conversation_of_the_process_is_woken_in_place_of_the_one_before(
    plugin: Plugin, sender: Line
) -> None:
    name = seated(plugin, sender)
    plugin.chat(OTHER)
    plugin.status(OTHER, "idle")
    plugin.status(SESSION, "busy")  # what becomes of the one before counts no more
    until(sender, name, "idle")
    for _ in looks():
        if sender.call("diagnostics.show", mailbox=name)["holder"]["session"] == OTHER:
            break
    send(sender, name)
    assert plugin.told()["prompted"] == OTHER


def test_a_helper_of_an_agent_is_neither_woken_nor_told(plugin: Plugin, sender: Line) -> None:
    name = seated(plugin, sender)
    plugin.does(helper="ses_helper")
    created = {"sessionID": "ses_later", "info": {"id": "ses_later", "parentID": SESSION}}
    plugin.does(event={"type": "session.created", "properties": created})
    assert plugin.chat("ses_later") == []
    plugin.chat("ses_helper")
    plugin.status("ses_helper", "idle")
    send(sender, name)
    assert plugin.told()["prompted"] == SESSION


def test_a_conversation_that_was_deleted_is_not_woken(plugin: Plugin, sender: Line) -> None:
    name = seated(plugin, sender)
    plugin.does(event={"type": "session.deleted", "properties": {"info": {"id": SESSION}}})
    for _ in looks():
        if "not connected" in reach(sender, name)[2]:
            break
    assert send(sender, name)["state"] == "live-next-prompt"


def test_a_sender_hears_that_the_plugin_announced_its_mail(plugin: Plugin, sender: Line) -> None:
    name = seated(plugin, sender)
    sent = send(sender, name, kind="status")
    said: list[str] = []
    for _ in looks():
        said = plugin.chat(SESSION)
        if said:
            break
    assert f"1 new for {name}" in said[0]
    assert "notified" in (stage_of(sender, sent["id"]) for _ in looks())
    assert plugin.chat(SESSION) == []


def test_each_conversation_of_a_server_is_woken_by_itself(
    daemon: Daemon, sender: Line, tmp_path: Path
) -> None:
    one, other = fresh_name(), fresh_name()
    with Plugin(daemon.home, tmp_path, "serve") as plugin:
        for session, name in ((SESSION, one), (OTHER, other)):
            plugin.chat(session)
            as_this = {"session": {"cli": "opencode", "id": session}}
            plugin.call("identity.register", hello=as_this, name=name, role="tester")
            plugin.status(session, "idle")
            until(sender, name, "idle")
        for session, name in ((OTHER, other), (SESSION, one)):
            until(sender, name, "idle")
            send(sender, name)
            told = plugin.told()
            assert told["prompted"] == session
            assert notice(name) in told["body"]["parts"][0]["text"]


def test_a_plugin_goes_on_with_the_next_daemon_and_ends_with_its_client(tmp_path: Path) -> None:
    with fresh_home() as home, Daemon(home) as daemon, Plugin(home, tmp_path) as plugin:
        with daemon.agent() as agent, agent.registered("ana") as ana:
            name = seated(plugin, ana)
        daemon.stop()
        daemon.start()
        with daemon.agent() as agent, agent.registered("eva") as eva:
            until(eva, name, "idle")
            send(eva, name)
            assert plugin.told()["prompted"] == SESSION
            plugin.does(dispose=True)
            for _ in looks():
                if "not connected" in reach(eva, name)[2]:
                    break
            assert "not connected" in reach(eva, name)[2]
