"""What the full-text index is given."""

import pytest

from mbx.core.terms import indexable, is_plain


@pytest.mark.parametrize("text", ["plain words", "Größe, naïve, Ёлка", "🙂 emoji", ""])
def test_text_with_blanks_between_words_is_left_alone(text: str) -> None:
    assert is_plain(text)
    assert indexable(text) == text


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("東京都", ["東京", "京都"]),
        ("猫", ["猫"]),
        ("see 東京 now", ["see", "東京", "now"]),
        ("한국어", ["한국", "국어"]),
        ("カタカナ", ["カタ", "タカ", "カナ"]),
        ("ID-42東京", ["ID-42", "東京"]),
    ],
)
def test_runs_of_cjk_become_bigrams(text: str, words: list[str]) -> None:
    assert not is_plain(text)
    assert indexable(text).split() == words
