"""The outside of a simulated daemon: clocks, chance, and the table of processes.

Nothing here reads the machine: two runs of one seed see the same.
"""

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

from mbx.core.evidence import (
    Claim,
    Evidence,
    KnownSession,
    Lineage,
    Process,
    ProcessEntry,
    Unreadable,
    find_session,
    judge,
)
from mbx.core.kinship import Above, above

_FIRST_MS = 1_750_000_000_000
_PIDS = range(100, 112)
"""Few numbers, so that they are soon used again."""


class SimWorld:
    """`mbx.daemon.world.World`: clocks that move when they are told to, chance from the seed."""

    def __init__(self, seed: int) -> None:
        self._chance = random.Random(f"chance {seed}")
        self._wall_ms = _FIRST_MS
        self._monotonic_ms = 1_000

    def now_ms(self) -> int:
        return self._wall_ms

    def monotonic_ms(self) -> int:
        return self._monotonic_ms

    def random_bytes(self, count: int) -> bytes:
        return self._chance.randbytes(count)

    def pass_ms(self, elapsed_ms: int) -> None:
        """Time passes, on both clocks."""
        self._wall_ms += elapsed_ms
        self._monotonic_ms += elapsed_ms

    def step_wall_ms(self, step_ms: int) -> None:
        """Somebody sets the wall clock, forwards or back."""
        self._wall_ms += step_ms


@dataclass(eq=False)
class Living:
    """One process: alive until it is killed; `hidden` while its entry cannot be read."""

    entry: ProcessEntry
    hidden: bool = False


@dataclass
class ProcessTable:
    """The kernel's side: processes by number, numbers used again, boots."""

    chance: random.Random
    boot: int = 1
    ticks: int = 0
    living: dict[int, Living] = field(default_factory=dict)
    reused_pids: int = 0
    _used: set[int] = field(default_factory=set)

    @property
    def boot_id(self) -> str:
        return f"boot-{self.boot}"

    def start(self, argv: tuple[str, ...], below: Process | None = None) -> Process:
        """A new process below another, or below pid 1."""
        pid = self.chance.choice([pid for pid in _PIDS if pid not in self.living])
        self.reused_pids += pid in self._used
        self._used.add(pid)
        self.ticks += self.chance.randint(1, 3)
        parent = below.pid if below is not None and self.is_alive(below) else 1
        entry = ProcessEntry(pid, parent, self.ticks, argv[0], argv, forked=False)
        self.living[pid] = Living(entry)
        return Process(pid, self.ticks, self.boot_id)

    def take_reused(self) -> int:
        """How many numbers were given out again since the last time."""
        taken, self.reused_pids = self.reused_pids, 0
        return taken

    def kill(self, process: Process) -> None:
        """The process ends; those below it are from now on below pid 1."""
        if self.is_alive(process):
            del self.living[process.pid]
            for one in self.living.values():
                if one.entry.ppid == process.pid:
                    one.entry = replace(one.entry, ppid=1)

    def reboot(self) -> None:
        """Every process ends; numbers and ticks begin again."""
        self.boot += 1
        self.ticks = 0
        self.living.clear()

    def is_alive(self, process: Process) -> bool:
        found = self.living.get(process.pid)
        return (
            found is not None
            and process.boot_id == self.boot_id
            and found.entry.start_ticks == process.start_ticks
        )

    def look(self, process: Process) -> Evidence:
        """What `mbx.daemon.processes.evidence` would say."""
        found = self.living.get(process.pid)
        entry: ProcessEntry | Unreadable | None = found.entry if found else None
        if found is not None and found.hidden:
            entry = Unreadable(process.pid)
        return judge(process, entry, self.boot_id)

    def walk(self, holder: Process | None, known: list[KnownSession], claim: Claim) -> Lineage:
        """The session of a command that was started by `holder` (None: by cron)."""
        return find_session(self._chain(holder, claim), known, claim, self.boot_id)

    def _chain(self, holder: Process | None, claim: Claim) -> Iterator[ProcessEntry | Unreadable]:
        above = None
        if holder is not None and self.is_alive(holder):
            above = self.living[holder.pid]
        if claim != "self":
            parent = above.entry.pid if above else 1
            yield ProcessEntry(90, parent, self.ticks, "mbx", ("python3", "/usr/bin/mbx"))
        while above is not None:
            if above.hidden:
                yield Unreadable(above.entry.pid)
                return
            yield above.entry
            above = self.living.get(above.entry.ppid)
        yield ProcessEntry(1, 0, 1, "init", ("init",))

    def see(self, process: Process) -> Above:
        """What `mbx.daemon.processes.above` would say."""
        return above(self._chain(process, "self"), process)


class SimWatch:
    """`mbx.daemon.holders.Watch`: tells of deaths when `report` is called.

    As the real one it gets hold of a process only while its entry can be read.
    """

    def __init__(self, table: ProcessTable) -> None:
        self._table = table
        self._watched: dict[Process, Callable[[], None]] = {}
        self._seen: set[Process] = set()

    def watch(self, process: Process, on_death: Callable[[], None], /) -> None:
        self.unwatch(process)
        self._watched[process] = on_death
        self._look(process)

    def unwatch(self, process: Process, /) -> None:
        self._watched.pop(process, None)
        self._seen.discard(process)

    def sees(self, process: Process, /) -> bool:
        return process in self._seen and self._table.is_alive(process)

    def _look(self, process: Process) -> None:
        if self._table.look(process) == "live":
            self._seen.add(process)

    def report(self) -> int:
        """Tell of every watched process that has ended; how many there were."""
        for process in self._watched:
            self._look(process)
        ended = [process for process in self._watched if not self._table.is_alive(process)]
        for process in ended:
            on_death = self._watched.pop(process, None)
            if on_death is not None:
                on_death()
        return len(ended)
