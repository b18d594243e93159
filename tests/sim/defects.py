"""Planted defects: each takes one rule out of mbx, for one process and one test.

The simulation must find each of them within the seeds that CI plays, by the invariant named here.
They are replacements that the test makes; nothing in mbx can be switched.
"""

import hashlib
import os
import sqlite3
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pytest

from mbx.core import lease
from mbx.core.delivery import Stage
from mbx.core.lease import Claimable, Lease, LeaseState
from mbx.daemon import gate, granting
from mbx.daemon.context import Answer
from mbx.daemon.holders import Holders
from mbx.daemon.methods import identity
from mbx.store import answers, audit, bindings, database, identities, leases, messages, sessions
from mbx.store.database import Committed, Outcome, Refused, Tx, Unit
from tests.sim.office import Office
from tests.sim.world import SimWorld

Plant = Callable[[pytest.MonkeyPatch], None]


@dataclass(frozen=True)
class Defect:
    """One rule broken; `found_by` are the invariants that tell, the first one always."""

    plant: Plant
    found_by: str

    @property
    def name(self) -> str:
        return self.plant.__name__.replace("_", " ")


# --- commit, then speak ---------------------------------------------------------------------------


def answers_leave_before_the_commit(patch: pytest.MonkeyPatch) -> None:
    """The group is committed when the next one begins: a faster daemon, until it is killed."""
    read = database.run_reads

    def hurried(connection: sqlite3.Connection, units: Sequence[Unit[Any]]) -> list[Outcome[Any]]:
        _finish(connection)
        connection.execute("BEGIN IMMEDIATE")
        seq = database._commit_seq(connection)
        outcomes: list[Outcome[Any]] = []
        for unit in units:
            outcome = database._run_in_savepoint(connection, unit, seq)
            outcomes.append(outcome or Refused(LookupError("the transaction is gone")))
            seq = outcome.commit_seq if isinstance(outcome, Committed) else seq
            if not connection.in_transaction:
                connection.execute("BEGIN IMMEDIATE")
        database._save_commit_seq(connection, seq)
        return outcomes

    def reading(connection: sqlite3.Connection, units: Sequence[Unit[Any]]) -> list[Outcome[Any]]:
        _finish(connection)
        return read(connection, units)

    patch.setattr(database, "run_group", hurried)
    patch.setattr(database, "run_reads", reading)


def _finish(connection: sqlite3.Connection) -> None:
    """Commit what an earlier group left open; whoever was answered cannot be told of a failure."""
    try:
        if connection.in_transaction:
            connection.execute("COMMIT")
    except sqlite3.Error:
        _back(connection)


def effects_leave_before_the_commit(patch: pytest.MonkeyPatch) -> None:
    """A unit lets its own effects out: a credential is written for a grant that is rolled back."""
    journaled = Office._journaled

    def eager(office: Office, unit: Unit[Any], attempt: int | None) -> Unit[Any]:
        def acting(tx: Tx) -> Any:
            answer = unit(tx)
            for effect in answer.effects if isinstance(answer, Answer) else ():
                office.perform(effect)
            return answer

        return journaled(office, acting, attempt)

    patch.setattr(Office, "_journaled", eager)


def the_commit_sequence_is_not_saved(patch: pytest.MonkeyPatch) -> None:
    """Answers carry a sequence that the store does not know."""
    patch.setattr(database, "_save_commit_seq", lambda connection, seq: None)


# --- all or nothing, and once ---------------------------------------------------------------------


def the_idempotency_key_is_not_looked_up(patch: pytest.MonkeyPatch) -> None:
    """A repeat acts again."""

    def keep_last(tx: Tx, scope: str, key: str, request: bytes, answer: str) -> None:
        tx.run("DELETE FROM answers WHERE scope = ? AND key = ?", (scope, key))
        save(tx, scope, key, request, answer)

    save = answers.save
    patch.setattr(answers, "find", lambda tx, scope, key: None)
    patch.setattr(answers, "save", keep_last)


def the_key_is_taken_without_looking_at_the_request(patch: pytest.MonkeyPatch) -> None:
    """A used key answers any other request with what it answered first."""
    from mbx.daemon import dispatch

    patch.setattr(dispatch, "_digest", lambda method, request: bytes(16))


def a_group_with_a_refusal_runs_twice(patch: pytest.MonkeyPatch) -> None:
    """After one unit was refused the others run again, though they were committed."""
    run = database.run_group

    def doubling(connection: sqlite3.Connection, units: Sequence[Unit[Any]]) -> list[Outcome[Any]]:
        outcomes = run(connection, units)
        if any(isinstance(outcome, Refused) for outcome in outcomes):
            good = [u for u, o in zip(units, outcomes, strict=True) if isinstance(o, Committed)]
            run(connection, good)
        return outcomes

    patch.setattr(database, "run_group", doubling)


def a_failed_unit_is_not_rolled_back(patch: pytest.MonkeyPatch) -> None:
    """What a unit wrote before it failed stays."""

    def lenient(
        connection: sqlite3.Connection, unit: Unit[Any], last_seq: int
    ) -> Outcome[Any] | None:
        before = connection.total_changes
        connection.execute("SAVEPOINT unit")
        try:
            value = unit(Tx(connection, last_seq + 1))
        except Exception as error:  # noqa: BLE001  as the code that it replaces
            if connection.in_transaction:
                connection.execute("RELEASE unit")
            return Refused(database.refusal_of(error))
        connection.execute("RELEASE unit")
        return Committed(value, last_seq + (connection.total_changes != before))

    patch.setattr(database, "_run_in_savepoint", lenient)


def the_end_of_the_transaction_is_not_noticed(patch: pytest.MonkeyPatch) -> None:
    """After a full disk the units go on outside any transaction and commit one by one."""

    def blind(
        connection: sqlite3.Connection, units: Sequence[Unit[Any]], hurry: Callable[[], bool]
    ) -> tuple[list[Outcome[Any]] | None, tuple[int, Refused] | None]:
        connection.execute("BEGIN IMMEDIATE")
        seq = database._commit_seq(connection)
        outcomes: list[Outcome[Any]] = []
        try:
            for unit in units:
                outcome = database._run_in_savepoint(connection, unit, seq)
                assert outcome is not None
                seq = outcome.commit_seq if isinstance(outcome, Committed) else seq
                outcomes.append(outcome)
            database._save_commit_seq(connection, seq)
            if connection.in_transaction:
                connection.execute("COMMIT")
        except sqlite3.Error:
            return None, None
        finally:
            _back(connection)
        return outcomes, None

    patch.setattr(database, "_run_together", blind)


def _back(connection: sqlite3.Connection) -> None:
    if connection.in_transaction:
        connection.execute("ROLLBACK")


def the_last_recipient_is_forgotten(patch: pytest.MonkeyPatch) -> None:
    """A fan-out to several reaches all but one."""
    add = messages.add

    def short(tx: Tx, message: messages.NewMessage, recipients: Sequence[tuple[int, bool]]) -> int:
        return add(tx, message, recipients[: max(1, len(recipients) - 1)])

    patch.setattr(messages, "add", short)


def a_read_is_forgotten(patch: pytest.MonkeyPatch) -> None:
    """Reading answers well and marks nothing."""
    patch.setattr(messages, "advance", lambda *told, **more: None)


# --- what is stored is what was said --------------------------------------------------------------


def a_body_is_changed_after_it_was_signed(patch: pytest.MonkeyPatch) -> None:
    """The stored text is not the signed one."""
    add = messages.add

    def editing(
        tx: Tx, message: messages.NewMessage, recipients: Sequence[tuple[int, bool]]
    ) -> int:
        record = message.record
        edited = record._replace(payload=record.payload.replace("subject ", "Subject "))
        return add(tx, message._replace(record=edited), recipients)

    patch.setattr(messages, "add", editing)


def mail_goes_to_the_first_mailbox_too(patch: pytest.MonkeyPatch) -> None:
    """Somebody gets mail that does not name it."""
    add = messages.add

    def leaking(
        tx: Tx, message: messages.NewMessage, recipients: Sequence[tuple[int, bool]]
    ) -> int:
        return add(tx, message, list(dict.fromkeys([*recipients, (2, False)])))

    patch.setattr(messages, "add", leaking)


def messages_are_numbered_backwards(patch: pytest.MonkeyPatch) -> None:
    """The newest message lies in front of all others."""
    numbered = messages._INSERT.replace("(id8,", "(no, id8,").replace(
        "VALUES (", "VALUES ((SELECT coalesce(min(no), 1000000) - 1 FROM messages), "
    )
    patch.setattr(messages, "_INSERT", numbered)


def the_inbox_is_listed_backwards(patch: pytest.MonkeyPatch) -> None:
    """A page is in the wrong order."""
    page = messages.page
    patch.setattr(messages, "page", lambda *told, **more: page(*told, **more)[::-1])


# --- leases ---------------------------------------------------------------------------------------


def a_held_lease_is_granted_without_a_lapse(patch: pytest.MonkeyPatch) -> None:
    """A claim takes whatever it asks for."""
    patch.setitem(lease.TRANSITIONS, (LeaseState.HELD, "claim"), LeaseState.HELD)
    patch.setattr(identity, "_lapse_or_refuse", lambda context, tx, caller, named, row: row)


def a_session_may_hold_two_identities(patch: pytest.MonkeyPatch) -> None:
    """A claim does not look at what its session holds."""
    patch.setattr(identity, "_refuse_second", lambda caller, wanted: None)


def the_epoch_does_not_grow(patch: pytest.MonkeyPatch) -> None:
    """Every grant has epoch 1."""
    change = lease.transition

    def standing(before: Lease, event: lease.Event, **told: Any) -> Lease:
        return change(before, event, **told)._replace(epoch=1)

    patch.setattr(granting, "transition", standing)


def the_epoch_starts_anew_after_a_release(patch: pytest.MonkeyPatch) -> None:
    """A free name has no past."""
    change = lease.transition

    def forgetful(before: Lease, event: lease.Event, **told: Any) -> Lease:
        forgotten = before.state is LeaseState.FREE and event == "claim"
        after = change(before, event, **told)
        return after._replace(epoch=1) if forgotten else after

    patch.setattr(granting, "transition", forgetful)


def the_gate_does_not_look_at_epochs(patch: pytest.MonkeyPatch) -> None:
    """Whoever was once granted an identity is let in."""
    patch.setattr(gate, "_still_held", lambda binding: True)
    patch.setattr(gate, "_is_of_grant", lambda caller, binding: True)


def the_gate_forgets_when_a_request_was_made(patch: pytest.MonkeyPatch) -> None:
    """A late request is carried out under whatever its session holds by then."""
    patch.setattr(gate, "_is_of_grant", lambda caller, binding: True)


def the_gate_compares_epochs_of_different_identities(patch: pytest.MonkeyPatch) -> None:
    """As it was until the simulation found it: equal epochs of two names."""
    patch.setattr(
        gate,
        "_is_of_grant",
        lambda caller, binding: caller.granted_epoch in (None, binding.granted_epoch),
    )


def a_token_is_good_for_ever(patch: pytest.MonkeyPatch) -> None:
    """Only the bearers of tokens are let in without a look at the epoch."""
    still_held, of_token = gate._still_held, bindings.of_token
    by_token: list[object] = []

    def remembering(tx: Tx, token_hash: bytes) -> Any:
        found = of_token(tx, token_hash)
        by_token[:] = [found]
        return found

    patch.setattr(bindings, "of_token", remembering)
    patch.setattr(gate, "_still_held", lambda one: one in by_token or still_held(one))


def what_cannot_be_seen_counts_as_dead(patch: pytest.MonkeyPatch) -> None:
    """No evidence is taken for evidence of death."""
    judge = lease.claimable

    def hasty(one: Lease, seen: lease.Observation | None) -> Claimable:
        if seen is None or seen.evidence == "unknown":
            return Claimable(True, "nothing is known")
        return judge(one, seen)

    patch.setattr(identity, "claimable", hasty)


def the_watch_is_no_heartbeat(patch: pytest.MonkeyPatch) -> None:
    """As it was until the simulation found it: an idle holder, unreadable for a moment, is lost."""

    def looking(holders: Holders, held: Any) -> None:
        held.evidence = holders._look(held.process)

    patch.setattr(Holders, "_look_at", looking)


def a_late_burial_ends_the_next_lease(patch: pytest.MonkeyPatch) -> None:
    """The death of a displaced session frees the name that somebody else holds by now."""
    bury = granting.bury

    def burying(tx: Tx, moment: Any, session: sessions.SessionRow, why: str) -> Any:
        if session.identity_no is not None:
            row = leases.find(tx, session.identity_no)
            holder = sessions.by_no(tx, row.lease.session_no or 0)
            if holder is not None and row.lease.state is LeaseState.HELD:
                granting.lapse(tx, moment, row, holder, why)
        return bury(tx, moment, session, why)

    patch.setattr(granting, "bury", burying)


def a_token_brings_back_the_lease_of_the_dead(patch: pytest.MonkeyPatch) -> None:
    """As it was until the simulation found it: held for ever by a session that nobody watches."""

    def reviving(tx: Tx, moment: Any, identity_no: int, epoch: int) -> None:
        row = leases.find(tx, identity_no)
        if row.lease.epoch == epoch and row.lease.state is LeaseState.LAPSED:
            after = lease.transition(row.lease, "renew", now_ms=moment.now_ms, epoch=epoch)
            leases.save(tx, identity_no, row.lease, after)
            named = identities.by_no(tx, identity_no).identity
            audit.append(tx, at_ms=moment.now_ms, act="revive", identity=named, epoch=epoch)

    patch.setattr(granting, "revive", reviving)


# --- the store ------------------------------------------------------------------------------------


def reading_does_not_count_down(patch: pytest.MonkeyPatch) -> None:
    """The unread counter only grows."""

    def advance(tx: Tx, recipient_no: int, head: Any, stage: Stage, **told: Any) -> None:
        place = (int(stage), told["now_ms"], told["epoch"], recipient_no, head.no)
        tx.run(messages._ADVANCE, place)

    patch.setattr(messages, "advance", advance)


def the_audit_log_is_not_chained(patch: pytest.MonkeyPatch) -> None:
    """Each row is hashed by itself."""
    row_hash = audit.row_hash
    patch.setattr(audit, "row_hash", lambda previous, *row: row_hash(bytes(32), *row))


def a_fan_out_to_several_leaves_no_copy(patch: pytest.MonkeyPatch) -> None:
    """A message that lies in no mailbox: an orphan."""
    add = messages.add

    def orphaning(
        tx: Tx, message: messages.NewMessage, recipients: Sequence[tuple[int, bool]]
    ) -> int:
        return add(tx, message, recipients if len(recipients) == 1 else ())

    patch.setattr(messages, "add", orphaning)


def chance_is_not_the_seeds(patch: pytest.MonkeyPatch) -> None:
    """Somebody asks the kernel for random bytes."""
    patch.setattr(SimWorld, "random_bytes", lambda world, count: os.urandom(count))


def the_order_of_a_set_leaks(patch: pytest.MonkeyPatch) -> None:
    """Mailboxes are filled in an order that differs from run to run."""
    add = messages.add

    def shuffled(
        tx: Tx, message: messages.NewMessage, recipients: Sequence[tuple[int, bool]]
    ) -> int:
        chance = os.urandom(8)
        return add(
            tx,
            message._replace(accepted_ms=message.accepted_ms + chance[0] % 2),
            sorted(recipients, key=lambda no: hashlib.sha256(chance + bytes([no[0]])).digest()),
        )

    patch.setattr(messages, "add", shuffled)


DEFECTS: Final = (
    Defect(answers_leave_before_the_commit, "I1"),
    Defect(answers_leave_before_the_commit, "I18"),
    Defect(effects_leave_before_the_commit, "I18"),
    Defect(the_commit_sequence_is_not_saved, "I18"),
    Defect(the_idempotency_key_is_not_looked_up, "I2"),
    Defect(the_key_is_taken_without_looking_at_the_request, "I2"),
    Defect(a_group_with_a_refusal_runs_twice, "I2"),
    Defect(a_failed_unit_is_not_rolled_back, "I4"),
    Defect(the_end_of_the_transaction_is_not_noticed, "I18"),
    Defect(the_last_recipient_is_forgotten, "I1"),
    Defect(the_last_recipient_is_forgotten, "I4"),
    Defect(a_read_is_forgotten, "I1"),
    Defect(a_body_is_changed_after_it_was_signed, "I3"),
    Defect(mail_goes_to_the_first_mailbox_too, "I3"),
    Defect(messages_are_numbered_backwards, "I5"),
    Defect(the_inbox_is_listed_backwards, "I5"),
    Defect(a_held_lease_is_granted_without_a_lapse, "I6"),
    Defect(a_session_may_hold_two_identities, "I6"),
    Defect(the_epoch_does_not_grow, "I7"),
    Defect(the_epoch_starts_anew_after_a_release, "I7"),
    Defect(the_gate_does_not_look_at_epochs, "I8"),
    Defect(the_gate_forgets_when_a_request_was_made, "I8"),
    Defect(the_gate_compares_epochs_of_different_identities, "I8"),
    Defect(a_token_is_good_for_ever, "I8"),
    Defect(what_cannot_be_seen_counts_as_dead, "I10"),
    Defect(the_watch_is_no_heartbeat, "I10"),
    Defect(a_late_burial_ends_the_next_lease, "I10"),
    Defect(a_token_brings_back_the_lease_of_the_dead, "I11"),
    Defect(reading_does_not_count_down, "I17"),
    Defect(the_audit_log_is_not_chained, "I17"),
    Defect(a_fan_out_to_several_leaves_no_copy, "I17"),
)
"""Found by one play of a seed."""

UNREPEATABLE: Final = (chance_is_not_the_seeds, the_order_of_a_set_leaks)
"""Found by playing a seed twice (I22)."""
