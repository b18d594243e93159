"""Eight processes and an owner contest three leases, and what they are told is that of leases.

MBX_TEST_CONTEST="1000 5000" plays the long form: so many runs of so many calls.
"""

import os
import sqlite3
import sys
from collections import Counter
from pathlib import Path
from typing import Final

import pytest

from tests.sim import image
from tests.sim.checker import unsound
from tests.support.contest import Contest
from tests.support.daemon import Daemon, fresh_home

RUNS, CALLS = map(int, os.environ.get("MBX_TEST_CONTEST", "1 2400").split())
"""What is played; by itself what CI plays."""

MINIMUM: Final = {
    "calls": 2_000,
    "unknown": 10,
    "kills": 14,
    "pauses": 12,
    "hushes": 10,
    "daemon kills": 4,
    "ok identity.claim": 100,
    "ok identity.release": 60,
    "ok mail.send": 60,
    "refused in-use": 200,
    "refused no-lease": 20,
    "refused name-taken": 20,
    "refused lease-lost": 30,
    "calls of displaced sessions": 20,
    "arrived with an identity": 2,
    "takeover ok": 30,
    "takeover of one that is held": 20,
    "takeover of one that is lapsed": 1,
    "takeover of one that is free": 2,
    "takeover from a stopped process": 5,
    "takeover for a stopped process": 10,
    "takeover again": 8,
    "records brought by two at once": 1,
    "takeover refused: another epoch": 10,
    "takeover refused: it holds another": 2,
    "takeover refused: it holds it": 5,
    "takeover refused: not-found": 2,
    "takeover unknown": 1,
}
"""How often each must come up at least in one run."""


def play(
    folder: Path,
    seed: int,
    calls: int,
    *,
    harm: tuple[int, int, int, int] = (14, 14, 4, 12),
    python: tuple[str, ...] = ("-I", "-m", "mbx.daemon"),
) -> tuple[list[str], Counter[str]]:
    """What is wrong with one contest, by either way, and what it met."""
    kills, pauses, crashes, hushes = harm
    with (
        fresh_home() as home,
        Daemon(home, python=python) as daemon,
        Contest(daemon, folder, seed) as contest,
    ):
        contest.play(calls, kills=kills, pauses=pauses, crashes=crashes, hushes=hushes)
        contest.finish()
        daemon.stop()
        connection = sqlite3.connect(f"file:{home}/store.db?mode=ro", uri=True)
        store = image.take(connection)
        connection.close()
        story = contest.story(store)
        found = [f"I17: {what}" for what in unsound(store)] + story.wrong()
        return found, contest.met + story.counts()


@pytest.mark.long
@pytest.mark.timeout(120 * max(1, RUNS * CALLS // 2_400))
def test_what_eight_processes_are_told_of_three_leases_is_linearizable(tmp_path: Path) -> None:
    for seed in range(RUNS):
        folder = tmp_path / str(seed)
        folder.mkdir()
        found, met = play(folder, seed, CALLS)
        told = ", ".join(f"{count} {what}" for what, count in sorted(met.items()))
        sys.stdout.write(f"contest {seed}: {told}\n")
        assert found == [], f"seed {seed}, journals in {folder}"
        short = {what: (met[what], n) for what, n in MINIMUM.items() if met[what] < n}
        assert short == {}, "this run has shown too little"


# --- planted defects ------------------------------------------------------------------------------

CHECK_OUTSIDE: Final = """
import sys
from mbx.core.errors import MbxError
from mbx.core.lease import LeaseState, claimable
from mbx.daemon import app, gate, granting
from mbx.daemon.context import Answer
from mbx.daemon.dispatch import Work
from mbx.daemon.methods import identity
from mbx.store import identities, leases, sessions

checks = {}
accept, submit = app.Daemon._accept, app.Daemon._submit

def accepting(daemon, caller, method, params):
    work = accept(daemon, caller, method, params)
    if method == "identity.claim":
        checks[id(work.unit)] = (work.unit, lambda tx: looked(daemon, tx, caller, params["name"]))
    return work

def looked(daemon, tx, caller, name):
    own, wanted = gate.admit_session(tx, caller).binding, identities.by_name(tx, name)
    if wanted is not None and (own is None or own.identity_no != wanted.no):
        row = leases.find(tx, wanted.no)
        if not claimable(row.lease, daemon._holders.observe(row)).ok:
            raise MbxError("in-use", "held")
    return Answer({})

def submitting(daemon, work, done):
    check = checks.pop(id(work.unit), None)
    if check is None:
        return submit(daemon, work, done)
    def checked(outcome):
        if hasattr(outcome, "error"):
            done(outcome)
        else:
            submit(daemon, work, done)
    return submit(daemon, Work(check[1], writes=False), checked)

def taking(context, tx, caller, wanted, row):
    granting.lapse(tx, context.moment, row, sessions.by_no(tx, row.lease.session_no), "looked at")
    return leases.find(tx, wanted.no)

app.Daemon._accept, app.Daemon._submit = accepting, submitting
identity._lapse_or_refuse = taking
"""
"""A claim looks in one transaction and takes in the next."""

SAME_EPOCH: Final = """
import sys
from mbx.daemon import granting

change = granting.transition
granting.transition = lambda before, event, **told: change(before, event, **told)._replace(epoch=1)
"""
"""Every grant has epoch 1."""

TAKEOVER_LOOKS_OUTSIDE: Final = """
import json, sys
from types import SimpleNamespace
from mbx.core.errors import MbxError
from mbx.daemon import app, displacing
from mbx.daemon.context import Answer
from mbx.daemon.dispatch import Work
from mbx.store import identities, leases, owners

checks = {}
accept, submit = app.Daemon._accept, app.Daemon._submit
read = displacing.takeover.read

class Whichever(int):
    __hash__ = int.__hash__
    def __ne__(self, other):
        return False

def reading(payload):
    wanted = read(payload)
    return wanted._replace(epoch=Whichever(wanted.epoch))

def accepting(daemon, caller, method, params):
    work = accept(daemon, caller, method, params)
    if method == "owner.apply":
        checks[id(work.unit)] = (work.unit, lambda tx: looked(tx, params["record"]["payload"]))
    return work

def looked(tx, payload):
    told = json.loads(payload)
    lease = leases.find(tx, identities.by_identity(tx, told["identity"]).no).lease
    if lease.epoch != told["epoch"] and all(one.payload != payload for one in every(tx)):
        state = lease.state.name.lower()
        before = {"state": state, "epoch": lease.epoch, "holder": None}
        raise MbxError("conflict", "another epoch", before=before)
    return Answer({})

def every(tx):
    rows = tx.all("SELECT payload FROM owner_records")
    return [SimpleNamespace(payload=payload) for payload, in rows]

def submitting(daemon, work, done):
    check = checks.pop(id(work.unit), None)
    if check is None:
        return submit(daemon, work, done)
    def checked(outcome):
        if hasattr(outcome, "error"):
            done(outcome)
        else:
            submit(daemon, work, done)
    return submit(daemon, Work(check[1], writes=False), checked)

app.Daemon._accept, app.Daemon._submit = accepting, submitting
displacing.takeover = SimpleNamespace(read=reading)
"""
"""The epoch of a record is compared in one transaction, and what it says is done in the next."""

NO_EPOCH: Final = """
import sys
from types import SimpleNamespace
from mbx.daemon import displacing

read = displacing.takeover.read

class Whichever(int):
    __hash__ = int.__hash__
    def __ne__(self, other):
        return False

def reading(payload):
    wanted = read(payload)
    return wanted._replace(epoch=Whichever(wanted.epoch))

displacing.takeover = SimpleNamespace(read=reading)
"""
"""A takeover ends whatever epoch there is."""

OWN_EPOCH_KEPT: Final = """
import sys
from mbx.daemon import granting

change = granting.transition

def changing(before, event, **told):
    after = change(before, event, **told)
    return after._replace(epoch=before.epoch) if event == "takeover" and before.epoch else after

granting.transition = changing
"""
"""A takeover gives the epoch that it ends to another."""

GOES_ON: Final = """
import sys
from mbx.core.lease import LeaseState
from mbx.daemon import gate

gate._still_held = lambda binding: binding.lease.state is not LeaseState.FREE
"""
"""What a displaced session was bound to is not compared with the lease of now."""

RECORD_FORGOTTEN: Final = """
import sys
from mbx.daemon import applying

applying.owners.find = lambda tx, record_id: None
"""
"""A record that has acted is judged again when it is brought again."""

COMES_BACK: Final = """
import sys
from mbx.daemon import displacing

displacing.granting.forget = lambda tx, session, identity_no: None
"""
"""The conversation that was displaced is not forgotten: in its next process it has it again."""

GIVEN_TO_ANOTHER: Final = """
import sys
from mbx.daemon import displacing
from mbx.store import leases, sessions

meant = displacing._destination

def another(context, tx, wanted):
    to = meant(context, tx, wanted)
    lost = (one for one in sessions.bound(tx) if one.no != to.no)
    lost = (one for one in lost if leases.find(tx, one.identity_no).lease.epoch != one.epoch)
    return next(lost, to)

displacing._destination = another
"""
"""The identity goes to another session than the record says: to one that had been displaced."""

MAIN: Final = "\nfrom mbx.daemon.__main__ import main\nsys.exit(main(sys.argv[1:]))\n"


@pytest.mark.long
@pytest.mark.timeout(180)
@pytest.mark.parametrize(
    ("defect", "said"),
    [
        pytest.param(CHECK_OUTSIDE, "no order explains", id="the check is outside"),
        pytest.param(SAME_EPOCH, "is not new", id="the epoch does not grow"),
        pytest.param(TAKEOVER_LOOKS_OUTSIDE, "does not ask for", id="a takeover looks outside"),
        pytest.param(NO_EPOCH, "no order explains", id="a takeover ends any epoch"),
        pytest.param(OWN_EPOCH_KEPT, "is not new", id="a takeover keeps the epoch"),
        pytest.param(GOES_ON, "was displaced", id="the displaced goes on"),
        pytest.param(RECORD_FORGOTTEN, "after the record had acted", id="a record is forgotten"),
        pytest.param(COMES_BACK, "by itself", id="the displaced comes back"),
        pytest.param(GIVEN_TO_ANOTHER, "does not ask for", id="given to another"),
    ],
)
def test_the_contest_finds_the_planted_defect(tmp_path: Path, defect: str, said: str) -> None:
    for seed in range(3):
        folder = tmp_path / str(seed)
        folder.mkdir()
        python = ("-I", "-c", defect + MAIN)
        found, met = play(folder, seed, 900, harm=(4, 3, 0, 8), python=python)
        if any(said in what for what in found):
            sys.stdout.write(f"contest {seed}: {met['calls']} calls, {found[:1]}\n")
            return
    pytest.fail("three contests have not found it")
