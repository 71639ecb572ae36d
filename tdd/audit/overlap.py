"""Long runs of words that a calibration text and a candidate have in common: one contains a part of the other.

Jaccard similarity does not see that a calibration text is the first half of a candidate. A run does: `RUN` words in a
row, or the whole of a text that has fewer (but `LEAST`, below which runs are common phrases).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence

import numpy as np

from tdd.audit.words import normalise
from tdd.records import Texts

__all__ = ["LEAST", "RUN", "Overlap", "overlap", "rare", "shared_runs"]

RUN, LEAST = 30, 8
_COMMON, _COMMON_SHARE = 2, 0.05
_BASE = np.uint64(0x9E3779B97F4A7C15)


@dataclasses.dataclass(frozen=True)
class Overlap:
    """What was found.

    Attributes:
      num_candidates: candidates that share a run of words with a calibration item.
      num_calibration: calibration items that share one with a candidate.
      total_candidates: candidates that were compared.
      total_calibration: calibration items that were compared.
      example: ids of a calibration item and a candidate, or an empty tuple.
      warning: empty where nothing was found.
    """

    num_candidates: int
    num_calibration: int
    total_candidates: int
    total_calibration: int
    example: tuple[str, ...]
    warning: str


def overlap(calibration: Texts | Sequence[str], candidates: Texts | Sequence[str]) -> Overlap:
    """Find calibration items and candidates that share 30 words in a row, or all of a shorter text of 8 words or more.

    Texts are compared after Unicode composition, case folding and reduction of white space. A run that stands in more
    than 5 % of the texts of one role, and in more than two, is a template or a licence, and does not count.

    Args:
      calibration: calibration texts; ids are row numbers from 1 where plain strings are given.
      candidates: candidate texts, likewise.

    Returns:
      `Overlap`. The search is complete but for templates, and exact but for 64-bit hash collisions.

    Cost: linear in the words; those of the longer texts are looked at once for each length of a shorter one, at most
    22 times. A second for 4,000 texts of 500 words.
    """
    roles, n = (calibration, candidates), len(calibration)
    found = [np.zeros(len(role), bool) for role in roles]
    example: tuple[str, ...] = ()
    for code, text in shared_runs([*_strings(calibration), *_strings(candidates)]):
        own = text < n
        codes = [rare(code[own], text[own], n), rare(code[~own], text[~own] - n, len(candidates))]
        shared, first, second = np.intersect1d(codes[0][0], codes[1][0], return_indices=True)
        for (code, text), hit in zip(codes, found, strict=True):
            hit[text[np.isin(code, shared)]] = True
        if shared.size and not example:
            example = (_name(roles[0], int(codes[0][1][first[0]])), _name(roles[1], int(codes[1][1][second[0]])))
    counts = [int(hit.sum()) for hit in found]
    return Overlap(counts[1], counts[0], len(found[1]), len(found[0]), example, _warning(counts, found, example))


def shared_runs(texts: Sequence[str]) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Codes of the runs of each length that counts and the texts they stand in; one may stand in a text repeatedly."""
    known: dict[str, int] = {}
    words = [[known.setdefault(word, len(known)) for word in normalise(text).split()] for text in texts]
    stream, lengths = _stream(words), np.array([len(text) for text in words], dtype=np.int64)
    short = np.unique(lengths[(lengths >= LEAST) & (lengths < RUN)])
    for size in [*short.tolist(), RUN]:
        code, text = _runs(stream, size)
        if size < RUN:  # a whole text of this length on one side at least
            keep = np.isin(code, code[lengths[text] == size])
            code, text = code[keep], text[keep]
        yield code, text


def _stream(texts: list[list[int]]) -> tuple[np.ndarray, np.ndarray]:
    """Words of all texts one after another as mixed codes, and the text of each."""
    number = np.array([word for text in texts for word in text], dtype=np.uint64)
    with np.errstate(over="ignore"):
        mixed = (number + np.uint64(1)) * np.uint64(0xD6E8FEB86659FD93)
        mixed ^= mixed >> np.uint64(32)
        mixed *= np.uint64(0xC2B2AE3D27D4EB4F)
        mixed ^= mixed >> np.uint64(29)
    return mixed, np.repeat(np.arange(len(texts)), [len(text) for text in texts])


def _runs(stream: tuple[np.ndarray, np.ndarray], size: int) -> tuple[np.ndarray, np.ndarray]:
    """Codes of all runs of `size` words within a text, and their texts."""
    mixed, text = stream
    count = mixed.size - size + 1
    if count < 1:
        return np.zeros(0, np.uint64), np.zeros(0, np.int64)
    code = np.zeros(count, np.uint64)
    with np.errstate(over="ignore"):
        for offset in range(size):
            code = code * _BASE + mixed[offset : offset + count]
            code ^= code >> np.uint64(31)
    inside = text[:count] == text[size - 1 :]
    return code[inside], text[:count][inside]


def rare(code: np.ndarray, text: np.ndarray, total: int) -> tuple[np.ndarray, np.ndarray]:
    """Each (code, text) once, without codes of many of the `total` texts."""
    order = np.lexsort((text, code))
    code, text = code[order], text[order]
    new = np.ones(code.size, bool)
    new[1:] = (code[1:] != code[:-1]) | (text[1:] != text[:-1])
    code, text = code[new], text[new]
    _, inverse, times = np.unique(code, return_inverse=True, return_counts=True)
    few = times[inverse] <= max(_COMMON, _COMMON_SHARE * total) if code.size else np.zeros(0, bool)
    return code[few], text[few]


def _strings(texts: Texts | Sequence[str]) -> Sequence[str]:
    return texts.texts if isinstance(texts, Texts) else texts


def _name(texts: Texts | Sequence[str], row: int) -> str:
    return str(texts.ids[row]) if isinstance(texts, Texts) else str(row + 1)


def _warning(counts: list[int], found: list[np.ndarray], example: tuple[str, ...]) -> str:
    if not counts[0]:
        return ""
    return (
        f"{counts[0]} of {len(found[0])} calibration items and {counts[1]} of {len(found[1])} candidates share {RUN} "
        f"words in a row, or all of a shorter text (calibration item {example[0]!r} and candidate {example[1]!r}, for "
        "one): parts of one text are no independent draws; remove them from one role"
    )
