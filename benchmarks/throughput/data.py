"""Data of the kernel cases at any size: one data set, or a batch along a leading axis."""

from __future__ import annotations

import numpy as np

from benchmarks.throughput.cases import Size

__all__ = [
    "draws", "e_values", "groups", "normal", "p_values", "panels", "scores", "shape", "shards", "statistics",
    "templates", "weighted_scores",
]  # fmt: skip

DETECTORS = 5


def shape(size: Size, *trailing: int) -> tuple[int, ...]:
    """The shape of an array of one value an item, with the axis of the batch if there is one."""
    leading = () if size.batch is None else (size.batch,)
    return (*leading, *trailing, size.items)


def p_values(rng: np.random.Generator, size: Size) -> dict[str, np.ndarray]:
    """Uniform p-values, a fifth of them signals down to 1e-6."""
    values = rng.random(shape(size))
    signals = rng.random(values.shape) < 0.2
    return {"p_values": np.maximum(np.where(signals, values**5, values), 1e-6).astype(np.float32)}


def scores(rng: np.random.Generator, size: Size) -> dict[str, np.ndarray]:
    """N(0, 1) calibration scores; a fifth of the tests are shifted down by 3."""
    shift = 3.0 * (rng.random(shape(size)) < 0.2)
    calibration, tested = rng.normal(size=shape(size)), rng.normal(size=shape(size)) - shift
    return {"calibration": calibration.astype(np.float32), "scores": tested.astype(np.float32)}


def panels(rng: np.random.Generator, size: Size) -> dict[str, np.ndarray]:
    """Scores of known members under several models; three tenths of the candidates belong to none and lie higher."""
    shift = 3.0 * (rng.random(shape(size)) < 0.3)[..., None, :]
    calibration = rng.normal(size=shape(size, DETECTORS))
    tested = rng.normal(size=shape(size, DETECTORS)) + shift
    return {"calibration": calibration.astype(np.float32), "scores": tested.astype(np.float32)}


def weighted_scores(rng: np.random.Generator, size: Size) -> dict[str, np.ndarray]:
    """Scores with log-normal weights."""
    drawn = scores(rng, size)
    for name in ("calibration_weights", "weights"):
        drawn[name] = np.exp(0.5 * rng.normal(size=shape(size))).astype(np.float32)
    return drawn


def groups(rng: np.random.Generator, size: Size) -> dict[str, np.ndarray]:
    """Five p-values an item."""
    values = rng.random((*shape(size), DETECTORS)) ** 2
    return {"p_values": np.clip(values, 1e-6, 0.9999).astype(np.float32)}


def statistics(rng: np.random.Generator, size: Size) -> dict[str, np.ndarray]:
    """Knockoff statistics, a fifth of them shifted up."""
    return {"w": -scores(rng, size)["scores"]}


def e_values(rng: np.random.Generator, size: Size) -> dict[str, np.ndarray]:
    """Reciprocals of p-values, which reject often enough to compare decisions."""
    return {"e_values": (1 / p_values(rng, size)["p_values"]).astype(np.float32)}


def draws(rng: np.random.Generator, size: Size) -> dict[str, np.ndarray]:
    """A statistic and so many permuted ones."""
    leading = () if size.batch is None else (size.batch,)
    return {
        "observed": np.asarray(1 + rng.random(leading), np.float32),
        "permuted": rng.normal(size=shape(size)).astype(np.float32),
    }


def shards(rng: np.random.Generator, size: Size) -> dict[str, np.ndarray]:
    """Log-probabilities of as many orders as there are items: ten shuffles a shard."""
    leading = () if size.batch is None else (size.batch,)
    rows = max(2, size.items // 10)
    return {
        "canonical": (rng.normal(size=(*leading, rows)) + 0.1).astype(np.float32),
        "shuffled": rng.normal(size=(*leading, rows, 10)).astype(np.float32),
    }


def templates(rng: np.random.Generator, size: Size) -> dict[str, np.ndarray]:
    """Ranks, and an envelope of the usual form: mean and a multiple of the square root, on geometric grids."""
    points = size.items + 1
    nulls = np.unique(np.geomspace(1, size.items, 40).astype(np.int32))
    grid = np.unique(np.geomspace(1, size.items, 120).astype(np.int32))
    mean = nulls[:, None].astype(float) * grid / points
    bound = np.minimum(np.ceil(mean + 3 * np.sqrt(mean) + 2), nulls[:, None]).astype(np.int32)
    rank = np.where(rng.random(shape(size)) < 0.3, rng.integers(1, 2 + size.items // 50, shape(size)), 0)
    rank = np.where(rank > 0, rank, rng.integers(1, points + 1, shape(size))).astype(np.int32)
    every = {"num_nulls": nulls, "grid": grid, "bound": bound, "num_calibration": np.int32(size.items)}
    if size.batch is not None:
        every = {name: np.broadcast_to(value, (size.batch, *np.shape(value))) for name, value in every.items()}
    return {**{name: np.asarray(value) for name, value in every.items()}, "rank": rank}


def normal(rng: np.random.Generator, size: Size) -> dict[str, np.ndarray]:
    """Values whose mean lies half a standard error above 0."""
    return {"values": (rng.normal(size=shape(size)) + 0.5 / np.sqrt(size.items)).astype(np.float32)}
