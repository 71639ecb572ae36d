"""Tables about a watched benchmark, for the page of the benchmarks."""

from __future__ import annotations

from typing import Any

from tdd.report.page import markdown_table

__all__ = ["leak", "score_leak"]

_RULES = {"ours": "`contamination`", "single look": "any look's p ≤ α", "divided": "any look's p ≤ α / looks"}


def leak(result: dict[str, Any]) -> str:
    """A planted leak look by look, false alarms of clean runs, power and the estimate of the beginning."""
    return "\n\n".join([_shown(result["shown"]), _clean(result), _power(result)])


def score_leak(result: dict[str, Any]) -> str:
    """False discovery rates where a score's own texts stay among calibration texts or candidates."""
    setting, places = result["setting"], ("left out", "calibration", "candidates")
    rows = []
    for name in dict.fromkeys(row["score"] for row in result["rows"]):
        cells = {row["place"]: row for row in result["rows"] if row["score"] == name}
        rates = [f"{cells[place]['fdr']:.3f} ± {cells[place]['standard_error']:.3f}" for place in places]
        rows.append([f"`{name}`", str(cells["left out"]["taken"]), *rates])
    text = (
        f"**A score's own texts** (`benchmarks/leak.py --scores`). FDR of `ptdi:proportion=none` at α = "
        f"{setting['alpha']:g} where every candidate is a non-member, of {setting['calibration']} calibration texts "
        f"and {setting['candidates']} candidates, if the non-members that ReCaLL's prefix or FSD's fine-tuning took "
        "are left out of both, as `tdd.score` demands, or all stay among the "
        "calibration texts, or make half of the candidates. Mean ± "
        "standard error over "
        f"{setting['seeds']} decoders of width {setting['width']}, each with {setting['divisions']:,} random divisions "
        "of the other non-members."
    )
    return f"{text}\n\n{markdown_table(['score', 'texts taken', *places], rows)}"


def _shown(shown: dict[str, Any]) -> str:
    leak, stream, milliseconds = shown["leak"], shown["stream"], shown["milliseconds"]
    first = shown["first_step"]
    kept = [row for row in shown["looks"] if leak["began"][0] - 50 <= row["step"] <= leak["alarm"] + 50]
    rows = [
        [
            f"{row['step']:,}",
            str(row["exposures"]),
            f"{row['p_value']:.4f}",
            f"{row['anytime_p_value']:.4f}" + ("\\*" if row["alarm"] else ""),
            str(row["flagged"]),
        ]
        for row in kept
    ]
    text = (
        f"**A planted leak** (`benchmarks/leak.py`). {shown['planted']} of 100 watched items come into the training "
        f"stream in random places from step {first} on; `tdd.probe.contamination` sees the parameters every "
        f"{shown['looks'][1]['step']} steps. What it says: “{leak['words']}” Named wrongly, in truth: "
        f"{shown['wrongly_named']}. `StreamGuard` on the same batches: {stream['seen']} items seen "
        f"({stream['wrong']} wrongly), the first at step {stream['first_step']}; {milliseconds['guard']:.2f} ms a "
        f"batch, beside {milliseconds['step']:.1f} ms for a training step of this tiny model. \\* = alarm."
    )
    header = ["step", "exposures so far", "p-value of the look", "anytime p-value", "flagged"]
    return f"{text}\n\n{markdown_table(header, rows)}"


def _clean(result: dict[str, Any]) -> str:
    cells: dict[str, list[str]] = {}
    for row in result["clean"]:
        low, high = row["interval"]
        cells.setdefault(row["rule"], []).append(f"{row['false_alarms']} ({low:.3f} to {high:.3f})")
    first, setting = result["clean"][0], result["setting"]
    alphas = list(dict.fromkeys(row["alpha"] for row in result["clean"]))
    text = (
        f"**Clean runs.** False alarms in {first['runs']} runs of {setting['steps']} steps and {first['looks']} looks "
        "in which no watched text is trained on, each from a fresh start with a fresh division into benchmark and "
        "reference (in brackets the 95% binomial interval of the rate)."
    )
    rows = [[_RULES[rule], *found] for rule, found in cells.items()]
    return f"{text}\n\n{markdown_table(['alarm', *(f'α = {alpha:g}' for alpha in alphas)], rows)}"


def _power(result: dict[str, Any]) -> str:
    rows = []
    for row in result["power"]:
        found = [f"{row[f'found, {rule}']:.2f}" for rule in ("ours", "divided")]
        if "delay" in row:
            found += [
                f"{row['delay'][0]:.0f} / {row['delay'][1]:.0f}",
                f"{row['absolute_error'][0]:.0f} / {row['absolute_error'][1]:.0f}",
                f"{row['within_one']:.2f}",
            ]
        else:
            found += ["", "", ""]
        rows.append([f"{row['share']:.0%}", str(row["copies"]), *found])
    setting, one = result["setting"], result["power"][0]
    text = (
        f"**How much of a leak is needed.** {one['runs']} runs a row, α = {one['alpha']:g}: a share of the "
        f"{setting['items']} items, each so many times, in random places of steps {setting['leak']:,} to "
        f"{setting['steps']:,} (a look every {setting['every']}, a decoder of width {setting['width']}). Found: share "
        "of runs with the alarm at or after the first look that could show it. Delay from there, and how far off the "
        "estimated beginning is (both in looks: median / 90% quantile), and the share of estimates within one look, "
        "among the runs that found it."
    )
    header = ["items", "copies", "found", "found, p ≤ α / looks", "delay", "error of the beginning", "within one look"]
    return f"{text}\n\n{markdown_table(header, rows)}"
