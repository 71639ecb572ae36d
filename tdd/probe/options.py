"""The options of a probe, checked once."""

from __future__ import annotations

import dataclasses
import math
from fractions import Fraction
from typing import Literal

from tdd.kernels.set_statistics import STATISTICS, Statistic
from tdd.procedures.ptdi import PROPORTIONS, ProportionName
from tdd.scoring.scores import parse_score
from tdd.validate import InputError, arrays
from tdd.validate.arrays import as_count

__all__ = ["COMPUTED_SCORES", "Baseline", "ProbeOptions", "check_reachable"]

COMPUTED_SCORES = ("loss", "min_k", "min_k_plus_plus", "max_renyi", "m_entropy")
"""Scores that come from the statistics of a text's own tokens."""

Baseline = Literal["first", "none"]

_MOST_ITEMS = 2**18
"""Suspects and references together stay below this, so that sums of their ranks are exact."""

_MOST_LABELS = 2**32
"""Bytes of the table of relabellings."""


@dataclasses.dataclass(frozen=True)
class ProbeOptions:
    """Options that, with model and texts, decide the numbers of a probe; see `tdd.Probe`.

    `max_length` is the model's own limit unless a shorter one was given.
    """

    score: str
    alpha: float
    every: int
    num_steps: int | None
    grad_norms: bool
    proportion: ProportionName
    baseline: Baseline
    statistic: Statistic
    num_draws: int
    max_length: int | None
    long_texts: Literal["error", "truncate"]
    token_budget: int
    seed: int

    def __post_init__(self) -> None:
        if parse_score(self.score).score.name not in COMPUTED_SCORES:
            raise InputError(
                f"score={self.score!r} needs more than the model's statistics of the text's own tokens, which is all "
                f"that a probe computes; choose one of {', '.join(COMPUTED_SCORES)}, or use tdd.score on a saved "
                "checkpoint"
            )
        arrays.check_level(self.alpha)
        arrays.check_choice(self.proportion, tuple(kind for kind in PROPORTIONS if kind != "moment"), "proportion")
        arrays.check_choice(self.baseline, ("first", "none"), "baseline")
        arrays.check_choice(self.statistic, STATISTICS, "statistic")
        arrays.check_choice(self.long_texts, ("error", "truncate"), "long_texts")
        plain = {
            "alpha": float(self.alpha),
            "every": as_count(self.every, "every"),
            "num_steps": None if self.num_steps is None else as_count(self.num_steps, "num_steps"),
            "grad_norms": bool(self.grad_norms),
            "num_draws": as_count(self.num_draws, "num_draws"),
            "seed": arrays.check_seed(self.seed),
        }
        for name, value in plain.items():
            object.__setattr__(self, name, value)

    @property
    def num_looks(self) -> int | None:
        """Looks at the steps 0, every, 2 every, ... below num_steps; None where num_steps is."""
        return None if self.num_steps is None else (self.num_steps - 1) // self.every + 1


def check_reachable(
    num_suspects: int, num_references: int, num_draws: int, alpha: float, *, num_looks: int | None
) -> None:
    """An alarm and a flagged item are possible; with `num_looks` None the level is never spent whole."""
    level, num_items = Fraction(str(alpha)), num_suspects + num_references
    if num_items >= _MOST_ITEMS:
        raise InputError(
            f"{num_suspects} suspects and {num_references} references are too many to rank exactly; give fewer than "
            f"{_MOST_ITEMS} in all"
        )
    if (num_draws + 1) * num_items > _MOST_LABELS:
        raise InputError(
            f"num_draws={num_draws} relabellings of {num_items} texts take {(num_draws + 1) * num_items / 2**30:.1f} "
            f"GiB; at most {_MOST_LABELS // num_items - 1} fit in {_MOST_LABELS // 2**30} GiB"
        )
    fewest = math.floor(1 / level) if num_looks is None else math.ceil(1 / level) - 1
    if num_draws < fewest:
        raise InputError(
            f"num_draws={num_draws} relabellings cannot give a p-value of alpha={alpha:g} or less; use at least "
            f"{fewest}, and better {math.ceil(20 / level) - 1}, so that early looks can raise an alarm"
        )
    if (num_references + 1) * level < 1:
        raise InputError(
            f"reference has {num_references} texts, so that no item's p-value can be {alpha:g} or less; give at least "
            f"{math.ceil(1 / level) - 1} references, or a larger alpha"
        )
    if math.comb(num_items, num_suspects) * level < 1:
        raise InputError(
            f"{num_suspects} suspects and {num_references} references can be told apart in only "
            f"{math.comb(num_items, num_suspects)} ways, too few for a p-value of alpha={alpha:g}; give more texts, or "
            "a larger alpha"
        )
