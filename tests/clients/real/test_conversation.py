"""Real clients of several makers talk through mbx; one is killed, and another one goes on."""

import json
import os
import re
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

from tests.clients.apis import Json
from tests.clients.clients import CLIENTS
from tests.clients.fakemodel import FakeModel
from tests.clients.seats import claim, free, needs, register, seated, shown
from tests.clients.terminal import OwnerTerminal, Terminal
from tests.clients.transcript import Transcript
from tests.support.daemon import MBX, running
from tests.support.shells import TmuxPane

pytestmark = [
    pytest.mark.long,
    pytest.mark.timeout(180),
    pytest.mark.skipif(not TmuxPane.is_available(), reason="tmux is not installed"),
]

Record = Callable[[str, object], None]
"""Keeps a piece of the report."""

ID: Final = r'(?m)(?:"id": ?"|^|sent )([a-z0-9]{26})\b'
"""The id of a message in what a model is shown: as an object, a row, or the answer of a send."""

ASK: Final = "Which port does the API listen on?"
AGAIN: Final = "And which one do the tests use?"
DID: Final = "read it in the settings"
DID_AGAIN: Final = "looked into the test settings"


def request(body: str) -> Json:
    """A letter of ana's that wants an answer."""
    kind = {"kind": "request", "needs_reply": True}
    return {"to": ["ben"], "subject": "Port", "body": body, **kind}


def ana() -> list[Json]:
    """Asks; is woken by the answer; asks again, and looks what became of it."""
    return [
        register("ana"),
        {"expect": ["ana@"], "tool": "mbx_send", "input": request(ASK)},
        {"capture": {"asked": ID}, "text": "I asked ben."},
        {"expect": ["mbx: 1 message waits for ana"], "tool": "mbx_inbox"},
        {"capture": {"answer": ID}, "tool": "mbx_read", "input": {"ids": ["{{answer}}"]}},
        {
            "expect": ["The API listens on 8081."],
            "tool": "mbx_ack",
            "input": {"ids": ["{{answer}}"], "outcome": "noted", "did": "told my human"},
        },
        {"tool": "mbx_sent", "input": {"id": "{{asked}}"}},
        {"expect": ["acked", DID], "text": "It is 8081."},
        {"tool": "mbx_send", "input": request(AGAIN)},
        {"capture": {"asked": ID}, "text": "I asked ben about the tests."},
        {"tool": "mbx_sent", "input": {"id": "{{asked}}"}},
        {"expect": ["acked", DID_AGAIN], "text": "Ben has answered that too."},
    ]


def ben() -> list[Json]:
    """Takes a name and waits; then reads, answers and acks."""
    return [
        register("ben"),
        {"expect": ["ben@"], "text": "I am ben."},
        {"expect": ["mbx: 1 message waits for ben"], "tool": "mbx_inbox"},
        {"capture": {"asked": ID}, "tool": "mbx_read", "input": {"ids": ["{{asked}}"]}},
        {
            "expect": [ASK, "ana@"],
            "tool": "mbx_reply",
            "input": {"id": "{{asked}}", "body": "The API listens on 8081.", "needs_reply": True},
        },
        {
            "tool": "mbx_ack",
            "input": {"ids": ["{{asked}}"], "outcome": "acted", "did": DID},
        },
        {"expect": ["acked"], "text": "Ana has her answer."},
    ]


def successor() -> list[Json]:
    """Takes over the name, and what waits for it."""
    return [
        claim("ben"),
        {"expect": ["ben@"], "tool": "mbx_inbox"},
        {"capture": {"asked": ID}, "tool": "mbx_read", "input": {"ids": ["{{asked}}"]}},
        {
            "expect": [AGAIN, "ana@"],
            "tool": "mbx_reply",
            "input": {
                "id": "{{asked}}",
                "body": "They use 8082.",
                "final": "acted",
                "did": DID_AGAIN,
            },
        },
        {"text": "I went on for ben."},
    ]


@needs("claude", "codex", "opencode")
def test_two_clients_talk_and_a_third_goes_on_for_the_one_that_was_killed(
    tmp_path: Path, record_property: Record
) -> None:
    script = {"lanes": {"ana": ana(), "ben": ben(), "next": successor()}}
    with running() as daemon, FakeModel(script) as model:
        told = Transcript(model)
        seats = {
            lane: seated(CLIENTS[name], daemon, tmp_path / lane, f"{model.url}/{lane}")
            for lane, name in (("ana", "claude"), ("ben", "codex"), ("next", "opencode"))
        }
        with Terminal(seats["ana"]) as one, Terminal(seats["ben"]) as other:
            other.do("take the name ben", "I am ben.")
            told.says("Ben's human, at Codex: *take the name ben*")
            told.played("ben", "ben")
            one.do("ask ben for the port of the API", "I asked ben.")
            told.says("Ana's human, at Claude Code: *ask ben for the port of the API*")
            told.played("ana", "ana")
            other.shows("Ana has her answer.")
            told.says("Nobody types anything: Codex, which was idle, is woken by the mail.")
            told.played("ben", "ben")
            told.screen(other, "Ben's screen")
            one.shows("It is 8081.")
            told.says("Claude Code, which was idle, is woken by the answer.")
            told.played("ana", "ana")
            one.do("ask about the tests", "I asked ben about the tests.")
            told.says("Ana's human: *ask about the tests*")
            holder = shown(daemon, "ben")["holder"]
            assert holder["cli"] == "codex"
            os.kill(holder["pid"], signal.SIGKILL)
            told.played("ana", "ana")
            entry = free(daemon, "ben")
            told.says("Codex is killed (`kill -9`). What mbx tells of ben then:")
            told.says(f"    {json.dumps({k: entry[k] for k in ('state', 'claimable', 'holder')})}")
            with Terminal(seats["next"]) as third:
                third.do("go on for ben", "I went on for ben.")
                told.says("A third human, at OpenCode: *go on for ben*")
                told.played("next", "the successor")
                told.screen(third, "The successor's screen")
                one.do("and now", "Ben has answered that too.")
                told.says("Ana's human: *and now*")
                told.played("ana", "ana")
                told.screen(one, "Ana's screen")
                after = shown(daemon, "ben")
        model.check()
    assert after["holder"]["cli"] == "opencode"
    assert after["identity"] == entry["identity"]
    record_property("A conversation, and a successor", told)


def hung() -> list[Json]:
    """Holds a name, hangs, and comes back."""
    return [
        register("ana"),
        {"expect": ["ana@"], "text": "I am ana."},
        {"tool": "mbx_inbox"},
        {"expect": ["lease-lost"], "text": "I am ana no longer."},
    ]


def heir() -> list[Json]:
    """Says which session it is; later it is ana."""
    return [
        {"tool": "mbx_whoami"},
        {"text": "I have no name yet."},
        {"tool": "mbx_whoami"},
        {"expect": ["ana@"], "text": "I am ana now."},
    ]


@needs("claude", "codex")
def test_the_owner_gives_the_name_of_a_client_that_hangs_to_another_one(
    tmp_path: Path, record_property: Record
) -> None:
    with running() as daemon, FakeModel({"lanes": {"old": hung(), "new": heir()}}) as model:
        told = Transcript(model)
        old = seated(CLIENTS["claude"], daemon, tmp_path / "old", f"{model.url}/old")
        new = seated(CLIENTS["codex"], daemon, tmp_path / "new", f"{model.url}/new")
        path = f"{Path(MBX).parent}:{daemon.environment['PATH']}"
        shell = {**daemon.environment, "PATH": path}
        with Terminal(old) as one, Terminal(new) as other, OwnerTerminal(shell) as owner:
            one.do("take the name ana", "I am ana.")
            other.do("who are you", "I have no name yet.")
            seen = re.search(
                r'"session": ?{"cli": ?"codex", ?"id": ?"([^"]+)"', model.text(-1, "new")
            )
            assert seen is not None
            holder = shown(daemon, "ana")["holder"]
            os.kill(holder["pid"], signal.SIGSTOP)
            told.says("Claude Code holds ana and hangs (`kill -STOP`). The owner, at a terminal:")
            owner.signs("mbx owner init", "New passphrase", "The same again:")
            take = f"mbx identity takeover ana --force --cli codex --session {seen[1]}"
            screen = owner.signs(f"{take} --reason hangs")
            told.says(f"```text\n{screen}\n```")
            other.do("and now", "I am ana now.")
            told.says("The human at Codex: *and now*")
            told.played("new", "codex")
            os.kill(holder["pid"], signal.SIGCONT)
            one.do("look for mail", "I am ana no longer.")
            told.says("Claude Code goes on (`kill -CONT`); its human: *look for mail*")
            told.played("old", "claude")
        model.check()
    record_property("A takeover by the owner", told)
