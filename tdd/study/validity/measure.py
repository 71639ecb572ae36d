"""Claims → measured error rates with standard errors and a verdict each."""

from __future__ import annotations

import json
import logging
import pathlib
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from tdd.audit.run_folder import versions
from tdd.processes import Meeting, Processes, Watch, current
from tdd.study.monte_carlo import mean_radius, simulate
from tdd.study.tables import write_json
from tdd.study.validity.claim import Claim
from tdd.validate import studies as checks
from tdd.validate.arrays import check_seed
from tdd.validate.errors import InputError
from tdd.validate.processes import check_shared_folder

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
    folder: pathlib.Path | None = None,
    on_done: Callable[[Measured], Any] = lambda row: None,
) -> list[Measured]:
    """Measure each claim. Several processes of `jax.distributed` share the claims out and all return every row.

    Args:
      claims: what to measure.
      repetitions: for each of them.
      seed: the same for each, so that procedures in the same setting see the same data.
      folder: where several processes leave their rows for each other, and find those of an earlier run of the same
        options; one process needs none.
      on_done: called after each.

    Raises:
      InputError: fewer than 100 repetitions; a seed that is negative or 2^32 and more; several processes without a
        folder, or with other options; a folder with rows of other options.
    """
    if repetitions < 100:
        raise InputError(f"repetitions must be at least 100, got {repetitions}; 100000 give three digits")
    check_seed(seed)
    processes, claims, rows = current(), list(claims), []
    if processes.count > 1:
        return _together(claims, processes, folder, on_done, repetitions=repetitions, seed=seed)
    for claim in claims:
        rows.append(_one(claim, repetitions=repetitions, seed=seed))
        on_done(rows[-1])
    return rows


def _one(claim: Claim, *, repetitions: int, seed: int) -> Measured:
    start = time.perf_counter()
    errors = simulate(claim.one, seed=seed, repetitions=repetitions, batch=claim.batch)
    mean = float(errors.mean())
    row = Measured(
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
    _logger.info("%s: %.4f, claimed %.3g (%.0f s)", claim.name, mean, claim.level, row.seconds)
    return row


def _together(
    claims: Sequence[Claim],
    processes: Processes,
    folder: pathlib.Path | None,
    on_done: Callable[[Measured], Any],
    **options: int,
) -> list[Measured]:
    """The claims that this process owns and nobody has measured, then the rows of all."""
    folder = check_shared_folder(folder, processes.count, "folder= (--out)")
    places = [folder / f"{claim.name.replace('/', '--')}.json" for claim in claims]
    own = {**options, "versions": versions()}

    def measured(numbers: Iterable[int]) -> None:
        for number in numbers:
            write_json({"options": own, "row": _one(claims[number], **options)._asdict()}, places[number])

    with Meeting(folder, "claims", processes) as meeting:
        meeting.agree({**own, "claims": [claim.name for claim in claims]})
        measured(i for i, place in enumerate(places) if processes.owns(i) and not place.exists())
        watch = Watch(meeting, "claims")
        while lacking := [i for i, place in enumerate(places) if not place.exists()]:
            measured(watch.wait(lacking))
    rows: list[Measured] = []
    for place in places:
        there = json.loads(place.read_text("utf-8"))
        checks.check_fingerprint(folder, own, there["options"])
        rows.append(Measured(**there["row"]))
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
