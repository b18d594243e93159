"""Each real client finds the tools of mbx and works with its mailbox."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from mbx.mcp.guide import INSTRUCTIONS
from mbx.mcp.tools import TOOLS
from tests.clients.apis import Json
from tests.clients.clients import Client
from tests.clients.fakemodel import FakeModel
from tests.clients.script import find_tool
from tests.clients.seats import PROMPT, claim, each_client, register, seated, unheld
from tests.support.daemon import MBX, Daemon, NewHolder, fresh_name

pytestmark = [pytest.mark.long, pytest.mark.timeout(150)]

Record = Callable[[str, object], None]
"""Keeps a fact for the report."""

BODY = "Which port does the API listen on?"


def form_of(result: str) -> str:
    """Which part of the answer of mbx_inbox the model was shown."""
    forms = {"structured": '"unread":', "text": "next: mbx_read with the ids"}
    seen = [form for form, sign in forms.items() if sign in result]
    return "both" if len(seen) == 2 else "".join(seen) or "neither"


def loop(name: str, asked: str, noted: str) -> list[Json]:
    """Everything that an agent with two letters does, each step after it saw the one before."""
    return [
        {"expect": [PROMPT], "tool": "mbx_whoami"},
        claim(name, expect=["0.1.0"]),
        {"expect": [f"{name}@"], "tool": "mbx_inbox", "input": {"limit": 5}},
        {
            "expect": [asked, noted, "Port", "request", "policy"],
            "tool": "mbx_read",
            "input": {"ids": [asked, noted]},
        },
        {
            "expect": [BODY, "local (sent by an identity of this host", "ask"],
            "tool": "mbx_reply",
            "input": {"id": asked, "body": "8081", "final": "acted", "did": "read the settings"},
        },
        {
            "expect": ["live-next-prompt"],
            "tool": "mbx_ack",
            "input": {"ids": [noted], "outcome": "noted", "did": "kept it in mind"},
        },
        {"expect": [noted], "tool": "mbx_sent"},
        {"expect": ["delivered"], "text": "Both letters are done."},
    ]


@each_client
def test_it_reads_answers_and_acks_its_mail(
    client: Client,
    daemon: Daemon,
    new_holder: NewHolder,
    tmp_path: Path,
    record_property: Record,
) -> None:
    _, ana = new_holder()
    ben = unheld(daemon)
    letter = {"to": [ben], "subject": "Port", "body": BODY, "kind": "request", "needs_reply": True}
    asked = ana.call("mail.send", key="1", **letter)["id"]
    noted = ana.call("mail.send", key="2", to=[ben], subject="FYI", body="It moved.")["id"]
    with FakeModel(loop(ben, asked, noted)) as model:
        out = seated(client, daemon, tmp_path, model.url).run(PROMPT)
        model.check()
        requests = model.of()
    assert "Both letters are done." in out
    offered: dict[str, Json] = {name: {} for name in requests[0].tools}
    names = [str(tool["name"]) for tool in TOOLS]
    at_once = [name for name in names if find_tool(name, offered)]
    record_property("tools", f"{len(at_once)} of {len(names)}")
    is_told = INSTRUCTIONS[:60] in json.dumps(requests[0].body)
    record_property("instructions", "yes" if is_told else "no")
    after = next(one.text for one in requests if one.turn == 3 and not one.is_search)
    record_property("shown", form_of(after))
    assert form_of(after) == client.shows
    told = {one["id"]: one["recipients"][0] for one in ana.call("mail.sent")["messages"]}
    assert (told[asked]["stage"], told[asked]["did"]) == ("acked", "read the settings")
    assert (told[noted]["outcome"], told[noted]["did"]) == ("noted", "kept it in mind")
    [answer] = ana.call("mail.inbox")["messages"]
    assert (answer["kind"], answer["thread"]) == ("reply", asked)


@each_client
def test_it_speaks_the_protocol_without_an_error(
    client: Client, daemon: Daemon, tmp_path: Path, record_property: Record
) -> None:
    said, answered = tmp_path / "said", tmp_path / "answered"
    tapped = f"tee -a {said} | {MBX} mcp | tee -a {answered}"
    name = fresh_name()
    script = [register(name), {"expect": [f"{name}@"], "text": "Done."}]
    with FakeModel(script) as model:
        session = client.prepare(tmp_path, model.url)
        session.add_mcp("mbx", ["sh", "-c", tapped], {"MBX_HOME": str(daemon.home)})
        session.run(PROMPT)
        model.check()
    requests = [json.loads(line) for line in said.read_text().splitlines()]
    answers = [json.loads(line) for line in answered.read_text().splitlines()]
    assert [one for one in answers if "error" in one] == []
    record_property("protocol", " ".join(sorted(revisions(requests))))


def revisions(requests: list[Json]) -> set[str]:
    """The revisions of MCP that a client's requests name."""
    found = set()
    for one in requests:
        params = one.get("params") or {}
        if one.get("method") == "initialize":
            found.add(params["protocolVersion"])
        found.add((params.get("_meta") or {}).get("io.modelcontextprotocol/protocolVersion", ""))
    return found - {""}


@each_client
def test_a_refusal_tells_its_model_what_to_call(
    client: Client, daemon: Daemon, tmp_path: Path
) -> None:
    script: list[Json] = [
        {"tool": "mbx_inbox"},
        {"expect": ["no-lease", "mbx_identity with action"], "text": "I have no name."},
    ]
    with FakeModel(script) as model:
        seated(client, daemon, tmp_path, model.url).run(PROMPT)
        model.check()
