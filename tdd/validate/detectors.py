"""Checks of what several detectors' calls take: weights, a rule, a key, a split of the calibration items."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from tdd.validate import arrays
from tdd.validate.errors import InputError

__all__ = ["as_weights", "check_only_for", "check_split"]


def as_weights(weights: Any, num_detectors: int) -> jax.Array:
    """[K] weights, relative to the largest, so that no type of JAX is too small for them."""
    array = arrays.as_vector(weights, "weights")
    if array.shape != (num_detectors,):
        raise InputError(
            f"weights has {array.shape[0]} entries and there are {num_detectors} detectors; give one weight a detector"
        )
    arrays.check_weights(array)
    if isinstance(array, np.ndarray):
        array = array.astype(np.float64) / array.max()
    return jnp.asarray(array, jnp.result_type(float))


def check_only_for(name: str, value: Any, combine: str, users: tuple[str, ...]) -> None:
    """An argument that the chosen combination would not look at is a mistake."""
    if value is not None and combine not in users:
        named = " or ".join(f'combine="{user}"' for user in users)
        raise InputError(f'{name} is used by {named} only, not by combine="{combine}"; leave it out')


def check_split(split: Any, calibration_mask: Any) -> None:
    """Both parts of the calibration items hold a real one."""
    if isinstance(split, Tracer) or isinstance(calibration_mask, Tracer):
        return
    real, chosen = np.asarray(calibration_mask), np.asarray(split)
    for part, use in ((real & chosen, "True: to learn the weights"), (real & ~chosen, "False: for the final ranks")):
        if not part.any():
            raise InputError(
                f"split leaves no calibration item with {use}; each part needs at least one item that every detector "
                "scored"
            )
