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
from typing import Literal, get_args

from tdd.validate.checkpoints import check_choice, check_positive, check_spec

__all__ = ["Activation", "Attention", "DecoderSpec", "LayerNorm", "LearnedPositions", "PlainMlp"]

Activation = Literal["gelu", "gelu_tanh", "relu", "silu", "tanh"]
"""Elementwise non-linearity: `gelu` is x Phi(x), `gelu_tanh` its tanh approximation."""


@dataclasses.dataclass(frozen=True)
class LayerNorm:
    """(x - mean) / sqrt(variance + eps) * scale + bias, over the width.

    Attributes:
      eps: added to the (biased) variance.
    """

    eps: float = 1e-5

    def __post_init__(self) -> None:
        check_positive(eps=self.eps)


@dataclasses.dataclass(frozen=True)
class LearnedPositions:
    """One trained vector a position, added to the token embedding.

    Attributes:
      count: P, also the longest sequence that the model accepts.
    """

    count: int

    def __post_init__(self) -> None:
        check_positive(count=self.count)


@dataclasses.dataclass(frozen=True)
class Attention:
    """Causal multi-head self-attention, softmax(scale * q k^T) v, with biases on every projection.

    Attributes:
      num_heads: H.
      head_dim: width of one head; H * head_dim need not equal D.
      scales: L numbers, the factor on q k^T in each layer.
    """

    num_heads: int
    head_dim: int
    scales: tuple[float, ...]

    def __post_init__(self) -> None:
        check_positive(num_heads=self.num_heads, head_dim=self.head_dim)


@dataclasses.dataclass(frozen=True)
class PlainMlp:
    """activation(x W_in + b_in) W_out + b_out.

    Attributes:
      width: F.
      activation: the non-linearity.
    """

    width: int
    activation: Activation

    def __post_init__(self) -> None:
        check_positive(width=self.width)
        check_choice("activation", self.activation, get_args(Activation))


@dataclasses.dataclass(frozen=True)
class DecoderSpec:
    """A decoder-only transformer with pre-norm residual blocks.

    h = embedding[tokens] + positions; L times h += attention(norm(h)), h += mlp(norm(h)); hidden = norm(h);
    logits = hidden readout^T.

    Attributes:
      vocab_size: V.
      width: D.
      num_layers: L.
      norm: the normalisation, the same kind at every place.
      positions: how a token learns where it stands.
      attention: the attention of every block.
      mlp: the multilayer perceptron of every block.
      tied_head: True where the readout is the token embedding itself, False where it is a matrix of its own.
    """

    vocab_size: int
    width: int
    num_layers: int
    norm: LayerNorm
    positions: LearnedPositions
    attention: Attention
    mlp: PlainMlp
    tied_head: bool = True

    def __post_init__(self) -> None:
        check_positive(vocab_size=self.vocab_size, width=self.width, num_layers=self.num_layers)
        check_spec(num_layers=self.num_layers, scales=self.attention.scales)

    @property
    def max_length(self) -> int:
        """Longest token sequence that the model accepts."""
        return self.positions.count

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
            mlp=PlainMlp(4 * width, "gelu_tanh"),
        )
