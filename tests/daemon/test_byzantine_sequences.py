"""Short sequences of a rogue's moves and honest traffic, by seed, against the middle of a daemon.

MBX_TEST_BYZANTINE="2000 12" plays the long form: so many seeds of at most so many steps.
"""

import os
import random
import sys
from collections import Counter
from typing import Final

import pytest

from tests.support.moves import LOST, OVER, play
from tests.support.moves_of_records import EVERY
from tests.support.nearstage import NearStage
from tests.support.rogue import Rogue

CI_SEEDS: Final = 200
STEPS_MAX: Final = 6
SEEDS, STEPS = map(int, os.environ.get("MBX_TEST_BYZANTINE", f"{CI_SEEDS} {STEPS_MAX}").split())
"""What is played; by itself what CI plays."""

LABELS: Final = ("rogue-one", "rogue-two")
MOVES: Final = [move for move in EVERY if move.link not in (LOST, OVER)]
"""Those that a link without a channel can see, and after which there is one."""
LAST: Final = [move for move in EVERY if move.link == OVER]
PAUSE_MS: Final = 120_000
"""So long that what a breach has cost is forgotten."""


def sequence(seed: int, counts: Counter[str]) -> None:
    """One of them."""
    chance = random.Random(f"byzantine {seed}")
    stage = NearStage(LABELS)
    rogues = [stage.rogue(label) for label in LABELS]
    try:
        for step in range(chance.randint(2, STEPS)):
            rogue = chance.choice(rogues)
            # Each is the first of some sequence, whatever chance says.
            move = chance.choice(MOVES) if step else MOVES[seed % len(MOVES)]
            play(stage, rogue, move)
            counts[move.name] += 1
            if chance.random() < 0.5:
                between(chance, stage, rogue, counts)
            stage.pass_ms(PAUSE_MS)
        if chance.random() < 0.2:
            play(stage, rogues[0], chance.choice(LAST))
            counts["over"] += 1
    finally:
        for one in (*rogues, stage.honest):
            one.hang_up()
        stage.close()


def between(chance: random.Random, stage: NearStage, rogue: Rogue, counts: Counter[str]) -> None:
    """What happens besides: time, honest mail of the rogue's, mail that it does not fetch."""
    what = chance.randrange(4)
    counts[f"between {what}"] += 1
    if what == 0:
        stage.pass_ms(chance.choice((1_000, 60_000, 24 * 60 * 60 * 1000)))
    elif what == 1:
        stage.prove_of(rogue, "rob")
    elif what == 2:
        rogue.hang_up()
        stage.send("ana", f"rob@{rogue.label}", "waits")
    else:
        rogue.hang_up()
        rogue.stand()


@pytest.mark.long
@pytest.mark.timeout(120 + SEEDS)
def test_no_sequence_of_moves_changes_what_a_rogue_may_not_change() -> None:
    counts: Counter[str] = Counter()
    for seed in range(SEEDS):
        try:
            sequence(seed, counts)
        except BaseException as error:
            error.add_note(f"seed {seed}")
            raise
    unplayed = [move.name for move in MOVES[:SEEDS] if not counts[move.name]]
    assert unplayed == []
    made = sum(counts[move.name] for move in EVERY)
    sys.stdout.write(
        f"{SEEDS} sequences of {made} moves, {sum(counts.values()) - made} things between"
    )
