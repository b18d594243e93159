"""`mbx hook EVENT --cli C`: what a client's hook runs, by `hook.sh` or by itself.

It prints what the daemon prepared for exactly the session that it belongs to, or nothing. Whatever
happens (no daemon, a hung one, odd input, closed pipes) it ends with status 0 and in silence within
one deadline; only mail keeps a turn going, only a write into mbx's own folders is refused. Loaded
are `os`, `sys` and, only where the daemon must be asked, the client of the daemon.
"""

from __future__ import annotations

import os
import sys
import time

from mbx.core.clients import CLIENTS, END, GUARD, NOTHING, START, STATUS, STOP, WAIT, output
from mbx.core.limits import HOOK_DEADLINE_MS
from mbx.core.snapshot import SLOW
from mbx.hooks import event as events
from mbx.hooks.deadline import arm, counts_in
from mbx.hooks.place import Place

TYPE_CHECKING = False
if TYPE_CHECKING:  # `typing` itself is too heavy for a hook
    from collections.abc import Mapping, Sequence
    from typing import Any

    from mbx.core.clients import Client
    from mbx.core.snapshot import Snapshot

BLOCKS = 93
"""Exit status by which the script is told to end with 2, its text being on standard output: a
Python that cannot start ends with 1 or 2 by itself."""

_GOES_ON = ("clear", "compact")
"""A session that only goes on claims nothing that was wished at its launch: it may have given that
back."""

_WAIT_S = 0.005


class Given:
    """The command line of a hook; `own` and `folder` are what the script found by itself."""

    __slots__ = ("client", "event", "folder", "is_by_script", "own")

    def __init__(self, client: Client, event: str) -> None:
        self.client = client
        self.event = event
        self.own = ""
        self.folder = ""
        self.is_by_script = False


def main(arguments: Sequence[str], environ: Mapping[str, str]) -> int:
    """The exit status: 0, or that by which mail keeps a turn going or a write is refused."""
    try:
        arm(environ)
        given = _given(arguments)
        if given is not None:
            return _run(given, environ)
    except BaseException:  # noqa: BLE001  (a hook never costs its client anything)
        return 0
    return 0


def _given(arguments: Sequence[str]) -> Given | None:
    words = list(arguments)
    options = {"--cli": "", "--own": "", "--folder": ""}
    is_by_script = "--script" in words
    names = []
    while words:
        word = words.pop(0)
        if word in options and words:
            options[word] = words.pop(0)
        elif word != "--script":
            names.append(word)
    client = CLIENTS.get(options["--cli"])
    if client is None or len(names) != 1:
        return None
    given = Given(client, names[0])
    given.own, given.folder, given.is_by_script = (
        options["--own"],
        options["--folder"],
        is_by_script,
    )
    return given


def _run(given: Given, environ: Mapping[str, str]) -> int:
    act = given.client.act_of(given.event)
    if not act:
        return 0
    place = Place.of(given.folder, given.own, environ)
    counts_in(place.miss_path(SLOW))
    is_begun = act == GUARD and given.is_by_script
    event = events.read(0, os.fsencode(environ.get("MBX_HOOK_BEGUN", "")) if is_begun else None)
    called = events.session_of(event, given.client.session_field)
    if act == GUARD:
        from mbx.hooks import guard

        refused = guard.refuses(event, place.guarded(environ))
        return _say(given, act, guard.REFUSAL) if refused else 0
    if events.is_of_subagent(event):
        return 0
    if act == WAIT:
        from mbx.hooks.waiting import wait

        return wait(given.client, place, event, environ, lambda text: _say(given, act, text))
    if act == START:
        return _start(given, place, called, wishes_of(event, environ))
    if act == END:
        return _end(given, place, called, event, environ)
    return _news(given, place, act, called, environ)


def wishes_of(event: Mapping[str, object], environ: Mapping[str, str]) -> Mapping[str, str]:
    """Where the wishes of a launch stand for a session that begins; nowhere if it goes on."""
    return {} if event.get("source") in _GOES_ON else environ


def _news(
    given: Given, place: Place, act: str, called: str | None, environ: Mapping[str, str]
) -> int:
    """What is new since the session was told last: before a prompt, after a tool, at a turn's end.

    It is known by its process; one of many conversations by what its event names.
    """
    snapshot = place.snapshot(given.client.harness, called)
    if snapshot is None or snapshot.cli != given.client.harness:
        return 0
    if called is not None and called != snapshot.called:
        _ask(given, place, {"event": "called", "session": called}, environ)
    return _announce(given, place, act, snapshot)


def _announce(given: Given, place: Place, act: str, snapshot: Snapshot) -> int:
    from mbx.telling import mention, tell

    status = 0

    def say(told: int) -> bool:
        nonlocal status
        text = snapshot.stop(told) if act == STOP else snapshot.news(told)
        if not text:
            return False
        status = _say(given, act, text)
        return True

    stop_ms = int(time.time() * 1000) if act == STOP else None
    if tell(place.told_path(snapshot.own), snapshot.newest, say, stop_ms):
        mention(place.said_path(), snapshot.own)
    return status


def _start(given: Given, place: Place, called: str | None, environ: Mapping[str, str]) -> int:
    """Tell the daemon what the conversation is called, and the session who it is."""
    from mbx.core.snapshot import greeting

    params = {"event": "start"} | ({"session": called} if called else {})
    told = _ask(given, place, params, environ, called=called)
    if told is None or given.client.forms.get(START) == NOTHING:
        return 0
    status = _say(
        given, START, greeting(told["agent"], told["unread"] or 0, told["pending"], told["ticket"])
    )
    if told["agent"] is not None and told["unread"]:
        _keep_as_told(given, place, called)
    return status


def _keep_as_told(given: Given, place: Place, called: str | None) -> None:
    """What waits was said; as soon as the snapshot is there, it is kept that it was."""
    from mbx.telling import mention, tell

    for _ in range(int(HOOK_DEADLINE_MS / 1000 / _WAIT_S) // 4):
        snapshot = place.snapshot(given.client.harness, called)
        if snapshot is not None and snapshot.newest:
            if tell(place.told_path(snapshot.own), snapshot.newest, lambda told: True):
                mention(place.said_path(), snapshot.own)
            return
        time.sleep(_WAIT_S)


def _end(
    given: Given,
    place: Place,
    called: str | None,
    event: Mapping[str, object],
    environ: Mapping[str, str],
) -> int:
    """Only a reason that is known as a real end gives the lease back."""
    if event.get("reason") not in given.client.ends or called is None:
        return 0
    if place.snapshot(given.client.harness, called) is not None:
        _ask(given, place, {"event": "end", "session": called}, environ, called=called, ends=True)
    return 0


def _ask(
    given: Given,
    place: Place,
    params: dict[str, str],
    environ: Mapping[str, str],
    *,
    called: str | None = None,
    ends: bool = False,
) -> dict[str, Any] | None:
    from mbx.hooks.asking import ask

    # An end names it in its hello only where there are many: a hello may bring an identity back.
    is_named = not ends or place.is_shared
    key = (given.client.harness, called) if called is not None and is_named else None
    wishes = environ if params["event"] == "start" else {}
    is_first = params["event"] == "start" and given.client.forms.get(START) != NOTHING
    return ask(place, params, key, wishes, is_first=is_first)


def _say(given: Given, act: str, text: str) -> int:
    """Hand a text to the client, in its form; raises OSError where nobody takes it."""
    form = STATUS if act == WAIT else given.client.forms[act]
    if form == STATUS and not given.is_by_script:
        _write(2, text + "\n")
        return 2
    told = output(form, given.event, text)
    if form != STATUS and told is not None:
        text = _as_json(told)
    _write(1, text + "\n")
    return BLOCKS if form == STATUS else 0


def _as_json(value: object) -> str:
    """ASCII JSON of texts in objects, without loading the module for it."""
    if isinstance(value, dict):
        return (
            "{" + ", ".join(f"{_as_json(key)}: {_as_json(one)}" for key, one in value.items()) + "}"
        )
    from _json import encode_basestring_ascii

    return encode_basestring_ascii(str(value))


def _write(descriptor: int, text: str) -> None:
    raw = text.encode("ascii", "replace")
    while raw:
        raw = raw[os.write(descriptor, raw) :]


def run() -> None:
    """The entry of `hook.sh`: the words after the program, and its own end, without any tidying."""
    status = main(sys.argv[1:], os.environ)
    os._exit(status)
