"""Idle clients at a terminal that are woken by mail, each by its own way."""

import json
import os
import re
import signal
import subprocess
import urllib.request
from collections.abc import Callable, Iterator, Sequence
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

WORD: Final = "sesame77"
"""In every message, and in nothing that wakes."""


def notice(name: str) -> str:
    """The words that wake for one message."""
    return f"mbx: 1 message waits for {name}"


class Ben:
    """A client's mailbox, as ana sees it, who writes to it."""

    def __init__(self, name: str, ana: Line) -> None:
        self.name: Final = name
        self.ana: Final = ana
        self._written = 0

    def seen(self) -> Json:
        """What is told of it now."""
        found: list[Json] = self.ana.call("agents.list")["agents"]
        return next(one for one in found if one["name"] == self.name)

    def until(self, reach: str) -> Json:
        """Wait until mail would reach it so; what is told of it then."""
        told: Json = {}
        for _ in looks(SEEN_S):
            told = self.seen()
            if told["reach"] == reach:
                return told
        raise AssertionError(told)

    def write(self) -> Json:
        """Send it a request; the answer to the send."""
        self._written += 1
        letter = {"subject": WORD, "body": WORD, "kind": "request"}
        return self.ana.call("mail.send", key=str(self._written), to=[self.name], **letter)

    def wakes(self) -> list[str]:
        """How its wakes ended, newest first, once all have."""
        for _ in looks(SEEN_S):
            found: list[Json] = self.ana.call("diagnostics.show", mailbox=self.name)["wakes"]
            if found and all(one["outcome"] for one in found):
                return [one["outcome"] for one in found]
        raise AssertionError("no wake was settled")

    def is_woken(self, shows: Callable[[], object]) -> None:
        """Write to it while it is idle: the sender hears the truth, before and after it `shows`."""
        assert self.until("live-wake")["state"] == "idle"
        sent = self.write()
        assert sent["recipients"][0]["state"] == "live-wake"
        shows()
        assert self.wakes() == ACCEPTED
        [told] = self.ana.call("mail.sent", id=sent["id"])["messages"][0]["recipients"]
        assert told["stage"] == "notified"


@pytest.fixture
def ben(new_holder: NewHolder) -> Ben:
    """A name that a client takes, and somebody who writes to it."""
    _, ana = new_holder()
    return Ben(fresh_name("ben"), ana)


Ready = Callable[[Session], Sequence[str]]
"""Changes the settings of a client; the arguments to start it with."""


def as_it_is(_: Session) -> Sequence[str]:
    """Change nothing."""
    return ()


def skipping_prompts(session: Session) -> Sequence[str]:
    """Have Claude Code ask nobody anything, as it is run where nobody is there to answer."""
    session.env["IS_SANDBOX"] = "1"  # without which root may not
    settings = session.home / ".claude" / "settings.json"
    edit_json(settings, lambda told: told.update({"skipDangerousModePermissionPrompt": True}))
    return ("--dangerously-skip-permissions",)


@contextmanager
def at_a_terminal(
    name: str, daemon: Daemon, folder: Path, script: list[Json], ready: Ready = as_it_is
) -> Iterator[tuple[Terminal, FakeModel, Session]]:
    """A client with a name, which says `I have a name.`; then what `script` says."""
    mailbox = script[0]["input"]["name"]
    script = [script[0], {"expect": [mailbox], "text": "I have a name."}, *script[1:]]
    with FakeModel(script) as model:
        session = seated(CLIENTS[name], daemon, folder, model.url)
        with Terminal(session, *ready(session)) as terminal:
            terminal.do("take a name", "I have a name.")
            yield terminal, model, session
        model.check()


@needs("opencode")
def test_an_idle_opencode_is_woken_by_its_plugin_once_and_its_sender_is_told(
    daemon: Daemon, ben: Ben, tmp_path: Path
) -> None:
    script: list[Json] = [
        register(ben.name),
        {"expect": [notice(ben.name)], "reject": [WORD], "tool": "mbx_inbox"},
        {"expect": ["notified"], "text": "I have mail."},
    ]
    with at_a_terminal("opencode", daemon, tmp_path, script) as (terminal, model, _):
        ben.is_woken(lambda: terminal.shows("I have mail."))
        again = ben.write()["recipients"][0]
        assert again["state"] == "live-next-prompt", "the brake is closed"
        assert len(model.of()) == 4


@needs("opencode")
def test_a_wake_of_opencode_keeps_the_agent_and_finds_the_conversation_of_now(
    daemon: Daemon, ben: Ben, tmp_path: Path
) -> None:
    script: list[Json] = [
        register(ben.name),
        {"text": "I plan now."},
        {"expect": [notice(ben.name)], "reject": ["take a name"], "text": "I have mail."},
    ]
    with at_a_terminal("opencode", daemon, tmp_path, script) as (terminal, _, _):
        terminal.do("/new", "Ask anything")
        terminal.tmux("send-keys", "Tab")
        terminal.shows("Plan")
        terminal.do("make a plan", "I plan now.")
        ben.until("live-wake")
        ben.write()
        screen = terminal.shows("I have mail.")
        assert ben.wakes() == ACCEPTED
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
            ben = Ben(name, ana)
            ben.until("live-wake")
            ben.write()
            terminal.shows("I have mail.")


@needs("opencode")
def test_an_opencode_that_runs_one_turn_is_not_to_be_woken(
    daemon: Daemon, ben: Ben, tmp_path: Path
) -> None:
    script: list[Json] = [register(ben.name), {"text": "Done.", "until": "looked"}]
    with FakeModel(script) as model:
        session = seated(CLIENTS["opencode"], daemon, tmp_path, model.url)
        with session.running("take a name") as process:
            model.wait_for(1)
            reason: str = ""
            for _ in looks(SEEN_S):
                reason = ben.seen()["reach_detail"] or ""
                if "runs one turn" in reason:
                    break
            assert "it runs one turn and ends" in reason
            assert ben.seen()["reach"] == "live-next-prompt"
            model.open("looked")
            process.communicate(timeout=90)
        model.check()


@needs("claude")
def test_a_claude_that_holds_messages_back_is_woken_by_a_hook_that_it_left_running(
    daemon: Daemon, ben: Ben, tmp_path: Path
) -> None:
    script: list[Json] = [
        register(ben.name),
        {"expect": [notice(ben.name)], "reject": [WORD], "tool": "mbx_inbox"},
        {"text": "I have mail."},
        {"text": "All is well."},
    ]
    with at_a_terminal("claude", daemon, tmp_path, script, skipping_prompts) as (terminal, _, _):
        ben.is_woken(lambda: terminal.shows("I have mail."))
        terminal.do("and now", "All is well.")


@needs("claude")
def test_a_claude_that_runs_one_turn_waits_for_no_hook(
    daemon: Daemon, ben: Ben, tmp_path: Path
) -> None:
    with FakeModel([register(ben.name), {"text": "Done."}]) as model:
        session = seated(CLIENTS["claude"], daemon, tmp_path, model.url)
        session.run("take a name", *skipping_prompts(session))
        model.check()


@needs("claude")
def test_a_claude_is_woken_before_its_first_prompt_where_its_launch_named_it(
    daemon: Daemon, ben: Ben, tmp_path: Path
) -> None:
    with FakeModel([{"expect": [notice(ben.name)], "text": "I have mail."}]) as model:
        session = seated(CLIENTS["claude"], daemon, tmp_path, model.url)
        session.env |= {"MBX_AGENT": ben.name, "MBX_ROLE": "tester"}
        with Terminal(session, *skipping_prompts(session)) as terminal:
            ben.until("live-wake")
            ben.write()
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
    daemon: Daemon, ben: Ben, tmp_path: Path
) -> None:
    script: list[Json] = [
        register(ben.name),
        {"text": "I have a name."},
        {"expect": [notice(ben.name)], "reject": [WORD], "tool": "mbx_inbox"},
        {"text": "I have mail."},
    ]
    with FakeModel(script) as model:
        session = seated(CLIENTS["kimi"], daemon, tmp_path, model.url)
        with KimiWeb(session) as server:
            own = server.ask("sessions", {"metadata": {"cwd": str(session.work)}})["id"]
            prompt = {"content": [{"type": "text", "text": "take a name"}], "model": "fake"}
            server.ask(f"sessions/{own}/prompts", {**prompt, "permission_mode": "yolo"})
            model.wait_for(1)
            ben.is_woken(lambda: model.wait_for(3))
        model.check()
