"""Completion: what is offered, and the scripts in real shells with real line editors."""

import contextlib
import fcntl
import json
import os
import re
import select
import shutil
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from typing import Any

import pytest

from mbx.cli.commands.inbox import SHORT_ID_CHARS
from mbx.cli.completion import answer
from mbx.cli.completion.candidates import ANSWER_S, SOURCES
from mbx.cli.completion.scripts import SCRIPTS
from mbx.cli.main import COMPLETE_VARIABLE
from mbx.paths import quoted
from tests.cli.conftest import MBX, Desk, document
from tests.support.commandline import all_commands
from tests.support.patience import LOOKS_S
from tests.support.shells import BASH, Shell

HUNG_S = 3.0
"""A tab key is answered within half a second, other commands wait 4.5 s for a hung daemon; the
machine may be busy."""

HUNG_TRIES = 5
"""A machine that is held up once delays one try; a command that waits for the daemon, all."""

PATIENT = f"""
import sys
from mbx.cli.completion import candidates
from mbx.__main__ import main
candidates.ANSWER_S = {LOOKS_S}
sys.exit(main())
"""
"""`mbx` that waits for what the daemon offers: after half a second a tab key offers nothing, and a
busy machine takes longer now and then."""


def offered(shell: Shell, words: str) -> list[str]:
    """The values that a patient `mbx` offers in a shell for the last of these words."""
    patient = f"{quoted(sys.executable)} -c {quoted(PATIENT)}"
    done = shell.run(f"{COMPLETE_VARIABLE}=1 {patient} {words}")
    assert (done.status, done.err) == (0, "")
    return [line.split("\t")[1] for line in done.out.splitlines()]


def complete(
    desk: Desk, *words: str | bytes, timeout_s: float = 15, **more: str
) -> subprocess.CompletedProcess[bytes]:
    """What `mbx` answers to a completion script, from here."""
    return subprocess.run(
        [str(MBX), *words],
        env=desk.env | {COMPLETE_VARIABLE: "1"} | more,
        capture_output=True,
        check=False,
        timeout=timeout_s,
        stdin=subprocess.DEVNULL,
    )


# --- what is offered -----------------------------------------------------------------------------


def test_commands_and_options_are_offered_without_a_daemon(own_desk: Desk) -> None:
    said = complete(own_desk, "identity", "re").stdout.decode().splitlines()
    assert [line.split("\t")[:2] for line in said] == [
        ["plain", "register"],
        ["plain", "rename"],
        ["plain", "release"],
        ["plain", "retire"],
    ]
    assert complete(own_desk, "send", "--needs").stdout.startswith(b"plain\t--needs-reply\tAsk")
    assert complete(own_desk, "completion", "z").stdout == b"plain\tzsh\t\n"
    assert not own_desk.home.exists()


@pytest.mark.parametrize(
    "words",
    ["send --to ''", "read ''", "identity claim ''", "identity show ''", "agents --role ''"],
)
def test_what_only_a_daemon_knows_is_nothing_without_one_and_starts_none(
    own_desk: Desk, words: str
) -> None:
    offers = [value for value in offered(own_desk.bare(), words) if value not in ("owner", "*")]
    assert offers == []
    assert not own_desk.home.exists()


def test_addresses_are_names_roles_the_owner_and_everyone(desk: Desk) -> None:
    ana = desk.shell("ana")
    desk.shell("ben")
    whole = offered(ana, "send --to ''")
    assert {"ana", "ben", "role:tester", "owner", "*"} <= set(whole)
    assert offered(ana, "send --to role:te") == ["role:tester"]
    assert offered(ana, "send --to=be") == ["--to=ben"]
    assert offered(ana, "send --to ana,be") == ["ana,ben"]
    assert "ana,ana" not in offered(ana, "send --to ana,")


def test_names_are_those_that_the_command_can_use(desk: Desk) -> None:
    ana, ben = desk.shell("ana"), desk.shell("ben")
    assert {"ana", "ben"} <= set(offered(ana, "identity show ''"))
    claimable = offered(ben, "identity claim ''")
    assert "ben" in claimable
    assert "ana" not in claimable
    assert offered(ana, "inbox --from be") == ["ben"]
    assert offered(ana, "identity set --role te") == ["tester"]


def test_ids_are_of_ones_own_mail_that_the_command_can_use(desk: Desk) -> None:
    ana, cleo = desk.shell("ana"), desk.shell("cleo")
    sent = document(ana.run("mbx send --to cleo --subject S -m x --json"))["id"]
    short = sent[:SHORT_ID_CHARS]
    assert offered(cleo, "read ''") == [short]
    assert offered(cleo, f"ack {sent[:3]}") == [short]
    assert offered(cleo, f"ack {short} ''") == []
    assert offered(cleo, "sent ''") == []
    assert short in offered(ana, "sent ''")
    assert short in offered(ana, "thread ''")
    assert short not in offered(ana, "read ''")
    cleo.run(f"mbx ack {sent}")
    assert offered(cleo, "read ''") == []
    assert offered(cleo, "send --reply-to ''") == [short]
    assert offered(desk.bare(), "read ''") == []


def test_ids_of_the_owners_mail_are_offered_at_the_owners_terminal_alone(desk: Desk) -> None:
    ana = desk.shell("ana")
    sent = document(ana.run("mbx send --to owner --subject S -m x --json"))["id"]
    with Shell(env=desk.env, cwd=desk.home.parent, tty=True) as human:
        assert sent[:SHORT_ID_CHARS] in offered(human, "read --owner ''")
        assert offered(human, f"ack --owner {sent[:6]}") == [sent[:SHORT_ID_CHARS]]
        assert offered(human, "read ''") == []
    assert offered(ana, "read --owner ''") == []


def test_completing_changes_nothing(desk: Desk) -> None:
    ana = desk.shell("ana")
    before = json.loads(desk.run("daemon", "status", "--hash", "--json").stdout)["state_hash"]
    for words in ("send --to ''", "read ''", "thread ''", "identity claim ''", "identity release"):
        offered(ana, words)
    assert before == document(ana.run("mbx daemon status --hash --json"))["state_hash"]


def test_hostile_subjects_are_harmless_in_the_help_of_a_candidate(desk: Desk) -> None:
    ana, dora = desk.shell("ana"), desk.shell("dora")
    ana.run("mbx send --to dora --subject $'\\e[31m\\ta\\u202e' -m x")
    out = dora.run(f"{COMPLETE_VARIABLE}=1 mbx read ''").out
    assert out.count("\n") == 1
    assert out.count("\t") == 2
    assert out.replace("\t", "").replace("\n", "").isprintable()


@pytest.mark.parametrize(
    "words",
    [
        ("nonsense", ""),
        ("identity", "nonsense", ""),
        ("send", "--bad", "x", ""),
        ("version", "x", "y"),
        (b"\xff",),
        ("read", b"\xff"),
        ("--version", "--", "\x01"),
        (),
    ],
)
def test_whatever_stands_on_the_line_nothing_fails_aloud(
    own_desk: Desk, words: tuple[str | bytes, ...]
) -> None:
    done = complete(own_desk, *words)
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"Traceback" not in done.stdout


def test_no_home_and_a_closed_reader_are_no_trouble(own_desk: Desk) -> None:
    done = complete(own_desk, "read", "", MBX_HOME="\udcff/x")
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    shell = own_desk.bare()
    piped = shell.run(f"{COMPLETE_VARIABLE}=1 mbx '' | true; echo ${{PIPESTATUS[0]}}")
    assert (piped.out, piped.err) == ("0\n", "")


@pytest.mark.long
@pytest.mark.timeout(120)
def test_a_hung_daemon_delays_the_line_only_for_a_moment(own_desk: Desk) -> None:
    own_desk.run("daemon", "start")
    pid = own_desk.status()["pid"]
    said = []
    os.kill(pid, signal.SIGSTOP)
    try:
        for _ in range(HUNG_TRIES):
            with contextlib.suppress(subprocess.TimeoutExpired):
                done = complete(own_desk, "read", "", timeout_s=HUNG_S)
                said.append((done.returncode, done.stdout, done.stderr))
                break
    finally:
        os.kill(pid, signal.SIGCONT)
    assert said == [(0, b"", b"")]


def test_every_source_that_a_command_names_is_there(desk: Desk) -> None:
    """A name that is none would be silent: `answer.complete` swallows every error."""
    from mbx.cli.main import mbx
    from mbx.cli.output import Output
    from mbx.cli.session import Session

    session = Session(Output({}), desk.env)
    for name, command, _ in all_commands():
        for parameter in command.params:
            if parameter.param_type_name == "option" and not parameter.is_flag:
                words = [*name.split()[1:], parameter.opts[0], ""]
                answer.candidates(mbx, words, session)
        answer.candidates(mbx, [*name.split()[1:], ""], session)


def test_a_tab_key_is_answered_before_a_person_looks_up() -> None:
    assert ANSWER_S <= 0.5
    assert {"addresses", "names", "roles", "waiting_messages"} <= set(SOURCES)


# --- the scripts ---------------------------------------------------------------------------------


@pytest.mark.parametrize("shell", SCRIPTS)
def test_the_script_is_printed_and_starts_nothing(own_desk: Desk, shell: str) -> None:
    done = own_desk.run("completion", shell)
    assert (done.returncode, done.stdout) == (0, SCRIPTS[shell])
    said = json.loads(own_desk.run("completion", shell, "--json").stdout)
    assert said == {"shell": shell, "script": SCRIPTS[shell]}
    assert not own_desk.home.exists()


def test_another_shell_is_refused_with_those_there_are(own_desk: Desk) -> None:
    done = own_desk.run("completion", "csh")
    assert done.returncode == 2
    assert "bash|zsh|fish" in done.stderr


# Shell -> how it is started without anybody's settings, how it loads the script, and how %% writes
# the line that is being edited into a FIFO and empties it. No control characters: what is typed
# before the editor is there goes through the terminal's own editing.
EDITORS = {
    "bash": (
        (*BASH, "-i"),
        'eval "$(mbx completion bash)"',
        """bind -x '"%%": printf "%s\\n" "$READLINE_LINE" >FIFO; READLINE_LINE='""",
    ),
    "zsh": (
        ("zsh", "-f", "-i"),
        'eval "$(mbx completion zsh)"',
        "dump() { print -r -- $BUFFER >FIFO; BUFFER= }; zle -N dump; bindkey '%%' dump",
    ),
    "fish": (
        ("fish", "--no-config", "--interactive"),
        "mbx completion fish | source",
        "bind '%%' 'commandline >FIFO; commandline \"\"'",
    ),
}
DUMP = "%%"


class Typist:
    """Somebody who types at an interactive shell that has loaded the script."""

    def __init__(self, name: str, desk: Desk) -> None:
        argv, load, bind = EDITORS[name]
        folder = desk.home.parent / f"shell-{name}"
        folder.mkdir()
        program = folder / "bin" / "mbx"
        program.parent.mkdir()
        program.write_text(f'#!/bin/sh\nexec {quoted(sys.executable)} -c {quoted(PATIENT)} "$@"\n')
        program.chmod(0o755)
        path = f"{program.parent}{os.pathsep}{desk.env['PATH']}"
        env = desk.env | {"TERM": "xterm", "HOME": str(folder), "PATH": path}
        self.identity = f"typist-{name}"
        self.shell = Shell(argv, env=env, cwd=folder, tty=True)
        self._tty = self.shell._keyboard
        fcntl.ioctl(self._tty, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 100, 0, 0))
        self._fifo_path = folder / "fifo"
        os.mkfifo(self._fifo_path)
        self._fifo = os.open(self._fifo_path, os.O_RDWR | os.O_NONBLOCK)
        self.screen = ""
        self.enter(bind.replace("FIFO", str(self._fifo_path)))
        self.enter(load)

    def line(self, keys: str) -> str:
        """Type on an empty line, tab keys too; what the line holds then."""
        self.screen = ""
        self._type(keys + DUMP)
        return self._told()

    def enter(self, command: str) -> None:
        """Type a command; it has ended when the next line can be edited, which `line` awaits."""
        self._type(command + "\r")

    def close(self) -> None:
        self.shell.close()
        os.close(self._fifo)

    def _type(self, keys: str) -> None:
        os.write(self._tty, keys.encode())

    def _told(self) -> str:
        events = select.poll()
        events.register(self._fifo, select.POLLIN)
        events.register(self._tty, select.POLLIN)
        deadline = time.monotonic() + 15
        told = ""
        while not told.endswith("\n"):
            left_ms = (deadline - time.monotonic()) * 1000
            ready = dict(events.poll(max(left_ms, 0)))
            assert ready, f"nothing came of the keys; the screen: {self.screen!r}"
            if self._tty in ready:
                self.screen += os.read(self._tty, 65_536).decode(errors="replace")
            if self._fifo in ready:
                told += os.read(self._fifo, 65_536).decode()
        return told.rstrip("\n")


@pytest.fixture(scope="module", params=EDITORS)
def typist(request: Any, desk: Desk) -> Iterator[Typist]:
    if shutil.which(request.param) is None:
        pytest.skip(f"{request.param} is not installed")
    desk.shell("ana")
    desk.shell("ben")
    typist = Typist(request.param, desk)
    typist.enter(f"mbx identity register {typist.identity} --role typing")
    typist.line("")
    yield typist
    typist.close()


@pytest.mark.parametrize(
    ("keys", "line"),
    [
        ("mbx ident\t", "mbx identity "),
        ("mbx identity ren\t", "mbx identity rename "),
        ("mbx send --needs\t", "mbx send --needs-reply "),
        ("mbx identity show an\t", "mbx identity show ana "),
        ("mbx send --to be\t", "mbx send --to ben "),
        ("mbx send --subject 'a b' --to be\t", "mbx send --subject 'a b' --to ben "),
        ("mbx send --to role:test\t", "mbx send --to role:tester "),
        ("mbx send --to=be\t", "mbx send --to=ben "),
        ("mbx send --to=role:test\t", "mbx send --to=role:tester "),
        ("mbx send --to ana,be\t", "mbx send --to ana,ben "),
        ("mbx send --to ana,role:test\t", "mbx send --to ana,role:tester "),
        ("mbx ack x --outcome sup\t", "mbx ack x --outcome superseded "),
        ("mbx nonsense x\t", "mbx nonsense x"),
    ],
)
def test_a_tab_completes_the_word_in_a_real_shell(typist: Typist, keys: str, line: str) -> None:
    assert typist.line(keys) == line


def test_a_tab_completes_paths_where_paths_belong(typist: Typist) -> None:
    assert typist.line("mbx send --body-file /etc/passw\t").startswith(
        "mbx send --body-file /etc/passwd"
    )
    assert typist.line("mbx identity list --project /us\t").startswith(
        "mbx identity list --project /usr/"
    )


def test_an_id_is_completed_and_listed_with_what_it_is(typist: Typist, desk: Desk) -> None:
    sent = [
        document(
            desk.shell("ana").run(
                f"mbx send --to {typist.identity} --subject Harbour{n} -m x --json"
            )
        )["id"]
        for n in (1, 2)
    ]
    if sent[0][:4] != sent[1][:4]:
        short = sent[0][:SHORT_ID_CHARS]
        assert typist.line(f"mbx read {sent[0][:4]}\t") == f"mbx read {short} "
    # Where both begin alike, the first tab writes that beginning and lists nothing yet.
    begins_alike = sent[0][0] == sent[1][0]
    typist.line("mbx read \t\t" + "\t" * begins_alike)
    assert re.search("from ana@.*Harbour1", typist.screen)
    assert re.search("from ana@.*Harbour2", typist.screen)
