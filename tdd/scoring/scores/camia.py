"""camia: a signal of the first log-probabilities l_1 .. l_n of a text, at most `first` (Chang et al. 2025, CAMIA).

signal:
  loss: minus the mean.
  above: minus the share of l_t >= -1.
  above_prefix: minus the share of l_t above the mean of l_1 .. l_(t-1), t >= 2.
  slope: minus the slope of the least-squares line through (t, l_t).
  lempel_ziv: number of phrases of the Lempel-Ziv (1978) parsing over n. Log-probabilities are replaced by the number of
    100 equidistant edges from the smallest to 0 that lie below them, and these by one of three equal classes.
  approximate_entropy: |phi(8) - phi(9)|, phi(m) the mean log share of runs of m that stay within 0.8 standard
    deviations of a run everywhere; 0 for sequences of at most 9.

The definitions are those of the authors' code, with two differences: it leaves the last log-probability out of a mean
over the whole text, and it turns the sign of each signal by the labels of the texts under test. Here signs are fixed: a
member has smaller losses, which decline faster and vary more regularly. Its signals of a repeated text need a further
pass and are not here; neither are its combinations of signals, which learn from labels.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import numpy as np
from jax import lax

from tdd.records import TokenStats
from tdd.scoring.scores.parts import check_named, masked_mean, namespace
from tdd.scoring.scores.score import Array, Score, option
from tdd.validate import InputError

_THRESHOLD, _EDGES, _CLASSES, _RUN, _TOLERANCE = -1.0, 100, 3, 8, 0.8


def _loss(xp: Any, values: Array, mask: Array) -> Array:
    return -masked_mean(xp, values, mask)


def _above(xp: Any, values: Array, mask: Array) -> Array:
    return -masked_mean(xp, values >= _THRESHOLD, mask)


def _above_prefix(xp: Any, values: Array, mask: Array) -> Array:
    before = xp.cumsum(xp.where(mask, values, 0), axis=-1)[..., :-1] / xp.arange(1, values.shape[-1])
    return -masked_mean(xp, values[..., 1:] > before, mask[..., 1:])


def _slope(xp: Any, values: Array, mask: Array) -> Array:
    position = xp.broadcast_to(xp.arange(values.shape[-1], dtype=values.dtype), values.shape)
    offset = xp.where(mask, position - masked_mean(xp, position, mask)[..., None], 0)
    spread = (offset**2).sum(-1)
    return -(offset * xp.where(mask, values, 0)).sum(-1) / xp.where(spread > 0, spread, xp.nan)


def _lempel_ziv(xp: Any, values: Array, mask: Array) -> Array:
    """The phrases are nodes of a trie; every token moves along an edge, or adds one and begins the next phrase."""
    symbols = _classes(xp, values, mask)
    num_rows, length = values.shape
    rows = xp.arange(num_rows)

    def move(step: Any, state: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        children, node, phrases = state
        edge, scored = (rows, node, symbols[:, step]), mask[:, step]
        child = children[edge]
        ends = scored & (child == 0)
        phrases = phrases + ends
        child_or_new = xp.where(ends, phrases, child)
        if isinstance(children, np.ndarray):
            children[edge] = child_or_new
        else:
            children = children.at[edge].set(child_or_new)
        return children, xp.where(scored, xp.where(ends, 0, child), node), phrases

    none = xp.zeros(num_rows, int)
    state = xp.zeros((num_rows, length + 1, _CLASSES), int), none, none
    if isinstance(none, np.ndarray):
        for step in range(length):
            state = move(step, state)
    else:
        state = lax.fori_loop(0, length, move, state)
    return state[2] / xp.maximum(mask.sum(-1), 1)


def _classes(xp: Any, values: Array, mask: Array) -> Array:
    """Three classes of log-probabilities: [B, T] int."""
    smallest = xp.where(mask, values, 0).min(-1, keepdims=True)
    edges = smallest[..., None] * (1 - xp.arange(_EDGES, dtype=values.dtype) / (_EDGES - 1))
    level = (edges < values[..., None]).sum(-1)
    low = xp.where(mask, level, _EDGES).min(-1, keepdims=True)
    high = xp.where(mask, level, 0).max(-1, keepdims=True)
    return sum(_CLASSES * (level - low) > cut * (high - low) for cut in range(1, _CLASSES)) + xp.zeros_like(level)


def _approximate_entropy(xp: Any, values: Array, mask: Array) -> Array:
    mean = masked_mean(xp, values, mask)[..., None]
    tolerance = _TOLERANCE * xp.sqrt(masked_mean(xp, (values - mean) ** 2, mask))[..., None, None]
    close = xp.abs(values[..., :, None] - values[..., None, :]) <= tolerance
    close = close & mask[..., :, None] & mask[..., None, :]
    phi = []
    runs = close
    for lag in range(1, _RUN + 1):
        runs = runs[..., :-1, :-1] & close[..., lag:, lag:]
        if lag + 1 >= _RUN:
            starts = mask[..., lag:]
            share = runs.sum(-1) / xp.maximum(starts.sum(-1), 1)[..., None]
            phi.append(masked_mean(xp, xp.log(xp.where(starts, share, 1)), starts))
    return xp.where(mask.sum(-1) > _RUN + 1, xp.abs(phi[0] - phi[1]), 0)


_SIGNALS = {
    "loss": _loss,
    "above": _above,
    "above_prefix": _above_prefix,
    "slope": _slope,
    "lempel_ziv": _lempel_ziv,
    "approximate_entropy": _approximate_entropy,
}


def _check_first(value: Any) -> int | None:
    """A number of tokens; None for "all"."""
    if value is None or value == "all":
        return None
    if not str(value).isdecimal() or int(value) < 2:
        raise InputError(f"first={value!s} is not a number of tokens; give a whole number from 2, or 'all'")
    return int(value)


_NAMES = f"the signals are {', '.join(_SIGNALS)}"


@dataclasses.dataclass(frozen=True)
class Camia(Score):
    """camia: a signal of the first log-probabilities of a text (Chang et al. 2025); the file has the definitions."""

    name = "camia"
    meaning = (
        "a signal of the sequence of log-probabilities: loss, above, above_prefix, slope, lempel_ziv, "
        "approximate_entropy"
    )
    statistics = ("log_prob",)

    signal: Any = option("slope", functools.partial(check_named, "signal", _NAMES, (*_SIGNALS,)))
    first: Any = option("200", _check_first)

    def rows(self, stats: TokenStats) -> Array:  # noqa: D102
        xp = namespace(stats)
        scored_first = xp.argsort(~stats.mask, axis=-1, stable=True)[..., : self.first]
        values, mask = (xp.take_along_axis(field, scored_first, axis=-1) for field in (stats.log_prob, stats.mask))
        unknown = xp.isnan(values) & mask
        exists = mask.any(-1) & ~unknown.any(-1)
        return xp.where(exists, _SIGNALS[self.signal](xp, xp.where(unknown, 0, values), mask), xp.nan)
