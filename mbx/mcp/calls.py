"""From a tool call to calls of the local protocol: which methods, with which parameters, in order.

A tool decides nothing: what may be done is decided by the methods, for agents as for commands. All
calls of one tool call carry keys made from its own, so that a repeat of it is a repeat of each.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from mbx.core.clients import CLIENTS, START
from mbx.core.errors import MbxError

READ_DEFAULT_BYTES: Final = 24 * 1024
"""Of bodies in one answer where the call says nothing: every byte is the reader's context."""

READ_SHARE_MIN_BYTES: Final = 512
"""Of one body, when many are read at once; the rest is behind its next_offset."""

_CHANGES: Final = ("role", "description", "card")


class Step(NamedTuple):
    """One call of the local protocol; `keyed` ones carry an idempotency key."""

    method: str
    params: Mapping[str, Any]
    keyed: bool = False


class Surroundings(NamedTuple):
    """What a tool call does not say itself: the project that its client works in."""

    project: str | None = None


Arguments = Mapping[str, Any]
"""Of a tool call, as `mbx.mcp.arguments.read` gives them."""


def steps_of(tool: str, arguments: Arguments, around: Surroundings) -> list[Step]:
    """The calls that carry a tool call out; the last one's result is the tool's.

    Raises MbxError usage for arguments that do not go together.
    """
    return _STEPS[tool](arguments, around)


def _whoami(arguments: Arguments, around: Surroundings) -> list[Step]:
    steps = []
    if "name" in arguments:
        steps.append(Step("identity.rename", {"name": arguments["name"]}, keyed=True))
    changes = {field: arguments[field] for field in _CHANGES if field in arguments}
    if changes:
        steps.append(Step("identity.set", changes, keyed=True))
    bind = {"bind": arguments["bind"]} if "bind" in arguments else {}
    return [*steps, Step("session.whoami", bind)]


def _identity(arguments: Arguments, around: Surroundings) -> list[Step]:
    action = arguments["action"]
    given = {key: value for key, value in arguments.items() if key != "action"}
    allowed = _OF_ACTION[action]
    extra = sorted(set(given) - allowed)
    if extra:
        raise MbxError("usage", f"{action} takes no {extra[0]}", _ACTION_HELP)
    if action == "list":
        return [Step("identity.list", given)]
    if action == "release":
        return [Step("identity.release", {}, keyed=True)]
    if "name" not in given or (action == "register" and "role" not in given):
        what = "name and role" if action == "register" else "name"
        raise MbxError("usage", f"{action} needs {what}", _ACTION_HELP)
    if action == "register" and around.project is not None:
        given["project"] = around.project
    return [Step(f"identity.{action}", given, keyed=True)]


_OF_ACTION: Final[Mapping[str, frozenset[str]]] = MappingProxyType(
    {
        "list": frozenset({"all"}),
        "register": frozenset({"name", "role", "description"}),
        "claim": frozenset({"name"}),
        "release": frozenset(),
    }
)
_ACTION_HELP: Final = "list {all}, register {name, role, description}, claim {name}, release {}"


def _read(arguments: Arguments, around: Surroundings) -> list[Step]:
    if "max_bytes" in arguments:
        return [Step("mail.read", arguments)]
    share = max(READ_SHARE_MIN_BYTES, READ_DEFAULT_BYTES // max(1, len(arguments["ids"])))
    return [Step("mail.read", {**arguments, "max_bytes": share})]


def _sent(arguments: Arguments, around: Surroundings) -> list[Step]:
    """One message comes with its text, as much as one body of a read."""
    share = {"max_bytes": READ_DEFAULT_BYTES} if "id" in arguments else {}
    return [Step("mail.sent", {**arguments, **share})]


def _hook(arguments: Arguments, around: Surroundings) -> list[Step]:
    called = {"session": arguments["session"]} if arguments.get("session") else {}
    acts = {client.act_of(arguments["event"]) for client in CLIENTS.values()}
    return [Step("session.hook", {"event": "start" if START in acts else "called", **called})]


def _one(method: str, *, keyed: bool = False) -> Callable[[Arguments, Surroundings], list[Step]]:
    return lambda arguments, around: [Step(method, arguments, keyed)]


_STEPS: Final[Mapping[str, Callable[[Arguments, Surroundings], list[Step]]]] = MappingProxyType(
    {
        "mbx_whoami": _whoami,
        "mbx_identity": _identity,
        "mbx_agents": _one("agents.list"),
        "mbx_inbox": _one("mail.inbox"),
        "mbx_read": _read,
        "mbx_send": _one("mail.send", keyed=True),
        "mbx_reply": _one("mail.reply", keyed=True),
        "mbx_ack": _one("mail.ack", keyed=True),
        "mbx_thread": _one("mail.thread"),
        "mbx_search": _one("mail.search"),
        "mbx_sent": _sent,
        "mbx_hook": _hook,
    }
)


def key_of(call_key: str, place: int, given: str | None = None) -> str:
    """The idempotency key of the step at a place; `given`: the one that the call itself names."""
    if given is not None:
        return given
    return call_key if place == 0 else f"{call_key}.{place}"
