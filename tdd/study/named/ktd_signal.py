"""KTD's power against its error over all levels, by how far members stand apart: the larger a model, the further."""

from __future__ import annotations

from tdd.study.named.knockoff_pool import of_signals

__all__ = ["STUDY"]

STUDY = of_signals(
    "ktd-signal",
    "KTD's averaged W: power against FDR over the levels, by the signal",
    kind="tradeoff",
    signals=(0.5, 1.0, 1.5, 2.0),
    alphas=(0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.99),
)
