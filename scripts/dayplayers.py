"""The players of a day: each works under one identity, in one session at a time.

A player's thread takes one step after the other (write, tend the inbox, look things up) and says
in the history what it was told. The director takes its `turn` when it needs the player for a scene.
What a player does is drawn from its own seeded source; what happens meanwhile is real.
"""

import contextlib
import random
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from scripts.dayhistory import History, Sending
from scripts.dayseats import CLIENTS, Answer, Ground, Kind, NoDocumentError, Seat
from scripts.terminals import TerminalError

ROLES: Final = ("backend", "frontend", "review", "docs", "ops")
"""Four players have each."""

TOPICS: Final = (
    ("Port of the API", "Which port does the API listen on now?"),
    ("Flaky test", "The upload test failed twice today; have you touched it?"),
    ("Review", "Could you look at the branch before lunch?"),
    ("Schema change", "The orders table gets a new column; your queries may notice."),
    ("Release notes", "Anything from your side for the notes of this week?"),
    ("Deploy", "Staging is being deployed; please hold back for a moment."),
)
"""(subject, body): what the players write about."""

_ADDRESSED: Final = {"*": "all", "owner": "the owner", "role:": "a role"}
_DID: Final = ("looked at it", "moved it to the next release", "fixed and tested", "noted it")
_UNKNOWN: Final = 75
_REFUSED_PASSING: Final = frozenset({"", "daemon-unreachable", "outcome-unknown"})
_OF_COURSE: Final = {
    # Somebody was renamed between the look at a name and the letter to it;
    # and what was read may be passed on a few times only, as long as no owner says more.
    "send": _REFUSED_PASSING | {"unknown-recipient", "policy-denied"},
    # The daemon hears of a death a moment after it.
    "identity": _REFUSED_PASSING | {"in-use"},
}
"""Command -> the codes that a day brings with it; any other refusal is a fault."""
_TRIES: Final = 100
_PAUSE_S: Final = 0.1
_TENDED_MAX: Final = 2
_REST: Final = 4
"""Pauses are at least so many times as long as the step before."""


@dataclass
class Office:
    """What the players share: the ground, the history, the names of all, how fast they work.

    `pause_s` is the usual time between two steps of a player.
    """

    ground: Ground
    history: History
    pause_s: float

    def __post_init__(self) -> None:
        self.over = threading.Event()
        self.players: list[Player] = []

    def other(self, rng: random.Random, than: "Player") -> "Player":
        """Somebody else who has come."""
        return rng.choice([one for one in self.players if one is not than and one.identity])


class Player(threading.Thread):
    """One identity and whoever works under it. Before `come` it has neither."""

    def __init__(self, office: Office, name: str, kind: Kind, role: str, seed: str) -> None:
        super().__init__(name=name, daemon=True)
        self._office = office
        self._history = office.history
        self._random = random.Random(seed)
        self._stem = name
        self._tags = 0
        self.agent = name
        self.kind: Kind = kind
        self.role = role
        self.conversation = f"day-{name}"
        self.identity = ""
        self.heard_from: set[str] = set()
        """Whose mail was read: who wrote to a conversation can always be answered."""
        self.seat: Seat | None = None
        self._is_killed = False
        self.turn = threading.RLock()
        """Held during a step; whoever holds it has the player for himself."""

    # -- coming and going -------------------------------------------------------------------------

    def come(self) -> None:
        """Sit down and get the identity: registered on the first day, its own again afterwards."""
        first = not self.identity
        wish = first and self.kind in CLIENTS
        seat = Seat(
            self._office.ground, self.kind, self.agent, self.role, self.conversation, wish=wish
        )
        claim: tuple[str, ...] = ()
        if self.kind == "shell":
            again = ("identity", "claim", self.agent)
            claim = ("identity", "register", self.agent, "--role", self.role) if first else again
        self.take(seat, claim)

    def take(self, seat: Seat, claim: tuple[str, ...] = ()) -> None:
        """Work in this session from now on. It is asked until it holds the identity.

        `claim` is the command for that; without it the identity comes by itself: named at launch,
        resumed, waited for, or held by `mbx run`.
        """
        self.seat = seat
        self._is_killed = False
        told = Answer(0, {})
        for _ in range(_TRIES):
            told = self._ask("whoami")
            if told.document.get("agent") == self.agent:
                self._is_granted(seat, told.document)
                return
            if claim:
                self._ask(*claim)
            else:
                time.sleep(_PAUSE_S)
        raise TerminalError(f"{self.agent} is not given to {seat.session}: {told.document}")

    def _is_granted(self, seat: Seat, whoami: dict[str, Any]) -> None:
        self.identity = whoami["identity"]
        # Not as whoami has it: a second window on a conversation is known by its process.
        holder = self._ask("identity", "show", self.agent).document["holder"]
        seat.session = (holder["cli"], holder["session"])
        self._history.named(self.agent, self.identity)
        self._history.granted(self.identity, whoami["lease"]["epoch"], seat.session)
        self._history.count("leases granted")

    def die(self) -> None:
        """The session is killed, whatever it is doing."""
        seat = self.seat
        if seat is not None:
            self._is_killed = True
            self._history.died(seat.session)
            seat.kill()

    def leave(self) -> None:
        """The session is gone: forget it. The turn must be held."""
        if self.seat is not None:
            self.seat.close()
            self.seat = None

    # -- work -------------------------------------------------------------------------------------

    def run(self) -> None:
        """Step after step until the day is over; what breaks is a fault of the day."""
        over, pause_s = self._office.over, self._office.pause_s
        took_s = 0.0
        # On a busy machine everybody works more slowly.
        while not over.wait(max(self._random.uniform(0.5, 1.5) * pause_s, _REST * took_s)):
            with self.turn:
                began = time.monotonic()
                try:
                    if self.seat is not None and not over.is_set():
                        self.step()
                except TerminalError as error:
                    if not self._is_killed:  # else the director brings it back
                        self._history.fault(f"{self.agent}: {error}")
                except (NoDocumentError, KeyError, IndexError) as error:
                    self._history.fault(f"{self.agent}: {type(error).__name__}: {error}")
                took_s = time.monotonic() - began

    def step(self) -> None:
        """Whatever a working session does next."""
        self.settle()
        act = self._random.choices(
            (self.tend, self.write, self._look_at_sent, self._search, self._watch),
            weights=(9, 6, 2, 1, 1),
        )[0]
        act()

    def write(self, to: str | None = None, kind: str | None = None) -> Sending | None:
        """Write to somebody, to a role, to all, or to the owner; None when it was not accepted."""
        subject, body = self._random.choice(TOPICS)
        kind = kind or self._random.choice(("request", "message", "message", "task"))
        to = to or self._somebody()
        if to == "*":
            kind = "status"
        tag = self._new_tag()
        words = ("send", "--to", to, "--subject", subject, "-m", f"{body} [{tag}]")
        sending = self._history.begin(tag, self.identity, (*words, "--kind", kind, "--key", tag))
        self._send(sending)
        self._history.count(f"sent to {_ADDRESSED.get(to[:5], 'one')}")
        return sending if sending.outcome == "accepted" else None

    def _somebody(self) -> str:
        drawn = self._random.random()
        if drawn < 0.03:
            return "*"
        if drawn < 0.10:
            return "owner"
        if drawn < 0.22:
            return f"role:{self._random.choice([one for one in ROLES if one != self.role])}"
        return self._office.other(self._random, self).agent

    def tend(self) -> None:
        """Look into the inbox; read, perhaps answer, and acknowledge the oldest."""
        listed = self._ask("inbox", "--limit", "10")
        for message in listed.document.get("messages", [])[:_TENDED_MAX]:
            if self._reads(message["id"]):
                asks = message["kind"] in ("request", "task")
                if asks or self._random.random() < 0.15:
                    self.reply(message["id"])
                self._acks(message["id"])

    def read_all(self) -> None:
        """Read everything that waits and acknowledge nothing."""
        listed = self._ask("inbox", "--limit", "200")
        for message in listed.document.get("messages", []):
            if message["stage"] == "delivered":
                self._reads(message["id"])

    def _reads(self, message: str) -> bool:
        self._history.tries("read", message, self.identity)
        told = self._ask("read", message)
        if told.status == 0:
            self._history.read(message, self.identity)
            self.heard_from.add(told.document["messages"][0]["from"].partition("@")[0])
        return told.status == 0

    def _acks(self, message: str) -> None:
        did = f"{self._random.choice(_DID)} ({self.agent})"
        self._history.tries("ack", message, self.identity)
        for _ in range(2):  # the second one only where the first has no answer
            told = self._ask("ack", message, "--did", did)
            if told.status == 0:
                self._history.acked(message, self.identity, did)
            if told.status != _UNKNOWN:
                return

    def reply(self, message: str) -> Sending:
        """Answer a message."""
        tag = self._new_tag()
        sending = self._history.begin(tag, self.identity, None)
        try:
            told = self._ask("reply", message, "-m", f"Yes, as agreed. [{tag}]")
        except TerminalError:
            self._history.not_accepted(sending, known=False)
            raise
        self._outcome(sending, told)
        self._history.count("replies")
        return sending

    def _look_at_sent(self) -> None:
        told = self._ask("sent", "--limit", "5")
        for message in told.document.get("messages", []):
            self._history.saw_stages(message["id"], message["recipients"])

    def _search(self) -> None:
        """A word that only one message has is found at once, though the index comes later."""
        mine = [
            one
            for one in list(self._history.sendings.values())
            if one.sender == self.identity and one.outcome == "accepted" and "-" not in one.tag
        ]
        if mine:
            one = self._random.choice(mine)
            told = self._ask("search", one.tag)
            self._history.count("searches")
            if told.status == 0 and [hit["id"] for hit in told.document["messages"]] != [one.id]:
                self._history.fault(f"a search for {one.tag} found {told.document}")

    def _watch(self) -> None:
        self._ask("watch", "--timeout", "1")
        self._history.count("watches")

    # -- outcomes ---------------------------------------------------------------------------------

    def settle(self) -> None:
        """Repeat what has an unknown outcome: with the same key, or look whether it is there."""
        for sending in self._history.unknown_of(self.identity):
            if sending.words is not None:
                self._send(sending)
                continue
            told = self._ask("search", sending.tag)
            if told.status:
                continue
            hits = told.document["messages"]
            if hits:
                shown = self._ask("sent", hits[0]["id"]).document["messages"][0]
                known = {one.agent: one.identity for one in self._office.players}
                reached = [one["address"].partition("@")[0] for one in shown["recipients"]]
                recipients = [{"identity": known[name]} for name in reached]
                self._history.accepted(sending, {"id": hits[0]["id"], "recipients": recipients})
            else:
                self._history.not_accepted(sending, known=True)

    def _send(self, sending: Sending) -> None:
        assert sending.words is not None
        try:
            told = self._ask(*sending.words)
        except TerminalError:
            self._history.not_accepted(sending, known=False)
            raise
        self._outcome(sending, told)

    def _outcome(self, sending: Sending, told: Answer) -> None:
        if told.status == 0:
            self._history.accepted(sending, told.document)
            return
        # Once unknown, a passing refusal says nothing of the first try.
        if told.code == "policy-denied":
            self._history.count("not passed on")
        passing = sending.outcome == "unknown" and told.code in _REFUSED_PASSING
        self._history.not_accepted(sending, known=told.status != _UNKNOWN and not passing)

    def _ask(self, *words: str) -> Answer:
        """One command in this player's session. A lease that is gone is a fault of the day."""
        assert self.seat is not None
        told = self.seat.ask(*words)
        self._history.count("commands")
        if told.code in ("no-lease", "lease-lost", "lease-foreign"):
            self._history.fault(f"{self.agent} ({self.seat.session}): {words[0]}: {told.document}")
        elif told.code not in _OF_COURSE.get(words[0], _REFUSED_PASSING):
            self._history.fault(f"{self.agent}: {' '.join(words)}: {told.document}")
        return told

    def _new_tag(self) -> str:
        self._tags += 1
        return f"{self._stem}q{self._tags}"

    # -- bursts -----------------------------------------------------------------------------------

    def start_burst(self, report: Path, number: int) -> None:
        """Send raw lines to the owner, sixteen on the way at any time, until the daemon ends."""
        assert self.seat is not None
        name = f"{self._stem}-burst{number}"
        self.seat.start(f"python burst.py owner {name} {report}")

    def end_burst(self) -> None:
        """Wait until the burst has seen the end of its daemon."""
        assert self.seat is not None
        status, text = self.seat.finish()
        if status:
            self._history.fault(f"the burst of {self.agent} ended with {status}: {text}")

    def told_by_burst(self, line: str, owner: str) -> None:
        """One line of a burst's report."""
        word, key, *rest = line.split()
        words = ("send", "--to", "owner", "--subject", key, "-m", key, "--key", key)
        sending = self._history.begin(key, self.identity, words)
        if word == "accepted":
            answer = {"id": rest[0], "recipients": [{"identity": owner}]}
            self._history.accepted(sending, answer)
        else:
            self._history.not_accepted(sending, known=False)


@contextlib.contextmanager
def all_turns(players: list[Player]) -> Iterator[None]:
    """Nobody is in the middle of anything."""
    with contextlib.ExitStack() as stack:
        for player in players:
            stack.enter_context(player.turn)
        yield
