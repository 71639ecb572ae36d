"""The figure of `python -m benchmarks pretrained`: what is found by number of copies, and realised error rates."""

from __future__ import annotations

from typing import Any

import numpy as np

from tdd.report.plots import sheet

__all__ = ["draw"]

_SHOWN = ("loss", "zlib", "min_k", "min_k_plus_plus", "max_renyi")


def draw(result: dict[str, Any]) -> sheet.Sheet:
    """AUC by copies above, a panel for each way of training; realised FDR of PTDI, its power by copies, and p-values of
    the test of order below."""
    looks = {name: sheet.stroke(i) for i, name in enumerate(_SHOWN)}
    trained = result["models"][1:]
    alphas = [level["alpha"] for level in result["models"][0]["rows"][0]["levels"]]
    counts = [str(count) for count in result["copies"]]
    middle = alphas[len(alphas) // 2]
    caption = (
        f"{result['members']} members and {result['texts'] - result['members']} non-members; "
        f"{result['divisions']:,} random divisions of the non-members. Left below: scores under the untouched model "
        f"(hollow), where every selection is false, and after training ({', '.join(one['model'] for one in trained)}); "
        "mean ± 2 s.e. over the divisions; the line is the level. In the middle: the fraction of members that PTDI "
        f"selects at α = {middle:g} after training ({trained[1]['model']}). Right: sets of {result['examples']} "
        f"examples in canonical order, {result['examples'] // result['together']} shards, {result['shuffles']} "
        f"shuffles of each. Seed {result['seed']}."
    )
    with sheet.style():
        drawn = sheet.sheet(
            f"Truth planted in {result['model']['name']}",
            caption,
            rows=2,
            columns=len(trained),
            legend={**{name: sheet.line(look) for name, look in looks.items()}, "level": sheet.level_line()},
            share_x=False,
            share_y=False,
        )
        above, (error, power, order) = drawn.panels
        places = np.arange(len(counts))
        for axes, model in zip(above, trained, strict=True):
            for name, row in _rows(model).items():
                axes.plot(places, [row["by_copies"][count] for count in counts], **_line(looks[name]))
            axes.axhline(0.5, color=sheet.INK, linewidth=0.7)
            axes.set_title(f"trained: {model['model']}", loc="left", color=sheet.INK)
            axes.set_ylim(0.3, 1.02)
            axes.set_ylabel("AUC against all non-members")
            axes.set_xticks(places, counts)
            axes.set_xlabel("copies in the training texts")
        for number, model in enumerate(result["models"]):
            for series, (name, row) in enumerate(_rows(model).items()):
                aside = (number - 1) * 0.3 + (series - 2) * 0.05
                error.errorbar(
                    np.arange(len(alphas)) + aside, [level["fdr"] for level in row["levels"]],
                    [2 * level["fdr_se"] for level in row["levels"]], color=looks[name].colour, linestyle="",
                    marker=looks[name].marker, markersize=3.4, markerfacecolor=None if number else "white",
                )  # fmt: skip
        for place, alpha in enumerate(alphas):
            error.plot([place - 0.45, place + 0.45], [alpha, alpha], **sheet.LEVEL)
        error.set_title("false items among the selected", loc="left", color=sheet.INK)
        error.set_ylabel("FDR, ± 2 s.e.")
        error.set_ylim(bottom=0)
        error.set_xticks(np.arange(len(alphas)), [f"α = {alpha:g}" for alpha in alphas])
        for name, row in _rows(trained[1]).items():
            level = row["levels"][alphas.index(middle)]
            power.plot(places, [level["power_by_copies"][count] for count in counts], **_line(looks[name]))
        power.set_title("members that are selected", loc="left", color=sheet.INK)
        power.set_ylim(-0.03, 1.03)
        power.set_ylabel(f"power at α = {middle:g}")
        power.set_xticks(places, counts)
        power.set_xlabel("copies in the training texts")
        for number, model in enumerate(result["models"]):
            values = [row["p"] for row in model["order"]]
            order.plot(np.arange(len(values)), values, **_line(sheet.stroke(number)), label=model["model"])
        order.set_yscale("log")
        order.legend(frameon=False)
        order.set_title("test of canonical order", loc="left", color=sheet.INK)
        order.set_ylabel("p-value")
        order.set_xticks(np.arange(1 + len(counts)), ["0", *counts])
        order.set_xlabel("copies in the training texts")
    return drawn


def _rows(model: dict[str, Any]) -> dict[str, Any]:
    """The rows of the scores that are shown."""
    return {name: row for name in _SHOWN for row in model["rows"] if row["score"] == name}


def _line(look: sheet.Stroke) -> dict[str, Any]:
    return {"color": look.colour, "marker": look.marker, "linestyle": look.dashes}
