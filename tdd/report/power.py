"""The report of a power plan: expected results, and the smallest fraction or effect that is detected."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from tdd.report.sections import (
    Column,
    Facts,
    Figure,
    Help,
    Paragraph,
    Points,
    Report,
    Row,
    Section,
    Table,
    drawn,
    guide,
    to_repeat,
)
from tdd.runs.units import counted

_CRITERIA = {"power": "expected power ≥ {:g}", "any_true": "P(a right selection) ≥ {:g}"}
_INTERVAL = (
    "The interval is that of the simulation: where the curve plus and minus two standard errors reaches what is wanted."
)

_GUIDE = guide(
    (
        "Each row is a design whose result was simulated many times; one real run can give more or less.",
        "All of it rests on the scores or shards that are named below. Where the real ones separate less well, "
        "less is found.",
        "Choose the design before any result of the real run is seen, and keep the score and the level.",
    )
)
_TERMS = Help(
    "Terms",
    (
        ("n, m", "numbers of calibration items and of candidates"),
        ("power", "the fraction of the items to be found that is selected; expected: its mean over runs"),
        ("FDP", "false discovery proportion: the fraction of false items in one list, 0 for an empty list; its mean is "
         "the false discovery rate, FDR"),
        ("α", "the level: the FDR that the procedure is asked not to exceed"),
        ("s.e.", "standard error of a simulated mean; more repetitions make it smaller"),
        ("extrapolated", "drawn beyond the items that the scores come from, and so less certain"),
    ),
    folded=True,
)  # fmt: skip
_TERMS_OF_ORDER = Help(
    "Terms",
    (
        ("shard", "examples that follow each other in the published order"),
        ("shuffle", "a shard in a random order, with which the published order is compared"),
        ("power", "the probability that the test rejects at level α, where the model knows the order as well as here"),
        ("effect", "by how many standard deviations of a shuffle the published order is more probable"),
        ("smallest p", "the smallest p-value that the test can give with so many shards and shuffles"),
        ("s.e.", "standard error of a simulated mean; more repetitions make it smaller"),
    ),
    folded=True,
)  # fmt: skip


def power_plan_report(plan: Any) -> Report:
    """The report of a `PowerPlan`."""
    about = plan.about
    sections: list[Section] = [*_warnings(about), _GUIDE, Paragraph(f"Scores: {about['source']}."), _expected(plan)]
    if plan.smallest:
        sections.append(_smallest(plan))
    words = (
        f"Expected power, and the probability of at least one right selection, by the fraction of {about['targets']}."
    )
    sections += [Figure("Power", words, drawn("plots.power", "power_sheet", plan)), _origin(about), _TERMS]
    return Report(f"What an audit with {about['method']} may expect", _found(plan), tuple(sections))


def exchange_plan_report(plan: Any) -> Report:
    """The report of an `ExchangePlan`."""
    about = plan.about
    sections: list[Section] = [*_warnings(about), _GUIDE, Paragraph(f"Shards: {about['source']}.")]
    if about["measured_effect"]:
        effect = about["measured_effect"]
        sections.append(
            Paragraph(
                f"Measured effect, in standard deviations of a shuffle: mean {effect['mean']:.2f}, median "
                f"{effect['median']:.2f} over the shards."
            )
        )
    choices: tuple[str, ...] = tuple(_cheapest(about, choice) for choice in plan.cheapest)
    sections += [Points("Cheapest settings", choices)] if len(choices) > 1 else []
    sections.append(_settings(plan))
    words = "Power of each test by the number of model calls, for each number of shards."
    sections += [
        Figure("Power by cost", words, drawn("plots.power", "exchange_sheet", plan)),
        _origin(about),
        _TERMS_OF_ORDER,
    ]
    return Report("What a test of canonical order may expect", choices[0] if choices else "", tuple(sections))


def _found(plan: Any) -> str:
    """The smallest detectable fraction at the first level, in a sentence."""
    first = next((row for row in plan.smallest if row["criterion"] == "power"), None)
    if first is None:
        return _expected_first(plan)
    where = "" if _has_knockoffs(plan) else f"n = {first['num_calibration']:,}, "
    setting = f"With {where}m = {first['num_tests']:,} and α = {first['alpha']:g}"
    if first["num_targets"] is None:
        least = f"no fraction of {plan.about['targets']} reached expected power {first['wanted']:g}"
        return f"{setting}, {least}: {_measured(first['value'], first['value_se'])}."
    targets = plan.about["targets"] if first["num_targets"] != 1 else plan.about["targets"].removesuffix("s")
    return (
        f"{setting}, an expected power of {first['wanted']:g} needs {first['num_targets']:,} {targets} "
        f"({_percent(first['target_share'])} of the candidates)."
    )


def _expected_first(plan: Any) -> str:
    """What the first row expects, in a sentence."""
    row = plan.rows[0]
    where = "" if _has_knockoffs(plan) else f"n = {row['num_calibration']:,}, "
    return (
        f"With {where}m = {row['num_tests']:,}, {row['num_targets']:,} {plan.about['targets']} and "
        f"α = {row['alpha']:g}, the expected power is {_measured(row['power'], row['power_se'])}."
    )


def _expected(plan: Any) -> Table:
    """One row for every n, m, fraction of targets and level."""
    targets = "clean" if plan.about["null"] == "member" else "members"
    names = ("n", "m", targets, "α", "power ± s.e.", "power, 10-90%", "FDP ± s.e.", "P(any)", "P(any right)",
             "selected", "selected, 10-90%", "fewest", "draws")  # fmt: skip
    first = int(_has_knockoffs(plan))
    columns = tuple(Column(name, number=name != "draws") for name in names)[first:]
    rows, sizes = [], None
    for row in plan.rows:
        before, sizes = sizes, (row["num_calibration"], row["num_tests"])
        fewest = row["min_selections"]
        cells = (
            f"{row['num_calibration']:,}",
            f"{row['num_tests']:,}",
            f"{row['num_targets']:,} ({_percent(row['num_targets'] / row['num_tests'])})",
            f"{row['alpha']:g}",
            _measured(row["power"], row["power_se"]),
            f"{row['power_q10']:.2f}-{row['power_q90']:.2f}",
            _measured(row["fdp"], row["fdp_se"]),
            f"{row['any_selected']:.3f}",
            f"{row['any_true']:.3f}",
            f"{row['num_selected']:,.1f}",
            f"{row['num_selected_q10']:,.0f}-{row['num_selected_q90']:,.0f}",
            "none" if fewest > row["num_tests"] else f"{fewest:,}",
            "extrapolated" if row["extrapolated"] else row["drawn"],
        )
        tone = "warning" if row["extrapolated"] else "plain"
        rows.append(Row(cells[first:], tone, ruled=before not in (None, sizes)))
    return Table("Expected results", columns, tuple(rows), _caption(plan))


def _smallest(plan: Any) -> Table:
    """The smallest detectable fraction, by n, m, level and criterion."""
    names = ("n", "m", "α", "wanted", "fraction", "interval", "items", "reached there")
    first = int(_has_knockoffs(plan))
    columns = tuple(Column(name, number=name not in ("wanted", "reached there")) for name in names)[first:]
    rows = []
    for row in plan.smallest:
        cells = [f"{row['num_calibration']:,}", f"{row['num_tests']:,}", f"{row['alpha']:g}"]
        cells.append(_CRITERIA[row["criterion"]].format(row["wanted"]))
        reached = _measured(row["value"], row["value_se"])
        if row["num_targets"] is None:
            cells += ["none", "", "", f"{reached} at most: {row['reason']}"]
        else:
            high = "-" if row["target_share_high"] is None else _percent(row["target_share_high"])
            notes = ("extrapolated" if row["extrapolated"] else "", row["reason"])
            cells += [
                _percent(row["target_share"]),
                f"{_percent(row['target_share_low'])} to {high}",
                f"{row['num_targets']:,}",
                ", ".join([reached, *filter(None, notes)]),
            ]
        rows.append(Row(tuple(cells[first:])))
    return Table(f"Smallest detectable fraction of {plan.about['targets']}", columns, tuple(rows), _INTERVAL)


def _settings(plan: Any) -> Table:
    """One row for every number of shards and shuffles, test and level, the cheapest first."""
    tokens = plan.about["shard_tokens"] is not None
    searched = any(row["smallest_effect"] is not None for row in plan.rows)
    names = ["model calls", *(["tokens"] if tokens else []), "shards r", "shuffles k", "test", "α", "power ± s.e."]
    names += ["smallest effect, sd", "interval"] if searched else []
    columns = (*(Column(name, number=name != "test") for name in (*names, "smallest p")), Column(""))
    rows = []
    for row in plan.rows:
        cells = [f"{row['calls']:,.0f}", *([f"{row['tokens']:,.0f}"] if tokens else []), str(row["num_shards"])]
        cells += [str(row["num_shuffles"]), row["test"], f"{row['alpha']:g}", _measured(row["power"], row["power_se"])]
        if searched:
            effect, low, high = (row[f"smallest_effect{end}"] for end in ("", "_low", "_high"))
            interval = "" if effect is None else f"{low:.2f}-{'' if high is None else f'{high:.2f}'}"
            cells += ["none" if effect is None else f"{effect:.2f}", interval]
        floor = row["log10_floor"]
        cells += [
            "any" if floor is None or floor == -math.inf else f"{10**floor:.1e}",
            "extrapolated" if row["extrapolated"] else "",
        ]
        cheapest = any(choice["row"] == row for choice in plan.cheapest)
        rows.append(Row(tuple(cells), "strong" if cheapest else "plain"))
    return Table("Settings, the cheapest first", columns, tuple(rows))


def _cheapest(about: Mapping[str, Any], choice: Mapping[str, Any]) -> str:
    row, test = choice["row"], f"the test {choice['test']!r} at α = {choice['alpha']:g}"
    if row is None:
        return f"No setting here gives {test} power {about['wanted']:g}."
    tokens = "" if row["tokens"] is None else f", {row['tokens']:,.0f} tokens"
    return (
        f"Power {about['wanted']:g} with {test} needs {counted(row['num_shards'], ('shard', 'shards'))} with "
        f"{counted(row['num_shuffles'], ('shuffle', 'shuffles'))} (or documents with private versions): "
        f"{row['calls']:,.0f} model calls{tokens}."
    )


def _has_knockoffs(plan: Any) -> bool:
    """Whether the audits have knockoffs in place of calibration items."""
    return plan.about["method"].startswith("ktd/")


def _caption(plan: Any) -> str:
    counts = sorted({row["repetitions"] for row in plan.rows})
    repetitions = f"{counts[0]:,}" if len(counts) == 1 else f"{counts[0]:,} to {counts[-1]:,}"
    return (
        f"{repetitions} simulated audits a row. Power: fraction of {plan.about['targets']} that is selected, mean and "
        f"spread. P(any), P(any right): probability of selecting anything, or any of the {plan.about['targets']}; "
        "fewest: no smaller selection can occur, whatever the estimate of the proportion is."
    )


def _warnings(about: Mapping[str, Any]) -> Sequence[Points]:
    words = tuple(f"{words[:1].upper()}{words[1:]}." for words in about["warnings"])
    return (Points("Warnings", words, "warning"),) if words else ()


def _origin(about: Mapping[str, Any]) -> Facts:
    rows = [("seed", str(about["seed"])), ("seconds", f"{about['seconds']:.1f}")]
    if about.get("versions"):
        rows.append(("versions", ", ".join(f"{name} {version}" for name, version in about["versions"].items())))
    call = "tdd.study.expected_power" if "method" in about else "tdd.study.expected_exchange_power"
    return Facts("Where it comes from", (*rows, ("to repeat it", to_repeat(about, call, "power.json"))))


def _percent(fraction: float) -> str:
    return f"{100 * fraction:.3g}%"


def _measured(mean: float, error: float) -> str:
    return f"{mean:.3f} ± {error:.3f}"
