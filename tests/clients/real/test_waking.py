"""Idle clients at a terminal that are woken by mail, each by its own way."""

import json
import os
import re
import signal
import subprocess
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Self

import pytest

from tests.clients.apis import Json
from tests.clients.clients import CLIENTS, Session, edit_json
from tests.clients.fakemodel import FakeModel
from tests.clients.seats import needs, own_daemon, register, seated
from tests.clients.terminal import Terminal
from tests.support.daemon import Daemon, Line, NewHolder, fresh_name
from tests.support.patience import looks
from tests.support.shells import TmuxPane

pytestmark = [
    pytest.mark.long,
    pytest.mark.timeout(180),
    pytest.mark.skipif(not TmuxPane.is_available(), reason="tmux is not installed"),
]

SEEN_S: Final = 20.0
"""Until the daemon has heard that a client is idle."""

ACCEPTED: Final = ["admitted"]


def letter(name: str, **more: object) -> Json:
    """A request to somebody."""
    return {"to": [name], "subject": "sesame77", "body": "sesame77", "kind": "request", **more}


def reached(line: Line, name: str) -> Json:
    """What is told of an agent."""
    found: list[Json] = line.call("agents.list")["agents"]
    return next(one for one in found if one["name"] == name)


def until(line: Line, name: str, reach: str) -> Json:
    """Wait until mail would reach an agent so; what is told of it then."""
    told: Json = {}
    for _ in looks(SEEN_S):
        told = reached(line, name)
        if told["reach"] == reach:
            return told
    raise AssertionError(told)


def settled(line: Line, name: str) -> list[str]:
    """How the wakes of a mailbox ended, newest first, once all have."""
    for _ in looks(SEEN_S):
        found: list[Json] = line.call("diagnostics.show", mailbox=name)["wakes"]
        if found and all(one["outcome"] for one in found):
            return [one["outcome"] for one in found]
    raise AssertionError("no wake was settled")


def notice(name: str, waiting: int = 1) -> str:
    """The words that wake."""
    return f"mbx: {waiting} message{' waits' if waiting == 1 else 's wait'} for {name}"


@contextmanager
def at_a_terminal(
    name: str, daemon: Daemon, folder: Path, script: list[Json]
) -> Iterator[tuple[Terminal, FakeModel, Session]]:
    """A client with a name, which says `I have a name.`; then what `script` says."""
    mailbox = script[0]["input"]["name"]
    script = [script[0], {"expect": [mailbox], "text": "I have a name."}, *script[1:]]
    with FakeModel(script) as model:
        session = seated(CLIENTS[name], daemon, folder, model.url)
        with Terminal(session) as terminal:
            terminal.do("take a name", "I have a name.")
            yield terminal, model, session
        model.check()


@needs("opencode")
def test_an_idle_opencode_is_woken_by_its_plugin_once_and_its_sender_is_told(
    daemon: Daemon, new_holder: NewHolder, tmp_path: Path
) -> None:
    _, ana = new_holder()
    name = fresh_name("ben")
    script: list[Json] = [
        register(name),
        {"expect": [notice(name)], "reject": ["sesame77"], "tool": "mbx_inbox"},
        {"expect": ["notified"], "text": "I have mail."},
    ]
    with at_a_terminal("opencode", daemon, tmp_path, script) as (terminal, model, _):
        assert until(ana, name, "live-wake")["state"] == "idle"
        sent = ana.call("mail.send", key="1", **letter(name))
        assert sent["recipients"][0]["state"] == "live-wake"
        terminal.shows("I have mail.")
        assert settled(ana, name) == ACCEPTED
        [told] = ana.call("mail.sent", id=sent["id"])["messages"][0]["recipients"]
        assert told["stage"] == "notified"
        again = ana.call("mail.send", key="2", **letter(name))["recipients"][0]
        assert again["state"] == "live-next-prompt", "the brake is closed"
        assert len(model.of()) == 4


@needs("opencode")
def test_a_wake_of_opencode_keeps_the_agent_and_finds_the_conversation_of_now(
    daemon: Daemon, new_holder: NewHolder, tmp_path: Path
) -> None:
    _, ana = new_holder()
    name = fresh_name("ben")
    script: list[Json] = [
        register(name),
        {"text": "I plan now."},
        {"expect": [notice(name)], "reject": ["take a name"], "text": "I have mail."},
    ]
    with at_a_terminal("opencode", daemon, tmp_path, script) as (terminal, _, _):
        terminal.do("/new", "Ask anything")
        terminal.tmux("send-keys", "Tab")
        terminal.shows("Plan")
        terminal.do("make a plan", "I plan now.")
        until(ana, name, "live-wake")
        ana.call("mail.send", key="1", **letter(name))
        screen = terminal.shows("I have mail.")
        assert settled(ana, name) == ACCEPTED
        assert screen.count("Plan ·") >= 2, screen


@needs("opencode")
def test_an_opencode_whose_daemon_was_killed_is_woken_by_the_next_one(tmp_path: Path) -> None:

    name = fresh_name("ben")
    script: list[Json] = [register(name), {"expect": [notice(name)], "text": "I have mail."}]
    with own_daemon() as daemon, at_a_terminal("opencode", daemon, tmp_path, script) as seat:
        terminal, _, _ = seat
        daemon.kill()
        daemon.start()
        with daemon.agent() as agent, agent.registered(fresh_name()) as ana:
            until(ana, name, "live-wake")
            ana.call("mail.send", key="1", **letter(name))
            terminal.shows("I have mail.")


@needs("opencode")
def test_an_opencode_that_runs_one_turn_is_not_to_be_woken(
    daemon: Daemon, new_holder: NewHolder, tmp_path: Path
) -> None:
    _, ana = new_holder()
    name = fresh_name("ben")
    script: list[Json] = [register(name), {"text": "Done.", "until": "looked"}]
    with FakeModel(script) as model:
        session = seated(CLIENTS["opencode"], daemon, tmp_path, model.url)
        with session.running("take a name") as process:
            model.wait_for(1)
            reason: str = ""
            for _ in looks(SEEN_S):
                reason = reached(ana, name)["reach_detail"] or ""
                if "runs one turn" in reason:
                    break
            assert "it runs one turn and ends" in reason
            assert reached(ana, name)["reach"] == "live-next-prompt"
            model.open("looked")
            process.communicate(timeout=90)
        model.check()


def skipping_prompts(session: Session) -> None:
    """Have Claude Code ask nobody anything, as it is run where nobody is there to answer."""
    session.env["IS_SANDBOX"] = "1"  # without which root may not
    settings = session.home / ".claude" / "settings.json"
    edit_json(settings, lambda told: told.update({"skipDangerousModePermissionPrompt": True}))


@needs("claude")
def test_a_claude_that_holds_messages_back_is_woken_by_a_hook_that_it_left_running(
    daemon: Daemon, new_holder: NewHolder, tmp_path: Path
) -> None:
    _, ana = new_holder()
    name = fresh_name("ben")
    script: list[Json] = [
        register(name),
        {"text": "I have a name."},
        {"expect": [notice(name)], "reject": ["sesame77"], "tool": "mbx_inbox"},
        {"text": "I have mail."},
        {"text": "All is well."},
    ]
    with FakeModel(script) as model:
        session = seated(CLIENTS["claude"], daemon, tmp_path, model.url)
        skipping_prompts(session)
        with Terminal(session, "--dangerously-skip-permissions") as terminal:
            terminal.do("take a name", "I have a name.")
            assert until(ana, name, "live-wake")["state"] == "idle"
            sent = ana.call("mail.send", key="1", **letter(name))
            assert sent["recipients"][0]["state"] == "live-wake"
            terminal.shows("I have mail.")
            assert settled(ana, name) == ACCEPTED
            [told] = ana.call("mail.sent", id=sent["id"])["messages"][0]["recipients"]
            assert told["stage"] == "notified"
            terminal.do("and now", "All is well.")
        model.check()


@needs("claude")
def test_a_claude_that_runs_one_turn_waits_for_no_hook(
    daemon: Daemon, new_holder: NewHolder, tmp_path: Path
) -> None:
    name = fresh_name("ben")
    with FakeModel([register(name), {"text": "Done."}]) as model:
        session = seated(CLIENTS["claude"], daemon, tmp_path, model.url)
        skipping_prompts(session)
        session.run("take a name", "--dangerously-skip-permissions")
        model.check()


@needs("claude")
def test_a_claude_is_woken_before_its_first_prompt_where_its_launch_named_it(
    daemon: Daemon, new_holder: NewHolder, tmp_path: Path
) -> None:
    _, ana = new_holder()
    name = fresh_name("ben")
    with FakeModel([{"expect": [notice(name)], "text": "I have mail."}]) as model:
        session = seated(CLIENTS["claude"], daemon, tmp_path, model.url)
        skipping_prompts(session)
        session.env |= {"MBX_AGENT": name, "MBX_ROLE": "tester"}
        with Terminal(session, "--dangerously-skip-permissions") as terminal:
            until(ana, name, "live-wake")
            ana.call("mail.send", key="1", **letter(name))
            terminal.shows("I have mail.")
        model.check()


class KimiWeb:
    """`kimi web`, and what its web page would ask of it. Use it in ``with``."""

    def __init__(self, session: Session) -> None:
        self.session = session
        argv = [*session.interactive(), "web", "--no-open", "--port", "0"]
        self.process = subprocess.Popen(
            argv,
            env=session.env,
            cwd=session.work,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        assert self.process.stdout is not None
        said = ""
        while not (found := re.search(r"(http://127\S+)/#token=(\S+)", said)):
            line = self.process.stdout.readline()
            assert line, said
            said += line
        self.url, self.token = found[1], found[2]

    def ask(self, path: str, body: Json) -> Json:
        """What the server answers."""
        head = {"Authorization": f"Bearer {self.token}", "Content-Type": "application/json"}
        asked = urllib.request.Request(
            f"{self.url}/api/v1/{path}", json.dumps(body).encode(), head, method="POST"
        )
        with urllib.request.urlopen(asked, timeout=30) as answer:
            told: Json = json.load(answer)
        assert told["code"] == 0, told
        found: Json = told["data"]
        return found

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.communicate()


@needs("kimi")
def test_an_idle_conversation_of_kimi_web_is_woken_through_its_own_interface(
    daemon: Daemon, new_holder: NewHolder, tmp_path: Path
) -> None:
    _, ana = new_holder()
    name = fresh_name("ben")
    script: list[Json] = [
        register(name),
        {"text": "I have a name."},
        {"expect": [notice(name)], "reject": ["sesame77"], "tool": "mbx_inbox"},
        {"text": "I have mail."},
    ]
    with FakeModel(script) as model:
        session = seated(CLIENTS["kimi"], daemon, tmp_path, model.url)
        with KimiWeb(session) as server:
            own = server.ask("sessions", {"metadata": {"cwd": str(session.work)}})["id"]
            prompt = {"content": [{"type": "text", "text": "take a name"}], "model": "fake"}
            server.ask(f"sessions/{own}/prompts", {**prompt, "permission_mode": "yolo"})
            model.wait_for(1)
            assert until(ana, name, "live-wake")["state"] == "idle"
            sent = ana.call("mail.send", key="1", **letter(name))
            assert sent["recipients"][0]["state"] == "live-wake"
            model.wait_for(3)
            assert settled(ana, name) == ACCEPTED
            [told] = ana.call("mail.sent", id=sent["id"])["messages"][0]["recipients"]
            assert told["stage"] == "notified"
        model.check()
