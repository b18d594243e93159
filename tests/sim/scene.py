"""One run: a seed, a daemon, its clients, and trouble; what happened and what was left.

`play(seed, steps)` is a function of its arguments: nothing else is read, and two plays of one seed
are the same to the last byte.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from mbx.core.evidence import Claim, Lineage, SessionKey
from mbx.core.limits import LEASE_TIMEOUT_MS
from mbx.daemon.gate import Caller
from mbx.store.database import Committed, Outcome, StoreFailure
from tests.sim import authority, episodes, family, image
from tests.sim.case import SENDS, Case
from tests.sim.clients import KINDS, Op, Session, Wishes
from tests.sim.disk import FAULTS, GROUP_POINTS, OFFICE_POINTS, Crash, Plan, open_image
from tests.sim.ground import ground
from tests.sim.history import (
    Call,
    Commit,
    Died,
    Event,
    Reopened,
    Return,
    Silent,
    trace_hash,
)
from tests.sim.office import Files, Office, Waiting, code_of, group_size
from tests.sim.oracle import TIMERS
from tests.sim.owner import APPLIES, Owner
from tests.sim.totals import Totals
from tests.sim.world import ProcessTable, SimWorld

STEPS: Final = 60
_IN_FLIGHT_MAX: Final = 3
_MONTH_MS: Final = 30 * 86_400_000


@dataclass
class Play:
    """A finished run."""

    seed: int
    case: Case
    totals: Totals

    @property
    def trace(self) -> str:
        """The same for the same seed."""
        return trace_hash(self.case.events, self.case.final)


def play(seed: int, steps: int = STEPS) -> Play:
    """Run one seed to its end: the run itself, a quiet time, the death of all, a new beginning."""
    scene = Scene(seed)
    for step in range(steps):
        scene.step(step)
    scene.settle()
    scene.close()
    final = image.take(scene.office.connection)
    scene.totals.count("messages", len(final.messages))
    scene.totals.count("deliveries", len(final.deliveries))
    case = Case(scene.events, final)
    scene.totals.count("grants", len(case.timeline.tenures))
    for what in authority.met(case):
        scene.totals.count(what)
    scene.office.connection.close()
    return Play(seed, case, scene.totals)


@dataclass
class _Late:
    """A request that waits longer than others before its unit runs."""

    due: int
    waiting: Waiting


@dataclass(eq=False)
class Scene:
    """The state of a run."""

    seed: int
    events: list[Event] = field(default_factory=list)
    totals: Totals = field(default_factory=Totals)
    sessions: list[Session] = field(default_factory=list)
    late: list[_Late] = field(default_factory=list)
    orphans: list[tuple[Session, str]] = field(default_factory=list)
    """Sessions whose holder has died, with the token that their children still have."""
    dead: list[Session] = field(default_factory=list)
    """Sessions that died, the newest last."""

    def __post_init__(self) -> None:
        self.totals.seeds = 1
        self.chance = random.Random(f"scene {self.seed}")
        self.world = SimWorld(self.seed)
        self.table = ProcessTable(random.Random(f"processes {self.seed}"))
        self.files = Files()
        self.wishes = Wishes(random.Random(f"wishes {self.seed}"), self.chance.randint(2, 5))
        self.owner = Owner(
            chance=random.Random(f"owner {self.seed}"), next_no=self.wishes.next_no, seed=self.seed
        )
        self.kinship = random.Random(f"kinship {self.seed}")
        self.zeal = self.chance.choice((0.0, 0.4, 0.7, 0.7, 0.9))
        self.attempts = 0
        self.now = 0
        ground().forget_floor()
        self.population = self.chance.randint(3, 6)
        self.events.append(Commit(1, None))
        self.office = self._open(ground().pages)
        while len(self.sessions) < self.population:
            self._start_session()
        self._trouble: tuple[list[Callable[[], None]], list[int]] = (
            [
                self._kill_a_process,
                self._hide_a_process,
                self._black_out,
                self._pause_a_session,
                self._step_the_clock,
                self._let_time_pass,
                self._crash_idle,
                self._crash_the_start,
                self._restart,
                self._reboot,
                self._keep_house,
                self._index,
                self._call_as_a_stranger,
                self._call_as_an_orphan,
                self._covet,
                self._change_names,
                partial(episodes.come_back, self),
                partial(episodes.pass_around, self),
                partial(episodes.damage, self),
            ],
            [10, 8, 4, 14, 6, 6, 3, 3, 3, 2, 9, 9, 4, 14, 8, 16, 8, 4, 6],
        )

    # -- steps ----------------------------------------------------------------------------------

    def step(self, now: int) -> None:
        """A little of everything."""
        self.now = now
        self.world.pass_ms(self.chance.randint(1, 2_000))
        for _ in range(self.chance.choice((0, 1, 2, 2))):
            self._call()
        if self.chance.random() < self.zeal and len(self.owner.in_flight) < _IN_FLIGHT_MAX:
            episodes.call_as_the_owner(self)
        if self.chance.random() < 0.25:
            acts, weights = self._trouble
            self.chance.choices(acts, weights)[0]()
        self._submit_late()
        if self.chance.random() < 0.6:
            self.office.watch.report()
        if self.chance.random() < 0.45:
            self._write_group(self._draw_plan())
        if self.chance.random() < 0.35 and self.office.reads:
            self.office.read_group(group_size(self.chance, len(self.office.reads)))

    def settle(self) -> None:
        """Quiet: everything that waits is carried out."""
        for late in self.late:
            self.office.submit(late.waiting)
        self.late.clear()
        self.office.watch.report()
        while self.office.writes or self.office.reads:
            self._write_group(None)
            self.office.read_group(8)

    def close(self) -> None:
        """All processes die, the machine starts again, fresh sessions ask for every name."""
        self._die_all()
        self.table.reboot()
        self._reopen("the machine's power")
        identities = self.office.connection.execute(
            "SELECT name FROM identities WHERE name <> 'owner' ORDER BY no"
        )
        for (name,) in identities.fetchall():
            session = Session("shell", self.table.start(KINDS["shell"]))
            op = Op(-1 - self.attempts, "identity.claim", {"name": name}, None)
            self._attempt(session, op, closing=True)
            self.settle()

    # -- calls ----------------------------------------------------------------------------------

    def _call(self) -> None:
        able = [
            one
            for one in self.sessions
            if one.paused_until <= self.now and len(one.in_flight) < _IN_FLIGHT_MAX
        ]
        if not able:
            return
        holding = [one for one in able if one.holding]
        session = self.chance.choice(holding if holding and self.chance.random() < 0.7 else able)
        if session.repeats and self.chance.random() < 0.6:
            op = session.repeats.pop(0)
            self.totals.count("repeats")
        else:
            op = self.wishes.draw(session, self.world.now_ms())
        self._attempt(session, op)

    def _attempt(
        self, session: Session, op: Op, *, closing: bool = False, late: bool | None = None
    ) -> None:
        """A request arrives: caller, grant and moment are those of now, whenever its unit runs."""
        claim, token = session.claim(op.method), None
        if not closing:
            claim, token = self._credentials(session, claim)
        open_one = session.connection
        if open_one is None or claim is not None or self.chance.random() < 0.6:
            known = list(self.office.holders.known())
            open_one = self.table.walk(session.process, known, claim)
            if claim is None:
                session.connection = open_one
        claimed = claim if isinstance(claim, SessionKey) else None
        caller = self.office.caller(open_one, claimed, token)
        under = None
        if open_one.process is not None:
            under = self.office.grants.get((open_one.process, open_one.conversation))
        if late is None:
            late = session.paused_until > self.now or self.chance.random() < 0.1
        self._arrive(session, op, caller, under, closing=closing, late=late and not closing)

    def _arrive(
        self,
        session: Session,
        op: Op,
        caller: Caller,
        under: tuple[str, int] | None,
        *,
        closing: bool = False,
        late: bool = False,
    ) -> None:
        self.attempts += 1
        attempt = self.attempts
        session.in_flight[attempt] = op
        now_ms, told = self.world.now_ms(), (op.method, op.params, op.key, under, closing)
        self.events.append(Call(attempt, op.no, session.label, *told, now_ms))
        self.totals.count("calls")
        params = {**op.params, **({"key": op.key} if op.key else {})}
        work = self.office.accept(caller, op.method, params)
        waiting = Waiting(work, attempt, lambda outcome: self._done(session, attempt, outcome))
        if late:
            self.totals.count("late requests")
            self.late.append(_Late(self.now + self.chance.randint(1, 12), waiting))
        else:
            self.office.submit(waiting)

    def _credentials(self, session: Session, claim: Claim) -> tuple[Claim, str | None]:
        """What the caller says of itself, and the token it sends."""
        living = self.table.living.get(session.process.pid)
        told = SessionKey(session.kind, session.session_id)
        if living is not None and living.hidden and self.table.is_alive(session.process):
            kept = self.files.kept.get((told.cli, told.id))
            if kept is not None:
                self.totals.count("calls by token")
                return told, kept[2]
        elif claim != "self" and self.files.kept and self.chance.random() < 0.03:
            kept = self.chance.choice(list(self.files.kept.values()))
            return told, kept[2]
        return claim, None

    def _done(self, session: Session, attempt: int, outcome: Outcome[Any]) -> None:
        op = session.in_flight.pop(attempt, None)
        if op is None:
            return
        if self.chance.random() < 0.04:
            self.totals.count("answers lost on the way")
            answer = Return(attempt, "unknown")
        elif isinstance(outcome, Committed):
            result = outcome.value.result
            answer = Return(attempt, "ok", outcome.commit_seq, result)
            self.totals.count("repeats answered as before", bool(result.get("duplicate")))
            if op.method in SENDS and "id" in result:
                self.wishes.heard_of(result["id"])
        else:
            code = code_of(outcome.error)
            answer = Return(attempt, "refused", code=code)
            self.totals.count(f"refused {code}")
            if code == "lease-lost" and self.table.is_alive(session.process):
                self.totals.count("displaced while alive")
        self._return(session, op, answer)

    def _return(self, session: Session, op: Op, answer: Return) -> None:
        self.events.append(answer)
        self.totals.count(f"answers {answer.outcome}")
        session.learn(op, answer)
        if op.method in APPLIES:
            episodes.tell_of_the_owner(self, op, answer)

    def _call_as_a_stranger(self) -> None:
        """Cron, without shell and lease, tries everything."""
        lineage = self.table.walk(None, list(self.office.holders.known()), None)
        work = self.office.accept(
            self.office.caller(lineage, None, None),
            "mail.send",
            {"to": ["ada"], "subject": "s", "body": "from nobody"},
        )
        self.office.submit(Waiting(work, None, lambda outcome: None))

    def _call_as_an_orphan(self) -> None:
        """A command of a dead session goes on in a sandbox: only its token tells whose it is."""
        if not self.orphans:
            return
        session, token = self.chance.choice(self.orphans)
        told = SessionKey(session.kind, session.session_id)
        caller = self.office.caller(Lineage("unknown", reason="a sandbox"), told, token)
        for _ in range(2):
            op = self.wishes.mail(session, self.world.now_ms())
            self._arrive(session, op, caller, None)
            self.totals.count("calls by orphans")

    def _submit_late(self) -> None:
        due = [late for late in self.late if late.due <= self.now]
        self.late = [late for late in self.late if late.due > self.now]
        for late in due:
            self.office.submit(late.waiting)

    # -- groups ---------------------------------------------------------------------------------

    def _draw_plan(self) -> Plan | None:
        drawn = self.chance.random()
        if drawn < 0.10:
            point = self.chance.choice((*GROUP_POINTS, *OFFICE_POINTS))
            several = point in {"inside a unit", "after a unit", "between effects"}
            several = several or point in {"before an answer", "between answers"}
            return Plan(point, self.chance.randint(1, 4) if several else 1)
        if drawn < 0.20:
            fault = self.chance.choices(FAULTS, (3, 1, 2, 1, 1))[0]
            statement = fault in {"disk full", "statement fails"}
            return Plan(fault, self.chance.randint(1, 8) if statement else 1)
        return None

    def _write_group(self, plan: Plan | None) -> None:
        if not self.office.writes:
            return
        count = group_size(self.chance, len(self.office.writes))
        self.totals.count("groups")
        self.totals.count("groups of several", count > 1)
        try:
            self.office.write_group(count, plan)
        except Crash as crash:
            self.totals.count(f"crash {crash.point}")
            self._reopen(crash.point)
        except StoreFailure:
            self._reopen("an I/O error")
        if plan is not None and plan.done and plan.point in FAULTS:
            self.totals.count("faults")
            self.totals.count(f"fault {plan.point}")

    # -- trouble --------------------------------------------------------------------------------

    def _kill_a_process(self) -> None:
        holders = [one for one in self.sessions if one.holding]
        likely = holders if holders and self.chance.random() < 0.6 else self.sessions
        self.table.kill(self.chance.choice(likely).process)
        self._bury_dead_sessions()
        while len(self.sessions) < self.population:
            self._start_session()

    def _bury_dead_sessions(self) -> None:
        for session in list(self.sessions):
            if self.table.is_alive(session.process):
                continue
            self.totals.count("deaths")
            self.events.append(Died(session.label, family.name_of(session.process)))
            self.sessions.remove(session)
            self.dead = [*self.dead, session][-6:]
            kept = self.files.kept.get((session.kind, session.session_id))
            if kept is not None:
                self.orphans = [*self.orphans, (session, kept[2])][-3:]
            for attempt in list(session.in_flight):  # its units go on; nobody is left to hear
                del session.in_flight[attempt]
                self.events.append(Return(attempt, "unknown"))
                self.totals.count("answers unknown")

    def _start_session(self) -> None:
        kind = self.chance.choice(list(KINDS))
        shared = [one for one in self.sessions if one.kind == "codex"]
        if kind == "codex" and shared:
            process = self.chance.choice(shared).process
        else:
            process = self.table.start(KINDS[kind], family.parent_of(self, kind))
            self.totals.count("pids used again", self.table.take_reused())
        conversation = f"talk-{self.chance.getrandbits(32):x}" if kind == "codex" else ""
        self.sessions.append(Session(kind, process, conversation))

    def _hide_a_process(self) -> None:
        """Its entry cannot be read for a while, or can be again."""
        living = self.chance.choice(list(self.table.living.values()))
        living.hidden = not living.hidden

    def _covet(self) -> None:
        """A holder was idle for long; it cannot be read for a moment, and its name is claimed."""
        holders = [one for one in self.sessions if one.holding]
        others = [one for one in self.sessions if not one.holding]
        if holders and others:
            self._let_time_pass()
            holder = self.chance.choice(holders)
            living = self.table.living[holder.process.pid]
            was_hidden, living.hidden = living.hidden, True
            op = self.wishes.claim(holder.holding or "")
            self._attempt(self.chance.choice(others), op)
            living.hidden = was_hidden

    def _black_out(self) -> None:
        """Nothing can be learnt of a holder, the daemon starts anew, and long silence follows."""
        for living in self.table.living.values():
            living.hidden = self.chance.random() < 0.5
        if self.chance.random() < 0.7:
            self._crash_idle()
        self._let_time_pass()
        for living in self.table.living.values():
            living.hidden = living.hidden and self.chance.random() < 0.5

    def _let_time_pass(self) -> None:
        self.world.pass_ms(LEASE_TIMEOUT_MS + self.chance.randint(0, 60_000))
        self.office.watch.report()  # as it does every second, and the timers every minute
        self.office.holders.look_around()
        for session in self.sessions:
            living = self.table.living.get(session.process.pid)
            if living is not None and (living.hidden or session.kind == "codex"):
                self.events.append(Silent(session.label))  # codex: a process of many conversations

    def _pause_a_session(self) -> None:
        """Its requests are on their way and arrive long after."""
        session = self.chance.choice(self.sessions)
        if len(session.in_flight) < _IN_FLIGHT_MAX:
            session.paused_until = self.now + self.chance.randint(2, 10)
            self._attempt(session, self.wishes.draw(session, self.world.now_ms()))
            self.totals.count("pauses")

    def _keep_house(self) -> None:
        self.attempts += 1
        no, now_ms = self.attempts, self.world.now_ms()
        self.events.append(Call(no, -no, "daemon", TIMERS, at_ms=now_ms))
        self.office.housekeeping(self.attempts)

    def _index(self) -> None:
        self.office.index()

    def _change_names(self) -> None:
        """A session takes another name while a request of its own is still on its way."""
        holders = [one for one in self.sessions if one.holding and not one.in_flight]
        if holders:
            session = self.chance.choice(holders)
            session.paused_until = self.now + self.chance.randint(4, 12)
            self._attempt(session, self.wishes.mail(session, self.world.now_ms()))
            self.late[-1].due = session.paused_until
            told = (self.wishes.release(), self.wishes.another_name())
            for op in (*told, self.wishes.mail(session, self.world.now_ms())):
                self._attempt(session, op, late=False)

    def _step_the_clock(self) -> None:
        self.world.step_wall_ms(self.chance.randint(-_MONTH_MS, _MONTH_MS))
        self.totals.count("clock steps")

    # -- ends and beginnings --------------------------------------------------------------------

    def _crash_idle(self) -> None:
        self.totals.count("crash while idle")
        self._reopen("while idle")

    def _crash_the_start(self) -> None:
        """Killed, and killed again while it starts."""
        self._reopen("during the start", Plan(self.chance.choice(GROUP_POINTS)))

    def _restart(self) -> None:
        """Stopped in order: what was accepted is answered first."""
        self.settle()
        self.office.keep_glimpses()
        self.settle()
        self.totals.count("restarts in order")
        self._reopen("an end in order")

    def _reboot(self) -> None:
        self.totals.count("reboots")
        self.totals.count("crash the machine's power")
        self._die_all()
        self.table.reboot()
        self._reopen("the machine's power")
        while len(self.sessions) < self.population:
            self._start_session()

    def _die_all(self) -> None:
        for session in self.sessions:
            self.table.kill(session.process)
        self._bury_dead_sessions()

    def _reopen(
        self, point: str, plan: Plan | None = None, change: Callable[[bytes], bytes] | None = None
    ) -> None:
        """The daemon is gone, and with it all that it had not committed. The next one starts.

        `change`: what somebody makes of the pages meanwhile.
        """
        self.totals.count("crashes", point != "an end in order")
        pages = self._lose(point)
        if change is not None:
            pages = change(pages)
        if plan is not None:
            try:
                self.office = self._open(pages, plan)
            except Crash:
                self.totals.count("crash during the start")
                pages = self._kept(point)
            else:
                pages = self._lose(point)
        self.office = self._open(pages)

    def _lose(self, point: str) -> bytes:
        known = [*self.sessions, self.owner, *(orphan for orphan, _ in self.orphans)]
        for session in known:
            session.connection = None
            for attempt, op in sorted(session.in_flight.items()):
                del session.in_flight[attempt]
                self._return(session, op, Return(attempt, "unknown"))
        self.late.clear()
        return self._kept(point)

    def _kept(self, point: str) -> bytes:
        """The committed pages, seen before the next daemon writes."""
        connection = self.connection
        connection.plan = None
        connection.lose_power()
        files = [(identity, epoch) for identity, epoch, _ in self.files.kept.values()]
        self.events.append(Reopened(point, image.take(connection), files))
        pages = connection.serialize()
        connection.close()
        return pages

    def _open(self, pages: bytes, plan: Plan | None = None) -> Office:
        self.connection = open_image(pages, self._note)
        self.connection.plan = plan
        places, journal = ground().paths, ground().journal
        office = Office(
            self.connection,
            places,
            self.world,
            self.table,
            self.files,
            journal,
            partial(family.placed, self),
        )
        self.connection.plan = None
        return office

    def _note(self, seq: int, attempt: int | None) -> None:
        self.events.append(Commit(seq, attempt))
