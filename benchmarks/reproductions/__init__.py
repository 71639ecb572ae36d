"""Reproductions: each answers, on models trained here, a question that one of the papers asks of large ones.

A reproduction is a module with a constant `REPRODUCTION`; its modules load late, and importing one imports no JAX.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from benchmarks.reproductions.record import Reproduction

__all__ = ["REPRODUCTIONS", "Title", "load"]


class Title(NamedTuple):
    """One line about a reproduction.

    Attributes:
      shows: what it shows.
      paper: which paper's question it is.
    """

    shows: str
    paper: str


REPRODUCTIONS: dict[str, Title] = {
    "exchangeability": Title(
        "p-values of the test of canonical order by test and duplication count; size where nothing was planted",
        "the sharded exchangeability test, figure 2 and table 1",
    ),
    "ptdi-ktd": Title(
        "PTDI and KTD on the same fine-tuned models: error and power over level, number of knockoffs and model size",
        "PTDI; KTD, figures 1, 4 and 5",
    ),
    "td4eval": Title("a contaminated benchmark, cleaned: rankings of models before and after", "TD4Eval"),
    "jecs": Title("which texts were all of K models trained on, which any of them", "JECS"),
    "power-grid": Title(
        "power over model size, duplication count and epochs", "PTDI; the sharded exchangeability test"
    ),
}


def load(name: str) -> Reproduction:
    """The reproduction of a name.

    Raises:
      InputError: An unknown name.
    """
    from tdd.lab.checks import check_named

    check_named("reproduction", name, tuple(REPRODUCTIONS))
    return importlib.import_module(f"benchmarks.reproductions.{name.replace('-', '_')}").REPRODUCTION
