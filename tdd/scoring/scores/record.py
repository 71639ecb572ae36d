"""What a score is: which statistics and passes it needs, and how a row of tokens becomes one number."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Any, Literal, NamedTuple

from tdd.records import TokenStats

__all__ = ["Evidence", "Pass", "Score", "largest_mean", "masked_mean", "namespace", "smallest_mean"]

Pass = Literal["lowercase", "reference", "gradient"]
"""A pass of a model beyond the one over the texts themselves."""

Array = Any
"""A NumPy or JAX array; scores are written once for both."""


class Evidence(NamedTuple):
    """What a score may use beside the statistics of the text: each [B], or None where no score asks for it.

    Attributes:
      compressed_bytes: length of zlib.compress(text as UTF-8), header included.
      lowercase_loss: loss of the lowercased text.
      reference_loss: loss of the text under the reference model.
      tokens_per_byte: scored tokens per byte of scored text under the model; 1 where tokenizers agree.
      reference_tokens_per_byte: the same under the reference model's tokenizer; 1 where they agree.
      grad_norm: norm of the gradient of the text's loss, summed over its scored tokens, over all parameters.
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
      name: how it is called.
      meaning: one line for listings.
      statistics: fields of `TokenStats` that `rows` reads.
      rows: `(stats, **parameters) -> [B]`, the part that comes from the tokens of the text.
      finish: `(rows, evidence) -> [B]`, the part that needs other passes or the text itself.
      passes: further passes over the texts that `finish` needs.
      checks: parameter -> check of its value; the check returns what `rows` receives.
      defaults: parameter -> default.
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
    """numpy or jax.numpy, by what the statistics are made of."""
    return stats.log_prob.__array_namespace__()


def masked_mean(xp: Any, values: Array, mask: Array) -> Array:
    """Mean over the scored tokens of each row: [B, T] -> [B]; NaN for a row without any."""
    return _ratio(xp, xp.where(mask, values, 0).sum(-1), mask.sum(-1))


def smallest_mean(xp: Any, values: Array, mask: Array, share: Fraction) -> Array:
    """Mean of the max(1, floor(share * n)) smallest of the n scored values of each row: [B, T] -> [B].

    The floor is exact: `share` is a fraction, so 0.29 of 100 tokens is 29. A NaN among the values gives NaN.
    """
    num_scored = mask.sum(-1)
    count = xp.maximum(1, num_scored * share.numerator // share.denominator)
    ordered = xp.sort(xp.where(mask, values, xp.inf), axis=-1)
    taken = xp.arange(values.shape[-1]) < xp.minimum(count, num_scored)[..., None]
    mean = _ratio(xp, xp.where(taken, ordered, 0).sum(-1), xp.where(num_scored > 0, count, 0))
    return xp.where((xp.isnan(values) & mask).any(-1), xp.nan, mean)


def largest_mean(xp: Any, values: Array, mask: Array, share: Fraction) -> Array:
    """Mean of the max(1, floor(share * n)) largest of the n scored values of each row: [B, T] -> [B]."""
    return -smallest_mean(xp, -values, mask, share)


def _ratio(xp: Any, total: Array, count: Array) -> Array:
    return xp.where(count > 0, total, xp.nan) / xp.maximum(count, 1)
