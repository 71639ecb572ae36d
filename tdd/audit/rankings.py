"""Rankings of models by their results on all candidates, on those that were selected as clean, and on the clean ones.

TD4Eval's application (section 5.4, tables 2 and 8 to 11): a benchmark that one of several models was trained on ranks
that model too high; a set of clean items should rank the models as the truly clean items do.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np

ALL, SELECTED, CLEAN = "all items", "the selection", "truly clean items"


@dataclasses.dataclass(frozen=True)
class Ranking:
    """The models on one set of items.

    Attributes:
      items: which items, in words.
      count: number of them with a result of every model.
      fdp: fraction of contaminated ones among all items of the set, 0 for an empty set; None without known labels.
      means: [M] mean result of each model; NaN where there is no item.
      ranks: [M] rank of each model, 1 the highest mean, ties their mean rank; NaN where there is no item.
      srcc: Spearman's correlation with the ranking on the reference; None where either ranks all models alike.
    """

    items: str
    count: int
    fdp: float | None
    means: tuple[float, ...]
    ranks: tuple[float, ...]
    srcc: float | None


@dataclasses.dataclass(frozen=True)
class Rankings:
    """The models on several sets of items.

    Attributes:
      models: M names.
      reference: the set whose ranking the others are compared with: the truly clean items where all labels are known,
        else all items.
      rows: one a set.
    """

    models: tuple[str, ...]
    reference: str
    rows: tuple[Ranking, ...]


def rankings(
    results: Mapping[str, np.ndarray], selections: Mapping[str, np.ndarray], labels: np.ndarray | None = None
) -> Rankings:
    """Rank models on sets of items by their mean results there.

    No error rate of a ranking is controlled: the level of a selection bounds the fraction of contaminated items in it,
    on average, and a selection is not neutral, since clean items that a model finds likely are left out more often.

    Paper: TD4Eval, section 5.4, compares with the ranking of the models before contamination on the whole benchmark,
    which an auditor does not have; here the reference is the ranking on the truly clean items.

    Args:
      results: model -> [m] its result on every item, higher = better, NaN where it has none. Items without a result of
        every model count in no mean.
      selections: set in words -> [m] bool, as those of the paper's table 2, `tdd.study.baselines.threshold` of each
        detector, which `tdd.select` makes where there are known items of both kinds.
      labels: [m] 1 contaminated, 0 clean, -1 unknown. Where all are known, the truly clean items are a set too, and the
        reference.
    """
    table = np.stack([np.asarray(values, np.float64) for values in results.values()])
    complete = ~np.isnan(table).any(axis=0)
    known = labels is not None and bool(len(labels)) and bool((np.asarray(labels) >= 0).all())
    contaminated = np.asarray(labels) == 1 if known else None
    sets = {ALL: np.ones(table.shape[1], bool), **selections}
    if contaminated is not None:
        sets[CLEAN] = ~contaminated
    reference = CLEAN if contaminated is not None else ALL
    means = {name: _means(table, chosen & complete) for name, chosen in sets.items()}
    rows = []
    for name, chosen in sets.items():
        fdp = None if contaminated is None else float((chosen & contaminated).sum() / max(1, chosen.sum()))
        rows.append(
            Ranking(
                items=name,
                count=int((chosen & complete).sum()),
                fdp=fdp,
                means=tuple(means[name].tolist()),
                ranks=tuple(_ranks(means[name]).tolist()),
                srcc=spearman(means[name], means[reference]),
            )
        )
    return Rankings(tuple(results), reference, tuple(rows))


def spearman(first: Sequence[float] | np.ndarray, second: Sequence[float] | np.ndarray) -> float | None:
    """Spearman's rank correlation, ties given their mean rank; None where all of one are equal, or one is missing.

    >>> spearman([1.0, 2.0, 3.0], [2.0, 4.0, 3.0])
    0.5
    """
    one, two = (_ranks(np.asarray(values, np.float64)) for values in (first, second))
    one, two = one - one.mean(), two - two.mean()
    spread = float(np.sqrt((one @ one) * (two @ two)))
    return float(one @ two) / spread if spread > 0 else None


def _means(table: np.ndarray, chosen: np.ndarray) -> np.ndarray:
    """[M] means over the chosen items, NaN without any."""
    return table[:, chosen].mean(axis=1) if chosen.any() else np.full(len(table), np.nan)


def _ranks(means: np.ndarray) -> np.ndarray:
    """Ranks from 1, the highest first, ties their mean; NaN throughout where a value is."""
    from scipy.stats import rankdata

    return np.full(means.shape, np.nan) if np.isnan(means).any() else rankdata(-means)
