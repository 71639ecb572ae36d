"""The envelope of JECS: an upper bound of the null distribution of the largest of K conformal p-values.

In construction order: the record first.
"""

from __future__ import annotations

from typing import NamedTuple

import jax

__all__ = ["Envelope"]


class Envelope(NamedTuple):
    """A piecewise distribution function G of the largest p-value under the null.

    G(x) = slope·x for x <= tau, and slope·tau + (1 - slope·tau)·F(x) above, F the empirical distribution of the
    p-values above tau.

    Attributes:
      x: [m] the p-values at which G was evaluated, in input order; NaN for masked items.
      value: [m] G(x), NaN for masked items.
      tau: [] the grid point that was chosen; 0 where no grid point had enough p-values above it.
      slope: [] G(tau)/tau, 1 where none was chosen (G is the identity then).
      grid: [t] the grid of candidate points.
      slopes: [t] the slope at each of them, +inf where it was skipped.
      num_above: [t] int32, p-values above each of them.
      fitted: [] bool, False where no grid point qualified: the selection is that of JMCS then.
    """

    x: jax.Array
    value: jax.Array
    tau: jax.Array
    slope: jax.Array
    grid: jax.Array
    slopes: jax.Array
    num_above: jax.Array
    fitted: jax.Array
