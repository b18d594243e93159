"""Real runs for the documents: a daemon, its answers and its refusals, made the same every time.

What differs from run to run (ids, times, process numbers, digests, places) is replaced in order of
appearance; everything else in the documents is what the code really said.
"""

import base64
import hashlib
import json
import os
import re
import shutil
import signal
import sqlite3
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

from mbx.core.keys import SigningKey, crockford, key_id
from mbx.core.pairing_code import RANDOM_BYTES, PairingCode
from mbx.core.record import signed_bytes
from mbx.wire import introduction
from scripts.pairedhosts import plant_peer
from scripts.ports import reserve_port
from scripts.terminals import bare_environment

_TIMEOUT_S: Final = 30.0
_FIRST_MS: Final = 1_769_860_800_000
"""2026-01-31T12:00:00Z: what the clock of a recorded daemon begins with."""
_STEP_MS: Final = 1_500
_SHOWN_HOME: Final = "/home/ana/.local/share/mbx"

# The label comes from the machine's name, and the times from a file that the recorder writes: both
# are replaced in the process that it starts. Arguments: the clock file, or nothing for real time.
_DAEMON: Final = """
import os, sys
told = os.uname()
os.uname = lambda: os.uname_result((told[0], "desktop", *told[2:]))
from mbx.daemon import world
if sys.argv[1:]:
    # Both clocks: one that goes by without the other was set, and the daemon would keep house.
    world.SystemWorld.now_ms = lambda self: int(open(sys.argv[1]).read())
    world.SystemWorld.monotonic_ms = world.SystemWorld.now_ms
    # Numbers of commits are signed: no round of housekeeping may come in between on a slow machine.
    from mbx.daemon.workers import timers
    timers._POLL_S = 1_000_000
from mbx.daemon.__main__ import main
sys.exit(main(["--foreground"]))
"""

# A process that is a session of its own and passes lines on.
_SPEAKER: Final = """
import socket, sys
wire = socket.socket(socket.AF_UNIX)
wire.connect(sys.argv[-1])
answers = wire.makefile("rb")
for line in sys.stdin.buffer:
    wire.sendall(line)
    sys.stdout.buffer.write(answers.readline())
    sys.stdout.buffer.flush()
"""

# The human: whoever runs the recorder may sit below an agent CLI, or have no terminal.
_HUMAN: Final = (
    """
import fcntl, os, termios
if os.fork():
    os._exit(0)
os.setsid()
_, screen = os.openpty()
fcntl.ioctl(screen, termios.TIOCSCTTY, 0)
"""
    + _SPEAKER
)


@dataclass(frozen=True, slots=True)
class Exchange:
    """One request and its answer, as objects."""

    request: dict[str, Any]
    answer: dict[str, Any]


@dataclass(frozen=True, slots=True)
class StartError:
    """What a daemon says that cannot start, and what was wrong with its files."""

    situation: str
    error: dict[str, Any]


@dataclass
class Recording:
    """Everything that the pages take from real runs."""

    exchanges: dict[str, list[Exchange]] = field(default_factory=dict)
    files: list[tuple[str, str]] = field(default_factory=list)
    start_errors: list[StartError] = field(default_factory=list)


class Stable:
    """Replaces what differs from run to run, each distinct value by one of its own."""

    def __init__(self) -> None:
        self._known: dict[str, str] = {}
        self._counts: dict[str, int] = {}

    def text(self, text: str) -> str:
        """The text with its ids, digests, boundaries, cursors and times replaced."""
        for kind, pattern, make in _VARYING:
            text = re.sub(pattern, partial(self._replaced, kind, make), text)
        for real, sample in self._known.items():
            for length in (12, 8):  # ids as listings show them and as people type them
                text = text.replace(real[:length], sample[:length]) if len(real) == 26 else text
        return text

    def _replaced(
        self, kind: str, make: Callable[[int, re.Match[str]], str], found: re.Match[str]
    ) -> str:
        real = found.group()
        if real not in self._known and real not in self._known.values():
            self._counts[kind] = self._counts.get(kind, 0) + 1
            self._known[real] = make(self._counts[kind], found)
        return self._known.get(real, real)


def _digest(label: str) -> bytes:
    return hashlib.sha256(label.encode()).digest()


def _base64(label: str) -> str:
    return base64.b64encode(_digest(label) + _digest(label + "'")).decode()


_Make = Callable[[int, re.Match[str]], str]
_VARYING: Final[tuple[tuple[str, str, _Make], ...]] = (
    (
        "code",
        r"\b(?:[0-9A-Z]{4}-){6}[0-9A-Z]{4}\b",
        lambda n, _: PairingCode.from_random(_digest(f"code {n}")[:RANDOM_BYTES]).shown(),
    ),
    ("digits", r"\b\d{4} \d{4} \d{4}\b", lambda n, _: f"4711 0815 {2000 + n}"),
    ("port", r"(?<=127\.0\.0\.1:)\d+\b", lambda n, _: "24629"),
    ("digest", r"\b[0-9a-f]{64}\b", lambda n, _: _digest(f"digest {n}").hex()),
    ("boundary", r"\b[0-9a-f]{32}\b", lambda n, _: _digest(f"boundary {n}").hex()[:32]),
    ("id", r"\b[0-9a-hjkmnp-tv-z]{26}\b", lambda n, _: crockford(_digest(f"id {n}"))),
    ("cursor", r"\b(inbox|sent)\.[0-9a-f]{8}\.\d+", lambda n, m: f"{m[1]}.5eed{n:04x}.{n}"),
    ("signature", r"(?<![A-Za-z0-9+/])[A-Za-z0-9+/]{86}==", lambda n, _: _base64(f"signature {n}")),
    ("session", r"\b\d+-\d{3,}\b(?!-)", lambda n, _: f"{4800 + n}-{120000 + 37 * n}"),
)
"""(kind, pattern, the n-th sample). Order matters: longer patterns first."""


# -- one daemon and those who speak to it ----------------------------------------------------------


class RecordedDaemon:
    """A daemon in `home` on a machine called desktop; with `clock`, in a time of its own."""

    def __init__(self, home: Path, clock: Path | None = None) -> None:
        home.mkdir(mode=0o700, exist_ok=True)
        self.home = home
        argv = [sys.executable, "-c", _DAEMON, *([str(clock)] if clock else [])]
        self._process = subprocess.Popen(
            argv, env=environment(home), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE
        )
        assert self._process.stdout is not None
        ready = json.loads(self._process.stdout.readline())
        if ready.get("ready") is not True:
            raise RuntimeError(f"the daemon did not start: {ready}")

    def close(self) -> None:
        """Stop it, if it runs."""
        self._process.send_signal(signal.SIGTERM)
        self._process.wait(_TIMEOUT_S)
        assert self._process.stdout is not None
        self._process.stdout.close()


class Speaker:
    """A session that speaks raw lines; `argv` is what it looks like."""

    def __init__(
        self,
        socket_path: Path,
        program: str = _SPEAKER,
        argv: tuple[str, str] = (sys.executable, ""),
    ) -> None:
        looks, first_word = argv
        self._process = subprocess.Popen(
            [looks, "-I", "-S", "-c", program, first_word, str(socket_path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        self._number = -1

    def ask(self, method: str, params: dict[str, Any]) -> Exchange:
        """One request and its answer."""
        self._number += 1
        request = {"jsonrpc": "2.0", "id": self._number, "method": method, "params": params}
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(request).encode() + b"\n")
        self._process.stdin.flush()
        return Exchange(request, json.loads(self._process.stdout.readline()))

    def hello(self, **said: Any) -> Exchange:
        """The first line of a connection; unless it says more, the process is the session."""
        told = said or {"holder": "self"}
        return self.ask("hello", {**introduction({}), **told})

    def close(self) -> None:
        """End the session."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(_TIMEOUT_S)
        self._process.stdout.read()  # to its end, which is that of the human
        self._process.stdout.close()


def environment(home: Path) -> dict[str, str]:
    """Of commands that are recorded: this installation's, and the home folder."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}"
    return bare_environment(path, str(home.parent), str(home))


@contextmanager
def fresh_folder() -> Iterator[Path]:
    """A folder for what is recorded, gone afterwards."""
    folder = Path(tempfile.mkdtemp(prefix="mbx-docs-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


# -- the protocol, files, start errors -------------------------------------------------------------


class _Conversation:
    """Exchanges in the order in which they are made, each one clock step after the other."""

    def __init__(self, home: Path, clock: Path, onlooker: Speaker) -> None:
        self._home = home
        self._clock = clock
        self._onlooker = onlooker
        onlooker.hello()
        self._now_ms = _FIRST_MS
        self._stable = Stable()
        self.kept: dict[str, list[Exchange]] = {}

    def speak(self, speaker: Speaker, method: str, *, keep: bool = True, **params: Any) -> Any:
        """Ask; the result or the error. What is kept is shown below its method."""
        self._now_ms += _STEP_MS
        aside = self._clock.with_suffix(".new")  # the daemon may look at its clock at any time
        aside.write_text(str(self._now_ms))
        aside.rename(self._clock)
        self._wait_for_index()
        made = speaker.hello(**params) if method == "hello" else speaker.ask(method, params)
        if keep:
            shown = Exchange(self._settled(made.request), self._settled(made.answer))
            self.kept.setdefault(method, []).append(shown)
        return made.answer.get("result") or made.answer["error"]

    def _wait_for_index(self) -> None:
        """It follows by commits of its own, and numbers of commits are signed."""
        while self._onlooker.ask("daemon.status", {}).answer["result"]["index_pending"]:
            pass

    def _settled(self, message: dict[str, Any]) -> Any:
        text = json.dumps(message).replace(str(self._home), _SHOWN_HOME)
        return _with_sample_numbers(json.loads(self._stable.text(text)))


_SAMPLES: Final = {
    "pid": 4711,
    "uptime_s": 12,
    "commit_seq": 9,
    "index_pending": 0,
    "silent_s": 0,
    "left_s": 600,
    "skew_ms": 0,
    "confirm": "ppegqz",
    "store_bytes": 196_608,
    "free_bytes": 0,
    "wal_bytes": 131_872,
    "python_version": "3.13.9",
    "sqlite_version": "3.51.3",
}
"""What differs between machines and runs, and what is shown for it."""


def _with_sample_numbers(value: Any) -> Any:
    if isinstance(value, dict):
        numbers = dict(_SAMPLES)
        if "session" in value and "pid" in value:  # a holder: its session names its process
            numbers["pid"] = int(value["session"].partition("-")[0])
        return {
            key: numbers[key] if key in numbers else _with_sample_numbers(inner)
            for key, inner in value.items()
        }
    if isinstance(value, list):
        return [_with_sample_numbers(inner) for inner in value]
    return value


def record() -> Recording:
    """Speak to a daemon, look at its files, then see what stops it from starting."""
    recording = Recording()
    with fresh_folder() as folder, ExitStack() as stack:
        clock, home = folder / "clock", folder / "home"
        clock.write_text(str(_FIRST_MS))
        daemon = RecordedDaemon(home, clock)
        stack.callback(daemon.close)
        socket_path = home / "run" / "mbx.sock"
        speakers = [*(Speaker(socket_path) for _ in range(3)), Speaker(socket_path, _HUMAN)]
        codex = folder / "codex"
        codex.symlink_to(sys.executable)
        hook = Speaker(socket_path, argv=(str(codex), "app-server"))
        onlooker = Speaker(socket_path)
        for speaker in (*speakers, hook, onlooker):
            stack.callback(speaker.close)
        conversation = _Conversation(home, clock, onlooker)
        _converse(conversation, *speakers)
        _bind(conversation, hook, speakers[0])
        conversation.speak(speakers[0], "daemon.stop")
        recording.exchanges = conversation.kept
        daemon.close()
        recording.exchanges |= _among_hosts(folder / "paired", clock)
        recording.exchanges |= _pairing(folder / "inviting", folder / "joining", clock)
        _command(home, "daemon", "start")
        recording.files = _files(home)
        _command(home, "daemon", "stop")
        recording.start_errors = _start_errors(folder, home)
    return recording


def _among_hosts(home: Path, clock: Path) -> dict[str, list[Exchange]]:
    """What is said of a paired host, which is a row in the store: nobody listens for it."""
    RecordedDaemon(home, clock).close()
    plant_peer(home, _digest("laptop"), _FIRST_MS)
    daemon, socket_path = RecordedDaemon(home, clock), home / "run" / "mbx.sock"
    with ExitStack() as stack:
        stack.callback(daemon.close)
        ana, onlooker = Speaker(socket_path), Speaker(socket_path)
        for speaker in (ana, onlooker):
            stack.callback(speaker.close)
        talk = _Conversation(home, clock, onlooker)
        talk.speak(ana, "hello", keep=False)
        talk.speak(ana, "peers.list")
        talk.speak(ana, "peers.show", name="laptop")
        talk.speak(ana, "peers.ping", name="laptop")
        return talk.kept


def _pairing(home: Path, other_home: Path, clock: Path) -> dict[str, list[Exchange]]:
    """One host with an owner, and another that joins it and adopts the owner."""
    with ExitStack() as stack:
        for one in (home, other_home):
            stack.callback(RecordedDaemon(one, clock).close)
        socket_path, other_path = (one / "run" / "mbx.sock" for one in (home, other_home))
        paths = (socket_path, other_path, socket_path, other_path)
        speakers = [Speaker(path, _HUMAN) for path in paths]
        human, guest, *waiting = speakers
        onlooker = Speaker(socket_path)
        for speaker in (*speakers, onlooker):
            stack.callback(speaker.close)
        talk = _Conversation(home, clock, onlooker)
        for speaker in speakers:
            talk.speak(speaker, "hello", keep=False)
        key = SigningKey.from_seed(_digest("the owner of the pages"))
        first = talk.speak(
            human, "owner.draft", keep=False, act="rotate", public_key=key.public.hex()
        )
        talk.speak(human, "owner.enroll", keep=False, record=_signed(first, key))
        _pair(talk, human, guest, waiting, key)
        return talk.kept


def _pair(
    talk: _Conversation,
    human: Speaker,
    guest: Speaker,
    waiting: Sequence[Speaker],
    key: SigningKey,
) -> None:
    """`waiting`: whoever waits on each side, so that the others' numbers do not tell how often."""
    address = f"127.0.0.1:{reserve_port()}"
    invited = talk.speak(human, "pair.invite", listen=[address])
    talk.speak(human, "pair.hold", run=invited["run"])
    joined = talk.speak(guest, "pair.join", address=address, code=invited["code"])
    _awaited(waiting[1], joined, lambda told: told["compare"])
    told = talk.speak(human, "pair.state", run=invited["run"], seen=invited["seen"])
    wanted = {"keep": False, "pairing": told["compare"]["pairing"]}
    enrolment, there, own = (
        _signed(talk.speak(human, "owner.draft", act=act, **wanted), key)
        for act in ("enrolment", "peer-there", "peer")
    )
    wanted.pop("keep")
    talk.speak(human, "pair.enclose", enrolment=enrolment, peer=there, **wanted)
    talk.speak(human, "owner.apply", keep=False, record=own)
    _awaited(waiting[1], joined, lambda told: told["agreed"]["there"])
    talk.speak(guest, "pair.adopt", **wanted)
    _awaited(waiting[0], invited, lambda told: told["end"])
    talk.speak(human, "pair.decline", run=invited["run"])


def _awaited(speaker: Speaker, told: Any, is_there: Callable[[Any], Any]) -> None:
    """Until the daemon tells what is awaited; unseen, since nobody knows how often."""
    while not is_there(told):
        wanted = {"run": told["run"], "seen": told["seen"]}
        told = speaker.ask("pair.state", wanted).answer["result"]


def _bind(talk: _Conversation, hook: Speaker, stranger: Speaker) -> None:
    """A hook of one of many conversations gets a ticket, which is good in its process alone."""
    talk.speak(hook, "hello", keep=False, session={"cli": "codex", "id": "thread-7"})
    talk.speak(hook, "session.hook", event="start", session="thread-7")
    told = talk.speak(hook, "session.ticket")
    talk.speak(stranger, "session.whoami", bind=told["ticket"])


def _converse(
    talk: _Conversation, ana: Speaker, ben: Speaker, cai: Speaker, human: Speaker
) -> None:
    talk.speak(ana, "hello")
    for other in (ben, cai):
        talk.speak(other, "hello", keep=False)
    talk.speak(ana, "identity.register", name="ana", role="backend", key="k-1")
    talk.speak(ben, "identity.register", keep=False, name="ben", role="frontend")
    talk.speak(cai, "identity.claim", name="ana")
    talk.speak(ana, "session.whoami")
    talk.speak(ana, "identity.show", name="ben")
    letter: dict[str, Any] = {
        "to": ["ben"],
        "subject": "Port",
        "body": "The API listens on 8081 now.",
        "key": "k-2",
    }
    sent = talk.speak(ana, "mail.send", **letter)
    talk.speak(ana, "mail.send", keep=False, **letter)
    talk.speak(ana, "mail.send", to=["bem"], subject="Port", body="", key="k-3")
    talk.speak(cai, "mail.inbox", keep=False)
    talk.speak(ben, "mail.inbox", limit=1)
    talk.speak(ben, "mail.read", ids=[sent["id"][:8]])
    talk.speak(ben, "mail.reply", id=sent["id"], body="Thanks.", key="k-4")
    talk.speak(ben, "mail.ack", ids=[sent["id"]], did="moved the client to 8081", key="k-5")
    talk.speak(ana, "mail.sent", id=sent["id"])
    talk.speak(cai, "mail.sent")
    talk.speak(ana, "mail.thread", id=sent["id"])
    talk.speak(ben, "mail.search", query="listens 8081")
    talk.speak(ben, "identity.set", description="The web client", key="k-7")
    talk.speak(ben, "agents.list", query="client")
    talk.speak(ben, "identity.rename", name="benno", key="k-8")
    talk.speak(ana, "identity.list")
    talk.speak(ana, "identity.prunable", days=30)
    talk.speak(ana, "mail.watch")
    talk.speak(ana, "wake.offer", state="idle")
    talk.speak(ana, "wake.settle", wake=1, outcome="admitted")
    talk.speak(ben, "identity.release", key="k-6")
    talk.speak(cai, "daemon.status", hash=True)
    talk.speak(cai, "daemon.health", thorough=True)
    talk.speak(cai, "diagnostics.show", mailbox="ana")
    talk.speak(cai, "daemon.mend")
    _ask_the_owner(talk, ana, human)


def _ask_the_owner(talk: _Conversation, ana: Speaker, human: Speaker) -> None:
    question: dict[str, Any] = {"kind": "decision", "subject": "Old port", "body": "Close 8080?"}
    asked = talk.speak(ana, "mail.send", keep=False, to=["owner"], **question)["id"]
    talk.speak(human, "hello", keep=False)
    talk.speak(human, "owner.inbox")
    talk.speak(human, "owner.read", ids=[asked])
    talk.speak(human, "owner.ack", ids=[asked], did="closed 8080", key="k-9")
    _delegate(talk, ana, human)


def _delegate(talk: _Conversation, ana: Speaker, human: Speaker) -> None:
    """The owner's first key, then a policy that it signs; here by a key that everybody knows."""
    key = SigningKey.from_seed(_digest("the owner of the pages"))
    public = key.public.hex()
    first = talk.speak(ana, "owner.draft", keep=False, act="rotate", public_key=public)
    talk.speak(human, "owner.enroll", record=_signed(first, key))
    wanted: dict[str, Any] = {
        "act": "policy",
        "to": ["ana"],
        "from": ["local"],
        "level": "collaborate",
    }
    draft = talk.speak(ana, "owner.draft", **wanted)
    applied = talk.speak(ana, "owner.apply", record=_signed(draft, key))
    letter: dict[str, Any] = {"subject": "Old port", "body": "8080 is closed on Monday."}
    talk.speak(human, "owner.compose", to=["ana"], **letter)
    talk.speak(ana, "owner.show")
    talk.speak(ana, "policy.list")
    talk.speak(ana, "policy.show", id=applied["id"])
    talk.speak(human, "audit.list", act="policy")
    checked = talk.speak(human, "audit.verify")
    talk.speak(human, "audit.verify", cursor=checked["next_cursor"])


def _signed(draft: Any, key: SigningKey) -> dict[str, Any]:
    payload: str = draft["payload"]
    signature = base64.b64encode(key.sign(signed_bytes(draft["kind"], payload))).decode()
    signatures = {key_id("owner", key.public): signature}
    return {"kind": draft["kind"], "payload": payload, "signatures": signatures}


def _command(home: Path, *words: str) -> None:
    mbx = Path(sys.executable).with_name("mbx")
    subprocess.run([mbx, *words], env=environment(home), check=True, capture_output=True)


def _files(home: Path) -> list[tuple[str, str]]:
    """(mode, path below the home) of all that a running daemon keeps, in order of the path.

    But for single snapshots, which come a moment after what they tell of.
    """
    found = [home, *sorted(one for one in home.rglob("*") if one.parent.name != "snapshots")]
    named = [(stat.filemode(path.lstat().st_mode), path.relative_to(home)) for path in found]
    digest = re.compile(r"[0-9a-f]{64}")
    return list(dict.fromkeys((mode, digest.sub("SHA256", str(path))) for mode, path in named))


def _start_errors(folder: Path, home: Path) -> list[StartError]:
    """What a daemon says over copies of `home`, each damaged in one way; all started at once."""
    started = []
    for number, (situation, damage) in enumerate(_DAMAGES):
        copy = folder / f"copy-{number}"
        shutil.copytree(home, copy)
        damage(copy)
        process = subprocess.Popen(
            [sys.executable, "-I", "-m", "mbx.daemon"],
            env=environment(copy),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        started.append((situation, copy, process))
    found = []
    for situation, copy, process in started:
        said = process.communicate(timeout=_TIMEOUT_S)[0].decode()
        if "error" not in json.loads(said.splitlines()[0]):
            raise RuntimeError(f"{situation}: the daemon started: {said}")
        told = json.loads(Stable().text(said.replace(str(copy), "$MBX_HOME")))
        found.append(StartError(situation, told["error"]))
    return found


def _foreign_key(home: Path) -> None:
    other = home / "other"
    other.mkdir(mode=0o700)
    RecordedDaemon(other / "home").close()
    shutil.copyfile(other / "home" / "host.key", home / "host.key")


def _newer_store(home: Path) -> None:
    connection = sqlite3.connect(home / "store.db")
    connection.execute("PRAGMA user_version = 99")
    connection.close()


def _occupied_socket(home: Path) -> None:
    (home / "run" / "mbx.sock").mkdir()


_DAMAGES: Final[tuple[tuple[str, Callable[[Path], object]], ...]] = (
    ("`host.key` is gone", lambda home: (home / "host.key").unlink()),
    ("others may read `host.key`", lambda home: (home / "host.key").chmod(0o644)),
    ("`host.key` is damaged", lambda home: (home / "host.key").write_bytes(b"{")),
    ("`host.key` is another machine's", _foreign_key),
    ("`store.db` is not a store", lambda home: (home / "store.db").write_bytes(b"x" * 4096)),
    ("`store.db` was made by a newer mbx", _newer_store),
    ("the home folder is open to others", lambda home: home.chmod(0o755)),
    ("something else lies where the socket goes", _occupied_socket),
)
