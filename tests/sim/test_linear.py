"""Both checkers accept good histories of leases and refuse bad ones: each kind of lie in turn."""

import json
import random
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from mbx.core.errors import MbxError
from mbx.core.lease import Lease, LeaseState, transition
from tests.sim.image import Audit
from tests.sim.linear import NEVER, Step, by_search
from tests.sim.sequence import by_sequence

NAMES = {1: "shell/1", 2: "shell/2", 3: "shell/3"}
Told = tuple[list[Step], list[Audit]]
"""A history of one identity, and the log that its store kept."""


def row(no: int, act: str, session: int, epoch: int, seq: int | None = None) -> Audit:
    detail = {"seq": seq or 10 * no, "name": "ada", "cli": "shell", "session": str(session)}
    text = json.dumps({**detail, "epoch": epoch, "why": "its process has ended"})
    return Audit(no, 0, act, "i1", text, b"")


def usual() -> Told:
    """1 registers, 2 is refused, 1 writes and releases, 2 claims and dies, 3 claims and writes."""
    steps = [
        Step(1, "register", "ok", 1, 2, 1),
        Step(2, "claim", "refused", 3, 4),
        Step(1, "use", "ok", 5, 6, 1),
        Step(1, "claim", "ok", 6.5, 6.6, 1),
        Step(1, "release", "ok", 7, 8, 1),
        Step(2, "claim", "ok", 9, 10, 2),
        Step(1, "use", "refused", 11, 12),
        Step(2, "lapse", "unknown", 13, NEVER),
        Step(3, "claim", "ok", 15, 16, 3),
        Step(3, "use", "ok", 17, 18, 3),
    ]
    audit = [
        row(1, "claim", 1, 1),
        row(2, "release", 1, 1),
        row(3, "claim", 2, 2),
        row(4, "lapse", 2, 2),
        row(5, "claim", 3, 3),
    ]
    return steps, audit


def wrong(told: Told) -> tuple[list[str], list[str]]:
    steps, audit = told
    return by_search(steps), by_sequence({"i1": steps}, audit, NAMES)


# --- good ones ------------------------------------------------------------------------------------


def test_an_empty_history_is_good() -> None:
    assert wrong(([], [])) == ([], [])


def test_the_usual_history_is_good() -> None:
    assert wrong(usual()) == ([], [])


def test_a_lost_grant_may_have_happened_and_a_lost_release_too() -> None:
    steps, audit = usual()
    steps[4] = replace(steps[4], outcome="unknown", epoch=0)
    steps[5] = replace(steps[5], outcome="unknown", epoch=0)
    assert wrong((steps, audit)) == ([], [])


def displaced(rounds: int, epoch: int) -> list[Step]:
    """So many takeovers, before each of which one of two who died was granted its claim."""
    steps = []
    for no in range(rounds):
        at, who, granted = 100 + 10 * no, 10 + 3 * no, epoch + 2 * no + 1
        steps += [
            Step(who, "claim", "unknown", at, NEVER),
            Step(who + 1, "claim", "unknown", at, NEVER),
            Step(who + 2, "takeover", "ok", at + 1, at + 2, granted + 1, granted, f"r{no}"),
            Step(who + 2, "release", "ok", at + 3, at + 4, granted + 1),
        ]
    return steps


def test_what_a_stopped_process_hears_late_does_not_open_every_order_of_what_came_before() -> None:
    """A release was before a takeover that was called earlier, and is answered much later."""
    steps = [
        Step(2, "claim", "ok", 1, 2, 1),
        Step(3, "takeover", "ok", 3, 6, 2, 1, "r"),
        Step(2, "release", "ok", 4, 1_000, 1),
        Step(3, "release", "ok", 7, 8, 2),
        *displaced(40, 2),
    ]
    assert by_search(steps) == []


def test_a_search_that_takes_too_many_tries_is_given_up_and_says_so() -> None:
    steps = [*displaced(40, 0), Step(9, "use", "ok", 1_001, 1_002, 81)]
    [told] = by_search(steps, tries_max=1_000)
    assert told.startswith("1000 tries do not explain")


def test_a_lost_grant_may_not_have_happened() -> None:
    steps, audit = usual()
    steps.append(Step(1, "claim", "unknown", 8.1, 8.2))
    steps.append(Step(1, "claim", "unknown", 8.3, NEVER))
    assert wrong((steps, audit)) == ([], [])


def test_a_request_of_a_dead_caller_may_be_carried_out_late() -> None:
    steps = [
        Step(1, "register", "ok", 1, 2, 1),
        Step(2, "claim", "unknown", 3, NEVER),
        Step(1, "release", "ok", 4, 5, 1),
        Step(3, "claim", "refused", 6, 7),
    ]
    audit = [row(1, "claim", 1, 1), row(2, "release", 1, 1), row(3, "claim", 2, 2)]
    assert wrong((steps, audit)) == ([], [])


def test_a_dead_caller_may_be_granted_what_it_had_and_its_death_noticed_again() -> None:
    """Its last claim waited while its death was noticed."""
    lapse = Step(1, "lapse", "unknown", 3, NEVER)
    steps = [
        Step(1, "register", "ok", 1, 2, 1),
        Step(1, "claim", "unknown", 3, NEVER),
        Step(2, "claim", "ok", 5, 6, 3),
    ]
    audit = [
        row(1, "claim", 1, 1),
        row(2, "lapse", 1, 1),
        row(3, "claim", 1, 2),
        row(4, "lapse", 1, 2),
        row(5, "claim", 2, 3),
    ]
    assert wrong(([*steps, lapse, lapse], audit)) == ([], [])
    assert by_search([*steps, lapse]) != []


def test_a_lost_release_and_a_lost_grant_after_it_may_both_have_happened() -> None:
    """When the claim is looked at first, there is nothing that it could do yet."""
    steps = [
        Step(1, "register", "ok", 1, 2, 1),
        Step(2, "claim", "unknown", 3, 6),
        Step(1, "release", "unknown", 4, 6),
        Step(2, "use", "ok", 7, 8, 2),
    ]
    audit = [row(1, "claim", 1, 1), row(2, "release", 1, 1), row(3, "claim", 2, 2)]
    assert wrong((steps, audit)) == ([], [])


def test_operations_that_overlap_may_have_any_order() -> None:
    steps = [
        Step(1, "register", "ok", 1, 2, 1),
        Step(2, "claim", "ok", 3, 9, 2),
        Step(1, "release", "ok", 4, 8, 1),
        Step(3, "claim", "refused", 3, 9),
    ]
    audit = [row(1, "claim", 1, 1), row(2, "release", 1, 1), row(3, "claim", 2, 2)]
    assert wrong((steps, audit)) == ([], [])


def run(seed: int, count: int, lost: float) -> list[Step]:
    """A history that one lease really gave, with calls that overlap and answers that are lost."""
    chance = random.Random(seed)
    lease, steps, now = Lease(LeaseState.FREE, 0, None, 0), list[Step](), 0.0
    for _ in range(count):
        now += 1
        session = chance.randint(1, 8)
        called, returned = now - chance.random() * 4, now + chance.random() * 4
        own = lease.session_no == session and lease.state is LeaseState.HELD
        kind = "release" if own and chance.random() < 0.5 else "claim"
        try:
            if kind == "release":
                step = Step(session, "release", "ok", called, returned, lease.epoch)
                lease = transition(lease, "release", now_ms=0, epoch=lease.epoch)
            else:
                if not own:
                    lease = transition(lease, "claim", now_ms=0, session_no=session)
                step = Step(session, "claim", "ok", called, returned, lease.epoch)
        except MbxError:
            step = Step(session, "claim", "refused", called, returned)
        if chance.random() < lost:
            step = replace(step, outcome="unknown", epoch=0, returned=NEVER)
        steps.append(step)
    return steps


def test_five_thousand_operations_of_eight_sessions_are_explained() -> None:
    assert by_search(run(1, 5_000, 0.005)) == []


@pytest.mark.parametrize("seed", range(20))
def test_one_false_answer_among_many_is_found(seed: int) -> None:
    """An epoch that is one too high, in a history that is good without it."""
    steps = run(seed, 200, 0.05)
    assert by_search(steps) == []
    granted = [no for no, step in enumerate(steps) if step.kind == "claim" and step.epoch]
    at = granted[len(granted) // 2]
    steps[at] = replace(steps[at], epoch=steps[at].epoch + 1)
    assert by_search(steps) != []


# --- bad ones -------------------------------------------------------------------------------------


def granted_twice(steps: list[Step], audit: list[Audit]) -> Told:
    """2 and 3 are both told that they hold it in epoch 2."""
    return [*steps[:6], Step(3, "claim", "ok", 9, 10, 2)], audit[:3]


def granted_twice_in_the_log(steps: list[Step], audit: list[Audit]) -> Told:
    """Two grants after each other, with nothing that ended the first."""
    lie = [*steps[:6], Step(3, "claim", "ok", 11, 12, 3)]
    return lie, [*audit[:3], row(4, "claim", 3, 3)]


def granted_while_held_and_live(steps: list[Step], audit: list[Audit]) -> Told:
    """The refused claim succeeds."""
    steps[1] = replace(steps[1], outcome="ok", epoch=2)
    return steps[:3], [audit[0], row(2, "claim", 2, 2)]


def a_stale_release_succeeds(steps: list[Step], audit: list[Audit]) -> Told:
    """1 releases again what 2 holds by now."""
    lie = [*steps[:6], Step(1, "release", "ok", 11, 12, 1)]
    return lie, [*audit[:3], row(4, "release", 1, 1)]


def a_stale_release_ends_the_next_epoch(steps: list[Step], audit: list[Audit]) -> Told:
    lie = [*steps[:6], Step(1, "release", "ok", 11, 12, 2)]
    return lie, [*audit[:3], row(4, "release", 1, 2)]


def an_epoch_is_used_again(steps: list[Step], audit: list[Audit]) -> Told:
    steps[5] = replace(steps[5], epoch=1)
    return steps[:6], [*audit[:2], row(3, "claim", 2, 1)]


def an_epoch_falls_after_a_restart(steps: list[Step], audit: list[Audit]) -> Told:
    steps[8] = replace(steps[8], epoch=1)
    return steps[:9], [*audit[:4], row(5, "claim", 3, 1)]


def a_grant_is_lost(steps: list[Step], audit: list[Audit]) -> Told:
    """2 was told epoch 2; after a crash 3 is told epoch 2 as well, and the log knows only 3."""
    steps[8] = replace(steps[8], epoch=2)
    return steps[:9], [*audit[:2], row(3, "claim", 3, 2)]


def a_release_is_lost(steps: list[Step], audit: list[Audit]) -> Told:
    """1 was told that it is free; long after that 2 is refused and nobody claimed it."""
    return [*steps[:5], Step(2, "claim", "refused", 9, 10)], audit[:1]


def an_answer_is_out_of_the_order_of_time(steps: list[Step], audit: list[Audit]) -> Told:
    """3 is told of its grant before anything of 2's can have happened, and after it in epochs."""
    steps[5] = replace(steps[5], called=20, returned=21)
    return [*steps[:6], steps[8]], audit


def a_refusal_comes_too_late(steps: list[Step], audit: list[Audit]) -> Told:
    """3 holds it, is told epoch 4 for its own lease, and the log has no such grant."""
    return [*steps, Step(3, "claim", "ok", 19, 20, 4)], audit


def mail_is_sent_under_a_lease_that_ended(steps: list[Step], audit: list[Audit]) -> Told:
    return [*steps, Step(2, "use", "ok", 19, 20, 3)], audit


BOTH = (
    granted_twice,
    granted_twice_in_the_log,
    granted_while_held_and_live,
    a_stale_release_succeeds,
    a_stale_release_ends_the_next_epoch,
    an_epoch_is_used_again,
    an_epoch_falls_after_a_restart,
    a_grant_is_lost,
    a_release_is_lost,
    an_answer_is_out_of_the_order_of_time,
    a_refusal_comes_too_late,
    mail_is_sent_under_a_lease_that_ended,
)


@pytest.mark.parametrize("lie", BOTH, ids=lambda lie: lie.__name__)
def test_a_bad_history_is_refused_by_search_and_by_sequence(
    lie: Callable[[list[Step], list[Audit]], Told],
) -> None:
    by_order, by_log = wrong(lie(*usual()))
    assert by_order != []
    assert by_log != []


@pytest.mark.parametrize(
    "more",
    [
        [Step(1, "use", "ok", 19, 20, 1)],
        [Step(3, "use", "refused", 19, 20)],
        [Step(2, "register", "ok", 19, 20, 4)],
        [Step(3, "release", "ok", 19, 20, 3), Step(1, "claim", "refused", 21, 22)],
        [Step(3, "release", "ok", 19, 20, 3), Step(3, "release", "ok", 21, 22, 3)],
        [Step(3, "release", "refused", 19, 20)],
    ],
    ids=[
        "a former holder goes on",
        "a holder is refused",
        "a name is registered twice",
        "in use by nobody",
        "released twice",
        "a holder cannot release",
    ],
)
def test_what_only_the_answers_show_is_refused_by_search(more: Sequence[Step]) -> None:
    steps, _ = usual()
    assert by_search([*steps, *more]) != []


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (row(6, "release", 3, 3), "nobody asked for the release"),
        (row(6, "revive", 3, 2), "revive of epoch 2"),
        (row(6, "lapse", 3, 2), "lapse of epoch 2"),
        (row(6, "claim", 1, 4), "nobody asked for the claim of epoch 4"),
    ],
)
def test_what_only_the_log_shows_is_refused_by_sequence(more: Audit, said: str) -> None:
    steps, audit = usual()
    found = by_sequence({"i1": steps}, [*audit, more], NAMES)
    assert any(said in what for what in found)


def test_a_commit_that_overtook_a_returned_answer_is_refused_by_sequence() -> None:
    """The search cannot see this: only the log says which was committed first."""
    steps, audit = usual()
    steps[5] = replace(steps[5], called=20, returned=21)
    steps[8] = replace(steps[8], called=15, returned=16)
    assert any("called after" in what for what in by_sequence({"i1": steps}, audit, NAMES))
