"""What a tool answers: structured, and as text that says the same.

Some clients show the model only the one, some only the other, so each says everything. The text is
terse lines, not JSON. Every line that begins in column 0 is ours; what others wrote stands behind a
gutter, made visible, or between the boundary lines of a message that was read.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

from mbx.core.errors import MbxError
from mbx.core.framing import Shown, framed, gutter
from mbx.core.text import visible
from mbx.mcp.next_steps import for_tools

Result = Mapping[str, Any]
"""What a method of the local protocol answered."""

_LISTINGS: Final = frozenset(
    ("mbx_identity", "mbx_agents", "mbx_inbox", "mbx_thread", "mbx_search", "mbx_sent")
)
"""Their rows leave out what is null, false or empty: every byte is the reader's context."""


def structured(tool: str, result: Result) -> dict[str, Any]:
    """The object of the contract; in listings without what says nothing, in errors' words tools."""
    if tool in _LISTINGS:
        return {key: _thin(value) for key, value in result.items() if value is not None}
    told = dict(result)
    if isinstance(told.get("next"), str):
        told["next"] = for_tools(told["next"])
    return told


def text(tool: str, result: Result) -> str:
    """The same as terse lines."""
    return "\n".join(_TEXTS[tool](result))


def refusal(error: MbxError) -> tuple[dict[str, Any], str]:
    """An error that a model can mend: (structured, text)."""
    told = error.as_object()
    step = for_tools(error.next_step) if error.next_step else None
    lines = [f"refused ({error.code}): {visible(error.message)}"]
    if step:
        lines.append(f"next: {visible(step)}")
    for name, value in told.items():
        word = _word(value) if name not in ("code", "message", "next") else ""
        if value is not None and word:
            lines.append(f"{name}: {visible(word)}")
    return {**told, "next": step}, "\n".join(lines)


def _thin(value: Any) -> Any:
    if isinstance(value, dict):
        kept = {key: _thin(entry) for key, entry in value.items()}
        return {key: entry for key, entry in kept.items() if not _says_nothing(entry)}
    if isinstance(value, list):
        return [_thin(entry) for entry in value]
    return value


def _says_nothing(value: Any) -> bool:
    return value is None or value is False or value in ("", [], {})


def _word(value: Any) -> str:
    if isinstance(value, dict):
        said = ((key, entry) for key, entry in value.items() if entry not in ([], {}))
        return ", ".join(f"{key} {_word(entry)}" for key, entry in said)
    if isinstance(value, (list, tuple)):
        return ", ".join(_word(entry) for entry in value)
    return str(value)


def _facts(*pairs: tuple[str, Any]) -> str:
    """Facts of ours on one line; what says nothing is left out."""
    return " | ".join(
        f"{name} {visible(_word(value))}".strip()
        for name, value in pairs
        if not _says_nothing(value)
    )


def _foreign(*pairs: tuple[str, Any]) -> list[str]:
    """What others wrote, each behind a gutter."""
    lines = []
    for name, value in pairs:
        if not _says_nothing(value):
            lines += gutter(f"{name}: {_word(value)}").split("\n")
    return lines


def _more(result: Result) -> list[str]:
    place = result.get("next_cursor")
    return [f'more: the same with cursor "{place}"'] if result.get("has_more") and place else []


# -- who and where --------------------------------------------------------------------------------


def _whoami(result: Result) -> list[str]:
    lines = []
    if result.get("agent"):
        lines.append(f"you are {result['address']}, unread {result['unread']}")
        lines.append(
            _facts(
                ("identity", result.get("identity")),
                ("role", result.get("role")),
                ("project", result.get("project")),
            )
        )
        lines += _foreign(("description", result.get("description")))
    else:
        lines.append("you have no identity")
    lines += _optional("pending: waits for", result.get("pending"))
    lines += _optional("lost:", result.get("lost"))
    lines += _optional("lease:", result.get("lease"))
    lines += _optional("session:", result.get("session"))
    lines += _optional("lineage:", result.get("lineage"))
    lines += _optional("external: what you write counts as from outside until", result["external"])
    lines += [f"policy: {visible(_word(policy))}" for policy in result.get("policies") or ()]
    lines += _optional("missed:", result.get("missed"))
    lines.append(_facts(("mbx", result.get("version")), ("daemon", result.get("daemon_version"))))
    if result.get("next"):
        lines.append(f"next: {visible(for_tools(str(result['next'])))}")
    return [line for line in lines if line]


def _optional(label: str, value: Any) -> list[str]:
    return [] if _says_nothing(value) else [f"{label} {visible(_word(value))}"]


def _identity(result: Result) -> list[str]:
    if "identities" in result:
        lines = [f"{len(result['identities'])} identities"]
        for one in result["identities"]:
            lines.append(
                _facts(
                    ("", one["name"]),
                    ("role", one["role"]),
                    ("", one["state"]),
                    ("claimable", "yes" if one["claimable"] else "no"),
                    ("", one["reason"]),
                    ("holder", one.get("holder")),
                    ("unread", one.get("unread")),
                    ("project", one.get("project")),
                    ("last seen", one.get("last_seen")),
                    ("id", one.get("identity")),
                )
            )
            lines += _foreign(("description", one.get("description")))
        if result.get("next_after"):
            lines.append("more: see `mbx identity list`")
        return lines
    if result.get("epoch") is not None and result.get("agent"):
        lines = [f"you are {result['address']}, unread {result['unread']}"]
        lines.append(
            _facts(
                ("role", result.get("role")),
                ("epoch", result["epoch"]),
                ("open threads", result.get("open_threads")),
                ("notes", result.get("recent_notes")),
                ("missed", result.get("missed")),
            )
        )
        return [*lines, "next: mbx_inbox"]
    return [_facts(*result.items()) or "done"]


def _agents(result: Result) -> list[str]:
    lines = [f"{len(result['agents'])} agents"]
    for one in result["agents"]:
        lines.append(
            _facts(
                ("", one["address"]),
                ("", one["state"]),
                ("cli", one.get("cli")),
                ("reach", one.get("reach")),
                ("", one.get("reach_detail")),
                ("project", one.get("project")),
                ("last seen", one.get("last_seen")),
            )
        )
        lines += _foreign(
            ("role", one.get("role")),
            ("description", one.get("description")),
            ("card", one.get("card")),
        )
    if result.get("next_after"):
        lines.append("more: narrow it with query, role, project or host")
    return lines


# -- mail -----------------------------------------------------------------------------------------


def _row(message: Mapping[str, Any]) -> list[str]:
    """One message of a listing: our line, then the sender's words."""
    thread = message.get("thread")
    line = _facts(
        ("", message["id"]),
        ("from", message.get("from")),
        ("", message.get("kind")),
        ("", "needs a reply" if message.get("needs_reply") else None),
        ("", message.get("stage")),
        ("", message.get("progress")),
        ("trust", message.get("trust")),
        ("policy", message.get("policy")),
        ("bytes", message.get("bytes")),
        ("attachments", message.get("attachments") or None),
        ("at", message.get("at")),
        ("thread", None if thread == message["id"] else thread),
        ("to", message.get("to")),
        ("in reply to", message.get("reply_to")),
    )
    return [line, *_foreign(("subject", message.get("subject")), ("text", message.get("snippet")))]


def _recipients(recipients: Iterable[Mapping[str, Any]]) -> list[str]:
    lines = []
    for one in recipients:
        lines.append(
            "  "
            + _facts(
                ("", one["address"]),
                ("", one.get("state")),
                ("", one.get("stage")),
                ("", one.get("detail")),
                ("outcome", one.get("outcome")),
                ("at", one.get("at")),
                ("", one.get("liveness")),
                ("error", one.get("error")),
                ("id", one.get("identity")),
            )
        )
        lines += [
            "  " + row for row in _foreign(("did", one.get("did")), ("note", one.get("note")))
        ]
    return lines


def _inbox(result: Result) -> list[str]:
    rows = [line for message in result["messages"] for line in _row(message)]
    closing = ["next: mbx_read with the ids"] if rows and not result.get("has_more") else []
    return [f"unread {result['unread']}", *rows, *_more(result), *closing]


def _listed(result: Result) -> list[str]:
    lines = []
    for message in result["messages"]:
        lines += _row(message)
        lines += _recipients(message.get("recipients") or ())
    return [*(lines or ["nothing"]), *_more(result)]


def _sent(result: Result) -> list[str]:
    """A listing; one message that was asked for by its id has its text behind it."""
    lines = _listed(result)
    for message in result["messages"]:
        lines += gutter(message["body"]).split("\n") if message.get("body") else []
        if message.get("next_offset") is not None:
            lines.append(
                f"cut: {message['body_total']} bytes in all; more: mbx_sent with id"
                f' "{message["id"]}", offset {message["next_offset"]}'
            )
    return lines


def _read(result: Result) -> list[str]:
    lines: list[str] = []
    for message in result["messages"]:
        told = Shown.of(message, after=tuple(_behind(message)))
        lines += [framed(told, message["boundary"]), ""]
    lines += [_failed(one) for one in result["failed"]]
    if any(one["code"] == "too-many" for one in result["failed"]):
        lines.append("too-many: there was no room left for them; read them in another call")
    lines += _warnings(result)
    return [*lines, f"unread {result['unread']}", *(["next: act, then mbx_ack"] if lines else [])]


def _behind(message: Mapping[str, Any]) -> list[str]:
    """Facts about a message that stand behind its frame."""
    facts = _facts(
        ("thread", message.get("thread")),
        ("", message.get("stage")),
        ("", message.get("progress")),
        ("bytes", message.get("bytes")),
        ("origin", message.get("origin")),
        ("hop", message.get("hop") or None),
        ("attachments", message.get("attachments") or None),
    )
    lines = [facts] if facts else []
    if message.get("imitations"):
        lines.append(f"note: {message['imitations']} lines of it imitate lines of mbx")
    if message.get("next_offset") is not None:
        lines.append(
            f"cut: {message['body_total']} bytes in all; more: mbx_read with ids"
            f' ["{message["id"]}"], offset {message["next_offset"]}'
        )
    return lines


def _sent_now(result: Result) -> list[str]:
    verb = "already sent as" if result.get("duplicate") else "sent"
    thread = "" if result["thread"] == result["id"] else f", thread {result['thread']}"
    return [
        f"{verb} {result['id']}{thread}",
        *_recipients(result["recipients"]),
        *_warnings(result),
    ]


def _ack(result: Result) -> list[str]:
    lines = [f"acked {', '.join(result['acked'])}"] if result["acked"] else []
    lines += [_failed(one) for one in result["failed"]]
    lines.append(f"unread {result['unread']}")
    return lines + _warnings(result)


def _failed(one: Mapping[str, Any]) -> str:
    rest = ((key, value) for key, value in one.items() if key not in ("id", "code"))
    return f"failed: {_facts(('', one['id']), ('', one['code']), *rest)}"


def _warnings(result: Result) -> list[str]:
    return [f"warning: {visible(warning)}" for warning in result.get("warnings") or ()]


_TEXTS: Final[Mapping[str, Callable[[Result], Sequence[str]]]] = MappingProxyType(
    {
        "mbx_whoami": _whoami,
        "mbx_identity": _identity,
        "mbx_agents": _agents,
        "mbx_inbox": _inbox,
        "mbx_read": _read,
        "mbx_send": _sent_now,
        "mbx_reply": _sent_now,
        "mbx_ack": _ack,
        "mbx_thread": _listed,
        "mbx_search": _listed,
        "mbx_sent": _sent,
    }
)
