"""The owner in a contest for leases, as a program: it has takeovers drafted, signs and brings them.

Two desks share the owner's key, and hand each other records that both bring at once. What each
does, its seed says; when, standard input does: ``t`` one record, ``q`` one for each name while all
is quiet (a byte tells of the end), ``k`` one under which the daemon is killed (a byte tells that it
is on its way). The journal is that of `tests.support.claimant`.
"""

import contextlib
import json
import os
import random
import select
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from mbx.core.keys import SigningKey, key_id
from mbx.core.record import sign
from tests.support.claimant import NAMES, Caller, Gone

KEY: Final = SigningKey.from_seed(b"the owner of a contest of eight.")
_MESSAGE_MAX_BYTES: Final = 65_536
_KEPT_MAX: Final = 4
_RECENT: Final = 40
_DRAFTS_MAX: Final = 3
_HOW: Final = {"as drafted": 12, "epoch": 3, "its holder": 2, "a holder": 2, "a dead one": 2}
"""What is signed, and how often: the draft, or a draft with another epoch or destination."""

Signed = tuple[dict[str, Any], dict[str, Any]]
"""A record as it travels, and what the journal says of it."""


class Proprietor(Caller):
    """The owner at one of two desks."""

    told = ("identities", "payload", "id", "duplicate", "agent", "before", "after", "acceptance")

    def __init__(
        self, path: str, journal_path: str, roll: str, seed: str, peer: socket.socket
    ) -> None:
        """`roll`: a file that says which sessions there are. `peer`: leads to the other desk."""
        super().__init__(path, journal_path)
        self.roll = Path(roll)
        self.chance = random.Random(seed)
        self.peer: socket.socket | None = peer
        self.brought: list[Signed] = []
        self.kept: list[Signed] = []
        """Signed, and not brought yet: the lease will have gone on by then."""
        self.is_awaited = False
        """Somebody waits until a record is on its way."""

    def run(self) -> None:
        """Until standard input ends."""
        self.connect()
        acts = {"t": self.act, "q": self.go_round, "k": self.risk, ".": self.come_back}
        while True:
            peer = -1 if self.peer is None else self.peer.fileno()
            watched = [one for one in (peer, 0) if one >= 0]
            if not self.heard and peer in select.select(watched, [], [])[0]:
                self.attempt(self.join)
            else:
                self.attempt(acts[self.next_word()])

    def attempt(self, act: Callable[[], None]) -> None:
        """Do something; if the daemon goes away under it, bring what was on its way again."""
        before = len(self.brought)
        try:
            act()
        except Gone:
            for record, about in self.brought[before:][-1:]:
                self.bring(record, {**about, "how": "after a kill"})

    # -- what it does ---------------------------------------------------------------------------

    def act(self) -> None:
        """One record: an old one, one that was kept back, or a new one."""
        drawn = self.chance.random()
        if drawn < 0.20 and self.brought:
            record, about = self.chance.choice(self.brought[-_RECENT:])
            self.bring(record, {**about, "how": "again"})
            return
        if drawn < 0.32 and self.kept:
            self.bring(*self.kept.pop(0))
            return
        signed = self.signed(self.chance.choice(NAMES))
        if signed is None:
            return
        if self.chance.random() < 0.12 and len(self.kept) < _KEPT_MAX:
            self.kept.append((signed[0], {**signed[1], "how": "kept back"}))
            return
        if self.chance.random() < 0.4 and self.peer is not None:
            with contextlib.suppress(OSError):  # at the end the other desk is closed first
                self.peer.send(json.dumps(signed).encode())
        self.bring(*signed)

    def go_round(self) -> None:
        """Each identity once, and one for who holds it, while nobody else does anything."""
        for name in self.chance.sample(NAMES, len(NAMES)):
            signed = self.signed(name, "as drafted")
            if signed is not None:
                self.bring(*signed)
        signed = self.signed(self.chance.choice(NAMES), "its holder")
        if signed is not None:
            self.bring(*signed)
        os.write(1, b"q")

    def risk(self) -> None:
        """A record that is on its way when the daemon is killed."""
        self.is_awaited = True
        for name in self.chance.sample(NAMES, len(NAMES)):
            signed = self.signed(name, "as drafted")
            if signed is not None:
                self.bring(signed[0], {**signed[1], "how": "under a kill"})
                return
        self.on_its_way()

    def come_back(self) -> None:
        """There is a daemon again: speak to it, not to the one that is gone."""
        assert self.socket is not None
        if select.select([self.socket], [], [], 0)[0]:
            self.connect()

    def join(self) -> None:
        """Bring what the other desk brings, now."""
        assert self.peer is not None
        message = self.peer.recv(_MESSAGE_MAX_BYTES)
        if message:
            record, about = json.loads(message)
            self.bring(record, {**about, "how": "by both"})
        else:
            self.peer = None

    # -- records --------------------------------------------------------------------------------

    def signed(self, name: str, how: str = "") -> Signed | None:
        """A takeover of the name, drafted by the daemon, perhaps changed (how?), signed here."""
        listed = self.tell("identity.list", {})["identities"]
        holding = {one["holder"]["pid"]: one["name"] for one in listed if one["holder"]}
        sessions = [json.loads(line) for line in self.roll.read_text().splitlines()]
        living = [*{one["slot"]: one for one in sessions}.values()]
        idle = [one for one in living if one["pid"] not in holding]
        for to in self.chance.sample(idle, min(len(idle), _DRAFTS_MAX)):
            draft = self.draft(name, to)
            if draft is not None:
                break
        else:
            return None
        how = how or self.chance.choices([*_HOW], [*_HOW.values()])[0]
        others = {
            "its holder": [one for one in living if holding.get(one["pid"]) == name],
            "a holder": [one for one in living if holding.get(one["pid"], name) != name],
            "a dead one": [one for one in sessions if one not in living],
        }.get(how, [])
        if others:
            to = self.chance.choice(others)
        content = json.loads(draft["payload"])
        label = to["names"][-1] if to not in living else self.chance.choice(to["names"])
        content["destination"] = {"cli": to["cli"], "session": label}
        if how == "epoch":
            content["epoch"] = max(0, content["epoch"] + self.chance.choice((-2, -1, -1, 1)))
        record = sign("takeover", content, KEY, key_id("owner", KEY.public))
        travels = {"kind": record.kind, "payload": record.payload, "signatures": record.signatures}
        about = {"record": record.id, "name": name, "expects": content["epoch"], "how": how}
        return travels, {**about, "to": to["number"], "label": label}

    def draft(self, name: str, to: dict[str, Any]) -> dict[str, Any] | None:
        """What the daemon would have the owner sign; None where it refuses."""
        wanted = {"act": "takeover", "name": name, "cli": to["cli"]}
        answer = self.tell("owner.draft", {**wanted, "session": self.chance.choice(to["names"])})
        return None if "code" in answer else answer

    def bring(self, record: dict[str, Any], about: dict[str, Any]) -> None:
        """Apply it."""
        self.brought.append((record, about))
        self.tell("owner.apply", {"record": record}, **about)

    def say(self, method: str, params: dict[str, Any]) -> None:
        super().say(method, params)
        if method == "owner.apply":
            self.on_its_way()

    def on_its_way(self) -> None:
        """Tell whoever waits for it."""
        if self.is_awaited:
            self.is_awaited = False
            os.write(1, b"k")


def main(path: str, journal: str, roll: str, seed: str, peer: str) -> None:
    """Serve the desk; `peer`: the number of a descriptor."""
    with socket.socket(fileno=int(peer)) as other:
        Proprietor(path, journal, roll, seed, other).run()
