"""The pairing code: what is typed wrong is found, what is typed sloppily is read, nothing leaks."""

import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mbx.core import pairing_code
from mbx.core.errors import MbxError
from mbx.core.pairing_code import CODE_CHARS, RANDOM_BYTES, PairingCode, parse_code

ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"
CHANCE = random.Random(5)
CODES = [PairingCode.from_random(CHANCE.randbytes(RANDOM_BYTES)) for _ in range(8)]


def plain(code: PairingCode) -> str:
    return code.shown().replace("-", "").lower()


def is_refused(text: str) -> bool:
    try:
        parse_code(text)
    except MbxError as refused:
        return refused.code == "usage"
    return False


def test_a_code_is_seven_groups_of_four_and_is_read_back() -> None:
    for code in CODES:
        groups = code.shown().split("-")
        assert [len(group) for group in groups] == [4] * 7
        assert code.shown() == code.shown().upper()
        assert set(plain(code)) <= set(ALPHABET)
        assert parse_code(code.shown()).secret() == code.secret()
        assert plain(code).startswith(code.secret().decode())


@pytest.mark.parametrize(("count", "fits"), [(16, False), (17, True), (18, False)])
def test_it_is_made_of_seventeen_random_bytes(*, count: int, fits: bool) -> None:
    if fits:
        assert len(PairingCode.from_random(bytes(count)).secret()) == 26
    else:
        with pytest.raises(ValueError, match="17"):
            PairingCode.from_random(bytes(count))


def test_each_of_its_130_bits_counts_and_all_values_of_the_alphabet_come() -> None:
    nothing = PairingCode.from_random(bytes(RANDOM_BYTES)).secret()
    secrets = {
        PairingCode.from_random((1 << bit).to_bytes(RANDOM_BYTES, "big")).secret()
        for bit in range(6, 8 * RANDOM_BYTES)
    }
    assert len(secrets - {nothing}) == 130
    letters = Counter(
        letter
        for _ in range(200)
        for letter in plain(PairingCode.from_random(CHANCE.randbytes(RANDOM_BYTES)))
    )
    assert set(letters) == set(ALPHABET)


# -- what the check characters find ---------------------------------------------------------------


def test_every_single_slip_and_every_swap_of_two_characters_is_found() -> None:
    slips = swaps = 0
    for code in CODES:
        right = plain(code)
        for place in range(CODE_CHARS):
            for letter in set(ALPHABET) - {right[place]}:
                assert is_refused(right[:place] + letter + right[place + 1 :])
                slips += 1
            for other in range(place):
                if right[place] != right[other]:
                    swapped = list(right)
                    swapped[place], swapped[other] = swapped[other], swapped[place]
                    assert is_refused("".join(swapped))
                    swaps += 1
    assert slips == 8 * 28 * 31
    assert swaps > 2_500


def test_no_two_slips_cancel_each_other() -> None:
    """The sums are linear, so two slips pass only if their two contributions are equal."""
    contributions = {}
    for place in range(CODE_CHARS):
        for value in range(1, 32):
            symbols = [0] * CODE_CHARS
            symbols[place] = value
            contributions[place, value] = pairing_code._sums(symbols)
    assert len(set(contributions.values())) == len(contributions) == 28 * 31
    for _ in range(2_000):
        left, right = ([CHANCE.randrange(32) for _ in range(CODE_CHARS)] for _ in "ab")
        both = [one ^ other for one, other in zip(left, right, strict=True)]
        sums = pairing_code._sums(left), pairing_code._sums(right)
        assert pairing_code._sums(both) == (sums[0][0] ^ sums[1][0], sums[0][1] ^ sums[1][1])


def test_two_slips_at_random_are_found_through_the_reader_too() -> None:
    for _ in range(5_000):
        wrong = list(plain(CHANCE.choice(CODES)))
        for place in CHANCE.sample(range(CODE_CHARS), 2):
            wrong[place] = CHANCE.choice([one for one in ALPHABET if one != wrong[place]])
        assert is_refused("".join(wrong))


def test_a_character_less_or_more_is_counted() -> None:
    right = plain(CODES[0])
    for wrong, count in ((right[:-1], 27), (right + "0", 29), ("", 0), (right * 40, 1_120)):
        with pytest.raises(MbxError, match=f"28 characters; {count:,} were given"):
            parse_code(wrong)


# -- what is read in spite of how it was typed ----------------------------------------------------


@given(code=st.sampled_from(CODES), data=st.data())
def test_case_blanks_hyphens_and_look_alikes_do_not_matter(
    code: PairingCode, data: st.DataObject
) -> None:
    typed = ""
    for letter in plain(code):
        written = data.draw(st.sampled_from({"0": "0oO", "1": "1iIlL"}.get(letter, letter)))
        between = data.draw(st.sampled_from(["", "", "-", " ", "\u2013", "\u00a0", "\n", " - "]))
        typed += data.draw(st.sampled_from([written, written.upper()])) + between
    assert parse_code(typed).secret() == code.secret()


@pytest.mark.parametrize("letter", ["u", "U", "!", "é", "\u0663", "\uff11", "\u0430", "\0", "ı"])
def test_a_character_of_no_code_is_wrong(letter: str) -> None:
    right = plain(CODES[0])
    for place in (0, 13, 27):
        with pytest.raises(MbxError, match="a character of the code is wrong"):
            parse_code(right[:place] + letter + right[place + 1 :])


# -- nothing of it leaks --------------------------------------------------------------------------


def pieces(text: str) -> set[str]:
    return {text[start : start + 4] for start in range(len(text) - 3)}


def test_no_error_and_no_repr_shows_any_of_it() -> None:
    code = CODES[0]
    right = plain(code)
    typed = [right[:-1], right + "0", "z" + right[1:], right[:-1] + "u", right[::-1]]
    shown = [repr(code), str(code), f"{code}", repr([code])]
    for text in typed:
        with pytest.raises(MbxError) as refused:
            parse_code(text)
        error = refused.value
        shown += [str(error), repr(error), str(error.as_object())]
        assert error.__cause__ is None
        assert error.__context__ is None
    assert len(shown) == 4 + 3 * 5
    found = pieces(right) | pieces(right.upper()) | pieces(right[::-1])
    assert [text for text in shown if any(piece in text for piece in found)] == []
