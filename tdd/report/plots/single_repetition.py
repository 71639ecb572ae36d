"""A single repetition in detail: where a selection stops, and the envelope behind a joint selection."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from tdd.report.plots import sheet


def staircase(arrays: Mapping[str, Any], *, title: str, caption: str) -> sheet.Sheet:
    """Sorted p-values against the line k·alpha/m; those up to the last one under the line are selected.

    `arrays`: "p_values": name -> [m] p-values as the procedure compares them; "false" [m] bool, the nulls; "alpha".
    """
    alpha, null = float(arrays["alpha"]), np.asarray(arrays["false"], bool)
    legend = {
        "p-value of a member": Line2D([], [], color=sheet.stroke(0).colour, marker="o", linestyle=""),
        "of a non-member": Line2D([], [], color=sheet.stroke(1).colour, marker="x", linestyle=""),
        "kα/m": sheet.level_line(),
        "selected": Patch(facecolor="#000000", alpha=0.07),
    }
    with sheet.style():
        drawn = sheet.sheet(title, caption, rows=1, columns=len(arrays["p_values"]), legend=legend, height=2.6)
        shown = max(20, int(1.6 * max(_stop(p, alpha) for p in arrays["p_values"].values())))
        for axes, (name, p_values) in zip(drawn.panels[0], arrays["p_values"].items(), strict=True):
            order = np.argsort(p_values, kind="stable")
            p, m = np.asarray(p_values, float)[order], len(p_values)
            stop = _stop(p_values, alpha)
            k = np.arange(1, m + 1)
            axes.step(k, p, where="mid", color=sheet.INK, linewidth=1)
            axes.plot(k, alpha * k / m, **sheet.LEVEL)
            for kind, index, marker in ((~null[order], 0, "o"), (null[order], 1, "x")):
                axes.plot(
                    k[kind], p[kind], linestyle="", marker=marker, markersize=3.4, color=sheet.stroke(index).colour
                )
            if stop:
                axes.axvspan(0, stop + 0.5, color="#000000", alpha=0.07, linewidth=0)
            wrong = int(null[order][:stop].sum())
            axes.set_title(f"{name}: {stop} selected, {wrong} wrongly", loc="left", color=sheet.INK)
            axes.set_xlim(0, min(shown, m) + 0.5)
            axes.set_ylim(0, 1.35 * max(p[: min(shown, m)].max(), alpha * min(shown, m) / m) / 1.3)
            axes.set_xlabel("rank k of the p-value")
        drawn.panels[0][0].set_ylabel("p-value")
    return drawn


def envelope(arrays: Mapping[str, Any], *, title: str, caption: str) -> sheet.Sheet:
    """Distribution functions of the largest p-value, and the envelope of the null one, whole and near zero.

    `arrays`: "p_values" [m] the largest p-values; "false" [m] bool, the contaminated items; "x", "value" [m] the
    envelope at the p-values; "tau", "slope"; "cuts": name -> the largest selected p-value (0: none).
    """
    p, null = np.asarray(arrays["p_values"], float), np.asarray(arrays["false"], bool)
    tau, slope = float(arrays["tau"]), float(arrays["slope"])
    points = np.unique(np.stack([np.asarray(arrays["x"], float), np.asarray(arrays["value"], float)], 1), axis=0)
    right = points[points[:, 0] > tau]
    x = np.concatenate([[0.0, tau], right[:, 0], [1.0]])
    g = np.concatenate([[0.0, slope * tau], right[:, 1], [1.0]])
    looks = [sheet.stroke(i) for i in range(4)]
    legend = {
        "envelope G": Line2D([], [], color=looks[1].colour, linewidth=2),
        "contaminated items (the null)": Line2D([], [], color=looks[0].colour, linestyle=looks[1].dashes),
        "all candidates": Line2D([], [], color=looks[2].colour, linestyle=looks[3].dashes),
        "uniform": sheet.level_line(),
    }
    cuts = {name: float(cut) for name, cut in arrays["cuts"].items()}
    near = math.ceil(100 * max(0.02, 2 * max(cuts.values(), default=0.0))) / 100
    with sheet.style():
        drawn = sheet.sheet(title, caption, rows=1, columns=2, legend=legend, height=2.7, share_x=False, share_y=False)
        for axes, limit in zip(drawn.panels[0], (1.0, min(near, 1.0)), strict=True):
            axes.step(*_ecdf(p), where="post", color=looks[2].colour, linestyle=looks[3].dashes, linewidth=1.2)
            axes.step(*_ecdf(p[null]), where="post", color=looks[0].colour, linestyle=looks[1].dashes, linewidth=1.2)
            axes.plot((0, 1), (0, 1), **sheet.LEVEL)
            axes.plot(x, g, color=looks[1].colour, linewidth=2)
            axes.set_xlim(0, limit)
            axes.set_ylim(0, 1.02 if limit == 1 else max(1.5 * float((p <= limit).mean()), 1.05 * limit))
            axes.set_xlabel("x, the largest of the K p-values of an item")
        whole, zoom = drawn.panels[0]
        whole.axvline(tau, color=sheet.INK, linewidth=0.8, linestyle=(0, (4, 2)))
        boxed: dict[str, Any] = {"textcoords": "offset points", "va": "top", "color": sheet.INK}
        boxed["bbox"] = {"facecolor": "white", "edgecolor": "none", "pad": 0.8}
        whole.annotate(f"τ = {tau:g}", (tau, 0.98), xytext=(4, 0), **boxed)
        for i, (name, cut) in enumerate(sorted(cuts.items(), key=lambda item: item[1])):
            zoom.axvline(cut, color=sheet.INK, linewidth=0.9, linestyle=("-", (0, (4, 2)), (0, (1, 1)))[i % 3])
            zoom.annotate(name, (cut, 0.97 - 0.09 * i), xycoords=("data", "axes fraction"), xytext=(3, 0), **boxed)
        whole.set_title("distribution functions", loc="left", color=sheet.INK)
        zoom.set_title("near zero, with the cuts of the selections", loc="left", color=sheet.INK)
        whole.set_ylabel("fraction of items at or below x")
    return drawn


def _stop(p_values: Any, alpha: float) -> int:
    """The largest k with p_(k) <= k·alpha/m, for drawing alone."""
    p = np.sort(np.asarray(p_values, float))
    m = len(p)
    under = np.flatnonzero(p <= np.arange(1, m + 1) * alpha / m * (1 + 1e-9))
    return int(under[-1]) + 1 if under.size else 0


def _ecdf(sample: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    ordered = np.sort(sample)
    return np.concatenate([[0], ordered, [1]]), np.concatenate([[0], np.arange(1, len(sample) + 1) / len(sample), [1]])
