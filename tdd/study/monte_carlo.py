"""Many repetitions of a function of one PRNG key, in one compiled call, and a confidence bound for their mean."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

__all__ = ["mean_radius", "simulate"]


def simulate(one: Callable[[jax.Array], Any], *, seed: int, repetitions: int, batch: int = 2_000) -> Any:
    """Run `one(key) -> pytree of scalars` many times.

    Args:
      one: pure function of a PRNG key.
      seed: random seed; repetition i has the same key for any `batch`.
      repetitions: number of repetitions.
      batch: number of repetitions side by side; it bounds the memory and changes no result.

    Returns:
      The pytree with leaves [repetitions], float64 NumPy arrays.
    """
    keys = jax.random.split(jax.random.key(seed), repetitions)
    compiled = jax.jit(functools.partial(jax.lax.map, one, batch_size=min(batch, repetitions)))
    return jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), compiled(keys))


def mean_radius(values: np.ndarray, level: float) -> float:
    """Half width of a one-sided confidence bound for the mean of values in [0, 1].

    Valid at any sample size: with probability at least 1 - level the mean lies above values.mean() minus this.

    Args:
      values: [repetitions] independent, in [0, 1].
      level: level of the bound.

    References: Maurer & Pontil (2009), theorem 4 (empirical Bernstein).
    """
    log, count = math.log(2 / level), len(values)
    return float(np.sqrt(2 * values.var(ddof=1) * log / count) + 7 * log / (3 * (count - 1)))
