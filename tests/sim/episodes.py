"""What happens in a run that takes several calls: the owner's acts, a text that goes round."""

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from mbx.core.evidence import Lineage
from mbx.core.terminal import Terminal
from tests.sim.clients import KINDS, Op, Session
from tests.sim.disk import open_image
from tests.sim.history import Damaged, Return
from tests.sim.owner import APPLIES, Sight

if TYPE_CHECKING:
    from tests.sim.scene import Scene

_CHAIN: Final = "SELECT record_id FROM owner_records WHERE version IS NOT NULL ORDER BY version"
_DAMAGES: Final = (
    "payload = replace(replace(payload, '\"exp\":1', '\"exp\":9'), '\"iat\":1', '\"iat\":2')",
    "payload = payload || ' '",
    "signatures = '[]'",
)
"""What somebody does to a stored record, as SQL."""


def call_as_the_owner(scene: "Scene", op: Op | None = None) -> None:
    """A human at a terminal, who holds nothing, does `op` or what it likes."""
    owner = scene.owner
    owner.now = scene.now
    idle = [one.label for one in scene.sessions if not one.holding]
    busy = [one.label for one in scene.sessions if one.holding]
    dead = [one.label for one in scene.dead]
    held = [one.holding for one in [*scene.dead, *scene.sessions] if one.holding]
    op = op or owner.next(Sight(held or scene.wishes.names, idle, busy, dead))
    lineage = Lineage("none", reason="a person")
    caller = scene.office.caller(lineage, None, None)._replace(terminal=Terminal(ok=True))
    late = op.method in APPLIES and scene.chance.random() < 0.1
    scene._arrive(owner, op, caller, None, late=late)


def tell_of_the_owner(scene: "Scene", op: Op, answer: Return) -> None:
    """Count what became of a record, and let a session know what it was given."""
    record = op.params["record"]
    end = "duplicate" if answer.result.get("duplicate") else "applied"
    if answer.outcome != "ok":
        end = answer.code or answer.outcome
    scene.totals.count(f"owner {record['kind']} {end}")
    if record["kind"] == "takeover" and end == "applied":
        to = json.loads(record["payload"])["destination"]
        for session in scene.sessions:
            if session.label == f"{to['cli']}/{to['session']}" and scene.chance.random() < 0.8:
                session.holding = answer.result["agent"]


def come_back(scene: "Scene") -> None:
    """A conversation whose process died goes on in another one, under its own name."""
    gone = [one for one in scene.dead if one.conversation]
    living = {one.conversation for one in scene.sessions}
    if gone and gone[-1].conversation not in living:
        scene.office.watch.report()
        scene._write_group(None)
        process = scene.table.start(KINDS["codex"])
        scene.sessions.append(Session("codex", process, gone[-1].conversation))
        scene.totals.count("conversations that came back")


def pass_around(scene: "Scene") -> None:
    """One text goes from holder to holder, each passing on what it read."""
    ring = _ring(scene)
    if len(ring) < 3:
        return
    scene._let_time_pass()
    scene._let_time_pass()  # whatever was read before counts no more
    scene.totals.count("texts passed around")
    quotes, last = scene.chance.random() < 0.6, None
    for no in range(2 * len(ring) + 4):
        writer, reader = ring[no % len(ring)], ring[(no + 1) % len(ring)]
        if not writer.holding or not reader.holding:
            return
        before = len(scene.events)
        relay = scene.wishes.relay(reader.holding, last if quotes else None)
        scene._attempt(writer, relay, late=False)
        scene.settle()
        told = [one for one in scene.events[before:] if isinstance(one, Return)]
        if not told or told[0].outcome != "ok":
            return
        last = told[0].result["id"]
        scene._attempt(reader, scene.wishes.read(last), late=False)
        scene.settle()


def _ring(scene: "Scene") -> list[Session]:
    """Everybody that could get a name."""
    scene.settle()
    for name in scene.wishes.names:
        idle = [one for one in scene.sessions if not one.holding]
        if idle and all(one.holding != name for one in scene.sessions):
            scene._attempt(idle[0], scene.wishes.registration(name), late=False)
            scene._attempt(idle[0], scene.wishes.claim(name), late=False)
            scene.settle()
    return [one for one in scene.sessions if one.holding in scene.wishes.names]


def damage(scene: "Scene") -> None:
    """The daemon dies, and before the next one somebody changes a record in the store.

    The owner looks at once, and so does everybody else.
    """
    chain = [row[0] for row in scene.connection.execute(_CHAIN)]
    if len(chain) < 2:
        return
    scene.totals.count("crash while idle")
    scene._reopen("while idle", change=lambda pages: _damaged(scene, pages, chain))
    call_as_the_owner(scene, Op(scene.wishes.next_no(), "owner.show", {}, None))
    for session in scene.sessions:
        if session.holding and not session.in_flight:
            scene._attempt(session, scene.wishes.inbox(), late=False)
    scene.settle()


def _damaged(scene: "Scene", pages: bytes, chain: Sequence[str]) -> bytes:
    """Pages in which one record of the owner's chain grants more, or is signed by nobody."""
    connection = open_image(pages, lambda seq, attempt: None)
    record_id = scene.chance.choice((*chain[1:], chain[-1], chain[-1]))
    change = scene.chance.choice(_DAMAGES)
    connection.execute(f"UPDATE owner_records SET {change} WHERE record_id = ?", (record_id,))
    assert connection.execute("SELECT changes()").fetchone()[0] == 1
    scene.events.append(Damaged(record_id))
    scene.totals.count("damaged records")
    changed = connection.serialize()
    connection.close()
    return changed
