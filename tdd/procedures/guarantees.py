"""Every guarantee record of the project, by procedure: the table that `tdd guarantees` prints."""

from __future__ import annotations

import importlib
from typing import NamedTuple

from tdd.procedures.grammar import known_procedures
from tdd.records import Guarantee

__all__ = ["Row", "all_guarantees"]

_MODULES = (
    "procedures.testing",
    "procedures.ptdi",
    "procedures.ktd",
    "procedures.td4eval",
    "procedures.combining",
    "procedures.jecs",
    "procedures.exchangeability",
    "procedures.sequential",
    "procedures.anytime",
    "procedures.evalues",
    "procedures.best_score",
    "procedures.conditional",
    "procedures.weighted",
    "procedures.clusters",
    "procedures.bounds",
    "procedures.local_fdr",
    "procedures.online",
    "procedures.online_streams",
    "procedures.martingale",
    "exchange.structure",
    "probe.evidence",
    "probe.benchmark",
    "probe.leak",
    "probe.order",
    "procedures.values",
    "audit.blind_baseline",
    "audit.sharing",
    "study.baselines",
)


class Row(NamedTuple):
    """One procedure under one option.

    Attributes:
      call: public function, as "tdd.ptdi".
      option: the option that decides, as 'proportion="storey"', or "".
      guarantee: the record that its results carry.
    """

    call: str
    option: str
    guarantee: Guarantee


def all_guarantees() -> tuple[Row, ...]:
    """Rows in the order of the procedures; each module lists its own in `GUARANTEE_ROWS`. Procedures that a user has
    defined come last, with their usual options."""
    modules = [importlib.import_module(f"tdd.{name}") for name in _MODULES]
    own = [cls for cls in known_procedures().values() if not cls.__module__.startswith("tdd.")]
    return (
        *(Row(*row) for module in modules for row in module.GUARANTEE_ROWS),
        *(Row(f"{cls.__module__}.{cls.__qualname__}", "", cls().guarantee) for cls in own),
    )
