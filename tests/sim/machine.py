"""The stateful machine: hypothesis chooses what sessions do, the model says what must come of it.

After each step the whole store is compared with the model; at the end of a run the invariants of
`tests.sim.checker` are asked of its history. What was met is counted in `met`.
"""

import hashlib
import json
import sys
from dataclasses import replace
from typing import Any, Final

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from mbx.core.limits import LEASE_TIMEOUT_MS, SHARED_TIMEOUT_MS
from tests.sim.case import Case
from tests.sim.checker import violations
from tests.sim.disk import GROUP_POINTS, Plan
from tests.sim.errands import Errands, met
from tests.sim.history import Died, Silent
from tests.sim.model import HOST, LOOKING, NOTHING, OWNER, Identity, Seat

NAMES: Final = ("ada", "ben", "cleo", "dora", "a-da")
"""The last one looks like the first."""
ROLES: Final = ("dev", "ops")
STATES: Final = ("free", "held", "lapsed")
SEATS_MAX: Final = 9
LATE_MAX: Final = 4

small = st.integers(0, 11)


class Machine(Errands, RuleBasedStateMachine):
    """Whatever sessions may do at a desk, in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.walks: dict[tuple[int, bool], tuple[str, list[str]]] = {}
        """(identity, acked too) -> the next cursor of a pass, and what it has shown."""
        self.stages: dict[tuple[int, str], int] = {}
        self.epochs: dict[str, int] = {}
        self.chain = (0, bytes(32))

    @initialize()
    def three_register_and_write(self) -> None:
        """Without names and mail nothing else happens."""
        for seat, name, role in zip(self.seats, NAMES, ("dev", "dev", "ops"), strict=False):
            self._do(seat, "identity.register", {"name": name, "role": role})
        for number, seat in enumerate(self.seats[:3]):
            self._do(seat, *self._letter(seat, number, 3 + number))

    # -- names ----------------------------------------------------------------------------------

    @rule(who=small, name=st.sampled_from(NAMES), role=st.sampled_from(ROLES))
    def register(self, who: int, name: str, role: str) -> None:
        self._count("register")
        self._do(self._living(who), "identity.register", {"name": name, "role": role})

    @rule(who=small, which=small, keyed=st.booleans())
    def claim(self, who: int, which: int, keyed: bool) -> None:
        self._count("claim")
        self._do(self._living(who), "identity.claim", {"name": self._name(which)}, keyed=keyed)

    @rule(who=small, keyed=st.booleans())
    def release(self, who: int, keyed: bool) -> None:
        self._count("release")
        self._do(self._seat(who), "identity.release", {}, keyed=keyed)

    @rule(who=small, to=st.sampled_from((*NAMES, "finn", "gwen", *ROLES)))
    def rename_or_set(self, who: int, to: str) -> None:
        self._count("set" if to in ROLES else "rename")
        if to in ROLES:
            self._do(self._seat(who), "identity.set", {"role": to})
        else:
            self._do(self._seat(who), "identity.rename", {"name": to})

    @precondition(lambda self: self._vacancy() is not None)
    @rule()
    def take_what_nobody_holds(self) -> None:
        self._count("claim of a free name")
        vacancy = self._vacancy()
        assert vacancy is not None
        seat, identity = vacancy
        self._do(seat, "identity.claim", {"name": identity.name})

    # -- mail -----------------------------------------------------------------------------------

    @rule(who=small, which=small, how=small, keyed=st.booleans())
    def send(self, who: int, which: int, how: int, keyed: bool) -> None:
        self._count("send")
        seat = self._seat(who)
        self._do(seat, *self._letter(seat, which, how), keyed=keyed)

    @rule(who=small, which=small)
    def write_to_one(self, who: int, which: int) -> None:
        self._count("send to one")
        seat = self._seat(who)
        self._do(seat, *self._letter(seat, which, 0))

    @rule(who=small, which=small, final=st.sampled_from((None, None, "replied")))
    def reply(self, who: int, which: int, final: str | None) -> None:
        self._count("reply")
        seat = self._seat(who)
        self._do(seat, *self._reply(seat, which, final))

    @rule(who=small, which=small, count=st.integers(1, 3))
    def read(self, who: int, which: int, count: int) -> None:
        self._count("read")
        seat = self._seat(who)
        self._do(seat, "mail.read", {"ids": self._ids(seat, which, count)})

    @rule(who=small, which=small, count=st.integers(1, 3), keyed=st.booleans())
    def ack(self, who: int, which: int, count: int, keyed: bool) -> None:
        self._count("ack")
        seat = self._seat(who)
        self._do(seat, "mail.ack", {"ids": self._ids(seat, which, count)}, keyed=keyed)

    @rule(who=small, limit=st.integers(1, 3), acked_too=st.booleans())
    def page(self, who: int, limit: int, acked_too: bool) -> None:
        """One page of a pass through the inbox, which goes on however much arrives meanwhile."""
        self._count("page")
        seat = self._seat(who)
        own = self.model._held(seat)
        cursor, shown = self.walks.pop((own.no if own else 0, acked_too), (None, []))
        params = {"limit": limit, "all": acked_too, "cursor": cursor}
        result = self._do(seat, "mail.inbox", params)
        if result is None or own is None:
            return
        ids = [entry["id"] for entry in result["messages"]]
        assert not set(ids) & set(shown), "a pass shows a message twice"
        shown = [*shown, *ids]
        if result["has_more"]:
            self.walks[own.no, acked_too] = (result["next_cursor"], shown)
        elif acked_too:
            met["passes that met every message"] += 1
            assert shown == list(own.stages), "a pass has skipped a message"

    @rule(who=small, which=small)
    def page_with_the_cursor_of_another(self, who: int, which: int) -> None:
        seat = self._seat(who)
        if self.model.cursors:
            self._count("foreign cursor")
            cursor = list(self.model.cursors)[which % len(self.model.cursors)]
            self._do(seat, "mail.inbox", {"limit": 2, "all": which % 2 == 0, "cursor": cursor})

    @rule(who=small, which=small, what=st.sampled_from(("sent", "thread", "search", "common")))
    def look(self, who: int, which: int, what: str) -> None:
        """At one's own mail, and at that of others."""
        self._count(f"look at {what}")
        seat = self._seat(who)
        letters = list(self.model.letters.values())
        if what == "sent":
            self._do(seat, "mail.sent", {"limit": 200})
        elif letters and what == "thread":
            self._do(seat, "mail.thread", {"id": letters[which % len(letters)].id})
        elif letters:
            words = sorted(letters[which % len(letters)].words)
            query = "memo" if what == "common" else next(w for w in words if w.startswith("word"))
            self._do(seat, "mail.search", {"query": query, "limit": 200})

    # -- keys -----------------------------------------------------------------------------------

    @precondition(lambda self: self.asked)
    @rule(which=small)
    def repeat(self, which: int) -> None:
        """The same request with the same key, under whatever its session holds by now."""
        self._count("repeat")
        self._again(self.asked[-1 - which % len(self.asked)])

    @precondition(lambda self: self.asked)
    @rule(which=small, how=small)
    def use_a_key_twice(self, which: int, how: int) -> None:
        """The same key for another request."""
        self._count("key for another request")
        key = self.asked[-1 - which % len(self.asked)].request.key
        seat = self._seat(which)
        self._ask(self._op(seat, *self._letter(seat, which, how), key=key))

    # -- late, stale, unseen and foreign callers ------------------------------------------------

    @rule(who=small, kind=small, which=small, how=small)
    def write_late(self, who: int, kind: int, which: int, how: int) -> None:
        """A request arrives under the grant of now, and waits."""
        seat = self._seat(who)
        if len(self.late) < LATE_MAX:
            self._count("late request")
            op = self._op(seat, *self._wish(seat, kind, which, how), key=self._key(how % 2 == 0))
            self.late.append((op, self._work(op)))

    @precondition(lambda self: self.late)
    @rule()
    def carry_out_late(self) -> None:
        self._count("late request carried out")
        op, work = self.late.pop(0)
        self._ask(op, work)

    @rule(who=small, kind=small, which=small, how=small)
    def stale(self, who: int, kind: int, which: int, how: int) -> None:
        """A request that was made under the grant before this one."""
        seat = self._seat(who)
        if seat.bound is not None:
            self._count("stale request")
            op = self._op(seat, *self._wish(seat, kind, which, how))
            no, epoch = seat.bound
            grant = (no, epoch - 1) if epoch > 1 else (no - 1, epoch)  # of another name
            grant = grant if how % 3 else NOTHING
            self._ask(replace(op, request=replace(op.request, grant=grant)))

    @precondition(lambda self: self.model.tokens)
    @rule(which=small, kind=small, how=small)
    def come_by_token(self, which: int, kind: int, how: int) -> None:
        """Nobody can see whose the call is: only its token tells."""
        self._count("by token")
        token = list(self.model.tokens)[which % len(self.model.tokens)]
        no, _ = self.model.tokens[token]
        seat = self.model.identities[no].holder
        assert seat is not None
        op = self._op(seat, *self._wish(seat, kind, which, how))
        self._ask(replace(op, request=replace(op.request, token=token, unseen=True, grant=None)))

    @precondition(lambda self: self.model.tokens)
    @rule(who=small, which=small, kind=small, how=small)
    def come_with_a_token_of_another(self, who: int, which: int, kind: int, how: int) -> None:
        self._count("with a token of another")
        seat = self._seat(who)
        token = list(self.model.tokens)[which % len(self.model.tokens)]
        op = self._op(seat, *self._wish(seat, kind, which, how))
        self._ask(replace(op, request=replace(op.request, token=token)))

    # -- ends, silence, beginnings --------------------------------------------------------------

    @rule(who=small, seen=st.booleans())
    def die(self, who: int, seen: bool) -> None:
        """A process ends, and the daemon is told or not yet."""
        self._count("die")
        self._die(self._seat(who), seen)

    def _die(self, seat: Seat, seen: bool) -> None:
        for one in [one for one in self.seats if one.pid == seat.pid]:
            one.evidence = "dead"
            self.seats.remove(one)
            self.desk.events += map(Died, self._labels(one))
            self.desk.evidence[one.pid] = "dead"
        if seen:
            for one in [one for one in self.model.met if one.pid == seat.pid]:
                self._bury(one)
        if not self.seats:
            self._start_a_shell()

    @rule(which=small)
    def come_back(self, which: int) -> None:
        """A conversation says hello from another process, whether its old one has ended or not."""
        if len(self.seats) >= SEATS_MAX:
            return
        self._count("come back")
        self.pids += 1
        seat = Seat(self.pids, "claude", f"talk-{1 + which % 2}")
        self.seats.append(seat)
        self._arrive(seat)

    @rule(who=small, what=st.sampled_from(("start", "hello", "hide", "hide", "crash")))
    def elsewhere(self, who: int, what: str) -> None:
        """What the world does besides."""
        self._count(what)
        seat = self._living(who)
        if what == "start" and len(self.seats) < SEATS_MAX:
            self._start_a_shell()
        elif what == "hello" and seat.cli != "shell":
            self._arrive(seat)  # by a new connection of a session that lives
        elif what == "hide":
            self._hide(self._seat(who))
        elif what == "crash":
            self._reopen("while idle")

    def _start_a_shell(self) -> None:
        self.pids += 1
        self.seats.append(Seat(self.pids, "shell", ""))

    def _hide(self, seat: Seat) -> None:
        """A process can no longer be seen, or can be again."""
        hidden = seat.evidence == "live"
        for one in [one for one in self.seats if one.pid == seat.pid]:
            one.evidence = "unknown" if hidden else "live"
            self.desk.evidence[one.pid] = one.evidence
            if not one.shared:
                self._heard(one)

    @precondition(lambda self: self.model.waiting)
    @rule(seen=st.booleans())
    def the_awaited_dies(self, seen: bool) -> None:
        """Who holds what somebody waits for ends, with the daemon or without."""
        awaited = self.model.identities[self.model.waiting[0].waits or 0].holder
        if awaited in self.seats:
            self._count("the awaited dies")
            self._die(awaited, seen)
            if not seen:
                self._reopen("while idle")

    @rule(who=small, how=st.sampled_from(("dead", "silent for long", "silent for a moment")))
    def covet(self, who: int, how: str) -> None:
        """A holder is gone unnoticed, or unseen and silent; another claims its name."""
        seat = self._seat(who)
        held = self.model._held(seat)
        idle = [one for one in self.seats if one.bound is None and one.pid != seat.pid]
        if held is not None and idle:
            self._count("covet")
            if how == "dead":
                self._die(seat, False)
            elif seat.evidence == "live":
                self._hide(seat)
            if how == "silent for long":
                self.time_passes(LEASE_TIMEOUT_MS)
            self._do(idle[0], "identity.claim", {"name": held.name})

    @rule(ms=st.sampled_from((1, 60_000, SHARED_TIMEOUT_MS, LEASE_TIMEOUT_MS, LEASE_TIMEOUT_MS)))
    def time_passes(self, ms: int) -> None:
        """And somebody sets the wall clock, which decides nothing."""
        self._count("time")
        self.desk.world.pass_ms(ms)
        self.desk.world.wall_ms += (self.ops % 3 - 1) * 3_000_000
        for one in self.model.met:
            one.silent_ms += ms
            if one.evidence == "live" and not one.shared:
                self._heard(one)
            elif one.silent_ms >= (SHARED_TIMEOUT_MS if one.shared else LEASE_TIMEOUT_MS):
                self.desk.events += map(Silent, self._labels(one))

    @rule(
        who=small,
        kind=small,
        which=small,
        how=small,
        point=st.sampled_from(GROUP_POINTS),
        again=st.booleans(),
    )
    def crash_at(self, who: int, kind: int, which: int, how: int, point: str, again: bool) -> None:
        """In the middle of a request, which its client then repeats or not."""
        self._count("crash in a request")
        seat = self._seat(who)
        op = self._op(seat, *self._wish(seat, kind, which, how), key=self._key(True))
        if op.request.method not in LOOKING | {"mail.search"}:
            self._ask(op, plan=Plan(point))
            if again:
                self._again(op)

    # -- what must hold -------------------------------------------------------------------------

    @invariant()
    def the_store_is_what_the_model_says(self) -> None:
        rows, model = self.desk.rows, self.model
        leases = rows(
            "SELECT i.name, l.state, l.epoch, s.pid FROM identities AS i JOIN leases AS l"
            " ON l.identity_no = i.no LEFT JOIN sessions AS s ON s.no = l.session_no"
        )
        found = {name: (STATES[state], epoch, pid) for name, state, epoch, pid in leases}
        assert found == model.holders()
        bound = rows(
            "SELECT pid, conversation, identity_no, epoch FROM sessions"
            " WHERE identity_no IS NOT NULL"
        )
        assert {(pid, talk): (no, epoch) for pid, talk, no, epoch in bound} == model.bindings()
        copies = rows(
            "SELECT d.recipient_no, m.id, d.stage FROM deliveries AS d"
            " JOIN messages AS m ON m.no = d.message_no"
        )
        assert len(copies) == len({copy[:2] for copy in copies}), "two copies in one mailbox"
        assert {(no, one): stage for no, one, stage in copies} == model.copies()
        assert [one for (one,) in rows("SELECT id FROM messages ORDER BY no")] == [*model.letters]
        assert dict(rows("SELECT identity_no, unread FROM mailboxes")) == {
            no: identity.unread for no, identity in model.identities.items()
        }
        remembered = rows("SELECT cli, session_id, identity_no FROM remembered")
        assert {(cli, one): no for cli, one, no in remembered} == model.remembered
        waiting = rows(
            "SELECT s.pid, p.identity_no FROM pending AS p JOIN sessions AS s"
            " ON s.no = p.session_no ORDER BY p.no"
        )
        assert waiting == [(one.pid, one.waits) for one in model.waiting]

    @invariant()
    def stages_and_epochs_only_grow(self) -> None:
        """Told by the store alone, whatever the model says."""
        rows = self.desk.rows
        stages = {
            (no, message): stage
            for no, message, stage in rows("SELECT recipient_no, message_no, stage FROM deliveries")
        }
        assert all(stages.get(place, -1) >= stage for place, stage in self.stages.items())
        epochs = dict(
            rows(
                "SELECT i.identity, l.epoch FROM identities AS i JOIN leases AS l"
                " ON l.identity_no = i.no"
            )
        )
        assert all(epochs.get(one, -1) >= epoch for one, epoch in self.epochs.items())
        self.stages, self.epochs = stages, epochs

    @invariant()
    def at_most_one_session_holds_an_identity(self) -> None:
        """And a session holds at most one: of those bound, one has the epoch of now."""
        holders = self.desk.rows(
            "SELECT l.identity_no, s.no FROM leases AS l JOIN sessions AS s"
            " ON s.identity_no = l.identity_no AND s.epoch = l.epoch WHERE l.state = 1"
        )
        assert len({no for no, _ in holders}) == len(holders)
        assert len({session for _, session in holders}) == len(holders)

    @invariant()
    def the_audit_chain_is_whole(self) -> None:
        """The rows since the last step, by our own reading of the rule."""
        no, previous = self.chain
        for row in self.desk.rows(
            "SELECT no, at_ms, act, identity, detail, hash FROM audit WHERE no > ? ORDER BY no", no
        ):
            told = dict(zip(("no", "at", "act", "identity", "detail"), row, strict=False))
            text = json.dumps(told, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
            assert row[0] == no + 1
            assert row[5] == hashlib.sha256(previous + text.encode()).digest()
            no, previous = row[0], row[5]
        self.chain = (no, previous)

    def teardown(self) -> None:
        """The invariants over the whole history of the run."""
        try:
            met["runs"] += 1
            met["messages"] += len(self.model.letters)
            met["grants"] += sum(one.epoch for one in self.model.identities.values())
            if sys.exception() is None:  # else a step has told already what is wrong
                found = violations(Case(self.desk.events, self.desk.image()))
                assert found == {}, found
        finally:
            self.desk.close()

    def _vacancy(self) -> tuple[Seat, Identity] | None:
        """Somebody without identity, and one that may be claimed."""
        idle = [one for one in self.seats if one.bound is None]
        vacant = [
            one
            for one in self.model.identities.values()
            if one.name != OWNER and self.model.claimable(one)
        ]
        return (idle[0], vacant[0]) if idle and vacant else None

    # -- choices --------------------------------------------------------------------------------

    def _count(self, name: str) -> None:
        met[f"rule {name}"] += 1

    def _living(self, who: int) -> Seat:
        return self.seats[who % len(self.seats)]

    def _seat(self, who: int) -> Seat:
        """Mostly one that holds something, or held."""
        bound = [one for one in self.seats if one.bound is not None]
        return bound[who % len(bound)] if bound and who < 9 else self._living(who)

    def _name(self, which: int) -> str:
        names = [one.name for one in self.model.identities.values() if one.name != OWNER]
        return names[which % len(names)] if which < 10 else "nobody"

    def _wish(self, seat: Seat, kind: int, which: int, how: int) -> tuple[str, dict[str, Any]]:
        """Something that a client may want."""
        match kind:
            case 0 | 1 | 2:
                return self._letter(seat, which, how)
            case 3 | 4:
                return self._reply(seat, which, "replied" if how % 2 else None)
            case 5 | 6:
                return "mail.ack", {"ids": self._ids(seat, which, 1 + how % 3)}
            case 7:
                return "mail.read", {"ids": self._ids(seat, which, 1 + how % 3)}
            case 8:
                return "mail.inbox", {"limit": 2, "all": how % 2 == 0, "cursor": None}
            case 9:
                return "identity.claim", {"name": self._name(which)}
            case 10:
                return "identity.release", {}
            case _:
                return "mail.sent", {"limit": 200}

    def _letter(self, seat: Seat, which: int, how: int) -> tuple[str, dict[str, Any]]:
        name, other = self._name(which % 10), self._name((which + how) % 10)
        own = self.model._held(seat)
        to = (
            [name],
            [name, f"{name}@{HOST}"],
            [name, other, name],
            [name, "*"],
            ["*"],
            ["role:dev"],
            ["role:dev", name],
            ["role:dev", "role:ops", f"{other}@{HOST}"],
            [own.name if own else name],
            [OWNER],
            [OWNER, name, f"{OWNER}@{HOST}"],
            [name, "nobody"],
        )[how]
        return "mail.send", {"to": to, "subject": "s", "body": ""}

    def _reply(self, seat: Seat, which: int, final: str | None) -> tuple[str, dict[str, Any]]:
        params = {"id": self._ids(seat, which, 1)[0], "body": ""}
        return "mail.reply", {**params, "final": final} if final else params

    def _ids(self, seat: Seat, which: int, count: int) -> list[str]:
        """Ids of the seat's own mail, of other mail, of none."""
        own = self.model._held(seat)
        mine, every = list(own.stages) if own else [], list(self.model.letters)
        found = []
        for n in range(count):
            pool = mine if mine and (which + n) % 4 else every
            at = which // 2 + n
            found.append(pool[at % len(pool)] if pool and which < 11 else "0" * 26)
        return found
