"""Pages of an inbox with a filter: each looks at so many messages, and together they skip none."""

import random
from collections.abc import Iterator
from typing import Any

import pytest

from mbx.core.message import KINDS
from mbx.store import messages
from tests.support.office import OfficeDesk, at_terminal, nobody, shell

SEED = 20_260_301
ANA, BEN = shell(1), shell(2)


@pytest.fixture
def desk(monkeypatch: pytest.MonkeyPatch) -> Iterator[OfficeDesk]:
    monkeypatch.setattr(messages, "SCAN_ROWS", 5)
    made = OfficeDesk()
    made.add_owner()
    for pid, name in enumerate(("ana", "ben"), 1):
        made.holder(name, pid)
    yield made
    made.close()


def send(desk: OfficeDesk, kind: str = "message", to: str = "ben", sender: Any = ANA) -> str:
    sent = desk.call(sender, "mail.send", to=[to], subject="s", body="b", kind=kind)
    return str(sent["id"])


def test_a_page_without_a_match_says_where_to_go_on(desk: OfficeDesk) -> None:
    for _ in range(12):
        send(desk)
    wanted = send(desk, "task")
    pages, cursor = [], None
    while True:
        page = desk.call(BEN, "mail.inbox", kind="task", cursor=cursor)
        pages.append([one["id"] for one in page["messages"]])
        cursor = page["next_cursor"]
        assert page["has_more"] == (cursor is not None)
        if cursor is None:
            break
    assert pages == [[], [], [wanted]]


def test_without_a_filter_a_page_is_full(desk: OfficeDesk) -> None:
    ids = [send(desk) for _ in range(12)]
    page = desk.call(BEN, "mail.inbox", limit=11)
    assert [one["id"] for one in page["messages"]] == ids[:11]
    assert page["has_more"]


def test_where_the_end_of_a_page_is_the_end_of_the_mailbox_there_is_no_more(
    desk: OfficeDesk,
) -> None:
    for _ in range(5):
        send(desk)
    page = desk.call(BEN, "mail.inbox", kind="task")
    assert (page["messages"], page["has_more"], page["next_cursor"]) == ([], False, None)


def test_the_owners_inbox_is_paged_in_the_same_way(desk: OfficeDesk) -> None:
    for _ in range(7):
        send(desk, to="owner")
    decision = send(desk, "decision", to="owner")
    terminal = at_terminal(nobody())
    first = desk.call(terminal, "owner.inbox", kind="decision")
    assert (first["messages"], first["has_more"]) == ([], True)
    rest = desk.call(terminal, "owner.inbox", kind="decision", cursor=first["next_cursor"])
    assert [one["id"] for one in rest["messages"]] == [decision]


def test_pages_with_filters_skip_and_repeat_nothing_while_mail_comes_and_is_acked(
    desk: OfficeDesk,
) -> None:
    chance = random.Random(SEED)
    followed = empty = 0
    for _ in range(40):
        there: dict[str, tuple[str, str]] = {}
        for _ in range(chance.randint(0, 25)):
            name, sender = chance.choice((("ana", ANA), ("ben", BEN)))
            kind = chance.choice(KINDS)
            there[send(desk, kind, sender=sender)] = (name, kind)
        filters = chance.choice(
            [{"kind": chance.choice(KINDS)}, {"from": "ana"}, {"from": "ben", "kind": "task"}]
        )
        wanted = [
            one
            for one, (name, kind) in there.items()
            if filters.get("kind") in (None, kind) and filters.get("from") in (None, name)
        ]
        seen: list[str] = []
        cursor = None
        while True:
            asked = {**filters, "limit": chance.randint(1, 4), "cursor": cursor}
            page = desk.call(BEN, "mail.inbox", **asked)
            shown = [one["id"] for one in page["messages"]]
            seen += shown
            followed, empty = followed + 1, empty + (not shown)
            cursor = page["next_cursor"]
            if cursor is None:
                break
            if shown and chance.random() < 0.5:
                desk.call(BEN, "mail.ack", ids=[shown[0]])
        assert seen == wanted
        left = [one["id"] for one in desk.call(BEN, "mail.inbox", limit=200)["messages"]]
        if left:
            desk.call(BEN, "mail.ack", ids=left)
    assert followed > 100
    assert empty > 20
