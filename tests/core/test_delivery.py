"""Stages only move forward, in whatever order reports arrive."""

import itertools

from mbx.core.delivery import DEFAULT_OUTCOME, OUTCOMES, Stage, advance


def test_the_stage_after_reports_is_the_furthest_reported_in_any_order() -> None:
    for order in itertools.permutations((Stage.DELIVERED, Stage.READ, Stage.ACKED, Stage.NOTIFIED)):
        stage = Stage.QUEUED
        for report in (*order, order[0]):
            after = advance(stage, report)
            assert after >= stage
            stage = after
        assert stage is Stage.ACKED


def test_stages_are_called_as_the_contract_calls_them() -> None:
    assert [stage.label for stage in Stage] == [
        "queued",
        "handed-over",
        "delivered",
        "notified",
        "read",
        "acked",
    ]


def test_the_outcome_of_a_plain_ack_is_one_of_the_outcomes() -> None:
    assert DEFAULT_OUTCOME in OUTCOMES
