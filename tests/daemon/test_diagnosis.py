"""One mailbox or one session, exactly, in words that cannot be mixed up."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from mbx.daemon import granting
from mbx.daemon.world import moment
from mbx.store import identities, leases, sessions
from mbx.store.database import Tx
from tests.support.office import OfficeDesk, nobody, shell

ANA, BEN = shell(100), shell(200)
CANARY = "canary-51ce"


@pytest.fixture
def desk() -> Iterator[OfficeDesk]:
    made = OfficeDesk()
    made.add_owner()
    made.call(ANA, "identity.register", name="ana", role="dev")
    made.call(BEN, "identity.register", name="ben", role="dev")
    yield made
    made.close()


def show(desk: OfficeDesk, **scope: object) -> dict[str, Any]:
    return desk.call(nobody(), "diagnostics.show", **scope)


def test_a_held_mailbox_is_shown_with_holder_lease_queue_and_receipts(desk: OfficeDesk) -> None:
    first = desk.call(ANA, "mail.send", to=["ben"], subject="s", body="b")
    desk.world.pass_ms(60_000)
    second = desk.call(ANA, "mail.send", to=["ben"], subject="s", body="b")
    desk.call(BEN, "mail.read", ids=[first["id"]])
    said = show(desk, mailbox="ben")
    assert (said["status"], said["mailbox"]) == ("mailbox-held", "ben@desk")
    assert said["holder"] == {
        "cli": "shell",
        "session": "200-2000",
        "pid": 200,
        "evidence": "live",
        "silent_s": 0,
    }
    assert (said["lease"]["state"], said["lease"]["claimable"]) == ("held", False)
    assert [(one["id"], one["stage"], one["age_s"]) for one in said["queue"]] == [
        (first["id"], "read", 60),
        (second["id"], "delivered", 0),
    ]
    assert [(one["id"], one["stage"]) for one in said["receipts"]] == [(first["id"], "read")]
    assert (said["queue_total"], said["connector"]) == (2, None)
    assert (said["installed_version"], said["daemon_version"]) == (None, "0")


def test_a_free_mailbox_is_not_taken_for_a_held_one(desk: OfficeDesk) -> None:
    desk.call(BEN, "identity.release")
    said = show(desk, mailbox="ben")
    assert (said["status"], said["holder"]) == ("mailbox-free", None)
    assert (said["lease"]["state"], said["lease"]["expires_in_s"]) == ("free", None)


def test_a_session_shows_the_mailbox_that_it_holds(desk: OfficeDesk) -> None:
    said = show(desk, cli="shell", session="200-2000")
    assert (said["status"], said["mailbox"]) == ("mailbox-held", "ben@desk")
    assert said["scope"] == {"cli": "shell", "session": "200-2000"}


def test_a_session_that_holds_nothing_has_no_binding(desk: OfficeDesk) -> None:
    desk.call(BEN, "identity.release")
    said = show(desk, cli="shell", session="200-2000")
    assert (said["status"], said["holder"], said["lease"]) == ("no-binding", None, None)
    assert said["queue"] == said["receipts"] == []


def test_a_session_whose_identity_another_holds_is_told_what_it_lost(desk: OfficeDesk) -> None:
    tx, now = Tx(desk.connection, 9), moment(desk.world)
    ben, ana = identities.by_name(tx, "ben"), sessions.by_no(tx, 1)
    assert ben is not None
    assert ana is not None
    granting.lapse(tx, now, leases.find(tx, ben.no), ana, "test")
    granting.grant(desk.host, now, tx, ben, leases.find(tx, ben.no), ana)
    said = show(desk, cli="shell", session="200-2000")
    assert (said["status"], said["lost"], said["lease"]) == ("no-binding", "ben", None)
    assert show(desk, cli="shell", session="100-1000")["mailbox"] == "ben@desk"


def test_a_session_that_waits_or_is_remembered_says_so(desk: OfficeDesk) -> None:
    desk.call(BEN, "identity.release")
    desk.connection.execute(
        "INSERT INTO pending (session_no, identity_no, since_ms) VALUES (2, 2, 0)"
    )
    desk.connection.execute("INSERT OR REPLACE INTO remembered VALUES ('codex', 'c-1', 3, 0)")
    assert show(desk, cli="shell", session="200-2000")["pending"] == "ana"
    gone = show(desk, cli="codex", session="c-1")
    assert (gone["status"], gone["remembered"]) == ("no-binding", "ben")


@pytest.mark.parametrize(
    "scope",
    [
        {"mailbox": "be"},
        {"mailbox": "benn"},
        {"mailbox": "owner"},
        {"mailbox": "*"},
        {"cli": "shell", "session": "200-200"},
        {"cli": "codex", "session": "200-2000"},
    ],
)
def test_an_unknown_scope_is_an_error_and_never_everything(
    desk: OfficeDesk, scope: dict[str, str]
) -> None:
    assert desk.refusal(nobody(), "diagnostics.show", **scope).code == "not-found"


@pytest.mark.parametrize(
    "scope",
    [
        {},
        {"cli": "shell"},
        {"session": "200-2000"},
        {"mailbox": "ben", "cli": "shell", "session": "200-2000"},
        {"mailbox": "ben", "limit": 201},
        {"mailbox": "ben", "limit": 0},
    ],
)
def test_a_scope_is_one_mailbox_or_one_session(desk: OfficeDesk, scope: dict[str, object]) -> None:
    assert desk.refusal(nobody(), "diagnostics.show", **scope).code == "usage"


def test_both_lists_stop_at_the_limit_and_the_count_goes_on(desk: OfficeDesk) -> None:
    sent = [desk.call(ANA, "mail.send", to=["ben"], subject="s", body="b")["id"] for _ in range(5)]
    desk.call(BEN, "mail.read", ids=sent[:3])
    said = show(desk, mailbox="ben", limit=2)
    assert [one["id"] for one in said["queue"]] == sent[:2]
    assert said["queue_total"] == 5
    assert [one["id"] for one in said["receipts"]] == [sent[2], sent[1]]


def test_no_word_of_mail_is_in_the_answer_and_nothing_changes(desk: OfficeDesk) -> None:
    desk.call(BEN, "identity.set", description=CANARY, card=CANARY)
    first = desk.call(ANA, "mail.send", to=["ben"], subject=CANARY, body=CANARY, topic=CANARY)
    desk.call(ANA, "mail.send", to=["ben"], subject=CANARY, body=CANARY, refs=[CANARY])
    desk.call(BEN, "mail.ack", ids=[first["id"]], did=CANARY, note=CANARY)
    before = desk.connection.total_changes
    assert CANARY not in json.dumps(show(desk, mailbox="ben"))
    assert desk.connection.total_changes == before
