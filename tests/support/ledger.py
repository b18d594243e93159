"""What was asked of a daemon, what it answered, and what a crash left: a pure checker.

A *fact* is one effect that a request has in the store, as a tuple of words; each can come about
only once (keys and names are fresh, epochs grow). A request is known by its facts: answered means
each is there once, unanswered means all or none. The tests of this module come first: bad histories
that it must find (tests/e2e/test_ledger.py).
"""

import json
import re
from collections import Counter
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from tests.sim.checker import unsound
from tests.sim.image import Image

Fact = tuple[str, ...]
"""One effect in the store, for example ("copy", key, label of the recipient)."""

Outcome = Literal["answered", "refused", "unknown"]
READ: Final = 4
ACKED: Final = 5
"""Stages as in `mbx.core.delivery`, told again here."""

PRIVATE_FOLDER: Final = 0o40700
PRIVATE_FILE: Final = 0o100600
PRIVATE_SOCKET: Final = 0o140600
PRIVATE_PIPE: Final = 0o010600
LINK: Final = 0o120777
_OWN: Final = re.compile(r"[0-9]+-[0-9]+")
"""What a session goes by that no other process does."""
LASTING: Final = {
    "store.db": PRIVATE_FILE,
    "store.db-wal": PRIVATE_FILE,
    "host.key": PRIVATE_FILE,
    "daemon.lock": PRIVATE_FILE,
    "daemon.log": PRIVATE_FILE,
    "floor": PRIVATE_FOLDER,
    "floor/floor.json": PRIVATE_FILE,
    "run": PRIVATE_FOLDER,
    "run/mbx.sock": PRIVATE_SOCKET,
    "run/sessions": PRIVATE_FOLDER,
    "run/snapshots": PRIVATE_FOLDER,
    "run/snapshots/fresh": PRIVATE_FILE,
    "run/snapshots/said": PRIVATE_PIPE,
}
"""What may lie in a home while its daemon runs, besides credentials: path and mode (`st_mode`)."""

BACKUP: Final = "store.db.before-"
"""A backup before an upgrade has this name and a number."""


@dataclass
class Request:
    """One call: requests of one `line` are carried out in the order in which they were made."""

    label: str
    line: str
    facts: frozenset[Fact]
    outcome: Outcome = "unknown"


@dataclass(frozen=True)
class Act:
    """A row of the audit log about a lease: "claim", "release", "lapse"."""

    act: str
    identity: str
    epoch: int


@dataclass(frozen=True)
class Left:
    """What a store has, read after a crash or a stop."""

    facts: Counter[Fact]
    acts: tuple[Act, ...] = ()
    complaints: tuple[str, ...] = ()
    is_older: bool = False
    """The store is not of this schema yet, or nobody's: only the complaints can be told."""


@dataclass(frozen=True)
class Grant:
    """A lease as `identity.list` tells it: who holds what since which epoch."""

    name: str
    identity: str
    session: tuple[str, str]
    epoch: int


@dataclass(frozen=True)
class Entry:
    """A file of a home: `st_mode`, and for credentials what they say (None: not readable)."""

    mode: int
    content: Mapping[str, Any] | None = None


def left_in(image: Image) -> Left:
    """A store's rows as facts. Identities are called what they were registered as."""
    names = {row.identity: row.content["name"] for row in image.audit if row.act == "register"}
    label = {no: names.get(identity, "owner") for no, identity in image.identities}
    keys = {message.no: _key(message.content["body"]) for message in image.messages}
    facts: Counter[Fact] = Counter(("answer", key) for _, key in image.answers)
    facts.update(("message", key) for key in keys.values())
    for copy in image.deliveries:
        key, owner = keys.get(copy.message_no, "?"), label[copy.recipient_no]
        facts.update([("copy", key, owner)])
        facts.update([("read", key, owner)] if copy.stage >= READ else [])
        facts.update([("acked", key, owner)] if copy.stage >= ACKED else [])
    acts: list[Act] = []
    for row in image.audit:
        name = names.get(row.identity or "", "?")
        if row.act == "register":
            facts.update([("register", name)])
        elif row.act == "rename":
            facts.update([("rename", name, row.content["name"])])
        elif row.act in {"claim", "release", "lapse"}:
            acts.append(Act(row.act, name, row.content["epoch"]))
            if row.act != "lapse":
                facts.update([(row.act, name, str(row.content["epoch"]))])
    return Left(facts, tuple(acts), tuple(unsound(image)))


def _key(body: str) -> str:
    return body.split(" ", 1)[0]


def violations(requests: Sequence[Request], left: Left) -> list[str]:
    """What a store after a crash has that it must not have, or lacks; each begins with its I."""
    if left.is_older:
        return [f"I17: {complaint}" for complaint in left.complaints]
    return [
        *_lost(requests, left),
        *(f"I2: {fact} {count} times" for fact, count in left.facts.items() if count > 1),
        *_invented(requests, left),
        *_torn(requests, left),
        *_no_prefix(requests, left),
        *_tenures(left.acts),
        *(f"I17: {complaint}" for complaint in left.complaints),
    ]


def is_there(request: Request, left: Left) -> bool:
    """Whether a request of unknown outcome was carried out."""
    return all(left.facts[fact] for fact in request.facts)


def _lost(requests: Sequence[Request], left: Left) -> Iterable[str]:
    for request in requests:
        if request.outcome == "answered":
            for fact in request.facts - left.facts.keys():
                yield f"I1: {request.label} was answered, {fact} is not there"


def _invented(requests: Sequence[Request], left: Left) -> Iterable[str]:
    asked = {fact for request in requests for fact in request.facts}
    return (f"I3: nobody asked for {fact}" for fact in left.facts.keys() - asked)


def _torn(requests: Sequence[Request], left: Left) -> Iterable[str]:
    for request in requests:
        there = request.facts & left.facts.keys()
        if request.outcome == "unknown" and there and there != request.facts:
            yield f"I4: {request.label} was done in part: {sorted(there)}"
        if request.outcome == "refused" and there:
            yield f"I4: {request.label} was refused, but {sorted(there)}"


def _no_prefix(requests: Sequence[Request], left: Left) -> Iterable[str]:
    missing: dict[str, str] = {}
    for request in requests:
        if request.outcome == "refused":
            continue
        if not is_there(request, left):
            missing.setdefault(request.line, request.label)
        elif request.line in missing:
            yield f"I18: {request.label} is there, {missing[request.line]} before it is not"


def _tenures(acts: Sequence[Act]) -> Iterable[str]:
    newest: dict[str, int] = {}
    held: set[str] = set()
    for act in acts:
        if act.act == "claim":
            if act.identity in held:
                yield f"I6: {act.identity} was granted in epoch {act.epoch} while it was held"
            if act.epoch <= newest.get(act.identity, 0):
                yield f"I7: epoch {act.epoch} of {act.identity} after {newest[act.identity]}"
            newest[act.identity] = act.epoch
            held.add(act.identity)
        elif act.epoch == newest.get(act.identity):
            held.discard(act.identity)


def lease_faults(before: Mapping[str, Grant], now: Sequence[Grant]) -> list[str]:
    """What is wrong with the leases after a restart; `before` is by immutable identity id."""
    found = []
    for what, keys in (
        ("identity", [grant.identity for grant in now]),
        ("session", [grant.session for grant in now]),
    ):
        doubled = [key for key, count in Counter(keys).items() if count > 1]
        found += [f"I6: {what} {key} is in two leases" for key in doubled]
    for grant in now:
        known = before.get(grant.identity)
        if known is None or grant.epoch > known.epoch:
            continue
        if grant.epoch < known.epoch:
            found.append(f"I7: {grant.name} went from epoch {known.epoch} to {grant.epoch}")
        elif grant.session != known.session:
            found.append(f"I6: epoch {grant.epoch} of {grant.name} has two holders")
    return found


def file_faults(
    entries: Mapping[str, Entry], grants: Sequence[tuple[str, Grant]], *, is_upgraded: bool = False
) -> list[str]:
    """What is wrong with the files of a home; `grants` has the path of each one's credential."""
    found = []
    wanted = dict(grants)
    for path, entry in entries.items():
        grant = wanted.get(path)
        mode = PRIVATE_FILE if grant is not None else _mode_of(path, wanted)
        if mode is None and is_upgraded and path.startswith(BACKUP) and path[-1].isdigit():
            mode = PRIVATE_FILE
        if mode is None:
            found.append(f"I17: {path} is left over")
        elif entry.mode != mode:
            found.append(f"I17: {path} has mode {entry.mode:o}, not {mode:o}")
        if grant is not None:
            told = entry.content or {}
            if (told.get("identity"), told.get("epoch")) != (grant.identity, grant.epoch):
                found.append(f"I17: the credential of {grant.name} is not of its grant: {told}")
    found += [f"I17: {path} is missing" for path in wanted if path not in entries]
    return found


def _mode_of(path: str, wanted: Container[str]) -> int | None:
    """The mode of what may lie beside credentials; a snapshot only of a session that holds."""
    folder, _, name = path.rpartition("/")
    if folder != "run/snapshots" or path in LASTING:
        return LASTING.get(path)
    if _OWN.fullmatch(name):
        return LINK
    is_known = f"run/sessions/{name}.json" in wanted or _OWN.fullmatch(name.removesuffix(".told"))
    return PRIVATE_FILE if is_known else None


def torn_faults(entries: Mapping[str, Entry]) -> list[str]:
    """Credentials that are not whole: at no moment may one be read that says nothing."""
    return [
        f"I17: {path} is torn"
        for path, entry in entries.items()
        if path.startswith("run/sessions/") and path.endswith(".json") and entry.content is None
    ]


def key_faults(known: bytes | None, now: bytes | None) -> list[str]:
    """Whether the host is still the one it was; `known` None: it was nobody yet."""
    if known is None or known == now:
        return []
    return ["K08: the host key is gone" if now is None else "K08: the host key is another one"]


def read_credential(raw: bytes) -> Mapping[str, Any] | None:
    """What a credential says; None when it says nothing."""
    try:
        told = json.loads(raw)
    except ValueError:
        return None
    return told if isinstance(told, dict) else None
