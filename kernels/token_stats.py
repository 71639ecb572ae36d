"""Per-token statistics of a language model's output distribution, from hidden states and the readout, in chunks.

The logits exist only as one float32 tile [chunk, V] at a time: z = hidden · readout^T, then tanh soft-capping where
the model has it, then `tdd.kernels.logit_tile`. Rows that are not scored targets cost nothing but a gather: the
scored rows are moved to the front and the loop stops behind the last of them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import jax
import jax.numpy as jnp
from jax import lax

from tdd.kernels.logit_tile import TokenStatistics, tile_log_prob, tile_statistics

__all__ = ["TokenStatistics", "token_log_prob", "token_stats", "token_stats_from_logits"]

_Tree = TypeVar("_Tree", TokenStatistics, jax.Array)


def token_stats(
    hidden: jax.Array,
    readout: jax.Array,
    targets: jax.Array,
    mask: jax.Array,
    *,
    soft_cap: float | None = None,
    chunk: int = 256,
    block: int | None = 1024,
) -> TokenStatistics:
    """Statistics of p(. | context) and of the target token, one entry a row of `hidden`.

    Args:
      hidden: [N, D] what the readout multiplies.
      readout: [V, D]; products accumulate in float32 whatever the storage type.
      targets: [N] int32 token ids in 0..V-1.
      mask: [N] bool, True where the row is a scored target. Other entries of the result are 0.
      soft_cap: c in logits = c tanh(z / c), or None.
      chunk: rows a tile: 256 on CPU (the readout is read once for each tile), 1,024 and more on accelerators. Static.
      block: columns a step of the vocabulary sums; None (whole rows) on accelerators. Static.

    Returns:
      `TokenStatistics`, each field [N].

    Cost: 2 S D V flop for S = sum(mask) rounded up to `chunk`; temporary memory of about
    4 chunk V + 4 N D bytes, never N V.
    """
    tile = _logits_of(readout, soft_cap)
    return _over_chunks(lambda h, y: tile_statistics(tile(h), y, block), hidden, targets, mask, chunk)


def token_log_prob(
    hidden: jax.Array,
    readout: jax.Array,
    targets: jax.Array,
    mask: jax.Array,
    *,
    soft_cap: float | None = None,
    chunk: int = 256,
    block: int | None = 1024,
) -> jax.Array:
    """`token_stats(...).log_prob` alone, [N] float32: the cheaper pass for lowercase and reference scores."""
    tile = _logits_of(readout, soft_cap)
    return _over_chunks(lambda h, y: tile_log_prob(tile(h), y, block), hidden, targets, mask, chunk)


def token_stats_from_logits(
    logits: jax.Array, targets: jax.Array, mask: jax.Array, *, chunk: int = 256, block: int | None = 1024
) -> TokenStatistics:
    """`token_stats` for a model that only gives logits [N, V]; temporary memory of one float32 tile [chunk, V]."""
    return _over_chunks(lambda z, y: tile_statistics(z.astype(jnp.float32), y, block), logits, targets, mask, chunk)


def _logits_of(readout: jax.Array, soft_cap: float | None) -> Callable[[jax.Array], jax.Array]:
    """The map from hidden states [c, D] to a float32 tile of logits [c, V]."""

    def tile(hidden: jax.Array) -> jax.Array:
        logits = lax.dot_general(
            hidden.astype(readout.dtype),
            readout,
            (((1,), (1,)), ((), ())),
            precision=lax.Precision.HIGHEST,
            preferred_element_type=jnp.float32,
        )
        return logits if soft_cap is None else soft_cap * jnp.tanh(logits / soft_cap)

    return tile


def _over_chunks(
    statistics: Callable[[jax.Array, jax.Array], _Tree],
    rows: jax.Array,
    targets: jax.Array,
    mask: jax.Array,
    chunk: int,
) -> _Tree:
    """Apply `statistics` to the rows where `mask` holds, `chunk` at a time, and put the results back in place."""
    num_rows = rows.shape[0]
    if num_rows == 0:
        one = jax.eval_shape(statistics, *(jnp.zeros((1, *x.shape[1:]), x.dtype) for x in (rows, targets)))
        return jax.tree.map(lambda s: jnp.zeros((0, *s.shape[1:]), s.dtype), one)
    chunk = max(1, min(chunk, num_rows))
    capacity = -(-num_rows // chunk) * chunk
    (index,) = jnp.nonzero(mask, size=capacity, fill_value=num_rows)
    num_chunks = -(-mask.sum(dtype=jnp.int32) // chunk)

    def of_chunk(i: jax.Array) -> _Tree:
        chosen = lax.dynamic_slice_in_dim(index, i * chunk, chunk)
        return statistics(jnp.take(rows, chosen, axis=0, mode="clip"), jnp.take(targets, chosen, axis=0, mode="clip"))

    def step(i: jax.Array, out: _Tree) -> _Tree:
        chosen = lax.dynamic_slice_in_dim(index, i * chunk, chunk)
        return jax.tree.map(lambda o, s: o.at[chosen].set(s, mode="drop"), out, of_chunk(i))

    shapes = jax.eval_shape(of_chunk, jnp.int32(0))
    empty = jax.tree.map(lambda s: jnp.zeros((num_rows, *s.shape[1:]), s.dtype), shapes)
    return lax.fori_loop(0, num_chunks, step, empty)
