"""Frames: whose words are whose, for agents and for people."""

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from mbx.core.framing import Shown, boundary_for, framed, gutter, shown
from mbx.core.text import visible, visible_lines, width

VECTORS: Final = Path(__file__).parent.parent / "vectors"
HOSTILE: Final[list[str]] = [
    entry["text"] for entry in json.loads((VECTORS / "hostile" / "text.json").read_text())
]
NAUGHTY: Final[list[str]] = json.loads((VECTORS / "blns" / "blns.json").read_text())

BOUNDARY: Final = "0f3c" * 8
BEGIN: Final = f"--- begin {BOUNDARY} (the sender's own words) ---"
END: Final = f"--- end {BOUNDARY} ---"

MESSAGE: Final = Shown(
    id="7K2Q9XJ0MZ4B5C6D7E8F9G0H1J",
    kind="request",
    sender="api-dev@box",
    to=("ui-dev@box", "docs@box"),
    at="2026-11-30T12:00:00.000Z",
    trust_line="trust: local",
    policy_line="policy: ask",
    subject="Which port?",
    body="The one in the notes.\n",
)

anything = st.one_of(
    st.text(max_size=200),
    st.text("\n\r-| begin:\u0301\x1b" + BOUNDARY[:4], max_size=80),
    st.sampled_from(HOSTILE + NAUGHTY),
)


def body_in(frame: str, boundary: str) -> str:
    """A reader of its own: what the module's description promises to anyone."""
    lines = frame.split("\n")
    first, last = (place for place, line in enumerate(lines) if boundary in line)
    _head, empty, body = "\n".join(lines[first + 1 : last]).partition("\n\n")
    assert empty
    return body


def draws(*values: str) -> Callable[[], str]:
    source: Iterator[str] = iter(values)
    return lambda: next(source)


def test_an_agent_gets_our_lines_then_the_frame_with_the_senders_words() -> None:
    assert framed(MESSAGE, BOUNDARY).split("\n") == [
        "message 7K2Q9XJ0MZ4B5C6D7E8F9G0H1J: request",
        "from api-dev@box to ui-dev@box, docs@box at 2026-11-30T12:00:00.000Z",
        "trust: local",
        "policy: ask",
        BEGIN,
        "subject: Which port?",
        "",
        "The one in the notes.",
        "",
        END,
    ]


def test_every_further_field_stands_on_its_side_of_the_boundary() -> None:
    message = replace(
        MESSAGE,
        needs_reply=True,
        reply_to="5K2Q9X",
        topic="ports",
        refs=("a.py", "b.py"),
        after=("bytes 0 to 22 of 40; next: mbx read 7K2Q9X --offset 22",),
    )
    before, begin, rest = framed(message, BOUNDARY).partition(f"{BEGIN}\n")
    inside, end, after = rest.partition(f"\n{END}\n")
    assert begin
    assert end
    assert "request, needs a reply\n" in before
    assert "in reply to 5K2Q9X\n" in before
    assert inside.startswith("subject: Which port?\ntopic: ports\nref: a.py\nref: b.py\n\n")
    assert after == message.after[0]


@given(anything, anything, anything)
def test_the_body_comes_back_byte_for_byte_to_who_knows_the_boundary(
    body: str, subject: str, ref: str
) -> None:
    message = replace(MESSAGE, subject=subject, refs=(ref,), topic=subject, body=body)
    assert body_in(framed(message, BOUNDARY), BOUNDARY) == body


@pytest.mark.parametrize("body", HOSTILE + NAUGHTY)
def test_no_hostile_text_is_altered_or_leaves_its_frame(body: str) -> None:
    frame = framed(replace(MESSAGE, subject=body, body=body), BOUNDARY)
    assert body_in(frame, BOUNDARY) == body
    assert frame.split("\n")[:5] == framed(MESSAGE, BOUNDARY).split("\n")[:5]
    assert frame.endswith(f"\n{END}")


@given(anything)
def test_no_field_can_add_a_line_of_ours(text: str) -> None:
    message = replace(
        MESSAGE,
        id=text,
        kind=text,
        sender=text,
        to=(text,),
        at=text,
        trust_line=f"trust: {text}",
        policy_line=f"policy: {text}",
        after=(text,),
    )
    lines = framed(message, BOUNDARY).split("\n")
    assert lines[4] == BEGIN
    assert lines[-2] == END
    assert all(line == visible(line) for line in lines[:4])


def test_a_boundary_that_occurs_in_the_message_is_refused() -> None:
    for message in (
        replace(MESSAGE, body=f"x{BOUNDARY}y"),
        replace(MESSAGE, subject=BOUNDARY),
        replace(MESSAGE, refs=(BOUNDARY,)),
    ):
        for render in (framed, shown):
            with pytest.raises(ValueError, match="occurs"):
                render(message, BOUNDARY)


@pytest.mark.parametrize("boundary", ["", "0" * 31, "0" * 33, "A" * 32, "0" * 31 + "\n", "g" * 32])
def test_a_boundary_of_another_form_is_refused(boundary: str) -> None:
    with pytest.raises(ValueError, match="32 lower-case hex"):
        framed(MESSAGE, boundary)
    with pytest.raises(ValueError, match="32 lower-case hex"):
        boundary_for(lambda: boundary, "body")


def test_a_boundary_is_drawn_again_while_it_occurs_in_any_foreign_text() -> None:
    drawn = ["a" * 32, "b" * 32, "c" * 32, "d" * 32]
    assert boundary_for(draws(*drawn), "body", "subject") == "a" * 32
    foreign = ("x" + "a" * 33, "B" * 32, f"\n--- end {'c' * 32} ---")
    assert boundary_for(draws(*drawn), *foreign) == "d" * 32


def test_a_source_that_repeats_itself_is_given_up() -> None:
    with pytest.raises(ValueError, match="repeats itself"):
        boundary_for(lambda: "0" * 32, "0" * 32)


# ---- For people ----------------------------------------------------------------------------------


def test_a_person_gets_the_same_layout_with_a_gutter() -> None:
    message = replace(MESSAGE, topic="ports", body="one\n\n\x1b[2Jtwo\n")
    assert shown(message, BOUNDARY).split("\n") == [
        *framed(MESSAGE, BOUNDARY).split("\n")[:5],
        "| subject: Which port?",
        "| topic: ports",
        "|",
        "| one",
        "|",
        "| \\u{1b}[2Jtwo",
        END,
    ]


@pytest.mark.parametrize("text", HOSTILE + NAUGHTY)
@pytest.mark.parametrize("columns", [None, 40])
def test_nothing_hostile_reaches_a_person_without_its_gutter(text: str, columns: int) -> None:
    message = replace(MESSAGE, subject=text, topic=text, refs=(text,), body=text)
    lines = shown(message, BOUNDARY, columns).split("\n")
    assert lines[:5] == framed(MESSAGE, BOUNDARY).split("\n")[:5]
    assert lines[-1] == END
    assert all(line.startswith("|") for line in lines[5:-1])


@given(anything, st.one_of(st.none(), st.integers(0, 100)))
@example("\U0001f000\u200d\U0001f8b2", 0)  # a row that ends where a joiner stood
def test_no_foreign_text_starts_a_line_or_a_row_of_the_terminal(
    body: str, columns: int | None
) -> None:
    for row in gutter(body, columns).split("\n"):
        assert row == "|" or row.startswith(("| ", "|>"))
        assert columns is None or width(row) <= max(columns, 4)
        assert row.replace("\t", "") == visible(row.replace("\t", ""))


@given(anything)
def test_a_gutter_drops_nothing_but_blanks_at_the_end(body: str) -> None:
    rows = gutter(body).split("\n")
    assert [row[2:] for row in rows] == [line.rstrip(" ") for line in visible_lines(body)]


def test_a_line_that_a_terminal_would_wrap_is_folded_behind_the_gutter() -> None:
    assert gutter("12345678trust: local", 10).split("\n") == ["| 12345678", "|>trust: l", "|>ocal"]
    assert gutter("a\tb", 80) == "| a       b"
    assert gutter("a\tb") == "| a\tb"
