"""The report of a data owner's test: the p-value, what it rests on, what is left open."""

from __future__ import annotations

import functools
import math
import pathlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from tdd.audit.owner import TABLES
from tdd.exchange.summary import format_p_value
from tdd.report.sections import Facts, Figure, Help, Report, capital, caveats, in_words, to_repeat
from tdd.runs.folder import as_number, read_columns

_NULLS = {
    "versions": "the model was trained without the published versions",
    "dataset": "the model was trained on neither set",
}
_TERMS = Help(
    "Terms",
    (
        ("score", "a number of each text, from the model's probabilities of it; lower where it was trained on"),
        ("p-value", "the probability of a result at least as extreme if the null hypothesis holds; not the probability "
         "that it holds"),
        ("level", "the probability that was accepted beforehand of rejecting a null hypothesis that holds"),
        ("exchangeable", "any order would have been equally likely, as after shuffling"),
    ),
    folded=True,
)  # fmt: skip
_CALLS = {"versions": "tdd.run_version_test", "dataset": "tdd.run_dataset_inference"}


def read_rows(folder: pathlib.Path, run: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """The columns of the table of a run; see `tdd.audit.owner.OwnerTest`.

    Raises:
      InputError: no such table, one that was damaged or edited, or one of another run.
    """
    types = {"document": str, "id": str, "role": str, "group": str, "rank": int, "num_private": int}
    columns = read_columns(
        folder, TABLES[run["kind"]], run, (), "run the test again", lambda name: types.get(name, as_number)
    )
    return {name: np.array(values, object if types.get(name) is str else None) for name, values in columns.items()}


def owner_report(run: Mapping[str, Any], rows: Mapping[str, np.ndarray]) -> Report:
    """The report of a run from run.json and the columns of its table."""
    guarantee, stands = run["guarantee"], run["verdict"]["stands"]
    sections = caveats(guarantee["assumes"], run["open_points"], capital(run["warnings"]))
    sections.append(Facts("The test", tuple(_facts(run))))
    if stands and run["kind"] == "versions":
        shown = "How many private versions the published version of each document undercuts, and what chance gives."
        sections.append(Figure("Ranks of the published versions", shown, functools.partial(_drawn, rows)))
    return Report(f"Data owner's test: {run['model']['name']}", run["outcome"], (*sections, _TERMS), stands)


def _facts(run: Mapping[str, Any]) -> list[tuple[str, str]]:
    result, guarantee, stands = run["result"], run["guarantee"], run["verdict"]["stands"]
    decided = "no verdict" if not stands else "rejected" if result["rejected"] else "not rejected"
    rows = [
        ("null hypothesis", _NULLS[run["kind"]]),
        ("p-value", format_p_value(result["p_value"], result["log_p_value"])),
        ("level", f"{run['options']['alpha']:g}: {decided}"),
        ("guarantee", in_words(guarantee) if stands else "none: a check speaks against its assumptions"),
        ("test", run["options"]["test"]),
    ]
    if run["kind"] == "versions":
        if (smallest := result["log_smallest_p"]) is not None:
            rows.append(("smallest p-value", format_p_value(math.exp(smallest), smallest)))
        rows.append(("documents", f"{result['num_documents']:,}, with {result['num_private']:,} private versions each"))
    else:
        unit = result["unit"]
        weights = ", ".join(f"{name} {weight:+.2f}" for name, weight in result["weights"].items())
        rows += [
            (f"{unit}s", f"{result['num_suspect']:,} suspect, {result['num_heldout']:,} held out"),
            (
                "splits",
                f"{result['num_splits']}, with a mean AUC of {result['auc']:.3f} on the {unit}s not learned from",
            ),
            ("weights", f"{weights} (positive: low scores speak for a suspect)"),
        ]
    return [
        *rows,
        ("score", f"{', '.join(run['options']['score'])} (lower = more member-like)"),
        ("check without the model", f"p = {format_p_value(run['checks']['without_model']['p_value'])}"),
        ("model", f"{run['model']['name']} (sha256 {run['model']['sha256'][:12]})"),
        ("input", f"{run['inputs']['texts']:,} texts of {run['inputs']['source']}"),
        ("to repeat it", to_repeat(run, _CALLS[run["kind"]])),
    ]


def _drawn(rows: Mapping[str, np.ndarray]) -> Any:
    from tdd.report.plots.sheet import LEVEL, sheet, stroke

    ranks = rows["rank"][rows["rank"] >= 0]
    most = int(rows["num_private"].max(initial=1))
    drawn = sheet(
        "Ranks of the published versions", "Dotted: expected of a model that has not seen them.", rows=1, columns=1
    )
    axes, look = drawn.panels[0][0], stroke(0)
    axes.bar(np.arange(most + 1), np.bincount(ranks, minlength=most + 1), color=look.colour)
    axes.axhline(ranks.size / (most + 1), **LEVEL)
    axes.set(xlabel="private versions undercut", ylabel="documents")
    return drawn.figure
