"""The compiled pieces of training: one update, and one batch's loss."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import optax

from tdd.lab.batches import Batches
from tdd.lab.loss import token_losses
from tdd.records import LanguageModel

__all__ = ["mean_loss", "update"]


@functools.partial(jax.jit, static_argnums=(0, 1), donate_argnums=(2, 3))
def update(
    lm: LanguageModel,
    optimizer: optax.GradientTransformation,
    params: Any,
    moments: Any,
    tokens: jax.Array,
    mask: jax.Array,
    rate: jax.Array,
) -> tuple[Any, Any, jax.Array, jax.Array]:
    """One step: params - rate * direction of the mean loss over the batch's scored targets.

    Args:
      lm: the model (static).
      optimizer: gives the direction (static).
      params: parameters, donated.
      moments: the optimizer's state, donated.
      tokens: [B, T] int32.
      mask: [B, T] bool, with at least one scored target.
      rate: [] the learning rate.

    Returns:
      (params, moments, summed loss before the step, number of scored targets).
    """
    count = jnp.sum(mask)

    def batch_loss(params: Any) -> jax.Array:
        return jnp.sum(token_losses(lm, params, tokens, mask)) / count

    loss, gradients = jax.value_and_grad(batch_loss)(params)
    direction, moments = optimizer.update(gradients, moments, params)
    params = jax.tree.map(lambda leaf, change: leaf - rate * change, params, direction)
    return params, moments, loss * count, count


def mean_loss(lm: LanguageModel, params: Any, batches: Batches) -> float:
    """Mean loss in nats over all scored targets."""
    total = sum(float(_summed_loss(lm, params, *batch)) for batch in batches.in_order())
    return total / sum(len(row) - 1 for row in batches.rows)


@functools.partial(jax.jit, static_argnums=0)
def _summed_loss(lm: LanguageModel, params: Any, tokens: jax.Array, mask: jax.Array) -> jax.Array:
    return jnp.sum(token_losses(lm, params, tokens, mask))
