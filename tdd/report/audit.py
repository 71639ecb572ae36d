"""The report of an audit: what was selected, at which level, under which assumptions, and what is missing."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from tdd.report.sections import Column, Facts, Figure, Points, Report, Row, Section, Table, Tone
from tdd.runs.plain_csv import StringColumn

__all__ = ["audit_report", "demo_table"]

_SHOWN = 10
_SUBJECTS = {"nonmember": "were in the training data", "member": "are clean"}
_LEVELS = {
    "any": "may be compared with any level that was fixed beforehand, not with one chosen after looking",
    "one": "may be compared with this level alone; at another level they are others",
}
_STEP_UPS = {
    *(f"ptdi/{proportion}" for proportion in ("none", "storey", "subtraction", "moment")),
    *("jmcs/bh", "jmcs/storey", "td4eval/pooled_rank", "td4eval/split_weights"),
}
"""Procedures that compare the p-values of single items with the line t·pi0/alpha."""
_NULLS = {"nonmember": "the candidate was not in the training data", "member": "the candidate was in the training data"}


def audit_report(
    run: Mapping[str, Any], items: Mapping[str, Any] | None = None, calibration: Mapping[str, Any] | None = None
) -> Report:
    """The report of a run.

    Args:
      run: Content of run.json.
      items: Columns of items.csv; the selected items with the smallest p-values are listed, and pictures drawn, where
        it is given.
      calibration: Columns of calibration.csv, for the picture of the scores.
    """
    decision, stands = run["decision"], run["verdict"]["stands"]
    sections: list[Section] = [
        _points("Assumptions of the guarantee", decision["guarantee"]["assumes"]),
        _points("What this run does not establish", run["open_points"]),
        _decided(run),
    ]
    if run["warnings"]:
        sections.append(_points("Warnings", run["warnings"], "warning"))
    if stands and items is not None:
        sections += _pictures(run, items, calibration)
    if stands and run["certificate"]:
        sections.append(_bounds(run["certificate"], decision))
    if run["checks"]:
        sections.append(_checks(run))
    if stands and items is not None and decision["num_selected"]:
        sections.append(_selected(items, decision["columns"], decision["null"]))
    sections.append(_origin(run))
    title = f"Audit of {run['model']['name']}" if run["model"] else "Selection from a table of scores"
    return Report(title, run["outcome"], tuple(sections), stands)


def demo_table(rows: Sequence[Mapping[str, Any]]) -> Table:
    """FDP and power of this run, and their means over repeated divisions, for every score and level."""
    names = ("level", "selected", "false", "FDP", "power", "mean FDP ± s.e.", "mean power")
    shown = [
        Row(
            (
                row["score"],
                f"{row['alpha']:g}",
                str(row["num_selected"]),
                str(row["num_false"]),
                f"{row['fdp']:.3f}",
                f"{row['power']:.3f}",
                f"{row['mean_fdp']:.3f} ± {row['se_fdp']:.3f}",
                f"{row['mean_power']:.3f}",
            ),
            ruled=place > 0 and row["score"] != rows[place - 1]["score"],
        )
        for place, row in enumerate(rows)
    ]
    return Table(
        "Decisions against the known truth",
        (Column("score"), *(Column(name, number=True) for name in names)),
        tuple(shown),
        "Each row is one score chosen beforehand. The FDP of one run may exceed its level; its mean is controlled. The "
        "last two columns average 1,000 random divisions of the non-members into calibration and candidates.",
    )


def _points(title: str, sentences: Sequence[str], tone: Tone = "plain") -> Points:
    return Points(title, tuple(sentence[:1].upper() + sentence[1:] for sentence in sentences), tone)


def _decided(run: Mapping[str, Any]) -> Facts:
    decision, guarantee, stands = run["decision"], run["decision"]["guarantee"], run["verdict"]["stands"]
    holds = f"{guarantee['controls']}, {guarantee['kind']} ({guarantee['source']})"
    rows = [
        ("null hypothesis of an item", _NULLS[decision["null"]]),
        ("procedure", f"{decision['method']} on {_columns(decision)} (lower = more member-like)"),
        ("level", f"{decision['alpha']:g}"),
        ("guarantee", holds if stands else "withdrawn: a check speaks against its assumptions"),
        ("candidates", _count(decision["num_tests"], decision["num_missing"])),
    ]
    if decision["num_calibration"] or decision["num_missing_calibration"] or not decision["method"].startswith("ktd/"):
        what = "calibration items" if decision["unit"] == "item" else "calibration clusters"
        rows.append((what, _count(decision["num_calibration"], decision["num_missing_calibration"])))
    if not stands:
        return Facts("What was decided", (*rows, ("selected", "withheld: see above")))
    rows.append(("selected", str(decision["num_selected"])))
    rows.append(("adjusted p-values", _LEVELS[guarantee["levels"]]))
    if decision["num_selected"] and decision["threshold"]:
        rows.append(("largest selected p-value", f"{decision['threshold']:.4g}"))
    rows += [*_proportion(decision), *((name, value) for name, value in decision["facts"])]
    if decision["truth"]:
        truth = decision["truth"]
        power = "undefined: nothing to find" if truth["power"] is None else f"{truth['power']:.3f}"
        errors = f"{truth['num_false']} {_errors(decision)} selected (FDP {truth['fdp']:.3f}), power {power}"
        rows.append(("against the known truth", errors))
    return Facts("What was decided", tuple(rows))


def _origin(run: Mapping[str, Any]) -> Facts:
    """Model and inputs; knockoffs that are columns of their texts' table share a line."""
    rows: list[tuple[str, str]] = []
    if run["model"]:
        model = run["model"]
        revision = f", revision {model['revision']}" if model["revision"] else ""
        rows.append(("model", f"{model['name']}{revision} (sha256 {model['sha256'][:12]})"))
    columns: dict[str, list[str]] = {}
    inputs = run["inputs"]
    for role, source in inputs.items():
        hashed, (kind, _, number) = source["sha256"][:12], role.rpartition(" ")
        owner = "calibration" if kind.startswith("calibration") else "candidate"
        table = inputs.get(owner, {}).get("source", "")
        if number.isdigit() and source["source"].startswith(f"{table}, field "):
            columns.setdefault(kind, []).append(f"{source['source'][len(table) + 2 :]} (sha256 {hashed})")
        else:
            rows.append((f"input: {role}", f"{source['source']} (sha256 {hashed})"))
    rows += [(f"input: {kind}s", f"of the same table, {', '.join(fields)}") for kind, fields in columns.items()]
    rows += [("versions", ", ".join(f"{name} {version}" for name, version in run["versions"].items()))]
    rows += [("seed", str(run["seed"])), ("finished", run["created"])]
    return Facts("Where it comes from", tuple(rows))


def _pictures(run: Mapping[str, Any], items: Mapping[str, Any], calibration: Mapping[str, Any] | None) -> list[Section]:
    decision, pictures = run["decision"], list[Section]()
    column, method = decision["columns"][0], decision["method"]
    one_by_one = "clusters" not in dict(decision["facts"])
    cut = decision["score_cut"] if one_by_one and method.startswith(("ptdi/", "conditional/")) else None
    if len(decision["columns"]) == 1 and _known((calibration or {}).get(column, ())) and _known(items[column]):
        pictures.append(
            Figure(
                "Scores",
                f"Distribution of the score {column} among calibration items and candidates"
                + ("." if cut is None else "; the least extreme selected score is a vertical line."),
                functools.partial(_drawn, "scores", items, calibration, column, cut),
            )
        )
    if _known(items["p_value"]):
        line = one_by_one and (method in _STEP_UPS or method.startswith("conditional/"))
        pictures.append(
            Figure(
                "P-values",
                "Fraction of candidates with a p-value of at most t"
                + (", and the line that the step-up procedure compares it with" if line else "")
                + f"; {decision['num_selected']} candidates are selected.",
                functools.partial(_drawn, "p_values", items, decision, line),
            )
        )
    if "fdp_bound" in items:
        level = f"{100 * (1 - run['certificate']['delta']):g}%"
        pictures.append(
            Figure(
                "Bound for every cut",
                "Upper bound on the false discovery proportion of the k most extreme candidates, for all k at once "
                f"with confidence {level}.",
                functools.partial(_drawn, "bounds", items, decision),
            )
        )
    return pictures


def _known(values: Any) -> bool:
    """True if a column has a number."""
    return bool((_numbers(values, np.arange(len(values))) < math.inf).any())


def _drawn(name: str, *arguments: Any) -> Any:
    from tdd.report import audit_plots

    return getattr(audit_plots, name)(*arguments)


def _checks(run: Mapping[str, Any]) -> Table:
    rows = [
        Row(
            (
                title,
                words(run["checks"][name], run),
                "see warnings" if run["checks"][name]["warning"] else "no warning",
            ),
            "warning" if run["checks"][name]["warning"] else "plain",
        )
        for name, (title, words) in _FINDINGS.items()
        if name in run["checks"]
    ]
    return Table("Checks", (Column("check"), Column("result"), Column("verdict")), tuple(rows))


def _resolution(check: Mapping[str, Any], run: Mapping[str, Any]) -> str:
    fewest = check["min_selections"]
    reach = (
        "nothing can be selected"
        if fewest > run["decision"]["num_tests"]
        else f"selections of fewer than {fewest} cannot occur"
        if fewest > 1
        else "a single item can be selected"
    )
    return f"smallest p-value {check['smallest_p_value']:.3g}; {reach}"


_Words = Callable[[Mapping[str, Any], Mapping[str, Any]], str]
_FINDINGS: dict[str, tuple[str, _Words]] = {
    "resolution": ("resolution", _resolution),
    "effective_calibration": (
        "effective calibration",
        lambda check, run: (
            f"{check['size']} of {check['num_given']} items ({check['num_missing']} without score, "
            f"{check['num_repeated']} repeated), {check['num_distinct']} distinct scores"
        ),
    ),
    "symmetry": (
        "knockoff symmetry",
        lambda check, run: (
            f"p = {check['p_value']:.3g} on {check['num_items']} known non-members; {check['num_leaning']} of them "
            f"look like members (about {check['expected']:.0f} would by chance)"
        ),
    ),
    "knockoff_texts": (
        "knockoffs as texts",
        lambda check, run: (
            f"of {check['num_items']} items {check['num_unchanged']} with the text unchanged, "
            f"{check['num_repeated']} with equal knockoffs, {check['num_foreign']} with another item's text"
        ),
    ),
    "long_texts": (
        "texts cut at the context",
        lambda check, run: (
            f"{check['num_cut']} of {check['num_texts']} texts"
            + (", knockoffs alike" if "knockoff_texts" in run["checks"] else "")
        ),
    ),
    "flags": (
        "flagged items",
        lambda check, run: (
            f"{check['num_flagged']} of {check['num_candidates']} candidates"
            + (
                ""
                if check["num_calibration_flagged"] is None
                else f", {check['num_calibration_flagged']} of {check['num_calibration']} calibration items"
            )
        ),
    ),
    "duplicates": (
        "duplicates across roles",
        lambda check, run: f"{check['num_exact_pairs']} exact and {check['num_near_pairs']} near pairs",
    ),
    "overlap": (
        "parts of texts across roles",
        lambda check, run: (
            f"{check['num_calibration']} calibration items and {check['num_candidates']} candidates share 30 words in "
            "a row"
        ),
    ),
    "sharing": (
        "texts shared by the roles",
        lambda check, run: (
            f"{check['num_shared']}, about {check['expected']:.0f} in random divisions (p = {check['p_value']:.3g})"
        ),
    ),
    "cluster_sizes": (
        "sizes of clusters",
        lambda check, run: (
            f"{check['mean_calibration']:.3g} calibration items a cluster, {check['mean_candidates']:.3g} candidates "
            f"(p = {check['p_differ']:.3g}); rank correlation of size and score {check['correlation']:.2f} "
            f"(p = {check['p_related']:.3g})"
        ),
    ),
    "blind_baseline": (
        "blind baseline",
        lambda check, run: (
            "not run"
            if check["auc"] is None
            else f"AUC {check['auc']:.3f} without the model, permutation p = {check['p_value']:.3g}"
        ),
    ),
}


def _bounds(certificate: Mapping[str, Any], decision: Mapping[str, Any]) -> Section:
    """The simultaneous bounds: what can be said of every cut at once."""
    title = "With confidence, whatever cut is chosen"
    if not certificate["applies"]:
        return Points(title, (f"no bound: {certificate['reason']}",))
    least = certificate["min_alternatives"]
    counted = (
        ""
        if least is None
        else f"; at least {least} of the {decision['num_tests']} candidates {_SUBJECTS[decision['null']]}"
    )
    return Table(
        title,
        (Column("list"), *(Column(name, number=True) for name in ("items", "at most false", "fraction"))),
        tuple(
            Row((cut["list"], str(cut["size"]), str(cut["max_false"]), f"{100 * cut['bound']:.1f}%"))
            for cut in certificate["cuts"]
        ),
        f"All of this at once with confidence {100 * (1 - certificate['delta']):g}%{counted} "
        f"({certificate['source']}).",
    )


def _selected(items: Mapping[str, Any], columns: Sequence[str], null: str) -> Table:
    last, sign = ("statistic", -1) if "statistic" in items else (columns[0], 1 if null == "nonmember" else -1)
    rows = np.flatnonzero(items["selected"])
    keys = {name: _numbers(items[name], rows) for name in ("adjusted", "p_value", last)}
    chosen = rows[np.lexsort((sign * keys[last], keys["p_value"], keys["adjusted"]))].tolist()
    title = "Selected items" if len(chosen) <= _SHOWN else f"Selected items, the {_SHOWN} most extreme of {len(chosen)}"
    if last == "statistic":
        columns = ("statistic", *columns)
    numbers = [*columns, *(name for name in ("p_value", "adjusted") if (keys[name] < math.inf).any())]
    return Table(
        title,
        (Column("id"), *(Column("p-value" if name == "p_value" else name, number=True) for name in numbers)),
        tuple(
            Row((str(items["id"][place]), *(f"{float(items[name][place]):.4g}" for name in numbers)))
            for place in chosen[:_SHOWN]
        ),
    )


def _numbers(values: Sequence[Any] | np.ndarray, rows: np.ndarray) -> np.ndarray:
    """The numbers in some rows of a column, to sort by: missing ones are infinite, and last."""
    if isinstance(values, StringColumn):
        numbers = np.array([float(value or "nan") for value in values.take(rows)])
    elif isinstance(values, np.ndarray):
        numbers = values[rows].astype(np.float64)
    else:
        numbers = np.array([float("nan" if values[i] == "" else values[i]) for i in rows], np.float64)
    return np.where(np.isnan(numbers), math.inf, numbers)


def _count(used: int, missing: int) -> str:
    return f"{used}" + (f" ({missing} more have no score)" if missing else "")


def _columns(decision: Mapping[str, Any]) -> str:
    names = decision["columns"]
    return f"the score {names[0]}" if len(names) == 1 else f"the {len(names)} columns {', '.join(names)}"


def _errors(decision: Mapping[str, Any]) -> str:
    if decision["null"] == "member":
        return "members"
    return "clusters without any member" if decision["unit"] == "cluster" else "non-members"


def _proportion(decision: Mapping[str, Any]) -> list[tuple[str, str]]:
    """The estimated proportion of members, or of clean items, where the procedure estimates it."""
    method, value = decision["method"], decision["proportion"]
    if not any(name in method for name in ("storey", "subtraction", "moment", "jecs")):
        return []
    what = "members" if decision["null"] == "nonmember" else "clean items"
    shown = f"{value:.3f}" if value >= 0 else f"0 (estimate {value:.3f})"
    return [(f"estimated proportion of {what}", shown)]
