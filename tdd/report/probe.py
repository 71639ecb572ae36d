"""The report of a probe in a training loop: the set over all looks, its items at the last one."""

from __future__ import annotations

import math
import pathlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from tdd.runs.display import format_p_value, is_known
from tdd.report.sections import Column, Facts, Figure, Report, Row, Table, caveats, drawn
from tdd.runs.folder import as_number, read_columns
from tdd.validate import InputError

_LOOKS = 12
_ITEMS = 10
_HISTORY_COLUMNS = (
    "step", "look", "p_value", "anytime_p_value", "log_e_value", "num_flagged", "proportion",
    "mean_suspect", "mean_reference", "num_not_finite", "alarm", "seconds",
)  # fmt: skip
"""Columns of every history.csv of a probe; canaries and gradient norms add theirs."""
_ITEM_COLUMNS = ("id", "role", "score", "p_value", "adjusted", "selected")
_ROLES = {
    "calibration items": "references",
    "calibration scores": "the scores of references",
    "candidates": "suspects",
}
_AGAIN = "save the probe again"
_GUARANTEED = {"set": "the alarm", "items": "flagged items", "one look": "items of one look"}


def read_history(folder: pathlib.Path, run: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """Columns of history.csv as [looks] float64, an empty cell as NaN; no rows before the first look.

    Raises:
      InputError: no such table, a damaged one, or one of another run.
    """
    if not run["looks"]:
        return {name: np.zeros(0) for name in _HISTORY_COLUMNS}
    columns = read_columns(folder, "history.csv", run, _HISTORY_COLUMNS, _AGAIN, lambda column: as_number)
    num_looks = len(columns["step"])
    if run["looks"] != num_looks:
        raise InputError(
            f"{folder / 'history.csv'} has {num_looks} looks and run.json beside it counts {run['looks']}: they are "
            f"not of one run; {_AGAIN}"
        )
    return {name: np.array(column) for name, column in columns.items()}


def read_probe_items(folder: pathlib.Path, run: Mapping[str, Any]) -> dict[str, list[Any]]:
    """Columns of items.csv: id and role as they are, numbers as float, `selected` as bool.

    Raises:
      InputError: no such table, or a damaged one.
    """
    if not run["looks"]:
        return {name: [] for name in _ITEM_COLUMNS}
    numbers = ("score", "p_value", "adjusted")
    columns = read_columns(
        folder, "items.csv", run, _ITEM_COLUMNS, _AGAIN, lambda column: as_number if column in numbers else str
    )
    return {**columns, "selected": [value == "1" for value in columns["selected"]]}


def probe_report(run: Mapping[str, Any], history: Mapping[str, np.ndarray], items: Mapping[str, Any]) -> Report:
    """The report of a probe from run.json, the columns of history.csv and those of items.csv."""
    assumptions = [point for guarantee in run["guarantees"].values() for point in guarantee["assumes"]]
    sections = caveats(map(_of_roles, assumptions), run["open_points"], run["warnings"])
    sections.append(Facts("What was watched", tuple(_facts(run, history, items))))
    if run["looks"]:
        shown = "P-values and mean scores of suspects and references over the steps of the training."
        sections.append(Figure("The evidence over steps", shown, drawn("probe_plots", "draw", run, history)))
        sections += [_looks(run, history), *_flagged(run, history, items)]
    return Report(f"Probe in a training loop: {run['name']}", run["outcome"], tuple(sections))


def _of_roles(assumption: str) -> str:
    """An assumption of an audit's procedure in the words of a probe: references calibrate, suspects are candidates."""
    for word, own in _ROLES.items():
        assumption = assumption.replace(word, own)
    return assumption


def _facts(
    run: Mapping[str, Any], history: Mapping[str, np.ndarray], items: Mapping[str, Any]
) -> list[tuple[str, str]]:
    of_order = run["guarantees"]["items"]["kind"] == "none"  # suspects are orders of a benchmark
    rows = [
        (
            "null hypothesis of the set",
            "which order of a shard is the published one is random, whatever the training did"
            if of_order
            else "suspects and references are exchangeable, whatever the training did",
        ),
        ("level", f"{run['options']['alpha']:g}, over all looks together"),
        ("alarm", "none" if run["first_alarm"] is None else f"first at step {run['first_alarm']:,}"),
    ]
    for name, guarantee in run["guarantees"].items():
        kind = "" if guarantee["kind"] == "none" else f", {guarantee['kind']}"
        holds = f"{guarantee['controls']}{kind} ({guarantee['source']})"
        rows.append((f"guarantee of {_GUARANTEED.get(name, name)}", holds))
    rows += [
        ("looks", _schedule(run, history)),
        ("score", f"{run['options']['score']} (lower = more member-like)"),
    ]
    if run["looks"]:
        rows += _last_look(run, history, items)
    for role, texts in run["inputs"].items():
        rows.append(
            (f"input: {role}", f"{texts['texts']:,} texts of {texts['source']} (sha256 {texts['sha256'][:12]})")
        )
    return rows


def _schedule(run: Mapping[str, Any], history: Mapping[str, np.ndarray]) -> str:
    every = f"every {run['options']['every']:,} steps"
    if not run["looks"]:
        return f"none yet; {every}"
    first, last, seconds = int(history["step"][0]), int(history["step"][-1]), history["seconds"]
    horizon = run["options"].get("num_steps")
    planned = "" if horizon is None else f", planned for {horizon:,} steps"
    usual = f"; {np.nanmedian(seconds):.2g} s each" if np.isfinite(seconds).any() else ""
    return f"{run['looks']:,}, {every}{planned}: step {first:,} to {last:,}{usual}"


def _last_look(
    run: Mapping[str, Any], history: Mapping[str, np.ndarray], items: Mapping[str, Any]
) -> list[tuple[str, str]]:
    last = {name: values[-1] for name, values in history.items()}
    num_suspects = sum(role == "suspect" for role in items["role"])
    rows = [
        ("anytime p-value", format_p_value(last["anytime_p_value"])),
        ("log10 e-value", f"{last['log_e_value'] / math.log(10):.2f}"),
    ]
    if any(is_known(value) for value in items["p_value"]):  # orders of a benchmark are not decided on
        rows.append(("flagged so far", f"{last['num_flagged']:.0f} of {num_suspects} suspects"))
    if run["options"].get("proportion") not in (None, "none"):
        rows.append(("estimated fraction of members", f"{max(0.0, last['proportion']):.3f}"))
    if "canary_exposure_max" in last:
        largest, median = last["canary_exposure_max"], last["canary_exposure_median"]
        rows.append(("exposure of the canaries", f"largest {largest:.2f} bits, median {median:.2f} bits"))
    norms = [last[name] for name in history if name.startswith("grad_norm_q")]
    if norms:
        rows.append(("gradient norms of suspects", ", ".join(f"{norm:.3g}" for norm in norms) + " (quantiles)"))
    if last["num_not_finite"]:
        rows.append(("scores that are not finite", f"{last['num_not_finite']:.0f}, left out"))
    return rows


def _looks(run: Mapping[str, Any], history: Mapping[str, np.ndarray]) -> Table:
    """Evenly spaced looks, the first, the last and the first alarm among them."""
    shown = {*np.linspace(0, run["looks"] - 1, min(run["looks"], _LOOKS)).round().astype(int).tolist()}
    if run["first_alarm"] is not None:
        shown |= {*np.flatnonzero(history["step"] == run["first_alarm"])[:1].tolist()}
    exposure = "canary_exposure_max" in history
    saved = [_short(one["name"]) for one in run.get("checkpoints", ())]
    names = ["step", "p-value", "anytime", "flagged", "suspects", "references", *(["exposure"] if exposure else [])]
    rows = []
    for i in sorted(shown):
        look = {name: values[i] for name, values in history.items()}
        cells = (
            f"{look['step']:,.0f}",
            format_p_value(look["p_value"]),
            format_p_value(look["anytime_p_value"]) + ("*" if look["alarm"] else ""),
            f"{look['num_flagged']:.0f}",
            _score(look["mean_suspect"]),
            _score(look["mean_reference"]),
            *([f"{look['canary_exposure_max']:.2f}"] if exposure else []),
            *([saved[int(look["step"])]] if saved else []),
        )
        rows.append(Row(cells, "strong" if look["step"] == run["first_alarm"] else "plain"))
    left_out = run["looks"] - len(shown)
    note = (
        "p-value: of the set at this look alone; anytime: of all looks so far"
        + ("" if run["first_alarm"] is None else ", * once the alarm was raised")
        + ". Suspects, references: mean scores."
        + (" Exposure: the largest, in bits." if exposure else "")
        + (f" {left_out:,} looks between these are in history.csv." if left_out else "")
    )
    columns = [Column(name, number=True) for name in names] + [Column("checkpoint")] * bool(saved)
    return Table("Look by look", tuple(columns), tuple(rows), note)


def _flagged(run: Mapping[str, Any], history: Mapping[str, np.ndarray], items: Mapping[str, Any]) -> list[Table]:
    """The suspects flagged so far, the most extreme first."""
    flagged = [i for i, selected in enumerate(items["selected"]) if selected]
    if not flagged:
        return []
    flagged.sort(key=lambda i: (items["adjusted"][i], items["p_value"][i], items["score"][i]))
    rows = [
        Row((str(items["id"][i]), *(f"{items[name][i]:.4g}" for name in ("score", "p_value", "adjusted"))))
        for i in flagged[:_ITEMS]
    ]
    some = f"The {_ITEMS} most extreme of {len(flagged)}. " if len(flagged) > _ITEMS else ""
    note = (
        f"{some}If the assumptions hold, their false discovery rate is at most {run['options']['alpha']:g} at whatever "
        "look one stops. "
        "Score and p-value are those of the last look; adjusted: of all looks."
    )
    columns = (Column("id"), *(Column(name, number=True) for name in ("score", "p-value", "adjusted")))
    return [Table(f"Flagged by step {int(history['step'][-1]):,}", columns, tuple(rows), note)]


def _short(name: str) -> str:
    """The revision of a model of the hub, else the last part of a path."""
    return name.partition("@")[2] or pathlib.PurePath(name).name


def _score(value: Any) -> str:
    return f"{value:#.4g}" if is_known(value) else "-"
