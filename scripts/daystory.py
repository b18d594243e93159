"""What happens on a day: the director, scene by scene, while twenty players work."""

import contextlib
import os
import random
import select
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Final, Self

from scripts.daychecks import violations
from scripts.daydaemon import DayDaemon
from scripts.dayhistory import History, Told
from scripts.dayplayers import ROLES, Office, Player, all_turns
from scripts.dayseats import CLIENTS, KINDS, Ground, Kind, Seat, asleep
from scripts.daystore import copy_store, look_into, wrong_files
from scripts.demostage import Stage
from scripts.terminals import TIMEOUT_S, TerminalError

NAMES: Final = (
    "ana ben cai dora emil fay gus hana ivo jule karl lena max nora otto pia quin rosa sven tina"
).split()
"""Twenty people's names, none of which looks like another."""
SCENES: Final = {"crash": 12, "hand over": 4, "rename": 4, "wait": 3}
"""How often each happens in ten minutes, beside one sleep, two kills and one reboot."""
AT_LEAST: Final = {"crash": 3, "hand over": 1, "rename": 1, "wait": 1}
"""How often in any day."""
FULL_S: Final = 600.0
_LANDMARKS: Final = (0.28, 0.46, 0.62, 0.78)
"""When, as parts of the day: the first kill, the sleep, the second kill, the reboot."""
_ORDINALS: Final = "one two three four five six seven eight nine ten eleven twelve".split()
_BURSTS: Final = 2
_BURST_BEFORE_KILL: Final = 40
_LINES: Final = 20
_PAUSES: Final = 100
_PAUSE_S: Final = (4.0, 6.0)
_SHOWN_MAX: Final = 3
_AT_ONCE: Final = 4


class Day:
    """Twenty players, one daemon, one director. Use it in ``with``: at its end nothing runs."""

    def __init__(self, stage: Stage, work: Path, duration_s: float, seed: int) -> None:
        self.history = History()
        self.daemon = DayDaemon(Ground(work))
        self.store: Path | None = None
        self.copies: list[str] = []
        self.violations: list[str] = []
        self.done: Counter[str] = Counter()
        self.final_list = ""
        self.records = 0
        self._stage = stage
        self._duration_s = duration_s
        self._random = random.Random(seed)
        self._ground = self.daemon.ground
        self._printing = threading.Lock()
        pause_s = min(max(duration_s / _PAUSES, _PAUSE_S[0]), _PAUSE_S[1])
        self.office = Office(self._ground, self.history, pause_s)
        kinds: list[Kind] = [kind for kind, count in KINDS.items() for _ in range(count)]
        self._random.shuffle(kinds)
        self.office.players = [
            Player(self.office, name, kind, ROLES[number % len(ROLES)], f"{seed}-{name}")
            for number, (name, kind) in enumerate(zip(NAMES, kinds, strict=True))
        ]
        self._players = self.office.players
        (work / "burst.py").symlink_to(Path(__file__).with_name("burst.py").resolve())
        self._owner = ""
        self._began = time.monotonic()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.office.over.set()
        for player in self._players:
            with contextlib.suppress(TerminalError):
                player.die()
        for player in self._players:
            if player.is_alive():
                player.join(TIMEOUT_S)
            player.leave()
        with contextlib.suppress(subprocess.SubprocessError):
            self.daemon.stop()

    # -- the course of the day --------------------------------------------------------------------

    def play(self) -> None:
        """From morning to evening."""
        self._began = time.monotonic()
        self._morning()
        big = (self._kill_daemon, self._sleep, self._kill_daemon, self._reboot)
        segments = self._small_scenes(len(big) + 1)
        before = 0.1
        for number, scenes in enumerate(segments):
            after = _LANDMARKS[number] if number < len(big) else 0.97
            for place, scene in enumerate(scenes, 1):
                self._wait_until(before + (after - before) * place / (len(scenes) + 1))
                scene()
            self._wait_until(after)
            if number < len(big):
                big[number]()
            before = after
        self._evening()

    def _small_scenes(self, segments: int) -> list[list[Callable[[], None]]]:
        """All small scenes in a drawn order, divided evenly."""
        acts = {
            "crash": self._crash,
            "hand over": self._hand_over,
            "rename": self._rename,
            "wait": self._wait_for_identity,
        }
        scale = self._duration_s / FULL_S
        scenes = [
            acts[name]
            for name, count in SCENES.items()
            for _ in range(max(AT_LEAST[name], round(count * scale)))
        ]
        self._random.shuffle(scenes)
        return [scenes[number::segments] for number in range(segments)]

    def _wait_until(self, part: float) -> None:
        """Until this part of the day is over, with a line about the mail from time to time."""
        while (left := self._began + part * self._duration_s - time.monotonic()) > 0:
            time.sleep(min(left, self._duration_s / _LINES))
            if left > self._duration_s / _LINES:
                self._tell("", self._so_far())

    def _so_far(self) -> str:
        counts = self.history.counts
        return (
            f"so far {counts['accepted']} messages accepted, {counts['read']} read, "
            f"{counts['acknowledged']} acknowledged"
        )

    # -- morning and evening ----------------------------------------------------------------------

    def _morning(self) -> None:
        self._tell("", "twenty sessions start")
        self._all_come()
        listed = self.daemon.ask("identity", "list")["identities"]
        self._check(len(listed) == len(self._players), f"{len(listed)} identities")
        for player in self._players:
            player.start()
        sent = self._players[0]
        with sent.turn:
            letter = sent.write("owner", "decision")
        self._owner = letter.recipients[0] if letter else ""
        self._quiet_point("in the morning")

    def _all_come(self) -> None:
        self.done["sessions"] += self._each(self._one_comes)

    def _one_comes(self, player: Player) -> bool:
        again = bool(player.identity)
        with player.turn:
            try:
                player.come()
            except TerminalError as error:
                self.history.fault(str(error))
                return False
        assert player.seat is not None
        cli, session_id = player.seat.session
        epoch = self.history.epoch_of(player.identity)
        how = "is back" if again else f"registers, {player.role}"
        self._tell(player.agent, f"{how}: {cli} {session_id}, epoch {epoch}")
        return True

    def _evening(self) -> None:
        self._tell("", "evening: everybody finishes")
        self._quiet_point("in the evening")
        self.final_list = self.daemon.say("identity", "list")
        self.office.over.set()
        for player in self._players:
            player.join(TIMEOUT_S)
            player.die()
            player.leave()
        self._tell("", "all sessions end")
        self.daemon.stop()
        told = self.history.told()
        self.store = self._copy("at the end")
        self._compare("at the end", told, self.store)
        self.violations += [f"told to a player: {fault}" for fault in self.history.faults]

    # -- small scenes -----------------------------------------------------------------------------

    def _crash(self) -> None:
        """A session is killed at whatever it does, and comes back a moment later."""
        player = self._somebody()
        assert player.seat is not None
        player.die()
        self._tell(player.agent, f"!! its {player.kind} {player.seat.pid} is killed", "NOT")
        self.done["crash"] += 1
        with player.turn:
            player.leave()
            time.sleep(self.office.pause_s / 2)
            if self._one_comes(player):
                self.done["come back"] += 1

    def _hand_over(self) -> None:
        """A session gives its identity back, and another one claims it; the first gets nothing."""
        player = self._somebody("claude", "codex", "gemini", "shell")
        with player.turn:
            player.settle()
            old = player.seat
            assert old is not None
            old.ask("identity", "release")
            self.history.count("releases")
            kind: Kind = "codex" if player.kind != "codex" else "claude"
            player.kind = kind
            player.conversation = f"day-{player.name}-{self.done['hand over'] + 1}"
            seat = Seat(
                self._ground, kind, player.agent, player.role, player.conversation, wish=False
            )
            player.take(seat, ("identity", "claim", player.agent))
            refused = old.ask("inbox")
            self._check(refused.code == "no-lease", f"after a release: {refused.document}")
            self.history.died(old.session)
            old.close()
        self._tell(player.agent, f"is handed over: {_said(old)} gave it back, {_said(seat)} has it")
        self.done["hand over"] += 1

    def _rename(self) -> None:
        """In the middle of a thread one side gets another name; the thread goes on."""
        asker, other = self._correspondents()
        with all_turns([asker, other]):
            letter = asker.write(other.agent, "request")
            old, new = other.agent, f"{other.name}-{_ORDINALS[self.done['rename']]}"
            if letter is None or letter.id is None or other.seat is None or asker.seat is None:
                self.history.fault(f"{asker.agent} cannot write to {old}")
                return
            told = other.seat.ask("identity", "rename", new)
            self._check(told.status == 0, f"{old} is not renamed: {told.document}")
            other.agent = new
            self.history.named(new, other.identity)
            answer = other.reply(letter.id)
            shown = asker.seat.ask("thread", letter.id).document["messages"]
            ids = [one["id"] for one in shown]
            self._check(ids == [letter.id, answer.id], f"the thread over a rename: {ids}")
            senders = {one["from"].partition("@")[0] for one in shown}
            self._check(senders == {asker.agent, new}, f"the thread names {senders}")
        self._tell(new, f"was {old} until now; the thread with {asker.agent} goes on")
        self.done["rename"] += 1

    def _wait_for_identity(self) -> None:
        """A second window on one conversation waits, and has the identity when the first dies."""
        player = self._somebody(*CLIENTS)
        with player.turn:
            player.settle()
            first = player.seat
            assert first is not None
            second = Seat(
                self._ground,
                player.kind,
                player.agent,
                player.role,
                player.conversation,
                wish=False,
            )
            told = second.ask("whoami").document
            pending = (told["agent"], told["pending"])
            self._check(pending == (None, player.agent), f"a twin waits: {pending}")
            self._tell(player.agent, f"a second {player.kind}, {second.pid}, waits for {first.pid}")
            player.die()
            player.leave()
            player.take(second)
        self._tell(player.agent, f"{first.pid} was killed, and {second.pid} is served")
        self.done["wait"] += 1

    # -- great scenes -----------------------------------------------------------------------------

    def _kill_daemon(self) -> None:
        """`kill -9` while two sessions send raw lines as fast as they can, and all others work."""
        number = self.done["daemon kill"] + 1
        senders = self._random.sample([one for one in self._players if one.seat], _BURSTS)
        with all_turns(senders), contextlib.ExitStack() as reports:
            pipes = []
            for player in senders:
                player.settle()
                path = self._ground.work / f"report-{number}-{player.name}"
                pipes.append(reports.enter_context(_Report(path)))
                player.start_burst(path, number)
            for pipe, player in zip(pipes, senders, strict=True):
                pipe.read(partial(self._from_burst, player), _BURST_BEFORE_KILL)
            pid = self.daemon.pid()
            with asleep([pid]):
                told = self.history.told()
                store = self._copy(f"kill-{number}")
                self.daemon.kill(pid)
            self._tell("", f"!! kill -9 of the daemon, process {pid}", "NOT")
            for pipe, player in zip(pipes, senders, strict=True):
                pipe.read(partial(self._from_burst, player), None)
                player.end_burst()
            unknown = sum(len(self.history.unknown_of(one.identity)) for one in senders)
            self._tell("", f"{unknown} raw sends have an unknown outcome; they are sent again")
            with ThreadPoolExecutor(_BURSTS) as pool:
                list(pool.map(Player.settle, senders))
        self.done["daemon kill"] += 1
        self._tell("", f"the daemon is process {self.daemon.pid()} now")
        self._compare(f"as kill {number} left it", told, store)
        self._quiet_point(f"after kill {number}")

    def _sleep(self) -> None:
        """The lid is closed: everything stands still, then goes on, and nobody lost anything."""
        watcher = self._somebody("claude", "codex", "shell")
        seconds = max(1.5, self._duration_s / 60)
        with watcher.turn:
            assert watcher.seat is not None
            watcher.read_all()
            watcher.seat.start(f"mbx watch --timeout {int(TIMEOUT_S / 2)}")
            pids = [pid for one in self._players if one.seat for pid in one.seat.processes()]
            daemon = self.daemon.pid()
            self._tell("", f"the lid is closed: {len(pids) + 1} processes stand still")
            with asleep([*pids, daemon]):
                told = self.history.told()
                store = self._copy("asleep")
                time.sleep(seconds)
            self._tell("", f"the lid is open again, {seconds:.1f} s later")
            self._wake(watcher)
        self.done["sleep"] += 1
        self._compare("while everything slept", told, store)
        self._quiet_point("after the sleep")

    def _wake(self, watcher: Player) -> None:
        """Whoever waited for mail before the sleep hears of mail after it."""
        asker, _ = self._correspondents(watcher)
        with asker.turn:
            asker.write(watcher.agent, "request")
        assert watcher.seat is not None
        status, text = watcher.seat.finish()
        self._check(status == 0, f"mbx watch over the sleep: exit {status}: {text}")
        said = text.strip().splitlines()[0]
        self._tell(watcher.agent, f"its mbx watch of before the sleep says: {said}")

    def _reboot(self) -> None:
        """All sessions and the daemon are gone at once; then a new morning under a new boot id."""
        survivor = self._somebody("shell", "run")
        with survivor.turn:
            # One process stays, against all reason: only the boot id says that it is another one.
            ghost, survivor.seat = survivor.seat, None
        assert ghost is not None
        self.history.died(ghost.session)
        pid = self.daemon.pid()
        with asleep([pid]):  # so that it sees no death: all end at once
            for player in self._players:
                player.die()
            told = self.history.told()
            self.daemon.kill(pid)
        store = self._copy("reboot")
        self._tell("", "!! the machine is started again: sessions and daemon are gone", "NOT")
        with all_turns(self._players):
            for player in self._players:
                player.leave()
        self._tell("", f"a new morning, boot id {self.daemon.start_after_boot()}")
        listed = self.daemon.ask("identity", "list")["identities"]
        held = [one["name"] for one in listed if not one["claimable"]]
        self._check(not held, f"held over a reboot: {held}")
        refused = ghost.ask("inbox")
        self._check(refused.code == "no-lease", f"a process of before: {refused.document}")
        ghost.close()
        self._all_come()
        self.done["reboot"] += 1
        self._compare("as the reboot found it", told, store)
        self._quiet_point("on the new morning")

    # -- checks -----------------------------------------------------------------------------------

    def _quiet_point(self, when: str) -> None:
        """Nobody does anything: what was unknown is settled, and the store is compared."""
        with all_turns(self._players):
            self._each(self._is_still_holder)
            pid = self.daemon.pid()
            with asleep([pid]):
                told = self.history.told()
                store = self._copy(when)
                files = wrong_files(self._ground.home)
            self.violations += [f"{when}: {wrong}" for wrong in files]
            self._compare(when, told, store)
        self.done["quiet point"] += 1

    def _is_still_holder(self, player: Player) -> bool:
        """A living session holds what it was told it holds, and knows what became of its mail."""
        if player.seat is None:
            self.history.fault(f"{player.agent} has no session")
            return False
        player.settle()
        if left := self.history.unknown_of(player.identity):
            self.history.fault(f"{player.agent} cannot settle {[one.tag for one in left]}")
        told = player.seat.ask("whoami").document
        lease = (told.get("agent"), (told.get("lease") or {}).get("epoch"))
        wanted = (player.agent, self.history.epoch_of(player.identity))
        self._check(lease == wanted, f"{wanted} is {lease} for its living session")
        return lease == wanted

    def _copy(self, when: str) -> Path:
        return copy_store(self._ground.home, self._ground.work / f"copy-{when.replace(' ', '-')}")

    def _compare(self, when: str, told: Told, store: Path) -> None:
        """The history against one copy of the store."""
        stored = look_into(store)
        found = violations(told, self.history, stored)
        self.violations += [f"{when}: {wrong}" for wrong in found]
        self.copies.append(when)
        self.records = stored.records
        messages = sum(len(ids) for ids in stored.messages.values())
        verdict = f"{len(found)} violations" if found else "all is as it was told"
        self._tell("", f"== {when}: {messages} messages, {verdict}", "NOT" if found else "ok")
        for wrong in found[:_SHOWN_MAX]:
            self._tell("", f"   {wrong}", "NOT")

    def _check(self, held: bool, text: str) -> None:
        if not held:
            self.history.fault(text)

    # -- means ------------------------------------------------------------------------------------

    def _each(self, act: Callable[[Player], bool]) -> int:
        """Do something with all players, some at a time; how often it came out well."""
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            return sum(pool.map(act, self._players))

    def _somebody(self, *kinds: str) -> Player:
        """Somebody at work, of one of these kinds."""
        there = [one for one in self._players if one.seat and (not kinds or one.kind in kinds)]
        return self._random.choice(there)

    def _correspondents(self, other: Player | None = None) -> tuple[Player, Player]:
        """Somebody who can write to somebody else, or to `other`, whatever both have read."""
        there = [one for one in self._players if one.seat]
        pairs = [(one, to) for one in there for to in there if one is not to]
        if other is not None:
            pairs = [(one, to) for one, to in pairs if to is other]
        known = [(one, to) for one, to in pairs if to.agent in one.heard_from]
        return self._random.choice(known or pairs)

    def _from_burst(self, player: Player, line: str) -> None:
        player.told_by_burst(line, self._owner)

    def _tell(self, who: str, text: str, colour: str = "") -> None:
        """One line of the story, with the time of day."""
        with self._printing:
            clock = self._stage.painted("dim", time.strftime("%H:%M:%S"))
            self._stage.line(f"{clock}  {who:<14} {self._stage.painted(colour, text)}")


class _Report:
    """What a burst reports through a FIFO, line by line. Use it in ``with``."""

    def __init__(self, path: Path) -> None:
        os.mkfifo(path, 0o600)
        self._pipe = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        self._events = select.poll()
        self._events.register(self._pipe, select.POLLIN)
        self._rest = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._pipe)

    def read(self, on_line: Callable[[str], None], lines: int | None) -> None:
        """Give at least so many lines, or all until the end. Raises TerminalError."""
        seen = 0
        while lines is None or seen < lines:
            if not self._events.poll(TIMEOUT_S * 1000):
                raise TerminalError("a burst says nothing")
            piece = os.read(self._pipe, 65_536).decode()
            if not piece:
                return
            *whole, self._rest = (self._rest + piece).split("\n")
            for line in whole:
                on_line(line)
            seen += len(whole)


def _said(seat: Seat) -> str:
    return " ".join(seat.session)
