"""What the owner signed on one host holds on its other hosts; records are carried by hand."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from mbx.daemon import booting, unpairing
from mbx.daemon.floor import Floor, FollowedFloor
from mbx.daemon.journal import Journal
from mbx.daemon.secondplace import SecondPlace
from mbx.store import owners
from mbx.store.database import Tx
from mbx.store.peers import PAGE_ROWS, save_identity
from tests.support.estate import Estate, key
from tests.support.office import nobody
from tests.support.owner import TERMINAL
from tests.support.paired import carry, pair, plant, settle


@pytest.fixture
def estate() -> Iterator[Estate]:
    made = Estate()
    yield made
    made.close()


def test_a_policy_signed_here_holds_for_an_agent_there_once_it_has_arrived(estate: Estate) -> None:
    policy = estate.set("ben@lap", "collaborate", "ana@desk")
    assert estate.there.rows("SELECT count(*) FROM followed_chains") == [(0,)]
    carry(estate.here, estate.there)
    line = estate.line()
    assert line.startswith("policy: collaborate (read, edit;")
    assert f"record {policy}" in line
    [listed] = estate.there.call(nobody(), "policy.list")["policies"]
    assert (listed["id"], listed["host"], listed["to"]) == (policy, "desk", ["ben"])
    assert listed["from"] == ["ana@desk"]
    [kept] = estate.here.call(nobody(), "policy.list", to="ben@lap")["policies"]
    assert (kept["to"], kept["host"], kept["state"]) == (["ben@lap"], "desk", "in effect")


def test_what_is_signed_names_the_identity_with_its_host(estate: Estate) -> None:
    draft = estate.owner.draft("policy", to=["ben@lap"], level="ask", **{"from": ["host:desk"]})
    for word in ('"label":"lap"', '"name":"ben"', f'"host":"{estate.there.host.key_id}"'):
        assert word in draft["payload"]
    assert any(line.startswith("it goes to lap too") for line in draft["lines"])


def test_where_a_record_goes_is_told_in_a_few_lines(estate: Estate) -> None:
    for number in range(9):
        label = f"box-{number}"
        plant(estate.here, key(100 + number), label, estate.owner.id)
    draft = estate.owner.draft("revoke", all=True)
    assert len(draft["lines"]) == 9
    assert draft["lines"][-1] == "and to 2 more: mbx peers list"
    assert draft["payload"].count('"chain"') == 1


def test_local_means_the_host_on_which_it_was_signed(estate: Estate) -> None:
    estate.set("ben@lap", "collaborate", "local")
    cat = estate.there.holder("cat", 21)
    estate.settle()
    assert estate.level() == "collaborate"
    message = estate.there.call(cat, "mail.send", to=["ben"], subject="s", body="b")["id"]
    [read] = estate.there.call(estate.ben, "mail.read", ids=[message])["messages"]
    assert read["policy"] == "ask", "cat lives on lap, not on desk"
    [listed] = estate.there.call(nobody(), "policy.list")["policies"]
    assert listed["from"] == ["everybody on desk"]


@pytest.mark.parametrize("source", ["host:lap", "ben@lap", "role:dev@lap"])
def test_mail_of_another_host_can_be_given_more_here(estate: Estate, source: str) -> None:
    estate.set("ana", "collaborate", source)
    letter = {"to": ["ana@desk"], "subject": "s", "body": "b"}
    message = estate.there.call(estate.ben, "mail.send", **letter)["id"]
    estate.settle()
    [read] = estate.here.call(estate.ana, "mail.read", ids=[message])["messages"]
    assert read["policy"] == "collaborate: read, edit"


def test_a_revocation_reaches_the_other_host_from_either_side(estate: Estate) -> None:
    for by in (estate.owner, estate.owner_there):
        policy = estate.set("ben@lap", "yolo", "ana@desk")
        estate.settle()
        assert estate.level() == "yolo"
        revoked = estate.revoke(policy[:12], on=by)
        estate.settle()
        assert estate.level() == "ask"
        assert f"revoked by record {revoked}" in estate.line()
        [shown] = [
            one
            for one in estate.here.call(nobody(), "policy.list", all=True)["policies"]
            if one["id"] == policy
        ]
        assert shown["state"] == f"revoked by record {revoked}"


def test_everything_is_taken_back_on_all_hosts_by_one_word_on_any(estate: Estate) -> None:
    estate.set("ben@lap", "yolo", "ana@desk")
    estate.set("ana", "collaborate", "ben@lap", on=None)
    estate.settle()
    estate.revoke(on=estate.owner_there)
    estate.settle()
    assert estate.level() == "ask"
    assert estate.here.call(nobody(), "policy.list")["policies"] == []


def test_the_newest_of_all_chains_governs(estate: Estate) -> None:
    estate.set("ben@lap", "yolo", "ana@desk")
    estate.settle()
    narrow = estate.set("ben", "collaborate", "ana@desk", on=estate.owner_there)
    estate.settle()
    assert f"record {narrow}" in estate.line()
    wide = estate.set("ben@lap", "autonomous", "ana@desk")
    estate.settle()
    assert f"record {wide}" in estate.line()
    listed = estate.here.call(nobody(), "policy.list", all=True)["policies"]
    assert [one["state"] for one in listed] == ["in effect", *[f"superseded by record {wide}"] * 2]


def test_a_clock_that_is_behind_does_not_make_the_newest_word_an_old_one(estate: Estate) -> None:
    estate.there.world.wall_ms += 120_000
    estate.set("ben", "yolo", "ana@desk", on=estate.owner_there)
    estate.settle()
    narrow = estate.set("ben@lap", "collaborate", "ana@desk")
    estate.settle()
    assert f"record {narrow}" in estate.line()
    estate.set("ben", "yolo", "ana@desk", on=estate.owner_there)
    estate.settle()
    estate.revoke()
    estate.settle()
    assert estate.level() == "ask"


def test_a_recipient_on_a_host_of_another_owner_is_refused_with_a_next_step(estate: Estate) -> None:
    estate.add("pi", "eve", 30, seed=8)
    wanted = {"act": "policy", "to": ["eve@pi"], "level": "ask", "from": ["local"]}
    refusal = estate.here.refusal(nobody(), "owner.draft", **wanted)
    assert refusal.code == "owner-required"
    assert "pi has another owner" in refusal.message
    assert refusal.next_step == "have the owner of pi sign a policy there"
    estate.set("ana", "collaborate", "eve@pi")
    told = [place.record.kind for place in estate.here.places("pi") if place.record]
    assert "policy" not in told, "another owner is not told whom ours trusts"


@pytest.mark.parametrize(
    ("to", "code"),
    [
        ("bne@lap", "unknown-identity"),
        ("ben@pi", "not-paired"),
        ("owner@lap", "unknown-identity"),
        ("ben", "unknown-identity"),
    ],
)
def test_a_recipient_that_nobody_has_is_refused(estate: Estate, to: str, code: str) -> None:
    wanted = {"act": "policy", "to": [to], "level": "ask", "from": ["local"]}
    assert estate.here.refusal(nobody(), "owner.draft", **wanted).code == code


@pytest.mark.parametrize("wanted", [{"to": ["ben"]}, {"from": ["ben"]}])
def test_a_bare_name_of_another_host_is_not_guessed_and_not_denied(
    estate: Estate, wanted: dict[str, list[str]]
) -> None:
    asked = {"act": "policy", "to": ["ana"], "level": "ask", "from": ["local"], **wanted}
    refusal = estate.here.refusal(nobody(), "owner.draft", **asked)
    assert refusal.code == "unknown-identity"
    assert refusal.message == "nobody here is called ben; did you mean ben@lap?"
    assert (refusal.next_step, refusal.facts["suggestions"]) == (
        "write it as name@host",
        ["ben@lap"],
    )


def test_a_crowd_on_another_host_hides_nobody_that_a_policy_names(estate: Estate) -> None:
    estate.add("pi", "eve", 30)
    crowd = estate.here.peer_nos["pi"]

    def fill(tx: Tx) -> None:
        for number in range(PAGE_ROWS):
            save_identity(
                tx,
                crowd,
                f"{number:026}",
                name=f"agent-{number}",
                role="dev",
                description="",
                retired=False,
                now_ms=1,
            )

    estate.here.do(fill)
    wanted = {"to": ["ana"], "level": "ask", "from": ["role:dev@lap"]}
    assert '"name":"ben"' in estate.owner.draft("policy", **wanted)["payload"]
    wanted = {"act": "policy", "to": ["ana"], "level": "ask", "from": ["bne@lap"]}
    refusal = estate.here.refusal(nobody(), "owner.draft", **wanted)
    assert refusal.facts["suggestions"] == ["ben@lap"]


@pytest.mark.parametrize("source", ["host:lab", "ben@lab", "role:dev@lab"])
def test_a_host_that_nobody_is_paired_with_is_refused_with_the_labels_close_to_it(
    estate: Estate, source: str
) -> None:
    wanted = {"act": "policy", "to": ["ana"], "level": "ask", "from": [source]}
    refusal = estate.here.refusal(nobody(), "owner.draft", **wanted)
    assert (refusal.code, refusal.facts["suggestions"]) == ("not-paired", ["lap"])


def test_a_draft_that_was_made_for_other_hosts_is_made_again(estate: Estate) -> None:
    old = estate.owner.draft("policy", to=["ana"], level="yolo", **{"from": ["local"]})
    revoke = estate.owner.draft("revoke", all=True)
    estate.add("pi", "eve", 30)
    refusal = estate.here.refusal(nobody(), "owner.apply", record=estate.owner.signed(old))
    assert refusal.code == "conflict"
    assert estate.owner.apply(estate.owner.signed(revoke))["applied"], "less is taken at once"


def test_a_name_that_has_passed_to_another_identity_there_is_not_signed_for(estate: Estate) -> None:
    draft = estate.owner.draft("policy", to=["ben@lap"], level="yolo", **{"from": ["ana"]})
    estate.there.call(estate.ben, "identity.rename", name="bob")
    estate.there.tell()
    estate.settle()
    refusal = estate.here.refusal(nobody(), "owner.apply", record=estate.owner.signed(draft))
    assert (refusal.code, "is called bob" in refusal.message) == ("conflict", True)


def test_what_was_signed_while_the_other_host_slept_holds_when_it_is_met(estate: Estate) -> None:
    policy = estate.set("ben@lap", "yolo", "ana@desk")
    estate.revoke(policy)
    narrow = estate.set("ben@lap", "collaborate", "ana@desk")
    estate.pass_ms(3_600_000)
    assert carry(estate.here, estate.there) >= 3
    assert f"record {narrow}" in estate.line()


def test_what_was_committed_and_not_acknowledged_comes_again_and_acts_once(estate: Estate) -> None:
    estate.set("ben@lap", "collaborate", "ana@desk")
    places = estate.here.places("lap", estate.here.stream("lap").acked_seq)
    records = [place.record for place in places if place.record]
    estate.there.take("desk", places[0].seq, records)
    estate.restart(estate.there)
    estate.settle()
    assert estate.level() == "collaborate"
    assert estate.there.rows("SELECT count(*) FROM owner_records WHERE chain IS NOT NULL") == [(1,)]


def test_a_start_finds_what_was_followed_before(estate: Estate) -> None:
    estate.set("ben@lap", "collaborate", "ana@desk")
    estate.settle()
    estate.restart(estate.there)
    assert estate.level() == "collaborate"


def test_a_store_that_was_put_back_has_lost_what_it_followed(estate: Estate) -> None:
    estate.set("ben@lap", "yolo", "ana@desk")
    estate.settle()
    estate.revoke()
    estate.settle()
    estate.there.connection.execute(
        "DELETE FROM owner_records WHERE no = (SELECT max(no) FROM owner_records)"
    )
    estate.there.connection.execute("UPDATE followed_chains SET version = version - 1")
    estate.restart(estate.there)
    assert estate.level() == "ask"
    assert "record 2 of the owner's chain on desk is missing" in estate.line()
    mine = estate.set("ben", "collaborate", "ana@desk", on=estate.owner_there)
    assert f"record {mine}" in estate.line(), "the owner needs no other host to go on"


@pytest.mark.parametrize("lost", ["the row", "the floor"])
def test_a_start_that_finds_the_log_or_the_floor_gone_obeys_no_chain(
    estate: Estate, lost: str, tmp_path: Path
) -> None:
    """What was taken back, in whatever chain, may have gone with it."""
    estate.set("ben@lap", "yolo", "ana@desk")
    estate.settle()
    assert estate.level() == "yolo"
    there = estate.there
    known = Floor(0, 99, "ab" * 32) if lost == "the row" else None
    now_ms = there.world.now_ms()
    found = there.do(lambda tx: booting._floor(tx, known, there.host, now_ms))
    void = 1 if lost == "the row" else None
    version = 1 if lost == "the row" else 2
    assert found.followed == (FollowedFloor(estate.here.host.key_id, version, now_ms, void),)
    journal = Journal(str(tmp_path / "log"), there.world.now_ms)
    place = SecondPlace(str(tmp_path / "floor.json"), there.host, found, there.world, journal)
    there.dispatcher._authority = place.authority
    assert estate.level() == "ask"
    estate.set("ben@lap", "collaborate", "ana@desk")
    estate.settle()
    assert estate.level() == "collaborate"


def test_the_end_of_the_pairing_voids_what_came_of_the_other_host(estate: Estate) -> None:
    wide = estate.set("ben@lap", "yolo", "local", "host:lap")
    estate.settle()
    assert estate.level() == "yolo"
    cat = estate.there.holder("cat", 21)

    def local() -> str:
        message = estate.there.call(cat, "mail.send", to=["ben"], subject="s", body="b")["id"]
        [read] = estate.there.call(estate.ben, "mail.read", ids=[message])["messages"]
        return str(read["policy_line"])

    assert f"record {wide}" in local()
    peer_no, context = estate.there.peer_nos["desk"], estate.there.dispatcher.context()
    estate.there.do(lambda tx: unpairing.dismissed(context, tx, peer_no))
    assert "the pairing with it has ended since" in local()
    assert local().startswith("policy: ask")
    estate.here.connection.execute("UPDATE peers SET ended_ms = 1, ended_by = 'us'")
    pair(estate.here, estate.there, estate.owner.id)
    settle(estate.here, estate.there)
    assert estate.level() == "ask", "what was taken back meanwhile would not be known here"
    estate.set("ben@lap", "collaborate", "local")
    estate.settle()
    assert estate.level() == "collaborate"


def test_a_policy_about_an_identity_of_a_removed_host_is_in_effect_nowhere(estate: Estate) -> None:
    policy = estate.set("ben@lap", "collaborate", "ana@desk")

    def listed(**wanted: object) -> list[tuple[bool, str]]:
        answer = estate.here.call(nobody(), "policy.list", **wanted)
        return [(one["in_effect"], one["state"]) for one in answer["policies"]]

    def counted() -> tuple[int, int]:
        shown = estate.here.call(nobody(), "owner.show")["policies_in_effect"]
        return shown, len(estate.here.call(nobody(), "daemon.health")["policies"])

    assert (listed(), counted()) == ([(True, "in effect")], (1, 1))
    estate.owner.do("unpair", name="lap")
    state = "ended with the pairing: ben@lap obeys it only until its host has heard"
    assert (listed(), listed(all=True), counted()) == ([], [(False, state)], (0, 0))
    draft = estate.owner.draft("revoke", records=[policy])
    assert draft["lines"][0].endswith(state)
    # What was signed before is not told to a host that is paired again.
    estate.here.world.pass_ms(1)
    plant(estate.here, estate.there.key, "lap", estate.owner.id)
    state = "ended with a pairing: lap was paired anew since it was signed"
    assert (listed(), listed(all=True)) == ([], [(False, state)])
    assert estate.owner.do("revoke", records=[policy])["before"] == {"policies": 0}


def test_a_policy_about_identities_of_a_removed_host_and_others_is_in_effect_in_part(
    estate: Estate,
) -> None:
    estate.here.holder("eve", 77)
    policy = estate.owner.do(
        "policy", to=["ben@lap", "eve"], level="collaborate", **{"from": ["ana"]}
    )["id"]
    estate.owner.do("unpair", name="lap")
    [one] = estate.here.call(nobody(), "policy.list")["policies"]
    assert (one["id"], one["in_effect"], one["state"]) == (policy, True, "in effect in part")
    assert one["disobeyed"] == [
        {
            "to": "ben@lap",
            "why": "ended with the pairing: ben@lap obeys it only until its host has heard",
        }
    ]
    [own] = estate.here.call(nobody(), "policy.list", to="eve")["policies"]
    assert (own["state"], own["disobeyed"]) == ("in effect", [])


def test_a_third_host_of_the_owner_has_it_too(estate: Estate) -> None:
    pi, eve = estate.add("pi", "eve", 30)
    estate.set("ben@lap", "collaborate", "eve@pi", on=estate.owner)
    settle(estate.here, pi)
    estate.settle()
    assert estate.line_of(pi, eve).startswith("policy: collaborate")
    assert [one["to"] for one in pi.call(nobody(), "policy.list")["policies"]] == [["ben@lap"]]


def test_the_host_signs_that_it_took_the_record_and_its_log_tells_of_it(estate: Estate) -> None:
    policy = estate.set("ben@lap", "collaborate", "ana@desk")
    estate.settle()
    row = estate.there.do(lambda tx: owners.find(tx, policy))
    assert row is not None
    assert f'"record":"{policy}"' in row.acceptance
    told = estate.there.call(TERMINAL, "audit.list", act="policy")["rows"]
    assert [(one["record"], one["details"]["host"]) for one in told] == [(policy, "desk")]
    assert estate.there.call(nobody(), "daemon.health")["audit"]["faults"] == []
