"""Exact and near duplicates between and within the roles.

A candidate that is a copy of a calibration item has a known answer, and its score is not an independent draw:
exchangeability does not hold for that pair. `tdd.texts.near` finds the near duplicates.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence

import numpy as np

from tdd.records import Texts
from tdd.runs.units import counted
from tdd.texts.near import NearSearch, Pairs, near_pairs
from tdd.texts.words import normalise

_MAX_PAIRS = 1_000


@dataclasses.dataclass(frozen=True)
class DuplicatePair:
    """A calibration item and a candidate that are (nearly) the same."""

    calibration: str  # id of the calibration item
    candidate: str  # id of the candidate
    similarity: float  # 1 for an exact duplicate, else as `Duplicates.measure` says


@dataclasses.dataclass(frozen=True)
class Duplicates:
    """The duplicates between and within the roles."""

    num_exact_pairs: int  # pairs of a calibration item and a candidate with the same text (normalised) or image file
    num_near_pairs: int  # pairs of others with similarity `near` or more
    num_candidates: int  # candidates in at least one of these pairs
    num_calibration: int  # calibration items in at least one of these pairs
    total_candidates: int  # candidates that were compared
    total_calibration: int  # calibration items that were compared
    within_calibration: int  # calibration items that repeat an earlier one
    within_candidates: int  # candidates that repeat an earlier one
    pairs: tuple[DuplicatePair, ...]  # the pairs, exact ones first, then by falling similarity; at most 1,000
    complete: bool  # False if the search for near duplicates stopped early; its counts are then lower bounds
    near: float  # smallest similarity of a near duplicate
    measure: str = "Jaccard similarity"  # what similarity means
    warning: str = ""  # empty where nothing was found


def duplicates(
    calibration: Texts | Sequence[str],
    candidates: Texts | Sequence[str],
    *,
    near: float = 0.8,
    search: NearSearch | None = None,
    measure: str = "Jaccard similarity",
) -> Duplicates:
    """Find candidates that are, exactly or nearly, calibration items.

    Texts are compared after Unicode composition (NFC), case folding and reduction of white space to single blanks.
    Near duplicates: Jaccard similarity of the sets of 5-grams, of words where both texts have 60 words or more, of
    characters where both have fewer than 120 (in a short text one changed word breaks five of few word 5-grams);
    where both apply, the larger. Similarities are exact, but for 64-bit hash collisions. Ids are row numbers from 1
    where plain strings are given. Other items are given as strings that stand for them, as images as the SHA-256 of
    their files, with a `search` of their own and the name of its similarity, `measure`.

    Raises:
      InputError: `near`, the smallest similarity of a near duplicate, outside (0, 1].

    Cost: linear in the length of the texts, plus about 5 million comparisons of pairs at most; memory proportional to
    the length of the texts.
    """
    names = [identifiers(calibration), identifiers(candidates)]
    normal = [[normalise(text) for text in strings(role)] for role in (calibration, candidates)]
    copies: list[dict[str, list[int]]] = [{}, {}]
    for rows_of_text, texts in zip(copies, normal, strict=True):
        for row, text in enumerate(texts):
            rows_of_text.setdefault(text, []).append(row)
    unique = [list(rows_of_text) for rows_of_text in copies]

    position = {text: index for index, text in enumerate(unique[1])}
    same = [(index, position[text]) for index, text in enumerate(unique[0]) if text in position]
    both = np.array(same, dtype=np.int64).reshape(-1, 2)
    exact: Pairs = (both[:, 0], both[:, 1], np.ones(len(same)))
    close, complete = (search or near_pairs)(unique[0], unique[1], near)
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
    result = Duplicates(
        num_exact_pairs=num_exact,
        num_near_pairs=num_near,
        num_candidates=num_candidates,
        num_calibration=num_calibration,
        total_candidates=len(candidates),
        total_calibration=len(calibration),
        within_calibration=within[0],
        within_candidates=within[1],
        pairs=tuple(itertools.islice(pairs, _MAX_PAIRS)),
        complete=complete,
        near=near,
        measure=measure,
    )
    return dataclasses.replace(result, warning=_warning(result))


def strings(texts: Texts | Sequence[str]) -> Sequence[str]:
    """The texts as plain strings."""
    return texts.texts if isinstance(texts, Texts) else texts


def identifiers(texts: Texts | Sequence[str]) -> Sequence[str]:
    """The ids of the texts, row numbers from 1 where plain strings are given."""
    return texts.ids if isinstance(texts, Texts) else [str(number) for number in range(1, len(texts) + 1)]


def _warning(result: Duplicates) -> str:
    parts = []
    if result.num_candidates:
        least = "" if result.complete else "at least "
        parts.append(
            f"{least}{result.num_candidates} candidates are copies or near copies ({result.measure} {result.near:g} "
            f"or more) of {result.num_calibration} calibration items ({result.num_exact_pairs} exact and "
            f"{result.num_near_pairs} near pairs): their null is known from the calibration set, and they void "
            "exchangeability; remove them from one role"
        )
    if not result.complete:
        parts.append("the search for near duplicates stopped early, too many texts are alike")
    if result.within_calibration:
        repeat = ("calibration item repeats another and adds", "calibration items repeat others and add")
        parts.append(f"{counted(result.within_calibration, repeat)} no information")
    if result.within_candidates:
        repeat = ("candidate repeats another and is", "candidates repeat others and are")
        parts.append(f"{counted(result.within_candidates, repeat)} counted again in every error rate")
    return "; ".join(parts)
