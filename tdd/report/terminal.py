"""The terminal report of an audit: its selection, level, assumptions, checks, and what it does not establish."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from tdd.validate.errors import printable
from tdd.validate.string_columns import StringColumn

__all__ = ["demo_table", "plain_text", "print_report"]

_MOST_ITEMS = 10
_SUBJECTS = {"nonmember": "were in the training data", "member": "are clean"}
_LEVELS = {
    "any": "may be compared with any level that was fixed beforehand, not with one chosen after looking",
    "one": "may be compared with this level alone: at another one they are others",
}
_NULLS = {"nonmember": "the candidate was not in the training data", "member": "the candidate was in the training data"}


def print_report(
    run: Mapping[str, Any], items: Mapping[str, Any] | None = None, *, console: Console | None = None
) -> None:
    """Print the report of a run.

    Args:
      run: content of run.json.
      items: the per-item table, of which the selected items with the smallest p-values are listed.
      console: standard output by default.
    """
    decision = run["decision"]
    stands = run.get("verdict", {"stands": True})["stands"]  # runs of earlier versions have no verdict
    name = "Audit of " + run["model"]["name"] if run["model"] else "Selection from a table of scores"
    parts: list[RenderableType] = [
        plain_text(name, "bold underline"),
        Padding(plain_text(run["outcome"], "bold"), (1, 0)),
        _facts(run, stands),
    ]
    if run.get("certificate") and stands:
        parts.append(_certificate(run["certificate"], decision))
    if run["checks"]:
        parts.append(_checks(run))
    if items is not None and decision["num_selected"] and stands:
        parts.append(_selected(items, _deciding_columns(decision), decision["null"]))
    parts.append(_list("Assumptions of the guarantee", decision["guarantee"]["assumes"], "·"))
    if run["warnings"]:
        parts.append(_list("Warnings", run["warnings"], "!", style="yellow"))
    parts.append(_list("What this run does not establish", run["open_points"], "·"))
    (console or Console()).print(Group(*parts))


def demo_table(rows: Sequence[Mapping[str, Any]]) -> Table:
    """FDP and power of this run, and their means over repeated divisions, for every score and level."""
    table = Table(title="Decisions against the known truth", title_justify="left", header_style="bold")
    table.add_column("score", no_wrap=True)
    for name in ("level", "selected", "false", "FDP", "power", "mean FDP ± s.e.", "mean power"):
        table.add_column(name, justify="right", no_wrap=True)
    for index, row in enumerate(rows):
        if index and row["score"] != rows[index - 1]["score"]:
            table.add_section()
        table.add_row(
            row["score"],
            f"{row['alpha']:g}",
            str(row["num_selected"]),
            str(row["num_false"]),
            f"{row['fdp']:.3f}",
            f"{row['power']:.3f}",
            f"{row['mean_fdp']:.3f} ± {row['se_fdp']:.3f}",
            f"{row['mean_power']:.3f}",
        )
    return table


def _facts(run: Mapping[str, Any], stands: bool) -> Table:
    decision, guarantee = run["decision"], run["decision"]["guarantee"]
    names = _deciding_columns(decision)
    columns = f"the score {names[0]}" if len(names) == 1 else f"the {len(names)} columns {', '.join(names)}"
    holds = f"{guarantee['controls']}, {guarantee['kind']} ({guarantee['source']})"
    rows: list[tuple[str, str]] = [
        ("null hypothesis of an item", _NULLS[decision["null"]]),
        ("procedure", f"{decision['method']} on {columns} (lower = more member-like)"),
        ("level", f"{decision['alpha']:g}"),
        ("guarantee", holds if stands else "withdrawn: a check speaks against its assumptions"),
        ("candidates", _count(decision["num_tests"], decision["num_missing"])),
    ]
    if decision["num_calibration"] or decision["num_missing_calibration"] or not decision["method"].startswith("ktd/"):
        unit = "items" if decision.get("unit", "item") == "item" else "clusters"
        used = _count(decision["num_calibration"], decision["num_missing_calibration"])
        rows.append((f"calibration {unit}", used))
    rows.append(("selected", str(decision["num_selected"]) if stands else "withheld: see above"))
    rows += _selection_facts(decision) if stands else []
    if run["model"]:
        model = run["model"]
        revision = f", revision {model['revision']}" if model["revision"] else ""
        rows.append(("model", f"{model['name']}{revision} (sha256 {model['sha256'][:12]})"))
    table = Table(title="What was decided", title_justify="left", show_header=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in (*rows, *_inputs(run["inputs"])):
        table.add_row(name, plain_text(value))
    return table


def _selection_facts(decision: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Facts about a selection that no check speaks against."""
    rows: list[tuple[str, str]] = []
    members = decision["null"] == "nonmember"
    if decision["guarantee"].get("levels"):  # runs of earlier versions do not tell
        rows.append(("adjusted p-values", _LEVELS[decision["guarantee"]["levels"]]))
    if decision["num_selected"] and decision["threshold"]:
        rows.append(("largest selected p-value", f"{decision['threshold']:.4g}"))
    if any(name in decision["method"] for name in ("storey", "subtraction", "moment", "jecs")):
        value = decision["proportion"]
        shown = f"{value:.3f}" if value >= 0 else f"0 (estimate {value:.3f})"
        rows.append((f"estimated share of {'members' if members else 'clean items'}", shown))
    rows += decision.get("facts", ())
    if truth := decision["truth"]:
        per_cluster = decision.get("unit") == "cluster"
        errors = ("clusters without any member" if per_cluster else "non-members") if members else "members"
        power = "undefined: nothing to find" if truth["power"] is None else f"{truth['power']:.3f}"
        found = f"{truth['num_false']} {errors} selected (FDP {truth['fdp']:.3f}), power {power}"
        rows.append(("against the known truth", found))
    return rows


def _inputs(inputs: Mapping[str, Any]) -> list[tuple[str, str]]:
    """One line a source; knockoffs that are columns of their texts' table share a line."""
    rows: list[tuple[str, str]] = []
    columns: dict[str, list[str]] = {}
    for role, source in inputs.items():
        hashed, (kind, _, number) = source["sha256"][:12], role.rpartition(" ")
        owner = "calibration" if kind.startswith("calibration") else "candidate"
        table = inputs.get(owner, {}).get("source", "")
        if number.isdigit() and source["source"].startswith(f"{table}, field "):
            columns.setdefault(kind, []).append(f"{source['source'][len(table) + 2 :]} (sha256 {hashed})")
        else:
            rows.append((f"input: {role}", f"{source['source']} (sha256 {hashed})"))
    for kind, fields in columns.items():
        rows.append((f"input: {kind}s", f"of the same table, {', '.join(fields)}"))
    return rows


def _checks(run: Mapping[str, Any]) -> Table:
    table = Table(title="Checks", title_justify="left")
    table.add_column("check", style="bold", no_wrap=True)
    table.add_column("found", overflow="fold")
    table.add_column("verdict", no_wrap=True)
    for name, (title, words) in _CHECKS.items():
        if name in run["checks"]:
            check = run["checks"][name]
            warned = Text("see warnings", style="yellow") if check["warning"] else Text("no warning", style="green")
            table.add_row(title, words(check, run), warned)
    return table


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


def _symmetry(check: Mapping[str, Any], run: Mapping[str, Any]) -> str:
    tested = f"p = {check['p_value']:.3g} on {check['num_items']} known non-members"
    if "num_leaning" not in check:  # a run of an earlier version
        return tested
    return f"{tested}; {check['num_leaning']} of them look like members (about {check['expected']:.0f} would by chance)"


_Words = Callable[[Mapping[str, Any], Mapping[str, Any]], str]
_CHECKS: dict[str, tuple[str, _Words]] = {
    "resolution": ("resolution", _resolution),
    "effective_calibration": (
        "effective calibration",
        lambda check, run: (
            f"{check['size']} of {check['num_given']} items ({check['num_missing']} without score, "
            f"{check['num_repeated']} repeated), {check['num_distinct']} distinct scores"
        ),
    ),
    "symmetry": ("knockoff symmetry", _symmetry),
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


def _certificate(certificate: Mapping[str, Any], decision: Mapping[str, Any]) -> Table:
    """Simultaneous bounds, for every cut at once."""
    table = Table(
        title="With confidence, whatever cut is chosen", title_justify="left", show_header=certificate["applies"]
    )
    if not certificate["applies"]:
        table.add_column(overflow="fold")
        table.add_row(plain_text(f"no bound: {certificate['reason']}"))
        return table
    table.add_column("list", no_wrap=True)
    for name in ("items", "at most false", "share"):
        table.add_column(name, justify="right")
    for row in certificate["cuts"]:
        table.add_row(plain_text(row["list"]), str(row["size"]), str(row["max_false"]), f"{100 * row['bound']:.1f} %")
    level = f"{100 * (1 - certificate['delta']):g} %"
    subject = _SUBJECTS[decision["null"]]
    table.caption_justify = "left"
    least = certificate["min_alternatives"]
    counted = "" if least is None else f"; at least {least} of the {decision['num_tests']} candidates {subject}"
    table.caption = f"all of this at once with confidence {level}{counted} ({certificate['source']})"
    return table


def _selected(items: Mapping[str, Any], columns: Sequence[str], null: str) -> Table:
    last, sign = ("statistic", -1) if "statistic" in items else (columns[0], 1 if null == "nonmember" else -1)
    rows = np.flatnonzero(items["selected"])
    keys = {name: _numbers(items[name], rows) for name in ("adjusted", "p_value", last)}
    chosen = rows[np.lexsort((sign * keys[last], keys["p_value"], keys["adjusted"]))].tolist()
    title = (
        "Selected items"
        if len(chosen) <= _MOST_ITEMS
        else f"Selected items, the {_MOST_ITEMS} most extreme of {len(chosen)}"
    )
    table = Table(title=title, title_justify="left")
    table.add_column("id", overflow="fold")
    if last == "statistic":
        columns = ("statistic", *columns)
    shown = [name for name in ("p_value", "adjusted") if (keys[name] < math.inf).any()]
    for name in (*columns, *shown):
        table.add_column(plain_text(name.replace("_", "-") if name == "p_value" else name), justify="right")
    for i in chosen[:_MOST_ITEMS]:
        table.add_row(
            plain_text(str(items["id"][i])), *(f"{float(items[column][i]):.4g}" for column in (*columns, *shown))
        )
    return table


def _numbers(values: Sequence[Any] | np.ndarray, rows: np.ndarray) -> np.ndarray:
    """The numbers in some rows of a column, to sort by: missing ones are infinite, hence last."""
    if isinstance(values, StringColumn):
        values = values.take(rows)
        numbers = np.array([float(value or "nan") for value in values])
    elif isinstance(values, np.ndarray):
        numbers = values[rows].astype(np.float64)
    else:
        numbers = np.array([float("nan" if values[i] == "" else values[i]) for i in rows], np.float64)
    return np.where(np.isnan(numbers), math.inf, numbers)


def _list(title: str, points: Sequence[str], mark: str, style: str = "") -> RenderableType:
    table = Table(title=title, title_justify="left", show_header=False, box=None, padding=(0, 1))
    table.add_column(no_wrap=True, style=style)
    table.add_column(overflow="fold", style=style)
    for point in points:
        table.add_row(mark, plain_text(point[:1].upper() + point[1:]))
    return Padding(table, (1, 0, 0, 0))


def plain_text(value: str, style: str = "") -> Text:
    """Text as it is: no markup, no emoji codes, control characters spelled out so that none reaches the terminal."""
    return Text(printable(value), style=style)


def _count(used: int, missing: int) -> str:
    return f"{used}" + (f" ({missing} more have no score)" if missing else "")


def _deciding_columns(decision: Mapping[str, Any]) -> Sequence[str]:
    """The columns that decided; runs of earlier versions name one score."""
    return decision.get("columns") or [decision["score"]]
