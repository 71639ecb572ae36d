"""Planning the test of canonical order: the fewest shuffles with which it can reach a level at all."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

from tdd.kernels import betting
from tdd.procedures.exchangeability import TESTS
from tdd.validate import arrays
from tdd.validate.errors import InputError
from tdd.validate.sequential import as_count
from tdd.validate.shards import as_draws

__all__ = ["shuffles_needed"]

_MOST_SHUFFLES = 10**9


def shuffles_needed(num_shards: int, alpha: float, test: str = "combined", *, num_draws: int = 99_999) -> int:
    """The cheapest number of shuffles for a wanted p-value: the smallest k with which a test can reach the level.

    With fewer no data set whatever is found. Real ones need more: it is the p-value of a canonical order that beats
    every shuffle of every shard. Smallest p-values, with r shards: "rank_sum" (k + 1)^-r; "exact" the same where all
    relabellings are listed ((k + 1)^r <= num_draws + 1), else 1/(num_draws + 1); "combined" twice the smaller of the
    two; "permutation" 1/(k + 1); "t" none for r >= 2; "e_process" 1 over its largest e-value.

    Args:
      num_shards: r.
      alpha: level, taken as the decimal that it is written as.
      test: of `exchangeability`, or "e_process" of `exchangeability_sequence`.
      num_draws: random relabellings of "exact" and "combined".

    Raises:
      InputError: arguments out of range, or no number of shuffles suffices: "exact" with so few draws, "t" with one
        shard.

    >>> [shuffles_needed(r, 0.001) for r in (1, 2, 5, 50)], shuffles_needed(50, 0.001, "permutation")
    ([1999, 44, 4, 1], 999)
    """
    r = as_count(num_shards, "num_shards", 10**6)
    arrays.check_level(alpha)
    arrays.check_choice(test, (*TESTS, "e_process"), "test")
    draws = as_draws(num_draws)
    level = Fraction(repr(float(alpha)))
    if test == "t":
        if r == 1:
            raise InputError('num_shards=1: test="t" needs two shards at least; cut the data set into more')
        return 1
    if test == "exact" and level * (draws + 1) < 1:
        needed = math.ceil(1 / level) - 1
        raise InputError(
            f'num_draws={draws}: test="exact" cannot reach alpha={alpha!r} with any number of shuffles, its p-values '
            f'are at least 1/{draws + 1}; give num_draws={needed} or more, or test="rank_sum"'
        )

    shards, factor = (1 if test == "permutation" else r), (2 if test == "combined" else 1)
    wanted = -math.log(level)

    def reaches(k: int) -> bool:
        if test == "e_process":
            return betting.largest_log_e(r, k) >= wanted * (1 - 1e-12)
        return shards * math.log(k + 1) > wanted + 1 or Fraction(factor, (k + 1) ** shards) <= level

    return _smallest(reaches)


def _smallest(reaches: Callable[[int], bool]) -> int:
    """The smallest k >= 1 with reaches(k), which is monotone in k."""
    high = 1
    while not reaches(high):
        high *= 2
        if high > _MOST_SHUFFLES:
            raise InputError(f"no number of shuffles up to {_MOST_SHUFFLES:,} reaches alpha; use more shards")
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if reaches(middle) else (middle, high)
    return high
