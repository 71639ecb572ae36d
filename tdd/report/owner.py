"""The report of a data owner's test: the p-value, what it rests on, what is left open."""

from __future__ import annotations

import dataclasses
import functools
import math
import pathlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from tdd.audit.owner import TABLES
from tdd.report.sections import Facts, Figure, Help, Report, capital, caveats, in_words, to_repeat
from tdd.runs.display import format_p_value, level_in_words
from tdd.runs.folder import as_number, read_columns

_NULLS = {
    "versions": "the model was trained without the published versions",
    "dataset": "the model was trained on neither set",
}
_SUBJECTS = {"versions": "the published versions", "dataset": "the suspect texts"}
_TITLES = {
    "versions": "Data owner's test of published versions",
    "dataset": "Data owner's test of a set of texts",
}
_COMPARED = {
    "versions": "Of each document one version was published, and others were kept private. If the published one was "
    "drawn at random, a model that was not trained on it has no reason to prefer it to the private ones.",
    "dataset": "The suspect texts are the texts in question. The held-out texts are of the same owner, who kept them "
    "from the training data. A model that was trained on neither has no reason to treat the two sets differently.",
}
_TERMS = Help(
    "Terms",
    (
        ("score", "a number for each text, from the probabilities that the model gives it; lower means more like a "
         "text that was trained on"),
        ("p-value", "the probability of a result at least as extreme if the null hypothesis holds, which the test "
         "takes as true until the scores speak against it; not the probability that it holds"),
        ("level", "the probability that was accepted beforehand of rejecting a null hypothesis that holds"),
        ("exchangeable", "any order would have been equally likely, as after shuffling"),
    ),
    folded=True,
)  # fmt: skip
_OF_SETS = (
        ("split", "one half of each set, drawn at random, shows how to weigh the scores; the other half is tested"),
        ("AUC", "the probability that a suspect text looks more like training data than a held-out one, both drawn at "
         "random; 0.5 is chance"),
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
    sections = caveats(guarantee["assumes"], run["open_points"], capital(run["warnings"]), _how_to_read(run))
    sections.append(Facts("The test", tuple(_facts(run))))
    if stands and run["kind"] == "versions":
        shown = (
            "Documents by the number of private versions that score higher than the published one. Dotted: expected if "
            "the published versions were drawn at random and the model was trained without them."
        )
        sections.append(Figure("Ranks of the published versions", shown, functools.partial(_drawn, rows)))
    terms = dataclasses.replace(_TERMS, rows=(*_TERMS.rows, *(_OF_SETS if run["kind"] == "dataset" else ())))
    return Report(f"{_TITLES[run['kind']]}: {run['model']['name']}", run["outcome"], (*sections, terms), stands)


def _how_to_read(run: Mapping[str, Any]) -> list[str]:
    """A few lines, by what the run says."""
    compared, rule = _COMPARED[run["kind"]], run["verdict"]["rule"]
    if run["verdict"]["stands"]:
        return ["The text below the title is the verdict. It holds only if the assumptions below hold.", compared, rule]
    return [
        "No verdict is given, for the reason that the text below the title names.",
        compared,
        rule,
        f"This says nothing about whether the model was trained on {_SUBJECTS[run['kind']]}.",
        "The assumptions below are those that a verdict would need.",
    ]


def _facts(run: Mapping[str, Any]) -> list[tuple[str, str]]:
    result, guarantee, stands = run["result"], run["guarantee"], run["verdict"]["stands"]
    level, doubted = level_in_words(run["options"]["alpha"]), "none: a check speaks against the assumptions"
    decided = f"the null hypothesis is {'' if result['rejected'] else 'not '}rejected at level {level}"
    if result.get("reversed"):
        decided += ": the sets differ in the other direction"
    rows = [
        ("null hypothesis", _NULLS[run["kind"]]),
        (
            "p-value",
            format_p_value(result["p_value"], result["log_p_value"], run["options"]["alpha"])
            + ("" if stands else " (not valid: a check failed)"),
        ),
        ("decision", decided if stands else doubted),
        ("guarantee", in_words(guarantee) if stands else doubted),
        ("test", run["options"]["test"]),
    ]
    if run["kind"] == "versions":
        if (smallest := result["log_smallest_p"]) is not None:
            rows.append(("smallest possible p-value", format_p_value(math.exp(smallest), smallest)))
        private = f"{result['num_private']:,} private version{'' if result['num_private'] == 1 else 's'}"
        rows.append(("documents", f"{result['num_documents']:,}, with {private} each"))
    else:
        unit = result["unit"]
        weights = ", ".join(f"{name} {weight:+.2f}" for name, weight in result["weights"].items())
        rows += [
            (f"{unit}s", f"{result['num_suspect']:,} suspect, {result['num_heldout']:,} held out"),
            (
                "splits",
                f"{result['num_splits']}, with a mean AUC of {result['auc']:.3f} on the tested {unit}s",
            ),
            ("weights of the scores", f"{weights} (positive: a low score speaks for training)"),
        ]
    return [
        *rows,
        ("score", f"{', '.join(run['options']['score'])} (lower = more like a text that was trained on)"),
        ("check without the model", _check(run)),
        ("model", f"{run['model']['name']} (contents {run['model']['sha256'][:12]})"),
        ("input", f"{run['inputs']['texts']:,} texts of {run['inputs']['source']}"),
        ("to repeat it", to_repeat(run, _CALLS[run["kind"]])),
    ]


def _check(run: Mapping[str, Any]) -> str:
    check, stands = run["checks"]["without_model"], run["verdict"]["stands"]
    level = level_in_words(check["level"])
    p = format_p_value(check["p_value"], level=check["level"])
    shown = f"p = {p}, {'above' if stands else 'at most'} the level of {level}"
    return f"{shown}; not run in full" if run["verdict"]["unchecked"] else shown


def _drawn(rows: Mapping[str, np.ndarray]) -> Any:
    from matplotlib.ticker import MaxNLocator

    from tdd.report.plots.sheet import LEVEL, sheet, stroke

    ranks = rows["rank"][rows["rank"] >= 0]
    most = int(rows["num_private"].max(initial=1))
    drawn = sheet(
        "Ranks of the published versions",
        "Dotted: expected if they were drawn at random and the model was trained without them.",
        rows=1,
        columns=1,
    )
    axes, look = drawn.panels[0][0], stroke(0)
    axes.bar(np.arange(most + 1), np.bincount(ranks, minlength=most + 1), color=look.colour)
    axes.axhline(ranks.size / (most + 1), **LEVEL)
    axes.set(xlabel="private versions that score higher than the published one", ylabel="documents")
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(MaxNLocator(integer=True, nbins=10))
    return drawn.figure
