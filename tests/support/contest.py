"""Eight processes that contest three identities while some of them, and the daemon, are hurt.

Each client (`tests.support.claimant`) runs below a look-alike agent CLI or a shell of its own, so
that it is a session of its own; kills and pauses strike that whole group. What they wrote is read
back as `tests.sim.linear.Step`, one history for each identity.
"""

import contextlib
import json
import os
import random
import select
import shlex
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from tests.sim.image import Image
from tests.sim.linear import NEVER, Step
from tests.support import claimant
from tests.support.claimant import CALLS_A_SIGN, NAMES
from tests.support.daemon import Daemon
from tests.support.shells import TIMEOUT_S, launch, look_alike

CLIENTS: Final = 8
_CLAIMS: Final = {"identity.claim": "claim", "identity.register": "register"}
_EMPTY_HANDED: Final = frozenset({"no-lease", "lease-lost"})


@dataclass
class Rival:
    """One client: the holder process above it, and the pipe that it listens to."""

    number: int
    pid: int
    pidfd: int
    stdin: int
    journal: Path
    killed: float = NEVER
    """When it was killed, on the steady clock (ns)."""
    is_paused: bool = False

    def signal(self, number: signal.Signals) -> None:
        """To the holder and everything below it, as long as the holder is there."""
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self.pidfd, 0)
            os.killpg(self.pid, number)

    def hang_up(self) -> None:
        """Let it see the end of its standard input."""
        if self.stdin >= 0:
            os.close(self.stdin)
            self.stdin = -1

    def lines(self) -> list[dict[str, Any]]:
        """What it wrote; nothing if it was killed before it could."""
        if not self.journal.exists():
            return []
        return [json.loads(line) for line in self.journal.read_bytes().splitlines()]


@dataclass
class Contest:
    """Clients at work on a daemon. Use it in ``with``; `play`, then `finish`."""

    daemon: Daemon
    folder: Path
    seed: int
    rivals: list[Rival] = field(default_factory=list)
    """All that ever were, in the order of their start."""
    met: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.chance = random.Random(f"contest {self.seed}")
        self.agent = look_alike(self.folder, "claude")
        self.signs, self._tell = os.pipe()

    def __enter__(self) -> Self:
        for _ in range(CLIENTS):
            self._start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for rival in self.rivals:
            rival.signal(signal.SIGKILL)
            rival.hang_up()
            os.close(rival.pidfd)
        os.close(self.signs)
        os.close(self._tell)

    def play(self, calls: int, *, kills: int, pauses: int, crashes: int) -> None:
        """Let the clients make so many calls, and do so much harm meanwhile, evenly spread."""
        harm = [self._kill] * kills + [self._pause] * pauses
        self.chance.shuffle(harm)
        for number in range(crashes):
            harm.insert((number + 1) * len(harm) // (crashes + 1), self._crash)
        for act in harm:
            self._wait(calls // (len(harm) + 1))
            act()
        self._wait(calls // (len(harm) + 1))

    def finish(self) -> None:
        """Everybody goes on, ends its call, and ends."""
        for rival in self._working():
            rival.signal(signal.SIGCONT)
            rival.hang_up()
        for rival in self._working():
            assert _ends(rival.pidfd), f"client {rival.number} does not end"

    # -- harm -----------------------------------------------------------------------------------

    def _kill(self) -> None:
        """One client with its holder, and another takes its place."""
        rival = self.chance.choice(self._working())
        rival.killed = time.monotonic_ns()
        rival.signal(signal.SIGKILL)
        assert _ends(rival.pidfd), "a killed client does not end"
        rival.hang_up()
        self.met["kills"] += 1
        self._start()

    def _pause(self) -> None:
        """One is stopped where it is; the one that was stopped before goes on."""
        working = self._working()
        paused = [rival for rival in working if rival.is_paused]
        for rival in paused[:1]:
            rival.signal(signal.SIGCONT)
            rival.is_paused = False
        rival = self.chance.choice([one for one in working if one not in paused])
        rival.signal(signal.SIGSTOP)
        rival.is_paused = True
        self.met["pauses"] += 1

    def _crash(self) -> None:
        """The daemon is killed and started again."""
        self.daemon.kill()
        said = self.daemon.start()
        assert said.get("ready") is True, said
        self.met["daemon kills"] += 1
        for rival in self._working():
            os.write(rival.stdin, b".")

    def _working(self) -> list[Rival]:
        return [rival for rival in self.rivals if rival.killed == NEVER]

    def _start(self) -> None:
        number = len(self.rivals)
        journal = self.folder / f"{number}.jsonl"
        program = (sys.executable, "-I", "-S", claimant.__file__)
        words = (*program, self.daemon.socket_path, str(journal), f"{self.seed} {number}")
        shell = str(self.agent) if number % 2 else "bash"
        reading, writing = os.pipe()
        # The colon keeps the shell from giving its place to the client.
        command = f"{shlex.join(words)} 2>{shlex.quote(str(journal))}.err; :"
        pid = launch([shell, "-c", command], stdin=reading, stdout=self._tell)
        os.close(reading)
        self.rivals.append(Rival(number, pid, os.pidfd_open(pid), writing, journal))

    def _wait(self, calls: int) -> None:
        """Until they have told of so many more calls."""
        left = calls
        while left > 0:
            ready, _, _ = select.select([self.signs], [], [], TIMEOUT_S)
            assert ready, f"no progress: {self._complaints()}"
            left -= CALLS_A_SIGN * len(os.read(self.signs, left // CALLS_A_SIGN + 1))

    def _complaints(self) -> str:
        return " ".join(path.read_text() for path in self.folder.glob("*.err"))

    # -- what it was ----------------------------------------------------------------------------

    def sessions(self) -> dict[int, str]:
        """Number of the client -> its session, as the audit log names it."""
        found = {}
        for rival in self.rivals:
            for line in rival.lines()[:1]:
                found[rival.number] = f"{line['session']['cli']}/{line['session']['id']}"
        return found

    def histories(self, store: Image) -> dict[str, list[Step]]:
        """Identity id -> all that was done to its lease, and under it."""
        identity_of = {
            row.content["name"]: row.identity or "" for row in store.audit if row.act == "register"
        }
        sent_under = {
            message.id: (message.content["from"]["identity"], message.content["lease"]["epoch"])
            for message in store.messages
        }
        found: dict[str, list[Step]] = {identity_of.get(name, name): [] for name in NAMES}
        for rival in self.rivals:
            for call, back in _calls(rival):
                self._count(call["method"], back)
                for name, step in _steps(rival, call, back, sent_under):
                    some = [identity_of.get(name, name)] if name else list(found)
                    for identity in some:
                        found[identity].append(step)
            if rival.killed != NEVER:
                for steps in found.values():
                    steps.append(Step(rival.number, "lapse", "unknown", rival.killed, NEVER))
        return found

    def _count(self, method: str, back: Mapping[str, Any]) -> None:
        outcome = back["outcome"]
        self.met["calls"] += 1
        self.met[outcome if outcome == "unknown" else f"{outcome} {back.get('code', method)}"] += 1


def _calls(rival: Rival) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Each call with its return; one without is that of a killed client."""
    waiting: dict[str, Any] | None = None
    for line in rival.lines()[1:]:
        if "call" in line:
            waiting = line
        elif waiting is not None:
            yield waiting, line
            waiting = None
    if waiting is not None:
        yield waiting, {"outcome": "unknown", "t": NEVER}


def _steps(
    rival: Rival,
    call: Mapping[str, Any],
    back: Mapping[str, Any],
    sent_under: Mapping[str, tuple[str, int]],
) -> Iterator[tuple[str, Step]]:
    """What one call says about which identity ('': about each)."""
    method, outcome, code = call["method"], back["outcome"], back.get("code")
    result, span = back.get("result", {}), (call["t"], back["t"])
    if method in _CLAIMS:
        if code in {None, "in-use", "name-taken"}:
            kind: Any = _CLAIMS[method]
            epoch = result.get("epoch", 0)
            yield call["params"]["name"], Step(rival.number, kind, outcome, *span, epoch)
    elif method == "identity.release":
        if outcome == "ok":
            yield (
                result["released"],
                Step(rival.number, "release", "ok", *span, result["epoch"]),
            )
        elif outcome == "unknown" or code in _EMPTY_HANDED:
            yield "", Step(rival.number, "release", outcome, *span)
    elif outcome == "ok":
        identity, epoch = sent_under[result["id"]]
        yield identity, Step(rival.number, "use", "ok", *span, epoch)
    elif code in _EMPTY_HANDED:
        yield "", Step(rival.number, "use", "refused", *span)


def _ends(pidfd: int) -> bool:
    events = select.poll()
    events.register(pidfd, select.POLLIN)
    return bool(events.poll(TIMEOUT_S * 1000))
