"""Statistics of a set of items under many labellings; the sequential rule singles out row 0, so it stands elsewhere."""

import numpy as np
import references_trajectories as ref
from contract_entry import Entry

from tdd.kernels import set_statistics

DRAWS = 11


def items(rng, n, m):
    """Scores with ties and a NaN, [m, K] labellings (an item a row), a mask."""
    scores = np.round(rng.normal(size=m), 1).astype(np.float32)
    if m > 3:
        scores[1], scores[3] = np.nan, np.inf
    mask = rng.random(m) < 0.85 if m > 1 else np.ones(m, bool)
    return {"scores": scores, "labels": rng.random((m, DRAWS + 1)) < 0.4, "mask": mask}


def paired(rng, n, m):
    """With scores of an earlier step, not a whole number of steps apart: residuals do not tie by rounding."""
    arrays = items(rng, n, m)
    baseline = rng.normal(size=m).astype(np.float32)
    arrays["scores"] = (arrays["scores"] + 0.7 * baseline).astype(np.float32)
    return arrays | {"baseline": baseline}


def entry(statistic, make, label):
    return Entry(
        "set_statistics.set_statistics",
        lambda scores, labels, mask=None, baseline=None: set_statistics.set_statistics(
            scores, labels.T, baseline=baseline, mask=mask, statistic=statistic
        ),
        make,
        lambda scores, labels, mask=None, baseline=None: ref.set_statistics(
            scores, labels.T, baseline, mask, statistic
        ),
        label=label,
    )


ENTRIES = [
    *(entry(statistic, items, statistic) for statistic in set_statistics.STATISTICS),
    entry("combined", paired, "baseline"),
]

ELSEWHERE = {
    "set_statistics.labellings": "random; tests/kernels/test_trajectories.py",
    "trajectories.start": "the state before the first look; tests/kernels/test_trajectories.py",
    "trajectories.advance": "row 0 is not like the others; tests/kernels/test_trajectories.py",
    "trajectories.spending": "a share of one look; tests/kernels/test_trajectories.py",
}
