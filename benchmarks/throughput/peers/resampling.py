"""The loop over random half splits of a labelled pool that studies of PTDI run: NumPy's draws, SciPy's BH."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from benchmarks.throughput.peers.ranking import SLACK, subtraction

__all__ = ["resample"]


def resample(
    scores: np.ndarray,
    is_member: np.ndarray,
    alphas: Sequence[float],
    repetitions: int,
    seed: int = 0,
    eta: float = 0.05,
    reuse: bool = False,
) -> np.ndarray:
    """FDP and power of plain and subtraction-scaled PTDI over random half splits.

    The non-members of one half calibrate, the other half is tested. One sort, one `searchsorted` and one call of
    `scipy.stats.false_discovery_control` for each of the two variants; all levels are read off the adjusted values.

    Args:
      scores: [N] loss-like.
      is_member: [N] bool.
      alphas: levels.
      repetitions: splits.
      seed: of NumPy's generator.
      eta: share of the calibration scores in the region of presumed non-members.
      reuse: call SciPy once, as scaled p-values have scaled adjusted values.

    Returns:
      [repetitions, 2 (FDP, power), 2 (plain, scaled), levels].
    """
    from scipy.stats import false_discovery_control

    rng = np.random.default_rng(seed)
    half = scores.size // 2
    levels = SLACK * np.array(alphas)[:, None]
    found = np.empty((repetitions, 2, 2, len(alphas)))
    for i in range(repetitions):
        order = rng.permutation(scores.size)
        first, second = order[:half], order[half:]
        calibration = np.sort(scores[first[~is_member[first]]])
        tested, member = scores[second], is_member[second]
        p_values = (1 + np.searchsorted(calibration, tested, side="right")) / (calibration.size + 1)
        factor = 1 - subtraction(calibration, tested, eta)
        adjusted = false_discovery_control(p_values)
        again = not reuse and factor <= 1  # SciPy takes no p-value above 1
        scaled = false_discovery_control(factor * p_values) if again else factor * adjusted
        for j, values in enumerate((adjusted, scaled)):
            selected = values <= levels
            count = np.count_nonzero(selected, axis=1)
            true = np.count_nonzero(selected & member, axis=1)
            found[i, 0, j] = (count - true) / np.maximum(count, 1)
            found[i, 1, j] = true / max(np.count_nonzero(member), 1)
    return found
