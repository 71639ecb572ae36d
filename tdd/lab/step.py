"""One step of training: the weights that the model runs with, the compiled update, and the state between two steps."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import optax

from tdd.lab.batches import Batch, Batches
from tdd.lab.config import TrainConfig
from tdd.lab.lora import Lora, init_factors, merge
from tdd.lab.loss import token_losses
from tdd.lab.optimizer import adamw_direction, decay_mask
from tdd.records import LanguageModel

__all__ = ["Stepper", "Weights", "accumulate", "apply", "mean_loss", "update"]


@dataclasses.dataclass(frozen=True)
class Weights:
    """From trained leaves to parameters; static in compiled steps.

    Attributes:
      lora: None if all parameters are trained.
      compute_dtype: Type of the matrices in forward and backward passes.
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


class Stepper:
    """The state of a run between two steps.

    Attributes:
      frozen: Parameters that are not trained, or None.
      trained: Parameters or LoRA's factors, float32.
      moments: The optimizer's state.
    """

    def __init__(self, lm: LanguageModel, config: TrainConfig, lora: Lora | None, params: Any) -> None:
        self.lm = lm
        self.weights = Weights(lora, config.compute_dtype)
        self.frozen, self.trained = self.weights.split(params, seed=config.seed)
        self.optimizer = adamw_direction(
            beta1=config.beta1,
            beta2=config.beta2,
            eps=config.eps,
            weight_decay=config.weight_decay,
            clip_norm=config.clip_norm,
        )
        self.moments = self.optimizer.init(self.trained)
        self._sums = jax.tree.map(jnp.zeros_like, self.trained) if config.accumulate > 1 else None

    @property
    def params(self) -> Any:
        """The model's parameters as they are now; the trained leaves themselves if all parameters are trained."""
        return self.trained if self.weights.lora is None else _merged(self.weights, self.frozen, self.trained)

    def step(self, group: Sequence[Batch], rate: Any) -> tuple[float, int]:
        """Take one step on the batches of `group`; return the summed loss and the number of scored tokens."""
        if self._sums is None:
            self.trained, self.moments, loss, count = update(
                self.lm, self.optimizer, self.weights, self.frozen, self.trained, self.moments, *group[0], rate
            )
            return float(loss), int(count)
        parts = []
        for batch in group:
            self._sums, *part = accumulate(self.lm, self.weights, self.frozen, self.trained, self._sums, *batch)
            parts.append(part)
        tokens = sum(int(count) for _, count in parts)
        self.trained, self.moments, self._sums = apply(
            self.optimizer, self.trained, self.moments, self._sums, tokens, rate
        )
        return sum(float(loss) for loss, _ in parts), tokens


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
    """Take one step: trained - rate * direction of the mean loss over the batch's scored targets.

    Args:
      lm: The model (static).
      optimizer: Gives the direction (static).
      weights: From trained leaves to parameters (static).
      frozen: Parameters that are not trained, or None.
      trained: Parameters or factors that are trained; donated.
      moments: The optimizer's state; donated.
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
    """Take one step along the gradient of the mean loss, `sums` / `count`; the first three are donated.

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
    """Trained leaves and moments after one step."""
    direction, moments = optimizer.update(gradients, moments, trained)
    return jax.tree.map(lambda leaf, change: leaf - rate * change, trained, direction), moments


@functools.partial(jax.jit, static_argnums=0)
def _merged(weights: Weights, frozen: Any, trained: Any) -> Any:
    return weights.master(frozen, trained)


@functools.partial(jax.jit, static_argnums=0)
def _summed_loss(lm: LanguageModel, params: Any, tokens: jax.Array, mask: jax.Array) -> jax.Array:
    return jnp.sum(token_losses(lm, params, tokens, mask))
