"""A hook that a client leaves running until there is mail: when it waits, and how it ends.

The hook and its script are real, below a process that looks like Claude Code and has its record.
"""

import json
import shlex
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from mbx.core.clients import WAITS_AS
from tests.support.daemon import Daemon, Line, fresh_home, fresh_name
from tests.support.hooks import Client
from tests.support.patience import looks
from tests.support.shells import Finished, look_alike
from tests.support.waking import reach, send, stage_of, wakes

pytestmark = [pytest.mark.long, pytest.mark.timeout(120)]

BYPASS = "bypassPermissions"
VERSION = "2.1.332"


@pytest.fixture
def sender(daemon: Daemon) -> Iterator[Line]:
    with daemon.agent() as agent, agent.registered(fresh_name()) as line:
        yield line


class Claude(Client):
    """A look-alike with a record of its session, and the socket that it names or none."""

    def __init__(self, daemon: Daemon, folder: Path, arguments: str = "") -> None:
        self.config = folder / "config"
        given = {"CLAUDE_CONFIG_DIR": str(self.config)}
        super().__init__(daemon, folder, arguments=arguments, environment=given)
        self.record: dict[str, Any] = {"status": "idle", "statusUpdatedAt": 1, "version": VERSION}
        self.write()
        self.door = socket.socket(socket.AF_UNIX)

    def write(self, **more: Any) -> None:
        """Change its record."""
        pid, _, start = self.own.partition("-")
        self.record |= {"pid": int(pid), "procStart": start, **more}
        path = self.config / "sessions" / f"{pid}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.with_suffix(".new").write_text(json.dumps(self.record))
        path.with_suffix(".new").rename(path)

    def listen(self) -> None:
        """Have a socket for messages, which the record names."""
        path = str(self.config / "messages.sock")
        self.door.bind(path)
        self.door.listen(1)
        self.write(messagingSocketPath=path)

    def line(self, event: str = "Stop", **fields: Any) -> str:
        """The command line of its hook that waits, with the event on its standard input."""
        told = {"session_id": self.conversation, "hook_event_name": event, **fields}
        path = self.folder / "event.json"
        path.write_text(json.dumps(told))
        return f"sh {self.paths.home()}/bin/hook.sh claude {WAITS_AS} <{path}"

    def waits(self, event: str = "Stop", **fields: Any) -> Finished:
        """Run the hook to its end."""
        return self.run(self.line(event, **fields))

    def begins_turn(self) -> None:
        """What the client does when the hook that it left running has words."""
        self.write(status="busy", statusUpdatedAt=self.record["statusUpdatedAt"] + 1)

    def close(self) -> None:
        super().close()
        self.door.close()


Start = Callable[..., Claude]


@pytest.fixture
def start(daemon: Daemon, tmp_path: Path) -> Iterator[Start]:
    with ExitStack() as stack:
        count = iter(range(100))

        def started(arguments: str = "") -> Claude:
            folder = tmp_path / f"cli-{next(count)}"
            return stack.enter_context(Claude(daemon, folder, arguments))

        yield started


def silent(done: Finished) -> bool:
    return (done.status, done.out, done.err) == (0, "", "")


def ended_well(path: Path) -> None:
    """Wait until a shell has written into this file that a hook ended without words and faults.

    The shell makes the file first, and writes into it a moment later.
    """
    said = ""
    for _ in looks():
        said = path.read_text() if path.exists() else ""
        if said.endswith("\n"):
            break
    assert said == "0\n"


def awaited(line: Line, name: str) -> None:
    """Wait until a sender is promised a wake."""
    found: list[dict[str, Any]] = []
    for _ in looks():
        agents = line.call("agents.list")["agents"]
        found = [one for one in agents if one["name"] == name]
        if found and found[0]["reach"] == "live-wake":
            return
    raise AssertionError(found)


def test_where_the_socket_holds_back_a_hook_waits_and_its_end_wakes(
    sender: Line, start: Start
) -> None:
    client, name = start("word --dangerously-skip-permissions"), fresh_name()
    client.listen()
    client.register(name)
    client.start(client.line(permission_mode=BYPASS))
    awaited(sender, name)
    assert reach(sender, name)[0] == "idle"
    sent = send(sender, name)
    assert sent["state"] == "live-wake"
    done = client.finish()
    words = f"mbx: 1 message waits for {name}; call mbx_inbox"
    assert (done.status, done.out, done.err) == (2, "", words + "\n")
    client.begins_turn()
    [woken] = wakes(sender, name)
    assert (woken["way"], woken["outcome"]) == ("claude", "admitted")
    assert "waiting hook" in woken["reason"]
    assert stage_of(sender, sent["id"]) == "notified"
    assert send(sender, name)["state"] == "live-next-prompt"


def test_a_session_without_a_socket_is_woken_so_too_and_not_in_a_turn(
    sender: Line, start: Start
) -> None:
    client, name = start(), fresh_name()
    client.register(name)
    assert "no socket" in reach(sender, name)[2] or "not looked at" in reach(sender, name)[2]
    client.write(status="busy")
    client.start(client.line(permission_mode="default"))
    for _ in looks():
        if "it is in a turn" in reach(sender, name)[2]:
            break
    assert send(sender, name)["state"] == "live-next-prompt"
    client.write(status="idle")
    assert client.finish().status == 2
    client.begins_turn()
    assert wakes(sender, name)[0]["outcome"] == "admitted"


def test_a_wake_after_which_no_turn_begins_is_unknown(sender: Line, start: Start) -> None:
    client, name = start(), fresh_name()
    client.register(name)
    client.start(client.line())
    awaited(sender, name)
    sent = send(sender, name)
    assert client.finish().status == 2
    [woken] = wakes(sender, name)
    assert (woken["outcome"], "no turn" in woken["reason"]) == ("unknown", True)
    assert stage_of(sender, sent["id"]) == "delivered"


def test_a_hook_that_was_killed_promises_no_wake(sender: Line, start: Start) -> None:
    client, name = start(), fresh_name()
    client.register(name)
    client.run(f"setsid {client.line()} & waiting=$!")
    awaited(sender, name)
    client.run("kill -9 -$waiting")
    for _ in looks():
        if "no socket" in reach(sender, name)[2]:
            break
    assert send(sender, name)["state"] == "live-next-prompt"


@pytest.mark.parametrize("words", ["-p", "--print"])
def test_a_client_that_runs_one_turn_is_never_waited_in(
    sender: Line, start: Start, words: str
) -> None:
    client, name = start(f"word {words}"), fresh_name()
    client.register(name)
    assert silent(client.waits(permission_mode=BYPASS))
    assert reach(sender, name)[1] == "live-next-prompt"


@pytest.mark.parametrize("version", ["2.1.331", "1.9.999", "", None, "2.1.332-x", "two", 3])
def test_a_client_that_may_not_know_such_hooks_is_never_waited_in(
    start: Start, version: object
) -> None:
    client, name = start(), fresh_name()
    client.write(version=version)
    client.register(name)
    assert silent(client.waits(permission_mode=BYPASS))


@pytest.mark.parametrize("version", ["2.1.332", "2.1.333", "2.2.0", "3.0"])
def test_newer_versions_are(sender: Line, start: Start, version: str) -> None:
    client, name = start(), fresh_name()
    client.write(version=version)
    client.register(name)
    client.start(client.line(permission_mode=BYPASS))
    awaited(sender, name)
    send(sender, name)
    assert client.finish().status == 2


def test_where_the_socket_takes_messages_no_hook_waits(sender: Line, start: Start) -> None:
    client, name = start(), fresh_name()
    client.listen()
    client.register(name)
    assert silent(client.waits(permission_mode="default"))
    (client.config / "settings.json").write_text('{"crossSessionInbound": "accept"}')
    assert silent(client.waits(permission_mode=BYPASS))
    awaited(sender, name)


@pytest.mark.parametrize("setting", ["hold", "refuse"])
def test_where_the_user_wants_no_messages_no_hook_waits(
    sender: Line, start: Start, setting: str
) -> None:
    client, name = start(), fresh_name()
    client.listen()
    client.register(name)
    (client.config / "settings.json").write_text(json.dumps({"crossSessionInbound": setting}))
    assert silent(client.waits(permission_mode=BYPASS))
    assert "takes no messages" in reach(sender, name)[2]


def test_the_mode_of_now_counts_more_than_the_command_line(sender: Line, start: Start) -> None:
    client, name = start("word --dangerously-skip-permissions"), fresh_name()
    client.listen()
    client.register(name)
    assert silent(client.waits(permission_mode="plan"))


def test_a_session_without_a_name_is_not_waited_in(start: Start) -> None:
    client = start()
    assert silent(client.waits("SessionStart"))
    assert silent(client.waits("Stop"))


def test_a_session_that_begins_with_a_name_is_woken_before_its_first_prompt(
    sender: Line, start: Start
) -> None:
    client, name = start(), fresh_name()
    line = client.line("SessionStart", source="startup")
    client.start(f"MBX_AGENT={name} MBX_ROLE=tester {line}")
    awaited(sender, name)
    send(sender, name)
    assert client.finish().status == 2


def test_the_next_hook_takes_the_place_of_the_one_before_which_ends_in_silence(
    sender: Line, start: Start
) -> None:
    client, name = start(), fresh_name()
    client.register(name)
    first = client.line("Stop") + " >one 2>&1; echo $? >>one"
    client.run(f"cd {client.folder}; sh -c {shlex.quote(first)} & first=$!")
    awaited(sender, name)
    client.start(f"{client.line()} & second=$!; wait $first; echo over; wait $second")
    ended_well(client.folder / "one")
    send(sender, name)
    done = client.finish()
    assert (done.status, done.out) == (2, "over\n")


def test_a_session_that_gives_its_name_back_is_waited_in_no_more(
    sender: Line, start: Start
) -> None:
    client, name = start(), fresh_name()
    client.register(name)
    line = f"{client.line()}; echo $? >{client.folder}/one"
    client.run(f"sh -c {shlex.quote(line)} &")
    awaited(sender, name)
    client.mbx("identity release")
    ended_well(client.folder / "one")


def test_a_hook_waits_on_with_the_next_daemon(tmp_path: Path) -> None:
    with fresh_home() as home, Daemon(home) as daemon, Claude(daemon, tmp_path / "cli") as client:
        client.register("ben")
        client.start(client.line())
        with daemon.agent() as agent, agent.registered("ana") as ana:
            awaited(ana, "ben")
        daemon.kill()
        daemon.start()
        with daemon.agent() as agent, agent.registered("eva") as eva:
            awaited(eva, "ben")
            send(eva, "ben")
            assert client.finish().err == "mbx: 1 message waits for ben; call mbx_inbox\n"


def test_a_hook_whose_client_has_ended_does_not_wait_for_a_daemon(tmp_path: Path) -> None:
    with fresh_home() as home, Daemon(home) as daemon, Claude(daemon, tmp_path / "cli") as client:
        client.register("ben")
        client.run(f"setsid sh -c '{client.line()}; echo $? >{tmp_path}/ended' &")
        with daemon.agent() as agent, agent.registered("ana") as ana:
            awaited(ana, "ben")
        daemon.kill()
        client.kill()
        ended_well(tmp_path / "ended")


def test_another_client_has_no_such_hook(start: Start, tmp_path: Path) -> None:
    client = start()
    client.register(fresh_name())
    script = f"{client.paths.home()}/bin/hook.sh"
    for cli in ("codex", "gemini", "kimi", "nobody"):
        assert silent(client.run(f"sh {script} {cli} {WAITS_AS} </dev/null")), cli
    program = look_alike(tmp_path / "codex", "codex")
    assert silent(client.run(f"{program} -c 'sh {script} claude {WAITS_AS} </dev/null; :'"))
