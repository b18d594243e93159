"""Hostile texts through every field: unchanged inside, inert where a person reads them."""

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.daemon import MBX, Agent, Daemon, Line, fresh_name, request, running
from tests.support.rules import ROOT

pytestmark = [pytest.mark.long, pytest.mark.timeout(120)]

SCRIPT_S = 60.0
"""For a script of dozens of commands, each of which starts Python, on a busy machine."""

CASES = json.loads((ROOT / "tests/vectors/hostile/text.json").read_text())
TEXTS: list[str] = [case["text"] for case in CASES]
NAUGHTY: list[str] = json.loads((ROOT / "tests/vectors/blns/blns.json").read_text())
ALL = [*TEXTS, *NAUGHTY]

LINE_BREAKS = set("\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029")
CONTROLS = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]")
DECEIVERS = re.compile(
    "[\u061c\u200b\u200e\u200f\u202a-\u202e\u2060-\u2069\ufeff\U000e0000-\U000e007f]"
)
"""Characters that turn the direction or cannot be seen, and never belong to honest words alone."""


@pytest.fixture(scope="module")
def pair(daemon: Daemon) -> Iterator[tuple[Line, Line, str]]:
    """A sender, a recipient, and the name of the recipient."""
    with (
        daemon.agent() as one,
        daemon.agent() as other,
        one.registered(fresh_name()) as sender,
        other.registered(name := fresh_name()) as recipient,
    ):
        yield sender, recipient, name


Request = tuple[str, dict[str, object]]


def answers(line: Line, requests: list[Request]) -> list[tuple[str, dict[str, Any]]]:
    """(`ok` or code, result or error data) of many calls that share a write."""
    line.write(
        b"".join(
            request(number, method, **params) + b"\n"
            for number, (method, params) in enumerate(requests)
        )
    )
    told: dict[int, tuple[str, dict[str, Any]]] = {}
    for _ in requests:
        answer = line.read()
        if "error" in answer:
            data = answer["error"]["data"]
            told[answer["id"]] = (data["code"], data)
        else:
            told[answer["id"]] = ("ok", answer["result"])
    return [told[number] for number in range(len(requests))]


FIELDS = {"subject": 200, "topic": 200, "body": 0, "refs": 2_048}
"""Field of a send -> characters of a line; 0: a body, which has lines and no such limit."""


@pytest.mark.parametrize("field", FIELDS)
def test_every_text_is_returned_exactly_or_refused_with_its_character_named(
    field: str, pair: tuple[Line, Line, str]
) -> None:
    sender, recipient, name = pair
    sends: list[Request] = []
    for text in ALL:
        value: object = [text] if field == "refs" else text
        sends.append(("mail.send", {"to": [name], "subject": "s", "body": "b", field: value}))
    kept: dict[str, str] = {}
    for text, (code, told) in zip(ALL, answers(sender, sends), strict=True):
        wanted = "text-invalid" if is_refused(text, FIELDS[field]) else "ok"
        assert code == wanted, text
        if code == "ok":
            kept[told["id"]] = text
        else:
            assert told["field"] == field.removesuffix("s")
            assert told["message"].isprintable()
    assert len(kept) > 500
    reads: list[Request] = [("mail.read", {"ids": [one]}) for one in kept]
    for (message_id, text), (_, told) in zip(kept.items(), answers(recipient, reads), strict=True):
        (message,) = told["messages"]
        assert message["id"] == message_id
        assert message[field] == ([text] if field == "refs" else text)
    if field == "subject":
        for line, method in ((sender, "mail.sent"), (recipient, "mail.inbox")):
            assert subjects(line, method, set(kept)) == kept
    answers(recipient, [("mail.ack", {"ids": list(kept)[n : n + 200]}) for n in (0, 200, 400)])


def is_refused(text: str, line_chars: int) -> bool:
    """Whether the door refuses a text: in a line of so many characters, or (0) in a body."""
    if not line_chars:
        return "\0" in text
    return not 1 <= len(text) <= line_chars or "\0" in text or bool(LINE_BREAKS & set(text))


def subjects(line: Line, method: str, wanted: set[str]) -> dict[str, str]:
    """id -> subject of a whole listing, for the ids wanted."""
    found: dict[str, str] = {}
    cursor = None
    while True:
        page = line.call(method, limit=200, cursor=cursor)
        found |= {one["id"]: one["subject"] for one in page["messages"] if one["id"] in wanted}
        cursor = page["next_cursor"]
        if cursor is None:
            return found


@pytest.mark.parametrize("field", ["did", "note"])
def test_what_an_ack_says_comes_back_exactly_or_is_refused(
    field: str, pair: tuple[Line, Line, str]
) -> None:
    sender, recipient, name = pair
    send: Request = ("mail.send", {"to": [name], "subject": "s", "body": "b"})
    ids = [told["id"] for _, told in answers(sender, [send] * len(TEXTS))]
    acks: list[Request] = [
        ("mail.ack", {"ids": [one], field: text}) for one, text in zip(ids, TEXTS, strict=True)
    ]
    looks: list[Request] = [("mail.sent", {"id": one}) for one in ids]
    outcomes = [code for code, _ in answers(recipient, acks)]
    for text, code, (_, told) in zip(TEXTS, outcomes, answers(sender, looks), strict=True):
        breaks = field == "did" and bool(LINE_BREAKS & set(text))
        assert code == ("text-invalid" if breaks or "\0" in text else "ok"), text
        (one,) = told["messages"][0]["recipients"]
        assert one[field] == (text if code == "ok" else None)


# -- the command line -----------------------------------------------------------------------------


def run_as(daemon: Daemon, name: str, script: str, *argv: str) -> str:
    """What a shell script prints that acts as `name`."""
    path = f"{Path(MBX).parent}:{daemon.environment['PATH']}"
    done = subprocess.run(
        [MBX, "run", "--as", name, "--", "sh", "-c", script, "sh", *argv],
        env=daemon.environment | {"PATH": path},
        capture_output=True,
        timeout=SCRIPT_S,
        check=True,
    )
    assert done.stderr == b""
    return done.stdout.decode()


def fill(daemon: Daemon, sender: Line, recipient: Line, to: str) -> list[str]:
    """One message for each text that a subject or body takes; the ids."""
    ids = []
    for text in TEXTS:
        body = text.replace("\0", "")
        line = "".join(character for character in body if character not in LINE_BREAKS) or "s"
        ids.append(
            sender.call(
                "mail.send", to=[to], subject=line, body=body, topic=line, refs=[line], key=None
            )["id"]
        )
        recipient.call("mail.ack", ids=[ids[-1]], did=line, note=body)
    return ids


def described(daemon: Daemon, agent: Agent) -> None:
    """An identity for each description that is taken."""
    for text in TEXTS:
        with agent.connect() as line:
            asked: dict[str, object] = {"name": fresh_name(), "role": "tester", "description": text}
            answers(line, [("identity.register", asked), ("identity.release", {})])


def test_text_output_is_inert_and_json_output_is_exact() -> None:
    with running() as daemon, daemon.agent() as one, daemon.agent() as other:
        described(daemon, one)
        sender_name, name = fresh_name(), fresh_name()
        with one.registered(sender_name) as sender, other.registered(name) as recipient:
            ids = fill(daemon, sender, recipient, name)
            page = recipient.call("mail.inbox", all=True, limit=200)
            bodies = {n: whole["body"] for n in ids for whole in read(recipient, n)}
            for line in (sender, recipient):
                line.call("identity.release")
        received = run_as(daemon, name, 'mbx inbox --all --limit 200; mbx read "$@"', *ids)
        told = run_as(
            daemon, sender_name, 'mbx sent --limit 200; for id; do mbx sent "$id"; done', *ids[:40]
        )
        shown = daemon.mbx("identity", "list").stdout
        assert len(received) > 10_000
        assert len(shown.splitlines()) > 60
        for output in (received, told, shown):
            assert CONTROLS.findall(output) == []
            assert DECEIVERS.findall(output) == []
        exact = run_as(
            daemon, name, 'mbx inbox --all --limit 200 --json; mbx read --json "$@"', *ids
        )
        assert exact.isascii()
        inbox, whole = map(json.loads, exact.splitlines())
        assert inbox["messages"] == page["messages"]
        assert {one["id"]: one["body"] for one in whole["messages"]} == bodies


def read(line: Line, message_id: str) -> list[dict[str, Any]]:
    messages = line.call("mail.read", ids=[message_id])["messages"]
    assert isinstance(messages, list)
    return messages


def test_a_refusal_of_a_hostile_argument_is_inert(daemon: Daemon) -> None:
    one_of_each_sort = {case["category"]: case["text"] for case in CASES}
    for text in one_of_each_sort.values():
        argument = text.replace("\0", "").lstrip("-") or "x"
        for argv in (("identity", "show", argument), (argument,)):
            done = daemon.mbx(*argv)
            assert done.returncode != 0
            assert CONTROLS.findall(done.stdout + done.stderr) == [], argv
