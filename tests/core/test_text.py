"""Text: what the door refuses, and what a person is shown of the rest."""

import json
import unicodedata
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from mbx.core.errors import MbxError
from mbx.core.limits import BODY_MAX_BYTES
from mbx.core.text import (
    ELLIPSIS,
    check_body,
    check_line,
    check_text,
    clip,
    cut_did,
    fold,
    visible,
    visible_lines,
    width,
)

VECTORS: Final = Path(__file__).parent.parent / "vectors"
HOSTILE: Final[list[dict[str, str]]] = json.loads((VECTORS / "hostile" / "text.json").read_text())
NAUGHTY: Final[list[str]] = json.loads((VECTORS / "blns" / "blns.json").read_text())

CONTROLS: Final = [*map(chr, range(0x20)), *map(chr, range(0x7F, 0xA0))]
LINE_BREAKS: Final = "\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029"
BIDI: Final = "\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
ALWAYS_SHOWN: Final = (
    BIDI
    + "\u00ad\u034f\u115f\u1160\u17b4\u2028\u2029\u2060\u2065\u206a\u3164\ufdd0\ufeff\uffa0\ufff0"
    + "\ufff9\ufffe\uffff\U0001d173\U0001fffe\U000e0001\U000e0041\U000e007f\U0010ffff\ud800\udfff"
)
INVISIBLE: Final = ALWAYS_SHOWN + "\u180b\u180e\u200b\u200c\u200d\u2800\ufe00\ufe0f\U000e0100"
"""The last nine pass in honest company only."""

HONEST: Final = [
    "plain ASCII, with \\u{1b} typed out",
    "na\u00efve, e\u0301te\u0301, Vie\u0302\u0323t, S\u00e3o, \u0141\u00f3d\u017a",
    "\u05e9\u05c1\u05bc\u05b8\u05dc\u05d5\u05b9\u05dd \u05e2\u05d5\u05dc\u05dd",  # pointed Hebrew
    "\u0627\u0644\u0633\u0644\u0627\u0645 \u0639\u0644\u064a\u0643\u0645",
    "\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645",  # Persian, ZWNJ inside the word
    "\u0647\u200d.\u0642",  # Persian abbreviation, ZWJ after heh
    "\u0915\u094d\u200d\u0937 \u0915\u094d\u200c\u0937",  # Devanagari with both joiners
    "\u0dc1\u0dca\u200d\u0dbb\u0dd3",  # Sinhala
    "\u1798\u17b6\u200b\u1793",  # Khmer, words parted by ZWSP
    "\u0e20\u0e32\u0e29\u0e32\u200b\u0e44\u0e17\u0e22",
    "\u1820\u180b\u182d \u1820\u182d\u180e\u1820",  # Mongolian selectors and vowel separator
    "\u6f22\u5b57\u3000\u304b\u306a \u845b\U000e0100\u57ce",  # Han with an ideographic variant
    "\ud55c\uad6d\uc5b4 \u1112\u1161\u11ab",
    "\u280b\u2807\u2800\u280b",  # Braille with its blank
    "\u0600\u0661\u0662 \u06dd",  # Arabic number signs
    "prix\u00a0: 5\u202f\u20ac",
    "\u2260\ufe00 \u2268\ufe00",  # a standardized mathematical variant
    "\U0001f600 \U0001f44d\U0001f3fd \u2764\ufe0f \u260e\ufe0e 1\ufe0f\u20e3 #\ufe0f\u20e3",
    "\U0001f468\u200d\U0001f469\u200d\U0001f467 \U0001f469\U0001f3ff\u200d\U0001f52c",
    "\U0001f3f3\ufe0f\u200d\U0001f308 \U0001f3f4\u200d\u2620\ufe0f \u2764\ufe0f\u200d\U0001f525",
    "\U0001f1e9\U0001f1ea \U0001f3f4\U000e0067\U000e0062\U000e0073\U000e0063\U000e0074\U000e007f!",
    "\u203c\ufe0f \u2139\ufe0f \u3030\ufe0f",
]

hostile_text = st.text(
    st.one_of(
        st.characters(),
        st.sampled_from([*CONTROLS, *INVISIBLE, "\u0335", "\u0301", "\U0001f600", "\u0915", "a"]),
    ),
    max_size=60,
)


def refusal(call: Callable[[], object], code: str = "text-invalid") -> MbxError:
    with pytest.raises(MbxError) as caught:
        call()
    assert caught.value.code == code
    assert caught.value.next_step
    assert caught.value.message.isascii()
    assert caught.value.message.isprintable()
    return caught.value


# ---- The door ------------------------------------------------------------------------------------


@pytest.mark.parametrize("character", ["a", "\u00e9", "\U0001f600"])
def test_a_line_is_limited_in_code_points(character: str) -> None:
    check_line("subject", character, 200)
    check_line("subject", character * 199, 200)
    check_line("subject", character * 200, 200)
    error = refusal(lambda: check_line("subject", character * 201, 200))
    assert error.facts == {"field": "subject", "limit_chars": 200, "size_chars": 201}
    assert error.message == "the subject has 201 characters; the limit is 200"


def test_only_a_line_that_may_be_empty_may_be_empty() -> None:
    check_line("description", "", 200, may_be_empty=True)
    error = refusal(lambda: check_line("subject", "", 200))
    assert error.facts == {"field": "subject", "limit_chars": 200, "size_chars": 0}
    refusal(lambda: check_text("note", "", 500, may_be_empty=False))


@pytest.mark.parametrize("character", LINE_BREAKS)
def test_a_line_does_not_break(character: str) -> None:
    error = refusal(lambda: check_line("subject", f"a{character}b", 200))
    assert error.facts["character"] == f"U+{ord(character):04X}"
    assert error.facts["position"] == 2
    assert "line break" in error.message
    refusal(lambda: cut_did(f"a{character}b"))
    check_text("note", f"a{character}b", 500)
    assert check_body(f"a{character}b") == len(f"a{character}b".encode())


def test_every_line_break_of_this_python_is_refused_in_a_line() -> None:
    for code in (c for c in range(0x110000) if len(f"a{chr(c)}b".splitlines()) > 1):
        assert chr(code) in LINE_BREAKS


@pytest.mark.parametrize(
    ("character", "words"),
    [("\0", "U+0000 (NUL)"), ("\ud800", "U+D800 (lone"), ("\udfff", "U+DFFF (lone")],
)
def test_nul_and_lone_surrogates_are_refused_by_name_in_every_field(
    character: str, words: str
) -> None:
    text = f"ab\u00e9{character}c"
    calls: list[Callable[[], object]] = [
        lambda: check_line("subject", text, 200),
        lambda: check_text("note", text, 500),
        lambda: check_body(text),
        lambda: check_body("\ta" + character),
        lambda: cut_did(text),
    ]
    for call in calls:
        assert words in refusal(call).message
    assert refusal(calls[2]).facts == {
        "field": "body",
        "character": words.split(maxsplit=1)[0],
        "position": 4,
    }


def test_a_note_may_break_lines_and_is_limited() -> None:
    check_text("note", "a\n" * 250, 500)
    refusal(lambda: check_text("note", "a\n" * 250 + "a", 500))


@pytest.mark.parametrize("unit", ["a", "\x01", "\u00e9", "\U0001f600"])
def test_a_body_is_limited_in_bytes_of_utf8(unit: str) -> None:
    count = BODY_MAX_BYTES // len(unit.encode())
    assert check_body(unit * (count - 1)) == BODY_MAX_BYTES - len(unit.encode())
    assert check_body(unit * (count - 1) + "a") <= BODY_MAX_BYTES
    assert check_body(unit * count) == BODY_MAX_BYTES
    error = refusal(lambda: check_body(unit * count + "a"), "body-too-large")
    assert error.facts == {"limit_bytes": BODY_MAX_BYTES, "size_bytes": BODY_MAX_BYTES + 1}
    assert "262,144" in error.message
    assert "262,145" in error.message


def test_a_body_may_be_empty() -> None:
    assert check_body("") == 0


def test_a_body_that_is_too_large_is_told_so_whatever_else_it_holds() -> None:
    refusal(lambda: check_body("\ud800" * BODY_MAX_BYTES), "body-too-large")
    refusal(lambda: check_body("\0" * (BODY_MAX_BYTES + 1)), "body-too-large")


@given(st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"])))
def test_every_other_unicode_scalar_is_accepted_in_a_body(text: str) -> None:
    assert check_body(text) == len(text.encode())


@pytest.mark.parametrize("text", [entry["text"] for entry in HOSTILE] + NAUGHTY)
def test_each_hostile_text_is_accepted_as_a_body_or_refused_by_name(text: str) -> None:
    if "\0" in text:
        assert "U+0000" in refusal(lambda: check_body(text)).message
    else:
        assert check_body(text) == len(text.encode())


def test_a_did_of_up_to_200_characters_is_kept_whole() -> None:
    for size in (0, 199, 200):
        assert cut_did("a" * size) == ("a" * size, False)


def test_a_longer_did_is_cut_to_200_characters_with_the_mark() -> None:
    assert cut_did("a" * 201) == ("a" * 199 + ELLIPSIS, True)
    assert cut_did("a" * 2_000_000) == ("a" * 199 + ELLIPSIS, True)


def test_a_did_is_not_cut_between_a_letter_and_its_accent_or_inside_joined_emoji() -> None:
    assert cut_did("a" * 198 + "e\u0301" + "z") == ("a" * 198 + ELLIPSIS, True)
    family = "\U0001f468\u200d\U0001f469"
    assert cut_did("a" * 197 + family + "z") == ("a" * 197 + ELLIPSIS, True)
    assert cut_did("\u0301" * 300) == ("\u0301" * 199 + ELLIPSIS, True)


@given(st.text(st.characters(exclude_characters="\0" + LINE_BREAKS, exclude_categories=["Cs"])))
@example("e\u0301" * 120)
def test_a_kept_did_is_a_beginning_of_what_was_said(text: str) -> None:
    kept, was_cut = cut_did(text)
    assert len(kept) <= 200
    assert was_cut == (len(text) > 200)
    assert text.startswith(kept.removesuffix(ELLIPSIS) if was_cut else kept)


# ---- For people ----------------------------------------------------------------------------------


@pytest.mark.parametrize("text", HONEST)
def test_honest_writing_and_emoji_are_left_alone(text: str) -> None:
    assert visible(text) == text
    assert visible_lines(text) == [text]


@pytest.mark.parametrize("character", CONTROLS + list(ALWAYS_SHOWN))
def test_controls_and_invisible_characters_are_shown(character: str) -> None:
    assert visible(f"ow{character}ner") == f"ow\\u{{{ord(character):x}}}ner"


@pytest.mark.parametrize("character", INVISIBLE)
def test_an_invisible_character_is_shown_at_an_end_and_inside_a_latin_word(character: str) -> None:
    escape = f"\\u{{{ord(character):x}}}"
    assert visible(character) == escape
    assert visible(f"a{character}") == f"a{escape}"
    assert visible(f"a{character}{character}b") == f"a{escape}{escape}b"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\u0645\u200c", "\u0645\\u{200c}"),  # ZWNJ at the end of a word
        ("\u0645\u200downer", "\u0645\\u{200d}owner"),
        ("\u0645\u200c\u200c\u0645", "\u0645\\u{200c}\\u{200c}\u0645"),
        ("\U0001f600\u200db", "\U0001f600\\u{200d}b"),
        ("a\ufe0f\u200d\U0001f600", "a\\u{fe0f}\\u{200d}\U0001f600"),
        ("\u2764\ufe0f\ufe0f", "\u2764\ufe0f\\u{fe0f}"),  # one selector, not two
        ("\u6f22\U000e0100\U000e0101", "\u6f22\U000e0100\\u{e0101}"),
        ("1\ufe0f2", "1\\u{fe0f}2"),  # no keycap
        ("\u1798\u200b\u200b\u1793", "\u1798\\u{200b}\\u{200b}\u1793"),
        ("\u1798\u200bx", "\u1798\\u{200b}x"),
        ("\u180ba", "\\u{180b}a"),
        ("\U0001f3f4\U000e0067\U000e007f", "\U0001f3f4\\u{e0067}\\u{e007f}"),  # no such flag
        ("\x1b\u0301", "\\u{1b}\\u{301}"),  # a mark would change our brace
        ("\u0301a", "\\u{301}a"),  # a mark would change what we wrote before
        ("\u202e\ufe0f", "\\u{202e}\\u{fe0f}"),
    ],
)
def test_an_invisible_character_is_shown_out_of_its_place(text: str, shown: str) -> None:
    assert visible(text) == shown


def test_at_most_four_combining_marks_in_a_row_pass() -> None:
    for count in (3, 4):
        assert visible("o" + "\u0335" * count) == "o" + "\u0335" * count
    assert visible("o" + "\u0335" * 5) == "o" + "\u0335" * 4 + "\\u{335}"
    assert visible("o" + "\u0335" * 6 + "x\u0335").endswith("\\u{335}\\u{335}x\u0335")


def test_a_single_line_shows_its_tabs_and_line_feeds() -> None:
    assert visible("a\tb\nc") == "a\\u{9}b\\u{a}c"


@pytest.mark.parametrize(
    ("body", "lines"),
    [
        ("", [""]),
        ("a", ["a"]),
        ("a\n", ["a"]),
        ("a\n\n", ["a", ""]),
        ("\n", [""]),
        ("a\tb\nc", ["a\tb", "c"]),
        ("a\r\nb", ["a\\u{d}", "b"]),
        ("\u00e9\t\u0301\x1b[2J\u2028b", ["\u00e9\t\\u{301}\\u{1b}[2J\\u{2028}b"]),
    ],
)
def test_a_body_is_shown_in_the_lines_that_line_feeds_make(body: str, lines: list[str]) -> None:
    assert visible_lines(body) == lines


def is_harmless(line: str) -> bool:
    """No control, no direction changer, no surrogate, no separator, no tag, few marks."""
    row = 0
    for character in line:
        category = unicodedata.category(character)
        row = row + 1 if category in ("Mn", "Me") and character not in "\ufe0f\ufe0e" else 0
        if category in ("Cc", "Cs", "Zl", "Zp") or character in BIDI or row > 8:
            return False
    return True


@given(hostile_text)
@example("\U0001f3f4" + "\U000e0067" * 3)
def test_no_shown_line_carries_a_control_or_changes_direction(text: str) -> None:
    assert is_harmless(visible(text))
    for line in visible_lines(text):
        assert is_harmless(line.replace("\t", ""))
    assert len(visible(text).splitlines()) <= 1


@given(st.text("\u0335\u0301\u200d\u200c\ufe0f\u0915\u064e", max_size=40))
def test_joiners_and_selectors_do_not_restart_the_count_of_marks(text: str) -> None:
    row = 0
    for character in visible(text):
        row = row + 1 if character in "\u0335\u0301\u064e" else row
        row = 0 if character in "\u0915}" else row
        assert row <= 4


@pytest.mark.parametrize("entry", HOSTILE, ids=lambda entry: entry["note"].replace(" ", "-"))
def test_each_hostile_text_is_shown_harmless(entry: dict[str, str]) -> None:
    text = entry["text"]
    assert is_harmless(visible(text))
    if entry["category"] in ("bidi", "invisible", "c1", "del", "bs", "bel", "ls", "nul"):
        assert "\\u{" in visible(text)
    if entry["category"] == "invisible":
        assert visible(text).isascii()
    if entry["category"] in ("tag", "vs-smuggle"):
        assert visible(text).isascii()
    if entry["category"] in ("width", "confusable", "shell", "sql", "format", "fts"):
        assert visible(text) == text


def test_there_are_72_hostile_texts() -> None:
    # Counted by the list, so that a lost file cannot pass for a clean run.
    assert len(HOSTILE) == 72


@pytest.mark.parametrize("text", NAUGHTY)
def test_each_naughty_string_is_shown_harmless(text: str) -> None:
    assert is_harmless(visible(text))


# ---- Width ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "columns"),
    [
        ("", 0),
        ("abc", 3),
        ("e\u0301", 1),
        ("\u6f22\u5b57", 4),
        ("\uff41", 2),
        ("\U0001f600", 2),
        ("\U0001faff", 2),  # reserved for emoji, wide before this Python knows it
        ("\u2764", 1),
        ("\u2764\ufe0f", 2),
        ("1\ufe0f\u20e3", 2),
        ("\U0001f600\ufe0f", 2),
        ("\U0001f468\u200d\U0001f469", 4),
        ("\u1112\u1161\u11ab", 2),
        ("\u0600\u0661", 2),
        ("\u0645\u06cc\u200c\u062e", 3),
    ],
)
def test_width_is_in_terminal_columns(text: str, columns: int) -> None:
    assert width(text) == columns


@pytest.mark.parametrize(
    ("text", "columns", "clipped"),
    [
        ("abcdef", 7, "abcdef"),
        ("abcdef", 6, "abcdef"),
        ("abcdef", 5, "abcd" + ELLIPSIS),
        ("abcdef", 1, ELLIPSIS),
        ("abcdef", 0, ""),
        ("abcdef", -1, ""),
        ("", 5, ""),
        ("\u6f22\u5b57\u6f22", 6, "\u6f22\u5b57\u6f22"),
        ("\u6f22\u5b57\u6f22", 5, "\u6f22\u5b57" + ELLIPSIS),
        ("\u6f22\u5b57\u6f22", 4, "\u6f22" + ELLIPSIS),
        ("e\u0301e\u0301e\u0301", 2, "e\u0301" + ELLIPSIS),
        ("\U0001f468\u200d\U0001f469", 3, "\U0001f468" + ELLIPSIS),
    ],
)
def test_a_line_is_clipped_to_columns_with_a_mark(text: str, columns: int, clipped: str) -> None:
    assert clip(text, columns) == clipped


@given(hostile_text, st.integers(0, 40))
def test_a_clipped_line_fits_and_is_a_beginning(text: str, columns: int) -> None:
    line = visible(text)
    clipped = clip(line, columns)
    assert width(clipped) <= columns
    assert clipped == line or line.startswith(clipped.removesuffix(ELLIPSIS))
    assert (clipped == line) == (width(line) <= columns and (columns > 0 or not line))


@pytest.mark.parametrize(
    ("line", "columns", "rows"),
    [
        ("", 4, [""]),
        ("abcd", 4, ["abcd"]),
        ("abcde", 4, ["abcd", "e"]),
        ("\u6f22\u5b57", 3, ["\u6f22", "\u5b57"]),
        ("\u6f22\u5b57", 1, ["\u6f22", "\u5b57"]),
        ("a\tb", 80, ["a       b"]),
        ("ae\u0301e\u0301", 2, ["ae\u0301", "e\u0301"]),
    ],
)
def test_a_long_line_is_folded_into_rows(line: str, columns: int, rows: list[str]) -> None:
    assert fold(line, columns) == rows


@given(hostile_text, st.integers(2, 20))
def test_folded_rows_fit_and_lose_nothing(text: str, columns: int) -> None:
    for line in visible_lines(text):
        rows = fold(line, columns)
        assert all(width(row) <= columns for row in rows)
        assert "".join(rows) == line.expandtabs(8)
