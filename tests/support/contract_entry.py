"""The record of the contract suite: one kernel under one set of static options, with its inputs and reference."""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import numpy as np

NUM_TEST, NUM_CALIBRATION = 23, 38
FEW = 4
"""Roundings of a rounded input, a product, a quotient and a sum: what exact integers become on their way out."""
ELEMENTARY = 4
"""Roundings of one elementary function, as rounding.assert_close counts them."""


def own(exact, arrays):
    """Nothing cancels: the error is relative to each value."""
    return np.abs(exact)


def at_least_one(exact, arrays):
    """Logarithms, statistics and probabilities near a value where terms of size 1 cancel."""
    return np.maximum(np.abs(exact), 1)


def by_logarithm(exact, arrays):
    """Tails: an error of log p, relative to log p, is an error of p itself."""
    return np.abs(exact) * (1 + np.abs(np.log(np.abs(exact), where=exact != 0, out=np.zeros_like(exact))))


@dataclasses.dataclass(frozen=True)
class Entry:
    """One kernel under one set of static options.

    Attributes:
      kernel: module.function.
      call: the arrays by name -> a pytree.
      make: (rng, n, m) -> the arrays. Those of n rows named calibration... belong to the n calibration items, those of
        m rows to the m items; "mask" and "calibration_mask" mask them.
      reference: the same pytree in NumPy.
      label: tells entries of one kernel apart.
      roundings: the longest chain of them from an input to a float that comes out; counts, decisions and the floats of
        entries with 0 are compared to the bit.
      scale: (exact leaf, arrays) -> the magnitude of what is summed in it.
      takes_double: whether floats may come in double precision.
      always_single: float32 by definition, whatever comes in.
    """

    kernel: str
    call: Callable[..., Any]
    make: Callable[[np.random.Generator, int, int], dict[str, np.ndarray]]
    reference: Callable[..., Any]
    label: str = ""
    roundings: int = FEW
    scale: Callable[[np.ndarray, dict[str, np.ndarray]], np.ndarray] = own
    takes_double: bool = True
    always_single: bool = False

    @property
    def id(self):
        return f"{self.kernel}{'/' + self.label if self.label else ''}"

    @functools.cached_property
    def sizes(self):
        """Shapes of the arrays at the usual sizes."""
        return {name: x.shape for name, x in self.make(np.random.default_rng(0), NUM_CALIBRATION, NUM_TEST).items()}

    @property
    def items(self):
        """Arrays along the m items."""
        return [name for name, shape in self.sizes.items() if shape[:1] == (NUM_TEST,)]

    @property
    def calibration(self):
        """Arrays along the n calibration items."""
        names = [name for name, shape in self.sizes.items() if shape[:1] == (NUM_CALIBRATION,)]
        return [name for name in names if name.startswith("calibration")]

    @property
    def masked(self):
        """Whether items can be masked out."""
        return len(self.sizes.get("mask", ())) == 1
