"""Checks of what `tdd.grad_norms` and `tdd.probe.gradients` take."""

from __future__ import annotations

from typing import Any

import numpy as np

from tdd.validate.errors import InputError

__all__ = [
    "check_gradient_loss",
    "check_microbatch",
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
