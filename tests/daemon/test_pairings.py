"""Pairings in the daemon: invitations and runs in memory, records by the owner, adoption."""

import asyncio
import json
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from mbx.core import pairing
from mbx.core.canonical import encode
from mbx.core.endpoints import Endpoint
from mbx.core.limits import WRONG_PROOFS_MAX
from mbx.core.pairing_code import PairingCode
from mbx.core.pairing_run import refusal_text
from mbx.daemon.context import Answer
from mbx.daemon.effects import Agreed, Paired, Queued
from mbx.daemon.pairings import EVERYWHERE, told_addresses
from mbx.store import hosts, peers
from mbx.store.database import Committed, Outcome, Refused
from tests.support.meetings import (
    DESK_AT,
    NEWS_S,
    MeetingDesk,
    WireEnd,
    connect,
    meet,
    meeting_desk,
    present,
)
from tests.support.network import until
from tests.support.office import at_terminal, shell
from tests.support.paired import settle

OTHER_CODE = PairingCode.from_random(bytes(range(1, 18))).shown()


async def join(laptop: MeetingDesk, code: str, address: str = DESK_AT) -> dict[str, Any]:
    """Join, and wait for the end."""
    told = await laptop.ask("pair.join", address=address, code=code)
    while told["end"] is None:
        told = await laptop.ask("pair.state", run=told["run"], seen=told["seen"])
    return told


# -- a pairing ------------------------------------------------------------------------------------


async def test_two_owners_compare_sign_and_are_paired(
    desk: MeetingDesk, laptop: MeetingDesk
) -> None:
    desk.holder("ana", 41)
    met = await meet(desk, laptop)
    here, there = met.at_desk["compare"], met.at_laptop["compare"]
    assert (here["short"], here["pairing"]) == (there["short"], there["pairing"])
    assert (here["label"], there["label"]) == ("laptop", "desk")
    assert there["key_id"] == desk.host.key_id
    assert here["adopts"] is False
    assert here["owner"] == laptop.owner.id  # type: ignore[union-attr]
    assert present(desk) == present(laptop) == []
    applied = await desk.agree(met.pairing)
    assert applied["after"]["peer"] == "laptop"
    assert (await laptop.heard(met.at_laptop["run"]))["state"] == "comparing"
    assert (await desk.news(met.at_desk["run"], "agreed"))["agreed"] == {
        "here": True,
        "there": False,
    }
    await laptop.agree(met.pairing, label="tower")
    assert await met.ends() == ("paired", "paired")
    [row], [back] = present(desk), present(laptop)
    assert (row.label, row.key_id, row.told_label) == ("laptop", laptop.host.key_id, "laptop")
    assert (back.label, back.key_id, back.told_label) == ("tower", desk.host.key_id, "desk")
    assert row.certificate == laptop.wires.tls.certificate
    assert (row.owner_key, row.version, back.addresses) == (
        None,
        1,
        (DESK_AT, "[2001:db8::7]:24629"),
    )
    assert desk.do(hosts.listen) == ("0.0.0.0:24629", "[::]:24629")
    assert laptop.do(hosts.listen) == ()
    assert {type(one) for one in desk.effects} >= {Paired, Agreed, Queued}


async def test_what_both_tell_of_their_identities_arrives_once_they_are_paired(
    desk: MeetingDesk, laptop: MeetingDesk
) -> None:
    desk.holder("ana", 41)
    met = await meet(desk, laptop)
    await desk.agree(met.pairing)
    await laptop.agree(met.pairing)
    desk.peer_nos["laptop"] = present(desk)[0].no
    laptop.peer_nos["desk"] = present(laptop)[0].no
    settle(desk, laptop)
    assert "ana" in [row.name for row in laptop.do(peers.identities_present)]


async def test_an_owner_that_both_have_is_recorded(tmp_path: Path, desk: MeetingDesk) -> None:
    other = meeting_desk(tmp_path, "tower", 7)
    met = await meet(desk, other)
    await desk.agree(met.pairing)
    await other.agree(met.pairing)
    for host in (desk, other):
        assert [row.owner_key for row in present(host)] == [desk.owner.id]  # type: ignore[union-attr]
    await other.leave()


async def test_a_record_of_a_pairing_acts_once_and_its_answer_is_repeated(
    desk: MeetingDesk, laptop: MeetingDesk
) -> None:
    met = await meet(desk, laptop)
    record = desk.signed(desk.draft(met.pairing))
    first = await desk.ask("owner.apply", record=record)
    again = await desk.ask("owner.apply", record=record)
    assert again == {**first, "duplicate": True}
    other = desk.signed(await _draft_of(desk, met.pairing, record))
    assert (await desk.refused("owner.apply", record=other)).code == "conflict"


async def _draft_of(desk: MeetingDesk, pairing_id: str, like: dict[str, Any]) -> dict[str, Any]:
    """Another record of the same pairing, as if it had been drafted before."""
    payload = json.loads(like["payload"]) | {"nonce": "0" * 32}
    return {
        "kind": "peer",
        "payload": encode(payload),
    }


# -- invitations ----------------------------------------------------------------------------------


async def test_an_invitation_needs_an_owner_and_says_how_to_get_one(bare: MeetingDesk) -> None:
    refusal = await bare.refused("pair.invite")
    assert (refusal.code, refusal.next_step) == (
        "owner-required",
        "mbx owner init (in a terminal of your own)",
    )
    assert bare.wires.listening == []


@pytest.mark.parametrize("method", ["invite", "join", "state", "enclose", "adopt"])
async def test_pairing_is_for_the_owners_terminal_alone(desk: MeetingDesk, method: str) -> None:
    for caller in (shell(5), at_terminal(shell(5), "below an agent CLI")):
        assert desk.refusal(caller, f"pair.{method}").code == "owner-required"


async def test_whoever_knows_a_run_may_say_no_for_its_terminal_may_be_closed(
    desk: MeetingDesk,
) -> None:
    invited = await desk.ask("pair.invite")

    async def decline(run: str) -> Outcome[Answer]:
        answer = desk.carry_out(desk.work(shell(5), "pair.decline", {"run": run}))
        outcome: asyncio.Future[Outcome[Answer]] = asyncio.get_running_loop().create_future()
        assert answer.sequel is not None
        desk.pairings.carry_out(answer.sequel, outcome.set_result)
        return await asyncio.wait_for(outcome, NEWS_S)

    assert isinstance(await decline("0" * 26), Refused)
    assert (await desk.ask("pair.state", run=invited["run"]))["state"] == "waiting"
    assert isinstance(await decline(invited["run"]), Committed)
    assert (await desk.ask("pair.state", run=invited["run"]))["end"]["code"] == "declined"


async def test_an_inviter_listens_where_it_is_told_or_did_or_everywhere(
    desk: MeetingDesk,
) -> None:
    everywhere = await desk.ask("pair.invite")
    assert everywhere["listening"] == ["0.0.0.0:24629", "[::]:24629"]
    assert everywhere["addresses"] == [DESK_AT, "[2001:db8::7]:24629"]
    again = await desk.ask("pair.invite")
    assert again["listening"] == everywhere["listening"]
    more = await desk.ask("pair.invite", listen="127.0.0.1:4711")
    assert more["listening"] == [*everywhere["listening"], "127.0.0.1:4711"]
    assert desk.do(hosts.listen) == ()  # remembered with the pairing, not before
    assert desk.wires.asked == [False] * 3


async def test_a_machine_without_ipv6_listens_on_the_other_alone(desk: MeetingDesk) -> None:
    desk.wires.refused.add("::")
    assert (await desk.ask("pair.invite"))["listening"] == ["0.0.0.0:24629"]
    desk.wires.refused.add("127.0.0.1")
    assert (await desk.refused("pair.invite", listen="127.0.0.1:4711")).code == "conflict"


async def test_an_inviter_listens_at_those_of_its_former_addresses_that_are_there(
    desk: MeetingDesk,
) -> None:
    desk.do(lambda tx: hosts.set_listen(tx, ["192.0.2.9:4711", "127.0.0.1:4711"]))
    desk.wires.refused.update({"192.0.2.9", "127.0.0.1"})
    assert (await desk.refused("pair.invite")).code == "conflict"
    desk.wires.refused.remove("127.0.0.1")
    assert (await desk.ask("pair.invite"))["listening"] == ["127.0.0.1:4711"]


async def test_addresses_are_told_in_their_one_spelling() -> None:
    own = lambda: ["192.0.2.1", "2001:db8::1", "2001:db8::2"]  # noqa: E731
    assert told_addresses(EVERYWHERE, own) == (
        "192.0.2.1:24629",
        "[2001:db8::1]:24629",
        "[2001:db8::2]:24629",
    )
    listening = [Endpoint("fe80::1%eth0", 5), Endpoint("10.0.0.1", 5), Endpoint("::1", 6)]
    assert told_addresses(listening, own) == ("10.0.0.1:5", "[::1]:6")
    many = lambda: [f"10.0.0.{n}" for n in range(20)]  # noqa: E731
    assert len(told_addresses(EVERYWHERE, many)) == 8


EVERY = [str(one) for one in EVERYWHERE]


async def listens(desk: MeetingDesk, *endpoints: str) -> None:
    """It listens there and nowhere else, by the loop's next turns at the latest."""
    await until(lambda: [str(one) for one in desk.wires.listening] == list(endpoints))


async def test_what_only_a_pairing_opened_is_closed_when_it_comes_to_nothing(
    desk: MeetingDesk, laptop: MeetingDesk
) -> None:
    invited = await desk.ask("pair.invite")
    await listens(desk, *EVERY)
    await desk.ask("pair.decline", run=invited["run"])
    await listens(desk)
    expired = await desk.ask("pair.invite", ttl_ms=1_000)
    await listens(desk, *EVERY)
    await desk.ask("pair.state", run=expired["run"], seen=expired["seen"])
    await listens(desk)
    for who, side in (("desk", desk), ("laptop", laptop)):
        met = await meet(desk, laptop)
        run = met.at_desk["run"] if who == "desk" else met.at_laptop["run"]
        await side.ask("pair.decline", run=run)
        assert await met.ends() == ("declined", "declined")
        await listens(desk)


async def test_an_invitation_that_takes_the_place_of_another_has_its_port_too(
    desk: MeetingDesk,
) -> None:
    await desk.ask("pair.invite", listen="127.0.0.1:4711")
    second = await desk.ask("pair.invite", listen="127.0.0.1:4712")
    both = ["127.0.0.1:4711", "127.0.0.1:4712"]
    assert second["listening"] == [str(one) for one in desk.wires.listening] == both
    await desk.ask("pair.decline", run=second["run"])
    await listens(desk)


async def test_who_comes_with_a_code_that_is_void_hears_why_and_nothing_else(
    tmp_path: Path, laptop: MeetingDesk
) -> None:
    desk = meeting_desk(tmp_path, "desk", told_ms=60_000)
    connect(desk, laptop)
    declined = await desk.ask("pair.invite")
    await desk.ask("pair.decline", run=declined["run"])
    assert (await join(laptop, declined["code"]))["end"]["code"] == "declined"
    expired = await desk.ask("pair.invite", ttl_ms=1_000)
    await desk.ask("pair.state", run=expired["run"], seen=expired["seen"])
    desk.world.pass_ms(1_000)
    assert (await join(laptop, expired["code"]))["end"]["code"] == "expired"
    burnt = await desk.ask("pair.invite")
    for _ in range(WRONG_PROOFS_MAX):
        await join(laptop, OTHER_CODE)
    assert (await join(laptop, burnt["code"]))["end"]["code"] == "burnt"
    await listens(desk, *EVERY)
    await desk.leave()


async def test_the_port_of_a_void_code_is_that_of_the_next_one(
    tmp_path: Path, laptop: MeetingDesk
) -> None:
    desk = meeting_desk(tmp_path, "desk", told_ms=60_000)
    void = await desk.ask("pair.invite", listen="127.0.0.1:4711")
    await desk.ask("pair.decline", run=void["run"])
    met = await meet(desk, laptop)
    assert [str(one) for one in desk.wires.listening] == ["127.0.0.1:4711"]
    await desk.agree(met.pairing)
    await laptop.agree(met.pairing)
    assert await met.ends() == ("paired", "paired")
    assert [str(one) for one in desk.wires.listening] == ["127.0.0.1:4711"]
    await desk.leave()


# -- the command that shows a code ----------------------------------------------------------------


async def test_the_code_of_a_command_that_was_killed_is_void(
    desk: MeetingDesk,
) -> None:
    invited = await desk.ask("pair.invite")
    run = (await desk.ask("pair.hold", run=invited["run"]))["run"]
    desk.pairings.left(run)
    told = await desk.ask("pair.state", run=run, seen=invited["seen"])
    assert told["end"]["code"] == "left"
    desk.pairings.left(run)
    await listens(desk)


async def test_the_command_of_an_older_invitation_ends_nothing_of_the_next(
    desk: MeetingDesk,
) -> None:
    older = await desk.ask("pair.invite")
    newer = await desk.ask("pair.invite")
    desk.pairings.left(older["run"])
    assert (await desk.ask("pair.state", run=newer["run"]))["state"] == "waiting"


async def test_who_has_signed_may_leave(desk: MeetingDesk, laptop: MeetingDesk) -> None:
    met = await meet(desk, laptop)
    await desk.agree(met.pairing)
    desk.pairings.left(met.at_desk["run"])
    await laptop.agree(met.pairing)
    assert await met.ends() == ("paired", "paired")


async def test_who_leaves_while_people_compare_has_declined(
    desk: MeetingDesk, laptop: MeetingDesk
) -> None:
    met = await meet(desk, laptop)
    laptop.pairings.left(met.at_laptop["run"])
    assert await met.ends() == ("declined", "left")


async def test_a_port_that_was_open_before_or_belongs_to_a_pairing_stays_open(
    desk: MeetingDesk, laptop: MeetingDesk, tmp_path: Path
) -> None:
    met = await meet(desk, laptop)
    await desk.agree(met.pairing)
    await laptop.ask("pair.decline", run=met.at_laptop["run"])  # signed here alone: it is recorded
    assert await met.ends() == ("unanswered", "declined")
    assert [str(one) for one in desk.wires.listening] == EVERY
    invited = await desk.ask("pair.invite", listen="127.0.0.1:4711")
    await desk.ask("pair.decline", run=invited["run"])
    await listens(desk, *EVERY)


async def test_who_signed_first_is_told_when_the_other_has_recorded_it_too(
    desk: MeetingDesk, laptop: MeetingDesk
) -> None:
    met = await meet(desk, laptop)
    await desk.agree(met.pairing)
    await laptop.heard(met.at_laptop["run"])
    assert desk.paired == laptop.paired == []
    await laptop.agree(met.pairing)
    assert await met.ends() == ("paired", "paired")
    assert desk.paired == [laptop.host.key_id]


async def test_wrong_codes_are_told_and_the_fifth_burns_the_invitation(
    desk: MeetingDesk, laptop: MeetingDesk
) -> None:
    connect(desk, laptop)
    invited = await desk.ask("pair.invite")
    told = invited
    for number in range(1, WRONG_PROOFS_MAX + 1):
        end = (await join(laptop, OTHER_CODE))["end"]
        assert end["code"] == ("wrong-code" if number < WRONG_PROOFS_MAX else "burnt")
        told = await desk.ask("pair.state", run=invited["run"], seen=told["seen"])
        assert told["wrong_codes"] == number
    told = await desk.ask("pair.state", run=invited["run"])
    assert (told["state"], told["end"]["code"]) == ("over", "burnt")
    assert (await join(laptop, invited["code"]))["end"]["code"] == "burnt"
    assert present(desk) == present(laptop) == []


async def test_an_invitation_expires_and_its_code_is_void(
    desk: MeetingDesk, laptop: MeetingDesk
) -> None:
    connect(desk, laptop)
    invited = await desk.ask("pair.invite", ttl_ms=1_000)
    told = await desk.ask("pair.state", run=invited["run"], seen=invited["seen"])
    assert told["end"]["code"] == "expired"
    desk.world.pass_ms(1_000)
    assert (await join(laptop, invited["code"]))["end"]["code"] == "expired"


async def test_a_new_invitation_makes_the_code_of_the_former_void(
    desk: MeetingDesk, laptop: MeetingDesk
) -> None:
    connect(desk, laptop)
    former = await desk.ask("pair.invite")
    waiting = asyncio.create_task(desk.ask("pair.state", run=former["run"], seen=former["seen"]))
    await asyncio.sleep(0)
    fresh = await desk.ask("pair.invite")
    assert (await waiting)["end"]["code"] == "replaced"
    assert (await desk.refused("pair.state", run=former["run"])).code == "closed"
    assert (await join(laptop, former["code"]))["end"]["code"] == "wrong-code"
    assert fresh["code"] != former["code"]


async def test_a_code_is_used_once(desk: MeetingDesk, laptop: MeetingDesk, tmp_path: Path) -> None:
    connect(desk, laptop)
    invited = await desk.ask("pair.invite")
    joined = await laptop.ask("pair.join", address=DESK_AT, code=invited["code"])
    await desk.news(invited["run"], "comparing")
    other = meeting_desk(tmp_path, "tower", 9)
    connect(desk, other)
    assert (await join(other, invited["code"]))["end"]["code"] == "used"
    assert (await laptop.news(joined["run"], "comparing"))["end"] is None
    await other.leave()


async def test_nobody_is_let_in_without_an_invitation(
    desk: MeetingDesk, laptop: MeetingDesk
) -> None:
    connect(desk, laptop)
    assert (await join(laptop, OTHER_CODE))["end"]["code"] == "not-inviting"
    invited = await desk.ask("pair.invite")
    await desk.ask("pair.decline", run=invited["run"])
    assert (await join(laptop, invited["code"]))["end"]["code"] == "declined"


async def test_a_refused_address_tells_what_was_tried(laptop: MeetingDesk) -> None:
    end = (await join(laptop, OTHER_CODE, "nowhere.example:5"))["end"]
    assert (end["code"], end["words"]) == (
        "unreachable",
        "nowhere.example:5 does not answer",
    )
    assert "firewall" in end["next"]
    assert (await laptop.refused("pair.join", address="http://x", code=OTHER_CODE)).code == "usage"
    refusal = await laptop.refused("pair.join", address="10.0.0.1", code="ABCD-EFGH")
    assert refusal.code == "usage"
    assert "ABCD" not in refusal.message


async def test_a_host_does_not_pair_with_itself(desk: MeetingDesk) -> None:
    connect(desk, desk)
    assert (await join(desk, OTHER_CODE))["end"]["code"] == "not-inviting"
    invited = await desk.ask("pair.invite")
    refusal = await desk.refused("pair.join", address="10.0.0.1", code=invited["code"])
    assert (refusal.code, "it stays good" in refusal.message) == ("conflict", True)
    assert (await desk.news(invited["run"], "waiting"))["end"] is None


# -- people ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("who", ["desk", "laptop"])
async def test_either_side_may_decline_and_nothing_is_recorded(
    desk: MeetingDesk, laptop: MeetingDesk, who: str
) -> None:
    met = await meet(desk, laptop)
    side = {"desk": (desk, met.at_desk), "laptop": (laptop, met.at_laptop)}[who]
    draft = desk.draft(met.pairing)
    await side[0].ask("pair.decline", run=side[1]["run"])
    assert await met.ends() == ("declined", "declined")
    for host in (desk, laptop):
        assert present(host) == []
    refusal = await desk.refused("owner.apply", record=desk.signed(draft))
    assert (refusal.code, "over" in refusal.message) == ("closed", True)


async def test_whoever_signed_alone_is_told_what_is_missing(
    desk: MeetingDesk, laptop: MeetingDesk
) -> None:
    met = await meet(desk, laptop)
    await desk.agree(met.pairing)
    await laptop.ask("pair.decline", run=met.at_laptop["run"])
    assert await met.ends() == ("unanswered", "declined")
    told = await desk.ask("pair.state", run=met.at_desk["run"])
    assert "the other one has not said" in told["end"]["words"]
    assert "declined" in told["end"]["words"]
    assert (len(present(desk)), len(present(laptop))) == (1, 0)


async def test_a_cut_after_the_others_word_does_not_take_ours_away(
    desk: MeetingDesk, laptop: MeetingDesk
) -> None:
    met = await meet(desk, laptop)
    await desk.agree(met.pairing)
    await laptop.heard(met.at_laptop["run"])
    laptop.wires.ends[0][0].cut()
    await laptop.agree(met.pairing)
    assert await met.ends() == ("unanswered", "paired")
    assert (len(present(desk)), len(present(laptop))) == (1, 1)


async def test_a_cut_before_it_ends_the_pairing(desk: MeetingDesk, laptop: MeetingDesk) -> None:
    met = await meet(desk, laptop)
    draft = laptop.draft(met.pairing)
    laptop.wires.ends[0][0].cut()
    assert await met.ends() == ("lost", "lost")
    assert (await laptop.refused("owner.apply", record=laptop.signed(draft))).code == "closed"


async def test_a_daemon_that_stops_ends_what_is_under_way(
    desk: MeetingDesk, laptop: MeetingDesk
) -> None:
    met = await meet(desk, laptop)
    await desk.pairings.close()
    told = await desk.ask("pair.state", run=met.at_desk["run"])
    assert told["end"]["code"] == "stopped"
    assert (await desk.refused("pair.state", run="0" * 26)).code == "closed"


async def test_a_host_with_too_many_links_pairs_with_nobody(
    desk: MeetingDesk, laptop: MeetingDesk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(WireEnd, "proved", lambda self: False)
    connect(desk, laptop)
    invited = await desk.ask("pair.invite")
    end = (await join(laptop, invited["code"]))["end"]
    assert end["code"] == "busy"
    assert (await desk.ask("pair.state", run=invited["run"]))["state"] == "over"


async def test_clocks_apart_are_told_and_hinder_nothing(
    desk: MeetingDesk, laptop: MeetingDesk
) -> None:
    desk.world.wall_ms += 600_000
    met = await meet(desk, laptop)
    assert met.at_laptop["compare"]["skew"] == (
        "the other host's clock is about 10 minutes ahead of this one's"
    )
    assert "behind" in " ".join(desk.draft(met.pairing)["lines"])
    await desk.agree(met.pairing)
    await laptop.agree(met.pairing)
    assert await met.ends() == ("paired", "paired")


# -- what is bent on the wire ---------------------------------------------------------------------


async def test_a_flipped_character_of_any_message_pairs_nobody(
    desk: MeetingDesk, laptop: MeetingDesk
) -> None:
    """One character of each message in turn, at many places; equal digits are never seen."""
    connect(desk, laptop)
    bent: list[int] = []
    for number, place in product(range(5), range(3, 1_200, 61)):
        flip = Flip(number, place)
        laptop.wires.bend_to = laptop.wires.bend_fro = flip
        invited = await desk.ask("pair.invite")
        joined = await laptop.ask("pair.join", address=DESK_AT, code=invited["code"])
        told = await _settled(laptop, joined)
        if flip.has_bent:
            here = await desk.ask("pair.state", run=invited["run"])
            shorts = [(one["compare"] or {}).get("short") for one in (told, here)]
            assert shorts[0] != shorts[1] or shorts == [None, None], (number, place)
            bent.append(place)
    assert present(desk) == present(laptop) == []
    assert len(bent) >= 30, f"only {len(bent)} characters were flipped"


class Flip:
    """Changes one character of one message."""

    def __init__(self, number: int, place: int) -> None:
        self.has_bent = False
        self._left, self._place = number, place

    def __call__(self, text: str) -> list[str]:
        self._left -= 1
        if self._left != -1 or self._place >= len(text):
            return [text]
        self.has_bent = True
        letter = "0" if text[self._place] != "0" else "1"
        return [text[: self._place] + letter + text[self._place + 1 :]]


async def _settled(host: MeetingDesk, told: dict[str, Any]) -> dict[str, Any]:
    while told["state"] == "waiting":
        told = await host.ask("pair.state", run=told["run"], seen=told["seen"])
    return told


async def test_a_refusal_in_another_form_is_no_pairing(
    laptop: MeetingDesk, desk: MeetingDesk
) -> None:
    connect(desk, laptop)
    laptop.wires.bend_fro = lambda text: [refusal_text("version-mismatch")]
    invited = await desk.ask("pair.invite")
    end = (await join(laptop, invited["code"]))["end"]
    assert end["code"] == "version-mismatch"
    assert "bring mbx up to date" in end["next"]
    assert set(pairing.REFUSALS) >= {end["code"]}
