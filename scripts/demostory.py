"""What happens in the demo, chapter by chapter: each shows something and checks that it is so."""

import json
import os
import re
import select
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

from scripts.closedstore import Audit, audit_store
from scripts.demostage import ClaimError, Places, Stage, Transcript
from scripts.terminals import TIMEOUT_S, Finished, Terminal, bare_environment, parent_of

SHELLS: Final = ("ana", "ben", "cai")
"""The third one stays without an identity."""
KILL_AFTER: Final = 150
"""Accepted messages of a burst before the daemon is killed."""
_ID: Final = re.compile(r"^sent ([0-9a-z]{26})", re.MULTILINE)
SHORT: Final = 8
"""Characters of an id as people type them."""
_PAGE: Final = 200
_BODY: Final = "Which port does the API use?"
_DID: Final = "answered: 8081"
PASSPHRASE: Final = "seven quiet otters"
"""Of a key that is made for the demo and thrown away with it."""
_TERM: Final = "8h"
_LOOK_S: Final = 0.05
_AGREE: Final = re.compile(r"Type (\S+) to agree$")


@dataclass(frozen=True, slots=True)
class Differences:
    """Ids and keys that tell what went wrong: all empty when nothing did."""

    lost: list[str]
    """Ids that were accepted and did not arrive."""
    missing: list[str]
    """Keys of unknown outcome that did not arrive under the id that their repeat told."""
    doubled: list[str]
    """Keys that arrived more than once."""
    invented: list[str]
    """Ids that arrived and nobody was told of."""


def compare(kills: list[dict[str, Any]], arrived: list[dict[str, Any]]) -> Differences:
    """What was told around the kills against the recipient's inbox (`id`, `subject` = key)."""
    counts = Counter(message["subject"] for message in arrived)
    ids = {message["id"] for message in arrived}
    accepted = {told for kill in kills for told in kill["accepted"].values()}
    repeated = {key: told for kill in kills for key, told in kill["repeated"].items()}
    unknown = [key for kill in kills for key in kill["unknown"]]
    return Differences(
        lost=sorted(accepted - ids),
        missing=[key for key in unknown if repeated.get(key) not in ids],
        doubled=sorted(key for key, count in counts.items() if count > 1),
        invented=sorted(ids - accepted - set(repeated.values())),
    )


class Story:
    """Three shells and one daemon. Use it in ``with``: it starts and ends the shells."""

    def __init__(self, stage: Stage, transcript: Transcript, places: Places) -> None:
        self._stage = stage
        self._told = transcript
        self._places = places
        self._shells: dict[str, Terminal] = {}
        self._ids: dict[str, str] = {}
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}"
        term = os.environ.get("TERM", "dumb") if stage.in_colour else "dumb"
        self._env = bare_environment(path, str(places.work), str(places.home), term)

    def __enter__(self) -> Self:
        (self._places.work / "burst.py").symlink_to(Path(__file__).with_name("burst.py").resolve())
        for name in SHELLS:
            self._begin(name, self._env)
        return self

    def _begin(self, name: str, env: Mapping[str, str]) -> None:
        """Start a shell, of which everything is shown."""
        shell = Terminal(env, str(self._places.work), self._places.columns)
        self._shells[name] = shell
        shell.show = self._stage.piece

    def __exit__(self, *_: object) -> None:
        for shell in self._shells.values():
            shell.close()

    # -- chapters ---------------------------------------------------------------------------------

    def two_identities(self) -> None:
        """Two shells register, each a session of its own."""
        self._stage.chapter(1, "Two shells, each nobody's child, get an identity each")
        self._done("ana", "mbx identity register ana --role backend")
        self._done("ben", "mbx identity register ben --role frontend")
        mine = _ancestors(os.getpid())
        for name in ("ana", "ben"):
            shell = self._shells[name]
            who = self._fetched(name, "mbx whoami")
            session = who["session"]
            own = session["cli"] == "shell" and session["id"].startswith(f"{shell.pid}-")
            orphan = parent_of(shell.pid) not in mine - {1}
            self._claim(f"{name}'s shell {shell.pid} is its own session", own and orphan, who)
            fields = ("agent", "identity", "address", "role")
            kept = {field: who[field] for field in fields}
            self._told.identities.append(
                {**kept, "epoch": who["lease"]["epoch"], "session": session, "pid": shell.pid}
            )
        self._told.host = self._told.identities[0]["address"].partition("@")[2]

    def signed_mail(self) -> None:
        """Send, inbox, read, reply, ack; the sender sees each stage."""
        self._stage.chapter(2, "Signed mail, and the sender sees what became of it")
        sent = self._done("ana", f'mbx send --to ben --kind request --subject Port -m "{_BODY}"')
        request = self._ids["request"] = only_id(sent)
        short = request[:SHORT]
        stages = [self._stage_of(short)]
        listed = self._done("ben", "mbx inbox")
        self._claim("ben's inbox lists it", request[:12] in listed.text, listed.text)
        shown = self._done("ben", f"mbx read {short}")
        self._claim("ben reads ana's words", f"| {_BODY}" in shown.text, shown.text)
        stages.append(self._stage_of(short))
        answer = self._done("ben", f'mbx reply {short} -m "8081, since today."')
        self._ids["reply"] = only_id(answer)
        self._done("ben", f'mbx ack {short} --did "{_DID}"')
        stages.append(self._stage_of(short, _DID))
        wanted = ["delivered", "read", "acked"]
        self._claim(f"ana saw {' → '.join(stages)}, with what ben did", stages == wanted, stages)
        self._answer_arrives()
        self._told.messages += [
            {
                "id": request,
                "from": "ana",
                "to": "ben",
                "subject": "Port",
                "body": _BODY,
                "stages": stages,
                "did": _DID,
            },
            {"id": self._ids["reply"], "from": "ben", "to": "ana", "reply_to": request},
        ]

    def bare_shell_is_refused(self) -> None:
        """A shell without an identity gets nothing and changes nothing."""
        self._stage.chapter(3, "A third, bare shell is refused, and nothing changes")
        short = self._ids["request"][:SHORT]
        before = self._state_hash("cai")
        self._refused("mbx inbox", "no-lease", 5, in_full=True)
        for command, code, exit_status in (
            (f"mbx read {short}", "no-lease", 5),
            ("mbx send --to ana --subject hi -m hi", "no-lease", 5),
            (f"mbx reply {short} -m hi", "no-lease", 5),
            (f"mbx ack {short}", "no-lease", 5),
            ("mbx sent", "no-lease", 5),
        ):
            self._refused(command, code, exit_status)
        self._refused("mbx identity claim ana", "in-use", 1, in_full=True)
        after = self._state_hash("cai")
        self._claim("state_hash is what it was", before == after, f"{before} {after}")
        self._told.refusal_hashes = {"state_hash_before": before, "state_hash_after": after}

    def killed_in_the_middle(self, kills: int) -> None:
        """Bursts of sends, the daemon killed in each; what is unknown is sent again."""
        self._stage.chapter(4, f"kill -9 in the middle of a burst, {_times(kills)}")
        os.mkfifo(self._places.work / "report", 0o600)
        for number in range(1, kills + 1):
            self._killed_once(number)
        for name, identity in zip(("ana", "ben"), self._told.identities, strict=True):
            epoch = (self._fetched(name, "mbx whoami")["lease"] or {}).get("epoch")
            held = epoch == identity["epoch"]
            self._claim(f"{name} still holds the lease of epoch {epoch}", held, identity)

    def everything_is_there(self) -> None:
        """The recipient's inbox against what was accepted and what was repeated."""
        self._stage.chapter(5, "Nothing accepted is lost, nothing is there twice")
        arrived = self._inbox("ben")
        self._stage.note(f"ben's inbox holds {len(arrived)} messages of the bursts")
        found = compare(self._told.kills, arrived)
        accepted = sum(len(kill["accepted"]) for kill in self._told.kills)
        unknown = sum(len(kill["unknown"]) for kill in self._told.kills)
        self._claim(f"all {accepted} accepted are there, by id", not found.lost, found.lost)
        once = not (found.missing or found.doubled)
        self._claim(f"all {unknown} of unknown outcome are there once", once, found)
        self._claim("nothing else is there", not found.invented, found.invented)

    def the_owner_decides(self) -> None:
        """A key, a policy that the agent sees, and a takeover of a holder that hangs."""
        self._stage.chapter(6, "The human: a policy, and a takeover, signed on a terminal")
        self._sign("mbx owner init", ("New passphrase", "The same again:"), ())
        self._sign(f"mbx policy set ben --level collaborate --from ana --ttl {_TERM}")
        sent = self._done("ana", 'mbx send --to ben --subject Tests -m "Please run the tests."')
        shown = self._done("ben", f"mbx read {only_id(sent)[:SHORT]}")
        line = "policy: collaborate (read, edit; check in at milestones; record "
        self._claim("ben sees what ana's mail may make it do", line in shown.text, shown.text)
        who = self._fetched("cai", "mbx whoami")["session"]
        os.kill(self._shells["ben"].pid, signal.SIGSTOP)
        self._stage.line(f"   !!  ben's shell {self._shells['ben'].pid} is stopped: it hangs")
        asked = f"mbx identity takeover ben --force --cli {who['cli']} --session {who['id']}"
        self._sign(f"{asked} --reason hangs")
        held = self._fetched("cai", "mbx whoami")
        self._claim("cai's shell holds ben now", held["agent"] == "ben", held)
        os.kill(self._shells["ben"].pid, signal.SIGCONT)
        lost = self._type("ben", "mbx inbox")
        fenced = lost.status == 5 and "was taken from this session" in lost.text
        self._claim("ben's shell goes on, and is refused", fenced, lost.text)
        ben = self._told.identities[1]
        ben |= {"epoch": held["lease"]["epoch"], "session": who, "pid": self._shells["cai"].pid}
        self._told.owner = {"message": only_id(sent), "taken_over": "ben", "epoch": ben["epoch"]}

    def _sign(
        self,
        command: str,
        first: tuple[str, ...] = (),
        last: tuple[str, ...] = ("Passphrase:",),
        name: str = "cai",
    ) -> None:
        """A command of an owner's at a terminal: read, agree, and give the passphrase."""
        shell = self._shells[name]
        self._stage.command(name, command)
        shell.start(command)
        for question in first:
            shell.wait_for(question)
            shell.start(PASSPHRASE)
        self._agree(name)
        for question in last:
            shell.wait_for(question)
            shell.start(PASSPHRASE)
        done = shell.finish()
        self._note_command(name, command, done)
        self._claim("signed with the owner's key, and applied", done.status == 0, done.text)

    def _agree(self, name: str) -> None:
        """Type what a terminal asks for below a record."""
        found = _AGREE.search(self._shells[name].wait_for(" to agree"))
        if found is None:
            raise ClaimError("the owner is not asked to agree")
        self._shells[name].start(found[1])

    def shells_have_ended(self) -> None:
        """The identities of ended shells are free for others, at once."""
        self._stage.chapter(11, "The shells end; the stores are looked at from outside")
        states: dict[str, tuple[str, bool]] = {}

        def all_gone() -> bool:
            for env in self._everywhere():
                for one in self._open("identity", "list", env=env)["identities"]:
                    states[one["name"]] = (one["state"], one["claimable"])
            return all(state == ("lapsed", True) for state in states.values())

        gone = until(all_gone)
        names = f"{len(states)} identities"
        self._claim(f"all {names} outlive their shells and can be claimed", gone, states)

    def stores_from_outside(self) -> None:
        """Stop the daemons, then verify every signature in their files."""
        stopped = [self._open("daemon", "stop", env=env)["stopped"] for env in self._everywhere()]
        self._claim("the daemons stop", all(stopped), stopped)
        found = self._audited(self._places.home, self._all_told())
        self._told.closed = {
            "state_hash": found.state_hash,
            "messages": len(found.messages),
            "receipts": found.receipts,
            "leases": found.leases,
            "audit_rows": found.audit_rows,
        }

    def _everywhere(self) -> list[Mapping[str, str]]:
        """The environments of all homes."""
        return [self._env]

    def _all_told(self) -> set[str]:
        """The ids of all messages of the first host."""
        told = {message["id"] for message in self._told.messages} | {self._told.owner["message"]}
        for kill in self._told.kills:
            told |= {*kill["accepted"].values(), *kill["repeated"].values()}
        return told

    def _audited(self, home: Path, told: set[str]) -> Audit:
        """Every record of a closed store is verified, and nothing is there but what was told."""
        found = audit_store(home / "store.db")
        self._stage.note(
            f"{home.name}: {len(found.messages)} messages, {found.receipts} receipts,"
            f" {found.leases} leases, {found.audit_rows} audit rows"
        )
        self._claim("every record verifies with its host's key", not found.faults, found.faults)
        same = sorted(told) == sorted(found.messages)
        extra = sorted({*found.messages} ^ told)
        self._claim("the store holds exactly the messages told here", same, extra)
        return found

    # -- parts of chapters ------------------------------------------------------------------------

    def _stage_of(self, short: str, did: str = "") -> str:
        """The stage of the request as its sender is told."""
        shown = self._done("ana", f"mbx sent {short}")
        found = re.search(r"^  ben@\S+: (\S+)", shown.text, re.MULTILINE)
        if did and f"did: {did}" not in shown.text:
            raise ClaimError(f"the sender is not told what was done: {shown.text}")
        return found.group(1) if found else "nothing"

    def _answer_arrives(self) -> None:
        short = self._ids["reply"][:SHORT]
        self._done("ana", "mbx inbox")
        shown = self._done("ana", f"mbx read {short}")
        self._done("ana", f"mbx ack {short}")
        self._claim("ana reads ben's answer", "| 8081, since today." in shown.text, shown.text)

    def _refused(self, command: str, code: str, exit_status: int, *, in_full: bool = False) -> None:
        """A command of the bare shell is refused; `in_full` shows the answer on the screen."""
        target = "" if in_full else " > cai.json"
        done = self._type("cai", f"{command} --json{target}")
        said = done.text if in_full else (self._places.work / "cai.json").read_text()
        told = json.loads(said)["error"]
        attempt = {"command": command, "exit": done.status, "code": told["code"]}
        self._told.refusals.append(attempt)
        held = (done.status, told["code"]) == (exit_status, code)
        self._claim(f"refused: {code}, exit {exit_status}", held, attempt)

    def _killed_once(self, number: int) -> None:
        name = f"burst{number}"
        pid = self._open("daemon", "status")["pid"]
        accepted, unknown = self._burst("ben", name, [(KILL_AFTER, pid)])
        repeated, kept = self._repeat("ben", name, unknown)
        now = self._open("daemon", "status")["pid"]
        self._claim(f"daemon {pid} was killed, {now} serves now", now != pid, now)
        self._claim(
            f"{len(accepted)} accepted; {len(unknown)} unknown, sent again with the same keys",
            bool(unknown) and sorted(repeated) == sorted(unknown),
            [unknown, repeated],
        )
        self._stage.note(f"of the unknown, {len(kept)} had been stored before the kill")
        self._told.kills.append(
            {
                "signal": "SIGKILL",
                "pid": pid,
                "pid_afterwards": now,
                "accepted": accepted,
                "unknown": unknown,
                "repeated": repeated,
                "stored_before": kept,
            }
        )

    def _burst(
        self, to: str, name: str, victims: Sequence[tuple[int, int]]
    ) -> tuple[dict[str, str], list[str]]:
        """Accepted keys with their ids, and the keys of unknown outcome.

        `victims`: after so many accepted this process is killed; the last is ana's own daemon.
        """
        report = os.open(self._places.work / "report", os.O_RDONLY | os.O_NONBLOCK)
        left = [(after, pid, os.pidfd_open(pid)) for after, pid in victims]
        command = f"python burst.py {to} {name} report"
        self._stage.command("ana", command)
        self._shells["ana"].start(command)
        text = ""
        try:
            while piece := _next_piece(report, self._shells["ana"]):
                text += piece
                while left and text.count("\naccepted ") >= left[0][0]:
                    _, pid, daemon = left.pop(0)
                    signal.pidfd_send_signal(daemon, signal.SIGKILL)
                    os.close(daemon)
                    self._stage.line(f"   !!  kill -9 {pid}")
        finally:
            os.close(report)
        done = self._shells["ana"].finish()
        self._note_command("ana", command, done)
        if done.status or left:
            raise ClaimError(f"the burst did not meet the kill: {done.text}")
        words = [line.split() for line in text.splitlines()]
        accepted = {key: rest[0] for word, key, *rest in words if word == "accepted"}
        return accepted, [key for word, key, *_ in words if word == "unknown"]

    def _repeat(self, to: str, name: str, unknown: list[str]) -> tuple[dict[str, str], list[str]]:
        """Send again under the same keys: key -> id, and which keys had been stored before."""
        work = self._places.work
        (work / f"{name}.unknown").write_text("".join(f"{key}\n" for key in unknown))
        self._done(
            "ana",
            f"while read k; do mbx send --to {to} --subject $k -m $k --key $k --json\n"
            f"done < {name}.unknown > {name}.repeated",
        )
        answers = [json.loads(line) for line in (work / f"{name}.repeated").open()]
        pairs = list(zip(unknown, answers, strict=True))
        kept = [key for key, answer in pairs if answer["duplicate"]]
        return {key: answer["id"] for key, answer in pairs}, kept

    def _inbox(self, name: str) -> list[dict[str, Any]]:
        """All that waits."""
        return self._pages(name, "mbx inbox", self._fetched)

    def _pages(
        self, name: str, listing: str, ask: Callable[[str, str], Any]
    ) -> list[dict[str, Any]]:
        """All messages of a listing, page by page."""
        found: list[dict[str, Any]] = []
        command = f"{listing} --limit {_PAGE}"
        while True:
            page = ask(name, command)
            found += page["messages"]
            if not page["has_more"]:
                return found
            command = f"{listing} --limit {_PAGE} --cursor {page['next_cursor']}"

    # -- commands ---------------------------------------------------------------------------------

    def _type(self, name: str, command: str) -> Finished:
        """Type a command at a shell, show it and what it says."""
        self._stage.command(name, command.replace("\n", "\n   > "))
        done = self._shells[name].run(command)
        if done.status:
            self._stage.status(done.status)
        self._note_command(name, command, done)
        return done

    def _done(self, name: str, command: str) -> Finished:
        """As `_type`. Raises ClaimError when the command fails."""
        done = self._type(name, command)
        if done.status:
            raise ClaimError(f"{command}: exit {done.status}: {done.text}")
        return done

    def _fetched(self, name: str, command: str) -> Any:
        """The JSON answer of a command, which goes to a file and not to the screen."""
        self._done(name, f"{command} --json > {name}.json")
        return json.loads((self._places.work / f"{name}.json").read_bytes())

    def _looked(self, name: str, command: str) -> Any:
        """As `_fetched`, again and again: nothing of it is shown."""
        done = self._shells[name].run(f"{command} --json > {name}.json")
        if done.status:
            raise ClaimError(f"{command}: exit {done.status}: {done.text}")
        return json.loads((self._places.work / f"{name}.json").read_bytes())

    def _state_hash(self, name: str) -> str:
        found: str = self._fetched(name, "mbx daemon status --hash")["state_hash"]
        self._stage.note(f"state_hash {found[:32]}…")
        return found

    def _open(self, *words: str, env: Mapping[str, str] | None = None) -> Any:
        """The JSON answer of a command that needs no lease, run by the demo itself.

        `env`: that of another home than the first one.
        """
        command = [str(Path(sys.executable).with_name("mbx")), *words, "--json"]
        done = subprocess.run(command, env=env or self._env, capture_output=True, check=True)
        return json.loads(done.stdout)

    def _note_command(self, name: str, command: str, done: Finished) -> None:
        self._told.commands.append({"shell": name, "command": command, "exit": done.status})

    def _claim(self, text: str, held: bool, detail: object) -> None:
        told = "" if held else json.dumps(detail, default=str)[:2_000]
        self._told.claim(text, held, told)
        self._stage.claim(text, held, told)


def until(look: Callable[[], bool]) -> bool:
    """Whether `look` becomes true within the time that any command may take."""
    deadline = time.monotonic() + TIMEOUT_S
    while not (found := look()) and time.monotonic() < deadline:
        time.sleep(_LOOK_S)
    return found


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


def only_id(done: Finished) -> str:
    """The id of the message that a command has sent. Raises ClaimError."""
    found = _ID.search(done.text)
    if found is None:
        raise ClaimError(f"no message id in {done.text!r}")
    return found.group(1)


def _ancestors(pid: int) -> set[int]:
    """The process and all above it."""
    found = {pid}
    while pid > 1:
        pid = parent_of(pid)
        found.add(pid)
    return found


def _next_piece(report: int, shell: Terminal) -> str:
    """What a burst reports next; empty when it has closed its end."""
    events = select.poll()
    events.register(report, select.POLLIN)
    if not events.poll(TIMEOUT_S * 1000):
        raise ClaimError(f"the burst of shell {shell.pid} says nothing")
    return os.read(report, 65_536).decode()
