"""One seed of two linked hosts: what is done to them, and the healing at the end."""

import random
from collections import Counter
from collections.abc import Callable
from typing import Final, NamedTuple

from mbx.core.dialing import Initiative, initiative
from mbx.core.limits import BODY_MAX_BYTES
from mbx.core.record import Record
from tests.sim.link_history import LinkCase, Spoilt, Stopped, Took
from tests.sim.link_world import PING_DEATH_MS, Host, Pipe, Store, Wire, is_sound
from tests.support.frames import HOSTS, SIGNATURE

STEPS: Final = 220
"""Of one seed, before it is healed."""

HEALING_MS: Final = 3 * 60 * 60 * 1000
"""After a refusal that time does not heal a peer is dialled hourly."""

HEALING_STEPS: Final = 400
"""Three times what any seed of `STEPS` steps needs: who runs in circles is not at rest."""

_TURN_STEPS: Final = 120
"""So long a copy has its turn at most, until it got something or was stopped."""

_LARGEST: Final = "\\u0001" * BODY_MAX_BYTES
_MIDDLE: Final = "é" * 30_000


class Played(NamedTuple):
    """What a seed left."""

    case: LinkCase
    met: Counter[str]
    is_drained: bool


class LinkScene:
    """Two hosts and whatever happens to them, decided by a seed."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(f"link {seed}")
        self.wire = Wire(self.chance)
        a_can, b_can = self.chance.choice(
            [(True, True), (True, True), (True, False), (False, True)]
        )
        known = self.chance.random() < 0.7
        can = ((a_can, b_can if known else None), (b_can, a_can if known else None))
        self.hosts = [self._host(no, *can[no]) for no in (0, 1)]
        self.is_spoiling = self.chance.random() < 0.4
        self.is_restoring = self.chance.random() < 0.35
        self.is_swapping = self.chance.random() < 0.15
        """Whether two copies of one home are used in turns."""
        self.has_large = self.chance.random() < 0.07
        self.has_crowd = self.chance.random() < 0.1
        """Whether somebody sends hundreds at once."""
        self.haste = self.chance.choice([26, 26, 6, 1])
        """How soon the stores do what waits."""
        self.copies: list[tuple[int, Store]] = []
        self.twin: tuple[Store | None, int] = (None, self.chance.randrange(2))
        """The copy of a host's store that rests, and whose it is."""
        self.written = 0

    def _host(self, no: int, we_can: bool, they_can: bool | None) -> Host:
        what: Initiative = initiative(HOSTS[no], HOSTS[1 - no], we_can=we_can, they_can=they_can)
        return Host(self.wire, no, what)

    # -- what may happen ---------------------------------------------------------------------------

    def step(self) -> None:
        """One thing happens."""
        pipes = self.wire.pipes
        acts: list[tuple[float, Callable[[], None]]] = [
            (30 * bool(self._arriving()), self.deliver),
            (self.haste * self._is_any_task(), self.work),
            (8 * any(any(pipe.is_new) for pipe in pipes), self.open_ends),
            (5 if self._is_busy() else 20, self.pass_time),
            (7, self.write),
            (0.9 * bool(pipes), self.cut),
            (0.5 if all(host.is_up for host in self.hosts) else 6, self.kill),
            (3 if any(host.is_full for host in self.hosts) else 1.2, self.fill_disk),
            (0.7, self.withdraw),
        ]
        if self.is_restoring:
            acts += [(1.5, self.copy), (0.8, self.restore)]
        if self.is_swapping:
            acts.append((4, self.swap))
        (act,) = self.chance.choices([one for _, one in acts], [weight for weight, _ in acts])
        act()

    def _arriving(self) -> list[tuple[Pipe, int]]:
        """Where a text waits for an end that reads."""
        return [
            (pipe, end)
            for pipe in self.wire.pipes
            for end in (0, 1)
            if pipe.queues[end] and not pipe.is_new[end]
        ]

    def _is_busy(self) -> bool:
        """Whether something goes on that takes no time worth speaking of."""
        is_opening = any(any(pipe.is_new) for pipe in self.wire.pipes)
        is_storing = self._is_any_task() and self.haste > 1
        return bool(self._arriving()) or is_opening or is_storing

    def _is_any_task(self) -> bool:
        return any(host.tasks for host in self.hosts)

    def deliver(self) -> None:
        """A text arrives, perhaps twice, perhaps never."""
        pipe, end = self.chance.choice(self._arriving())
        text = pipe.queues[end].popleft()
        fate = self.chance.random() if self.is_spoiling else 1.0
        if fate < 0.04:
            self.wire.met["frames lost"] += 1
            self.wire.events.append(Spoilt(pipe.no))
            return
        if fate < 0.12:
            self.wire.met["frames doubled"] += 1
            self.wire.events.append(Spoilt(pipe.no))
            pipe.queues[end].appendleft(text)
        if self.hosts[end].is_up:
            self.hosts[end].hear(pipe, text)

    def forget_what_travels(self) -> None:
        """A line swallows all that is on it, and neither end is told."""
        for pipe in self.wire.pipes:
            self.wire.met["frames lost"] += sum(map(len, pipe.queues))
            self.wire.events.append(Spoilt(pipe.no))
            pipe.queues[0].clear()
            pipe.queues[1].clear()

    def work(self) -> None:
        """A store does something that waits."""
        self.chance.choice([host for host in self.hosts if host.tasks]).run_task()

    def write(self) -> None:
        """Somebody sends: now and then a lot, now and then as large as a body may be."""
        host = self.chance.choice(self.hosts)
        if not host.is_up:
            return
        (count,) = self.chance.choices([1, 3, 10, 70, 300], [60, 30, 8, 1.5, self.has_crowd])
        for _ in range(count):
            self.written += 1
            body = self.chance.choices(["x", _MIDDLE, _LARGEST], [200, 2, 4 * self.has_large])[0]
            payload = f'{{"body":"{body}","no":{self.written}}}'
            host.write(Record("message", payload, {HOSTS[host.no]: SIGNATURE}))
            self.wire.met["records written"] += 1
            self.wire.met["largest bodies"] += body is _LARGEST

    def pass_time(self) -> None:
        """A moment passes, or it is suddenly the time of the next deadline."""
        if self.chance.random() < (0.015 if self._is_busy() else 0.7):
            self._until_next()
        else:
            self._at(self.wire.now_ms + self.chance.randint(1, 200))

    def open_ends(self) -> None:
        """One end of a connection that is being made sees it come about."""
        pipes = self.wire.pipes
        ends = [(pipe, end) for pipe in pipes for end in (0, 1) if pipe.is_new[end]]
        self._open(*self.chance.choice(ends))

    def cut(self) -> None:
        """A connection breaks somewhere; one end may take long to notice."""
        pipes = [pipe for pipe in self.wire.pipes if not pipe.is_cut]
        if not pipes:
            return
        pipe = self.chance.choice(pipes)
        waiting = [len(queue) for queue in pipe.queues]
        notice = [self.chance.choice([0, 0, self.chance.randint(0, PING_DEATH_MS)]) for _ in "ab"]
        kept = [self.chance.randint(0, count) for count in waiting]
        pipe.cut(self.wire.now_ms, (notice[0], notice[1]), (kept[0], kept[1]))
        self.wire.met["cuts"] += 1
        self.wire.met["cuts with frames under way"] += sum(waiting) > 0

    def kill(self) -> None:
        """A daemon dies, or starts again."""
        host = self.chance.choice(self.hosts)
        if host.is_up:
            host.die(by_power_cut=self.chance.random() < 0.3)
        else:
            host.start()

    def fill_disk(self) -> None:
        """A disk is full, or has room again."""
        host = self.chance.choice(self.hosts)
        host.is_full = not host.is_full

    def withdraw(self) -> None:
        """A sender gets back what was never offered."""
        host = self.chance.choice(self.hosts)
        free = range(host.store.offered + 1, len(host.store.out) + 1)
        records = [seq for seq in free if isinstance(host.store.out[seq - 1], Record)]
        if host.is_up and records:
            host.withdraw(self.chance.choice(records[:3]))
            self.wire.met["places withdrawn"] += 1

    def copy(self) -> None:
        """Somebody makes a backup."""
        host = self.chance.choice(self.hosts)
        self.copies.append((host.no, host.store.copy()))

    def restore(self) -> None:
        """And puts it back, while the daemon is down; the other's daemon settles what it has."""
        if not self.copies:
            return
        no, older = self.chance.choice(self.copies)
        self._put_in(no, older)

    def swap(self) -> None:
        """One of two copies of a home goes on, gets some mail, and rests until the next time."""
        (resting, no), host = self.twin, self.hosts[self.twin[1]]
        other = self.hosts[1 - no]
        self.twin = (host.store.copy(), no)
        if resting is None:
            return
        self.wire.met["copies in turns"] += 1
        self._put_in(no, resting)
        for one in self.hosts:
            one.is_full = False
            if not one.is_up:
                one.start()
        other.dialling = other.dialling.woken(self.wire.now_ms)
        since = len(self.wire.events)
        for _ in range(_TURN_STEPS):
            if any(isinstance(event, Took | Stopped) for event in self.wire.events[since:]):
                break
            if self.chance.random() < 0.1:
                self.write()
            self._calm_step()

    def _put_in(self, no: int, older: Store) -> None:
        host, other = self.hosts[no], self.hosts[1 - no]
        if host.is_up:
            host.die(by_power_cut=False)
        for pipe in self.wire.pipes:
            pipe.cut(self.wire.now_ms, (0, 0), (0, 0))
        while other.tasks:
            other.run_task()
        host.restore(older, other)

    # -- time and connections ----------------------------------------------------------------------

    def _at(self, now_ms: int) -> None:
        """It is this late now: whatever was due happens."""
        self.wire.now_ms = now_ms
        for pipe in list(self.wire.pipes):
            for end in (0, 1):
                lost_ms = pipe.lost_ms[end]
                is_read = pipe.is_new[end] or not pipe.queues[end]
                if lost_ms is not None and lost_ms <= now_ms and is_read:
                    pipe.queues[end].clear()
                    self.hosts[end].lose(pipe)
        for host in self.hosts:
            if host.is_up:
                host.tick()
            if host.is_dialling_due():
                host.dial()
        self.wire.pipes = [pipe for pipe in self.wire.pipes if not pipe.is_over()]

    def _until_next(self) -> None:
        moments = [lost for pipe in self.wire.pipes for lost in pipe.lost_ms if lost is not None]
        for host in self.hosts:
            if host.is_up:
                deadline = host.link.deadline() if host.link is not None else None
                due = host.dialling.due_ms if host.link is None else None
                moments += [one for one in (deadline, due) if one is not None]
        later = [one for one in moments if one > self.wire.now_ms]
        self._at(min(later, default=self.wire.now_ms + 1_000))

    def _open(self, pipe: Pipe, end: int) -> None:
        host, other = self.hosts[end], self.hosts[1 - end]
        if not host.is_up:
            pipe.leave(end)
            pipe.lost_ms[1 - end] = self.wire.now_ms
        elif pipe.dialler == end and not other.is_up and pipe.is_new[1 - end]:
            pipe.leave(1 - end)
            pipe.lost_ms[end] = self.wire.now_ms
        elif not pipe.is_cut:
            host.adopt(pipe)
        elif pipe.dialler != end:
            pipe.leave(end)

    # -- the end -----------------------------------------------------------------------------------

    def heal(self, most_steps: int) -> bool:
        """Nothing is disturbed any more. Whether everything came to rest in time."""
        if self.is_spoiling and self.chance.random() < 0.5:
            self.forget_what_travels()
        self.is_spoiling = False
        for host in self.hosts:
            host.is_full = False
            if not host.is_up:
                host.start()
        end_ms = self.wire.now_ms + HEALING_MS
        steps = 0
        while not self._is_at_rest() and self.wire.now_ms < end_ms and steps < most_steps:
            steps += 1
            self._calm_step()
        self.wire.met["healing steps"] += steps
        return self._is_at_rest()

    def _calm_step(self) -> None:
        """Whatever can be done without waiting is done first."""
        if self._is_any_task():
            self.work()
        elif any(any(pipe.is_new) and not pipe.is_cut for pipe in self.wire.pipes):
            self.open_ends()
        elif self._arriving():
            self.deliver()
        else:
            self._until_next()

    def _is_at_rest(self) -> bool:
        a, b = self.hosts
        if self._is_any_task():
            return False
        is_held = a.store.is_copied or b.store.is_copied
        if is_held or not (is_sound(a.store, b.store) and is_sound(b.store, a.store)):
            return self._both_told()
        return all(
            host.store.acked == len(host.store.out) == len(other.store.received)
            for host, other in ((a, b), (b, a))
        )

    def _both_told(self) -> bool:
        """Whether both hosts have told their owners since the last copy was restored."""
        told = set()
        for event in reversed(self.wire.events):
            name = type(event).__name__
            if name == "Restored":
                break
            if name == "Stopped":
                told.add(event[0])
        return told == {0, 1}


def play(seed: int, steps: int = STEPS) -> Played:
    """One seed, always the same run."""
    scene = LinkScene(seed)
    for _ in range(steps):
        scene.step()
    is_drained = scene.heal(max(HEALING_STEPS, steps))
    scene.wire.met["seeds that came to rest"] += is_drained
    left = (scene.hosts[0].store.left(), scene.hosts[1].store.left())
    case = LinkCase(tuple(scene.wire.events), left, healed=True)
    return Played(case, scene.wire.met, is_drained)
