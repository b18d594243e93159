"""Prefixes of ids as ranges of small integers."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mbx.core import ids
from mbx.core.errors import MbxError
from mbx.core.ids import id8, parse_prefix
from mbx.core.keys import crockford
from mbx.core.limits import ID_CHARS, ID_PREFIX_MIN_CHARS

DIGESTS = st.binary(min_size=32, max_size=32)


@given(DIGESTS, st.integers(ID_PREFIX_MIN_CHARS, ID_CHARS))
def test_a_prefix_of_an_id_finds_it(digest: bytes, length: int) -> None:
    prefix = parse_prefix(crockford(digest)[:length])
    assert prefix.matches(crockford(digest))
    assert prefix.low8 <= id8(digest) <= prefix.high8


@given(DIGESTS, DIGESTS, st.integers(ID_PREFIX_MIN_CHARS, 12))
def test_only_ids_that_start_so_lie_in_the_range(mine: bytes, other: bytes, length: int) -> None:
    prefix = parse_prefix(crockford(mine)[:length])
    assert (prefix.low8 <= id8(other) <= prefix.high8) == prefix.matches(crockford(other))


@pytest.mark.parametrize("length", [ID_PREFIX_MIN_CHARS - 1, ID_CHARS + 1, 0])
def test_too_short_and_too_long_prefixes_are_not_found(length: int) -> None:
    with pytest.raises(MbxError, match="an id has 6 to 26 characters"):
        parse_prefix("a" * length)


def test_capitals_are_what_somebody_made_of_the_letters() -> None:
    assert parse_prefix("AbCdEF0Z") == parse_prefix("abcdef0z")


@pytest.mark.parametrize(
    "text", ["abcdeu", "ABCDEU", "abcde ", "ſbcdef", "abcdé1", "../../", None, 123456]
)
def test_what_is_no_id_is_not_found(text: object) -> None:
    with pytest.raises(MbxError) as caught:
        parse_prefix(text)
    assert caught.value.code == "not-found"


@pytest.mark.parametrize("text", ["0" * 25, "0" * 27, "l" * 26, "A" * 26, "0" * 25 + "\n", 0, None])
def test_a_whole_id_has_26_characters_of_the_alphabet(text: object) -> None:
    assert ids.is_id("0123456789abcdefghjkmnpqrs")
    assert ids.is_id("tvwxyz" + "0" * 20)
    assert not ids.is_id(text)
