"""The terminal report of an audit: what was selected, at which level, under which assumptions, what is missing."""

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

__all__ = ["demo_table", "plain_text", "print_report", "render"]

_SHOWN = 10
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
      items: the per-item table; the selected items with the smallest p-values are listed where it is given.
      console: where to; standard output by default.
    """
    (console or Console()).print(render(run, items))


def render(run: Mapping[str, Any], items: Mapping[str, Any] | None = None) -> RenderableType:
    """The report as a rich renderable."""
    parts: list[RenderableType] = [_heading(run), Padding(plain_text(run["outcome"], "bold"), (1, 0))]
    parts.append(_facts(run))
    decision = run["decision"]
    if run.get("certificate") and run.get("verdict", {"stands": True})["stands"]:
        parts.append(_certificate(run["certificate"], decision))
    if run["checks"]:
        parts.append(_checks(run))
    stands = run.get("verdict", {"stands": True})["stands"]  # runs of earlier versions had none
    if items is not None and decision["num_selected"] and stands:
        parts.append(_selected(items, _deciding(decision), decision["null"]))
    parts.append(_list("Assumptions of the guarantee", decision["guarantee"]["assumes"], "·"))
    if run["warnings"]:
        parts.append(_list("Warnings", run["warnings"], "!", style="yellow"))
    parts.append(_list("What this run does not establish", run["open_points"], "·"))
    return Group(*parts)


def demo_table(rows: Sequence[Mapping[str, Any]]) -> Table:
    """FDP and power of this run, and their means over repeated divisions, for every score and level."""
    table = Table(title="Decisions against the known truth", title_justify="left", header_style="bold")
    for name, justify in (
        ("score", "left"),
        ("level", "right"),
        ("selected", "right"),
        ("false", "right"),
        ("FDP", "right"),
        ("power", "right"),
        ("mean FDP ± s.e.", "right"),
        ("mean power", "right"),
    ):
        table.add_column(name, justify=justify, no_wrap=True)  # type: ignore[arg-type]
    previous = None
    for row in rows:
        if previous not in (None, row["score"]):
            table.add_section()
        previous = row["score"]
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


def _heading(run: Mapping[str, Any]) -> RenderableType:
    name = "Audit of " + run["model"]["name"] if run["model"] else "Selection from a table of scores"
    return plain_text(name, "bold underline")


def _facts(run: Mapping[str, Any]) -> Table:
    decision, guarantee = run["decision"], run["decision"]["guarantee"]
    table = Table(title="What was decided", title_justify="left", show_header=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    withheld = not run.get("verdict", {"stands": True})["stands"]  # runs of earlier versions have none
    holds = f"{guarantee['controls']}, {guarantee['kind']} ({guarantee['source']})"
    rows: list[tuple[str, str]] = [
        ("null hypothesis of an item", _NULLS[decision["null"]]),
        ("procedure", f"{decision['method']} on {_columns(decision)} (lower = more member-like)"),
        ("level", f"{decision['alpha']:g}"),
        ("guarantee", "withdrawn: a check speaks against its assumptions" if withheld else holds),
        ("candidates", _count(decision["num_tests"], decision["num_missing"])),
    ]
    if decision["num_calibration"] or decision["num_missing_calibration"] or not decision["method"].startswith("ktd/"):
        what = "calibration clusters" if decision.get("unit", "item") != "item" else "calibration items"
        rows.append((what, _count(decision["num_calibration"], decision["num_missing_calibration"])))
    rows.append(("selected", "withheld: see above" if withheld else str(decision["num_selected"])))
    if guarantee.get("levels") and not withheld:  # runs of earlier versions do not tell
        rows.append(("adjusted p-values", _LEVELS[guarantee["levels"]]))
    if decision["num_selected"] and decision["threshold"] and not withheld:
        rows.append(("largest selected p-value", f"{decision['threshold']:.4g}"))
    rows += [] if withheld else [*_proportion(decision), *decision.get("facts", ())]
    if decision["truth"] and not withheld:
        truth = decision["truth"]
        power = "undefined: nothing to find" if truth["power"] is None else f"{truth['power']:.3f}"
        rows.append(
            (
                "against the known truth",
                f"{truth['num_false']} {_errors(decision)} selected (FDP {truth['fdp']:.3f}), power {power}",
            )
        )
    if run["model"]:
        rows.append(("model", _model(run["model"])))
    rows += _inputs(run["inputs"])
    for name, value in rows:
        table.add_row(name, plain_text(value))
    return table


def _inputs(inputs: Mapping[str, Any]) -> list[tuple[str, str]]:
    """One line a source; knockoffs that are columns of their texts' table share one."""
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
    return [
        *rows,
        *((f"input: {kind}s", f"of the same table, {', '.join(fields)}") for kind, fields in columns.items()),
    ]


def _checks(run: Mapping[str, Any]) -> Table:
    table = Table(title="Checks", title_justify="left")
    table.add_column("check", style="bold", no_wrap=True)
    table.add_column("found", overflow="fold")
    table.add_column("verdict", no_wrap=True)
    for name, (title, words) in _FOUND.items():
        if name in run["checks"]:
            table.add_row(title, words(run["checks"][name], run), _verdict(run["checks"][name]))
    return table


def _resolution(found: Mapping[str, Any], run: Mapping[str, Any]) -> str:
    fewest = found["min_selections"]
    reach = (
        "nothing can be selected"
        if fewest > run["decision"]["num_tests"]
        else f"selections of fewer than {fewest} cannot occur"
        if fewest > 1
        else "a single item can be selected"
    )
    return f"smallest p-value {found['smallest_p_value']:.3g}; {reach}"


def _symmetry(found: Mapping[str, Any], run: Mapping[str, Any]) -> str:
    tested = f"p = {found['p_value']:.3g} on {found['num_items']} known non-members"
    if "num_leaning" not in found:  # a run of an earlier version
        return tested
    return f"{tested}; {found['num_leaning']} of them look like members (about {found['expected']:.0f} would by chance)"


_Words = Callable[[Mapping[str, Any], Mapping[str, Any]], str]
_FOUND: dict[str, tuple[str, _Words]] = {
    "resolution": ("resolution", _resolution),
    "effective_calibration": (
        "effective calibration",
        lambda found, run: (
            f"{found['size']} of {found['num_given']} items ({found['num_missing']} without score, "
            f"{found['num_repeated']} repeated), {found['num_distinct']} distinct scores"
        ),
    ),
    "symmetry": ("knockoff symmetry", _symmetry),
    "knockoff_texts": (
        "knockoffs as texts",
        lambda found, run: (
            f"of {found['num_items']} items {found['num_unchanged']} with the text unchanged, "
            f"{found['num_repeated']} with equal knockoffs, {found['num_foreign']} with another item's text"
        ),
    ),
    "long_texts": (
        "texts cut at the context",
        lambda found, run: (
            f"{found['num_cut']} of {found['num_texts']} texts"
            + (", knockoffs alike" if "knockoff_texts" in run["checks"] else "")
        ),
    ),
    "duplicates": (
        "duplicates across roles",
        lambda found, run: f"{found['num_exact_pairs']} exact and {found['num_near_pairs']} near pairs",
    ),
    "overlap": (
        "parts of texts across roles",
        lambda found, run: (
            f"{found['num_calibration']} calibration items and {found['num_candidates']} candidates share 30 words in "
            "a row"
        ),
    ),
    "sharing": (
        "texts shared by the roles",
        lambda found, run: (
            f"{found['num_shared']}, about {found['expected']:.0f} in random divisions (p = {found['p_value']:.3g})"
        ),
    ),
    "cluster_sizes": (
        "sizes of clusters",
        lambda found, run: (
            f"{found['mean_calibration']:.3g} calibration items a cluster, {found['mean_candidates']:.3g} candidates "
            f"(p = {found['p_differ']:.3g}); rank correlation of size and score {found['correlation']:.2f} "
            f"(p = {found['p_related']:.3g})"
        ),
    ),
    "blind_baseline": (
        "blind baseline",
        lambda found, run: (
            "not run"
            if found["auc"] is None
            else f"AUC {found['auc']:.3f} without the model, permutation p = {found['p_value']:.3g}"
        ),
    ),
}


def _certificate(certificate: Mapping[str, Any], decision: Mapping[str, Any]) -> Table:
    """The simultaneous bounds: what can be said of every cut at once."""
    table = Table(title="With confidence, whatever cut is chosen", title_justify="left")
    table.add_column("list", no_wrap=True)
    table.add_column("items", justify="right")
    table.add_column("at most false", justify="right")
    table.add_column("share", justify="right")
    if not certificate["applies"]:
        table = Table(title="With confidence, whatever cut is chosen", title_justify="left", show_header=False)
        table.add_column(overflow="fold")
        table.add_row(plain_text(f"no bound: {certificate['reason']}"))
        return table
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
    title = "Selected items" if len(chosen) <= _SHOWN else f"Selected items, the {_SHOWN} most extreme of {len(chosen)}"
    table = Table(title=title, title_justify="left")
    table.add_column("id", overflow="fold")
    if last == "statistic":
        columns = ("statistic", *columns)
    shown = [name for name in ("p_value", "adjusted") if (keys[name] < math.inf).any()]
    for name in (*columns, *shown):
        table.add_column(plain_text(name.replace("_", "-") if name == "p_value" else name), justify="right")
    for i in chosen[:_SHOWN]:
        table.add_row(
            plain_text(str(items["id"][i])), *(f"{float(items[column][i]):.4g}" for column in (*columns, *shown))
        )
    return table


def _numbers(values: Sequence[Any] | np.ndarray, rows: np.ndarray) -> np.ndarray:
    """The numbers in some rows of a column, to sort by: missing ones are infinite, and last."""
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


def _verdict(check: Any) -> Text:
    return Text("see warnings", style="yellow") if check["warning"] else Text("no warning", style="green")


def _count(used: int, missing: int) -> str:
    return f"{used}" + (f" ({missing} more have no score)" if missing else "")


def _deciding(decision: Mapping[str, Any]) -> Sequence[str]:
    """The columns that decided; runs of earlier versions name one score."""
    return decision.get("columns") or [decision["score"]]


def _columns(decision: Mapping[str, Any]) -> str:
    names = _deciding(decision)
    return f"the score {names[0]}" if len(names) == 1 else f"the {len(names)} columns {', '.join(names)}"


def _errors(decision: Mapping[str, Any]) -> str:
    if decision["null"] == "member":
        return "members"
    return "clusters without any member" if decision.get("unit") == "cluster" else "non-members"


def _proportion(decision: Mapping[str, Any]) -> list[tuple[str, str]]:
    """The estimated share of members, or of clean items, where the procedure estimates it."""
    method, value = decision["method"], decision["proportion"]
    if not any(name in method for name in ("storey", "subtraction", "moment", "jecs")):
        return []
    what = "members" if decision["null"] == "nonmember" else "clean items"
    shown = f"{value:.3f}" if value >= 0 else f"0 (estimate {value:.3f})"
    return [(f"estimated share of {what}", shown)]


def _model(model: Mapping[str, Any]) -> str:
    revision = f", revision {model['revision']}" if model["revision"] else ""
    return f"{model['name']}{revision} (sha256 {model['sha256'][:12]})"
