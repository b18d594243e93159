"""Threads and searches of one's own mail."""

import random
from collections.abc import Iterator
from typing import Any

import pytest

from mbx.core.limits import SEARCH_CHARS_MAX, SEARCH_WORDS_MAX
from mbx.daemon.methods.history import snippet
from tests.support.office import OfficeDesk, shell

ANA, BEN, CAI = shell(100), shell(200), shell(300)


@pytest.fixture
def desk() -> Iterator[OfficeDesk]:
    made = OfficeDesk()
    for name, caller in (("ana", ANA), ("ben", BEN), ("cai", CAI)):
        made.call(caller, "identity.register", name=name, role="dev")
    yield made
    made.close()


def send(desk: OfficeDesk, body: str = "b", *, to: str = "ben", **more: Any) -> str:
    sent = desk.call(ANA, "mail.send", **{"to": [to], "subject": "s", "body": body, **more})
    return str(sent["id"])


# -- threads --------------------------------------------------------------------------------------


def test_a_thread_is_shown_in_order_to_all_who_take_part_with_their_receipts(
    desk: OfficeDesk,
) -> None:
    first = send(desk, to="ben")
    second = desk.call(BEN, "mail.reply", id=first, body="yes", final="acted", did="it")["id"]
    third = desk.call(ANA, "mail.reply", id=second, body="thanks")["id"]
    for caller in (ANA, BEN):
        for start in (first, second, third):
            shown = desk.call(caller, "mail.thread", id=start[:8])
            assert [message["id"] for message in shown["messages"]] == [first, second, third]
            assert shown["thread"] == first
            assert [message["reply_to"] for message in shown["messages"]] == [None, first, second]
    told = desk.call(ANA, "mail.thread", id=first)["messages"][0]["recipients"]
    assert [(copy["stage"], copy["did"]) for copy in told] == [("acked", "it")]


def test_a_thread_shows_nobody_what_he_neither_sent_nor_received(desk: OfficeDesk) -> None:
    first = desk.call(ANA, "mail.send", to=["ben", "cai"], subject="s", body="b")["id"]
    desk.call(BEN, "mail.reply", id=first, body="between us")
    shown = desk.call(CAI, "mail.thread", id=first)["messages"]
    assert [message["id"] for message in shown] == [first]
    copies = [copy["address"] for copy in shown[0]["recipients"]]
    assert copies == ["cai@desk"], "others' receipts are the sender's alone"


def test_a_foreign_and_a_missing_thread_give_the_same_answer(desk: OfficeDesk) -> None:
    secret = send(desk, to="ben")
    foreign = desk.refusal(CAI, "mail.thread", id=secret)
    missing = desk.refusal(CAI, "mail.thread", id="0" * 26)
    assert (foreign.code, foreign.next_step) == (missing.code, missing.next_step)
    assert foreign.code == "not-found"


def test_a_long_thread_comes_in_pages_that_miss_and_repeat_nothing(desk: OfficeDesk) -> None:
    ids = [send(desk)]
    for _ in range(9):
        ids.append(reply(desk, ids))
    pages: list[str] = []
    cursor = None
    while True:
        page = desk.call(BEN, "mail.thread", id=ids[0], limit=4, cursor=cursor)
        pages += [message["id"] for message in page["messages"]]
        cursor = page["next_cursor"]
        if cursor is None:
            break
    assert pages == ids


def reply(desk: OfficeDesk, ids: list[str]) -> str:
    """The next message of a conversation between ben and ana."""
    caller = BEN if len(ids) % 2 else ANA
    return str(desk.call(caller, "mail.reply", id=ids[-1], body="go on")["id"])


def test_looking_at_a_thread_changes_nothing(desk: OfficeDesk) -> None:
    first = send(desk)
    before = desk.rows("SELECT stage, stage_ms FROM deliveries")
    desk.call(BEN, "mail.thread", id=first)
    assert desk.rows("SELECT stage, stage_ms FROM deliveries") == before


# -- search ---------------------------------------------------------------------------------------


def found(desk: OfficeDesk, query: str, caller: Any = BEN, **more: Any) -> list[str]:
    answer = desk.call(caller, "mail.search", query=query, **more)
    return [message["id"] for message in answer["messages"]]


def test_words_are_found_newest_first_while_the_index_is_still_behind(desk: OfficeDesk) -> None:
    ids = [send(desk, f"the port is {number}") for number in (8080, 8081, 8082)]
    assert desk.rows("SELECT value FROM counters WHERE name = 'indexed_message'") == [(0,)]
    assert found(desk, "port") == ids[::-1]
    assert found(desk, "port 8081") == [ids[1]]
    assert found(desk, "PORT") == ids[::-1]


@pytest.mark.parametrize(
    ("body", "query"),
    [
        ("use AND here", "AND"),
        ("NOT a NEAR miss", "NOT NEAR"),
        ('he said "stop"', '"stop"'),
        ("glob a* b", "a*"),
        ("column subject:x", "subject:x"),
        ("(brackets)", "(brackets)"),
        ("foo-bar baz", "foo-bar"),
        ("mbx/core/lease.py", "core/lease.py"),
        ("東京都の天気", "東京"),
        ("東京都の天気", "天気"),
        ("黒猫", "猫"),
        ("猫です", "猫"),
        ("한국어 문장", "국어"),
        ("Größe und naïve", "große naive"),
        ("cafe\u0301", "café"),
        ("ID東京", "ID東京"),
        ("x = y; -- drop", "drop --"),
    ],
)
def test_ordinary_words_are_taken_literally_in_every_script(
    desk: OfficeDesk, body: str, query: str
) -> None:
    wanted = send(desk, body)
    send(desk, "something else")
    assert found(desk, query) == [wanted]


def test_only_ones_own_mail_is_found_however_common_the_word(desk: OfficeDesk) -> None:
    mine = send(desk, "common word", to="ben")
    for _ in range(30):
        send(desk, "common word", to="cai")
    assert found(desk, "common", BEN, limit=5) == [mine]
    assert len(found(desk, "common", ANA, limit=200)) == 31, "what one sent is one's own too"


HOSTILE = (
    "t2",
    "f1",
    "kmessage",
    "who:t2",
    "who : t2",
    "{who}:t2",
    "{who} : (t2)",
    "-who:x",
    "who:f1 OR common",
    "common OR who:t2",
    "common) OR (who:t2",
    'common" OR who:t2 OR "common',
    '") OR who : (t2',
    '"} OR {who} : t2 AND {subject "common',
    "common*",
    "^common",
    "com*",
    "NEAR(common secret)",
    "common NOT secret",
    "common + secret",
    "subject:common",
    "rank:bm25()",
    "common'; DROP TABLE search; --",
)
"""Words that would mean something if any sign in them did."""


@pytest.mark.parametrize("query", HOSTILE)
def test_no_word_reaches_beyond_ones_own_mail_nor_is_it_more_than_a_word(
    desk: OfficeDesk, query: str
) -> None:
    send(desk, "common secret", to="ben")
    assert found(desk, query, CAI) == []
    quoted = desk.call(CAI, "mail.send", to=["cai"], subject="s", body=f"({query})")["id"]
    assert found(desk, query, CAI) == [quoted]
    assert quoted not in found(desk, query, ANA)


SIGNS = tuple("\"'(){}:*^+-,;") + tuple("AND OR NOT NEAR who subject t1 t2 f1 x 猫 é".split())


def test_whatever_signs_a_query_has_it_finds_ones_own_mail_and_no_other(desk: OfficeDesk) -> None:
    chance = random.Random(20_260_301)
    own: set[str] = set()
    refused = 0
    for _ in range(300):
        query = chance.choice(["", " "]).join(chance.choices(SIGNS, k=chance.randint(1, 12)))
        send(desk, f"secret {query}")
        mine = desk.call(CAI, "mail.send", to=["cai"], subject="s", body=f"own {query}")["id"]
        own.add(mine)
        if any(character.isalpha() for character in query):
            hits = found(desk, query, CAI)
            assert hits[0] == mine
            assert own.issuperset(hits)
        else:
            assert desk.refusal(CAI, "mail.search", query=query).code == "usage"
            refused += 1
    assert 10 < refused < 150


def test_identities_whose_keys_begin_alike_do_not_find_each_others_mail(desk: OfficeDesk) -> None:
    callers = {3: CAI}
    for number in range(4, 36):
        callers[number] = desk.holder(f"agent-{number:x}z", 1_000 + number)
    for number, caller in callers.items():
        to = f"agent-{number:x}z" if number > 3 else "cai"
        desk.call(caller, "mail.send", to=[to], subject="s", body=f"word {number}")
    nos = dict(desk.rows("SELECT name, no FROM identities"))
    assert max(nos.values()) >= 33
    for number, caller in callers.items():
        assert len(found(desk, "word", caller)) == 1
        assert len(found(desk, f"word {number}", caller)) == 1


def test_everyone_who_got_a_copy_finds_it_and_only_they(desk: OfficeDesk) -> None:
    late = send(desk, "to all", to="*")
    dee = desk.holder("dee", 400)
    for caller in (ANA, BEN, CAI):
        assert found(desk, "all", caller) == [late]
    assert found(desk, "all", dee) == []
    by_role = send(desk, "to the role", to="role:dev", kind="alert")
    assert found(desk, "role", dee, kind="alert", to="dee", **{"from": "ana"}) == [by_role]
    assert found(desk, "role", dee, kind="task") == []


def test_the_filters_of_a_search_hold_together(desk: OfficeDesk) -> None:
    task = send(desk, "word 東京 naïve", kind="task")
    send(desk, "word 東京 naïve", kind="alert")
    send(desk, "word 東京 naïve", kind="task", to="cai")
    both = desk.call(BEN, "mail.send", to=["ana", "cai"], subject="s", body="word", kind="task")
    assert found(desk, "NAIVE 京", kind="task", since="1h", **{"from": "ana"}) == [task]
    assert found(desk, "word", ANA, kind="task", to="ben", **{"from": "ana"}) == [task]
    assert found(desk, "word", CAI, to="ana") == [both["id"]]
    assert found(desk, "word", CAI, to="cai", **{"from": "ben"}) == [both["id"]]
    assert found(desk, "word", CAI, to="ben") == []
    assert found(desk, "word", CAI, **{"from": "cai"}) == []


def test_filters_are_applied_before_the_limit(desk: OfficeDesk) -> None:
    request = send(desk, "word", kind="request")
    desk.world.pass_ms(3_600_000)
    for _ in range(5):
        send(desk, "word")
    answer = desk.call(BEN, "mail.send", to=["ana"], subject="s", body="word")["id"]
    assert found(desk, "word", kind="request", limit=1) == [request]
    assert found(desk, "word", **{"from": "ben"}) == [answer]
    assert found(desk, "word", to="ana") == [answer]
    assert found(desk, "word", until="30m") == [request]
    assert request not in found(desk, "word", since="30m")
    assert found(desk, "word", since="2000-01-01", until="2001-01-01T00:00Z") == []


def test_pages_of_a_search_miss_and_repeat_nothing_while_mail_arrives(desk: OfficeDesk) -> None:
    ids = [send(desk, "word") for _ in range(7)]
    pages: list[str] = []
    cursor = None
    while True:
        page = desk.call(BEN, "mail.search", query="word", limit=3, cursor=cursor)
        pages += [message["id"] for message in page["messages"]]
        send(desk, "word")
        cursor = page["next_cursor"]
        if cursor is None:
            break
    assert pages == ids[::-1]


def test_a_cursor_of_another_search_is_refused(desk: OfficeDesk) -> None:
    for _ in range(3):
        send(desk, "word other")
    cursor = desk.call(BEN, "mail.search", query="word", limit=1)["next_cursor"]
    assert desk.refusal(BEN, "mail.search", query="other", cursor=cursor).code == "conflict"


@pytest.mark.parametrize(
    ("query", "code"),
    [
        ("", "text-invalid"),
        ("->", "usage"),
        ("\U0001f642", "usage"),
        ("x" * SEARCH_CHARS_MAX, None),
        ("x" * (SEARCH_CHARS_MAX + 1), "text-invalid"),
        (" ".join(["w"] * SEARCH_WORDS_MAX), None),
        (" ".join(["w"] * (SEARCH_WORDS_MAX + 1)), "too-many"),
        ("a\nb", "text-invalid"),
    ],
)
def test_a_query_has_its_limits(desk: OfficeDesk, query: str, code: str | None) -> None:
    if code is None:
        assert found(desk, query) == []
    else:
        assert desk.refusal(BEN, "mail.search", query=query).code == code


@pytest.mark.parametrize(
    ("more", "code"),
    [
        ({"since": "soon"}, "usage"),
        ({"until": "2026-01-01T12:00"}, "usage"),
        ({"from": "nobody"}, "unknown-identity"),
        ({"to": "No Name"}, "name-invalid"),
        ({"kind": "letter"}, "usage"),
    ],
)
def test_a_filter_that_makes_no_sense_is_refused_and_not_an_empty_result(
    desk: OfficeDesk, more: dict[str, str], code: str
) -> None:
    assert desk.refusal(BEN, "mail.search", query="word", **more).code == code


def test_a_hit_shows_where_the_word_stands(desk: OfficeDesk) -> None:
    send(desk, "x " * 200 + "needle\nin " + "y " * 200)
    hit = desk.call(BEN, "mail.search", query="needle")["messages"][0]
    assert "needle in" in hit["snippet"]
    assert hit["snippet"].startswith("\u2026")
    assert hit["snippet"].endswith("\u2026")
    assert len(hit["snippet"]) < 140


def test_a_snippet_of_a_word_that_is_nowhere_is_the_beginning() -> None:
    assert snippet("short body", ("word",)) == "short body"
    assert snippet("", ("word",)) == ""
