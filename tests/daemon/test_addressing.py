"""Addresses that reach many, each mailbox once."""

from collections.abc import Iterator
from typing import Any

import pytest

from mbx.core.limits import RECIPIENTS_MAX
from tests.support.office import OfficeDesk, shell

LETTER: dict[str, Any] = {"subject": "s", "body": "b"}


@pytest.fixture
def desk() -> Iterator[OfficeDesk]:
    made = OfficeDesk()
    made.add_owner()
    for pid, (name, role) in enumerate(
        [("ana", "dev"), ("ben", "dev"), ("cai", "test"), ("dee", "test")], 100
    ):
        made.call(shell(pid), "identity.register", name=name, role=role)
    yield made
    made.close()


def reached(desk: OfficeDesk, *to: str, sender: int = 100) -> list[str]:
    answer = desk.call(shell(sender), "mail.send", to=list(to), **LETTER)
    return [recipient["address"].partition("@")[0] for recipient in answer["recipients"]]


def test_a_role_reaches_everybody_who_has_it_but_the_sender(desk: OfficeDesk) -> None:
    assert reached(desk, "role:dev") == ["ben"]
    assert reached(desk, "role:test") == ["cai", "dee"]


def test_everyone_is_everybody_else_and_not_the_human(desk: OfficeDesk) -> None:
    assert reached(desk, "*") == ["ben", "cai", "dee"]


def test_several_ways_to_one_mailbox_deliver_one_copy_in_order_of_mention(
    desk: OfficeDesk,
) -> None:
    assert reached(desk, "dee", "*", "role:test", "dee@desk", "owner") == [
        "dee",
        "ben",
        "cai",
        "owner",
    ]
    copies = desk.rows("SELECT count(*) FROM deliveries WHERE message_no = 1")
    assert copies == [(4,)]


def test_a_copy_that_came_by_everyone_alone_wakes_nobody(desk: OfficeDesk) -> None:
    desk.call(
        shell(100), "mail.send", to=["*", "role:test", "owner"], subject="s", body="b", kind="task"
    )
    wakes = desk.rows(
        "SELECT i.name, d.wakes FROM deliveries AS d JOIN identities AS i ON i.no = d.recipient_no"
        " ORDER BY i.name"
    )
    assert wakes == [("ben", 0), ("cai", 1), ("dee", 1), ("owner", 1)]


def test_a_sender_may_ask_to_wake_nobody(desk: OfficeDesk) -> None:
    desk.call(shell(100), "mail.send", to=["ben"], subject="s", body="b", kind="task", wake="inbox")
    assert desk.rows("SELECT wakes FROM deliveries") == [(0,)]


def test_mail_to_oneself_is_delivered_when_it_is_meant(desk: OfficeDesk) -> None:
    assert reached(desk, "ana") == ["ana"]


def test_the_owner_has_a_mailbox_on_this_host_alone(desk: OfficeDesk) -> None:
    assert reached(desk, "owner") == reached(desk, "owner@desk") == ["owner"]
    error = desk.refusal(shell(100), "mail.send", to=["owner@elsewhere"], **LETTER)
    assert error.code == "unknown-recipient"
    assert "no paired host has that label" in error.message


@pytest.mark.parametrize(
    ("to", "why"),
    [
        ("role:nobody", "nobody else has that role"),
        ("lead", "has named no lead"),
        ("dea", "did you mean dee?"),
        ("ben@elsewhere", "no paired host"),
    ],
)
def test_what_reaches_nobody_is_refused_and_stores_nothing(
    desk: OfficeDesk, to: str, why: str
) -> None:
    error = desk.refusal(shell(100), "mail.send", to=["ben", to], **LETTER)
    assert error.code == "unknown-recipient"
    assert why in error.message
    assert desk.rows("SELECT count(*) FROM messages") == [(0,)]


def test_everyone_is_nobody_where_one_is_alone() -> None:
    desk = OfficeDesk()
    desk.add_owner()
    alone = desk.holder("ana", 100)
    error = desk.refusal(alone, "mail.send", to=["*"], **LETTER)
    assert error.code == "unknown-recipient"
    desk.close()


@pytest.mark.parametrize(("others", "code"), [(0, None), (1, "too-many")])
def test_a_thousand_mailboxes_may_be_reached_and_not_one_more(
    desk: OfficeDesk, others: int, code: str | None
) -> None:
    for number in range(RECIPIENTS_MAX - 3 + others):
        caller = shell(10_000 + number)
        desk.call(caller, "identity.register", name=f"a{number:04}-x", role="many")
    if code is None:
        assert len(reached(desk, "*")) == RECIPIENTS_MAX
    else:
        assert desk.refusal(shell(100), "mail.send", to=["*"], **LETTER).code == code


def test_retired_mailboxes_are_not_reached(desk: OfficeDesk) -> None:
    desk.connection.execute("UPDATE identities SET retired_ms = 5 WHERE name IN ('ben', 'cai')")
    assert reached(desk, "*") == ["dee"]
    assert desk.refusal(shell(100), "mail.send", to=["role:dev"], **LETTER).code
    assert desk.refusal(shell(100), "mail.send", to=["ben"], **LETTER).code == "closed"
