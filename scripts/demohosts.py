"""The demo's second machine: its own home and daemon, two people, mail as name@host, a kill.

Both "machines" are homes on this one, paired over TLS on the loopback address.
"""

import re
from collections.abc import Mapping
from typing import Any, Final, Self

from scripts.demostage import ClaimError
from scripts.demostory import PASSPHRASE, SHORT, Differences, Story, compare, only_id, until
from scripts.ports import reserve_port
from scripts.terminals import Finished

HERE: Final = "desktop"
THERE: Final = "laptop"
"""What the two machines are called by each other's people."""
DORA: Final = f"dora@{THERE}"
_KILL_THERE: Final = 75
_KILL_BOTH: Final = 150
"""Accepted messages of the burst before the other daemon is killed, and before ana's own is."""
_CODE: Final = re.compile(r"\b(?:[0-9A-Z]{4}-){6}[0-9A-Z]{4}\b")
_DIGITS: Final = re.compile(r"\b\d{4} \d{4} \d{4}\b")
_SAME: Final = "show the same? (yes or no) "
_QUESTION: Final = "Do the tests pass on your machine?"
_DID: Final = "ran them: 212 passed"


class PairedStory(Story):
    """The story with a second machine: dora works there, eve is the person who owns it."""

    def __enter__(self) -> Self:
        super().__enter__()
        self._there = self._places.work / THERE
        self._there.mkdir(mode=0o700)
        self._env_there = {**self._env, "MBX_HOME": str(self._there)}
        for name in ("dora", "eve"):
            self._begin(name, self._env_there)
        return self

    # -- chapters ---------------------------------------------------------------------------------

    def two_people_pair(self) -> None:
        """A code, twelve digits on both screens, a record signed on each side."""
        self._stage.chapter(7, f"A second machine, {THERE}: two people pair it with this one")
        self._stage.note(f"dora and eve are there: MBX_HOME={self._there}")
        self._done("dora", "mbx identity register dora --role tester")
        self._sign("mbx owner init", ("New passphrase", "The same again:"), (), name="eve")
        address = f"127.0.0.1:{reserve_port()}"
        invite = f"mbx pair --listen {address} --label {THERE}"
        join = f"mbx join {address} --label {HERE}"
        code = _CODE.search(self._asked("cai", invite, "(Ctrl-C to leave) ..."))
        if code is None:
            raise ClaimError("no code is shown")
        self._asked("eve", join, "Code that the other host shows: ")
        self._shells["eve"].start(code[0])
        shown = [self._digits("eve")]
        self._stage.turn("cai")
        shown.append(self._digits("cai"))
        self._claim("both screens show the same twelve digits", shown[0] == shown[1], shown)
        self._stage.turn("cai")
        self._agree_to_pair("cai")
        self._shells["cai"].wait_for("to agree ...")
        self._stage.turn("eve")
        self._agree_to_pair("eve")
        self._is_paired("eve", join, HERE)
        self._stage.turn("cai")
        self._is_paired("cai", invite, THERE)
        up = until(lambda: self._peer()["state"] == "up")
        self._claim("a link stands between the two, over TLS", up, self._peer())
        self._told.hosts = {
            "label": THERE,
            "address": address,
            "keys": [self._peer()["host"], self._peer_there()["host"]],
        }

    def mail_between_hosts(self) -> None:
        """A request to name@host, and what became of it, by receipts of the other host's."""
        self._stage.chapter(8, f"Agents write as name@host; receipts come back from {THERE}")
        known = until(lambda: DORA in self._addresses())
        self._claim(f"this machine has heard of {DORA}", known, self._addresses())
        self._asked("dora", "mbx watch", "")
        send = f'mbx send --to {DORA} --kind request --subject Tests -m "{_QUESTION}"'
        request = only_id(self._done("ana", send))
        self._stage.turn("dora")
        woken = self._ended("dora", "mbx watch")
        self._claim("dora's waiting shell is told, over there", woken.status == 0, woken.text)
        shown = self._done("dora", f"mbx read {request[:SHORT]}").text
        told = f"| {_QUESTION}" in shown and f"from ana@{HERE}" in shown
        self._claim(f"dora reads the words of ana@{HERE}", told, shown)
        answer = f'--final acted --did "{_DID}" -m "Yes, all 212."'
        reply = only_id(self._done("dora", f"mbx reply {request[:SHORT]} {answer}"))
        until(lambda: self._copy(request)["stage"] == "acked")
        self._done("ana", f"mbx sent {request[:SHORT]}")
        copy = self._copy(request)
        same = (copy["stage"], copy["outcome"], copy["did"]) == ("acked", "acted", _DID)
        self._claim("ana is told: acked, acted, and what dora did", same, copy)
        until(lambda: bool(self._looked("ana", "mbx whoami")["unread"]))
        back = self._done("ana", f"mbx read {reply[:SHORT]}").text
        self._claim(f"dora's answer is here, from {DORA}", f"from {DORA}" in back, back)
        self._told.hosts |= {"request": request, "reply": reply, "did": _DID}

    def killed_on_the_way(self) -> None:
        """Both daemons are killed in a burst between them; nothing accepted is lost."""
        self._stage.chapter(9, f"kill -9 on {THERE} amid mail to it, then on this machine")
        there = self._open("daemon", "status", env=self._env_there)["pid"]
        here = self._open("daemon", "status")["pid"]
        victims = [(_KILL_THERE, there), (_KILL_BOTH, here)]
        accepted, unknown = self._burst(DORA, "far", victims)
        repeated, _ = self._repeat(DORA, "far", unknown)
        count = len(accepted)
        self._claim(
            f"{count} accepted, {len(unknown)} unknown, sent again with the same keys",
            sorted(repeated) == sorted(unknown),
            [unknown, repeated],
        )
        self._done("ana", "mbx peers list")
        peer = self._peer()
        down = (peer["state"], peer["queued"] > 0) == ("down", True)
        self._claim(f"{THERE} is away, and {peer['queued']} messages wait for it", down, peer)
        self._stage.note("dora's next command starts the daemon there; it dials")
        who = self._fetched("dora", "mbx whoami")
        self._claim("dora still holds her identity", who["agent"] == "dora", who)
        kill = {"accepted": accepted, "unknown": unknown, "repeated": repeated}
        wanted = {*accepted.values(), *repeated.values()}
        until(lambda: self._peer()["queued"] == 0)
        found = compare([kill], self._inbox("dora"))
        held = found == Differences([], [], [], [])
        self._claim(f"all {len(wanted)} are in dora's inbox, each once", held, found)
        told = until(lambda: wanted <= self._arrived())
        self._claim("signed receipts for all of them are back", told, len(self._arrived()))
        self._told.hosts |= {"kill": kill, "killed": [there, here]}

    def the_owner_ends_it(self) -> None:
        """The owner here removes the other host; mail goes neither way any more."""
        self._stage.chapter(10, "The owner removes the pairing")
        self._sign(f"mbx peers remove {THERE} --reason sold")
        lost = self._type("ana", f"mbx send --to {DORA} --subject hi -m hi")
        self._claim(f"nobody here writes to {THERE} any more", lost.status != 0, lost.text)
        heard = until(lambda: self._peer_there()["state"] == "removed-us")
        self._claim(f"{THERE} has heard of it", heard, self._peer_there())
        lost = self._type("dora", f"mbx send --to ana@{HERE} --subject hi -m hi")
        self._claim("nor does anybody there write to here", lost.status != 0, lost.text)
        notices = self._fetched("eve", "mbx inbox --owner")["messages"]
        self._claim("eve finds a notice of it in her mail", len(notices) == 1, notices)
        self._told.hosts["notice"] = notices[0]["id"]

    def stores_from_outside(self) -> None:
        """The other machine's store too: mail of both hosts, each with its host's signature."""
        super().stores_from_outside()
        told = self._told_between() | {self._told.hosts["notice"]}
        found = self._audited(self._there, told)
        closed = {"messages": len(found.messages), "receipts": found.receipts}
        self._told.hosts["closed"] = closed

    # -- parts of chapters ------------------------------------------------------------------------

    def _asked(self, name: str, command: str, shown: str) -> str:
        """Start a command that asks somebody something; what it shows up to there."""
        self._stage.command(name, command)
        self._shells[name].start(command)
        return self._shells[name].wait_for(shown)

    def _digits(self, name: str) -> str:
        """What a terminal shows to be compared. Raises ClaimError."""
        found = _DIGITS.search(self._shells[name].wait_for(_SAME))
        if found is None:
            raise ClaimError(f"{name} is shown no digits")
        return found[0]

    def _agree_to_pair(self, name: str) -> None:
        """Say that the digits are the same, look at the record, and sign it."""
        shell = self._shells[name]
        shell.start("yes")
        self._agree(name)
        shell.wait_for("Passphrase:")
        shell.start(PASSPHRASE)

    def _is_paired(self, name: str, command: str, other: str) -> None:
        """The end of a pairing at one terminal."""
        done = self._ended(name, command)
        held = done.status == 0 and f"paired with {other}" in done.text
        self._claim(f"{name} is told: paired with {other}", held, done.text)

    def _ended(self, name: str, command: str) -> Finished:
        """The end of a command that was started before."""
        done = self._shells[name].finish()
        self._note_command(name, command, done)
        return done

    def _peer(self) -> dict[str, Any]:
        """What this machine tells of the other one."""
        return self._row(self._env, THERE)

    def _peer_there(self) -> dict[str, Any]:
        """And that one of this."""
        return self._row(self._env_there, HERE)

    def _row(self, env: Mapping[str, str], label: str) -> dict[str, Any]:
        listed = self._open("peers", "list", env=env)["peers"]
        return next(one for one in listed if one["label"] == label)

    def _addresses(self) -> list[str]:
        return [one["address"] for one in self._open("agents")["agents"]]

    def _copy(self, message: str) -> dict[str, Any]:
        """What ana is told of the one copy of a message."""
        [sent] = self._looked("ana", f"mbx sent {message}")["messages"]
        [copy] = sent["recipients"]
        found: dict[str, Any] = copy
        return found

    def _arrived(self) -> set[str]:
        """The messages to dora that are in her mailbox by a receipt that ana's host has."""
        every = self._pages("ana", "mbx sent", self._looked)
        return {
            one["id"]
            for one in every
            for copy in one["recipients"]
            if copy["address"] == DORA and copy["stage"] in ("delivered", "read", "acked")
        }

    def _everywhere(self) -> list[Mapping[str, str]]:
        return [self._env, self._env_there]

    def _all_told(self) -> set[str]:
        return super()._all_told() | self._told_between()

    def _told_between(self) -> set[str]:
        """The ids of all messages from host to host."""
        hosts = self._told.hosts
        kill = hosts["kill"]
        burst = {*kill["accepted"].values(), *kill["repeated"].values()}
        return {hosts["request"], hosts["reply"]} | burst
