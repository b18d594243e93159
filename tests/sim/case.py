"""A finished run as the checker asks about it: its events and its store, by key."""

import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from tests.sim.family import Family, family
from tests.sim.history import Call, Commit, Event, Reopened, Return
from tests.sim.image import Delivery, Image, Message
from tests.sim.oracle import Ledger, ledger
from tests.sim.tenure import Tenure, Timeline, timeline

SENDS: Final = frozenset({"mail.send", "mail.reply"})
_MARK: Final = re.compile(r"op (\d+)\n")


def mark(op: int) -> str:
    """How the body of a message begins that the operation `op` sends."""
    return f"op {op}\n"


def op_of(body: str) -> int:
    """The operation that a body is marked with, -1 for none."""
    match = _MARK.match(body)
    return int(match[1]) if match else -1


@dataclass(frozen=True)
class Case:
    """A history, the store it left, and what both say by key."""

    events: Sequence[Event]
    final: Image

    @cached_property
    def calls(self) -> dict[int, Call]:
        return {event.attempt: event for event in self.events if isinstance(event, Call)}

    @cached_property
    def attempts(self) -> dict[int, list[Call]]:
        """The attempts of each operation."""
        found: dict[int, list[Call]] = defaultdict(list)
        for call in self.calls.values():
            found[call.op].append(call)
        return found

    @cached_property
    def returns(self) -> list[Return]:
        return [event for event in self.events if isinstance(event, Return)]

    @cached_property
    def outcome_of(self) -> dict[int, Return]:
        return {answer.attempt: answer for answer in self.returns}

    @cached_property
    def accepted(self) -> list[tuple[Call, Return]]:
        """The attempts that were answered ok, in the order of their answers."""
        return [(self.calls[r.attempt], r) for r in self.returns if r.outcome == "ok"]

    @cached_property
    def commit_of(self) -> dict[int, int]:
        """The commit sequence of each attempt that changed the store."""
        commits = [event for event in self.events if isinstance(event, Commit)]
        return {event.attempt: event.seq for event in commits if event.attempt is not None}

    @cached_property
    def call_of(self) -> dict[int, Call]:
        """The call that made each commit."""
        return {seq: self.calls[attempt] for attempt, seq in self.commit_of.items()}

    @cached_property
    def ledger(self) -> Ledger:
        return ledger(self.events)

    @cached_property
    def listings(self) -> list[tuple[Call, Return, int]]:
        """The listings that were answered, each with the place of its answer in the history."""
        return [
            (self.calls[event.attempt], event, at)
            for at, event in enumerate(self.events)
            if isinstance(event, Return)
            and event.outcome == "ok"
            and self.calls[event.attempt].method == "mail.inbox"
        ]

    def was_kept(self, at: int, seq: int) -> bool:
        """Whether what the daemon remembered at a place was not lost before a commit."""
        end = self.family.commits[seq]
        return at < end and not any(
            isinstance(event, Reopened) and event.point != "an end in order"
            for event in self.events[at:end]
        )

    @cached_property
    def family(self) -> Family:
        return family(self.events)

    @cached_property
    def timeline(self) -> Timeline:
        return timeline(self.final.audit)

    @cached_property
    def identity_of(self) -> dict[int, str]:
        return dict(self.final.identities)

    @cached_property
    def by_id(self) -> dict[str, Message]:
        return {message.id: message for message in self.final.messages}

    @cached_property
    def sent_by_op(self) -> dict[int, list[Message]]:
        """The stored messages of each operation, by the mark in their bodies."""
        found: dict[int, list[Message]] = defaultdict(list)
        for message in self.final.messages:
            found[op_of(message.content["body"])].append(message)
        return found

    def tenure(self, identity: str, epoch: int) -> Tenure | None:
        """The grant of this epoch."""
        found = (t for t in self.timeline.tenures if (t.identity, t.epoch) == (identity, epoch))
        return next(found, None)


def deliveries_of(image: Image) -> dict[int, list[Delivery]]:
    """The deliveries of each message, by its key."""
    found: dict[int, list[Delivery]] = defaultdict(list)
    for delivery in image.deliveries:
        found[delivery.message_no].append(delivery)
    return found


def holder_at(case: Case, call: Call, answer: Return) -> Tenure | None:
    """The grant under which an accepted call was carried out; None: its session had none then.

    The newest one of that name: after a reboot another process may have number and start of an old.
    """
    changed = case.commit_of.get(call.attempt)
    for tenure in reversed(case.timeline.tenures):
        if tenure.session == call.session and (
            tenure.covers_change(changed)
            if changed is not None
            else tenure.covers_look(answer.commit_seq)
        ):
            return tenure
    return None
