"""Exact and near duplicates between and within the roles.

A candidate that is a copy of a calibration item has a known answer, and its score is no fresh draw: exchangeability
is void for that pair.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence

import numpy as np

from tdd.audit.shingles import shingle_sets, similar_pairs
from tdd.audit.words import normalise
from tdd.records import Texts
from tdd.validate import honesty as checks

__all__ = ["DuplicatePair", "Duplicates", "duplicates", "near_pairs"]

_LONG = 60
_MAX_PAIRS = 1_000
_MAX_COMPARED = 5_000_000

_Pairs = tuple[np.ndarray, np.ndarray, np.ndarray]


@dataclasses.dataclass(frozen=True)
class DuplicatePair:
    """A calibration item and a candidate with (nearly) the same text.

    Attributes:
      calibration: id of the calibration item.
      candidate: id of the candidate.
      similarity: 1 for an exact duplicate, else the Jaccard similarity.
    """

    calibration: str
    candidate: str
    similarity: float


@dataclasses.dataclass(frozen=True)
class Duplicates:
    """What was found.

    Attributes:
      num_exact_pairs: pairs of a calibration item and a candidate with the same text, after normalisation.
      num_near_pairs: pairs with another text but similarity `near` or more.
      num_candidates: candidates in at least one of these pairs.
      num_calibration: calibration items in at least one of these pairs.
      within_calibration: calibration items that repeat an earlier one.
      within_candidates: candidates that repeat an earlier one.
      pairs: the pairs, exact ones first, then by falling similarity; at most 1,000.
      complete: False where the search for near duplicates stopped early; counts of it are then lower bounds.
      near: the similarity from which a pair counts.
      warning: empty where nothing was found.
    """

    num_exact_pairs: int
    num_near_pairs: int
    num_candidates: int
    num_calibration: int
    within_calibration: int
    within_candidates: int
    pairs: tuple[DuplicatePair, ...]
    complete: bool
    near: float
    warning: str


def duplicates(
    calibration: Texts | Sequence[str], candidates: Texts | Sequence[str], *, near: float = 0.8
) -> Duplicates:
    """Find candidates whose text is, exactly or nearly, that of a calibration item.

    Texts are compared after Unicode composition (NFC), case folding and reduction of white space to single blanks.
    Near duplicates: Jaccard similarity of the sets of 5-grams, of words where both texts have 60 words or more, of
    characters where both have fewer than 120 (in a short text one changed word breaks five of few word 5-grams);
    where both apply, the larger.

    Args:
      calibration: calibration texts; ids are row numbers from 1 where plain strings are given.
      candidates: candidate texts, likewise.
      near: smallest Jaccard similarity of a near duplicate.

    Returns:
      The pairs and counts. Similarities are exact, but for 64-bit hash collisions.

    Raises:
      InputError: `near` outside (0, 1].

    Cost: linear in the length of the texts, plus about 5 million comparisons of pairs at most; memory proportional to
    the length of the texts.
    """
    checks.check_near(near)
    names = [_ids(calibration), _ids(candidates)]
    normal = [[normalise(text) for text in _strings(role)] for role in (calibration, candidates)]
    copies: list[dict[str, list[int]]] = [{}, {}]
    for rows_of_text, texts in zip(copies, normal, strict=True):
        for row, text in enumerate(texts):
            rows_of_text.setdefault(text, []).append(row)
    unique = [list(rows_of_text) for rows_of_text in copies]

    position = {text: index for index, text in enumerate(unique[1])}
    same = [(index, position[text]) for index, text in enumerate(unique[0]) if text in position]
    both = np.array(same, dtype=np.int64).reshape(-1, 2)
    exact: _Pairs = (both[:, 0], both[:, 1], np.ones(len(same)))
    close, complete = near_pairs(unique[0], unique[1], near)
    times = [np.array([len(rows) for rows in role.values()], dtype=np.int64) for role in copies]
    num_exact, num_near = (int(np.sum(times[0][a] * times[1][b])) for a, b, _ in (exact, close))
    num_calibration = int(times[0][np.union1d(exact[0], close[0])].sum())
    num_candidates = int(times[1][np.union1d(exact[1], close[1])].sum())
    pairs = (
        DuplicatePair(names[0][first], names[1][second], similarity)
        for left, right, similarity in zip(
            *(np.concatenate(part).tolist() for part in zip(exact, close, strict=True)), strict=True
        )
        for first in copies[0][unique[0][left]]
        for second in copies[1][unique[1][right]]
    )
    within = [len(role) - len(distinct) for role, distinct in zip(normal, unique, strict=True)]
    return Duplicates(
        num_exact_pairs=num_exact,
        num_near_pairs=num_near,
        num_candidates=num_candidates,
        num_calibration=num_calibration,
        within_calibration=within[0],
        within_candidates=within[1],
        pairs=tuple(itertools.islice(pairs, _MAX_PAIRS)),
        complete=complete,
        near=near,
        warning=_warning(num_exact, num_near, num_calibration, num_candidates, within, complete, near),
    )


def _strings(texts: Texts | Sequence[str]) -> Sequence[str]:
    return texts.texts if isinstance(texts, Texts) else texts


def _ids(texts: Texts | Sequence[str]) -> Sequence[str]:
    return texts.ids if isinstance(texts, Texts) else [str(number) for number in range(1, len(texts) + 1)]


def near_pairs(left: list[str], right: list[str], near: float) -> tuple[_Pairs, bool]:
    """Pairs of different texts with similarity `near` or more, best first, and whether the search was complete."""
    vocabulary: dict[str, int] = {}
    words = [
        [np.array([vocabulary.setdefault(word, len(vocabulary)) for word in text.split()]) for text in texts]
        for texts in (left, right)
    ]
    long = [np.array([len(row) >= _LONG for row in role], dtype=bool) for role in words]
    short = [np.array([len(row) < 2 * _LONG for row in role], dtype=bool) for role in words]
    rows = [(np.flatnonzero(long[0]), np.flatnonzero(long[1])), (np.flatnonzero(short[0]), np.flatnonzero(short[1]))]
    found: list[_Pairs] = []
    num_compared = 0
    for by_words, (rows_left, rows_right) in zip((True, False), rows, strict=True):
        if not (rows_left.size and rows_right.size):
            continue
        if by_words:
            sequences = [[words[0][i] for i in rows_left], [words[1][i] for i in rows_right]]
        else:
            sequences = [[_letters(left[i]) for i in rows_left], [_letters(right[i]) for i in rows_right]]
        for a, b, similarity, work in similar_pairs(shingle_sets(sequences[0]), shingle_sets(sequences[1]), near):
            found.append((rows_left[a], rows_right[b], similarity))
            num_compared += work
            if num_compared > _MAX_COMPARED:
                return _best_of_each(found, left, right), False
    return _best_of_each(found, left, right), True


def _letters(text: str) -> np.ndarray:
    return np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype="<u4")


def _best_of_each(found: list[_Pairs], left: list[str], right: list[str]) -> _Pairs:
    """Each pair once with its best similarity, best pairs first, without equal texts."""
    if not found:
        empty = np.empty(0, dtype=np.int64)
        return empty, empty, np.empty(0)
    a, b, similarity = (np.concatenate(part) for part in zip(*found, strict=True))
    order = np.lexsort((b, a, -similarity))
    a, b, similarity = a[order], b[order], similarity[order]
    _, first = np.unique(a * max(1, len(right)) + b, return_index=True)
    first = np.sort(first)
    different = np.array([left[a[i]] != right[b[i]] for i in first], dtype=bool)
    first = first[different]
    return a[first], b[first], similarity[first]


def _warning(
    num_exact: int,
    num_near: int,
    num_calibration: int,
    num_candidates: int,
    within: list[int],
    complete: bool,
    near: float,
) -> str:
    parts = []
    if num_candidates:
        least = "" if complete else "at least "
        parts.append(
            f"{least}{num_candidates} candidates are copies or near copies (Jaccard similarity {near:g} or more) of "
            f"{num_calibration} calibration items ({num_exact} exact and {num_near} near pairs): their null is "
            "known from the calibration set, and they void exchangeability; remove them from one role"
        )
    if not complete:
        parts.append("the search for near duplicates stopped early, too many texts are alike")
    if within[0]:
        parts.append(f"{within[0]} calibration items repeat others and add no information")
    if within[1]:
        parts.append(f"{within[1]} candidates repeat others and are counted again in every error rate")
    return "; ".join(parts)
