"""Statistics of token rows, padded with values that would show."""

import jax
import numpy as np

from tdd.records import TokenStats
from tdd.scoring.scores.score import parse_score

FIELDS = ("log_prob", "mu", "sigma", "renyi_half", "renyi_two", "renyi_inf", "m_entropy", "rank")


def score_rows(stats, score, evidence=None):
    """A score, or its text, of every row; `evidence` as for `Score.finish`."""
    value = parse_score(score) if isinstance(score, str) else score
    return value.finish(value.rows(stats), evidence or {})


def stats_of(rows, length=None):
    """Rows of {field: values} → padded statistics whose padding holds tempting values."""
    length = length or max(len(next(iter(row.values()))) for row in rows)
    found = {field: np.full((len(rows), length), -50.0 if field == "log_prob" else 99.0) for field in FIELDS}
    mask = np.zeros((len(rows), length), bool)
    for i, row in enumerate(rows):
        for field, values in row.items():
            found[field][i, : len(values)] = values
            mask[i, : len(values)] = True
    return TokenStats(**found, mask=mask)


def narrow(stats):
    return jax.tree.map(lambda x: x if x.dtype == bool else np.float32(x), stats)
