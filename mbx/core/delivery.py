"""Stages of one message on its way to one recipient. They only move forward."""

from enum import IntEnum
from typing import Final


class Stage(IntEnum):
    """The ordered stages; the integers are what the store holds and receipts compare."""

    QUEUED = 0
    HANDED_OVER = 1
    DELIVERED = 2
    NOTIFIED = 3
    READ = 4
    ACKED = 5

    @property
    def label(self) -> str:
        """The word that users see."""
        return self.name.lower().replace("_", "-")


STAGE_LABELS: Final = tuple(stage.label for stage in Stage)
"""The labels by the integers of the stages."""

RETURNED: Final = "returned"
"""The word for a copy that came back: no stage, since nothing follows it."""

OUTCOMES: Final = frozenset({"acted", "replied", "noted", "declined", "superseded"})
"""What an ack may say was done with the message."""

DEFAULT_OUTCOME: Final = "noted"
ACTED_OUTCOME: Final = "acted"
SUPERSEDED_OUTCOME: Final = "superseded"


def advance(current: Stage, reported: Stage) -> Stage:
    """The stage after a report: late, doubled and reordered reports are harmless by arithmetic."""
    return max(current, reported)
