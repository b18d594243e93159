"""Planted defects in the owner's authority, as those in `defects.py`."""

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import pytest

from mbx.core import authority, exposure, policy
from mbx.core.authority import Book, Clock, Grant
from mbx.core.chains import Chain, Damage, Link, OwnerKey
from mbx.core.errors import MbxError
from mbx.core.exposure import Exposure, Relay
from mbx.core.lease import LeaseState
from mbx.core.policy import Policy, Sender
from mbx.core.record import Record, Sealed
from mbx.daemon import applying, displacing, granting, kinship, mailboxes, posting
from mbx.daemon.applying import Applied
from mbx.daemon.context import Context
from mbx.store import identities, kin, leases, owners, sessions
from mbx.store.database import Tx
from tests.sim.defects import Defect

Payload = Mapping[str, Any]

# --- takeovers ------------------------------------------------------------------------------------


def a_takeover_does_not_look_at_the_epoch(patch: pytest.MonkeyPatch) -> None:
    """It ends whatever epoch there is."""
    take_over = displacing.take_over

    def hasty(context: Context, tx: Tx, record: Record, payload: Payload) -> Any:
        return take_over(context, tx, record, _for_now(tx, payload))

    patch.setattr(displacing, "take_over", hasty)


def _for_now(tx: Tx, payload: Payload) -> Payload:
    """The takeover as if it had been signed for the epoch of now."""
    identity = identities.by_identity(tx, payload["identity"])
    if identity is None:
        return payload
    return {**payload, "epoch": leases.find(tx, identity.no).lease.epoch}


def a_record_may_act_again(patch: pytest.MonkeyPatch) -> None:
    """Nobody looks whether it acted; and who brings it again gets what is there now."""
    add, take_over = owners.add, displacing.take_over

    def add_last(tx: Tx, record: Record, *told: Any) -> None:
        tx.run("DELETE FROM owner_records WHERE record_id = ?", (record.id,))
        add(tx, record, *told)

    def again(context: Context, tx: Tx, record: Record, payload: Payload) -> Any:
        acted = tx.one("SELECT 1 FROM owner_records WHERE record_id = ?", (record.id,))
        return take_over(context, tx, record, _for_now(tx, payload) if acted else payload)

    patch.setattr(owners, "find", lambda tx, record_id: None)
    patch.setattr(owners, "add", add_last)
    patch.setattr(displacing, "take_over", again)


def an_old_approval_still_acts(patch: pytest.MonkeyPatch) -> None:
    """However long ago it was signed, and whatever the clock says."""
    patch.setattr(applying, "_check_age", lambda context, tx, payload: None)


def a_takeover_needs_no_signature(patch: pytest.MonkeyPatch) -> None:
    """Of a takeover nobody checks who signed it."""
    verified = applying._verified

    def trusting(context: Context, tx: Tx, record: Record) -> Payload:
        told: Payload = json.loads(record.payload)
        return told if record.kind == "takeover" else verified(context, tx, record)

    patch.setattr(applying, "_verified", trusting)


def a_takeover_that_is_refused_frees_the_name(patch: pytest.MonkeyPatch) -> None:
    """The holder is put out first; that the destination cannot have it is found out later."""
    take_over = applying._ACTS["takeover"]

    def rash(context: Context, tx: Tx, record: Record, payload: Payload) -> Applied:
        try:
            return take_over(context, tx, record, payload)
        except MbxError:
            identity = identities.by_identity(tx, payload["identity"])
            row = leases.find(tx, identity.no) if identity else None
            holder = sessions.by_no(tx, row.lease.session_no or 0) if row else None
            if row is None or holder is None or row.lease.state is not LeaseState.HELD:
                raise
            granting.lapse(tx, context.moment, row, holder, "it was taken over")
            return Applied({"agent": payload["name"]})

    patch.setitem(_acts(), "takeover", rash)


def _acts() -> dict[str, Any]:
    acts = applying._ACTS
    assert isinstance(acts, dict)
    return acts


# --- policies -------------------------------------------------------------------------------------


def an_expired_policy_still_grants(patch: pytest.MonkeyPatch) -> None:
    """A term has no end."""
    fault = Book._fault

    def patient(book: Book, one: Policy, damage: Any, clock: Clock) -> str:
        return fault(book, one, damage, clock._replace(now_ms=min(clock.now_ms, one.exp_ms - 1)))

    patch.setattr(Book, "_fault", patient)


def what_was_replaced_comes_back_when_the_newest_is_revoked(patch: pytest.MonkeyPatch) -> None:
    """The newest record that is not revoked governs."""
    grant = Book.grant

    def falling_back(book: Book, recipient: str, sender: Sender, clock: Clock) -> Grant:
        left = tuple(
            one
            for one in book.entries
            if not (isinstance(one, Policy) and any(r.voids(one) for r in book.revocations))
        )
        return grant(replace(book, entries=left), recipient, sender, clock)

    patch.setattr(Book, "grant", falling_back)


def a_version_is_not_checked(patch: pytest.MonkeyPatch) -> None:
    """A policy becomes the next of the chain, whatever place it was signed for."""

    def lenient(context: Context, tx: Tx, record: Record, payload: Payload) -> Applied:
        version = context.authority.book(tx).next.version
        policy.read_policy(payload, record.id)
        applying.audit_act(context, tx, record.kind, record, version=version)
        return Applied({"version": version}, version)

    patch.setitem(_acts(), "policy", lenient)


def a_damaged_record_is_passed_over(patch: pytest.MonkeyPatch) -> None:
    """What cannot be verified counts as if it had never been."""
    build = authority.build

    def blind(
        links: Sequence[Link],
        owner_keys: Sequence[OwnerKey],
        own_host: str,
        floor: int = 0,
        void: int | None = None,
        followed: Sequence[Chain] = (),
    ) -> Book:
        book = build(links, owner_keys, own_host, floor, void, followed)
        whole = [one for one in book.entries if not isinstance(one, Damage)]
        return replace(book, entries=tuple(whole))

    patch.setattr(authority, "build", blind)


def a_clock_that_was_set_back_is_believed(patch: pytest.MonkeyPatch) -> None:
    """What has expired is good once more."""
    patch.setattr(Clock, "is_behind", property(lambda clock: False))


# --- taint and hops -------------------------------------------------------------------------------


def an_answer_forgets_where_it_came_from(patch: pytest.MonkeyPatch) -> None:
    """What is answered came from outside, the answer does not."""
    since = exposure.external_since

    def forgetful(read: Sequence[Exposure], quoted_ms: int | None, now_ms: int) -> int | None:
        return None if quoted_ms is not None else since(read, None, now_ms)

    patch.setattr(posting, "external_since", forgetful)


def a_release_washes_a_conversation_clean(patch: pytest.MonkeyPatch) -> None:
    """Who gives its name back has read nothing."""
    release = granting.release

    def washing(
        tx: Tx, moment: Any, identity: Any, session: sessions.SessionRow, called: str
    ) -> Any:
        place = (session.cli, session.session_id)
        tx.run("DELETE FROM exposures WHERE cli = ? AND session_id = ?", place)
        return release(tx, moment, identity, session, called)

    patch.setattr(granting, "release", washing)


def hops_are_not_counted(patch: pytest.MonkeyPatch) -> None:
    """However often a text was passed on, it is as deep as what it answers."""

    def flat(
        read: Sequence[Exposure], to: Collection[int], own_no: int, quoted_hop: int, *told: Any
    ) -> Relay:
        return Relay(quoted_hop)

    patch.setattr(posting, "relay", flat)


def the_limit_of_hops_is_not_looked_at(patch: pytest.MonkeyPatch) -> None:
    """A text may copy itself from agent to agent for ever."""
    relay = exposure.relay
    patch.setattr(posting, "relay", lambda *told: relay(*told)._replace(over_limit=None))


def what_is_started_below_begins_clean(patch: pytest.MonkeyPatch) -> None:
    """A session has read what it read itself, and no more."""
    patch.setattr(kinship, "read_by_kin", lambda *told: [])


def what_is_read_below_stays_there(patch: pytest.MonkeyPatch) -> None:
    """What stands above counts for those below; not the other way round."""
    conversations = kin.conversations

    def upwards(tx: Tx, session_no: int) -> list[tuple[str, str]]:
        own = sessions.by_no(tx, session_no)
        if own is None:
            return []
        query = "SELECT cli, session_id FROM kin WHERE ancestor = ? AND process <> ancestor"
        below = {tuple(row) for row in tx.all(query, (kin.key(own.process),))}
        return [one for one in conversations(tx, session_no) if one not in below]

    patch.setattr(kin, "conversations", upwards)


def a_listing_is_no_reading(patch: pytest.MonkeyPatch) -> None:
    """A subject is too short to do harm."""
    patch.setattr(mailboxes, "glimpsed", lambda *told: ())


# --- the host's word ------------------------------------------------------------------------------


def an_acceptance_tells_of_an_older_log(patch: pytest.MonkeyPatch) -> None:
    """The host's word names the row before the one that tells of the record."""
    accept = applying._acceptance

    def early(context: Context, tx: Tx, record: Record, version: int | None) -> Sealed:
        said = json.loads(accept(context, tx, record, version).payload)
        row = tx.one("SELECT no, hash FROM audit ORDER BY no DESC LIMIT 1 OFFSET 1")
        assert row is not None
        told = {"audit_no": row[0], "audit_hash": bytes(row[1]).hex()}
        return context.host.sign("acceptance", {**said, **told})

    patch.setattr(applying, "_acceptance", early)


OWNER_DEFECTS: Final = (
    Defect(a_takeover_does_not_look_at_the_epoch, "I9"),
    Defect(a_record_may_act_again, "I9"),
    Defect(an_old_approval_still_acts, "I9"),
    Defect(an_acceptance_tells_of_an_older_log, "I9"),
    Defect(a_takeover_needs_no_signature, "I10"),
    Defect(a_takeover_that_is_refused_frees_the_name, "I10"),
    Defect(an_expired_policy_still_grants, "I13"),
    Defect(what_was_replaced_comes_back_when_the_newest_is_revoked, "I13"),
    Defect(a_version_is_not_checked, "I13"),
    Defect(a_damaged_record_is_passed_over, "I13"),
    Defect(a_clock_that_was_set_back_is_believed, "I13"),
    Defect(an_answer_forgets_where_it_came_from, "I14"),
    Defect(a_release_washes_a_conversation_clean, "I14"),
    Defect(hops_are_not_counted, "I14"),
    Defect(the_limit_of_hops_is_not_looked_at, "I14"),
    Defect(what_is_started_below_begins_clean, "I14"),
    Defect(what_is_read_below_stays_there, "I14"),
    Defect(a_listing_is_no_reading, "I14"),
)
"""Found by one play of a seed."""
