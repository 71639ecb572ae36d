"""Two-stage step-up: BH counts its own rejections to estimate how many nulls there are, and runs again."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from tdd.kernels import lattice
from tdd.kernels import stepup_parts as parts
from tdd.kernels.stepup_parts import StepUp

__all__ = ["VARIANTS", "two_stage_bh"]

VARIANTS = ("bky", "bh")


def two_stage_bh(p_values: jax.Array, alpha: Any, *, variant: str = "bky", mask: jax.Array | None = None) -> StepUp:
    """BH at level a rejects r items; then BH at level a·m/(m - r), with a = alpha/(1 + alpha) or alpha.

    Where r = 0 nothing is rejected and where r = m everything is: no second stage.

    Guarantee: for independent super-uniform p-values, finite-sample: FDR <= alpha with "bky"; FDR <= alpha/(1 - alpha)
    with "bh", which is "bky" at that level. Nothing is proven under dependence, conformal p-values included.

    Args:
      p_values: [m] p-values; NaN is masked out of m.
      alpha: level in (0, 1); a Python number is a static level, a JAX array may be traced.
      variant: "bky": both stages at alpha/(1 + alpha). "bh": both at alpha.
      mask: [m] bool, True = real item.

    Returns:
      `StepUp`. `null_proportion` is (m - r)/m, 1 where there was no second stage. The adjusted values belong to this
      alpha: those of the last stage times (m - r)/m and (1 + alpha), the latter with "bky".

    Raises:
      ValueError: static alpha outside (0, 1), another variant. A traced alpha out of range gives no rejections and NaN
        adjusted values.

    Cost: twice the passes of BH; `adjusted` sorts.

    References: Benjamini, Krieger & Yekutieli (2006), definition 6 and theorem 1.
    """
    if variant not in VARIANTS:
        raise ValueError(f"variant must be one of {VARIANTS}, got {variant!r}")
    values, _, num_tests = parts.items(p_values, mask)
    level = lattice.as_level(alpha)
    growth = 1 + jnp.asarray(level.value).astype(values.dtype) if variant == "bky" else jnp.ones((), values.dtype)
    first = parts.scaled_bh(p_values, level, growth * num_tests.astype(values.dtype), mask).num_rejected
    nulls = jnp.where(first < num_tests, num_tests - first, num_tests).astype(values.dtype)
    step = parts.scaled_bh(p_values, level, growth * nulls, mask)
    return step._replace(null_proportion=nulls / jnp.maximum(num_tests, 1).astype(values.dtype))
