"""Cursors fit one list, one mailbox, one filter."""

import pytest

from mbx.core.cursor import decode, encode
from mbx.core.errors import MbxError

TOO_LONG = ("inbox.00000000." + "9" * 19, "inbox." + "0" * 60 + ".1")
MINE = ("request", None, False)


def test_a_cursor_gives_its_position_back() -> None:
    assert decode(encode("inbox", "me", MINE, 42), "inbox", "me", MINE) == 42


@pytest.mark.parametrize(
    ("listing", "identity", "filters"),
    [("sent", "me", MINE), ("inbox", "you", MINE), ("inbox", "me", ("request", "bob", False))],
)
def test_a_cursor_of_another_list_mailbox_or_filter_is_refused(
    listing: str, identity: str, filters: tuple[object, ...]
) -> None:
    with pytest.raises(MbxError) as caught:
        decode(encode("inbox", "me", MINE, 42), listing, identity, filters)
    assert caught.value.code == "conflict"


def test_a_cursor_is_refused_after_something_came_to_stand_before_it() -> None:
    assert decode(encode("inbox", "me", MINE, 42, 3), "inbox", "me", MINE, 3) == 42
    for then, now in ((0, 1), (3, 4), (3, 0)):
        with pytest.raises(MbxError, match="forwarded") as caught:
            decode(encode("inbox", "me", MINE, 42, then), "inbox", "me", MINE, now)
        assert caught.value.code == "conflict"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x",
        "inbox.1",
        "a.b.c.d",
        "inbox.00000000.1.x",
        "inbox.00000000.1.2.3",
        "inbox.00000000.x",
        "inbox.00000000.-1",
        "inbox.0.٣",
        None,
        7,
        *TOO_LONG,
    ],
)
def test_a_malformed_cursor_is_its_own_refusal(text: object) -> None:
    with pytest.raises(MbxError, match="malformed") as caught:
        decode(text, "inbox", "me", MINE)
    assert caught.value.code == "usage"
