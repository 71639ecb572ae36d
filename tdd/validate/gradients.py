"""Checks of what `tdd.grad_norms` and `tdd.probe.gradients` take."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np

from tdd.validate.errors import InputError

__all__ = [
    "check_example_loss",
    "check_examples",
    "check_given_norms",
    "check_gradient_loss",
    "check_microbatch",
    "check_quantile_levels",
    "check_reduction",
]

REDUCTIONS = ("sum", "mean")


def check_reduction(value: Any) -> str:
    """How the losses of a text's tokens become one."""
    if value not in REDUCTIONS:
        raise InputError(f"reduction={value!r} is unknown; use 'sum' (of -log p over the scored tokens) or 'mean'")
    return value


def check_microbatch(value: Any) -> int | None:
    """Texts at a time."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < 1:
        raise InputError(f"microbatch={value!r} must be a whole number of texts, at least 1, or None")
    return int(value)


def check_gradient_loss(name: str, num_leaves: int) -> None:
    """A model has at least one parameter that a gradient can be taken of."""
    if not num_leaves:
        raise InputError(
            f"params of {name} hold no floating-point array, so there is nothing to take a gradient of; pass the "
            "model's weights as params rather than closing over them"
        )


def check_examples(shapes: Sequence[tuple[int, ...]]) -> int:
    """Arrays of examples along their first axis; how many examples."""
    counts = {shape[0] if shape else None for shape in shapes}
    if len(counts) != 1 or None in counts:
        found = ", ".join(str(list(shape)) for shape in shapes) or "none"
        raise InputError(f"examples must be arrays of one number of examples along the first axis, got shapes {found}")
    return int(shapes[0][0])


def check_example_loss(value: Any) -> None:
    """One real number an example."""
    shape, dtype = getattr(value, "shape", None), getattr(value, "dtype", None)
    if shape != () or dtype is None or not jnp.issubdtype(dtype, jnp.floating):
        what = type(value).__name__ if shape is None else f"shape {list(shape)} and dtype {dtype}"
        raise InputError(
            f"loss must return one real number an example, got {what}; sum or average over its tokens, and return the "
            "number alone where there is auxiliary output. A loss of a whole batch is called with keep_batch_dim=True"
        )


def check_given_norms(shape: tuple[int, ...]) -> None:
    """Norms as `optax.microbatching.micro_grad` returns them."""
    if len(shape) != 1:
        raise InputError(f"grad_norms must be [B], one norm an example, got shape {list(shape)}")


def check_quantile_levels(levels: Any) -> tuple[float, ...]:
    """Shares in [0, 1], at least one."""
    values = tuple(levels) if isinstance(levels, (tuple, list)) else (levels,)
    if not values or not all(isinstance(value, (int, float)) and 0 <= value <= 1 for value in values):
        raise InputError(f"levels={levels!r} must be numbers between 0 and 1, for example (0.25, 0.5, 0.75)")
    return tuple(float(value) for value in values)
