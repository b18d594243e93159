"""The transcript of the README: two shells exchange mail, typed and recorded."""

import re
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Final

from scripts.recordings import RecordedDaemon, Stable, environment, fresh_folder
from scripts.terminals import Terminal

_TRIES: Final = 3
_TIME: Final = re.compile(r"\d{4}-\d\d-\d\dT[0-9:.]+Z")
_SHOWN_TIME: Final = "2026-01-31T12:00:00.000Z"


@dataclass(frozen=True, slots=True)
class Typed:
    """A command typed at one of the two shells, and all that it printed."""

    shell: str
    command: str
    output: str


def transcript() -> list[Typed]:
    """Two shells exchange mail. Run again when the machine was so busy that "now" was over."""
    for _ in range(_TRIES):
        typed = _type_everything()
        if not any(" ago" in one.output for one in typed):
            return typed
    raise RuntimeError("this machine is too busy for the transcript of the README")


def _type_everything() -> list[Typed]:
    with fresh_folder() as folder, ExitStack() as stack:
        home = folder / "home"
        stack.callback(RecordedDaemon(home).close)
        shells = {
            name: stack.enter_context(Terminal(environment(home), str(folder)))
            for name in ("ana", "ben")
        }
        typed: list[Typed] = []

        def enter(name: str, command: str) -> str:
            done = shells[name].run(command)
            if done.status:
                raise RuntimeError(f"{command}: exit {done.status}: {done.text}")
            typed.append(Typed(name, command, done.text))
            return done.text

        enter("ana", "mbx identity register ana --role backend")
        enter("ben", "mbx identity register ben --role frontend")
        sent = enter("ana", 'mbx send --to ben --subject Port -m "The API listens on 8081 now."')
        short = sent.split()[1][:8]
        enter("ben", "mbx inbox")
        enter("ben", f"mbx read {short}")
        enter("ben", f'mbx ack {short} --did "moved the client to 8081"')
        enter("ana", f"mbx sent {short}")
    return _settled_transcript(typed)


def _settled_transcript(typed: list[Typed]) -> list[Typed]:
    stable = Stable()
    outputs = [_TIME.sub(_SHOWN_TIME, stable.text(one.output)) for one in typed]
    # Commands come after: they name ids by prefixes, which are known once the ids were shown.
    return [
        Typed(one.shell, stable.text(one.command), output)
        for one, output in zip(typed, outputs, strict=True)
    ]
