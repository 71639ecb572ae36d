"""Every guarantee record of the project, by procedure: the table that `tdd guarantees` prints."""

from __future__ import annotations

import importlib
from typing import NamedTuple

from tdd.records import Guarantee

__all__ = ["Row", "all_guarantees"]

_MODULES = (
    "methods.testing",
    "methods.ptdi",
    "methods.ktd",
    "methods.td4eval",
    "methods.combining",
    "methods.jecs",
    "methods.exchangeability",
    "methods.sequential",
    "methods.anytime",
    "methods.evalues",
    "methods.best_score",
    "methods.conditional",
    "methods.weighted",
    "methods.clusters",
    "methods.bounds",
    "methods.local_fdr",
    "methods.online",
    "methods.online_streams",
    "methods.martingale",
    "exchange.structure",
    "probe.evidence",
    "probe.benchmark_order",
    "probe.leak",
    "probe.order",
    "audit.procedures",
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
    """Rows in the order of the methods; each module lists its own in `GUARANTEE_ROWS`."""
    modules = [importlib.import_module(f"tdd.{name}") for name in _MODULES]
    return tuple(Row(*row) for module in modules for row in module.GUARANTEE_ROWS)
