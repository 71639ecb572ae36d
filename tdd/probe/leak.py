"""A leak of a benchmark into the training data: the record of what is known, and the estimate of when it began."""

from __future__ import annotations

import dataclasses

import numpy as np

from tdd.records import Guarantee

__all__ = ["GUARANTEE_ROWS", "Leak", "rises", "shard_rises", "start_of_rise"]

GUARANTEE_ROWS = [
    (
        "tdd.probe.Leak",
        "num_false and num_leaked",
        Guarantee(
            "P(num_false too small or num_leaked too large at some look) <= alpha",
            (
                "items that are not leaked and references are exchangeable at every look",
                "the score, the steps of the looks and their number were fixed before any score was seen",
                "the training does not react to the evidence, except by stopping",
            ),
            "finite-sample",
            "tdd.fdp_bounds, each look at its share of alpha; Gazin, Blanchard & Roquain (2024)",
        ),
    )
]


@dataclasses.dataclass(frozen=True)
class Leak:
    """Knowledge of a leak.

    `num_false` and `num_leaked` hold together, at all looks, with probability `confidence`; with `alarm` as well, all
    three hold together with probability 1 - 2 alpha.

    Attributes:
      alarm: Step of the first alarm: the leak began before it (P(an alarm without a leak) <= alpha over the whole
        run).
      began: Steps of two consecutive looks between which, as an ESTIMATE, the leak began; the first is None if that
        was before the first look. No guarantee; its error depends on how fast the items are learnt.
      step: Step of the look that the following rests on, the last one within num_steps.
      items: Identifiers of the items that are flagged by then: FDR <= alpha at whatever look one reads them.
      num_false: Upper bound on the number of `items` that are not leaked, whatever the reason for choosing this look.
      num_leaked: Lower bound on the number of leaked items.
      fraction: num_leaked as a fraction of all items.
      fraction_estimate: Estimated fraction, 1 - 2 (1 + #{p >= 1/2}) / m from the conformal p-values of that look, at
        least `fraction` (Storey's estimate at one half).
      confidence: 1 - alpha, of `num_false` and `num_leaked` together.
    """

    alarm: int
    began: tuple[int | None, int]
    step: int
    items: tuple[str, ...]
    num_false: int
    num_leaked: int
    fraction: float
    fraction_estimate: float
    confidence: float

    def __str__(self) -> str:
        start = (
            "before the first look" if self.began[0] is None else f"between steps {self.began[0]} and {self.began[1]}"
        )
        sentences = [f"The benchmark has leaked into training before step {self.alarm}; it probably began {start}."]
        if self.num_leaked:
            sentences.append(
                f"At step {self.step} at least {self.num_leaked} items ({self.fraction:.0%}) are leaked (confidence "
                f"{self.confidence:.0%}, estimate {self.fraction_estimate:.0%})."
            )
        if self.items:
            sentences.append(f"{len(self.items)} items are named, of which at most {self.num_false} wrongly.")
        return " ".join(sentences)


def rises(paths: np.ndarray, num_suspects: int) -> np.ndarray:
    """Fall of the suspects below what their last scores predict, look by look, in standard deviations.

    Scores of a look are regressed on those of the look before over all items; z is the mean residual of the suspects
    against its law under random labellings. Before a leak the z are about uncorrelated, of mean 0 and variance 1.

    Args:
      paths: [L, N] loss-like scores; the first m items are the suspects.
      num_suspects: m.

    Returns:
      [L] z, large = more member-like than before; the first is that of the scores themselves. 0 where undefined.
    """
    z = []
    for look, scores in enumerate(paths):
        residual, real = _residual(scores, paths[look - 1] if look else None)
        count = int(real.sum())
        suspects = real[:num_suspects]
        m = int(suspects.sum())
        spread = np.var(residual[real]) if count else 0.0
        if min(m, count - m) < 1 or spread == 0:
            z.append(0.0)
            continue
        gap = np.mean(residual[real]) - np.mean(residual[:num_suspects][suspects])
        z.append(gap / np.sqrt(spread * (count - m) / (m * (count - 1))))
    return np.array(z)


def shard_rises(paths: np.ndarray) -> np.ndarray:
    """`rises` of the canonical order of shards against their shuffles.

    Args:
      paths: [L, r, k + 1] loss-like scores of each shard in its canonical order and in k others.

    Returns:
      [L] z, the sum over shards against its law where any order may be the canonical one. 0 where undefined.
    """
    z = []
    for look, scores in enumerate(paths):
        real = np.isfinite(paths[max(0, look - 1) : look + 1]).all(axis=(0, 2))
        before = _centred(paths[look - 1][real]) if look else None
        residual, _ = _residual(_centred(scores[real]), before)
        variance = np.mean(residual**2, axis=1).sum()
        z.append(-residual[:, 0].sum() / np.sqrt(variance) if variance > 0 else 0.0)
    return np.array(z)


def start_of_rise(z: np.ndarray) -> int:
    """The number of looks before the rise that leads to the last one: the most likely change from mean 0 to a larger.

    argmax over s of max(0, z_(s+1) + ... + z_L)^2 / (L - s), for independent z of variance 1.

    >>> start_of_rise(np.array([0.3, -0.5, 0.2, 2.0, 1.5]))
    3
    """
    total = np.cumsum(z[::-1])[::-1]
    return int(np.argmax(np.maximum(total, 0) ** 2 / np.arange(len(z), 0, -1)))


def _residual(scores: np.ndarray, before: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
    """Residuals of the regression on the scores of the look before, and a mask of the items that are finite in both."""
    real = np.isfinite(scores) if before is None else np.isfinite(scores) & np.isfinite(before)
    y = np.where(real, scores, 0).astype(np.float64)
    y = np.where(real, y - (y[real].mean() if real.any() else 0), 0)
    if before is None:
        return y, real
    x = np.where(real, before, 0).astype(np.float64)
    x = np.where(real, x - (x[real].mean() if real.any() else 0), 0)
    spread = np.sum(x * x)
    return y - (np.sum(x * y) / spread if spread > 0 else 0) * x, real


def _centred(scores: np.ndarray) -> np.ndarray:
    return scores - scores.mean(axis=1, keepdims=True, dtype=np.float64)
