"""KTD's rule at every level, by how far members stand apart and by the law of the scores."""

from __future__ import annotations

from tdd.study.named.knockoff_pool import of_signals

__all__ = ["SIGNALS", "STUDY"]

SIGNALS = (1.0, 2.0, 3.0)
STUDY = of_signals(
    "ktd-alpha",
    "KTD's averaged W at every level, by the signal and the law of the scores",
    kind="levels",
    signals=SIGNALS,
    alphas=(0.05, 0.15, 0.25, 0.35, 0.45, 0.55, 0.65, 0.75, 0.85, 0.95),
)
