"""The story of a day as it can be read back: the audit log, told for each identity."""

import json
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from mbx.store.audit import AuditRow

_INDENT: Final = "    "


def story(rows: Sequence[AuditRow], identities: Iterable[tuple[str, str, str]]) -> Iterator[str]:
    """Lines: each identity (id, name, role) with what happened to it, in order.

    Identities that nobody ever held (the owner) have no story.
    """
    told: dict[str, list[str]] = {}
    for row in rows:
        if row.identity is not None:
            at = time.strftime("%H:%M:%S", time.localtime(row.at_ms / 1000))
            if (said := _said(row.act, json.loads(row.detail))) is not None:
                told.setdefault(row.identity, []).append(f"{_INDENT}{at}  {said}")
    for identity, name, role in identities:
        if identity in told:
            yield f"{name}, {role}"
            yield from told[identity]


def acts(rows: Iterable[AuditRow]) -> Counter[str]:
    """How often each act stands in the log."""
    return Counter(row.act for row in rows)


def _said(act: str, detail: dict[str, Any]) -> str | None:
    """The act in words; None for what is about mail and not about the identity."""
    session = f"{detail.get('cli')} {detail.get('session')}"
    match act:
        case "register":
            return f"registered as {detail['name']}, {detail['role']}"
        case "claim":
            return f"claimed by {session}, epoch {detail['epoch']}"
        case "release":
            return f"released by {session}"
        case "lapse":
            return f"lapsed: {session}: {detail['why']}"
        case "revive":
            return f"revived, epoch {detail['epoch']}"
        case "rename":
            return f"renamed from {detail['old_name']} to {detail['name']}"
        case _:
            return None
