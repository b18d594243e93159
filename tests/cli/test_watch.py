"""mbx watch, as an agent would use it."""

from tests.cli.conftest import Desk, document


def test_a_watch_ends_with_a_hint_when_mail_that_wakes_arrives(own_desk: Desk) -> None:
    ana, ben = own_desk.shell("ana"), own_desk.shell("ben")
    assert ben.run("mbx watch --once --json").status == 1
    ben.start("mbx watch --timeout 20 --json")
    done = ana.run("mbx send --to ben --kind task --subject secret -m secret --json")
    assert done.status == 0, done.out
    told = ben.finish()
    assert told.status == 0
    said = document(told)
    assert (said["agent"], said["arrived"]) == ("ben", True)
    assert "secret" not in told.out
    again = ben.run("mbx watch --once")
    assert again.status == 0
    assert "next: mbx inbox" in again.out


def test_a_watch_whose_time_is_over_says_so(desk: Desk) -> None:
    cai = desk.shell("cai")
    done = cai.run("mbx watch --timeout 0")
    assert (done.status, done.out.strip()) == (1, "nothing that wakes has arrived")


def test_a_watch_without_a_lease_is_refused(desk: Desk) -> None:
    bare = desk.bare()
    done = bare.run("mbx watch --json")
    assert (done.status, document(done)["error"]["code"]) == (5, "no-lease")


def test_a_watch_that_loses_its_lease_ends_with_that(desk: Desk) -> None:
    dee = desk.shell("dee")
    dee.run("mbx watch --json > watched & echo started")
    released = dee.run("mbx identity release; wait; cat watched")
    assert '"code":"no-lease"' in released.out


def test_odd_times_are_bad_usage(desk: Desk) -> None:
    dee = desk.shell("eve")
    for seconds in ("-1", "nan", "1e99", "soon"):
        assert dee.run(f"mbx watch --timeout {seconds}").status == 2
