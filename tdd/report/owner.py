"""The report of a data owner's test: the p-value, how the published versions rank, what is left open."""

from __future__ import annotations

import functools
import math
import pathlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from tdd.exchange.summary import format_p_value
from tdd.report.sections import Facts, Figure, Points, Report, Section
from tdd.runs.folder import read_table

__all__ = ["owner_report", "read_documents"]


def read_documents(folder: pathlib.Path, run: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """The columns of documents.csv; see `tdd.audit.owner.OwnerTest`.

    Raises:
      InputError: no such table, one that was damaged or edited, or one of another run.
    """
    header, rows = read_table(folder, "documents.csv", run)
    columns = dict(zip(header, zip(*rows, strict=True), strict=True))
    kinds = {"document": object, "rank": int, "num_private": int}
    return {
        name: np.array([cell or "nan" for cell in values], kinds.get(name, float)) for name, values in columns.items()
    }


def owner_report(run: Mapping[str, Any], documents: Mapping[str, np.ndarray]) -> Report:
    """The report of a run.

    Args:
      run: content of run.json.
      documents: columns of documents.csv.
    """
    guarantee, stands = run["guarantee"], run["verdict"]["stands"]
    sections: list[Section] = [
        Points("Assumptions of the guarantee", tuple(guarantee["assumes"])),
        Points("What this run does not establish", tuple(run["open_points"])),
    ]
    if run["warnings"]:
        sections.append(Points("Warnings", tuple(run["warnings"]), "warning"))
    sections.append(Facts("The test", tuple(_facts(run))))
    if stands:
        shown = "How many private versions the published version of each document undercuts, and what chance gives."
        sections.append(Figure("Ranks of the published versions", shown, functools.partial(_drawn, documents)))
    return Report(f"Data owner's test: {run['model']['name']}", run["outcome"], tuple(sections), stands)


def _facts(run: Mapping[str, Any]) -> list[tuple[str, str]]:
    result, guarantee, stands = run["result"], run["guarantee"], run["verdict"]["stands"]
    holds = f"{guarantee['controls']}, {guarantee['kind']} ({guarantee['source']})"
    smallest = result["log_smallest_p"]
    return [
        ("null hypothesis", "the model was trained without the published versions"),
        ("p-value", format_p_value(result["p_value"], result["log_p_value"])),
        (
            "level",
            f"{run['options']['alpha']:g}: "
            + ("no verdict" if not stands else "rejected" if result["rejected"] else "not rejected"),
        ),
        ("guarantee", holds if stands else "withdrawn: a check speaks against its assumptions"),
        ("test", run["options"]["test"]),
        ("smallest p-value", "unlimited" if smallest is None else format_p_value(math.exp(smallest), smallest)),
        ("documents", f"{result['num_documents']:,}, with {result['num_private']:,} private versions each"),
        ("score", f"{run['options']['score']} (lower = more member-like)"),
        ("check of the draw, without the model", f"p = {format_p_value(run['checks']['draw']['p_value'])}"),
        ("model", f"{run['model']['name']} (sha256 {run['model']['sha256'][:12]})"),
        ("versions", f"{run['inputs']['texts']:,} texts of {run['inputs']['source']}"),
    ]


def _drawn(documents: Mapping[str, np.ndarray]) -> Any:
    from tdd.report.plots.sheet import LEVEL, sheet, stroke

    ranks = documents["rank"][documents["rank"] >= 0]
    most = int(documents["num_private"].max(initial=1))
    drawn = sheet(
        "Ranks of the published versions", "Dotted: expected of a model that has not seen them.", rows=1, columns=1
    )
    axes, look = drawn.panels[0][0], stroke(0)
    axes.bar(np.arange(most + 1), np.bincount(ranks, minlength=most + 1), color=look.colour)
    axes.axhline(ranks.size / (most + 1), **LEVEL)
    axes.set(xlabel="private versions undercut", ylabel="documents")
    return drawn.figure
