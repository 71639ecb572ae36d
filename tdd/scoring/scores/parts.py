"""What the files of scores share: masked means over tokens of NumPy and JAX arrays, and checks of options."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from tdd.records import TokenStats
from tdd.validate import InputError

Array = Any
"""A NumPy or JAX array; scores are written once for both."""


def namespace(stats: TokenStats) -> Any:
    """numpy or jax.numpy, by the type of the statistics."""
    return stats.log_prob.__array_namespace__()


RENYI = "renyi_"
"""Begins the names of Renyi entropies."""


def name_of_order(order: float) -> str:
    """The name of the statistic: "renyi_0.7"."""
    return f"{RENYI}{order!r}"


def orders_of(names: Sequence[str]) -> dict[str, float]:
    """Those of the names that are Renyi entropies without a field in `TokenStats` -> their orders."""
    others = (name for name in names if name.startswith(RENYI) and name not in TokenStats.__dataclass_fields__)
    return {name: float(name.removeprefix(RENYI)) for name in others}


def padded_stats(
    fields: Sequence[str],
    columns: Sequence[np.ndarray],
    width: int,
    tokens: Sequence[np.ndarray] | None = None,
) -> TokenStats:
    """Statistics [fields, tokens] of some texts as rows of one width, in float64; fields that are not given are 0.

    What `TokenStats` has no field for is a Renyi entropy by the name of its order.

    `tokens` has the ids of their scored tokens.
    """
    padded = np.zeros((len(fields), len(columns), width))
    for i, column in enumerate(columns):
        padded[:, i, : column.shape[1]] = column
    mask = np.arange(width) < np.array([column.shape[1] for column in columns])[:, None]
    absent = dict.fromkeys(TokenStats.__dataclass_fields__, np.zeros(mask.shape))
    ids = None if tokens is None else np.stack([np.pad(row, (0, width - len(row))) for row in tokens])
    found = dict(zip(fields, padded, strict=True))
    renyi = {name: found.pop(name) for name in [*found] if name not in absent}
    return TokenStats(**{**absent, **found, "mask": mask, "tokens": ids, "renyi": renyi})  # type: ignore[arg-type]


def masked_mean(xp: Any, values: Array, mask: Array) -> Array:
    """Mean over the scored tokens of each row: [B, T] -> [B]; NaN for a row without any."""
    return _ratio(xp, xp.where(mask, values, 0).sum(-1), mask.sum(-1))


def smallest_mean(xp: Any, values: Array, mask: Array, fraction: Fraction) -> Array:
    """Mean of the max(1, floor(fraction * n)) smallest of the n scored values of each row: [B, T] -> [B].

    The floor is exact: `fraction` is rational, so 0.29 of 100 tokens is 29. A NaN among the values gives NaN.
    """
    num_scored, count, ordered = _ordered(xp, values, mask, fraction)
    taken = xp.arange(values.shape[-1]) < xp.minimum(count, num_scored)[..., None]
    mean = _ratio(xp, xp.where(taken, ordered, 0).sum(-1), xp.where(num_scored > 0, count, 0))
    return xp.where((xp.isnan(values) & mask).any(-1), xp.nan, mean)


def smallest_tokens(xp: Any, values: Array, mask: Array, fraction: Fraction) -> Array:
    """The tokens that `smallest_mean` takes, and all that equal the largest of them: [B, T] bool."""
    _, count, ordered = _ordered(xp, values, mask, fraction)
    return mask & (values <= xp.take_along_axis(ordered, count[..., None] - 1, axis=-1))


def _ordered(xp: Any, values: Array, mask: Array, fraction: Fraction) -> tuple[Array, Array, Array]:
    """Scored tokens, how many of them max(1, floor(fraction * n)) are, and the values in ascending order."""
    num_scored = mask.sum(-1)
    count = xp.maximum(1, num_scored * fraction.numerator // fraction.denominator)
    return num_scored, count, xp.sort(xp.where(mask, values, xp.inf), axis=-1)


def first_occurrences(xp: Any, stats: TokenStats) -> Array:
    """The scored tokens that no earlier scored token of the row equals: [B, T] bool."""
    if stats.tokens is None:
        raise InputError("this score reads the tokens' ids: set TokenStats.tokens, [B, T] int32")
    order = xp.argsort(xp.where(stats.mask, stats.tokens, -1), axis=-1, stable=True)
    ordered = xp.take_along_axis(stats.tokens, order, axis=-1)
    scored = xp.take_along_axis(stats.mask, order, axis=-1)
    again = (ordered[..., 1:] == ordered[..., :-1]) & scored[..., :-1]
    new = xp.concatenate([xp.ones_like(scored[..., :1]), ~again], axis=-1)
    return stats.mask & xp.take_along_axis(new, xp.argsort(order, axis=-1), axis=-1)


def largest_mean(xp: Any, values: Array, mask: Array, fraction: Fraction) -> Array:
    """Mean of the max(1, floor(fraction * n)) largest of the n scored values of each row: [B, T] -> [B]."""
    return -smallest_mean(xp, -values, mask, fraction)


def check_fraction(parameter: str, value: Any, *, allow_zero: bool) -> Fraction:
    """A fraction of the tokens, kept as the exact decimal that was written."""
    try:
        fraction = Fraction(str(value))
    except (ValueError, ZeroDivisionError):
        fraction = None
    if fraction is None or not (0 <= fraction <= 1) or (fraction == 0 and not allow_zero):
        interval = "[0, 1]" if allow_zero else "(0, 1]"
        raise InputError(f"{parameter}={value!s} is not a fraction of the tokens; give a number in {interval}")
    if fraction.denominator > 10_000:
        raise InputError(f"{parameter}={value!s} has too many digits; give at most four decimals")
    return fraction


def as_float(value: Any) -> float:
    """The number that a word means, NaN where it means none."""
    try:
        return float(value)
    except (TypeError, ValueError, ArithmeticError):
        return math.nan


def check_positive(parameter: str, value: Any) -> float:
    """A finite number above 0."""
    if not 0 < (number := as_float(value)) < math.inf:
        raise InputError(f"{parameter}={value!s} must be a finite number above 0")
    return number


def check_named(parameter: str, hint: str, named: Mapping[str, Any] | Sequence[str], value: Any) -> Any:
    """One of some words, or what it stands for in a mapping; `hint` says which there are."""
    if value not in named:
        raise InputError(f"{parameter}={value!r} is unknown; {hint}")
    return named[value] if isinstance(named, Mapping) else value


def _ratio(xp: Any, total: Array, count: Array) -> Array:
    return xp.where(count > 0, total, xp.nan) / xp.maximum(count, 1)
