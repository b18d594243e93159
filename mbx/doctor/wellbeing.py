"""Checks of what only the daemon can see, from its answer to `daemon.health`."""

from collections.abc import Callable, Mapping
from typing import Any, Final

from mbx.doctor import authority, peering
from mbx.doctor.verdict import Check, Remedy, few, size, span

Told = Mapping[str, Any]
"""The result of `daemon.health`."""

Missing = Callable[[str, str], str | None]
"""(cli, session id) -> the path of the session's credential when it is not there."""

INDEX_BEHIND: Final = 4_096
"""From here on the indexer takes large batches; more than this, it does not keep up."""

STRANDED_S: Final = 3_600
"""Mail may wait an hour for an agent that is away before anybody is warned."""

PENDING_S: Final = 600
"""A session that waits longer for its identity waits for a holder that does not end."""

FREE_LARGE_BYTES: Final = 256 * 1024 * 1024
"""Free pages are used again; only very many are worth a word."""

COUNTED_MAX: Final = 1_000
"""Where the daemon stops counting the unacked mail of one mailbox."""

WAL_RESET_FIXED: Final = ((3, 51, 3), (3, 50, 7), (3, 44, 6))
"""The first fixed release of each line (sqlite.org, "Write-Ahead Logging", the WAL-reset bug)."""


def everything(told: Told, missing: Missing) -> list[Check]:
    """All checks of one answer."""
    return [
        *integrity(told),
        *audit(told),
        *authority.everything(told),
        index(told),
        sqlite(told),
        pages(told),
        *leases(told),
        *credentials(told, missing),
        *pending(told),
        *stranded(told),
        *wakes(told),
        *peering.everything(told),
    ]


def refused(refusal: Told | None) -> Check:
    """The daemon answers and does not say how it is."""
    code = (refusal or {}).get("code")
    if code == "store-damaged":
        return Check(
            "store pages",
            "fail",
            "a page of the store is damaged; it was left as it is",
            "mbx daemon stop, keep store.db and store.db-wal aside, then restore a backup",
        )
    if code in ("usage", "version-mismatch"):
        detail = "the running daemon is of another version and does not say how it is"
        return Check("health", "warn", detail, "mbx daemon restart")
    if code is None:
        detail = "the daemon is alive and did not say in time how it is"
        return Check("health", "warn", detail, "mbx doctor")
    return Check("health", "fail", f"the daemon cannot say how it is ({code})", "mbx daemon status")


def integrity(told: Told) -> list[Check]:
    """The store file as SQLite itself checks it."""
    found = told.get("quick_check")
    if found is None:
        return []
    restore = "mbx daemon stop, keep store.db and store.db-wal aside, then restore a backup"
    if found["verdict"] == "damaged":
        detail = f"the store is damaged: {'; '.join(found['faults'])}"
        return [Check("store pages", "fail", detail, restore)]
    if found["verdict"] == "skipped":
        detail = f"not checked: {size(told['store_bytes'])} would keep everybody waiting"
        return [Check("store pages", "info", detail)]
    return [Check("store pages", "ok", "checked by SQLite")]


def audit(told: Told) -> list[Check]:
    """The chain of the audit log, and what the host signed of it."""
    found = told["audit"]
    checked, broken = found["checked"], found["first_break"]
    rows = found.get("rows", checked)
    faults = found.get("faults")
    if faults is None and broken is not None:  # a daemon that names no more
        faults = [f"row {broken} does not follow from the one before"]
    if faults:
        fix = "keep the home folder aside; mbx audit --verify tells all; then restore a backup"
        return few([Check("audit", "fail", f"the audit log: {one}", fix) for one in faults])
    if checked < rows:
        detail = f"the newest {checked} of {rows} rows hold; mbx audit --verify checks all"
        return [Check("audit", "ok", detail)]
    return [Check("audit", "ok", f"all {checked} rows follow from each other")]


def index(told: Told) -> Check:
    """The full-text index behind the commits."""
    behind = told["index_pending"]
    if behind > INDEX_BEHIND:
        detail = f"the index is {behind} messages behind; searches wait for it"
        return Check("index", "warn", detail, "mbx daemon restart")
    return Check("index", "ok", f"{behind} messages behind")


def sqlite(told: Told) -> Check:
    """The SQLite that keeps the store."""
    version = told["sqlite_version"]
    words = f"SQLite {version}, Python {told['python_version']}"
    if has_wal_reset_race(version):
        detail = f"{words}: has the WAL-reset race; one connection only, so harmless"
        return Check("sqlite", "info", detail)
    return Check("sqlite", "ok", words)


def has_wal_reset_race(version: str) -> bool:
    """Whether two connections could damage a write-ahead log with this SQLite."""
    numbers = tuple(int(part) for part in version.split(".") if part.isdigit())
    if numbers < (3, 7, 0) or numbers >= WAL_RESET_FIXED[0]:
        return False
    return not any(numbers[:2] == fixed[:2] and numbers >= fixed for fixed in WAL_RESET_FIXED[1:])


def pages(told: Told) -> Check:
    """The size of the store, and what of it is free."""
    words = f"{size(told['store_bytes'])}, {size(told['free_bytes'])} of it free"
    is_wasteful = told["free_bytes"] > FREE_LARGE_BYTES
    return Check("size", "info" if is_wasteful else "ok", words)


def leases(told: Told) -> list[Check]:
    """Leases that are held and could be claimed: their holders are gone, or silent and unseen."""
    stale = [one for one in told["leases"] if one["claimable"]]
    unseen = [
        one for one in told["leases"] if one["evidence"] == "unknown" and not one["claimable"]
    ]
    found = [
        Check(
            "leases",
            "warn",
            f"{one['name']} is held by {_who(one)} for {span(one['age_s'])}: {one['reason']}",
            f"mbx identity claim {one['name']}",
        )
        for one in stale
    ] + [
        Check(
            "leases",
            "info",
            f"the holder of {one['name']} ({_who(one)}) cannot be seen; it keeps it for now",
        )
        for one in unseen
    ]
    return few(found) or [Check("leases", "ok", f"{told['leases_total']} held, none stale")]


def credentials(told: Told, missing: Missing) -> list[Check]:
    """The file of each session that holds an identity; the daemon writes a missing one again."""
    held = [one for one in told["leases"] if one["cli"] is not None]
    found = [
        Check(
            "credentials",
            "warn",
            f"the credential of {one['name']} ({_who(one)}) is missing",
            "mbx doctor --fix",
            Remedy("credentials", path),
        )
        for one in held
        if (path := missing(one["cli"], one["session"])) is not None
    ]
    return few(found) or [Check("credentials", "ok", f"{len(held)} in place")]


def pending(told: Told) -> list[Check]:
    """Sessions that wait for an identity somebody else holds."""
    found = [
        Check(
            "pending",
            "warn" if one["age_s"] >= PENDING_S else "info",
            f"{_who(one)} waits for {one['name']} since {span(one['age_s'])}",
            f"mbx identity show {one['name']}",
        )
        for one in told["pending"]
    ]
    return few(found) or [Check("pending", "ok", "no session waits for an identity")]


def stranded(told: Told) -> list[Check]:
    """Mail nobody reads: of identities that nobody holds, with who held them last."""
    oldest_first = sorted(told["stranded"], key=lambda one: -one["oldest_s"])
    found = [
        Check(
            "stranded mail",
            "warn" if one["oldest_s"] >= STRANDED_S else "info",
            f"{_count(one['unacked'])} for {one['name']}, {_why_unread(one)}; the oldest waits "
            f"{span(one['oldest_s'])}; {_last(one)}",
            f"mbx identity forward {one['name']} NEW  (for the owner)"
            if one.get("state") == "retired"
            else f"mbx identity claim {one['name']}",
        )
        for one in oldest_first
    ]
    return few(found) or [Check("stranded mail", "ok", "no mail waits for nobody")]


def wakes(told: Told) -> list[Check]:
    """Wakes of unknown outcome, and sessions that take none for now."""
    known = told.get("wakes") or {"unknown": [], "closed": []}
    found = [
        Check(
            "wakes",
            "warn",
            f"whether {_times(one['count'])} reached the session of {one['name']} is not known;"
            f" the last was {span(one['last_age_s'])} ago",
            f"mbx diagnostics --mailbox {one['name']}",
        )
        for one in known["unknown"]
    ] + [Check("wakes", "info", f"{one['name']}: {one['detail']}") for one in known["closed"]]
    return few(found) or [Check("wakes", "ok", "every wake of the last day is known to have ended")]


def _times(count: int) -> str:
    return "a wake" if count == 1 else f"{count} wakes"


def _why_unread(one: Told) -> str:
    return "which is retired" if one.get("state") == "retired" else "whom nobody holds"


def _count(unacked: int) -> str:
    if unacked >= COUNTED_MAX:
        return f"{COUNTED_MAX} unacked messages or more"
    return "1 unacked message" if unacked == 1 else f"{unacked} unacked messages"


def _last(one: Told) -> str:
    if one["last_holder"] is None:
        return "nobody ever held it"
    who = f"{one['last_holder']['cli']} {one['last_holder']['session']}"
    return f"last held by {who} until {one['since'][:16].replace('T', ' ')} UTC"


def _who(one: Told) -> str:
    return f"{one['cli']} {one['session']}"
