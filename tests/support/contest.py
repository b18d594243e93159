"""Eight processes and an owner contest three identities while they, and the daemon, are hurt.

Each client (`tests.support.claimant`) runs below a look-alike agent CLI or a shell of its own, so
that it is a session of its own; kills and pauses strike that whole group. An agent CLI that takes
the place of a killed one goes on with its conversation. The owner (`tests.support.proprietor`) sits
at two desks. What all of them wrote is `tests.support.journals`'.
"""

import contextlib
import json
import os
import random
import select
import shlex
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Container, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Self

from tests.sim.image import Image
from tests.sim.linear import NEVER
from tests.support import claimant
from tests.support.children import process_of
from tests.support.claimant import CALLS_A_SIGN
from tests.support.daemon import Daemon
from tests.support.human import Human, signed
from tests.support.journals import Player, Story
from tests.support.patience import looks
from tests.support.proprietor import KEY
from tests.support.shells import TIMEOUT_S, launch, look_alike

CLIENTS: Final = 8
SIGNS_A_RECORD: Final = 2
"""The owner brings a record each time that the clients have told so often of their calls."""
_ROOT: Final = Path(__file__).parents[2]
_DESK: Final = (
    "import sys; sys.path.insert(0, sys.argv[1]); from tests.support.proprietor import main;"
    " main(*sys.argv[2:])"
)


@dataclass
class Rival:
    """One client: the holder process above it, and the pipe that it listens to."""

    player: Player
    pidfd: int
    stdin: int

    @property
    def has_ended(self) -> bool:
        return self.player.ended != NEVER

    @property
    def is_stopped(self) -> bool:
        return self.player.is_stopped(time.monotonic_ns())

    def signal(self, number: signal.Signals) -> None:
        """To the holder and everything below it, as long as the holder is there.

        To itself first: it may not lead a group of its own yet.
        """
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self.pidfd, number)
            os.killpg(self.player.pid, number)

    def stop(self) -> None:
        """Let it stand still where it is."""
        self.player.stops.append((time.monotonic_ns(), NEVER))
        self.signal(signal.SIGSTOP)

    def go_on(self) -> None:
        """Let it go on, if it stands still."""
        if self.is_stopped:
            since, _ = self.player.stops.pop()
            self.player.stops.append((since, time.monotonic_ns()))
            self.signal(signal.SIGCONT)

    def hang_up(self) -> None:
        """Let it see the end of its standard input."""
        if self.stdin >= 0:
            os.close(self.stdin)
            self.stdin = -1


@dataclass
class Desk:
    """One process of the owner's, and its journal."""

    process: subprocess.Popen[bytes]
    journal: Path

    def say(self, word: bytes) -> None:
        """Have it do something."""
        assert self.process.stdin is not None
        self.process.stdin.write(word)
        self.process.stdin.flush()

    def hear(self, word: bytes) -> None:
        """Wait until it has."""
        assert self.process.stdout is not None
        ready, _, _ = select.select([self.process.stdout], [], [], TIMEOUT_S)
        assert ready, "the owner is silent"
        assert os.read(self.process.stdout.fileno(), 1) == word


@dataclass
class Contest:
    """Clients and an owner at work on a daemon. Use it in ``with``; `play`, then `finish`."""

    daemon: Daemon
    folder: Path
    seed: int
    rivals: list[Rival] = field(default_factory=list)
    """All that ever were, in the order of their start."""
    desks: list[Desk] = field(default_factory=list)
    met: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.chance = random.Random(f"contest {self.seed}")
        self.agent = look_alike(self.folder, "claude")
        self.signs, self._tell = os.pipe()
        self.roll = self.folder / "roll.jsonl"
        self._due = 0

    def __enter__(self) -> Self:
        with Human(self.daemon.socket_path) as human, human.line() as line:
            draft = line.call("owner.draft", act="rotate", public_key=KEY.public.hex())
            line.call("owner.enroll", record=signed(draft, KEY))
        for slot in range(CLIENTS):
            self._start(slot)
        self._sit_down()
        return self

    def __exit__(self, *_: object) -> None:
        for rival in self.rivals:
            rival.signal(signal.SIGKILL)
            rival.hang_up()
            os.close(rival.pidfd)
        for desk in self.desks:
            with desk.process:
                desk.process.kill()
        os.close(self.signs)
        os.close(self._tell)

    def play(self, calls: int, *, kills: int, pauses: int, crashes: int, hushes: int) -> None:
        """Let the clients make so many calls, and do so much harm meanwhile, evenly spread."""
        harm = [self._kill] * kills + [self._pause] * pauses + [self._hush] * hushes
        self.chance.shuffle(harm)
        for number in range(crashes):
            harm.insert((number + 1) * len(harm) // (crashes + 1), self._crash)
        for act in harm:
            self._wait(calls // (len(harm) + 1))
            act()
        self._wait(calls // (len(harm) + 1))

    def finish(self) -> None:
        """The owner ends, then everybody goes on, ends its call, and ends."""
        for desk in self.desks:
            assert desk.process.stdin is not None
            desk.process.stdin.close()
            assert desk.process.wait(TIMEOUT_S) == 0, self._complaints()
        working = self._working()
        for rival in working:
            rival.player.ended = time.monotonic_ns()
            rival.go_on()
            rival.hang_up()
        for rival in working:
            assert _ends(rival.pidfd), f"client {rival.player.number} does not end"

    def story(self, store: Image) -> Story:
        """What it was, once everybody has ended."""
        players = [rival.player for rival in self.rivals]
        return Story(players, [desk.journal for desk in self.desks], store)

    # -- harm -----------------------------------------------------------------------------------

    def _kill(self) -> None:
        """One client with its holder, and another takes its place."""
        rival = self.chance.choice(self._working())
        self._end(rival)
        self._start(rival.player.slot)

    def _end(self, rival: Rival) -> None:
        rival.player.ended = time.monotonic_ns()
        rival.signal(signal.SIGKILL)
        assert _ends(rival.pidfd), "a killed client does not end"
        rival.hang_up()
        self.met["kills"] += 1

    def _pause(self) -> None:
        """One is stopped where it is; the one that was stopped before goes on."""
        working = self._working()
        stopped = [rival for rival in working if rival.is_stopped]
        for rival in stopped[:1]:
            rival.go_on()
        self.chance.choice([one for one in working if one not in stopped]).stop()
        self.met["pauses"] += 1

    def _hush(self) -> None:
        """All are stopped, a holder is killed perhaps, and the owner takes what there is.

        Perhaps one that it displaced never goes on: its conversation does, in another process.
        """
        quiet = [rival for rival in self._working() if not rival.is_stopped]
        for rival in quiet:
            rival.stop()
        killed = [self._end_one(quiet, self._holding())] if self.chance.random() < 0.6 else []
        before = self._holding()
        desk = self.chance.choice(self.desks)
        desk.say(b"q")
        desk.hear(b"q")
        if self.chance.random() < 0.75:
            killed.append(self._end_one(quiet, before - self._holding()))
            self.met["kills of displaced ones"] += killed[-1] is not None
        for rival in quiet:
            if rival not in killed:
                rival.go_on()
        for one in killed:
            if one is not None:
                self._start(one.player.slot)
        self.met["hushes"] += 1

    def _end_one(self, rivals: Sequence[Rival], pids: Container[int]) -> Rival | None:
        """Kill one of these, one with a conversation if there is one, and wait until it is seen."""
        some = [one for one in rivals if one.player.pid in pids and not one.has_ended]
        if not some:
            return None
        rival = max(some, key=lambda one: len(one.player.names))
        self._end(rival)
        for _ in looks():
            if rival.player.pid not in self._holding():
                break
        return rival

    def _holding(self) -> set[int]:
        """The processes that hold something."""
        with self.daemon.line() as line:
            line.hello()
            listed = line.call("identity.list")["identities"]
        return {one["holder"]["pid"] for one in listed if one["holder"]}

    def _crash(self) -> None:
        """The daemon is killed under a record of the owner's, and started again."""
        desk = self.chance.choice(self.desks)
        desk.say(b"k")
        desk.hear(b"k")
        self.daemon.kill()
        said = self.daemon.start()
        assert said.get("ready") is True, said
        self.met["daemon kills"] += 1
        for rival in self._working():
            os.write(rival.stdin, b".")
        for desk in self.desks:
            desk.say(b".")

    def _working(self) -> list[Rival]:
        return [rival for rival in self.rivals if not rival.has_ended]

    # -- players --------------------------------------------------------------------------------

    def _start(self, slot: int) -> None:
        """A client below an agent CLI that has a conversation, or below a shell."""
        number, is_agent = len(self.rivals), slot % 2 == 1
        journal = self.folder / f"{number}.jsonl"
        talk = f"talk-{slot}" if is_agent else ""
        program = (sys.executable, "-I", "-S", claimant.__file__)
        words = (*program, self.daemon.socket_path, str(journal), f"{self.seed} {number}", talk)
        reading, writing = os.pipe()
        # The colon keeps the shell from giving its place to the client.
        command = f"{shlex.join(words)} 2>{shlex.quote(str(journal))}.err; :"
        started = time.monotonic_ns()
        shell = str(self.agent) if is_agent else "bash"
        pid = launch([shell, "-c", command], stdin=reading, stdout=self._tell)
        os.close(reading)
        own = f"{pid}-{process_of(pid).start_ticks}"
        cli, names = ("claude", (talk, own)) if is_agent else ("shell", (own,))
        player = Player(number, slot, pid, cli, names, journal, started)
        self.rivals.append(Rival(player, os.pidfd_open(pid), writing))
        entry = {"number": number, "slot": slot, "pid": pid, "cli": cli, "names": names}
        with self.roll.open("a") as roll:
            roll.write(json.dumps(entry) + "\n")

    def _sit_down(self) -> None:
        """The owner at its two desks."""
        for number, peer in enumerate(socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)):
            journal = self.folder / f"owner-{number}.jsonl"
            words = [
                self.daemon.socket_path,
                str(journal),
                str(self.roll),
                f"{self.seed} desk {number}",
            ]
            with peer, (self.folder / f"owner-{number}.err").open("wb") as complaints:
                process = subprocess.Popen(
                    [sys.executable, "-I", "-c", _DESK, _ROOT, *words, str(peer.fileno())],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=complaints,
                    pass_fds=[peer.fileno()],
                    env=self.daemon.environment,
                )
            self.desks.append(Desk(process, journal))

    def _wait(self, calls: int) -> None:
        """Until they have told of so many more calls, while the owner does its part."""
        left = calls
        while left > 0:
            ready, _, _ = select.select([self.signs], [], [], TIMEOUT_S)
            assert ready, f"no progress: {self._complaints()}"
            told = len(os.read(self.signs, left // CALLS_A_SIGN + 1))
            left -= CALLS_A_SIGN * told
            self._due += told
            while self._due >= SIGNS_A_RECORD:
                self._due -= SIGNS_A_RECORD
                self.chance.choice(self.desks).say(b"t")

    def _complaints(self) -> str:
        return " ".join(path.read_text() for path in self.folder.glob("*.err"))


def _ends(pidfd: int) -> bool:
    events = select.poll()
    events.register(pidfd, select.POLLIN)
    return bool(events.poll(TIMEOUT_S * 1000))
