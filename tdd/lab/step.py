"""The compiled pieces of training: one update, one batch's share of a gradient, one batch's loss."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import optax

from tdd.lab.batches import Batches
from tdd.lab.loss import token_losses
from tdd.lab.weights import Weights
from tdd.records import LanguageModel

__all__ = ["accumulate", "apply", "mean_loss", "update"]


@functools.partial(jax.jit, static_argnums=(0, 1, 2), donate_argnums=(4, 5))
def update(
    lm: LanguageModel,
    optimizer: optax.GradientTransformation,
    weights: Weights,
    frozen: Any,
    trained: Any,
    moments: Any,
    tokens: jax.Array,
    mask: jax.Array,
    rate: jax.Array,
) -> tuple[Any, Any, jax.Array, jax.Array]:
    """One step: trained - rate * direction of the mean loss over the batch's scored targets.

    Args:
      lm: the model (static).
      optimizer: gives the direction (static).
      weights: how trained leaves become parameters (static).
      frozen: what is not trained, or None.
      trained: what is trained, donated.
      moments: the optimizer's state, donated.
      tokens: [B, T] int32.
      mask: [B, T] bool, with at least one scored target.
      rate: [] the learning rate.

    Returns:
      (trained, moments, summed loss before the step, number of scored targets).
    """
    count = jnp.sum(mask)

    def batch_loss(trained: Any) -> jax.Array:
        return jnp.sum(token_losses(lm, weights.working(frozen, trained), tokens, mask)) / count

    loss, gradients = jax.value_and_grad(batch_loss)(trained)
    trained, moments = _moved(optimizer, trained, moments, gradients, rate)
    return trained, moments, loss * count, count


@functools.partial(jax.jit, static_argnums=(0, 1), donate_argnums=4)
def accumulate(
    lm: LanguageModel, weights: Weights, frozen: Any, trained: Any, sums: Any, tokens: jax.Array, mask: jax.Array
) -> tuple[Any, jax.Array, jax.Array]:
    """Add the gradient of one batch's summed loss to `sums` (donated).

    Returns:
      (sums, summed loss, number of scored targets).
    """

    def summed_loss(trained: Any) -> jax.Array:
        return jnp.sum(token_losses(lm, weights.working(frozen, trained), tokens, mask))

    loss, gradients = jax.value_and_grad(summed_loss)(trained)
    return jax.tree.map(jnp.add, sums, gradients), loss, jnp.sum(mask)


@functools.partial(jax.jit, static_argnums=0, donate_argnums=(1, 2, 3))
def apply(
    optimizer: optax.GradientTransformation, trained: Any, moments: Any, sums: Any, count: jax.Array, rate: jax.Array
) -> tuple[Any, Any, Any]:
    """One step along the gradient of the mean loss, `sums` / `count`; the first three are donated.

    Returns:
      (trained, moments, sums of zeros for the next step).
    """
    trained, moments = _moved(optimizer, trained, moments, jax.tree.map(lambda leaf: leaf / count, sums), rate)
    return trained, moments, jax.tree.map(jnp.zeros_like, sums)


def mean_loss(lm: LanguageModel, params: Any, batches: Batches) -> float:
    """Mean loss in nats over all scored targets."""
    total = sum(float(_summed_loss(lm, params, *batch)) for batch in batches.in_order())
    return total / sum(len(row) - 1 for row in batches.rows)


def _moved(
    optimizer: optax.GradientTransformation, trained: Any, moments: Any, gradients: Any, rate: jax.Array
) -> tuple[Any, Any]:
    """What is trained, and the moments, after one step."""
    direction, moments = optimizer.update(gradients, moments, trained)
    return jax.tree.map(lambda leaf, change: leaf - rate * change, trained, direction), moments


@functools.partial(jax.jit, static_argnums=0)
def _summed_loss(lm: LanguageModel, params: Any, tokens: jax.Array, mask: jax.Array) -> jax.Array:
    return jnp.sum(token_losses(lm, params, tokens, mask))
