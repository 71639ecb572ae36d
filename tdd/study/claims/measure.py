"""Claims → measured error rates with standard errors and a verdict each."""

from __future__ import annotations

import json
import logging
import pathlib
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from tdd.runs.atomic import disk_errors
from tdd.runs.folder import versions
from tdd.runs.shards import as_shard
from tdd.study.claims.claim import Claim
from tdd.study.monte_carlo import mean_radius, simulate
from tdd.study.tables import write_json
from tdd.validate import studies as checks
from tdd.validate.arrays import check_seed
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
    folder: pathlib.Path | None = None,
    shard: tuple[int, int] | str | None = None,
    on_done: Callable[[Measured], Any] = lambda row: None,
) -> list[Measured]:
    """Measure each claim, or those of a shard.

    Args:
      claims: what to measure.
      repetitions: for each of them.
      seed: the same for each, so that procedures in the same setting see the same data.
      folder: where shards leave their rows; a row that is there is not measured again. It is left alone where no
        shard has made it.
      shard: (i, n) or "i/n": measure the claims i, i + n, ... alone.
      on_done: called after each.

    Returns:
      A row for each claim, or for each of the shard's.

    Raises:
      InputError: fewer than 100 repetitions; a seed that is negative or 2^32 and more; a shard that does not exist, or
        without a folder; a folder with rows of other options.
    """
    if repetitions < 100:
        raise InputError(f"repetitions must be at least 100, got {repetitions}; 100000 give three digits")
    check_seed(seed)
    part, claims = as_shard(shard, folder, "folder= (--out)"), list(claims)
    if folder is None or not (part or folder.exists()):
        return [_done(_one(claim, repetitions=repetitions, seed=seed), on_done) for claim in claims]
    own = {"repetitions": repetitions, "seed": seed, "versions": versions()}
    places = [folder / f"{claim.name.replace('/', '--')}.json" for claim in claims]
    there = [_read(place, own) for place in places]
    if part is None and (lacking := there.count(None)):
        _logger.warning("%s: the shards have left %d of %d claims, measured now", folder, lacking, len(claims))
    with disk_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
    rows = []
    for number, (claim, place) in enumerate(zip(claims, places, strict=True)):
        if part is None or part.owns(number):
            row = there[number] or _read(place, own)  # which another copy of this shard may have written since
            if row is None:
                row = _one(claim, repetitions=repetitions, seed=seed)
                write_json({"options": own, "row": row._asdict()}, place)
            rows.append(_done(row, on_done))
    return rows


def _done(row: Measured, on_done: Callable[[Measured], Any]) -> Measured:
    on_done(row)
    return row


def _read(place: pathlib.Path, own: Mapping[str, Any]) -> Measured | None:
    """The row of a claim that was measured with the same options; None where there is none."""
    try:
        there = json.loads(place.read_text("utf-8"))
        row, options = Measured(**there["row"]), dict(there["options"])
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(f"{place} is damaged ({error}); delete it to measure its claim again") from error
    checks.check_fingerprint(place.parent, own, options)
    return row


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


def choose(claims: Sequence[Claim], names: Sequence[str]) -> list[Claim]:
    """The claims whose name is, or begins with, one of the given names; all where none is given.

    Raises:
      InputError: a name that fits no claim.
    """
    for name in names:
        if not any(claim.name.startswith(name) for claim in claims):
            raise InputError(f"no claim is called {name!r}; there are {', '.join(claim.name for claim in claims)}")
    return [claim for claim in claims if not names or any(claim.name.startswith(name) for name in names)]
