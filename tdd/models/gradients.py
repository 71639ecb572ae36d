"""Per-example gradient norms of a decoder, without forming the gradient of any weight."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from tdd.kernels.grad_norm_head import HeadGradients, embedding_sqnorm, head_gradients, tied_cross
from tdd.models.decoder import embed, readout, trunk
from tdd.models.spec import DecoderSpec, Experts
from tdd.records import GradSqNorms

_BUDGET = 2**30
"""Bytes of activations kept for the backward pass; beyond them each block is computed twice."""

_TILE_CPU, _TILE = 2**20, 2**26
"""Logits of a block of the head, on CPU (where they stay in cache) and elsewhere."""


def grad_sqnorm(
    spec: DecoderSpec,
    params: Any,
    tokens: jax.Array,
    mask: jax.Array,
    *,
    remat: bool | None = None,
    chunk: int | None = None,
) -> GradSqNorms:
    """Squared norms of the gradient of each text's summed loss, by layer and group of parameters.

    One vector-Jacobian product with respect to the rows of the embedding and a probe (`tdd.kernels.grad_norm`) passes
    through the trunk; the head has its own pass (`tdd.kernels.grad_norm_head`).

    Args:
      spec, params: See `tdd.models.decoder`.
      tokens: [B, T] integer token ids, padded on the right with any valid id.
      mask: [B, T] bool, True where the token is a scored target; the first column is ignored.
      remat: True recomputes every block in the backward pass instead of keeping its activations, False never does,
        None decides by `activation_bytes`: beyond 1 GiB. Static.
      chunk: Columns of logits at a time; by default about a million logits on CPU, 64 million elsewhere. Static.

    Returns:
      `GradSqNorms` with parts "layers" [L, B]; "trunk" (learned positions, final norm, projections); "embedding"
      (for a tied head: both uses of it and their cross term); "head", if the head has a separate matrix.

    Raises:
      InputError: Tokens are not a [B, T] integer array, T is 0, or T exceeds the model's positions.

    Cost: The flops of a forward pass twice (three times with `remat`, except the head), plus a fraction of about T over
    the widths. Temporary memory: the activations, or with `remat` those of one layer and L B T D floats; nothing of
    the size of a gradient.
    """
    embedded = embed(spec, params, tokens)
    batch, length = tokens.shape
    if remat is None:
        remat = activation_bytes(spec, batch, length) > _BUDGET
    # the hidden state at t describes the target at t + 1
    weights = jnp.roll(jnp.asarray(mask, bool).at[:, 0].set(False), -1, axis=1).astype(jnp.float32)
    probes = {"layers": jnp.zeros((spec.num_layers, batch), jnp.float32), "trunk": jnp.zeros(batch, jnp.float32)}
    hidden, pull = jax.vjp(lambda rows, probes: trunk(spec, params, rows, probes, remat=remat), embedded, probes)
    table = readout(spec, params)
    hidden = hidden.astype(table.dtype)
    head = _head(spec, chunk, hidden, table, tokens, weights)
    # float16 would lose the tiny cotangents of a memorised text: scale each text by a power of two, and back
    unit = jnp.ldexp(jnp.float32(1), jnp.frexp(jnp.abs(head.hidden).max((1, 2)))[1])
    of_embedded, parts = pull(head.hidden / unit[:, None, None])
    of_embedded = of_embedded * unit[:, None, None]
    parts = jax.tree.map(lambda part: part * jnp.square(unit), parts)
    embedding = embedding_sqnorm(of_embedded, tokens)
    if spec.tied_head:
        both = embedding + head.sqnorm + tied_cross(head, hidden, of_embedded)
        parts = {**parts, "embedding": jnp.maximum(both, 0.0)}
    else:
        parts = {**parts, "embedding": embedding, "head": head.sqnorm}
    return GradSqNorms(parts, jnp.square(of_embedded).sum((1, 2)))


def _head(spec: DecoderSpec, chunk: int | None, *arrays: jax.Array) -> HeadGradients:
    """Gradients of the head in blocks of `chunk` columns; None takes those of the platform compiled for.

    Only the head depends on the platform, not the trunk: parameters that several devices share are gathered where a
    form begins.
    """
    form = functools.partial(head_gradients, soft_cap=spec.soft_cap)
    if chunk is not None:
        return form(*arrays, chunk=chunk)
    rows = max(1, arrays[0].shape[0] * arrays[0].shape[1])
    on_cpu, elsewhere = (min(max(256, tile // rows // 256 * 256), spec.vocab_size) for tile in (_TILE_CPU, _TILE))
    if on_cpu == elsewhere:
        return form(*arrays, chunk=on_cpu)
    forms = {"cpu": functools.partial(form, chunk=on_cpu), "default": functools.partial(form, chunk=elsewhere)}
    return lax.platform_dependent(*arrays, **forms)


def activation_bytes(spec: DecoderSpec, batch: int, length: int) -> int:
    """Approximate bytes that the backward pass of the whole trunk would keep: float32, all layers, [B, T] tokens."""
    attention, inner = spec.attention, 0
    for mlp in spec.mlps:
        if isinstance(mlp, Experts):
            inner += mlp.top_k * (6 * mlp.width + 4 * spec.width) + 3 * mlp.num_experts  # a quarter of it pads blocks
            inner += 5 * mlp.shared_width
        else:
            inner += mlp.width * (5 if mlp.gated else 4)
    values = 8 * spec.width + 3 * sum(attention.qkv_widths) + 2 * attention.num_heads * length
    return 4 * batch * length * (spec.num_layers * values + inner)
