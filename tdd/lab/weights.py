"""From what is trained to what the model computes with: all parameters or LoRA's factors, in float32 or bfloat16."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp

from tdd.lab.lora import Lora, init_factors, merge
from tdd.lab.optimizer import decay_mask

__all__ = ["Weights", "whole"]


@dataclasses.dataclass(frozen=True)
class Weights:
    """How trained leaves become parameters; static in compiled steps.

    Attributes:
      lora: None where all parameters are trained.
      compute_dtype: of the matrices in forward and backward passes.
    """

    lora: Lora | None = None
    compute_dtype: str = "float32"

    def split(self, params: Any, *, seed: int) -> tuple[Any, Any]:
        """(frozen, trained) at the start: nothing and a float32 copy of all, or the base as it is and the factors."""
        if self.lora is None:
            return None, jax.tree.map(lambda leaf: jnp.array(leaf, jnp.float32, copy=True), params)
        return jax.tree.map(jnp.asarray, params), init_factors(self.lora, params, seed=seed)

    def master(self, frozen: Any, trained: Any) -> Any:
        """The float32 parameters that the trained leaves stand for; pure."""
        return trained if self.lora is None else merge(self.lora, frozen, trained)

    def working(self, frozen: Any, trained: Any) -> Any:
        """The parameters that the model runs with: matrices in `compute_dtype`, biases and norms float32; pure."""
        params = self.master(frozen, trained)
        if self.compute_dtype == "float32":
            return params
        dtype = jnp.dtype(self.compute_dtype)
        return jax.tree.map(lambda leaf, matrix: leaf.astype(dtype) if matrix else leaf, params, decay_mask(params))


@functools.partial(jax.jit, static_argnums=0)
def _merged(weights: Weights, frozen: Any, trained: Any) -> Any:
    return weights.master(frozen, trained)


def whole(weights: Weights, frozen: Any, trained: Any) -> Any:
    """`Weights.master`, compiled; the trained leaves themselves where all parameters are trained."""
    return trained if weights.lora is None else _merged(weights, frozen, trained)
