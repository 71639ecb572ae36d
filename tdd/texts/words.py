"""Texts without their small differences, and their words, marks and white space."""

from __future__ import annotations

import re
import unicodedata

_UNSPACED = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
_WORD = rf"[{_UNSPACED}]|[^\W{_UNSPACED}]+"
_SPACE = r"^\s+|\s+$|[^\S ]+|  +"
_WORD_OR_MARK = re.compile(rf"{_WORD}|[^\w\s]|{_SPACE}")
_UNUSUAL_SPACE = re.compile(_SPACE)


def normalise(text: str) -> str:
    """The text without differences of case, of Unicode composition and of white space.

    >>> normalise("  Cafe\\u0301\\n CLOSED ") == normalise("café closed")
    True
    """
    folded = unicodedata.normalize("NFC", unicodedata.normalize("NFC", text).casefold())
    return " ".join(folded.split())


def words_and_marks(text: str) -> list[str]:
    """Words in their own case, punctuation marks, and white space other than one blank between words.

    Kana and CJK ideographs count as one word each, since no blank separates them.

    >>> words_and_marks("Well, 3.5 km ")
    ['Well', ',', '3', '.', '5', 'km', ' ']
    """
    return _WORD_OR_MARK.findall(text)


def unusual_space(text: str) -> float:
    """Fraction of the characters that are white space other than one blank between words.

    >>> unusual_space("a b\\n")
    0.25
    """
    return sum(map(len, _UNUSUAL_SPACE.findall(text))) / max(1, len(text))
