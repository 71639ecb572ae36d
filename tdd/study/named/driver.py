"""Runs of named studies: a design over a grid or cells one after another; the folder, its continuation, the record."""

from __future__ import annotations

import contextlib
import dataclasses
import pathlib
import shlex
import shutil
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from tdd.runs.folder import fingerprint, open_run_folder
from tdd.runs.portable import command_of, place_name
from tdd.study import checks
from tdd.study.engine import run
from tdd.study.named import STUDIES
from tdd.study.named.record import Columns, NamedStudy, StudyOptions, verdict
from tdd.study.results import StudyResult
from tdd.study.store import as_study_shard
from tdd.validate import InputError

_RESULT, _UNFINISHED = "study.json", "unfinished"


class FinishedStudy(NamedTuple):
    """A finished study; `computed` is False if its result was read from its folder."""

    result: StudyResult
    computed: bool


def run_named_study(study: NamedStudy, options: StudyOptions, *, command: str) -> FinishedStudy:
    """Run a study, continue it in its folder and join the totals of shards there, or read a finished one.

    `options.folder` receives results.parquet, results.csv and study.json; `options.shard` is not read.

    Raises:
      InputError: options out of range, or a folder with another study.
    """
    checks.check_run(options.repetitions, options.seed, options.target_se)
    options = dataclasses.replace(options, shard=None)
    folder = options.folder
    if folder is None:
        return FinishedStudy(_with_provenance(study.run(options), study, options, command), True)
    before = {path: path.exists() for path in (folder, folder / "inputs.json")}
    open_run_folder(folder, fingerprint(_identity(study, options)), f"tdd study {study.name}")
    if (folder / _RESULT).exists():
        return FinishedStudy(StudyResult.load(folder), False)
    try:
        result = study.run(options.within(_UNFINISHED))
    except InputError:
        _leave_as_it_was(folder, before)
        raise
    result = _with_provenance(result, study, options, command)
    result.save(folder)
    shutil.rmtree(folder / _UNFINISHED, ignore_errors=True)
    return FinishedStudy(result, True)


def run_shard(study: NamedStudy, options: StudyOptions) -> None:
    """Run the part `options.shard` of each cell, and leave its totals in `options.folder` for `run_named_study`.

    Nothing is run if the study is finished there.

    Raises:
      InputError: as `run_named_study`; no folder; a shard that does not exist; `target_se`.
    """
    checks.check_run(options.repetitions, options.seed, options.target_se)
    as_study_shard(options.shard, options.folder, options.target_se)
    folder = options.folder
    assert folder is not None
    unfinished = folder / _UNFINISHED
    open_run_folder(folder, fingerprint(_identity(study, options)), f"tdd study {study.name}")
    try:
        if not (folder / _RESULT).exists():
            unfinished.mkdir(exist_ok=True)  # from now on the folder belongs to this study
            study.run(options.within(_UNFINISHED))
    except InputError:
        if not (folder / _RESULT).exists():  # else `run_named_study` has finished meanwhile, and has removed the totals
            with contextlib.suppress(OSError):
                unfinished.rmdir()  # if no shard has begun, other options may take the folder
            raise
    if (folder / _RESULT).exists():
        shutil.rmtree(unfinished, ignore_errors=True)


def verdict_rows(study: NamedStudy, options: StudyOptions, result: StudyResult) -> list[dict[str, Any]]:
    """The rows of the result with the verdict on each error rate."""
    fields = tuple(result.cells[0])
    rows = []
    for row in result.rows():
        cell = {name: row[name] for name in fields}
        bound = study.bound(options, cell, row["method"])
        rows.append(row | {"verdict": verdict(row["fdr"], row["fdr_se"], row["alpha"], bound)})
    return rows


def _leave_as_it_was(folder: pathlib.Path, before: Mapping[pathlib.Path, bool]) -> None:
    """Undo options that cannot be run: they must not keep the folder from those that can. Totals stay."""
    if before[folder / "inputs.json"] or any(folder.glob(f"{_UNFINISHED}/**/cell-*.npz")):
        return
    shutil.rmtree(folder / _UNFINISHED, ignore_errors=True)
    (folder / "inputs.json").unlink(missing_ok=True)
    if not before[folder]:
        folder.rmdir()


def _identity(study: NamedStudy, options: StudyOptions) -> Mapping[str, Any]:
    """Values on which the numbers depend."""
    columns = options.columns
    return {
        "study": study.name,
        "repetitions": options.repetitions,
        "alphas": options.alphas,
        "seed": options.seed,
        "target_se": options.target_se,
        "scores": None if columns is None else [columns.sha256, columns.names, columns.knockoffs.shape],
    }


def _with_provenance(result: StudyResult, study: NamedStudy, options: StudyOptions, command: str) -> StudyResult:
    columns = options.columns
    record = {
        "study": study.name,
        "regenerates": STUDIES[study.name].figure,
        "title": study.title,
        "about": study.describe(options),
        "command": command_of(shlex.split(command)),
        "table": None if columns is None else {"source": place_name(columns.source), "sha256": columns.sha256},
    }
    verdicts = [row["verdict"] for row in verdict_rows(study, options, result)]
    return dataclasses.replace(result, provenance={**record, **result.provenance, "verdicts": verdicts})


# --- what studies run -------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class GridRun:
    """Runs `tdd.study.run` on one design over a grid."""

    design: Callable[[StudyOptions], Any]  # `(options) -> design`, of the given table or synthetic
    methods: Any  # methods of `tdd.study.run`, or `(options) -> methods`
    grid: Mapping[str, Iterable[Any]] | None = None  # grid of synthetic data
    table_grid: Callable[[Columns], Mapping[str, Iterable[Any]]] | None = None  # `(columns) -> grid` of a given table
    finish: Callable[[StudyResult, StudyOptions], StudyResult] | None = None  # `(result, options) -> result`

    def __call__(self, options: StudyOptions) -> StudyResult:
        """The result, with or without a given table."""
        grid = self.grid if options.columns is None else self.table_grid and self.table_grid(options.columns)
        methods = self.methods(options) if callable(self.methods) else self.methods
        result = run(self.design(options), methods, grid=grid, **run_options(options))
        return result if self.finish is None else self.finish(result, options)


def run_options(options: StudyOptions) -> dict[str, Any]:
    """The options of `tdd.study.run`."""
    local = jax.local_devices()
    if options.devices is not None and not 1 <= options.devices <= len(local):
        raise InputError(f"devices must be 1 to {len(local)}, the devices that JAX has here; got {options.devices}")
    names = ("alphas", "repetitions", "seed", "target_se", "folder", "shard", "progress")
    return {name: getattr(options, name) for name in names} | {"devices": local[: options.devices]}


def over_cells(
    cells: Iterable[Mapping[str, Any]], options: StudyOptions, run_cell: Callable[..., StudyResult]
) -> StudyResult:
    """`run_cell(options, **cell)` for each cell, each continuing in a folder of its own."""
    results, start, cells = [], time.perf_counter(), list(cells)
    for i, cell in enumerate(cells):
        results.append(run_cell(options.within(f"cell-{i:02d}"), **cell))
    return dataclasses.replace(stacked(cells, results), seconds=time.perf_counter() - start)


def stacked(cells: Iterable[Mapping[str, Any]], results: Iterable[StudyResult]) -> StudyResult:
    """Results without a grid as the cells of one result."""
    parts = list(results)
    return dataclasses.replace(
        parts[0],
        **map_arrays(lambda *arrays: np.stack(arrays), *parts),
        measures={name: np.stack([part.measures[name] for part in parts]) for name in parts[0].measures},
        cells=tuple(dict(cell) for cell in cells),
        repetitions=np.array([int(part.repetitions) for part in parts], np.int64),
        seconds=sum(part.seconds for part in parts),
        provenance={**parts[0].provenance, "cells": [part.provenance for part in parts]},
    )


def map_arrays(function: Callable[..., np.ndarray], *results: StudyResult) -> dict[str, np.ndarray]:
    """Apply a function to each array field of results: field -> array."""
    names = [field.name for field in dataclasses.fields(StudyResult)]
    arrays = {name: [getattr(result, name) for result in results] for name in names}
    return {name: function(*values) for name, values in arrays.items() if isinstance(values[0], np.ndarray)}


def means(draws: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """[repetitions, ...] draws of each name as "name" and "name_se": means and standard errors (ddof 1)."""
    out = {}
    for name, values in draws.items():
        out[name] = np.mean(values, axis=0)
        with np.errstate(invalid="ignore", divide="ignore"):  # one repetition has no standard error
            out[f"{name}_se"] = np.std(values, axis=0) / np.sqrt(np.float64(len(values) - 1))
    return out


def dense_ranks(scores: np.ndarray | Sequence[Any]) -> np.ndarray:
    """Scores [K, N] as whole numbers row by row, in the same order with the same ties: single precision holds them."""
    return np.stack([np.unique(row, return_inverse=True)[1] for row in scores]).astype(np.float32)
