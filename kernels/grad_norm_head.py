"""Backward pass and per-example gradient norms of a language model's head, in one pass over the vocabulary.

For hidden states h_s [D], the readout W [V, D], z_s = W h_s, targets y_s and weights w_s (the loss of a text is
sum_s w_s (-log p_s(y_s))), the cotangent of the logits is delta_s = w_s (p_s - 1_{y_s}), times 1 - (z / c)^2 of the
capped logits under a soft cap c. Wanted are sum_v delta_s[v] W_v, the cotangent of h_s, and

    || sum_s delta_s h_s^T ||^2  =  sum_{s,s'} <delta_s, delta_s'> <h_s, h_s'>,

the squared norm of the gradient of W. The logits exist as one block of columns [B, T, chunk] at a time. Sums over the
columns seen so far are kept on the scale of the largest logit so far (Milakov and Gimelshein 2018, arXiv:1805.02867),
so that each logit is computed once. The target is kept out of all of them: with q_s = sum_{v != y} e^{z_v - m}, delta_s
is proportional to e^{z_v - m} off the target and to -q_s on it, which stays accurate where p_y is all but 1.

Where the embedding serves as the readout too (a tied head), its gradient is the sum of two, with cotangents d_t of the
rows E[v_t]; `tied_cross` is the product of the two, `embedding_sqnorm` the squared norm of the second.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from tdd.kernels.platforms import product, stored

__all__ = ["HeadGradients", "embedding_sqnorm", "head_gradients", "tied_cross"]

_LANES = 32


class HeadGradients(NamedTuple):
    """Gradients of the head."""

    hidden: jax.Array  # [B, T, D] float32 cotangent of the hidden states
    sqnorm: jax.Array  # [B] squared norm of the gradient of the readout
    # [B, T, T] float32; entry [b, s, t] is delta_s[v_t], the cotangent of the logit of the text's token t at position s
    # (before soft-capping)
    at_tokens: jax.Array


class _Sums(NamedTuple):
    """Sums over the columns seen so far, without the target, on the scale e^{-top}."""

    top: jax.Array  # [B, T]
    others: jax.Array  # [B, T], q
    rows: jax.Array  # [B, T, D], sum_v e_v W_v
    gram: jax.Array  # [B, T, T], sum_v e_v e'_v


def head_gradients(
    hidden: jax.Array,
    readout: jax.Array,
    tokens: jax.Array,
    weights: jax.Array,
    *,
    soft_cap: float | None = None,
    chunk: int = 1024,
) -> HeadGradients:
    """Gradients of sum_s weights_s (-log p_s(v_{s+1})), example by example.

    Args:
      hidden: [B, T, D] what the readout multiplies; taken in the dtype of the readout.
      readout: [V, D].
      tokens: [B, T] integer ids v in 0..V-1; position s predicts token s + 1.
      weights: [B, T] float32, of the prediction *made at* each position; that of the last must be 0. Rows of weight 0
        cost what others cost.
      soft_cap: c in logits = c tanh(z / c), or None.
      chunk: Columns of a block: about a million logits a block on CPU, several millions on accelerators. Static.

    Cost: 2 B T V (2 D + T) flop; temporary memory of 4 B T (2 chunk + 3 D + 4 T) bytes, about.
    """
    vocab_size, width = readout.shape
    batch, length = tokens.shape
    chunk = min(chunk, vocab_size)
    hidden = hidden.astype(readout.dtype)
    targets = jnp.roll(tokens, -1, axis=1)
    of_tokens = jnp.take(readout, tokens, axis=0, mode="clip")
    at_tokens = _logits(hidden, of_tokens, batched=True)  # z_s[v_t]
    at_target = jnp.diagonal(jnp.roll(at_tokens, -1, axis=2), axis1=1, axis2=2)  # z_s[y_s]
    cap, slope = _capping(soft_cap)

    def step(i: jax.Array, sums: _Sums) -> _Sums:
        i = i.astype(jnp.int32)
        first = jnp.minimum(i * chunk, vocab_size - chunk)
        block = lax.dynamic_slice_in_dim(readout, first, chunk)
        columns = (first + jnp.arange(chunk, dtype=jnp.int32))[None, None, :]
        new = (columns >= i * chunk) & (columns != targets[..., None])  # the last block overlaps the one before
        capped = cap(_logits(hidden, block))
        logits = jnp.where(new, capped, -jnp.inf)
        top = jnp.maximum(sums.top, _over_columns(jnp.max, logits))
        shift = jnp.exp(sums.top - top)
        terms = stored(jnp.exp(logits - top[..., None]))
        others = sums.others * shift + _over_columns(jnp.sum, terms)
        terms = slope(terms, capped).astype(readout.dtype)
        rows = sums.rows * shift[..., None] + product("btc,cd->btd", terms, block)
        gram = sums.gram * _pairs(shift) + product("btc,bsc->bts", terms, terms)
        return _Sums(top, others, rows, gram)

    start = _Sums(
        cap(at_target),
        jnp.zeros((batch, length), jnp.float32),
        jnp.zeros((batch, length, width), jnp.float32),
        jnp.zeros((batch, length, length), jnp.float32),
    )
    sums = lax.fori_loop(0, -(-vocab_size // chunk), step, start)

    # row s is now e_v - 1[v = y_s] target_s, times unit_s
    capped = cap(at_target)
    unit = weights / (sums.others + jnp.exp(capped - sums.top))
    target = slope(sums.others, capped)
    of_targets = jnp.roll(of_tokens, -1, axis=1).astype(jnp.float32)
    capped = cap(at_tokens)
    is_target = targets[:, :, None] == tokens[:, None, :]
    terms = jnp.where(is_target, 0.0, slope(jnp.exp(capped - sums.top[..., None]), capped))  # e_s[v_t]
    crossed = jnp.roll(terms, -1, axis=2) * target[:, None, :]  # e_s[y_t] target_t
    same = targets[:, :, None] == targets[:, None, :]
    gram = sums.gram - crossed - jnp.swapaxes(crossed, 1, 2) + jnp.where(same, _pairs(target), 0.0)
    of_hidden = product("btd,bsd->bts", hidden, hidden)
    return HeadGradients(
        hidden=(sums.rows - target[..., None] * of_targets) * unit[..., None],
        sqnorm=jnp.maximum((gram * of_hidden * _pairs(unit)).sum((1, 2)), 0.0),
        at_tokens=jnp.where(is_target, -target[..., None], terms) * unit[..., None],
    )


def tied_cross(gradients: HeadGradients, hidden: jax.Array, embedded: jax.Array) -> jax.Array:
    """Twice the inner product of a shared matrix's gradients as readout and as embedding, [B].

    2 sum_{s,t} delta_s[v_t] <h_s, d_t> with `hidden` [B, T, D] h, as given to `head_gradients`, and `embedded`
    [B, T, D] d, the cotangent of the rows of the embedding.
    """
    return 2.0 * (gradients.at_tokens * product("bsd,btd->bst", hidden.astype(jnp.float32), embedded)).sum((1, 2))


def embedding_sqnorm(embedded: jax.Array, tokens: jax.Array) -> jax.Array:
    """Squared norm of the gradient of the embedding, sum_{s,t} 1[v_s = v_t] <d_s, d_t>: [B].

    `embedded` [B, T, D] float32 d is the cotangent of the rows E[v_t]. Cost: 2 B T^2 D flop and [B, T, T].
    """
    same = tokens[:, :, None] == tokens[:, None, :]
    return jnp.maximum(jnp.where(same, product("btd,bsd->bts", embedded, embedded), 0.0).sum((1, 2)), 0.0)


def _logits(hidden: jax.Array, rows: jax.Array, *, batched: bool = False) -> jax.Array:
    """hidden [B, T, D] times rows [C, D], or [B, C, D] of each example: [B, T, C] float32."""
    return product("btd,bcd->btc" if batched else "btd,cd->btc", hidden, rows)


def _capping(
    soft_cap: float | None,
) -> tuple[Callable[[jax.Array], jax.Array], Callable[[jax.Array, jax.Array], jax.Array]]:
    """(z -> capped logits, (values, capped logits) -> values times the derivative of capping)."""
    if soft_cap is None:
        return lambda z: z, lambda values, _: values
    return (
        lambda z: soft_cap * jnp.tanh(z / soft_cap),
        lambda values, capped: values * (1.0 - jnp.square(capped / soft_cap)),
    )


def _over_columns(reduction: Callable[..., jax.Array], values: jax.Array) -> jax.Array:
    """Reduce the last axis; in lanes side by side, for a chain of scalars is slower than the product before it."""
    columns = values.shape[-1]
    if columns % _LANES:
        return reduction(values, axis=-1)
    lanes = reduction(values.reshape(*values.shape[:-1], columns // _LANES, _LANES), axis=-2)
    return reduction(stored(lanes), axis=-1)


def _pairs(values: jax.Array) -> jax.Array:
    """values [B, T] of every two positions, multiplied: [B, T, T]."""
    return values[:, :, None] * values[:, None, :]
