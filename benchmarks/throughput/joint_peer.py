"""What a study of JECS costs as a NumPy loop over repetitions: the peer of `tdd.study.joint`, and its reference.

Written to be fast: subsets by `argpartition`, single-precision scores (their sort is vectorised), one histogram in
place of a sort of the p-values, decisions on 601 ranks and not on 1,400 items. Decisions are made between 64-bit
integers, so that another implementation must agree with them exactly.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction
from typing import NamedTuple

import numpy as np

__all__ = ["JointCounts", "drawn_subsets", "fixed_pool", "fresh_panels", "jecs_cuts", "jmcs_cuts", "max_ranks"]

GRID = tuple(Fraction(i, 10) for i in range(1, 10))
FEWEST = 10


class JointCounts(NamedTuple):
    """What one repetition selected.

    Attributes:
      false: [levels] contaminated items among the selected.
      selected: [levels] selected items.
      pure: jointly pure items among those tested.
    """

    false: np.ndarray
    selected: np.ndarray
    pure: int


def fixed_pool(
    calibration: np.ndarray,
    scores: np.ndarray,
    contaminated: np.ndarray,
    subsets: Iterator[tuple[np.ndarray, np.ndarray]],
    levels: Sequence[Fraction],
    *,
    counting: bool = False,
) -> list[JointCounts]:
    """JECS on subsets of a pool, one repetition after the other.

    Args:
      calibration: [K, N] loss-like scores of items that every model was trained on.
      scores: [K, M] loss-like scores of candidates.
      contaminated: [M] bool.
      subsets: pairs of indices of the calibration items and of the candidates that a repetition uses.
      levels: exact levels.
      counting: rank by running counts of the drawn items along the pool's order, which is known beforehand, and not
        by a sort and binary searches.
    """
    order = np.argsort(-calibration, axis=1, kind="stable")
    ascending = np.sort(calibration, axis=1)
    size = calibration.shape[1]
    # flat places in the table of running counts: calibration items at least as large as the candidate
    place = np.stack([size - np.searchsorted(a, s, side="left") for a, s in zip(ascending, scores, strict=True)])
    place += (size + 1) * np.arange(len(scores))[:, None]
    found = []
    for own, tested in subsets:
        if counting:
            drawn = np.zeros(size, np.int16)
            drawn[own] = 1
            running = np.zeros((len(scores), size + 1), np.int16)
            np.cumsum(drawn.take(order), axis=1, out=running[:, 1:])
            rank = 1 + running.ravel().take(place.take(tested, axis=1)).max(axis=0)
        else:
            rank = max_ranks(calibration.take(own, axis=1), scores.take(tested, axis=1))
        found.append(_metrics(rank, contaminated[tested], jecs_cuts(rank, len(own), levels)))
    return found


def fresh_panels(
    generator: np.random.Generator,
    levels: Sequence[Fraction],
    repetitions: int,
    *,
    num_models: int = 5,
    num_calibration: int = 600,
    num_tests: int = 1400,
    signal: float = 2.0,
    member_share: float = 0.25,
) -> list[JointCounts]:
    """JECS on new normal scores in each repetition (the law of `tdd.study.JointLabels`)."""
    found = []
    for _ in range(repetitions):
        member = generator.random((num_models, num_tests), dtype=np.float32) < member_share
        own = generator.standard_normal((num_models, num_calibration), dtype=np.float32) - np.float32(signal)
        tested = generator.standard_normal((num_models, num_tests), dtype=np.float32)
        tested -= np.float32(signal) * member
        rank = max_ranks(own, tested)
        found.append(_metrics(rank, np.logical_or.reduce(member, axis=0), jecs_cuts(rank, num_calibration, levels)))
    return found


def drawn_subsets(
    generator: np.random.Generator, pool_calibration: int, pool_tests: int, num_calibration: int, num_tests: int
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Uniform subsets of both parts of a pool, without end."""
    while True:
        pair = []
        for pool, size in ((pool_calibration, num_calibration), (pool_tests, num_tests)):
            order = np.argpartition(generator.random(pool, dtype=np.float32), size - 1)
            pair.append(order[:size])
        yield pair[0], pair[1]


def max_ranks(calibration: np.ndarray, scores: np.ndarray) -> np.ndarray:
    """[m] the largest over the models of 1 + #{calibration >= score}: a sort and binary searches for each model."""
    ordered = np.sort(calibration, axis=1)
    below = np.stack([np.searchsorted(own, tested) for own, tested in zip(ordered, scores, strict=True)])
    return ordered.shape[1] + 1 - below.min(axis=0)


def jecs_cuts(rank: np.ndarray, n: int, levels: Sequence[Fraction], grid: Sequence[Fraction] = GRID) -> list[int]:
    """The largest rank that JECS selects at each level, 0 for none, by its definition between integers."""
    at_most, points = np.bincount(rank, minlength=n + 2).cumsum(), n + 1
    q = int(np.lcm.reduce([tau.denominator for tau in grid]))
    best: tuple[int, ...] | None = None
    for tau in grid:
        s = int(tau * q)
        limit = s * points // q
        above = int(at_most[-1] - at_most[limit])
        if above < FEWEST:
            continue
        root = int(np.ceil(np.sqrt(above)))
        edge = int(np.searchsorted(at_most, at_most[limit] + root))
        near, distance = int(at_most[edge] - at_most[limit]), edge * q - s * points
        # q/slope = s + N D/(C (n + 1)): the largest, the first of equals
        top, bottom = s * near * points + above * distance, near * points
        if best is None or top * best[1] > best[0] * bottom:
            best = (top, bottom, s, limit, above, near, distance)
    if best is None:
        return jmcs_cuts(rank, n, levels)
    s, limit, above, near, distance = best[2:]
    line, count = at_most[: limit + 1], at_most[limit + 1 :] - at_most[limit]
    places, cuts = np.arange(limit + 1), []
    for level in levels:
        a, b = level.numerator, level.denominator
        passes = (1 + above) * b * (s * near * points + count * distance) <= a * above * distance * (line[-1] + count)
        some = np.flatnonzero(passes & (count > 0))
        if some.size:
            cuts.append(limit + 1 + int(some[-1]))
            continue
        allowed = places * ((1 + above) * q * near * b) <= line * (a * above * distance)
        cuts.append(int(np.flatnonzero(allowed)[-1]))
    return cuts


def jmcs_cuts(rank: np.ndarray, n: int, levels: Sequence[Fraction]) -> list[int]:
    """The largest rank that BH on rank/(n + 1) selects at each level, 0 for none."""
    at_most = np.bincount(rank, minlength=n + 2).cumsum()
    scaled = np.arange(n + 2) * len(rank)
    return [
        int(np.flatnonzero(scaled * level.denominator <= at_most * (level.numerator * (n + 1)))[-1]) for level in levels
    ]


def _metrics(rank: np.ndarray, contaminated: np.ndarray, cuts: list[int]) -> JointCounts:
    selected = rank <= np.asarray(cuts)[:, None]
    return JointCounts(
        np.count_nonzero(selected & contaminated, axis=1),
        np.count_nonzero(selected, axis=1),
        int(np.count_nonzero(~contaminated)),
    )
