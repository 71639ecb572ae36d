"""The test of canonical order on log-probabilities that were computed elsewhere: no model, no texts."""

from __future__ import annotations

import csv
import dataclasses
import os
import pathlib
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

from tdd.exchange.result import select, tests_of
from tdd.procedures.exchangeability import GUARANTEES, TESTS
from tdd.runs.atomic import disk_errors
from tdd.texts.rows import number_of
from tdd.validate import InputError, arrays
from tdd.validate.files import read_npz

__all__ = ["order_of_log_probs", "read_log_probs"]


def read_log_probs(path: str | os.PathLike[str]) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Log-probabilities by data set: (canonical [r], shuffled [r, k]).

    Args:
      path: log_probs.npz as `tdd exchange --out` leaves it, or a .csv with a header and one row a shard: a column
        "canonical", a column "shuffle..." for each shuffle, and, for several data sets, a column "data".

    Raises:
      InputError: no such file, another format, a cell that is not a number, a missing column, a column of another name.
    """
    place = pathlib.Path(path)
    if not place.is_file():
        raise InputError(f"no such file: {str(place)!r}; give log_probs.npz or a .csv of log-probabilities")
    if place.suffix == ".npz":
        try:
            with disk_errors(place):
                held = read_npz(place)
            names = [str(name) for name in held["names"]]
            return {name: (held[f"canonical_{i}"], held[f"shuffled_{i}"]) for i, name in enumerate(names)}
        except InputError:
            raise
        except (ValueError, KeyError, TypeError) as error:
            raise InputError(f"{place} is not a log_probs.npz of tdd exchange: {error}") from error
    with disk_errors(place), open(place, encoding="utf-8-sig", newline="") as file:
        rows = [*csv.DictReader(file)]
    if not rows or "canonical" not in rows[0]:
        raise InputError(f"{place}: a column 'canonical' is needed, and one for each shuffle; one row a shard")
    shuffles = [name for name in rows[0] if name and name.startswith("shuffle")]
    if other := [name for name in rows[0] if name not in ("data", "canonical", *shuffles)]:
        raise InputError(
            f"{place}: column {other[0]!r} is neither 'data' nor 'canonical' nor a shuffle; name the shuffles "
            "shuffle_1, shuffle_2, ... and leave other columns out"
        )
    rows_of: dict[str, list[list[float]]] = {}
    for line, row in enumerate(rows, 2):
        try:
            values = [number_of(row[name]) for name in ("canonical", *shuffles)]
        except (TypeError, ValueError) as error:
            raise InputError(f"{place}, line {line}: every cell must be a number, in nats: {error}") from error
        rows_of.setdefault(row.get("data") or place.stem, []).append(values)
    return {name: (np.array(values)[:, 0], np.array(values)[:, 1:]) for name, values in rows_of.items()}


def order_of_log_probs(
    log_probs: Mapping[str, tuple[Any, Any]], *, test: str = "combined", alpha: float = 0.05, seed: int = 0
) -> dict[str, Any]:
    """Test each data set, and decide on all of them by Benjamini and Hochberg.

    Guarantee: that of `tdd.exchangeability` for the test, for each data set; FDR <= alpha over independent data sets.
    Shards, shuffles and test must have been fixed before any log-probability was seen, and the published order must be
    random: without the texts that is not looked at. The number of shuffles must have been fixed too: if a run stopped
    for what it had seen, its own p-value holds and not this one.

    Args:
      log_probs: Name -> (canonical [r], shuffled [r, k]), sums over the tokens of a shard in nats.
      test: Test of `tdd.exchangeability`.
      alpha: Level over the data sets.
      seed: Random seed of relabellings.

    Returns:
      {"alpha", "test", "guarantee", "data": [{"name", "num_shards", "num_shuffles", "p_value", "tests", "adjusted",
      "rejected"}]}, plain values.

    Raises:
      InputError: shapes that do not fit, no shard, an unknown test, alpha out of range.
    """
    arrays.check_choice(test, TESTS, "test")
    arrays.check_level(alpha)
    arrays.check_seed(seed)
    data = []
    for number, (name, (canonical, shuffled)) in enumerate(log_probs.items()):
        canonical, shuffled = np.asarray(canonical, float), np.asarray(shuffled, float)
        if canonical.ndim != 1 or shuffled.ndim != 2 or len(canonical) != len(shuffled) or not shuffled.size:
            raise InputError(
                f"{name}: canonical must be [shards] and shuffled [shards, shuffles], got {canonical.shape} and "
                f"{shuffled.shape}"
            )
        tests, _ = tests_of(canonical, shuffled, TESTS, jax.random.fold_in(jax.random.key(seed), number))
        data.append(
            {
                "name": name,
                "num_shards": len(canonical),
                "num_shuffles": shuffled.shape[1],
                "p_value": tests[test]["p_value"],
                "tests": tests,
            }
        )
    select(data, alpha, excluded=[False] * len(data))
    return {"alpha": alpha, "test": test, "guarantee": dataclasses.asdict(GUARANTEES[test]), "data": data}
