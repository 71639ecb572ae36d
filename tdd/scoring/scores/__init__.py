"""Scores of texts as values; all loss-like: LOWER = MORE member-like.

`tdd.scores.MinK(k=0.1)` or "min_k:k=0.1", `tdd.scores.ReCall(prefix=unseen)` or "recall:prefix=unseen.jsonl". A class
of one's own derives from `Score`; `option`, `models_given` and `texts_given` make its fields.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from tdd.scoring.scores.score import OWN, SCORES, Evidence, Pass, Score, models_given, option, texts_given

if TYPE_CHECKING:
    from tdd.scoring.scores.camia import Camia
    from tdd.scoring.scores.fsd import Fsd
    from tdd.scoring.scores.passes import ConReCall, GradNorm, Lowercase, ReCall
    from tdd.scoring.scores.references import Lira, Reference, Rmia
    from tdd.scoring.scores.tokens import (
        AcMia,
        DcPdd,
        Diversity,
        Loss,
        MaxRenyi,
        MEntropy,
        MinK,
        MinKPlusPlus,
        Surp,
        Zlib,
    )

__all__ = [
    "SCORES", "AcMia", "Camia", "ConReCall", "DcPdd", "Diversity", "Evidence", "Fsd", "GradNorm", "Lira", "Loss",
    "Lowercase", "MEntropy", "MaxRenyi", "MinK", "MinKPlusPlus", "Pass", "ReCall", "Reference", "Rmia", "Score", "Surp",
    "Zlib", "models_given", "option", "texts_given",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    """The class of a score, whose file is imported when it is looked up."""
    for module, cls in OWN.values():
        if cls == name:
            return getattr(importlib.import_module(f"{__name__}.{module}"), cls)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
