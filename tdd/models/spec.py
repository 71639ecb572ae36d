"""The architecture of a decoder as one frozen, hashable value.

A `DecoderSpec` says everything that decides the computation and nothing else: no weights, no dropout, no
generation settings. Every part that differs between families is a value of its own (`LayerNorm`,
`LearnedPositions`, ...), so a further norm, position code or multilayer perceptron is one more class
beside the existing ones. Two models with equal specs share their compiled programs.

Symbols: V vocabulary, D width of the residual stream, L layers, H heads, F inner width of the MLP, P
positions.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Literal, get_args

from tdd.models.rotary import RotaryPositions
from tdd.validate.checkpoints import check_choice, check_divides, check_positive
from tdd.validate.errors import InputError

__all__ = [
    "Activation",
    "Attention",
    "DecoderSpec",
    "LayerNorm",
    "Layout",
    "LearnedPositions",
    "Mlp",
    "RmsNorm",
    "RotaryPositions",
]

Activation = Literal["gelu", "gelu_tanh", "relu", "silu", "tanh"]
"""Elementwise non-linearity: `gelu` is x Phi(x), `gelu_tanh` its tanh approximation."""

Layout = Literal["pre", "post", "parallel", "sandwich"]
"""Where a block normalises, with h the residual stream:

pre:       h += attention(norm(h));            h += mlp(norm(h))
post:      h = norm(h + attention(h));         h = norm(h + mlp(h))
parallel:  h += attention(norm(h)) + mlp(other norm(h))
sandwich:  h += norm(attention(norm(h)));      h += norm(mlp(norm(h)))
"""


@dataclasses.dataclass(frozen=True)
class LayerNorm:
    """(x - mean) / sqrt(variance + eps) * scale + bias, over the width.

    Attributes:
      eps: added to the (biased) variance.
      affine: whether there are a scale and a bias; without them both are as if 1 and 0.
    """

    eps: float = 1e-5
    affine: bool = True

    def __post_init__(self) -> None:
        check_positive(eps=self.eps)


@dataclasses.dataclass(frozen=True)
class RmsNorm:
    """x / sqrt(mean(x^2) + eps) * scale, over the width.

    Attributes:
      eps: added to the mean square.
      plus_one: True where the stored scale is the factor minus one.
    """

    eps: float = 1e-6
    plus_one: bool = False

    def __post_init__(self) -> None:
        check_positive(eps=self.eps)


@dataclasses.dataclass(frozen=True)
class LearnedPositions:
    """One trained vector a position, added to the token embedding.

    Attributes:
      count: P, also the longest sequence that the model accepts.
      offset: rows of the table before that of the first position; it has count + offset rows.
    """

    count: int
    offset: int = 0

    def __post_init__(self) -> None:
        check_positive(count=self.count)

    @property
    def max_length(self) -> int:
        """P."""
        return self.count


@dataclasses.dataclass(frozen=True)
class Attention:
    """Causal multi-head self-attention, softmax(cap(scale * q k^T)) v.

    Attributes:
      num_heads: H.
      head_dim: width of one head; H * head_dim need not equal D.
      scales: L numbers, the factor on q k^T in each layer.
      num_kv_heads: heads of keys and values, each shared by H / num_kv_heads heads of queries; None means H.
      windows: L entries: how many positions a token sees, itself included, or None where it sees all before it.
        Empty means all of them None.
      soft_cap: c in cap(x) = c tanh(x / c), or None.
      qkv_bias: whether queries, keys and values have biases.
      out_bias: whether the projection back has one.
      qk_norm: whether each head of queries and keys is normalised, by the spec's norm with scales of its own,
        before the rotation.
    """

    num_heads: int
    head_dim: int
    scales: tuple[float, ...]
    num_kv_heads: int | None = None
    windows: tuple[int | None, ...] = ()
    soft_cap: float | None = None
    qkv_bias: bool = True
    out_bias: bool = True
    qk_norm: bool = False

    def __post_init__(self) -> None:
        check_positive(num_heads=self.num_heads, head_dim=self.head_dim)
        kv_heads = self.num_heads if self.num_kv_heads is None else self.num_kv_heads
        object.__setattr__(self, "num_kv_heads", kv_heads)
        object.__setattr__(self, "windows", tuple(self.windows) or (None,) * len(self.scales))
        _check_attention(self.num_heads, kv_heads, self.windows, self.soft_cap)

    @property
    def kv_heads(self) -> int:
        """Heads of keys and of values."""
        return self.num_heads if self.num_kv_heads is None else self.num_kv_heads

    @property
    def qkv_widths(self) -> tuple[int, int, int]:
        """Columns of queries, keys and values in the fused projection."""
        return self.num_heads * self.head_dim, self.kv_heads * self.head_dim, self.kv_heads * self.head_dim


@dataclasses.dataclass(frozen=True)
class Mlp:
    """activation(x W_in + b_in) W_out + b_out, or gated: (activation(x W_gate) * (x W_up)) W_out.

    Attributes:
      width: F.
      activation: the non-linearity.
      gated: whether there is a gate; W_gate and W_up stand side by side in one kernel [D, 2F], biases likewise.
      bias: whether the projections have biases.
    """

    width: int
    activation: Activation
    gated: bool = False
    bias: bool = True

    def __post_init__(self) -> None:
        check_positive(width=self.width)
        check_choice("activation", self.activation, get_args(Activation))


@dataclasses.dataclass(frozen=True)
class DecoderSpec:
    """A decoder-only transformer.

    h = scaled embedding[tokens] (+ positions); L blocks; hidden = norm(h); logits = cap(hidden readout^T).

    Attributes:
      vocab_size: V.
      width: D.
      num_layers: L.
      norm: the normalisation, the same kind at every place.
      positions: how a token learns where it stands.
      attention: the attention of every block.
      mlp: the multilayer perceptron of every block.
      tied_head: True where the readout is the token embedding itself, False where it is a matrix of its own.
      layout: where a block normalises.
      final_norm: whether the stream is normalised behind the last block.
      embedding_scale: factor on the token embeddings.
      embedding_width: width of token embeddings and readout where it is not D: then one projection leads into the
        stream and one out of it. None means D.
      soft_cap: c in logits = c tanh(z / c), or None.
    """

    vocab_size: int
    width: int
    num_layers: int
    norm: LayerNorm | RmsNorm
    positions: LearnedPositions | RotaryPositions
    attention: Attention
    mlp: Mlp
    tied_head: bool = True
    layout: Layout = "pre"
    final_norm: bool = True
    embedding_scale: float = 1.0
    embedding_width: int | None = None
    soft_cap: float | None = None

    def __post_init__(self) -> None:
        check_positive(vocab_size=self.vocab_size, width=self.width, num_layers=self.num_layers)
        check_positive(embedding_scale=self.embedding_scale, embedding_width=self.embedding_width or self.width)
        if self.embedding_width == self.width:
            object.__setattr__(self, "embedding_width", None)
        check_choice("layout", self.layout, get_args(Layout))
        _check_spec(
            num_layers=self.num_layers,
            scales=self.attention.scales,
            windows=self.attention.windows,
            head_dim=self.attention.head_dim,
            rotated=self.positions.dim if isinstance(self.positions, RotaryPositions) else 0,
            soft_cap=self.soft_cap,
        )

    @property
    def max_length(self) -> int:
        """Longest token sequence that the model accepts."""
        return self.positions.max_length

    @property
    def embedded_width(self) -> int:
        """Width of token embeddings and readout."""
        return self.embedding_width or self.width

    @classmethod
    def gpt2(cls, *, vocab_size: int, width: int, num_layers: int, num_heads: int, max_length: int) -> DecoderSpec:
        """GPT-2's architecture at any size: heads of width/num_heads, an MLP of 4 width, tied head."""
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


def _check_spec(
    *,
    num_layers: int,
    scales: Sequence[float],
    windows: Sequence[int | None],
    head_dim: int,
    rotated: int,
    soft_cap: float | None,
) -> None:
    """One attention scale and one window a layer; no more rotated coordinates than a head has."""
    for name, found in (("scales", scales), ("windows", windows)):
        if len(found) != num_layers:
            raise InputError(f"{name} must hold one number a layer ({num_layers}), got {len(found)}")
    if rotated > head_dim:
        raise InputError(f"dim={rotated} coordinates cannot turn in a head of width {head_dim}; use at most that")
    if soft_cap is not None:
        check_positive(soft_cap=soft_cap)


def _check_attention(num_heads: int, num_kv_heads: int, windows: Sequence[int | None], soft_cap: float | None) -> None:
    """Heads in equal groups, windows of at least one position."""
    check_divides(num_kv_heads=num_kv_heads, num_heads=num_heads)
    for window in windows:
        if window is not None:
            check_positive(window=window)
    if soft_cap is not None:
        check_positive(soft_cap=soft_cap)
