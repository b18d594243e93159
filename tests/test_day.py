"""A short day and the planted faults as users run them; and the checker against bad histories."""

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mbx.core.delivery import Stage
from mbx.store.audit import AuditRow
from scripts.daychecks import Copy, Stored, violations
from scripts.dayhistory import History, tag_of
from scripts.dayreadback import acts, story
from scripts.faults import FAULTS
from tests.support.rules import ROOT
from tests.support.shells import bare_environment

LIMIT_S = 400.0
"""A day of 36 s takes about a minute on two idle cores, and much longer on busy ones."""

on_linux = pytest.mark.skipif(sys.platform != "linux", reason="processes are told by /proc")


def play(report: Path, *options: str) -> tuple[int, str, dict[str, Any]]:
    """Exit status, output and report; what does not end in time is told to end, and cleans up."""
    with subprocess.Popen(
        [sys.executable, "scripts/day.py", *options, "--json", str(report)],
        cwd=ROOT,
        env=bare_environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as day:
        try:
            said, _ = day.communicate(timeout=LIMIT_S - 40)
        except subprocess.TimeoutExpired:
            day.terminate()
            said, _ = day.communicate(timeout=30)
    assert report.exists(), said
    return day.returncode, said, json.loads(report.read_bytes())


@on_linux
@pytest.mark.long
@pytest.mark.timeout(LIMIT_S)
def test_a_short_day_violates_nothing_and_can_be_read_back(tmp_path: Path) -> None:
    status, said, told = play(tmp_path / "day.json", "--minutes", "0.6")
    assert (told["violations"], told["missing"]) == ([], []), said
    assert status == 0, said
    figures = told["figures"]
    met = {name: figures[name] for name in ("accepted", "unknown outcomes", "commands")}
    sys.stdout.write(f"{met}\n")
    settled = (figures.get(f"settled as {how}", 0) for how in ("stored", "not stored"))
    assert figures["unknown outcomes"] == sum(settled)
    assert len(told["compared"]) == 11, "six quiet points, three ends of daemons, asleep, the end"
    for words in ("What the audit log tells", "renamed from", "released by", "STATE", "PROVED"):
        assert words in said
    assert "\x1b" not in said, "colours are for terminals"


@on_linux
@pytest.mark.long
@pytest.mark.timeout(LIMIT_S)
def test_each_planted_fault_is_named_changes_nothing_and_is_mended(tmp_path: Path) -> None:
    status, said, told = play(tmp_path / "faults.json", "--faults")
    assert told["wrong"] == [], said
    assert status == 0, said
    assert set(told["skipped"]) <= {"the disk is full"}
    assert len(told["faults"]) + len(told["skipped"]) == len(FAULTS) == 13
    sys.stdout.write(f"{len(told['faults'])} planted faults named and mended\n")


# -- the checker against bad histories ------------------------------------------------------------

ANA, BEN, SESSION = "identity-ana", "identity-ben", ("claude", "s-1")


def row(no: int, act: str, epoch: int = 1, at_ms: int = 2**60) -> AuditRow:
    cli, session = SESSION
    detail = {"epoch": epoch, "cli": cli, "session": session, "why": "w", "name": "ana"}
    detail |= {"role": "docs", "old_name": "an"}
    return AuditRow(no, at_ms, act, ANA, json.dumps(detail), b"")


def good() -> tuple[History, Stored]:
    """One message that was sent, read and acknowledged; one session that came, went, came."""
    history = History()
    sending = history.begin("t1", ANA, ("send",))
    history.accepted(sending, {"id": "m1", "recipients": [{"identity": BEN}]})
    history.tries("read", "m1", BEN)
    history.read("m1", BEN)
    history.tries("ack", "m1", BEN)
    history.acked("m1", BEN, "done")
    history.named("ben", BEN)
    history.saw_stages("m1", [{"address": "ben@vm", "stage": "read"}])
    history.granted(ANA, 1, SESSION)
    history.died(SESSION)
    history.granted(ANA, 2, SESSION)
    stored = Stored(
        messages={"t1": [("m1", ANA)]},
        copies={("m1", BEN): Copy(Stage.ACKED, "done")},
        facts=[("m1", BEN, Stage.READ), ("m1", BEN, Stage.ACKED)],
        audit=[row(1, "claim"), row(2, "lapse"), row(3, "claim", 2), row(4, "release", 2)],
    )
    return history, stored


def test_a_good_history_has_no_violations() -> None:
    history, stored = good()
    assert violations(history.told(), history, stored) == []
    assert history.faults == []


def never_died(history: History, stored: Stored) -> None:
    history.deaths.clear()


def died_too_late(history: History, stored: Stored) -> None:
    stored.audit[1] = row(2, "lapse", at_ms=history.deaths[0][1] - 1_000)


def stolen(history: History, stored: Stored) -> None:
    del stored.audit[1]


def copy_of(stage: int, did: str | None) -> Callable[[History, Stored], object]:
    return lambda history, stored: stored.copies.update({("m1", BEN): Copy(stage, did)})


def refused(history: History, stored: Stored) -> None:
    history.not_accepted(history.begin("t2", ANA, None), known=True)
    stored.messages["t2"] = [("m2", ANA)]


BAD: dict[str, tuple[Callable[[History, Stored], object], str]] = {
    "lost": (lambda history, stored: stored.messages.clear(), "I1 t1"),
    "another id": (lambda history, stored: stored.messages.update(t1=[("m9", ANA)]), "I1 t1"),
    "no copy": (lambda history, stored: stored.copies.clear(), "I1 t1"),
    "one copy too many": (
        lambda history, stored: stored.copies.update({("m1", ANA): Copy(2, None)}),
        "I1 t1",
    ),
    "doubled": (lambda history, stored: stored.messages["t1"].append(("m2", ANA)), "I2 t1"),
    "invented": (lambda history, stored: stored.messages.update(t9=[("m9", ANA)]), "I3 t9"),
    "another sender": (lambda history, stored: stored.messages.update(t1=[("m1", BEN)]), "I3 t1"),
    "refused and stored": (refused, "I4 t2"),
    "unread again": (copy_of(Stage.DELIVERED, None), "I1 identity-ben read m1"),
    "ack lost": (copy_of(Stage.READ, None), "I1 identity-ben acknowledged m1"),
    "other words": (copy_of(Stage.ACKED, "nothing"), "I1 identity-ben acknowledged m1"),
    "nobody read it": (lambda history, stored: history.touched.clear(), "I3 nobody read m1"),
    "nobody acked it": (
        lambda history, stored: history.touched.remove(("ack", "m1", BEN)),
        "I3 nobody acknowledged m1",
    ),
    "a receipt twice": (lambda history, stored: stored.facts.append(stored.facts[1]), "I12"),
    "a receipt goes back": (lambda history, stored: stored.facts.reverse(), "I12"),
    "no receipt": (lambda history, stored: stored.facts.pop(), "I12"),
    "claimed while held": (stolen, "I6 row 3"),
    "released twice": (lambda history, stored: stored.audit.append(row(5, "release", 2)), "I6"),
    "an epoch left out": (lambda history, stored: stored.audit.append(row(5, "claim", 4)), "I7"),
    "an epoch again": (lambda history, stored: stored.audit.append(row(5, "claim", 2)), "I7"),
    "a grant lost": (lambda history, stored: stored.audit.__delitem__(slice(2, 4)), "I1 the audit"),
    "lapsed while it lived": (never_died, "I10 row 2"),
    "lapsed before it died": (died_too_late, "I10 row 2"),
    "the store itself": (lambda history, stored: stored.faults.append("I17 page 3"), "I17"),
}


@pytest.mark.parametrize("wrong", BAD)
def test_a_bad_history_is_found(wrong: str) -> None:
    history, stored = good()
    told = history.told()
    spoil, invariant = BAD[wrong]
    spoil(history, stored)
    found = violations(told, history, stored)
    assert any(one.startswith(invariant) for one in found), found


def test_a_stage_that_the_sender_saw_is_in_the_store() -> None:
    history, stored = good()
    told = replace(history.told(), reads=frozenset(), acks={})
    stored.copies["m1", BEN] = Copy(Stage.DELIVERED, None)
    assert any("the sender saw" in one for one in violations(told, history, stored))


def test_what_players_are_told_may_not_go_back() -> None:
    history, _ = good()
    history.saw_stages("m1", [{"address": "ben@vm", "stage": "delivered"}])
    history.granted(ANA, 2, SESSION)
    history.accepted(history.sendings["t1"], {"id": "m2", "recipients": []})
    assert len(history.faults) == 3


def test_an_unknown_outcome_is_counted_once_and_settled_once() -> None:
    history = History()
    sending = history.begin("t1", ANA, None)
    for _ in range(3):
        history.not_accepted(sending, known=False)
    assert history.unknown_of(ANA) == [sending]
    history.accepted(sending, {"id": "m1", "recipients": []})
    assert history.unknown_of(ANA) == []
    assert (history.counts["unknown outcomes"], history.counts["settled as stored"]) == (1, 1)


@pytest.mark.parametrize(
    ("body", "tag"), [("Hello. [anaq7]", "anaq7"), ("ana-burst1-00007", "ana-burst1-00007")]
)
def test_the_tag_of_a_message_stands_at_its_end(body: str, tag: str) -> None:
    assert tag_of(body) == tag


def test_the_story_of_an_identity_tells_each_act_of_the_log() -> None:
    rows = [
        row(no, act, at_ms=0)
        for no, act in enumerate(("register", "claim", "lapse", "revive", "rename", "release"), 1)
    ]
    told = list(story(rows, [(ANA, "ana", "docs"), (BEN, "ben", "ops")]))
    assert told[0] == "ana, docs"
    assert len(told) == 1 + len(rows), "and nothing of whom the log does not name"
    assert list(story([*rows, row(7, "acted", at_ms=0)], [(ANA, "ana", "docs")])) == told
    assert told[-1].endswith("released by claude s-1")
    assert acts(rows)["lapse"] == 1
