"""Waking sessions: real processes that look like agent CLIs, with real records, sockets, commands.

That nobody was woken is proved by an event that comes after: an agent that is told later, or a wake
that the daemon has settled.
"""

import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mbx.core.limits import CLIENT_RECORD_MAX_BYTES, WAKE_COMMAND_MS
from mbx.telling import tell, told
from tests.support.clients import Claude, Client, Codex
from tests.support.daemon import Daemon, Line, fresh_home, fresh_name
from tests.support.patience import looks
from tests.support.waking import reach, send, stage_of, until, wakes


def conversation() -> dict[str, str]:
    """A conversation of Codex: what its hooks say of it."""
    return {"cli": "codex", "id": str(uuid.uuid4())}


@pytest.fixture
def sender(daemon: Daemon) -> Iterator[Line]:
    with daemon.agent() as agent, agent.registered(fresh_name()) as line:
        yield line


def words(told: dict[str, Any]) -> str:
    assert (told["type"], told["message"]["role"]) == ("user", "user")
    return str(told["message"]["content"])


# -- Claude Code ----------------------------------------------------------------------------------


def test_an_idle_session_of_claude_code_is_woken_with_a_count_and_a_name(
    daemon: Daemon, sender: Line
) -> None:
    name = fresh_name()
    with Claude(daemon.socket_path) as claude, claude.registered(name):
        until(sender, name, "idle")
        sent = send(sender, name)
        assert (sent["state"], sent["detail"]) == (
            "live-wake",
            "held by a live session; it is woken",
        )
        assert words(claude.woken()) == f"mbx: 1 message waits for {name}; call mbx_inbox"
        [woken] = wakes(sender, name)
        assert (woken["way"], woken["outcome"], woken["messages"]) == ("claude", "admitted", 1)
        assert "secret" not in daemon.mbx("diagnostics", "--mailbox", name, "--json").stdout
        [told] = sender.call("mail.sent", id=sent["id"])["messages"]
        assert told["recipients"][0]["stage"] == "notified"


def test_a_busy_session_is_left_alone_and_woken_when_it_is_idle(
    daemon: Daemon, sender: Line
) -> None:
    name = fresh_name()
    with Claude(daemon.socket_path) as claude, claude.registered(name):
        claude.write(status="busy")
        for _ in looks():
            if "it is in a turn" in reach(sender, name)[2]:
                break
        sent = send(sender, name)
        assert sent["state"] == "live-next-prompt"
        assert "it is in a turn" in sent["detail"]
        assert reach(sender, name)[0] == "live"
        assert sender.call("diagnostics.show", mailbox=name)["wakes"] == []
        claude.write(status="idle")
        assert "1 message waits" in words(claude.woken())


def test_a_burst_of_mail_is_announced_by_one_wake_and_the_rest_waits_for_the_brake(
    daemon: Daemon, sender: Line
) -> None:
    name = fresh_name()
    with Claude(daemon.socket_path) as claude, claude.registered(name):
        claude.write(status="busy")
        for _ in looks():
            if "it is in a turn" in reach(sender, name)[2]:
                break
        for _ in range(100):
            send(sender, name)
        claude.write(status="idle")
        assert words(claude.woken()) == f"mbx: 100 messages wait for {name}; call mbx_inbox"
        [woken] = wakes(sender, name)
        assert woken["messages"] == 100
        after = send(sender, name)
        assert after["state"] == "live-next-prompt"
        assert not claude.was_woken()


def test_the_brake_is_told_to_the_sender(daemon: Daemon, sender: Line) -> None:
    name = fresh_name()
    with Claude(daemon.socket_path) as claude, claude.registered(name):
        until(sender, name, "idle")
        send(sender, name)
        claude.woken()
        wakes(sender, name)
        claude.write(status="idle", statusUpdatedAt=9)
        until(sender, name, "idle")
        _, reached, detail = reach(sender, name)
        assert reached == "live-next-prompt"
        assert "it was woken just now; woken again in" in detail


@pytest.mark.parametrize("more", [{"kind": "status"}, {"kind": "message"}, {"wake": "inbox"}])
def test_mail_that_wakes_nobody_is_told_so(
    daemon: Daemon, sender: Line, more: dict[str, str]
) -> None:
    name = fresh_name()
    with Claude(daemon.socket_path) as claude, claude.registered(name):
        until(sender, name, "idle")
        sent = send(sender, name, **more)
        assert sent["state"] == "live-next-prompt"
        assert sent["detail"] == "held by a live session; this mail wakes nobody"
        send(sender, name)
        assert "2 messages wait" in words(claude.woken())


def test_mail_to_oneself_wakes_nobody(daemon: Daemon) -> None:
    name = fresh_name()
    with Claude(daemon.socket_path) as claude, claude.registered(name) as line:
        until(line, name, "idle")
        assert send(line, name)["state"] == "live-next-prompt"
        assert line.call("mail.watch")["waking"] == 0
        assert not claude.was_woken()


@pytest.mark.parametrize(
    ("settings", "options", "words_of_it"),
    [
        ({"crossSessionInbound": "hold"}, (), "takes no messages"),
        ({}, ("--dangerously-skip-permissions",), "skips permission prompts"),
        ({}, ("--permission-mode", "bypassPermissions"), "skips permission prompts"),
        ({"permissions": {"defaultMode": "bypassPermissions"}}, (), "skips permission prompts"),
    ],
)
def test_a_session_that_holds_messages_back_is_not_woken_and_senders_are_told_why(
    daemon: Daemon,
    sender: Line,
    settings: dict[str, Any],
    options: tuple[str, ...],
    words_of_it: str,
) -> None:
    name = fresh_name()
    with Claude(daemon.socket_path, options=options) as claude, claude.registered(name):
        claude.settings(**settings)
        for _ in looks():
            if words_of_it in reach(sender, name)[2]:
                break
        sent = send(sender, name)
        assert sent["state"] == "live-next-prompt"
        assert words_of_it in sent["detail"]
        with daemon.line() as line:
            line.hello()
            closed = {one["name"]: one for one in line.call("daemon.health")["wakes"]["closed"]}
        assert words_of_it in closed[name]["detail"]
        assert not claude.was_woken()


def test_a_session_that_skips_prompts_and_accepts_messages_is_woken(
    daemon: Daemon, sender: Line
) -> None:
    name = fresh_name()
    options = ("--dangerously-skip-permissions",)
    with Claude(daemon.socket_path, options=options) as claude, claude.registered(name):
        claude.settings(crossSessionInbound="accept")
        until(sender, name, "idle")
        for _ in looks():
            if reach(sender, name)[1] == "live-wake":
                break
        assert send(sender, name)["state"] == "live-wake"
        assert "1 message waits" in words(claude.woken())


@pytest.mark.parametrize(
    "record",
    [
        {"pid": 1},
        {"procStart": "1"},
        {"procStart": None},
        {"messagingSocketPath": None},
        {"messagingSocketPath": "/nowhere/messages.sock"},
        {"messagingSocketPath": "/dev/null"},
    ],
)
def test_a_record_that_is_not_of_exactly_this_process_is_no_way(
    daemon: Daemon, sender: Line, record: dict[str, Any]
) -> None:
    name = fresh_name()
    with Claude(daemon.socket_path) as claude:
        claude.write(**record)
        with claude.registered(name):
            assert send(sender, name)["state"] == "live-next-prompt"
            assert reach(sender, name)[0] == "live"
            assert sender.call("diagnostics.show", mailbox=name)["wakes"] == []


@pytest.mark.parametrize(("more", "is_read"), [(-1, True), (0, True), (1, False)])
def test_a_record_has_so_many_bytes(
    daemon: Daemon, sender: Line, more: int, *, is_read: bool
) -> None:
    name = fresh_name()
    with Claude(daemon.socket_path) as claude:
        claude.write(name="")
        [path] = (claude.folder / "sessions").iterdir()
        claude.write(name="x" * (CLIENT_RECORD_MAX_BYTES - path.stat().st_size + more))
        assert path.stat().st_size == CLIENT_RECORD_MAX_BYTES + more
        with claude.registered(name):
            send(sender, name, kind="status")
            wanted = ("idle", "live-wake") if is_read else ("live", "live-next-prompt")
            for _ in looks():
                if "not looked at" not in reach(sender, name)[2]:
                    break
            assert reach(sender, name)[:2] == wanted


def test_another_process_that_listens_in_its_place_is_told_nothing(
    daemon: Daemon, sender: Line
) -> None:
    name = fresh_name()
    with Claude(daemon.socket_path) as stranger, Claude(daemon.socket_path) as claude:
        claude.write(messagingSocketPath=str(stranger.folder / "messages.sock"))
        with claude.registered(name):
            until(sender, name, "idle")
            send(sender, name)
            [woken] = wakes(sender, name)
            assert woken["outcome"] == "failed"
            assert "another process" in woken["reason"]
            assert not stranger.was_woken()
            [told] = sender.call("mail.sent")["messages"][0]["recipients"]
            assert told["stage"] == "delivered"


@pytest.mark.long
@pytest.mark.timeout(120)
def test_a_wake_after_which_no_turn_begins_is_unknown_held_and_told(
    daemon: Daemon, sender: Line
) -> None:
    silent, deaf = names = fresh_name(), fresh_name()
    with (
        Claude(daemon.socket_path, "silent") as one,
        Claude(daemon.socket_path, "deaf") as other,
        one.registered(silent),
        other.registered(deaf),
    ):
        for name in names:
            until(sender, name, "idle")
            assert send(sender, name)["state"] == "live-wake"
        for name in names:
            [woken] = wakes(sender, name)
            assert woken["outcome"] == "unknown"
            after = send(sender, name)
            assert after["state"] == "live-next-prompt"
            assert "whether the last wake reached it is not known" in after["detail"]
            [told] = sender.call("mail.sent", id=after["id"])["messages"]
            assert told["recipients"][0]["stage"] == "delivered"
        with daemon.line() as line:
            line.hello()
            health = line.call("daemon.health")["wakes"]
        assert set(names) <= {one["name"] for one in health["unknown"]}
        assert set(names) <= {one["name"] for one in health["closed"]}
        shown = daemon.mbx("diagnostics", "--mailbox", silent).stdout
        assert "reach      live-next-prompt: it sees mail at its next prompt" in shown
        assert "woken by claude for 1 message" in shown
        assert "unknown: it took the message and began no turn" in shown


# -- hooks ----------------------------------------------------------------------------------------


def told_and_newest(daemon: Daemon, client: Client) -> tuple[Path, int, int]:
    """Where its hooks keep what they announced; the mark told last, and the newest one."""
    for _ in looks():
        for link in (daemon.home / "run" / "snapshots").glob(f"{client.pid}-*[0-9]"):
            newest = int(link.read_text().split()[4])
            path = Path(f"{link}.told")
            if newest:
                return path, told(str(path)), newest
    raise AssertionError("the session has no snapshot with mail")


def test_what_a_wake_announced_no_hook_says_again(daemon: Daemon, sender: Line) -> None:
    name = fresh_name()
    with Claude(daemon.socket_path) as claude, claude.registered(name):
        until(sender, name, "idle")
        send(sender, name)
        claude.woken()
        _, mark, newest = told_and_newest(daemon, claude)
        assert mark == newest
        assert wakes(sender, name)[0]["outcome"] == "admitted"


def test_what_a_hook_announced_wakes_nobody_and_is_notified(daemon: Daemon, sender: Line) -> None:
    name = fresh_name()
    with Claude(daemon.socket_path) as claude, claude.registered(name):
        claude.write(status="busy")
        for _ in looks():
            if "it is in a turn" in reach(sender, name)[2]:
                break
        sent = send(sender, name)
        path, _, newest = told_and_newest(daemon, claude)
        assert tell(str(path), newest, lambda told: True)
        claude.write(status="idle")
        assert "notified" in (stage_of(sender, sent["id"]) for _ in looks())
        assert sender.call("diagnostics.show", mailbox=name)["wakes"] == []
        assert not claude.was_woken()


# -- Codex ----------------------------------------------------------------------------------------


def test_a_session_of_codex_is_woken_by_its_own_command_and_thread(
    daemon: Daemon, sender: Line
) -> None:
    name, own = fresh_name(), conversation()
    with Codex(daemon.socket_path) as codex, codex.registered(name, session=own):
        for _ in looks():
            if reach(sender, name)[1] == "live-wake":
                break
        assert send(sender, name)["state"] == "live-wake"
        text = f"mbx: 1 message waits for {name}; call mbx_inbox"
        assert codex.queued() == ["queue", "--thread", own["id"], "--message", text]
        [woken] = wakes(sender, name)
        assert (woken["way"], woken["outcome"]) == ("codex", "admitted")


def test_a_session_of_codex_whose_thread_nobody_told_has_no_way(
    daemon: Daemon, sender: Line
) -> None:
    name = fresh_name()
    with Codex(daemon.socket_path) as codex, codex.registered(name) as line:
        for _ in looks():
            if "its thread is not known" in reach(sender, name)[2]:
                break
        assert send(sender, name)["state"] == "live-next-prompt"
        assert not codex.was_queued()
        # A hook tells it later: from then on there is a way, and what waits is announced.
        own = conversation()
        with codex.connect(session=own):
            assert codex.queued()[2] == own["id"]
        assert line.call("session.whoami")["agent"] == name


def test_a_codex_that_runs_one_turn_is_not_woken(daemon: Daemon, sender: Line) -> None:
    """Its queue would take the words, and no turn follows: its hooks announce them."""
    name = fresh_name()
    with (
        Codex(daemon.socket_path, words=["exec", "any mail?"]) as codex,
        codex.registered(name, session=conversation()),
    ):
        for _ in looks():
            if "codex exec" in reach(sender, name)[2]:
                break
        assert send(sender, name)["state"] == "live-next-prompt"
        assert not codex.was_queued()


def test_a_codex_that_refuses_has_not_got_it(daemon: Daemon, sender: Line) -> None:
    name = fresh_name()
    with (
        Codex(daemon.socket_path, status=1) as codex,
        codex.registered(name, session=conversation()),
    ):
        send(sender, name)
        codex.queued()
        [woken] = wakes(sender, name)
        assert (woken["outcome"], woken["reason"]) == ("failed", "codex queue refused it")


@pytest.mark.long
@pytest.mark.timeout(120)
def test_a_codex_whose_command_does_not_end_is_unknown(daemon: Daemon, sender: Line) -> None:
    name, hangs = fresh_name(), 'read -r word <"{folder}/hang"'
    with (
        Codex(daemon.socket_path, queue=hangs) as codex,
        codex.registered(name, session=conversation()),
    ):
        send(sender, name)
        [woken] = wakes(sender, name, within_s=WAKE_COMMAND_MS / 1000 + 15)
        assert (woken["outcome"], woken["reason"]) == ("unknown", "codex queue did not end in time")
        assert not codex.was_queued()


# -- connections that wait ------------------------------------------------------------------------


def test_an_agent_that_waits_on_a_connection_is_told_there_and_not_by_its_client(
    daemon: Daemon, sender: Line
) -> None:
    name = fresh_name()
    with Claude(daemon.socket_path) as claude, claude.registered(name) as line:
        line.call("mail.watch")
        sent = send(sender, name)
        assert (sent["state"], sent["detail"]) == (
            "live-wake",
            "held by a live session; it waits for mail and is told at once",
        )
        told = line.read()
        assert told["params"] == {"agent": name, "unread": 1, "waking": 1}
        [woken] = wakes(sender, name)
        assert (woken["way"], woken["outcome"]) == ("watch", "admitted")
        assert send(sender, name)["state"] == "live-next-prompt"
        assert not claude.was_woken()


def test_an_agent_that_waits_is_told_of_what_waits_already_once(
    daemon: Daemon, sender: Line
) -> None:
    name = fresh_name()
    with Codex(daemon.socket_path) as codex, codex.registered(name) as line:
        send(sender, name)
        assert line.call("mail.watch")["waking"] == 1
        assert line.read()["method"] == "mail.arrived"
        wakes(sender, name)
        with codex.connect() as again:
            begun = again.call("mail.watch")
            assert (begun["waking"], begun["arrived"]) == (1, False)
            again.call("mail.inbox")
            assert len(wakes(sender, name)) == 1


def test_a_script_that_waits_is_told_each_time(daemon: Daemon, sender: Line) -> None:
    name = fresh_name()
    with daemon.agent() as agent, agent.registered(name) as line:
        line.call("mail.watch")
        for count in range(1, 4):
            assert send(sender, name)["state"] == "live-wake"
            assert line.read()["params"]["waking"] == count


# -- leases ---------------------------------------------------------------------------------------


def test_mail_that_waits_wakes_the_next_holder_and_not_the_former(
    daemon: Daemon, sender: Line
) -> None:
    name = fresh_name()
    with Claude(daemon.socket_path) as former, Claude(daemon.socket_path) as holder:
        former.write(status="busy")
        with former.registered(name) as line:
            for _ in looks():
                if "it is in a turn" in reach(sender, name)[2]:
                    break
            send(sender, name)
            line.call("identity.release")
            former.write(status="idle")
            with holder.connect() as other:
                other.call("identity.claim", name=name)
                assert "1 message waits" in words(holder.woken())
            assert not former.was_woken()


# -- ends -----------------------------------------------------------------------------------------


def test_a_wake_that_a_killed_daemon_left_is_unknown_for_ever_and_never_repeated() -> None:
    name = fresh_name()
    with fresh_home() as home, Daemon(home) as daemon:
        hangs = 'printf x >"{folder}/fifo"; read -r word <"{folder}/hang"; exit'
        with (
            Codex(daemon.socket_path, queue=hangs) as codex,
            codex.registered(name, session=conversation()) as line,
            daemon.agent() as agent,
        ):
            with agent.registered(fresh_name()) as sender:
                send(sender, name)
                codex.taken()
                path, mark, newest = told_and_newest(daemon, codex)
                assert mark == newest
                daemon.kill()
            line.close()
            daemon.start()
            codex.release()
            with agent.connect() as sender, codex.connect() as again:
                [woken] = wakes(sender, name)
                assert woken["outcome"] == "unknown"
                assert woken["reason"] == "the daemon that tried it ended before it was known"
                assert told(str(path)) == 0  # a hook may say it
                sent = send(sender, name)
                assert sent["state"] == "live-next-prompt"
                assert "it was woken just now" in sent["detail"]
                assert again.call("mail.inbox")["unread"] == 2
                assert not codex.was_queued()


def test_a_daemon_that_starts_again_announces_nothing_twice_and_what_came_while_none_ran() -> None:
    one, other = fresh_name(), fresh_name()
    with (
        fresh_home() as home,
        Daemon(home) as daemon,
        Claude(daemon.socket_path) as told,
        Claude(daemon.socket_path) as waits,
        daemon.agent() as agent,
    ):
        waits.write(status="busy")
        with (
            told.registered(one),
            waits.registered(other),
            agent.registered(fresh_name()) as sender,
        ):
            send(sender, one)
            told.woken()
            wakes(sender, one)
            send(sender, other)
        daemon.stop()
        told.write(status="idle")
        waits.write(status="idle")
        daemon.start()
        assert f"1 message waits for {other}" in words(waits.woken())
        assert not told.was_woken()
