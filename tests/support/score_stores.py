"""Rows of a score store that their number decides, and a store that holds them."""

import numpy as np

from tdd.scoring.store import ScoreStore
from tdd.scoring.store.namespace import VALUE

ABOUT = {"model": "a", "kind": "test"}


def row(number, fields=1):
    """The row of a key: any number of columns, none too; NaN and infinity among them."""
    rng = np.random.default_rng(number)
    values = rng.normal(size=(fields, number % 5)).astype(np.float32)
    values[rng.random(values.shape) < 0.1] = rng.choice([np.nan, np.inf, -np.inf])
    return values


def key(number):
    return number.to_bytes(16, "big")


def fill(rows, numbers, fields=VALUE):
    return rows.append([key(i) for i in numbers], [row(i, len(fields)) for i in numbers], fields)


def opened(folder, about=ABOUT):
    return ScoreStore(folder).namespace(about)


def shards(folder):
    return sorted(folder.rglob("*.parquet"))
