"""Training-data detection with a controlled error rate.

Texts → TokenBatch → TokenStats → Scores → PValues → Selection → Report. The public names below are loaded on first
use: `import tdd` itself imports neither jax nor flax nor transformers.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tdd.audit.run import run_audit, select
    from tdd.audit.score import score
    from tdd.methods.ptdi import ptdi
    from tdd.methods.testing import bh, bonferroni, by, conformal_p_values, hochberg, holm, storey_bh
    from tdd.models.checkpoint import load
    from tdd.records import LanguageModel, Scores, Selection, TestResult, Texts
    from tdd.scoring.token_stats import token_stats
    from tdd.tables import load_score_table
    from tdd.texts import load_texts
    from tdd.validate import InputError

__version__ = "0.1.0"

__all__ = [
    "InputError",
    "LanguageModel",
    "Scores",
    "Selection",
    "TestResult",
    "Texts",
    "__version__",
    "bh",
    "bonferroni",
    "by",
    "conformal_p_values",
    "hochberg",
    "holm",
    "load",
    "load_score_table",
    "load_texts",
    "ptdi",
    "run_audit",
    "score",
    "select",
    "storey_bh",
    "token_stats",
]

_HOMES = {
    "tdd.audit.run": ("run_audit", "select"),
    "tdd.audit.score": ("score",),
    "tdd.methods.ptdi": ("ptdi",),
    "tdd.methods.testing": ("bh", "bonferroni", "by", "conformal_p_values", "hochberg", "holm", "storey_bh"),
    "tdd.models.checkpoint": ("load",),
    "tdd.records": ("LanguageModel", "Scores", "Selection", "TestResult", "Texts"),
    "tdd.scoring.token_stats": ("token_stats",),
    "tdd.tables": ("load_score_table",),
    "tdd.texts": ("load_texts",),
    "tdd.validate": ("InputError",),
}
_HOME = {name: module for module, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    """Import a public name from the module that defines it, once."""
    if name not in _HOME:
        raise AttributeError(f"module 'tdd' has no attribute {name!r}; public names: {', '.join(__all__)}")
    value = getattr(importlib.import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def _kernel(name: str) -> Any:
    """`tdd.kernels.stepup` without an import statement."""
    try:
        return importlib.import_module(f"tdd.kernels.{name}")
    except ModuleNotFoundError as error:
        raise AttributeError(f"module 'tdd.kernels' has no attribute {name!r}") from error


vars(importlib.import_module("tdd.kernels"))["__getattr__"] = _kernel  # a namespace package: no code runs


def __dir__() -> list[str]:
    return sorted(__all__)
