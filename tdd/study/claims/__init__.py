"""Claims of what is valid and what is not, each in a setting where it can be measured by `tdd study validity`."""

from __future__ import annotations

import dataclasses
import functools
import importlib
import json
import logging
import math
import pathlib
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

from tdd.runs.atomic import disk_errors, read_regular, write_atomically
from tdd.runs.folder import to_json, versions
from tdd.runs.shards import as_shard
from tdd.study.runner import simulate
from tdd.study.store import check_fingerprint
from tdd.validate import InputError
from tdd.validate.arrays import check_seed

_MODULES = ("estimates", "combination", "joint", "order", "auditor", "probe")

_logger = logging.getLogger("tdd.study")

_LEVEL = 1e-5
"""Level of the confidence bound behind each verdict."""

ErrorRate: TypeAlias = Literal["FDR", "size", "GCR", "miss", "margin"]
"""FDR; size (rejection of a true null); GCR; miss; margin (the least extreme selected item is a null)."""


@dataclasses.dataclass(frozen=True)
class Claim:
    """An error rate that a procedure is said to hold, and the experiment that measures it."""

    name: str  # short unique name, for example "knockoffs/averaged-20"
    procedure: str  # description of what is run
    setting: str  # description of the data (sizes, laws, level)
    error: ErrorRate  # the error rate, the mean of what `one` returns
    level: float
    # whether the claim is true; a false one is measured above its level, a true one stands beside it as the remedy
    holds: bool
    # PRNG key -> [] error of one repetition, in [0, 1]
    one: Callable[[jax.Array], jax.Array] = dataclasses.field(repr=False)
    batch: int = 2_000  # repetitions side by side


class Setting(NamedTuple):
    """What claims share: the fields of `Claim`, and `experiment`, `(key, rule) -> error` for the rule of each claim."""

    setting: str
    error: ErrorRate
    level: float
    experiment: Callable[..., jax.Array]
    batch: int = 2_000

    def claim(self, name: str, procedure: str, holds: bool, rule: Any) -> Claim:
        """The claim about one procedure."""
        one = functools.partial(self.experiment, rule=rule)
        return Claim(name, procedure, self.setting, self.error, self.level, holds, one, self.batch)


def false_discovery_proportion(selected: jax.Array, null: jax.Array) -> jax.Array:
    """FDP of one repetition: [m] bool decisions and [m] bool truth, True for nulls."""
    return jnp.sum(selected & null) / jnp.maximum(jnp.sum(selected), 1)


def all_claims() -> tuple[Claim, ...]:
    """Every claim, in the order of the table."""
    modules = [importlib.import_module(f"tdd.study.claims.{name}") for name in _MODULES]
    claims = tuple(claim for module in modules for claim in module.CLAIMS)
    names = [claim.name for claim in claims]
    if len(set(names)) != len(names):
        raise ValueError(f"claims with equal names: {sorted(names)}")
    return claims


class Measured(NamedTuple):
    """A measured claim: the fields of `Claim`, and what was measured."""

    name: str
    procedure: str
    setting: str
    error: str
    level: float
    holds: bool
    mean: float
    se: float
    repetitions: int
    exceeds: bool  # whether a confidence bound at level 1e-5, valid at any sample size, puts the error above the claim
    seconds: float  # time of computation, compilation included


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

    All claims have one seed, so that procedures in the same setting see the same data. Shards, (i, n) or "i/n" for the
    claims i, i + n, ..., leave their rows in the folder; a row that exists there is not measured again. Without shards
    the folder is not made. `on_done` is called after each claim.

    Raises:
      InputError: fewer than 100 repetitions; a seed that is negative or 2^32 and more; a shard that does not exist, or
        without a folder; a folder with rows of other options.
    """
    if repetitions < 100:
        raise InputError(f"repetitions must be at least 100, got {repetitions}; 100000 give three digits")
    check_seed(seed)
    part, claims = as_shard(shard, folder, "folder= (--out)"), list(claims)
    options = {"repetitions": repetitions, "seed": seed, "versions": versions()}
    places: dict[str, pathlib.Path] = {}
    if folder is not None and (part or folder.exists()):
        places = {claim.name: folder / f"{claim.name.replace('/', '--')}.json" for claim in claims}
        lacking = [_read(place, options) for place in places.values()].count(None)
        if part is None and lacking:
            _logger.warning("%s: the shards have left %d of %d claims, measured now", folder, lacking, len(claims))
        with disk_errors(folder):
            folder.mkdir(parents=True, exist_ok=True)
    rows = []
    for claim in claims if part is None else [claim for i, claim in enumerate(claims) if part.owns(i)]:
        place = places.get(claim.name)
        row = place and _read(place, options)
        if row is None:
            row = _measure_claim(claim, repetitions=repetitions, seed=seed)
            if place is not None:
                write_atomically(place, to_json({"options": options, "row": row._asdict()}).encode())
        rows.append(row)
        on_done(row)
    return rows


def _read(place: pathlib.Path, options: Mapping[str, Any]) -> Measured | None:
    """The row of a claim that was measured with the same options; None without a file."""
    try:
        there = json.loads(read_regular(place))
        row, stored = Measured(**there["row"]), dict(there["options"])
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(f"{place} is damaged ({error}); delete it to measure its claim again") from error
    check_fingerprint(place.parent, options, stored)
    return row


def _measure_claim(claim: Claim, *, repetitions: int, seed: int) -> Measured:
    start = time.perf_counter()
    errors = simulate(claim.one, seed=seed, repetitions=repetitions, batch=claim.batch)
    mean = float(errors.mean())
    row = Measured(
        *(getattr(claim, name) for name in Measured._fields[:6]),
        mean=mean,
        se=float(errors.std(ddof=1) / np.sqrt(repetitions)),
        repetitions=repetitions,
        exceeds=mean - mean_radius(errors, _LEVEL) > claim.level,
        seconds=time.perf_counter() - start,
    )
    _logger.info("%s: %.4f, claimed %.3g (%.0f s)", claim.name, mean, claim.level, row.seconds)
    return row


def mean_radius(values: np.ndarray, level: float) -> float:
    """Half width of a one-sided confidence bound for the mean of values in [0, 1].

    Valid at any sample size: for independent values [repetitions] the mean lies above values.mean() minus this with
    probability at least 1 - level.

    References: Maurer & Pontil (2009), theorem 4 (empirical Bernstein).
    """
    log, count = math.log(2 / level), len(values)
    return float(np.sqrt(2 * values.var(ddof=1) * log / count) + 7 * log / (3 * (count - 1)))


def choose(claims: Sequence[Claim], names: Sequence[str]) -> list[Claim]:
    """The claims whose names begin with one of the given names, each of which must fit one; all without names."""
    for name in names:
        if not any(claim.name.startswith(name) for claim in claims):
            raise InputError(f"no claim is called {name!r}; there are {', '.join(claim.name for claim in claims)}")
    return [claim for claim in claims if not names or any(claim.name.startswith(name) for name in names)]
