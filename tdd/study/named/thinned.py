"""A given table of which candidates are left out: all kinds alike, members alone, or those of any model."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from tdd.records import Null, pytree
from tdd.study.designs import Sample


@pytree()
class Thinned:
    """A given table of which some candidates are left out."""

    pool: Any
    factor: Any = 1  # one in so many candidates is kept
    ratio: Any = float("inf")  # targets that are kept for one other candidate, at most
    training_fraction: Any = 1.0  # probability with which a candidate that is no target is kept

    @property
    def null(self) -> Null:
        """That of the table."""
        return self.pool.null

    def draw(self, key: jax.Array) -> Sample:
        """One draw of the table, with a `mask`."""
        drawing, thinning = jax.random.split(key)
        sample: Sample = self.pool.draw(drawing)
        m, target = sample.target.shape[0], sample.target
        few = target & (jnp.cumsum(target) <= self.ratio * jnp.maximum(jnp.sum(~target), 1))
        other = ~target & jax.random.bernoulli(thinning, self.training_fraction, (m,))
        return sample._replace(mask=(few | other) & (jnp.arange(m) * self.factor < m))
