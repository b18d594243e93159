"""What the full-text index is given."""

import pytest

from mbx.core.terms import indexable, is_plain, match_of


@pytest.mark.parametrize("text", ["plain words", "Größe, naïve, Ёлка", "🙂 emoji", ""])
def test_text_with_blanks_between_words_is_left_alone(text: str) -> None:
    assert is_plain(text)
    assert indexable(text) == text


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("東京都", ["東京", "京都", "都"]),
        ("猫", ["猫"]),
        ("see 東京 now", ["see", "東京", "京", "now"]),
        ("한국어", ["한국", "국어", "어"]),
        ("カタカナ", ["カタ", "タカ", "カナ", "ナ"]),
        ("ID-42東京", ["ID-42", "東京", "京"]),
    ],
)
def test_runs_of_cjk_become_bigrams(text: str, words: list[str]) -> None:
    assert not is_plain(text)
    assert indexable(text).split() == words


@pytest.mark.parametrize(
    ("word", "match"),
    [
        ("deploy", '"deploy"'),
        ("AND", '"AND"'),
        ('say"hi', '"say""hi"'),
        ("foo-bar*", '"foo-bar*"'),
        ("東京都", '"東京 京都"'),
        ("東京", '"東京"'),
        ("猫", '"猫"*'),
        ("ID東京", '"ID 東京"'),
        ("a猫", '"a 猫"*'),
        ("->", None),
        ("🙂", None),
        ("", None),
    ],
)
def test_a_word_becomes_a_literal_expression_or_nothing(word: str, match: str | None) -> None:
    assert match_of(word) == match
