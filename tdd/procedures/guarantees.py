"""The table of all guarantees, which `tdd guarantees` prints."""

from __future__ import annotations

import importlib
from typing import NamedTuple

from tdd.procedures.grammar import known_procedures
from tdd.records import Guarantee

__all__ = ["Row", "all_guarantees"]

_MODULES = (
    "procedures.p_values",
    "procedures.conditional",
    "procedures.testing",
    "procedures.ptdi",
    "procedures.ktd",
    "procedures.knockoff_symmetry",
    "procedures.td4eval",
    "procedures.combining",
    "procedures.jecs",
    "procedures.exchangeability",
    "procedures.sequential",
    "procedures.versions",
    "procedures.dataset_inference",
    "procedures.anytime",
    "procedures.evalues",
    "procedures.best_score",
    "procedures.combined_score",
    "procedures.weighted",
    "procedures.clusters",
    "procedures.bounds",
    "procedures.knockoff_bounds",
    "procedures.online",
    "procedures.martingale",
    "exchange.structure",
    "probe.evidence",
    "probe.benchmark",
    "probe.order",
    "audit.blind_baseline",
    "audit.flagged",
    "audit.overlap",
    "audit.owner_versions",
    "audit.owner_dataset",
    "study.baselines",
)
"""The modules with a `GUARANTEE_ROWS`, in the order of the table."""


class Row(NamedTuple):
    """One procedure under one option.

    Attributes:
      call: public function, as "tdd.ptdi".
      option: the decisive option, as 'proportion="storey"', or "".
      guarantee: the record in its results.
    """

    call: str
    option: str
    guarantee: Guarantee


def all_guarantees() -> tuple[Row, ...]:
    """Return the `GUARANTEE_ROWS` of all modules, then procedures that a user has defined, with default options."""
    modules = [importlib.import_module(f"tdd.{name}") for name in _MODULES]
    defined = [cls for cls in known_procedures().values() if not cls.__module__.startswith("tdd.")]
    return (
        *(Row(*row) for module in modules for row in module.GUARANTEE_ROWS),
        *(Row(f"{cls.__module__}.{cls.__qualname__}", "", cls().guarantee) for cls in defined),
    )
