"""What owners sign at a pairing: labels, versions, keys; a host that adopts the inviter's owner."""

import json
from pathlib import Path
from typing import Any

import pytest

from mbx.core.canonical import encode
from mbx.core.errors import MbxError
from mbx.core.keys import key_id
from mbx.daemon import peering
from mbx.store import outbox, peers
from tests.support.meetings import DESK_AT, MeetingDesk, meet, meeting_desk, present
from tests.support.owner import TERMINAL, content, wire

# -- labels, versions, keys -----------------------------------------------------------------------


async def paired(desk: MeetingDesk, laptop: MeetingDesk) -> None:
    met = await meet(desk, laptop)
    await desk.agree(met.pairing)
    await laptop.agree(met.pairing)
    assert await met.ends() == ("paired", "paired")


async def test_a_label_that_is_taken_or_looks_like_one_is_refused_with_another(
    desk: MeetingDesk, tmp_path: Path
) -> None:
    twin = meeting_desk(tmp_path / ".", "desk-two", 9)
    twin.host = twin.host.__class__("desk", twin.host.key_id, twin.host.signer)
    twin.pairings._host = twin.host
    met = await meet(desk, twin)
    draft = content(desk.draft(met.pairing))
    assert (draft["label"], draft["peer"]["label"]) == ("desk-2", "desk")
    for label in ("desk", "d-esk"):
        with pytest.raises(MbxError) as refused:
            desk.draft(met.pairing, label=label)
        assert (refused.value.code, refused.value.facts["suggestions"]) == (
            "name-taken",
            [f"{label}-2"],
        )
    with pytest.raises(MbxError, match="label"):
        desk.draft(met.pairing, label="No Label")
    await twin.leave()


async def test_a_paired_host_is_not_paired_twice(desk: MeetingDesk, laptop: MeetingDesk) -> None:
    await paired(desk, laptop)
    met = await meet(desk, laptop)
    with pytest.raises(MbxError) as refused:
        desk.draft(met.pairing)
    assert (refused.value.code, refused.value.facts["peer"]) == ("conflict", "laptop")
    assert "mbx peers addr laptop" in (refused.value.next_step or "")
    assert desk.wires.asked[-1] is True  # its certificate is pinned


async def test_a_new_pairing_has_new_streams_and_the_next_version(
    desk: MeetingDesk, laptop: MeetingDesk
) -> None:
    await paired(desk, laptop)
    former = {}
    for host in (desk, laptop):
        [row] = present(host)
        former[host.label] = host.do(lambda tx, no=row.no: outbox.stream(tx, no)).out_stream  # type: ignore[misc]
        host.do(lambda tx, no=row.no: peers.end(tx, no, "us", 5))  # type: ignore[misc]
    await paired(desk, laptop)
    for host in (desk, laptop):
        [row] = present(host)
        assert row.version == 2
        stream = host.do(lambda tx, no=row.no: outbox.stream(tx, no))  # type: ignore[misc]
        assert stream.out_stream != former[host.label]
        assert stream.out_seq == 1  # what is told first


async def test_an_older_record_never_counts_again(desk: MeetingDesk, laptop: MeetingDesk) -> None:
    met = await meet(desk, laptop)
    old = desk.signed(desk.draft(met.pairing))
    await desk.agree(met.pairing)
    no = present(desk)[0].no
    desk.do(lambda tx: peers.end(tx, no, "us", 5))
    refusal = await desk.refused("owner.apply", record=old)
    assert (refusal.code, "version 2" in refusal.message) == ("conflict", True)


async def test_a_machine_that_was_installed_again_is_told_of(
    desk: MeetingDesk, laptop: MeetingDesk, tmp_path: Path
) -> None:
    await paired(desk, laptop)
    again = meeting_desk(tmp_path, "laptop-new", 8)
    again.host = again.host.__class__("laptop", again.host.key_id, again.host.signer)
    again.pairings._host = again.host
    met = await meet(desk, again)
    draft = desk.draft(met.pairing)
    assert content(draft)["label"] == "laptop-2"
    [told] = [line for line in draft["lines"] if "installed again" in line]
    assert "mbx peers remove laptop, then pair again" in told
    await again.leave()


async def test_a_record_of_another_run_or_host_is_refused(
    desk: MeetingDesk, laptop: MeetingDesk
) -> None:
    met = await meet(desk, laptop)
    payload = content(desk.draft(met.pairing))
    assert desk.owner is not None
    for change, code in (
        ({"transcript": "0" * 64}, "closed"),
        ({"certificate": "0" * 64}, "conflict"),
        ({"label": "other"}, "conflict"),
        ({"key": "0" * 64}, "owner-required"),
    ):
        bent = payload | {"peer": payload["peer"] | change}
        refusal = await desk.refused("owner.apply", record=wire("peer", bent, desk.owner.key))
        assert refusal.code == code, change
    stranger = wire("peer", payload, laptop.owner.key)  # type: ignore[union-attr]
    assert (await desk.refused("owner.apply", record=stranger)).code == "owner-required"
    assert present(desk) == []


# -- adoption -------------------------------------------------------------------------------------


async def enclosed(desk: MeetingDesk, pairing_id: str) -> dict[str, Any]:
    """The owner of the desk signs for the host that joins."""
    records = [
        desk.signed(desk.call(TERMINAL, "owner.draft", act=act, pairing=pairing_id))
        for act in ("enrolment", "peer-there")
    ]
    return await desk.ask("pair.enclose", pairing=pairing_id, enrolment=records[0], peer=records[1])


async def test_a_host_without_owner_adopts_the_inviters(
    desk: MeetingDesk, bare: MeetingDesk
) -> None:
    bare.world.wall_ms -= 3_600_000  # records are dated by the clock of their host
    met = await meet(desk, bare)
    assert met.at_laptop["compare"]["adopts"]
    assert met.at_desk["compare"]["owner"] is None
    early = await bare.refused("pair.adopt", pairing=met.pairing)
    assert early.code == "conflict"
    assert (
        await desk.refused("owner.apply", record=desk.signed(desk.draft(met.pairing)))
    ).code == (
        "conflict"  # nothing was signed for the other host yet
    )
    await enclosed(desk, met.pairing)
    await desk.agree(met.pairing)
    told = await bare.heard(met.at_laptop["run"])
    assert [one["kind"] for one in told["records"]] == ["rotate", "peer"]
    adopted = await bare.ask("pair.adopt", pairing=met.pairing)
    assert adopted["owner"] == desk.owner.id  # type: ignore[union-attr]
    assert adopted["after"]["peer"] == "desk"
    assert await met.ends() == ("paired", "paired")
    for host in (desk, bare):
        assert [row.owner_key for row in present(host)] == [adopted["owner"]]
    assert bare.call(TERMINAL, "owner.show")["owner"]["key_id"] == adopted["owner"]
    assert present(bare)[0].addresses == (DESK_AT, "[2001:db8::7]:24629")


async def test_only_what_the_pairing_has_proved_is_adopted(
    desk: MeetingDesk, bare: MeetingDesk, laptop: MeetingDesk
) -> None:
    met = await meet(desk, bare)
    drafts = [
        content(desk.call(TERMINAL, "owner.draft", act=act, pairing=met.pairing))
        for act in ("enrolment", "peer-there")
    ]
    assert desk.owner is not None
    assert laptop.owner is not None
    own, other = desk.owner.key, laptop.owner.key
    stranger = drafts[0] | {
        "public_key": other.public.hex(),
        "owner": key_id("owner", other.public),
    }
    cases = [
        (wire("rotate", drafts[0], other), wire("peer", drafts[1], own)),
        (wire("rotate", stranger, other), wire("peer", drafts[1], own)),
        (wire("rotate", drafts[0], own), wire("peer", drafts[1], other)),
        (wire("rotate", drafts[0] | {"aud": desk.host.key_id}, own), wire("peer", drafts[1], own)),
        (wire("rotate", drafts[0], own), wire("peer", drafts[1] | {"version": 2}, own)),
        (
            wire("rotate", drafts[0], own),
            wire("peer", drafts[1] | {"peer": drafts[1]["peer"] | {"label": "other"}}, own),
        ),
        (wire("rotate", drafts[0] | {"previous": "0" * 26}, own), wire("peer", drafts[1], own)),
        (wire("peer", drafts[1], own), wire("rotate", drafts[0], own)),
    ]
    for enrolment, peer in cases:
        refusal = await desk.refused(
            "pair.enclose", pairing=met.pairing, enrolment=enrolment, peer=peer
        )
        assert refusal.code == "owner-required"
    assert len(cases) == 8


async def test_an_inviter_that_sends_other_records_is_not_adopted(
    desk: MeetingDesk, bare: MeetingDesk
) -> None:
    """As a hostile inviter would: past its own daemon's look at them."""
    for texts in ([], ["{}"], [json.dumps({"kind": "peer", "payload": "{}", "signatures": {}})]):
        met = await meet(desk, bare)
        desk.wires.ends.clear()
        theirs = bare.wires.ends[-1][1]
        theirs.send(encode({"records": texts, "type": "confirmed"}))
        codes = await met.ends()
        assert codes == ("declined", "malformed")
        assert bare.call(TERMINAL, "owner.show")["owner"] is None


async def test_a_host_that_got_an_owner_meanwhile_adopts_nobody(
    desk: MeetingDesk, bare: MeetingDesk, laptop: MeetingDesk
) -> None:
    met = await meet(desk, bare)
    await enclosed(desk, met.pairing)
    await desk.agree(met.pairing)
    await bare.heard(met.at_laptop["run"])
    assert laptop.owner is not None
    draft = bare.call(
        TERMINAL, "owner.draft", act="rotate", public_key=laptop.owner.key.public.hex()
    )
    bare.call(TERMINAL, "owner.enroll", record=wire("rotate", content(draft), laptop.owner.key))
    assert (await bare.refused("pair.adopt", pairing=met.pairing)).code == "conflict"
    assert present(bare) == []


async def test_nobody_adopts_where_both_have_an_owner(
    desk: MeetingDesk, laptop: MeetingDesk
) -> None:
    met = await meet(desk, laptop)
    for act in ("enrolment", "peer-there"):
        assert desk.refusal(TERMINAL, "owner.draft", act=act, pairing=met.pairing).code == "usage"
    assert (await laptop.refused("pair.adopt", pairing=met.pairing)).code == "usage"


def test_whoever_finds_no_pairing_is_told_how_one_begins(desk: MeetingDesk) -> None:
    refusal = desk.refusal(TERMINAL, "owner.draft", act="peer", pairing="0" * 26)
    assert (refusal.code, refusal.next_step) == ("closed", peering.PAIR_AGAIN)
