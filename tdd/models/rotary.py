"""Rotary positions: the frequency of each pair of coordinates, and the variants that stretch the context.

Pair i of the rotated part of a head (even width d) turns by t * f_i at position t, f_i = theta^(-2i/d); coordinate i is
paired with coordinate i + d/2, or coordinate 2i with 2i + 1 where pairs are interleaved. Angles are computed in float32
from float64 frequencies.

References: Su et al. (2021), RoFormer, eq. 34; Peng et al. (2023), YaRN, sections 3.2-3.4; the Llama 3.1 release
for `Llama3Scaling`; Ding et al. (2024), LongRoPE.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tdd.validate import InputError
from tdd.validate.files import check_positive


@dataclasses.dataclass(frozen=True)
class LinearScaling:
    """Every frequency divided by `factor` (position interpolation)."""

    factor: float

    def __post_init__(self) -> None:
        check_positive(factor=self.factor)

    def scaled(self, frequencies: np.ndarray, theta: float) -> np.ndarray:
        """Frequencies [d/2] after scaling."""
        return frequencies / self.factor


@dataclasses.dataclass(frozen=True)
class Llama3Scaling:
    """Slow pairs are slowed by `factor`, fast ones stay, those between are interpolated by their wavelength.

    With w = 2 pi / f and context n = `original_length`: f if w < n / high, f / factor if w > n / low, and
    s f + (1 - s) f / factor between, s = (n / w - low) / (high - low).
    """

    factor: float
    low: float
    high: float
    original_length: int

    def __post_init__(self) -> None:
        check_positive(**vars(self))

    def scaled(self, frequencies: np.ndarray, theta: float) -> np.ndarray:
        """Frequencies [d/2] after scaling."""
        turns = self.original_length * frequencies / (2 * math.pi)
        weight = np.clip((turns - self.low) / (self.high - self.low), 0.0, 1.0)
        return weight * frequencies + (1 - weight) * frequencies / self.factor


@dataclasses.dataclass(frozen=True)
class YarnScaling:
    """YaRN: slow pairs are interpolated, fast ones stay, with a linear ramp over the pair's index between."""

    factor: float  # factor by which the context grows
    original_length: int  # the context before stretching
    beta_fast: float = 32.0  # pairs with more turns than this within the original context stay
    beta_slow: float = 1.0  # pairs with fewer turns than this are divided by `factor`
    amplitude: float = 1.0  # factor on the rotated queries and keys, "attention factor"
    truncate: bool = True  # true if the ends of the ramp are rounded outwards to whole pairs

    def __post_init__(self) -> None:
        check_positive(**{name: value for name, value in vars(self).items() if name != "truncate"})

    def scaled(self, frequencies: np.ndarray, theta: float) -> np.ndarray:
        """Frequencies [d/2] after scaling."""
        pairs = len(frequencies)

        def pair_of(turns: float) -> float:
            return pairs * math.log(self.original_length / (turns * 2 * math.pi)) / math.log(theta)

        first, last = pair_of(self.beta_fast), pair_of(self.beta_slow)
        if self.truncate:
            first, last = math.floor(first), math.ceil(last)
        first, last = max(first, 0), min(last, 2 * pairs - 1)
        ramp = np.clip((np.arange(pairs) - first) / max(last - first, 1e-3), 0.0, 1.0)
        return (1 - ramp) * frequencies + ramp * frequencies / self.factor


@dataclasses.dataclass(frozen=True)
class LongScaling:
    """LongRoPE within the original context: every pair is slowed by a factor of its own.

    Where a batch has a longer sequence, transformers turns all of its sequences by the factors for the long context: a
    text's probability would depend on its neighbours. So the model accepts sequences of the original context alone.
    """

    short: tuple[float, ...]  # d/2 factors within the original context
    long: tuple[float, ...]  # d/2 factors beyond it; they are only kept for the configuration
    original_length: int  # the original context
    stretched_length: int  # the context that `long` is for
    amplitude: float = 1.0  # factor on the rotated queries and keys, "attention factor"

    def __post_init__(self) -> None:
        check_positive(
            original_length=self.original_length, stretched_length=self.stretched_length, amplitude=self.amplitude
        )
        for name in ("short", "long"):
            for factor in getattr(self, name):
                check_positive(**{f"{name} factor": factor})

    def scaled(self, frequencies: np.ndarray, theta: float) -> np.ndarray:
        """Frequencies [d/2] after scaling."""
        return frequencies / np.asarray(self.short)


@dataclasses.dataclass(frozen=True)
class RotaryPositions:
    """Queries and keys turned by an angle that grows with the position."""

    max_length: int  # longest sequence that the model accepts
    dim: int  # width of the leading part of each head that is rotated; even
    theta: float = 10_000.0  # base of the frequencies
    # transformation of the frequencies that stretches the context, or None
    scaling: LinearScaling | Llama3Scaling | YarnScaling | LongScaling | None = None
    interleaved: bool = False  # true if the two coordinates of a pair are neighbours

    def __post_init__(self) -> None:
        check_positive(max_length=self.max_length, dim=self.dim, theta=self.theta)
        if self.dim % 2:
            raise InputError(f"dim must be even, got {self.dim!r}")
        if isinstance(self.scaling, LongScaling):
            for name, factors in (("short", self.scaling.short), ("long", self.scaling.long)):
                if len(factors) != self.dim // 2:
                    raise InputError(f"{name} must hold {self.dim // 2} factors, one a pair, got {len(factors)}")

    def frequencies(self) -> np.ndarray:
        """[dim/2] float64, radians a position."""
        plain = self.theta ** (-np.arange(0, self.dim, 2, dtype=np.float64) / self.dim)
        return plain if self.scaling is None else self.scaling.scaled(plain, self.theta)


def rotation(
    positions: RotaryPositions, length: int, first: int | jax.Array | None = None
) -> tuple[jax.Array, jax.Array]:
    """Cosines and sines [T, dim/2] float32 of `length` positions that begin with `first` (None: 0)."""
    frequencies = np.asarray(positions.frequencies(), np.float32)
    steps = jnp.arange(length, dtype=jnp.float32)
    if first is not None:
        steps = (first + jnp.arange(length)).astype(jnp.float32)
    angles = steps[:, None] * frequencies
    amplitude: Any = getattr(positions.scaling, "amplitude", 1.0)
    return jnp.cos(angles) * amplitude, jnp.sin(angles) * amplitude


def rotate(heads: jax.Array, cosines: jax.Array, sines: jax.Array, *, interleaved: bool = False) -> jax.Array:
    """Turn the leading dim coordinates of each head, in pairs of neighbours if `interleaved`.

    Args:
      heads: [B, T, H, head_dim] float32.
      cosines, sines: [T, dim/2], of `rotation`.

    Returns:
      [B, T, H, head_dim] float32.
    """
    half = cosines.shape[-1]
    cosines, sines = cosines[:, None], sines[:, None]
    if interleaved:
        pairs, rest = heads[..., : 2 * half].reshape(*heads.shape[:-1], half, 2), heads[..., 2 * half :]
        first, second = pairs[..., 0], pairs[..., 1]
        turned = jnp.stack([first * cosines - second * sines, second * cosines + first * sines], axis=-1)
        return jnp.concatenate([turned.reshape(*heads.shape[:-1], 2 * half), rest], axis=-1)
    first, second, rest = jnp.split(heads, (half, 2 * half), axis=-1)
    return jnp.concatenate([first * cosines - second * sines, second * cosines + first * sines, rest], axis=-1)
