"""Runs of named studies: a design over a grid, or cells one after another, and results put together."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import jax
import numpy as np

from tdd.study.engine import run
from tdd.study.named.record import Columns, StudyOptions
from tdd.study.results import StudyResult
from tdd.validate.errors import InputError

__all__ = ["GridRun", "dense_ranks", "devices", "map_arrays", "means", "over_cells", "run_options", "stacked"]


@dataclasses.dataclass(frozen=True)
class GridRun:
    """Runs `tdd.study.run` on one design over a grid.

    Attributes:
      design: `(options) -> design`, of the given table or synthetic.
      methods: methods of `tdd.study.run`, or `(options) -> methods`.
      grid: grid of synthetic data.
      table_grid: `(columns) -> grid` of a given table.
      finish: `(result, options) -> result`.
    """

    design: Callable[[StudyOptions], Any]
    methods: Any
    grid: Mapping[str, Iterable[Any]] | None = None
    table_grid: Callable[[Columns], Mapping[str, Iterable[Any]]] | None = None
    finish: Callable[[StudyResult, StudyOptions], StudyResult] | None = None

    def __call__(self, options: StudyOptions) -> StudyResult:
        """The result, with or without a given table."""
        if options.columns is None:
            grid = self.grid
        else:
            grid = None if self.table_grid is None else self.table_grid(options.columns)
        methods = self.methods(options) if callable(self.methods) else self.methods
        result = run(self.design(options), methods, grid=grid, **run_options(options))
        return result if self.finish is None else self.finish(result, options)


def run_options(options: StudyOptions) -> dict[str, Any]:
    """The options of `tdd.study.run`."""
    names = ("alphas", "repetitions", "seed", "target_se", "folder", "shard", "progress")
    return {name: getattr(options, name) for name in names} | {"devices": devices(options)}


def devices(options: StudyOptions) -> list[Any]:
    """The first devices of this process, or all."""
    local = jax.local_devices()
    if options.devices is not None and not 1 <= options.devices <= len(local):
        raise InputError(f"devices must be 1 to {len(local)}, the devices that JAX has here; got {options.devices}")
    return local[: options.devices]


def over_cells(
    cells: Iterable[Mapping[str, Any]], options: StudyOptions, run_cell: Callable[..., StudyResult]
) -> StudyResult:
    """`run_cell(options, **cell)` for each cell, each continuing in a folder of its own."""
    results, start, cells = [], time.perf_counter(), list(cells)
    for i, cell in enumerate(cells):
        folder = None if options.folder is None else options.folder / f"cell-{i:02d}"
        results.append(run_cell(dataclasses.replace(options, folder=folder), **cell))
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
