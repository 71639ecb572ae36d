"""What the sizes alone allow: the smallest p-value, the fewest selections, the calibration items that really count."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from tdd.audit.words import normalise
from tdd.records import Texts
from tdd.validate.errors import InputError

__all__ = ["EffectiveCalibration", "Resolution", "effective_calibration_size", "resolution"]

_LARGE = Fraction(1, 20)


@dataclasses.dataclass(frozen=True)
class Resolution:
    """What n calibration items can resolve among m tests at level alpha.

    Attributes:
      smallest_p_value: 1/(n + 1).
      min_selections: smallest k with null_proportion/(n + 1) <= alpha k/m; m + 1 where no k up to m will do, so that
        nothing can be selected.
      calibration_for_one: calibration items with which a single item could be selected.
      warning: empty where at most one item, or at most 5 % of the items, are needed for a selection.
    """

    smallest_p_value: float
    min_selections: int
    calibration_for_one: int
    warning: str


@dataclasses.dataclass(frozen=True)
class EffectiveCalibration:
    """How much calibration there really is.

    Attributes:
      num_given: calibration items given.
      num_missing: of them, without a score (NaN).
      num_repeated: of those with a score, exact duplicates of an earlier one.
      size: num_given - num_missing - num_repeated.
      num_distinct: different values among the scores that are there; fewer than scores means ties.
      warning: empty where every item counts and ties are rare.
    """

    num_given: int
    num_missing: int
    num_repeated: int
    size: int
    num_distinct: int
    warning: str


def resolution(
    num_calibration: int,
    num_tests: int,
    alpha: float | Fraction,
    null_proportion: float | Fraction = 1,
    *,
    min_selections: int | None = None,
) -> Resolution:
    """How few items a step-up procedure on conformal p-values can select.

    Benjamini and Hochberg's procedure selects k of m items only if the k-th smallest of the null_proportion * p is
    at most alpha k/m, and no conformal p-value is below 1/(n + 1). Computed in whole numbers, with `alpha` and
    `null_proportion` taken as the decimals they are written as.

    Args:
      num_calibration: n, calibration items with a score.
      num_tests: m, candidates with a score.
      alpha: level, in (0, 1).
      null_proportion: estimated proportion of candidates under the null that scales the p-values; may exceed 1.
      min_selections: the smallest k, where a procedure has computed it already from the exact estimate.

    Raises:
      InputError: a negative or broken size, `alpha` outside (0, 1), `null_proportion` negative or not finite.

    >>> resolution(99, 1000, 0.1).min_selections
    100
    >>> resolution(99, 1000, 0.1).calibration_for_one
    9999
    """
    _check_sizes(num_calibration, num_tests)
    level = _exact_fraction("alpha", alpha, below_one=True)
    scale = _exact_fraction("null_proportion", null_proportion, below_one=False)
    needed = scale * num_tests / level
    fewest = max(1, math.ceil(needed / (num_calibration + 1))) if min_selections is None else min_selections
    for_one = max(0, math.ceil(needed) - 1)
    warning = ""
    if fewest > num_tests > 0:
        for_any = max(0, math.ceil(scale / level) - 1)
        warning = (
            f"nothing can be selected: {num_calibration} calibration items give no p-value below "
            f"1/{num_calibration + 1}, and at level {float(level):g} at least {for_any} are needed to select all "
            f"{num_tests} candidates, {for_one} to select a single one"
        )
    elif fewest > 1 and fewest > _LARGE * num_tests:
        warning = (
            f"with {num_calibration} calibration items no fewer than {fewest} of {num_tests} candidates can be "
            f"selected at level {float(level):g}: a smaller number of members stays undetected; "
            f"{for_one} calibration items would allow a single selection"
        )
    return Resolution(1 / (num_calibration + 1), min(fewest, num_tests + 1), for_one, warning)


def effective_calibration_size(scores: ArrayLike, texts: Texts | Sequence[str] | None = None) -> EffectiveCalibration:
    """Calibration items that carry information: with a score, and no copy of another one.

    Args:
      scores: [n] scores of the calibration items, NaN where there is none.
      texts: their texts, or None where they are not known (then no item counts as repeated). Texts are compared
        without differences of case, Unicode composition and white space.

    Raises:
      InputError: scores of more than one axis, or as many texts as there are not scores.
    """
    strings = texts.texts if isinstance(texts, Texts) else texts
    values = _score_vector(scores, strings)
    there = ~np.isnan(values)
    num_scored = int(np.count_nonzero(there))
    num_repeated = 0
    if strings is not None:
        num_repeated = num_scored - len({normalise(strings[row]) for row in np.flatnonzero(there).tolist()})
    num_distinct = int(np.unique(values[there]).size)
    num_missing = values.size - num_scored
    size = num_scored - num_repeated
    parts = []
    if size == 0:
        parts.append("no calibration item has a score")
    elif num_missing:
        parts.append(f"{num_missing} of {values.size} calibration items have no score and do not count")
    if num_repeated:
        parts.append(f"{num_repeated} calibration items are copies of others and add no information")
    if 2 * num_distinct < size:
        parts.append(
            f"the {num_scored} calibration scores take only {num_distinct} different values: conservative p-values "
            "stay valid and lose power"
        )
    return EffectiveCalibration(values.size, num_missing, num_repeated, size, num_distinct, "; ".join(parts))


def _check_sizes(num_calibration: int, num_tests: int) -> None:
    """Counts of items."""
    for name, value in (("num_calibration", num_calibration), ("num_tests", num_tests)):
        if value < 0 or value != int(value):
            raise InputError(f"{name}={value!r} must be a whole number, 0 or more")


def _exact_fraction(name: str, value: float | Fraction, *, below_one: bool) -> Fraction:
    """The decimal that a number is written as, exactly: 0.1 is 1/10."""
    fraction = value if isinstance(value, Fraction) else None
    if fraction is None and math.isfinite(value):
        fraction = Fraction(repr(float(value)))
    if fraction is None or fraction < 0 or (below_one and not 0 < fraction < 1):
        raise InputError(f"{name}={value!r} must be {'between 0 and 1' if below_one else 'finite and not negative'}")
    return fraction


def _score_vector(scores: Any, texts: Sequence[str] | None) -> np.ndarray:
    """Scores as [n] float64, one a text where texts are given."""
    values = np.asarray(scores, dtype=np.float64)
    if values.ndim != 1:
        raise InputError(f"scores must have one axis, got shape {values.shape}")
    if texts is not None and len(texts) != values.size:
        raise InputError(f"{values.size} scores but {len(texts)} texts: they must belong to the same items")
    return values
