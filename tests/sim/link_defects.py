"""Planted defects of the link: each takes one rule out, for one process and one test.

The simulation of two hosts must find each of them within the seeds that CI plays, by the invariant
named here. They are replacements that the test makes; nothing in mbx can be switched.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pytest

from mbx.core import copies, flow, link
from mbx.core.commands import Acknowledged, Command, Commit, Send
from mbx.core.flow import Inflow, Outflow
from mbx.core.frames import No, Ok, Place, Put, Withdrawal, encode
from mbx.core.link import Link
from mbx.core.streams import COPIED, Kind, StreamState, Verdict, compare

Plant = Callable[[pytest.MonkeyPatch], None]


@dataclass(frozen=True)
class Defect:
    """One rule broken, and the invariant that tells."""

    plant: Plant
    found_by: str

    @property
    def name(self) -> str:
        return self.plant.__name__.replace("_", " ")


# --- commit, then speak ---------------------------------------------------------------------------


def ok_is_said_before_the_commit(patch: pytest.MonkeyPatch) -> None:
    """A put is answered when it comes."""
    put = Inflow.put

    def hurried(flow: Inflow, frame: Put, frame_bytes: int) -> list[Command]:
        commands = put(flow, frame, frame_bytes)
        if not any(isinstance(one, Commit) for one in commands):
            return commands
        return [*commands, Send(encode(Ok(frame.seq + len(frame.places) - 1)))]

    patch.setattr(Inflow, "put", hurried)


def ok_is_said_to_all_when_a_part_is_committed(patch: pytest.MonkeyPatch) -> None:
    """The answer names what was received."""
    committed = Inflow.committed

    def generous(flow: Inflow, upto: int) -> list[Command]:
        return [Send(encode(Ok(flow._received))) for _ in committed(flow, upto)]

    patch.setattr(Inflow, "committed", generous)


def what_is_offered_counts_as_acknowledged(patch: pytest.MonkeyPatch) -> None:
    """The outbox drops a place when it was written to the line."""
    pump = Outflow.pump

    def hasty(flow: Outflow, now_ms: int) -> list[Command]:
        commands = pump(flow, now_ms)
        sent = any(isinstance(one, Send) for one in commands)
        return [*commands, Acknowledged(flow.sent)] if sent else commands

    patch.setattr(Outflow, "pump", hasty)


# --- compare, then go on --------------------------------------------------------------------------


def _blind_to(patch: pytest.MonkeyPatch, *kinds: Kind) -> None:
    def blind(ours: StreamState, theirs: StreamState, *rest: Any, **stores: Any) -> Verdict:
        verdict = compare(ours, theirs, *rest, **stores)
        return Verdict("go-on", theirs.into.seq + 1, "") if verdict.kind in kinds else verdict

    patch.setattr(link, "compare", blind)


def the_streams_are_not_compared(patch: pytest.MonkeyPatch) -> None:
    """Whatever the hello says, the link goes on behind it."""
    _blind_to(patch, "fork", "rollback-of-us", "rollback-of-peer", "unknown-stream")


def heads_are_not_compared(patch: pytest.MonkeyPatch) -> None:
    """The numbers fit, and that is enough."""
    _blind_to(patch, "fork")


def a_peer_that_lost_what_it_had_is_not_noticed(patch: pytest.MonkeyPatch) -> None:
    """And, at the other end, that we lost it."""
    _blind_to(patch, "rollback-of-peer", "rollback-of-us")


def copies_that_take_turns_are_not_noticed(patch: pytest.MonkeyPatch) -> None:
    """Each stop is looked at by itself."""
    patch.setattr(copies, "finding", lambda kind, last, now_ms, is_ours: kind)


def what_was_known_of_copies_is_forgotten(patch: pytest.MonkeyPatch) -> None:
    """Who fits goes on, though the owner has not acted."""

    def forgetful(*streams: Any, is_copied: bool, **stores: Any) -> Verdict:
        return compare(*streams, **stores)

    patch.setattr(link, "compare", forgetful)


def a_store_that_was_put_right_is_taken_for_a_copy(patch: pytest.MonkeyPatch) -> None:
    """The first stop already."""
    patch.setattr(copies, "finding", lambda kind, last, now_ms, is_ours: COPIED)


def the_other_ends_word_is_not_waited_for(patch: pytest.MonkeyPatch) -> None:
    """Who has compared offers."""
    judge = Link._judge

    def judging(one: Link, *rest: Any) -> list[Command]:
        one._peer_goes_on = True
        return judge(one, *rest)

    patch.setattr(Link, "_judge", judging)
    patch.setattr(Link, "_agreed", lambda one, *rest: [])


def the_other_ends_verdict_is_not_told(patch: pytest.MonkeyPatch) -> None:
    """A bye is a bye."""
    patch.setattr(link, "stopped_by_peer", lambda code: None)


# --- once and in order ----------------------------------------------------------------------------


def what_was_received_is_not_remembered(patch: pytest.MonkeyPatch) -> None:
    """A frame that comes twice is committed twice."""

    def forgetful(flow: Inflow, frame: Put, frame_bytes: int) -> list[Command]:
        flow._received = frame.seq + len(frame.places) - 1
        flow._under_way.add(flow._received, frame_bytes)
        return [Commit(flow._stream, frame.seq, frame.places)]

    patch.setattr(Inflow, "put", forgetful)


def a_gap_is_not_noticed(patch: pytest.MonkeyPatch) -> None:
    """After a frame that was lost the next one is taken."""
    put = Inflow.put

    def leaping(flow: Inflow, frame: Put, frame_bytes: int) -> list[Command]:
        if not flow._is_skipping:
            flow._received = max(flow._received, frame.seq - 1)
        return put(flow, frame, frame_bytes)

    patch.setattr(Inflow, "put", leaping)


def a_withdrawn_place_is_left_out(patch: pytest.MonkeyPatch) -> None:
    """Those behind it move up."""
    fetched = Outflow.fetched

    def short(flow: Outflow, after_seq: int, places: Sequence[Place]) -> list[Command]:
        return fetched(flow, after_seq, [one for one in places if not isinstance(one, Withdrawal)])

    patch.setattr(Outflow, "fetched", short)


# --- windows and refusals -------------------------------------------------------------------------


def _without_window(flow: Outflow) -> tuple[int, int]:
    return 10_000, 10**9


def the_sender_ignores_the_window(patch: pytest.MonkeyPatch) -> None:
    """It offers whatever there is."""
    patch.setattr(Outflow, "_room", _without_window)


def neither_end_keeps_the_window(patch: pytest.MonkeyPatch) -> None:
    """A sender that offers everything to a receiver that takes everything."""
    patch.setattr(Outflow, "_room", _without_window)
    patch.setattr(flow, "WINDOW_RECORDS_MAX", 10_000)
    patch.setattr(flow, "WINDOW_MAX_BYTES", 10**9)


def a_refused_place_is_offered_again_at_once(patch: pytest.MonkeyPatch) -> None:
    """Two hosts that say put and no to each other as fast as they can."""
    patch.setattr(flow, "REFUSAL_RETRY_MIN_MS", 0)


def a_refused_place_is_not_offered_again(patch: pytest.MonkeyPatch) -> None:
    """The sender goes on behind it."""
    no = Outflow.no

    def going_on(flow: Outflow, frame: No, now_ms: int) -> list[Command]:
        sent = flow.sent
        commands = no(flow, frame, now_ms)
        flow.sent = max(sent, frame.seq)
        return commands

    patch.setattr(Outflow, "no", going_on)


def what_was_under_way_at_a_refusal_is_a_gap(patch: pytest.MonkeyPatch) -> None:
    """The receiver forgets that it refused."""
    defer = Inflow.defer

    def forgetting(flow: Inflow, seq: int, code: str, retry_ms: int) -> list[Command]:
        commands = defer(flow, seq, code, retry_ms)
        flow._is_skipping = False
        return commands

    patch.setattr(Inflow, "defer", forgetting)


# --- time -----------------------------------------------------------------------------------------


def an_answer_may_be_overdue_for_ever(patch: pytest.MonkeyPatch) -> None:
    """A link on which nothing is answered stands."""
    patch.setattr(Outflow, "is_overdue", lambda flow, now_ms: False)


def a_hello_may_be_overdue_for_ever(patch: pytest.MonkeyPatch) -> None:
    """A link on which nobody says hello waits."""
    tick = Link.tick

    def patient(one: Link, now_ms: int) -> list[Command]:
        return [] if one._outflow is None else tick(one, now_ms)

    patch.setattr(Link, "tick", patient)


def what_is_written_while_the_link_stands_waits_for_the_next(patch: pytest.MonkeyPatch) -> None:
    """The machine does not hear of it."""
    patch.setattr(Link, "offer", lambda one, last, now_ms: [])


LINK_DEFECTS: Final = (
    Defect(ok_is_said_before_the_commit, "I16"),
    Defect(ok_is_said_to_all_when_a_part_is_committed, "I16"),
    Defect(what_is_offered_counts_as_acknowledged, "I16"),
    Defect(the_streams_are_not_compared, "I16"),
    Defect(heads_are_not_compared, "I16"),
    Defect(a_peer_that_lost_what_it_had_is_not_noticed, "I16"),
    Defect(copies_that_take_turns_are_not_noticed, "I16"),
    Defect(what_was_known_of_copies_is_forgotten, "I16"),
    Defect(a_store_that_was_put_right_is_taken_for_a_copy, "I16"),
    Defect(the_other_ends_word_is_not_waited_for, "I16"),
    Defect(the_other_ends_verdict_is_not_told, "I16"),
    Defect(what_was_received_is_not_remembered, "I2"),
    Defect(a_gap_is_not_noticed, "I5"),
    Defect(a_withdrawn_place_is_left_out, "I3"),
    Defect(the_sender_ignores_the_window, "I21"),
    Defect(neither_end_keeps_the_window, "I21"),
    Defect(a_refused_place_is_offered_again_at_once, "I21"),
    Defect(a_refused_place_is_not_offered_again, "I1"),
    Defect(what_was_under_way_at_a_refusal_is_a_gap, "I20"),
    Defect(an_answer_may_be_overdue_for_ever, "I1"),
    Defect(a_hello_may_be_overdue_for_ever, "I1"),
    Defect(what_is_written_while_the_link_stands_waits_for_the_next, "I1"),
)
"""Found by one play of a seed."""
