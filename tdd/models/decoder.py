"""One flax.linen decoder, driven by a `DecoderSpec`.

Parameters are a plain nested dict; the leaves under "layers" carry a leading layer axis [L, ...] and the
blocks run in one scan, so compile time does not grow with depth. Masking is causal only: with padding on
the right, no real token sees a padded one, and the loss mask does the rest.

Numbers: parameters keep the dtype they are stored in; a product with a weight takes its input in the dtype of
the weight and accumulates in float32; the residual stream, norms, attention scores and softmax are float32.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from flax import linen as nn
from jax import lax

from tdd.models.spec import DecoderSpec
from tdd.records import LanguageModel
from tdd.validate.checkpoints import check_tokens

__all__ = ["hidden", "init_params", "language_model", "logits", "readout"]

_INIT_STD = 0.02
_QUERY_BLOCK = 256

_ACTIVATIONS: dict[str, Callable[[jax.Array], jax.Array]] = {
    "gelu": functools.partial(jax.nn.gelu, approximate=False),
    "gelu_tanh": functools.partial(jax.nn.gelu, approximate=True),
    "relu": jax.nn.relu,
    "silu": jax.nn.silu,
    "tanh": jnp.tanh,
}


def hidden(spec: DecoderSpec, params: Any, tokens: jax.Array) -> jax.Array:
    """What the readout multiplies: the residual stream after the final norm.

    Args:
      spec: the architecture (static).
      params: nested dict of parameters, as `init_params` and `tdd.load` return it.
      tokens: [B, T] integer token ids, T <= spec.max_length. An id of V or more
        gives NaN.

    Returns:
      [B, T, D], in the dtype of the readout.

    Raises:
      InputError: tokens are not a [B, T] integer array, T is 0, or T exceeds the model's positions.
    """
    check_tokens(tokens.shape, tokens.dtype, spec.max_length)
    return _Decoder(spec).apply({"params": params}, tokens)  # type: ignore[return-value]


def readout(spec: DecoderSpec, params: Any) -> jax.Array:
    """The matrix [V, D] such that logits = hidden @ readout.T."""
    return params["embedding"]["tokens"] if spec.tied_head else params["head"]["kernel"]


def logits(spec: DecoderSpec, params: Any, tokens: jax.Array) -> jax.Array:
    """Next-token logits [B, T, V], float32. Memory B * T * V: for short inputs and tests.

    Args:
      spec: the architecture (static).
      params: nested dict of parameters.
      tokens: [B, T] integer token ids.
    """
    return _product(hidden(spec, params, tokens), readout(spec, params), "btd,vd->btv")


def init_params(spec: DecoderSpec, key: jax.Array, dtype: Any = jnp.float32) -> dict[str, Any]:
    """Random parameters by GPT-2's rule.

    Weights are normal with standard deviation 0.02, those of the two projections back into the residual
    stream with 0.02 / sqrt(2 L); biases 0, norm scales 1 (Radford et al. 2019, section 2.3).

    Args:
      spec: the architecture.
      key: PRNG key.
      dtype: of every parameter.
    """
    return _init(spec, key, jnp.dtype(dtype))


@functools.cache
def language_model(spec: DecoderSpec) -> LanguageModel:
    """The decoder as a `LanguageModel`: the same object for equal specs, so nothing retraces."""
    return LanguageModel(
        spec=spec,
        vocab_size=spec.vocab_size,
        max_length=spec.max_length,
        logits=functools.partial(logits, spec),
        hidden=functools.partial(hidden, spec),
        readout=functools.partial(readout, spec),
    )


@functools.partial(jax.jit, static_argnums=(0, 2))
def _init(spec: DecoderSpec, key: jax.Array, dtype: jnp.dtype) -> dict[str, Any]:
    variables = _Decoder(spec, dtype).init(key, jnp.zeros((1, 1), jnp.int32))
    return dict(variables["params"])


class _Decoder(nn.Module):
    """Embedding, L blocks in a scan, final norm."""

    spec: DecoderSpec
    param_dtype: Any = jnp.float32

    @nn.compact
    def __call__(self, tokens: jax.Array) -> jax.Array:
        spec = self.spec
        stream = _Embedding(spec, self.param_dtype, name="embedding")(tokens)
        blocks = nn.scan(_Block, variable_axes={"params": 0}, split_rngs={"params": True}, length=spec.num_layers)
        scales = jnp.asarray(spec.attention.scales, jnp.float32)
        stream, _ = blocks(spec, self.param_dtype, name="layers")(stream, scales)
        output = _Norm(spec, self.param_dtype, name="final_norm")(stream)
        if not spec.tied_head:
            _Head(spec, self.param_dtype, name="head")()
        return output.astype(readout(spec, self.variables["params"]).dtype)


class _Embedding(nn.Module):
    """Token embedding plus learned positions."""

    spec: DecoderSpec
    param_dtype: Any

    @nn.compact
    def __call__(self, tokens: jax.Array) -> jax.Array:
        spec, normal = self.spec, nn.initializers.normal(_INIT_STD)
        table = self.param("tokens", normal, (spec.vocab_size, spec.width), self.param_dtype)
        positions = self.param("positions", normal, (spec.positions.count, spec.width), self.param_dtype)
        embedded = jnp.take(table, tokens, axis=0, mode="fill").astype(jnp.float32)
        return embedded + positions[: tokens.shape[1]].astype(jnp.float32)


class _Block(nn.Module):
    """One pre-norm block: h += attention(norm(h)); h += mlp(norm(h))."""

    spec: DecoderSpec
    param_dtype: Any

    @nn.compact
    def __call__(self, stream: jax.Array, scale: jax.Array) -> tuple[jax.Array, None]:
        spec, dtype = self.spec, self.param_dtype
        heads, head_dim = spec.attention.num_heads, spec.attention.head_dim
        residual_std = _INIT_STD / math.sqrt(2 * spec.num_layers)
        batch, length, _ = stream.shape

        normed = _Norm(spec, dtype, name="attention_norm")(stream)
        fused = _Dense(3 * heads * head_dim, dtype, name="qkv")(normed)
        query, key, value = jnp.moveaxis(fused.reshape(batch, length, 3, heads, head_dim), (2, 3), (0, 2))
        mixed = _attend(query * scale, key, value)
        mixed = jnp.moveaxis(mixed, 1, 2).reshape(batch, length, heads * head_dim)
        stream = stream + _Dense(spec.width, dtype, residual_std, name="attention_out")(mixed)

        normed = _Norm(spec, dtype, name="mlp_norm")(stream)
        inner = _ACTIVATIONS[spec.mlp.activation](_Dense(spec.mlp.width, dtype, name="mlp_in")(normed))
        return stream + _Dense(spec.width, dtype, residual_std, name="mlp_out")(inner), None


class _Norm(nn.Module):
    """Layer normalisation in float32."""

    spec: DecoderSpec
    param_dtype: Any

    @nn.compact
    def __call__(self, stream: jax.Array) -> jax.Array:
        width = (self.spec.width,)
        scale = self.param("scale", nn.initializers.ones, width, self.param_dtype).astype(jnp.float32)
        bias = self.param("bias", nn.initializers.zeros, width, self.param_dtype).astype(jnp.float32)
        centred = stream - jnp.mean(stream, axis=-1, keepdims=True)
        variance = jnp.mean(jnp.square(centred), axis=-1, keepdims=True)
        return centred * lax.rsqrt(variance + self.spec.norm.eps) * scale + bias


class _Dense(nn.Module):
    """x W + b with W [in, out]; float32 out."""

    features: int
    param_dtype: Any
    std: float = _INIT_STD

    @nn.compact
    def __call__(self, inputs: jax.Array) -> jax.Array:
        shape = (inputs.shape[-1], self.features)
        kernel = self.param("kernel", nn.initializers.normal(self.std), shape, self.param_dtype)
        bias = self.param("bias", nn.initializers.zeros, (self.features,), self.param_dtype)
        return _product(inputs.astype(kernel.dtype), kernel, "btd,df->btf") + bias.astype(jnp.float32)


class _Head(nn.Module):
    """A readout of its own, [V, D]."""

    spec: DecoderSpec
    param_dtype: Any

    @nn.compact
    def __call__(self) -> jax.Array:
        shape = (self.spec.vocab_size, self.spec.width)
        return self.param("kernel", nn.initializers.normal(_INIT_STD), shape, self.param_dtype)


def _attend(query: jax.Array, key: jax.Array, value: jax.Array) -> jax.Array:
    """softmax(query key^T + causal mask) value, all [B, H, T, head_dim] float32; query is already scaled.

    Blocks of queries meet only the keys up to their own last position, which spares about half of the scores of
    long sequences, in time and in memory.
    """
    length = query.shape[2]
    mixed = []
    for start in range(0, length, _QUERY_BLOCK):
        stop = min(start + _QUERY_BLOCK, length)
        scores = _product(query[:, :, start:stop], key[:, :, :stop], "bhtk,bhsk->bhts")
        visible = jnp.arange(start, stop)[:, None] >= jnp.arange(stop)
        weights = jax.nn.softmax(jnp.where(visible, scores, -jnp.inf), axis=-1)
        mixed.append(_product(weights, value[:, :, :stop], "bhts,bhsk->bhtk"))
    return jnp.concatenate(mixed, axis=2)


def _product(left: jax.Array, right: jax.Array, subscripts: str) -> jax.Array:
    """Einsum that accumulates and returns float32."""
    return jnp.einsum(subscripts, left, right, preferred_element_type=jnp.float32)
