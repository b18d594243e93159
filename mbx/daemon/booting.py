"""The first unit of work of a daemon's life: whose store this is, and who still lives."""

import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field

from mbx.core.errors import MbxError
from mbx.core.evidence import Evidence, Process, is_same_boot
from mbx.core.keys import crockford, key_id
from mbx.core.names import OWNER, fold_host_label
from mbx.daemon import announcing, floor, forwarding, keystore, kinship, resuming
from mbx.daemon.authority import Authority
from mbx.daemon.effects import Authorised, Effect, HandOn, Waiting
from mbx.daemon.floor import Floor, FollowedFloor
from mbx.daemon.host import Host
from mbx.daemon.processes import above, evidence
from mbx.daemon.world import Moment, World, moment
from mbx.paths import Paths
from mbx.store import audit, forwards, hosts, identities, leases, sessions, waiting, wakes
from mbx.store.database import Tx
from mbx.store.hosts import HostRow
from mbx.store.sessions import SessionRow


@dataclass(frozen=True, slots=True)
class Boot:
    """What the first unit found.

    The host, the sessions that still have a grant (each with its identity's name), and effects:
    who waits, who got what a dead one held, and what the second place is to be told. `floor`: how
    far the owner's chain ever went. `past`: what was woken, for the brake.
    `interrupted`: sessions (their own ids) that were being woken when an earlier daemon ended.
    """

    host: Host
    sessions: list[tuple[SessionRow, str]]
    effects: list[Effect] = field(default_factory=list)
    floor: Floor = field(default_factory=Floor)
    past: wakes.Past = field(default_factory=wakes.Past)
    interrupted: tuple[str, ...] = ()


def boot(
    tx: Tx,
    paths: Paths,
    world: World,
    boot_id: str,
    look: Callable[[Process], Evidence] = evidence,
    see: kinship.See = above,
) -> Boot:
    """Load or make the host, bury the sessions whose processes ended while nobody watched.

    `look` tells whether a process lives, `see` what stands above it. Raises MbxError store-damaged
    when key and store do not belong together.
    """
    now = moment(world)
    host = _host(tx, paths.host_key_path(), now)
    effects = _those_who_wait(tx, now, boot_id, look)
    living: list[tuple[SessionRow, str]] = []
    for session in sessions.bound(tx):
        why = _why_dead(session, boot_id, look)
        if why:
            effects += resuming.end(tx, host, now, session, why)
        elif session.identity_no is not None:
            living.append((session, identities.by_no(tx, session.identity_no).name))
            with suppress(MbxError):  # it was granted to it: that stands
                kinship.settle(tx, see, session, now.now_ms)
    sessions.forget_unused(tx)
    effects += [HandOn(no) for no in forwards.left(tx, forwarding.LEFT_MAX)]
    owner_mailbox(tx, now)
    left = (sessions.by_no(tx, no) for no in wakes.settle_left(tx, announcing.LEFT))
    interrupted = tuple(row.own_id for row in left if row is not None)
    known = floor.load(paths.floor_path(), host)
    reached = _floor(tx, known, host, now.now_ms)
    if known is not None and reached != known:
        places = tuple((one.chain, one.version, one.at_ms) for one in reached.followed)
        effects.append(Authorised(reached.version, reached.audit_no, reached.audit_hash, places))
    return Boot(host, living, effects, reached, wakes.past(tx, now.now_ms), interrupted)


def _floor(tx: Tx, known: Floor | None, host: Host, now_ms: int) -> Floor:
    """How far the chain ever went: by the second place, or by ours if a kill left that behind.

    Without the second place nobody can say what the chain once was: then its end counts as missing,
    until the owner signs the next record. A log without the row that it names was put back, also
    where the chain is as long as ever: what else was taken back, a change of the owner's key among
    it, nobody can say. Then all that was signed up to now is void, once for each such row.
    """
    before = {one.chain: one for one in known.followed} if known else {}
    ends = {chain: (one.version, one.at_ms) for chain, one in before.items()}
    book = Authority(host.key_id, known.version if known else 0, followed=ends).book(tx)
    for chain, one in book.followed.items():
        if one.version > ends.get(chain, (0, 0))[0]:
            ends[chain] = (one.version, now_ms)
    version = book.version
    if known is not None:
        row = (known.audit_no, bytes.fromhex(known.audit_hash))
        was_put_back = known.audit_no > 0 and audit.hash_at(tx, row[0]) != row[1]
        places = tuple(
            FollowedFloor(chain, *end, _void(before.get(chain), end[0]) if was_put_back else None)
            for chain, end in sorted(ends.items())
        )
        void = known.void if known.void is not None else version
        return known._replace(version=version, void=void if was_put_back else None, followed=places)
    no, head = audit.head(tx)
    lost = tuple(FollowedFloor(chain, end[0] + 1, now_ms) for chain, end in sorted(ends.items()))
    if not (version or lost):
        return Floor()
    return Floor(version + 1 if version else 0, no, head.hex(), followed=lost)


def _void(known: FollowedFloor | None, end: int) -> int:
    """Up to where a followed chain is void: as at the start that found the store put back."""
    return known.void if known is not None and known.void is not None else end


def _those_who_wait(
    tx: Tx, now: Moment, boot_id: str, look: Callable[[Process], Evidence]
) -> list[Effect]:
    """First the dead among those who wait lose their places: they must not follow anybody."""
    effects: list[Effect] = []
    for pending in waiting.everybody(tx):
        session = sessions.by_no(tx, pending.session_no)
        if session is None or _why_dead(session, boot_id, look):
            waiting.leave(tx, pending.session_no)
        else:
            effects.append(
                Waiting(
                    session.no,
                    session.process,
                    session.conversation,
                    session.cli,
                    session.session_id,
                )
            )
    return effects


def owner_mailbox(tx: Tx, now: Moment) -> None:
    """The human's own mailbox: a reserved name, so that no session can ever hold it."""
    if identities.by_name(tx, OWNER) is None:
        owner = identities.create(
            tx,
            identity=crockford(now.draw("owner mailbox")),
            name=OWNER,
            role=OWNER,
            description="",
            project=None,
            now_ms=now.now_ms,
        )
        leases.create(tx, owner.no, now.now_ms)


def _why_dead(session: SessionRow, boot_id: str, look: Callable[[Process], Evidence]) -> str | None:
    if not is_same_boot(session.process.boot_id, boot_id):
        return "the machine was started again"
    if look(session.process) == "dead":
        return "its process ended while no daemon ran"
    return None


def _host(tx: Tx, key_path: str, now: Moment) -> Host:
    known = hosts.find(tx)
    key = keystore.load_or_create(key_path, now.draw("host key"), must_exist=known is not None)
    own_id = key_id(keystore.ROLE, key.public)
    if known is None:
        known = HostRow(
            own_id, key.public, fold_host_label(os.uname().nodename), crockford(now.draw("store"))
        )
        hosts.create(tx, known, now.now_ms)
        audit.append(tx, at_ms=now.now_ms, act="host", identity=None, key_id=own_id)
    if known.public_key != key.public:
        raise MbxError(
            "store-damaged",
            f"the host key {key_path} is not the one this store belongs to ({known.key_id})",
            "put the right host.key back from a backup, mode 600",
            path=key_path,
        )
    return Host(known.label, known.key_id, key)
