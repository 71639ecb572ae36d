"""AdamW with warm-up and cosine decay."""

from __future__ import annotations

import functools
from typing import Any

import jax
import numpy as np
import optax

__all__ = ["adamw_direction", "decay_mask", "learning_rates"]


def learning_rates(total_steps: int, *, peak: float, warmup: float, final: float) -> np.ndarray:
    """The learning rate of every step, [total_steps] float32.

    With w = ceil(warmup * total_steps): peak * (s + 1) / w for s < w, so that no step is wasted at zero; from
    there half a cosine from peak down to final * peak, reached at the last step.

    Args:
      total_steps: Steps of the run.
      peak: Highest learning rate.
      warmup: Fraction of the steps spent on the linear rise, 0..1.
      final: Fraction of the peak that is left at the end, 0..1.
    """
    steps = np.arange(total_steps, dtype=np.float64)
    rise = int(np.ceil(warmup * total_steps))
    progress = np.clip((steps - rise + 1) / max(1, total_steps - rise), 0.0, 1.0)
    fall = final + (1.0 - final) * 0.5 * (1.0 + np.cos(np.pi * progress))
    return (peak * np.where(steps < rise, (steps + 1) / max(1, rise), fall)).astype(np.float32)


def decay_mask(params: Any) -> Any:
    """True for parameters that weight decay shrinks: all but biases and everything that belongs to a norm.

    Decided by name, because layers stacked along a leading axis give vectors the shape of matrices.
    """
    return jax.tree_util.tree_map_with_path(lambda path, _: not _is_exempt(path), params)


@functools.cache
def adamw_direction(
    *, beta1: float, beta2: float, eps: float, weight_decay: float, clip_norm: float
) -> optax.GradientTransformation:
    """AdamW (Loshchilov & Hutter 2019, algorithm 2) without its learning rate, gradients clipped first.

    The update is params <- params - rate * direction, with direction = m / (sqrt(v) + eps) + weight_decay *
    params where `decay_mask` holds; the gradient is scaled to a global norm of at most `clip_norm` before the
    moments m and v. The same object for equal arguments, so that compiled steps are shared.
    """
    return optax.chain(
        optax.clip_by_global_norm(clip_norm),
        optax.scale_by_adam(b1=beta1, b2=beta2, eps=eps),
        optax.add_decayed_weights(weight_decay, mask=decay_mask),
    )


def _is_exempt(path: tuple[Any, ...]) -> bool:
    """A bias, a scale, or any leaf under a norm."""
    names = jax.tree_util.keystr(path, simple=True, separator="/").lower().split("/")
    return names[-1].endswith("bias") or names[-1] == "scale" or any("norm" in name for name in names)
