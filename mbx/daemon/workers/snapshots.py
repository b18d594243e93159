"""Keeps the snapshots of all sessions: what hooks and status lines print without asking anybody.

It hears of every effect that changes what a session would be told, reads what is so now in one
snapshot of the store, and writes a file only where it changed: several changes of one turn of the
loop, or within `_PAUSE_S`, are one write.
"""

from __future__ import annotations  # nested functions would evaluate theirs each time

import asyncio
import os
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Final, NamedTuple

from mbx.core.evidence import Lineage, Process, own_id
from mbx.core.lease import LeaseState
from mbx.core.limits import SNAPSHOT_BEAT_MS, SNAPSHOT_ROWS_MAX, SNAPSHOTS_MAX
from mbx.core.snapshot import HELD, PENDING, SHARED, Row, Snapshot, told_name
from mbx.daemon.context import Answer
from mbx.daemon.dispatch import Work
from mbx.daemon.effects import (
    Arrived,
    Effect,
    Ended,
    Granted,
    Handled,
    Relabelled,
    Renamed,
    Retired,
    Waiting,
)
from mbx.daemon.holders import Target
from mbx.daemon.snapshotfiles import SnapshotFiles
from mbx.daemon.world import uptime_ms
from mbx.paths import session_name
from mbx.store import identities, leases, unread, waiting
from mbx.store.database import Committed, Outcome, Tx
from mbx.store.sessions import SessionRow
from mbx.store.unread import Unread
from mbx.telling import take_back, tell

_PAUSE_S: Final = 0.05
"""Between two readings: a mailbox that is written to all the time costs twenty a second."""

_AGAIN_S: Final = 1.0
"""After a reading that the store refused."""

_CATCH_UP_LOOKS: Final = 20
"""Half a second: then what no row shows counts as untold, and is perhaps said once more."""

_PIECE: Final = 16
"""Sessions that are read in one unit: a brief one stays below a millisecond."""

_SWEEP_BEATS: Final = 20
"""The folder is looked through once a minute."""

_Key = tuple[Process, str]


class Announced(NamedTuple):
    """What a wake kept as told: the file, the mark in it now, and the one before."""

    path: str
    newest: int
    before: int


class _Fact(NamedTuple):
    """What the store says of one session now; `name` is None when there is nothing to tell."""

    name: str | None
    unread: int = 0
    rows: tuple[Unread, ...] = ()


@dataclass(slots=True)
class _Session:
    """One session that has a snapshot; `identity_no` is None while it only waits."""

    no: int
    process: Process
    conversation: str
    cli: str
    label: str
    called: str
    identity_no: int | None = None
    epoch: int = 0
    marks: dict[int, int] = field(default_factory=dict)
    mark: int = 0
    unseen_mark: int = 0
    """Of the last arrival that no row shows; 0 once there is room for all."""
    has_arrival: bool = False
    shown: Snapshot | None = None
    text: str = ""
    outdated: list[str] = field(default_factory=list)
    """What it was called before; those files go once there is the new one."""
    doubt: tuple[int, int] = (0, 0)
    """Marks after the first, up to the second: a wake is telling of them just now."""
    delivered: frozenset[int] = frozenset()
    """Of the messages that are shown those that nobody was told of, an earlier holder neither."""
    noted: frozenset[int] = frozenset()
    """Messages of which it was passed on that a hook announced them."""

    @property
    def key(self) -> _Key:
        return (self.process, self.conversation)

    @property
    def own(self) -> str:
        return own_id(self.process, self.conversation)

    def announced(self, mark: int) -> frozenset[int]:
        """What hooks announced of what is shown, with this mark told last."""
        rows = self.shown.rows if self.shown is not None else ()
        after, upto = self.doubt
        told = (row.no for row in rows if row.mark <= mark and not after < row.mark <= upto)
        return self.delivered & frozenset(told)

    def target(self) -> Target | None:
        """Whom it is told to; None while it only waits."""
        if self.identity_no is None:
            return None
        held = (self.identity_no, self.epoch, self.no, self.cli, self.called)
        return Target(*held, self.process, self.conversation)


class Snapshots:
    """The snapshots of all sessions; a worker of the daemon.

    `submit` runs a unit over a snapshot of the store, `log` writes to the journal. `announced` is
    told what hooks announced to whom: these messages are *notified* then, and shown no more.
    """

    def __init__(
        self,
        files: SnapshotFiles,
        submit: Callable[[Work, Callable[[Outcome[Answer]], None]], None],
        log: Callable[..., None],
        uptime: Callable[[], int | None] = uptime_ms,
        announced: Callable[[Target, Collection[int]], None] = lambda target, nos: None,
    ) -> None:
        self._files = files
        self._submit = submit
        self._log = log
        self._uptime = uptime
        self._announced = announced
        self._sessions: dict[_Key, _Session] = {}
        self._holding: dict[int, _Session] = {}
        """By identity: each send asks for its recipients."""
        self._dirty: dict[_Key, None] = {}
        self._changed = asyncio.Event()
        self._is_failing = False
        self._is_writing = False

    def __len__(self) -> int:
        return len(self._sessions)

    def restore(self, row: SessionRow) -> None:
        """Take up a session from the store at start."""
        if row.identity_no is not None and row.epoch is not None:
            called = row.called
            session = _Session(
                row.no, row.process, row.conversation, row.cli, row.session_id, called
            )
            session.identity_no, session.epoch = row.identity_no, row.epoch
            self._add(session)

    # -- what happened ----------------------------------------------------------------------------

    def heed(self, effect: Effect) -> None:
        """Something was committed."""
        match effect:
            case Granted():
                self._granted(effect)
            case Waiting():
                self._add(_session(effect))
            case Ended():
                session = self._sessions.get((effect.process, effect.conversation))
                if session is not None and session.epoch == effect.epoch:
                    self._drop(session)
            case Relabelled():
                self._relabelled(effect)
            case Arrived():
                self._touch(effect.recipients, has_arrival=True)
            case Handled() | Renamed() | Retired():
                self._touch((effect.identity_no,))

    def news(
        self, lineage: Lineage, make: Callable[[Snapshot, int], str], stop_ms: int | None = None
    ) -> str:
        """What a session is to be told now, and has been told with that; "" for nothing.

        `make` gives the text from its snapshot and the mark told last. `stop_ms` (UTC): it keeps a
        turn going, which is done so many times an hour.
        """
        if lineage.process is None:
            return ""
        session = self._sessions.get((lineage.process, lineage.conversation))
        if session is None or session.shown is None:
            return ""
        shown, said = session.shown, list[str]()

        def say(told: int) -> bool:
            said.extend(text for text in (make(shown, told),) if text)
            return bool(said)

        try:
            if tell(self._files.told_path(session.own), shown.newest, say, stop_ms):
                self._note(session)
        except OSError:
            return ""
        return said[0] if said else ""

    # -- what a wake tells ------------------------------------------------------------------------

    async def untold(self, target: Target, nos: Collection[int]) -> set[int]:
        """Which of these unread messages no hook of the session has announced.

        First waits a moment until what is committed is shown, so that a wake's mail has its marks.
        Of those that no row shows: all, unless it is certain that everything is told.
        """
        key = (target.process, target.conversation)
        is_all_shown = await self._caught_up(key)
        session = self._sessions.get(key)
        if session is None or session.shown is None:
            return set(nos)
        mark = self._files.told(session.own)
        if is_all_shown and 0 < session.shown.newest <= mark:
            return set()
        seen = {row.no for row in session.shown.rows if row.mark <= mark}
        return set(nos) - seen

    async def _caught_up(self, key: _Key) -> bool:
        """Whether what is committed is shown, perhaps after a moment."""
        for _ in range(_CATCH_UP_LOOKS):
            if key not in self._dirty and not self._is_writing:
                return True
            await asyncio.sleep(_PAUSE_S / 2)
        return False

    def announce(self, target: Target, nos: Collection[int]) -> Announced | None:
        """A wake tells the session of these messages: no hook says them again."""
        session = self._sessions.get((target.process, target.conversation))
        if session is None or session.shown is None:
            return None
        newest = max((row.mark for row in session.shown.rows if row.no in nos), default=0)
        before, path = list[int](), self._files.told_path(session.own)

        def say(told: int) -> bool:
            before.append(told)
            return True

        try:
            tell(path, newest, say)
        except OSError:
            return None
        if not before:
            return None
        session.doubt = (before[0], newest)
        return Announced(path, newest, before[0])

    def forget_told(self, owns: Iterable[str]) -> None:
        """Whether a wake reached these sessions (own ids) nobody knows: hooks say it all again."""
        for own in owns:
            self._try(partial(self._files.forget_told, own))

    def take_back(self, announced: Announced) -> None:
        """The wake did not arrive for certain: hooks may say it."""
        with suppress(OSError):
            take_back(*announced)
        self._settled(announced)

    def keep(self, announced: Announced) -> None:
        """The wake arrived: its words counted all that was unread then, of whatever kind."""
        for session in self._settled(announced):
            self._note(session)

    def _settled(self, announced: Announced) -> list[_Session]:
        found = [
            session
            for session in self._sessions.values()
            if session.doubt[1] and self._files.told_path(session.own) == announced.path
        ]
        for session in found:
            session.doubt = (0, 0)
        return found

    # -- what hooks told --------------------------------------------------------------------------

    def _hear(self, descriptor: int) -> None:
        """Somebody told sessions something, and named them."""
        owns = self._files.heard(descriptor)
        for session in self._sessions.values():
            if session.own in owns:
                self._note(session)

    def _note(self, session: _Session) -> None:
        """Pass on what hooks announced to a session, if anything that is shown was."""
        target, nos = session.target(), session.announced(self._files.told(session.own))
        if target is not None and nos and nos != session.noted:
            session.noted = nos
            self._announced(target, nos)

    def _granted(self, effect: Granted) -> None:
        other = self._holding.get(effect.identity_no)
        if other is not None and other.key != (effect.process, effect.conversation):
            self._drop(other)  # it was displaced
        known = self._sessions.get((effect.process, effect.conversation))
        session = _session(effect)
        if known is not None and known.called != effect.session_id and not known.conversation:
            session.called = known.called if known.called != known.label else effect.session_id
        session.identity_no, session.epoch = effect.identity_no, effect.epoch
        # What waits is announced to who gets it, whatever was before it in this process.
        session.mark = max(self._files.told(session.own), known.mark if known else 0)
        self._add(session)

    def _relabelled(self, effect: Relabelled) -> None:
        session = self._sessions.get((effect.process, ""))
        if session is None:
            return
        if session.called != effect.called:
            session.outdated.append(session.called)
        session.label, session.called = effect.session_id, effect.called
        self._mark(session)

    def _add(self, session: _Session) -> None:
        known = self._sessions.get(session.key)
        if known is None and len(self._sessions) >= SNAPSHOTS_MAX:
            return
        if known is not None and known.called != session.called:
            session.outdated = [*known.outdated, known.called]
        if known is not None:
            self._forget(known)
        self._sessions[session.key] = session
        if session.identity_no is not None:
            self._holding[session.identity_no] = session
        self._mark(session)

    def _forget(self, session: _Session) -> None:
        del self._sessions[session.key]
        if session.identity_no is not None and self._holding.get(session.identity_no) is session:
            del self._holding[session.identity_no]

    def _drop(self, session: _Session) -> None:
        self._forget(session)
        self._dirty.pop(session.key, None)
        for called in (session.called, *session.outdated):
            self._files.remove(session.cli, called)
        self._files.remove_own(session.own)
        if session.conversation:
            self._show_process(session)

    def _touch(self, identity_nos: Iterable[int], *, has_arrival: bool = False) -> None:
        for identity_no in identity_nos:
            session = self._holding.get(identity_no)
            if session is not None:
                session.has_arrival |= has_arrival
                self._mark(session)

    def _mark(self, session: _Session) -> None:
        self._dirty[session.key] = None
        self._changed.set()

    # -- writing ----------------------------------------------------------------------------------

    async def serve(self) -> None:
        """Until cancelled; then nothing that is written counts any more."""
        self._take_over()
        loop, descriptor = asyncio.get_running_loop(), self._listen()
        if descriptor is not None:
            loop.add_reader(descriptor, self._hear, descriptor)
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._beat())
                group.create_task(self._write_changes())
        finally:
            self._files.still()
            if descriptor is not None:
                loop.remove_reader(descriptor)
                os.close(descriptor)

    def _listen(self) -> int | None:
        try:
            return self._files.listen()
        except OSError as error:  # then only each look finds out what was told
            self._log("nobody can name a session that was told something", why=error.strerror)
            return None

    def _take_over(self) -> None:
        """Go on with the marks of the files that are there, and remove the others."""
        for session in self._sessions.values():
            before = self._files.read(session.cli, session.called)
            if before is not None and before.own == session.own:
                session.marks = {row.no: row.mark for row in before.rows}
            # What was announced and read has no row any more: what comes must count as later.
            told = self._files.told(session.own)
            session.mark = max(told, *session.marks.values(), 0)
        self._sweep()

    def _sweep(self) -> None:
        """Remove what is of nobody: a hook that outlived its client may have made a file."""
        kept = set[str]()
        for session in self._sessions.values():
            own = session.own
            kept |= {session_name(session.cli, session.called), own, told_name(own)}
            kept.add(own_id(session.process))
        self._try(lambda: self._files.keep_only(kept))

    async def _beat(self) -> None:
        while True:
            for _ in range(_SWEEP_BEATS):
                self._try(lambda: self._files.beat(self._uptime()))
                self._look_what_was_told()
                await asyncio.sleep(SNAPSHOT_BEAT_MS / 1000)
            self._sweep()

    def _look_what_was_told(self) -> None:
        """Who told it may not have come to say so, or the store may have refused it."""
        for session in list(self._sessions.values()):
            if session.delivered:
                session.noted = frozenset()
                self._note(session)

    async def _write_changes(self) -> None:
        while True:
            await self._changed.wait()
            self._changed.clear()
            keys, self._dirty = list(self._dirty), {}
            self._is_writing = True
            for first in range(0, len(keys), _PIECE):
                await self._refresh(keys[first : first + _PIECE])
            self._is_writing = False
            await asyncio.sleep(_PAUSE_S)

    async def _refresh(self, keys: list[_Key]) -> None:
        sessions = [self._sessions[key] for key in keys if key in self._sessions]
        asked = [(one.no, one.identity_no, one.epoch) for one in sessions]
        future: asyncio.Future[list[_Fact] | None] = asyncio.get_running_loop().create_future()

        def done(outcome: Outcome[Answer]) -> None:
            if not future.done():
                found = outcome.value.result["facts"] if isinstance(outcome, Committed) else None
                future.set_result(found)

        self._submit(Work(lambda tx: Answer({"facts": _facts(tx, asked)}), False, brief=True), done)
        facts = await future
        if facts is None:
            self._put_off(sessions)
            return
        for session, fact in zip(sessions, facts, strict=False):
            if self._sessions.get(session.key) is session:
                self._show(session, fact)

    def _put_off(self, sessions: Iterable[_Session]) -> None:
        """The store refused: what changed is still to be shown, with the next change or soon."""
        for session in sessions:
            if self._sessions.get(session.key) is session:
                self._dirty[session.key] = None
        asyncio.get_running_loop().call_later(_AGAIN_S, self._changed.set)

    def _show(self, session: _Session, fact: _Fact) -> None:
        if fact.name is None:
            self._drop(session)
            return
        state = HELD if session.identity_no is not None else PENDING
        rows = _marked(session, fact)
        session.delivered = frozenset(row.no for row in fact.rows if not row.is_announced)
        session.shown = Snapshot(
            session.cli,
            session.called,
            session.own,
            state,
            fact.name,
            fact.unread,
            max(session.unseen_mark, *(row.mark for row in rows), 0),
            rows,
        )
        text = session.shown.as_text()
        if text == session.text:
            return
        is_alone = not session.conversation
        if self._try(lambda: self._files.write(session.shown or _NONE, is_alone=is_alone)):
            session.text = text
            for called in session.outdated:
                self._files.remove(session.cli, called)
            session.outdated.clear()
        if not is_alone:
            self._show_process(session)

    def _show_process(self, session: _Session) -> None:
        """Whether any conversation of a shared process has unread mail; which one, no shell sees.

        Nothing is left of it when the last one has ended.
        """
        others = [one for one in self._sessions.values() if one.process == session.process]
        own = own_id(session.process)
        if not others:
            self._files.remove_own(own)
            return
        has_unread = any(one.shown is not None and one.shown.unread for one in others)
        of_process = Snapshot(session.cli, "-", own, SHARED, newest=int(has_unread))
        self._try(lambda: self._files.write_of_process(of_process))

    def _try(self, act: Callable[[], None]) -> bool:
        """Whether it could be done: a full disk or a lost folder costs hooks, and nothing else."""
        try:
            act()
        except OSError as error:
            if not self._is_failing:
                self._log("a snapshot could not be written", why=error.strerror)
            self._is_failing = True
            return False
        self._is_failing = False
        return True


_NONE: Final = Snapshot("", "", "", PENDING)


def _session(effect: Granted | Waiting) -> _Session:
    return _Session(
        effect.session_no,
        effect.process,
        effect.conversation,
        effect.cli,
        effect.session_id,
        effect.conversation or effect.session_id,
    )


def _facts(tx: Tx, asked: Iterable[tuple[int, int | None, int]]) -> list[_Fact]:
    return [_fact(tx, *one) for one in asked]


def _fact(tx: Tx, session_no: int, identity_no: int | None, epoch: int) -> _Fact:
    """What is so of a holder, as long as its lease is; or what a session waits for."""
    if identity_no is None:
        pending = waiting.of_session(tx, session_no)
        name = identities.by_no(tx, pending.identity_no).name if pending else None
        return _Fact(name)
    lease, identity = leases.find(tx, identity_no).lease, identities.by_no(tx, identity_no)
    if lease.epoch != epoch or lease.state is LeaseState.FREE or identity.retired_ms is not None:
        return _Fact(None)
    count = identities.unread(tx, identity_no)
    rows = tuple(unread.newest(tx, identity_no, epoch)) if count else ()
    return _Fact(identity.name, count, rows)


def _marked(session: _Session, fact: _Fact) -> list[Row]:
    """The unread rows with their marks: what is seen for the first time gets the next ones.

    Mail that was forwarded is older than what is there, and arrives like any other. Where more is
    new than there are rows, an arrival is one even if no row shows it.
    """
    before = session.mark
    marks = {}
    for row in fact.rows:
        known = session.marks.get(row.no)
        if known is None:
            session.mark += 1
            known = session.mark
        marks[row.no] = known
    if len(fact.rows) < SNAPSHOT_ROWS_MAX:
        session.unseen_mark = 0
    elif session.has_arrival and session.mark == before:
        session.mark += 1
        session.unseen_mark = session.mark
    session.has_arrival, session.marks = False, marks
    return [Row(row.no, marks[row.no], row.wakes, row.sender) for row in fact.rows]
