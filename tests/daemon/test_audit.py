"""The audit log, for the owner: every act has its row; whatever was done to the rows is named."""

import ast
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mbx.core.acts import ACTS, OWNERS
from mbx.core.errors import MbxError
from mbx.core.keys import SigningKey
from mbx.core.peer import Nack
from mbx.core.record import Record, sign
from mbx.daemon import auditing, booting, floor, following, forwarding, relaying, unpairing
from mbx.daemon.budget import Budget
from mbx.daemon.effects import Authorised, HandOn, Revive
from mbx.daemon.floor import Floor
from mbx.daemon.gate import Caller
from mbx.daemon.journal import Journal
from mbx.daemon.methods import audit as methods
from mbx.daemon.proven import Proven
from mbx.daemon.secondplace import SecondPlace
from mbx.daemon.world import moment
from mbx.paths import Paths
from mbx.store import audit, peers
from mbx.store.database import Committed, Refused, Tx, run_group, run_reads
from tests.support import pairs
from tests.support.entries import entry_of
from tests.support.office import BOOT, KEY, OfficeDesk, at_terminal, harness, nobody, shell
from tests.support.owner import TERMINAL, Owner, an_owner
from tests.support.paired import plant, signed_by
from tests.support.rules import ROOT

CANARY = "canary-5c20"
NOTHING_YET = Floor()
ABOUT_PEERS = {"link-stopped", "record-refused", "pair", "peer-change", "unpair", "unpaired"}


@pytest.fixture
def desk() -> Iterator[OfficeDesk]:
    made = OfficeDesk()
    made.add_owner()
    yield made
    made.close()


@pytest.fixture
def owner(desk: OfficeDesk) -> Owner:
    return an_owner(desk)


def rows(desk: OfficeDesk, **params: object) -> list[dict[str, Any]]:
    """All pages of the log, oldest first."""
    found: list[dict[str, Any]] = []
    page = desk.call(TERMINAL, "audit.list", **params)
    while True:
        found += page["rows"]
        if not page["has_more"]:
            assert page["next_cursor"] is None
            return found[::-1]
        page = desk.call(TERMINAL, "audit.list", **{**params, "cursor": page["next_cursor"]})


def verified(desk: OfficeDesk) -> dict[str, Any]:
    """All pieces of the check, put together."""
    told: dict[str, Any] = {"checked": 0, "acceptances": 0, "faults": []}
    cursor: dict[str, str] = {}
    while True:
        piece = desk.call(TERMINAL, "audit.verify", **cursor)
        for name in told:
            told[name] += piece[name]
        if not piece["has_more"]:
            return {**told, "last": piece["last"], "floor": piece["floor"]}
        cursor = {"cursor": piece["next_cursor"]}


def faults(desk: OfficeDesk) -> list[tuple[str, int, int]]:
    return [(one["kind"], one["row"], one["last"]) for one in verified(desk)["faults"]]


# -- every act ------------------------------------------------------------------------------------


def history(desk: OfficeDesk, owner: Owner) -> tuple[Caller, str]:
    """One of each act that a desk can do, but for those of its start; whose, and what was acked."""
    ana, ben = desk.holder("ana", 1), desk.holder("ben", 2)
    owner.do("policy", to=["ben"], level="collaborate", **{"from": ["ana"]})
    desk.call(ben, "identity.set", description=CANARY, role="tester")
    desk.call(ben, "identity.rename", name="cai")
    asked = desk.call(ana, "mail.send", to=["cai"], subject=CANARY, body=CANARY, kind="request")
    desk.call(ben, "mail.ack", ids=[asked["id"]], outcome="acted", did="ran the tests", note=CANARY)
    desk.call(ana, "identity.release")
    desk.encounters.met(harness(3, "s-3").lineage)
    desk.evidence[3] = "live"
    owner.do("takeover", name="cai", cli="claude", session="s-3", reason="it hangs")
    owner.do("revoke", all=True, reason="enough")
    dan = desk.holder("dan", 4)
    desk.evidence[4], desk.silent_ms[4] = "unknown", 10**9
    desk.call(shell(5), "identity.claim", name="dan")
    desk.world.wall_ms -= 3_600_000
    owner.do("clock")
    return dan, str(asked["id"])


def revived(desk: OfficeDesk) -> None:
    """A lapsed lease that its holder uses again."""
    holder = desk.holder("eve", 6)
    desk.connection.execute(
        "UPDATE leases SET state = 2 WHERE identity_no ="
        " (SELECT no FROM identities WHERE name = 'eve')"
    )
    desk.call(holder, "mail.inbox")
    (revive,) = [one for one in desk.effects if isinstance(one, Revive)]
    desk.carry_out(desk.dispatcher.revival(revive))


def housekeeping(desk: OfficeDesk, owner: Owner, monkeypatch: pytest.MonkeyPatch) -> None:
    """Identities that end by the owner's word, and mail that goes on; and mail of the owner's."""
    writer = desk.holder("writer", 20)
    for pid, name in enumerate(("former", "unused", "tired"), 21):
        desk.call(desk.holder(name, pid), "identity.release")
    for _ in range(3):
        letter = {"to": ["former"], "subject": CANARY, "body": CANARY}
        desk.call(writer, "mail.send", **letter)
    monkeypatch.setattr(forwarding, "FORWARD_PIECE_ROWS", 2)
    desk.effects.clear()
    owner.do("forward", name="former", to="writer")
    (left,) = [one for one in desk.effects if isinstance(one, HandOn)]
    desk.carry_out(desk.dispatcher.handing_on(left.identity_no))
    owner.do("retire", name="tired")
    desk.world.pass_ms(40 * 86_400_000)
    owner.do("prune", days=30)
    mail = desk.call(TERMINAL, "owner.compose", to=["writer"], subject=CANARY, body=CANARY)
    owner.apply(owner.signed(mail))


def paired(desk: OfficeDesk, owner: Owner) -> None:
    """Hosts that are paired: one stops and is removed, one ends it itself."""
    match = pairs.meet().inviter.match
    assert match is not None
    proven = Proven(match, pairs.DESK.certificate, (), ())
    desk.find_pairing = {proven.id: proven}.get
    owner.do("peer", pairing=proven.id)
    keys = [SigningKey.from_seed(bytes([n]) * 32) for n in (91, 92)]
    no, other = plant(desk, keys[0], "box-91", owner.id), plant(desk, keys[1], "box-92")
    signed_by(owner, no)
    context = desk.dispatcher.context()
    owner.do("peer-change", name="box-91", label="box-93")
    desk.do(lambda tx: relaying.stopped(context, tx, no, "fork"))
    policy = rows(desk, act="policy")[0]["record"]
    nack = Nack(policy, None, "wrong-issuer", "")
    desk.do(lambda tx: following.refused(context, tx, peers.by_no(tx, no), nack))
    owner.do("unpair", name="box-93")
    desk.do(lambda tx: unpairing.dismissed(context, tx, other))


def test_every_act_writes_its_row(
    desk: OfficeDesk, owner: Owner, monkeypatch: pytest.MonkeyPatch
) -> None:
    history(desk, owner)
    revived(desk)
    housekeeping(desk, owner, monkeypatch)
    paired(desk, owner)
    found = rows(desk)
    assert CANARY not in json.dumps(found)
    assert [row["no"] for row in found] == list(range(1, len(found) + 1))
    assert ACTS - {row["act"] for row in found} == {"host"}  # which is written at the first start
    last = {row["act"]: row for row in found}
    nobodys = {"clock", "owner", "policy", "revoke"} | ABOUT_PEERS
    assert {act for act, row in last.items() if row["agent"] is None} == nobodys
    assert last["release"]["session"] == {"cli": "shell", "id": "23-230"}
    assert last["rename"]["details"]["old_name"] == "ben"
    assert last["takeover"]["details"]["to"] == {"cli": "claude", "session": "s-3"}
    assert last["takeover"]["details"]["reason"] == "it hangs"
    for act in OWNERS & last.keys():
        assert last[act]["record"] in {
            row[0] for row in desk.rows("SELECT record_id FROM owner_records")
        }
    assert last["policy"]["details"]["from"] == ["ana@desk"]
    assert faults(desk) == []


def test_the_store_begins_with_the_host(tmp_path: Path, desk: OfficeDesk) -> None:
    (tmp_path / "home").mkdir(mode=0o700)
    paths = Paths(str(tmp_path / "home"), str(tmp_path / "run"))
    made = run_group(desk.connection, [lambda tx: booting.boot(tx, paths, desk.world, BOOT)])
    assert isinstance(made[0], Committed)
    (row,) = rows(desk)
    assert (row["act"], row["details"]["key_id"]) == ("host", made[0].value.host.key_id)
    desk.connection.execute("DELETE FROM audit")
    assert faults(desk) == [("missing", 1, 1)]


def test_an_acted_request_tells_its_message_and_the_policy_that_it_was_acted_under(
    desk: OfficeDesk, owner: Owner
) -> None:
    _, message = history(desk, owner)
    (row,) = rows(desk, act="acted")
    told = row["details"]
    assert (told["message"], told["sender"], told["did"]) == (message, "ana", "ran the tests")
    assert (told["trust"], told["policy"]) == ("local", "collaborate: read, edit")
    (policy,) = rows(desk, act="policy")
    assert row["record"] == policy["record"]
    assert row["agent"] == "cai"


def test_no_words_of_mail_and_no_secret_are_in_the_log(desk: OfficeDesk, owner: Owner) -> None:
    history(desk, owner)
    text = json.dumps([rows(desk), verified(desk)])
    for secret in (CANARY, bytes(range(32)).hex(), (bytes([7]) * 32).hex()):
        assert secret not in text


def test_the_acts_that_the_code_writes_are_the_acts_of_the_table() -> None:
    written: set[str] = set()
    for path in (ROOT / "mbx" / "daemon").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "audit.append":
                (act,) = [one.value for one in node.keywords if one.arg == "act"]
                written |= {str(act.value)} if isinstance(act, ast.Constant) else set()
    assert len(written) >= 7
    assert written <= ACTS


# -- list -----------------------------------------------------------------------------------------


def test_pages_are_newest_first_and_a_cursor_goes_on(desk: OfficeDesk, owner: Owner) -> None:
    history(desk, owner)
    every = rows(desk)
    assert rows(desk, limit=3) == every
    page = desk.call(TERMINAL, "audit.list", limit=3)
    assert [row["no"] for row in page["rows"]] == [row["no"] for row in every[:-4:-1]]
    assert page["total"] == len(every)
    desk.holder("eve", 9)  # rows that come meanwhile move nothing
    following = desk.call(TERMINAL, "audit.list", limit=3, cursor=page["next_cursor"])
    assert following["rows"][0]["no"] == page["rows"][-1]["no"] - 1
    assert desk.refusal(TERMINAL, "audit.list", act="set", cursor=page["next_cursor"]).code == (
        "conflict"
    )
    for wrong in ("x", "audit.00000000.1", 7):
        refusal = desk.refusal(TERMINAL, "audit.list", cursor=wrong)
        assert refusal.code in ("usage", "conflict")


def test_rows_are_chosen_by_identity_act_and_time(desk: OfficeDesk, owner: Owner) -> None:
    history(desk, owner)
    by_name = rows(desk, identity="cai")
    assert {row["act"] for row in by_name} == {
        "register", "claim", "set", "rename", "acted", "takeover",
    }  # fmt: skip
    assert rows(desk, identity=by_name[0]["identity"], limit=2) == by_name
    assert [row["act"] for row in rows(desk, act="takeover", identity="cai")] == ["takeover"]
    assert rows(desk, act="takeover", identity="ana") == []
    desk.world.pass_ms(10 * 3_600_000)
    desk.holder("eve", 9)
    assert [row["act"] for row in rows(desk, since="1h")] == ["register", "claim"]
    assert len(rows(desk, since="2000-01-01")) == len(rows(desk))
    assert desk.refusal(TERMINAL, "audit.list", identity="ben").code == "unknown-identity"
    for wrong in ({"act": "stole"}, {"since": "noon"}, {"limit": 0}, {"limit": 201}):
        assert desk.refusal(TERMINAL, "audit.list", **wrong).code == "usage"


def test_an_empty_page_says_that_more_may_come(
    desk: OfficeDesk, owner: Owner, monkeypatch: pytest.MonkeyPatch
) -> None:
    history(desk, owner)
    monkeypatch.setattr(audit, "SCAN_ROWS", 2)
    page = desk.call(TERMINAL, "audit.list", act="owner")
    assert (page["rows"], page["has_more"]) == ([], True)
    assert [row["no"] for row in rows(desk, act="owner")] == [1]


def test_a_full_answer_ends_a_page(desk: OfficeDesk, monkeypatch: pytest.MonkeyPatch) -> None:
    desk.holder("ana", 1)
    monkeypatch.setattr(Budget, "take", lambda self, value: False)
    page = desk.call(TERMINAL, "audit.list")
    assert len(page["rows"]) == 1
    assert [row["act"] for row in rows(desk)] == ["register", "claim"]


def test_a_row_that_was_made_unreadable_is_still_told(desk: OfficeDesk) -> None:
    desk.holder("ana", 1)
    desk.connection.execute(
        "UPDATE audit SET detail = CAST(x'ff' AS TEXT), act = CAST(x'fe61' AS TEXT),"
        " identity = CAST(x'fd' AS TEXT) WHERE no = 2"
    )
    row = rows(desk)[-1]
    assert (row["details"], row["act"], row["identity"]) == (None, "\\xfea", "\\xfd")
    assert (row["agent"], row["record"], row["session"]) == (None, None, None)
    json.dumps(row)
    assert faults(desk) == [("changed", 2, 2)]


# -- verify ---------------------------------------------------------------------------------------


def test_a_whole_log_holds_and_says_by_what(
    desk: OfficeDesk, owner: Owner, monkeypatch: pytest.MonkeyPatch
) -> None:
    history(desk, owner)
    for pieces in ((1_000, 50), (1, 1), (3, 2)):
        monkeypatch.setattr(auditing, "PIECE_ROWS", pieces[0])
        monkeypatch.setattr(auditing, "PIECE_ACCEPTANCES", pieces[1])
        told = verified(desk)
        head = rows(desk)[-1]
        assert told["faults"] == []
        assert told["checked"] == head["no"]
        assert told["acceptances"] == len(desk.rows("SELECT 1 FROM owner_records"))
        assert told["last"] == {name: head[name] for name in ("no", "at", "hash")}
    wrong = desk.refusal(TERMINAL, "audit.verify", cursor="audit.00000000.2")
    assert wrong.code == "conflict"


def made_anew(desk: OfficeDesk, first: int) -> None:
    """Rows from `first` on written again by somebody who knows how."""
    tx = Tx(desk.connection, 0)
    previous = audit.hash_at(tx, first - 1) or audit.GENESIS
    for row in audit.after(tx, first - 1, 1_000):
        detail = row.detail.replace("e", "f") if row.no == first else row.detail
        previous = audit.row_hash(previous, row.no, row.at_ms, row.act, row.identity, detail)
        place = (detail, previous, row.no)
        desk.connection.execute("UPDATE audit SET detail = ?, hash = ? WHERE no = ?", place)


def test_rows_made_anew_are_found_by_what_the_host_signed(desk: OfficeDesk, owner: Owner) -> None:
    history(desk, owner)
    policy = rows(desk, act="policy")[0]["no"]
    made_anew(desk, policy + 1)
    told = verified(desk)["faults"]
    takeover = rows(desk, act="takeover")[0]
    assert (told[0]["kind"], told[0]["row"], told[0]["last"]) == (
        "rewritten",
        policy + 1,
        takeover["no"],
    )
    assert f"the acceptance of record {takeover['record']} names" in told[0]["words"]
    said = desk.call(nobody(), "daemon.health")["audit"]
    assert any("acceptance" in words for words in said["faults"])


def test_rows_behind_the_last_signature_can_be_made_anew_unseen_but_for_the_floor(
    desk: OfficeDesk, owner: Owner
) -> None:
    history(desk, owner)
    desk.holder("eve", 8)
    desk.holder("fay", 9)
    tx = Tx(desk.connection, 0)
    head = audit.head(tx)
    made_anew(desk, head[0] - 1)
    assert faults(desk) == []
    desk.dispatcher._authority.audit_reached = head
    told = verified(desk)
    assert told["floor"] == head[0]
    signed = rows(desk, act="clock")[0]["no"]
    assert [(one["kind"], one["row"], one["last"]) for one in told["faults"]] == [
        ("rewritten", signed + 1, head[0])
    ]
    assert "the floor names" in told["faults"][0]["words"]


def test_a_removed_end_is_found_by_the_acceptance_and_by_the_floor(
    desk: OfficeDesk, owner: Owner
) -> None:
    history(desk, owner)
    head_no, digest = audit.head(Tx(desk.connection, 0))
    desk.dispatcher._authority.audit_reached = (head_no, digest)
    desk.connection.execute("DELETE FROM audit WHERE no > ?", (head_no - 3,))
    words = [one["words"] for one in verified(desk)["faults"]]
    missing = f"rows {head_no - 2} to {head_no} are missing at the end"
    assert f"{missing}: the floor names row {head_no}" in words
    assert any(one.startswith(f"{missing}: the acceptance of record") for one in words)


def test_a_record_that_a_row_tells_of_and_that_is_gone_is_named(
    desk: OfficeDesk, owner: Owner
) -> None:
    history(desk, owner)
    (row,) = rows(desk, act="takeover")
    desk.connection.execute("DELETE FROM owner_records WHERE record_id = ?", (row["record"],))
    (fault,) = verified(desk)["faults"]
    assert (fault["kind"], fault["row"]) == ("record", row["no"])
    assert row["record"] in fault["words"]


@pytest.mark.parametrize(
    "change",
    [
        "acceptance = replace(acceptance, '\"audit_no\":1', '\"audit_no\":2')",
        "acceptance = '{}'",
        "acceptance = CAST(x'ff' AS TEXT)",
        "acceptance_signature = zeroblob(64)",
        "record_id = '00000000000000000000000000'",
    ],
)
def test_an_acceptance_that_the_host_did_not_sign_is_named(
    desk: OfficeDesk, owner: Owner, change: str
) -> None:
    desk.connection.execute(f"UPDATE owner_records SET {change} WHERE no = 1")
    assert "acceptance" in {one["kind"] for one in verified(desk)["faults"]}
    assert desk.call(nobody(), "daemon.health")["audit"]["faults"]


def test_an_acceptance_of_the_hosts_that_stands_with_another_record_is_named(
    desk: OfficeDesk, owner: Owner
) -> None:
    owner.do("revoke", all=True)
    texts = desk.rows("SELECT acceptance, acceptance_signature FROM owner_records WHERE no = 2")
    desk.connection.execute(
        "UPDATE owner_records SET acceptance = ?, acceptance_signature = ? WHERE no = 1", texts[0]
    )
    (fault,) = verified(desk)["faults"]
    assert "belongs to another record" in fault["words"]


def test_faults_without_end_are_counted(desk: OfficeDesk, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(6):
        desk.holder(f"agent-{'abcdef'[number] * 2}", number + 1)
    monkeypatch.setattr(methods, "FAULTS_MAX", 2)
    desk.connection.execute("UPDATE audit SET act = 'set' WHERE no % 3 = 1")
    piece = desk.call(TERMINAL, "audit.verify")
    assert (len(piece["faults"]), piece["faults_total"]) == (2, 4)


def test_the_check_changes_nothing(desk: OfficeDesk, owner: Owner) -> None:
    history(desk, owner)
    before = desk.connection.total_changes
    verified(desk)
    rows(desk)
    assert desk.connection.total_changes == before


def test_an_anchor_that_names_no_row_says_nothing(desk: OfficeDesk) -> None:
    tx = Tx(desk.connection, 0)
    for no in (0, -1, 2**62):
        assert auditing.against(tx, [auditing.Anchor(no, "", "x")]) == []


# -- the second place -----------------------------------------------------------------------------


class Kept:
    """A second place of a desk, in a folder."""

    def __init__(self, desk: OfficeDesk, folder: Path, known: Floor = NOTHING_YET) -> None:
        self.desk, self.path = desk, folder / "floor" / "floor.json"
        journal = Journal(str(folder / "log"), desk.world.now_ms)
        self.place = SecondPlace(str(self.path), desk.host, known, desk.world, journal)
        self.authority = desk.dispatcher._authority = self.place.authority

    def follow(self) -> None:
        self.place.follow(run_reads(self.desk.connection, [self.place.look])[0])

    def authorise(self) -> None:
        for effect in self.desk.effects:
            if isinstance(effect, Authorised):
                self.place.authorised(effect)
        self.desk.effects.clear()

    def read(self) -> Floor | None:
        return floor.load(str(self.path), self.desk.host)


def test_the_floor_follows_the_log_and_is_written_only_when_it_moved(
    desk: OfficeDesk, tmp_path: Path
) -> None:
    kept = Kept(desk, tmp_path)
    desk.holder("ana", 1)
    kept.follow()
    no, digest = audit.head(Tx(desk.connection, 0))
    assert kept.read() == Floor(0, no, digest.hex())
    written = entry_of(kept.path)
    for _ in range(3):
        kept.follow()
    assert entry_of(kept.path) == written
    desk.holder("ben", 2)
    kept.follow()
    assert entry_of(kept.path).inode != written.inode


def test_a_log_that_was_put_back_never_overwrites_the_proof(
    desk: OfficeDesk, owner: Owner, tmp_path: Path
) -> None:
    kept = Kept(desk, tmp_path)
    desk.holder("ana", 1)
    kept.follow()
    proof = kept.read()
    desk.connection.execute("DELETE FROM audit WHERE no > 1")
    for pid, name in enumerate(("ben", "cai", "dan"), 2):
        desk.holder(name, pid)
        kept.follow()
    assert kept.read() == proof
    desk.effects.clear()
    owner.do("revoke", all=True)
    kept.authorise()
    found = kept.read()
    assert proof is not None
    assert found == proof._replace(version=1)
    assert ("rewritten", 1, proof.audit_no) in faults(desk)


def test_records_told_out_of_order_lower_nothing(
    desk: OfficeDesk, owner: Owner, tmp_path: Path
) -> None:
    kept = Kept(desk, tmp_path)
    desk.effects.clear()
    owner.do("revoke", all=True)
    owner.do("revoke", all=True)
    desk.effects.reverse()
    kept.authorise()
    no, digest = audit.head(Tx(desk.connection, 0))
    assert kept.read() == Floor(2, no, digest.hex())


def test_a_lost_floor_stays_lost_until_the_owner_signs(
    desk: OfficeDesk, owner: Owner, tmp_path: Path
) -> None:
    kept = Kept(desk, tmp_path, Floor(1))
    kept.follow()
    assert not kept.path.exists()
    desk.effects.clear()
    owner.do("revoke", all=True)
    kept.authorise()
    desk.holder("ana", 1)
    kept.follow()
    found = kept.read()
    assert found is not None
    assert found.audit_no == audit.head(Tx(desk.connection, 0))[0]


def test_what_cannot_be_written_is_logged_and_tried_again(desk: OfficeDesk, tmp_path: Path) -> None:
    kept = Kept(desk, tmp_path)
    (tmp_path / "floor").write_text("in the way")
    desk.holder("ana", 1)
    kept.follow()
    assert "the floor could not be written" in (tmp_path / "log").read_text()
    assert kept.authority.audit_reached == (0, b"")
    for method in ("owner.show", "policy.list"):
        assert "floor" in desk.call(nobody(), method)["floor_fault"]
    (tmp_path / "floor").unlink()
    kept.follow()
    assert kept.authority.floor_fault == ""
    assert desk.call(nobody(), "owner.show")["floor_fault"] is None
    assert kept.authority.audit_reached == audit.head(Tx(desk.connection, 0))
    kept.place.follow(Refused(MbxError("internal", "")))
    (tmp_path / "log").unlink()


def test_only_the_host_can_have_written_the_floor(desk: OfficeDesk, tmp_path: Path) -> None:
    kept = Kept(desk, tmp_path)
    desk.holder("ana", 1)
    kept.follow()
    payload = json.loads(json.loads(kept.path.read_text())["payload"])
    forged = sign("floor", payload | {"audit_no": 1}, KEY, "0" * 26)
    assert isinstance(forged, Record)
    text = {"payload": forged.payload, "signature": "A" * 86 + "=="}
    kept.path.write_text(json.dumps(text))
    with pytest.raises(MbxError, match="not what this host wrote"):
        kept.read()
    assert moment(desk.world).now_ms == desk.world.wall_ms


def test_nobody_but_the_owners_terminal_asks(desk: OfficeDesk) -> None:
    for method in ("audit.list", "audit.verify"):
        for caller in (nobody(), shell(1), at_terminal(shell(1), "an agent CLI is above")):
            assert desk.refusal(caller, method).code == "owner-required"
