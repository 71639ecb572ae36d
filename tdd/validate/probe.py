"""Checks of what a probe in a training loop takes: texts, options, steps, and what a model returns."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np

from tdd.validate.errors import InputError

__all__ = [
    "check_reachable",
    "check_same_probe",
]

MOST_ITEMS = 2**18
"""Suspects and references together stay below this, so that sums of their ranks are exact."""


MOST_LABELS = 2**32
"""Bytes of the table of relabellings."""


# Options.


# Texts.


def check_reachable(num_suspect: int, num_reference: int, num_draws: int, alpha: float, *, known_end: bool) -> None:
    """An alarm and a flagged item are possible at all; where the end is not known, the level is never spent whole."""
    level = Fraction(str(float(alpha)))
    if num_suspect + num_reference >= MOST_ITEMS:
        raise InputError(
            f"{num_suspect} suspects and {num_reference} references are too many to rank exactly; give fewer than "
            f"{MOST_ITEMS} in all"
        )
    if isinstance(num_draws, bool) or not isinstance(num_draws, (int, np.integer)) or num_draws < 1:
        raise InputError(f"num_draws={num_draws!r} must be a whole number of relabellings, at least 1")
    if (num_draws + 1) * (num_suspect + num_reference) > MOST_LABELS:
        raise InputError(
            f"num_draws={num_draws} relabellings of {num_suspect + num_reference} texts take "
            f"{(num_draws + 1) * (num_suspect + num_reference) / 2**30:.1f} GiB; at most "
            f"{MOST_LABELS // (num_suspect + num_reference) - 1} fit in {MOST_LABELS // 2**30} GiB"
        )
    fewest = math.ceil(1 / level) - 1 if known_end else math.floor(1 / level)
    if num_draws < fewest:
        raise InputError(
            f"num_draws={num_draws} relabellings cannot give a p-value of alpha={alpha:g} or less; use at least "
            f"{fewest}, and better {math.ceil(20 / level) - 1}, so that early looks can raise an alarm"
        )
    if (num_reference + 1) * level < 1:
        raise InputError(
            f"reference has {num_reference} texts, so that no item's p-value can be {alpha:g} or less; give at least "
            f"{math.ceil(1 / level) - 1} references, or a larger alpha"
        )
    if math.comb(num_suspect + num_reference, num_suspect) * level < 1:
        raise InputError(
            f"{num_suspect} suspects and {num_reference} references can be told apart in only "
            f"{math.comb(num_suspect + num_reference, num_suspect)} ways, too few for a p-value of alpha={alpha:g}; "
            "give more texts, or a larger alpha"
        )


# What the model returns, while tracing.


# Looks.


# Folders.


def check_same_probe(place: str, found: Any, expected: str) -> None:
    """What is there is of the same texts and options."""
    if found != expected:
        raise InputError(
            f"{place} is of another probe: its texts or options differ (fingerprint {str(found)[:12]}, this probe has "
            f"{expected[:12]}); choose another folder, or build the probe with the same texts and options"
        )
