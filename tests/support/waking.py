"""What a sender is told of the session that it writes to, and what became of its wakes."""

from typing import Any

from tests.support.daemon import Line
from tests.support.patience import LOOKS_S, looks


def letter(name: str, **more: Any) -> dict[str, Any]:
    return {"to": [name], "subject": "secret", "body": "secret", "kind": "task", **more}


def send(line: Line, name: str, **more: Any) -> dict[str, Any]:
    """Send, and give what is said of the recipient."""
    sent = line.call("mail.send", **letter(name, **more))
    [one] = sent["recipients"]
    return {**one, "id": sent["id"]}


def reach(line: Line, name: str) -> tuple[str, str, str]:
    [one] = [one for one in line.call("agents.list")["agents"] if one["name"] == name]
    return one["state"], one["reach"], one["reach_detail"]


def until(line: Line, name: str, state: str) -> None:
    """Wait until the daemon sees a session so."""
    for _ in looks():
        if reach(line, name)[0] == state:
            return
    raise AssertionError(reach(line, name))


def wakes(line: Line, name: str, within_s: float = LOOKS_S) -> list[dict[str, Any]]:
    """The wakes of a mailbox, newest first, once there are any and all are settled."""
    for _ in looks(within_s):
        found = line.call("diagnostics.show", mailbox=name)["wakes"]
        if found and all(one["outcome"] for one in found):
            return list(found)
    raise AssertionError(line.call("diagnostics.show", mailbox=name))


def stage_of(line: Line, message: str) -> str:
    [found] = line.call("mail.sent", id=message)["messages"]
    return str(found["recipients"][0]["stage"])
