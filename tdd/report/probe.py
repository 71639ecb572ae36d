"""The terminal report of a probe in a training loop: the set over all looks, its items at the last one."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from tdd.exchange.summary import format_p_value, is_known
from tdd.report.exchange import pairs, points
from tdd.report.terminal import plain_text

__all__ = ["print_report", "render"]

_LOOKS = 12
_ITEMS = 10


def print_report(
    run: Mapping[str, Any],
    history: Mapping[str, np.ndarray],
    items: Mapping[str, Any],
    *,
    console: Console | None = None,
) -> None:
    """Print the report of a probe.

    Args:
      run: content of run.json.
      history: columns of history.csv.
      items: columns of items.csv.
      console: where to; standard output by default.
    """
    (console or Console()).print(render(run, history, items))


def render(run: Mapping[str, Any], history: Mapping[str, np.ndarray], items: Mapping[str, Any]) -> RenderableType:
    """The report as a rich renderable."""
    parts: list[RenderableType] = [
        plain_text(f"Probe in a training loop: {run['name']}", "bold underline"),
        Padding(plain_text(run["outcome"], "bold"), (1, 0)),
        _facts(run, history, items),
    ]
    if run["looks"]:
        parts += [_looks(run, history), *_flagged(run, history, items)]
    assumed = dict.fromkeys(point for one in run["guarantees"].values() for point in one["assumes"])
    parts.append(points("Assumptions of the guarantees", [*assumed], "·"))
    if run["warnings"]:
        parts.append(points("Warnings", run["warnings"], "!", "yellow"))
    if run["open_points"]:
        parts.append(points("What this run does not establish", run["open_points"], "·"))
    return Group(*parts)


def _facts(run: Mapping[str, Any], history: Mapping[str, np.ndarray], items: Mapping[str, Any]) -> Table:
    options, alpha = run["options"], run["options"]["alpha"]
    rows = [
        ("null hypothesis of the set", _null_hypothesis(run)),
        ("level", f"{alpha:g}, over all looks together"),
        ("alarm", "none" if run["first_alarm"] is None else f"first at step {run['first_alarm']:,}"),
        *((f"guarantee of {which}", _guarantee(one)) for which, one in _named(run["guarantees"])),
        ("looks", _schedule(run, history)),
        ("score", f"{options['score']} (lower = more member-like)"),
    ]
    if run["looks"]:
        rows += _last(run, history, items)
    rows += [
        (f"input: {role}", f"{one['texts']:,} texts of {one['source']} (sha256 {one['sha256'][:12]})")
        for role, one in run["inputs"].items()
    ]
    return pairs("What was watched", rows)


def _null_hypothesis(run: Mapping[str, Any]) -> str:
    if run["guarantees"]["items"]["kind"] == "none":  # suspects are orders of a benchmark
        return "which order of a shard is the published one is random, whatever the training did"
    return "suspects and references are exchangeable, whatever the training did"


def _named(guarantees: Mapping[str, Any]) -> list[tuple[str, Mapping[str, Any]]]:
    words = {"set": "the alarm", "items": "flagged items", "one look": "items of one look"}
    return [(words.get(name, name), one) for name, one in guarantees.items()]


def _guarantee(one: Mapping[str, Any]) -> str:
    kind = "" if one["kind"] == "none" else f", {one['kind']}"
    return f"{one['controls']}{kind} ({one['source']})"


def _schedule(run: Mapping[str, Any], history: Mapping[str, np.ndarray]) -> str:
    options, looks = run["options"], run["looks"]
    every = f"every {options['every']:,} steps"
    if not looks:
        return f"none yet; {every}"
    first, last = int(history["step"][0]), int(history["step"][-1])
    horizon = options.get("num_steps")
    planned = "" if horizon is None else f", planned for {horizon:,} steps"
    seconds = history["seconds"]
    usual = f"; {np.nanmedian(seconds):.2g} s each" if np.isfinite(seconds).any() else ""
    return f"{looks:,}, {every}{planned}: step {first:,} to {last:,}{usual}"


def _last(run: Mapping[str, Any], history: Mapping[str, np.ndarray], items: Mapping[str, Any]) -> list[tuple[str, str]]:
    """What the last look found."""
    now = {name: values[-1] for name, values in history.items()}
    suspects = sum(role == "suspect" for role in items["role"])
    rows = [
        ("anytime p-value", format_p_value(now["anytime_p_value"])),
        ("log10 e-value", f"{now['log_e_value'] / math.log(10):.2f}"),
    ]
    if any(is_known(value) for value in items["p_value"]):  # of a benchmark's order, no item is decided on
        rows.append(("flagged so far", f"{now['num_flagged']:.0f} of {suspects} suspects"))
    if run["options"].get("proportion") not in (None, "none"):
        rows.append(("estimated share of members", f"{max(0.0, now['proportion']):.3f}"))
    if "canary_exposure_max" in now:
        largest, median = now["canary_exposure_max"], now["canary_exposure_median"]
        rows.append(("exposure of the canaries", f"largest {largest:.2f} bits, median {median:.2f} bits"))
    spread = [now[name] for name in history if name.startswith("grad_norm_q")]
    if spread:
        rows.append(("gradient norms of suspects", ", ".join(f"{value:.3g}" for value in spread) + " (quantiles)"))
    if now["num_not_finite"]:
        rows.append(("scores that are not finite", f"{now['num_not_finite']:.0f}, left out"))
    return rows


def _looks(run: Mapping[str, Any], history: Mapping[str, np.ndarray]) -> RenderableType:
    """At most a dozen looks, the first, the last and the first alarm among them."""
    shown = _shown(run, history)
    table = Table(title="Look by look", title_justify="left")
    exposure = "canary_exposure_max" in history
    names = ["step", "p-value", "anytime", "flagged", "suspects", "references"]
    for name in [*names, *(["exposure"] if exposure else [])]:
        table.add_column(name, justify="right")
    for i in shown:
        at = {name: values[i] for name, values in history.items()}
        table.add_row(
            f"{at['step']:,.0f}",
            format_p_value(at["p_value"]),
            format_p_value(at["anytime_p_value"]) + ("*" if at["alarm"] else ""),
            f"{at['num_flagged']:.0f}",
            _score(at["mean_suspect"]),
            _score(at["mean_reference"]),
            *([f"{at['canary_exposure_max']:.2f}"] if exposure else []),
            style="bold" if at["step"] == run["first_alarm"] else "",
        )
    left_out = run["looks"] - len(shown)
    note = (
        "p-value: of the set at this look alone; anytime: of all looks so far"
        + ("" if run["first_alarm"] is None else ", * once the alarm was raised")
        + ". Suspects, references: mean scores."
        + (" Exposure: the largest, in bits." if exposure else "")
        + (f" {left_out:,} looks between these are in history.csv." if left_out else "")
    )
    return Padding(Group(table, Text(note, style="italic")), (1, 0, 0, 0))


def _shown(run: Mapping[str, Any], history: Mapping[str, np.ndarray]) -> list[int]:
    """Which looks: evenly spaced, and the first alarm."""
    spaced = np.linspace(0, run["looks"] - 1, min(run["looks"], _LOOKS)).round().astype(int)
    alarm = np.flatnonzero(history["step"] == run["first_alarm"]) if run["first_alarm"] is not None else []
    return sorted({*spaced.tolist(), *(int(i) for i in alarm[:1])})


def _flagged(
    run: Mapping[str, Any], history: Mapping[str, np.ndarray], items: Mapping[str, Any]
) -> list[RenderableType]:
    """The suspects flagged so far, the most extreme first; nothing where there are none."""
    chosen = [i for i, is_in in enumerate(items["selected"]) if is_in]
    if not chosen:
        return []
    chosen.sort(key=lambda i: (items["adjusted"][i], items["p_value"][i], items["score"][i]))
    table = Table(title=f"Flagged by step {int(history['step'][-1]):,}", title_justify="left")
    table.add_column("id", overflow="fold")
    for name in ("score", "p-value", "adjusted"):
        table.add_column(name, justify="right")
    for i in chosen[:_ITEMS]:
        values = (items[name][i] for name in ("score", "p_value", "adjusted"))
        table.add_row(plain_text(str(items["id"][i])), *(f"{value:.4g}" for value in values))
    some = f"The {_ITEMS} most extreme of {len(chosen)}. " if len(chosen) > _ITEMS else ""
    note = (
        f"{some}The false discovery rate of {run['options']['alpha']:g} holds for them at whatever look one stops. "
        "Score and p-value are those of the last look; adjusted: of all looks."
    )
    return [Padding(Group(table, Text(note, style="italic")), (1, 0, 0, 0))]


def _score(value: float) -> str:
    return f"{value:#.4g}" if is_known(value) else "-"
