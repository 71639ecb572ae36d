"""One flax.linen decoder, driven by a `DecoderSpec`.

Every function takes `spec`, the architecture (static), and `params`, the parameters as `init_params` and `tdd.load`
return them. Parameters are a plain nested dict; the leaves under "layers" carry a leading layer axis [L, ...] and the
blocks run in one scan, so compile time does not grow with depth; where layers differ in kind, each of the spec's `runs`
has a stack and a scan of its own. Masking is causal only: with padding on
the right, no real token sees a padded one, and the loss mask does the rest.

Numbers: parameters keep the dtype they are stored in; a product with a weight takes its input in the dtype of
the weight and accumulates in float32; the residual stream, norms, rotations and softmax are float32, and so is
attention on a CPU (`tdd.models.attention` for accelerators).

Every operation with a weight can carry a *probe* (`tdd.kernels.grad_norm`): zeros [B] that change nothing, and whose
cotangent is the squared norm of that weight's own gradient, example by example.
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn
from jax import lax

from tdd.kernels import grad_norm
from tdd.kernels.platforms import product
from tdd.models.attention import PrefixCache, attend
from tdd.models.rotary import RotaryPositions, rotate, rotation
from tdd.models.spec import AlibiPositions, DecoderSpec, Experts, LayerNorm, LearnedPositions, Mlp, RmsNorm
from tdd.validate import InputError
from tdd.validate.files import check_tokens

_INIT_STD = 0.02

_LOW_RANK = "low_rank"
"""Collection of LoRA's factors, where they are not merged."""

_ACTIVATIONS: dict[str, Callable[[jax.Array], jax.Array]] = {
    "gelu": lambda x: 0.5 * x * (1 + lax.erf(x * math.sqrt(0.5))),
    "gelu_tanh": lambda x: x * jax.nn.sigmoid(2 * math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)),  # 1 + tanh u
    "relu": jax.nn.relu,
    "silu": jax.nn.silu,
    "tanh": jnp.tanh,
}


class Places(NamedTuple):
    """Tokens of a batch that stand in one row [1, C], without the padding of [B, T]; attention alone has rows."""

    flat: jax.Array  # [C] int32, the place of each in the flattened [B, T]; B T where there is no token
    index: jax.Array  # [B, T] int32, which of the C stands there; any where none does

    @classmethod
    def of(cls, flat: jax.Array, batch: int, length: int) -> Places:
        """The places of tokens that stand at `flat` [C] of a batch [batch, length]."""
        index = jnp.zeros(batch * length, jnp.int32).at[flat].set(jnp.arange(len(flat)), mode="drop")
        return cls(flat, index.reshape(batch, length))

    def in_rows(self, values: jax.Array) -> jax.Array:
        """[1, C, ...] -> [B, T, ...]; where no token stands, those of another."""
        return jnp.take(values[0], self.index, axis=0, mode="clip")

    def in_one_row(self, values: jax.Array) -> jax.Array:
        """[B, T, ...] -> [1, C, ...]."""
        return jnp.take(values.reshape(-1, *values.shape[2:]), self.flat, axis=0, mode="clip")[None]


class Noise(NamedTuple):
    """Dropout while a decoder is trained: an entry is 0 with probability p, and else divided by 1 - p.

    The random numbers of a call depend on the key, the layer, the operation and the shape of the batch.
    """

    key: jax.Array  # PRNG key
    stream: float = 0.0  # p on the embedded tokens and on what attention and perceptron add to the stream
    # p on the input x of every low-rank path, W x + B A dropped(x) in place of (W + B A) x (Hu et al.'s and peft's)
    adapted: float = 0.0
    factors: Any = None  # {"layers": {"qkv": {"a": [L, in, rank], "b": [L, rank, out]}}}, float32 and scaled


def hidden(
    spec: DecoderSpec, params: Any, tokens: jax.Array, *, remat: bool = False, noise: Noise | None = None
) -> jax.Array:
    """The residual stream after the final norm, any projection and the logits' scale: what the readout multiplies.

    Args:
      tokens: [B, T] integer token ids, T <= spec.max_length. An id of V or more gives NaN.
      remat: See `trunk`.
      noise: See `trunk`.

    Returns:
      [B, T, D] (`spec.readout_width` where it differs), in the dtype of the readout.

    Raises:
      InputError: Tokens are not a [B, T] integer array, T is 0, or T exceeds the model's positions.
    """
    embedded = embed(spec, params, tokens)
    return trunk(spec, params, embedded, remat=remat, noise=noise).astype(readout(spec, params).dtype)


def hidden_at(spec: DecoderSpec, params: Any, tokens: jax.Array, places: jax.Array) -> jax.Array:
    """`hidden` of tokens [B, T] at the flat places [C]: [C, D], at the price of C tokens, not of B T.

    With a token, all before it in its row must be among the places. B T stands for none: what it gets means nothing.
    """
    check_tokens(tokens.shape, tokens.dtype, spec.max_length)
    _check_parts(spec, params)
    kept = Places.of(places, *tokens.shape)
    embedded = _rows_of(params, kept.in_one_row(tokens))
    return trunk(spec, params, embedded, places=kept)[0].astype(readout(spec, params).dtype)


def embed(spec: DecoderSpec, params: Any, tokens: jax.Array) -> jax.Array:
    """Rows of the embedding, [B, T, embedding width] float32, before any scale, projection or position."""
    check_tokens(tokens.shape, tokens.dtype, spec.max_length)
    _check_parts(spec, params)
    return _rows_of(params, tokens)


def _check_parts(spec: DecoderSpec, params: Any) -> None:
    """The parts of the parameters by name; what is inside them, flax checks."""
    names = ["embedding", *(name for name, *_ in spec.runs), *(() if spec.tied_head else ("head",))]
    found = params if isinstance(params, Mapping) else {}
    if lacking := [name for name in names if not isinstance(found.get(name), Mapping)]:
        raise InputError(
            f"params must be the dictionary that tdd.load or init_params returned, with {', '.join(names)}; got "
            + (f"one without {lacking[0]}" if isinstance(params, Mapping) else type(params).__name__)
        )


def _rows_of(params: Any, tokens: jax.Array) -> jax.Array:
    return jnp.take(params["embedding"]["tokens"], tokens, axis=0, mode="fill").astype(jnp.float32)


def trunk(
    spec: DecoderSpec,
    params: Any,
    embedded: jax.Array,
    probes: Mapping[str, jax.Array] | None = None,
    *,
    remat: bool = False,
    past: PrefixCache | None = None,
    noise: Noise | None = None,
    places: Places | None = None,
) -> jax.Array:
    """From the rows of the embedding to what the readout multiplies: [B, T, width] float32.

    Args:
      embedded: [B, T, width], as `embed` gives it.
      probes: None, or {"layers": zeros [L, B], "trunk": zeros [B]}, whose cotangents are the squared norms of the
        gradients of each layer's weights, and of the other weights between embedding and readout.
      remat: True recomputes each block in the backward pass instead of keeping its activations.
      past: Keys and values of a prefix of every row, or None.
      noise: Dropout, for training; None without.
      places: Where the tokens of an `embedded` [1, C, width] stand in a batch; None if they are one. Not with others.
    """
    if probes is None and noise is None and not remat:
        if _stacks_are(spec, params, jnp.uint16):
            return _plain_forward(spec, params, embedded, past, places, of_bits=True)
        if _stacks_are(spec, params, jnp.bfloat16):
            return _forward(spec, params, embedded, past, places)
    variables, rngs, rates = {"params": params}, None, None
    if noise is not None:
        rngs, rates = {"dropout": noise.key}, (noise.stream, noise.adapted)
        variables |= {} if noise.factors is None else {_LOW_RANK: noise.factors}
    decoder = _Decoder(spec, remat=remat, dropout=rates)
    return decoder.apply(variables, embedded, probes, past, places, rngs=rngs)[0]  # type: ignore[return-value]


def as_bits(spec: DecoderSpec, params: Any) -> Any:
    """The parameters, and where every weight of every block is in bfloat16, the bits of these in place of the weights.

    `trunk` and `trunk_with_cache` take either, without derivatives; of weights, a program for a CPU would copy the bits
    at every call. On a CPU weights and bits share their memory.
    """
    _check_parts(spec, params)
    if not _stacks_are(spec, params, jnp.bfloat16):
        return params
    stacks = {name: params[name] for name, *_ in spec.runs}
    bits = jax.tree.map(lambda leaf: jax.device_put(np.asarray(leaf).view(np.uint16), leaf.sharding), stacks)
    return {**params, **bits}


def _stacks_are(spec: DecoderSpec, params: Any, dtype: Any) -> bool:
    """Whether every weight of every block is of this type."""
    return all(leaf.dtype == dtype for name, *_ in spec.runs for leaf in jax.tree.leaves(params[name]))


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _forward(
    spec: DecoderSpec, params: Any, embedded: jax.Array, past: PrefixCache | None, places: Places | None
) -> jax.Array:
    """`trunk` of blocks in bfloat16.

    XLA's CPU compiler slices no bfloat16: it would widen the weights of all layers at every call and round those of
    each layer again. There the scan slices their bits.
    """

    plain = functools.partial(_plain_forward, spec)

    def of_bits(params: Any, *given: Any) -> jax.Array:
        stacks = {name: params[name] for name, *_ in spec.runs}
        bits = jax.tree.map(lambda leaf: lax.bitcast_convert_type(leaf, jnp.uint16), stacks)
        return plain({**params, **bits}, *given, of_bits=True)

    return lax.platform_dependent(params, embedded, past, places, cpu=of_bits, default=plain)


def _plain_forward(
    spec: DecoderSpec,
    params: Any,
    embedded: jax.Array,
    past: PrefixCache | None,
    places: Places | None = None,
    *,
    of_bits: bool = False,
) -> jax.Array:
    decoder = _Decoder(spec, of_bits=of_bits)
    return decoder.apply({"params": params}, embedded, None, past, places)[0]  # type: ignore[return-value]


_forward.defvjp(
    lambda spec, *given: jax.vjp(functools.partial(_plain_forward, spec), *given),
    lambda spec, backward, cotangent: backward(cotangent),
)


def trunk_with_cache(
    spec: DecoderSpec, params: Any, embedded: jax.Array, past: PrefixCache | None = None
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """`trunk`, and the keys and values of the given tokens in every layer: two arrays [L, B, T, G, d] float32."""
    decoder = _Decoder(spec, keep=True, of_bits=_stacks_are(spec, params, jnp.uint16))
    stream, cache = decoder.apply({"params": params}, embedded, None, past)  # type: ignore[misc]
    return stream, cache[0], cache[1]  # type: ignore[return-value]


def readout(spec: DecoderSpec, params: Any) -> jax.Array:
    """The matrix [V, D] such that logits = hidden @ readout.T, before any soft cap."""
    _check_parts(spec, params)
    return params["embedding"]["tokens"] if spec.tied_head else params["head"]["kernel"]


def logits(spec: DecoderSpec, params: Any, tokens: jax.Array) -> jax.Array:
    """Next-token logits [B, T, V], float32, of tokens [B, T]. Memory B * T * V: for short inputs and tests."""
    states, table = hidden(spec, params, tokens), readout(spec, params)
    output = product("btd,vd->btv", states, table)
    return output if spec.soft_cap is None else spec.soft_cap * jnp.tanh(output / spec.soft_cap)


def init_params(spec: DecoderSpec, key: jax.Array, dtype: Any = jnp.float32) -> dict[str, Any]:
    """Random parameters of type `dtype` by GPT-2's rule.

    Weights are normal with standard deviation 0.02, those of the two projections back into the residual
    stream with 0.02 / sqrt(2 L); biases 0, norm factors 1 (Radford et al. 2019, section 2.3).
    """
    return _init(spec, key, jnp.dtype(dtype))


@functools.partial(jax.jit, static_argnums=(0, 2))
def _init(spec: DecoderSpec, key: jax.Array, dtype: jnp.dtype) -> dict[str, Any]:
    variables = _Decoder(spec, dtype).init(key, jnp.zeros((1, 1, spec.embedded_width)), None)
    return dict(variables["params"])


class _Decoder(nn.Module):
    """Positions, L blocks in a scan and the final norm: everything between the embedding and the readout.

    Returns the stream and, with `keep`, the keys and values of every layer.
    """

    spec: DecoderSpec
    param_dtype: Any = jnp.float32
    remat: bool = False
    keep: bool = False
    dropout: tuple[float, float] | None = None  # of the stream and of low-rank paths
    of_bits: bool = False  # the stacks are bfloat16 as uint16

    @nn.compact
    def __call__(
        self,
        embedded: jax.Array,
        probes: Mapping[str, jax.Array] | None,
        past: PrefixCache | None = None,
        places: Places | None = None,
    ) -> tuple[jax.Array, tuple[jax.Array, jax.Array] | None]:
        spec, dtype = self.spec, self.param_dtype
        length = embedded.shape[1] if places is None else places.index.shape[1]
        probe = None if probes is None else probes["trunk"]
        first = None if past is None else past.first
        stream = embedded.astype(jnp.float32) * spec.embedding_scale
        noisy, low_rank = (0.0, 0.0) if self.dropout is None else self.dropout
        if spec.embedding_width is not None:
            stream = _Dense(spec.width, dtype, bias=False, dropout=low_rank, name="embedding_in")(stream, probe)
        stream = _Embedding(spec, dtype, name="embedding")(stream, probe, first, places)
        if spec.embedding_norm:
            stream = _Norm(spec.norm, dtype, name="embedding_norm")(stream, probe)
        stream = _dropped(self, stream, noisy)
        turns, kinds = _turns(spec, length, first)
        if places is not None:
            turns = jax.tree.map(lambda of_token: of_token[..., places.flat % length, :], turns)

        # prevent_cse: the scan already keeps the recomputation apart from the first computation
        block = nn.remat(_Block, prevent_cse=False) if self.remat else _Block
        if self.of_bits:
            block = nn.map_variables(block, "params", _from_bits)
        windows = _windows(spec, length if past is None else past.key.shape[2] + length)
        of_layer = {
            "scale": jnp.asarray(spec.attention.scales, jnp.float32),
            "window": jnp.asarray(windows, jnp.int32) if isinstance(windows, tuple) else None,
            "turns": kinds,
            "probe": None if probes is None else probes["layers"],
            "past": None if past is None else past.by_layer(),
        }
        window = None if isinstance(windows, tuple) else windows
        kept = []
        by_layer: dict[Any, Any] = {"params": 0} if self.dropout is None else {"params": 0, _LOW_RANK: 0}
        drawn: dict[Any, bool] = {"params": True} if self.dropout is None else {"params": True, "dropout": True}
        for name, layers, mlp in spec.runs:
            blocks = nn.scan(
                block,
                variable_axes=by_layer,
                split_rngs=drawn,
                in_axes=(0, nn.broadcast),  # pyright: ignore[reportArgumentType]
                length=len(layers),
            )(spec, mlp, dtype, window, self.keep, self.dropout, name=name)
            of_run = jax.tree.map(operator.itemgetter(slice(layers.start, layers.stop)), of_layer)
            stream, keys_and_values = blocks(stream, of_run, (turns, places))
            kept.append(keys_and_values)
        if spec.final_norm:
            stream = _Norm(spec.norm, dtype, name="final_norm")(stream, probe)
        if spec.embedding_width is not None:
            narrow = _Dense(spec.embedding_width, dtype, bias=False, dropout=low_rank, name="embedding_out")
            stream = narrow(stream, probe)
        if spec.head_bias:
            stream = jnp.concatenate([stream, jnp.ones_like(stream[..., :1])], axis=-1)
        stream = _scaled(stream, spec.logit_scale)
        if self.is_initializing() and not spec.tied_head:
            shape = spec.vocab_size, spec.readout_width
            _Kernel(shape, _INIT_STD, dtype, int(spec.head_bias), name="head")()  # used outside (`readout`)
        return stream, jax.tree.map(lambda *parts: jnp.concatenate(parts), *kept)


def _from_bits(variables: Any) -> Any:
    return jax.tree.map(lambda leaf: lax.bitcast_convert_type(leaf, jnp.bfloat16), variables)


class _Block(nn.Module):
    """Attention and multilayer perceptron in the spec's layout."""

    spec: DecoderSpec
    mlp: Mlp | Experts  # the perceptron or the experts of the layer
    param_dtype: Any
    # the window of all layers, known while tracing; None if `of_layer` holds one for each, or none has any
    window: int | None
    keep: bool = False  # true returns keys and values beside the stream
    dropout: tuple[float, float] | None = None  # of the stream and of low-rank paths

    @nn.compact
    def __call__(
        self,
        stream: jax.Array,
        of_layer: Mapping[str, Any],
        of_all: tuple[tuple[jax.Array, jax.Array] | None, Places | None],
    ) -> tuple[jax.Array, tuple[jax.Array, jax.Array] | None]:
        layout, probe = self.spec.layout, of_layer["probe"]
        cache: list[jax.Array] = []
        parts = (
            ("attention", functools.partial(self._attention, of_layer=of_layer, of_all=of_all, cache=cache)),
            ("mlp", functools.partial(self._mlp, probe=probe)),
        )
        given = stream
        shared = self._norm("attention_norm", stream, probe) if layout == "shared" else None
        noisy = 0.0 if self.dropout is None else self.dropout[0]

        def scaled(output: jax.Array) -> jax.Array:
            return _scaled(_dropped(self, output, noisy), self.spec.residual_scale)

        for name, part in parts:
            if layout == "post":
                stream = self._norm(f"{name}_norm", stream + scaled(part(stream)), probe)
                continue
            if layout == "branch":
                stream = stream + scaled(self._norm(f"{name}_norm", part(stream), probe))
                continue
            if shared is None:
                output = part(self._norm(f"{name}_norm", given if layout == "parallel" else stream, probe))
            else:
                output = part(shared)
            if layout == "sandwich":
                output = self._norm(f"{name}_post_norm", output, probe)
            stream = stream + scaled(output)
        return stream, (cache[0], cache[1]) if self.keep else None

    def _norm(self, name: str, inputs: jax.Array, probe: jax.Array | None, *, by_head: bool = False) -> jax.Array:
        return _Norm(self.spec.norm, self.param_dtype, by_head, name=name)(inputs, probe)

    def _dense(
        self, name: str, features: int, bias: bool, inputs: jax.Array, probe: jax.Array | None, *, out: bool = False
    ) -> jax.Array:
        rate = 0.0 if self.dropout is None else self.dropout[1]
        return _Dense(features, self.param_dtype, self._std(out), bias, rate, name=name)(inputs, probe)

    def _std(self, out: bool) -> float:
        return _INIT_STD / math.sqrt(2 * self.spec.num_layers) if out else _INIT_STD

    def _attention(
        self,
        inputs: jax.Array,
        of_layer: Mapping[str, Any],
        of_all: tuple[tuple[jax.Array, jax.Array] | None, Places | None],
        cache: list[jax.Array],
    ) -> jax.Array:
        attention, positions = self.spec.attention, self.spec.positions
        turns, places = of_all
        probe, past = of_layer["probe"], of_layer["past"]
        if turns is not None and (kind := of_layer["turns"]) is not None:
            turns = turns[0][kind], turns[1][kind]
        heads = self._heads if attention.latent is None else self._latent_heads
        query, key, value = heads(inputs, probe, turns)
        cache += [key, value]
        sinks = self._sinks(inputs, probe)
        if places is not None:
            query, key, value, sinks = jax.tree.map(places.in_rows, (query, key, value, sinks))
        window = self.window if of_layer["window"] is None else of_layer["window"]
        mixed = attend(
            query * of_layer["scale"],
            key,
            value,
            dtype=self.variables["params"]["qkv" if attention.latent is None else "kv_up"]["kernel"].dtype,
            window=window,
            soft_cap=attention.soft_cap,
            past=past,
            sinks=sinks,
            slopes=positions.slopes(attention.num_heads) if isinstance(positions, AlibiPositions) else None,
        )
        if places is not None:
            mixed = places.in_one_row(mixed)
        return self._dense("attention_out", self.spec.width, attention.out_bias, mixed, probe, out=True)

    def _heads(
        self, inputs: jax.Array, probe: jax.Array | None, turns: tuple[jax.Array, jax.Array] | None
    ) -> tuple[jax.Array, jax.Array, jax.Array]:
        """Queries [B, T, H, d], keys and values [B, T, G, d]."""
        attention = self.spec.attention
        batch, length, _ = inputs.shape
        widths = attention.qkv_widths
        fused = self._dense("qkv", sum(widths), attention.qkv_bias, inputs, probe)
        parts = jnp.split(fused, (widths[0], widths[0] + widths[1]), axis=-1)
        if attention.qk_norm == "full":
            parts[:2] = self._norm("query_norm", parts[0], probe), self._norm("key_norm", parts[1], probe)
        query, key, value = (
            part.reshape(batch, length, part.shape[-1] // attention.head_dim, attention.head_dim) for part in parts
        )
        if attention.qk_norm in ("head", "each"):
            norm = functools.partial(self._norm, probe=probe, by_head=attention.qk_norm == "each")
            query, key = norm("query_norm", query), norm("key_norm", key)
        if (limit := attention.qkv_clip) is not None:
            query, key, value = (jnp.clip(part, -limit, limit) for part in (query, key, value))
        return self._turned(query, turns), self._turned(key, turns), value

    def _latent_heads(
        self, inputs: jax.Array, probe: jax.Array | None, turns: tuple[jax.Array, jax.Array] | None
    ) -> tuple[jax.Array, jax.Array, jax.Array]:
        """Queries and keys [B, T, H, d], of which the last coordinates turn, and values [B, T, H, e]."""
        attention, positions = self.spec.attention, self.spec.positions
        latent = attention.latent
        assert latent is not None
        assert isinstance(positions, RotaryPositions)
        heads, bias, plain = attention.num_heads, attention.qkv_bias, attention.head_dim - positions.dim
        norm = RmsNorm(latent.eps)
        narrow = inputs
        if latent.query_rank is not None:
            narrow = self._dense("query_down", latent.query_rank, bias, inputs, probe)
            narrow = _Norm(norm, self.param_dtype, name="query_norm")(narrow, probe)
        query = self._dense("query", heads * attention.head_dim, False, narrow, probe)
        query = query.reshape(*inputs.shape[:2], heads, attention.head_dim)
        down = self._dense("kv_down", latent.rank + positions.dim, bias, inputs, probe)
        narrow, shared = jnp.split(down, [latent.rank], -1)
        narrow = _Norm(norm, self.param_dtype, name="key_norm")(narrow, probe)
        both = self._dense("kv_up", heads * (plain + latent.value_dim), False, narrow, probe)
        key, value = jnp.split(both.reshape(*inputs.shape[:2], heads, plain + latent.value_dim), [plain], -1)
        turned = jnp.broadcast_to(self._turned(shared[:, :, None], turns), (*key.shape[:3], positions.dim))
        query = jnp.concatenate([query[..., :plain], self._turned(query[..., plain:], turns)], -1)
        return query, jnp.concatenate([key, turned], -1), value

    def _turned(self, heads: jax.Array, turns: tuple[jax.Array, jax.Array] | None) -> jax.Array:
        if turns is None:
            return heads
        return rotate(heads, *turns, interleaved=getattr(self.spec.positions, "interleaved", False))

    def _sinks(self, inputs: jax.Array, probe: jax.Array | None) -> jax.Array | None:
        """The sink of each head, for every token: [B, T, H], or None."""
        if not self.spec.attention.sinks:
            return None
        zeros = jnp.zeros((*inputs.shape[:2], self.spec.attention.num_heads), jnp.float32)
        return _Bias(self.param_dtype, name="sinks")(zeros, probe)

    def _mlp(self, inputs: jax.Array, probe: jax.Array | None) -> jax.Array:
        mlp = self.mlp
        if isinstance(mlp, Experts):
            from tdd.models.experts import mixture  # most models have none

            of_biases = mlp.bias_shapes(self.spec.width)
            deviations = {"correction": 0.0, "mlp_out": self._std(True)}
            weights = {
                name: _Expert(
                    shape, of_biases.get(name), deviations.get(name, _INIT_STD), self.param_dtype, name=name
                )()
                for name, shape in mlp.kernel_shapes(self.spec.width).items()
            }
            kernels, biases = ({name: both[i] for name, both in weights.items() if len(both) > i} for i in (0, 1))
            output = mixture(mlp, _ACTIVATIONS[mlp.activation], kernels, inputs, probe, biases)
            if mlp.shared_width:
                shared = Mlp(mlp.shared_width, mlp.activation, gated=True, bias=False)
                output = output + self._perceptron("shared", shared, inputs, probe)
            return output
        return self._perceptron("mlp", mlp, inputs, probe)

    def _perceptron(self, name: str, mlp: Mlp, inputs: jax.Array, probe: jax.Array | None) -> jax.Array:
        """One perceptron, whose parameters begin with the name."""
        activation = _ACTIVATIONS[mlp.activation]
        inner = self._dense(f"{name}_in", mlp.width * (2 if mlp.gated else 1), mlp.bias, inputs, probe)
        if mlp.gated:
            gate, up = jnp.split(inner, 2, axis=-1)
            inner = activation(gate) * up
        else:
            inner = activation(inner)
        return self._dense(f"{name}_out", self.spec.width, mlp.bias, inner, probe, out=True)


class _Embedding(nn.Module):
    """Adds learned positions. The token table belongs here too, but is looked up outside (`embed`)."""

    spec: DecoderSpec
    param_dtype: Any

    @nn.compact
    def __call__(
        self,
        stream: jax.Array,
        probe: jax.Array | None,
        after: int | jax.Array | None = None,
        places: Places | None = None,
    ) -> jax.Array:
        spec, normal = self.spec, nn.initializers.normal(_INIT_STD)
        if self.is_initializing():
            self.param("tokens", normal, (spec.vocab_size, spec.embedded_width), self.param_dtype)
        if not isinstance(spec.positions, LearnedPositions):
            return stream
        count, first = spec.positions.count, spec.positions.offset
        table = self.param("positions", normal, (count + first, spec.width), self.param_dtype)
        if after is None and places is None:
            rows = table[first : first + stream.shape[1]].astype(jnp.float32)
        else:
            of_token = jnp.arange(stream.shape[1]) if places is None else places.flat % places.index.shape[1]
            from_first = first + (0 if after is None else after)
            rows = jnp.take(table, from_first + of_token, axis=0, mode="clip").astype(jnp.float32)
        return stream + rows if probe is None else grad_norm.add_rows(stream, rows, probe)


class _Norm(nn.Module):
    """Layer or root-mean-square normalisation over the last axis, in float32."""

    norm: LayerNorm | RmsNorm
    param_dtype: Any
    by_head: bool = False  # true if each entry of the last axis but one has a scale of its own, and none a bias

    @nn.compact
    def __call__(self, inputs: jax.Array, probe: jax.Array | None) -> jax.Array:
        centred = inputs
        if isinstance(self.norm, LayerNorm):
            centred = inputs - jnp.mean(inputs, axis=-1, keepdims=True)
        variance = jnp.mean(jnp.square(centred), axis=-1, keepdims=True)
        normed = centred * lax.rsqrt(variance + self.norm.eps)
        if isinstance(self.norm, LayerNorm) and not self.norm.affine:
            return normed
        plus_one = isinstance(self.norm, RmsNorm) and self.norm.plus_one
        initial = nn.initializers.zeros if plus_one else nn.initializers.ones
        factor = self.param("scale", initial, inputs.shape[-2 if self.by_head else -1 :], self.param_dtype)
        factor = factor.astype(jnp.float32) + float(plus_one)
        if probe is None:
            output = normed * factor
        else:
            flat = normed.reshape(*inputs.shape[: inputs.ndim - factor.ndim], factor.size)
            output = grad_norm.scale(flat, factor.reshape(-1), probe).reshape(inputs.shape)
        biased = isinstance(self.norm, LayerNorm) and self.norm.bias and not self.by_head
        return _biased(self, output, probe) if biased else output


class _Dense(nn.Module):
    """x W + b with W [in, out], and with factors of LoRA x W + dropped(x) A B + b; float32 out."""

    features: int
    param_dtype: Any
    std: float = _INIT_STD
    bias: bool = True
    dropout: float = 0.0

    @nn.compact
    def __call__(self, inputs: jax.Array, probe: jax.Array | None) -> jax.Array:
        shape = (inputs.shape[-1], self.features)
        kernel = self.param("kernel", nn.initializers.normal(self.std), shape, self.param_dtype)
        if probe is not None:
            output = grad_norm.dense(inputs, kernel, probe)
        elif kernel.dtype == jnp.bfloat16:  # the gradient's products take bfloat16 factors too
            output = grad_norm.dense(inputs, kernel, jnp.zeros(inputs.shape[0]))
        else:
            output = product("btd,df->btf", inputs.astype(kernel.dtype), kernel)
        if self.has_variable(_LOW_RANK, "a"):
            a, b = (self.get_variable(_LOW_RANK, name) for name in ("a", "b"))
            narrow = product("btd,dr->btr", _dropped(self, inputs.astype(a.dtype), self.dropout), a)
            output = output + product("btr,rf->btf", narrow, b)
        return _biased(self, output, probe) if self.bias else output


class _Kernel(nn.Module):
    """A kernel alone."""

    shape: tuple[int, ...]
    std: float
    param_dtype: Any
    biases: int = 0  # last columns that hold biases, which begin with 0

    @nn.compact
    def __call__(self) -> jax.Array:
        return self.param("kernel", self._initial, self.shape, self.param_dtype)

    def _initial(self, key: jax.Array, shape: tuple[int, ...], dtype: Any) -> jax.Array:
        drawn = nn.initializers.normal(self.std)(key, shape, dtype)
        return drawn.at[..., shape[-1] - self.biases :].set(0) if self.biases else drawn


class _Expert(nn.Module):
    """A kernel, and a bias if it has a shape: (kernel,) or (kernel, bias)."""

    shape: tuple[int, ...]
    bias: tuple[int, ...] | None
    std: float
    param_dtype: Any

    @nn.compact
    def __call__(self) -> tuple[jax.Array, ...]:
        kernel = self.param("kernel", nn.initializers.normal(self.std), self.shape, self.param_dtype)
        if self.bias is None:
            return (kernel,)
        return kernel, self.param("bias", nn.initializers.zeros, self.bias, self.param_dtype)


class _Bias(nn.Module):
    """A bias alone, over the last axis."""

    param_dtype: Any

    @nn.compact
    def __call__(self, inputs: jax.Array, probe: jax.Array | None) -> jax.Array:
        return _biased(self, inputs, probe)


def _biased(module: Any, inputs: jax.Array, probe: jax.Array | None) -> jax.Array:
    """Add the module's bias, over the last axis."""
    bias = module.param("bias", nn.initializers.zeros, inputs.shape[-1:], module.param_dtype).astype(jnp.float32)
    return inputs + bias if probe is None else grad_norm.add_bias(inputs, bias, probe)


def _dropped(module: Any, values: jax.Array, rate: float) -> jax.Array:
    """Each value 0 with probability `rate`, else divided by 1 - rate; a rate of 0 draws nothing."""
    if rate == 0:
        return values
    kept = jax.random.bernoulli(module.make_rng("dropout"), 1 - rate, values.shape)
    return jnp.where(kept, values / (1 - rate), 0.0)


def _scaled(values: jax.Array, factor: float) -> jax.Array:
    """Values times a factor; a factor of 1 leaves no operation in the program."""
    return values if factor == 1 else values * factor


def _turns(
    spec: DecoderSpec, length: int, first: int | jax.Array | None
) -> tuple[tuple[jax.Array, jax.Array] | None, jax.Array | None]:
    """Cosines and sines [T, dim/2], or [K, T, dim/2] of K encodings with the number of each layer's [L]."""
    if not isinstance(spec.positions, RotaryPositions):
        return None, None
    if not spec.layer_positions:
        return rotation(spec.positions, length, first), None
    kinds = [*dict.fromkeys(spec.layer_positions)]
    still = jnp.ones((length, spec.positions.dim // 2)), jnp.zeros((length, spec.positions.dim // 2))
    turns = [still if kind is None else rotation(kind, length, first) for kind in kinds]
    cosines, sines = (jnp.stack(parts) for parts in zip(*turns, strict=True))
    return (cosines, sines), jnp.asarray([kinds.index(kind) for kind in spec.layer_positions], jnp.int32)


def _windows(spec: DecoderSpec, length: int) -> int | tuple[int, ...] | None:
    """The window of every layer: None if none shortens a sequence of this length, a number if all are equal."""
    windows = tuple(length if window is None else min(window, length) for window in spec.attention.windows)
    if set(windows) == {length}:
        return None
    return windows[0] if len(set(windows)) == 1 else windows
