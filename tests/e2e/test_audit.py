"""`mbx audit` at a real terminal, and doctor on the owner's side, on stores that somebody changed.

The stores are real: a daemon made them, was stopped, and starts again on what was done to them.
"""

import base64
import contextlib
import json
import os
import shutil
import sqlite3
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from mbx.cli.commands.audit import told as words_of
from mbx.core.canonical import parse
from mbx.core.keys import SigningKey, key_id
from mbx.core.record import sign
from mbx.owner import keyfile
from mbx.store import audit
from mbx.store.database import Tx
from tests.e2e.test_doctor import Doctor
from tests.support.daemon import Daemon, Line, fresh_home
from tests.support.entries import entry_of
from tests.support.patience import looks
from tests.support.seat import Seat
from tests.support.shells import Finished, Shell
from tests.support.worlds import with_limits

pytestmark = [pytest.mark.long, pytest.mark.timeout(120)]

CANARY: Final = "canary-1f9b"
KEY: Final = SigningKey.from_seed(bytes([3]) * 32)
OWNER: Final = key_id("owner", KEY.public)
SEALED: Final = keyfile.seal(bytes([3]) * 32, b"seven quiet otters", bytes(28), n=keyfile.N_MIN)
HOUR_MS: Final = 3_600_000


def signed(draft: dict[str, Any]) -> dict[str, Any]:
    payload = parse(draft["payload"].encode(), 2**20)
    assert isinstance(payload, dict)
    record = sign(draft["kind"], payload, KEY, OWNER)
    return {"kind": record.kind, "payload": record.payload, "signatures": dict(record.signatures)}


def do(line: Line, act: str, **wanted: object) -> dict[str, Any]:
    """One act of the owner's, with a key that needs no terminal."""
    return line.call("owner.apply", record=signed(line.call("owner.draft", act=act, **wanted)))


def enroll(home: Path) -> None:
    """Let the host have this owner, as `mbx owner init` leaves it; no daemon runs."""
    connection = sqlite3.connect(home / "store.db")
    connection.execute(
        "INSERT INTO owner_keys (key_id, public_key, since_ms) VALUES (?, ?, 1700000000000)",
        (OWNER, KEY.public),
    )
    connection.commit()
    connection.close()


def lived(home: Path) -> None:
    """A short history: two agents, a policy, a request that was acted on, a revocation, more."""
    with Daemon(home) as first:
        first.stop()
    enroll(home)
    with Daemon(home) as daemon:
        with contextlib.ExitStack() as agents:
            ana, ben = (
                agents.enter_context(agents.enter_context(daemon.agent()).registered(name))
                for name in ("ana", "ben")
            )
            do(ana, "policy", to=["ben"], level="collaborate", **{"from": ["ana"]})
            letter = {"to": ["ben"], "subject": CANARY, "body": CANARY, "kind": "request"}
            asked = ana.call("mail.send", **letter)["id"]
            did = "ran \x1b[31mthe tests\u202e"
            ben.call("mail.ack", ids=[asked], outcome="acted", did=did, note=CANARY)
            do(ana, "policy", to=["ana"], level="yolo", **{"from": ["ben"]})
            ana.call("identity.release")
        daemon.stop()
    (home / "owner.key").touch(0o600)
    (home / "owner.key").write_bytes(SEALED)


@pytest.fixture(scope="module")
def lived_in() -> Iterator[Path]:
    """The home that all tests of this file begin with a copy of."""
    with fresh_home() as folder:
        lived(folder)
        yield folder


@pytest.fixture
def home(lived_in: Path) -> Iterator[Path]:
    with fresh_home() as folder:
        shutil.copytree(lived_in, folder, dirs_exist_ok=True)
        for path in (folder, folder / "run", folder / "run" / "sessions", folder / "floor"):
            path.chmod(0o700)
        yield folder


def owners(home: Path, command: str) -> Finished:
    """A command at a terminal of the owner's; a daemon runs."""
    with Shell(env=Doctor(home).env, tty=True) as shell:
        return shell.run(command)


def document(done: Finished) -> dict[str, Any]:
    told = json.loads(done.out)
    assert isinstance(told, dict)
    return told


def change(home: Path, *statements: str) -> None:
    connection = sqlite3.connect(home / "store.db")
    for statement in statements:
        connection.execute(statement)
    connection.commit()
    connection.close()


def last_row(home: Path) -> int:
    connection = sqlite3.connect(home / "store.db")
    (found,) = connection.execute("SELECT max(no) FROM audit").fetchone()
    connection.close()
    return int(found)


# -- what is shown --------------------------------------------------------------------------------


def test_the_log_is_shown_newest_first_and_foreign_text_is_made_visible(home: Path) -> None:
    with Daemon(home):
        shown = owners(home, "mbx audit")
        told = document(owners(home, "mbx audit --json"))
        acted = document(owners(home, "mbx audit --act acted --json"))
        mine = document(owners(home, "mbx audit --identity ben --limit 1 --json"))
    assert shown.status == 0
    lines = shown.out.splitlines()
    assert lines[0].split() == ["ROW", "AT", "ACT", "WHO", "WHAT"]
    assert [line.split()[0] for line in lines[1:]] == [str(row["no"]) for row in told["rows"]]
    assert "\x1b[31m" not in shown.out
    assert "\u202e" not in shown.out
    assert [row["no"] for row in told["rows"]] == sorted(row["no"] for row in told["rows"])[::-1]
    (row,) = acted["rows"]
    assert row["details"]["did"] == "ran \x1b[31mthe tests\u202e"
    assert (row["agent"], row["details"]["policy"]) == ("ben", "collaborate: read, edit")
    policies = {one["record"]: one["details"]["level"] for one in told["rows"] if _is_policy(one)}
    assert policies[row["record"]] == "collaborate"
    assert (len(mine["rows"]), mine["has_more"]) == (1, True)
    assert CANARY not in shown.out + json.dumps(told)


def _is_policy(row: dict[str, Any]) -> bool:
    return bool(row["act"] == "policy")


def test_the_table_fits_the_terminal_and_has_colours_only_there(home: Path) -> None:
    env = Doctor(home).env | {"TERM": "xterm"}
    command = f"exec {env['PATH'].split(os.pathsep)[0]}/mbx audit --since 2d >/dev/tty"
    with Daemon(home), Seat(["sh", "-c", command], env=env, columns=60) as seat:
        assert seat.finish().status == 0
        lines = seat.drain().splitlines()
    assert lines[0].startswith("\x1b[1mROW")
    plain = [line.replace("\x1b[1m", "").replace("\x1b[0m", "") for line in lines]
    assert len(plain) >= 8
    assert max(map(len, plain)) <= 60
    assert "\x1b" not in "".join(plain)


def test_nobody_but_the_owner_sees_it_and_nothing_is_changed(home: Path) -> None:
    with Daemon(home) as daemon:
        before = daemon.state_hash()
        for arguments in (["audit"], ["audit", "--verify"], ["audit", "--json"]):
            done = Doctor(home).run(*arguments)
            assert done.returncode == 1
            assert "owner" in done.stderr + done.stdout
            assert "policy" not in done.stdout
        assert owners(home, "mbx audit --verify --act set").status == 2
        assert owners(home, "mbx audit --since noon").status == 2
        assert "unknown" not in owners(home, "mbx audit --act host").out
        assert owners(home, "mbx audit --act forward").out == "no such acts\n"
        assert daemon.state_hash() == before


ACTED: Final = {"sender": "ana", "message": "m" * 26, "policy": "ask", "trust": "local"}
POLICY: Final = {
    "version": 1,
    "level": "ask",
    "classes": [],
    "to": ["a", "b"],
    "from": ["c"],
    "until": "u",
}
TAKEN: Final = {"to": {"cli": "claude", "session": "s-2"}, "epoch": 3, "before": None}
ROWS: Final[dict[str, dict[str, Any]]] = {
    "x; for ana (mmmmmmmmmmmm); policy ask; trust local": {
        "act": "acted",
        "details": ACTED | {"did": "x"},
    },
    "did not say what; for ana (mmmmmmmmmmmm); policy ask; trust local; record rrrrrrrrrrrr": {
        "act": "acted",
        "details": ACTED,
        "record": "r" * 26,
    },
    "to claude s-2, epoch 3; from nobody; hangs": {
        "act": "takeover",
        "details": TAKEN | {"reason": "hangs"},
    },
    "version 1: ask (nothing); a, b on mail from c; until u": {"act": "policy", "details": POLICY},
    "ben to cai; 2 handed on; 3 yet to go; record rrrrrrrrrrrr": {
        "act": "forward",
        "details": {"name": "ben", "to": "c" * 26, "to_name": "cai", "moved": 2, "left": 3},
        "record": "r" * 26,
    },
    f"ben to {'c' * 26}; 0 handed on": {
        "act": "hand-on",
        "details": {"name": "ben", "to": "c" * 26, "moved": 0},
    },
    "version 2: revokes r, s": {
        "act": "revoke",
        "details": {"version": 2, "revokes": ["r", "s"]},
    },
    "right at 2026-09-21T14:13:20Z, although it was 2026-09-21T14:13:21Z": {
        "act": "clock",
        "details": {"before": 1_790_000_001_000, "after": 1_790_000_000_000},
    },
    "right at -1, although it was soon": {
        "act": "clock",
        "details": {"before": "soon", "after": -1},
    },
    "a is b": {"act": "rename", "details": {"name": "b", "old_name": "a"}},
    "codex 000000000000; epoch 1": {
        "act": "claim",
        "details": {"epoch": 1, "name": "n", "seq": 9},
        "record": "r",
        "session": {"cli": "codex", "id": "0" * 36},
    },
    "its details cannot be read": {"act": "claim", "details": None},
}


@pytest.mark.parametrize("words", ROWS)
def test_a_row_is_told_in_words(words: str) -> None:
    assert words_of(ROWS[words]) == words


# -- what somebody did to it ----------------------------------------------------------------------


def a_byte(column: str, no: int) -> Callable[[Path], None]:
    """Change one byte of one column of a row."""

    def damage(home: Path) -> None:
        connection = sqlite3.connect(home / "store.db")
        (value,) = connection.execute(f"SELECT {column} FROM audit WHERE no = ?", (no,)).fetchone()
        if isinstance(value, int):
            changed: object = value ^ 1
        else:
            raw = value.encode() if isinstance(value, str) else value
            raw = bytes([raw[0] ^ 1]) + raw[1:]
            changed = raw.decode() if isinstance(value, str) else raw
        connection.execute(f"UPDATE audit SET {column} = ? WHERE no = ?", (changed, no))
        connection.commit()
        connection.close()

    return damage


def swapped(home: Path) -> None:
    change(
        home,
        "UPDATE audit SET no = -1 WHERE no = 3",
        "UPDATE audit SET no = 3 WHERE no = 4",
        "UPDATE audit SET no = 4 WHERE no = -1",
    )


def put_in(home: Path) -> None:
    change(
        home,
        "UPDATE audit SET no = -no WHERE no >= 4",
        "UPDATE audit SET no = 1 - no WHERE no < 0",
        "INSERT INTO audit SELECT 4, at_ms, act, identity, detail, hash FROM audit WHERE no = 2",
    )


def made_anew(home: Path) -> None:
    """The newest rows written again with hashes that fit, by somebody who knows how."""
    connection = sqlite3.connect(home / "store.db")
    tx = Tx(connection, 0)
    first = audit.head(tx)[0] - 2
    previous = audit.hash_at(tx, first - 1)
    assert previous is not None
    for row in audit.after(tx, first - 1, 9):
        previous = audit.row_hash(previous, row.no, 1, row.act, row.identity, row.detail)
        place = (1, previous, row.no)
        connection.execute("UPDATE audit SET at_ms = ?, hash = ? WHERE no = ?", place)
    connection.commit()
    connection.close()


def cut_off(home: Path) -> None:
    change(home, f"DELETE FROM audit WHERE no > {last_row(home) - 2}")


DAMAGES: Final[dict[str, tuple[Callable[[Path], None], str]]] = {
    "number": (lambda home: change(home, "UPDATE audit SET no = 99 WHERE no = 3"), "row 3 is miss"),
    "time": (a_byte("at_ms", 3), "row 3 was changed"),
    "act": (a_byte("act", 3), "row 3 was changed"),
    "identity": (a_byte("identity", 3), "row 3 was changed"),
    "details": (a_byte("detail", 3), "row 3 was changed"),
    "hash": (a_byte("hash", 3), "row 3 was changed"),
    "one gone": (lambda home: change(home, "DELETE FROM audit WHERE no = 3"), "row 3 is missing"),
    "the first gone": (
        lambda home: change(home, "DELETE FROM audit WHERE no < 3"),
        "rows 1 to 2 are missing",
    ),
    "the end gone": (cut_off, "are missing at the end: the floor names"),
    "swapped": (swapped, "row 3 was row 4"),
    "put in": (put_in, "row 4"),
    "made anew": (made_anew, "is not the one that the floor names"),
}
"""What was done to a store, and words of the fault."""


@pytest.mark.parametrize("name", DAMAGES)
def test_what_was_done_to_the_rows_is_found_named_and_told_by_doctor(home: Path, name: str) -> None:
    damage, words = DAMAGES[name]
    damage(home)
    with Daemon(home):
        told = document(done := owners(home, "mbx audit --verify --json"))
        shown = owners(home, "mbx audit --verify")
        (first, *_) = Doctor(home).checks()["audit"]
    assert (done.status, told["ok"], shown.status) == (1, False, 1)
    assert any(words in fault["words"] for fault in told["faults"]), told["faults"]
    assert words in shown.out
    assert shown.out.splitlines()[-1].startswith("next: ")
    assert first["level"] == "fail"
    assert CANARY not in shown.out + json.dumps(told)


def test_a_whole_log_says_what_it_is_anchored_in(home: Path) -> None:
    with Daemon(home) as daemon:
        shown = owners(home, "mbx audit --verify")
        daemon.stop()
    rows = last_row(home)
    assert shown.status == 0
    assert shown.out.startswith(f"{rows} rows, chain holds, last row {rows} (")
    assert shown.out.endswith(f"anchored in 2 acceptances and the floor (row {rows})\n")


TRIES: Final = 4
"""The test may be kept waiting itself while the log is checked; hardly so often."""


@pytest.mark.timeout(120)
def test_a_hundred_thousand_rows_are_checked_in_pieces_while_others_are_served(
    home: Path,
) -> None:
    connection = sqlite3.connect(home / "store.db")
    tx = Tx(connection, 0)
    no, previous = audit.head(tx)
    made = []
    for number in range(no + 1, 100_001):
        previous = audit.row_hash(previous, number, number, "set", None, '{"seq":1}')
        made.append((number, number, "set", None, '{"seq":1}', previous))
    connection.executemany("INSERT INTO audit VALUES (?, ?, ?, ?, ?, ?)", made)
    connection.commit()
    connection.close()
    with Daemon(home) as daemon, daemon.line() as line:
        line.hello()
        answers = 0
        for _ in range(TRIES):
            told, answers = verified_meanwhile(home, line)
            assert (told["ok"], told["rows"] >= 100_000) == (True, True)
            if answers >= 50:
                break
    assert answers >= 50


def verified_meanwhile(home: Path, line: Line) -> tuple[dict[str, Any], int]:
    """What checking the log says, and how many questions of another were answered until then."""
    answers = 0
    with Shell(env=Doctor(home).env, tty=True) as shell:
        shell.start("mbx audit --verify --json")
        said = shell.folder / "1.out"
        while not (said.exists() and said.stat().st_size):
            line.call("daemon.status")
            answers += 1
        return document(shell.finish()), answers


# -- the floor ------------------------------------------------------------------------------------


def floor_of(home: Path) -> dict[str, Any]:
    told = json.loads((home / "floor" / "floor.json").read_text())
    assert len(base64.b64decode(told["signature"])) == 64
    payload = json.loads(told["payload"])
    assert isinstance(payload, dict)
    return payload


def test_the_floor_is_there_at_the_start_and_follows_at_an_orderly_stop(home: Path) -> None:
    (home / "floor" / "floor.json").unlink()
    change(home, "DELETE FROM owner_records", "DELETE FROM owner_keys")
    with Daemon(home) as daemon:
        at_start = floor_of(home)["audit_no"]
        with daemon.agent() as agent, agent.registered("dan"):
            pass
        daemon.stop()
    assert at_start <= last_row(home) - 3
    assert floor_of(home)["audit_no"] == last_row(home)


def test_an_idle_daemon_leaves_the_floor_alone(home: Path) -> None:
    # Each round commits the clock where there is an owner, if it is to be kept that exactly.
    with Daemon(home, python=with_limits(CLOCK_KEPT_MS=0)) as daemon, daemon.line() as line:
        line.hello()
        before = entry_of(home / "floor" / "floor.json")
        began = line.call("daemon.status")["commit_seq"]
        # Each round raises the clock, a second after the one before has reached the disk.
        assert any(line.call("daemon.status")["commit_seq"] >= began + 3 for _ in looks(40))
        after = entry_of(home / "floor" / "floor.json")
    assert after == before


def test_an_older_store_that_was_put_back_is_told_by_the_floor(home: Path, lived_in: Path) -> None:
    with Daemon(home) as daemon:
        with daemon.agent() as agent, agent.registered("dan"):
            pass
        daemon.stop()
    reached = floor_of(home)
    shutil.copy(lived_in / "store.db", home / "store.db")
    (home / "store.db").chmod(0o600)
    for _ in range(2):  # whatever the daemon goes on to write, the proof stays
        with Daemon(home) as daemon:
            (check,) = [one for one in Doctor(home).checks()["audit"] if "floor" in one["detail"]]
            daemon.stop()
        assert check["level"] == "fail"
        assert floor_of(home)["audit_hash"] == reached["audit_hash"]


# -- doctor ---------------------------------------------------------------------------------------


def worst(home: Path) -> dict[str, str]:
    return Doctor(home).faults()


def test_a_policy_that_holds_everything_is_named_with_its_end(home: Path) -> None:
    with Daemon(home):
        checks = Doctor(home).checks()
        assert Doctor(home).faults() == {"yolo": "warn"}
    (check,) = checks["yolo"]
    assert (check["level"], check["fix"].split()[:3]) == ("warn", ["mbx", "policy", "revoke"])
    assert "(yolo) of ana for mail from ben@" in check["detail"]
    assert "UTC" in check["detail"]
    (known,) = checks["owner"]
    assert (known["level"], known["detail"][:26]) == ("ok", OWNER)
    (file,) = checks["owner key"]
    assert file["detail"] == f"{OWNER}, under its passphrase"


def key_a_link(home: Path) -> None:
    (home / "owner.key").unlink()
    (home / "owner.key").symlink_to("host.key")


PLANTED: Final[dict[str, tuple[Callable[[Path], object], str, str]]] = {
    "key damaged": (
        lambda home: (home / "owner.key").write_bytes(SEALED[:99]),
        "owner key",
        "fail",
    ),
    "key a link": (key_a_link, "owner key", "fail"),
    "key of another": (
        lambda home: (home / "owner.key").write_bytes(
            keyfile.seal(bytes(32), b"x" * 8, bytes(28), n=keyfile.N_MIN)
        ),
        "owner key",
        "warn",
    ),
    "key open": (lambda home: (home / "owner.key").chmod(0o644), "modes", "warn"),
    "floor open": (lambda home: (home / "floor" / "floor.json").chmod(0o644), "modes", "warn"),
    "floor gone": (lambda home: (home / "floor" / "floor.json").unlink(), "floor", "fail"),
    "chain changed": (
        lambda home: change(home, "UPDATE owner_records SET payload = '{}' WHERE version = 1"),
        "owner's chain",
        "fail",
    ),
    "clock behind": (
        lambda home: change(
            home,
            f"UPDATE counters SET value = {time.time_ns() // 1_000_000 + 2 * HOUR_MS}"
            " WHERE name = 'clock_high_ms'",
        ),
        "owner's clock",
        "fail",
    ),
}
"""Fault -> how it is planted while no daemon runs, the check that names it, its level."""


@pytest.mark.parametrize("fault", PLANTED)
def test_a_planted_fault_of_the_owners_side_is_named_and_nothing_changes(
    home: Path, fault: str
) -> None:
    plant, name, level = PLANTED[fault]
    plant(home)
    with Daemon(home) as daemon:
        before = daemon.state_hash()
        files = {path: path.lstat().st_mtime_ns for path in home.rglob("*.key")}
        found = worst(home)
        assert found.get(name) == level, found
        assert daemon.state_hash() == before
        assert {path: path.lstat().st_mtime_ns for path in home.rglob("*.key")} == files


def test_a_damaged_floor_is_named_while_no_daemon_can_start(home: Path) -> None:
    path = home / "floor" / "floor.json"
    path.write_bytes(path.read_bytes()[:-20])
    assert worst(home)["floor"] == "fail"
    done = Doctor(home).run("daemon", "start")
    assert "not what this host wrote" in done.stderr
    assert worst(home)["floor"] == "fail"


def test_a_policy_that_ends_within_a_day_is_named(home: Path) -> None:
    with Daemon(home) as daemon, daemon.line() as line:
        line.hello()
        do(line, "policy", to=["ben"], level="autonomous", ttl_s=7_200, **{"from": ["ana"]})
        (check,) = Doctor(home).checks()["policies"]
    assert check["level"] == "warn"
    assert "(autonomous) of ben for mail from ana@" in check["detail"]
    assert check["detail"].endswith("ends in 1 h")


def test_the_border_is_told_with_what_the_machine_leaves_open(home: Path) -> None:
    checks = Doctor(home).checks()
    (program,), (terminal,), (border,) = checks["program"], checks["terminal"], checks["border"]
    assert border["detail"].startswith("the border is the OS user")
    digests = [word for word in program["detail"].replace(";", "").split() if len(word) == 64]
    assert len(digests) == 2
    assert "legacy_tiocsti" in terminal["detail"]
    assert "ptrace_scope" in terminal["detail"]
    for name, path in (
        ("legacy_tiocsti", Path("/proc/sys/dev/tty/legacy_tiocsti")),
        ("ptrace_scope", Path("/proc/sys/kernel/yama/ptrace_scope")),
    ):
        value = path.read_text().strip() if path.exists() else "unset"
        assert f"({name} {value})" in terminal["detail"]


def test_no_secret_and_no_words_of_mail_in_any_output(home: Path) -> None:
    secrets = [CANARY, json.loads((home / "host.key").read_text())["seed"]]
    secrets += [json.loads(SEALED)["sealed"], (bytes([3]) * 32).hex(), "seven quiet otters"]
    with Daemon(home):
        printed = [owners(home, command).out for command in ("mbx audit", "mbx audit --json")]
        printed += [owners(home, f"mbx audit --verify{more}").out for more in ("", " --json")]
        printed += [Doctor(home).run("doctor", *more).stdout for more in ((), ("--json",))]
    for text in printed:
        assert text
        for secret in secrets:
            assert secret not in text
