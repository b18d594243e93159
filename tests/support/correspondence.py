"""Mail between sessions of an `OfficeDesk`, in a line each."""

from typing import Any

from mbx.daemon.gate import Caller
from tests.support.office import OfficeDesk


def hold(desk: OfficeDesk, caller: Caller, name: str) -> Caller:
    """Let the caller hold this new name."""
    desk.call(caller, "identity.register", name=name, role="dev")
    return caller


def mail(desk: OfficeDesk, sender: Caller, to: str | list[str], **more: object) -> str:
    letter = {"to": [to] if isinstance(to, str) else to, "subject": "s", "body": "b", **more}
    return str(desk.call(sender, "mail.send", **letter)["id"])


def read(desk: OfficeDesk, reader: Caller, message: str) -> dict[str, Any]:
    entry: dict[str, Any] = desk.call(reader, "mail.read", ids=[message])["messages"][0]
    return entry
