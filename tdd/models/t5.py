"""T5, an encoder and a decoder (Raffel et al. 2020), read from Hugging Face's files; it paraphrases, it is not audited.

What differs from other transformers: scores q k^T are not scaled; a learned number for each head and each bucket of
distances is added to them, the same in all layers; norms divide by the root mean square, without bias; a head that is
tied to the embedding multiplies the states times D^-1/2. Everything is computed in float32.

Symbols: V vocabulary, D width, L layers, H heads of width d, F inner width, S source tokens, T target tokens, B rows.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import os
import pathlib
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tdd.models.beams import BeamSearch, search
from tdd.models.configuration import check_layer_counts, read_config, read_tokenizer
from tdd.models.lora import check_no_adapter
from tdd.models.source import resolve
from tdd.models.weights import StoredTensors, check_finite_tensors, check_tensors, has_infinite
from tdd.validate import InputError
from tdd.validate.files import check_choice, check_positive

_WITHOUT_MEANING = {
    "_name_or_path", "architectures", "classifier_dropout", "dense_act_fn", "dropout_rate", "dtype",
    "gradient_checkpointing", "initializer_factor", "is_decoder", "is_encoder_decoder", "is_gated_act", "model_type",
    "n_positions", "output_past", "task_specific_params", "torch_dtype", "transformers_version", "use_cache",
}  # fmt: skip
"""Keys of a config.json that do not change what is computed, or repeat what another key says."""

_KEYS = {
    "vocab_size": ("vocab_size", 32128), "d_model": ("width", 512), "d_kv": ("head_dim", 64),
    "d_ff": ("mlp_width", 2048), "num_layers": ("num_layers", 6), "num_heads": ("num_heads", 8),
    "relative_attention_num_buckets": ("num_buckets", 32), "relative_attention_max_distance": ("max_distance", 128),
    "layer_norm_epsilon": ("eps", 1e-6),
}  # fmt: skip
"""Key of a config.json -> field of the spec, and the value of a file that omits the key."""

_OTHER_KEYS = {
    "decoder_start_token_id", "eos_token_id", "feed_forward_proj", "num_decoder_layers", "pad_token_id",
    "scale_decoder_outputs", "tie_word_embeddings",
}  # fmt: skip

_COPIES = ("encoder.embed_tokens.weight", "decoder.embed_tokens.weight")
_UNUSED = "decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight"
_HEAD, _SHARED = "lm_head.weight", "shared.weight"


@dataclasses.dataclass(frozen=True)
class T5Spec:
    """The architecture."""

    vocab_size: int  # V
    width: int  # D
    head_dim: int  # d
    mlp_width: int  # F
    num_heads: int  # H
    num_layers: int  # L of the encoder
    num_decoder_layers: int  # L of the decoder
    num_buckets: int  # rows of the table of relative positions
    max_distance: int  # distance from which on all distances share a bucket
    eps: float  # added to the mean square by the norms
    gated: bool  # True for (gelu_tanh(x W_0) * (x W_1)) W_out, False for relu(x W_in) W_out
    tied_head: bool  # True if the embedding is the head
    scaled_head: bool  # True if the states are multiplied by D^-1/2 before the head
    start: int  # id of the token with which a target begins
    end: int  # of that with which it ends
    padding: int  # of that which fills rows

    def __post_init__(self) -> None:
        ids = {"start": self.start, "end": self.end, "padding": self.padding}
        switches = ("gated", "tied_head", "scaled_head")
        check_positive(**{name: value for name, value in vars(self).items() if name not in (*ids, *switches)})
        for name, token in ids.items():
            if isinstance(token, bool) or not isinstance(token, int) or not 0 <= token < self.vocab_size:
                raise InputError(f"{name} must be the id of a token in 0..{self.vocab_size - 1}, got {token!r}")
        if self.num_buckets < 4 or self.num_buckets % 2 or self.max_distance <= self.num_buckets // 2:
            raise InputError(
                f"num_buckets={self.num_buckets} must be even, at least 4 and less than twice max_distance="
                f"{self.max_distance}"
            )


def load_t5(path: str | os.PathLike[str]) -> tuple[T5Spec, dict[str, Any], Any]:
    """Read a T5 checkpoint, a folder in Hugging Face's format or a hub id.

    Returns:
      (spec, params, tokenizer): the architecture; its parameters in float32, those of layers stacked [L, ...], kernels
      as [in, out]; transformers' tokenizer.

    Raises:
      InputError: No T5, a key or a value of its configuration that is not understood, or weights that are missing,
        too many, of another shape, or not finite.
    """
    folder = resolve(path, gguf=False).folder
    check_no_adapter(folder)
    with StoredTensors(folder) as stored:
        check_layer_counts(folder / "config.json", len(stored.names()))
        spec = _read_spec(folder / "config.json", tied=_HEAD not in stored.names())
        tokenizer = read_tokenizer(folder, spec.vocab_size)
        return spec, _read_params(stored, spec, str(folder)), tokenizer


def _read_spec(path: pathlib.Path, *, tied: bool) -> T5Spec:
    config = read_config(path)
    if config.get("model_type") != "t5":
        raise InputError(f"{path} has model_type {config.get('model_type')!r}; a paraphraser must be a t5")
    if unknown := sorted(config.keys() - _WITHOUT_MEANING - _KEYS.keys() - _OTHER_KEYS):
        raise InputError(f"{path} has keys whose meaning is not known: {', '.join(unknown)}; remove those without any")
    form = config.get("feed_forward_proj", "relu")
    check_choice("feed_forward_proj", form, ("relu", "gated-gelu"))
    fields = {field: config.get(key, default) for key, (field, default) in _KEYS.items()}
    own = config.get("num_decoder_layers")
    padding = config.get("pad_token_id", 0)
    try:
        return T5Spec(
            **fields,
            num_decoder_layers=fields["num_layers"] if own is None else own,
            gated=form == "gated-gelu",
            tied_head=tied and config.get("tie_word_embeddings") is not False,
            scaled_head=config.get("scale_decoder_outputs", config.get("tie_word_embeddings") is not False),
            start=config.get("decoder_start_token_id", padding),
            end=config.get("eos_token_id", 1),
            padding=padding,
        )
    except InputError as error:
        raise InputError(f"{path} does not hold a supported configuration: {error}") from error


def _layer_tensors(spec: T5Spec, part: str) -> Iterator[tuple[str, list[tuple[str, tuple[int, int]]]]]:
    """Parameters of one layer: its name here, and name and stored shape [out, in] of what is side by side in it."""
    width, inner, decoder = spec.width, spec.num_heads * spec.head_dim, part == "decoder"
    attentions = [("self", "layer.0.SelfAttention"), *([("cross", "layer.1.EncDecAttention")] if decoder else [])]
    for name, stored in attentions:
        for projection in "qkvo":
            shape = (width, inner) if projection == "o" else (inner, width)
            yield f"{name}_{projection}", [(f"{stored}.{projection}.weight", shape)]
    dense = f"layer.{1 + decoder}.DenseReluDense"
    ins = ("wi_0", "wi_1") if spec.gated else ("wi",)
    yield "mlp_in", [(f"{dense}.{one}.weight", (spec.mlp_width, width)) for one in ins]
    yield "mlp_out", [(f"{dense}.wo.weight", (width, spec.mlp_width))]


def _norms(part: str) -> tuple[str, ...]:
    return ("self_norm", "cross_norm", "mlp_norm") if part == "decoder" else ("self_norm", "mlp_norm")


def _expected(spec: T5Spec) -> dict[str, tuple[int, ...]]:
    shapes: dict[str, tuple[int, ...]] = {_SHARED: (spec.vocab_size, spec.width)}
    if not spec.tied_head:
        shapes[_HEAD] = (spec.vocab_size, spec.width)
    for part, depth in (("encoder", spec.num_layers), ("decoder", spec.num_decoder_layers)):
        shapes[f"{part}.final_layer_norm.weight"] = (spec.width,)
        shapes[_distances(part)] = (spec.num_buckets, spec.num_heads)
        for layer in range(depth):
            block = f"{part}.block.{layer}"
            shapes |= {f"{block}.{name}": shape for _, parts in _layer_tensors(spec, part) for name, shape in parts}
            shapes |= {f"{block}.layer.{n}.layer_norm.weight": (spec.width,) for n in range(len(_norms(part)))}
    return shapes


def _distances(part: str) -> str:
    return f"{part}.block.0.layer.0.SelfAttention.relative_attention_bias.weight"


def _read_params(stored: StoredTensors, spec: T5Spec, where: str) -> dict[str, Any]:
    names = stored.names() - {_UNUSED}
    embedding = next((name for name in (_SHARED, *_COPIES) if name in names), _SHARED)
    for copy in names & {*_COPIES}:
        if not stored.equal(copy, embedding):
            raise InputError(f"{where}: {copy} differs from {embedding}; a T5 has one embedding")
    in_file = {_SHARED if name == embedding else name: name for name in names - ({*_COPIES} - {embedding})}
    check_tensors(
        _expected(spec),
        {name: stored.shape(place) for name, place in in_file.items()},
        where,
        advice="its weights and its config.json do not belong together",
        dtypes={name: stored.dtype(place) for name, place in in_file.items()},
    )
    infinite: list[str] = []

    def read(name: str) -> np.ndarray:
        tensor = stored.read(in_file[name]).astype(np.float32)
        if has_infinite(tensor, tensor.dtype):
            infinite.append(name)
        return tensor

    def part_of(part: str, depth: int) -> dict[str, Any]:
        blocks = [f"{part}.block.{layer}" for layer in range(depth)]
        layers = {
            name: np.stack([np.concatenate([read(f"{block}.{one}").T for one, _ in parts], 1) for block in blocks])
            for name, parts in _layer_tensors(spec, part)
        }
        layers |= {
            name: np.stack([read(f"{block}.layer.{n}.layer_norm.weight") for block in blocks])
            for n, name in enumerate(_norms(part))
        }
        return {"layers": layers, "norm": read(f"{part}.final_layer_norm.weight"), "distances": read(_distances(part))}

    params = {
        "embedding": read(_SHARED),
        "encoder": part_of("encoder", spec.num_layers),
        "decoder": part_of("decoder", spec.num_decoder_layers),
    }
    if not spec.tied_head:
        params["head"] = read(_HEAD)
    check_finite_tensors(infinite, len(in_file), "read as float32", where)
    return jax.tree.map(jnp.asarray, params)


def _norm(spec: T5Spec, scale: jax.Array, stream: jax.Array) -> jax.Array:
    return scale * (stream * lax.rsqrt(jnp.mean(stream**2, -1, keepdims=True) + spec.eps))


def _heads(spec: T5Spec, inputs: jax.Array, kernel: jax.Array) -> jax.Array:
    """[B, T, D] -> [B, T, H, d]."""
    return (inputs @ kernel).reshape(*inputs.shape[:2], spec.num_heads, spec.head_dim)


def _attend(query: jax.Array, key: jax.Array, value: jax.Array, bias: jax.Array) -> jax.Array:
    """softmax(q k^T + bias) v of [B, T, H, d] and [B, M, H, d], bias [B or 1, H or 1, T, M] -> [B, T, H d]."""
    weights = jax.nn.softmax(jnp.einsum("bthd,bmhd->bhtm", query, key) + bias)
    mixed = jnp.einsum("bhtm,bmhd->bthd", weights, value)
    return mixed.reshape(*mixed.shape[:2], -1)


def _mlp(spec: T5Spec, layer: Mapping[str, jax.Array], stream: jax.Array) -> jax.Array:
    inner = _norm(spec, layer["mlp_norm"], stream) @ layer["mlp_in"]
    if spec.gated:
        gate, up = jnp.split(inner, 2, -1)
        inner = jax.nn.gelu(gate, approximate=True) * up
    else:
        inner = jax.nn.relu(inner)
    return stream + inner @ layer["mlp_out"]


def _buckets(spec: T5Spec, query: jax.Array, num_keys: int, *, both_sides: bool) -> jax.Array:
    """Bucket of the distance of each key from each query, [T, M].

    With n buckets for a side, distances below n/2 have one each; beyond, bucket n/2 + floor(n/2 log(2 x / n) /
    log(2 max_distance / n)), at most n - 1. Of two sides, keys after the query have the upper half of the buckets; of
    one side, keys after it count as distance 0 (they are masked).
    """
    offset = jnp.arange(num_keys) - query[:, None]
    buckets, first = spec.num_buckets, jnp.zeros_like(offset)
    if both_sides:
        buckets //= 2
        first = jnp.where(offset > 0, buckets, 0)
        distance = jnp.abs(offset)
    else:
        distance = jnp.maximum(-offset, 0)
    exact = buckets // 2
    ratio = jnp.log(jnp.maximum(distance, 1).astype(jnp.float32) / exact) / math.log(spec.max_distance / exact)
    far = exact + (ratio * (buckets - exact)).astype(jnp.int32)
    return first + jnp.where(distance < exact, distance, jnp.minimum(far, buckets - 1))


def _hidden(mask: jax.Array) -> jax.Array:
    """0 where the mask is true, the lowest float32 elsewhere."""
    return jnp.where(mask, 0.0, jnp.finfo(jnp.float32).min)


def encode(spec: T5Spec, params: Any, tokens: jax.Array, mask: jax.Array) -> jax.Array:
    """States of the encoder, [B, S, D], of tokens [B, S]; mask [B, S] is true for real tokens."""
    part, length = params["encoder"], tokens.shape[1]
    buckets = _buckets(spec, jnp.arange(length), length, both_sides=True)
    bias = part["distances"][buckets].transpose(2, 0, 1)[None] + _hidden(mask[:, None, None, :])

    def block(stream: jax.Array, layer: Mapping[str, jax.Array]) -> tuple[jax.Array, None]:
        normed = _norm(spec, layer["self_norm"], stream)
        query, key, value = (_heads(spec, normed, layer[f"self_{one}"]) for one in "qkv")
        return _mlp(spec, layer, stream + _attend(query, key, value, bias) @ layer["self_o"]), None

    return _norm(spec, part["norm"], lax.scan(block, params["embedding"][tokens], part["layers"])[0])


class _Cache(NamedTuple):
    """Keys and values of every layer of the decoder: of the target so far, and of the source."""

    key: jax.Array  # [L, B, M, H, d], M the longest target
    value: jax.Array
    source_key: jax.Array  # [L, B, S, H, d]
    source_value: jax.Array


def _start(spec: T5Spec, params: Any, states: jax.Array, longest: int) -> _Cache:
    layers = params["decoder"]["layers"]
    key, value = (jax.vmap(lambda one: _heads(spec, states, one))(layers[name]) for name in ("cross_k", "cross_v"))
    empty = jnp.zeros((spec.num_decoder_layers, len(states), longest, spec.num_heads, spec.head_dim))
    return _Cache(empty, empty, key, value)


def _decode(
    spec: T5Spec, params: Any, cache: _Cache, mask: jax.Array, tokens: jax.Array, first: Any
) -> tuple[jax.Array, _Cache]:
    """Logits [B, T, V] of the tokens [B, T] that stand at positions first.. of the target, and the longer cache."""
    part, num_keys = params["decoder"], cache.key.shape[2]
    at = first + jnp.arange(tokens.shape[1])
    distances = part["distances"][_buckets(spec, at, num_keys, both_sides=False)].transpose(2, 0, 1)[None]
    bias = distances + _hidden(jnp.arange(num_keys) <= at[:, None])
    source_bias = _hidden(mask[:, None, None, :])

    def block(stream: jax.Array, of_layer: tuple[Mapping[str, jax.Array], _Cache]) -> tuple[jax.Array, Any]:
        layer, held = of_layer
        normed = _norm(spec, layer["self_norm"], stream)
        query, key, value = (_heads(spec, normed, layer[f"self_{one}"]) for one in "qkv")
        key = lax.dynamic_update_slice_in_dim(held.key, key, first, 1)
        value = lax.dynamic_update_slice_in_dim(held.value, value, first, 1)
        stream = stream + _attend(query, key, value, bias) @ layer["self_o"]
        query = _heads(spec, _norm(spec, layer["cross_norm"], stream), layer["cross_q"])
        stream = stream + _attend(query, held.source_key, held.source_value, source_bias) @ layer["cross_o"]
        return _mlp(spec, layer, stream), (key, value)

    stream, (key, value) = lax.scan(block, params["embedding"][tokens], (part["layers"], cache))
    states = _norm(spec, part["norm"], stream) * (spec.width**-0.5 if spec.scaled_head else 1.0)
    head = params["embedding"] if spec.tied_head else params["head"]
    return states @ head.T, cache._replace(key=key, value=value)


def logits(spec: T5Spec, params: Any, tokens: jax.Array, mask: jax.Array, target: jax.Array) -> jax.Array:
    """Logits [B, T, V] of the token after each of target [B, T], which begins with `spec.start`.

    Args:
      spec, params, tokens, mask: As in `generate`.
      target: [B, T] ids.
    """
    with jax.default_matmul_precision("highest"):
        cache = _start(spec, params, encode(spec, params, tokens, mask), target.shape[1])
        return _decode(spec, params, cache, mask, target, 0)[0]


def filtered(scores: jax.Array, temperature: float, top_k: int, top_p: float) -> jax.Array:
    """Logits [B, V] -> logits of the distribution to draw from, minus infinity for tokens that are left out.

    In this order: divided by the temperature; the top_k largest are kept, with those equal to the smallest of them
    (Fan et al. 2018); of the rest, from the least probable on, as many are left out as have together a probability of
    at most 1 - top_p (Holtzman et al. 2020). The most probable token stays.
    """
    scores = scores / temperature
    smallest = lax.top_k(scores, min(top_k, scores.shape[-1]))[0][:, -1:]
    scores = jnp.where(scores < smallest, -jnp.inf, scores)
    order = jnp.argsort(scores, axis=-1)
    cumulated = jnp.cumsum(jax.nn.softmax(jnp.take_along_axis(scores, order, -1)), -1)
    left_out = (cumulated <= 1 - top_p).at[:, -1].set(False)
    rows = jnp.arange(len(scores))[:, None]
    return jnp.where(jnp.zeros_like(left_out).at[rows, order].set(left_out), -jnp.inf, scores)


@functools.partial(jax.jit, static_argnames=("spec", "longest", "temperature", "top_k", "top_p"))
def generate(
    spec: T5Spec,
    params: Any,
    tokens: jax.Array,
    mask: jax.Array,
    keys: jax.Array,
    *,
    longest: int,
    temperature: float = 1.9,
    top_k: int = 50,
    top_p: float = 0.95,
) -> jax.Array:
    """Write a target for each source, token by token, with the keys and values of earlier tokens kept.

    Args:
      spec, params: As `load_t5` returns them.
      tokens: [B, S] ids.
      mask: [B, S], true for real tokens.
      keys: [B] random keys, one a row; row b depends on nothing else that is random.
      longest: Most tokens of a target.
      temperature, top_k, top_p: See `filtered`; temperature 0 takes the most probable token always.

    Returns:
      [B, longest] ids, without the start; `spec.padding` after `spec.end`. A row without `spec.end` was cut.
    """

    def draw(scores: jax.Array, step: jax.Array) -> jax.Array:
        if not temperature:
            return jnp.argmax(scores, -1)
        drawn_with = jax.vmap(jax.random.fold_in, (0, None))(keys, step)
        return jax.vmap(jax.random.categorical)(drawn_with, filtered(scores, temperature, top_k, top_p))

    def advance(state: tuple[Any, ...]) -> tuple[Any, ...]:
        step, last, over, cache, written = state
        scores, cache = _decode(spec, params, cache, mask, last[:, None], step)
        token = jnp.where(over, spec.padding, draw(scores[:, 0], step)).astype(jnp.int32)
        return step + 1, token, over | (token == spec.end), cache, written.at[:, step].set(token)

    rows = len(tokens)
    with jax.default_matmul_precision("highest"):
        cache = _start(spec, params, encode(spec, params, tokens, mask), longest)
        first = (
            jnp.asarray(0), jnp.full(rows, spec.start, jnp.int32), jnp.zeros(rows, bool), cache,
            jnp.full((rows, longest), spec.padding, jnp.int32),
        )  # fmt: skip
        return lax.while_loop(lambda state: (state[0] < longest) & ~state[2].all(), advance, first)[4]


@functools.partial(jax.jit, static_argnames=("spec", "how", "longest"))
def beams(spec: T5Spec, params: Any, tokens: jax.Array, mask: jax.Array, how: BeamSearch, *, longest: int) -> jax.Array:
    """The best targets of each source by beam search: [B, how.beams, longest] ids, best first, as of `generate`.

    Args:
      spec, params, tokens, mask, longest: As in `generate`.
      how: Options of the search.
    """
    with jax.default_matmul_precision("highest"):
        states = jnp.repeat(encode(spec, params, tokens, mask), how.beams, 0)
        sources, whole = jnp.repeat(mask, how.beams, 0), _start(spec, params, states, longest)

        def advance(held: Any, last: jax.Array, position: jax.Array) -> tuple[jax.Array, Any]:
            cache = whole._replace(key=held[0], value=held[1])
            scores, cache = _decode(spec, params, cache, sources, last[:, None], position)
            return scores[:, 0], (cache.key, cache.value)

        return search(
            advance, (whole.key, whole.value), how, rows=len(tokens), longest=longest, start=spec.start, end=spec.end,
            padding=spec.padding,
        )  # fmt: skip
