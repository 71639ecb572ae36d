"""Šidák's procedures: family-wise error at the level that independent tests need, in one step or stepping down.

1 - (1 - p)^m is formed as -expm1(m·log1p(-p)), which keeps the digits of small p-values in single precision.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from tdd.kernels import lattice
from tdd.kernels import stepup_parts as parts
from tdd.kernels.stepup_parts import StepUp

__all__ = ["holm_sidak", "sidak"]


def sidak(p_values: jax.Array, alpha: Any, *, mask: jax.Array | None = None) -> StepUp:
    """Šidák's one-step procedure: reject p_j <= 1 - (1 - alpha)^(1/m); adjusted values 1 - (1 - p_j)^m.

    Guarantee: family-wise error rate <= 1 - (1 - alpha)^(m0/m) <= alpha for super-uniform p-values that are independent
    or orthant dependent among the true nulls, P(all p_j > c) >= prod P(p_j > c); finite-sample. Conformal p-values on
    one calibration sample are: given that sample their chances of staying above c are equal and independent, and
    E[G^k] >= E[G]^k. Under other dependence the procedure may fail: Bonferroni's does not.

    Args:
      p_values: [m] p-values; NaN is masked out of m.
      alpha: level in (0, 1); a Python number is a static level, a JAX array may be traced.
      mask: [m] bool, True = real item.

    Returns:
      `StepUp`. Equality is decided with a tolerance of eight machine epsilons in favour of rejection.

    Raises:
      ValueError: static alpha outside (0, 1). A traced one gives no rejections and NaN adjusted values.

    Cost: one pass over m; no sort even for `adjusted`.

    References: Šidák (1967), theorem 1.
    """
    values, valid, num_tests = parts.items(p_values, mask)
    level = lattice.as_level(alpha)
    tests = jnp.maximum(num_tests, 1).astype(values.dtype)
    reject = valid & (values <= _cut(parts.critical(level, values.dtype), tests))
    return parts.result(reject, _at_least_one(tests, values), values, valid, num_tests, level)


def holm_sidak(p_values: jax.Array, alpha: Any, *, mask: jax.Array | None = None) -> StepUp:
    """Šidák's procedure stepping down: reject while p_(i) <= 1 - (1 - alpha)^(1/(m - i + 1)).

    Guarantee: family-wise error rate <= alpha under the conditions of `sidak`; finite-sample. It rejects all that
    `sidak` and Holm's procedure do. Arguments, results and errors as `sidak`.

    Cost: a few passes over m; `adjusted` sorts.

    References: Holm (1979), section 4; Holland & Copenhaver (1987).
    """
    return parts.step_down(p_values, alpha, mask, cut=_cut, adjust=_at_least_one)


def _cut(level: jax.Array, tests: jax.Array) -> jax.Array:
    """1 - (1 - level)^(1/tests), with four epsilons more for the rounding of log1p and expm1; NaN stays NaN."""
    return -jnp.expm1(_log_rest(level) / tests) * (1 + parts.tolerance(level.dtype))


def _at_least_one(tests: jax.Array, p_values: jax.Array) -> jax.Array:
    """1 - (1 - p)^tests: the chance that one of so many independent uniforms is at most p."""
    return -jnp.expm1(tests * _log_rest(p_values))


def _log_rest(share: jax.Array) -> jax.Array:
    """log(1 - share) for shares up to 1; XLA's log1p loses two digits of a double just below sqrt(2) - 1."""
    share = jnp.minimum(share, 1)
    return jnp.where(share < 0.3, jnp.log1p(-share), jnp.log(1 - share))
