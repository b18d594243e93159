"""Mail through the real command and the real daemon, as people and agents type it."""

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from mbx.core.limits import BODY_MAX_BYTES
from mbx.paths import quoted
from tests.cli.conftest import Desk, document
from tests.support.daemon import Daemon
from tests.support.shells import Shell

NO_LEASE = 5


def send(shell: Shell, to: str, body: Path, subject: str = "S") -> str:
    """Send a file; the message's id."""
    done = shell.run(
        f"mbx send --to {to} --subject {subject} --body-file {quoted(str(body))} --json"
    )
    answer = document(done)
    assert done.status == 0, answer
    found: str = answer["id"]
    return found


@pytest.fixture
def body(tmp_path: Path) -> Path:
    file = tmp_path / "it's a body"
    file.write_bytes(b"hello\n")
    return file


def test_a_message_goes_from_command_to_disk_and_back(desk: Desk, body: Path) -> None:
    ana, ben = desk.shell("ana"), desk.shell("ben")
    message_id = send(ana, "ben", body)

    listed = document(ben.run("mbx inbox --limit 200 --json"))["messages"][-1]
    assert (listed["id"], listed["stage"]) == (message_id, "delivered")

    shown = ben.run(f"mbx read {message_id[:8]}")
    assert "| hello" in shown.out
    assert "trust: local" in shown.out

    answer = ben.run(f"mbx reply {message_id[:8]} -m 'Thank you.' --json")
    assert document(answer)["thread"] == message_id

    acked = ben.run(f"mbx ack {message_id} --outcome acted --did 'said hello' --json")
    assert document(acked)["acked"] == [message_id]

    one = document(ana.run(f"mbx sent {message_id[:10]} --json"))["messages"][0]["recipients"][0]
    assert (one["stage"], one["outcome"], one["did"]) == ("acked", "acted", "said hello")
    assert "said hello" in ana.run(f"mbx sent {message_id}").out
    assert "| hello" in ana.run(f"mbx sent {message_id}").out.splitlines()


# --- bodies --------------------------------------------------------------------------------------


def patterned(size_bytes: int) -> bytes:
    """A body of exactly this size, with characters of every width and all line ends."""
    unit = "a\r\nb\tü\u2028漢\x1b😀\n\x01".encode()
    whole = unit * (size_bytes // len(unit))
    return whole + b"." * (size_bytes - len(whole))


@pytest.mark.parametrize(
    "content",
    [
        patterned(BODY_MAX_BYTES - 1),
        patterned(BODY_MAX_BYTES),
        b"\x01" * BODY_MAX_BYTES,
        "😀".encode() * (BODY_MAX_BYTES // 4),
        b"\r\n\r\n",
        b"\xef\xbb\xbfbom",
        b"",
    ],
    ids=["one less", "all widths", "controls", "emoji", "line ends", "bom", "empty"],
)
@pytest.mark.parametrize("way", ["--body-file", "stdin"])
def test_a_body_comes_back_byte_for_byte_on_every_path(
    desk: Desk, tmp_path: Path, content: bytes, way: str
) -> None:
    ana, ben = desk.shell("ana"), desk.shell("ben")
    file, back = tmp_path / "body", tmp_path / "back"
    file.write_bytes(content)
    if way == "stdin":
        done = ana.run(f"cat '{file}' | mbx send --to ben --subject S --json -")
        message_id = document(done)["id"]
    else:
        message_id = send(ana, "ben", file)

    assert ben.run(f"mbx read --raw {message_id} > '{back}'").status == 0
    assert digest(back.read_bytes()) == digest(content)

    whole = document(ben.run(f"mbx read {message_id} --json"))["messages"][0]
    assert digest(whole["body"].encode()) == digest(content)
    assert (whole["truncated"], whole["next_offset"]) == (False, None)
    assert whole["body_total"] == len(content)


def digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def test_several_large_bodies_in_one_read_all_come_whole(desk: Desk, tmp_path: Path) -> None:
    ana, ben = desk.shell("ana"), desk.shell("ben")
    file = tmp_path / "body"
    file.write_bytes(b"\x01" * BODY_MAX_BYTES)
    ids = [send(ana, "ben", file) for _ in range(3)]
    messages = document(ben.run(f"mbx read {' '.join(ids)} --json"))["messages"]
    assert [message["id"] for message in messages] == ids
    assert all(message["body"].encode() == file.read_bytes() for message in messages)


def test_a_part_of_a_body_is_read_by_offset_and_size(desk: Desk, tmp_path: Path) -> None:
    ana, ben = desk.shell("ana"), desk.shell("ben")
    file = tmp_path / "body"
    file.write_bytes("0123üüüü".encode())
    message_id = send(ana, "ben", file)
    part = document(ben.run(f"mbx read {message_id} --offset 4 --max-bytes 5 --json"))
    message = part["messages"][0]
    assert (message["body"], message["body_offset"], message["next_offset"]) == ("üü", 4, 8)
    told = ben.run(f"mbx read {message_id} --max-bytes 5").out
    assert f"mbx read {message_id} --offset 4" in told


@pytest.mark.parametrize(
    ("content", "code", "status"),
    [
        (b"x" * (BODY_MAX_BYTES + 1), "body-too-large", 1),
        (b"ab\xff", "usage", 2),
        (b"a\0b", "text-invalid", 1),
    ],
)
def test_a_bad_body_is_refused_by_name_and_nothing_is_sent(
    desk: Desk, tmp_path: Path, content: bytes, code: str, status: int
) -> None:
    ana = desk.shell("ana")
    desk.shell("ben")
    file = tmp_path / "body"
    file.write_bytes(content)
    before = document(ana.run("mbx sent --json"))
    done = ana.run(f"mbx send --to ben --subject S --body-file '{file}' --json")
    assert (document(done)["error"]["code"], done.status) == (code, status)
    assert document(ana.run("mbx sent --json")) == before


def test_the_same_key_sends_once_and_says_so(desk: Desk) -> None:
    ana = desk.shell("ana")
    desk.shell("ben")
    command = "mbx send --to ben --subject S -m x --key once --json"
    first, second = document(ana.run(command)), document(ana.run(command))
    assert second["id"] == first["id"]
    assert (first["duplicate"], second["duplicate"]) == (False, True)
    assert ana.run(command.removesuffix("--json")).out.startswith("already sent")


def test_one_message_reaches_each_of_several_names_once(desk: Desk, body: Path) -> None:
    ana = desk.shell("ana")
    for name in ("ben", "cleo"):
        desk.shell(name)
    done = ana.run(
        f"mbx send --to ben,cleo --to ben --subject S --body-file {quoted(str(body))} --json"
    )
    names = [one["address"].split("@")[0] for one in document(done)["recipients"]]
    assert names == ["ben", "cleo"]


def test_an_unknown_name_is_refused_with_near_ones(desk: Desk) -> None:
    ana = desk.shell("ana")
    desk.shell("ben")
    done = ana.run("mbx send --to benn --subject S -m x")
    assert done.status == 3
    assert "ben" in done.err
    assert done.out == ""


def test_hostile_text_reaches_no_terminal(desk: Desk, tmp_path: Path) -> None:
    ana, ben = desk.shell("ana"), desk.shell("ben")
    file = tmp_path / "body"
    file.write_bytes("\x1b[2J\u202eevil\n--- end\x07\x9b1m".encode())
    message_id = send(ana, "ben", file, subject="$'\\e[31mred\\u202e'")
    ben.run(f"mbx ack {message_id} --did $'\\e[0m'")
    for shell, command in [
        (ben, f"mbx read {message_id}"),
        (ben, "mbx inbox --all --limit 200"),
        (ana, "mbx sent --limit 200"),
        (ana, f"mbx sent {message_id}"),
    ]:
        out = shell.run(command).out
        assert not set("\x1b\x07\x9b\u202e") & set(out), command
        assert r"\u{1b}" in out or r"\u{202e}" in out, command


@pytest.mark.parametrize(
    "locale", ["LC_ALL=C", "LC_ALL=POSIX PYTHONUTF8=0 PYTHONCOERCECLOCALE=0", "LC_ALL=C.UTF-8"]
)
def test_text_means_the_same_under_any_locale(desk: Desk, locale: str) -> None:
    ana, ben = desk.shell("ana"), desk.shell("ben")
    done = ana.run(f"{locale} mbx send --to ben --subject 'Ä 漢' -m 'ü 😀' --json")
    read = ben.run(f"{locale} mbx read {document(done)['id']} --json")
    message = document(read)["messages"][0]
    assert (message["subject"], message["body"]) == ("Ä 漢", "ü 😀")
    told = ben.run(f"{locale} mbx read {message['id']}")
    assert (told.status, told.err) == (0, "")


def test_a_long_did_is_cut_marked_and_warned_about_but_acked(desk: Desk, body: Path) -> None:
    ana, ben = desk.shell("ana"), desk.shell("ben")
    message_id = send(ana, "ben", body)
    done = ben.run(f"mbx ack {message_id} --did {'x' * 300}")
    assert done.status == 0
    assert "warning" in done.err
    kept = document(ana.run(f"mbx sent {message_id} --json"))["messages"][0]["recipients"][0]["did"]
    assert len(kept) == 200


# --- ids -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("act", ["read", "ack"])
def test_of_several_ids_the_good_ones_are_done_and_the_status_is_one(
    desk: Desk, body: Path, act: str
) -> None:
    ana, ben = desk.shell("ana"), desk.shell("ben")
    message_id = send(ana, "ben", body)
    done = ben.run(f"mbx {act} zzzzzz {message_id} --json")
    answer = document(done)
    assert done.status == 1
    assert [(item["id"], item["code"]) for item in answer["failed"]] == [("zzzzzz", "not-found")]
    done_ids = answer["acked"] if act == "ack" else [one["id"] for one in answer["messages"]]
    assert done_ids == [message_id]
    assert "not-found" in ben.run(f"mbx {act} zzzzzz {message_id}").err


@pytest.mark.parametrize("act", ["read", "ack", "reply -m x", "sent"])
def test_a_single_unknown_id_has_the_status_of_its_code(desk: Desk, act: str) -> None:
    ben = desk.shell("ben")
    done = ben.run(f"mbx {act} zzzzzz --json")
    assert (document(done)["error"]["code"], done.status) == ("not-found", 3)


# --- the lease -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "command",
    [
        "mbx inbox",
        "mbx sent",
        "mbx read zzzzzz",
        "mbx ack zzzzzz",
        "mbx reply zzzzzz -m x",
        "mbx send --to nobody-there --subject S -m x",
        "mbx send --to nobody-there --subject S --body-file /bin/ls",
        "mbx send --to nobody-there --subject S -m $(printf 'x%.0s' {1..263000})",
        "cat | mbx send --to nobody-there --subject S -",
        "mbx identity release",
        "mbx identity set --role 'not one'",
        "cat | mbx identity set --card-file -",
        "mbx identity set --card-file /bin/ls",
        "mbx identity rename 'not one'",
        "mbx thread zzzzzz",
        "mbx search port",
    ],
)
def test_without_a_lease_that_is_said_before_anything_else(desk: Desk, command: str) -> None:
    bare = desk.bare()
    if "263000" in command:
        command = command.replace("$(printf 'x%.0s' {1..263000})", "x") + " --ref " + "y" * 3000
    done = bare.run(command)
    assert done.status == NO_LEASE
    assert done.err.splitlines()[1].startswith("next: mbx identity claim")
    error: dict[str, Any] = document(bare.run(f"{command} --json"))["error"]
    assert error["code"] == "no-lease"


def test_an_oversized_body_does_not_hide_that_the_lease_is_missing(
    desk: Desk, tmp_path: Path
) -> None:
    file = tmp_path / "body"
    file.write_bytes(b"x" * (BODY_MAX_BYTES + 1))
    done = desk.bare().run(f"mbx send --to ana --subject S --body-file '{file}'")
    assert done.status == NO_LEASE


def test_a_refused_command_changes_nothing(desk: Desk) -> None:
    bare = desk.bare()
    desk.run("daemon", "start")  # whichever test is the first
    before = json.loads(desk.run("daemon", "status", "--hash", "--json").stdout)["state_hash"]
    assert before is not None
    for command in ("inbox", "ack zzzzzz", "send --to ana --subject S -m x", "identity release"):
        assert bare.run(f"mbx {command}").status == NO_LEASE
    after = json.loads(desk.run("daemon", "status", "--hash", "--json").stdout)["state_hash"]
    assert after == before


# --- listings ------------------------------------------------------------------------------------


def test_an_inbox_is_paged_to_its_end(desk: Desk, body: Path) -> None:
    ana, dora = desk.shell("ana"), desk.shell("dora")
    ids = [send(ana, "dora", body) for _ in range(3)]
    first = document(dora.run("mbx inbox --limit 2 --json"))
    assert first["has_more"]
    rest = document(dora.run(f"mbx inbox --limit 2 --cursor '{first['next_cursor']}' --json"))
    assert [one["id"] for one in first["messages"] + rest["messages"]] == ids
    assert (rest["has_more"], rest["next_cursor"]) == (False, None)
    assert "more: mbx inbox --limit 2 --cursor " in dora.run("mbx inbox --limit 2").out


def test_the_way_on_from_a_page_keeps_what_was_asked_for(desk: Desk, body: Path) -> None:
    ana, dora = desk.shell("ana"), desk.shell("dora")
    written = f"mbx send --to dora --kind task --subject S --body-file {quoted(str(body))} --json"
    ids = [document(ana.run(written))["id"] for _ in range(3)]
    dora.run(f"mbx ack {ids[0]}")
    told = dora.run("mbx inbox --kind task --from ana --all --limit 1").out.splitlines()[-1]
    assert told.startswith("more: mbx inbox --kind task --from ana --all --limit 1 --cursor ")
    second = document(dora.run(told.removeprefix("more: ") + " --json"))
    assert second["has_more"]
    dora.run(f"mbx ack {ids[1]} {ids[2]}")  # other tests count what lies there


SHORT_PAGES = """
from mbx.store import messages
messages.SCAN_ROWS = 2
from mbx.daemon.__main__ import main
raise SystemExit(main(["--foreground"]))
"""


def test_pages_of_the_daemons_in_which_nothing_is_are_passed_over(
    own_desk: Desk, body: Path
) -> None:
    own_desk.home.mkdir(mode=0o700)
    with Daemon(own_desk.home, python=("-I", "-c", SHORT_PAGES)):
        ana, dora = own_desk.shell("ana"), own_desk.shell("dora")
        for _ in range(5):
            send(ana, "dora", body)
        written = "mbx send --to dora --kind task --subject S -m x --json"
        task = document(ana.run(written))["id"]
        page = document(dora.run("mbx inbox --kind task --json"))
        assert [one["id"] for one in page["messages"]] == [task]
        assert dora.run("mbx inbox --kind alert").out == "no mail waits for you\n"


@pytest.mark.parametrize("number", ["0", "201", "-1", "9" * 20, "-" + "9" * 40])
def test_a_number_beyond_its_limits_is_told_with_them_however_long_it_is(
    desk: Desk, number: str
) -> None:
    done = desk.shell("ana").run(f"mbx inbox --limit={number}")
    assert done.status == 2
    assert done.err.splitlines()[0] == "error: limit must be a whole number from 1 to 200"


def test_a_listing_ends_quietly_when_its_reader_has_enough(desk: Desk) -> None:
    ana = desk.shell("ana")
    done = ana.run("set -o pipefail; mbx sent --limit 200 | true; echo ${PIPESTATUS[0]}")
    assert (done.out.strip(), done.err) == ("0", "")


@pytest.mark.parametrize("columns", [40, 80])
def test_listings_fit_the_terminal(desk: Desk, body: Path, columns: int) -> None:
    ana, ben = desk.shell("ana"), desk.shell("ben")
    send(ana, "ben", body, subject="long-" * 30)
    for shell, command in [
        (ben, "inbox --limit 200 --all"),
        (ana, "sent --limit 200"),
        (ana, "identity list"),
    ]:
        lines = shell.run(f"COLUMNS={columns} mbx {command}").out.splitlines()
        rows = [line for line in lines if not line.startswith(("more:", "next:"))]
        assert max(map(len, rows)) <= columns


# --- identities ----------------------------------------------------------------------------------


def test_whoami_says_why_there_is_no_session_and_how_to_get_what_was_named_at_launch(
    desk: Desk,
) -> None:
    eve = desk.shell("eve")
    told = eve.run("(exec -a codex bash -s app-server <<< 'mbx whoami; true')").out
    assert "session    none: this agent CLI process hosts many conversations" in told
    alone = eve.run("(MBX_AGENT=zoe exec -a codex bash -c 'mbx whoami; true')").out
    assert alone.splitlines()[0] == "no identity"
    assert "next: mbx identity claim zoe" in alone


def test_an_identity_is_registered_released_and_claimed(desk: Desk) -> None:
    eve = desk.shell("eve")
    assert document(eve.run("mbx whoami --json"))["agent"] == "eve"
    shown = document(eve.run("mbx identity show eve --json"))
    assert (shown["state"], shown["role"]) == ("held", "tester")
    assert eve.run("mbx identity release").out == "released eve\n"
    assert document(eve.run("mbx identity show eve --json"))["state"] == "free"
    assert eve.run("mbx whoami").out.startswith("no identity")
    assert "you are eve@" in eve.run("mbx identity claim eve").out
    assert "eve" in eve.run("mbx whoami").out


def test_a_held_identity_is_refused_with_its_holder(desk: Desk) -> None:
    desk.shell("ana")
    done = desk.bare().run("mbx identity claim ana --json")
    error = document(done)["error"]
    assert (error["code"], done.status) == ("in-use", 1)
    assert error["holder"]["cli"] == "shell"


def test_the_project_is_the_git_root_of_the_caller(desk: Desk, tmp_path: Path) -> None:
    fay = desk.shell("fay")
    fay.run("mbx identity release")
    root = tmp_path / "my project"
    (root / ".git").mkdir(parents=True)
    (root / "src").mkdir()
    command = f"cd '{root}/src' && mbx identity register fay-two --role tester && cd /"
    assert fay.run(command).status == 0
    entries = document(fay.run(f"mbx identity list --project '{root}/src' --json"))["identities"]
    assert [(one["name"], one["project"]) for one in entries] == [("fay-two", str(root.resolve()))]


def test_a_name_against_the_grammar_is_refused_by_name(desk: Desk) -> None:
    done = desk.bare().run("mbx identity register 'A b' --role tester --json")
    assert (document(done)["error"]["code"], done.status) == ("name-invalid", 1)
