"""max_renyi: mean of the max(1, floor(k n)) largest Renyi entropies of order gamma (Li et al. 2024, MaxRenyi-K%).

gamma is 1/2, 1 (Shannon), 2 or inf (minus the largest log-probability); k = 0 takes the single largest.
"""

from __future__ import annotations

import functools
from fractions import Fraction
from typing import Any

from tdd.records import TokenStats
from tdd.scoring.scores import Array, Score, check_fraction, largest_mean, namespace
from tdd.validate import InputError

__all__ = ["SCORE"]


def _check_order(value: Any) -> float:
    """An order of Renyi entropy that is computed."""
    orders = {"0.5": 0.5, "1/2": 0.5, "1": 1.0, "1.0": 1.0, "2": 2.0, "2.0": 2.0, "inf": float("inf")}
    if str(value) not in orders:
        raise InputError(f"gamma={value!s} is not available; the orders are 0.5, 1, 2 and inf")
    return orders[str(value)]


_FIELD_OF_ORDER = {0.5: "renyi_half", 1.0: "mu", 2.0: "renyi_two", float("inf"): "renyi_inf"}


def _rows(stats: TokenStats, gamma: float, k: Fraction) -> Array:
    entropies = stats.entropy if gamma == 1 else getattr(stats, _FIELD_OF_ORDER[gamma])
    return largest_mean(namespace(stats), entropies, stats.mask, k)


SCORE = Score(
    "max_renyi",
    "mean of the k largest Renyi entropies of order gamma",
    ("mu", "renyi_half", "renyi_two", "renyi_inf"),
    _rows,
    checks={"gamma": _check_order, "k": functools.partial(check_fraction, "k", allow_zero=True)},
    defaults={"gamma": "0.5", "k": "0.2"},
    reads=lambda parameters: (_FIELD_OF_ORDER[parameters["gamma"]],),
)
