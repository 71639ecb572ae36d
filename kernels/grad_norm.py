"""Operations with a weight that return, as the cotangent of a probe, each example's squared gradient norm.

Every operation takes `probe` [B], zeros that leave its value alone. In the backward pass the cotangent of `probe` is,
example by example, the squared Frobenius norm of the gradient of *this* operation's weight. JAX sums the cotangents of
one probe over all operations that share it, so that one vector-Jacobian product with respect to the probe gives the
squared norm of the whole gradient of every example. No gradient of a weight is formed for it: with x_t the inputs and
g_t the cotangents of the outputs of one example,

    product      sum_{t,s} <x_t, x_s> <g_t, g_s>  =  || sum_t x_t g_t^T ||^2
    bias         || sum_t g_t ||^2
    scale        || sum_t x_t * g_t ||^2
    rows         sum_t || g_t ||^2, for a weight of which every position has a row of its own

Values and all other cotangents are those of the plain operations. A weight that is used in several operations has a
gradient which is the sum of theirs, so its squared norm also has cross terms, which no operation here knows
(`tdd.kernels.grad_norm_head` has those of an embedding that serves as the readout too).

References: Goodfellow (2015, arXiv:1510.01799) and, over sequences, Li et al. (2022, arXiv:2110.05679, section 4) for
the first form of the product.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax

from tdd.kernels.platforms import product

__all__ = ["add_bias", "add_rows", "dense", "scale"]

_Arrays = tuple[jax.Array, ...]

_SIDE_BY_SIDE = 2**26
"""Entries of gradients that an accelerator forms at once; a step of a loop over examples costs it several launches."""


@jax.custom_vjp
def dense(inputs: jax.Array, kernel: jax.Array, probe: jax.Array) -> jax.Array:
    """inputs kernel, [B, T, O] float32: the inputs in the dtype of the kernel, accumulated in float32.

    With a kernel in float32 all products are accurate to float32 (`platforms.product`).

    Args:
      inputs: [B, T, I].
      kernel: [I, O].
      probe: [B] float32 zeros; its cotangent is ||inputs_b^T g_b||^2, float32.

    The cotangent of the outputs is rounded to the dtype of the kernel before it enters a product, as the inputs are.

    Cost of the norm: the cheaper of 2 T^2 (I + O) flop an example, with two [T, T] matrices for all examples at once,
    and 2 T I O flop an example, with [I, O] for one example at a time; on accelerators for all if that is small.
    """
    del probe
    return product("bti,io->bto", inputs.astype(kernel.dtype), kernel)


def _dense_forward(inputs: jax.Array, kernel: jax.Array, probe: jax.Array) -> tuple[jax.Array, _Arrays]:
    # an empty array carries the dtype of the inputs to the backward pass
    return dense(inputs, kernel, probe), (inputs.astype(kernel.dtype), kernel, jnp.zeros((0,), inputs.dtype))


def _dense_backward(residuals: _Arrays, cotangent: jax.Array) -> _Arrays:
    inputs, kernel, like = residuals
    cotangent = cotangent.astype(kernel.dtype)
    of_inputs = product("bto,io->bti", cotangent, kernel).astype(like.dtype)
    of_kernel = product("bti,bto->io", inputs, cotangent).astype(kernel.dtype)
    return of_inputs, of_kernel, _product_sqnorm(inputs, cotangent)


dense.defvjp(_dense_forward, _dense_backward)


@jax.custom_vjp
def add_bias(inputs: jax.Array, bias: jax.Array, probe: jax.Array) -> jax.Array:
    """inputs [B, ..., O] + bias [O].

    The cotangent of `probe` [B], float32 zeros, is the squared norm of the sum of g over the axes between.
    """
    del probe
    return inputs + _along_last(bias, inputs)


def _add_bias_forward(inputs: jax.Array, bias: jax.Array, probe: jax.Array) -> tuple[jax.Array, jax.Array]:
    return add_bias(inputs, bias, probe), jnp.zeros((0,), bias.dtype)


def _add_bias_backward(like: jax.Array, cotangent: jax.Array) -> _Arrays:
    sums = _sum_between(cotangent)
    return cotangent, sums.sum(0).astype(like.dtype), _sqnorm(sums)


add_bias.defvjp(_add_bias_forward, _add_bias_backward)


@jax.custom_vjp
def scale(inputs: jax.Array, factor: jax.Array, probe: jax.Array) -> jax.Array:
    """inputs [B, ..., D] * factor [D], for example normalised activations; axes between (heads) share `factor`.

    The cotangent of `probe` [B], float32 zeros, is the squared norm of the sum of inputs * g over the axes between.
    """
    del probe
    return inputs * _along_last(factor, inputs)


def _scale_forward(inputs: jax.Array, factor: jax.Array, probe: jax.Array) -> tuple[jax.Array, _Arrays]:
    return scale(inputs, factor, probe), (inputs, factor)


def _scale_backward(residuals: _Arrays, cotangent: jax.Array) -> _Arrays:
    inputs, factor = residuals
    sums = _sum_between(inputs.astype(jnp.float32) * cotangent.astype(jnp.float32))
    of_inputs = (cotangent * _along_last(factor, cotangent)).astype(inputs.dtype)
    return of_inputs, sums.sum(0).astype(factor.dtype), _sqnorm(sums)


scale.defvjp(_scale_forward, _scale_backward)


@jax.custom_vjp
def add_rows(inputs: jax.Array, rows: jax.Array, probe: jax.Array) -> jax.Array:
    """inputs [B, T, D] + rows [T, D], the same for every example: learned positions.

    Where the rows belong to a longer table, no two may be the same row of it. The cotangent of `probe` [B], float32
    zeros, is the sum over t of ||g_t||^2.
    """
    del probe
    return inputs + rows[None]


def _add_rows_forward(inputs: jax.Array, rows: jax.Array, probe: jax.Array) -> tuple[jax.Array, jax.Array]:
    return add_rows(inputs, rows, probe), jnp.zeros((0,), rows.dtype)


def _add_rows_backward(like: jax.Array, cotangent: jax.Array) -> _Arrays:
    cotangents = cotangent.astype(jnp.float32)
    return cotangent, cotangents.sum(0).astype(like.dtype), _sqnorm(cotangents)


add_rows.defvjp(_add_rows_forward, _add_rows_backward)


def _product_sqnorm(inputs: jax.Array, cotangent: jax.Array) -> jax.Array:
    """|| sum_t x_t g_t^T ||^2 of every example, [B] float32, of inputs [B, T, I] and cotangents [B, T, O]."""
    length, width_in, width_out = *inputs.shape[1:], cotangent.shape[-1]
    if length * (width_in + width_out) < width_in * width_out:
        of_inputs = product("bti,bsi->bts", inputs, inputs)
        of_cotangent = product("bto,bso->bts", cotangent, cotangent)
        # rounding may leave a sum of almost nothing below 0, which has no root
        return jnp.maximum((of_inputs * of_cotangent).sum((1, 2)), 0.0)
    if inputs.shape[0] * width_in * width_out > _SIDE_BY_SIDE:
        return _one_by_one(inputs, cotangent)
    return lax.platform_dependent(inputs, cotangent, cpu=_one_by_one, default=_side_by_side)


def _one_by_one(inputs: jax.Array, cotangent: jax.Array) -> jax.Array:
    return lax.map(lambda pair: _sqnorm(product("ti,to->io", *pair)[None])[0], (inputs, cotangent))


def _side_by_side(inputs: jax.Array, cotangent: jax.Array) -> jax.Array:
    return _sqnorm(product("bti,bto->bio", inputs, cotangent))


def _sum_between(values: jax.Array) -> jax.Array:
    """Sum over all axes but the first and the last, [B, D] float32."""
    return values.astype(jnp.float32).sum(tuple(range(1, values.ndim - 1)))


def _sqnorm(values: jax.Array) -> jax.Array:
    """Sum of squares over all axes but the first, [B]; the last axis last, so that the others are sums of vectors."""
    return jnp.square(values).sum(tuple(range(1, values.ndim - 1))).sum(-1)


def _along_last(vector: jax.Array, values: jax.Array) -> jax.Array:
    """A vector [D] with as many axes as `values` [..., D]."""
    return vector.reshape((1,) * (values.ndim - 1) + (-1,))
