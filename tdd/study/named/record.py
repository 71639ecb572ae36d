"""A named study: its question, how it runs, the bound in each of its cells, how it is drawn, the table it may read."""

from __future__ import annotations

import dataclasses
import math
import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import numpy as np

from tdd.validate import InputError

_SURE = 3.0  # standard errors above the bound


@dataclasses.dataclass(frozen=True)
class Columns:
    """A given score table, as a study reads it."""

    source: str
    sha256: str  # digest of its content
    names: tuple[str, ...]  # K names of score columns
    scores: np.ndarray  # [K, N] loss-like scores, LOWER = MORE member-like
    labels: np.ndarray  # [L, N] bool, True = member; one row, or one for each score column
    knockoffs: np.ndarray  # [N, k] scores of paraphrases or shuffles, k = 0 without any


@dataclasses.dataclass(frozen=True)
class StudyOptions:
    """Options that all named studies have; those that `tdd.study.run` has too are for each cell."""

    repetitions: int
    alphas: tuple[float, ...]
    seed: int = 0
    columns: Columns | None = None  # a given score table in place of synthetic data
    target_se: float | None = None
    folder: pathlib.Path | None = None  # folder in which an interrupted study continues
    shard: tuple[int, int] | str | None = None
    devices: int | None = None  # number of devices, None = all
    progress: bool = False

    def within(self, name: str, **changes: Any) -> StudyOptions:
        """The options of a part of the study, which continues in a folder of its own."""
        return dataclasses.replace(self, folder=None if self.folder is None else self.folder / name, **changes)


@dataclasses.dataclass(frozen=True)
class ExpectedBound:
    """The bound that is claimed for the error rate of a method in a cell."""

    # whether the bound holds in finite samples, in the limit, or not at all
    kind: Literal["finite-sample", "asymptotic", "none"] = "finite-sample"
    factor: float = 1.0  # the bound divided by alpha


@dataclasses.dataclass(frozen=True)
class Figure:
    """Layout of the figure and the table of a study."""

    # "levels" draws the error rate against alpha and the power; "bands" also its spread over repetitions, one panel a
    # cell; "parameter" draws both against a field of the cells; "bars" both as bars; "tradeoff" draws the power against
    # the error rate, along the levels
    kind: Literal["levels", "bands", "parameter", "bars", "tradeoff"]
    series: str = "method"  # "method", or the field of the cells that tells the lines apart
    panels: str = ""  # "method", or the field of the cells that tells the panels apart; "" for one panel
    x: str = ""  # field of the cells on the horizontal axis ("parameter")
    x_label: str = ""
    level: float = 0.1  # the alpha nearest to this is drawn ("parameter")
    error: str = "FDR"
    power: str = "power"
    labels: Mapping[str, str] = dataclasses.field(default_factory=dict)
    columns: tuple[str, ...] = ()  # fields of the cells in the table; () for all
    # the numbers that are drawn against a parameter or the levels; those that no `StudyResult` has are measures. A
    # measure "<field>_bound" is drawn beside its field
    fields: tuple[str, ...] = ("fdr", "power")
    counts: bool = True  # whether the table has the number of selected items
    measures: tuple[str, ...] = ()  # further numbers of the result in the table, by name


@dataclasses.dataclass(frozen=True)
class Example:
    """A figure of one repetition; `arrays` are the arguments of that plot, see `tdd.report.plots`."""

    kind: Literal["staircase", "envelope"]
    arrays: Mapping[str, Any]
    caption: str
    title: str


@dataclasses.dataclass(frozen=True)
class Needs:
    """Columns that a study reads of a given table."""

    scores: Literal["one", "several"] = "one"  # number of score columns: "one", or "several" (at least two)
    # "one" column of known truth, one for "each" score column, or "none"
    labels: Literal["one", "each", "none"] = "one"
    knockoffs: bool = False  # whether it reads columns of paraphrases or shuffles


@dataclasses.dataclass(frozen=True)
class NamedStudy:
    """A study that the command line knows by name."""

    name: str
    title: str  # title of its figure: the procedure and the design in a few words
    describe: Callable[[StudyOptions], str]  # `(options) -> str`, the design in full
    run: Callable[[StudyOptions], Any]
    figure: Figure
    bound: Callable[[StudyOptions, Mapping[str, Any], str], ExpectedBound]  # `(options, cell, method) -> ExpectedBound`
    repetitions: int  # default number for each cell
    alphas: tuple[float, ...]
    needs: Needs = Needs()
    # `(options) -> Example`, one repetition for a second figure
    example: Callable[[StudyOptions], Example] | None = None


def verdict(mean: float, se: float, alpha: float, bound: ExpectedBound) -> str:
    """Compare a measured error rate with its bound.

    "above" takes three standard errors of evidence; without a bound, the verdict says whether the level is exceeded all
    the same. One repetition has no standard error: "not measured".
    """
    if not (math.isfinite(mean) and math.isfinite(se)):
        return "not measured"
    above = mean - _SURE * se > alpha * bound.factor
    if bound.kind == "none":
        return "no guarantee, above" if above else "no guarantee"
    if bound.kind == "asymptotic":
        return "above (holds in the limit)" if above else "within (holds in the limit)"
    return "ABOVE" if above else "within"


def read_columns(
    source: Any,
    needs: Needs,
    *,
    scores: Sequence[str] = (),
    knockoffs: Sequence[str] = (),
    labels: Sequence[str] = (),
    higher_is_member: bool = False,
    id_field: str | None = None,
    format: str | None = None,
) -> Columns:
    """Read the columns that a study needs; rows without a score or a label are left out.

    `source`, `id_field` and `format` are as in `tdd.load_score_table`. Scores may be those of the canonical order, and
    knockoffs of its shuffles; where both are higher for members, their sign is changed.

    Raises:
      InputError: an unreadable table, other columns than the study needs, too few rows with all of them.
    """
    from tdd.tables import load_score_table

    _check_named(needs, scores, knockoffs, labels)
    columns = (*scores, *knockoffs) or None
    tables = [
        load_score_table(
            source,
            scores=columns,
            label_field=label,
            higher_is_member=tuple(columns or ()) if higher_is_member else (),
            calibrated=False,
            id_field=id_field,
            format=format,
        )
        for label in (labels or (None,))
    ]
    table = tables[0]
    names = tuple(scores) or tuple(table.scores)
    values = np.stack([table.scores[name] for name in names])
    copies = np.stack([table.scores[name] for name in knockoffs], 1) if knockoffs else np.zeros((len(table), 0))
    truth = np.stack([labelled.labels for labelled in tables]) if labels else np.zeros((0, len(table)), np.int64)
    complete = ~np.isnan(values).any(0) & ~np.isnan(copies).any(1) & (truth >= 0).all(0)
    if complete.sum() < 4:
        raise InputError(
            f"{table.source}: {int(complete.sum())} of {len(table)} rows have every score and label that the study "
            "reads; at least 4 are needed"
        )
    left_out = "" if complete.all() else f" ({int((~complete).sum())} of {len(table)} rows incomplete, left out)"
    return Columns(
        source=f"{pathlib.PurePath(table.source).name}{left_out}",
        sha256=" ".join(labelled.sha256 for labelled in tables),
        names=names,
        scores=values[:, complete],
        labels=truth[:, complete] == 1,
        knockoffs=copies[complete],
    )


def _check_named(needs: Needs, scores: Sequence[str], knockoffs: Sequence[str], labels: Sequence[str]) -> None:
    if needs.scores == "one" and len(scores) > 1:
        raise InputError(f"score names {len(scores)} columns; this study reads one")
    if needs.scores == "several" and len(scores) < 2:
        raise InputError("score must name at least two columns for this study, repeated or separated by commas")
    if needs.knockoffs and not knockoffs:
        raise InputError("knockoffs must name the columns of the paraphrases or shuffles for this study")
    if knockoffs and not needs.knockoffs:
        raise InputError("knockoffs are not read by this study; leave them out")
    if knockoffs and not scores:
        raise InputError("score must name the column of the originals where knockoffs are named")
    wanted = {"one": 1, "each": len(scores), "none": 0}[needs.labels]
    if len(labels) != wanted:
        what = {
            "one": "must name the column of known truth (1 member, 0 not)",
            "each": f"must name {wanted} columns of known truth (1 member, 0 not), one for each score column",
            "none": "is not read by this study; leave it out",
        }
        raise InputError(f"label_field {what[needs.labels]}; got {', '.join(labels) or 'none'}")
