"""`daemon.health` and `daemon.mend`: what only the daemon can see and do, for doctor.

The first changes nothing, reads a bounded number of rows, and tells no subject, body or secret.
"""

import os
import platform
from typing import Final

from mbx.core.errors import MbxError
from mbx.core.lease import LeaseState, claimable
from mbx.core.limits import LIST_MAX_ROWS, QUEUE_MAX_BYTES, QUEUE_MESSAGES_MAX, WAKE_DAY_MS
from mbx.core.policy import Policy
from mbx.daemon import auditing, chainlist, floor, listing, peerlabels, peerlist
from mbx.daemon.context import Answer, Context, Result
from mbx.daemon.effects import Mend
from mbx.daemon.gate import Open
from mbx.daemon.methods.table import open_method
from mbx.daemon.params import Params
from mbx.daemon.times import optional_rfc3339, rfc3339
from mbx.paths import Paths
from mbx.store import audit, health, hosts, identities, leases, owners, search, sessions, wakes
from mbx.store.database import Tx
from mbx.store.health import Stranded
from mbx.store.leases import LeaseRow

AUDIT_ROWS: Final = 256
"""So many of the newest rows of the audit log are checked; 256 take 2 ms."""

AUDIT_FAULTS_MAX: Final = 10
"""Faults of the audit log that are told; `audit.verify` tells all."""

AUDIT_ROWS_THOROUGH: Final = 10_000
"""And so many when asked to be thorough: everybody waits for it (0.2 s)."""


def _read_health(params: Params) -> bool:
    return params.boolean("thorough")


def _health(context: Context, tx: Tx, caller: Open, thorough: bool) -> Answer:
    sizes = health.sizes(tx)
    held = leases.held(tx)
    return Answer(
        {
            "version": context.facts.version,
            "protocol": context.facts.protocol,
            "python_version": platform.python_version(),
            "sqlite_version": sizes.sqlite_version,
            "now": rfc3339(context.moment.now_ms),
            "newest_at": optional_rfc3339(health.newest_ms(tx)),
            "store_bytes": sizes.store_bytes,
            "free_bytes": sizes.free_bytes,
            "wal_bytes": _wal_bytes(context),
            "index_pending": search.progress(tx).pending,
            "quick_check": _quick_check(tx, sizes.store_bytes) if thorough else None,
            "audit": _audit(context, tx, AUDIT_ROWS_THOROUGH if thorough else AUDIT_ROWS),
            **authority(context, tx),
            "leases": [_lease(context, tx, row) for row in held[:LIST_MAX_ROWS]],
            "leases_total": len(held),
            "pending": [
                {
                    "cli": one.cli,
                    "session": one.session_id,
                    "name": one.name,
                    "since": rfc3339(one.since_ms),
                    "age_s": _age_s(context, one.since_ms),
                }
                for one in health.waiting(tx, LIST_MAX_ROWS)
            ],
            "wakes": _wakes(context, tx, held),
            "stranded": [_stranded(context, one) for one in health.stranded(tx, LIST_MAX_ROWS)],
            **_network(context, tx),
        }
    )


def _wakes(context: Context, tx: Tx, held: list[LeaseRow]) -> Result:
    """Wakes of the last day of which nobody knows whether they arrived, and who takes none now.

    `closed`: live sessions of agent CLIs that have a way and would not be woken now.
    """
    since_ms = context.moment.now_ms - WAKE_DAY_MS
    reached = ((row, context.reach(row, None)) for row in held[:LIST_MAX_ROWS])
    return {
        "unknown": [
            {"name": name, "count": count, "last_age_s": _age_s(context, last_ms)}
            for name, count, last_ms in wakes.unknown(tx, since_ms, LIST_MAX_ROWS)
        ],
        "closed": [
            {"name": identities.by_no(tx, row.identity_no).name, "detail": reach.detail}
            for row, reach in reached
            if not reach.is_open and reach.is_refused
        ],
    }


def _network(context: Context, tx: Tx) -> Result:
    """Paired hosts as `peers.list` shows them, and where this host listens for them."""
    rows, state = peerlabels.listed(tx), context.network()
    return {
        "peers": [peerlist.shown(context, tx, row) for row in rows[:LIST_MAX_ROWS]],
        "queue_max": QUEUE_MESSAGES_MAX,
        "queue_max_bytes": QUEUE_MAX_BYTES,
        "listen": list(hosts.listen(tx)),
        **state.told(),
    }


def _audit(context: Context, tx: Tx, newest: int) -> Result:
    """The chain of the newest rows, and what the host signed of them last."""
    reached = context.authority.audit_reached
    checked, faults = auditing.newest(context.host, tx, newest, reached)
    return {
        "rows": audit.head(tx)[0],
        "checked": checked,
        "first_break": faults[0].row if faults else None,
        "faults": [fault.words for fault in faults[:AUDIT_FAULTS_MAX]],
    }


def authority(context: Context, tx: Tx) -> Result:
    """What the owner signed: the key, what it delegates now, and whether all of it is to be had."""
    keys, book = owners.keys(tx), context.authority.book(tx)
    clock = context.authority.clock(tx, context.moment.now_ms)
    standing = chainlist.in_effect(context, tx, book, clock)
    behind_ms = clock.high_ms - clock.now_ms if clock.is_behind else 0
    return {
        "owner": {"key_id": keys[0].key_id, "since": optional_rfc3339(owners.since_ms(tx))}
        if keys
        else None,
        "policies": [_policy(context, tx, one) for one in standing[:LIST_MAX_ROWS]],
        "chain_damage": chainlist.damage(context, book),
        "followed": chainlist.followed(book),
        "clock_behind_s": behind_ms // 1000,
        "void_until": book.void,
        "floor": _floor(context),
        "floor_fault": context.authority.floor_fault or None,
    }


def _policy(context: Context, tx: Tx, policy: Policy) -> Result:
    """A policy that holds now."""
    return {
        "id": policy.id,
        "level": policy.level,
        "to": [chainlist.called(context, tx, policy, one) for one in policy.to],
        "from": [chainlist.sender(context, tx, source) for source in policy.sources],
        "until": rfc3339(policy.exp_ms),
        "left_s": (policy.exp_ms - context.moment.now_ms) // 1000,
    }


def _floor(context: Context) -> str:
    """`ok`, `missing`, `damaged`, `unwritten`, or `another`: not what this host wrote last."""
    if context.authority.floor_fault:
        return "unwritten"
    try:
        found = floor.load(Paths(context.facts.home, "").floor_path(), context.host)
    except (MbxError, OSError):
        return "damaged"
    if found is None or found == floor.Floor():
        return "missing"
    no, digest = context.authority.audit_reached
    known = (context.authority.floor, no, digest.hex(), context.authority.void)
    followed = {one.chain: (one.version, one.at_ms) for one in found.followed}
    is_ours = found[:4] == known and followed == context.authority.followed
    return "ok" if is_ours else "another"


def _quick_check(tx: Tx, store_bytes: int) -> Result:
    """`verdict` is ok, damaged, or skipped (too large to look at while everybody waits)."""
    faults = health.quick_check(tx, store_bytes)
    if faults is None:
        return {"verdict": "skipped", "faults": []}
    return {"verdict": "damaged" if faults else "ok", "faults": faults}


def _wal_bytes(context: Context) -> int | None:
    try:
        return os.stat(os.path.join(context.facts.home, "store.db-wal")).st_size
    except OSError:
        return None


def _lease(context: Context, tx: Tx, row: LeaseRow) -> Result:
    """A held lease, what is known of its holder, and whether it is stale: held and claimable."""
    seen, verdict = context.observe(row), claimable(row.lease, context.observe(row))
    session = sessions.by_no(tx, row.lease.session_no) if row.lease.session_no else None
    return {
        "name": identities.by_no(tx, row.identity_no).name,
        "epoch": row.lease.epoch,
        "cli": session.cli if session else None,
        "session": session.session_id if session else None,
        "pid": session.process.pid if session else None,
        "since": rfc3339(row.lease.since_ms),
        "age_s": _age_s(context, row.lease.since_ms),
        "evidence": seen.evidence if seen else "unknown",
        "silent_s": seen.silent_ms // 1000 if seen else None,
        "claimable": verdict.ok,
        "reason": verdict.reason,
    }


def _stranded(context: Context, mail: Stranded) -> Result:
    """Unacked mail of an identity nobody holds, and who held it last until when."""
    was_held = mail.cli is not None
    state = LeaseState(mail.state).name.lower() if mail.retired_ms is None else "retired"
    return {
        "name": mail.name,
        "state": state,
        "unacked": mail.unacked,
        "oldest_s": _age_s(context, mail.oldest_ms),
        "last_holder": {"cli": mail.cli, "session": mail.session_id} if was_held else None,
        "since": rfc3339(mail.since_ms),
        "last_seen": listing.last_seen(context, mail.identity_no, mail.last_seen_ms),
    }


def _age_s(context: Context, at_ms: int) -> int:
    return max(0, context.moment.now_ms - at_ms) // 1000


def _read_nothing(params: Params) -> None:
    return None


def _mend(context: Context, tx: Tx, caller: Open, request: None) -> Answer:
    return Answer({"mending": True}, (Mend(),))


METHODS: Final = (
    open_method(
        "daemon.health",
        "Store, leases, waiting sessions, stranded mail, paired hosts, for doctor; with `thorough`"
        " the store file and more of the audit chain are checked.",
        _read_health,
        _health,
    ),
    open_method(
        "daemon.mend",
        "Keep house now, not within a minute: missing credentials are written again.",
        _read_nothing,
        _mend,
    ),
)
"""What this module adds to the table of methods."""
