"""What a named study is: its question, how it runs, what is promised in each of its cells, and how it is drawn."""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Callable, Mapping
from typing import Any, Literal

import numpy as np

__all__ = ["Columns", "Example", "Figure", "NamedStudy", "Needs", "Options", "Promise", "verdict"]

_SURE = 3.0  # standard errors above the bound


@dataclasses.dataclass(frozen=True)
class Columns:
    """A given score table, as a study reads it.

    Attributes:
      source: where it came from.
      sha256: of its content.
      names: K names of score columns.
      scores: [K, N] loss-like scores, LOWER = MORE member-like.
      labels: [L, N] bool, True = member; one row, or one for each score column.
      knockoffs: [N, k] scores of paraphrases or shuffles, k = 0 where there are none.
    """

    source: str
    sha256: str
    names: tuple[str, ...]
    scores: np.ndarray
    labels: np.ndarray
    knockoffs: np.ndarray


@dataclasses.dataclass(frozen=True)
class Options:
    """How a study is run; what is the same for all of them.

    Attributes:
      repetitions: of each cell; with `target_se` the most.
      alphas: levels.
      seed: of everything random.
      columns: a given score table in place of synthetic data.
      target_se: stop a cell when the standard errors of its error rates and powers are no larger.
      folder: where an interrupted study continues.
      shard: (i, n) or "i/n", of the repetitions of each cell; None runs all.
      devices: how many to use, None = all.
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
class Promise:
    """What holds for a method in a cell.

    Attributes:
      kind: when the bound holds: in finite samples, in the limit, or not at all.
      factor: the bound divided by alpha.
    """

    kind: Literal["finite-sample", "asymptotic", "none"] = "finite-sample"
    factor: float = 1.0


@dataclasses.dataclass(frozen=True)
class Figure:
    """How the result is laid out.

    Attributes:
      kind: "levels" draws the error rate against alpha and the power; "bands" besides its spread over repetitions, one
        panel a cell; "parameter" draws both against a field of the cells; "bars" both as bars; "tradeoff" draws the
        power against the error rate, along the levels.
      series: "method", or the field of the cells that tells the lines apart.
      panels: "method", or the field of the cells that tells the panels apart; "" for one panel.
      x: field of the cells on the horizontal axis ("parameter").
      x_label: what it is.
      level: the alpha nearest to this is drawn ("parameter").
      error: name of the error rate.
      power: name of the power.
      labels: of methods and fields, for people.
      columns: fields of the cells that the table shows; all, where there are none.
      fields: which two numbers of the result are drawn against a parameter; others than these are measures.
      counts: whether the table says how many items are selected.
      measures: further numbers of the result that the table shows, by name.
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
    """One repetition, looked at closely.

    Attributes:
      kind: "staircase" or "envelope".
      arrays: what that plot needs, see `tdd.report.plots`.
      caption: of what it is.
      title: of its figure.
    """

    kind: Literal["staircase", "envelope"]
    arrays: Mapping[str, Any]
    caption: str
    title: str


@dataclasses.dataclass(frozen=True)
class Needs:
    """What a study reads of a given table.

    Attributes:
      scores: how many score columns: "one", or "several" (two at least).
      labels: "one" column of known truth, "each" score column its own, "none".
      knockoffs: whether columns of paraphrases or shuffles are needed.
    """

    scores: Literal["one", "several"] = "one"
    labels: Literal["one", "each", "none"] = "one"
    knockoffs: bool = False


@dataclasses.dataclass(frozen=True)
class NamedStudy:
    """A study that the command line knows by name.

    Attributes:
      name: of the study.
      title: of its figure: the procedure and the design in a few words.
      design: `(options) -> str`, the design in full.
      run: `(options) -> StudyResult`.
      figure: how the result is drawn.
      promise: `(options, cell, method) -> Promise`, what is claimed there.
      repetitions: of each cell, unless told otherwise.
      alphas: levels, unless told otherwise.
      needs: what it reads of a given table.
      example: `(options) -> Example`, one repetition for a second figure.
    """

    name: str
    title: str
    design: Callable[[Options], str]
    run: Callable[[Options], Any]
    figure: Figure
    promise: Callable[[Options, Mapping[str, Any], str], Promise]
    repetitions: int
    alphas: tuple[float, ...]
    needs: Needs = Needs()
    example: Callable[[Options], Example] | None = None


def verdict(mean: float, se: float, alpha: float, promise: Promise) -> str:
    """Whether a measured error rate keeps what is promised.

    "above" takes three standard errors of evidence; where nothing is promised, the word says whether the level is
    exceeded all the same.
    """
    above = mean - _SURE * se > alpha * promise.factor
    if promise.kind == "none":
        return "no guarantee, above" if above else "no guarantee"
    if promise.kind == "asymptotic":
        return "above (holds in the limit)" if above else "within (holds in the limit)"
    return "ABOVE" if above else "within"
