"""What a test of canonical order found: tests, tables, and the folder that holds them."""

from __future__ import annotations

import csv
import dataclasses
import io
import math
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tdd.exchange.passes import SetPass
from tdd.exchange.sequence import as_double
from tdd.runs.atomic import write_atomically
from tdd.runs.folder import write_run

__all__ = ["FILES", "SHARD_COLUMNS", "Exchange", "shard_table", "tests_of"]

FILES = ("run.json", "shards.csv", "log_probs.npz")

SHARD_COLUMNS = (
    "data", "shard", "first_example", "num_examples", "num_tokens", "canonical", "mean_shuffled", "sd_shuffled",
    "statistic", "rank", "num_shuffles",
)  # fmt: skip

_FIELDS = ("p_value", "log_p_value", "statistic", "log_smallest_p")
_NUM_DRAWS = 99_999


@dataclasses.dataclass(frozen=True)
class Exchange:
    """A finished test of canonical order.

    Attributes:
      run: what run.json holds, plain values.
      shards: column -> values, one row a shard of each data set (`SHARD_COLUMNS`); log-probabilities in nats.
      log_probs: name of the data set -> (canonical [r], shuffled [r, k]), float64, in nats.
    """

    run: Mapping[str, Any]
    shards: Mapping[str, np.ndarray]
    log_probs: Mapping[str, tuple[np.ndarray, np.ndarray]]

    @property
    def p_values(self) -> dict[str, float]:
        """The p-value of each data set."""
        return {one["name"]: one["p_value"] for one in self.run["data"]}

    def save(self, folder: pathlib.Path) -> None:
        """Write log_probs.npz, shards.csv, then run.json, each whole or not at all."""
        arrays = {}
        for number, (canonical, shuffled) in enumerate(self.log_probs.values()):
            arrays |= {f"canonical_{number}": canonical, f"shuffled_{number}": shuffled}
        packed = io.BytesIO()
        np.savez_compressed(packed, names=np.array([*self.log_probs]), **arrays)
        write_atomically(folder / "log_probs.npz", packed.getvalue())
        text = io.StringIO(newline="")
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(self.shards)
        writer.writerows(zip(*(map(_cell, column) for column in self.shards.values()), strict=True))
        write_run(folder, self.run, {"shards.csv": [text.getvalue().encode()]})


def tests_of(
    canonical: np.ndarray, shuffled: np.ndarray, names: Sequence[str], key: Any
) -> tuple[dict[str, dict[str, float]], dict[str, Any]]:
    """Each test on the log-probabilities of one data set, and the results themselves by name; NaN and no results where
    every shard lacks a log-probability."""
    from tdd.procedures.exchangeability import exchangeability

    if not (np.isfinite(canonical) & np.isfinite(shuffled).all(axis=1)).any():
        return {name: dict.fromkeys(_FIELDS, math.nan) for name in names}, {}
    results = {
        name: exchangeability(canonical, shuffled, test=name, key=key, num_draws=_NUM_DRAWS)  # type: ignore[arg-type]
        for name in names
    }
    plain = {name: {field: as_double(getattr(found, field)) for field in _FIELDS} for name, found in results.items()}
    return plain, results


def shard_table(passes: Sequence[SetPass]) -> dict[str, np.ndarray]:
    """One row a shard."""
    rows: list[tuple[Any, ...]] = []
    for one in passes:
        canonical, shuffled = one.log_probs[:, 0], one.log_probs[:, 1:]
        for shard, (first, stop) in enumerate(one.shards.bounds):
            own, others = canonical[shard], shuffled[shard]
            spread = float(others.std(ddof=1)) if len(others) > 1 else math.nan
            beaten = -1 if np.isnan(own) or np.isnan(others).any() else int((own > others).sum())
            rows.append(
                (
                    one.shards.data.name, shard, first, stop - first, int(one.rows.num_tokens[shard]), float(own),
                    float(others.mean()), spread, float(own - others.mean()), beaten, len(others),
                )
            )  # fmt: skip
    columns = zip(*rows, strict=True)
    return {
        name: np.array(column, dtype=object if name == "data" else None)
        for name, column in zip(SHARD_COLUMNS, columns, strict=True)
    }


def _cell(value: Any) -> Any:
    if isinstance(value, (float, np.floating)):
        return "" if math.isnan(value) else repr(float(value))
    return value
