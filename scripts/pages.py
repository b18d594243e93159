"""The generated parts of the documents, as Markdown."""

import ast
import json
import re
import tokenize
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final

from mbx.core import limits
from mbx.core.clients import ACTS, CLIENTS, FORMS, WAITS_AS, Client
from mbx.core.errors import EXIT_STATUS
from mbx.core.frames import (
    BYES,
    PROTOCOL,
    VERSION_MISMATCH,
    Bye,
    Frame,
    Hello,
    No,
    Ok,
    Put,
    Withdrawal,
    encode,
)
from mbx.core.pairing_code import RANDOM_BYTES, PairingCode
from mbx.core.record import Record
from mbx.core.streams import Incoming, Outgoing, StreamState
from mbx.daemon.gate import Access
from mbx.daemon.methods import METHODS
from mbx.daemon.methods.table import Method
from mbx.daemon.params import Params
from mbx.hooks.scripts import hook_command, statusline_command
from mbx.paths import Paths
from mbx.store.database import PRAGMAS
from mbx.store.migrate import migrations
from scripts.recordings import Exchange, Recording, record
from scripts.transcripts import transcript

_WIDTH: Final = 100


@cache
def _recorded() -> Recording:
    return record()


# -- README ----------------------------------------------------------------------------------------


def readme_transcript() -> str:
    """Two shells in turn, each turn a block."""
    blocks: list[tuple[str, list[str]]] = []
    for typed in transcript():
        if not blocks or blocks[-1][0] != typed.shell:
            blocks.append((typed.shell, []))
        blocks[-1][1].append(f"$ {typed.command}\n{typed.output.rstrip()}")
    return "\n\n".join(
        f"In {shell}'s shell:\n\n```console\n" + "\n".join(lines) + "\n```"
        for shell, lines in blocks
    )


# -- the local protocol ----------------------------------------------------------------------------

_SAMPLES: Final[Mapping[str, object]] = {
    "id": "0" * limits.ID_CHARS,
    "ids": ["0" * limits.ID_CHARS],
    "reply_to": "0" * limits.ID_CHARS,
    "to": "ana",
    "query": "port 8081",
    "from": "ana",
    "name": "ana",
    "role": "backend",
    "subject": "Port",
    "body": "",
    "did": "moved",
    "mailbox": "ana",
    "record": {"kind": "policy", "payload": "", "signatures": {"": ""}},
    "address": "desk.local",
    "code": PairingCode.from_random(bytes(RANDOM_BYTES)).shown(),
    "run": "0" * limits.ID_CHARS,
    "pairing": "0" * limits.ID_CHARS,
    "enrolment": {"kind": "rotate", "payload": "", "signatures": {"": ""}},
    "peer": {"kind": "peer", "payload": "", "signatures": {"": ""}},
}
"""Values that readers accept; parameters that are not here are left out."""


class AskedParams(Params):
    """Parameters that write down what a method's reader asks for."""

    def __init__(self) -> None:
        super().__init__(_SAMPLES)
        self.asked: dict[str, str] = {}

    def string(self, name: str) -> str:
        """A required string."""
        self.asked[name] = "string, required"
        return super().string(name)

    def optional_string(self, name: str) -> str | None:
        """A string that may be left out."""
        self.asked.setdefault(name, "string")
        return super().optional_string(name)

    def boolean(self, name: str) -> bool:
        """True or false."""
        self.asked[name] = "boolean, false by default"
        return super().boolean(name)

    def integer(self, name: str, default: int, low: int, high: int) -> int:
        """A whole number."""
        self.asked[name] = f"integer from {low:,} to {high:,}, {default:,} by default"
        return super().integer(name, default, low, high)

    def strings(self, name: str, most: int, *, required: bool = False) -> tuple[str, ...]:
        """A list of strings."""
        least = "1" if required else "0"
        self.asked[name] = f"string, or a list of {least} to {most:,} of them"
        self.asked[name] += ", required" if required else ""
        return super().strings(name, most, required=required)

    def mapping(self, name: str, fields: Sequence[str]) -> Mapping[str, object]:
        """An object with named fields."""
        self.asked[name] = f"object with {', '.join(fields)}, required"
        return super().mapping(name, fields)

    def choice(self, name: str, choices: Collection[str]) -> str | None:
        """One word of a few."""
        words = " ".join(f"`{word}`" for word in sorted(choices))
        self.asked[name] = f"one of {words}"
        super().choice(name, choices)
        return min(choices)


def parameters_of(method: Method[Any, Any]) -> dict[str, str]:
    """Parameter -> what it may be, as the method's own reader asks for it."""
    asked = AskedParams()
    method.read(asked)
    if method.keyed:
        asked.asked["key"] = (
            f"idempotency key, 1 to {limits.IDEMPOTENCY_KEY_MAX_CHARS} printable ASCII characters"
        )
    return asked.asked


_ACCESS: Final = {
    Access.OPEN: "anybody",
    Access.SESSION: "a caller with a session",
    Access.LEASE: "a caller that holds an identity",
    Access.OWNER_TERMINAL: "the owner's terminal",
}


def protocol_table() -> str:
    """All methods in one table."""
    rows = [
        (f"[`{name}`](#{name.replace('.', '')})", _ACCESS[method.access], method.summary)
        for name, method in METHODS.items()
    ]
    return _table(("method", "for", "what it does"), rows)


def protocol_hello() -> str:
    """The first exchange of a connection."""
    return "\n\n".join(_shown(one) for one in _recorded().exchanges["hello"])


def protocol_methods() -> str:
    """Every method: access, parameters, examples."""
    return "\n\n".join(_section(method) for method in METHODS.values())


def _section(method: Method[Any, Any]) -> str:
    facts = [f"For {_ACCESS[method.access]}."]
    if method.writes:
        facts.append("Runs in the group commit.")
    if method.across_versions:
        facts.append("Served across protocol versions.")
    parameters = parameters_of(method)
    parts = [f"### {method.name}", method.summary, " ".join(facts)]
    if parameters:
        rows = [(f"`{name}`", what) for name, what in parameters.items()]
        parts.append(_table(("parameter", "may be"), rows))
    else:
        parts.append("No parameters.")
    parts += [_shown(one) for one in _recorded().exchanges[method.name]]
    return "\n\n".join(parts)


def _shown(exchange: Exchange) -> str:
    return (
        f"```json\n{_compact(exchange.request)}\n```\n\n```json\n{_compact(exchange.answer)}\n```"
    )


def _compact(value: Any, indent: int = 0) -> str:
    """JSON in which whatever fits into a line stands in one."""
    line = json.dumps(value, ensure_ascii=False)
    if len(line) + indent <= _WIDTH - 4 or not isinstance(value, dict | list) or not value:
        return line
    pad, end = " " * (indent + 2), " " * indent
    if isinstance(value, list):
        items = [f"{pad}{_compact(one, indent + 2)}" for one in value]
        return "[\n" + ",\n".join(items) + f"\n{end}]"
    items = [f"{pad}{json.dumps(key)}: {_compact(one, indent + 2)}" for key, one in value.items()]
    return "{\n" + ",\n".join(items) + f"\n{end}}}"


_MEANINGS: Final = {
    "usage": "The call is malformed: a parameter is missing, unknown, or of the wrong type.",
    "not-found": "No message of the caller has that id.",
    "unknown-identity": "No identity has that name; close names are suggested.",
    "unknown-recipient": "An address reaches nobody; nothing was sent.",
    "ambiguous": "The prefix of an id fits several messages; they are listed.",
    "no-lease": "The caller holds no identity, or has no session that could.",
    "lease-lost": "The caller held the identity; it has ended, or somebody else holds it now.",
    "lease-foreign": "A token was sent from another session than the one that it belongs to.",
    "daemon-unreachable": "No daemon answers, and none could be started.",
    "sandboxed": "The system forbids the caller the daemon's socket.",
    "version-mismatch": "Caller and daemon, or daemon and store, are of different versions.",
    "outcome-unknown": "The request was written and its answer was lost; repeat it with its key.",
    "in-use": "A live session holds the identity.",
    "name-taken": "The name exists, or one that looks like it.",
    "name-invalid": "The name breaks the rules of names.",
    "body-too-large": "The body is over its limit.",
    "text-invalid": "A text field is over its limit or holds a character that is refused there.",
    "too-many": "A list or a line is too long.",
    "idempotency-conflict": "The key was used before, for another request.",
    "closed": "The identity is retired, or a pairing is over.",
    "conflict": "The session holds another identity, or a cursor belongs to another list.",
    "policy-denied": "No policy of the owner's lets it be passed on any further.",
    "owner-required": "It needs the owner's terminal or signature, and there is none.",
    "owner-locked": "The owner's key cannot be opened: three wrong passphrases, or a changed file.",
    "not-paired": "No paired host has that label, or the pairing with it has ended.",
    "peer-refused": "The other host of a pairing refused it, or does not answer.",
    "queue-full": "The queue for a paired host is full; nothing was sent.",
    "disk-full": "The disk is full; nothing was stored, reading goes on.",
    "store-damaged": "The store or the host key cannot be used; it was left as it is.",
    "rate-limited": "Too many connections, or the index of words is too far behind for a search.",
    "internal": "A defect of the daemon; the call changed nothing, the log says more.",
}


def protocol_errors() -> str:
    """Every error code with the exit status of the command and its meaning."""
    if missing := EXIT_STATUS.keys() - _MEANINGS.keys():
        raise SystemExit(f"scripts/pages.py does not say what these codes mean: {sorted(missing)}")
    rows = [(f"`{code}`", str(status), _MEANINGS[code]) for code, status in EXIT_STATUS.items()]
    return _table(("code", "exit status", "meaning"), rows)


def protocol_limits() -> str:
    """Every limit, under the headings that the module gives them."""
    return _limits("")


def peer_limits() -> str:
    """The limits of links between paired hosts."""
    return _limits(_PAIRED)


def _limits(of: str) -> str:
    path = Path(limits.__file__)
    with path.open("rb") as file:
        notes = {
            token.start[0]: token.string.lstrip("# ")
            for token in tokenize.tokenize(file.readline)
            if token.type == tokenize.COMMENT and token.start[1] == 0
        }
    groups: dict[str, list[tuple[str, ...]]] = {}
    heading = ""
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if not isinstance(node, ast.AnnAssign) or not isinstance(node.target, ast.Name):
            continue
        note = notes.get(node.lineno - 1)
        if note is not None:
            heading = note.partition("(")[0].strip(" .")
        name = node.target.id
        groups.setdefault(heading, []).append((f"`{name}`", f"{getattr(limits, name):,}"))
    return "\n\n".join(
        f"**{_capital(heading.removeprefix(of))}**\n\n{_table(('limit', 'value'), rows)}"
        for heading, rows in groups.items()
        if heading.startswith(of)
    )


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


# -- paired hosts ----------------------------------------------------------------------------------

_PAIRED: Final = "Paired hosts: "
"""How the headings of their limits begin."""


def peer_frames() -> str:
    """One frame of each sort."""
    host, signature = "0123456789abcdefghjkmnpqrs", "A" * 86 + "=="
    out = Outgoing("8vqkzx3mn5c7w2rj0d9fhtybge", 9, b"\x5a" * 32, 7)
    into = Incoming("t4ygs0kz1n8q6bw3jx5rfmc7hd", 4, b"\xa5" * 32)
    record = Record("receipt", '{"v":1,"type":"receipt"}', {host: signature})
    frames: tuple[Frame, ...] = (
        Hello(host, "c0y5n2w8d7r4k9x3q6z1m0v5ga", StreamState(out, into)),
        Put(8, (record,)),
        Put(9, (Withdrawal(b"\x3c" * 32),)),
        Ok(9),
        No(10, "disk-full", 5_000),
        Bye("stopping"),
        Bye(VERSION_MISMATCH, PROTOCOL),
    )
    blocks = [f"```json\n{_compact(json.loads(encode(frame)))}\n```" for frame in frames]
    return "\n\n".join(blocks)


def peer_byes() -> str:
    """Why a link ends."""
    return _table(("code", "meaning"), [(f"`{code}`", meaning) for code, meaning in BYES.items()])


# -- the store -------------------------------------------------------------------------------------


def storage_pragmas() -> str:
    """Every setting that is made and read back at each start."""
    rows = [(f"`{statement}`", f"`{wanted}`") for statement, _, wanted in PRAGMAS]
    return _table(("statement", "read back"), rows)


def storage_schema() -> str:
    """The migrations, table by table, with their own comments as the prose."""
    parts = []
    for step in migrations():
        parts.append(f"### Migration {step.number}")
        parts += list(_schema_parts(step.script))
    return "\n\n".join(parts)


def _schema_parts(script: str) -> Iterator[str]:
    for paragraph in re.split(r"\n\s*\n", script.strip()):
        lines = paragraph.splitlines()
        comments = [line.removeprefix("--").strip() for line in lines if line.startswith("--")]
        code = "\n".join(line for line in lines if not line.startswith("--"))
        table = re.match(r"CREATE (?:VIRTUAL )?TABLE (\w+)", code)
        if table:
            yield f"#### {table.group(1)}"
        if comments:
            yield _escaped(" ".join(comments))
        if code:
            yield f"```sql\n{code}\n```"


def _escaped(text: str) -> str:
    return re.sub(r"([*_<>])", r"\\\1", text)


_FILES: Final = {
    ".": "The home folder, `$MBX_HOME`.",
    "store.db": "The store (SQLite). Only the daemon opens it.",
    "store.db-wal": "The write-ahead log. Part of the store while a daemon runs or after a crash.",
    "host.key": "The host's private signing key. Made once, never replaced by itself.",
    "floor": "Apart from the store, so that a store that was put back is noticed.",
    "floor/floor.json": "How far the chain and the audit log ever went; signed by the host.",
    "daemon.lock": "Locked (`flock`) by the one daemon of this home for as long as it runs.",
    "daemon.log": "The daemon's log; older parts are `daemon.log.1` and `daemon.log.2`.",
    "run": "The run folder, `$MBX_RUN`.",
    "run/mbx.sock": "The daemon's socket.",
    "run/start.lock": "Locked by whoever starts the daemon, so that many starters start one.",
    "run/sessions": "Credentials of sessions that hold an identity.",
    "run/sessions/SHA256.json": "One credential: `{identity, epoch, token}`.",
    "run/snapshots": "What hooks and status lines read ([hooks](hooks.md)).",
}


def storage_files() -> str:
    """What a running daemon keeps, with the modes that it really has."""
    found = _recorded().files
    if unknown := {path for _, path in found} - _FILES.keys():
        raise SystemExit(f"scripts/pages.py does not say what these files are: {sorted(unknown)}")
    rows = [(f"`{path}`", f"`{mode}`", _FILES[path]) for mode, path in found]
    return _table(("path", "mode", "what it is"), rows)


def operations_start_errors() -> str:
    """What a daemon says when it cannot start."""
    rows = [
        (one.situation, f"`{one.error['code']}`", one.error["message"], one.error["next"] or "–")
        for one in _recorded().start_errors
    ]
    return _table(("what is wrong", "code", "what it says", "next step that it names"), rows)


# -- all of it -------------------------------------------------------------------------------------

# -- hooks -----------------------------------------------------------------------------------------

_ACT_WORDS: Final = {
    "start": "session begins",
    "prompt": "prompt is sent",
    "tool": "tool was used",
    "stop": "turn ends",
    "end": "session ends",
    "guard": "tool is about to be used",
}


def hook_forms() -> str:
    """How a text reaches a client."""
    return _table(
        ("form", "what is printed"), [(f"`{name}`", f"`{form}`") for name, form in FORMS.items()]
    )


def hook_clients() -> str:
    """Each client's hooks, one table a client."""
    return "\n\n".join(_hooks_of(client) for client in CLIENTS.values())


def _hooks_of(client: Client) -> str:
    rows = [
        (_ACT_WORDS[act], f"`{client.events[act]}`", f"`{client.forms[act]}`")
        for act in ACTS
        if act in client.events
    ]
    said = f"The conversation is `{client.session_field}` of its event"
    said += f", and now in `{client.variable}`." if client.variable else "."
    ends = ", ".join(f"`{reason}`" for reason in sorted(client.ends))
    said += (
        f" It really ends for the reasons {ends}." if ends else " Its end is that of its process."
    )
    if client.waits:
        events = " and ".join(f"`{event}`" for event in client.waits)
        said += f" At {events} it leaves a hook running that [wakes](waking.md) it (`{WAITS_AS}`)."
    parts = [f"### {client.name}", said, _table(("when", "its event", "form"), rows)]
    return "\n\n".join(parts)


def hook_command_lines() -> str:
    """The command lines of one client, as setup gives them."""
    paths = Paths("MBX_HOME", "MBX_HOME/run")
    words = [*CLIENTS["claude"].events.values(), WAITS_AS]
    lines = [hook_command(paths, "claude", word) for word in words]
    return "```sh\n" + "\n".join([*lines, statusline_command(paths, "claude")]) + "\n```"


PAGES: Final[Mapping[str, Mapping[str, Callable[[], str]]]] = {
    "README.md": {"transcript": readme_transcript},
    "docs/protocol-local.md": {
        "hello": protocol_hello,
        "methods": protocol_table,
        "each method": protocol_methods,
        "errors": protocol_errors,
        "limits": protocol_limits,
    },
    "docs/protocol-peer.md": {
        "frames": peer_frames,
        "byes": peer_byes,
        "limits": peer_limits,
    },
    "docs/storage.md": {
        "pragmas": storage_pragmas,
        "files": storage_files,
        "schema": storage_schema,
    },
    "docs/operations.md": {"start errors": operations_start_errors},
    "docs/hooks.md": {"command": hook_command_lines, "forms": hook_forms, "clients": hook_clients},
}
"""Page -> name of a generated part -> what makes it."""


def _table(heads: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    lines = [heads, tuple("---" for _ in heads), *rows]
    return "\n".join(
        "| " + " | ".join(one.replace("|", "\\|") for one in row) + " |" for row in lines
    )
