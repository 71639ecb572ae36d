"""The demonstration: audit the packaged checkpoint and hold the decisions against the known truth."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from tdd.audit.decide import decide
from tdd.audit.run import run_audit
from tdd.audit.run_folder import Audit
from tdd.demo.data import DemoFiles, demo_files, load_calibration, load_candidates

__all__ = ["LEVELS", "SCORES", "Demo", "run_demo"]

LEVELS = (0.05, 0.1, 0.2)
SCORES = ("loss", "zlib", "lowercase", "min_k", "min_k_plus_plus", "m_entropy", "max_renyi")
_DECIDING = "loss"


class Demo(NamedTuple):
    """What the demonstration found.

    Attributes:
      audit: the audit at level 0.1 on the loss.
      rows: one for each score and level: score, alpha, num_selected, num_false, fdp, power, proportion.
    """

    audit: Audit
    rows: tuple[dict[str, Any], ...]


def run_demo(
    *,
    levels: Sequence[float] = LEVELS,
    scores: Sequence[str] = SCORES,
    files: DemoFiles | None = None,
    out: str | os.PathLike[str] | None = None,
    **scoring: Any,
) -> Demo:
    """Audit the packaged model on the packaged texts, whose membership is known.

    Args:
      levels: levels of the table.
      scores: scores of the table. Each row of it is a demonstration of one score chosen beforehand; picking the best
        row afterwards would void the guarantee.
      files: another demonstration, from `tdd.demo.retrain.retrain`.
      out: run folder of the audit.
      **scoring: passed to `tdd.score`.

    Returns:
      `Demo`.
    """
    files = files or demo_files()
    candidates, calibration = load_candidates(files), load_calibration(files)
    audit = run_audit(
        files.checkpoint, candidates, calibration, alpha=0.1, score=_DECIDING, also=scores, out=out, **scoring
    )
    rows = []
    for name in scores:
        for alpha in levels:
            decision = decide(
                np.asarray(audit.calibration[name]), np.asarray(audit.items[name]), alpha=alpha, score=name,
                labels=candidates.labels,
            )
            truth = decision.truth
            assert truth is not None  # the packaged candidates all have labels
            rows.append(
                {
                    "score": name,
                    "alpha": alpha,
                    "num_selected": decision.num_selected,
                    "num_false": truth.num_false,
                    "fdp": truth.fdp,
                    "power": truth.power,
                    "proportion": decision.proportion,
                }
            )
    return Demo(audit, tuple(rows))
