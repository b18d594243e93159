"""Whose session a calling process belongs to, and whether a holder is alive: pure rules.

The daemon reads process entries (`mbx.daemon.processes`); this module decides what they mean. How
agent CLIs look as processes was measured on the real programs; a comm alone is not enough (node
calls itself ``MainThread``), nor is a word anywhere in the command line (an editor on a file named
``claude.md`` is no agent), so only the base name of the program, or of the script that an
interpreter runs, counts.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from types import MappingProxyType
from typing import Final, Literal

Evidence = Literal["live", "dead", "unknown"]
Verdict = Literal["session", "none", "unknown"]
Via = Literal["holder", "harness", "shell", "run", "token", ""]

PID_MAX: Final = 2**22
"""The kernel's own upper limit of process numbers (PID_MAX_LIMIT, proc(5))."""

_OWN_DIGITS: Final = 12
"""48 bits: told apart within one process only."""

RUN: Final = "run"
SHELL: Final = "shell"


@dataclass(frozen=True, slots=True)
class Process:
    """One process for ever: its number, its start in clock ticks after boot, and `boot_id`.

    `boot_id` is the kernel's id of the boot; where the numbers are those of a pid namespace other
    than the first, ``+`` and the namespace follow: equal numbers there mean other processes.
    """

    pid: int
    start_ticks: int
    boot_id: str


@dataclass(frozen=True, slots=True)
class ProcessEntry:
    """What the kernel says about one process now. A zombie has ended and waits for its parent.

    `forked`: forked and never executed a program since (PF_FORKNOEXEC); None where it is not known.
    `tty`: the number of its controlling terminal, 0 where it has none.
    """

    pid: int
    ppid: int
    start_ticks: int
    comm: str
    argv: tuple[str, ...]
    forked: bool | None = None
    zombie: bool = False
    tty: int = 0


@dataclass(frozen=True, slots=True)
class Unreadable:
    """Stands in a chain for a process that exists, or existed a moment ago, and cannot be read.

    `is_too_far`: nobody tried, since more processes lie below it than are looked at.
    """

    pid: int
    is_too_far: bool = False


@dataclass(frozen=True, slots=True)
class SessionKey:
    """The name of a session: which agent CLI (or ``shell``, ``run``), and its id there."""

    cli: str
    id: str


@dataclass(frozen=True, slots=True)
class KnownSession:
    """A session that the daemon has met, with its holder process."""

    key: SessionKey
    process: Process


Claim = SessionKey | Literal["self"] | None
"""What a caller says of itself: a conversation's key, ``self`` (it is `mbx run`), or nothing."""


@dataclass(frozen=True, slots=True)
class Lineage:
    """The outcome of the walk.

    ``session``: `cli`, `session_id` and the holder `process` are set, `via` says what decided;
    ``shell`` is good for register and claim only. A `shared` process hosts many conversations and
    `session_id` tells them apart; in any other the process decides and the id is a label.
    ``none``: there is no session; `undecided` is then the shared process of whose conversations the
    call named none. ``unknown``: cannot say. `reason` is a constant sentence.
    """

    verdict: Verdict
    cli: str = ""
    session_id: str = ""
    process: Process | None = None
    via: Via = ""
    shared: bool = False
    reason: str = ""
    undecided: Process | None = None

    @property
    def conversation(self) -> str:
        """What tells sessions of one process apart: the session id if shared, else nothing."""
        return self.session_id if self.shared else ""


@dataclass(frozen=True, slots=True)
class Harness:
    """How the processes of one agent CLI look.

    `names`: base names of the program or script. `packages`: folders whose generic scripts
    (``cli.js``, ``index.js``) are this client. `launcher`: an interpreter of the same name may stay
    directly above the process that works. `shared_by`: first words and flags that make one process
    host many conversations.
    """

    names: frozenset[str]
    packages: frozenset[str] = frozenset()
    launcher: bool = False
    shared_by: frozenset[str] = frozenset()


def _harness(names: str, packages: str, shared_by: str = "", *, launcher: bool = True) -> Harness:
    return Harness(
        frozenset(names.split()),
        frozenset(packages.split()),
        launcher,
        frozenset(shared_by.split()),
    )


HARNESSES: Final[Mapping[str, Harness]] = MappingProxyType(
    {
        "claude": _harness("claude claude.exe", "claude-code", launcher=False),
        "codex": _harness("codex", "@openai/codex", "app-server mcp-server"),
        "opencode": _harness("opencode", "opencode-ai", "serve web acp"),
        "gemini": _harness("gemini", "gemini-cli", "--acp --experimental-acp"),
        "kimi": _harness("kimi kimi-code kimi-cli", "kimi-code kimi-cli", "web acp"),
        "qwen": _harness("qwen qwen-code", "qwen-code", "--acp --experimental-acp"),
        "copilot": _harness("copilot", "@github/copilot", "--acp --server"),
    }
)
"""Agent CLI -> its looks. Names and launchers were measured, shared forms are the clients' help."""

SHELLS: Final = frozenset("sh bash rbash dash zsh fish ksh ksh93 mksh ash csh tcsh".split())
BOUNDARIES: Final = frozenset(
    "tmux screen zellij login sshd sshd-session su sudo cron crond systemd init".split()
)
"""Programs above which no session is looked for; compared in lower case (a child of cron: CRON)."""

_BY_NAME: Final = {name: cli for cli, harness in HARNESSES.items() for name in harness.names}
_BY_TITLE: Final = {"Kimi Code": "kimi"}
"""What kimi-cli, below a Python, calls itself: of other titles the first word is the name."""
_BY_PACKAGE: Final = {name: cli for cli, looks in HARNESSES.items() for name in looks.packages}

_INTERPRETER = re.compile(r"(node|nodejs|bun|deno|python|pypy)[0-9.]*")
_SCRIPT = re.compile(r"(.+)\.(?:js|mjs|cjs|ts|py)")
_GENERIC_SCRIPTS: Final = frozenset(("cli", "index", "main"))
_INNER_FOLDERS: Final = frozenset(("bin", "bundle", "build", "dist", "lib", "src"))
_RUN_WORDS: Final = frozenset(("run", "x"))
"""``bun run SCRIPT``, ``deno run SCRIPT``, ``bun x SCRIPT``."""
_CODE_OPTIONS: Final = frozenset(("-e", "--eval", "-p", "--print", "-pe", "-"))
"""After these an interpreter of JavaScript runs code that is in no file, or comes from stdin."""
_VALUE_OPTIONS: Final = frozenset(
    "-r --require --import --loader --experimental-loader -C --conditions --env-file".split()
)

_NO_PROCESS: Final = "the kernel does not name the calling process, or it has ended"
_UNREADABLE: Final = "the entry of an ancestor of the calling process cannot be read"
_TOO_FAR: Final = "the calling process has more ancestors than are looked at"
_NOTHING_ABOVE: Final = "neither a known session, an agent CLI nor a shell is above the caller"
_HOLDER: Final = "the process of a known session is the caller or above it"
_HARNESS: Final = "an agent CLI is the caller or the nearest one above it"
_CONVERSATION: Final = "the call names one of the conversations of a shared agent CLI process"
_NEEDS_ID: Final = "this agent CLI process hosts many conversations and the call names none of them"
_TICKET: Final = "a bind ticket named one of the conversations of a shared agent CLI process"
_RUN_ABOVE: Final = "the caller belongs to the mbx run above it"
_RUN_ITSELF: Final = "the caller is mbx run"
_SHELL_ABOVE: Final = (
    "the nearest shell, since no known session and no agent CLI is above the caller"
)


# -- what a process is ----------------------------------------------------------------------------


def harness_of(entry: ProcessEntry) -> str | None:
    """The agent CLI (a key of `HARNESSES`) that this process is, or None."""
    if not entry.argv:
        return None
    program = _program(entry.argv[0])
    if not _INTERPRETER.fullmatch(program):
        return _BY_TITLE.get(entry.argv[0]) or _BY_NAME.get(program)
    script, _ = _script(program, entry.argv)
    return _harness_of_script(script)


def is_shared(entry: ProcessEntry, cli: str) -> bool:
    """Whether this process of the agent CLI `cli` hosts many conversations."""
    shared_by = HARNESSES[cli].shared_by
    program = _program(entry.argv[0]) if entry.argv else ""
    arguments = entry.argv[1:]
    if _INTERPRETER.fullmatch(program):
        _, arguments = _script(program, entry.argv)
    words = (word for word in arguments if not word.startswith("-") and "=" not in word)
    return next(words, "") in shared_by or any(
        word in shared_by for word in arguments if word.startswith("-")
    )


def is_run(entry: ProcessEntry) -> bool:
    """Whether this process is `mbx run`.

    It is a session of its own also when its identity was released: what runs below it never falls
    to a holder further up.
    """
    if not entry.argv:
        return False
    program, arguments = _program(entry.argv[0]), entry.argv[1:]
    if _INTERPRETER.fullmatch(program):
        script, arguments = _script(program, entry.argv)
        program = _program(script)
    return program == "mbx" and arguments[:1] == ("run",)


def is_shell(entry: ProcessEntry) -> bool:
    """Whether this process is a shell. Login shells are called ``-bash``, or ``-su`` by su."""
    program = _program(entry.argv[0]) if entry.argv else entry.comm
    return program.removeprefix("-") in SHELLS or (program[:1] == "-" and entry.comm in SHELLS)


def is_boundary(entry: ProcessEntry) -> bool:
    """Whether no session is looked for from this process upwards."""
    program = _program(entry.argv[0]) if entry.argv else entry.comm
    return program.lower() in BOUNDARIES


def _program(argv0: str) -> str:
    """The base name of ``argv[0]``; of a title that a process gave itself, the first word."""
    word, space, _ = argv0.partition(" ")
    if space and "/" not in word:
        return word.removesuffix(":")
    return argv0.rpartition("/")[2]


def _script(program: str, argv: tuple[str, ...]) -> tuple[str, tuple[str, ...]]:
    """The script an interpreter runs (``""``: none; a ``-m`` module: its name) and what follows."""
    if program.startswith("py"):
        return _python_script(argv)
    position = 1
    while position < len(argv):
        word = argv[position]
        if word in _CODE_OPTIONS:
            break
        if word in _VALUE_OPTIONS:
            position += 2
        elif word.startswith("-") or (word in _RUN_WORDS and program[:4] != "node"):
            position += 1
        else:
            return word, argv[position + 1 :]
    return "", ()


def _python_script(argv: tuple[str, ...]) -> tuple[str, tuple[str, ...]]:
    """As `_script`, for the options of python, which may be written together (``-Im module``)."""
    position = 1
    while position < len(argv):
        word = argv[position]
        position += 1
        if word[:1] != "-":
            return word, argv[position:]
        option = "" if word[:2] == "--" else re.sub(r"^-[^cmWX]*", "", word)
        if option[:1] == "c" or word == "-":  # code in the command line, or from stdin
            break
        if len(option) == 1:  # the value is the next word
            option += argv[position] if position < len(argv) else ""
            position += 1
        if option[:1] == "m":
            return option[1:].partition(".")[0].replace("_", "-"), argv[position:]
    return "", ()


def _harness_of_script(path: str) -> str | None:
    folder, _, base = path.rpartition("/")
    if base in _BY_NAME:
        return _BY_NAME[base]
    match = _SCRIPT.fullmatch(base)
    if match is None or not (match[1] in _GENERIC_SCRIPTS or match[1] in _BY_NAME):
        return None
    parts = folder.split("/")
    while parts and parts[-1] in _INNER_FOLDERS:
        parts.pop()
    package = parts[-1] if parts else ""
    scoped = "/".join(parts[-2:])
    found = _BY_PACKAGE.get(scoped) or _BY_PACKAGE.get(package)
    return found or (_BY_NAME.get(package) if match[1] == "cli" else None)


# -- the walk -------------------------------------------------------------------------------------


class _Climb:
    """Stands on one entry of a chain and reads no further up than it is asked to."""

    def __init__(self, chain: Iterable[ProcessEntry | Unreadable]) -> None:
        self._rest = iter(chain)
        self._read: list[ProcessEntry | Unreadable | None] = []
        self.entry = next(self._rest, None)

    def parent(self) -> ProcessEntry | Unreadable | None:
        """The entry above, without going there; None at the end."""
        if not self._read:
            self._read.append(next(self._rest, None))
        return self._read[0]

    def up(self) -> None:
        """Go to the entry above."""
        self.entry = self.parent()
        self._read.clear()


def find_session(
    chain: Iterable[ProcessEntry | Unreadable],
    known: Iterable[KnownSession],
    claim: Claim,
    boot_id: str,
) -> Lineage:
    """The session of the process at the head of `chain` (itself, its parent, and so on).

    Read lazily; an `Unreadable` ends it. It stops at the first process that holds a known session
    or is an agent CLI; the nearest shell below pid 1 and `BOUNDARIES` is the fallback. `claim`
    chooses among the conversations of a shared process and labels others; it never skips a step.
    """
    climb = _Climb(chain)
    caller = climb.entry
    if not isinstance(caller, ProcessEntry):
        return Lineage("unknown", reason=_NO_PROCESS)
    if claim == "self":
        process = _process(caller, boot_id)
        return Lineage("session", RUN, own_id(process), process, "run", reason=_RUN_ITSELF)
    holders = _Holders(known, boot_id)
    shell: ProcessEntry | None = None
    while isinstance(entry := climb.entry, ProcessEntry):
        if held := holders.of(entry):
            return _of_holder(entry, held, claim)
        if is_run(entry):
            return _of_run(entry, boot_id)
        cli = harness_of(entry)
        if cli is not None and not _is_fork_of_harness(entry, climb.parent(), cli):
            return _of_run_above(climb, cli, holders, boot_id) or _of_harness(
                entry, cli, claim, boot_id
            )
        if _is_top(entry):
            break
        if shell is None and is_shell(entry) and not _is_subshell(entry, climb.parent()):
            shell = entry
        climb.up()
    if isinstance(entry, Unreadable) and entry.is_too_far:
        # Not unknown: any caller can put processes above itself, and then a token would count.
        return Lineage("none", reason=_TOO_FAR)
    if isinstance(entry, Unreadable) and entry.pid != 1:
        return Lineage("unknown", reason=_UNREADABLE)
    return _of_shell(shell, boot_id)


def _process(entry: ProcessEntry, boot_id: str) -> Process:
    return Process(entry.pid, entry.start_ticks, boot_id)


def own_id(process: Process, conversation: str = "") -> str:
    """The session id that no other process has: PID-STARTTICKS.

    Of one of many conversations of a process, ``-`` and 12 hex digits of its SHA-256 follow: the
    ids of two processes may be equal, and one may be as long as an id can be.
    """
    own = f"{process.pid}-{process.start_ticks}"
    if not conversation:
        return own
    return f"{own}-{sha256(conversation.encode()).hexdigest()[:_OWN_DIGITS]}"


class _Holders:
    """Known sessions by their holder's number: built for each walk, so it costs little."""

    def __init__(self, known: Iterable[KnownSession], boot_id: str) -> None:
        self._boot_id = boot_id
        self._by_pid: dict[int, list[KnownSession]] = {}
        for session in known:
            self._by_pid.setdefault(session.process.pid, []).append(session)

    def of(self, entry: ProcessEntry) -> list[KnownSession]:
        """The sessions of exactly this process."""
        sessions = self._by_pid.get(entry.pid)
        if sessions is None:
            return []
        process = _process(entry, self._boot_id)
        return [session for session in sessions if session.process == process]


def _is_top(entry: ProcessEntry) -> bool:
    """Pid 1 may be an agent CLI or a holder (containers), but as a shell it adopts strangers."""
    return entry.pid == 1 or is_boundary(entry)


def _is_subshell(entry: ProcessEntry, parent: ProcessEntry | Unreadable | None) -> bool:
    """A shell forked by its parent shell for ``( … )``, ``$(…)``, a pipe or ``&``.

    A ``bash`` typed in ``bash`` has the same command line, but executed a program: it is a shell of
    its own. Where the kernel's flag is not known the command line must do. A subshell that outlived
    its parent is nobody's any more and counts as a shell.
    """
    if not isinstance(parent, ProcessEntry) or not is_shell(parent):
        return False
    return entry.argv == parent.argv if entry.forked is None else entry.forked


def _is_fork_of_harness(
    entry: ProcessEntry, parent: ProcessEntry | Unreadable | None, cli: str
) -> bool:
    """A copy that an agent CLI made of itself by fork, as multiprocessing does, is part of it."""
    return entry.forked is True and isinstance(parent, ProcessEntry) and harness_of(parent) == cli


def _of_holder(entry: ProcessEntry, held: list[KnownSession], claim: Claim) -> Lineage:
    """The session of a known holder; `run` first, else the newest that the daemon named."""
    session = next((one for one in held if one.key.cli == RUN), held[-1])
    key, process = session.key, session.process
    if key.cli == RUN:
        return Lineage("session", RUN, key.id, process, "run", reason=_RUN_ABOVE)
    if key.cli not in HARNESSES:
        return Lineage("session", key.cli, key.id, process, "holder", reason=_HOLDER)
    if is_shared(entry, key.cli):
        via: Via = "holder" if any(one.key == claim for one in held) else "harness"
        return _conversation(key.cli, process, claim, via)
    label = claim.id if isinstance(claim, SessionKey) and claim.cli == key.cli else key.id
    return Lineage("session", key.cli, label, process, "holder", reason=_HOLDER)


def _of_harness(entry: ProcessEntry, cli: str, claim: Claim, boot_id: str) -> Lineage:
    process = _process(entry, boot_id)
    if is_shared(entry, cli):
        return _conversation(cli, process, claim, "harness")
    label = claim.id if isinstance(claim, SessionKey) and claim.cli == cli else own_id(process)
    return Lineage("session", cli, label, process, "harness", reason=_HARNESS)


def _conversation(cli: str, process: Process, claim: Claim, via: Via) -> Lineage:
    """In a shared process the claimed id is the session; without one there is none."""
    if isinstance(claim, SessionKey) and claim.cli == cli:
        return Lineage("session", cli, claim.id, process, via, shared=True, reason=_CONVERSATION)
    return Lineage("none", cli, reason=_NEEDS_ID, undecided=process)


def chosen(process: Process, key: SessionKey) -> Lineage:
    """The conversation `key` of the shared `process`, where a ticket and not the call names it."""
    return Lineage("session", key.cli, key.id, process, "harness", shared=True, reason=_TICKET)


def _of_run(entry: ProcessEntry, boot_id: str) -> Lineage:
    process = _process(entry, boot_id)
    return Lineage("session", RUN, own_id(process), process, "run", reason=_RUN_ABOVE)


def _of_run_above(climb: _Climb, cli: str, holders: _Holders, boot_id: str) -> Lineage | None:
    """The run session that the agent CLI under `climb` is the first one below, or None.

    A launcher of the same client directly above it (node above codex, node above node) is a part of
    that client. What cannot be read here changes nothing: the agent CLI itself was found.
    """
    climb.up()
    if HARNESSES[cli].launcher and _is_launcher(climb.entry, cli, holders):
        climb.up()
    while isinstance(entry := climb.entry, ProcessEntry):
        if held := holders.of(entry):
            run = next((one for one in held if one.key.cli == RUN), None)
            return _of_holder(entry, [run], None) if run is not None else None
        if is_run(entry):
            return _of_run(entry, boot_id)
        if harness_of(entry) is not None or _is_top(entry):
            return None
        climb.up()
    return None


def _is_launcher(entry: ProcessEntry | Unreadable | None, cli: str, holders: _Holders) -> bool:
    return (
        isinstance(entry, ProcessEntry)
        and not holders.of(entry)
        and harness_of(entry) == cli
        and _INTERPRETER.fullmatch(_program(entry.argv[0])) is not None
    )


def _of_shell(shell: ProcessEntry | None, boot_id: str) -> Lineage:
    if shell is None:
        return Lineage("none", reason=_NOTHING_ABOVE)
    process = _process(shell, boot_id)
    return Lineage("session", SHELL, own_id(process), process, "shell", reason=_SHELL_ABOVE)


# -- life and death -------------------------------------------------------------------------------


def judge(process: Process, entry: ProcessEntry | Unreadable | None, boot_id: str) -> Evidence:
    """Whether `process` is alive, from the `entry` now read for its number (None: there is none).

    Another boot, no entry, another start or a zombie: dead. An unreadable entry, another pid
    namespace or a number that no process can have: unknown, which is neither death nor permission.
    """
    if not is_same_boot(process.boot_id, boot_id):
        return "dead"
    if process.boot_id != boot_id or not is_process_number(process.pid):
        return "unknown"
    if isinstance(entry, Unreadable):
        return "unknown"
    if entry is None or entry.zombie or entry.start_ticks != process.start_ticks:
        return "dead"
    return "live"


def is_same_boot(one: str, other: str) -> bool:
    """Whether two boot ids are of one boot, in whatever pid namespaces."""
    return one.partition("+")[0] == other.partition("+")[0]


def is_process_number(pid: int) -> bool:
    """Whether `pid` can be the number of a process: a stored one may be nonsense."""
    return 0 < pid <= PID_MAX
