"""Many repetitions of a function of one PRNG key, in one compiled call."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

__all__ = ["simulate"]


def simulate(one: Callable[[jax.Array], Any], *, seed: int, repetitions: int, batch: int = 2_000) -> Any:
    """Run `one(key) -> pytree of scalars` many times.

    Args:
      one: pure function of a PRNG key.
      seed: of the run; repetition i has the same key whatever `batch` is.
      repetitions: how many.
      batch: how many run side by side; it bounds the memory and changes no result.

    Returns:
      The pytree with leaves [repetitions], float64 NumPy arrays.
    """
    keys = jax.random.split(jax.random.key(seed), repetitions)
    compiled = jax.jit(functools.partial(jax.lax.map, one, batch_size=min(batch, repetitions)))
    return jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), compiled(keys))
