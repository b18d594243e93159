"""What flows over a standing link: the window at both ends, the outbox, refusals that pass."""

import pytest

from mbx.core import limits
from mbx.core.commands import (
    Commit,
    Fetch,
    Refused,
    Send,
    Unfit,
)
from mbx.core.frames import No, Ok, Place, Put, Withdrawal, encode, parse
from mbx.core.link import Link
from tests.support.frames import record
from tests.support.linking import (
    FAULT,
    INTO,
    NOTHING,
    greeting,
    hear,
    offering,
    paused,
    receiving,
    skipping,
    some,
    standing,
    theirs,
    told,
)

# --- the window ----------------------------------------------------------------------------------


def filled(link: Link, places: tuple[Place, ...], rounds: int) -> list[int]:
    """Answer every fetch with these places, so many times; the sizes of the puts."""
    sizes = []
    commands = link.fetched(2, places, 0)
    for _ in range(rounds):
        fetch = next((one for one in commands if isinstance(one, Fetch)), None)
        sizes += [len(parse(one.text).places) for one in commands if isinstance(one, Send)]  # type: ignore[union-attr]
        if fetch is None:
            break
        commands = link.fetched(fetch.after_seq, places[: fetch.places_max], 0)
    return sizes


def test_256_places_are_offered_and_not_one_more_before_an_answer() -> None:
    link = standing()
    link.offer(10_000, 0)
    assert filled(link, some(64), 20) == [64, 64, 64, 64]
    assert link.offered[0] == limits.WINDOW_RECORDS_MAX == 256
    assert hear(link, Ok(3)) == "acknowledged 3, fetch 258"
    assert told(link.fetched(258, some(1), 0)) == "put 259+1"


def test_a_put_has_at_most_64_places_whatever_the_outbox_gives() -> None:
    link = standing()
    link.offer(1_000, 0)
    assert told(link.fetched(2, some(130), 0)) == "put 3+64, put 67+64, put 131+2, fetch 132"


def test_4_MiB_are_offered_and_not_more_before_an_answer() -> None:  # noqa: N802  the unit
    link = standing()
    link.offer(1_000, 0)
    body = record("a" * 300_000)
    assert filled(link, (body,) * 5, 20) == [5, 5, 3]
    assert link.offered[1] <= limits.WINDOW_MAX_BYTES
    assert link.offered[1] + 300_000 > limits.WINDOW_MAX_BYTES
    assert 0 < link.kept_bytes <= 2 * 301_000


def test_frames_stay_below_their_limit() -> None:
    link = standing()
    commands = link.fetched(2, (record("a" * 600_000),) * 6, 0)
    sent = [one.text for one in commands if isinstance(one, Send)]
    assert [len(text) > limits.FRAME_MAX_BYTES for text in sent] == [False, False]
    assert told(commands) == "put 3+3, put 6+3, fetch 8"


@pytest.mark.parametrize(("more", "fits"), [(-1, True), (0, True), (1, False)])
def test_the_window_is_exact_to_the_byte(more: int, fits: bool) -> None:
    """A frame that takes the window to its limit leaves; one byte more waits for an answer."""
    link = standing()
    link.fetched(2, (record("a" * 2_000_000),), 0)
    link.fetched(3, (record("a" * 2_000_000),), 0)
    room = limits.WINDOW_MAX_BYTES - link.offered[1]
    overhead = link.offered[1] // 2 - 2_000_000
    # The greatest place is allowed for: this frame's own place has one digit, not sixteen.
    commands = link.fetched(4, (record("a" * (room - overhead - 15 + more)),), 0)
    assert told(commands) == ("put 5+1, fetch 5" if fits else NOTHING)
    assert (link.kept_bytes == 0) is fits
    if not fits:
        assert hear(link, Ok(3)) == "acknowledged 3, put 5+1, fetch 5"


def test_one_record_is_always_let_through() -> None:
    """The largest one that a frame can carry, though a window of it were too small."""
    link = standing()
    bare = len(encode(Put(2**53 - 1, (record(""),))))
    largest = record("a" * (limits.FRAME_MAX_BYTES - bare))
    assert told(link.fetched(2, (largest,), 0)) == "put 3+1, fetch 3"


def test_a_record_that_no_frame_can_carry_is_set_aside_and_the_others_go_on() -> None:
    link = standing()
    huge = record("\x01" * (limits.FRAME_MAX_BYTES // 6))
    commands = link.fetched(2, (*some(1), huge, *some(1)), 0)
    assert told(commands) == "put 3+1, unfit 4"
    assert isinstance(commands[-1], Unfit)
    assert commands[-1].size_bytes > limits.FRAME_MAX_BYTES
    assert told(link.offer(9, 0)) == "fetch 3"
    assert (
        told(link.fetched(3, (Withdrawal(b"w" * 32), *some(1)), 0)) == "put 4+1, put 5+1, fetch 5"
    )


def test_a_withdrawn_place_travels_alone_between_the_others() -> None:
    link = standing()
    places = (*some(2), Withdrawal(b"v" * 32), Withdrawal(b"w" * 32), *some(3))
    commands = link.fetched(2, places, 0)
    assert told(commands) == "put 3+2, put 5+1, put 6+1, put 7+3"
    assert [parse(one.text) for one in commands[1:3] if isinstance(one, Send)] == [
        Put(5, (Withdrawal(b"v" * 32),)),
        Put(6, (Withdrawal(b"w" * 32),)),
    ]


def test_the_receiver_takes_a_whole_window_and_no_place_more() -> None:
    link = standing()
    for no in range(4):
        assert hear(link, Put(5 + 64 * no, some(64))) == f"commit {5 + 64 * no}+64"
    assert link.uncommitted[0] == 256
    assert hear(link, Put(261, some(1))) == FAULT


def test_the_receiver_takes_4_MiB_and_no_byte_more() -> None:  # noqa: N802  the unit
    for more, outcome in ((-1, "commit 7+1"), (0, "commit 7+1"), (1, FAULT)):
        link = standing()
        hear(link, Put(5, (record("a" * 2_000_000),)))
        hear(link, Put(6, (record("a" * 2_000_000),)))
        bare = len(encode(Put(7, (record(""),))))
        rest = limits.WINDOW_MAX_BYTES - link.uncommitted[1] - bare
        assert hear(link, Put(7, (record("a" * (rest + more)),))) == outcome


def test_what_is_committed_makes_room_again() -> None:
    link = standing()
    for no in range(4):
        hear(link, Put(5 + 64 * no, some(64)))
    assert told(link.committed(68)) == "say ok 68"
    assert link.uncommitted[0] == 192
    assert hear(link, Put(261, some(64))) == "commit 261+64"


def test_places_are_committed_once_however_often_they_come() -> None:
    link = receiving()
    assert hear(link, Put(5, some(2))) == NOTHING
    assert told(link.committed(6)) == "say ok 6"
    assert hear(link, Put(5, some(2))) == "say ok 6"
    assert told(link.committed(6)) == NOTHING
    assert hear(link, Put(6, some(2))) == "commit 7+1"


def test_a_commit_names_the_stream_and_hands_over_what_was_sent() -> None:
    link = standing()
    places = some(2)
    assert link.receive(encode(Put(5, places)), 0) == [Commit(INTO, 5, places)]
    withdrawn = Put(7, (Withdrawal(b"w" * 32),))
    assert link.receive(encode(withdrawn), 0) == [Commit(INTO, 7, withdrawn.places)]


# --- the outbox grows, answers race --------------------------------------------------------------


def test_what_is_written_while_the_link_stands_is_fetched_at_once() -> None:
    link = greeting()
    hear(link, theirs(received=9))
    hear(link, Ok(9))
    assert told(link.offer(10, 0)) == "fetch 9"
    assert told(link.offer(11, 0)) == NOTHING, "one fetch at a time"
    assert told(link.fetched(9, some(1), 0)) == "put 10+1, fetch 10"
    assert told(link.fetched(10, some(1), 0)) == "put 11+1"


def test_what_is_written_while_the_ends_still_compare_is_not_forgotten() -> None:
    link = greeting()
    assert told(link.offer(11, 0)) == NOTHING
    hear(link, theirs(received=9))
    assert hear(link, Ok(9)) == "stood, acknowledged 9, fetch 9"


def test_an_outbox_that_gives_nothing_is_not_asked_again_before_the_next_offer() -> None:
    link = standing()
    assert told(link.fetched(2, (), 0)) == NOTHING
    assert hear(link, Ok(2)) == NOTHING
    assert told(link.offer(10, 0)) == "fetch 2"


def test_an_offer_that_comes_while_nothing_is_found_is_looked_at() -> None:
    link = standing()
    assert told(link.offer(10, 0)) == NOTHING
    assert told(link.fetched(2, (), 0)) == "fetch 2"


# --- refusals that pass --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("asked_ms", "waits_ms"),
    [(0, 1_000), (999, 1_000), (1_000, 1_000), (1_001, 1_001), (59_999, 59_999), (60_000, 60_000),
     (60_001, 60_000), (2**53 - 1, 60_000)],
)  # fmt: skip
def test_a_refused_place_is_offered_again_within_bounds(asked_ms: int, waits_ms: int) -> None:
    link = offering()
    assert link.receive(encode(No(3, "busy", asked_ms)), 7) == [Refused(3, "busy", waits_ms)]
    assert link.deadline() == 7 + waits_ms
    assert told(link.tick(6 + waits_ms)) == NOTHING
    assert told(link.offer(12, 6 + waits_ms)) == NOTHING
    assert told(link.tick(7 + waits_ms)) == "fetch 2"
    assert told(link.fetched(2, some(3), 7 + waits_ms)) == "put 3+3, fetch 5"


def test_what_was_asked_before_a_refusal_is_stale_after_it() -> None:
    link = paused()
    assert told(link.fetched(5, some(2), 0)) == NOTHING
    assert link.offered == (0, 0)


def test_after_a_part_of_a_put_the_rest_can_be_refused() -> None:
    """At the receiver and at the sender."""
    link = receiving()
    assert told(link.committed(5)) == "say ok 5"
    assert told(link.defer(6, "busy", 2_000)) == "say no 6 busy"
    link = offering()
    assert hear(link, Ok(4)) == "acknowledged 4"
    assert hear(link, No(5, "busy", 2_000)) == "refused 5 busy"
    assert told(link.tick(2_000)) == "fetch 4"


def test_what_was_under_way_when_we_refused_is_dropped_until_the_place_comes_again() -> None:
    link = skipping()
    assert hear(link, Put(7, some(2))) == NOTHING
    assert hear(link, Put(9, some(2))) == NOTHING
    assert link.uncommitted == (0, 0)
    assert hear(link, Put(5, some(1))) == "commit 5+1"
    assert hear(link, Put(7, some(1))) == FAULT


def test_a_second_refusal_of_what_is_dropped_already_says_nothing() -> None:
    link = skipping()
    assert told(link.defer(5, "busy", 1_000)) == NOTHING
    assert told(link.defer(6, "busy", 1_000)) == NOTHING


def test_a_refusal_of_what_is_not_under_way_is_a_fault() -> None:
    assert hear(standing(), No(3, "busy", 1_000)) == FAULT
    assert hear(paused(), No(3, "busy", 1_000)) == FAULT
    link = offering()
    hear(link, Ok(5))
    assert hear(link, No(5, "busy", 1_000)) == FAULT
