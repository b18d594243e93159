"""Eight real processes contest three leases, and what they were told is that of three leases.

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
from tests.sim.linear import by_search, by_sequence
from tests.support.contest import Contest
from tests.support.daemon import Daemon, fresh_home

RUNS, CALLS = map(int, os.environ.get("MBX_TEST_CONTEST", "1 2400").split())
"""What is played; by itself what CI plays."""

MINIMUM: Final = {
    "calls": 2_000,
    "unknown": 10,
    "kills": 16,
    "pauses": 12,
    "daemon kills": 2,
    "ok identity.claim": 100,
    "ok identity.release": 60,
    "ok mail.send": 60,
    "refused in-use": 200,
    "refused no-lease": 20,
    "refused name-taken": 20,
}
"""How often each must come up at least in one run."""


def play(
    folder: Path,
    seed: int,
    calls: int,
    *,
    harm: tuple[int, int, int] = (18, 14, 2),
    python: tuple[str, ...] = ("-I", "-m", "mbx.daemon"),
) -> tuple[list[str], Counter[str]]:
    """What is wrong with one contest, by either way, and what it met."""
    kills, pauses, crashes = harm
    with (
        fresh_home() as home,
        Daemon(home, python=python) as daemon,
        Contest(daemon, folder, seed) as contest,
    ):
        contest.play(calls, kills=kills, pauses=pauses, crashes=crashes)
        contest.finish()
        daemon.stop()
        connection = sqlite3.connect(f"file:{home}/store.db?mode=ro", uri=True)
        store = image.take(connection)
        connection.close()
        histories = contest.histories(store)
        found = [f"I17: {what}" for what in unsound(store)]
        found += by_sequence(histories, store.audit, contest.sessions())
        for identity, steps in histories.items():
            found += [f"{identity}: {what}" for what in by_search(steps)]
        return found, contest.met


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

MAIN: Final = "\nfrom mbx.daemon.__main__ import main\nsys.exit(main(sys.argv[1:]))\n"


@pytest.mark.long
@pytest.mark.timeout(180)
@pytest.mark.parametrize(
    ("defect", "said"),
    [
        pytest.param(CHECK_OUTSIDE, "no order explains", id="the check is outside"),
        pytest.param(SAME_EPOCH, "is not new", id="the epoch does not grow"),
    ],
)
def test_the_contest_finds_the_planted_defect(tmp_path: Path, defect: str, said: str) -> None:
    for seed in range(3):
        folder = tmp_path / str(seed)
        folder.mkdir()
        python = ("-I", "-c", defect + MAIN)
        found, met = play(folder, seed, 1_200, harm=(6, 4, 0), python=python)
        if any(said in what for what in found):
            sys.stdout.write(f"contest {seed}: {met['calls']} calls, {found[:1]}\n")
            return
    pytest.fail("three contests have not found it")
