"""Rules of `mbx.core.evidence`: what a process is, whose session a caller is in, who is alive."""

from collections.abc import Iterator
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mbx.core.evidence import (
    BOUNDARIES,
    HARNESSES,
    PID_MAX,
    SHELLS,
    Claim,
    KnownSession,
    Lineage,
    Process,
    ProcessEntry,
    SessionKey,
    Unreadable,
    chosen,
    find_session,
    harness_of,
    is_boundary,
    is_shared,
    is_shell,
    judge,
)

BOOT = "fc69ed00-8229-466d-b6e6-9315030290a0"
CALLER = "python3 /usr/bin/mbx register"
GEMINI = "node --max-old-space-size=4096 /home/me/node_modules/.bin/gemini"
CODEX_LAUNCHER = "node /usr/bin/codex"
CODEX = "/usr/lib/node_modules/@openai/codex/vendor/bin/codex"


def entry(line: str, pid: int = 900, *, forked: bool | None = False, ppid: int = 1) -> ProcessEntry:
    """A process with this command line, blanks between its words."""
    argv = tuple(line.split(" "))
    return ProcessEntry(pid, ppid, pid * 10, argv[0].rpartition("/")[2][:15], argv, forked)


def chain(*lines: str) -> list[ProcessEntry | Unreadable]:
    """Processes 900, 899, … with these command lines, nearest first.

    `&LINE`: a fork that executed nothing; `~LINE`: not known whether; `?`: cannot be read;
    `/sbin/init`: pid 1.
    """
    entries: list[ProcessEntry | Unreadable] = []
    for pid, line in zip(range(900, 0, -1), lines, strict=False):
        number = 1 if line == "/sbin/init" else pid
        forked = None if line[0] == "~" else line[0] == "&"
        found = entry(line.lstrip("&~"), number, forked=forked, ppid=number - 1)
        entries.append(Unreadable(number) if line == "?" else found)
    return entries


def known(cli: str, pid: int, session_id: str = "known", boot: str = BOOT) -> KnownSession:
    return KnownSession(SessionKey(cli, session_id), Process(pid, pid * 10, boot))


def walked(*lines: str, sessions: tuple[KnownSession, ...] = (), claim: Claim = None) -> Lineage:
    return find_session(chain(*lines), sessions, claim, BOOT)


def pid_of(lineage: Lineage) -> int | None:
    return lineage.process.pid if lineage.process else None


# -- what a process is ----------------------------------------------------------------------------

HARNESS_LINES = [
    ("claude --resume", "claude"),
    ("/opt/claude-code-linux-x64/claude -p hello", "claude"),
    ("node /home/me/.npm/bin/claude", "claude"),
    ("node /usr/lib/node_modules/@anthropic-ai/claude-code/cli.js --print", "claude"),
    ("node /usr/lib/node_modules/@anthropic-ai/claude-code/dist/cli.mjs", "claude"),
    ("node /opt/claude/cli.js", "claude"),
    (CODEX, "codex"),
    (CODEX_LAUNCHER, "codex"),
    ("node /usr/lib/node_modules/@openai/codex/bin/codex.js", "codex"),
    ("/x/opencode-linux-x64/bin/opencode serve", "opencode"),
    (GEMINI, "gemini"),
    ("node --require ./hook.js -r x --import y /x/.bin/gemini", "gemini"),
    ("nodejs --no-warnings -- /x/.bin/gemini", "gemini"),
    ("bun run /x/.bin/gemini", "gemini"),
    ("deno run -A /x/gemini-cli/bundle/gemini.js", "gemini"),
    ("node20 /x/qwen-code/dist/index.js", "qwen"),
    ("node /x/@github/copilot/index.js", "copilot"),
    ("kimi-code", "kimi"),
    ("python3.13 /home/me/.local/bin/kimi", "kimi"),
    ("python3 -Im kimi_cli --print", "kimi"),
    ("python -X dev -W ignore -u -m kimi_cli.app", "kimi"),
    ("python -mkimi_cli", "kimi"),
]

OTHER_LINES = [
    "vim claude.md",
    "less claude",
    "bash /home/me/bin/claude",
    "node",
    "node -e gemini",
    "node --print gemini",
    "node - gemini",
    "node --require gemini",
    "node app.js claude",
    "node /home/me/gemini.js",
    "node /home/me/codex/index.js",
    "node /home/me/codex/notes.js",
    "node cli.js",
    "node /x/claude/project/cli.js",
    "python3 -c codex",
    "python3 -Ic kimi",
    "python3 - kimi",
    "python3 -m",
    "python3 --version",
    "python3 -m http.server codex",
    "python3 claude.py",
    "python3 /usr/bin/mbx run -- claude",
    "claude-desktop",
    "npm exec @google/gemini-cli",
    "timeout 5 claude",
]


@pytest.mark.parametrize(("line", "cli"), HARNESS_LINES)
def test_an_agent_cli_is_known_by_its_program_or_script(line: str, cli: str) -> None:
    assert harness_of(entry(line)) == cli


@pytest.mark.parametrize("line", OTHER_LINES)
def test_a_word_in_the_command_line_makes_no_agent_cli(line: str) -> None:
    assert harness_of(entry(line)) is None


def test_a_process_without_command_line_is_no_agent_cli_whatever_its_comm() -> None:
    assert harness_of(ProcessEntry(5, 1, 50, "claude", ())) is None
    assert not is_shared(ProcessEntry(5, 1, 50, "opencode", ()), "opencode")


def test_of_a_title_the_first_word_counts_but_a_path_may_hold_blanks() -> None:
    assert harness_of(ProcessEntry(5, 1, 50, "node", ("kimi-code: at /x/y",))) == "kimi"
    assert harness_of(ProcessEntry(5, 1, 50, "claude", ("/home/John Doe/bin/claude",))) == "claude"
    assert harness_of(ProcessEntry(5, 1, 50, "x", ("npm exec /x/claude",))) is None


@pytest.mark.parametrize(
    ("line", "shared"),
    [
        ("opencode", False),
        ("opencode run serve", False),
        ("opencode serve --port 4096", True),
        ("opencode --port=1 k=v serve", True),
        ("codex -c model=x app-server", True),
        ("codex exec hello", False),
        (GEMINI, False),
        (GEMINI + " --acp", True),
        ("python3 -m kimi_cli acp", True),
        ("python3 -m kimi_cli --print acp_", False),
    ],
)
def test_servers_of_agent_clis_host_many_conversations(line: str, shared: bool) -> None:
    process = entry(line)
    cli = harness_of(process)
    assert cli is not None
    assert is_shared(process, cli) is shared


@pytest.mark.parametrize(
    ("line", "shell"),
    [
        ("-bash", True),
        ("/usr/bin/zsh -i", True),
        ("/bin/sh ./script.sh", True),
        ("basher", False),
        ("python3 bash", False),
    ],
)
def test_a_shell_is_known_by_its_program(line: str, shell: bool) -> None:
    assert is_shell(entry(line)) is shell


def test_a_login_shell_called_after_su_is_a_shell_and_no_boundary() -> None:
    process = ProcessEntry(5, 1, 50, "bash", ("-su",))
    assert is_shell(process)
    assert not is_boundary(process)
    assert not is_shell(ProcessEntry(5, 1, 50, "su", ("-su",)))


def test_a_process_without_command_line_is_judged_by_its_comm() -> None:
    assert is_shell(ProcessEntry(5, 1, 50, "bash", ()))
    assert is_boundary(ProcessEntry(5, 1, 50, "sshd", ()))


@pytest.mark.parametrize(
    "line",
    ["tmux new-session", "SCREEN", "/usr/sbin/CRON -f", "/usr/lib/systemd/systemd --user", "su -"],
)
def test_boundaries_are_known_by_their_program(line: str) -> None:
    assert is_boundary(entry(line))


@pytest.mark.parametrize("title", ["sshd: me@pts/0", "sshd-session: me [priv]"])
def test_boundaries_are_known_by_the_title_they_gave_themselves(title: str) -> None:
    assert is_boundary(ProcessEntry(5, 1, 50, "sshd", (title,)))


# -- the walk -------------------------------------------------------------------------------------

Row = tuple[str, tuple[str, ...], tuple[KnownSession, ...], Claim, tuple[str, str, str, int | None]]

A, B = SessionKey("claude", "A"), SessionKey("claude", "B")
OTHER = SessionKey("codex", "other")
SERVED = SessionKey("opencode", "served")

WALKS: list[Row] = [
    ("a shell", (CALLER, "bash", "sshd"), (), None, ("shell", "899-8990", "shell", 899)),
    ("a script", (CALLER, "sh x.sh", "bash"), (), None, ("shell", "899-8990", "shell", 899)),
    ("bash in bash", (CALLER, "bash", "bash"), (), None, ("shell", "899-8990", "shell", 899)),
    ("a subshell", (CALLER, "&bash", "bash"), (), None, ("shell", "898-8980", "shell", 898)),
    (
        "a subshell in a subshell",
        (CALLER, "&bash", "&bash", "bash", "tmux"),
        (),
        None,
        ("shell", "897-8970", "shell", 897),
    ),
    ("maybe a subshell", (CALLER, "~bash", "bash"), (), None, ("shell", "898-8980", "shell", 898)),
    ("hardly one", (CALLER, "~bash -i", "bash"), (), None, ("shell", "899-8990", "shell", 899)),
    ("an orphan", (CALLER, "&bash", "/sbin/init"), (), None, ("shell", "899-8990", "shell", 899)),
    ("a shell on top", (CALLER, "bash"), (), None, ("shell", "899-8990", "shell", 899)),
    ("exec in place", (CALLER, "claude"), (), None, ("claude", "899-8990", "harness", 899)),
    ("the caller itself", ("claude",), (), None, ("claude", "900-9000", "harness", 900)),
    ("a label", (CALLER, "bash", "claude"), (), A, ("claude", "A", "harness", 898)),
    ("of another", (CALLER, "bash", "claude"), (), OTHER, ("claude", "898-8980", "harness", 898)),
    (
        "nested",
        (CALLER, "bash", "codex", "bash", "claude"),
        (),
        None,
        ("codex", "898-8980", "harness", 898),
    ),
    (
        "nested below a holder",
        (CALLER, "codex", "bash", "claude"),
        (known("claude", 897),),
        None,
        ("codex", "899-8990", "harness", 899),
    ),
    (
        "multiprocessing",
        (CALLER, "&python3 -m kimi_cli", "python3 -m kimi_cli", "bash"),
        (),
        None,
        ("kimi", "898-8980", "harness", 898),
    ),
    (
        "a forked daemon",
        (CALLER, "&python3 -m kimi_cli", "/sbin/init"),
        (),
        None,
        ("kimi", "899-8990", "harness", 899),
    ),
    ("two nodes", (CALLER, GEMINI, GEMINI), (), None, ("gemini", "899-8990", "harness", 899)),
    (
        "a held shell",
        (CALLER, "bash", "bash", "bash"),
        (known("shell", 898),),
        None,
        ("shell", "known", "holder", 898),
    ),
    (
        "a held agent CLI",
        (CALLER, "bash", "claude"),
        (known("claude", 898),),
        None,
        ("claude", "known", "holder", 898),
    ),
    (
        "a held agent CLI, cleared",
        (CALLER, "claude"),
        (known("claude", 899, "A"),),
        B,
        ("claude", "B", "holder", 899),
    ),
    (
        "a held shell that became an agent CLI",
        (CALLER, "claude"),
        (known("shell", 899),),
        B,
        ("shell", "known", "holder", 899),
    ),
    (
        "the newest of several",
        (CALLER, "claude"),
        (known("claude", 899, "A"), known("claude", 899, "B")),
        None,
        ("claude", "B", "holder", 899),
    ),
    (
        "a number used again",
        (CALLER, "bash", "claude"),
        (KnownSession(A, Process(899, 1, BOOT)),),
        None,
        ("claude", "898-8980", "harness", 898),
    ),
    (
        "of another boot",
        (CALLER, "bash", "tmux"),
        (known("shell", 899, boot="other"),),
        None,
        ("shell", "899-8990", "shell", 899),
    ),
    (
        "one conversation of many",
        (CALLER, "opencode serve"),
        (),
        SERVED,
        ("opencode", "served", "harness", 899),
    ),
    (
        "a known conversation of many",
        (CALLER, "opencode serve"),
        (known("opencode", 899, "served"), known("opencode", 899, "other")),
        SERVED,
        ("opencode", "served", "holder", 899),
    ),
    (
        "a new conversation beside known ones",
        (CALLER, "opencode serve"),
        (known("opencode", 899, "other"),),
        SERVED,
        ("opencode", "served", "harness", 899),
    ),
    ("mbx run", (CALLER, "mbx"), (known("run", 899),), None, ("run", "known", "run", 899)),
    (
        "the first agent CLI below mbx run",
        (CALLER, "bash", "claude", "bash", "mbx"),
        (known("run", 896),),
        A,
        ("run", "known", "run", 896),
    ),
    (
        "the second agent CLI below mbx run",
        (CALLER, "codex", "bash", "claude", "mbx"),
        (known("run", 896),),
        None,
        ("codex", "899-8990", "harness", 899),
    ),
    (
        "launcher and worker below mbx run",
        (CALLER, GEMINI, GEMINI, "mbx"),
        (known("run", 897),),
        None,
        ("run", "known", "run", 897),
    ),
    (
        "node above codex below mbx run",
        (CALLER, CODEX, CODEX_LAUNCHER, "mbx"),
        (known("run", 897),),
        None,
        ("run", "known", "run", 897),
    ),
    (
        "a launcher that holds a session",
        (CALLER, GEMINI, GEMINI, "mbx"),
        (known("run", 897), known("gemini", 898)),
        None,
        ("gemini", "899-8990", "harness", 899),
    ),
    (
        "codex in codex below mbx run",
        (CALLER, CODEX, CODEX, "mbx"),
        (known("run", 897),),
        None,
        ("codex", "899-8990", "harness", 899),
    ),
    (
        "a held shell between",
        (CALLER, "claude", "bash", "mbx"),
        (known("run", 897), known("shell", 898)),
        None,
        ("claude", "899-8990", "harness", 899),
    ),
    (
        "tmux between",
        (CALLER, "claude", "tmux", "mbx"),
        (known("run", 897),),
        None,
        ("claude", "899-8990", "harness", 899),
    ),
    (
        "mbx run in an agent CLI in mbx run",
        (CALLER, "mbx", "claude", "mbx"),
        (known("run", 899, "inner"), known("run", 897)),
        None,
        ("run", "inner", "run", 899),
    ),
    (
        "mbx run where a held shell was",
        (CALLER, "mbx"),
        (known("run", 899, "r"), known("shell", 899)),
        None,
        ("run", "r", "run", 899),
    ),
    (
        "an agent CLI below what cannot be read",
        (CALLER, "claude", "?"),
        (),
        None,
        ("claude", "899-8990", "harness", 899),
    ),
    (
        "mbx run itself",
        ("mbx", "claude"),
        (known("claude", 899),),
        "self",
        ("run", "900-9000", "run", 900),
    ),
]


@pytest.mark.parametrize(
    ("lines", "sessions", "claim", "wanted"),
    [row[1:] for row in WALKS],
    ids=[row[0] for row in WALKS],
)
def test_the_walk_finds_the_session_of(
    lines: tuple[str, ...],
    sessions: tuple[KnownSession, ...],
    claim: Claim,
    wanted: tuple[str, str, str, int | None],
) -> None:
    found = walked(*lines, sessions=sessions, claim=claim)
    assert found.verdict == "session"
    assert (found.cli, found.session_id, found.via, pid_of(found)) == wanted
    assert found.reason


@pytest.mark.parametrize(
    "lines",
    [
        (CALLER,),
        (CALLER, "cron"),
        (CALLER, "/sbin/init"),
        (CALLER, "sshd", "bash", "claude"),
        (CALLER, "vim claude.md", "tmux", "bash"),
    ],
)
def test_there_is_no_session_without_shell_and_agent_cli(lines: tuple[str, ...]) -> None:
    found = walked(*lines)
    assert (found.verdict, found.cli, found.process) == ("none", "", None)
    assert "neither" in found.reason


def test_an_id_that_nothing_above_confirms_proves_nothing() -> None:
    assert walked(CALLER, "cron", sessions=(known("claude", 5, "A"),), claim=A).verdict == "none"


@pytest.mark.parametrize("claim", [None, OTHER])
@pytest.mark.parametrize("sessions", [(), (known("opencode", 899, "served"),)])
def test_a_shared_process_needs_the_id_of_the_conversation(
    claim: Claim, sessions: tuple[KnownSession, ...]
) -> None:
    found = walked(CALLER, "opencode serve", sessions=sessions, claim=claim)
    assert (found.verdict, found.cli, found.process) == ("none", "opencode", None)
    assert "many conversations" in found.reason
    told = walked(CALLER, "opencode serve", sessions=sessions, claim=SERVED)
    ticketed = chosen(found.undecided or Process(0, 0, ""), SERVED)
    assert replace(told, via="harness", reason="") == replace(ticketed, reason="")


def test_only_a_shared_process_has_conversations() -> None:
    assert walked(CALLER, "opencode serve", claim=SERVED).conversation == "served"
    assert walked(CALLER, "claude", claim=A).conversation == ""


def test_a_shell_as_pid_1_is_no_fallback_but_an_agent_cli_there_is_found() -> None:
    caller = entry(CALLER, 7)
    assert find_session([caller, entry("bash", 1)], (), None, BOOT).verdict == "none"
    assert find_session([caller, entry("claude", 1)], (), None, BOOT).cli == "claude"
    below_run = [caller, entry("claude", 5), entry("mbx", 1)]
    assert find_session(below_run, (known("run", 1),), None, BOOT).cli == "run"


def test_a_pid_1_that_cannot_be_read_hides_nothing() -> None:
    shell: list[ProcessEntry | Unreadable] = [entry(CALLER, 7), entry("bash", 6), Unreadable(1)]
    assert pid_of(find_session(shell, (), None, BOOT)) == 6


@pytest.mark.parametrize("claim", [None, "self"])
@pytest.mark.parametrize("lines", [(), ("?",), ("?", "claude")])
def test_a_caller_that_the_kernel_does_not_name_is_unknown(
    lines: tuple[str, ...], claim: Claim
) -> None:
    found = walked(*lines, claim=claim)
    assert (found.verdict, found.process) == ("unknown", None)


@pytest.mark.parametrize("lines", [(CALLER, "?"), (CALLER, "bash", "?"), (CALLER, "&bash", "?")])
def test_an_unreadable_ancestor_before_a_decision_is_unknown(lines: tuple[str, ...]) -> None:
    found = walked(*lines)
    assert found.verdict == "unknown"
    assert "cannot be read" in found.reason


# -- properties -----------------------------------------------------------------------------------

PROGRAMS = sorted({"vim", "python3 x.py", "node app.js", "make", CALLER, *SHELLS, *BOUNDARIES})
AGENTS = ["claude", CODEX, CODEX_LAUNCHER, GEMINI, "opencode", "kimi-code", "qwen"]
lines_strategy = st.lists(st.sampled_from(PROGRAMS + AGENTS + ["&bash", "~sh"]), max_size=12)
claims: st.SearchStrategy[Claim] = st.sampled_from([None, A, OTHER, SERVED])


@given(below=lines_strategy, above=lines_strategy, claim=claims)
def test_a_walk_never_gets_past_a_known_holder(
    below: list[str], above: list[str], claim: Claim
) -> None:
    read: list[ProcessEntry | Unreadable] = []

    def reading() -> Iterator[ProcessEntry | Unreadable]:
        for one in chain(*below, "bash", *above):
            read.append(one)
            yield one

    found = find_session(reading(), (known("shell", 900 - len(below)),), claim, BOOT)
    # One more is read where a launcher could stand; nothing above the holder is ever chosen.
    assert len(read) <= len(below) + 2
    if found.process is not None:
        assert found.process.pid >= 900 - len(below)


@given(lines=lines_strategy, claim=claims)
def test_without_known_sessions_the_nearest_agent_cli_below_the_boundary_decides(
    lines: list[str], claim: Claim
) -> None:
    entries = [one for one in chain(*lines) if isinstance(one, ProcessEntry)]
    top = next((i for i, one in enumerate(entries) if is_boundary(one)), len(entries))
    nearest = next((one for one in entries[:top] if harness_of(one)), None)
    found = find_session(entries, (), claim, BOOT)
    if not entries:
        assert found.verdict == "unknown"
    elif nearest is not None:
        assert (pid_of(found), found.via) == (nearest.pid, "harness")
    elif any(is_shell(one) for one in entries[:top]):
        assert found.via == "shell"
    else:
        assert found.verdict == "none"


@given(
    program=st.sampled_from(["vim", "less", "bash", "mbx", "/usr/bin/env", "tail", "sudo", "git"]),
    words=st.lists(
        st.sampled_from([*HARNESSES, "claude.md", "/x/.bin/gemini", "cli.js", "-m", "--", "codex"])
    ),
)
def test_words_that_mention_an_agent_cli_are_ignored(program: str, words: list[str]) -> None:
    assert harness_of(ProcessEntry(5, 1, 50, "claude", (program, *words))) is None


@given(argv=st.lists(st.text(max_size=8), max_size=6), comm=st.text(max_size=15))
def test_any_command_line_is_judged_without_failing(argv: list[str], comm: str) -> None:
    strange = [
        ProcessEntry(900, 1, 9000, comm, (*first, *argv)) for first in ((), ("node",), ("python",))
    ]
    for one in strange:
        assert find_session([one], (), None, BOOT).verdict in ("session", "none")


# -- life and death -------------------------------------------------------------------------------

HOLDER = Process(900, 9000, BOOT)
ALIVE = entry("bash", 900)
ZOMBIE = ProcessEntry(900, 1, 9000, "bash", (), zombie=True)


@pytest.mark.parametrize(
    ("process", "found", "boot", "verdict"),
    [
        (HOLDER, ALIVE, BOOT, "live"),
        (HOLDER, None, BOOT, "dead"),
        (HOLDER, ZOMBIE, BOOT, "dead"),
        (Process(900, 8999, BOOT), ALIVE, BOOT, "dead"),
        (HOLDER, ALIVE, "another-boot", "dead"),
        (HOLDER, Unreadable(900), "another-boot", "dead"),
        (HOLDER, Unreadable(900), BOOT, "unknown"),
        (HOLDER, None, BOOT + "+pid:[4026532001]", "unknown"),
        (Process(900, 9000, BOOT + "+pid:[4026532001]"), None, BOOT, "unknown"),
        (Process(900, 9000, BOOT + "+n"), ALIVE, BOOT + "+n", "live"),
        (Process(0, 9000, BOOT), None, BOOT, "unknown"),
        (Process(-1, 9000, BOOT), None, BOOT, "unknown"),
        (Process(PID_MAX, 1, BOOT), None, BOOT, "dead"),
        (Process(PID_MAX + 1, 1, BOOT), None, BOOT, "unknown"),
    ],
)
def test_only_proof_makes_a_holder_live_or_dead(
    process: Process, found: ProcessEntry | Unreadable | None, boot: str, verdict: str
) -> None:
    assert judge(process, found, boot) == verdict
