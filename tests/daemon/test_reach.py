"""What others are told of a session: what has lasted, and not the turns of a conversation."""

import pytest

from mbx.core.limits import REST_TOLD_MS
from mbx.daemon.reach import Lasting, Reach, Standing

AT_WORK, RESTS, UNWOKEN = Lasting(False, True), Lasting(True, True), Lasting(False, False)


class Watched:
    """A session that is looked at as time passes."""

    def __init__(self, first: Lasting) -> None:
        self.now_ms = 0
        self.standing = Standing.begun(1, first, 0)

    def look(self, seen: Lasting, after_ms: int = 0) -> Lasting:
        """What is told of it after one more look."""
        self.now_ms += after_ms
        self.standing = self.standing.seen(seen, self.now_ms)
        return self.standing.told


@pytest.mark.parametrize(("past_ms", "told"), [(-1, AT_WORK), (0, RESTS), (1, RESTS)])
def test_a_session_rests_for_others_when_it_has_been_idle_for_five_minutes(
    past_ms: int, told: Lasting
) -> None:
    assert REST_TOLD_MS == 5 * 60 * 1000
    session = Watched(AT_WORK)
    assert session.look(RESTS) == AT_WORK
    assert session.look(RESTS, REST_TOLD_MS + past_ms) == told


def test_a_session_that_is_first_seen_idle_has_not_rested_yet() -> None:
    session = Watched(RESTS)
    assert session.look(RESTS) == AT_WORK
    assert session.look(RESTS, REST_TOLD_MS) == RESTS


def test_the_turns_of_a_conversation_are_told_to_nobody() -> None:
    session = Watched(AT_WORK)
    told = set()
    for _ in range(50):
        told |= {session.look(AT_WORK, 20_000), session.look(RESTS, 2_000)}
        told.add(session.look(RESTS, REST_TOLD_MS - 1))
    assert told == {AT_WORK}


def test_the_end_of_a_rest_is_told_at_once_and_the_next_rest_after_five_minutes() -> None:
    session = Watched(RESTS)
    session.look(RESTS, REST_TOLD_MS)
    told = [RESTS]
    for _ in range(60):  # an hour of looks, with a turn in each
        told += [session.look(AT_WORK, 30_000), session.look(RESTS, 30_000)]
    assert told.count(RESTS) == 1
    assert session.look(RESTS, REST_TOLD_MS) == RESTS


def test_a_way_that_comes_and_goes_is_told_when_it_stays_or_stays_away() -> None:
    session = Watched(AT_WORK)
    for _ in range(10):
        assert session.look(UNWOKEN, 60_000) == AT_WORK
        assert session.look(AT_WORK, 60_000) == AT_WORK
    assert session.look(UNWOKEN, 60_000) == AT_WORK
    assert session.look(UNWOKEN, REST_TOLD_MS) == UNWOKEN
    assert session.look(AT_WORK, REST_TOLD_MS) == UNWOKEN


@pytest.mark.parametrize(
    ("reach", "now"),
    [
        (Reach(True, "", "claude", True), RESTS),
        (Reach(False, "in a turn", "claude", False), AT_WORK),
        (Reach(False, "just woken", "claude", True), RESTS),
        (Reach(False, "takes none", "claude", True, True), Lasting(True, False)),
        (Reach(True, "nobody can say", "codex"), AT_WORK),
        (Reach(False, "no way"), UNWOKEN),
    ],
)
def test_pauses_of_seconds_are_no_other_way_to_be_reached(reach: Reach, now: Lasting) -> None:
    assert reach.now == now
