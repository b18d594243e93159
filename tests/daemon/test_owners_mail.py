"""The owner's mailbox: for the owner's terminal alone, with the answers of any other mailbox."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from mbx.core import terminal
from mbx.daemon.effects import Handled
from mbx.daemon.gate import Access, Caller, OwnerTerminal
from mbx.daemon.methods import METHODS, owners_mail
from mbx.store.database import Committed, run_reads
from tests.support.office import (
    OfficeDesk,
    at_terminal,
    conversation,
    harness,
    nobody,
    shell,
    unseen,
)

LETTER = {"to": ["owner"], "subject": "Which port?", "body": "8080 or 8081?", "kind": "decision"}
HUMAN = at_terminal(nobody())
OWNERS = sorted(name for name, one in METHODS.items() if one.access is Access.OWNER_TERMINAL)


@pytest.fixture
def desk() -> Iterator[OfficeDesk]:
    made = OfficeDesk()
    made.add_owner()
    yield made
    made.close()


@pytest.fixture
def alice(desk: OfficeDesk) -> Caller:
    return desk.holder("alice", 100)


@pytest.fixture
def asked(desk: OfficeDesk, alice: Caller) -> str:
    """The id of a decision that alice put to the owner."""
    return str(desk.call(alice, "mail.send", **LETTER)["id"])


def everything(desk: OfficeDesk) -> dict[str, list[tuple[Any, ...]]]:
    """All that is in the store: the rows of every table, and those that the index is made of."""
    tables = "SELECT name FROM sqlite_schema WHERE type = 'table' AND sql NOT LIKE '%VIRTUAL%'"
    return {name: desk.rows(f"SELECT * FROM {name}") for (name,) in desk.rows(tables)}


# -- who may --------------------------------------------------------------------------------------

FORBIDDEN = {
    "a holder": shell(100),
    "a shell that holds nothing": shell(200),
    "an agent CLI": harness(300, "s-1"),
    "a conversation": conversation(400, "s-1"),
    "nobody": nobody(),
    "somebody unseen": unseen(),
    "somebody unseen with a token": unseen("0" * 64),
    "a holder without terminal": at_terminal(shell(100), terminal.NO_TERMINAL),
    "below an agent CLI": at_terminal(shell(100), "the agent CLI claude (process 7) is above"),
    "an ancestor that hides": at_terminal(nobody(), terminal.UNREADABLE),
}


@pytest.mark.parametrize("caller", FORBIDDEN.values(), ids=FORBIDDEN.keys())
@pytest.mark.parametrize("method", OWNERS)
def test_what_is_the_owners_is_refused_to_everybody_else_and_nothing_changes(
    desk: OfficeDesk, asked: str, method: str, caller: Caller
) -> None:
    before = everything(desk)
    desk.effects.clear()
    for params in ({"ids": [asked]}, {}, {"surprise": 1, "ids": 7}):
        error = desk.refusal(caller, method, **params)
        reason = caller.terminal.reason if caller.terminal else "this way to the daemon has no"
        assert error.code == "owner-required"
        assert error.exit_status == 1
        assert error.message.startswith(f"only the owner's terminal may do this: {reason}")
        assert error.next_step == "type it in a terminal of your own, outside any agent CLI"
    assert everything(desk) == before
    assert desk.effects == []


def test_the_methods_of_the_owners_mail_are_among_those() -> None:
    assert [one.name for one in owners_mail.METHODS] == ["owner.inbox", "owner.read", "owner.ack"]
    assert {one.name for one in owners_mail.METHODS} <= set(OWNERS)


def test_the_owners_terminal_is_no_lease(desk: OfficeDesk, asked: str) -> None:
    for method in ("mail.inbox", "mail.sent", "mail.watch"):
        assert desk.refusal(HUMAN, method).code == "no-lease"
    assert desk.refusal(HUMAN, "mail.send", **LETTER).code == "no-lease"
    assert desk.refusal(at_terminal(shell(200)), "identity.claim", name="owner").code


def test_nobody_but_the_gate_makes_the_owners_terminal() -> None:
    with pytest.raises(TypeError, match="only the gate"):
        OwnerTerminal(object(), "0" * 26, 1)


def test_a_store_without_the_owners_mailbox_is_a_defect_and_not_an_empty_one() -> None:
    desk = OfficeDesk()
    outcome = run_reads(desk.connection, [desk.work(HUMAN, "owner.inbox").unit])[0]
    assert not isinstance(outcome, Committed)
    assert isinstance(outcome.error, LookupError)
    desk.close()


# -- what it gives --------------------------------------------------------------------------------


def shape(value: Any) -> Any:
    """The fields of an answer, without what they hold."""
    if isinstance(value, dict):
        return {key: shape(inner) for key, inner in value.items()}
    return [shape(inner) for inner in value] if isinstance(value, list) else None


def test_the_answers_are_those_of_any_mailbox(desk: OfficeDesk, alice: Caller, asked: str) -> None:
    bob = desk.holder("bob", 200)
    theirs = desk.call(alice, "mail.send", **{**LETTER, "to": ["bob"]})["id"]
    for verb, params in (
        ("inbox", {}),
        ("read", {"max_bytes": 4}),
        ("ack", {"did": "8081"}),
        ("inbox", {"all": True}),
    ):
        own, other = (
            desk.call(who, f"{noun}.{verb}", **params, **({} if verb == "inbox" else {"ids": ids}))
            for who, noun, ids in ((HUMAN, "owner", [asked]), (bob, "mail", [theirs]))
        )
        assert shape(own) == shape(other)
        assert own["unread"] == other["unread"]


def test_reading_and_acking_go_as_for_anybody(desk: OfficeDesk, alice: Caller, asked: str) -> None:
    page = desk.call(HUMAN, "owner.inbox")
    assert [(one["id"], one["stage"]) for one in page["messages"]] == [(asked, "delivered")]
    assert (page["unread"], page["has_more"]) == (1, False)
    assert desk.call(HUMAN, "owner.inbox") == page, "listing changes no state"
    (message,) = desk.call(HUMAN, "owner.read", ids=[asked[:8]])["messages"]
    assert (message["body"], message["stage"]) == ("8080 or 8081?", "read")
    assert sent(desk, alice, asked) == ("owner@desk", "read", None, None)
    acked = desk.call(HUMAN, "owner.ack", ids=[asked], did="took 8081", key="k")
    assert (acked["acked"], acked["unread"]) == ([asked], 0)
    assert sent(desk, alice, asked) == ("owner@desk", "acked", "took 8081", "acted")
    assert desk.call(HUMAN, "owner.inbox")["messages"] == []
    assert len(desk.call(HUMAN, "owner.inbox", all=True)["messages"]) == 1


def sent(desk: OfficeDesk, sender: Caller, message_id: str) -> tuple[object, ...]:
    """What the sender sees of the only copy of a message."""
    (message,) = desk.call(sender, "mail.sent", id=message_id)["messages"]
    (copy,) = message["recipients"]
    return copy["address"], copy["stage"], copy["did"], copy["outcome"]


def test_the_receipts_are_signed_facts_of_the_owner_under_no_lease(
    desk: OfficeDesk, asked: str
) -> None:
    desk.call(HUMAN, "owner.read", ids=[asked])
    desk.call(HUMAN, "owner.ack", ids=[asked], note="later")
    ((identity,),) = desk.rows("SELECT identity FROM identities WHERE name = 'owner'")
    receipts = [json.loads(text) for (text,) in desk.rows("SELECT payload FROM receipts")]
    assert [receipt["epoch"] for receipt in receipts] == [0, 0]
    facts = [fact for receipt in receipts for fact in receipt["facts"]]
    assert [(fact["message"], fact["recipient"], fact["stage"]) for fact in facts] == [
        (asked, identity, 4),
        (asked, identity, 5),
    ]
    assert facts[1]["note"] == "later"
    assert desk.rows("SELECT stage, epoch FROM deliveries") == [(5, 0)]


def test_no_lease_is_needed_or_touched_and_the_caller_stays_who_it_is(
    desk: OfficeDesk, alice: Caller, asked: str
) -> None:
    desk.call(alice, "mail.send", **{**LETTER, "to": ["alice"]})
    leases, before = desk.rows("SELECT * FROM leases"), desk.call(alice, "session.whoami")
    assert before["unread"] == 1
    desk.effects.clear()
    desk.call(at_terminal(alice), "owner.read", ids=[asked])
    desk.call(at_terminal(alice), "owner.ack", ids=[asked])
    [owner] = desk.rows("SELECT no FROM identities WHERE name = 'owner'")
    assert desk.effects == [Handled(*owner)] * 2  # of the human's own mailbox
    assert desk.rows("SELECT * FROM leases") == leases
    assert desk.call(alice, "session.whoami") == before


def test_the_mail_of_agents_is_not_in_the_owners_mailbox(desk: OfficeDesk, alice: Caller) -> None:
    theirs = desk.call(alice, "mail.send", **{**LETTER, "to": ["alice"]})["id"]
    assert desk.call(HUMAN, "owner.inbox", all=True)["messages"] == []
    for method in ("owner.read", "owner.ack"):
        error = desk.refusal(HUMAN, method, ids=[theirs])
        assert (error.code, error.next_step) == ("not-found", "mbx inbox --all --owner")


def test_a_repeated_ack_gives_the_first_answer_from_whatever_terminal(
    desk: OfficeDesk, asked: str
) -> None:
    first = desk.call(HUMAN, "owner.ack", ids=[asked], did="once", key="k")
    again = desk.call(at_terminal(shell(300)), "owner.ack", ids=[asked], did="once", key="k")
    assert again == first | {"duplicate": True}
    changed = desk.refusal(HUMAN, "owner.ack", ids=[asked], did="twice", key="k")
    assert changed.code == "idempotency-conflict"


def test_pages_of_the_owners_inbox_are_not_those_of_another_mailbox(
    desk: OfficeDesk, alice: Caller
) -> None:
    for _ in range(3):
        desk.call(alice, "mail.send", **LETTER)
    page = desk.call(HUMAN, "owner.inbox", limit=2)
    rest = desk.call(HUMAN, "owner.inbox", limit=2, cursor=page["next_cursor"])
    assert [len(one["messages"]) for one in (page, rest)] == [2, 1]
    assert desk.refusal(alice, "mail.inbox", cursor=page["next_cursor"]).code == "conflict"


def test_on_a_full_disk_the_owner_still_reads(desk: OfficeDesk, asked: str) -> None:
    work = desk.work(HUMAN, "owner.read", {"ids": [asked]})
    assert work.when_full is not None
    outcome = run_reads(desk.connection, [work.when_full])[0]
    assert isinstance(outcome, Committed)
    assert outcome.value.result["messages"][0]["body"] == "8080 or 8081?"
    assert desk.call(HUMAN, "owner.inbox")["unread"] == 1
