"""A named study: its question, how it runs, the bound that holds in each of its cells, and how it is drawn."""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Callable, Mapping
from typing import Any, Literal

import numpy as np

__all__ = ["Columns", "Example", "ExpectedBound", "Figure", "NamedStudy", "Needs", "StudyOptions", "verdict"]

_SURE = 3.0  # standard errors above the bound


@dataclasses.dataclass(frozen=True)
class Columns:
    """A given score table, as a study reads it.

    Attributes:
      source: name of the table.
      sha256: digest of its content.
      names: K names of score columns.
      scores: [K, N] loss-like scores, LOWER = MORE member-like.
      labels: [L, N] bool, True = member; one row, or one for each score column.
      knockoffs: [N, k] scores of paraphrases or shuffles, k = 0 without any.
    """

    source: str
    sha256: str
    names: tuple[str, ...]
    scores: np.ndarray
    labels: np.ndarray
    knockoffs: np.ndarray


@dataclasses.dataclass(frozen=True)
class StudyOptions:
    """Options that all named studies have.

    Attributes:
      repetitions: number for each cell; with `target_se` the largest.
      alphas: levels.
      seed: random seed.
      columns: a given score table in place of synthetic data.
      target_se: stop a cell once the standard errors of its error rates and powers are at most this.
      folder: folder in which an interrupted study continues.
      shard: (i, n) or "i/n", a part of the repetitions of each cell; None runs all.
      devices: number of devices, None = all.
      progress: whether to show a bar.
    """

    repetitions: int
    alphas: tuple[float, ...]
    seed: int = 0
    columns: Columns | None = None
    target_se: float | None = None
    folder: pathlib.Path | None = None
    shard: tuple[int, int] | str | None = None
    devices: int | None = None
    progress: bool = False


@dataclasses.dataclass(frozen=True)
class ExpectedBound:
    """The bound that is claimed for the error rate of a method in a cell.

    Attributes:
      kind: whether the bound holds in finite samples, in the limit, or not at all.
      factor: the bound divided by alpha.
    """

    kind: Literal["finite-sample", "asymptotic", "none"] = "finite-sample"
    factor: float = 1.0


@dataclasses.dataclass(frozen=True)
class Figure:
    """Layout of the figure and the table of a study.

    Attributes:
      kind: "levels" draws the error rate against alpha and the power; "bands" also its spread over repetitions, one
        panel a cell; "parameter" draws both against a field of the cells; "bars" both as bars; "tradeoff" draws the
        power against the error rate, along the levels.
      series: "method", or the field of the cells that tells the lines apart.
      panels: "method", or the field of the cells that tells the panels apart; "" for one panel.
      x: field of the cells on the horizontal axis ("parameter").
      x_label: label of the horizontal axis.
      level: the alpha nearest to this is drawn ("parameter").
      error: name of the error rate.
      power: name of the power.
      labels: labels of methods and fields.
      columns: fields of the cells in the table; () for all.
      fields: the two numbers that are drawn against a parameter; others than these are measures.
      counts: whether the table has the number of selected items.
      measures: further numbers of the result in the table, by name.
    """

    kind: Literal["levels", "bands", "parameter", "bars", "tradeoff"]
    series: str = "method"
    panels: str = ""
    x: str = ""
    x_label: str = ""
    level: float = 0.1
    error: str = "FDR"
    power: str = "power"
    labels: Mapping[str, str] = dataclasses.field(default_factory=dict)
    columns: tuple[str, ...] = ()
    fields: tuple[str, str] = ("fdr", "power")
    counts: bool = True
    measures: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class Example:
    """A figure of one repetition.

    Attributes:
      kind: "staircase" or "envelope".
      arrays: arguments of that plot, see `tdd.report.plots`.
      caption: caption of the figure.
      title: title of the figure.
    """

    kind: Literal["staircase", "envelope"]
    arrays: Mapping[str, Any]
    caption: str
    title: str


@dataclasses.dataclass(frozen=True)
class Needs:
    """Columns that a study reads of a given table.

    Attributes:
      scores: number of score columns: "one", or "several" (at least two).
      labels: "one" column of known truth, one for "each" score column, or "none".
      knockoffs: whether it reads columns of paraphrases or shuffles.
    """

    scores: Literal["one", "several"] = "one"
    labels: Literal["one", "each", "none"] = "one"
    knockoffs: bool = False


@dataclasses.dataclass(frozen=True)
class NamedStudy:
    """A study that the command line knows by name.

    Attributes:
      name: name on the command line.
      title: title of its figure: the procedure and the design in a few words.
      describe: `(options) -> str`, the design in full.
      run: `(options) -> StudyResult`.
      figure: layout of its figure.
      bound: `(options, cell, method) -> ExpectedBound`.
      repetitions: default number for each cell.
      alphas: default levels.
      needs: columns that it reads of a given table.
      example: `(options) -> Example`, one repetition for a second figure.
    """

    name: str
    title: str
    describe: Callable[[StudyOptions], str]
    run: Callable[[StudyOptions], Any]
    figure: Figure
    bound: Callable[[StudyOptions, Mapping[str, Any], str], ExpectedBound]
    repetitions: int
    alphas: tuple[float, ...]
    needs: Needs = Needs()
    example: Callable[[StudyOptions], Example] | None = None


def verdict(mean: float, se: float, alpha: float, bound: ExpectedBound) -> str:
    """Compare a measured error rate with its bound.

    "above" takes three standard errors of evidence; without a bound, the verdict says whether the level is exceeded all
    the same.
    """
    above = mean - _SURE * se > alpha * bound.factor
    if bound.kind == "none":
        return "no guarantee, above" if above else "no guarantee"
    if bound.kind == "asymptotic":
        return "above (holds in the limit)" if above else "within (holds in the limit)"
    return "ABOVE" if above else "within"
