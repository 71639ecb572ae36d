"""Attention, causal and of grouped heads or over all positions: in blocks of queries, or in one kernel."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from tdd.kernels import platforms
from tdd.kernels.platforms import all_gpus_since_ampere, stored

QUERY_BLOCK = 128
"""Queries per block at least. On CPU the scores of a block stay in cache."""

_MAX_BLOCKS = 16
"""Blocks are unrolled; longer sequences get longer blocks, so that programs do not grow with the length."""

_WIDEST = 128
"""Width of a head that cuDNN takes on every GPU since Ampere; it must be a multiple of 8."""

_LANES = 128
"""Of a TPU: queries and keys of its kernel are padded to a multiple of them."""

_TPU_BLOCK = 512
"""Queries and keys of a block of that kernel, at most."""


class PrefixCache(NamedTuple):
    """Keys and values of the first positions of a sequence, in every layer; or in one layer, without the first axis."""

    key: jax.Array  # [L, 1, P, G, d] float32, after any rotation
    value: jax.Array  # [L, 1, P, G, e] float32
    num_real: jax.Array | None  # [] int32, number of tokens before the padding, or None without padding

    @property
    def first(self) -> int | jax.Array:
        """Position of the token after the prefix."""
        return self.key.shape[-3] if self.num_real is None else self.num_real

    def by_layer(self) -> PrefixCache:
        """Every field with a layer axis."""
        if self.num_real is None:
            return self
        return self._replace(num_real=jnp.broadcast_to(self.num_real, self.key.shape[:1]))


def attend(
    query: jax.Array,
    key: jax.Array,
    value: jax.Array,
    *,
    dtype: Any = jnp.float32,
    window: int | jax.Array | None = None,
    soft_cap: float | None = None,
    past: PrefixCache | None = None,
    sinks: jax.Array | None = None,
    slopes: tuple[float, ...] | None = None,
) -> jax.Array:
    """softmax(cap(query key^T) - slope * distance) value over the positions that each token sees.

    A block of queries is multiplied only with the keys from the start of its first window to its own last position,
    which saves about half of the scores of long sequences, in time and in memory. A prefix that all rows share is not
    copied for each row: one product of the queries of all rows with its keys gives its scores, and one softmax runs
    over both sets of scores. Weights are divided by their sum after the product with the values.

    A CPU computes in float32. An accelerator takes the factors of both products in `dtype`, sums them in float32 and
    keeps softmax in float32. Where `dtype` has 16 bits and there is neither a prefix nor a sink nor a slope nor a
    window that is only known while the program runs, one kernel does all of it: JAX's splash attention on a TPU; cuDNN
    on an NVIDIA GPU, without a cap.

    Args:
      query: [B, T, H, d] float32, scaled already.
      key: [B, T, G, d], each shared by H / G consecutive query heads.
      value: [B, T, G, e]; one kernel does all of it only where e = d.
      dtype: The type of the model's weights.
      window: A token at i sees j with 0 <= i - j < window, positions counted from the first of the prefix; None for
        all before it. An array is one number that is not known while tracing; it saves nothing.
      soft_cap: c in cap(x) = c tanh(x / c), or None.
      past: Keys and values [1, P, G, d or e] of a prefix of every row in this layer, or None.
      sinks: [B, T, H] float32, s in sum_j e^(z_j) v_j / (e^s + sum_j e^(z_j)) with scores z; or None for no such term.
      slopes: H numbers, what each position between a token and the one it sees takes off their score; or None.

    Returns:
      [B, T, H e] float32.
    """
    known = window if isinstance(window, int) else None
    form = functools.partial(_in_blocks, window=known, soft_cap=soft_cap, slopes=slopes)
    forms: dict[str, Callable[..., jax.Array]] = {
        "cpu": functools.partial(form, dtype=jnp.float32),
        "default": functools.partial(form, dtype=dtype),
    }
    at_run_time = None if known is not None else window
    plain = query.shape[-1] == value.shape[-1] and all(given is None for given in (past, at_run_time, sinks, slopes))
    if plain and jnp.dtype(dtype) in (jnp.bfloat16, jnp.float16):
        if soft_cap is None and _cudnn_takes(query.shape[-1]):
            forms["cuda"] = functools.partial(_by_cudnn, window=known, dtype=dtype)
        if platforms.fused_on("tpu") and jnp.dtype(dtype) == jnp.bfloat16:
            forms["tpu"] = functools.partial(_by_splash, window=known, soft_cap=soft_cap, dtype=dtype)
    return lax.platform_dependent(query, key, value, past, at_run_time, sinks, **forms)


def attend_to_all(query: jax.Array, key: jax.Array, value: jax.Array, *, dtype: Any) -> jax.Array:
    """softmax(query key^T) value over all positions, [B, T, H, d] float32 each, query scaled: [B, T, H d] float32.

    Products take factors in `dtype` and sum in float32; on an NVIDIA GPU one kernel of cuDNN does all of it, where
    `dtype` has 16 bits.
    """

    def in_whole(query: jax.Array, key: jax.Array, value: jax.Array) -> jax.Array:
        scores = platforms.product("bthd,bshd->bhts", query.astype(dtype), key.astype(dtype))
        weights = jax.nn.softmax(scores, axis=-1)
        mixed = platforms.product("bhts,bshd->bthd", weights.astype(dtype), value.astype(dtype))
        return mixed.reshape(*query.shape[:2], -1)

    forms: dict[str, Callable[..., jax.Array]] = {"default": in_whole}
    if jnp.dtype(dtype) in (jnp.bfloat16, jnp.float16) and _cudnn_takes(query.shape[-1]):
        forms["cuda"] = functools.partial(_by_cudnn, dtype=dtype, causal=False)
    return lax.platform_dependent(query, key, value, **forms)


def _in_blocks(
    query: jax.Array,
    key: jax.Array,
    value: jax.Array,
    past: PrefixCache | None,
    window_at_run_time: jax.Array | None,
    sinks: jax.Array | None = None,
    *,
    window: int | None,
    soft_cap: float | None,
    slopes: tuple[float, ...] | None = None,
    dtype: Any,
) -> jax.Array:
    """`attend` in blocks of queries, with the factors of its products in `dtype`."""
    batch, length, heads, width = query.shape
    groups, value_width = value.shape[2:]
    product = functools.partial(_product, dtype=dtype)
    query = jnp.moveaxis(query.reshape(batch, length, groups, heads // groups, width), 1, 3)  # [B, G, H/G, T, d]
    key, value = jnp.moveaxis(key, 1, 2), jnp.moveaxis(value, 1, 2)  # [B, G, T, d]
    if sinks is not None:
        sinks = jnp.moveaxis(sinks.reshape(batch, length, groups, heads // groups, 1), 1, 3)  # [B, G, H/G, T, 1]
    block = max(QUERY_BLOCK, -(-length // _MAX_BLOCKS))
    seen_back = window if window_at_run_time is None else window_at_run_time
    mixed = []
    for start in range(0, length, block):
        stop = min(start + block, length)
        first = 0 if window is None else max(0, start - window + 1)
        queries, places = query[:, :, :, start:stop], jnp.arange(start, stop)[:, None]
        scores = [product(queries, key[:, :, first:stop], "bghtd,bgsd->bghts")]
        distances = [places - jnp.arange(first, stop)]
        visible = [distances[0] >= 0]
        if past is not None:
            before = jnp.arange(past.key.shape[1])
            scores.append(product(queries, past.key[0], "bghtd,sgd->bghts"))
            distances.append(past.first + places - before)
            visible.append(jnp.broadcast_to(before < past.first, distances[1].shape))
        if soft_cap is not None:
            scores = [soft_cap * jnp.tanh(score / soft_cap) for score in scores]
        if slopes is not None:
            fall = jnp.asarray(slopes, jnp.float32).reshape(groups, heads // groups, 1, 1)
            scores = [score - fall * distance for score, distance in zip(scores, distances, strict=True)]
        if seen_back is not None:
            visible = [seen & (distance < seen_back) for seen, distance in zip(visible, distances, strict=True)]
        scores = [jnp.where(seen, score, -jnp.inf) for seen, score in zip(visible, scores, strict=True)]
        tops = [score.max(-1, keepdims=True) for score in scores]
        of_sinks = [] if sinks is None else [sinks[:, :, :, start:stop]]
        top = lax.stop_gradient(functools.reduce(jnp.maximum, tops + of_sinks))
        weights = [stored(jnp.exp(score - top)) for score in scores]
        total = functools.reduce(operator.add, [weight.sum(-1) for weight in weights])[..., None]
        total = total + sum(jnp.exp(sink - top) for sink in of_sinks)
        values = product(weights[0], value[:, :, first:stop], "bghts,bgsd->bghtd")
        if past is not None:
            values = values + product(weights[1], past.value[0], "bghts,sgd->bghtd")
        mixed.append(values / total)
    return jnp.moveaxis(jnp.concatenate(mixed, axis=3), 3, 1).reshape(batch, length, heads * value_width)


def _product(left: jax.Array, right: jax.Array, subscripts: str, dtype: Any) -> jax.Array:
    """Einsum of factors in `dtype` that accumulates and returns float32, accurate to float32 where that is `dtype`."""
    left, right = left.astype(dtype), right.astype(dtype)
    precision = platforms.full_precision(left, right)
    return jnp.einsum(subscripts, left, right, precision=precision, preferred_element_type=jnp.float32)


def _by_cudnn(
    query: jax.Array,
    key: jax.Array,
    value: jax.Array,
    *_: None,
    window: int | None = None,
    dtype: Any,
    causal: bool = True,
) -> jax.Array:
    """`attend`, or `attend_to_all`, in one kernel of cuDNN."""
    mixed = jax.nn.dot_product_attention(
        *(array.astype(dtype) for array in (query, key, value)),
        scale=1.0,
        is_causal=causal,
        local_window_size=None if window is None else (window - 1, 0),
        implementation="cudnn",
    )
    return mixed.astype(jnp.float32).reshape(*query.shape[:2], -1)


def _by_splash(
    query: jax.Array,
    key: jax.Array,
    value: jax.Array,
    *_: None,
    window: int | None = None,
    soft_cap: float | None = None,
    dtype: Any,
    interpret: bool = False,
) -> jax.Array:
    """`attend` in JAX's kernel for TPUs. Padding follows the last token, which therefore does not see it."""
    from jax.experimental.pallas.ops.tpu import splash_attention as splash

    batch, length, heads, width = query.shape
    padded = -(-length // _LANES) * _LANES
    block = next(size for size in range(_TPU_BLOCK, 0, -_LANES) if padded % size == 0)
    mask: Any = splash.CausalMask((padded, padded))
    if window is not None:
        mask = splash.LocalMask((padded, padded), (window - 1, 0), 0)
    sizes = splash.BlockSizes(
        block_q=block,
        block_kv=block,
        block_q_dkv=block,
        block_kv_dkv=block,
        block_kv_dkv_compute=block,
        use_fused_bwd_kernel=True,
    )
    kernel = splash.make_splash_mha_single_device(
        splash.MultiHeadMask([mask] * heads), block_sizes=sizes, attn_logits_soft_cap=soft_cap, interpret=interpret
    )
    arrays = (jnp.moveaxis(x, 1, 2).astype(dtype) for x in (query, key, value))
    rows = ((0, 0), (0, 0), (0, padded - length), (0, 0))
    mixed: Any = jax.vmap(kernel)(*(jnp.pad(x, rows) for x in arrays))
    return jnp.moveaxis(mixed[:, :, :length], 2, 1).astype(jnp.float32).reshape(batch, length, heads * width)


def _cudnn_takes(width: int) -> bool:
    """Whether cuDNN is there and has a kernel for heads of this width; asked while tracing."""
    return width % 8 == 0 and width <= _WIDEST and _has_cudnn()


@functools.lru_cache(maxsize=1)
def _has_cudnn() -> bool:
    """Whether JAX, asked while tracing, finds cuDNN, and no GPU of this process that is older than Ampere."""
    one = jax.ShapeDtypeStruct((1, 8, 1, 8), jnp.bfloat16)
    try:
        jax.eval_shape(functools.partial(_by_cudnn, dtype=jnp.bfloat16), one, one, one)
    except Exception:  # "cuDNN is not detected" is a RuntimeError; other versions of JAX may say it otherwise
        return False
    return all_gpus_since_ampere()
