"""Everything that `mbx` prints: one JSON document, or text for people; the only place that writes.

Text of other parties goes through `core.text` before it gets here. A closed pipe ends quietly
(`ReaderGone`), any locale can print (what it lacks is written as escapes), colour is for terminals.
"""

import json
import os
import sys
from collections.abc import Container, Mapping, Sequence
from typing import Final

from mbx.core.errors import MbxError
from mbx.wire import JsonObject

FLEXIBLE_MIN_COLUMNS: Final = 12
"""The column that gives way to a narrow terminal keeps at least this much."""
_GAP: Final = "  "


class ReaderGone(Exception):
    """Whoever read our output has enough: end quietly."""


class OutputFailed(Exception):
    """The output could not be written (a full disk, for example); the argument says why."""


class Output:
    """Standard output and standard error of one command."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self.as_json = False
        self._environ = environ

    def document(self, value: JsonObject) -> None:
        """Print one JSON document, in ASCII, on one line."""
        self.raw(
            json.dumps(value, ensure_ascii=True, separators=(",", ":")).encode("ascii") + b"\n"
        )

    def text(self, *lines: str) -> None:
        """Print lines for people."""
        if lines:
            self.raw(_encoded("\n".join(lines) + "\n", sys.stdout))

    def raw(self, data: bytes) -> None:
        """Write exact bytes. Raises ReaderGone or OutputFailed."""
        try:
            _write_all(1, data)
        except BrokenPipeError:
            raise ReaderGone from None
        except OSError as error:
            raise OutputFailed(error.strerror or str(error)) from None

    def note(self, *lines: str) -> None:
        """Print lines on standard error; nobody has to be there to read them."""
        try:
            _write_all(2, _encoded("\n".join(lines) + "\n", sys.stderr))
        except OSError:
            pass

    def error(self, error: MbxError) -> None:
        """Tell a refusal: a document with `--json`, else one or two lines on standard error."""
        if self.as_json:
            self.document({"error": error.as_object()})
            return
        from mbx.core.text import visible

        lines = [f"error: {visible(error.message)}"]
        if error.next_step:
            lines.append(f"next: {visible(error.next_step)}")
        self.note(*lines)

    def columns(self) -> int | None:
        """The width of the reader's terminal; None where there is none to fit into."""
        asked = self._environ.get("COLUMNS", "")
        if asked.isascii() and asked.isdigit() and int(asked[:5]) > 0:
            return int(asked[:5])
        try:
            return os.get_terminal_size(1).columns or 80
        except OSError:
            return None

    def strong(self, text: str) -> str:
        """`text` in bold where the reader's terminal shows it and NO_COLOR does not forbid it."""
        if self._environ.get("NO_COLOR") or self._environ.get("TERM", "dumb") == "dumb":
            return text
        return f"\x1b[1m{text}\x1b[0m" if _is_terminal(1) else text

    def highlighted(self, text: str, words: Sequence[str]) -> str:
        """Visible `text` with `words` in bold where they occur, in any case; see `strong`."""
        spelt = sorted(filter(None, words), key=len, reverse=True)
        if not spelt or self.strong("") == "":
            return text
        import re

        pattern = "|".join(map(re.escape, spelt))
        return re.sub(pattern, lambda found: self.strong(found[0]), text, flags=re.IGNORECASE)

    def fitted(self, *lines: str) -> None:
        """Print visible lines, each cut to the width of the reader's terminal."""
        from mbx.core.text import clip

        limit = self.columns()
        self.text(*(line if limit is None else clip(line, limit) for line in lines))

    def table(
        self,
        heads: Sequence[str],
        rows: Sequence[Sequence[str]],
        flexible: int,
        bold: Container[tuple[int, int]] = (),
    ) -> None:
        """Print rows (already visible text) in columns; column `flexible` gives way if need be.

        `bold`: the cells, by row and column from 0, that are `strong` if their line fits. What they
        are told by has no width, so no cell brings it along.
        """
        from mbx.core.text import clip, width

        sizes = [max(map(width, column)) for column in zip(heads, *rows, strict=True)]
        limit = self.columns()
        if limit is not None:
            rest = sum(sizes) - sizes[flexible] + len(_GAP) * (len(sizes) - 1)
            sizes[flexible] = max(min(sizes[flexible], limit - rest), FLEXIBLE_MIN_COLUMNS)
        for number, row in enumerate((heads, *rows)):
            cells = [clip(cell, size) for cell, size in zip(row, sizes, strict=True)]
            pads = [" " * (size - width(c)) for c, size in zip(cells, sizes, strict=True)]
            line = _GAP.join(c + pad for c, pad in zip(cells, pads, strict=True)).rstrip()
            if limit is not None and width(line) > limit:
                line = clip(line, limit)
            else:
                told = [
                    self.strong(c) if (number - 1, at) in bold else c for at, c in enumerate(cells)
                ]
                line = _GAP.join(c + pad for c, pad in zip(told, pads, strict=True)).rstrip()
            self.text(line if number else self.strong(line))


def cell(value: object) -> str:
    """Any value of an answer as visible text on one line; `-` for null and empty."""
    from mbx.core.text import visible

    if value is None or value == "":
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return visible(str(value))


def ago(at: object, now_ms: int) -> str:
    """How long ago an RFC 3339 time was, for people; `-` for null."""
    if not isinstance(at, str):
        return "-"
    from datetime import datetime

    try:
        then = datetime.fromisoformat(at)
    except ValueError:
        return cell(at)
    seconds = now_ms // 1000 - int(then.timestamp())
    if seconds < -1:
        return f"in {_span(-seconds)}"
    return "now" if seconds < 5 else f"{_span(seconds)} ago"


def _span(seconds: int) -> str:
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds // size} {unit}"
    return f"{seconds} s"


def _encoded(text: str, stream: object) -> bytes:
    """`text` in the encoding of the stream; what that lacks is escaped, never an error."""
    encoding = getattr(stream, "encoding", None) or "utf-8"
    return text.encode(encoding, "backslashreplace")


def _write_all(descriptor: int, data: bytes) -> None:
    """Write everything, also to a non-blocking pipe that is full for now."""
    view = memoryview(data)
    while view:
        try:
            view = view[os.write(descriptor, view) :]
        except BlockingIOError:
            import select

            poll = select.poll()
            poll.register(descriptor, select.POLLOUT)
            poll.poll()


def _is_terminal(descriptor: int) -> bool:
    try:
        return os.isatty(descriptor)
    except OSError:
        return False
