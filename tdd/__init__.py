"""Training-data detection with a controlled error rate.

Texts → TokenStats → Scores → Evidence → Selection → Report. The public names, listed in `__init__.pyi`,
are loaded on first use: `import tdd` itself imports neither jax nor flax nor transformers. `tdd.study` (with plans of
power), `tdd.probe`, `tdd.procedures` (each as a value), `tdd.scores` and `tdd.records` have more.
"""

from __future__ import annotations

import importlib
import pathlib
from typing import Any

import lazy_loader

__version__ = "0.1.0"

_of_stub, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)

_MOVED = {
    "study": (
        "LabelledScores", "NormalScores", "ShardEffect", "ShardLogProbs", "expected_exchange_power", "expected_power",
    ),
    "procedures": (
        "BestScore", "CombinedScore", "ConditionalBH", "Weighted", "average_e_values", "effective_sample_size",
    ),
    "records": ("Scores", "Selection", "TestResult", "Texts"),
}  # fmt: skip
"""Names that stood here, by the module that has them."""


def __getattr__(name: str) -> Any:
    for module, names in _MOVED.items():
        if name in names:
            raise AttributeError(f"tdd.{name} is now tdd.{module}.{name}")
    return _of_stub(name)


def _kernel(name: str) -> Any:
    """`tdd.kernels.stepup` without an import statement."""
    try:
        return importlib.import_module(f"tdd.kernels.{name}")
    except ModuleNotFoundError as error:
        raise AttributeError(f"module 'tdd.kernels' has no attribute {name!r}") from error


def _kernels() -> list[str]:
    return sorted(path.stem for folder in _namespace.__path__ for path in pathlib.Path(folder).glob("*.py"))


_namespace = importlib.import_module("tdd.kernels")  # a namespace package: no code runs
vars(_namespace).update(__getattr__=_kernel, __dir__=_kernels)
