"""The scenes of the kill sweep: each change that a daemon makes, its starts and its end."""

import contextlib
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from mbx.core.snapshot import SAID
from mbx.store.migrate import migrations, open_store
from tests.support.ledger import Fact
from tests.support.shells import look_alike
from tests.support.sweep import FOLLOW, Actor, Call, DiedError, Scene, World, until_held

_BODY: Final = "word " * 400
_UNTIL_CHECKPOINT: Final = 64
"""Sends after which the log is nearly long enough for a checkpoint (1,000 pages, measured)."""


# -- what agents ask -----------------------------------------------------------------------------


def register(world: World, actor: Actor) -> None:
    """Hold a new identity."""
    actor.label = actor.name = name = world.fresh("agent")
    actor.epoch = world.epochs[name] = 1
    facts = (("register", name), ("claim", name, "1"))
    actor.ask("identity.register", *facts, key=world.fresh("key"), name=name, role="tester")


def registered(world: World) -> Actor:
    """One more agent that holds a new identity."""
    actor = world.actor()
    register(world, actor)
    return actor


def claiming(world: World, actor: Actor) -> Call:
    """The call that claims again what the actor held last."""
    actor.epoch = world.epochs[actor.label] = world.epochs[actor.label] + 1
    fact = ("claim", actor.label, str(actor.epoch))
    return actor.call("identity.claim", fact, key=world.fresh("key"), name=actor.name)


def releasing(world: World, actor: Actor) -> Call:
    """The call that gives back what the actor holds."""
    fact = ("release", actor.label, str(actor.epoch))
    actor.epoch = 0
    return actor.call("identity.release", fact, key=world.fresh("key"))


def sending(world: World, actor: Actor, *to: Actor) -> Call:
    """The call that sends a new message."""
    key = world.fresh("key")
    facts = (("message", key), *(("copy", key, other.label) for other in to))
    names = [other.name for other in to]
    body = f"{key} {_BODY}"
    return actor.call("mail.send", *facts, key=key, to=names, subject=key, body=body)


def send(world: World, actor: Actor, *to: Actor) -> tuple[str, str]:
    """Send; the message's key and id."""
    call = sending(world, actor, *to)
    actor.ask_all([call])
    return str(call.params["key"]), call.ids[0]


# -- scenes in a daemon that runs ----------------------------------------------------------------


def two(world: World) -> None:
    """Two agents."""
    registered(world)
    registered(world)


def five(world: World) -> None:
    """Five agents."""
    for _ in range(5):
        registered(world)


def nothing(world: World) -> None:
    """Nothing has to be prepared."""


def _hold_nothing(world: World) -> None:
    actor = world.actors[0]
    if actor.epoch:
        actor.ask_all([releasing(world, actor)])
    world.until_quiet()


def _hold(world: World) -> None:
    actor = world.actors[0]
    if not actor.epoch:
        actor.ask_all([claiming(world, actor)])
    world.until_quiet()


def _register(world: World) -> None:
    register(world, world.actors[0])


def _claim(world: World) -> None:
    world.actors[0].ask_all([claiming(world, world.actors[0])])


def _release(world: World) -> None:
    world.actors[0].ask_all([releasing(world, world.actors[0])])


def _change_hands(world: World) -> None:
    """Given back and claimed in one breath: both are in one commit, their files come after it."""
    actor = world.actors[0]
    actor.ask_all([releasing(world, actor), claiming(world, actor)])


def _rename(world: World) -> None:
    actor = world.actors[0]
    actor.name = name = world.fresh("other")
    fact = ("rename", actor.label, name)
    actor.ask("identity.rename", fact, key=world.fresh("key"), name=name)


def _send(world: World) -> None:
    send(world, world.actors[0], world.actors[1])
    world.until_quiet()


def _send_to_many(world: World) -> None:
    send(world, world.actors[0], *world.actors[1:])
    world.until_quiet()


def _burst(world: World) -> None:
    """Two agents write six sends each without waiting: they share commits."""
    first, second = world.actors
    calls = {
        actor: [sending(world, actor, other) for _ in range(6)]
        for actor, other in ((first, second), (second, first))
    }
    for actor, told in calls.items():
        actor.tell(told)
    for actor, told in calls.items():
        actor.hear(told)
    world.until_quiet()


def _one_lies_there(world: World) -> None:
    send(world, world.actors[1], world.actors[0])
    world.until_quiet()


def _three_lie_there(world: World) -> None:
    for _ in range(3):
        _one_lies_there(world)


def _newest(world: World, count: int) -> list[tuple[str, str]]:
    """(key, id) of the newest messages."""
    sends = [call for call in world.calls if call.method == "mail.send"]
    return [(str(call.params["key"]), call.ids[0]) for call in sends[-count:]]


def _cleared(key: str, actor: Actor) -> tuple[Fact, Fact]:
    return ("read", key, actor.label), ("acked", key, actor.label)


def _reply(world: World) -> None:
    actor, other = world.actors
    [(asked, asked_id)] = _newest(world, 1)
    key = world.fresh("key")
    facts = (("message", key), ("copy", key, other.label), *_cleared(asked, actor))
    body = f"{key} {_BODY}"
    actor.ask("mail.reply", *facts, key=key, id=asked_id, body=body, final="replied")
    world.until_quiet()


def _read(world: World) -> None:
    actor = world.actors[0]
    [(key, id_)] = _newest(world, 1)
    actor.ask("mail.read", ("read", key, actor.label), key=None, ids=[id_])


def _ack(world: World) -> None:
    actor = world.actors[0]
    newest = _newest(world, 3)
    facts = [fact for key, _ in newest for fact in _cleared(key, actor)]
    actor.ask("mail.ack", *facts, key=world.fresh("key"), ids=[id_ for _, id_ in newest])


# -- a session that waits ------------------------------------------------------------------------


def _twin(world: World, label: str) -> Actor:
    """An agent CLI in the same conversation as its twins, launched for the same identity."""
    program = world.folder / "bin" / "claude"
    if not program.exists():
        look_alike(program.parent, "claude", sys.executable)
    session = {"cli": "claude", "id": "s-1"}
    actor = world.client(str(program), session=session, agent=label, role="tester")
    actor.label = actor.name = label
    return actor


def _following(world: World, actor: Actor) -> Call:
    """The call that nobody makes: the actor gets the next epoch when the holder is dead."""
    epoch = world.epochs[actor.label] = world.epochs[actor.label] + 1
    call = actor.call(FOLLOW, ("claim", actor.label, str(epoch)), key=None)
    world.calls.append(call)
    actor.epoch = epoch
    return call


def _first_twin(world: World) -> Actor:
    holder = _twin(world, world.fresh("agent"))
    call = holder.call(FOLLOW, ("register", holder.label), ("claim", holder.label, "1"), key=None)
    world.calls.append(call)
    holder.epoch = world.epochs[holder.label] = 1
    until_held(call)
    return holder


def _twin_holds(world: World) -> None:
    _first_twin(world)


def _twin_waits(world: World) -> None:
    holder = next(actor for actor in world.actors if actor.epoch)
    for dead in [actor for actor in world.actors if actor is not holder]:
        world.dismiss(dead)
    _twin_waits_for(world, holder)


def _twin_waits_for(world: World, holder: Actor) -> None:
    waiting = _twin(world, holder.label).connect()
    assert waiting.call("session.whoami")["pending"] == holder.label


def _holder_dies(world: World) -> None:
    holder, waiting = world.actors
    call = _following(world, waiting)
    holder.epoch = 0
    holder.agent.kill()
    until_held(call)


# -- the log and the end -------------------------------------------------------------------------


def _log_is_long(world: World) -> None:
    """A log that begins anew (a stop empties it) and is almost long enough."""
    world.forget_lines()
    world.daemon.stop()
    world.daemon.start()
    actor = world.actors[0]
    for _ in range(_UNTIL_CHECKPOINT):
        actor.ask_all([sending(world, actor, actor)])
    world.until_quiet()


def _checkpoint(world: World) -> None:
    actor = world.actors[0]
    for _ in range(10):
        actor.ask_all([sending(world, actor, actor)])
    world.until_quiet()


def _log_has_moved(world: World) -> None:
    """Mail lies there, and the audit log has a row more: a stop writes the floor then."""
    _one_lies_there(world)
    _rename(world)


def _stop(world: World) -> None:
    line = world.line()
    with contextlib.suppress(Exception):
        line.call("daemon.stop")
    if world.daemon.wait() != 0:
        raise DiedError


# -- starts --------------------------------------------------------------------------------------


def _served(world: World) -> None:
    """The start is over: whoever waits was served, credentials are written."""
    world.line()
    for call in world.calls:
        if call.method == FOLLOW and call.request.outcome == "unknown":
            until_held(call)
    world.faults_of_files()


def _lay(world: World, template: Path | None) -> None:
    """The home as the template has it, and nobody connected."""
    world.kill()
    for path in world.home.iterdir():
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    if template is not None:
        shutil.copytree(template, world.home, dirs_exist_ok=True)
    for call in world.calls:
        if call.method == FOLLOW and call.request.label.endswith("again"):
            call.request.outcome = "unknown"


def _keep(world: World) -> None:
    """The home becomes the template."""
    shutil.copytree(
        world.home, world.folder / "template", ignore=shutil.ignore_patterns("mbx.sock", SAID)
    )


def _lay_template(world: World) -> None:
    _lay(world, world.folder / "template")


def _lay_nothing(world: World) -> None:
    _lay(world, None)
    world.key = None


def _lay_tables(world: World) -> None:
    """The store of a first start that was killed before it belonged to anybody."""
    _lay_nothing(world)
    open_store(str(world.home / "store.db")).close()
    (world.home / "store.db").chmod(0o600)


def _after_a_bad_night(world: World) -> None:
    """One agent lives, one died with the daemon while its twin waits; and files are left over."""
    world.daemon.start()
    living = registered(world)
    send(world, living, living)
    holder = _first_twin(world)
    _twin_waits_for(world, holder)
    world.until_quiet()
    world.key = world.host_key()
    world.kill()
    waiting = world.actors[-1]
    call = _following(world, waiting)
    call.request.label += " again"
    holder.epoch = 0
    world.dismiss(holder)
    sessions = world.home / "run" / "sessions"
    for name in ("0.json", "1.json.new"):
        (sessions / name).write_text("{}")
    (world.home / "host.key.new").write_text("half a k")
    _keep(world)


def _older_store(world: World) -> None:
    """A store as the first schema had it, with mail, a living holder, and its host's key."""
    world.daemon.start()
    two(world)
    send(world, *world.actors)
    send(world, world.actors[1], *world.actors)
    world.until_quiet()
    world.key = world.host_key()
    world.forget_lines()
    world.daemon.stop()
    path = str(world.home / "store.db")
    (world.home / "store.db").rename(world.folder / "newer.db")
    _downgrade(str(world.folder / "newer.db"), path)
    world.is_upgraded = True
    _keep(world)


def _downgrade(newer_path: str, path: str) -> None:
    """Write the rows of a store into one of the first schema, as far as it has room for them."""
    connection = open_store(path, migrations()[:1])
    connection.execute("ATTACH ? AS newer", (newer_path,))
    connection.execute("PRAGMA foreign_keys = OFF")
    names: list[Any] = connection.execute(
        "SELECT name FROM main.sqlite_schema WHERE type = 'table'"
        " AND name <> 'counters' AND name NOT LIKE 'search%'"
    ).fetchall()
    for (name,) in names:
        rows = connection.execute(f"SELECT name FROM pragma_table_info('{name}')").fetchall()
        columns = ", ".join(row[0] for row in rows)
        connection.execute(f"DELETE FROM main.{name}")
        connection.execute(
            f"INSERT INTO main.{name} ({columns}) SELECT {columns} FROM newer.{name}"
        )
    connection.execute(
        "UPDATE counters SET value = (SELECT value FROM newer.counters WHERE name = 'commit_seq')"
        " WHERE name = 'commit_seq'"
    )
    connection.close()


def _scene(
    name: str,
    settle: Callable[[World], None],
    prepare: Callable[[World], None],
    act: Callable[[World], None],
    wanted: int,
) -> Scene:
    return Scene(name, settle, prepare, act, wanted=wanted)


def _start(
    name: str,
    settle: Callable[[World], None],
    prepare: Callable[[World], None],
    wanted: int,
    *threads: str,
) -> Scene:
    told = threads or ("loop", "store")
    return Scene(name, settle, prepare, _served, starts=True, wanted=wanted, threads=told)


SCENES: Final = (
    _scene("register", two, _hold_nothing, _register, 8),
    _scene("claim", two, _hold_nothing, _claim, 8),
    _scene("release", two, _hold, _release, 8),
    _scene("change of hands", two, _hold, _change_hands, 10),
    _scene("rename", two, nothing, _rename, 6),
    _scene("send to one", two, nothing, _send, 8),
    _scene("send to many", five, nothing, _send_to_many, 8),
    _scene("burst of sends", two, nothing, _burst, 10),
    _scene("reply --final", two, _one_lies_there, _reply, 8),
    _scene("read", two, _one_lies_there, _read, 6),
    _scene("ack", two, _three_lie_there, _ack, 6),
    _scene("death while one waits", _twin_holds, _twin_waits, _holder_dies, 10),
    _scene("checkpoint", two, _log_is_long, _checkpoint, 12),
    _scene("stop", two, _log_has_moved, _stop, 16),
    _start("first start", nothing, _lay_nothing, 16, "loop"),
    _start("first boot", nothing, _lay_tables, 12, "store"),
    _start("start after a bad night", _after_a_bad_night, _lay_template, 12, "store"),
    _start("upgrade", _older_store, _lay_template, 16, "loop"),
)
"""All scenes, with about how many points of each are met in CI."""

BY_NAME: Final = {scene.name: scene for scene in SCENES}
"""The scenes by name."""
