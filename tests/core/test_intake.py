"""What a link has taken in goes to the store in pieces, one at a time."""

import pytest

from mbx.core.commands import Commit
from mbx.core.frames import Place, Withdrawal
from mbx.core.intake import Intake
from mbx.core.limits import COMMIT_PIECE_BYTES
from mbx.core.record import Record

STREAM = "s" * 26


def places(*sizes: int) -> tuple[Place, ...]:
    return tuple(Record("message", "x" * size, {}) for size in sizes)


def taken(intake: Intake) -> list[tuple[int, int]]:
    """(first place, how many) of each piece, taken one after the other."""
    found = []
    while (piece := intake.take()) is not None:
        found.append((piece.first_seq, len(piece.places)))
        intake.settled()
    return found


@pytest.mark.parametrize(("more", "pieces"), [(-1, [(7, 2)]), (0, [(7, 2)]), (1, [(7, 1), (8, 1)])])
def test_a_piece_is_so_large_and_no_larger(more: int, pieces: list[tuple[int, int]]) -> None:
    half = COMMIT_PIECE_BYTES // 2
    intake = Intake()
    intake.add(Commit(STREAM, 7, places(half, half + more)))
    assert taken(intake) == pieces


def test_a_record_larger_than_a_piece_is_one_by_itself() -> None:
    intake = Intake()
    intake.add(Commit(STREAM, 1, places(3, 2 * COMMIT_PIECE_BYTES, 3)))
    assert taken(intake) == [(1, 1), (2, 1), (3, 1)]


def test_one_piece_is_out_at_a_time_and_what_comes_meanwhile_is_joined() -> None:
    intake = Intake()
    intake.add(Commit(STREAM, 1, places(1)))
    first = intake.take()
    assert first == Commit(STREAM, 1, places(1))
    for seq in range(2, 6):
        intake.add(Commit(STREAM, seq, places(1)))
        assert intake.take() is None
    intake.settled()
    assert intake.take() == Commit(STREAM, 2, places(1, 1, 1, 1))
    assert intake.take() is None


def test_places_without_records_cost_nothing() -> None:
    intake = Intake()
    withdrawn = (Withdrawal(b"w" * 32),) * 256
    intake.add(Commit(STREAM, 1, (*places(COMMIT_PIECE_BYTES), *withdrawn)))
    assert taken(intake) == [(1, 257)]


def test_what_was_dropped_is_taken_when_it_is_offered_again() -> None:
    intake = Intake()
    intake.add(Commit(STREAM, 1, places(COMMIT_PIECE_BYTES, 1, 1)))
    assert intake.take() is not None
    intake.settled()
    intake.drop()
    assert intake.take() is None
    intake.add(Commit(STREAM, 1, places(5, 6)))
    assert taken(intake) == [(1, 2)]


def test_what_does_not_follow_is_an_error_of_ours() -> None:
    intake = Intake()
    intake.add(Commit(STREAM, 1, places(1)))
    with pytest.raises(ValueError, match="do not follow"):
        intake.add(Commit(STREAM, 3, places(1)))
