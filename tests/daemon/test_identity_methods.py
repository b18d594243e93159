"""The identity methods over the raw socket: names and texts at their limits, grants, releases."""

import json
from collections.abc import Iterator

import pytest

from tests.support.daemon import Agent, Daemon, Line, NewHolder, RefusedError, fresh_name
from tests.support.rules import ROOT

HOSTILE_NAMES = json.loads((ROOT / "tests/vectors/hostile/names.json").read_text())
GOOD_NAMES = {"con", "nul", "daemon", "api--dev", "xn--api", "null", "true", "0x10", "1e3"}
"""Harmless here: a name is never a path, a device or a number to us."""


@pytest.fixture
def line(agent: Agent) -> Iterator[Line]:
    with agent.connect() as connected:
        yield connected


@pytest.fixture(scope="module")
def applicant(daemon: Daemon) -> Iterator[Line]:
    """A session that holds nothing, for all tests that leave it so."""
    with daemon.agent() as agent, agent.connect() as connected:
        yield connected


def outcome(line: Line, method: str, **params: object) -> str:
    """`ok`, or the code of the refusal; what was granted is released again."""
    try:
        line.call(method, **params)
    except RefusedError as refused:
        return refused.code
    line.call("identity.release")
    return "ok"


def of_case(value: object) -> str:
    text = repr(value)
    return text if len(text) < 30 else f"{text[:8]}~{len(text)}"


REGISTER_LIMITS: list[tuple[str, object, str]] = [
    ("name", "a", "name-invalid"),
    ("name", "ab", "ok"),
    ("name", "c" * 39, "ok"),
    ("name", "d" * 40, "ok"),
    ("name", "e" * 41, "name-invalid"),
    ("name", "", "name-invalid"),
    ("name", None, "usage"),
    ("name", 12, "usage"),
    ("name", ["ab"], "usage"),
    ("name", "agent-12345", "name-invalid"),
    ("name", "agent-1234", "ok"),
    ("name", "deadbeef1", "name-invalid"),
    ("name", "123", "name-invalid"),
    ("name", "x" * 1_000_000, "name-invalid"),
    ("role", "r", "name-invalid"),
    ("role", "rr", "ok"),
    ("role", "r" * 40, "ok"),
    ("role", "r" * 41, "name-invalid"),
    ("role", None, "usage"),
    ("role", "a role", "name-invalid"),
    ("description", "", "ok"),
    ("description", "d" * 199, "ok"),
    ("description", "€" * 200, "ok"),
    ("description", "d" * 201, "text-invalid"),
    ("description", "two\nlines", "text-invalid"),
    ("description", "a\0b", "text-invalid"),
    ("description", 5, "usage"),
    ("project", "/" + "p" * 4_095, "ok"),
    ("project", "/" + "p" * 4_096, "text-invalid"),
    ("project", "", "text-invalid"),
    ("project", "a\nb", "text-invalid"),
    ("project", {}, "usage"),
    ("key", "k" * 128, "ok"),
    ("key", "k" * 129, "text-invalid"),
    ("surprise", True, "usage"),
]


@pytest.mark.parametrize(("field", "value", "expected"), REGISTER_LIMITS, ids=of_case)
def test_register_takes_each_field_up_to_its_limit(
    field: str, value: object, expected: str, daemon: Daemon, applicant: Line
) -> None:
    before = daemon.state_hash()
    params = {"name": fresh_name(), "role": "tester", field: value}
    assert outcome(applicant, "identity.register", **params) == expected
    assert (daemon.state_hash() == before) == (expected != "ok")


@pytest.mark.parametrize("name", HOSTILE_NAMES, ids=of_case)
def test_a_hostile_name_is_refused_wherever_a_name_enters(
    name: str, daemon: Daemon, applicant: Line, holder: tuple[str, Line]
) -> None:
    _, sender = holder
    before = daemon.state_hash()
    if name in GOOD_NAMES:
        assert applicant.refusal("identity.claim", name=name)["code"] == "unknown-identity"
        return
    refused = applicant.refusal("identity.register", name=name, role="tester")
    assert refused["code"] == "name-invalid"
    assert refused["message"].isascii()
    assert refused["message"].isprintable()
    assert len(refused["message"]) < 400
    assert applicant.refusal("identity.claim", name=name)["code"] == "name-invalid"
    assert applicant.refusal("identity.claim", name=name, role="tester")["code"] == "name-invalid"
    assert applicant.refusal("identity.show", name=name)["code"] == "unknown-identity"
    if name in {"owner", "*"}:  # addresses of their own
        return
    to = sender.refusal("mail.send", to=[name], subject="s", body="b")["code"]
    assert to in {"name-invalid", "unknown-recipient"}
    assert sender.refusal("mail.inbox", **{"from": name})["code"] in {
        "name-invalid",
        "unknown-identity",
    }
    assert daemon.state_hash() == before


@pytest.mark.parametrize("role", [name for name in HOSTILE_NAMES if name not in GOOD_NAMES])
def test_a_hostile_role_is_refused_or_a_plain_label(role: str, applicant: Line) -> None:
    got = outcome(applicant, "identity.register", name=fresh_name(), role=role)
    plain = 2 <= len(role) <= 40 and role.isascii() and role.replace("-", "").isalnum()
    plain = plain and role == role.lower() and not role.startswith("-") and not role.endswith("-")
    assert got == ("ok" if plain else "name-invalid")


def test_a_name_that_looks_like_another_is_refused_and_named(applicant: Line) -> None:
    stem = fresh_name("rivet")
    assert outcome(applicant, "identity.register", name=f"{stem}-o1l", role="tester") == "ok"
    for twin in (f"{stem}-0ll", f"{stem}o1l", f"{stem}-oll".replace("-", "--")):
        refused = applicant.refusal("identity.register", name=twin, role="tester")
        assert (refused["code"], refused["similar"]) == ("name-taken", f"{stem}-o1l")
        assert applicant.refusal("identity.claim", name=twin, role="tester")["code"] == "name-taken"


def test_registering_or_claiming_what_one_holds_answers_as_before(
    line: Line, new_holder: NewHolder
) -> None:
    name = fresh_name()
    first = line.call("identity.register", name=name, role="tester", description="d")
    assert line.call("identity.register", name=name, role="tester") == first
    assert line.call("identity.claim", name=name) == first
    other, _ = new_holder()
    for method in ("identity.register", "identity.claim"):
        refused = line.refusal(method, name=other, role="tester")
        expected = "name-taken" if method == "identity.register" else "conflict"
        assert refused["code"] == expected
    conflict = line.refusal("identity.register", name=fresh_name(), role="tester")
    assert (conflict["code"], conflict["holds"]) == ("conflict", name)


def test_a_live_holder_keeps_its_identity_and_is_named(
    agent: Agent, line: Line, new_holder: NewHolder
) -> None:
    name = fresh_name()
    line.call("identity.register", name=name, role="tester")
    other, stranger = new_holder()
    stranger.call("identity.release")
    refused = stranger.refusal("identity.claim", name=name)
    assert (refused["code"], refused["reason"]) == ("in-use", "held by a live session")
    assert refused["holder"]["pid"] == agent.pid
    assert refused["next"] == f"mbx identity show {name}"
    shown = stranger.call("identity.show", name=name)
    assert (shown["state"], shown["claimable"]) == ("held", False)
    assert shown["reason"] == refused["reason"]
    assert shown["holder"]["pid"] == agent.pid
    listed = {one["name"]: one for one in stranger.call("identity.list")["identities"]}
    assert listed[name] == shown
    assert (listed[other]["state"], listed[other]["claimable"]) == ("free", True)


def test_after_its_own_release_a_session_holds_nothing_and_may_claim_again(line: Line) -> None:
    name = fresh_name()
    first = line.call("identity.register", name=name, role="tester")
    assert line.call("identity.release") == {"released": name, "epoch": first["epoch"]}
    assert line.refusal("mail.inbox")["code"] == "no-lease"
    assert line.refusal("identity.release")["code"] == "no-lease"
    again = line.call("identity.claim", name=name)
    assert again["epoch"] == first["epoch"] + 1
    assert line.call("mail.inbox")["messages"] == []


def test_a_repeated_claim_or_release_under_one_key_is_done_once(line: Line) -> None:
    name = fresh_name()
    first = line.call("identity.register", name=name, role="tester", key="a")
    again = line.call("identity.register", name=name, role="tester", key="a")
    assert {key: again[key] for key in first} == first
    released = line.call("identity.release", key="b")
    repeated = line.call("identity.release", key="b")
    assert {key: repeated[key] for key in released} == released


def test_claim_with_a_role_registers_only_what_nobody_has(applicant: Line) -> None:
    name = fresh_name()
    assert applicant.refusal("identity.claim", name=name)["code"] == "unknown-identity"
    assert applicant.call("identity.claim", name=name, role="first")["role"] == "first"
    applicant.call("identity.release")
    assert applicant.call("identity.claim", name=name, role="other")["role"] == "first"
    applicant.call("identity.release")


def test_who_runs_a_command_under_a_new_name_is_told_how_to_register_it(daemon: Daemon) -> None:
    name = fresh_name()
    with daemon.agent() as agent, agent.bare() as line:
        line.hello(holder="self")
        refused = line.refusal("identity.claim", name=name)
    assert refused["code"] == "unknown-identity"
    step = f"mbx run --as {name} --role ROLE -- COMMAND"
    assert refused["next"] in (step, f"mbx identity list (new: {step})"), "with close names too"


def test_an_unknown_name_comes_with_suggestions(applicant: Line, holder: tuple[str, Line]) -> None:
    name, _ = holder
    for method in ("identity.claim", "identity.show"):
        refused = applicant.refusal(method, name=name + "x")
        assert refused["code"] == "unknown-identity"
        assert name in refused["suggestions"]
