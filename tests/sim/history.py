"""What happened in a run, as values: calls, returns, commits, deaths, crashes.

A call whose answer was lost, or whose daemon died, returns *unknown*, never *failed*. Commits are
seen from below, at the connection, so that unknown outcomes can be settled. A history of lines of
JSON (`lines`) is kept of a run that failed, and its SHA-256 tells whether two runs were the same.
"""

import dataclasses
import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from tests.sim.image import Image

Outcome = Literal["ok", "refused", "unknown"]


@dataclass(frozen=True, slots=True)
class Call:
    """One attempt of the operation `op`, as the daemon took it up.

    `under` is what the daemon knew then of the session's grant, as (identity id, epoch). `closing`:
    made after the end of the run by a fresh session, to see whether names are free again. `at_ms`:
    the wall clock then.
    """

    attempt: int
    op: int
    session: str
    method: str
    params: Mapping[str, Any] = field(default_factory=dict)
    key: str | None = None
    under: tuple[str, int] | None = None
    closing: bool = False
    at_ms: int = 0


@dataclass(frozen=True, slots=True)
class Return:
    """What became of an attempt, as its caller saw it."""

    attempt: int
    outcome: Outcome
    commit_seq: int = 0
    result: Mapping[str, Any] = field(default_factory=dict)
    code: str = ""


@dataclass(frozen=True, slots=True)
class Commit:
    """A change of the store was committed; `attempt` is None for work of the daemon's own."""

    seq: int
    attempt: int | None


@dataclass(frozen=True, slots=True)
class Died:
    """The holder process of a session ended."""

    session: str
    process: str = ""


@dataclass(frozen=True, slots=True)
class Placed:
    """A session was granted something; `above`: the agent CLIs and runs then above its process."""

    session: str
    process: str
    above: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Silent:
    """A session was silent for the whole time-out, and nothing could be learnt of it.

    Its process was hidden, or hosts many conversations and so says nothing of one.
    """

    session: str


@dataclass(frozen=True, slots=True)
class Reopened:
    """The store as it was found after a crash at the point so named, before the next daemon wrote.

    `files`: the credential files, as (identity id, epoch).
    """

    point: str
    image: Image
    files: Sequence[tuple[str, int]] = ()


@dataclass(frozen=True, slots=True)
class Damaged:
    """While no daemon ran, somebody changed a stored record of the owner's."""

    record_id: str


Event = Call | Return | Commit | Died | Placed | Silent | Reopened | Damaged


def lines(events: Sequence[Event]) -> Iterator[str]:
    """The history as one JSON object a line."""
    for event in events:
        if isinstance(event, Reopened):
            told: dict[str, Any] = {"point": event.point, "seq": event.image.commit_seq}
            told["state"] = event.image.state_hash
        else:
            told = dataclasses.asdict(event)
        yield json.dumps({"event": type(event).__name__, **told}, sort_keys=True)


def trace_hash(events: Sequence[Event], final: Image) -> str:
    """One digest of all that happened and of what was left."""
    digest = hashlib.sha256()
    for line in lines(events):
        digest.update(line.encode())
    digest.update(final.state_hash.encode())
    return digest.hexdigest()
