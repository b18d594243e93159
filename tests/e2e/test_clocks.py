"""Leases, mail and listings while clocks are set, boots shift and the machine is started again."""

import json
import re
import sys
import uuid
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from tests.support.daemon import MBX, Agent, Daemon, Line, fresh_home, fresh_name
from tests.support.load import Load
from tests.support.patience import looks
from tests.support.shells import Shell, look_alike
from tests.support.worlds import DAY_S, WallClock, can_unshare, unshared, with_boot_id

pytestmark = [pytest.mark.long, pytest.mark.timeout(120)]

TIMEOUT_S = 1_800
"""What a lease lasts at most (DESIGN 4.2)."""
MONTH_S = 30 * DAY_S
STEPS_S = (MONTH_S, -MONTH_S, -MONTH_S, MONTH_S, 7_200, -7_201, 2 * MONTH_S, -3 * MONTH_S)
SLACK_MS = 2_000
"""Two clocks that are the same are read one after the other."""
NEGATIVE = re.compile(r"(?<![\w-])-\d+ ?(?:s|min|h|d)\b")


@pytest.fixture
def home() -> Iterator[Path]:
    with fresh_home() as folder:
        yield folder


def ms_of(at: str) -> int:
    return int(datetime.fromisoformat(at).timestamp() * 1000)


def shell_environment(daemon: Daemon) -> dict[str, str]:
    return daemon.environment | {"PATH": f"{Path(MBX).parent}:{daemon.environment['PATH']}"}


def registered(shell: Shell, name: str) -> None:
    done = shell.run(f"mbx identity register {name} --role tester --json")
    assert done.status == 0, done.out + done.err


def whoami(shell: Shell) -> dict[str, Any]:
    told = json.loads(shell.run("mbx whoami --json").out)
    assert isinstance(told, dict)
    return told


def until_signed_anew(line: Line) -> int:
    """Seconds that the lease record still lasts, once that is what a lease lasts."""
    left_s = -1
    for _ in looks():
        left_s = line.call("session.whoami")["lease"]["expires_in_s"]
        assert left_s >= 0
        if TIMEOUT_S // 2 <= left_s <= TIMEOUT_S:
            return int(left_s)
    raise AssertionError(f"the lease record lasts {left_s} s")


# -- the wall clock -------------------------------------------------------------------------------


class Onlooker:
    """Looks at everything after each step of the clock; `looks` counts what was looked at."""

    def __init__(self, daemon: Daemon, clock: WallClock, holder: Agent, name: str) -> None:
        self._daemon = daemon
        self._clock = clock
        self._holder = holder
        self._name = name
        self.looks = 0

    def look(self, claimant: Agent) -> None:
        """All holders hold, nobody is claimable, no time is ahead of the clock."""
        with self._holder.connect() as line:
            until_signed_anew(line)
            listed = line.call("identity.list")["identities"]
            agents = line.call("agents.list")["agents"]
            status = line.call("daemon.status")
            line.call("mail.send", to=[self._name], subject="look", body="b")
            since = line.call("session.whoami")["lease"]["since"]
        assert ms_of(since) > 0
        assert status["uptime_s"] >= 0
        now_ms = self._clock.now_ms() + SLACK_MS
        for one in listed:
            assert (one["state"], one["claimable"]) == ("held", one["name"] == self._name), one
            assert one["last_seen"] is None or ms_of(one["last_seen"]) <= now_ms, one
            self.looks += 1
        for one in agents:
            assert one["state"] == "live", one
            assert one["last_seen"] is None or ms_of(one["last_seen"]) <= now_ms, one
            self.looks += 1
        with claimant.connect() as other:
            for one in listed:
                refused = other.refusal("identity.claim", name=one["name"])
                assert refused["code"] == "in-use", one
                self.looks += 1

    def read(self, shell: Shell) -> None:
        """No listing for people shows a negative age, nor somebody seen in the future."""
        for command in ("identity list", "agents", "inbox", "sent", "status", "whoami"):
            done = shell.run(f"mbx {command}")
            assert done.status == 0, (command, done.err)
            assert NEGATIVE.search(done.out) is None, done.out
            if command in ("identity list", "agents"):
                assert not re.search(r"\bin \d+ (?:s|min|h|d)\b", done.out), done.out
            self.looks += 1


@pytest.mark.timeout(120)
@pytest.mark.skipif(not WallClock.is_available(), reason="faketime is not installed")
def test_a_wall_clock_set_back_and_forth_under_load_costs_nobody_a_lease_or_a_message(
    home: Path, tmp_path: Path
) -> None:
    clock = WallClock(tmp_path / "clock")
    seen_in_order: list[str] = []
    with Daemon(home, environment=clock.environment) as daemon, Load(daemon) as load:
        environment = shell_environment(daemon)
        with (
            daemon.agent() as watcher,
            daemon.agent() as stranger,
            Shell(env=environment) as shell,
        ):
            name, typist = fresh_name("watcher"), fresh_name("typist")
            with watcher.registered(name) as line:
                line.call("mail.send", to=[name], subject="first", body="b")
            registered(shell, typist)
            shell.run(f"mbx send --to {typist} --subject s -m b")
            onlooker = Onlooker(daemon, clock, watcher, name)
            cursor = None
            for number, step_s in enumerate(STEPS_S):
                clock.step(step_s)
                if number % 4 == 3:
                    load.while_down(daemon.kill)  # and a start under the clock as it is
                load.wait_for(16)
                onlooker.look(stranger)
                if number in (1, 2):
                    onlooker.read(shell)
                with watcher.connect() as line:  # a page begun before goes on after the step
                    page = line.call("mail.inbox", limit=1, cursor=cursor)
                    seen_in_order += [one["id"] for one in page["messages"]]
                    cursor = page["next_cursor"] or cursor
            assert whoami(shell)["agent"] == typist
            with watcher.connect() as line:
                stored = [one["id"] for one in line.call("mail.inbox", limit=200)["messages"]]
        load.finish()
        accepted = load.check_once()
        ids = [an_id for client in load.clients for an_id in client.accepted.values()]
    assert len(set(ids)) == len(ids) == accepted, "no id twice, whatever the clock said"
    assert seen_in_order == stored[: len(seen_in_order)], "order is that of commits"
    assert len(seen_in_order) == len(STEPS_S)
    assert onlooker.looks >= 150
    sys.stdout.write(
        f"{len(STEPS_S)} steps of the clock, {accepted} messages accepted and stored once,"
        f" {onlooker.looks} looks, {load.repeats} outcomes unknown\n"
    )


# -- the boot -------------------------------------------------------------------------------------


@pytest.mark.root
@pytest.mark.skipif(not can_unshare("--time"), reason="there are no time namespaces here")
def test_holders_are_the_same_for_a_daemon_in_another_time_namespace_and_back(home: Path) -> None:
    outside, inside = fresh_name("outside"), fresh_name("inside")
    apart = unshared("--time", "--monotonic", "100000", "--boottime", "100000")
    with Daemon(home) as first, Shell(env=shell_environment(first)) as shell:
        registered(shell, outside)
        before = whoami(shell)
        with first.agent() as agent, first.agent() as other, first.agent() as doomed:
            agent.registered(inside).close()
            doomed.registered("doomed").close()
            first.stop()
            with Daemon(home, prefix=apart) as second:
                assert second.status()["uptime_s"] < 1_000
                told = whoami(shell)
                assert (told["agent"], told["session"]) == (outside, before["session"])
                assert told["lease"]["epoch"] == before["lease"]["epoch"]
                with agent.connect() as line, other.connect() as stranger:
                    assert line.call("session.whoami")["agent"] == inside
                    until_signed_anew(line)
                    for name in (outside, inside):
                        assert stranger.refusal("identity.claim", name=name)["code"] == "in-use"
                    line.call("identity.release")
                    line.call("identity.claim", name=inside)  # granted in there
                doomed.kill()
                with other.connect() as heir:
                    assert heir.call("identity.claim", name="doomed")["epoch"] == 2
                with second.line() as line:
                    line.hello()
                    line.call("daemon.stop")
                assert second.wait() == 0
            with Daemon(home) as third, agent.connect() as line, other.connect() as heir:
                assert whoami(shell)["agent"] == outside
                assert line.call("session.whoami")["lease"]["epoch"] == 2
                assert heir.call("session.whoami")["agent"] == "doomed"
                third.stop()


@pytest.mark.root
@pytest.mark.skipif(not can_unshare("--mount"), reason="there are no mount namespaces here")
def test_after_a_restart_of_the_machine_all_names_are_free_at_once_and_mail_is_there(
    home: Path, tmp_path: Path
) -> None:
    boot = tmp_path / "boot_id"
    prefix = with_boot_id(boot)
    boot.write_text(f"{uuid.uuid4()}\n")
    names = [fresh_name("holder") for _ in range(4)]
    with ExitStack() as stack:
        daemon = stack.enter_context(Daemon(home, prefix=prefix))
        shell = stack.enter_context(Shell(env=shell_environment(daemon)))
        registered(shell, names[0])
        client = [str(look_alike(tmp_path / "bin", "claude")), "--norc", "--noprofile"]
        wish = {"MBX_AGENT": names[0]}
        waiter = stack.enter_context(Shell(client, env=shell_environment(daemon) | wish))
        *agents, heir = (stack.enter_context(daemon.agent()) for _ in range(4))
        for name, agent in zip(names[1:], agents, strict=True):
            with agent.registered(name) as line:
                line.call("mail.send", to=[name, names[0]], subject="s", body="b")
        assert whoami(waiter)["pending"] == names[0]
        daemon.stop()
        daemon.start()  # the same boot: everybody is there
        with heir.connect() as line:
            assert len(line.call("daemon.health")["pending"]) == 1
            for name in names:
                assert line.refusal("identity.claim", name=name)["code"] == "in-use"
        daemon.stop()
        boot.write_text(f"{uuid.uuid4()}\n")  # these processes are of an earlier boot now
        daemon.start()
        with heir.connect() as line:
            assert line.call("daemon.health")["pending"] == []
            for name in names:
                shown = line.call("identity.show", name=name)
                assert (shown["state"], shown["claimable"]) == ("lapsed", True)
                assert line.call("identity.claim", name=name)["epoch"] == 2
                mail = line.call("mail.inbox")["messages"]
                assert len(mail) == (3 if name == names[0] else 1)
                line.call("identity.release")
        for agent in agents:
            with agent.connect() as line:
                assert line.refusal("mail.inbox")["code"] == "no-lease"
        assert whoami(shell)["agent"] is None
    sys.stdout.write(f"{len(names)} holders of another boot, {len(names)} names claimed at once\n")
