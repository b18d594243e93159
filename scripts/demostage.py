"""What the demo shows and writes down: the stage for people, the transcript for programs."""

import os
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TextIO

_COLOURS: Final = {
    "ana": "36",
    "ben": "35",
    "cai": "33",
    "dora": "34",
    "eve": "95",
    "ok": "32",
    "NOT": "31",
    "strong": "1",
    "dim": "2",
}
"""SGR numbers (ECMA-48) for the shells' prompts and for verdicts."""


class ClaimError(Exception):
    """Something that the rest of the demo stands on did not happen."""


@dataclass(frozen=True, slots=True)
class Places:
    """Where the demo works: its temporary folder, the home of its daemon, its columns."""

    work: Path
    home: Path
    columns: int


class Stage:
    """Prints for people; colours only for a terminal. `pace_s` is the pause before a command."""

    def __init__(self, out: TextIO, pace_s: float) -> None:
        self._out = out
        self._pace_s = pace_s
        self._at_line_start = True
        no_colour = os.environ.get("NO_COLOR") or os.environ.get("TERM", "dumb") == "dumb"
        self.in_colour = out.isatty() and not no_colour

    def title(self, text: str, home: str) -> None:
        """The first lines."""
        self.line(self.painted("strong", text))
        self.line(f"MBX_HOME={home}")

    def chapter(self, number: int, text: str) -> None:
        """The beginning of a part."""
        self.line("")
        self.line(self.painted("strong", f"{number}. {text}"))

    def command(self, shell: str, text: str) -> None:
        """A command as it is typed at a shell's prompt."""
        time.sleep(self._pace_s)
        self.line(f"{self.painted(shell, f'{shell}$')} {text}")

    def turn(self, shell: str) -> None:
        """What follows is seen at the terminal of this shell, where a command goes on."""
        self.line(self.painted(shell, f"{shell}:"))

    def piece(self, text: str) -> None:
        """Output of a command, as it comes."""
        self._out.write(text)
        self._out.flush()
        self._at_line_start = text.endswith("\n")

    def status(self, status: int) -> None:
        """The exit status of a command that did not end with 0."""
        self.line(f"(exit {status})")

    def claim(self, text: str, held: bool, detail: str = "") -> None:
        """Something proved, or not."""
        word = "ok" if held else "NOT"
        self.line(f"{self.painted(word, f'{word:>5}')}  {text}")
        if detail and not held:
            self.line(f"       {detail}")

    def note(self, text: str) -> None:
        """A line of explanation."""
        self.line(f"       {text}")

    def verdict(self, held: bool, counts: str) -> None:
        """The last line."""
        word = self.painted("ok", "PROVED") if held else self.painted("NOT", "NOT PROVED")
        self.line("")
        self.line(f"{word}: {counts}")

    def line(self, text: str) -> None:
        """A whole line; it begins a new one if a command's output did not end with one."""
        self.piece(("" if self._at_line_start else "\n") + text + "\n")

    def painted(self, colour: str, text: str) -> str:
        """The text in a colour where there are colours; an unknown colour is none."""
        if colour not in _COLOURS:
            return text
        return f"\x1b[{_COLOURS[colour]}m{text}\x1b[0m" if self.in_colour else text


@dataclass
class Transcript:
    """What can be checked against the store afterwards: see `document`."""

    host: str = ""
    identities: list[dict[str, Any]] = field(default_factory=list)
    messages: list[dict[str, Any]] = field(default_factory=list)
    refusals: list[dict[str, Any]] = field(default_factory=list)
    refusal_hashes: dict[str, str] = field(default_factory=dict)
    kills: list[dict[str, Any]] = field(default_factory=list)
    owner: dict[str, Any] = field(default_factory=dict)
    hosts: dict[str, Any] = field(default_factory=dict)
    closed: dict[str, Any] = field(default_factory=dict)
    commands: list[dict[str, Any]] = field(default_factory=list)
    claims: list[dict[str, Any]] = field(default_factory=list)

    def claim(self, text: str, held: bool, detail: str) -> None:
        """Write down one claim."""
        self.claims.append({"claim": text, "held": held, "detail": detail})

    def held(self) -> bool:
        """True when something was claimed and all of it held."""
        return bool(self.claims) and all(claim["held"] for claim in self.claims)

    def counts(self) -> str:
        """The figures of the last line."""
        held = sum(claim["held"] for claim in self.claims)
        far = [self.hosts["kill"]] if "kill" in self.hosts else []
        accepted = sum(len(kill["accepted"]) for kill in (*self.kills, *far))
        killed = len(self.kills) + len(self.hosts.get("killed", ()))
        figures = f"{held} of {len(self.claims)} claims held"
        if self.held():
            figures += f", daemon kills {killed}, accepted {accepted}, lost 0"
        return figures

    def document(self) -> dict[str, Any]:
        """The whole as one JSON object."""
        return {
            "format": "mbx-demo/1",
            "held": self.held(),
            "host": self.host,
            "identities": self.identities,
            "messages": self.messages,
            "refusal": {"attempts": self.refusals, **self.refusal_hashes},
            "kills": self.kills,
            "owner": self.owner,
            "hosts": self.hosts,
            "closed": self.closed,
            "commands": self.commands,
            "claims": self.claims,
        }
