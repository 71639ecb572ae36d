"""The architecture of a decoder as one frozen, hashable value.

A `DecoderSpec` says everything that decides the computation and nothing else: no weights, no dropout, no generation
settings. Every part that differs between families is a value of its own (`LayerNorm`, `LearnedPositions`, ...), so a
new norm, position encoding or multilayer perceptron is one more class. Two models with equal specs share their
compiled programs.

Symbols: V vocabulary, D width of the residual stream, L layers, H heads, F inner width of the MLP, P
positions.
"""

from __future__ import annotations

import dataclasses
from typing import ClassVar, Literal, get_args

from tdd.models.rotary import RotaryPositions
from tdd.validate import InputError
from tdd.validate.files import check_choice, check_divides, check_positive

Activation = Literal["gelu", "gelu_tanh", "relu", "silu", "tanh"]
"""Elementwise nonlinearity: `gelu` is x Phi(x), `gelu_tanh` its tanh approximation."""

Layout = Literal["pre", "post", "parallel", "shared", "sandwich", "branch"]
"""Places of the norms in a block, with h the residual stream:

pre:       h += attention(norm(h));            h += mlp(norm(h))
post:      h = norm(h + attention(h));         h = norm(h + mlp(h))
parallel:  h += attention(norm(h)) + mlp(other norm(h))
shared:    n = norm(h);                        h += attention(n) + mlp(n)
sandwich:  h += norm(attention(norm(h)));      h += norm(mlp(norm(h)))
branch:    h += norm(attention(h));            h += norm(mlp(h))

What is added to h is multiplied by the spec's `residual_scale` first.
"""


@dataclasses.dataclass(frozen=True)
class LayerNorm:
    """(x - mean) / sqrt(biased variance + eps), over the width; if `affine`, times a scale, and plus a `bias`."""

    eps: float = 1e-5
    affine: bool = True
    bias: bool = True

    def __post_init__(self) -> None:
        check_positive(eps=self.eps)
        object.__setattr__(self, "bias", self.bias and self.affine)


@dataclasses.dataclass(frozen=True)
class RmsNorm:
    """x / sqrt(mean(x^2) + eps) * scale, over the width; if `plus_one`, the stored scale is the factor minus one."""

    eps: float = 1e-6
    plus_one: bool = False

    def __post_init__(self) -> None:
        check_positive(eps=self.eps)


@dataclasses.dataclass(frozen=True)
class LearnedPositions:
    """One trained vector per position, added to the token embedding."""

    count: int  # P, also the longest sequence that the model accepts
    offset: int = 0  # rows of the table before that of the first position; it has count + offset rows

    def __post_init__(self) -> None:
        check_positive(count=self.count)

    @property
    def max_length(self) -> int:
        """P."""
        return self.count


@dataclasses.dataclass(frozen=True)
class AlibiPositions:
    """Scores of attention that fall with the distance of the two tokens, in each head by a slope of its own.

    With P the least power of two that is no less than H, slopes are 2^(-8 h / P), for h = 1, ..., P where H = P, and
    else for h = 2, 4, ..., P and then for h = 1, 3, ... until there are H.

    Reference: Press et al. (2022, arXiv:2108.12409), section 3.
    """

    max_length: int  # longest sequence that the model accepts

    def __post_init__(self) -> None:
        check_positive(max_length=self.max_length)

    def slopes(self, num_heads: int) -> tuple[float, ...]:
        """H numbers by which a score falls with each position of distance."""
        power = 1 << (num_heads - 1).bit_length()
        order = range(1, power + 1) if power == num_heads else (*range(2, power + 1, 2), *range(1, power, 2))
        return tuple(2.0 ** (-8 * h / power) for h in order[:num_heads])


@dataclasses.dataclass(frozen=True)
class Latent:
    """Keys and values of all heads from one narrow vector a token, and one rotated key that the heads share.

    With [c, r] = x W_kv_down (of widths `rank` and that of the rotary positions), [k_h, v_h] = norm(c) W_kv_up for each
    head h: its key is k_h beside the rotated r, its value v_h. Queries are x W_query, or norm(x W_query_down) W_query,
    and their last coordinates turn. Norms are root-mean-square norms.

    Reference: DeepSeek-AI (2024, arXiv:2405.04434), section 2.1.
    """

    rank: int  # width of c
    value_dim: int  # width of the value of one head
    query_rank: int | None = None  # width of x W_query_down, or None without it
    eps: float = 1e-6  # of the norms

    def __post_init__(self) -> None:
        check_positive(rank=self.rank, value_dim=self.value_dim, query_rank=self.query_rank or 1, eps=self.eps)


@dataclasses.dataclass(frozen=True)
class Attention:
    """Causal multi-head self-attention, softmax(cap(scale * q k^T) - slope * distance) v; slopes are of the positions.

    With a sink s the softmax has one more term, e^s, for which there is no value.
    """

    num_heads: int  # H
    head_dim: int  # width of one head; H * head_dim need not equal D
    scales: tuple[float, ...]  # L numbers, the factor on q k^T in each layer
    num_kv_heads: int | None = None  # key and value heads, each shared by H / num_kv_heads query heads; None means H
    # L entries: number of positions that a token sees, itself included, or None if it sees all before it. Empty means
    # all None
    windows: tuple[int | None, ...] = ()
    soft_cap: float | None = None  # c in cap(x) = c tanh(x / c), or None
    qkv_bias: bool = True  # True if queries, keys and values have biases
    out_bias: bool = True  # True if the projection back has one
    # what is normalised before the rotation, by the spec's norm with scales of its own: each head of queries and keys
    # with one scale for all heads ("head"), or with a scale for each and no bias ("each"); or all heads of the queries
    # together and all of the keys ("full"); or None
    qk_norm: Literal["head", "each", "full"] | None = None
    # queries, keys and values are clipped to plus and minus this, after any norm and before the rotation; or None
    qkv_clip: float | None = None
    # how keys and values are compressed, or None; `qkv_bias` is then that of the projections down
    latent: Latent | None = None
    sinks: bool = False  # True if each head has a sink, a trained number

    def __post_init__(self) -> None:
        check_positive(num_heads=self.num_heads, head_dim=self.head_dim)
        if self.latent is not None and (self.kv_heads != self.num_heads or self.qk_norm or self.qkv_clip is not None):
            raise InputError("latent needs num_kv_heads equal to num_heads, and neither qk_norm nor qkv_clip")
        object.__setattr__(self, "num_kv_heads", self.kv_heads)
        object.__setattr__(self, "windows", tuple(self.windows) or (None,) * len(self.scales))
        check_divides(num_kv_heads=self.kv_heads, num_heads=self.num_heads)
        for window in self.windows:
            if window is not None:
                check_positive(window=window)
        for name in ("soft_cap", "qkv_clip"):
            if getattr(self, name) is not None:
                check_positive(**{name: getattr(self, name)})

    @property
    def kv_heads(self) -> int:
        """Number of key heads, and of value heads."""
        return self.num_heads if self.num_kv_heads is None else self.num_kv_heads

    @property
    def value_dim(self) -> int:
        """Width of the value of one head."""
        return self.head_dim if self.latent is None else self.latent.value_dim

    @property
    def qkv_widths(self) -> tuple[int, int, int]:
        """Coordinates of all queries, keys and values of a token: without `latent` columns of the fused projection."""
        return self.num_heads * self.head_dim, self.kv_heads * self.head_dim, self.kv_heads * self.value_dim


@dataclasses.dataclass(frozen=True)
class Mlp:
    """activation(x W_in + b_in) W_out + b_out, or gated: (activation(x W_gate) * (x W_up)) W_out."""

    width: int  # F
    activation: Activation  # the nonlinearity
    # True if there is a gate; W_gate and W_up are side by side in one kernel [D, 2F], biases likewise
    gated: bool = False
    bias: bool = True  # True if the projections have biases

    def __post_init__(self) -> None:
        check_positive(width=self.width)
        check_choice("activation", self.activation, get_args(Activation))


@dataclasses.dataclass(frozen=True)
class ClampedGate:
    """g sigmoid(alpha g) (u + 1) in place of activation(g) u, of a gate g = min(x W_gate, limit) and u = x W_up that is
    clipped to plus and minus limit."""

    alpha: float
    limit: float

    def __post_init__(self) -> None:
        check_positive(alpha=self.alpha, limit=self.limit)


@dataclasses.dataclass(frozen=True)
class Experts:
    """A mixture of E gated perceptrons, k of them for each token: sum over those of s p_e mlp_e(x).

    p = softmax(x W_router + b_router), in float32; the k largest count, of the groups of experts with the largest
    members where there are several groups. With `corrected`, p is the sigmoid instead, experts are chosen by p plus a
    trained number of each, and groups by the sum of their two largest. One more perceptron, which every token meets,
    may be added.

    Reference: DeepSeek-AI (2024, arXiv:2412.19437), section 2.1.2, for `corrected`.
    """

    num_experts: int  # E
    top_k: int  # k
    width: int  # F of each expert
    activation: Activation  # the nonlinearity of the gate
    renormalised: bool = True  # True if the k weights p_e are divided by their sum
    groups: int = 1  # groups of E / groups consecutive experts
    kept_groups: int = 1  # groups in which a token's experts may lie
    scale: float = 1.0  # s
    shared_width: int = 0  # F of the perceptron without biases that every token meets, or 0 without it
    corrected: bool = False  # True if p is a sigmoid, and experts are chosen by corrected numbers
    bias: bool = False  # True if the router and the projections of every expert have biases
    clamped: ClampedGate | None = None  # what the gate of every expert does in place of `activation`, or None
    gated: ClassVar[bool] = True  # as in `Mlp`; always

    def __post_init__(self) -> None:
        check_positive(num_experts=self.num_experts, top_k=self.top_k, width=self.width)
        if self.top_k > self.num_experts:
            raise InputError(f"top_k={self.top_k} exceeds num_experts={self.num_experts}; use at most that")
        check_choice("activation", self.activation, get_args(Activation))
        check_positive(groups=self.groups, kept_groups=self.kept_groups, scale=self.scale)
        check_divides(groups=self.groups, num_experts=self.num_experts)
        within = min(self.kept_groups, self.groups) * (self.num_experts // self.groups)
        if self.top_k > within:
            raise InputError(f"top_k={self.top_k} exceeds the {within} experts of kept_groups={self.kept_groups}")

    def kernel_shapes(self, width: int) -> dict[str, tuple[int, ...]]:
        """Shapes of the routed kernels in a stream of width D; gate and up are side by side in "mlp_in"."""
        correction = {"correction": (self.num_experts,)} if self.corrected else {}
        return {
            **correction,
            "router": (width, self.num_experts),
            "mlp_in": (self.num_experts, width, 2 * self.width),
            "mlp_out": (self.num_experts, self.width, width),
        }

    def bias_shapes(self, width: int) -> dict[str, tuple[int, ...]]:
        """Shapes of a layer's biases, by the same names; none without `bias`."""
        shapes = self.kernel_shapes(width)
        return {name: (*shapes[name][:-2], shapes[name][-1]) for name in ("router", "mlp_in", "mlp_out") if self.bias}


@dataclasses.dataclass(frozen=True)
class DecoderSpec:
    """A decoder-only transformer.

    h = scaled embedding[tokens] (+ positions); L blocks; hidden = scaled norm(h); logits = cap(hidden readout^T).
    """

    vocab_size: int  # V
    width: int  # D
    num_layers: int  # L
    norm: LayerNorm | RmsNorm  # the normalisation, of the same kind at every place
    positions: LearnedPositions | RotaryPositions | AlibiPositions  # the position encoding
    attention: Attention  # the attention of every block
    mlp: Mlp | Experts  # the multilayer perceptron of every block, or its experts
    tied_head: bool = True  # True if the readout is the token embedding, False if it is a separate matrix
    layout: Layout = "pre"  # places of the norms in a block
    # L rotary encodings of the same width as `positions`, or None for a layer without positions; empty if every layer
    # has `positions`
    layer_positions: tuple[RotaryPositions | None, ...] = ()
    # L perceptrons or experts, `mlp` among them; empty if every layer has `mlp`
    layer_mlps: tuple[Mlp | Experts, ...] = ()
    embedding_norm: bool = False  # True if the stream is normalised before the first block too
    final_norm: bool = True  # True if the stream is normalised after the last block
    embedding_scale: float = 1.0  # factor on the token embeddings
    residual_scale: float = 1.0  # factor on what attention and perceptron add to the stream
    logit_scale: float = 1.0  # factor on the logits before any cap; `hidden` has it already
    # width of token embeddings and readout; if it is not D, one projection leads into the stream and one out of it.
    # None means D
    embedding_width: int | None = None
    soft_cap: float | None = None  # c in logits = c tanh(z / c), or None
    # True if each logit has a bias: the last column of the readout, which multiplies a 1 behind the hidden state
    head_bias: bool = False

    def __post_init__(self) -> None:
        check_positive(vocab_size=self.vocab_size, width=self.width, num_layers=self.num_layers)
        check_positive(embedding_scale=self.embedding_scale, embedding_width=self.embedding_width or self.width)
        check_positive(residual_scale=self.residual_scale, logit_scale=self.logit_scale)
        if self.embedding_width == self.width:
            object.__setattr__(self, "embedding_width", None)
        check_choice("layout", self.layout, get_args(Layout))
        by_layer = {"scales": self.attention.scales, "windows": self.attention.windows}
        by_layer |= {name: values for name in ("layer_positions", "layer_mlps") if (values := getattr(self, name))}
        for name, values in by_layer.items():
            if len(values) != self.num_layers:
                raise InputError(f"{name} must hold one value a layer ({self.num_layers}), got {len(values)}")
        for kind in filter(None, self.layer_positions):
            same = isinstance(self.positions, RotaryPositions) and (
                (kind.dim, kind.interleaved) == (self.positions.dim, self.positions.interleaved)
            )
            if not same or kind.max_length < self.max_length:
                raise InputError(f"layer_positions must turn the same pairs as positions, as far; got {kind}")
        if set(self.layer_positions) == {self.positions}:
            object.__setattr__(self, "layer_positions", ())
        if self.layer_mlps and self.mlp not in self.layer_mlps:
            raise InputError(f"layer_mlps must contain mlp, {self.mlp}; got {', '.join(map(str, {*self.layer_mlps}))}")
        if set(self.layer_mlps) == {self.mlp}:
            object.__setattr__(self, "layer_mlps", ())
        rotated, head_dim = getattr(self.positions, "dim", 0), self.attention.head_dim
        if rotated > head_dim:
            raise InputError(f"dim={rotated} coordinates cannot turn in a head of width {head_dim}; use at most that")
        if self.attention.latent is not None and not 0 < rotated < head_dim:
            raise InputError(f"latent needs rotary positions on a part of each head, got {self.positions}")
        if self.soft_cap is not None:
            check_positive(soft_cap=self.soft_cap)
        if self.head_bias and self.tied_head:
            raise InputError("head_bias=True needs tied_head=False: the embedding has no column for biases")

    @property
    def max_length(self) -> int:
        """Longest token sequence that the model accepts."""
        return self.positions.max_length

    @property
    def embedded_width(self) -> int:
        """Width of token embeddings, and of the readout without biases."""
        return self.embedding_width or self.width

    @property
    def readout_width(self) -> int:
        """Columns of the readout, that of the biases included."""
        return self.embedded_width + self.head_bias

    @property
    def mlps(self) -> tuple[Mlp | Experts, ...]:
        """The perceptron or the experts of each of the L layers."""
        return self.layer_mlps or (self.mlp,) * self.num_layers

    @property
    def runs(self) -> tuple[tuple[str, range, Mlp | Experts], ...]:
        """Consecutive layers of one kind: the name of their stack of parameters, their numbers, and what they have.

        The first stack is "layers", one that begins with layer n "layers_from_n".
        """
        mlps = self.mlps
        starts = [layer for layer in range(self.num_layers) if not layer or mlps[layer] != mlps[layer - 1]]
        ends = [*starts[1:], self.num_layers]
        return tuple(
            (f"layers_from_{start}" if start else "layers", range(start, end), mlps[start])
            for start, end in zip(starts, ends, strict=True)
        )

    @classmethod
    def gpt2(cls, *, vocab_size: int, width: int, num_layers: int, num_heads: int, max_length: int) -> DecoderSpec:
        """GPT-2's architecture at any size: heads of width/num_heads, an MLP of 4 width, tied head."""
        check_divides(num_heads=num_heads, width=width)
        head_dim = width // num_heads
        return cls(
            vocab_size=vocab_size,
            width=width,
            num_layers=num_layers,
            norm=LayerNorm(),
            positions=LearnedPositions(max_length),
            attention=Attention(num_heads, head_dim, (head_dim**-0.5,) * num_layers),
            mlp=Mlp(4 * width, "gelu_tanh"),
        )
