"""The report of a probe in a training loop: the set over all looks, its items at the last one."""

from __future__ import annotations

import math
import pathlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from tdd.report.sections import (
    Column,
    Facts,
    Figure,
    Help,
    Points,
    Report,
    Row,
    Table,
    capital,
    caveats,
    drawn,
    in_words,
    to_repeat,
)
from tdd.runs.display import format_p_value, is_known, level_in_words
from tdd.runs.folder import as_number, read_columns
from tdd.validate import InputError, spelled

_LOOKS = 12
_ITEMS = 10
_HISTORY_COLUMNS = (
    "step", "look", "p_value", "anytime_p_value", "log_e_value", "num_flagged", "proportion",
    "mean_suspect", "mean_reference", "num_not_finite", "alarm", "seconds",
)  # fmt: skip
"""Columns of every history.csv of a probe; canaries and gradient norms add theirs."""
_ITEM_COLUMNS = ("id", "role", "score", "p_value", "adjusted", "selected")
_INPUTS = {
    "suspect": ("suspects", "published order"),
    "reference": ("references", "other orders"),
    "canaries": ("canaries", ""),
    "canary_reference": ("references of the canaries", ""),
}
"""Role -> what the page calls it, and where the order of a benchmark is watched."""
_TERMS = (
    ("look", "a comparison at one step of the training, or of one checkpoint"),
    ("score", "a number for each text, from the probabilities that the model gives it; lower means more like a text "
     "that was trained on"),
    ("p-value", "the probability of scores at least as extreme if the null hypothesis holds: of one look, or anytime, "
     "of all looks so far, which holds however many there are and whenever one stops"),
    ("e-value", "a number whose mean is at most 1 if the null hypothesis holds; the larger, the stronger the evidence"),
    ("exchangeable", "any order would have been equally likely, as after shuffling"),
)  # fmt: skip
_LEVEL = ("level", "the error rate that was accepted beforehand")
_FDR = ("level, false discovery rate", "the error rate that was accepted beforehand; of flagged suspects it is the "
        "fraction that were not trained on, 0 if none is flagged, averaged over repetitions of the whole "
        "training")  # fmt: skip
_EXPOSURE = "the binary logarithm of the number of texts made alike over the rank of a planted one among them"
_ROLES = {
    "calibration items": "references",
    "calibration scores": "the scores of references",
    "candidates": "suspects",
}
_AGAIN = "save the probe again"
_GUARANTEED = {"set": "the alarm", "items": "flagged suspects", "one look": "the last look by itself"}


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
    of_set, *of_items = (map(_of_roles, guarantee["assumes"]) for guarantee in run["guarantees"].values())
    *sections, left_open = caveats(of_set, run["open_points"], capital(run["warnings"]), _how_to_read(run))
    if of_items := dict.fromkeys(point for own in of_items for point in own):
        sections.append(Points("Assumptions of the guarantee of flagged suspects", capital(of_items)))
    sections += [left_open, Facts("What was watched", tuple(_facts(run, history, items)))]
    if run["looks"]:
        suspects, references = _compared(run)
        watched = [f"mean scores of {suspects} and {references}", *([] if of_order(run) else ["flagged suspects"])]
        watched += ["exposure of the canaries"] if "canary_exposure_max" in history else []
        watched += ["gradient norms"] if run["options"].get("grad_norms") else []
        shown = f"From the top: p-values, {', '.join(watched)}, over the looks."
        sections.append(Figure("The evidence over the looks", shown, drawn("probe_plots", "draw", run, history)))
        sections += [_looks(run, history), *_flagged(run, history, items)]
    sections.append(Help("Terms", (*_TERMS, _LEVEL if of_order(run) else _FDR), folded=True))
    kind = "Probe over saved checkpoints" if run.get("checkpoints") else "Probe in a training loop"
    return Report(f"{kind}: {run['name']}", run["outcome"], tuple(sections))


def of_order(run: Mapping[str, Any]) -> bool:
    """Whether the suspects are shards of a benchmark in its published order, and the references its other orders."""
    return run["guarantees"]["items"]["kind"] == "none"


def _compared(run: Mapping[str, Any]) -> tuple[str, str]:
    """What the page calls suspects and references."""
    suspects, references = (_INPUTS[role][of_order(run)] for role in ("suspect", "reference"))
    return suspects, references


def _how_to_read(run: Mapping[str, Any]) -> list[str]:
    """A few lines, by what was compared."""
    lines = ["The text below the title is the verdict so far. It holds only if the assumptions below hold."]
    if of_order(run):
        return [
            *lines,
            "The benchmark was cut into shards of successive items. At every look, the scores of the shards in their "
            "published order were compared with those of the same items in other orders.",
            "If the published order is random, a model that was not trained on it has no reason to prefer it.",
            "Whether the order is random was not checked.",
        ]
    return [
        *lines,
        "Suspects are the texts in question. References were given as texts of the same kind that are not in the "
        "training data. At every look, the scores of both were compared.",
        "An alarm is evidence on the suspects as a set. The error rate of flagged suspects is that of their list. No "
        "single one of them is proven.",
        "Whether suspects and references are of one kind was not checked.",
    ]


def _of_roles(assumption: str) -> str:
    """An assumption of an audit's procedure in the words of a probe: references calibrate, suspects are candidates."""
    for word, own in _ROLES.items():
        assumption = assumption.replace(word, own)
    return assumption


def _facts(
    run: Mapping[str, Any], history: Mapping[str, np.ndarray], items: Mapping[str, Any]
) -> list[tuple[str, str]]:
    saved = run.get("checkpoints")
    rows = [
        (
            "null hypothesis",
            "the training does not depend on the published order"
            if of_order(run)
            else "no suspect is in the training data",
        ),
        ("level", f"{level_in_words(run['options']['alpha'])}, over all looks together"),
        (
            "alarm",
            "none"
            if run["first_alarm"] is None
            else f"first at {'checkpoint' if saved else 'step'} {run['first_alarm']:,}",
        ),
    ]
    for name, guarantee in run["guarantees"].items():
        if name != "set" and of_order(run):
            continue
        rows.append((f"guarantee of {_GUARANTEED.get(name, name)}", in_words(guarantee)))
    rows += [
        ("looks", _schedule(run, history)),
        ("score", f"{run['options']['score']} (lower = more like a text that was trained on)"),
    ]
    if run["looks"]:
        rows += _last_look(run, history, items)
    for role, texts in run["inputs"].items():
        source = "given in Python" if texts["source"] == "memory" else f"of {texts['source']}"
        held = f"{texts['texts']:,} {'shards' if of_order(run) else 'texts'} {source} (contents {texts['sha256'][:12]})"
        rows.append((f"input: {_INPUTS[role][of_order(run)]}", held))
    return [*rows, ("to repeat it", to_repeat(run, ""))] if run.get("command") else rows


def _schedule(run: Mapping[str, Any], history: Mapping[str, np.ndarray]) -> str:
    every = f"every {run['options']['every']:,} steps"
    if not run["looks"]:
        return f"none yet; {every}"
    if saved := run.get("checkpoints"):
        return f"{run['looks']:,} of {len(saved):,} checkpoints"
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
        ("anytime p-value", format_p_value(last["anytime_p_value"], level=run["options"]["alpha"])),
        ("log10 e-value", f"{last['log_e_value'] / math.log(10):.2f}"),
    ]
    if any(is_known(value) for value in items["p_value"]):  # orders of a benchmark are not decided on
        rows.append(
            ("flagged so far", f"{last['num_flagged']:.0f} of {num_suspects} suspect{'s' * (num_suspects != 1)}")
        )
    if run["options"].get("proportion") not in (None, "none"):
        within = f"{max(0.0, last['proportion']):.3f}: an estimate within the last look, not a result"
        rows.append(("fraction of members", within))
    if "canary_exposure_max" in last:
        largest, median = last["canary_exposure_max"], last["canary_exposure_median"]
        bits = f"largest {largest:.2f} bits, median {median:.2f} bits"
        rows.append(("exposure of the canaries", f"{bits}: {_EXPOSURE}"))
    norms = [last[name] for name in history if name.startswith("grad_norm_q")]
    if norms:
        least, *quartiles, most = (f"{norm:,.0f}" if norm >= 1000 else f"{norm:.3g}" for norm in norms)
        rows.append(("gradient norms of suspects", f"{least} to {most}; quartiles {', '.join(quartiles)}"))
    if last["num_not_finite"]:
        rows.append(("scores that are not finite", f"{last['num_not_finite']:.0f}, left out"))
    return rows


def _looks(run: Mapping[str, Any], history: Mapping[str, np.ndarray]) -> Table:
    """Evenly spaced looks, the first, the last and the first alarm among them."""
    shown = {*np.linspace(0, run["looks"] - 1, min(run["looks"], _LOOKS)).round().astype(int).tolist()}
    if run["first_alarm"] is not None:
        shown |= {*np.flatnonzero(history["step"] == run["first_alarm"])[:1].tolist()}
    exposure = "canary_exposure_max" in history
    saved = [f"{_short(one['name'])} (contents {one['sha256'][:12]})" for one in run.get("checkpoints", ())]
    suspects, references = _compared(run)
    flagged = [] if of_order(run) else ["flagged"]
    names = ["checkpoint" if saved else "step", "p-value", "anytime", *flagged, suspects, references]
    names += ["exposure"] if exposure else []
    rows = []
    for i in sorted(shown):
        look = {name: values[i] for name, values in history.items()}
        cells = (
            f"{look['step']:,.0f}",
            format_p_value(look["p_value"]),
            format_p_value(look["anytime_p_value"]) + ("*" if look["alarm"] else ""),
            *(f"{look[f'num_{name}']:.0f}" for name in flagged),
            _score(look["mean_suspect"]),
            _score(look["mean_reference"]),
            *([f"{look['canary_exposure_max']:.2f}"] if exposure else []),
            *([saved[int(look["step"])]] if saved else []),
        )
        rows.append(Row(cells, "strong" if look["step"] == run["first_alarm"] else "plain"))
    left_out = run["looks"] - len(shown)
    note = (
        "p-value: of this look alone; anytime: of all looks so far"
        + ("" if run["first_alarm"] is None else ", * once the alarm was raised")
        + f". {suspects.capitalize()}, {references}: mean scores."
        + (" Exposure: the largest, in bits." if exposure else "")
        + (f" {left_out:,} looks between these are in history.csv." if left_out else "")
    )
    columns = [Column(name, number=True) for name in names] + [Column("model")] * bool(saved)
    return Table("Look by look", tuple(columns), tuple(rows), note)


def _flagged(run: Mapping[str, Any], history: Mapping[str, np.ndarray], items: Mapping[str, Any]) -> list[Table]:
    """The suspects flagged so far, the most extreme first."""
    flagged = [i for i, selected in enumerate(items["selected"]) if selected]
    if not flagged:
        return []
    flagged.sort(key=lambda i: (items["adjusted"][i], items["p_value"][i], items["score"][i]))
    rows = [
        Row((spelled(str(items["id"][i])), *(f"{items[name][i]:.4g}" for name in ("score", "p_value", "adjusted"))))
        for i in flagged[:_ITEMS]
    ]
    some = f"The {_ITEMS} most extreme of {len(flagged)}. " if len(flagged) > _ITEMS else ""
    note = (
        f"{some}If the assumptions hold, the false discovery rate of flagged suspects is at most "
        f"{level_in_words(run['options']['alpha'])}, whatever look one stops at. "
        "Score and p-value are those of the last look; adjusted: of all looks."
    )
    columns = (Column("id"), *(Column(name, number=True) for name in ("score", "p-value", "adjusted")))
    place = "checkpoint" if run.get("checkpoints") else "step"
    return [Table(f"Flagged by {place} {int(history['step'][-1]):,}", columns, tuple(rows), note)]


def _short(name: str) -> str:
    """The revision of a model of the hub, else the last part of a path."""
    return name.partition("@")[2] or pathlib.PurePath(name).name


def _score(value: Any) -> str:
    return f"{value:#.4g}" if is_known(value) else "-"
