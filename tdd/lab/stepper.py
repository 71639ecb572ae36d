"""A run between two steps: what is trained, the optimizer's state, and how one step changes them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp

from tdd.lab.batches import Batch
from tdd.lab.config import TrainConfig
from tdd.lab.lora import Lora
from tdd.lab.optimizer import adamw_direction
from tdd.lab.step import accumulate, apply, update
from tdd.lab.weights import Weights, whole
from tdd.records import LanguageModel

__all__ = ["Stepper"]


class Stepper:
    """The state of a run, and one step of it.

    Attributes:
      frozen: parameters that are not trained, or None.
      trained: parameters or LoRA's factors, float32.
      moments: the optimizer's state.
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
        """The model's parameters as they are now."""
        return whole(self.weights, self.frozen, self.trained)

    def step(self, group: Sequence[Batch], rate: Any) -> tuple[float, int]:
        """One step on the batches of `group`; the summed loss and the number of scored tokens."""
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
