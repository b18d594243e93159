"""`mbx identity retire`, `forward`, `prune` by a human at a terminal, with a real daemon."""

import os
import sqlite3
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mbx.core.errors import EXIT_STATUS
from tests.cli.conftest import Desk, document
from tests.cli.owners import PASSPHRASE, Human, refused
from tests.support.shells import Finished

LONG_AGO_MS = 40 * 86_400_000


@pytest.fixture(scope="module")
def owner(desk: Desk) -> Iterator[Human]:
    human = Human(desk)
    human.enroll()
    yield human
    human.shell.close()


def free(desk: Desk, name: str) -> None:
    """Make an identity that nobody holds any more."""
    done = desk.bare().run(f"mbx identity register {name} --role tester && mbx identity release")
    assert done.status == 0, done.err


def send(desk: Desk, sender: str, to: str) -> dict[str, Any]:
    return document(desk.shell(sender).run(f"mbx send --to {to} --subject s -m b --json"))


def shown(human: Human, name: str) -> dict[str, Any]:
    return document(human.run(f"mbx identity show {name} --json"))


def state(human: Human) -> str:
    return str(document(human.run("mbx daemon status --hash --json"))["state_hash"])


def test_a_forward_is_shown_signed_and_told_to_everybody_whom_it_concerns(
    desk: Desk, owner: Human
) -> None:
    free(desk, "old-dev")
    letter = send(desk, "sender-dev", "old-dev")["id"]
    new = desk.shell("new-dev")
    owner.shell.start("mbx identity forward old-dev new-dev")
    seen = owner.agree()
    assert "old-dev: role tester, free since" in seen
    assert "1 unacked message of old-dev will be handed to new-dev" in " ".join(seen.split())
    assert 'act: "forward"' in seen
    owner.screen.answer("Passphrase:", PASSPHRASE)
    done = owner.shell.finish()
    assert done.status == 0, done.err
    assert "forwarded: old-dev to new-dev@" in done.out
    assert "handed on: 1" in done.out
    inbox = document(new.run("mbx inbox --json"))["messages"]
    assert [one["id"] for one in inbox] == [letter]
    sender = desk.shell("sender-dev")
    assert "acked: superseded" in sender.run("mbx sent").out
    assert "note: forwarded to new-dev" in sender.run(f"mbx sent {letter}").out
    assert send(desk, "sender-dev", "old-dev")["recipients"][0]["state"] == "forwarded"
    told = sender.run("mbx send --to old-dev --subject s -m b")
    assert "forwarded to new-dev" in told.out
    listed = document(owner.run("mbx identity list --all --json"))["identities"]
    assert {one["name"]: one["reason"] for one in listed}["old-dev"] == "forwarded to new-dev"
    plain = document(owner.run("mbx identity list --json"))["identities"]
    assert "old-dev" not in {one["name"] for one in plain}


def test_who_holds_it_is_named_and_keeps_it_and_who_leaves_changes_nothing(
    desk: Desk, owner: Human
) -> None:
    held = desk.shell("held-dev")
    free(desk, "free-dev")
    before = state(owner)
    for command in ("retire held-dev", "forward held-dev free-dev"):
        assert "held by shell" in refused(owner.run(f"mbx identity {command}"), "in-use")
    for command, code in (
        ("retire nobody-dev", "unknown-identity"),
        ("forward free-dev free-dev", "usage"),
        ("prune --apply", "not-found"),
    ):
        refused(owner.run(f"mbx identity {command}"), code)
    owner.shell.start("mbx identity retire free-dev")
    owner.screen.expect("Type free-dev to agree")
    owner.screen.type("\x03")
    assert owner.shell.finish().status == 130
    refused(owner.run("setsid --wait mbx identity retire free-dev"), "owner-required")
    assert state(owner) == before
    assert document(held.run("mbx whoami --json"))["agent"] == "held-dev"


def test_a_retirement_is_carried_away_signed_and_brought_back(
    desk: Desk, owner: Human, tmp_path: Path
) -> None:
    free(desk, "gone-dev")
    send(desk, "sender-dev", "gone-dev")
    request = tmp_path / "request"
    assert owner.run(f"mbx identity retire gone-dev --draft {request}").status == 0
    assert stat.S_IMODE(os.stat(request).st_mode) == 0o600
    assert shown(owner, "gone-dev")["state"] == "free"
    assert owner.sign(f"mbx owner sign {request}").status == 0
    applied = document(owner.run(f"mbx owner apply {request}.signed --json"))
    assert (applied["retired"], applied["before"][0]["unacked"]) == (["gone-dev"], 1)
    late = desk.shell("sender-dev").run("mbx send --to gone-dev --subject s -m b")
    assert "retired" in refused(late, "closed")
    assert "gone-dev" in desk.shell("sender-dev").run("mbx sent").out
    again = desk.bare().run("mbx identity claim gone-dev")
    assert again.status == EXIT_STATUS["closed"]


def test_a_prune_previews_first_and_retires_only_what_nobody_needs(own_desk: Desk) -> None:
    human = Human(own_desk)
    try:
        human.enroll()
        for name in ("aa-dev", "bb-dev", "cc-dev"):
            free(own_desk, name)
        send(own_desk, "held-dev", "bb-dev")
        age(own_desk, "aa-dev", "bb-dev")
        listed = human.run("mbx identity prune")
        before = state(human)
        assert "mbx identity prune --days 30 --apply" in listed.out
        told = document(human.run("mbx identity prune --json"))
        assert [one["name"] for one in told["prunable"]] == ["aa-dev"]
        reasons = {one["name"]: one["reason"] for one in told["staying"]}
        assert reasons["bb-dev"] == "has 1 unacked message"
        assert reasons["cc-dev"].startswith("used at ")
        assert reasons["held-dev"].startswith("held by shell ")
        assert "nothing to retire" in human.run("mbx identity prune --days 60").out
        assert state(human) == before
        done: Finished = human.sign("mbx identity prune --apply --json")
        assert document(done)["retired"] == ["aa-dev"]
        assert shown(human, "bb-dev")["state"] == "free"
        assert shown(human, "aa-dev")["state"] == "retired"
        assert "nothing to retire" in human.run("mbx identity prune").out
    finally:
        human.shell.close()


def age(desk: Desk, *names: str) -> None:
    """Let identities be unused for long: in the store, while no daemon runs."""
    assert desk.run("daemon", "stop").returncode == 0
    with sqlite3.connect(desk.home / "store.db") as store:
        for name in names:
            store.execute(
                "UPDATE leases SET since_ms = since_ms - ?1 WHERE identity_no ="
                " (SELECT no FROM identities WHERE name = ?2)",
                (LONG_AGO_MS, name),
            )
            store.execute(
                "UPDATE identities SET last_seen_ms = last_seen_ms - ?1 WHERE name = ?2",
                (LONG_AGO_MS, name),
            )
    store.close()
