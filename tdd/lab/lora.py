"""Low-rank adaptation: only a few factors are trained; the model's own weights are unchanged.

W' = W + (alpha / rank) A B with W [..., in, out], A [..., in, rank] and B [..., rank, out] (Hu et al. 2022, section
4.1, with weights that act from the right). A is normal with variance 1 / in and B zero, so that training begins at the
base model exactly. A matrix that this package keeps fused (`qkv`) has one pair of factors for all of its columns.
With dropout, x W + (alpha / rank) dropped(x) A B while the factors are trained (the authors' code, and peft's).
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from tdd.lab.checks import check_count, check_dropout, check_range
from tdd.validate import InputError
from tdd.validate.arrays import key_of_seed


@dataclasses.dataclass(frozen=True)
class Lora:
    """The weights that are adapted, and the size of the adaptation.

    Attributes:
      rank: Number of columns of A and of rows of B.
      alpha: The product A B is scaled by alpha / rank.
      leaves: Names of the operations whose `kernel` is adapted; in this package's decoder, attention (`qkv`,
        `attention_out`) and multilayer perceptron (`mlp_in`, `mlp_out`).
      dropout: Probability that an entry of the input of A is 0 in a step, 0..1 without 1; for this package's decoders.

    Raises:
      InputError: A rank below 1, an alpha that is not positive (nothing would be trained), no name.
    """

    rank: int = 8
    alpha: float = 16.0
    leaves: tuple[str, ...] = ("qkv", "attention_out", "mlp_in", "mlp_out")
    dropout: float = 0.0

    def __post_init__(self) -> None:
        check_count("rank", self.rank, minimum=1)
        check_range("alpha", self.alpha, 1e-12)
        check_dropout(self.dropout)
        if isinstance(self.leaves, str) or not isinstance(self.leaves, Sequence) or not self.leaves:
            raise InputError(f"leaves must be a non-empty sequence of names, got {self.leaves!r}")
        for name in self.leaves:
            if not isinstance(name, str) or not name:
                raise InputError(f"leaves must hold names, got {name!r}")
            if self.leaves.count(name) > 1:
                raise InputError(f"leaves holds {name!r} twice; remove one")
        object.__setattr__(self, "leaves", tuple(self.leaves))


def adaptable(params: Any) -> tuple[str, ...]:
    """The default `leaves` that the model has, all of them if it has none."""
    known = {name.rpartition("/")[2] for name in _kernels(params)}
    return tuple(name for name in Lora.leaves if name in known) or Lora.leaves


def init_factors(lora: Lora, params: Any, *, seed: int) -> dict[str, dict[str, jax.Array]]:
    """The factors before the first step.

    Args:
      lora: Options of the adaptation.
      params: The base model's parameters, a nested dict.
      seed: Random seed of A; each matrix has a random stream of its own.

    Returns:
      Path of the adapted operation, as "layers/qkv" -> {"a": A, "b": B}, float32.

    Raises:
      InputError: A name without a kernel of at least two axes, or a rank beyond its smaller side.
    """
    kernels = _kernels(params)
    shapes = {name: tuple(leaf.shape) for name, leaf in kernels.items() if name.rpartition("/")[2] in lora.leaves}
    _check_adapted(lora.leaves, lora.rank, shapes, sorted(kernels))
    factors = {}
    for index, (name, (*layers, width, out)) in enumerate(shapes.items()):
        key = jax.random.fold_in(key_of_seed(seed), index)
        factors[name] = {
            "a": jax.random.normal(key, (*layers, width, lora.rank)) / math.sqrt(width),
            "b": jnp.zeros((*layers, lora.rank, out)),
        }
    return factors


def merge(lora: Lora, params: Any, factors: dict[str, dict[str, jax.Array]]) -> Any:
    """The base parameters with the product of the factors added to each adapted matrix, float32 throughout; pure.

    Before the first step these are the base model's numbers exactly.
    """

    def merged(path: tuple[Any, ...], leaf: jax.Array) -> jax.Array:
        operation, _, name = _joined(path).rpartition("/")
        weight = jnp.asarray(leaf, jnp.float32)
        if name != "kernel" or operation not in factors:
            return weight
        pair = factors[operation]
        return weight + (lora.alpha / lora.rank) * jnp.matmul(pair["a"], pair["b"], precision=jax.lax.Precision.HIGHEST)

    return jax.tree_util.tree_map_with_path(merged, params)


def low_rank_paths(lora: Lora, factors: dict[str, dict[str, jax.Array]]) -> dict[str, Any]:
    """The factors as nested dicts by the path of their operation, B scaled by alpha / rank.

    Raises:
      InputError: factors of a matrix that is no product with one input (the matrices of experts, the head).
    """
    nested: dict[str, Any] = {}
    for path, pair in factors.items():
        *above, name = path.split("/")
        if pair["a"].ndim > 2 + bool(above) or name == "head":
            raise InputError(f"dropout={lora.dropout:g} of LoRA is not possible on {path}; leave it out of leaves")
        place = nested
        for part in above:
            place = place.setdefault(part, {})
        place[name] = {"a": pair["a"], "b": (lora.alpha / lora.rank) * pair["b"]}
    return nested


def _kernels(params: Any) -> dict[str, Any]:
    """Every kernel of at least two axes, by the path of its operation."""
    named = ((_joined(path).rpartition("/"), leaf) for path, leaf in jax.tree_util.tree_flatten_with_path(params)[0])
    return {operation: leaf for (operation, _, name), leaf in named if name == "kernel" and len(leaf.shape) >= 2}


def _joined(path: tuple[Any, ...]) -> str:
    """A path in a tree as "layers/qkv/kernel"."""
    return jax.tree_util.keystr(path, simple=True, separator="/")


def _check_adapted(
    leaves: Sequence[str], rank: int, shapes: Mapping[str, tuple[int, ...]], known: Sequence[str]
) -> None:
    """Every name of LoRA's `leaves` is an operation with a matrix that the rank fits; `shapes` is by path."""
    for name in leaves:
        if not any(path.rsplit("/", 1)[-1] == name for path in shapes):
            raise InputError(
                f"leaves names {name!r}, but the model has no such matrix; it has {', '.join(known) or 'none'}"
            )
    for path, shape in shapes.items():
        if rank > min(shape[-2:]):
            raise InputError(
                f"rank={rank} exceeds the smaller side of {path}, {shape[-2]} x {shape[-1]}; "
                f"choose at most {min(shape[-2:])}"
            )
