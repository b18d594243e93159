"""A payload that the daemon drafted for the owner: judged, and shown field by field.

What is signed is what is shown (PROOF R32): the rows come from the parsed payload, every leaf of it
is among them, and the payload is the one text that its content can have. The facts that the daemon
adds for people (`lines`) come before, marked as such, and replace nothing.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, NamedTuple

from mbx.core import limits
from mbx.core.canonical import JsonValue
from mbx.core.errors import MbxError
from mbx.core.record import ANY_AUDIENCE, Record, RecordError, inspect
from mbx.core.text import fold, visible, visible_lines, width

KINDS: Final = frozenset(
    {"takeover", "policy", "revoke", "directive", "owner-mail", "peer", "unpair"}
)
"""What one signature of the owner makes valid."""

TO_SIGN: Final = "To sign"
"""What is usually to be done with what is shown."""

ROTATE: Final = "rotate"
"""The record that brings a key of the owner in; the new key signs it too."""

CONFIRM_ID_CHARS: Final = 6
"""How much of a record's id is typed where no name is."""

# Facts that the daemon adds: more would hide the record.
LINES_MAX: Final = 100
LINE_MAX_CHARS: Final = 2_000

_SHARED: Final = frozenset({"owner-mail", "policy", "revoke", ROTATE})
"""For several hosts: mail for those of its recipients, the others for all that have this owner."""
_MARGIN: Final = "    | "
_ENVELOPE: Final = ("v", "type", "iat", "exp", "nonce", "aud", "owner")
"""What every record has; the rest is what it is about, and is shown last, near the question."""
_TIMES: Final = frozenset({"iat", "exp", "since", "high", "sent_at", "external_since"})
"""Last parts of labels whose numbers are times in ms, beside those that end with ``_ms``."""


class Expected(NamedTuple):
    """What was asked for: one of `kinds`, for `owner` (key id), for `host` (key id; None: any)."""

    kinds: Collection[str]
    owner: str
    host: str | None


@dataclass(frozen=True, slots=True)
class Draft:
    """An unsigned record: `payload` is its text, `confirm` what the owner types to agree."""

    kind: str
    payload: str
    confirm: str
    lines: tuple[str, ...] = ()

    def examine(self, expected: Expected) -> Mapping[str, JsonValue]:
        """The payload, if it is what was asked for. Raises MbxError conflict, saying what is not.

        A payload that is not canonical, of another kind, for another host or for another owner is
        never shown for signing.
        """
        if self.kind not in expected.kinds:
            raise _refused(f"it is a {visible(self.kind)[:40]!r} record, which was not asked for")
        try:
            payload = inspect(self.kind, self.payload, audience=expected.host or ANY_AUDIENCE)
        except RecordError as error:
            raise _refused(error.reason) from None
        if not isinstance(payload.get("aud"), str) and self.kind not in _SHARED:
            raise _refused("it is not meant for one host")
        if payload.get("owner") != expected.owner:
            raise _refused(
                f"it names another owner key than {expected.owner}",
                "`mbx owner show` tells the key that this host knows; sign with that one",
            )
        if self.confirm not in {self.id[:CONFIRM_ID_CHARS], *_words(payload)}:
            raise _refused("what is to be typed is neither a name in it nor its id")
        return payload

    @property
    def id(self) -> str:
        """The id that the record will have."""
        return Record(self.kind, self.payload, {}).id

    def shown(
        self, payload: Mapping[str, JsonValue], columns: int, head: str = TO_SIGN
    ) -> list[str]:
        """Rows of at most `columns` that show the record: harmless on a terminal, and complete."""
        rows = [*fold(f"{head}: {visible(self.kind)} {self.id}", columns), ""]
        for line in self.lines:
            rows += _row("the daemon says", visible(line), columns)
        if self.lines:
            rows.append("")
        for name in _ordered(payload):
            for label, value in _leaves(name, payload[name]):
                rows += _shown_leaf(label, value, columns)
        return [*rows, ""]


def read_draft(value: Mapping[str, object]) -> Draft:
    """A draft as the daemon or a request file gives it. Raises MbxError conflict."""
    kind, payload, confirm = (value.get(name) for name in ("kind", "payload", "confirm"))
    lines = value.get("lines") or ()
    if not (isinstance(kind, str) and isinstance(payload, str) and isinstance(confirm, str)):
        raise _refused("kind, payload or confirm is missing or no text")
    if not isinstance(lines, list | tuple) or len(lines) > LINES_MAX:
        raise _refused(f"lines is no list of at most {LINES_MAX}")
    told = tuple(line for line in lines if isinstance(line, str) and len(line) <= LINE_MAX_CHARS)
    if len(told) != len(lines):
        raise _refused(f"a line is no text of at most {LINE_MAX_CHARS:,} characters")
    if len(payload) > limits.RECORD_MAX_BYTES:
        raise _refused(f"the payload has more than {limits.RECORD_MAX_BYTES:,} bytes")
    return Draft(kind, payload, confirm, told)


def _words(payload: Mapping[str, JsonValue]) -> Iterator[str]:
    """Words of a record that say what it is about: its act, `all`, the names and labels in it."""
    if payload.get("all") is True:
        yield "all"
    for label, value in (leaf for name in payload for leaf in _leaves(name, payload[name])):
        is_word = label in ("act", "label") or label.rpartition(".")[2] == "name"
        if is_word and isinstance(value, str):
            yield value


def _ordered(payload: Mapping[str, JsonValue]) -> list[str]:
    """The envelope, then long texts, then what should stand nearest to the question."""
    envelope = [name for name in _ENVELOPE if name in payload]
    rest = sorted(payload.keys() - set(_ENVELOPE))
    return envelope + sorted(rest, key=lambda name: not _is_long(payload[name]))


def _is_long(value: JsonValue) -> bool:
    return isinstance(value, str) and "\n" in value


def _leaves(label: str, value: JsonValue) -> Iterator[tuple[str, JsonValue]]:
    """(label, value) of everything in a value that has no parts; empty containers too."""
    if isinstance(value, dict) and value:
        for name in sorted(value):
            yield from _leaves(f"{label}.{name}", value[name])
    elif isinstance(value, list) and value:
        for number, one in enumerate(value, start=1):
            yield from _leaves(f"{label}[{number}]", one)
    else:
        yield label, value


def _shown_leaf(label: str, value: JsonValue, columns: int) -> list[str]:
    if not isinstance(value, str):
        return _row(label, _plain(label, value), columns)
    if "\n" not in value:
        return _row(label, f'"{visible(value)}"', columns)
    lines = visible_lines(value)
    rows = fold(f"  {label}: {len(lines):,} lines, {len(value.encode()):,} bytes", columns)
    for line in lines:
        rows += _margined(line, columns)
    return rows


def _plain(label: str, value: JsonValue) -> str:
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | dict):
        return "none (an empty list)"
    is_time = label.rpartition(".")[2] in _TIMES or label.endswith("_ms")
    return f"{value} ({_moment(value)})" if is_time and isinstance(value, int) else str(value)


def _moment(at_ms: int) -> str:
    try:
        at = datetime.fromtimestamp(at_ms / 1000, UTC)
    except (OverflowError, ValueError, OSError):
        return "no time that a calendar has"
    return at.isoformat(sep=" ", timespec="seconds").removesuffix("+00:00") + " UTC"


def _row(label: str, text: str, columns: int) -> list[str]:
    """One row, or the label and below it the text in a margin that no text can leave."""
    row = f"  {label}: {text}"
    if width(row) <= columns:
        return [row]
    return [*fold(f"  {label}:", columns), *_margined(text, columns)]


def _margined(text: str, columns: int) -> list[str]:
    return [_MARGIN + row for row in fold(text, columns - len(_MARGIN))]


def _refused(why: str, step: str | None = None) -> MbxError:
    return MbxError(
        "conflict",
        f"the drafted record is not to be signed: {why}",
        step or "ask for a new draft; `mbx doctor` tells whether command and daemon fit together",
    )
