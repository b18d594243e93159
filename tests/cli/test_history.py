"""Threads, search, agents and the one-screen status, through the real command and daemon."""

import os
import pty
import re
import subprocess
from typing import Any

import pytest

from mbx.cli.commands.inbox import SHORT_ID_CHARS
from mbx.cli.commands.thread import INDENT_MAX_LEVELS, told_in_order
from mbx.cli.output import Output
from mbx.core.limits import LIST_MAX_ROWS
from mbx.core.text import width
from mbx.paths import quoted
from tests.cli.conftest import Desk, document
from tests.support.shells import Shell

HOSTILE = "$'\\e[31mred\\u202e\\x07'"


def send(shell: Shell, to: str, subject: str, body: str = "x", more: str = "") -> str:
    """Send a message; its id."""
    done = shell.run(f"mbx send --to {to} --subject {subject} -m {quoted(body)} {more} --json")
    answer = document(done)
    assert done.status == 0, answer
    found: str = answer["id"]
    return found


def timeless(text: str) -> str:
    """A text with every age as `now`: how long the commands since took, the machine decides."""
    return re.sub(r"\b\d+ (?:s|min) ago\b", "now", text)


def harmless(text: str) -> bool:
    return not set("\x1b\x07\x9b\u202e") & set(text)


# --- thread --------------------------------------------------------------------------------------


def test_a_thread_tells_who_said_what_and_what_became_of_it(desk: Desk) -> None:
    ana, ben = desk.shell("ana"), desk.shell("ben")
    first = send(ana, "ben,owner", "Port", more="--needs-reply")
    reply = document(ben.run(f"mbx reply {first} -m Thanks --json"))["id"]
    ben.run(f"mbx ack {first} --outcome acted --did 'moved it'")

    whole = document(ana.run(f"mbx thread {reply[:8]} --json"))
    assert whole["thread"] == first
    assert [one["id"] for one in whole["messages"]] == [first, reply]
    assert (whole["has_more"], whole["next_cursor"]) == (False, None)

    host = document(ana.run("mbx whoami --json"))["address"].split("@")[1]
    lines = timeless(ana.run(f"mbx thread {first[:8]}").out).splitlines()
    assert lines[0] == f"thread {first}, 2 messages"
    assert lines[1] == f"{first[:SHORT_ID_CHARS]}  ana@{host}  now  message (needs reply)"
    assert lines[2] == "  Port"
    assert f"  to ben@{host}: acked now (acted; moved it)" in lines
    assert f"  to owner@{host}: delivered now" in lines
    assert lines[-2:] == [
        f"  {reply[:SHORT_ID_CHARS]}  ben@{host}  now  reply",
        f"    to ana@{host}: delivered now",
    ]
    # The recipient sees what became of its own copy only.
    assert "owner@" not in ben.run(f"mbx thread {first}").out


def test_a_thread_marks_nothing_read(desk: Desk) -> None:
    ana, ben = desk.shell("ana"), desk.shell("ben")
    first = send(ana, "ben", "Quiet")
    ben.run(f"mbx thread {first}")
    stages = {
        one["id"]: one["stage"]
        for one in document(ben.run("mbx inbox --limit 200 --json"))["messages"]
    }
    assert stages[first] == "delivered"


# Run in the shell that holds the identity; a command for each reply would take half a minute.
MANY_REPLIES = """
import os, sys, time
from mbx.client import Client
from mbx.paths import Paths
client = Client(Paths.from_environ(os.environ), os.environ, time, start=None)
for n in range(int(sys.argv[2])):
    reply = {"id": sys.argv[1], "body": str(n), "key": f"many-{n}"}
    client.call("mail.reply", reply, changes=True)
"""


def test_a_thread_longer_than_one_answer_is_shown_whole(desk: Desk) -> None:
    ana, ben = desk.shell("ana"), desk.shell("ben")
    first = send(ana, "ben", "Long")
    count = LIST_MAX_ROWS + 3
    assert ben.run(f"python -c {quoted(MANY_REPLIES)} {first} {count}").status == 0
    whole = document(ana.run(f"mbx thread {first} --json"))
    assert len({one["id"] for one in whole["messages"]}) == count + 1
    assert not whole["has_more"]
    assert f"{count + 1} messages" in ana.run(f"mbx thread {first}").out


def said(name: str, answers: str | None = None) -> dict[str, Any]:
    return {"id": name, "reply_to": answers}


def test_answers_stand_below_what_they_answer() -> None:
    messages = [said("a"), said("b", "a"), said("c", "a"), said("d", "b"), said("e", "gone")]
    told = [(level, one["id"]) for level, one in told_in_order("a", messages)]
    assert told == [(0, "a"), (1, "b"), (2, "d"), (1, "c"), (1, "e")]


def test_a_thread_whose_root_one_never_had_and_an_answer_to_itself_are_told() -> None:
    messages = [said("b", "a"), said("c", "c"), said("d", "b")]
    told = [(level, one["id"]) for level, one in told_in_order("a", messages)]
    assert told == [(0, "b"), (1, "d"), (0, "c")]


def test_a_long_chain_of_answers_is_told_without_growing_to_the_right_for_ever() -> None:
    chain = [said("0"), *(said(str(n), str(n - 1)) for n in range(1, 3_000))]
    told = told_in_order("0", chain)
    assert [level for level, _ in told] == list(range(3_000))
    assert INDENT_MAX_LEVELS < 20


# --- search --------------------------------------------------------------------------------------


def test_words_find_mail_with_the_place_where_they_are(desk: Desk) -> None:
    ana, ben = desk.shell("ana"), desk.shell("ben")
    found = send(ana, "ben", "Harbour", "The crane listens on 8081 now.")
    for shell in (ana, ben):
        page = document(shell.run("mbx search crane 8081 --json"))
        assert [one["id"] for one in page["messages"]] == [found]
        assert "listens on 8081" in page["messages"][0]["snippet"]
    lines = timeless(ben.run("mbx search CRANE").out).splitlines()
    assert lines[0].startswith(f"{found[:SHORT_ID_CHARS]}  ana@")
    assert lines[0].endswith("now  message  delivered")
    assert lines[1:] == ["  Harbour", "  The crane listens on 8081 now."]
    assert ben.run("mbx search crane nowhere").out == "no mail of yours holds these words\n"


def test_signs_in_words_have_no_meaning_and_words_may_look_like_options(desk: Desk) -> None:
    ana = desk.shell("ana")
    desk.shell("ben")
    found = send(ana, "ben", "Signs", "use --no-verify OR (NEAR* here")
    for words in ("-- --no-verify", "'(NEAR*'", "'or near'"):
        page = document(ana.run(f"mbx search --json {words}"))
        assert [one["id"] for one in page["messages"]] == [found], words


def test_a_search_is_narrowed_and_paged(desk: Desk) -> None:
    ana, ben = desk.shell("ana"), desk.shell("ben")
    ids = [send(ana, "ben", "Quay", f"pier {n}", more="--kind decision") for n in range(3)]
    send(ben, "ana", "Quay", "pier too")
    first = document(ben.run("mbx search pier --from ana --limit 2 --json"))
    assert first["has_more"]
    again = f"mbx search pier --from ana --limit 2 --cursor {first['next_cursor']} --json"
    rest = document(ben.run(again))
    assert [one["id"] for one in first["messages"] + rest["messages"]] == ids[::-1]

    text = ben.run("mbx search --kind decision --since 2h --limit 2 pier").out.splitlines()[-1]
    assert text.startswith("more: mbx search --kind decision --since 2h --limit 2 --cursor ")
    assert text.endswith(" -- pier")
    shown = ben.run(text.removeprefix("more: "))
    assert shown.out.startswith(ids[0][:SHORT_ID_CHARS])

    assert document(ben.run("mbx search pier --to ana --json"))["messages"][0]["from"][:3] == "ben"
    assert document(ben.run("mbx search pier --until 2020-01-01 --json"))["messages"] == []


@pytest.mark.parametrize(
    ("options", "code", "status"),
    [
        ("--since yesterday x", "usage", 2),
        ("--from nobody-there x", "unknown-identity", 3),
        ("--kind nonsense x", "usage", 2),
        ("...", "usage", 2),
        ("--limit 0 x", "usage", 2),
    ],
)
def test_a_search_that_means_nothing_is_refused(
    desk: Desk, options: str, code: str, status: int
) -> None:
    done = desk.shell("ana").run(f"mbx search --json {options}")
    assert (document(done)["error"]["code"], done.status) == (code, status)


@pytest.mark.parametrize(
    ("environ", "told"),
    [
        ({"TERM": "xterm"}, "a \x1b[1mPort\x1b[0m, \x1b[1mport\x1b[0mal (\x1b[1m.*\x1b[0m)"),
        ({"TERM": "xterm", "NO_COLOR": "1"}, "a Port, portal (.*)"),
        ({"TERM": "dumb"}, "a Port, portal (.*)"),
    ],
)
def test_the_words_stand_out_on_a_terminal_that_wants_it(
    environ: dict[str, str], told: str
) -> None:
    outer, inner = pty.openpty()
    kept = os.dup(1)
    os.dup2(inner, 1)
    try:
        shown = Output(environ).highlighted("a Port, portal (.*)", ["port", "", ".*"])
        plain = Output(environ).highlighted("a Port", [])
    finally:
        os.dup2(kept, 1)
        for descriptor in (kept, outer, inner):
            os.close(descriptor)
    assert (shown, plain) == (told, "a Port")


# --- agents, set, rename -------------------------------------------------------------------------


def test_agents_are_found_by_words_role_and_project(desk: Desk) -> None:
    ana, ben = desk.shell("ana"), desk.shell("ben")
    set_ = document(ben.run("mbx identity set --description 'Rust reviews' --role review --json"))
    assert (set_["agent"], set_["role"]) == ("ben", "review")
    for options in ("rust", "'RUST reviews'", "--role review", "rust --role review"):
        found = document(ana.run(f"mbx agents {options} --json"))
        assert [one["name"] for one in found["agents"]] == ["ben"], options
        assert found["next_after"] is None
    lines = ana.run("mbx agents rust").out.splitlines()
    assert lines[0].split() == ["ADDRESS", "ROLE", "STATE", "CLI", "REACH", "SEEN", "ABOUT"]
    assert lines[1].endswith("Rust reviews")
    assert " live " in lines[1]
    assert ana.run("mbx agents --project /nowhere").out == "nobody like that\n"
    assert "ana@" in desk.bare().run("mbx agents").out
    ben.run("mbx identity set --role tester")


def test_a_card_comes_from_an_option_a_file_or_standard_input(own_desk: Desk) -> None:
    ana = own_desk.shell("ana")
    file = own_desk.home.parent / "card.md"
    file.write_text("I know\nthe ü harbour\n")
    for way in (f"--card-file '{file}'", f"--card-file - <'{file}'", f'--card "$(cat "{file}")\n"'):
        ana.run("mbx identity set --card ''")
        assert document(ana.run(f"mbx identity set {way} --json"))["card"] == file.read_text(), way
    assert "I know" in ana.run("mbx agents harbour").out
    assert "24 characters" not in ana.run("mbx identity set --card ''").out
    assert document(ana.run("mbx agents --json"))["agents"][0]["card"] is None


@pytest.mark.parametrize(("size", "code"), [(2_001, "text-invalid"), (300_000, "text-invalid")])
def test_a_card_over_its_limit_is_refused_by_its_name(own_desk: Desk, size: int, code: str) -> None:
    ana = own_desk.shell("ana")
    file = own_desk.home.parent / "card.md"
    file.write_text("x" * size)
    error = document(ana.run(f"mbx identity set --card-file '{file}' --json"))["error"]
    assert (error["code"], error["field"]) == (code, "card")
    assert "2,000" in error["message"]


def test_what_is_not_set_stays(own_desk: Desk) -> None:
    ana = own_desk.shell("ana")
    ana.run("mbx identity set --description one --card two")
    told = ana.run("mbx identity set --role other").out
    assert told.split() == "ana role other description one card 3 characters".split()
    assert "description  -" in ana.run("mbx identity set --description ''").out


def test_a_renamed_identity_keeps_lease_and_mail(own_desk: Desk) -> None:
    ana, ben = own_desk.shell("ana"), own_desk.shell("ben")
    sent = send(ben, "ana", "S")
    told = ana.run("mbx identity rename anna-two")
    assert told.out.startswith("you are anna-two@")
    assert told.out.endswith(", before ana\n")
    assert document(ana.run("mbx whoami --json"))["agent"] == "anna-two"
    assert [one["id"] for one in document(ana.run("mbx inbox --json"))["messages"]] == [sent]
    refused = ana.run("mbx identity rename ben --json")
    assert (document(refused)["error"]["code"], refused.status) == ("name-taken", 1)
    same = document(ana.run("mbx identity rename anna-two --json"))
    assert (same["agent"], same["old_name"]) == ("anna-two", "anna-two")


def test_roles_everyone_and_the_owner_are_addresses(own_desk: Desk) -> None:
    ana = own_desk.shell("ana")
    own_desk.shell("ben")
    for address, reached in (("role:tester", ["ben"]), ("'*'", ["ben"]), ("owner", ["owner"])):
        answer = document(ana.run(f"mbx send --to {address} --subject S -m x --json"))
        assert [one["address"].split("@")[0] for one in answer["recipients"]] == reached
    refused = ana.run("mbx send --to role:nobody --subject S -m x --json")
    assert (document(refused)["error"]["code"], refused.status) == ("unknown-recipient", 3)


# --- status --------------------------------------------------------------------------------------


def test_status_without_a_daemon_starts_none_and_ends_well(own_desk: Desk) -> None:
    done = own_desk.run("status")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("daemon  not running")
    empty = document(own_desk.bare().run("mbx status --json"))
    assert empty["daemon"]["running"] is False
    assert (empty["who"], empty["oldest_unread"], empty["last_unacked"]) == (None, None, None)
    assert not own_desk.home.exists()


def test_status_without_an_identity_says_how_to_get_one(desk: Desk) -> None:
    desk.shell("ana")
    done = desk.bare().run("mbx status")
    assert done.status == 0
    assert done.out.splitlines()[1] == "you     no identity"
    assert "next: mbx identity claim" in done.out


def test_status_tells_what_waits_for_whom(own_desk: Desk) -> None:
    ana, ben = own_desk.shell("ana"), own_desk.shell("ben")
    assert "sent    nothing that waits" in ana.run("mbx status").out
    first, second = send(ana, "ben", "One"), send(ana, "ben", "Two")
    ben.run(f"mbx read {first}")
    told = document(ben.run("mbx status --json"))
    assert told["who"]["unread"] == 1
    assert told["oldest_unread"]["id"] == second
    assert told["last_unacked"] is None
    ben.run(f"mbx ack {second}")
    assert document(ana.run("mbx status --json"))["last_unacked"]["id"] == first

    lines = ana.run("mbx status").out.splitlines()
    assert [line.split()[0] for line in lines] == ["daemon", "you", "unread", "sent"]
    assert lines[3].endswith(f"(read): {first[:SHORT_ID_CHARS]} One")
    send(ben, "ana", "Three")
    lines = timeless(ana.run("mbx status").out).splitlines()
    assert lines[2].startswith("unread  1; the oldest: now from ben@")
    assert lines[4] == "next: mbx inbox"


# --- all of them ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def commands(desk: Desk) -> list[str]:
    """Commands whose output holds hostile text of another party, for the shell of `ben`."""
    ana = desk.shell("ana")
    desk.shell("ben")
    first = send(ana, "ben", HOSTILE, "\x1b[2J narwhal \u202e" + "wide " * 60)
    ana.run(f"mbx identity set --description {HOSTILE}")
    return ["status", f"thread {first}", "search narwhal", "agents", "agents ana"]


def test_hostile_text_is_made_visible(desk: Desk, commands: list[str]) -> None:
    for command in commands:
        done = desk.shell("ben").run(f"mbx {command}")
        assert (done.status, done.err) == (0, ""), command
        assert harmless(done.out), command
        assert command == "status" or r"\u{1b}" in done.out, command


@pytest.mark.parametrize("columns", [30, 60, 100])
def test_the_width_of_the_terminal_is_kept(desk: Desk, commands: list[str], columns: int) -> None:
    for command in commands:
        out = desk.shell("ben").run(f"COLUMNS={columns} mbx {command}").out
        lines = [line for line in out.splitlines() if not line.startswith(("next:", "more:"))]
        assert max(map(width, lines)) <= columns, command


def test_every_locale_and_a_closed_pipe_will_do(desk: Desk, commands: list[str]) -> None:
    ben = desk.shell("ben")
    for command in commands:
        for locale in ("LC_ALL=C", "LC_ALL=POSIX PYTHONUTF8=0 PYTHONCOERCECLOCALE=0"):
            done = ben.run(f"{locale} mbx {command}")
            assert (done.status, done.err) == (0, ""), (command, locale)
        done = ben.run(f"mbx {command} | true; echo ${{PIPESTATUS[0]}}")
        assert (done.out, done.err) == ("0\n", ""), command
        document(ben.run(f"mbx {command} --json"))


def test_a_hung_daemon_is_told_by_status(own_desk: Desk) -> None:
    import signal

    own_desk.run("daemon", "start")
    pid = own_desk.status()["pid"]
    os.kill(pid, signal.SIGSTOP)
    try:
        done: subprocess.CompletedProcess[str] = own_desk.run("status", "--json")
    finally:
        os.kill(pid, signal.SIGCONT)
    assert done.returncode == 6
    assert "daemon-unreachable" in done.stdout
