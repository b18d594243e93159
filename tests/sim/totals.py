"""What a run met, counted: a run that met too little has tested nothing and fails."""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final

from tests.sim.disk import FAULTS, POINTS

SEEDS: Final = 300
"""What CI plays; fewer seeds are not asked whether they met enough."""

MINIMUM_PER_SEED: Final[Mapping[str, float]] = {
    "calls": 40,
    "answers ok": 15,
    "answers refused": 5,
    "answers unknown": 3,
    "crashes": 1,
    "repeats": 1,
    "repeats answered as before": 0.2,
    "late requests": 1,
    "answers lost on the way": 0.5,
    "messages": 5,
    "grants": 3,
    "groups of several": 2,
    "deaths": 0.7,
    "faults": 0.4,
}
"""How often each must be met at least, on the average of a seed."""

MINIMUM: Final[Mapping[str, int]] = {
    **{f"crash {point}": 5 for point in POINTS},
    **{f"fault {fault}": 5 for fault in FAULTS},
    "restarts in order": 10,
    "reboots": 10,
    "clock steps": 10,
    "pauses": 10,
    "pids used again": 10,
    "calls by token": 5,
    "displaced while alive": 3,
    "refused idempotency-conflict": 10,
    "refused unknown-recipient": 10,
    "refused lease-lost": 5,
    "refused lease-foreign": 3,
    "refused in-use": 10,
    "refused no-lease": 10,
    "refused conflict": 10,
    "refused name-taken": 10,
    "refused not-found": 10,
    "refused disk-full": 5,
    "owner rotate applied": 100,
    "owner takeover applied": 40,
    "owner takeover duplicate": 15,
    "owner takeover closed": 40,
    "owner takeover conflict": 20,
    "owner takeover not-found": 8,
    "owner takeover owner-required": 15,
    "owner policy applied": 120,
    "owner policy conflict": 40,
    "owner policy closed": 60,
    "owner policy owner-required": 25,
    "owner revoke applied": 30,
    "owner revoke conflict": 15,
    "owner owner-mail applied": 40,
    "owner directive applied": 8,
    "owner directive conflict": 25,
    "damaged records": 12,
    "told a grant": 15,
    "told ask: expired": 6,
    "told ask: revoked": 2,
    "told ask: a damaged record": 4,
    "told ask: the clock is behind": 2,
    "read from outside": 50,
    "written under what came from outside": 150,
    "passed on": 300,
    "sessions below sessions": 150,
    "written under what kin read": 60,
    "written under what kin read from outside": 10,
    "texts passed around": 30,
    "refused policy-denied": 10,
    "conversations that came back": 8,
}
"""How often each must be met at least in the whole of the CI run."""


class Totals:
    """Counts by name."""

    def __init__(self) -> None:
        self.seeds = 0
        self.counts: Counter[str] = Counter()

    def count(self, name: str, by: int = 1) -> None:
        """It happened."""
        self.counts[name] += by

    def add(self, other: "Totals") -> None:
        """Put another run's counts to these."""
        self.seeds += other.seeds
        self.counts.update(other.counts)

    def shortfalls(self) -> list[str]:
        """What was met too seldom for the run to prove anything."""
        wanted: dict[str, float] = {
            name: least * self.seeds for name, least in MINIMUM_PER_SEED.items()
        }
        wanted.update(MINIMUM)
        return [
            f"{name}: {self.counts[name]}, at least {least:g} are needed"
            for name, least in wanted.items()
            if self.counts[name] < least
        ]

    def lines(self) -> Iterable[str]:
        """For people."""
        yield f"{'seeds':32}{self.seeds:>9,}"
        for name, count in sorted(self.counts.items()):
            yield f"{name:32}{count:>9,}"
