"""The record of a benchmark case: one kernel, its data at any size, its peers, and how they agree.

Tests run every case at its tiny size and benchmarks at its sizes: the shapes come from here for both.
"""

from __future__ import annotations

import dataclasses
import importlib.util
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from tdd.validate import InputError

__all__ = ["Case", "Disagreement", "Peer", "Size", "check_agreement", "missing", "parse_size"]

Arrays = Mapping[str, np.ndarray]


class Size(NamedTuple):
    """How large a case is.

    Attributes:
      items: n = m, or what the case says it counts.
      batch: data sets side by side in one compiled program; None is one data set without a leading axis.
    """

    items: int
    batch: int | None = None

    def __str__(self) -> str:
        return f"{self.items:,}" if self.batch is None else f"{self.batch:,} × {self.items:,}"


@dataclasses.dataclass(frozen=True)
class Peer:
    """A competitor.

    Attributes:
      call: NumPy arrays of one data set, by name -> dict of arrays, named as the case's own result.
      needs: the package without which it is skipped.
      max_items: no larger sizes than this (a quadratic loop).
      whole: whether `call` takes a whole batch at once.
    """

    call: Callable[..., Mapping[str, Any]]
    needs: str = "numpy"
    max_items: int | None = None
    whole: bool = False


@dataclasses.dataclass(frozen=True)
class Case:
    """One benchmark case.

    Attributes:
      name: what `--only` matches.
      call: JAX arrays of one data set, by name -> dict of arrays; raw kernels, not jitted.
      make: (rng, size) -> NumPy arrays, with a leading axis of `size.batch` if there is one.
      peers: name -> `Peer`; results of all are compared with the case's before anything is timed.
      sizes: of a full run.
      tiny: of the tests.
      about: what is computed.
      unit: what `items` counts.
      tolerance: relative, of floating-point results; integers and decisions agree exactly.
      bars: peer -> how many times as fast the case must be at its sizes, on CPU.
      gpu_bars: likewise on a GPU.
      public: whether `call` is a public function that is given and gives NumPy arrays, whole batches at once, and
        compiles by itself; else a function of JAX arrays of one data set.
      flops: floating-point operations of one data set of so many items; 0 where memory binds.
    """

    name: str
    call: Callable[..., Mapping[str, Any]]
    make: Callable[[np.random.Generator, Size], dict[str, np.ndarray]]
    peers: Mapping[str, Peer]
    sizes: tuple[Size, ...] = (Size(1_000), Size(100_000), Size(1_000, 1_000))
    tiny: tuple[Size, ...] = (Size(40, 3),)
    about: str = ""
    unit: str = "items"
    tolerance: float = 2e-6
    bars: Mapping[str, float] = dataclasses.field(default_factory=dict)
    gpu_bars: Mapping[str, float] = dataclasses.field(default_factory=dict)
    public: bool = False
    flops: Callable[[int], float] = lambda items: 0.0


class Disagreement(ValueError):
    """A case and its peer gave different answers: nothing is timed."""


def check_agreement(found: Mapping[str, Any], expected: Mapping[str, Any], tolerance: float, where: str) -> None:
    """Compare results leaf by leaf: integers and decisions exactly, floating-point numbers relatively.

    Raises:
      Disagreement: another set of names, another shape, or other values.
    """
    if set(found) != set(expected):
        raise Disagreement(f"{where}: results {sorted(found)} against {sorted(expected)}")
    for name, ours in found.items():
        ours, theirs = np.asarray(ours), np.asarray(expected[name])
        if ours.shape != theirs.shape:
            raise Disagreement(f"{where}: {name} has shape {ours.shape} against {theirs.shape}")
        if np.issubdtype(ours.dtype, np.inexact):
            wrong = ~np.isclose(ours.astype(float), theirs.astype(float), rtol=tolerance, atol=0, equal_nan=True)
        else:
            wrong = ours != theirs
        if wrong.any():
            first = tuple(int(i) for i in np.argwhere(wrong)[0])
            raise Disagreement(
                f"{where}: {name} differs in {int(wrong.sum()):,} of {wrong.size:,} entries; at {first} it is "
                f"{ours[first]!s} against {theirs[first]!s}"
            )


def missing(peer: Peer, size: Size) -> str | None:
    """Why a peer cannot be run at this size, or None."""
    if importlib.util.find_spec(peer.needs) is None:
        return f"{peer.needs} is not installed"
    if peer.max_items is not None and size.items > peer.max_items:
        return f"too slow beyond {peer.max_items:,} items"
    return None


def parse_size(text: str) -> Size:
    """`1000` or `64x1000` (data sets by items).

    Raises:
      InputError: anything else.
    """
    parts = text.lower().replace("×", "x").split("x")
    if len(parts) > 2 or not all(part.isdecimal() and int(part) > 0 for part in parts):
        raise InputError(f"sizes: {text!r} is neither a number of items such as 1000 nor data sets x items, 64x1000")
    return Size(int(parts[-1]), int(parts[0]) if len(parts) == 2 else None)
