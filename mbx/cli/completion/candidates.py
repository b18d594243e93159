"""What may stand in a place of the command line: words, and what the running daemon knows.

Nothing here starts the daemon, changes anything or waits longer than `ANSWER_S` for a call; a
failure gives no candidates. Commands name a source of `SOURCES` in `completed(…)`.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import click
from click.shell_completion import CompletionItem

from mbx.cli.command import mailbox_method
from mbx.cli.output import ago, cell
from mbx.cli.session import Session
from mbx.core.errors import MbxError
from mbx.wire import JsonObject

Items = list[CompletionItem[str]]
"""Candidates, each with a help for people (visible text)."""

ANSWER_S: Final = 0.4
"""A person waits with a finger on the tab key; with the start of Python this is half a second."""
LISTED_MAX: Final = 100
"""Messages that are offered: more than a screen helps nobody."""
SHOWN_ID_CHARS: Final = 12
"""As in listings: unique in practice, short enough to compare."""


def _ask(context: click.Context, method: str, **params: object) -> JsonObject:
    """The answer of the running daemon; an empty object when there is none in time."""
    session = context.find_object(Session)
    if session is None:
        return {}
    try:
        client = session.client(starting=False, answer_s=ANSWER_S)
        return client.call(method, params, changes=False)
    except MbxError:
        return {}


def _fitting(incomplete: str, found: Iterable[tuple[str, str]]) -> Items:
    """Those of (value, help) that begin as typed, each value once."""
    wanted = {value: told for value, told in found if value.startswith(incomplete)}
    return [CompletionItem(value, help=told or None) for value, told in wanted.items()]


def _identities(context: click.Context) -> list[JsonObject]:
    found: list[JsonObject] = _ask(context, "identity.list").get("identities", [])
    return found


def names(context: click.Context, incomplete: str) -> Items:
    """Identities of this host."""
    return _fitting(incomplete, _named(_identities(context)))


def claimable_names(context: click.Context, incomplete: str) -> Items:
    """Identities that the caller may hold."""
    free = [one for one in _identities(context) if one["claimable"]]
    return _fitting(incomplete, _named(free))


def _named(identities: Iterable[JsonObject]) -> list[tuple[str, str]]:
    return [(cell(one["name"]), _about(one)) for one in identities]


def _about(one: JsonObject) -> str:
    return ", ".join(cell(text) for text in (one["role"], one["state"], one["description"]) if text)


def roles(context: click.Context, incomplete: str) -> Items:
    """Roles that identities of this host have."""
    return _fitting(incomplete, [(role, "") for role in _roles(_identities(context))])


def _roles(identities: Iterable[JsonObject]) -> list[str]:
    return sorted({cell(one["role"]) for one in identities})


def addresses(context: click.Context, incomplete: str) -> Items:
    """The last address of a comma-separated list: a name, `role:…`, `*` or `owner`."""
    before, comma, last = incomplete.rpartition(",")
    identities = _identities(context)
    known = [
        *_named(identities),
        *((f"role:{role}", "everybody with this role") for role in _roles(identities)),
        ("owner", "the human of this host"),
        ("*", "everybody, quietly"),
    ]
    taken = set(before.split(","))
    fitting = _fitting(last, [(value, told) for value, told in known if value not in taken])
    return [CompletionItem(before + comma + one.value, help=one.help) for one in fitting]


def received_messages(context: click.Context, incomplete: str) -> Items:
    """Mail that the caller received, acked mail too."""
    return _received(context, incomplete, everything=True)


def waiting_messages(context: click.Context, incomplete: str) -> Items:
    """Mail that is not acked yet, but what the line names already."""
    found = _received(context, incomplete, everything=None)
    named = context.params.get("ids") or ()
    return [one for one in found if not any(_is_same(one.value, text) for text in named)]


def _is_same(short_id: str, typed: str) -> bool:
    return short_id.startswith(typed) or typed.startswith(short_id)


def sent_messages(context: click.Context, incomplete: str) -> Items:
    """Mail that the caller sent."""
    page = _ask(context, "mail.sent", limit=LISTED_MAX)
    return _fitting(
        incomplete,
        [(_id(one), f"to {_told(context, one, one['to'])}") for one in page.get("messages", ())],
    )


def known_messages(context: click.Context, incomplete: str) -> Items:
    """Mail that the caller received or sent."""
    return received_messages(context, incomplete) + sent_messages(context, incomplete)


def _received(context: click.Context, incomplete: str, *, everything: bool | None) -> Items:
    asked = {"limit": LISTED_MAX} | ({"all": True} if everything else {})
    page = _ask(context, mailbox_method("inbox", context.params.get("owner")), **asked)
    return _fitting(
        incomplete,
        [
            (_id(one), f"from {_told(context, one, [one['from']])}")
            for one in page.get("messages", ())
        ],
    )


def _id(message: JsonObject) -> str:
    return cell(message["id"])[:SHOWN_ID_CHARS]


def _told(context: click.Context, message: JsonObject, others: list[str]) -> str:
    session = context.find_object(Session)
    age = ago(message["at"], session.now_ms()) if session else ""
    return f"{cell(others[0] if others else None)}, {age}: {cell(message['subject'])}"


def _words(*words: str) -> Callable[[click.Context, str], Items]:
    return lambda _, incomplete: _fitting(incomplete, [(word, "") for word in words])


def kinds(_: click.Context, incomplete: str) -> Items:
    """Kinds of messages."""
    from mbx.core.message import KINDS

    return _fitting(incomplete, [(kind, "") for kind in KINDS])


def acts(_: click.Context, incomplete: str) -> Items:
    """Acts of the audit log."""
    from mbx.core.acts import ACTS

    return _fitting(incomplete, [(act, "") for act in sorted(ACTS)])


def outcomes(_: click.Context, incomplete: str) -> Items:
    """Outcomes of an ack."""
    from mbx.core.delivery import OUTCOMES

    return _fitting(incomplete, [(outcome, "") for outcome in sorted(OUTCOMES)])


def levels(_: click.Context, incomplete: str) -> Items:
    """Levels of policies, with what they delegate."""
    from mbx.core.policy import CLASSES_OF

    found = [(level, ", ".join(classes) or "nothing") for level, classes in CLASSES_OF.items()]
    return _fitting(incomplete, found)


def classes(_: click.Context, incomplete: str) -> Items:
    """Classes of policies."""
    from mbx.core.policy import CLASSES

    return _fitting(incomplete, [(one, "") for one in CLASSES])


def policies(context: click.Context, incomplete: str) -> Items:
    """Policies in effect."""
    page = _ask(context, "policy.list")
    return _fitting(
        incomplete,
        [
            (_id(one), f"{cell(one['level'])} for {', '.join(map(cell, one['to']))}")
            for one in page.get("policies", ())
        ],
    )


def peers(context: click.Context, incomplete: str) -> Items:
    """Labels of paired hosts."""
    page = _ask(context, "peers.list")
    return _fitting(
        incomplete,
        [
            (cell(one["label"]), f"{cell(one['state'])}, {cell(one['queued'])} wait")
            for one in page.get("peers", ())
        ],
    )


def hosts(context: click.Context, incomplete: str) -> Items:
    """Labels of paired hosts, and our own."""
    own = _ask(context, "peers.list").get("label")
    mine = _fitting(incomplete, [(cell(own), "this host")] if own else [])
    return mine + peers(context, incomplete)


def _places(kind: str) -> Callable[[click.Context, str], Items]:
    return lambda _, incomplete: [CompletionItem(incomplete, type=kind)]


SOURCES: Final[Mapping[str, Callable[[click.Context, str], Any]]] = {
    "acts": acts,
    "addresses": addresses,
    "claimable_names": claimable_names,
    "classes": classes,
    "files": _places("file"),
    "folders": _places("dir"),
    "hosts": hosts,
    "kinds": kinds,
    "known_messages": known_messages,
    "levels": levels,
    "names": names,
    "origins": _words("external"),
    "outcomes": outcomes,
    "peers": peers,
    "policies": policies,
    "received_messages": received_messages,
    "roles": roles,
    "sent_messages": sent_messages,
    "shells": _words("bash", "fish", "zsh"),
    "waiting_messages": waiting_messages,
}
"""Name -> the candidates for what was typed so far."""
