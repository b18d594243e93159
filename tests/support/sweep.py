"""A daemon that dies at chosen system calls, and what is looked at after each death.

A `World` is a home with its daemon, the agents that ask it, and the ledger of what they asked. A
`Scene` is what happens in it while strace waits for the point. `sweep` goes through the points of a
scene on one home: what was answered at the first point must still be there after the last.
"""

import contextlib
import itertools
import os
import shutil
import signal
import sqlite3
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple, Self

from mbx.paths import Paths
from mbx.store.migrate import migrations
from tests.sim.image import take
from tests.support.daemon import Agent, Daemon, HungUpError, Line, RefusedError, request
from tests.support.ledger import (
    Entry,
    Fact,
    Grant,
    Left,
    Request,
    file_faults,
    is_there,
    key_faults,
    lease_faults,
    left_in,
    read_credential,
    torn_faults,
    violations,
)
from tests.support.patience import looks
from tests.support.strace import Point, attached, choose, killed_at, points_of, traceable, under

ROUNDS: Final = 2_000
"""Questions within which something must have happened that the daemon does by itself."""

FOLLOW: Final = "follow"
"""Nobody's call: what a waiting session gets when the holder dies."""

_GONE: Final = (HungUpError, BrokenPipeError, ConnectionResetError)


class DiedError(Exception):
    """The daemon died while it was spoken to."""


class Call(NamedTuple):
    """A call that is kept so that it can be repeated: whose, which, with what."""

    actor: "Actor"
    request: Request
    method: str
    params: Mapping[str, object]
    ids: list[str]
    """The id of the message that it made, once told."""


class Actor:
    """An agent with a connection; `label` is the name it registered first, `name` its present."""

    def __init__(self, world: "World", agent: Agent, hello: Mapping[str, Any]) -> None:
        self.label = self.name = ""
        self.epoch = 0
        self.agent = agent
        self._world = world
        self._hello = hello
        self._line: Line | None = None

    def connect(self) -> Line:
        """Its connection, made anew when there is none."""
        if self._line is None:
            with _or_died():
                self._line = self.agent.bare()
                self._line.hello(**self._hello)
        return self._line

    def hang_up(self) -> None:
        """Forget the connection."""
        if self._line is not None:
            self._line.close()
            self._line = None

    def ask(self, method: str, *facts: Fact, key: str | None, **params: object) -> dict[str, Any]:
        """Call a method that has these facts as its effect. DiedError, RefusedError."""
        return self.ask_all([self.call(method, *facts, key=key, **params)])[0]

    def call(self, method: str, *facts: Fact, key: str | None, **params: object) -> Call:
        """A call to be asked later; a keyed one leaves its answer in the store too."""
        if key is not None:
            facts, params = (*facts, ("answer", key)), {**params, "key": key}
        entry = Request(f"{method} {key or params}", self.label, frozenset(facts))
        return Call(self, entry, method, params, [])

    def ask_all(self, calls: Sequence[Call]) -> list[dict[str, Any]]:
        """Write all calls at once, then read their answers. DiedError, RefusedError."""
        line = self.connect()
        self.tell(calls)
        with _or_died():
            return [_settle(call, line.read()) for call in calls]

    def tell(self, calls: Sequence[Call]) -> None:
        """Write all calls at once; `hear` reads their answers. DiedError."""
        line = self.connect()
        self._world.calls += calls
        written = [request(no, call.method, **call.params) for no, call in enumerate(calls)]
        with _or_died():
            line.write(b"".join(one + b"\n" for one in written))

    def hear(self, calls: Sequence[Call]) -> None:
        """Read the answers to what `tell` wrote. DiedError, RefusedError."""
        line = self.connect()
        with _or_died():
            for call in calls:
                _settle(call, line.read())


def _settle(call: Call, answer: dict[str, Any]) -> dict[str, Any]:
    if "error" in answer:
        call.request.outcome = "refused"
        raise RefusedError(answer["error"])
    call.request.outcome = "answered"
    result: dict[str, Any] = answer["result"]
    if call.method in {"mail.send", "mail.reply"}:
        call.ids[:] = [result["id"]]
    return result


@contextlib.contextmanager
def _or_died() -> Iterator[None]:
    try:
        yield
    except _GONE as gone:
        raise DiedError from gone


class World:
    """A home, its daemon, and all that was asked of it. Use it in ``with``."""

    def __init__(self, home: Path, defect: str = "") -> None:
        self.home = home
        self._python = traceable(defect)
        self.daemon = self.daemon_under(())
        self.calls: list[Call] = []
        self.actors: list[Actor] = []
        self.is_upgraded = False
        self.key: bytes | None = None
        self.grants: dict[str, Grant] = {}
        self._paths = Paths.from_environ({"MBX_HOME": str(home)})
        self._numbers = itertools.count(1)
        self._line: Line | None = None
        self.epochs: Counter[str] = Counter()
        self.folder = Path(tempfile.mkdtemp(prefix="sweep-"))
        self.trace = self.folder / "trace"

    def fresh(self, stem: str) -> str:
        """A key or name that nothing else here has, spelt so that no two names look alike."""
        return f"{stem}-" + "".join("abcdefghjk"[int(digit)] for digit in str(next(self._numbers)))

    # -- agents -------------------------------------------------------------------------------

    def actor(self, **hello: Any) -> Actor:
        """One more agent, by default a session of its own."""
        agent = self.daemon.agent()
        self.actors.append(Actor(self, agent, hello or {"holder": "self"}))
        return self.actors[-1]

    def client(self, program: str, **hello: Any) -> Actor:
        """One more agent whose process looks like an agent CLI."""
        self.actors.append(Actor(self, Agent(self.daemon.socket_path, program), hello))
        return self.actors[-1]

    def dismiss(self, actor: Actor) -> None:
        """End an agent's process and forget it."""
        actor.hang_up()
        actor.agent.close()
        self.actors.remove(actor)

    # -- the daemon ---------------------------------------------------------------------------

    def daemon_under(self, prefix: Sequence[str]) -> Daemon:
        """A daemon of this home that runs under another program."""
        return Daemon(self.home, prefix=prefix, python=self._python)

    def line(self) -> Line:
        """A connection of nobody's, to ask how things are."""
        with _or_died():
            if self._line is None:
                self._line = self.daemon.line()
                self._line.hello()
            return self._line

    def until_quiet(self) -> None:
        """Until the index has everything: a search waits for it, for a while. DiedError."""
        for holder in [actor for actor in self.actors if actor.epoch][:1]:
            line = holder.connect()
            with _or_died():
                assert any(_is_found(line) for _ in looks()), "the index does not catch up"

    def holders(self) -> list[Grant]:
        """All leases that are held, as the daemon tells them."""
        with _or_died():
            listed = self.line().call("identity.list")["identities"]
        return [
            Grant(
                one["name"],
                one["identity"],
                (one["holder"]["cli"], one["holder"]["session"]),
                one["holder"]["epoch"],
            )
            for one in listed
            if one["holder"]
        ]

    def forget_lines(self) -> None:
        """After a death no connection is left."""
        for actor in self.actors:
            actor.hang_up()
        if self._line is not None:
            self._line.close()
            self._line = None

    def kill(self) -> None:
        """kill -9, and wait; strace, where it runs the daemon, writes its last line and ends."""
        self.forget_lines()
        if self.daemon.process is not None:
            with contextlib.suppress(ProcessLookupError):
                self.daemon.signal(signal.SIGKILL)
            self.daemon.wait()

    # -- looking ------------------------------------------------------------------------------

    @property
    def requests(self) -> list[Request]:
        """All that was asked, in order."""
        return [call.request for call in self.calls]

    def look(self) -> Left:
        """What the store has now; read from a copy, while no daemon runs."""
        with tempfile.TemporaryDirectory(dir=self.folder) as folder:
            for name in ("store.db", "store.db-wal"):
                if (self.home / name).exists():
                    shutil.copy(self.home / name, folder)
            with contextlib.closing(sqlite3.connect(Path(folder) / "store.db")) as copy:
                version = copy.execute("PRAGMA user_version").fetchone()[0]
                if version == len(migrations()) and copy.execute("SELECT * FROM host").fetchone():
                    return left_in(take(copy))
                found = [str(row[0]) for row in copy.execute("PRAGMA integrity_check")]
                complaints = tuple(text for text in found if text != "ok")
                return Left(Counter(), complaints=complaints, is_older=True)

    def entries(self) -> dict[str, Entry]:
        """The files of the home as they are."""
        found: dict[str, Entry] = {}
        for folder, folders, files in os.walk(self.home):
            for name in (*folders, *files):
                path = Path(folder, name)
                with contextlib.suppress(FileNotFoundError):
                    content = read_credential(path.read_bytes()) if name[-5:] == ".json" else None
                    found[str(path.relative_to(self.home))] = Entry(path.lstat().st_mode, content)
        return found

    def host_key(self) -> bytes | None:
        """The bytes of the host key; None where there is none."""
        path = self.home / "host.key"
        return path.read_bytes() if path.exists() else None

    def credential(self, grant: Grant) -> str:
        """Where the credential of a grant lies in the home."""
        return os.path.relpath(self._paths.session_file(*grant.session), self.home)

    def faults_of_files(self) -> list[str]:
        """What is wrong with the files once the daemon has kept house."""
        found: list[str] = []
        for _ in range(ROUNDS):
            grants = [(self.credential(grant), grant) for grant in self.holders()]
            found = file_faults(self.entries(), grants, is_upgraded=self.is_upgraded)
            if not found:
                break
        return found

    def faults_of_mailboxes(self) -> list[str]:
        """Whether each mailbox has what was sent to it, once, as its holder is told."""
        found = []
        for actor in self.actors:
            if actor.epoch:
                wanted = Counter(
                    call.ids[0]
                    for call in self.calls
                    if call.ids and any(fact[::2] == ("copy", actor.label) for fact in _full(call))
                )
                listed = Counter(_inbox(actor.connect()))
                found += [f"I1: {actor.label} is not told of {id_}" for id_ in wanted - listed]
                found += [f"I2: {actor.label} is told too much: {id_}" for id_ in listed - wanted]
        return found

    # -- after a death ------------------------------------------------------------------------

    def recover(self) -> list[str]:
        """Look at what the crash left, start again, look from outside, repeat the unanswered.

        The first sort of fault that is found; with one, nothing is repeated.
        """
        self.kill()
        left = self.look()
        found = violations(self.requests, left) + key_faults(self.key, self.host_key())
        found += torn_faults(self.entries())
        if found:
            return found
        self.key = self.host_key()
        found = self._start()
        if left.is_older and not found:
            self.kill()
            found = violations(self.requests, self.look()) or self._start()
        if found:
            return found
        found = self.faults_of_files() + lease_faults(self.grants, self.holders())
        found += key_faults(self.key, self.host_key())
        found = found or self._repeat(left) or self.faults_of_mailboxes()
        self.key = self.host_key()
        self.grants.update({grant.identity: grant for grant in self.holders()})
        return found

    def _start(self) -> list[str]:
        said = self.daemon.start()
        if said.get("ready") is True:
            return []
        self.daemon.wait()
        return [f"start: {said}"]

    def _repeat(self, left: Left) -> list[str]:
        found = []
        for call in [call for call in self.calls if call.request.outcome == "unknown"]:
            if call.method == FOLLOW:
                until_held(call)
                continue
            was_there = is_there(call.request, left)
            try:
                result = call.actor.connect().call(call.method, **call.params)
            except RefusedError as refused:
                return [f"I4: {call.request.label} cannot be repeated: {refused}"]
            _settle(call, {"result": result})
            if "key" in call.params and result.get("duplicate", False) is not was_there:
                found.append(f"I4: {call.request.label} was there: {was_there}, told: {result}")
        return found

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        for actor in list(self.actors):
            self.dismiss(actor)
        shutil.rmtree(self.folder)


def _is_found(line: Line) -> bool:
    """Whether a search is answered; it is refused where the index takes long, as on a slow disk."""
    try:
        line.call("mail.search", query="nothing")
    except RefusedError as refused:
        if refused.code != "rate-limited":
            raise
        return False
    return True


def _full(call: Call) -> Iterable[Fact]:
    return (fact for fact in call.request.facts if len(fact) == 3)


def _inbox(line: Line) -> Iterator[str]:
    cursor = None
    while True:
        page = line.call("mail.inbox", limit=200, all=True, cursor=cursor)
        yield from (one["id"] for one in page["messages"])
        cursor = page["next_cursor"]
        if cursor is None:
            return


def until_held(call: Call) -> None:
    """Wait until the actor of a call that nobody makes has what it waits for. DiedError."""
    line = call.actor.connect()
    with _or_died():
        for _ in range(ROUNDS):
            if line.call("session.whoami")["agent"] is not None:
                call.request.outcome = "answered"
                return
    raise AssertionError(f"{call.actor.label} is not served")


# -- sweeps ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Scene:
    """What happens while strace waits: in the daemon that runs, or (`starts`) while it starts.

    `settle` is done once, `prepare` before each point (for a start: it lays out the home), `act` is
    what the points lie in.
    """

    name: str
    settle: Callable[[World], None]
    prepare: Callable[[World], None]
    act: Callable[[World], None]
    starts: bool = False
    wanted: int = 10
    """How many points are met in CI, about."""

    threads: tuple[str, ...] = ("loop", "store")
    """Whose points: a scene that begins like another one need not go through the same again."""


@dataclass
class Report:
    """What a sweep knew, met and found."""

    scene: str
    known: Counter[str] = field(default_factory=Counter)
    chosen: int = 0
    hit: Counter[str] = field(default_factory=Counter)
    shadowed: int = 0
    found: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        calls = " ".join(f"{call} {self.hit[call]}/{self.known[call]}" for call in self.known)
        total = f"{self.hit.total()}/{self.known.total()}"
        return f"{self.scene}: {total} points ({self.shadowed} out of reach): {calls}"


def sweep(scene: Scene, world: World, *, every: bool = False) -> Report:
    """Go through the points of a scene; ends at the first one that leaves something wrong."""
    if not scene.starts:
        world.daemon.start()
    scene.settle(world)
    report = Report(scene.name)
    points = [point for point in _known(scene, world) if point.thread in scene.threads]
    report.known.update(point.call for point in points)
    within_reach = [point for point in points if not (scene.starts and point.is_shadowed)]
    report.shadowed = len(points) - len(within_reach)
    chosen = choose(within_reach, None if every else scene.wanted)
    report.chosen = len(chosen)
    others = [point for point in within_reach if point not in chosen]
    for point in chosen:
        scene.prepare(world)
        if _meet(scene, world, point):
            report.hit[point.call] += 1
        elif others:  # background work differs from run to run: another point in its place
            chosen.append(others.pop(0))
        found = world.recover()
        if found:
            report.found = [f"{scene.name}, {point}: {text}" for text in found]
            return report
    world.forget_lines()
    world.daemon.stop()
    report.found = violations(world.requests, world.look())
    return report


def _known(scene: Scene, world: World) -> list[Point]:
    scene.prepare(world)
    if not scene.starts:
        pid = world.daemon.pid
        with attached(pid, world.trace):
            scene.act(world)
        assert world.recover() == []
        return points_of(world.trace.read_text(errors="replace"), pid)
    with _started_under(world, under(world.trace)):
        scene.act(world)
    return points_of(world.trace.read_text(errors="replace"))


def _meet(scene: Scene, world: World, point: Point) -> bool:
    """Play the scene with a death at the point; whether it came to that."""
    inject = killed_at(point)
    try:
        if scene.starts:
            follow = point.thread == "store"
            with _started_under(world, under(world.trace, follow=follow, inject=inject)):
                scene.act(world)
        else:
            pid = world.daemon.pid
            with attached(pid, world.trace, thread=point.thread, inject=inject):
                scene.act(world)
    except DiedError:
        if world.daemon.process is not None:
            status = world.daemon.wait()
            assert status == -signal.SIGKILL, f"{point}: ended with {status}"
        return True
    return False


@contextlib.contextmanager
def _started_under(world: World, prefix: Sequence[str]) -> Iterator[None]:
    plain, world.daemon = world.daemon, world.daemon_under(prefix)
    try:
        said = world.daemon.start()
        assert "error" not in said, said
        if said.get("ready") is not True:
            raise DiedError
        yield
        world.kill()
    except DiedError:
        status = world.daemon.wait()
        assert status == -signal.SIGKILL, f"the start ended with {status}"
        raise
    finally:
        world.forget_lines()
        world.daemon.kill()
        world.daemon = plain
