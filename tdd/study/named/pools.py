"""The pool behind the PTDI studies: a given table, or one drawn from two normal laws once and for all."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from tdd.study.designs import Pool
from tdd.study.named.record import Example, Options, Promise
from tdd.study.results import StudyResult
from tdd.validate.errors import InputError

__all__ = [
    "METHOD_LABELS",
    "dense_ranks",
    "devices",
    "means",
    "over_cells",
    "pool",
    "pool_design",
    "promise",
    "resampled",
    "run_options",
    "split_example",
    "stacked",
]

NUM_NONMEMBERS, NUM_MEMBERS, SHIFT, POOL_SEED = 387, 388, 1.5, 0

METHOD_LABELS = {
    "none": "vanilla (p-values as they are)",
    "subtraction": "scaled (subtraction estimate)",
    "storey": "scaled (Storey)",
    "moment": "scaled (adjusted moment estimate)",
}


def pool(options: Options) -> tuple[np.ndarray, np.ndarray]:
    """[N] loss-like scores and [N] bool membership."""
    if options.columns is not None:
        return options.columns.scores[0], options.columns.labels[0]
    rng = np.random.default_rng(POOL_SEED)
    is_member = np.arange(NUM_NONMEMBERS + NUM_MEMBERS) >= NUM_NONMEMBERS
    return rng.normal(size=is_member.size) + SHIFT * ~is_member, is_member


def pool_design(options: Options) -> str:
    """The pool in words."""
    if options.columns is not None:
        members = int(options.columns.labels[0].sum())
        total = options.columns.labels[0].size
        return f"{options.columns.source}, {options.columns.names[0]}: {total - members} non-members, {members} members"
    return (
        f"one pool drawn with seed {POOL_SEED}: {NUM_NONMEMBERS} non-members N({SHIFT:g}, 1), "
        f"{NUM_MEMBERS} members N(0, 1)"
    )


def promise(options: Options, cell: Mapping[str, Any], method: str) -> Promise:
    """What PTDI promises; of a pool it is true exactly, since splits at random make its items exchangeable."""
    if method == "moment":
        return Promise("asymptotic")
    if method != "subtraction":
        return Promise()
    n, m = _sizes(options, cell)
    return Promise("finite-sample", (1 + 1 / m) * (1 + 1.2 / n))  # n varies in half splits: the mean of 1/n is larger


def _sizes(options: Options, cell: Mapping[str, Any]) -> tuple[float, float]:
    """n, on average, and m of a split."""
    scores, is_member = pool(options)
    shares = {name: cell[name] for name in ("test_members", "calibration_ratio") if name in cell}
    if not shares:
        return max(1, (len(scores) // 2) * float(np.mean(~is_member))), len(scores) - len(scores) // 2
    n, nulls, targets = Pool(scores, is_member, **shares).sizes()
    return n, nulls + targets


def resampled(
    options: Options, *, methods: Sequence[str] = ("none", "subtraction"), eta: float = 0.05, **shares: float
) -> StudyResult:
    """The fixed-pool engine on the pool of the options."""
    import jax

    from tdd.study.pool import resample

    scores, is_member = pool(options)
    return resample(
        scores,
        is_member,
        alphas=options.alphas,
        methods=tuple(methods),
        eta=eta,
        repetitions=options.repetitions,
        key=jax.random.key(options.seed),
        target_se=options.target_se,
        devices=devices(options),
        progress=options.progress,
        folder=options.folder,
        shard=options.shard,
        **shares,
    )


def split_example(options: Options) -> Example:
    """The sorted p-values of one random split, vanilla and scaled."""
    import jax

    import tdd

    scores, is_member = pool(options)
    sample = jax.jit(Pool(scores, is_member).draw)(jax.random.key(options.seed))
    alpha = min(options.alphas, key=lambda level: abs(level - 0.2))
    found = tdd.ptdi(
        sample.calibration,
        sample.scores,
        alpha=alpha,
        proportion="subtraction",
        calibration_mask=sample.calibration_mask,
    )
    p, factor = np.asarray(found.p_values), 1 - float(found.proportion)
    return Example(
        "staircase",
        {
            "p_values": {"vanilla": p, f"scaled by {factor:.2f}": p * factor},
            "false": ~np.asarray(sample.target),
            "alpha": alpha,
        },
        f"One random split of {pool_design(options)}; {int(found.num_calibration)} calibration items, "
        f"{int(found.num_tests)} candidates, α = {alpha:g}. The estimated share of members is {1 - factor:.2f}, "
        f"the true one {float(np.mean(sample.target)):.2f}. Conformal p-values lie on a lattice: many are equal.",
        title="PTDI on one random half split of a pool",
    )


def run_options(options: Options) -> dict[str, Any]:
    """What `tdd.study.run` is told."""
    return {
        "alphas": options.alphas,
        "repetitions": options.repetitions,
        "seed": options.seed,
        "target_se": options.target_se,
        "folder": options.folder,
        "shard": options.shard,
        "devices": devices(options),
        "progress": options.progress,
    }


def means(draws: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """[repetitions, ...] draws of each name as "name" and "name_se": means and standard errors (ddof 1)."""
    found = {}
    for name, values in draws.items():
        found[name] = np.mean(values, axis=0)
        with np.errstate(invalid="ignore", divide="ignore"):  # one repetition has no standard error
            found[f"{name}_se"] = np.std(values, axis=0) / np.sqrt(np.float64(len(values) - 1))
    return found


def devices(options: Options) -> list[Any]:
    """The first devices of this process, or all."""
    import jax

    found = jax.local_devices()
    if options.devices is not None and not 1 <= options.devices <= len(found):
        raise InputError(f"devices must be 1 to {len(found)}, the devices that JAX has here; got {options.devices}")
    return found[: options.devices]


def dense_ranks(scores: np.ndarray) -> np.ndarray:
    """Scores [K, N] as whole numbers row by row, in the same order with the same ties: single precision holds them."""
    return np.stack([np.unique(row, return_inverse=True)[1] for row in scores]).astype(np.float32)


def stacked(cells: Iterable[Mapping[str, Any]], results: Iterable[StudyResult]) -> StudyResult:
    """Results without a grid as the cells of one result."""
    cells, parts = tuple(dict(cell) for cell in cells), list(results)
    arrays = {
        field.name: np.stack([getattr(part, field.name) for part in parts])
        for field in dataclasses.fields(StudyResult)
        if isinstance(getattr(parts[0], field.name), np.ndarray)
    }
    measures = {name: np.stack([part.measures[name] for part in parts]) for name in parts[0].measures}
    return dataclasses.replace(
        parts[0],
        **arrays,
        measures=measures,
        cells=cells,
        repetitions=np.array([int(part.repetitions) for part in parts], np.int64),
        seconds=sum(part.seconds for part in parts),
        provenance={**parts[0].provenance, "cells": [part.provenance for part in parts]},
    )


def over_cells(cells: Iterable[Mapping[str, Any]], options: Options, one: Callable[..., StudyResult]) -> StudyResult:
    """`one(options, **cell)` for each cell, each continuing in a folder of its own."""
    found, start, cells = [], time.perf_counter(), list(cells)
    for i, cell in enumerate(cells):
        folder = None if options.folder is None else options.folder / f"cell-{i:02d}"
        found.append(one(dataclasses.replace(options, folder=folder), **cell))
    return dataclasses.replace(stacked(cells, found), seconds=time.perf_counter() - start)
