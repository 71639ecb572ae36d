"""The test items that are right to select, and the side on which their scores lie."""

from __future__ import annotations

from typing import Any, Literal

import jax
import jax.numpy as jnp

__all__ = ["LABELS", "Labels", "direction", "draw_targets"]

Labels = Literal["fixed", "random"]
LABELS = ("fixed", "random")


def draw_targets(key: jax.Array, num_tests: int, fraction: Any, labels: Labels) -> jax.Array:
    """[m] bool: the first round(fraction·m) items ("fixed"), or each one with probability `fraction` ("random")."""
    if labels == "random":
        return jax.random.bernoulli(key, fraction, (num_tests,))
    return jnp.arange(num_tests) < jnp.rint(jnp.asarray(fraction, jnp.result_type(float)) * num_tests)


def direction(null: str) -> float:
    """-1 where targets are members and score lower, +1 where they are non-members and score higher."""
    return -1.0 if null == "nonmember" else 1.0
