"""The report of a study: means, standard errors, whether the bounds hold, the figure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tdd.report import sections
from tdd.report.sections import Column, Facts, Help, Paragraph, Report, Row, Section, guide, to_repeat
from tdd.study.named.record import Figure

_VERDICTS = 'Bound: the mean is "above" it by more than three standard errors, else "within".'

_GUIDE = guide(
    (
        "Each row is a method at a level, with means over repetitions in which the truth is known.",
        "A measured rate of at most the level plus three standard errors agrees with the error rate that is "
        "claimed; it does not prove it.",
        "Compare the power of methods only where all of them keep their level.",
    )
)
_TERMS = Help(
    "Terms",
    (
        ("FDP", "false discovery proportion: the fraction of false items in one list, 0 for an empty list"),
        ("FDR", "false discovery rate: the mean of the FDP over repetitions"),
        ("power", "the fraction of the items to be found that is selected"),
        ("α", "the level: the error rate that the method is asked not to exceed"),
        ("s.e.", "standard error of a mean over the repetitions; more of them make it smaller"),
        ("Hamming distance", "the number of false items that are selected and of right ones that are not"),
    ),
    folded=True,
)  # fmt: skip


def study_report(result: Any) -> Report:
    """The report of a `StudyResult`.

    A named study has its own words, layout and bounds; any other study is shown by method and level.
    """
    about = result.provenance
    name = about.get("study")
    figure, title = _plain_figure(result), "A study of error rates and power"
    from tdd.study import named

    if name in named.STUDIES:
        study = named.load(name)
        figure, title = study.figure, study.title
    verdicts = about.get("verdicts")
    parts: list[Section] = [_GUIDE, _table(result, figure, verdicts), Paragraph(time_line(result))]
    if about.get("about"):
        parts.append(Paragraph(f"Design: {about['about']}."))
    if name in named.STUDIES or len(result.alphas) > 1:
        shown = sections.drawn("plots.studies", "draw", result, figure, title=title, caption=about.get("about", ""))
        parts.append(sections.Figure("Figure", f"{figure.error} and {figure.power} with standard errors.", shown))
    parts += [*_origin(about), _TERMS]
    return Report(title, _verdict(figure, verdicts), tuple(parts), not _above(verdicts))


def study_record(result: Any) -> dict[str, Any]:
    """The numbers of a `StudyResult` for machines: its rows, with the verdicts of a named study."""
    about = result.provenance
    verdicts = about.get("verdicts")
    rows = result.rows()
    return {
        "study": about.get("study"),
        "title": about.get("title"),
        "design": about.get("about"),
        "seconds": result.seconds,
        "provenance": about,
        "rows": [row | {"verdict": verdict} for row, verdict in zip(rows, verdicts, strict=True)] if verdicts else rows,
    }


def list_report(rows: Sequence[tuple[str, str, str]]) -> Report:
    """(name, subject, figure of a paper) of every study."""
    columns = tuple(map(Column, ("study", "shows", "regenerates")))
    table = sections.Table("tdd study NAME --out DIR", columns, tuple(map(Row, rows)))
    return Report("Named studies", "", (table,))


def time_line(result: Any) -> str:
    """The number of repetitions and the time they took."""
    counts = np.broadcast_to(result.repetitions, (len(result.cells),))
    total = int(counts.sum())
    cells = f"{len(result.cells)} cells, " if len(result.cells) > 1 else ""
    if not result.seconds > 0:
        return f"{cells}{total:,} repetitions in all."
    rate = total / result.seconds
    return f"{cells}{total:,} repetitions in all, {result.seconds:.1f} s: {rate:,.0f} a second, compilation included."


def _above(verdicts: Sequence[str] | None) -> list[str]:
    return [verdict for verdict in verdicts or () if verdict == "ABOVE"]


def _verdict(figure: Figure, verdicts: Sequence[str] | None) -> str:
    """What the measured error rates say of the bounds, in a sentence."""
    if verdicts is None:
        return ""
    measured = [verdict for verdict in verdicts if verdict != "not measured"]
    bounded = [verdict for verdict in measured if not verdict.startswith("no guarantee")]
    above, late = _above(verdicts), [verdict for verdict in bounded if verdict.startswith("above")]
    count = _count(len(bounded), f"measured value of the {figure.error}", f"measured values of the {figure.error}")
    if not measured:
        return f"One repetition has no standard error: no bound on the {figure.error} was checked."
    if above:
        return f"{len(above)} of {count} exceed a bound that should hold, by more than three standard errors."
    if not bounded:
        return f"No method here claims a bound on its {figure.error}."
    free = len(measured) - len(bounded)
    rest = f" {_count(free, 'value belongs', 'values belong')} to methods without a guarantee." if free else ""
    if late:
        return (
            f"{len(late)} of {count} exceed, by more than three standard errors, a bound that holds in the limit.{rest}"
        )
    return f"None of {count} exceeds its bound by more than three standard errors.{rest}"


def _count(number: int, one: str, several: str) -> str:
    return f"{number:,} {one if number == 1 else several}"


def _plain_figure(result: Any) -> Figure:
    """The layout of a study without a name: methods against the level, a panel for each cell's first field."""
    fields = [field for field in result.cells[0] if len({str(cell[field]) for cell in result.cells}) > 1]
    return Figure(
        "levels",
        panels=fields[0] if len(fields) == 1 and len(result.cells) <= 4 else "",
        fields=("fdr", "power", "hamming"),
        measures=("hamming",),
        labels={"hamming": "Hamming distance / m"},
    )


def _origin(about: Mapping[str, Any]) -> list[Section]:
    shown = ("study", "seed", "regenerates", "date")
    rows = [(name, str(about[name])) for name in shown if about.get(name) is not None]
    if table := about.get("table"):
        rows.append(("table", f"{table['source']} (contents {table['sha256'][:12]})"))
    versions = about.get("versions") or {}
    rows.append(("versions", ", ".join(f"{name} {version}" for name, version in versions.items())))
    if about.get("command"):
        rows.append(("to repeat it", to_repeat(about, "tdd.study")))
    told = tuple(row for row in rows if row[1])
    return [Facts("Where it comes from", told)] if told else []


def _table(result: Any, figure: Figure, verdicts: Sequence[str] | None) -> sections.Table:
    """Means and standard errors; a line between cells, and between methods where each has many levels."""
    fields = figure.columns or tuple(result.cells[0])
    measured = {"fdr": figure.error, "power": figure.power}
    measured |= {name: figure.labels.get(name, name) for name in figure.measures}
    columns = [Column(figure.labels.get(field, field)) for field in fields]
    columns += [Column("method"), Column("α", number=True)]
    columns += [Column(f"{name} ± s.e.", number=True) for name in measured.values()]
    columns += [Column("selected", number=True)] if figure.counts else []
    columns += [Column("bound")] if verdicts else []
    levels = len(result.alphas)
    by_method = levels > 3 or (levels > 1 and not fields)
    rows: list[Row] = []
    before: Any = None
    for number, row in enumerate(result.rows()):
        place = [str(row[field]) for field in (*fields, *(("method",) if by_method else ()))]
        cells = [_words(figure, row[field]) for field in fields]
        cells += [figure.labels.get(row["method"], row["method"]), f"{row['alpha']:g}"]
        cells += [_measured(row[name], row[f"{name}_se"]) for name in measured]
        cells += [f"{row['num_selected']:.1f}"] if figure.counts else []
        verdict = verdicts[number] if verdicts else ""
        cells += [verdict] if verdicts else []
        tone: sections.Tone = "bad" if verdict == "ABOVE" else "warning" if "above" in verdict else "plain"
        rows.append(Row(tuple(cells), tone, ruled=before is not None and place != before))
        before = place
    return sections.Table("Error rates and power", tuple(columns), tuple(rows), _VERDICTS if verdicts else "")


def _measured(mean: float, error: float) -> str:
    """A mean with two digits of its standard error, four decimals at least and six at most."""
    digits = 4 if not 0 < error < 1 else min(6, max(4, 1 - math.floor(math.log10(error))))
    return f"{mean:.{digits}f} ± {error:.{digits}f}" if math.isfinite(error) else f"{mean:.{digits}f}"


def _words(figure: Figure, value: Any) -> str:
    shown = f"{value:g}" if isinstance(value, (int, float)) and not isinstance(value, bool) else str(value)
    return figure.labels.get(shown, shown)
