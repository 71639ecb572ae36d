"""Claims → measured error rates with standard errors and a verdict each."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from tdd.study.monte_carlo import mean_radius, simulate
from tdd.study.validity.claim import Claim
from tdd.validate.errors import InputError

__all__ = ["Measured", "choose", "measure"]

_logger = logging.getLogger("tdd.study")

_LEVEL = 1e-5
"""Of the confidence bound behind each verdict."""


class Measured(NamedTuple):
    """One claim, measured.

    Attributes:
      name: of the claim.
      procedure: what was run.
      setting: on which data.
      error: which error rate.
      level: the error rate that is claimed.
      holds: whether the claim is true.
      mean: measured error rate.
      se: its standard error.
      repetitions: behind it.
      exceeds: whether a confidence bound at level 1e-5, valid at any sample size, puts the error above the claim.
      seconds: of computation, compilation included.
    """

    name: str
    procedure: str
    setting: str
    error: str
    level: float
    holds: bool
    mean: float
    se: float
    repetitions: int
    exceeds: bool
    seconds: float


def measure(
    claims: Iterable[Claim],
    *,
    repetitions: int = 100_000,
    seed: int = 0,
    on_done: Callable[[Measured], Any] = lambda row: None,
) -> list[Measured]:
    """Measure each claim.

    Args:
      claims: what to measure.
      repetitions: for each of them.
      seed: the same for each, so that procedures in the same setting see the same data.
      on_done: called after each.

    Raises:
      InputError: fewer than 100 repetitions.
    """
    if repetitions < 100:
        raise InputError(f"repetitions must be at least 100, got {repetitions}; 100000 give three digits")
    rows = []
    for claim in claims:
        start = time.perf_counter()
        errors = simulate(claim.one, seed=seed, repetitions=repetitions, batch=claim.batch)
        mean = float(errors.mean())
        rows.append(
            Measured(
                claim.name,
                claim.procedure,
                claim.setting,
                claim.error,
                claim.level,
                claim.holds,
                mean,
                float(errors.std(ddof=1) / np.sqrt(repetitions)),
                repetitions,
                mean - mean_radius(errors, _LEVEL) > claim.level,
                time.perf_counter() - start,
            )
        )
        _logger.info("%s: %.4f, claimed %.3g (%.0f s)", claim.name, mean, claim.level, rows[-1].seconds)
        on_done(rows[-1])
    return rows


def choose(claims: Sequence[Claim], names: Sequence[str]) -> list[Claim]:
    """The claims whose name is, or begins with, one of the given names; all where none is given.

    Raises:
      InputError: a name that fits no claim.
    """
    for name in names:
        if not any(claim.name.startswith(name) for claim in claims):
            raise InputError(f"no claim is called {name!r}; there are {', '.join(claim.name for claim in claims)}")
    return [claim for claim in claims if not names or any(claim.name.startswith(name) for name in names)]
