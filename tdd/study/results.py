"""Results of a Monte Carlo study: exact totals while it runs, means, errors and quantiles when it is done."""

from __future__ import annotations

import csv
import dataclasses
import hashlib
import math
import os
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tdd.runs.atomic import atomic_path, disk_errors
from tdd.runs.display import Displayed, report_module
from tdd.runs.folder import check_files, read_sealed, write_sealed
from tdd.validate import InputError

SCHEMA = 1
QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
_METRICS = ("fdp", "power", "hamming", "num_selected")
_BINS, _UNIT, _LOW = 1024, 2**24, 2**12


@dataclasses.dataclass(frozen=True, repr=False)
class StudyResult(Displayed):
    """Error rates and power of methods over the repetitions of a design.

    FDP = false selections / max(1, selections), power = right selections / max(1, items that are right to select),
    Hamming = (false selections + right ones missed) / max(1, items), times m in PTDI's appendix F.7. Each array has the
    axes [method, alpha], or [cell, method, alpha] where the study has a grid; those of quantiles a last axis over
    `QUANTILES` more.

    Attributes:
      methods: names, in order.
      alphas: levels, in order.
      cells: the parameters of each grid point; one empty dict without a grid.
      fdr, power, hamming, num_selected: means of FDP, power, Hamming fraction and number of selected items.
      fdr_se, power_se, hamming_se, num_selected_se: their standard errors: standard deviation over repetitions
        (ddof 1) / sqrt(repetitions); NaN for one.
      fdp_quantiles, power_quantiles, hamming_quantiles: the smallest value that a fraction q of the repetitions does
        not exceed, rounded to a multiple of 1/1024.
      num_selected_quantiles: likewise; exact up to 1,023 items, within m/2048 (and a half) beyond.
      repetitions: int, or [cell] int64 where the study has a grid.
      seconds: time of the whole run, compilation included.
      provenance: seed, design, versions, stopping, date.
      measures: further numbers by name, with the axes of `fdr`, each with its standard error: "auc" and "auc_se".
    """

    methods: tuple[str, ...]
    alphas: tuple[float, ...]
    cells: tuple[dict[str, Any], ...]
    fdr: np.ndarray
    fdr_se: np.ndarray
    power: np.ndarray
    power_se: np.ndarray
    hamming: np.ndarray
    hamming_se: np.ndarray
    num_selected: np.ndarray
    num_selected_se: np.ndarray
    fdp_quantiles: np.ndarray
    power_quantiles: np.ndarray
    hamming_quantiles: np.ndarray
    num_selected_quantiles: np.ndarray
    repetitions: int | np.ndarray
    seconds: float
    provenance: dict[str, Any]
    measures: Mapping[str, np.ndarray] = dataclasses.field(default_factory=dict)

    def rows(self) -> list[dict[str, Any]]:
        """One plain dict for each grid point, method and level: its parameters, then its numbers."""
        shape = (len(self.cells), len(self.methods), len(self.alphas))
        arrays = {name: np.reshape(getattr(self, name), shape) for name in _MEANS}
        arrays |= {name: np.reshape(values, shape) for name, values in self.measures.items()}
        spread = {name: np.reshape(getattr(self, name), (*shape, len(QUANTILES))) for name in _SPREADS}
        counts = np.broadcast_to(self.repetitions, (shape[0],))
        out = []
        for i, j, k in np.ndindex(*shape):
            row: dict[str, Any] = {**self.cells[i], "method": self.methods[j], "alpha": self.alphas[k]}
            row["repetitions"] = int(counts[i])
            row |= {name: float(values[i, j, k]) for name, values in arrays.items()}
            for name, values in spread.items():
                row |= dict(zip(_SPREADS[name], values[i, j, k].tolist(), strict=True))
            out.append(row)
        return out

    _rows = rows

    def report(self) -> Any:  # noqa: D102
        return report_module("study").study_report(self)

    def save(self, folder: str | os.PathLike[str]) -> pathlib.Path:
        """Write `results.parquet`, `results.csv` (the rows), `study.json` (provenance) and `report.html`.

        Each file is written whole or not at all.

        Returns:
          The folder, which is made if it is missing.

        Raises:
          InputError: the folder cannot be written, or the disk is full.
        """
        place = pathlib.Path(folder)
        with disk_errors(place):
            place.mkdir(parents=True, exist_ok=True)
        head = {
            "schema": SCHEMA,
            "kind": "study",
            "methods": self.methods,
            "alphas": self.alphas,
            "cells": self.cells,
            "grid": np.ndim(self.fdr) == 3,
            "measures": list(self.measures),
            "repetitions": np.broadcast_to(self.repetitions, (len(self.cells),)).tolist(),
            "seconds": self.seconds,
            "provenance": self.provenance,
        }
        (place / "study.json").unlink(missing_ok=True)  # what it seals is about to change
        _write_rows(self.rows(), place)
        files = {"results.parquet": hashlib.sha256((place / "results.parquet").read_bytes()).hexdigest()}
        write_sealed(place / "study.json", {**head, "files": files})
        self.write_page(place)
        return place

    @classmethod
    def load(cls, folder: str | os.PathLike[str]) -> StudyResult:
        """Read what `save` wrote.

        Raises:
          InputError: no such files there, or damaged ones.
        """
        import pyarrow
        import pyarrow.parquet as pq

        place = pathlib.Path(folder)
        lacking = [name for name in ("study.json", "results.parquet") if not (place / name).is_file()]
        if lacking:
            raise InputError(f"{place} holds no finished study: {' and '.join(lacking)} missing")
        try:
            columns = pq.ParquetFile(place / "results.parquet").read().to_pydict()
            head = read_sealed(place / "study.json", SCHEMA, "run the study again")
            if "files" in head:  # older studies have none
                check_files(place, head)
            return cls._of(head, columns)
        except InputError:
            raise
        except (OSError, ValueError, LookupError, TypeError, AttributeError, pyarrow.ArrowException) as error:
            raise InputError(
                f"{place} holds a damaged study ({error}); remove the folder and run the same command again"
            ) from error

    @classmethod
    def _of(cls, head: Mapping[str, Any], rows: Mapping[str, Sequence[Any]]) -> StudyResult:
        """From the contents of study.json and of results.parquet."""
        shape = (len(head["cells"]), len(head["methods"]), len(head["alphas"]))[0 if head["grid"] else 1 :]
        arrays = {name: np.reshape(np.array(rows[name], float), shape) for name in _MEANS}
        for name, names in _SPREADS.items():
            arrays[name] = np.stack([np.reshape(np.array(rows[name], float), shape) for name in names], axis=-1)
        counts = np.array(head["repetitions"], np.int64)
        measures = {name: np.reshape(np.array(rows[name], float), shape) for name in head.get("measures", ())}
        return cls(
            measures=measures,
            methods=tuple(head["methods"]),
            alphas=tuple(head["alphas"]),
            cells=tuple(head["cells"]),
            repetitions=counts if head["grid"] else int(counts[0]),
            seconds=math.nan if head["seconds"] is None else head["seconds"],
            provenance=head["provenance"],
            **arrays,
        )


_MEANS = ("fdr", "fdr_se", "power", "power_se", "hamming", "hamming_se", "num_selected", "num_selected_se")
_SPREADS = {f"{name}_quantiles": [f"{name}_q{100 * q:02.0f}" for q in QUANTILES] for name in _METRICS}


@dataclasses.dataclass(frozen=True)
class Totals:
    """Exact sums over repetitions on the host: the tallies of `tdd.kernels.tally`, without their limit of 2^20.

    The four numbers x of a repetition are FDP, power, Hamming fraction and the fraction of the items that is selected.
    """

    repetitions: int
    sums: np.ndarray  # [..., 4, 2] int64, sums of round(2^24 x) and of round(2^24 x^2)
    histogram: np.ndarray  # [..., 4, 1025] int64, how often round(1024 x) was 0..1024

    @classmethod
    def zero(cls, shape: tuple[int, ...]) -> Totals:
        """No repetition yet, for cells of this shape, [method, alpha]."""
        return cls(0, np.zeros((*shape, 4, 2), np.int64), np.zeros((*shape, 4, _BINS + 1), np.int64))

    def add(self, tally: Any) -> Totals:
        """Add a `Tally`; leaves with a leading axis over devices are summed over it."""
        sums, histogram = (np.asarray(leaf).astype(np.int64) for leaf in (tally.sums, tally.histogram))
        if sums.ndim == self.sums.ndim + 1:
            sums, histogram = sums.sum(axis=0), histogram.sum(axis=0)
        whole = sums[..., 0::2] * _LOW + sums[..., 1::2]
        count = int(np.asarray(tally.repetitions).astype(np.int64).sum())
        return Totals(self.repetitions + count, self.sums + whole, self.histogram + histogram)

    def plus(self, other: Totals) -> Totals:
        """Add totals of other repetitions."""
        return Totals(self.repetitions + other.repetitions, self.sums + other.sums, self.histogram + other.histogram)

    def to_arrays(self) -> dict[str, np.ndarray]:
        """Arrays for `numpy.savez`."""
        return {"repetitions": np.asarray(self.repetitions), "sums": self.sums, "histogram": self.histogram}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray]) -> Totals:
        """The inverse of `to_arrays`."""
        return cls(int(arrays["repetitions"]), np.asarray(arrays["sums"]), np.asarray(arrays["histogram"]))

    def means(self) -> np.ndarray:
        """[..., 4] means; NaN before the first repetition."""
        with np.errstate(invalid="ignore"):
            return self.sums[..., 0] / _UNIT / np.float64(self.repetitions)

    def standard_errors(self, *, cautious: bool = False) -> np.ndarray:
        """[..., 4] standard errors of the means, from integers; NaN below two repetitions.

        Args:
          cautious: as if two repetitions more had given 0 and 1, so that a run without an event yet has an error.
        """
        extra = int(cautious)
        count = self.repetitions + 2 * extra
        if count < 2:
            return np.full(self.sums.shape[:-1], math.nan)
        out = np.empty(self.sums.shape[:-1])
        for place in np.ndindex(out.shape):
            first, second = (int(value) + extra * _UNIT for value in self.sums[place])
            squares = count * second * _UNIT - first**2  # rounding of x^2 can make it negative
            out[place] = math.sqrt(max(squares, 0) / (count * count * (count - 1))) / _UNIT
        return out

    def quantiles(self, levels: Sequence[float] = QUANTILES) -> np.ndarray:
        """[..., 4, quantile]: the smallest multiple of 1/1024 that a fraction q of the repetitions does not exceed; NaN
        before the first repetition."""
        if not self.repetitions:
            return np.full((*self.sums.shape[:-1], len(levels)), math.nan)
        reached = np.cumsum(self.histogram, axis=-1)
        needed = np.maximum(np.ceil(np.array(levels) * self.repetitions - 1e-9), 1)
        return (reached[..., None] < needed).sum(axis=-2) / _BINS

    @staticmethod
    def result(
        totals: Sequence[Totals],
        *,
        methods: Sequence[str],
        alphas: Sequence[float],
        num_items: int | Sequence[int],
        cells: Sequence[Mapping[str, Any]] | None = None,
        seconds: float = math.nan,
        provenance: Mapping[str, Any] | None = None,
    ) -> StudyResult:
        """The result of a study, from totals of each grid point, or of one (`cells` is None without a grid).

        `num_items` is the number of items that the selected fraction refers to, one number or one a grid point.
        """
        means, errors, spread = (
            np.stack([getattr(cell_totals, name)() for cell_totals in totals])
            for name in ("means", "standard_errors", "quantiles")
        )
        items = np.broadcast_to(np.asarray(num_items, float), (len(totals),))[:, None, None]
        means[..., 3], errors[..., 3] = means[..., 3] * items, errors[..., 3] * items
        spread[..., 3, :] = np.rint(spread[..., 3, :] * items[..., None])
        counts = np.array([cell_totals.repetitions for cell_totals in totals], np.int64)
        if cells is None:
            means, errors, spread = means[0], errors[0], spread[0]
        fields: dict[str, Any] = {}
        for i, (mean, metric) in enumerate(zip(_MEANS[::2], _METRICS, strict=True)):
            fields |= {mean: means[..., i], f"{mean}_se": errors[..., i], f"{metric}_quantiles": spread[..., i, :]}
        return StudyResult(
            methods=tuple(methods),
            alphas=tuple(float(alpha) for alpha in alphas),
            cells=({},) if cells is None else tuple(dict(cell) for cell in cells),
            repetitions=int(counts[0]) if cells is None else counts,
            seconds=float(seconds),
            provenance=dict(provenance or {}),
            **fields,
        )


def _write_rows(rows: Sequence[Mapping[str, Any]], folder: pathlib.Path) -> None:
    """Write `results.parquet` and `results.csv`. Missing numbers are empty in the CSV."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    columns = {name: [_cell(row[name]) for row in rows] for name in rows[0]}
    with atomic_path(folder / "results.parquet") as place, open(place, "wb") as file:
        pq.write_table(pa.table({name: _alike(values) for name, values in columns.items()}), file)
    with atomic_path(folder / "results.csv") as place, open(place, "w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(columns)
        for values in zip(*columns.values(), strict=True):
            writer.writerow(["" if isinstance(x, float) and math.isnan(x) else x for x in values])


def _cell(value: Any) -> Any:
    """A value that a table can hold."""
    value = value.item() if hasattr(value, "item") and getattr(value, "ndim", 1) == 0 else value
    return value if value is None or isinstance(value, (bool, int, float, str)) else str(value)


def _alike(values: list[Any]) -> list[Any]:
    """A column of one type: numbers of two kinds as floats, anything else that is mixed as words."""
    kinds = {type(value) for value in values if value is not None}
    if len(kinds) < 2:
        return values
    if kinds == {int, float}:
        return [None if value is None else float(value) for value in values]
    return [None if value is None else str(value) for value in values]
