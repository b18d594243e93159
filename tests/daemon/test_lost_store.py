"""A home that is removed, moved or put back from a copy while its daemon runs."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.daemon import Daemon, HungUpError, fresh_home
from tests.support.patience import looks

UNANSWERED = (HungUpError, BrokenPipeError, ConnectionResetError)


@pytest.fixture
def home() -> Iterator[Path]:
    with fresh_home() as folder:
        yield folder / "home"


def take_away(home: Path) -> None:
    """As `rm -rf`, again and again: the daemon goes on making files and renaming them."""
    for _ in looks():
        shutil.rmtree(home, ignore_errors=True)
        if not home.exists():
            return
    raise AssertionError(f"{home} is still there")


def test_mail_for_a_store_that_was_removed_is_not_accepted(home: Path) -> None:
    with Daemon(home) as daemon, daemon.agent() as agent, agent.registered("anna") as line:
        take_away(home)
        with pytest.raises(UNANSWERED):
            line.call("mail.send", to=["anna"], subject="s", body="b", key="k")
        assert daemon.wait() != 0


def test_a_home_that_was_removed_is_free_for_a_new_start(home: Path) -> None:
    with Daemon(home) as daemon, daemon.agent() as agent:
        agent.registered("anna").close()
        take_away(home)
        assert daemon.wait() != 0
        assert not Path(daemon.socket_path).exists()
        for _ in range(2):  # nothing of the old host is in the way, after a kill neither
            assert daemon.start().get("ready") is True
            with daemon.line() as line:
                line.hello()
                assert line.call("identity.list")["identities"] == []
            daemon.kill()


def test_a_home_put_back_from_a_copy_is_served_as_it_is_and_loses_nothing(home: Path) -> None:
    copy = home.with_name("copy")
    with Daemon(home) as daemon, daemon.agent() as agent:
        agent.registered("anna").close()
        daemon.stop()
        shutil.copytree(home, copy)
        daemon.start()
        home.rename(home.with_name("aside"))
        copy.rename(home)
        with Daemon(home) as successor, successor.agent() as other:
            line = other.registered("bea")
            sent = line.call("mail.send", to=["bea"], subject="s", body="b", key="k")
            assert daemon.wait() != 0
            successor.kill()
            successor.start()
            line.close()
            with other.connect() as line:
                assert [one["id"] for one in line.call("mail.inbox")["messages"]] == [sent["id"]]
