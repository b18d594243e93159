"""What a check says: a level, one sentence, the exact act that helps."""

from typing import Any, Final, Literal, NamedTuple

from mbx.paths import printable

Level = Literal["ok", "info", "warn", "fail"]

RemedyKind = Literal[
    "close-folder", "close-file", "make-folder", "remove-socket", "remove-leftover", "credentials"
]

LEVELS: Final[tuple[Level, ...]] = ("ok", "info", "warn", "fail")
"""From nothing to do to broken. Only `fail` makes the exit status 1."""


SHOWN_MAX: Final = 10
"""Faults of one kind that are told one by one; the rest is a count."""


class Remedy(NamedTuple):
    """Something that `--fix` may do because it is safe whenever it is needed."""

    kind: RemedyKind
    path: str


class Check(NamedTuple):
    """One thing looked at. Several of one name: several faults of one kind."""

    name: str
    level: Level
    detail: str
    fix: str | None = None
    remedy: Remedy | None = None

    def as_object(self) -> dict[str, Any]:
        """The object of the contract; bytes of paths that are no UTF-8 come out as escapes."""
        return {
            "name": self.name,
            "level": self.level,
            "detail": printable(self.detail),
            "fix": None if self.fix is None else printable(self.fix),
        }


def few(found: list[Check]) -> list[Check]:
    """Checks of one kind; of too many the first ones, and how many more there are."""
    if len(found) <= SHOWN_MAX:
        return found
    last = found[SHOWN_MAX]
    more = f"and {len(found) - SHOWN_MAX} more of this kind"
    return [*found[:SHOWN_MAX], Check(last.name, last.level, more, "mbx doctor --json")]


def span(seconds: int) -> str:
    """A length of time for people: ``3 h``."""
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds // size} {unit}"
    return f"{seconds} s"


def size(count_bytes: int) -> str:
    """A number of bytes for people: ``12 MiB``."""
    for unit_bytes, unit in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if count_bytes >= unit_bytes:
            return f"{count_bytes / unit_bytes:.3g} {unit}"
    return f"{count_bytes} bytes"
