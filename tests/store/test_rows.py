"""The row modules: what they keep, and what they refuse to change."""

import sqlite3
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import pytest

from mbx.core.delivery import Stage
from mbx.core.evidence import Process
from mbx.core.ids import id8, parse_prefix
from mbx.core.keys import crockford
from mbx.core.lease import Lease, LeaseState
from mbx.core.record import Sealed
from mbx.store import (
    answers,
    audit,
    bindings,
    hosts,
    identities,
    inspection,
    leases,
    messages,
    receipts,
    search,
    sessions,
)
from mbx.store.database import Committed, Tx, run_group
from mbx.store.hosts import HostRow
from mbx.store.identities import IdentityRow
from mbx.store.messages import NewMessage
from mbx.store.migrate import open_store

T = TypeVar("T")
NOW = 1_700_000_000_000


class Store:
    """An open store, in memory unless one is given; `do` runs one unit."""

    def __init__(self, connection: sqlite3.Connection | None = None) -> None:
        self.connection: sqlite3.Connection = connection or open_store(":memory:")

    def do(self, unit: Callable[[Tx], T]) -> T:
        outcome = run_group(self.connection, [unit])[0]
        if not isinstance(outcome, Committed):
            raise outcome.error
        value: T = outcome.value
        return value

    def identity(self, name: str) -> IdentityRow:
        def unit(tx: Tx) -> IdentityRow:
            row = identities.create(
                tx,
                identity=crockford(name.encode().ljust(32, b"x")),
                name=name,
                role="dev",
                description="",
                project=None,
                now_ms=NOW,
            )
            leases.create(tx, row.no, NOW)
            return row

        return self.do(unit)


@pytest.fixture
def store() -> Iterator[Store]:
    made = Store()
    yield made
    made.connection.close()


def sealed(text: str, digest: bytes | None = None) -> Sealed:
    made = digest or text.encode().ljust(32, b"\x7f")[:32]
    return Sealed("message", '{"body":"' + text + '"}', made, crockford(made), b"s" * 64)


def new_message(sender: IdentityRow, text: str = "hello", **changed: Any) -> NewMessage:
    record = changed.pop("record", sealed(text))
    plain = NewMessage(
        record=record,
        sender_no=sender.no,
        accepted_ms=NOW,
        kind="message",
        needs_reply=False,
        subject="subject",
        body=text,
        body_bytes=len(text.encode()),
        thread=record.id,
        reply_no=None,
    )
    return plain._replace(**changed)


# -- host, answers, audit -------------------------------------------------------------------------


def test_a_store_belongs_to_one_host(store: Store) -> None:
    assert store.do(hosts.find) is None
    row = HostRow("k" * 26, b"p" * 32, "desk", "s" * 26)
    store.do(lambda tx: hosts.create(tx, row, NOW))
    assert store.do(hosts.find) == row
    with pytest.raises(sqlite3.IntegrityError):
        store.do(lambda tx: hosts.create(tx, row, NOW))


def test_the_first_answer_to_a_key_stays(store: Store) -> None:
    store.do(lambda tx: answers.save(tx, "i1", "key", b"r" * 16, "{}"))
    assert store.do(lambda tx: answers.find(tx, "i1", "key")) == (b"r" * 16, "{}")
    assert store.do(lambda tx: answers.find(tx, "i2", "key")) is None
    with pytest.raises(sqlite3.IntegrityError):
        store.do(lambda tx: answers.save(tx, "i1", "key", b"q" * 16, "[]"))


def three_audit_rows(store: Store) -> None:
    for act in ("register", "claim", "release"):
        store.do(lambda tx, act=act: audit.append(tx, at_ms=NOW, act=act, identity="i", name="x"))  # type: ignore[misc]


def test_audit_rows_tell_their_commit_sequence_and_hang_together(store: Store) -> None:
    three_audit_rows(store)
    rows = store.do(lambda tx: list(audit.rows(tx)))
    assert [(row.no, row.act) for row in rows] == [(1, "register"), (2, "claim"), (3, "release")]
    assert [row.detail for row in rows] == [f'{{"name":"x","seq":{n}}}' for n in (1, 2, 3)]
    assert store.do(audit.first_break) is None


@pytest.mark.parametrize(
    ("damage", "first"),
    [
        ("UPDATE audit SET detail = '{}' WHERE no = 2", 2),
        ("UPDATE audit SET act = 'takeover' WHERE no = 1", 1),
        ("DELETE FROM audit WHERE no = 2", 2),
        ("DELETE FROM audit WHERE no = 1", 1),
        ("UPDATE audit SET no = 9 WHERE no = 3", 3),
        ("UPDATE audit SET hash = zeroblob(32) WHERE no = 3", 3),
    ],
)
def test_a_changed_removed_or_moved_audit_row_is_found(
    store: Store, damage: str, first: int
) -> None:
    three_audit_rows(store)
    store.connection.execute(damage)
    assert store.do(audit.first_break) == first


# -- identities, sessions, leases -----------------------------------------------------------------


def test_an_identity_is_found_by_name_id_key_and_look_alike(store: Store) -> None:
    row = store.identity("api-dev")
    assert store.do(lambda tx: identities.by_name(tx, "api-dev")) == row
    assert store.do(lambda tx: identities.by_no(tx, row.no)) == row
    assert store.do(lambda tx: identities.by_identity(tx, row.identity)) == row
    assert store.do(lambda tx: identities.look_alike(tx, "ap1dev")) == row
    assert store.do(lambda tx: identities.by_name(tx, "api")) is None
    assert store.do(identities.everyone) == [row]
    assert store.do(identities.names) == ["api-dev"]


def test_a_key_that_is_not_there_is_a_mistake_of_ours(store: Store) -> None:
    with pytest.raises(LookupError):
        store.do(lambda tx: identities.by_no(tx, 99))
    with pytest.raises(LookupError):
        store.do(lambda tx: leases.find(tx, 99))
    with pytest.raises(LookupError):
        store.do(lambda tx: messages.payload(tx, 99))


def test_two_names_that_look_alike_cannot_both_be_stored(store: Store) -> None:
    store.identity("api-dev")
    with pytest.raises(sqlite3.IntegrityError):
        store.identity("apidev")


def test_what_was_heard_last_counts_and_nothing_was_heard_after_now(store: Store) -> None:
    alice, bob = store.identity("alice"), store.identity("bob")

    def seen() -> list[int | None]:
        return [store.do(lambda tx, no=no: identities.by_no(tx, no)).last_seen_ms for no in (1, 2)]  # type: ignore[misc]

    assert (alice.no, bob.no) == (1, 2)
    ahead = NOW + 30 * 86_400_000
    store.do(lambda tx: identities.save_last_seen(tx, {1: ahead, 2: ahead - 1}, ahead))
    assert seen() == [ahead, ahead - 1]
    store.do(lambda tx: identities.save_last_seen(tx, {1: NOW}, NOW + 5))  # the clock was set back
    assert seen() == [NOW, NOW + 5]
    store.do(lambda tx: identities.save_last_seen(tx, {}, NOW + 9))
    assert seen() == [NOW, NOW + 5]


PROCESS = Process(100, 1000, "boot")


def make_session(tx: Tx, conversation: str = "") -> sessions.SessionRow:
    return sessions.create(
        tx,
        cli="shell",
        session_id="100-1000",
        conversation=conversation,
        process=PROCESS,
        now_ms=NOW,
    )


def test_a_session_is_its_process_and_conversation(store: Store) -> None:
    row = store.do(make_session)
    assert store.do(lambda tx: sessions.find(tx, PROCESS, "")) == row
    assert store.do(lambda tx: sessions.find(tx, PROCESS, "other")) is None
    assert store.do(lambda tx: sessions.by_no(tx, row.no)) == row
    with pytest.raises(sqlite3.IntegrityError):
        store.do(make_session)
    assert store.do(lambda tx: make_session(tx, "other")).no != row.no


def granted(store: Store, name: str = "alice") -> tuple[IdentityRow, sessions.SessionRow]:
    identity = store.identity(name)
    session = store.do(make_session)

    def unit(tx: Tx) -> None:
        before = leases.find(tx, identity.no).lease
        after = Lease(LeaseState.HELD, 1, session.no, NOW)
        leases.save_grant(tx, identity.no, before, after, sealed("lease"), NOW + 1)
        sessions.bind(tx, session.no, identity.no, 1)
        leases.add_token(tx, identity.no, 1, b"t" * 32)

    store.do(unit)
    return identity, session


def test_a_binding_tells_grant_and_lease_of_now(store: Store) -> None:
    identity, session = granted(store)
    binding = store.do(lambda tx: bindings.of_process(tx, PROCESS, ""))
    assert binding is not None
    assert (binding.name, binding.granted_epoch) == ("alice", 1)
    assert binding.lease == Lease(LeaseState.HELD, 1, session.no, NOW)
    assert store.do(lambda tx: bindings.of_token(tx, b"t" * 32)) == binding
    assert store.do(lambda tx: bindings.of_token(tx, b"u" * 32)) is None
    assert [row.identity_no for row in store.do(leases.held)] == [identity.no]
    assert store.do(sessions.bound)[0].epoch == 1


def test_a_lease_that_moved_on_is_not_overwritten(store: Store) -> None:
    identity, session = granted(store)
    stale = Lease(LeaseState.FREE, 0, None, NOW)
    after = Lease(LeaseState.HELD, 1, session.no, NOW)
    with pytest.raises(LookupError, match="not at epoch 0"):
        store.do(lambda tx: leases.save(tx, identity.no, stale, after))
    with pytest.raises(LookupError, match="not at epoch 0"):
        store.do(lambda tx: leases.save_grant(tx, identity.no, stale, after, sealed("x"), NOW))


def test_a_held_lease_needs_a_session_and_a_record(store: Store) -> None:
    identity = store.identity("alice")
    free = store.do(lambda tx: leases.find(tx, identity.no)).lease
    bare = Lease(LeaseState.HELD, 1, None, NOW)
    with pytest.raises(sqlite3.IntegrityError):
        store.do(lambda tx: leases.save(tx, identity.no, free, bare))


def test_tokens_of_old_epochs_are_forgotten_and_others_kept(store: Store) -> None:
    identity, _ = granted(store)
    store.do(lambda tx: leases.add_token(tx, identity.no, 2, b"2" * 32))
    store.do(lambda tx: leases.drop_tokens(tx, identity.no, 2))
    assert store.do(lambda tx: leases.find_token(tx, b"t" * 32)) is None
    assert store.do(lambda tx: leases.find_token(tx, b"2" * 32)) == (identity.no, 2)


def test_a_renewal_changes_the_record_and_not_the_lease(store: Store) -> None:
    identity, _ = granted(store)
    before = store.do(lambda tx: leases.find(tx, identity.no))
    store.do(lambda tx: leases.save_renewal(tx, identity.no, 1, sealed("newer"), NOW + 9))
    after = store.do(lambda tx: leases.find(tx, identity.no))
    assert after.lease == before.lease
    assert (after.record_id, after.expires_ms) == (sealed("newer").id, NOW + 9)


def test_unused_sessions_are_forgotten_and_those_of_a_lease_kept(store: Store) -> None:
    _, session = granted(store)
    idle = store.do(lambda tx: make_session(tx, "idle"))
    store.do(lambda tx: sessions.unbind(tx, session.no))
    store.do(sessions.forget_unused)
    assert store.do(lambda tx: sessions.by_no(tx, session.no)) is not None
    assert store.do(lambda tx: sessions.by_no(tx, idle.no)) is None


# -- mail -----------------------------------------------------------------------------------------


def page(store: Store, owner: IdentityRow, **changed: Any) -> list[messages.Head]:
    asked = {"after_no": 0, "rows": 50, "kind": None, "sender_no": None, "acked_too": False}
    return store.do(lambda tx: messages.page(tx, owner.no, **(asked | changed)))


def test_mail_reaches_each_recipient_once_and_counts_as_unread(store: Store) -> None:
    alice, bob = store.identity("alice"), store.identity("bob")
    store.do(lambda tx: messages.add(tx, new_message(alice), [(alice.no, False), (bob.no, True)]))
    for owner in (alice, bob):
        assert [head.sender for head in page(store, owner)] == ["alice"]
        assert store.do(lambda tx, no=owner.no: identities.unread(tx, no)) == 1  # type: ignore[misc]


def test_pages_follow_the_order_of_arrival_and_their_filters(store: Store) -> None:
    alice, bob = store.identity("alice"), store.identity("bob")
    for number in range(6):
        sender = (alice, bob)[number % 2]
        kind = "request" if number < 2 else "message"
        store.do(
            lambda tx, s=sender, k=kind, n=number: messages.add(  # type: ignore[misc]
                tx, new_message(s, f"text {n}", kind=k), [(bob.no, False)]
            )
        )
    numbers = [head.no for head in page(store, bob)]
    assert numbers == sorted(numbers)
    assert [head.no for head in page(store, bob, after_no=numbers[3])] == numbers[4:]
    assert [head.no for head in page(store, bob, rows=2)] == numbers[:2]
    assert [head.no for head in page(store, bob, kind="request")] == numbers[:2]
    assert [head.no for head in page(store, bob, sender_no=alice.no)] == numbers[::2]


@pytest.mark.parametrize("acked_too", [False, True])
def test_a_filtered_page_looks_at_so_many_messages_and_goes_on_behind_them(
    store: Store, acked_too: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    alice, bob = store.identity("alice"), store.identity("bob")
    for number in range(10):
        sender = alice if number == 7 else bob
        record = sealed("x", number.to_bytes(32))
        message = new_message(sender, record=record)
        store.do(lambda tx, m=message: messages.add(tx, m, [(bob.no, False)]))  # type: ignore[misc]
    monkeypatch.setattr(messages, "SCAN_ROWS", 4)

    def behind(after_no: int) -> int | None:
        return store.do(
            lambda tx: messages.scan_end(tx, bob.no, after_no=after_no, acked_too=acked_too)
        )

    assert [behind(after_no) for after_no in (0, 4, 5, 6, 7, 10)] == [4, 8, 9, None, None, None]
    filters = {"sender_no": alice.no, "acked_too": acked_too}
    assert page(store, bob, after_no=0, until_no=4, **filters) == []
    assert [one.no for one in page(store, bob, after_no=4, until_no=8, **filters)] == [8]


def test_reading_and_acking_move_stage_count_and_listing(store: Store) -> None:
    alice, bob = store.identity("alice"), store.identity("bob")
    store.do(lambda tx: messages.add(tx, new_message(alice), [(bob.no, False)]))
    head = page(store, bob)[0]
    store.do(lambda tx: messages.advance(tx, bob.no, head, Stage.READ, now_ms=NOW, epoch=1))
    assert store.do(lambda tx: identities.unread(tx, bob.no)) == 0
    head = page(store, bob)[0]
    assert head.stage == Stage.READ
    words = {"outcome": "acted", "did": "it", "note": None}
    store.do(lambda tx: messages.ack(tx, bob.no, head, now_ms=NOW, epoch=1, **words))  # type: ignore[arg-type]
    assert page(store, bob) == []
    assert page(store, bob, acked_too=True)[0].stage == Stage.ACKED
    copy = store.do(lambda tx: messages.copies(tx, head.no))[0]
    assert (copy.outcome, copy.did, copy.note) == ("acted", "it", None)


def test_an_ack_without_reading_leaves_the_unread_count_too(store: Store) -> None:
    alice = store.identity("alice")
    store.do(lambda tx: messages.add(tx, new_message(alice), [(alice.no, False)]))
    head = page(store, alice)[0]
    words = {"outcome": "noted", "did": None, "note": None}
    store.do(lambda tx: messages.ack(tx, alice.no, head, now_ms=NOW, epoch=1, **words))  # type: ignore[arg-type]
    assert store.do(lambda tx: identities.unread(tx, alice.no)) == 0


def test_ids_that_share_their_first_eight_bytes_are_told_apart(store: Store) -> None:
    alice = store.identity("alice")
    first, second = b"\xff" * 8 + b"a" * 24, b"\xff" * 8 + b"b" * 24
    assert id8(first) == id8(second)
    for digest in (first, second):
        record = sealed("x", digest)
        message = new_message(alice, record=record)
        store.do(lambda tx, m=message: messages.add(tx, m, [(alice.no, False)]))  # type: ignore[misc]
    whole = parse_prefix(crockford(first))
    found = store.do(lambda tx: messages.received(tx, alice.no, whole))
    assert [head.id for head in found] == [crockford(first)]
    assert len(store.do(lambda tx: messages.received(tx, alice.no, parse_prefix("zzzzzz")))) == 2
    sent = store.do(lambda tx: messages.sent_one(tx, alice.no, whole))
    assert [head.id for head in sent] == [crockford(first)]
    third = b"\xff" * 8 + b"c" * 24
    known = [store.do(lambda tx, d=one: messages.is_known(tx, d)) for one in (first, second, third)]  # type: ignore[misc]
    assert known == [True, True, False]


def test_sent_pages_are_newest_first(store: Store) -> None:
    alice, bob = store.identity("alice"), store.identity("bob")
    for number in range(4):
        store.do(
            lambda tx, n=number: messages.add(
                tx, new_message(alice, f"text {n}"), [(bob.no, False)]
            )  # type: ignore[misc]
        )
    heads = store.do(lambda tx: messages.sent_page(tx, alice.no, before_no=4, rows=2))
    assert [head.no for head in heads] == [3, 2]


def test_open_threads_are_counted_once_each(store: Store) -> None:
    alice = store.identity("alice")
    root = sealed("root")
    store.do(lambda tx: messages.add(tx, new_message(alice, record=root), [(alice.no, False)]))
    answer = new_message(alice, "answer", thread=root.id, reply_no=1)
    store.do(lambda tx: messages.add(tx, answer, [(alice.no, False)]))
    assert store.do(lambda tx: messages.open_threads(tx, alice.no)) == 1


def test_a_receipt_keeps_the_exact_signed_text(store: Store) -> None:
    store.do(lambda tx: receipts.add(tx, sealed("fact"), NOW))
    row = store.connection.execute("SELECT record_id, payload, signature FROM receipts").fetchone()
    assert row == (sealed("fact").id, sealed("fact").payload, b"s" * 64)


# -- looking up ids -------------------------------------------------------------------------------


@pytest.mark.parametrize("look", [messages.received, messages.sent_one])
def test_an_id_is_asked_of_its_own_index_however_large_the_mailbox(
    look: Callable[..., Any], store: Store
) -> None:
    asked: list[str] = []
    prefix = parse_prefix("0" * 8)

    def unit(tx: Tx) -> None:
        store.connection.set_trace_callback(asked.append)
        look(tx, 1, prefix)
        store.connection.set_trace_callback(None)

    store.do(unit)
    plan = [row[3] for row in store.connection.execute(f"EXPLAIN QUERY PLAN {asked[0]}")]
    assert "USING INDEX messages_by_id" in plan[0]


# -- inspection -----------------------------------------------------------------------------------


def test_the_state_hash_sees_state_and_not_what_a_refused_call_may_touch(store: Store) -> None:
    identity, _ = granted(store)
    before = store.do(inspection.state_hash)
    store.do(lambda tx: identities.save_last_seen(tx, {identity.no: NOW}, NOW))
    store.do(lambda tx: leases.save_renewal(tx, identity.no, 1, sealed("newer"), NOW + 9))
    store.do(lambda tx: leases.add_token(tx, identity.no, 1, b"z" * 32))
    store.do(lambda tx: search.index_some(tx, 5))
    assert store.do(inspection.state_hash) == before
    store.do(lambda tx: messages.add(tx, new_message(identity), [(identity.no, False)]))
    assert store.do(inspection.state_hash) != before
