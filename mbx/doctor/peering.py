"""Checks of paired hosts: the TLS key, the listener, each link, clocks, and what waits.

The key file is looked at by its form alone: nothing here opens it, and what is in it is never told.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from mbx.core.limits import CLOCK_SKEW_TOLD_MS
from mbx.doctor.files import Entry
from mbx.doctor.verdict import Check, Level, Remedy, few, size, span
from mbx.paths import quoted

Told = Mapping[str, Any]
"""The result of `daemon.health`."""

WAITS_S: Final = 3_600
"""Mail may wait an hour for a host that sleeps before anybody is warned."""

SIGNED_WAITS_S: Final = 60
"""With a link it takes a moment; without one a revocation does not hold there yet."""

NEARLY_FULL_PERCENT: Final = 80
"""From here on a queue is worth a word: at 100 nobody can write to that host."""

FILE_MAX_BYTES: Final = 4_096
"""Of the file of the TLS key, with its certificate."""

_TRIED: Final = "mend that; it is tried again within a minute"

_PARTS: Final = (b"-----BEGIN PRIVATE KEY-----", b"-----BEGIN CERTIFICATE-----")


def everything(told: Told) -> list[Check]:
    """All checks of one answer; none for a daemon that says nothing of paired hosts."""
    if "peers" not in told:
        return []
    return [*listener(told), *links(told), *clocks(told), *outbox(told), *signed(told)]


# -- the key --------------------------------------------------------------------------------------


def tls_key(seen: Entry, content: bytes | None, user_id: int, *, has_peers: bool) -> Check:
    """The key by which paired hosts know this one. Modes are told by the check `modes`."""
    path = quoted(seen.path)
    lost = "put tls.key back from a backup, mode 600; without one, pair with every host again"
    if seen.kind == "missing":
        if has_peers:
            return Check("tls key", "fail", f"{seen.path} is missing: no host can know this", lost)
        return Check("tls key", "info", "not made yet: the first pairing makes it")
    if seen.kind != "file":
        detail = f"{seen.path} is no regular file"
        return Check("tls key", "fail", detail, f"mv {path} {path}.aside, then {lost}")
    if seen.user_id != user_id:
        detail = f"{seen.path} belongs to user {seen.user_id}, not to user {user_id}"
        return Check("tls key", "fail", detail, f"sudo chown {user_id} {path}")
    if content is None:
        detail, remedy = f"{seen.path} cannot be read", Remedy("close-file", seen.path)
        return Check("tls key", "fail", detail, f"chmod 600 {path}", remedy)
    if not all(part in content for part in _PARTS):
        return Check("tls key", "fail", f"{seen.path} is damaged", lost)
    return Check("tls key", "ok", "closed to others, whole")


# -- what the daemon tells ------------------------------------------------------------------------


def listener(told: Told) -> list[Check]:
    """Where this host listens for others, if it was told to."""
    wanted, found, fault = told["listen"], told["listening"], told["network_fault"]
    if fault is not None:
        return [Check("listener", "fail", f"the network cannot be used: {fault}", _TRIED)]
    deaf, why = [one for one in wanted if one not in found], told.get("listener_fault")
    if deaf and why is not None:
        level: Level = "warn" if found else "fail"
        heard = f"it listens at {', '.join(found)}" if found else "it listens nowhere"
        return [Check("listener", level, f"this host {why}; {heard}", _TRIED)]
    if deaf:
        detail = f"this host does not listen at {', '.join(deaf)}, although it was told to"
        return [Check("listener", "fail", detail, "mbx daemon restart")]
    if found:
        return [Check("listener", "ok", f"at {', '.join(found)}")]
    return [Check("listener", "ok", "none: this host dials, others cannot")]


def links(told: Told) -> list[Check]:
    """Each paired host whose link does not stand; a host that sleeps is no fault by itself."""
    found = [_link(one, told["now"]) for one in told["peers"] if one["state"] != "up"]
    found += [_refusing(one, told["now"]) for one in told["peers"] if _refused_at(one)]
    found += [_parted(one, told["now"]) for one in told["peers"] if one.get("parted")]
    up = sum(one["state"] == "up" for one in told["peers"])
    well = Check("peers", "ok", f"{len(told['peers'])} paired, {up} with a link")
    return few(sorted(found, key=lambda one: one.level != "fail")) or [well]


def _link(one: Told, now: str) -> Check:
    label, why = one["label"], f": {one['reason']}" if one["reason"] else ""
    seen = _age_s(one["last_seen"], now)
    since = "never seen" if seen is None else f"last seen {span(seen)} ago"
    if one["state"] == "stopped":
        return Check("peers", "fail", f"the link to {label} is stopped{why}", one["next"])
    if one["state"] == "removed-us":
        return Check("peers", "warn", f"{label} has removed this host", one["next"])
    waits = _age_s(one["oldest_at"], now)
    mail = "" if waits is None else f"; {_count(one['queued'])}, the oldest for {span(waits)}"
    late = waits is not None and waits >= WAITS_S
    level: Level = "warn" if late or one["next"] else "info"
    step = one["next"] or (f"mbx peers show {label}" if level == "warn" else None)
    return Check("peers", level, f"no link to {label}{why}; {since}{mail}", step)


def _refused_at(one: Told) -> str | None:
    """Since when a host whose link stands takes nothing."""
    at: str | None = (one.get("link") or {}).get("refused_since")
    return at if one["state"] == "up" else None


def _refusing(one: Told, now: str) -> Check:
    since = span(_age_s(_refused_at(one), now) or 0)
    detail = f"{one['label']}: {one['reason']}, since {since}; {_count(one['queued'])}"
    return Check("peers", "warn", detail, "mend that on that host; mail follows by itself")


def _parted(one: Told, now: str) -> Check:
    """A link that may go on was stopped lately: by a store put back since, or by a copy."""
    parted = one["parted"]
    since = span(_age_s(parted["at"], now) or 0)
    detail = f"the link to {one['label']} was stopped {since} ago: {parted['reason']}"
    return Check("peers", "warn", detail, one["next"])


def clocks(told: Told) -> list[Check]:
    """Hosts whose records come before they were signed, or long after although a link stands."""
    found = []
    for one in told["peers"]:
        ahead_ms = one["clock_ahead_ms"]
        if ahead_ms is None or abs(ahead_ms) <= CLOCK_SKEW_TOLD_MS:
            continue
        apart = span(abs(ahead_ms) // 1000)
        if ahead_ms > 0:
            detail = f"the clock of {one['label']} is {apart} ahead of this one, or this one behind"
            found.append(Check("clocks", "warn", detail, "set both clocks right: timedatectl"))
        else:
            detail = (
                f"what {one['label']} signed came {apart} later: it waited, or the clocks differ"
            )
            found.append(Check("clocks", "info", detail))
    return few(found) or [Check("clocks", "ok", "no paired host's clock is seen to differ")]


def outbox(told: Told) -> list[Check]:
    """Queues that are nearly full, and how much waits in all."""
    most, most_bytes, found = told["queue_max"], told["queue_max_bytes"], []
    for one in told["peers"]:
        full = max(one["queued"] / most, one["queued_bytes"] / most_bytes) * 100
        if full >= NEARLY_FULL_PERCENT:
            detail = (
                f"the queue for {one['label']} is {min(int(full), 100)} % full:"
                f" {_count(one['queued'])}, {size(one['queued_bytes'])}"
            )
            level: Level = "fail" if full >= 100 else "warn"
            step = (
                f"mbx peers show {one['label']}; mbx peers remove {one['label']} returns the mail"
            )
            found.append(Check("outbox", level, detail, step))
    waits = sum(one["queued"] for one in told["peers"])
    return few(found) or [Check("outbox", "ok", f"{waits:,} messages wait for other hosts")]


def signed(told: Told) -> list[Check]:
    """What the owner signed and a host of the same owner does not have yet: there it holds not."""
    found = []
    for one in told["peers"]:
        waits = _age_s(one.get("signed_at"), told["now"])
        if waits is None or one["ended_at"] is not None:
            continue
        count = one["signed_waiting"]
        records = "1 record" if count == 1 else f"{count:,} records"
        detail = f"{one['label']} does not have {records} that you signed, since {span(waits)}"
        level: Level = "warn" if waits >= SIGNED_WAITS_S else "info"
        found.append(Check("signed records", level, detail, f"mbx peers show {one['label']}"))
    return few(found) or [Check("signed records", "ok", "every host of yours has all of them")]


def _count(messages: int) -> str:
    return "1 message waits" if messages == 1 else f"{messages:,} messages wait"


def _age_s(at: str | None, now: str) -> int | None:
    if at is None:
        return None
    since, until = (datetime.fromisoformat(text) for text in (at, now))
    return max(0, int((until - since).total_seconds()))
