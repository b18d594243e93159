r"""One standing link to a peer, without I/O: texts and answers go in, commands come out.

Both ends run the same machine, whoever dialled::

    phase \\ frame   hello          ok                  put, no      bye      no text in time
    GREETING        compare        protocol            protocol     CLOSED   timeout
    COMPARING       protocol       noted               protocol     CLOSED   timeout
    AGREEING        protocol       STANDING            protocol     CLOSED   timeout
    STANDING        protocol       settles places      flows        CLOSED   timeout, if one is owed
    CLOSED          nothing        nothing             nothing      nothing  nothing

Each says hello first, compares the other's with its own streams (`mbx.core.streams`; COMPARING is
while the daemon looks up a head), and then says either ``bye`` with its verdict or ``ok`` with the
place that its hello named. Only who has said and heard that ``ok`` offers and takes records: so the
two never disagree whether the link goes on, though one of them may see what the other cannot.

Whoever runs the machine reads its own streams for `open_link` only when no other link to this peer
is left (`mbx.core.dialing`). `now_ms` is the monotonic clock. What comes when nothing waits for it
any more (an answer of the store after the link closed) is ignored, so nobody has to look first.
"""

from collections.abc import Sequence
from enum import Enum
from typing import Final

from mbx.core.commands import Acknowledged, Closed, Command, Recall, Send, Stood, Stopped
from mbx.core.flow import Inflow, LinkFault, Outflow
from mbx.core.frames import (
    PROTOCOL,
    VERSION_MISMATCH,
    Bye,
    Frame,
    FrameError,
    Hello,
    No,
    Ok,
    OtherVersion,
    Place,
    Put,
    encode,
    parse,
    size_bytes,
)
from mbx.core.limits import FRAME_MAX_BYTES, HELLO_DEADLINE_MS, HELLO_MAX_BYTES
from mbx.core.streams import compare, place_to_recall, stopped_by_peer

LOST: Final = "lost"
"""Code of a link whose connection ended without a word."""


class Phase(Enum):
    """Where a link is."""

    GREETING = "greeting"
    COMPARING = "comparing"
    AGREEING = "agreeing"
    STANDING = "standing"
    CLOSED = "closed"


def open_link(
    ours: Hello, peer: str, known_store: str | None, now_ms: int, *, is_copied: bool = False
) -> tuple["Link", list[Command]]:
    """The machine of a new connection to `peer` (the key id that the connection proved).

    `ours` is what we say of ourselves, `known_store` the peer's store as last met, or None;
    `is_copied`: its store is known to run twice (`mbx.core.copies`). Tell by `Link.offer` what was
    written since `ours` was read from the store.
    """
    link = Link(ours, peer, known_store, now_ms, is_copied=is_copied)
    return link, [Send(encode(ours))]


class Link:
    """The machine; made by `open_link`. Each call returns the commands that follow from it.

    Nothing that the peer sends makes a call raise.
    """

    def __init__(
        self, ours: Hello, peer: str, known_store: str | None, now_ms: int, *, is_copied: bool
    ) -> None:
        self.phase = Phase.GREETING
        self._ours = ours
        self._peer = peer
        self._known_store = known_store
        self._is_copied = is_copied
        self._theirs: Hello | None = None
        self._peer_goes_on = False
        self._due_ms = now_ms + HELLO_DEADLINE_MS
        self._last = ours.streams.out.seq
        self._next_seq = 0
        self._outflow: Outflow | None = None
        self._inflow: Inflow | None = None

    # -- what comes from the connection ------------------------------------------------------------

    def receive(self, text: str | bytes, now_ms: int) -> list[Command]:
        """The peer sent a message (bytes: a binary one, which this protocol does not have)."""
        if self.phase is Phase.CLOSED:
            return []
        is_first = self.phase is Phase.GREETING
        try:
            frame = parse(text, HELLO_MAX_BYTES if is_first else FRAME_MAX_BYTES)
            return self._heard(frame, str(text), now_ms)
        except FrameError as error:
            return self._part("malformed", error.reason)
        except LinkFault as fault:
            return self._part("protocol", fault.reason)

    def lost(self) -> list[Command]:
        """The connection ended."""
        return self._end(LOST)

    # -- what comes from the daemon ----------------------------------------------------------------

    def recalled(self, seq: int, head: bytes | None, now_ms: int) -> list[Command]:
        """The answer to `Recall`: our head at that place, None if it is not known any more."""
        if self.phase is not Phase.COMPARING or self._theirs is None:
            return []
        if seq != self._theirs.streams.into.seq:
            return []
        return self._judge(self._theirs, head, now_ms)

    def offer(self, last: int, now_ms: int) -> list[Command]:
        """Our stream goes up to place `last` now."""
        self._last = max(self._last, last)
        if self._outflow is None:
            return []
        self._outflow.offer(last)
        return self._outflow.pump(now_ms)

    def fetched(self, after_seq: int, places: Sequence[Place], now_ms: int) -> list[Command]:
        """The answer to `Fetch`: the places from `after_seq` + 1 on, now marked as offered."""
        if self._outflow is None:
            return []
        commands = self._outflow.fetched(after_seq, places)
        return self._outflow.pump(now_ms) + commands

    def committed(self, upto: int) -> list[Command]:
        """What `Commit` asked is committed up to this place: only now the peer is told.

        Raises ValueError for a place that no `Commit` named.
        """
        return [] if self._inflow is None else self._inflow.committed(upto)

    def defer(self, seq: int, code: str, retry_ms: int) -> list[Command]:
        """What `Commit` asked cannot be done now, from place `seq` on; try again in `retry_ms`.

        Raises ValueError if `seq` is not the first place that is still to be committed.
        """
        return [] if self._inflow is None else self._inflow.defer(seq, code, retry_ms)

    def close(self, code: str) -> list[Command]:
        """We want no more of this link: ``stopping``, ``unpaired``, ``other-link``."""
        return self._part(code, "")

    # -- time --------------------------------------------------------------------------------------

    def deadline(self) -> int | None:
        """When `tick` is to be called next, or None."""
        if self.phase is Phase.CLOSED:
            return None
        return self._due_ms if self._outflow is None else self._outflow.deadline()

    def tick(self, now_ms: int) -> list[Command]:
        """Time has passed. Before the deadline nothing follows from it."""
        due_ms = self.deadline()
        if due_ms is None or now_ms < due_ms:
            return []
        if self._outflow is None:
            return self._part("timeout", f"nothing came while {self.phase.value}")
        if self._outflow.is_overdue(now_ms):
            return self._part("timeout", "no answer to what was offered")
        return self._outflow.pump(now_ms)

    # -- what it holds -----------------------------------------------------------------------------

    @property
    def offered(self) -> tuple[int, int]:
        """Places that are offered and not acknowledged, and the bytes of their frames."""
        return (0, 0) if self._outflow is None else self._outflow.under_way

    @property
    def uncommitted(self) -> tuple[int, int]:
        """Places that the daemon was asked to commit and has not, and the bytes of their frames."""
        return (0, 0) if self._inflow is None else self._inflow.under_way

    @property
    def kept_bytes(self) -> int:
        """Texts that this machine holds."""
        return 0 if self._outflow is None else self._outflow.kept_bytes

    # -- frames ------------------------------------------------------------------------------------

    def _heard(self, frame: Frame, text: str, now_ms: int) -> list[Command]:
        outflow, inflow = self._outflow, self._inflow
        match frame:
            case Bye(code):
                return self._parted(code)
            case OtherVersion() if self.phase is Phase.GREETING:
                return self._part(VERSION_MISMATCH, "")
            case Hello() if self.phase is Phase.GREETING:
                return self._greeted(frame, now_ms)
            case Ok(upto) if self._theirs is not None and outflow is None:
                return self._agreed(self._theirs, upto, now_ms)
            case Ok(upto) if outflow is not None:
                commands = outflow.ok(upto, now_ms)
                return commands + outflow.pump(now_ms)
            case No() if outflow is not None:
                return outflow.no(frame, now_ms)
            case Put() if inflow is not None:
                return inflow.put(frame, size_bytes(text))
        raise LinkFault(f"{type(frame).__name__.lower()} while {self.phase.value}")

    def _greeted(self, theirs: Hello, now_ms: int) -> list[Command]:
        if theirs.host != self._peer:
            return self._part("wrong-host", "the hello names another host than the connection")
        self._theirs = theirs
        self._due_ms = now_ms + HELLO_DEADLINE_MS
        place = place_to_recall(self._ours.streams.out, theirs.streams.into)
        if place is None:
            return self._judge(theirs, None, now_ms)
        self.phase = Phase.COMPARING
        return [Recall(place)]

    def _judge(self, theirs: Hello, recalled: bytes | None, now_ms: int) -> list[Command]:
        verdict = compare(
            self._ours.streams,
            theirs.streams,
            recalled,
            known_store=self._known_store,
            store=theirs.store,
            is_copied=self._is_copied,
        )
        if not verdict.goes_on:
            return [Stopped(verdict, by_peer=False), *self._part(verdict.kind, "")]
        self.phase = Phase.AGREEING
        self._next_seq = verdict.next_seq
        go_on: list[Command] = [Send(encode(Ok(self._ours.streams.into.seq)))]
        return go_on + self._stand(theirs, now_ms) if self._peer_goes_on else go_on

    def _agreed(self, theirs: Hello, upto: int, now_ms: int) -> list[Command]:
        if self._peer_goes_on or upto != theirs.streams.into.seq:
            raise LinkFault("ok to another place than the hello named")
        self._peer_goes_on = True
        return self._stand(theirs, now_ms) if self.phase is Phase.AGREEING else []

    def _stand(self, theirs: Hello, now_ms: int) -> list[Command]:
        ours, acked = self._ours.streams, self._next_seq - 1
        self.phase = Phase.STANDING
        self._outflow = Outflow(acked, self._last, now_ms)
        self._inflow = Inflow(theirs.streams.out.id, ours.into.seq)
        commands: list[Command] = [Stood(theirs.store, theirs.streams.out.id)]
        if acked > ours.out.acked:
            commands.append(Acknowledged(acked))
        return commands + self._outflow.pump(now_ms)

    # -- the end -----------------------------------------------------------------------------------

    def _parted(self, code: str) -> list[Command]:
        """The peer said bye."""
        verdict = stopped_by_peer(code)
        stopped: list[Command] = [] if verdict is None else [Stopped(verdict, by_peer=True)]
        return stopped + self._end(code, by_peer=True)

    def _part(self, code: str, reason: str) -> list[Command]:
        """We say bye; of a mismatch with the version that we speak."""
        if self.phase is Phase.CLOSED:
            return []
        protocol = PROTOCOL if code == VERSION_MISMATCH else None
        return [Send(encode(Bye(code, protocol))), *self._end(code, reason=reason)]

    def _end(self, code: str, *, by_peer: bool = False, reason: str = "") -> list[Command]:
        if self.phase is Phase.CLOSED:
            return []
        self.phase = Phase.CLOSED
        self._outflow = self._inflow = None
        return [Closed(code, by_peer, reason)]
