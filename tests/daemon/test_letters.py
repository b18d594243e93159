"""The owner's own mail: signed by the owner's key, shown with its authority, never forged."""

from collections.abc import Iterator
from typing import Any

import pytest

from mbx.core.keys import SigningKey
from tests.support.office import OfficeDesk, at_terminal, nobody, shell
from tests.support.owner import TERMINAL, Owner, an_owner, content, wire


@pytest.fixture
def desk() -> Iterator[OfficeDesk]:
    desk = OfficeDesk()
    desk.add_owner()
    yield desk
    desk.close()


@pytest.fixture
def owner(desk: OfficeDesk) -> Owner:
    return an_owner(desk)


def compose(desk: OfficeDesk, **wanted: object) -> dict[str, Any]:
    return desk.call(TERMINAL, "owner.compose", **wanted)


def test_a_letter_of_the_owner_shows_its_authority_and_can_be_answered(
    desk: OfficeDesk, owner: Owner
) -> None:
    ui = desk.holder("ui-dev", 1)
    draft = compose(desk, to=["ui-dev"], subject="Freeze", body="No deploys.\n", kind="decision")
    sent = owner.apply(owner.signed(draft))
    assert sent["recipients"][0]["address"] == "ui-dev@desk"
    listed = desk.call(ui, "mail.inbox")["messages"][0]
    assert (listed["from"], listed["trust"], listed["policy"]) == (
        "owner@desk",
        "authority: OWNER",
        "owner",
    )
    entry = desk.call(ui, "mail.read", ids=[listed["id"]])["messages"][0]
    assert entry["trust_line"].startswith("authority: OWNER")
    assert entry["policy_line"] == ""
    assert entry["body"] == "No deploys.\n"
    desk.call(ui, "mail.reply", id=listed["id"], body="Understood.")
    answer = desk.call(TERMINAL, "owner.inbox")["messages"][0]
    assert answer["thread"] == sent["thread"]
    again = compose(desk, id=answer["id"], body="Good.")
    assert owner.apply(owner.signed(again))["thread"] == sent["thread"]
    assert desk.call(ui, "mail.inbox")["messages"][-1]["subject"] == "Freeze"


def test_the_owner_adds_to_a_letter_of_its_own(desk: OfficeDesk, owner: Owner) -> None:
    ui, api = desk.holder("ui-dev", 1), desk.holder("api-dev", 2)
    first = compose(desk, to=["ui-dev", "api-dev"], subject="Freeze", body="No deploys.")
    sent = owner.apply(owner.signed(first))
    added = owner.apply(owner.signed(compose(desk, id=sent["id"], body="Until noon.")))
    assert added["thread"] == sent["thread"]
    for caller in (ui, api):
        got = desk.call(caller, "mail.inbox")["messages"][-1]
        assert (got["id"], got["subject"], got["thread"]) == (added["id"], "Freeze", sent["id"])


def test_a_letter_is_delivered_once(desk: OfficeDesk, owner: Owner) -> None:
    ui = desk.holder("ui-dev", 1)
    record = owner.signed(compose(desk, to=["ui-dev", "*"], subject="s", body="b"))
    assert owner.apply(record)["duplicate"] is False
    assert owner.apply(record)["duplicate"] is True
    assert desk.call(ui, "mail.inbox")["unread"] == 1


def test_what_is_not_signed_by_the_owner_is_no_letter(desk: OfficeDesk, owner: Owner) -> None:
    desk.holder("ui-dev", 1)
    draft = compose(desk, to=["ui-dev"], subject="s", body="b")
    stranger = SigningKey.from_seed(bytes([5]) * 32)
    forged = wire("owner-mail", content(draft), stranger)
    assert desk.refusal(nobody(), "owner.apply", record=forged).code == "owner-required"
    bent = {**content(draft), "from": {"identity": "0" * 26, "name": "owner", "host": "desk"}}
    record = wire("owner-mail", bent, owner.key)
    assert desk.refusal(nobody(), "owner.apply", record=record).code == "owner-required"
    extra = wire("owner-mail", {**content(draft), "urgent": True}, owner.key)
    assert desk.refusal(nobody(), "owner.apply", record=extra).code == "owner-required"


def test_a_letter_that_was_changed_in_the_store_has_no_authority_any_more(
    desk: OfficeDesk, owner: Owner
) -> None:
    ui = desk.holder("ui-dev", 1)
    owner.apply(owner.signed(compose(desk, to=["ui-dev"], subject="s", body="do this")))
    desk.connection.execute("UPDATE messages SET payload = replace(payload, 'this', 'that')")
    listed = desk.call(ui, "mail.inbox")["messages"][0]
    assert (listed["trust"], listed["policy"]) == ("unverified-sender", "ask")
    entry = desk.call(ui, "mail.read", ids=[listed["id"]])["messages"][0]
    assert "unverified-sender" in entry["trust_line"]
    assert entry["policy_line"].startswith("policy: ask")


@pytest.mark.parametrize("what", ["another's id", "another name", "another host", "renamed"])
def test_a_letter_whose_names_and_ids_do_not_belong_together_is_refused(
    desk: OfficeDesk, owner: Owner, what: str
) -> None:
    """The owner read the names."""
    ui = desk.holder("ui-dev", 1)
    desk.holder("api-dev", 2)
    draft = compose(desk, to=["ui-dev"], subject="s", body="b")
    payload = content(draft)
    (to,) = payload["to"]
    if what == "another's id":
        others = desk.rows("SELECT identity FROM identities WHERE name = 'api-dev'")
        to = {**to, "identity": others[0][0]}
    elif what == "another name":
        to = {**to, "name": "api-dev"}
    elif what == "another host":
        to = {**to, "host": "elsewhere"}
    else:
        desk.call(ui, "identity.rename", name="web-dev")
    record = wire(draft["kind"], {**payload, "to": [to]}, owner.key)
    refused = desk.refusal(nobody(), "owner.apply", record=record)
    assert refused.code == ("unknown-recipient" if what == "another host" else "conflict")
    assert desk.rows("SELECT count(*) FROM messages") == [(0,)]


def test_only_the_owners_terminal_composes(desk: OfficeDesk, owner: Owner) -> None:
    letter = {"to": ["owner"], "subject": "s", "body": "b"}
    for caller in (nobody(), shell(1), at_terminal(shell(1), "an agent CLI is above")):
        assert desk.refusal(caller, "owner.compose", **letter).code == "owner-required"


def test_a_letter_to_nobody_is_refused_before_it_is_signed(desk: OfficeDesk, owner: Owner) -> None:
    desk.holder("ui-dev", 1)
    error = desk.refusal(TERMINAL, "owner.compose", to=["ui-dex"], subject="s", body="b")
    assert error.code == "unknown-recipient"


def test_reading_the_owner_is_no_relay(desk: OfficeDesk, owner: Owner) -> None:
    ui, api = desk.holder("ui-dev", 1), desk.holder("api-dev", 2)
    owner.apply(owner.signed(compose(desk, to=["ui-dev"], subject="s", body="b")))
    desk.call(ui, "mail.read", ids=[desk.call(ui, "mail.inbox")["messages"][0]["id"]])
    desk.call(ui, "mail.send", to=["api-dev"], subject="s", body="the owner says: b")
    listed = desk.call(api, "mail.inbox")["messages"][0]
    assert (listed["trust"], listed["policy"]) == ("local", "ask")
    assert desk.call(api, "mail.read", ids=[listed["id"]])["messages"][0]["hop"] == 0
