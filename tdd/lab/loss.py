"""Mean next-token loss without the logits of a whole batch."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from tdd.records import LanguageModel

__all__ = ["TILE_ELEMENTS", "token_losses"]

TILE_ELEMENTS = 1 << 27
"""Largest number of logits that exist at once, 512 MiB in float32: 2,670 targets at V = 50,257.

Chunks save memory and cost time: value and gradient for 1,024 targets, V = 50,257 and D = 768 on two CPU cores took
0.8 s and 396 MiB of temporaries in one tile, 1.9 s and 223 MiB in four.
"""


def token_losses(lm: LanguageModel, params: Any, tokens: jax.Array, mask: jax.Array) -> jax.Array:
    """-log p(x_t | x_<t) in nats at every scored target, 0 elsewhere; differentiable in `params`.

    If B * T * V exceeds `TILE_ELEMENTS` and the model offers `hidden` and `readout`, targets go through
    the readout in chunks whose logits are computed again for the gradient.

    Args:
      lm: The model (static).
      params: Its parameters.
      tokens: [B, T] int32.
      mask: [B, T] bool, True at scored targets; column 0 is never scored.

    Returns:
      [B, T] float32.
    """
    batch, length = tokens.shape
    if lm.hidden is None or lm.readout is None:
        losses = _cross_entropy(lm.logits(params, tokens)[:, :-1], tokens[:, 1:])
    else:
        states, weight = lm.hidden(params, tokens)[:, :-1], lm.readout(params)
        rows = batch * (length - 1)
        chunk = max(1, min(rows, TILE_ELEMENTS // lm.vocab_size))
        num_chunks = -(-rows // chunk)
        flat = _pad_rows(states.reshape(rows, -1), num_chunks * chunk).reshape(num_chunks, chunk, -1)
        targets = _pad_rows(tokens[:, 1:].reshape(rows), num_chunks * chunk).reshape(num_chunks, chunk)

        def tile(operands: tuple[jax.Array, jax.Array]) -> jax.Array:
            chunk_states, chunk_targets = operands
            logits = jnp.einsum("nd,vd->nv", chunk_states, weight, preferred_element_type=jnp.float32)
            if lm.soft_cap is not None:
                logits = lm.soft_cap * jnp.tanh(logits / lm.soft_cap)
            return _cross_entropy(logits, chunk_targets)

        per_chunk = tile((flat[0], targets[0]))[None] if num_chunks == 1 else _map(tile, flat, targets)
        losses = per_chunk.reshape(-1)[:rows].reshape(batch, length - 1)
    return jnp.where(mask, jnp.pad(losses, ((0, 0), (1, 0))), 0.0)


def _cross_entropy(logits: jax.Array, targets: jax.Array) -> jax.Array:
    """log sum exp z - z_y over the last axis."""
    chosen = jnp.take_along_axis(logits, targets[..., None], axis=-1)[..., 0]
    return jax.nn.logsumexp(logits, axis=-1) - chosen


def _map(tile: Any, *operands: jax.Array) -> jax.Array:
    """`tile` over the leading axis, one chunk after the other, keeping no logits for the backward pass."""
    return lax.map(jax.checkpoint(tile), operands)


def _pad_rows(rows: jax.Array, count: int) -> jax.Array:
    """Zeros appended to the leading axis up to `count` rows."""
    return jnp.pad(rows, [(0, count - rows.shape[0])] + [(0, 0)] * (rows.ndim - 1))
