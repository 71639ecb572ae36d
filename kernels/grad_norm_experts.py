"""Product of rows with the weight of each row's expert, whose probe returns per-example squared gradient norms.

Slots, one for each token and each of its experts, are sorted by expert and laid into blocks of a fixed number of rows
that belong to one expert, so that a block is one product. The last block of an expert is padded with zeros; blocks
without any slot are not computed. No slot is dropped, and no row of a product reads another.

The probe is that of `tdd.kernels.grad_norm`. The gradient of an example has one matrix for each expert, so with x_t the
rows and g_t the cotangents of the slots of one example, its squared norm is

    sum over e    || sum_{t of e} x_t g_t^T ||^2  =  sum_{t,s of one expert} <x_t, x_s> <g_t, g_s>,

and that of a bias of each expert sum over e || sum_{t of e} g_t ||^2.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from tdd.kernels.platforms import product

__all__ = ["Blocks", "add_bias", "dense", "from_blocks", "in_blocks", "to_blocks"]

_SMALLEST, _LARGEST = 8, 512
"""Rows of a block: a quarter of what an expert gets on average, but at least and at most these."""


class Blocks(NamedTuple):
    """Where each slot lies; N slots, K blocks of R rows, experts in ascending order, slots of one in their own order.

    Attributes:
      place: [N] int32, the row of each slot, in 0..K R - 1.
      slot: [K, R] int32, the slot in each row, N where there is none.
      owner: [K] int32, the expert of each block; the number of experts where the block is empty.
      used: [] int32, number of blocks with slots; they come first.
    """

    place: jax.Array
    slot: jax.Array
    owner: jax.Array
    used: jax.Array


def in_blocks(expert: jax.Array, *, num_experts: int, rows: int | None = None) -> Blocks:
    """Lay slots into blocks.

    Args:
      expert: [N] int32 in 0..E - 1, the expert of each slot.
      num_experts: E. Static.
      rows: R; by default a power of two near N / 4E. Static.

    Cost: a sort of N numbers; at most N + E R rows.
    """
    num_slots = expert.shape[0]
    rows = _usual_rows(num_slots // (4 * num_experts)) if rows is None else rows
    order = jnp.argsort(expert, stable=True).astype(jnp.int32)
    starts = jnp.searchsorted(expert[order], jnp.arange(num_experts + 1, dtype=expert.dtype)).astype(jnp.int32)
    ends = jnp.cumsum(-(-jnp.diff(starts) // rows)).astype(jnp.int32)  # of each expert's blocks
    offset = jnp.concatenate([jnp.zeros(1, jnp.int32), ends[:-1]]) * rows - starts[:-1]  # of rows to sorted slots
    place = (
        jnp.zeros(num_slots, jnp.int32)
        .at[order]
        .set(jnp.arange(num_slots, dtype=jnp.int32) + offset[expert[order]], unique_indices=True)
    )
    num_blocks = num_slots // rows + min(num_experts, max(1, num_slots))
    slot = jnp.full(num_blocks * rows, num_slots, jnp.int32)
    slot = slot.at[place].set(jnp.arange(num_slots, dtype=jnp.int32), unique_indices=True)
    owner = jnp.searchsorted(ends, jnp.arange(num_blocks, dtype=jnp.int32), side="right").astype(jnp.int32)
    return Blocks(place, slot.reshape(num_blocks, rows), owner, ends[-1])


def _usual_rows(quarter: int) -> int:
    """The largest power of two that is not above a quarter of an expert's slots, within the limits."""
    return min(max(2 ** max(0, quarter.bit_length() - 1), _SMALLEST), _LARGEST)


@jax.custom_vjp
def to_blocks(tokens: jax.Array, blocks: Blocks) -> jax.Array:
    """The token of each slot: [N / k, D] -> [K, R, D], zeros in rows without a slot.

    k consecutive slots are those of one token.
    """
    if not tokens.shape[0]:
        return jnp.zeros((*blocks.slot.shape, tokens.shape[1]), tokens.dtype)
    each = max(1, blocks.place.shape[0] // tokens.shape[0])
    return jnp.take(tokens, blocks.slot // each, axis=0, mode="fill", fill_value=0)


@jax.custom_vjp
def from_blocks(rows: jax.Array, blocks: Blocks) -> jax.Array:
    """The row of each slot: [K, R, D] -> [N, D]."""
    return rows.reshape(-1, rows.shape[-1])[blocks.place]


def _to_blocks_backward(residuals: tuple[Blocks, jax.Array], cotangent: jax.Array) -> tuple[jax.Array, None]:
    blocks, like = residuals
    each = blocks.place.shape[0] // max(1, like.shape[0])
    return from_blocks(cotangent, blocks).reshape(like.shape[0], each, cotangent.shape[-1]).sum(1), None


def _from_blocks_backward(blocks: Blocks, cotangent: jax.Array) -> tuple[jax.Array, None]:
    return to_blocks(cotangent, blocks), None


to_blocks.defvjp(
    lambda tokens, blocks: (to_blocks(tokens, blocks), (blocks, jnp.zeros((tokens.shape[0], 0)))), _to_blocks_backward
)
from_blocks.defvjp(lambda rows, blocks: (from_blocks(rows, blocks), blocks), _from_blocks_backward)


@jax.custom_vjp
def dense(inputs: jax.Array, kernel: jax.Array, probe: jax.Array, blocks: Blocks) -> jax.Array:
    """Each row times its expert's kernel, [K, R, O] float32: rows in the dtype of the kernel, accumulated in float32.

    Args:
      inputs: [K, R, I]; rows without a slot are 0.
      kernel: [E, I, O].
      probe: [B] float32 zeros; N / B consecutive slots are those of one example. Its cotangent is the squared norm of
        the gradient of the whole kernel, float32.
      blocks: As `in_blocks` lays them.

    The cotangent of the outputs is rounded to the dtype of the kernel before it enters a product, as the rows are.

    Cost: 2 I O flop a row. Of the norm: 2 R (I + O) flop for a row and each block in which its example has slots of
    the same expert, with two [R, R] matrices at a time.
    """
    del probe
    inputs = inputs.astype(kernel.dtype)

    def multiply(block: jax.Array, outputs: jax.Array) -> jax.Array:
        return _put(outputs, block, product("ri,io->ro", _at(inputs, block), _at(kernel, blocks.owner[block])))

    return lax.fori_loop(0, blocks.used, multiply, jnp.zeros((*inputs.shape[:2], kernel.shape[2]), jnp.float32))


_Residuals = tuple[jax.Array, jax.Array, jax.Array, Blocks, jax.Array]


def _dense_forward(
    inputs: jax.Array, kernel: jax.Array, probe: jax.Array, blocks: Blocks
) -> tuple[jax.Array, _Residuals]:
    # an empty array carries the dtype of the inputs to the backward pass
    like = jnp.zeros((0,), inputs.dtype)
    return dense(inputs, kernel, probe, blocks), (inputs.astype(kernel.dtype), kernel, probe, blocks, like)


def _dense_backward(residuals: _Residuals, cotangent: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array, None]:
    inputs, kernel, probe, blocks, like = residuals
    cotangent = cotangent.astype(kernel.dtype)

    def add(block: jax.Array, sums: jax.Array) -> jax.Array:
        owner, found = blocks.owner[block], product("ri,ro->io", _at(inputs, block), _at(cotangent, block))
        return _put(sums, owner, _at(sums, owner) + found)

    of_inputs = dense(cotangent, kernel.swapaxes(1, 2), probe, blocks).astype(like.dtype)
    of_kernel = lax.fori_loop(0, blocks.used, add, jnp.zeros(kernel.shape, jnp.float32)).astype(kernel.dtype)
    return of_inputs, of_kernel, _sqnorm(inputs, cotangent, probe.shape[0], blocks), None


dense.defvjp(_dense_forward, _dense_backward)


@jax.custom_vjp
def add_bias(rows: jax.Array, bias: jax.Array, probe: jax.Array, blocks: Blocks) -> jax.Array:
    """Each row plus its expert's bias, [K, R, O] float32; rows without a slot stay as they are.

    Args:
      rows: [K, R, O] float32.
      bias: [E, O] float32.
      probe: [B] float32 zeros; N / B consecutive slots are those of one example. Its cotangent is the squared norm of
        the gradient of the whole bias, float32.
      blocks: As `in_blocks` lays them.

    Cost: of the gradient or its norm N O flop, and memory of B E O floats.
    """
    del probe
    added = jnp.take(bias, blocks.owner, axis=0, mode="fill", fill_value=0)[:, None]
    return rows + jnp.where(blocks.slot[..., None] < blocks.place.shape[0], added, 0.0)


def _add_bias_forward(
    rows: jax.Array, bias: jax.Array, probe: jax.Array, blocks: Blocks
) -> tuple[jax.Array, tuple[jax.Array, jax.Array, Blocks]]:
    return add_bias(rows, bias, probe, blocks), (jnp.zeros((bias.shape[0], 0)), probe, blocks)


def _add_bias_backward(
    residuals: tuple[jax.Array, jax.Array, Blocks], cotangent: jax.Array
) -> tuple[jax.Array, jax.Array, jax.Array, None]:
    like, probe, blocks = residuals
    num_experts, num_examples = like.shape[0], probe.shape[0]
    of_slots = from_blocks(cotangent, blocks)
    expert = blocks.owner[blocks.place // max(1, blocks.slot.shape[1])]
    example = jnp.arange(of_slots.shape[0], dtype=jnp.int32) // max(1, of_slots.shape[0] // max(1, num_examples))
    sums = jax.ops.segment_sum(of_slots, example * num_experts + expert, num_examples * num_experts)
    sums = sums.reshape(num_examples, num_experts, of_slots.shape[-1])
    return cotangent, sums.sum(0), jnp.square(sums).sum((1, 2)), None


add_bias.defvjp(_add_bias_forward, _add_bias_backward)


def _sqnorm(inputs: jax.Array, cotangent: jax.Array, num_examples: int, blocks: Blocks) -> jax.Array:
    """sum_e || sum_{t of e} x_t g_t^T ||^2 of every example, [B] float32."""
    num_slots = blocks.place.shape[0]
    each = num_slots // max(1, num_examples)
    example = jnp.where(blocks.slot < num_slots, blocks.slot // max(1, each), num_examples)
    group = blocks.owner[:, None] * (num_examples + 1) + example
    last = jnp.searchsorted(group[:, 0], group[:, -1], side="right").astype(
        jnp.int32
    )  # where a block's last group ends

    def pairs(block: jax.Array, other: jax.Array) -> jax.Array:
        products = product("ri,si->rs", _at(inputs, block), _at(inputs, other))
        products = products * product("ro,so->rs", _at(cotangent, block), _at(cotangent, other))
        return jnp.where(_at(example, block)[:, None] == _at(example, other)[None], products, 0.0).sum(1)

    def rows(block: jax.Array, sums: jax.Array) -> jax.Array:
        later = lambda other, found: found + 2.0 * pairs(block, other)  # noqa: E731
        return _put(sums, block, lax.fori_loop(block + 1, last[block], later, pairs(block, block)))

    sums = lax.fori_loop(0, blocks.used, rows, jnp.zeros(inputs.shape[:2], jnp.float32))
    # rounding may leave a sum of almost nothing below 0, which has no root
    return jnp.maximum(sums.reshape(-1)[blocks.place].reshape(num_examples, each).sum(1), 0.0)


def _at(values: jax.Array, index: Any) -> jax.Array:
    return lax.dynamic_index_in_dim(values, index, keepdims=False)


def _put(values: jax.Array, index: Any, entry: jax.Array) -> jax.Array:
    return lax.dynamic_update_index_in_dim(values, entry, index, 0)
