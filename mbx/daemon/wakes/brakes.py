"""What the brake remembers: who was woken when, and whom to leave alone until when.

In memory, on the monotonic clock, so that no setting of a clock opens it; read back from the store
at a start, where an age counts as nothing if the clock was set back since.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from mbx.core import brake
from mbx.core.brake import OPEN, Outcome, Verdict, Waiting
from mbx.core.limits import WAKE_DAY_MS, WAKE_THREAD_MS
from mbx.daemon.world import World
from mbx.store.wakes import Past


@dataclass(slots=True)
class _Mailbox:
    wakes: list[int] = field(default_factory=list)
    tries: int = 0
    pause: "Pause | None" = None
    held: tuple[int, int] = (0, 0)
    """Epoch, and the newest message that a wake of unknown outcome told its holder of."""


class Pause(NamedTuple):
    """A session that did not take a wake is left alone until then, for the outcome's reason."""

    until_ms: int
    epoch: int
    outcome: Outcome
    reason: str


class Brakes:
    """The brake of every mailbox and thread."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._mailboxes: dict[int, _Mailbox] = {}
        self._threads: dict[str, dict[int, int]] = {}
        self._standing: Counter[int] = Counter()
        """By message: how many wakes that it caused count; one message may wake many mailboxes."""

    def load(self, past: Past) -> None:
        """What earlier daemons did."""
        for spent in past.spent:
            self._mailbox(spent.identity_no).wakes.append(self._steady(spent.at_ms))
        for woke in past.woke:
            self._threads.setdefault(woke.thread, {})[woke.message_no] = self._steady(woke.at_ms)
            self._standing[woke.message_no] += 1
        for held in past.held:
            self._mailbox(held.identity_no).held = (held.epoch, held.upto_no)

    def of_mailbox(self, identity_no: int) -> Verdict:
        """Whether anything may wake the holder of a mailbox now."""
        known = self._mailboxes.get(identity_no)
        return brake.of_mailbox(known.wakes, self._world.monotonic_ms()) if known else OPEN

    def of_thread(self, thread: str | None) -> Verdict:
        """Whether a new message of a thread (None: of a new one) may wake anybody."""
        woke = self._threads.get(thread or "", {})
        return brake.of_thread(woke, None, self._world.monotonic_ms())

    def of_mail(self, identity_no: int, waiting: Sequence[Waiting]) -> Verdict:
        """Whether this, which waits in a mailbox, may wake its holder now."""
        wakes, now_ms = self._mailbox(identity_no).wakes, self._world.monotonic_ms()
        return brake.of_mail(wakes, waiting, self._threads, now_ms)

    def causes(self, waiting: Sequence[Waiting]) -> list[Waiting]:
        """What of it wakes."""
        return brake.causes(waiting, self._threads, self._world.monotonic_ms())

    def is_held(self, identity_no: int, epoch: int, waiting: Sequence[Waiting]) -> bool:
        """Whether all of it may have been told already, so that nothing is repeated blindly."""
        held_epoch, upto_no = self._mailbox(identity_no).held
        return epoch == held_epoch and all(one.no <= upto_no for one in waiting)

    def pause(self, identity_no: int, epoch: int) -> Pause | None:
        """For how long the holder of an epoch is left alone."""
        known = self._mailboxes.get(identity_no)
        pause = known.pause if known else None
        if pause is None or pause.epoch != epoch or pause.until_ms <= self._world.monotonic_ms():
            return None
        return pause

    def is_idle_again(self, identity_no: int) -> None:
        """A session that was busy is seen idle: it need not be left alone any more."""
        known = self._mailboxes.get(identity_no)
        if known is not None and known.pause is not None and known.pause.outcome == "busy":
            known.pause = None

    def spend(self, identity_no: int, causes: Sequence[Waiting]) -> None:
        """A wake is about to be tried: it counts, until it is known that it woke nobody."""
        now_ms = self._world.monotonic_ms()
        self._forget_old(now_ms)
        self._mailbox(identity_no).wakes.append(now_ms)
        for cause in causes:
            self._threads.setdefault(cause.thread, {}).setdefault(cause.no, now_ms)
            self._standing[cause.no] += 1

    def refund(self, identity_no: int, causes: Sequence[Waiting]) -> None:
        """The wake of a mailbox that was tried last, with these causes, woke nobody.

        A cause that woke another mailbox, or is just being tried there, still counts.
        """
        self._mailbox(identity_no).wakes.pop()
        for cause in causes:
            self._standing[cause.no] -= 1
            if self._standing[cause.no] <= 0:
                del self._standing[cause.no]
                self._threads.get(cause.thread, {}).pop(cause.no, None)

    def settle(
        self, identity_no: int, epoch: int, upto_no: int, outcome: Outcome, reason: str
    ) -> None:
        """What follows for the holder of an epoch, after a wake or a look that came to this."""
        known = self._mailbox(identity_no)
        if outcome == "unknown":
            known.held = (epoch, max(upto_no, known.held[1] if known.held[0] == epoch else 0))
        known.tries = 0 if outcome == "admitted" else known.tries + 1
        pause_ms = brake.pause_ms(outcome, known.tries)
        until_ms = self._world.monotonic_ms() + pause_ms
        known.pause = Pause(until_ms, epoch, outcome, reason) if pause_ms else None

    def _mailbox(self, identity_no: int) -> _Mailbox:
        return self._mailboxes.setdefault(identity_no, _Mailbox())

    def _steady(self, at_ms: int) -> int:
        """A time of the wall clock on the monotonic one; one that has not come counts as now."""
        return self._world.monotonic_ms() - max(0, self._world.now_ms() - at_ms)

    def _forget_old(self, now_ms: int) -> None:
        for known in self._mailboxes.values():
            known.wakes = [at_ms for at_ms in known.wakes if now_ms - at_ms < WAKE_DAY_MS]
        for thread, woke in list(self._threads.items()):
            recent = {no: at for no, at in woke.items() if now_ms - at < WAKE_THREAD_MS}
            for no in woke.keys() - recent.keys():
                del self._standing[no]
            if recent:
                self._threads[thread] = recent
            else:
                del self._threads[thread]
