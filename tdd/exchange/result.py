"""Log-probabilities → tests and decisions: the result of a run with its folder, and of log-probabilities in a file."""

from __future__ import annotations

import csv
import dataclasses
import io
import math
import os
import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import numpy as np

from tdd.exchange.passes import SetPass, as_double
from tdd.procedures.exchangeability import GUARANTEES, TESTS
from tdd.procedures.testing import bh
from tdd.runs.atomic import disk_errors, write_atomically
from tdd.runs.display import Displayed, report_module
from tdd.runs.folder import as_number, read_columns, to_csv, write_run
from tdd.texts.rows import number_of
from tdd.validate import InputError, arrays
from tdd.validate.files import read_npz

FILES = ("run.json", "shards.csv", "log_probs.npz")

SHARD_COLUMNS = (
    "data", "shard", "first_example", "num_examples", "num_tokens", "canonical", "mean_shuffled", "sd_shuffled",
    "statistic", "rank", "num_shuffles",
)  # fmt: skip

_FIELDS = ("p_value", "log_p_value", "statistic", "log_smallest_p")
_NUM_DRAWS = 99_999
_WHOLE = ("shard", "first_example", "num_examples", "num_tokens", "rank", "num_shuffles")


@dataclasses.dataclass(frozen=True, repr=False)
class Exchange(Displayed):
    """A finished test of canonical order.

    Attributes:
      run: Content of run.json, plain values.
      shards: Column -> values, one row a shard of each data set (`SHARD_COLUMNS`); log-probabilities in nats.
      log_probs: Name of the data set -> (canonical [r], shuffled [r, k]), float64, in nats.
    """

    run: Mapping[str, Any]
    shards: Mapping[str, np.ndarray]
    log_probs: Mapping[str, tuple[np.ndarray, np.ndarray]]

    @property
    def p_values(self) -> dict[str, float]:
        """The p-value of each data set."""
        return {one["name"]: one["p_value"] for one in self.run["data"]}

    def save(self, folder: pathlib.Path) -> None:
        """Write log_probs.npz, shards.csv, run.json, then report.html, each whole or not at all."""
        arrays = {}
        for number, (canonical, shuffled) in enumerate(self.log_probs.values()):
            arrays |= {f"canonical_{number}": canonical, f"shuffled_{number}": shuffled}
        packed = io.BytesIO()
        np.savez_compressed(packed, names=np.array([*self.log_probs]), **arrays)
        write_atomically(folder / "log_probs.npz", packed.getvalue())
        write_run(folder, self.run, {"shards.csv": to_csv(self.shards, line_end="\n")})
        self.write_page(folder)

    def report(self) -> Any:  # noqa: D102
        return report_module("exchange").exchange_report(self.run, self.shards)

    def _rows(self) -> dict[str, Any]:
        return dict(self.shards)


def tests_of(
    canonical: np.ndarray, shuffled: np.ndarray, names: Sequence[str], key: Any
) -> tuple[dict[str, dict[str, float]], dict[str, Any]]:
    """Each test on the log-probabilities of one data set, as plain values and as results by name; NaN and no results
    if every shard lacks a log-probability."""
    from tdd.procedures.exchangeability import exchangeability

    if not (np.isfinite(canonical) & np.isfinite(shuffled).all(axis=1)).any():
        return {name: dict.fromkeys(_FIELDS, math.nan) for name in names}, {}
    results = {
        name: exchangeability(canonical, shuffled, test=name, key=key, num_draws=_NUM_DRAWS)  # type: ignore[arg-type]
        for name in names
    }
    plain = {name: {field: as_double(getattr(result, field)) for field in _FIELDS} for name, result in results.items()}
    return plain, results


def select(entries: Sequence[dict[str, Any]], alpha: float, *, excluded: Sequence[bool]) -> int:
    """Benjamini and Hochberg's procedure over data sets that have a p-value and are not excluded.

    Writes `adjusted` and `rejected` of each; returns the number of rejections.
    """
    p_values = np.array([entry["p_value"] for entry in entries], float)
    taking_part = ~np.isnan(p_values) & ~np.array(excluded, bool)
    adjusted, reject = np.full(len(entries), math.nan), np.zeros(len(entries), bool)
    if taking_part.any():
        decided = bh(p_values[taking_part], alpha)
        adjusted[taking_part], reject[taking_part] = np.asarray(decided.adjusted), np.asarray(decided.reject)
    for entry, value, rejected in zip(entries, adjusted, reject, strict=True):
        entry["adjusted"], entry["rejected"] = float(value), bool(rejected)
    return int(reject.sum())


def shard_table(passes: Sequence[SetPass]) -> dict[str, np.ndarray]:
    """One row a shard."""
    rows: list[tuple[Any, ...]] = []
    for one in passes:
        for shard, (first, stop) in enumerate(one.shards.bounds):
            canonical, shuffled = one.log_probs[shard, 0], one.log_probs[shard, 1:]
            spread = float(shuffled.std(ddof=1)) if len(shuffled) > 1 else math.nan
            known = not np.isnan(canonical) and not np.isnan(shuffled).any()
            rank = int((canonical > shuffled).sum()) if known else -1
            rows.append(
                (
                    one.shards.data.name, shard, first, stop - first, int(one.rows.num_tokens[shard]), float(canonical),
                    float(shuffled.mean()), spread, float(canonical - shuffled.mean()), rank, len(shuffled),
                )
            )  # fmt: skip
    columns = zip(*rows, strict=True)
    return {
        name: np.array(column, dtype=object if name == "data" else None)
        for name, column in zip(SHARD_COLUMNS, columns, strict=True)
    }


def read_shards(folder: pathlib.Path, run: Mapping[str, Any] | None = None) -> dict[str, np.ndarray] | None:
    """Columns of shards.csv, one row a shard of each data set; None if there is no such file.

    Raises:
      InputError: a damaged table, or one that does not fit the SHA-256 in the content of run.json, where that is given.
    """
    if not (folder / "shards.csv").is_file():
        return None

    def type_of(name: str) -> Callable[[str], Any]:
        return str if name == "data" else int if name in _WHOLE else as_number

    columns = read_columns(folder, "shards.csv", run, SHARD_COLUMNS, "run the test again", type_of)
    return {name: np.array(values, dtype=object if name == "data" else None) for name, values in columns.items()}


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
        tests, _ = tests_of(canonical, shuffled, TESTS, jax.random.fold_in(arrays.key_of_seed(seed), number))
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
