"""What a tool answers: the object and the text say the same, whatever others wrote."""

import json
import re
from typing import Any

import pytest

from mbx.core.errors import MbxError
from mbx.core.text import visible
from mbx.mcp import rendering
from mbx.mcp.tools import BY_NAME
from tests.support.rules import ROOT

CASES_OF_TEXT = json.loads((ROOT / "tests/vectors/hostile/text.json").read_text())
HOSTILE: list[str] = [case["text"] for case in CASES_OF_TEXT]

ID = "7k2q9xw1abcdefghjkmnpqrstv"
AT = "2026-11-30T12:00:00.000Z"
BOUNDARY = "0f" * 16
LISTING_MAX_BYTES = 6_500
"""S18: a listing of 20 messages, in its larger form."""
SENT_MAX_BYTES = 400
"""S18: the answer to a send."""


def head(**more: Any) -> dict[str, Any]:
    """A message as listings have it."""
    return {
        "id": ID,
        "from": "api-dev@desktop",
        "subject": "Which port does the API listen on now?",
        "kind": "request",
        "at": AT,
        "thread": ID[::-1],
        "needs_reply": True,
        "stage": "delivered",
        "progress": "open",
        "trust": "local",
        "policy": "ask",
        "bytes": 700,
        "attachments": 0,
        **more,
    }


def letter() -> dict[str, Any]:
    """A message as it is read."""
    return head(
        to=["ui-dev@desktop"],
        reply_to=None,
        topic=None,
        boundary=BOUNDARY,
        refs=[],
        origin=None,
        hop=0,
        trust_line="trust: local (sent by an identity of this host, under its lease)",
        policy_line="policy: ask (nothing more is delegated)",
        imitations=0,
        body="The body.",
        body_offset=0,
        body_total=9,
        truncated=False,
        next_offset=None,
    )


def recipient(**more: Any) -> dict[str, Any]:
    return {
        "address": "ben@desktop",
        "stage": "acked",
        "at": AT,
        "did": "moved the client to 8081",
        "note": None,
        "outcome": "acted",
        "liveness": "live",
        "error": None,
        **more,
    }


SENT = {
    "id": ID,
    "thread": ID,
    "recipients": [
        {
            "address": "ben@desktop",
            "identity": ID,
            "state": "live-next-prompt",
            "detail": "held by a live session",
        }
    ],
    "duplicate": False,
    "warnings": [],
}

RESULTS: dict[str, list[dict[str, Any]]] = {
    "mbx_whoami": [
        {
            "agent": "ana",
            "address": "ana@desktop",
            "identity": ID,
            "role": "backend",
            "description": "the API",
            "project": "/home/ana/api",
            "lease": {"epoch": 3, "since": AT, "expires_in_s": 1795},
            "unread": 2,
            "next": "mbx inbox",
            "session": {"cli": "claude", "id": "s-1"},
            "missed": None,
            "pending": None,
            "lost": None,
            "policies": [{"id": ID, "level": "collaborate", "classes": ["read"], "until": AT}],
            "external": AT,
            "host": "desktop",
            "lineage": "an agent CLI is the caller",
            "daemon_version": "0.1.0",
            "version": "0.1.0",
        }
    ],
    "mbx_identity": [
        {
            "identities": [
                {
                    "name": "ana",
                    "identity": ID,
                    "role": "backend",
                    "description": "the API",
                    "project": None,
                    "state": "held",
                    "claimable": False,
                    "reason": "held by a live session",
                    "holder": {
                        "cli": "claude",
                        "session": "s-1",
                        "pid": 7,
                        "epoch": 1,
                        "since": AT,
                    },
                    "unread": 0,
                    "last_seen": AT,
                }
            ],
            "next_after": None,
        },
        {
            "agent": "ana",
            "address": "ana@desktop",
            "role": "backend",
            "epoch": 4,
            "unread": 0,
            "missed": None,
            "open_threads": 1,
            "recent_notes": [],
        },
        {"released": "ana", "epoch": 4},
    ],
    "mbx_agents": [
        {
            "agents": [
                {
                    "name": "ben",
                    "host": "desktop",
                    "address": "ben@desktop",
                    "role": "frontend",
                    "description": "The web client",
                    "cli": "codex",
                    "state": "live",
                    "reach": "live-next-prompt",
                    "reach_detail": "it sees mail at its next prompt",
                    "project": None,
                    "card": "knows CSS",
                    "last_seen": AT,
                }
            ],
            "next_after": None,
        }
    ],
    "mbx_inbox": [
        {"messages": [head()], "unread": 1, "next_cursor": None, "has_more": False},
        {"messages": [head()], "unread": 9, "next_cursor": "inbox.abc.1", "has_more": True},
        {"messages": [], "unread": 0, "next_cursor": None, "has_more": False},
    ],
    "mbx_read": [
        {
            "messages": [letter(), letter() | {"topic": "ports", "refs": ["src/api.py"]}],
            "failed": [{"id": "zzzzzz", "code": "not-found"}],
            "unread": 0,
        }
    ],
    "mbx_send": [SENT, {**SENT, "duplicate": True, "warnings": ["the body has 3,000 bytes"]}],
    "mbx_reply": [SENT],
    "mbx_ack": [
        {"acked": [ID], "failed": [], "unread": 0, "warnings": []},
        {"acked": [], "failed": [{"id": ID, "code": "not-found"}], "unread": 1, "warnings": ["w"]},
    ],
    "mbx_thread": [
        {
            "thread": ID,
            "messages": [head(recipients=[recipient()], to=["ben@desktop"], reply_to=ID)],
        }
    ],
    "mbx_search": [
        {"messages": [head(snippet="port 8081")], "next_cursor": None, "has_more": False}
    ],
    "mbx_sent": [
        {
            "messages": [
                {"id": ID, "subject": "s", "to": ["b@c"], "at": AT, "recipients": [recipient()]}
            ],
            "next_cursor": "sent.abc.1",
            "has_more": True,
        },
        {
            "messages": [
                {
                    "id": ID,
                    "subject": "s",
                    "to": ["b@c"],
                    "at": AT,
                    "recipients": [recipient()],
                    "body": "the port is 8081",
                    "body_offset": 0,
                    "body_total": 90,
                    "truncated": True,
                    "next_offset": 16,
                }
            ],
            "next_cursor": None,
            "has_more": False,
        },
    ],
}

CASES = [(tool, result) for tool, results in RESULTS.items() for result in results]

UNSAID = {"host", "name", "body_offset", "body_total", "truncated", "boundary", "has_more"}
"""Fields whose fact is said by another one, or by the form of the text."""


def facts(value: Any, field: str = "") -> list[tuple[str, str]]:
    """All that an object says, as (field, text)."""
    if isinstance(value, dict):
        return [fact for key, entry in value.items() for fact in facts(entry, key)]
    if isinstance(value, list):
        return [fact for entry in value for fact in facts(entry, field)]
    if value is None or value is False or value is True or value in ("", 0):
        return []
    return [(field, str(value))]


def test_every_tool_has_a_form_and_a_sample() -> None:
    assert set(RESULTS) == set(BY_NAME) - {"mbx_hook"}


@pytest.mark.parametrize(("tool", "result"), CASES)
def test_the_text_says_every_fact_of_the_object(tool: str, result: dict[str, Any]) -> None:
    told, text = rendering.structured(tool, result), rendering.text(tool, result)
    for field, fact in facts(told):
        if field not in UNSAID and field != "next":
            assert fact in text, (field, fact)


@pytest.mark.parametrize(("tool", "result"), CASES)
def test_the_object_says_every_fact_of_the_answer(tool: str, result: dict[str, Any]) -> None:
    told = rendering.structured(tool, result)
    kept = [fact for fact in facts(told) if fact[0] != "next"]
    assert kept == [fact for fact in facts(result) if fact[0] != "next"]
    json.dumps(told)


def test_the_next_step_is_told_in_the_words_of_tools() -> None:
    [result] = RESULTS["mbx_whoami"]
    assert rendering.structured("mbx_whoami", result)["next"] == "mbx_inbox"
    assert rendering.text("mbx_whoami", result).splitlines()[-1] == "next: mbx_inbox"
    bare: dict[str, Any] = dict.fromkeys(result)
    bare |= {"next": "mbx identity claim NAME", "policies": []}
    assert "you have no identity" in rendering.text("mbx_whoami", bare)
    assert 'mbx_identity with action "claim"' in rendering.text("mbx_whoami", bare)


def test_a_listing_of_twenty_and_the_answer_to_a_send_are_small() -> None:
    page = {"messages": [head()] * 20, "unread": 20, "next_cursor": None, "has_more": False}
    told = json.dumps(rendering.structured("mbx_inbox", page), separators=(",", ":"))
    assert max(len(told), len(rendering.text("mbx_inbox", page))) <= LISTING_MAX_BYTES
    sent = json.dumps(rendering.structured("mbx_send", SENT), separators=(",", ":"))
    assert max(len(sent), len(rendering.text("mbx_send", SENT))) <= SENT_MAX_BYTES


def test_a_cut_body_says_where_it_goes_on() -> None:
    cut = letter() | {"truncated": True, "next_offset": 4, "body_total": 9, "imitations": 2}
    text = rendering.text("mbx_read", {"messages": [cut], "failed": [], "unread": 0})
    assert f'mbx_read with ids ["{ID}"], offset 4' in text
    assert "2 lines of it imitate lines of mbx" in text


@pytest.mark.parametrize("hostile", HOSTILE, ids=lambda text: ascii(text)[:30])
def test_no_foreign_text_begins_a_line_or_carries_a_control(hostile: str) -> None:
    """But for the subject and body between the boundary lines, which are the sender's own."""
    poisoned: dict[str, dict[str, Any]] = {
        "mbx_agents": {
            "agents": [{**RESULTS["mbx_agents"][0]["agents"][0], "role": hostile, "card": hostile}],
            "next_after": None,
        },
        "mbx_inbox": {"messages": [head(subject=hostile)], "unread": 1, "has_more": False},
        "mbx_search": {"messages": [head(snippet=hostile)], "has_more": False},
        "mbx_thread": {
            "thread": ID,
            "messages": [head(recipients=[recipient(did=hostile, note=hostile)])],
        },
    }
    for tool, result in poisoned.items():
        for line in rendering.text(tool, result).split("\n"):
            assert line == visible(line)
            is_ours = line.startswith(
                (ID, "unread ", "1 agents", "ben@desktop", "next: ", "  ben@")
            )
            assert is_ours or re.match(r"(  )?\|", line), line


@pytest.mark.parametrize("hostile", HOSTILE, ids=lambda text: ascii(text)[:30])
def test_what_is_read_stands_between_the_boundary_lines(hostile: str) -> None:
    result = {"messages": [letter() | {"body": hostile}], "failed": [], "unread": 0}
    before, begin, rest = rendering.text("mbx_read", result).partition(f"--- begin {BOUNDARY}")
    inside, end, after = rest.partition(f"\n--- end {BOUNDARY} ---\n")
    assert begin
    assert end
    assert hostile in inside
    assert hostile not in before + after or len(hostile) < 3


def test_a_refusal_names_code_message_step_and_facts() -> None:
    error = MbxError(
        "in-use", "held by a live session", "mbx identity list", holder={"cli": "codex"}
    )
    told, text = rendering.refusal(error)
    assert told["code"] == "in-use"
    assert told["next"] == 'mbx_identity with action "list"'
    assert text.splitlines() == [
        "refused (in-use): held by a live session",
        'next: mbx_identity with action "list"',
        "holder: cli codex",
    ]
    assert "next" not in rendering.refusal(MbxError("internal", "x"))[1]


def test_a_refusal_does_not_repeat_a_name_as_a_suggestion_for_itself() -> None:
    error = MbxError("unknown-recipient", "yes: nobody", "mbx agents", suggestions={"yes": []})
    assert (
        rendering.refusal(error)[1] == "refused (unknown-recipient): yes: nobody\nnext: mbx_agents"
    )
    error = MbxError("unknown-recipient", "bne: nobody", "mbx agents", suggestions={"bne": ["ben"]})
    assert rendering.refusal(error)[1].endswith("\nsuggestions: bne ben")
