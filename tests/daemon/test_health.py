"""What the daemon tells doctor: true, bounded, and without a word of mail."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mbx.core.authority import Book
from mbx.core.limits import LEASE_TIMEOUT_MS
from mbx.daemon import floor
from mbx.daemon.effects import Mend
from mbx.daemon.floor import Floor
from mbx.daemon.methods import health as method
from mbx.daemon.world import moment
from mbx.store import health
from mbx.store.database import Tx
from tests.support.office import OfficeDesk, nobody, shell
from tests.support.owner import an_owner

ANA, BEN, CAI = shell(100), shell(200), shell(300)
CANARY = "canary-7f3a"
HOUR_MS = 3_600_000


@pytest.fixture
def desk() -> Iterator[OfficeDesk]:
    made = OfficeDesk()
    made.add_owner()
    made.call(ANA, "identity.register", name="ana", role="dev")
    made.call(BEN, "identity.register", name="ben", role="dev")
    yield made
    made.close()


def told(desk: OfficeDesk, **params: object) -> dict[str, Any]:
    return desk.call(nobody(), "daemon.health", **params)


def test_a_healthy_store_says_so_to_anybody(desk: OfficeDesk) -> None:
    said = told(desk, thorough=True)
    assert said["quick_check"] == {"verdict": "ok", "faults": []}
    assert said["audit"] == {"rows": 4, "checked": 4, "first_break": None, "faults": []}
    assert (said["owner"], said["policies"], said["chain_damage"]) == (None, [], [])
    assert (said["clock_behind_s"], said["floor"]) == (0, "missing")
    assert said["pending"] == said["stranded"] == []
    assert (said["index_pending"], said["leases_total"]) == (0, 2)
    assert said["wal_bytes"] is None
    assert said["newest_at"] == said["now"]
    assert told(desk)["quick_check"] is None


def test_mail_of_an_identity_nobody_holds_is_stranded_with_its_last_holder(
    desk: OfficeDesk,
) -> None:
    for _ in range(2):
        desk.call(ANA, "mail.send", to=["ben", "owner"], subject="s", body="b")
    assert told(desk)["stranded"] == []  # ben is there, and the human's own mail waits for no agent
    desk.call(BEN, "identity.release")
    desk.world.pass_ms(HOUR_MS)
    (mail,) = told(desk)["stranded"]
    assert (mail["name"], mail["state"], mail["unacked"]) == ("ben", "free", 2)
    assert mail["oldest_s"] == 3_600
    assert mail["last_holder"] == {"cli": "shell", "session": "200-2000"}


def test_what_was_acked_is_not_stranded(desk: OfficeDesk) -> None:
    sent = desk.call(ANA, "mail.send", to=["ben"], subject="s", body="b")
    desk.call(BEN, "mail.ack", ids=[sent["id"]])
    desk.call(BEN, "identity.release")
    assert told(desk)["stranded"] == []


def test_a_lease_whose_holder_cannot_be_seen_and_is_silent_is_stale(desk: OfficeDesk) -> None:
    desk.evidence[200] = "unknown"
    desk.silent_ms[200] = LEASE_TIMEOUT_MS
    ana, ben = told(desk)["leases"]
    assert (ana["name"], ana["evidence"], ana["claimable"]) == ("ana", "live", False)
    assert (ben["evidence"], ben["claimable"], ben["silent_s"]) == ("unknown", True, 1_800)
    assert ben["pid"] == 200


def test_a_session_that_waits_is_told_with_what_it_waits_for(desk: OfficeDesk) -> None:
    session = desk.rows("SELECT session_no FROM leases WHERE identity_no = 2")[0][0]
    desk.connection.execute(
        "INSERT INTO pending (session_no, identity_no, since_ms) VALUES (?, 3, ?)",
        (session, desk.world.wall_ms),
    )
    desk.world.pass_ms(5_000)
    assert told(desk)["pending"] == [
        {
            "cli": "shell",
            "session": "100-1000",
            "name": "ben",
            "since": "2023-11-14T22:13:20.000Z",
            "age_s": 5,
        }
    ]


def test_a_changed_row_of_the_audit_log_is_found_and_named(desk: OfficeDesk) -> None:
    desk.connection.execute("UPDATE audit SET act = 'other' WHERE no = 3")
    said = told(desk)["audit"]
    assert (said["rows"], said["checked"], said["first_break"]) == (4, 4, 3)
    assert said["faults"] == ["row 3 was changed (or row 2 was, and its hash made anew)"]


def test_a_removed_row_of_the_audit_log_is_found_and_named(desk: OfficeDesk) -> None:
    desk.connection.execute("DELETE FROM audit WHERE no = 2")
    said = told(desk)["audit"]
    assert (said["checked"], said["first_break"], said["faults"]) == (3, 2, ["row 2 is missing"])


def test_an_empty_audit_log_has_no_break(desk: OfficeDesk) -> None:
    desk.connection.execute("DELETE FROM audit")
    assert told(desk)["audit"]["checked"] == 0
    assert told(desk)["newest_at"] is None


def test_only_the_newest_rows_are_looked_at_unless_it_is_asked_to_be_thorough(
    desk: OfficeDesk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(method, "AUDIT_ROWS", 2)
    desk.connection.execute("UPDATE audit SET act = 'other' WHERE no = 1")
    assert told(desk)["audit"] == {"rows": 4, "checked": 2, "first_break": None, "faults": []}
    assert told(desk, thorough=True)["audit"]["first_break"] == 1


def test_what_the_owner_delegates_is_told_with_its_end(desk: OfficeDesk) -> None:
    owner = an_owner(desk)
    owner.do("policy", to=["ana"], level="yolo", **{"from": ["ben"]})
    owner.do("policy", to=["ben"], level="collaborate", **{"from": ["ana"]})
    said = told(desk)
    assert said["owner"]["key_id"] == owner.id
    newest, oldest = said["policies"]
    assert (newest["to"], newest["level"], newest["left_s"]) == (["ben"], "collaborate", 604_800)
    assert (oldest["to"], oldest["from"], oldest["level"]) == (["ana"], ["ben@desk"], "yolo")
    desk.connection.execute("UPDATE owner_records SET payload = '{}' WHERE version = 1")
    desk.dispatcher._authority._known = (("", "", ""), 0, Book(desk.host.key_id))
    (damage,) = told(desk)["chain_damage"]
    assert damage["version"] == 1
    assert damage["reason"] == "is not the one that its successor names"
    desk.world.wall_ms -= HOUR_MS
    said = told(desk)
    assert (said["clock_behind_s"], said["policies"]) == (3_600, [])


@pytest.mark.parametrize("state", ["ok", "missing", "damaged", "another", "unwritten"])
def test_the_second_place_is_told_by_its_file(desk: OfficeDesk, tmp_path: Path, state: str) -> None:
    desk.dispatcher.facts = replace(desk.dispatcher.facts, home=str(tmp_path))
    path = tmp_path / "floor" / "floor.json"
    if state != "missing":
        known = Floor(1 if state == "another" else 0, 0, "")._replace(audit_hash="")
        floor.save(str(path), desk.host, moment(desk.world), known._replace(audit_no=2))
    desk.dispatcher._authority.audit_reached = (2, b"")
    if state == "damaged":
        path.write_bytes(path.read_bytes()[:-9])
    if state == "unwritten":
        desk.dispatcher._authority.floor_fault = "No space left on device"
    assert told(desk)["floor"] == state
    assert told(desk)["floor_fault"] == (
        "No space left on device" if state == "unwritten" else None
    )


def test_mail_that_the_index_does_not_have_yet_is_counted(desk: OfficeDesk) -> None:
    desk.call(ANA, "mail.send", to=["ben"], subject="s", body="b")
    assert told(desk)["index_pending"] == 1


def test_too_large_a_store_is_not_checked_while_everybody_waits(desk: OfficeDesk) -> None:
    tx = Tx(desk.connection, 0)
    assert health.quick_check(tx, health.QUICK_CHECK_MAX_BYTES) == []
    assert health.quick_check(tx, health.QUICK_CHECK_MAX_BYTES + 1) is None
    assert method._quick_check(tx, health.QUICK_CHECK_MAX_BYTES + 1)["verdict"] == "skipped"


def test_a_row_that_breaks_a_rule_of_its_table_is_found(desk: OfficeDesk) -> None:
    desk.connection.execute("PRAGMA ignore_check_constraints = ON")
    desk.connection.execute("UPDATE mailboxes SET unread = -1 WHERE identity_no = 2")
    desk.connection.execute("PRAGMA ignore_check_constraints = OFF")
    said = told(desk, thorough=True)["quick_check"]
    assert said == {"verdict": "damaged", "faults": ["CHECK constraint failed in mailboxes"]}


def test_counting_stops_where_nobody_would_count_on(
    desk: OfficeDesk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(health, "COUNTED_MAX", 2)
    for _ in range(3):
        desk.call(ANA, "mail.send", to=["ben"], subject="s", body="b")
    desk.call(BEN, "identity.release")
    (mail,) = told(desk)["stranded"]
    assert mail["unacked"] == 2


def test_anybody_may_have_the_house_kept_now(desk: OfficeDesk) -> None:
    assert desk.call(nobody(), "daemon.mend") == {"mending": True}
    assert desk.effects[-1] == Mend()


def test_no_word_of_mail_is_in_the_answer_and_nothing_changes(desk: OfficeDesk) -> None:
    desk.call(ANA, "identity.set", description=CANARY, card=CANARY)
    sent = desk.call(ANA, "mail.send", to=["ben"], subject=CANARY, body=CANARY, topic=CANARY)
    desk.call(BEN, "mail.ack", ids=[sent["id"]], did=CANARY, note=CANARY)
    desk.call(ANA, "mail.send", to=["ben"], subject=CANARY, body=CANARY)
    desk.call(BEN, "identity.release")
    before = desk.connection.total_changes
    assert CANARY not in json.dumps(told(desk, thorough=True))
    assert desk.connection.total_changes == before
