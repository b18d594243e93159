"""How much is measured: the full run, a quick look, and the smallest run that shows the shape."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Scale:
    """Counts of one run. `sends` maps a number of clients to the messages they send in a round."""

    name: str
    rounds: int
    sends: Mapping[int, int]
    small_store: int
    large_store: int
    reads: int
    commands: int
    starts: int
    claims: int
    deaths: int
    sessions: int
    disk_messages: int
    search_store: int
    """Messages in the store that searches in the large one are held against."""
    searches: int
    idle_s: float
    everyone: int
    """Identities that a send to ``*`` reaches."""
    broadcasts: int
    unchecked: int
    """Messages sent right before a kill -9, so that the log has something to recover."""
    relayed: int
    """Messages that wait for another host when the link comes to stand."""
    told: int
    """Messages to another host one by one, each until somebody there is told."""
    links: int


FULL: Final = Scale(
    name="full",
    rounds=11,
    sends={1: 500, 8: 1_600, 64: 3_200},
    small_store=1_000,
    large_store=1_000_000,
    reads=1_500,
    commands=7,
    starts=2,
    claims=100,
    deaths=12,
    sessions=100,
    disk_messages=4_000,
    search_store=10_000,
    searches=200,
    idle_s=60,
    everyone=200,
    broadcasts=40,
    unchecked=1_000,
    relayed=4_000,
    told=100,
    links=5,
)
QUICK: Final = Scale(
    name="quick",
    rounds=5,
    sends={1: 300, 8: 1_000, 64: 2_000},
    small_store=1_000,
    large_store=50_000,
    reads=500,
    commands=5,
    starts=2,
    claims=50,
    deaths=8,
    sessions=50,
    disk_messages=1_000,
    search_store=10_000,
    searches=100,
    idle_s=20,
    everyone=200,
    broadcasts=20,
    unchecked=500,
    relayed=2_000,
    told=50,
    links=5,
)
TINY: Final = Scale(
    name="tiny",
    rounds=1,
    sends={1: 20, 8: 40, 64: 64},
    small_store=30,
    large_store=200,
    reads=20,
    commands=1,
    starts=1,
    claims=3,
    deaths=2,
    sessions=3,
    disk_messages=20,
    search_store=100,
    searches=3,
    idle_s=1,
    everyone=12,
    broadcasts=2,
    unchecked=10,
    relayed=70,
    told=3,
    links=2,
)
SCALES: Final = {scale.name: scale for scale in (FULL, QUICK, TINY)}
"""By name, as the command line takes them."""
