"""Text as the full-text index sees it: words by blanks, Chinese, Japanese and Korean as bigrams.

unicode61 takes a run of Han, Kana or Hangul for one word; the trigram tokenizer finds no
two-character word and costs 13 times as much (measured). So runs become overlapping pairs before
they are indexed.
"""

import re
import unicodedata
from typing import Final

_RUN: Final = re.compile(
    "[\u2e80-\u2fdf\u3005-\u3007\u3021-\u3029\u3038-\u303b\u3040-\u30ff\u3100-\u31bf\u31f0-\u31ff"
    "\u3400-\u4dbf\u4e00-\u9fff\ua960-\ua97f\uac00-\ud7ff\uf900-\ufaff\uff66-\uffdc"
    "\U0001aff0-\U0001b16f\U00020000-\U0003ffff]+"
)


def is_plain(text: str) -> bool:
    """True when the index can take the text as it is."""
    return text.isascii() or _RUN.search(text) is None


def indexable(text: str) -> str:
    """`text` with each run of CJK characters replaced by its pairs and its last character."""
    return text if is_plain(text) else _RUN.sub(_bigrams, text)


def match_of(word: str) -> str | None:
    """The full-text expression that finds `word` literally, or None if it has nothing to find.

    One character of CJK is the beginning of some bigram or stands alone at the end of its run.
    """
    if not any(unicodedata.category(character)[0] in "LN" for character in word):
        return None
    quoted = '"' + _RUN.sub(_phrase, word).replace('"', '""').strip() + '"'
    last = _RUN.search(word[-1:])
    is_single = last is not None and _RUN.search(word[-2:-1]) is None
    return quoted + "*" if is_single else quoted


def _bigrams(match: re.Match[str]) -> str:
    """The pairs of a run, and its last character, so that each character begins some token."""
    run = match.group()
    return " " + " ".join(run[i : i + 2] for i in range(len(run))) + " "


def _phrase(match: re.Match[str]) -> str:
    run = match.group()
    pairs = [run[i : i + 2] for i in range(len(run) - 1)]
    return " " + " ".join(pairs or [run]) + " "
