"""Checks of the agent CLIs of this machine: whether mbx is set up in them, and this mbx."""

from typing import Final

from mbx.doctor.verdict import Check, few
from mbx.setup.installer import ClientPlan, Plan

NAME: Final = "clients"
_ALL: Final = "mbx setup"


def checks(plan: Plan) -> list[Check]:
    """What setup would do tells how things are; `plan` is for all clients found."""
    if not plan.clients:
        return [Check(NAME, "info", "no agent CLI was found on this machine")]
    found = [check for client in plan.clients for check in _client(client)]
    is_used = any(change.had_entries for client in plan.clients for change in client.changes)
    if is_used:
        found += [
            Check(
                NAME, "fail", f"{path} is gone: hooks that end in nothing block every prompt", _ALL
            )
            if path in plan.lost
            else Check(NAME, "warn", f"{path} is not the script of this version", _ALL)
            for path in plan.scripts
        ]
    return few(found)


def _client(client: ClientPlan) -> list[Check]:
    name, title = client.trace.client.name, client.trace.client.title
    step = f"mbx setup --only {name}"
    refused = [
        Check(NAME, "warn", f"{title}: {change.path} {change.why}", f"mend it, then {step}")
        for change in client.changes
        if change.act == "refused"
    ]
    if refused:
        return refused
    due = [change for change in client.changes if change.act == "write"]
    if not any(change.had_entries for change in client.changes):
        return [Check(NAME, "info", f"{title} is here, and mbx is not set up in it", step)]
    if not due:
        return [Check(NAME, "ok", f"{title}: set up")]
    paths = ", ".join(change.path for change in due)
    notes = "; ".join(note for change in due for note in change.notes)
    detail = f"{title}: not as this mbx would have it: {paths}" + (f" ({notes})" if notes else "")
    return [Check(NAME, "warn", detail, step)]
