"""The owner's takeovers in histories of leases: good ones are accepted, each kind of lie is not."""

import json
from collections.abc import Callable
from dataclasses import replace

import pytest

from mbx.core.lease import LeaseState
from tests.sim.image import Audit
from tests.sim.linear import NEVER, Seen, Step, by_search
from tests.sim.sequence import by_sequence, displaced_calls
from tests.sim.test_linear import NAMES, Told, row, usual, wrong

FIRST, SECOND = "the first record", "the second record"


def taken(no: int, record: str, ended: int | None, session: int, epoch: int) -> Audit:
    """The row of a takeover: from whom (None: from nobody), to whom, at which epoch."""
    before = None if ended is None else {"cli": "shell", "session": str(ended)}
    told = {"seq": 10 * no, "name": "ada", "to": {"cli": "shell", "session": str(session)}}
    text = json.dumps({**told, "record": record, "epoch": epoch, "before": before, "reason": ""})
    return Audit(no, 0, "takeover", "i1", text, b"")


def history() -> Told:
    """1 holds it, the owner gives it to 2, 1 is told so; it goes on to 3, which releases it.

    The second record is brought by two at once, and both are brought again.
    """
    held = LeaseState.HELD
    steps = [
        Step(1, "register", "ok", 1, 2, 1),
        Step(1, "use", "ok", 3, 4, 1),
        Step(1, "look", "ok", 4.2, 4.4, seen=Seen(1, held, 1)),
        Step(2, "takeover", "ok", 5, 6, 2, 1, FIRST, Seen(1, held, 1)),
        Step(1, "use", "lost", 7, 8, 1, seen=Seen(2, None, 2)),
        Step(1, "release", "lost", 9, 10, 1, seen=Seen(2, None, 2)),
        Step(1, "claim", "refused", 10.2, 10.4, seen=Seen(2, held, 2)),
        Step(2, "claim", "ok", 11, 12, 2),
        Step(2, "use", "ok", 13, 14, 2),
        Step(3, "takeover", "stale", 15, 16, 0, 1, "a late record", Seen(2, held, 2)),
        Step(2, "takeover", "refused", 15, 16, 0, 2, "to its holder", Seen(2, held, 2)),
        Step(3, "takeover", "ok", 17, 20, 3, 2, SECOND, Seen(2, held, 2)),
        Step(3, "takeover", "again", 17, 21, 0, 2, SECOND),
        Step(2, "use", "lost", 22, 23, 2, seen=Seen(3, None, 3)),
        Step(3, "use", "ok", 24, 25, 3),
        Step(3, "release", "ok", 26, 27, 3),
        Step(2, "takeover", "again", 28, 29, 0, 1, FIRST),
        Step(2, "read", "lost", 30, 31, 2, seen=Seen(3, None, 3)),
        Step(1, "claim", "ok", 32, 33, 4),
    ]
    audit = [
        row(1, "claim", 1, 1),
        taken(2, FIRST, 1, 2, 2),
        taken(3, SECOND, 2, 3, 3),
        row(4, "release", 3, 3),
        row(5, "claim", 1, 4),
    ]
    return steps, audit


def at(steps: list[Step], kind: str, outcome: str, which: int = 0) -> int:
    """The place of such a step."""
    found = [no for no, one in enumerate(steps) if (one.kind, one.outcome) == (kind, outcome)]
    return found[which]


def changed(steps: list[Step], no: int, **fields: object) -> list[Step]:
    return [*steps[:no], replace(steps[no], **fields), *steps[no + 1 :]]  # type: ignore[arg-type]


# --- good ones ------------------------------------------------------------------------------------


def test_a_history_with_takeovers_is_good() -> None:
    assert wrong(history()) == ([], [])


def test_the_calls_of_the_displaced_are_known() -> None:
    steps, _ = history()
    found = {(one.session, one.called, epoch) for one, epoch in displaced_calls({"i1": steps})}
    assert found == {(1, 7, 1), (1, 9, 1), (2, 22, 2), (2, 30, 2)}


def test_a_lapsed_and_a_free_identity_are_taken_over_as_well() -> None:
    steps, audit = usual()
    steps += [
        Step(3, "lapse", "unknown", 19, NEVER),
        Step(1, "takeover", "ok", 20, 21, 4, 3, FIRST, Seen(3, LeaseState.LAPSED)),
        Step(1, "release", "ok", 22, 23, 4),
        Step(2, "takeover", "ok", 24, 25, 5, 4, SECOND, Seen(4, LeaseState.FREE)),
        Step(2, "use", "ok", 26, 27, 5),
    ]
    more = [
        row(6, "lapse", 3, 3),
        taken(7, FIRST, 3, 1, 4),
        row(8, "release", 1, 4),
        taken(9, SECOND, 1, 2, 5),
    ]
    assert wrong((steps, [*audit, *more])) == ([], [])


def test_an_answer_of_the_owner_that_was_lost_may_have_come_to_something_or_not() -> None:
    steps, audit = history()
    no = at(steps, "takeover", "ok")
    lost = changed(steps, no, outcome="unknown", epoch=0, seen=Seen())
    assert wrong((lost, audit)) == ([], [])
    never = [*usual()[0], Step(1, "takeover", "unknown", 19, 20, 0, 3, FIRST)]
    assert wrong((never, usual()[1])) == ([], [])


def test_a_displaced_session_that_claims_again_holds_it_again() -> None:
    steps, audit = history()
    steps += [Step(1, "use", "ok", 34, 35, 4), Step(3, "claim", "refused", 36, 37)]
    assert wrong((steps, audit)) == ([], [])


def test_a_conversation_comes_back_to_what_it_did_not_lose() -> None:
    steps, audit = usual()
    steps += [
        Step(3, "lapse", "unknown", 19, NEVER),
        Step(4, "arrive", "ok", 20, 21, 4),
        Step(4, "use", "ok", 22, 23, 4),
    ]
    audit = [*audit, row(6, "lapse", 3, 3), row(7, "claim", 3, 4)]
    names = {**NAMES, 4: NAMES[3]}
    assert by_search(steps) == []
    assert by_sequence({"i1": steps}, audit, names) == []


# --- bad ones -------------------------------------------------------------------------------------


def the_displaced_goes_on(steps: list[Step], audit: list[Audit]) -> Told:
    """A send of the former holder is accepted, under its own epoch."""
    return changed(steps, at(steps, "use", "lost"), outcome="ok", seen=Seen()), audit


def the_displaced_sends_under_the_new_epoch(steps: list[Step], audit: list[Audit]) -> Told:
    return changed(steps, at(steps, "use", "lost"), outcome="ok", epoch=2, seen=Seen()), audit


def the_displaced_releases_what_another_holds(steps: list[Step], audit: list[Audit]) -> Told:
    no = at(steps, "release", "lost")
    lie = changed(steps[: no + 1], no, outcome="ok", epoch=2, seen=Seen())
    return lie, [*audit[:2], row(3, "release", 1, 2)]


def a_stale_record_acts(steps: list[Step], audit: list[Audit]) -> Told:
    """It names epoch 1 and ends epoch 2."""
    no = at(steps, "takeover", "stale")
    lie = changed(steps[: no + 1], no, outcome="ok", epoch=3)
    return lie, [*audit[:2], taken(3, "a late record", 2, 3, 3)]


def a_record_for_an_epoch_to_come_acts(steps: list[Step], audit: list[Audit]) -> Told:
    no = at(steps, "takeover", "ok")
    return changed(steps[: no + 1], no, expects=2), audit[:2]


def two_takeovers_of_one_epoch(steps: list[Step], audit: list[Audit]) -> Told:
    """Both are told that they ended epoch 1; the log has two grants of epoch 2."""
    no = at(steps, "takeover", "ok")
    other = Step(3, "takeover", "ok", 5, 6, 2, 1, SECOND)
    return [*steps[: no + 1], other], [*audit[:2], taken(3, SECOND, 1, 3, 2)]


def two_takeovers_of_one_epoch_one_after_the_other(steps: list[Step], audit: list[Audit]) -> Told:
    no = at(steps, "takeover", "ok")
    other = Step(3, "takeover", "ok", 5, 6, 3, 1, SECOND)
    return [*steps[: no + 1], other], [*audit[:2], taken(3, SECOND, 2, 3, 3)]


def another_than_its_destination_got_it(steps: list[Step], audit: list[Audit]) -> Told:
    no = at(steps, "takeover", "ok")
    lie = [*steps[: no + 1], Step(3, "use", "ok", 7, 8, 2)]
    return lie, [audit[0], taken(2, FIRST, 1, 3, 2)]


def nobody_got_it(steps: list[Step], audit: list[Audit]) -> Told:
    """The owner is told that 2 has it; 1 goes on, and the log knows nothing."""
    no = at(steps, "takeover", "ok")
    return [*steps[: no + 1], Step(1, "use", "ok", 7, 8, 1)], audit[:1]


def a_record_acts_twice(steps: list[Step], audit: list[Audit]) -> Told:
    """When it is brought again, after 3 gave it back, 2 is granted it again."""
    no = at(steps, "takeover", "again", 1)
    lie = changed(steps[: no + 1], no, outcome="ok", epoch=4)
    return lie, [*audit[:4], taken(5, FIRST, 3, 2, 4)]


def a_record_acts_in_both_hands(steps: list[Step], audit: list[Audit]) -> Told:
    """Brought by two at once, it is told to both as the first."""
    no = at(steps, "takeover", "again")
    return changed(steps[: no + 1], no, outcome="ok", epoch=4), [
        *audit[:3],
        taken(4, SECOND, 3, 3, 4),
    ]


def a_takeover_keeps_the_epoch(steps: list[Step], audit: list[Audit]) -> Told:
    no = at(steps, "takeover", "ok")
    return changed(steps[: no + 1], no, epoch=1), [audit[0], taken(2, FIRST, 1, 2, 1)]


def a_refused_takeover_has_acted(steps: list[Step], audit: list[Audit]) -> Told:
    """Refused as stale; and yet 3 has it."""
    no = at(steps, "takeover", "stale")
    lie = [*steps[: no + 1], Step(3, "use", "ok", 17, 18, 3)]
    return lie, [*audit[:2], taken(3, "a late record", 2, 3, 3)]


def a_record_that_never_acted_is_told_as_old(steps: list[Step], audit: list[Audit]) -> Told:
    no = at(steps, "takeover", "ok")
    return changed(steps[: no + 1], no, outcome="again", epoch=0, seen=Seen()), audit[:1]


def a_record_that_acted_is_forgotten(steps: list[Step], audit: list[Audit]) -> Told:
    """Brought again, it is refused as one for another epoch."""
    no = at(steps, "takeover", "again", 1)
    return changed(steps[: no + 1], no, outcome="stale"), audit[:4]


def the_owner_is_told_of_another_epoch(steps: list[Step], audit: list[Audit]) -> Told:
    no = at(steps, "takeover", "ok", 1)
    return changed(steps, no, seen=Seen(1, LeaseState.HELD, 1)), audit


BOTH = (
    the_displaced_goes_on,
    the_displaced_sends_under_the_new_epoch,
    the_displaced_releases_what_another_holds,
    a_stale_record_acts,
    a_record_for_an_epoch_to_come_acts,
    two_takeovers_of_one_epoch,
    two_takeovers_of_one_epoch_one_after_the_other,
    another_than_its_destination_got_it,
    nobody_got_it,
    a_record_acts_twice,
    a_record_acts_in_both_hands,
    a_takeover_keeps_the_epoch,
    a_refused_takeover_has_acted,
    a_record_that_never_acted_is_told_as_old,
    a_record_that_acted_is_forgotten,
    the_owner_is_told_of_another_epoch,
)


@pytest.mark.parametrize("lie", BOTH, ids=lambda lie: lie.__name__)
def test_a_bad_takeover_is_refused_by_search_and_by_sequence(
    lie: Callable[[list[Step], list[Audit]], Told],
) -> None:
    by_order, by_log = wrong(lie(*history()))
    assert by_order != []
    assert by_log != []


def test_a_lost_takeover_that_is_told_as_old_has_acted() -> None:
    """Its answer never came; as it is brought again it is known, so its destination has it."""
    steps, _ = history()
    no = at(steps, "takeover", "ok")
    lost = changed(steps[: no + 1], no, outcome="unknown", epoch=0, seen=Seen())
    again = [*lost, Step(2, "takeover", "again", 7, 8, 0, 1, FIRST)]
    assert by_search([*again, Step(2, "use", "ok", 9, 10, 2)]) == []
    assert by_search([*again, Step(1, "use", "ok", 9, 10, 1)]) != []


@pytest.mark.parametrize(
    "more",
    [
        Step(3, "look", "ok", 34, 35, seen=Seen(3, LeaseState.HELD, 3)),
        Step(2, "claim", "refused", 34, 35, seen=Seen(4, LeaseState.HELD, 3)),
        Step(2, "use", "lost", 34, 35, 2, seen=Seen(3, None, 3)),
        Step(1, "use", "lost", 34, 35, 4, seen=Seen(4, None, 1)),
        Step(1, "read", "refused", 34, 35),
        Step(2, "takeover", "refused", 34, 35, 0, 3, "for epoch 3"),
        Step(2, "takeover", "stale", 34, 35, 0, 4, "for epoch 4"),
        Step(1, "takeover", "ok", 34, 35, 5, 4, "to its holder"),
    ],
    ids=[
        "a look shows an old lease",
        "a refused claim names another holder",
        "a displaced one is told an old epoch",
        "a holder is told that it lost it",
        "a holder is told that it has nothing",
        "refused although the epoch was wrong",
        "refused as stale although the epoch was right",
        "given to its own holder",
    ],
)
def test_what_only_the_answers_of_takeovers_show_is_refused_by_search(more: Step) -> None:
    steps, _ = history()
    assert by_search([*steps, more]) != []


def test_a_displaced_session_that_is_told_it_has_nothing_is_found() -> None:
    """The search takes it: it holds nothing indeed. But it must be told what became of it."""
    steps, audit = history()
    steps = changed(steps, at(steps, "use", "lost"), outcome="refused", epoch=0, seen=Seen())
    by_order, by_log = wrong((steps, audit))
    assert by_order == []
    assert any("displaced" in what for what in by_log)


def test_a_displaced_session_that_reads_on_is_found() -> None:
    steps, audit = history()
    steps = changed(steps, at(steps, "read", "lost"), outcome="ok", epoch=0, seen=Seen())
    assert any("displaced" in what for what in wrong((steps, audit))[1])


@pytest.mark.parametrize("how", ["unasked", "as it says hello"])
def test_a_displaced_session_that_comes_back_by_itself_is_found(how: str) -> None:
    """3 gives it back, and 1 has it without a claim of its own."""
    steps, audit = history()
    steps = steps[:-1]
    if how == "as it says hello":
        steps.append(Step(1, "arrive", "ok", 32, 33, 4))
    assert any("by itself" in what for what in wrong((steps, audit))[1])


def test_a_displaced_conversation_that_waits_for_it_by_itself_is_found() -> None:
    """Its next process is told so; that of one that was not displaced may be."""
    steps, audit = history()
    names = {**NAMES, 4: NAMES[2]}
    waits = Step(4, "wait", "ok", 24, 25)
    steps += [replace(waits, kind="arrive", outcome="unknown", returned=NEVER), waits]
    assert by_search(steps) == []
    assert any("waits by itself" in what for what in by_sequence({"i1": steps}, audit, names))
    names[4] = NAMES[3]
    assert by_sequence({"i1": steps}, audit, names) == []


def test_a_session_that_gave_it_back_and_has_it_again_by_itself_is_found() -> None:
    steps, audit = history()
    steps = [*steps[:-1], Step(3, "arrive", "unknown", 30, NEVER)]
    audit = [*audit[:4], row(5, "claim", 3, 4)]
    assert any("by itself" in what for what in wrong((steps, audit))[1])
