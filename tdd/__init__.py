"""Training-data detection with a controlled error rate.

Texts → TokenBatch → TokenStats → Scores → PValues → Selection → Report. The public names below are loaded on first
use: `import tdd` itself imports neither jax nor flax nor transformers.
"""

from __future__ import annotations

import importlib
import importlib.util
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_PUBLIC = {
    "InputError": "tdd.validate",
    "LanguageModel": "tdd.records",
    "Scores": "tdd.records",
    "Selection": "tdd.records",
    "TestResult": "tdd.records",
    "Texts": "tdd.records",
    "bh": "tdd.methods.testing",
    "bonferroni": "tdd.methods.testing",
    "by": "tdd.methods.testing",
    "load": "tdd.models.checkpoint",
    "load_texts": "tdd.texts",
    "run_audit": "tdd.audit.run",
    "score": "tdd.audit.score",
    "select": "tdd.audit.run",
    "token_stats": "tdd.scoring.token_stats",
    "conformal_p_values": "tdd.methods.testing",
    "hochberg": "tdd.methods.testing",
    "holm": "tdd.methods.testing",
    "ptdi": "tdd.methods.ptdi",
    "storey_bh": "tdd.methods.testing",
}

__all__ = ["__version__", *_PUBLIC]

if TYPE_CHECKING:
    from tdd.methods.ptdi import ptdi
    from tdd.methods.testing import bh, bonferroni, by, conformal_p_values, hochberg, holm, storey_bh
    from tdd.records import LanguageModel, Scores, Selection, TestResult, Texts
    from tdd.validate import InputError


def __getattr__(name: str) -> Any:
    """Import a public name from the module that defines it, once."""
    if name not in _PUBLIC:
        raise AttributeError(f"module 'tdd' has no attribute {name!r}; public names: {', '.join(__all__)}")
    value = getattr(importlib.import_module(_PUBLIC[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
