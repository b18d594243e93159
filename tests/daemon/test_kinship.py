"""Sessions below sessions: what one of them read counts for all that may have been told of it.

An agent CLI that has read mail from outside cannot have something clean written by what it starts,
nor read through it without being marked.
"""

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from mbx.core.evidence import Process, Unreadable
from mbx.core.kinship import Above, Ancestor
from mbx.daemon import booting
from mbx.daemon.dispatch import Work
from mbx.daemon.effects import Granted
from mbx.daemon.gate import Caller
from mbx.daemon.kinship import nobody
from mbx.daemon.resuming import Wish
from mbx.daemon.world import moment
from mbx.paths import Paths
from mbx.store import exposures, kin, sessions
from mbx.store.database import Committed, Tx, run_group
from tests.support.correspondence import hold, mail, read
from tests.support.office import BOOT, OfficeDesk, conversation, harness, run, shell, unseen
from tests.support.owner import Owner, an_owner

HOUR = 60 * 60 * 1000
MINUTE = 60 * 1000


@pytest.fixture
def desk() -> Iterator[OfficeDesk]:
    desk = OfficeDesk()
    desk.add_owner()
    yield desk
    desk.close()


@pytest.fixture
def owner(desk: OfficeDesk) -> Owner:
    return an_owner(desk)


def is_tainted(desk: OfficeDesk, writer: Caller) -> bool:
    """Both ways to see it must agree: what whoami says, and what is signed."""
    told = desk.call(writer, "session.whoami")["external"] is not None
    note = mail(desk, writer, desk.call(writer, "session.whoami")["agent"])
    signed = desk.rows("SELECT external FROM messages WHERE id = ?", note) == [(1,)]
    assert told is signed
    return told


def read_from_outside(desk: OfficeDesk, reader: Caller, web: Caller) -> None:
    agent = desk.call(reader, "session.whoami")["agent"]
    read(desk, reader, mail(desk, web, agent, origin="external"))


def housekeeping(desk: OfficeDesk) -> None:
    def unit(tx: Tx) -> None:
        sessions.forget_unused(tx)
        exposures.forget_old(tx, desk.world.now_ms())
        kin.forget_old(tx, desk.world.now_ms())

    assert isinstance(run_group(desk.connection, [unit])[0], Committed)


def restart(desk: OfficeDesk) -> None:
    """What the next daemon does with the store; nothing is seen above anybody any more."""
    desk.above.clear()

    def unit(tx: Tx) -> None:
        booting._those_who_wait(tx, moment(desk.world), BOOT, lambda process: "live")
        sessions.forget_unused(tx)

    assert isinstance(run_group(desk.connection, [unit])[0], Committed)


@pytest.fixture
def web(desk: OfficeDesk) -> Caller:
    return desk.holder("web", 90)


# -- both ways ------------------------------------------------------------------------------------

ABOVE: dict[str, Callable[[], Caller]] = {
    "an agent CLI": lambda: harness(1, "s-1"),
    "a shell": lambda: shell(1),
    "a run": lambda: run(1),
    "a conversation of many": lambda: conversation(1, "c-1"),
}
BELOW: dict[str, Callable[[], Caller]] = {
    "a run": lambda: run(2),
    "an agent CLI": lambda: harness(2, "s-2", "codex"),
    "a login shell": lambda: shell(2),
    "a conversation of many": lambda: conversation(2, "c-2"),
}


@pytest.fixture(params=itertools.product(ABOVE, BELOW), ids=" below ".join)
def pair(request: pytest.FixtureRequest, desk: OfficeDesk) -> tuple[Caller, Caller]:
    """A session above, with the identity `ui`, and one below it, with `api`."""
    over, under = ABOVE[request.param[0]](), BELOW[request.param[1]]()
    hold(desk, over, "ui")
    desk.below(2, shell(50), over, shell(51))
    return over, hold(desk, under, "api")


def test_what_is_below_a_tainted_session_cannot_write_clean_mail(
    desk: OfficeDesk, web: Caller, pair: tuple[Caller, Caller]
) -> None:
    over, under = pair
    assert not is_tainted(desk, under)
    read_from_outside(desk, over, web)
    assert is_tainted(desk, under)
    desk.world.pass_ms(HOUR)
    assert not is_tainted(desk, under)


def test_who_reads_through_what_it_started_is_marked_itself(
    desk: OfficeDesk, web: Caller, pair: tuple[Caller, Caller]
) -> None:
    over, under = pair
    assert not is_tainted(desk, over)
    read_from_outside(desk, under, web)
    assert is_tainted(desk, over)
    desk.world.pass_ms(HOUR)
    assert not is_tainted(desk, over)


def test_it_inherits_what_was_read_before_it_began(desk: OfficeDesk, web: Caller) -> None:
    claude = hold(desk, harness(1, "s-1"), "ui")
    read_from_outside(desk, claude, web)
    desk.below(2, shell(50), claude)
    assert is_tainted(desk, hold(desk, run(2), "api"))


def test_a_run_that_has_ended_leaves_its_mark_above(desk: OfficeDesk, web: Caller) -> None:
    claude = hold(desk, harness(1, "s-1"), "ui")
    desk.below(2, shell(50), claude)
    reader = hold(desk, run(2), "api")
    read_from_outside(desk, reader, web)
    desk.call(reader, "identity.release")
    housekeeping(desk)
    assert is_tainted(desk, claude)
    desk.below(3, shell(52), claude)
    writer = run(3)
    desk.call(writer, "identity.claim", name="api")
    assert is_tainted(desk, writer)


def test_an_agent_cli_without_any_identity_carries_it_from_one_run_to_the_next(
    desk: OfficeDesk, web: Caller
) -> None:
    for pid, name in ((2, "api"), (3, "ops")):
        desk.below(pid, shell(50 + pid), harness(1, "s-1"))
        hold(desk, run(pid), name)
    read_from_outside(desk, run(2), web)
    assert is_tainted(desk, run(3))
    assert is_tainted(desk, hold(desk, harness(1, "s-1"), "ui"))


def test_runs_in_runs_and_agents_in_agents_share_it_all(desk: OfficeDesk, web: Caller) -> None:
    line = [harness(1, "s-1"), run(2), harness(3, "s-3", "codex"), run(4)]
    for place, caller in enumerate(line):
        desk.below(place + 1, *reversed(line[:place]), shell(60))
        hold(desk, caller, f"{'abcd'[place]}{'abcd'[place]}-dev")
    for reader in line:
        read_from_outside(desk, reader, web)
        assert [is_tainted(desk, one) for one in line] == [True] * 4
        desk.world.pass_ms(HOUR)
        assert [is_tainted(desk, one) for one in line] == [False] * 4


def test_strangers_share_nothing(desk: OfficeDesk, web: Caller) -> None:
    """Two agents, and a run, in the windows of one terminal server; and one below another agent."""
    server = Process(70, 700, BOOT)
    for pid in (1, 2, 3):
        desk.above[pid] = Above((Ancestor(server, is_agent=False),))
    desk.below(4, harness(2, "s-2"))
    one = hold(desk, harness(1, "s-1"), "ui")
    others = [
        hold(desk, caller, name)
        for caller, name in ((harness(2, "s-2"), "api"), (run(3), "ops"), (run(4), "ci-job"))
    ]
    read_from_outside(desk, one, web)
    assert [is_tainted(desk, other) for other in others] == [False] * 3
    read_from_outside(desk, others[2], web)
    assert [is_tainted(desk, other) for other in others] == [True, False, True]


# -- shells ---------------------------------------------------------------------------------------


def test_a_shell_that_never_held_anything_ties_nobody_together(
    desk: OfficeDesk, web: Caller
) -> None:
    """Whoever starts one agent after the other in a terminal is a person, who reads for itself."""
    for pid, name in ((2, "api"), (3, "ops")):
        desk.below(pid, shell(1))
        hold(desk, run(pid), name)
    read_from_outside(desk, run(2), web)
    assert not is_tainted(desk, run(3))


def test_a_shell_that_takes_an_identity_later_has_heard_what_was_read_below_it(
    desk: OfficeDesk, web: Caller
) -> None:
    desk.below(2, shell(1))
    desk.below(3, shell(1))
    read_from_outside(desk, hold(desk, run(2), "api"), web)
    other = hold(desk, run(3), "ops")
    assert not is_tainted(desk, other)
    assert is_tainted(desk, hold(desk, shell(1), "ui"))
    assert is_tainted(desk, other)


def test_a_shell_that_gives_its_identity_back_washes_nothing_off_below_it(
    desk: OfficeDesk, web: Caller
) -> None:
    me = hold(desk, shell(1), "ui")
    desk.world.pass_ms(5 * HOUR)
    housekeeping(desk)
    for pid in (2, 3):
        desk.below(pid, shell(1))
    read_from_outside(desk, hold(desk, run(2), "api"), web)
    desk.call(me, "identity.release")
    housekeeping(desk)
    housekeeping(desk)
    assert is_tainted(desk, hold(desk, run(3), "ops"))


# -- many conversations in one process ------------------------------------------------------------


def test_of_many_conversations_above_every_one_may_be_meant(desk: OfficeDesk, web: Caller) -> None:
    one = hold(desk, conversation(1, "c-1"), "ui")
    two = hold(desk, conversation(1, "c-2"), "api")
    desk.below(2, shell(50), one)
    below = hold(desk, run(2), "ops")
    read_from_outside(desk, one, web)
    assert (is_tainted(desk, two), is_tainted(desk, below)) == (False, True)
    desk.world.pass_ms(HOUR)
    read_from_outside(desk, two, web)
    assert (is_tainted(desk, one), is_tainted(desk, below)) == (False, True)
    desk.world.pass_ms(HOUR)
    read_from_outside(desk, below, web)
    assert (is_tainted(desk, one), is_tainted(desk, two)) == (True, True)


def test_whoever_hears_several_conversations_may_tell_each_of_them(
    desk: OfficeDesk, web: Caller
) -> None:
    desk.below(1, harness(7, "s-7"))
    one = hold(desk, conversation(1, "c-1"), "ui")
    two = hold(desk, conversation(1, "c-2"), "api")
    read_from_outside(desk, one, web)
    assert is_tainted(desk, two)


# -- nothing washes it off ------------------------------------------------------------------------


def test_a_run_that_outlives_the_session_above_and_the_daemon_keeps_it(
    desk: OfficeDesk, web: Caller
) -> None:
    claude = hold(desk, harness(1, "s-1"), "ui")
    read_from_outside(desk, claude, web)
    desk.below(2, shell(50), claude)
    heir = hold(desk, run(2), "api")
    ((number,),) = desk.rows("SELECT no FROM sessions WHERE pid = 1")
    desk.carry_out(desk.dispatcher.burial(number, "its process has ended"))
    restart(desk)
    housekeeping(desk)
    desk.world.pass_ms(HOUR - MINUTE)
    housekeeping(desk)
    assert is_tainted(desk, heir)
    desk.world.pass_ms(MINUTE)
    assert not is_tainted(desk, heir)


def test_rows_last_as_long_as_the_session_and_the_hour_after_it(
    desk: OfficeDesk, web: Caller
) -> None:
    claude = hold(desk, harness(1, "s-1"), "ui")
    desk.below(2, shell(50), claude)
    reader = hold(desk, run(2), "api")
    for _ in range(50):
        desk.world.pass_ms(HOUR)
        housekeeping(desk)
    read_from_outside(desk, reader, web)
    desk.call(reader, "identity.release")
    desk.world.pass_ms(HOUR - 1)
    housekeeping(desk)
    assert is_tainted(desk, claude)
    desk.world.pass_ms(HOUR)
    housekeeping(desk)
    assert desk.rows("SELECT DISTINCT process FROM kin WHERE process LIKE '% 2-20'") == []
    assert desk.rows("SELECT count(*) > 0 FROM kin") == [(True,)]


def test_a_clock_that_was_ahead_keeps_no_rows_for_ever(desk: OfficeDesk) -> None:
    desk.world.wall_ms += 1_000 * HOUR
    claude = hold(desk, harness(1, "s-1"), "ui")
    desk.call(claude, "identity.release")
    desk.world.wall_ms -= 1_000 * HOUR
    housekeeping(desk)
    desk.world.pass_ms(2 * HOUR)
    housekeeping(desk)
    assert desk.rows("SELECT count(*) FROM kin") == [(0,)]


def test_a_conversation_that_goes_on_elsewhere_takes_along_what_it_overheard(
    desk: OfficeDesk, web: Caller
) -> None:
    """Its own transcript has it; and so has whatever it starts from there."""
    claude = hold(desk, harness(1, "s-1"), "ui")
    desk.below(2, shell(50), claude)
    read_from_outside(desk, hold(desk, run(2), "api"), web)
    desk.evidence[1] = "dead"
    again = harness(5, "s-1")
    desk.call(again, "identity.claim", name="ui")
    assert is_tainted(desk, again)
    desk.below(6, shell(51), again)
    assert is_tainted(desk, hold(desk, run(6), "ops"))
    desk.world.pass_ms(HOUR)
    assert (is_tainted(desk, again), is_tainted(desk, run(6))) == (False, False)


def test_a_conversation_without_identity_tells_what_it_read_to_what_it_starts(
    desk: OfficeDesk, web: Caller
) -> None:
    first = hold(desk, harness(1, "s-1"), "ui")
    read_from_outside(desk, first, web)
    desk.call(first, "identity.release")
    again = harness(5, "s-1")
    for _ in range(2):
        desk.carry_out(desk.dispatcher.arrival(again, Wish()))
    assert desk.call(again, "session.whoami")["agent"] is None
    desk.below(6, shell(51), again)
    assert is_tainted(desk, hold(desk, run(6), "api"))


def test_a_new_label_of_the_same_process_is_the_same_session(desk: OfficeDesk, web: Caller) -> None:
    first = hold(desk, harness(1, "s-1"), "ui")
    desk.below(2, shell(50), first)
    below = hold(desk, run(2), "api")
    desk.call(first, "identity.release")
    after = harness(1, "s-2")
    desk.call(after, "identity.claim", name="ui")
    read_from_outside(desk, after, web)
    assert is_tainted(desk, below)
    desk.world.pass_ms(HOUR)
    read_from_outside(desk, below, web)
    assert is_tainted(desk, after)


def test_whom_the_owner_gives_an_identity_is_below_whom_it_is_below(
    desk: OfficeDesk, owner: Owner, web: Caller
) -> None:
    claude = hold(desk, harness(1, "s-1"), "ui")
    desk.holder("api", 8)
    desk.below(2, shell(50), claude)
    desk.evidence[2] = "live"
    desk.encounters.met(run(2).lineage)
    owner.do("takeover", name="api", cli="run", session="2-20", reason="it hangs")
    read_from_outside(desk, claude, web)
    assert is_tainted(desk, run(2))


def test_who_waits_for_an_identity_is_below_whom_it_was_when_it_came(
    desk: OfficeDesk, web: Caller
) -> None:
    claude, holder = hold(desk, harness(1, "s-1"), "ui"), hold(desk, shell(8), "api")
    desk.below(2, shell(50), claude)
    waiting = harness(2, "s-2", "codex")
    desk.carry_out(desk.dispatcher.arrival(waiting, Wish("api")))
    desk.above.clear()
    assert holder.lineage.process is not None
    desk.evidence[8] = "dead"
    ((number,),) = desk.rows("SELECT no FROM sessions WHERE pid = 8")
    desk.carry_out(desk.dispatcher.burial(number, "its process has ended"))
    read_from_outside(desk, claude, web)
    assert is_tainted(desk, waiting)


def test_a_child_with_a_token_writes_what_its_session_may(desk: OfficeDesk, web: Caller) -> None:
    claude = hold(desk, harness(1, "s-1"), "ui")
    desk.below(2, shell(50), claude)
    hold(desk, run(2), "api")
    (granted,) = [one for one in desk.effects if isinstance(one, Granted) and one.name == "api"]
    read_from_outside(desk, claude, web)
    assert is_tainted(desk, unseen(granted.token))


def test_what_is_read_on_a_full_disk_counts_for_kin_too(desk: OfficeDesk, web: Caller) -> None:
    claude = hold(desk, harness(1, "s-1"), "ui")
    desk.below(2, shell(50), claude)
    below = hold(desk, run(2), "api")
    message = mail(desk, web, "api", origin="external")
    work = desk.work(below, "mail.read", {"ids": [message]})
    assert work.when_full is not None
    desk.carry_out(Work(work.when_full, writes=False))
    assert desk.rows("SELECT count(*) FROM exposures") == [(0,)]
    assert is_tainted(desk, claude)


def test_sessions_that_a_daemon_before_this_one_left_are_placed_at_the_start(
    desk: OfficeDesk, web: Caller, tmp_path: Path
) -> None:
    (tmp_path / "home").mkdir(mode=0o700)
    paths = Paths(str(tmp_path / "home"), str(tmp_path / "run"))
    claude = hold(desk, harness(1, "s-1"), "ui")
    below = hold(desk, run(2), "api")
    desk.connection.execute("DELETE FROM kin")
    desk.connection.execute("DELETE FROM host")
    desk.below(2, shell(50), claude)

    def unit(tx: Tx) -> None:
        booting.boot(
            tx,
            paths,
            desk.world,
            BOOT,
            lambda process: "live",
            lambda process: desk.above.get(process.pid, Above()),
        )

    outcome = run_group(desk.connection, [unit])[0]
    assert isinstance(outcome, Committed), outcome
    read_from_outside(desk, claude, web)
    assert is_tainted(desk, below)


# -- what cannot be seen --------------------------------------------------------------------------


def test_below_too_many_processes_nothing_can_be_held(desk: OfficeDesk) -> None:
    """Any agent can put processes between itself and what it starts."""
    desk.above[2] = Above((), Unreadable(40, is_too_far=True))
    before = desk.rows("SELECT count(*) FROM sessions")
    error = desk.refusal(run(2), "identity.register", name="api", role="dev")
    assert (error.code, "more ancestors" in error.message) == ("no-lease", True)
    assert desk.rows("SELECT count(*) FROM sessions") == before


def test_where_it_is_not_seen_what_stands_above_whatever_anybody_read_counts(
    desk: OfficeDesk, web: Caller
) -> None:
    ui, api = desk.holder("ui", 1), desk.holder("api", 3)
    desk.above[2] = Above((), Unreadable(40))
    hidden = hold(desk, run(2), "ops")
    assert not is_tainted(desk, hidden)
    read_from_outside(desk, ui, web)
    assert (is_tainted(desk, hidden), is_tainted(desk, api)) == (True, False)
    desk.world.pass_ms(HOUR)
    assert not is_tainted(desk, hidden)
    message = mail(desk, web, "ui", origin="external")
    work = desk.work(ui, "mail.read", {"ids": [message]})
    assert work.when_full is not None
    desk.carry_out(Work(work.when_full, writes=False))
    assert is_tainted(desk, hidden)


def test_what_was_hidden_for_a_moment_is_looked_for_again(desk: OfficeDesk, web: Caller) -> None:
    claude = hold(desk, harness(1, "s-1"), "ui")
    stranger = desk.holder("ops", 3)
    desk.above[2] = Above((), Unreadable(1))
    below = hold(desk, run(2), "api")
    read_from_outside(desk, below, web)
    assert not is_tainted(desk, claude)
    desk.below(2, shell(50), claude)
    desk.call(below, "identity.release")
    desk.call(below, "identity.claim", name="api")
    assert is_tainted(desk, claude)
    desk.world.pass_ms(HOUR)
    read_from_outside(desk, stranger, web)
    assert not is_tainted(desk, below)


def test_without_a_way_to_look_nothing_is_above_anybody() -> None:
    assert nobody(Process(1, 1, BOOT)) == Above()
