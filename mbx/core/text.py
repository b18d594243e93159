"""Text that others wrote: what is refused at the door, and how it is shown to people.

Inside mbx a text is kept as it came. `check_line`, `check_text`, `check_body` and `cut_did` are
the door; `visible`, `visible_lines`, `width`, `clip` and `fold` make a text harmless where a
person sees it (rule R49 of the proof: one function for people). Characters are code points.
"""

import re
import unicodedata
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Final, Literal

from mbx.core.errors import MbxError
from mbx.core.limits import BODY_MAX_BYTES, DID_KEPT_CHARS

_JOINERS: Final = "\u200b\u200c\u200d"

ELLIPSIS: Final = "\u2026"
"""The mark of a cut, one character and one column."""

MARKS_MAX: Final = 4
"""Combining marks in a row that are shown as such (R49); honest writing rarely needs more."""

TAB_COLUMNS: Final = 8
"""Where a tab stops, as on every terminal."""

_REFUSED_IN_TEXT: Final = re.compile(r"[\0\ud800-\udfff]")
_REFUSED_IN_LINE: Final = re.compile(r"[\0\n\r\v\f\x1c-\x1e\x85\u2028\u2029\ud800-\udfff]")
"""As above and each character at which `str.splitlines` breaks."""


# ---- The door ------------------------------------------------------------------------------------


def check_line(field: str, text: str, max_chars: int, *, may_be_empty: bool = False) -> None:
    """Refuse (`text-invalid`) an over-long or empty text, U+0000, lone surrogates, line breaks."""
    _check_length(field, text, max_chars, may_be_empty=may_be_empty)
    _check_characters(field, text, _REFUSED_IN_LINE)


def check_text(field: str, text: str, max_chars: int, *, may_be_empty: bool = True) -> None:
    """As `check_line`, for fields in which lines may break (a note)."""
    _check_length(field, text, max_chars, may_be_empty=may_be_empty)
    _check_characters(field, text, _REFUSED_IN_TEXT)


def check_body(text: str) -> int:
    """The size of a body in bytes of UTF-8.

    Raises `body-too-large` (facts `limit_bytes`, `size_bytes`) or, for U+0000 and lone surrogates,
    `text-invalid`.
    """
    try:
        size_bytes = len(text) if text.isascii() else len(text.encode())
        # Two searches at the speed of memory instead of a pattern: this call is on the send path.
        suspect = "\0" in text
    except UnicodeEncodeError:
        size_bytes, suspect = len(text.encode("utf-8", "surrogatepass")), True
    if size_bytes > BODY_MAX_BYTES:
        raise MbxError(
            "body-too-large",
            f"the body has {size_bytes:,} bytes of UTF-8; the limit is {BODY_MAX_BYTES:,}",
            "shorten the body, split it, or say with --ref where the text is",
            limit_bytes=BODY_MAX_BYTES,
            size_bytes=size_bytes,
        )
    if suspect:
        _check_characters("body", text, _REFUSED_IN_TEXT)
    return size_bytes


def cut_did(text: str) -> tuple[str, bool]:
    """(what is kept of a `did`, whether it was cut): at most 200 characters, the mark included.

    An over-long `did` must never fail an ack; U+0000, lone surrogates and line breaks are refused
    (`text-invalid`). The cut does not part a character from its marks where that can be helped.
    """
    _check_characters("did", text, _REFUSED_IN_LINE)
    if len(text) <= DID_KEPT_CHARS:
        return text, False
    end = DID_KEPT_CHARS - len(ELLIPSIS)
    whole = end
    while whole and (_columns(text[whole]) == 0 or text[whole - 1] == "\u200d"):
        whole -= 1
    return text[: whole or end] + ELLIPSIS, True


def _check_length(field: str, text: str, max_chars: int, *, may_be_empty: bool) -> None:
    size_chars = len(text)
    if size_chars > max_chars:
        message = f"the {field} has {size_chars:,} characters; the limit is {max_chars:,}"
        next_step = f"shorten the {field} to {max_chars:,} characters"
    elif not text and not may_be_empty:
        message = f"the {field} is empty; it needs at least 1 character and at most {max_chars:,}"
        next_step = f"give a {field}"
    else:
        return
    raise MbxError(
        "text-invalid",
        message,
        next_step,
        field=field,
        limit_chars=max_chars,
        size_chars=size_chars,
    )


def _check_characters(field: str, text: str, refused: re.Pattern[str]) -> None:
    if text.isascii() and text.isprintable():
        return
    found = refused.search(text)
    if found is None:
        return
    code = ord(found.group())
    sort = "NUL" if code == 0 else "lone surrogate" if 0xD800 <= code < 0xE000 else "line break"
    raise MbxError(
        "text-invalid",
        f"the {field} contains U+{code:04X} ({sort}) as character {found.start() + 1:,}",
        f"remove U+{code:04X} from the {field}",
        field=field,
        character=f"U+{code:04X}",
        position=found.start() + 1,
    )


# ---- For people ----------------------------------------------------------------------------------

_Span = tuple[int, int]
"""First and last code point of a range."""

# Where joiners shape honest words: Arabic to Arabic Extended-A, the Indic blocks and Sinhala,
# Myanmar, Khmer, Mongolian, Arabic presentation forms, the Brahmic blocks beyond the BMP, Adlam.
_JOINING: Final[tuple[_Span, ...]] = (
    (0x0600, 0x08FF),
    (0x0900, 0x0DFF),
    (0x1000, 0x109F),
    (0x1780, 0x17FF),
    (0x1800, 0x18AF),
    (0xFB50, 0xFDFF),
    (0xFE70, 0xFEFC),
    (0x11000, 0x11FFF),
    (0x1E900, 0x1E95F),
)
# Scripts without blanks between words, which U+200B may part: Thai, Lao, Myanmar, Khmer.
_UNSPACED: Final[tuple[_Span, ...]] = ((0x0E00, 0x0EFF), (0x1000, 0x109F), (0x1780, 0x17FF))
_MONGOLIAN: Final[tuple[_Span, ...]] = ((0x1820, 0x18AA),)
_BRAILLE: Final[tuple[_Span, ...]] = ((0x2801, 0x28FF),)
_HAN: Final[tuple[_Span, ...]] = (
    (0x3400, 0x4DBF),
    (0x4E00, 0x9FFF),
    (0xF900, 0xFAFF),
    (0x20000, 0x3FFFD),
)
# Blocks with members of emoji ZWJ sequences; the last is reserved for emoji as a whole.
_EMOJI: Final[tuple[_Span, ...]] = (
    (0x2190, 0x21FF),
    (0x2300, 0x23FF),
    (0x2600, 0x27BF),
    (0x2B00, 0x2BFF),
    (0x1F000, 0x1FAFF),
)

# Invisible though no control or format character (Default_Ignorable_Code_Point and blank letters):
# grapheme joiner, Hangul fillers, Khmer inherent vowels, a null notehead, reserved ones.
_BLANKS: Final[tuple[_Span, ...]] = (
    (0x034F, 0x034F),
    (0x115F, 0x1160),
    (0x17B4, 0x17B5),
    (0x2065, 0x2065),
    (0x3164, 0x3164),
    (0xFDD0, 0xFDEF),
    (0xFFA0, 0xFFA0),
    (0xFFF0, 0xFFF8),
    (0x1D159, 0x1D159),
    (0xE0000, 0xE0FFF),
)
_VISIBLE_FORMAT: Final[tuple[_Span, ...]] = (
    (0x0600, 0x0605),
    (0x06DD, 0x06DD),
    (0x070F, 0x070F),
    (0x0890, 0x0891),
    (0x08E2, 0x08E2),
    (0x110BD, 0x110BD),
    (0x110CD, 0x110CD),
)
"""Format characters with a glyph (Prepended_Concatenation_Mark): signs that span numbers."""

# England, Scotland, Wales: the only tag sequences that are recommended for interchange (UTS 51).
_SUBDIVISION_FLAGS: Final = [
    "".join(chr(0xE0000 + ord(letter)) for letter in tag) for tag in ("gbeng", "gbsct", "gbwls")
]
_SUBDIVISION_FLAG: Final = re.compile(f"(\U0001f3f4(?:{'|'.join(_SUBDIVISION_FLAGS)})\U000e007f)")


def visible(text: str) -> str:
    r"""A foreign text as one line that is safe on a terminal and hides nothing.

    Controls, direction changers, invisible characters, noncharacters and combining marks beyond
    four in a row come out as ``\u{hex}``; honest writing and emoji stay as they are.
    """
    return _visible(text, tab=r"\u{9}")


def visible_lines(body: str) -> list[str]:
    r"""The lines of a foreign text, each as by `visible`, but that tabs stay tabs.

    Lines end at line feeds only; the empty line after a last line feed is left out.
    """
    lines = body.split("\n")
    if len(lines) > 1 and not lines[-1]:
        lines.pop()
    return [_visible(line, tab="\t") for line in lines]


def width(text: str) -> int:
    """Terminal columns of a text that `visible` gave.

    Where terminals disagree (joined emoji) this is the larger answer, so that a line cut by it
    does not wrap.
    """
    if text.isascii():
        return len(text)
    return sum(columns for _, columns in _clusters(text))


def clip(text: str, columns: int) -> str:
    """A text that `visible` gave, cut to at most `columns` with an ellipsis as the mark."""
    if columns < 1:
        return ""
    length = used = kept = 0
    for cluster, cluster_columns in _clusters(text):
        length += len(cluster)
        used += cluster_columns
        if used > columns:
            return text[:kept].rstrip(_JOINERS) + ELLIPSIS
        if used < columns:
            kept = length
    return text


def fold(line: str, columns: int) -> list[str]:
    """A line that `visible_lines` gave, in rows of at most `columns` (2 at least), without tabs."""
    line = line.expandtabs(TAB_COLUMNS)
    columns = max(columns, 2)
    if line.isascii():
        return [line[start : start + columns] for start in range(0, len(line), columns)] or [""]
    rows: list[str] = []
    row: list[str] = []
    room = columns
    for cluster, cluster_columns in _clusters(line):
        if cluster_columns > room:
            # What joined the two characters joins nothing at the end of a row.
            rows.append("".join(row).rstrip(_JOINERS))
            row, room = [], columns
        row.append(cluster)
        room -= cluster_columns
    return [*rows, "".join(row)]


def _visible(text: str, tab: str) -> str:
    if text.isascii() and text.isprintable():
        return text
    # The parts at odd places are whole flags.
    parts = _SUBDIVISION_FLAG.split(text)
    for place in range(0, len(parts), 2):
        parts[place] = "".join(_shown(parts[place], tab))
    return "".join(parts)


def _shown(text: str, tab: str) -> Iterator[str]:
    """Each character of a text as people see it."""
    escaped = False
    # A mark without a character before it would combine with something of ours.
    marks = MARKS_MAX
    for place, character in enumerate(text):
        sort = _sort(character)
        if sort == "plain":
            escaped, marks = False, 0
            yield character
        elif sort == "mark" and marks < MARKS_MAX:
            marks += 1
            yield character
        elif sort == "guarded" and not escaped and _is_honest(text, place):
            yield character
        elif character == "\t":
            escaped, marks = False, MARKS_MAX
            yield tab
        else:
            escaped, marks = True, MARKS_MAX
            yield f"\\u{{{ord(character):x}}}"


_Sort = Literal["plain", "mark", "guarded", "hidden"]


@lru_cache(maxsize=4_096)
def _sort(character: str) -> _Sort:
    """How a character is treated: always shown, counted, shown in honest company, never shown."""
    if character.isascii():
        return "plain" if character.isprintable() else "hidden"
    code = ord(character)
    if any(first <= code <= last for first, last, _ in _GUARDS):
        return "guarded"
    if _is_in(character, _BLANKS) or code & 0xFFFE == 0xFFFE:
        return "hidden"
    category = unicodedata.category(character)
    if category in ("Cc", "Cf", "Cs", "Zl", "Zp"):
        return "plain" if _is_in(character, _VISIBLE_FORMAT) else "hidden"
    return "mark" if category in ("Mn", "Me") else "plain"


def _is_honest(text: str, place: int) -> bool:
    """Whether an invisible character stands where honest writing needs it."""
    code = ord(text[place])
    return any(first <= code <= last and rule(text, place) for first, last, rule in _GUARDS)


def _is_in(character: str, spans: tuple[_Span, ...]) -> bool:
    return bool(character) and any(first <= ord(character) <= last for first, last in spans)


def _before(text: str, place: int) -> str:
    return text[place - 1] if place else ""


def _after(text: str, place: int) -> str:
    return text[place + 1 : place + 2]


def _joins(text: str, place: int) -> bool:
    """ZWJ: between emoji (over a colour selector), or after a letter whose shape it changes."""
    before, after = _before(text, place), _after(text, place)
    if _is_in(before, _JOINING):
        return not (after.isascii() and after.isalnum())
    if before == "\ufe0f":
        before = _before(text, place - 1)
    return _is_in(before, _EMOJI) and _is_in(after, _EMOJI)


def _parts_letters(text: str, place: int) -> bool:
    """ZWNJ: inside a word of a joining script."""
    return _is_in(_before(text, place), _JOINING) and _is_in(_after(text, place), _JOINING)


def _parts_words(text: str, place: int) -> bool:
    """U+200B: between words of a script without blanks."""
    return _is_in(_before(text, place), _UNSPACED) and _is_in(_after(text, place), _UNSPACED)


def _selects_emoji(text: str, place: int) -> bool:
    """VS15, VS16: once, after a symbol, or inside a keycap."""
    before = _before(text, place)
    if before and before in "#*0123456789":
        return _after(text, place) == "\u20e3"
    # The last four are emoji by name though no symbols by category.
    return before != "" and (
        unicodedata.category(before) in ("So", "Sm") or before in "\u203c\u2049\u2139\u3030"
    )


def _selects_shape(text: str, place: int) -> bool:
    """VS1 to VS14: once, after a letter or symbol beyond ASCII."""
    before = _before(text, place)
    return not before.isascii() and unicodedata.category(before)[0] in "LSNP"


_GUARDS: Final[tuple[tuple[int, int, Callable[[str, int], bool]], ...]] = (
    (0x180B, 0x180F, lambda text, place: _is_in(_before(text, place), _MONGOLIAN)),
    (0x200B, 0x200B, _parts_words),
    (0x200C, 0x200C, _parts_letters),
    (0x200D, 0x200D, _joins),
    (
        0x2800,
        0x2800,
        lambda text, place: _is_in(_before(text, place) or _after(text, place), _BRAILLE),
    ),
    (0xFE00, 0xFE0D, _selects_shape),
    (0xFE0E, 0xFE0F, _selects_emoji),
    (0xE0100, 0xE01EF, lambda text, place: _is_in(_before(text, place), _HAN)),
)
"""(first, last, rule): invisible characters that honest writing needs in some places."""


# ---- Display width -------------------------------------------------------------------------------


def _clusters(text: str) -> Iterator[tuple[str, int]]:
    """(base character with what combines with it, columns), in order."""
    cluster, columns = "", 0
    for character in text:
        own = _columns(character)
        if own and cluster:
            yield cluster, columns
            cluster, columns = "", 0
        cluster += character
        # A terminal that knows VS16 gives a narrow symbol two columns.
        columns = 2 if character == "\ufe0f" and columns == 1 else columns + own
    if cluster:
        yield cluster, columns


@lru_cache(maxsize=4_096)
def _columns(character: str) -> int:
    """0, 1 or 2 terminal columns; characters of ambiguous width count as 1."""
    if character.isascii():
        return 1
    if unicodedata.category(character) in ("Mn", "Me", "Cf"):
        return 1 if _is_in(character, _VISIBLE_FORMAT) else 0
    # Vowels and finals of conjoining Hangul share the columns of their initial.
    if _is_in(character, ((0x1160, 0x11FF), (0xD7B0, 0xD7FF))):
        return 0
    is_wide = unicodedata.east_asian_width(character) in ("W", "F")
    # Emoji newer than this Python's tables are wide too.
    is_new_emoji = unicodedata.category(character) == "Cn" and _is_in(character, _EMOJI[-1:])
    return 2 if is_wide or is_new_emoji else 1
