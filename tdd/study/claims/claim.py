"""One claim about an error rate, in a setting where it can be measured."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Literal

import jax

__all__ = ["Claim"]


@dataclasses.dataclass(frozen=True)
class Claim:
    """An error rate that a procedure is said to hold, and the experiment that measures it.

    Attributes:
      name: short unique name, for example "knockoffs/averaged-20".
      procedure: what is run, in words.
      setting: the data it is run on, in words (sizes, laws, level).
      error: what `one` returns the mean of: "FDR", "size" (rejection of a true null), "GCR", "miss",
        "margin" (the least extreme selected item is a null).
      level: the error rate that is claimed.
      holds: whether the claim is true; a false one is measured above its level, a true one stands beside it as the
        remedy.
      one: PRNG key -> [] error of one repetition, in [0, 1].
      batch: repetitions side by side.
    """

    name: str
    procedure: str
    setting: str
    error: Literal["FDR", "size", "GCR", "miss", "margin"]
    level: float
    holds: bool
    one: Callable[[jax.Array], jax.Array] = dataclasses.field(repr=False)
    batch: int = 2_000
