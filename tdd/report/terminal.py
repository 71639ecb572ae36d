"""The terminal report of an audit: what was selected, at which level, under which assumptions, what is missing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

__all__ = ["demo_table", "print_report", "render"]

_SHOWN = 10
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
    parts: list[RenderableType] = [_heading(run), Padding(_plain(run["outcome"], "bold"), (1, 0))]
    parts += [_facts(run), _checks(run)]
    decision = run["decision"]
    if items is not None and decision["num_selected"]:
        parts.append(_selected(items, decision["score"]))
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
    return _plain(name, "bold underline")


def _facts(run: Mapping[str, Any]) -> Table:
    decision, guarantee = run["decision"], run["decision"]["guarantee"]
    table = Table(title="What was decided", title_justify="left", show_header=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    rows: list[tuple[str, str]] = [
        ("null hypothesis of an item", _NULLS[decision["null"]]),
        ("procedure", f"{decision['method']} on the score {decision['score']} (lower = more member-like)"),
        ("level", f"{decision['alpha']:g}"),
        ("guarantee", f"{guarantee['controls']}, {guarantee['kind']} ({guarantee['source']})"),
        ("candidates", _count(decision["num_tests"], decision["num_missing"])),
        ("calibration items", _count(decision["num_calibration"], decision["num_missing_calibration"])),
        ("selected", str(decision["num_selected"])),
        ("largest selected p-value", f"{decision['threshold']:.4g}" if decision["num_selected"] else "none selected"),
        ("estimated share of members", _share(decision)),
    ]
    if decision["truth"]:
        truth = decision["truth"]
        power = "undefined: no members" if truth["power"] is None else f"{truth['power']:.3f}"
        rows.append(
            (
                "against the known truth",
                f"{truth['num_false']} non-members selected (FDP {truth['fdp']:.3f}), power {power}",
            )
        )
    if run["model"]:
        rows.append(("model", _model(run["model"])))
    for role, source in run["inputs"].items():
        rows.append((f"input: {role}", f"{source['source']} (sha256 {source['sha256'][:12]})"))
    for name, value in rows:
        table.add_row(name, _plain(value))
    return table


def _checks(run: Mapping[str, Any]) -> Table:
    checks, decision = run["checks"], run["decision"]
    table = Table(title="Checks", title_justify="left")
    table.add_column("check", style="bold", no_wrap=True)
    table.add_column("found", overflow="fold")
    table.add_column("verdict", no_wrap=True)
    fewest = checks["resolution"]["min_selections"]
    smallest = checks["resolution"]["smallest_p_value"]
    reach = (
        "nothing can be selected"
        if fewest > decision["num_tests"]
        else f"selections of fewer than {fewest} cannot occur"
    )
    table.add_row("resolution", f"smallest p-value {smallest:.3g}; {reach}", _verdict(checks["resolution"]))
    effective = checks["effective_calibration"]
    table.add_row(
        "effective calibration",
        f"{effective['size']} of {effective['num_given']} items "
        f"({effective['num_missing']} without score, {effective['num_repeated']} repeated), "
        f"{effective['num_distinct']} distinct scores",
        _verdict(effective),
    )
    if "duplicates" in checks:
        copies = checks["duplicates"]
        table.add_row(
            "duplicates across roles",
            f"{copies['num_exact_pairs']} exact and {copies['num_near_pairs']} near pairs",
            _verdict(copies),
        )
    if "blind_baseline" in checks:
        blind = checks["blind_baseline"]
        auc, p_value = blind["auc"], blind["p_value"]
        found = "not run" if auc is None else f"AUC {auc:.3f} without the model, permutation p = {p_value:.3g}"
        table.add_row("blind baseline", found, _verdict(blind))
    return table


def _selected(items: Mapping[str, Any], score: str) -> Table:
    chosen = sorted(
        (i for i, is_in in enumerate(items["selected"]) if is_in),
        key=lambda i: (float(items["p_value"][i]), float(items[score][i])),
    )
    title = "Selected items" if len(chosen) <= _SHOWN else f"Selected items, the {_SHOWN} most extreme of {len(chosen)}"
    table = Table(title=title, title_justify="left")
    table.add_column("id", overflow="fold")
    for name in (score, "p-value", "adjusted"):
        table.add_column(_plain(name), justify="right")
    for i in chosen[:_SHOWN]:
        table.add_row(
            _plain(str(items["id"][i])),
            *(f"{float(items[column][i]):.4g}" for column in (score, "p_value", "adjusted")),
        )
    return table


def _list(title: str, points: Sequence[str], mark: str, style: str = "") -> RenderableType:
    table = Table(title=title, title_justify="left", show_header=False, box=None, padding=(0, 1))
    table.add_column(no_wrap=True, style=style)
    table.add_column(overflow="fold", style=style)
    for point in points:
        table.add_row(mark, _plain(point[:1].upper() + point[1:]))
    return Padding(table, (1, 0, 0, 0))


def _plain(value: str, style: str = "") -> Text:
    """Text as it is: no markup, no emoji codes, control characters spelled out so that none reaches the terminal."""
    shown = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in value)
    return Text(shown, style=style)


def _verdict(check: Any) -> Text:
    return Text("see warnings", style="yellow") if check["warning"] else Text("no warning", style="green")


def _count(used: int, missing: int) -> str:
    return f"{used}" + (f" ({missing} more have no score)" if missing else "")


def _share(decision: Mapping[str, Any]) -> str:
    if decision["method"].endswith("/none"):
        return "not estimated"
    value = decision["proportion"]
    return f"{value:.3f}" if value >= 0 else f"0 (estimate {value:.3f}: no sign of members)"


def _model(model: Mapping[str, Any]) -> str:
    revision = f", revision {model['revision']}" if model["revision"] else ""
    return f"{model['name']}{revision} (sha256 {model['sha256'][:12]})"
