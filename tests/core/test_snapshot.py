"""What a session is told: once, with counts and names, and nothing else."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mbx.core.limits import SNAPSHOT_MAX_BYTES, SNAPSHOT_ROWS_MAX, SNAPSHOT_STALE_MS
from mbx.core.names import check_name
from mbx.core.snapshot import HELD, PENDING, SHARED, Row, Snapshot, greeting, is_fresh, parse

LONGEST = "a" * 40 + "@" + "b" * 40


def held(*rows: Row, unread: int | None = None, newest: int | None = None) -> Snapshot:
    count = len(rows) if unread is None else unread
    mark = max((row.mark for row in rows), default=0) if newest is None else newest
    return Snapshot("claude", "session id", "12-34", HELD, "ana", count, mark, rows)


def facts(snapshot: Snapshot) -> dict[str, Any]:
    rows = [(row.no, row.mark, row.wakes, row.sender) for row in snapshot.rows]
    kept = {name: getattr(snapshot, name) for name in Snapshot.__slots__ if name != "rows"}
    return {**kept, "rows": rows}


def test_only_what_came_since_is_news() -> None:
    snapshot = held(Row(7, 1, False, "ben"), Row(3, 2, True, "cai@desk"))
    assert snapshot.news(0) == "mbx: 2 new for ana from ben, cai@desk, 2 unread. Next: mbx_inbox."
    assert snapshot.news(1) == "mbx: 1 new for ana from cai@desk, 2 unread. Next: mbx_inbox."
    assert snapshot.news(2) == ""
    assert held().news(0) == ""


def test_news_beyond_the_rows_are_told_without_a_number() -> None:
    snapshot = held(Row(1, 1, False, "ben"), unread=900, newest=5)
    assert snapshot.news(4) == "mbx: new mail for ana, 900 unread. Next: mbx_inbox."


def test_only_mail_that_wakes_keeps_a_turn_going() -> None:
    snapshot = held(Row(1, 1, True, "ben"), Row(2, 2, False, "cai"), Row(3, 3, True, "ben"))
    assert snapshot.stop(0).startswith("mbx: 2 new messages ask for ana from ben.")
    assert snapshot.stop(1).startswith("mbx: 1 new message asks for ana from ben.")
    assert snapshot.stop(3) == ""
    assert held(Row(2, 2, False, "cai")).stop(0) == ""
    assert snapshot.newest_waking == 3


def test_many_senders_are_cut_and_what_is_no_address_is_left_out() -> None:
    rows = [Row(n, n, False, name) for n, name in enumerate(["b", "c", "d", "e", "f"], 1)]
    assert "5 new for ana from b, c, d and 2 more, 5 unread" in held(*rows).news(0)
    for hostile in ("Ignore this", "a\x1b[31m", "ä", "", "a,b", "a\u202eb", "A"):
        assert held(Row(1, 1, True, hostile)).news(0) == (
            "mbx: 1 new for ana, 1 unread. Next: mbx_inbox."
        )


@pytest.mark.parametrize("state", [PENDING, SHARED])
def test_who_holds_nothing_is_told_of_no_mail(state: str) -> None:
    snapshot = Snapshot("claude", "s", "1-2", state, "ana", 3, 3, [Row(1, 3, True, "ben")])
    assert (snapshot.news(0), snapshot.stop(0)) == ("", "")


def test_the_status_line_is_short_and_says_nothing_of_one_of_many() -> None:
    assert held().status_line() == "mbx ana"
    assert held(Row(1, 1, False, "b")).status_line() == "mbx ana: 1 unread"
    assert Snapshot("kimi", "s", "1-2", PENDING, "ana").status_line() == "mbx: waits for ana"
    assert Snapshot("kimi", "-", "1-2", SHARED, newest=1).status_line() == ""


def test_a_session_that_begins_is_told_its_name_what_waits_and_the_next_step() -> None:
    assert greeting("ana", 2) == "mbx: your mailbox identity is ana, 2 unread. Next: mbx_inbox."
    assert "Next: go on" in greeting("ana", 0)
    assert "another session holds ana" in greeting(None, 0, "ana")
    assert greeting(None, 0).endswith("Next: mbx_whoami.")
    assert 'First: mbx_whoami with bind "t-1".' in greeting("ana", 1, None, "t-1")


@given(
    st.builds(
        Snapshot,
        st.just("claude"),
        st.text(st.characters(blacklist_categories=["Cc", "Cs", "Zl", "Zp"]), max_size=40),
        st.just("12-34"),
        st.sampled_from([HELD, PENDING, SHARED]),
        st.just("ana"),
        st.integers(0, 10**6),
        st.integers(0, 10**6),
        st.lists(
            st.builds(
                Row, st.integers(0, 9), st.integers(0, 9), st.booleans(), st.just("ben@desk")
            ),
            max_size=3,
        ),
    )
)
def test_a_file_says_what_was_written(snapshot: Snapshot) -> None:
    read = parse(snapshot.as_text())
    assert read is not None
    assert facts(read) == facts(snapshot)


@pytest.mark.parametrize(
    "text", ["", "\n\n\n", "2 claude held 1-2 0 0 0 ana\ns\n\n", "1 a b c d e f g\ns\n\n", "1 x\n"]
)
def test_what_is_no_snapshot_is_none(text: str) -> None:
    assert parse(text) is None


def test_the_first_line_is_words_for_a_shell() -> None:
    snapshot = held(Row(1, 4, True, "ben"), Row(2, 6, False, "ben"))
    assert snapshot.as_text().split("\n")[:3] == [
        "1 claude held 12-34 6 4 2 ana",
        "session id",
        "mbx ana: 2 unread",
    ]


def test_the_longest_snapshot_fits_its_limit() -> None:
    check_name("a" * 40)
    rows = [Row(2**53, 2**53, True, LONGEST) for _ in range(SNAPSHOT_ROWS_MAX)]
    own = f"{2**22}-{2**53}-{'f' * 12}"
    snapshot = Snapshot("claude", "😀" * 128, own, HELD, "a" * 40, 2**53, 2**53, rows)
    assert len(snapshot.as_text().encode()) <= SNAPSHOT_MAX_BYTES


def test_a_sign_of_life_counts_for_ten_seconds_and_not_from_before_a_reboot() -> None:
    assert is_fresh(1_000, 1_000 + SNAPSHOT_STALE_MS - 1)
    assert is_fresh(1_000, 1_000 + SNAPSHOT_STALE_MS)
    assert not is_fresh(1_000, 1_000 + SNAPSHOT_STALE_MS + 1)
    assert is_fresh(1_000, 1_000)
    assert not is_fresh(1_001, 1_000)
