"""The record of a score: the statistics and passes that it needs, and how a row of tokens becomes one number."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import Any, Literal, NamedTuple

import numpy as np

from tdd.records import TokenStats
from tdd.validate.errors import InputError

__all__ = [
    "Evidence",
    "Pass",
    "Score",
    "check_fraction",
    "largest_mean",
    "masked_mean",
    "namespace",
    "padded_stats",
    "smallest_mean",
]

Pass = Literal["lowercase", "reference", "gradient"]
"""A pass of a model beyond the one over the texts themselves."""

Array = Any
"""A NumPy or JAX array; scores are written once for both."""


class Evidence(NamedTuple):
    """Evidence beside the statistics of the text: each [B], or None if no score asks for it.

    Attributes:
      compressed_bytes: Length of zlib.compress(text as UTF-8), header included.
      lowercase_loss: Loss of the lowercased text.
      reference_loss: Loss of the text under the reference model.
      tokens_per_byte: Scored tokens per byte of scored text under the model; 1 where tokenizers agree.
      reference_tokens_per_byte: The same under the reference model's tokenizer; 1 where they agree.
      grad_norm: Norm of the gradient of the text's loss, summed over its scored tokens, over all parameters.
    """

    compressed_bytes: Array = None
    lowercase_loss: Array = None
    reference_loss: Array = None
    tokens_per_byte: Array = 1.0
    reference_tokens_per_byte: Array = 1.0
    grad_norm: Array = None


def _unchanged(value: Array, evidence: Evidence) -> Array:
    return value


@dataclasses.dataclass(frozen=True)
class Score:
    """One loss-like score: LOWER = MORE member-like.

    Attributes:
      name: The name.
      meaning: One line for listings.
      statistics: Fields of `TokenStats` that `rows` reads.
      rows: `(stats, **parameters) -> [B]`, the part that comes from the tokens of the text.
      finish: `(rows, evidence) -> [B]`, the part that needs other passes or the text itself.
      passes: Further passes over the texts that `finish` needs.
      checks: Parameter -> check of its value; the check returns what `rows` receives.
      defaults: Parameter -> default.
    """

    name: str
    meaning: str
    statistics: tuple[str, ...]
    rows: Callable[..., Array]
    finish: Callable[[Array, Evidence], Array] = _unchanged
    passes: tuple[Pass, ...] = ()
    checks: Mapping[str, Callable[[Any], Any]] = dataclasses.field(default_factory=dict, hash=False)
    defaults: Mapping[str, Any] = dataclasses.field(default_factory=dict, hash=False)


def namespace(stats: TokenStats) -> Any:
    """numpy or jax.numpy, by the type of the statistics."""
    return stats.log_prob.__array_namespace__()


def padded_stats(fields: Sequence[str], columns: Sequence[np.ndarray], width: int) -> TokenStats:
    """Statistics [fields, tokens] of some texts as rows of one width, in float64; fields that are not given are 0."""
    padded = np.zeros((len(fields), len(columns), width))
    for i, column in enumerate(columns):
        padded[:, i, : column.shape[1]] = column
    mask = np.arange(width) < np.array([column.shape[1] for column in columns])[:, None]
    absent = dict.fromkeys(TokenStats.__dataclass_fields__, np.zeros(mask.shape))
    return TokenStats(**{**absent, **dict(zip(fields, padded, strict=True)), "mask": mask})  # type: ignore[arg-type]


def masked_mean(xp: Any, values: Array, mask: Array) -> Array:
    """Mean over the scored tokens of each row: [B, T] -> [B]; NaN for a row without any."""
    return _ratio(xp, xp.where(mask, values, 0).sum(-1), mask.sum(-1))


def smallest_mean(xp: Any, values: Array, mask: Array, fraction: Fraction) -> Array:
    """Mean of the max(1, floor(fraction * n)) smallest of the n scored values of each row: [B, T] -> [B].

    The floor is exact: `fraction` is rational, so 0.29 of 100 tokens is 29. A NaN among the values gives NaN.
    """
    num_scored = mask.sum(-1)
    count = xp.maximum(1, num_scored * fraction.numerator // fraction.denominator)
    ordered = xp.sort(xp.where(mask, values, xp.inf), axis=-1)
    taken = xp.arange(values.shape[-1]) < xp.minimum(count, num_scored)[..., None]
    mean = _ratio(xp, xp.where(taken, ordered, 0).sum(-1), xp.where(num_scored > 0, count, 0))
    return xp.where((xp.isnan(values) & mask).any(-1), xp.nan, mean)


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


def _ratio(xp: Any, total: Array, count: Array) -> Array:
    return xp.where(count > 0, total, xp.nan) / xp.maximum(count, 1)
